//! What waits for the journal, log by log, and which logs have to wait before they add to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::{Input, LogId, Time};
use seriatim_protocol::{Deviation, Message};
use seriatim_store::{Lsn, RoleKey};

use crate::host::Host;

/// Bytes that were given to the journal and are not durable.
///
/// Invariant: `bytes` is the sum of `of`, and that the sum of `waiting`; `of` holds no zero.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    waiting: VecDeque<(Lsn, LogId, usize)>,
    of: BTreeMap<LogId, usize>,
    bytes: usize,
    /// Roles that were told to admit nothing.
    pressed: BTreeSet<RoleKey>,
}

impl Backlog {
    /// So many bytes wait from now on, until this entry is durable.
    pub(crate) fn add(&mut self, lsn: Lsn, log: LogId, bytes: usize) {
        if bytes > 0 {
            self.waiting.push_back((lsn, log, bytes));
            *self.of.entry(log).or_default() += bytes;
            self.bytes += bytes;
        }
    }

    /// Everything up to this entry is durable.
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

    /// Whether more waits than should, and this log has its share of it: one that has less does not wait for those that
    /// take all they can get.
    fn presses(&self, log: LogId, most_bytes: usize) -> bool {
        let share = most_bytes / self.of.len().max(1);
        self.bytes >= most_bytes && self.of.get(&log).is_some_and(|bytes| *bytes >= share)
    }
}

impl Host {
    /// Tells a role whether it may admit what a client brings, if that has changed since a client last brought something.
    pub(crate) fn press(&mut self, now: Time, key: RoleKey) {
        let options = self.config.options;
        let is_pressed = self.backlog.presses(key.log, options.limits.journal_backlog_bytes)
            && !options.deviates(Deviation::NeverBusy);
        let changed =
            if is_pressed { self.backlog.pressed.insert(key) } else { self.backlog.pressed.remove(&key) };
        if changed {
            self.step(now, key, Input::<Message, _>::Pressed(is_pressed));
        }
    }
}

#[cfg(test)]
mod tests {
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
}
