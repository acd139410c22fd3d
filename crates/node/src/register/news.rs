//! Askers that wait for a new view of a log, and the cached entries that answer them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use seriatim_etcd::{Change, KeyValue, Update};
use seriatim_host::Event;
use seriatim_model::{Address, LogId, Time, ViewNumber};
use seriatim_protocol::control::audience::Audience;
use seriatim_protocol::control::message::NEWS;
use seriatim_protocol::control::{LogEntry, Message, NodeAddress, catalog};

use super::keys::{Keys, decode};

/// Age up to which a cached entry answers askers without etcd.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// Age from which a cached entry is also read again when an asker uses it: etcd's notification may
/// have been missed.
const READ_AFTER: Duration = Duration::from_millis(500);
/// Pause between removals of entries without askers.
const FORGET_EVERY: Duration = Duration::from_secs(5);

/// Cached entries of logs with waiting askers. They may be outdated by a moment, so they answer no
/// other askers.
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
    /// Time when the entry was current.
    at: Instant,
}

pub(super) enum Answer {
    /// The asker's answer, and whether to ask etcd nevertheless.
    Known(Message, bool),
    /// No answer before etcd's.
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

    /// Adds an asker. `log` is the last known id of its name.
    pub(super) fn ask(&mut self, log: LogId, asker: Address) -> Answer {
        let (now, known) = (self.now(), self.known.get(&log));
        let fresh = known.filter(|known| known.at.elapsed() < FRESH_FOR);
        let view = fresh.map_or(ViewNumber::NONE, |known| known.entry.view_number());
        // The asker joins first: it must not miss a view registered while etcd is asked.
        self.audience.join(now, log, asker, view);
        let Some(Known { entry, at }) = fresh else { return Answer::Ask };
        let found = Message::Found { request: NEWS, entry: entry.clone(), nodes: self.nodes.clone() };
        Answer::Known(found, at.elapsed() >= READ_AFTER)
    }

    pub(super) fn tell(&mut self, entry: &LogEntry, asker: Address) {
        let now = self.now();
        self.audience.join(now, entry.id, asker, entry.view_number());
    }

    /// Caches an entry that was read after `since`, or written. Returns the messages to the
    /// audience.
    pub(super) fn note(&mut self, entry: &LogEntry, since: Instant) -> Vec<Event> {
        if !self.audience.is_there(entry.id) {
            return vec![];
        }
        let known = self.known.get(&entry.id);
        // A cached higher version counts only if it was read after the question: etcd may have been
        // set back.
        let is_older = known.is_some_and(|known| known.entry.version > entry.version && known.at > since);
        if is_older {
            return vec![];
        }
        self.known.insert(entry.id, Known { entry: entry.clone(), at: Instant::now() });
        let listeners = self.audience.hears_of(self.now(), entry.id, entry.view_number());
        let found = Message::Found { request: NEWS, entry: entry.clone(), nodes: self.nodes.clone() };
        answers(entry.id, listeners, &found)
    }

    /// Applies etcd's notifications. Returns the messages to the audience.
    pub(super) fn watched(&mut self, update: Update) -> Vec<Event> {
        let Update::Changed(changes) = update else {
            // The first state, or a gap in the notifications: no cached entry is reliable.
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
        // An entry that cannot be decoded is skipped: askers receive the error when they ask.
        let Some(Ok(entry)) = awaited.map(|_| decode::<LogEntry>(stored)) else { return vec![] };
        // The notification may be late: it must not replace a newer entry.
        self.note(&entry, self.started)
    }

    /// Clears the cache when etcd is unreachable: no cached entry is reliable.
    pub(super) fn forget_all(&mut self) {
        self.known.clear();
    }

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
