//! When which machine wants to be woken.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::Time;

/// The deadlines of all machines, soonest first: one that waits for nothing costs nothing, however many there are.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Time, u64)>,
    by_machine: BTreeMap<u64, Time>,
}

impl Timers {
    pub(crate) fn set(&mut self, machine: u64, deadline: Option<Time>) {
        let before = match deadline {
            Some(at) => self.by_machine.insert(machine, at),
            None => self.by_machine.remove(&machine),
        };
        if before == deadline {
            return;
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, machine));
        }
        if let Some(at) = deadline {
            self.by_time.insert((at, machine));
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes all machines whose deadlines have passed.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<u64> {
        let later = self.by_time.split_off(&(Time(now.0.saturating_add(1)), 0));
        let due = std::mem::replace(&mut self.by_time, later);
        let machines: Vec<u64> = due.into_iter().map(|(_, machine)| machine).collect();
        for machine in &machines {
            self.by_machine.remove(machine);
        }
        machines
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
