//! Backlog of the journal and the disk for each log, and the logs that must wait because of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use seriatim_model::storage::StorageCommand;
use seriatim_model::{Input, LogId, Time};
use seriatim_protocol::{Message, Mutation};
use seriatim_store::{BytesBehind, Lsn, RoleKey};

use crate::host::Host;

/// Time after a client's append in which the log counts as sharing the node.
const SHARED_FOR: Duration = Duration::from_secs(10);

/// Divisor of the allowed backlog where logs share a node: entries become durable in order, so a
/// small log waits for the others' backlog. A log alone waits only for itself.
const PART_IF_SHARED: usize = 12;

/// Bytes given to the journal that are not durable.
///
/// Invariant: `bytes` is the sum of `of`, and also of `waiting`; `of` holds no zero.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    waiting: VecDeque<(Lsn, LogId, usize)>,
    of: BTreeMap<LogId, usize>,
    bytes: usize,
    /// Bytes of records given to the disk since it last kept up. At durability `memory` no other
    /// backlog shows them.
    given: BTreeMap<LogId, u64>,
    /// Roles that must admit no appends.
    pressed: BTreeSet<RoleKey>,
    /// The last two logs with client appends, the latest first.
    visited: [Option<(LogId, Time)>; 2],
}

pub(crate) fn record_bytes(command: &StorageCommand) -> usize {
    match command {
        StorageCommand::Put(records) => records.iter().map(|(_, record)| record.size()).sum(),
        StorageCommand::Bind { runs, .. } => {
            runs.iter().flat_map(|run| &run.records).map(|(_, record)| record.size()).sum()
        }
        _ => 0,
    }
}

pub(crate) fn record_count(command: &StorageCommand) -> usize {
    match command {
        StorageCommand::Put(records) => records.len(),
        StorageCommand::Bind { runs, .. } => runs.iter().map(|run| run.records.len()).sum(),
        _ => 0,
    }
}

impl Backlog {
    pub(crate) fn visit(&mut self, now: Time, log: LogId) {
        let [latest, _] = self.visited;
        if latest.is_some_and(|(before, _)| before != log) {
            self.visited[1] = latest;
        }
        self.visited[0] = Some((log, now));
    }

    /// Whether clients append to several logs.
    fn is_shared(&self, now: Time) -> bool {
        self.visited[1].is_some_and(|(_, at)| now - at < SHARED_FOR)
    }

    pub(crate) fn add(&mut self, lsn: Lsn, log: LogId, bytes: usize) {
        if bytes > 0 {
            self.waiting.push_back((lsn, log, bytes));
            *self.of.entry(log).or_default() += bytes;
            self.bytes += bytes;
        }
    }

    pub(crate) fn durable(&mut self, durable: Lsn) {
        while self.waiting.front().is_some_and(|(lsn, ..)| *lsn <= durable) {
            let (_, log, bytes) = self.waiting.pop_front().expect("the front was just seen");
            let of = self.of.get_mut(&log).expect("what waits is counted");
            assert!(*of >= bytes && self.bytes >= bytes, "what waits is counted");
            (*of, self.bytes) = (*of - bytes, self.bytes - bytes);
            if *of == 0 {
                self.of.remove(&log);
            }
        }
    }

    pub(crate) fn gives(&mut self, log: LogId, command: &StorageCommand) {
        let bytes = record_bytes(command);
        if bytes > 0 {
            *self.given.entry(log).or_default() += bytes as u64;
        }
    }

    /// Whether the disk falls behind, and this log gave it at least an average share.
    fn presses_the_disk(&mut self, log: LogId, behind: BytesBehind) -> bool {
        if !behind.is_pressing() {
            self.given.clear();
            return false;
        }
        let share = self.given.values().sum::<u64>() / self.given.len().max(1) as u64;
        self.given.get(&log).is_some_and(|given| *given >= share)
    }

    /// Whether the backlog is too large, and this log has at least its share of it. Small logs need
    /// not wait for large ones.
    fn presses(&self, log: LogId, most_bytes: usize) -> bool {
        let share = most_bytes / self.of.len().max(1);
        self.bytes >= most_bytes && self.of.get(&log).is_some_and(|bytes| *bytes >= share)
    }
}

impl Host {
    /// Notifies a role when it must reject appends and pause copying, and when this ends.
    pub(crate) fn press(&mut self, now: Time, key: RoleKey) {
        let options = self.config.options;
        let part = if self.backlog.is_shared(now) { PART_IF_SHARED } else { 1 };
        let most = options.limits.journal_backlog_bytes / part;
        let behind = self.disk.behind();
        let is_behind = self.backlog.presses_the_disk(key.log, behind);
        let is_alike =
            options.mutates(Mutation::SharesIgnored) && (self.backlog.bytes >= most || behind.is_pressing());
        let is_pressed = (is_behind || is_alike || self.backlog.presses(key.log, most))
            && !options.mutates(Mutation::NeverBusy);
        let changed =
            if is_pressed { self.backlog.pressed.insert(key) } else { self.backlog.pressed.remove(&key) };
        if changed {
            self.step(now, key, Input::<Message, _>::Pressed(is_pressed));
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Position, Record, RecordId, SessionId};

    use super::*;

    const HOT: LogId = LogId(1);
    const QUIET: LogId = LogId(2);
    const MOST: usize = 100;

    #[test]
    fn a_log_that_takes_all_it_can_get_waits_and_others_do_not() {
        let mut backlog = Backlog::default();
        backlog.add(Lsn(1), HOT, MOST - 10);
        assert!(!backlog.presses(HOT, MOST));
        backlog.add(Lsn(2), QUIET, 10);
        assert!(backlog.presses(HOT, MOST) && !backlog.presses(QUIET, MOST));
        backlog.durable(Lsn(1));
        assert!(!backlog.presses(HOT, MOST));
        backlog.durable(Lsn(2));
        assert!(backlog.of.is_empty() && backlog.bytes == 0);
    }

    #[test]
    fn a_node_is_shared_while_clients_bring_something_for_several_logs() {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let mut backlog = Backlog::default();
        backlog.visit(at(0), HOT);
        backlog.visit(at(1), HOT);
        assert!(!backlog.is_shared(at(1)));
        backlog.visit(at(100), QUIET);
        assert!(backlog.is_shared(at(100)));
        backlog.visit(at(200), HOT);
        backlog.visit(at(300), HOT);
        assert!(backlog.is_shared(at(10_099)) && !backlog.is_shared(at(10_100)));
    }

    fn put(count: usize) -> StorageCommand {
        let record = Record::new(&[0; 10], 0);
        let id = |number| RecordId { session: SessionId::new(Position::ZERO, 1), number };
        StorageCommand::Put((0..count as u64).map(|number| (id(number), record.clone())).collect())
    }

    #[test]
    fn a_log_whose_records_the_disk_does_not_keep_up_with_waits_and_others_do_not() {
        let mut backlog = Backlog::default();
        let [well, behind] = [49, 50].map(|bytes| BytesBehind { bytes, most: 100 });
        backlog.gives(HOT, &put(9));
        backlog.gives(QUIET, &put(1));
        assert!(backlog.presses_the_disk(HOT, behind) && !backlog.presses_the_disk(QUIET, behind));
        assert!(!backlog.presses_the_disk(LogId(3), behind));
        assert!(!backlog.presses_the_disk(HOT, well));
        // Bytes given before the disk kept up no longer count.
        assert!(!backlog.presses_the_disk(HOT, behind));
        backlog.gives(QUIET, &put(1));
        assert!(backlog.presses_the_disk(QUIET, behind));
    }
}
