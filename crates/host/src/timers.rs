//! When which role wants to be woken.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::Time;
use seriatim_store::RoleKey;

/// The deadlines of all roles, soonest first. A role without one costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Time, RoleKey)>,
    by_role: BTreeMap<RoleKey, Time>,
}

impl Timers {
    pub(crate) fn set(&mut self, role: RoleKey, deadline: Option<Time>) {
        let before = match deadline {
            Some(at) => self.by_role.insert(role, at),
            None => self.by_role.remove(&role),
        };
        if before == deadline {
            return;
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, role));
        }
        if let Some(at) = deadline {
            self.by_time.insert((at, role));
        }
    }

    /// Takes the role whose deadline passed the longest time ago.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<RoleKey> {
        let (_, role) = *self.by_time.first().filter(|(at, _)| *at <= now)?;
        self.set(role, None);
        Some(role)
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Endpoint, LogId};

    use super::*;

    #[test]
    fn the_soonest_comes_first_and_a_new_deadline_replaces_the_old() {
        let role = |log| RoleKey { log: LogId(log), endpoint: Endpoint::Sequencer };
        let mut timers = Timers::default();
        timers.set(role(1), Some(Time(5)));
        timers.set(role(2), Some(Time(3)));
        timers.set(role(1), Some(Time(1)));
        assert_eq!(timers.next(), Some(Time(1)));
        assert_eq!(timers.take_due(Time(4)), Some(role(1)));
        assert_eq!(timers.take_due(Time(4)), Some(role(2)));
        assert_eq!(timers.take_due(Time(4)), None);
        timers.set(role(1), Some(Time(9)));
        timers.set(role(1), None);
        assert_eq!(timers.next(), None);
    }
}
