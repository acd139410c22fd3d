//! Deadlines of many machines.

use std::collections::{BTreeMap, BTreeSet};

use crate::Time;

/// Deadlines of machines, soonest first.
///
/// Invariant: both maps hold the same deadlines.
#[derive(Debug)]
pub struct Timers<K> {
    by_time: BTreeSet<(Time, K)>,
    by_machine: BTreeMap<K, Time>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_machine: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Timers<K> {
    /// Replaces the machine's deadline. `None`: the machine needs no wake-up.
    pub fn set(&mut self, machine: K, deadline: Option<Time>) {
        let before = match deadline {
            Some(at) => self.by_machine.insert(machine, at),
            None => self.by_machine.remove(&machine),
        };
        if before == deadline {
            return;
        }
        if let Some(before) = before {
            assert!(self.by_time.remove(&(before, machine)), "both maps have each deadline");
        }
        if let Some(at) = deadline {
            self.by_time.insert((at, machine));
        }
    }

    /// Removes and returns the machines whose deadlines have passed, the earliest first. If a step
    /// of a returned machine sets a deadline that has passed too, the next call returns it.
    pub fn take_due(&mut self, now: Time) -> Vec<K> {
        let mut due = vec![];
        while let Some((_, machine)) = self.by_time.first().copied().filter(|(at, _)| *at <= now) {
            self.set(machine, None);
            due.push(machine);
        }
        due
    }

    /// The earliest deadline, if any.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_due_are_taken_and_a_new_deadline_replaces_the_old() {
        let mut timers = Timers::default();
        timers.set(1, Some(Time(5)));
        timers.set(2, Some(Time(3)));
        timers.set(1, Some(Time(1)));
        timers.set(3, Some(Time(4)));
        assert_eq!(timers.next(), Some(Time(1)));
        assert_eq!(timers.take_due(Time(3)), [1, 2]);
        assert_eq!(timers.next(), Some(Time(4)));
        timers.set(3, None);
        assert_eq!((timers.next(), timers.take_due(Time(9))), (None, vec![]));
    }
}
