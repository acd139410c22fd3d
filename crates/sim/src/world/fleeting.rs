//! Logs that come and go beside the tested one: once their deletion is confirmed they are gone, on every node and for good.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::{Endpoint, LogId, ShardId};
use seriatim_protocol::{Message, control};

use super::nodes::{frame, open};
use super::{CONTROL, FOUNDER, Happening, World};
use crate::network::Party;

/// How long whoever creates or deletes waits for an answer before asking again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// The numbers of questions about such logs: no other questions of the founder have them.
const FIRST_REQUEST: u64 = 1 << 50;

/// One such log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fleeting {
    /// Which it is, once its creation is confirmed.
    log: Option<LogId>,
    /// It is to go.
    is_unwanted: bool,
    /// Its deletion is confirmed.
    is_gone: bool,
}

/// All of them, by number.
pub(super) type Fleet = BTreeMap<u64, Fleeting>;

impl World {
    /// Sees to it that the plan's logs come and go.
    pub(super) fn schedule_fleeting(&mut self) {
        for (number, (comes, goes)) in self.plan.fleeting.clone().into_iter().enumerate() {
            let number = number as u64;
            self.schedule(self.began + comes, Happening::LogComes(number));
            self.schedule(self.began + goes, Happening::LogGoes(number));
        }
    }

    /// Asks for a log, again and again until it is there.
    pub(super) fn log_comes(&mut self, number: u64) {
        if self.fleet.entry(number).or_default().log.is_some() {
            return;
        }
        let (request, name) = (FIRST_REQUEST + 2 * number, name_of(number));
        let message = control::Message::Create { request, name, config: self.plan.config.clone() };
        self.ask_register(message);
        self.schedule(self.now + AGAIN_AFTER, Happening::LogComes(number));
    }

    /// Wants a log to be gone, as soon as it is there, and asks again and again until it is.
    pub(super) fn log_goes(&mut self, number: u64) {
        let fleeting = self.fleet.entry(number).or_default();
        fleeting.is_unwanted = true;
        if fleeting.is_gone {
            return;
        }
        if let Some(log) = fleeting.log {
            let (request, name) = (FIRST_REQUEST + 2 * number + 1, name_of(number));
            self.ask_register(control::Message::Delete { request, name, log });
        }
        self.schedule(self.now + AGAIN_AFTER, Happening::LogGoes(number));
    }

    fn ask_register(&mut self, message: control::Message) {
        let bytes = frame(LogId(0), Endpoint::Client(0), Endpoint::Register, &message.into());
        self.transmit(Party::Client(FOUNDER), Party::Node(CONTROL), bytes);
    }

    /// The founder of logs is answered.
    pub(super) fn founder_hears(&mut self, bytes: &Bytes) {
        let (.., message) = open(bytes.clone()).expect("what was encoded is decoded");
        let Message::Control(control::Message::Done { request, log }) = message else { return };
        let Some(question) = request.checked_sub(FIRST_REQUEST) else { return };
        let Some(fleeting) = self.fleet.get_mut(&(question / 2)) else { return };
        match question % 2 {
            0 => fleeting.log = Some(log),
            _ => {
                self.coverage.deletions += u64::from(!fleeting.is_gone);
                fleeting.is_gone = true;
            }
        }
    }

    fn gone_logs(&self) -> impl Iterator<Item = LogId> {
        self.fleet.values().filter(|fleeting| fleeting.is_gone).filter_map(|fleeting| fleeting.log)
    }

    /// Whether the register knows of none that is gone. Looked at whenever it did something.
    pub(super) fn observe_gone(&mut self) {
        let back = self.gone_logs().find(|log| self.entries().any(|entry| entry.id == *log));
        if let Some(log) = back {
            self.history.problems.push(format!("log {log} was deleted, and the register knows it again"));
            self.is_over = true;
        }
    }

    /// The remains of logs that were deleted, or were to be.
    pub(super) fn remains(&self) -> Vec<String> {
        let mut remains: Vec<String> = self
            .fleet
            .iter()
            .filter(|(_, fleeting)| fleeting.is_unwanted && !fleeting.is_gone)
            .map(|(number, fleeting)| format!("{} is not deleted: {fleeting:?}", name_of(*number)))
            .collect();
        for log in self.gone_logs() {
            let directory = format!("logs/{:016x}/", log.0);
            for (id, node) in &self.nodes {
                let has_role = node.sequencer(log).is_some()
                    || (0..self.plan.config.shards).any(|shard| node.replica(log, ShardId(shard)).is_some());
                let files = node.disk.files().into_iter().filter(|file| file.starts_with(&directory)).count();
                if has_role || files > 0 {
                    remains.push(format!("node {id} has {files} files of log {log}, role {has_role}"));
                }
            }
        }
        remains
    }
}

fn name_of(number: u64) -> String {
    format!("fleeting-{number}")
}
