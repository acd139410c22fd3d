//! Whether the logs of a node get on: looked at once a second, for those who ask how the node is.
//!
//! A log gets on if what its sequencing replica holds becomes stable. One that holds something, and whose `ordered` does not
//! move, stands; so does one that takes part in no view. A replica that has nothing to do does neither.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use seriatim_model::{LogId, Position, Time};

use crate::host::Host;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many times when what is held was taken are remembered of one log. Of more, the oldest stands for those after it.
const SAMPLES: usize = 64;

/// How a replica is, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sight {
    is_open: bool,
    ordered: Position,
    /// The position after all that it holds.
    end: Position,
}

/// How far the logs are whose replicas here have something to do.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    look_at: Time,
    logs: BTreeMap<LogId, Course>,
}

#[derive(Debug)]
struct Course {
    seen: Sight,
    since: Time,
    /// When which ends were seen first, the oldest first.
    ends: VecDeque<(Time, Position)>,
}

impl Progress {
    /// Takes a look at all replicas that have something to do.
    fn look(&mut self, now: Time, sights: BTreeMap<LogId, Sight>) {
        self.look_at = now + LOOK_EVERY;
        self.logs.retain(|log, _| sights.contains_key(log));
        for (log, sight) in sights {
            let begins = || Course { seen: sight, since: now, ends: VecDeque::new() };
            self.logs.entry(log).or_insert_with(begins).look(now, sight);
        }
    }

    /// For how long a log has got nowhere, and how long ago the oldest that is held was taken.
    pub(crate) fn of(&self, now: Time, log: LogId) -> (Duration, Duration) {
        let Some(course) = self.logs.get(&log) else { return (Duration::ZERO, Duration::ZERO) };
        let lag = course.ends.front().map_or(Duration::ZERO, |(taken, _)| now.since(*taken));
        (now.since(course.since), lag)
    }
}

impl Course {
    fn look(&mut self, now: Time, sight: Sight) {
        if (sight.ordered, sight.is_open) != (self.seen.ordered, self.seen.is_open) {
            self.since = now;
        }
        self.seen = sight;
        while self.ends.front().is_some_and(|(_, end)| *end <= sight.ordered) {
            self.ends.pop_front();
        }
        let is_more = self.ends.back().is_none_or(|(_, end)| *end < sight.end);
        if is_more && sight.end > sight.ordered && self.ends.len() < SAMPLES {
            self.ends.push_back((now, sight.end));
        }
    }
}

impl Host {
    /// Looks whether the logs get on, once a second.
    pub(crate) fn look_at_progress(&mut self, now: Time) {
        if now < self.progress.look_at {
            return;
        }
        let sight = |role: &dyn seriatim_protocol::roles::Sequencing| {
            let (is_open, ordered, held) = (role.is_open(), role.ordered(), role.held());
            let end = Position(ordered.0.saturating_add(held));
            (!is_open || held > 0).then_some(Sight { is_open, ordered, end })
        };
        let sights = self.roles.iter().filter_map(|(key, role)| Some((key.log, sight(role.sequencing()?)?)));
        let sights = sights.collect();
        self.progress.look(now, sights);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: LogId = LogId(1);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn holds(ordered: u64, held: u64) -> BTreeMap<LogId, Sight> {
        let (ordered, end) = (Position(ordered), Position(ordered + held));
        BTreeMap::from([(LOG, Sight { is_open: true, ordered, end })])
    }

    fn seconds(progress: &Progress, now: u64) -> (u64, u64) {
        let (stands, lag) = progress.of(at(now), LOG);
        (stands.as_secs(), lag.as_secs())
    }

    #[test]
    fn a_log_that_gets_on_never_stands_and_its_lag_is_the_age_of_the_oldest() {
        let mut progress = Progress::default();
        for second in 0..100 {
            progress.look(at(second), holds(second * 100, 350));
            let (stands, lag) = seconds(&progress, second);
            assert_eq!(stands, 0);
            // All that is held was taken within the last four looks.
            assert!(lag <= 4, "{lag} s behind after {second} s");
        }
    }

    #[test]
    fn a_log_that_stands_is_told_by_for_how_long() {
        let mut progress = Progress::default();
        for second in 0..300 {
            progress.look(at(second), holds(7, 10 + second));
        }
        assert_eq!(seconds(&progress, 300), (300, 300));
        assert_eq!(progress.logs[&LOG].ends.len(), SAMPLES);
        progress.look(at(300), holds(8, 400));
        assert_eq!(seconds(&progress, 300).0, 0, "it moved");
        progress.look(at(301), BTreeMap::new());
        assert_eq!(seconds(&progress, 301), (0, 0), "it has nothing to do");
    }

    #[test]
    fn a_log_without_a_view_stands_whatever_it_holds() {
        let mut progress = Progress::default();
        let closed = Sight { is_open: false, ordered: Position(5), end: Position(5) };
        (0..10).for_each(|second| progress.look(at(second), BTreeMap::from([(LOG, closed)])));
        assert_eq!(seconds(&progress, 10), (10, 0));
    }
}
