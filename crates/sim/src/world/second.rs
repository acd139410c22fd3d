//! A second log beside the tested one, of which little is asked: what the first is asked for must not be felt there.

use std::collections::BTreeMap;

use seriatim_model::{LogId, ShardId};
use seriatim_protocol::control::LogEntry;

use super::World;
use crate::client::{Client, Producer};
use crate::history::{End, History};
use crate::plan::{Plan, Workload};

/// The name of the second log.
pub(super) const NAME: &str = "second";
/// The client that appends to the second log.
const APPENDER: u32 = 10_003;
/// The client that reads all of it in the end.
const JUDGE: u32 = 10_004;
/// How many of its appends may be on their way: it asks for the next whatever became of the last.
const WINDOW: u32 = 64;

/// The history of the log that a client uses.
pub(super) fn history_of(history: &mut History, client: u32) -> &mut History {
    match client {
        APPENDER | JUDGE => history.second.as_mut().expect("there is a second log"),
        _ => history,
    }
}

/// The workload of a client.
pub(super) fn workload_of(plan: &Plan, client: u32) -> Workload {
    match plan.second_log_every.filter(|_| client == APPENDER) {
        // Pauses are between a quarter and the whole of the longest.
        Some(every) => {
            Workload { window: WINDOW, burst: 1, think_us: every.as_micros() as u64 * 8 / 5, ..plan.workload }
        }
        None => plan.workload,
    }
}

impl World {
    /// Creates the second log, if the plan wants one.
    pub(super) fn found_second(&mut self) {
        if self.scene.plan.second_log_every.is_none() {
            return;
        }
        self.create(NAME.to_owned(), self.scene.plan.config.clone());
        let id = self.entries().find(|entry| entry.name == NAME).map(|entry| entry.id);
        self.scene.second = id;
        self.scene.history.second = Some(Box::new(History::new(self.scene.plan.config.clone())));
    }

    /// The log that a client uses.
    pub(super) fn log_of(&self, client: u32) -> LogId {
        match client {
            APPENDER | JUDGE => self.scene.second.unwrap_or_default(),
            _ => self.scene.log,
        }
    }

    fn second_entry(&self) -> Option<&LogEntry> {
        let second = self.scene.second?;
        self.entries().find(|entry| entry.id == second)
    }

    /// Starts the client of the second log.
    pub(super) fn add_second_client(&mut self) {
        let Some(entry) = self.second_entry().cloned() else { return };
        let config = self.machine_config(None);
        let session = history_of(&mut self.scene.history, APPENDER).open_session();
        let producer = Producer::new(0, APPENDER, session, u32::MAX, (config, entry), self.scene.now);
        let client = Client {
            number: APPENDER,
            producers: BTreeMap::from([(0, producer)]),
            reader: None,
            subscription: None,
            lookups: None,
            trimmer: None,
            wake_at: None,
        };
        self.clients.insert(APPENDER, client);
        self.wake_client(APPENDER, self.scene.now);
    }

    /// Whether everything that was appended to the second log is final.
    pub(super) fn second_is_at_rest(&self) -> bool {
        let Some(log) = self.scene.second else { return true };
        let Some(view) = self.second_entry().and_then(|entry| entry.view.as_ref()) else { return false };
        let Some(leader) = self.nodes[&view.leader].sequencer(log) else { return false };
        let ordered = leader.ordered();
        view.sequencers.iter().all(|member| {
            let role = self.nodes[&member.node].sequencer(log);
            role.is_some_and(|role| role.is_open() && role.held() == 0 && role.ordered() == ordered)
        }) && view.shards.iter().all(|members| {
            let role = self.nodes[&members.primary().node].replica(log, members.shard);
            role.is_some_and(|role| role.stable() == ordered)
        })
    }

    /// Reads the second log from its beginning to its end.
    pub(super) fn read_second(&mut self) {
        let Some(entry) = self.second_entry().cloned() else { return };
        let leader = entry.view.as_ref().and_then(|view| self.nodes[&view.leader].sequencer(entry.id));
        let tail = leader.map(|leader| leader.ordered());
        let shards = (0..entry.config.shards).map(ShardId).collect();
        let trim = self.read_log(JUDGE, &entry, shards);
        history_of(&mut self.scene.history, JUDGE).end = match trim.zip(tail) {
            Some(((trim, true), tail)) => End::Settled { trim, tail },
            _ => End::Stuck("the second log could not be read to its end".into()),
        };
    }
}
