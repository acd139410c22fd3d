//! A node's report about itself, for clients that ask.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::{Address, Endpoint, LogId, Time, limits};
use seriatim_protocol::control::{Ailment, Condition, LeftOut, LogCondition, Message, ReplicaOf};
use seriatim_protocol::shard;
use seriatim_store::RoleKey;

use crate::host::Host;
use crate::recovery::Problem;
use crate::role::Role;
use crate::usage::Usage;

/// The node itself, which belongs to no log.
pub(crate) const NODE: RoleKey = RoleKey { log: LogId(0), endpoint: Endpoint::Node };

const UNSENT: &str = "a message cannot be sent";

/// Most clients that wait for the condition. Further clients must ask again.
const MOST_ASKS: usize = 1024;

/// Measurements from outside of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Wrong suspicions of other nodes.
    pub wrong_suspicions: u64,
    /// Duration of recent journal writes.
    pub journal_write: Duration,
    /// Why the node cannot serve; `None` if it can.
    pub ailment: Option<Ailment>,
}

impl Host {
    /// Stores measurements.
    pub fn note_condition(&mut self, measured: Measured) {
        self.measured = measured;
    }

    /// Reports once for each role that its message exceeds the largest frame. The role repeats the
    /// message, and its log is blocked.
    pub fn note_unsent(&mut self, log: LogId, endpoint: Endpoint, cause: &str) {
        let is_told = |problem: &Problem| {
            (problem.log, problem.endpoint) == (log, endpoint) && problem.cause.starts_with(UNSENT)
        };
        if !self.problems.iter().any(is_told) {
            self.problems.push(Problem { log, endpoint, cause: format!("{UNSENT}: {cause}") });
        }
    }

    pub(crate) fn note_ask(&mut self, from: Address, request: u64) {
        if self.asks.len() < MOST_ASKS {
            self.asks.push((from, request));
        }
    }

    /// Whether a client waits for the node's condition.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        !self.asks.is_empty()
    }

    /// Sends the node's condition to all clients that asked. `usage` is `None` if unknown.
    pub fn tell_condition(&mut self, now: Time, usage: Option<&Usage>) {
        let asks = std::mem::take(&mut self.asks);
        if asks.is_empty() {
            return;
        }
        let Measured { wrong_suspicions, journal_write, ailment } = self.measured;
        let little_room = self.little_room(now);
        let condition = Condition {
            suspects: self.suspected().collect(),
            wrong_suspicions,
            journal_write_us: u64::try_from(journal_write.as_micros()).unwrap_or(u64::MAX),
            has_full_disk: self.has_full_disk(),
            free_bytes: self.free_bytes(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            up_ms: millis(now.since(Time::ZERO)),
            ailment,
            used_bytes: usage.map(|usage| usage.bytes),
            has_register: self.hosts_register(),
            logs: self.log_conditions(now, usage),
            incomplete: self.incomplete(),
            wanted_bytes: self.has_full_disk().then(|| self.wanted_bytes(now)),
            free_percent: little_room.map(|share| share.percent),
            full_in_s: little_room.and_then(|share| share.full_in).map(|time| time.as_secs()),
            left_out: self.left_out(now),
        };
        for (to, request) in asks {
            let condition = condition.clone();
            self.send(NODE, to, Message::ConditionIs { request, condition }.into());
        }
    }

    fn left_out(&self, now: Time) -> Vec<LeftOut> {
        let mut left_out = vec![];
        for key in self.controllers() {
            let Some(controller) = self.controller(key.log) else { continue };
            let Some(entry) = controller.entry() else { continue };
            for (node, since, why) in self.notices.left_out(key.log, entry.view_number()) {
                let back_in = millis(controller.takes_back_at(node).since(now));
                left_out.push(LeftOut {
                    log: key.log,
                    node,
                    ago_ms: millis(now.since(since)),
                    why: why.unwrap_or_default().to_owned(),
                    back_in_ms: self.others.is_able(node).then_some(back_in),
                });
            }
        }
        left_out.truncate(limits::CONDITION_LOGS);
        left_out
    }

    /// Shard replicas that are incomplete or in no view.
    fn incomplete(&self) -> Vec<ReplicaOf> {
        let is_incomplete = |key: &&RoleKey| match key.endpoint {
            Endpoint::Shard(shard) => !self.replica(key.log, shard).is_some_and(shard::Replica::is_whole),
            _ => false,
        };
        let replica_of = |key: &RoleKey| match key.endpoint {
            Endpoint::Shard(shard) => Some(ReplicaOf { log: key.log, shard }),
            _ => None,
        };
        self.roles.keys().filter(is_incomplete).filter_map(replica_of).take(limits::CONDITION_LOGS).collect()
    }

    fn log_conditions(&self, now: Time, usage: Option<&Usage>) -> Vec<LogCondition> {
        let mut logs: BTreeMap<LogId, LogCondition> = BTreeMap::new();
        for (key, role) in &self.roles {
            let shard = match key.endpoint {
                Endpoint::Shard(shard) => Some(shard),
                Endpoint::Sequencer => None,
                _ => continue,
            };
            if logs.len() == limits::CONDITION_LOGS && !logs.contains_key(&key.log) {
                break;
            }
            let condition = logs.entry(key.log).or_default();
            condition.log = key.log;
            condition.shards.extend(shard);
            if let Role::Sequencer(sequencing) = role {
                let (stands, lag) = self.progress.of(now, key.log);
                (condition.sequences, condition.is_open) = (true, sequencing.is_open());
                (condition.stands_ms, condition.lag_ms) = (millis(stands), millis(lag));
            }
        }
        for condition in logs.values_mut() {
            condition.bytes = usage.map(|usage| usage.logs.get(&condition.log).copied().unwrap_or(0));
        }
        logs.into_values().collect()
    }

    /// Answers with the log entries and nodes known here, without the register.
    pub(crate) fn tell_known(&mut self, to: Address, request: u64) {
        let controllers = self.controllers();
        let known = controllers.iter().filter_map(|key| self.controller(key.log)?.entry());
        let entries = known.take(limits::CONDITION_LOGS).cloned().collect();
        let nodes = self.others.known();
        self.send(NODE, to, Message::KnownIs { request, entries, nodes }.into());
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
