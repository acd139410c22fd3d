//! Turns: limits how many logs of a node form a view at once.
//!
//! After the loss or return of a node all logs need a view. A thousand concurrent attempts are so
//! slow that controllers of other nodes suspect them and claim the same logs, and none succeeds. So
//! a node works on a few logs at a time; other nodes may finish waiting ones. A view change begins
//! with a request for the register's entry, which waits here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use seriatim_model::{Address, Endpoint, LogId, Time};
use seriatim_protocol::Message;
use seriatim_protocol::control;
use seriatim_protocol::roles::RoleEffect;
use seriatim_store::RoleKey;

use crate::host::Host;
use crate::role::Role;

/// Most logs with a turn.
const MOST: usize = 64;
/// Longest turn: a stalled log must not block others.
const TURN: Duration = Duration::from_secs(1);

/// Invariant: `waits` contains the logs of `queue`, and none of them has a turn.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Start of each turn.
    at_work: BTreeMap<LogId, Time>,
    queue: VecDeque<LogId>,
    waits: BTreeSet<LogId>,
}

impl Turns {
    /// Whether the log has its turn. Otherwise it waits for [`next`](Self::next).
    fn begin(&mut self, log: LogId) -> bool {
        if self.at_work.contains_key(&log) {
            return true;
        }
        if self.waits.insert(log) {
            self.queue.push_back(log);
        }
        false
    }

    fn end(&mut self, log: LogId) {
        self.at_work.remove(&log);
        if self.waits.remove(&log) {
            self.queue.retain(|waiting| *waiting != log);
        }
    }

    fn next(&mut self, now: Time) -> Option<LogId> {
        if self.queue.is_empty() {
            return None;
        }
        if self.at_work.len() >= MOST {
            self.at_work.retain(|_, since| now < *since + TURN);
        }
        if self.at_work.len() >= MOST {
            return None;
        }
        let log = self.queue.pop_front()?;
        assert!(self.waits.remove(&log), "{log} is in the queue, and waits");
        assert_eq!(self.at_work.insert(log, now), None, "{log} waits, and has no turn");
        Some(log)
    }
}

impl Host {
    /// Whether the effect begins a view change out of turn.
    pub(crate) fn make_wait(&mut self, key: RoleKey, effect: &RoleEffect) -> bool {
        let asks = matches!(
            effect,
            RoleEffect::Send {
                to: Address::Node(_, Endpoint::Register),
                message: Message::Control(control::Message::Get { .. }),
            }
        );
        asks && key.endpoint == Endpoint::Controller && !self.turns.begin(key.log)
    }

    pub(crate) fn take_turns(&mut self, now: Time, key: RoleKey) {
        let Some(Role::Controller(controller)) = self.roles.get(&key) else { return };
        if !controller.is_at_work() {
            self.turns.end(key.log);
        }
        while let Some(log) = self.turns.next(now) {
            let to = Address::Node(self.register_node(), Endpoint::Register);
            let key = RoleKey { log, endpoint: Endpoint::Controller };
            self.send(key, to, control::Message::Get { log }.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(turns: &mut Turns, logs: std::ops::Range<u64>) {
        for log in logs {
            assert!(!turns.begin(LogId(log)));
        }
    }

    fn take(turns: &mut Turns, now: Time) -> Vec<u64> {
        std::iter::from_fn(|| turns.next(now)).map(|log| log.0).collect()
    }

    #[test]
    fn some_have_their_turn_and_the_others_theirs_in_the_order_in_which_they_came() {
        let (mut turns, most) = (Turns::default(), MOST as u64);
        begin(&mut turns, 0..most + 3);
        assert_eq!(take(&mut turns, Time::ZERO), (0..most).collect::<Vec<_>>());
        // A log with a turn may ask repeatedly; a waiting log waits once.
        assert!(turns.begin(LogId(0)) && !turns.begin(LogId(most)));
        turns.end(LogId(5));
        assert_eq!(take(&mut turns, Time::ZERO), [most]);
        turns.end(LogId(most + 1));
        turns.end(LogId(0));
        assert_eq!(take(&mut turns, Time::ZERO), [most + 2]);
    }

    #[test]
    fn what_stands_still_does_not_keep_others_waiting() {
        let (mut turns, most) = (Turns::default(), MOST as u64);
        begin(&mut turns, 0..most + 1);
        take(&mut turns, Time::ZERO);
        assert_eq!(turns.next(Time::ZERO + TURN / 2), None);
        assert_eq!(turns.next(Time::ZERO + TURN), Some(LogId(most)));
    }
}
