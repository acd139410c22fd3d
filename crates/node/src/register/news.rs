//! Addresses that wait for news of a log, and what is known of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use seriatim_etcd::{Change, KeyValue, Update};
use seriatim_host::Event;
use seriatim_model::{Address, LogId, Time, ViewNumber};
use seriatim_protocol::control::audience::Audience;
use seriatim_protocol::control::message::NEWS;
use seriatim_protocol::control::{LogEntry, Message, NodeAddress, catalog};

use super::keys::{Keys, decode};

/// For how long what is known answers those who wait for news, without asking etcd.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// After how long it is read again if somebody asks, in case that something was missed.
const READ_AFTER: Duration = Duration::from_millis(500);
/// How often what nobody waits for any more is forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(5);

/// The logs that somebody waits for.
///
/// The entries here are true or were so a moment ago: they answer addresses that wait for news, and
/// no others.
pub(super) struct News {
    keys: Keys,
    started: Instant,
    audience: Audience,
    known: BTreeMap<LogId, Known>,
    pub(super) nodes: Vec<NodeAddress>,
    forget_at: Instant,
}

struct Known {
    entry: LogEntry,
    /// When it was true.
    at: Instant,
}

/// How somebody who waits for news is answered.
pub(super) enum Answer {
    /// At once. Whether etcd is to be asked all the same, to be sure.
    Known(Message, bool),
    /// When etcd has been asked.
    Ask,
}

impl News {
    pub(super) fn new(keys: Keys) -> Self {
        let started = Instant::now();
        let forget_at = started + FORGET_EVERY;
        Self {
            keys,
            started,
            audience: Audience::default(),
            known: BTreeMap::new(),
            nodes: vec![],
            forget_at,
        }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Somebody asks for news of a log that had this name when it was looked up last.
    pub(super) fn ask(&mut self, log: LogId, asker: Address) -> Answer {
        let (now, known) = (self.now(), self.known.get(&log));
        let fresh = known.filter(|known| known.at.elapsed() < FRESH_FOR);
        let view = fresh.map_or(ViewNumber::NONE, |known| known.entry.view_number());
        // From now on: what is registered while etcd is asked is not missed.
        self.audience.join(now, log, asker, view);
        let Some(Known { entry, at }) = fresh else { return Answer::Ask };
        let found = Message::Found { request: NEWS, entry: entry.clone(), nodes: self.nodes.clone() };
        Answer::Known(found, at.elapsed() >= READ_AFTER)
    }

    /// Somebody who asked for news is told of this entry.
    pub(super) fn tell(&mut self, entry: &LogEntry, asker: Address) {
        let now = self.now();
        self.audience.join(now, entry.id, asker, entry.view_number());
    }

    /// An entry was read at some time after `since`, or put into place. Those who are to be told of
    /// it.
    pub(super) fn note(&mut self, entry: &LogEntry, since: Instant) -> Vec<Event> {
        if !self.audience.is_there(entry.id) {
            return vec![];
        }
        let known = self.known.get(&entry.id);
        // An entry from before the question is true no more, even with a higher number: etcd may
        // have been set back.
        let is_older = known.is_some_and(|known| known.entry.version > entry.version && known.at > since);
        if is_older {
            return vec![];
        }
        self.known.insert(entry.id, Known { entry: entry.clone(), at: Instant::now() });
        let listeners = self.audience.hears_of(self.now(), entry.id, entry.view_number());
        let found = Message::Found { request: NEWS, entry: entry.clone(), nodes: self.nodes.clone() };
        answers(entry.id, listeners, &found)
    }

    /// etcd told on its own what changed. Those who are to be told.
    pub(super) fn watched(&mut self, update: Update) -> Vec<Event> {
        let Update::Changed(changes) = update else {
            // Something was missed, if this is not the start: nothing is known any more.
            self.known.clear();
            return vec![];
        };
        changes.into_iter().flat_map(|change| self.changed(change)).collect()
    }

    fn changed(&mut self, change: Change) -> Vec<Event> {
        match change {
            Change::Put(stored) => self.put(&stored),
            Change::Deleted { key } => {
                let Some(log) = self.keys.log_of(&key) else { return vec![] };
                let Some(Known { entry, .. }) = self.known.remove(&log) else { return vec![] };
                let refused = Message::Refused { request: NEWS, refusal: catalog::not_found(entry.name) };
                answers(log, self.audience.remove_log(log), &refused)
            }
        }
    }

    fn put(&mut self, stored: &KeyValue) -> Vec<Event> {
        let awaited = self.keys.log_of(&stored.key).filter(|log| self.audience.is_there(*log));
        // One that cannot be read is said to be so to those who ask for it.
        let Some(Ok(entry)) = awaited.map(|_| decode::<LogEntry>(stored)) else { return vec![] };
        // It may be late: what was read in the meantime is not replaced by something older.
        self.note(&entry, self.started)
    }

    /// Nothing that is known can be relied on: etcd is not heard.
    pub(super) fn forget_all(&mut self) {
        self.known.clear();
    }

    /// Forgets what nobody waits for any more, now and then.
    pub(super) fn forget(&mut self) {
        if Instant::now() >= self.forget_at {
            self.forget_at = Instant::now() + FORGET_EVERY;
            let audience = &self.audience;
            self.known.retain(|log, _| audience.is_there(*log));
        }
    }
}

fn answers(log: LogId, listeners: Vec<Address>, message: &Message) -> Vec<Event> {
    let answer = |to| Event::RegisterAnswered { to, log, message: message.clone() };
    listeners.into_iter().map(answer).collect()
}
