//! Permanent removal of roles with their files.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::wire::encode_one;
use seriatim_model::{Endpoint, Input, LogId, ShardId, Time, ViewNumber, limits};
use seriatim_protocol::control;
use seriatim_store::{Disk, RoleKey, ShardStore};

use crate::host::Host;
use crate::journal::{RoleRecord, RoleSnapshot, encode};
use crate::recovery::Problem;
use crate::role::Role;

/// Delay until the node reports a log that the register does not know. A deleted log is retired by
/// then.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);

impl Host {
    pub(crate) fn remove_log(&mut self, now: Time, log: LogId) {
        let keys: Vec<_> = self.roles.keys().copied().filter(|key| key.log == log).collect();
        for key in keys {
            self.remove(key);
        }
        note_gone(&mut self.gone, log);
        self.append(gone(log), &encode(&RoleRecord::Gone));
        self.awaited = self.last;
        self.retired.push_back((self.last, log));
        self.note_deleted(now);
    }

    /// The node's own snapshot: number of its disk, and deleted logs.
    pub(crate) fn own_snapshot(&self) -> Vec<Bytes> {
        let gone: Vec<LogId> = self.gone.iter().copied().collect();
        encode(&RoleSnapshot { began: None, own: vec![encode_one(&self.mark.read().0), encode_one(&gone)] })
    }

    /// Handles a log unknown to the register. Unless it is retired soon, a log with replicas here
    /// shows that the register was set back.
    pub(crate) fn note_unknown(&mut self, now: Time, log: LogId) {
        let is_replica = |key: &RoleKey| matches!(key.endpoint, Endpoint::Sequencer | Endpoint::Shard(_));
        if !self.roles.keys().any(|key| key.log == log && is_replica(key)) {
            self.unknown.remove(&log);
            return;
        }
        let since = self.unknown.entry(log).or_insert(Some(now));
        if since.is_some_and(|since| now >= since + UNKNOWN_FOR) {
            *since = None;
            let cause = "the register does not know this log, which has replicas here: if the register was set back \
                         to an older state, restore its latest state; until then no client can use the log, and its \
                         records stay on the disk";
            self.problems.push(Problem { log, endpoint: Endpoint::Node, cause: cause.into() });
        }
    }

    /// Reports the log as retired. Its removal also covers stores of roles killed before the
    /// journal named them.
    pub(crate) fn log_is_removed(&mut self, outcome: Result<(), String>) {
        let (_, log) = self.retired.pop_front().expect("it is there until its files are gone");
        if let Err(cause) = outcome {
            let cause = format!("cannot remove the files of the deleted log: {cause}");
            self.problems.push(Problem { log, endpoint: Endpoint::Node, cause });
        }
        let message = control::Message::Retired { log, node: self.config.node };
        self.send_to_register(message);
    }

    /// Removes a dismissed role. Keeps a role that obeys a later claim, because an attempt counts
    /// on it, or from which successors still copy.
    pub(crate) fn dismiss(&mut self, now: Time, key: RoleKey, view: ViewNumber) {
        let claim = match self.roles.get(&key) {
            Some(Role::Sequencer(role)) => role.claim(),
            Some(Role::Shard(role, _)) if role.is_needed(now) => return,
            Some(Role::Shard(role, _)) => role.memory().claim,
            Some(_) => return,
            None => return self.dismiss_forgotten(key),
        };
        if claim > view {
            return;
        }
        if matches!(key.endpoint, Endpoint::Shard(_)) {
            self.notice_dismissed(now, key);
        }
        self.remove(key);
        self.awaited = self.last;
        if let Endpoint::Shard(shard) = key.endpoint {
            self.doomed.push_back((self.last, key.log, shard));
        }
        self.note_deleted(now);
    }

    fn dismiss_forgotten(&mut self, key: RoleKey) {
        if let Endpoint::Shard(shard) = key.endpoint
            && self.forgotten.remove(&key)
        {
            self.doomed.push_back((self.last, key.log, shard));
        }
    }

    pub(crate) fn store_is_removed(&mut self, outcome: Result<(), String>) {
        let (_, log, shard) = self.doomed.pop_front().expect("it is there until its files are gone");
        self.problems.extend(outcome.err().map(|cause| unremoved(log, shard, &cause)));
    }

    /// Whether a dismissed role's files still exist.
    pub(crate) fn is_doomed(&self, key: RoleKey) -> bool {
        self.doomed
            .iter()
            .any(|(_, log, shard)| key == RoleKey { log: *log, endpoint: Endpoint::Shard(*shard) })
    }

    fn remove(&mut self, key: RoleKey) {
        self.forget(key);
        self.append(key, &encode(&RoleRecord::Gone));
    }

    pub(crate) fn forget(&mut self, key: RoleKey) {
        self.roles.remove(&key);
        if key.endpoint == Endpoint::Controller {
            self.notices.forget(key.log);
        }
        if key.endpoint == Endpoint::Sequencer {
            self.progress.forget(key.log);
        }
        // A new incarnation numbers its writes from the beginning, so pending results are not its
        // own.
        self.writes.retain(|(_, writer, _)| *writer != key);
        self.local.retain(|(to, input)| *to != key || matches!(input, Input::Message { .. }));
        self.serving.forget(key);
        self.timers.set(key, None);
        self.beginnings.remove(&key);
    }
}

pub(crate) fn note_gone(gone: &mut VecDeque<LogId>, log: LogId) {
    gone.retain(|other| *other != log);
    gone.push_back(log);
    if gone.len() > limits::MAX_GONE_LOGS {
        gone.pop_front();
    }
}

fn gone(log: LogId) -> RoleKey {
    RoleKey { log, endpoint: Endpoint::Node }
}

/// Removes stores of replicas that were killed before the journal named them and so confirmed
/// nothing. Keeps a store with records: its journal entry was lost.
pub(crate) fn remove_unborn(disk: &dyn Disk, roles: &BTreeMap<RoleKey, Role>) -> Vec<Problem> {
    let problem = |log, endpoint, cause| Problem { log, endpoint, cause };
    let stores = match ShardStore::all(disk) {
        Ok(stores) => stores,
        Err(cause) => {
            let cause = format!("cannot list the stores on the disk: {cause}");
            return vec![problem(LogId(0), Endpoint::Node, cause)];
        }
    };
    let key = |log, shard| RoleKey { log, endpoint: Endpoint::Shard(shard) };
    let unknown = stores.into_iter().filter(|(log, shard)| !roles.contains_key(&key(*log, *shard)));
    unknown
        .filter_map(|(log, shard)| match ShardStore::has_records(disk, log, shard) {
            Ok(false) => remove_store(disk, log, shard),
            Ok(true) => {
                let place = ShardStore::directory(log, shard);
                let cause = format!(
                    "{place} has records that the journal does not know: if the journal was lost or set back, restore \
                     its latest state; if not, no replica needs them"
                );
                Some(problem(log, Endpoint::Shard(shard), cause))
            }
            Err(cause) => Some(problem(log, Endpoint::Shard(shard), cause.to_string())),
        })
        .collect()
}

pub(crate) fn remove_store(disk: &dyn Disk, log: LogId, shard: ShardId) -> Option<Problem> {
    let cause = ShardStore::destroy(disk, log, shard).err()?;
    Some(unremoved(log, shard, &cause.to_string()))
}

fn unremoved(log: LogId, shard: ShardId, cause: &str) -> Problem {
    let cause = format!("cannot remove the files of a replica that was replaced: {cause}");
    Problem { log, endpoint: Endpoint::Shard(shard), cause }
}
