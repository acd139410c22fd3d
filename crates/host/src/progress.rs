//! Progress of the node's logs, for its condition report and for notices of stalls.
//!
//! A log makes progress while its sequencing replica's entries become stable. It stalls if the
//! replica holds entries and `ordered` does not move, or is in no view. Only a step changes a
//! replica, so the node checks it after each step; idle logs cost nothing. Busy replicas are
//! checked again when they may have stalled, a few at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use seriatim_model::{Endpoint, LogId, Position, Time};
use seriatim_store::RoleKey;

use crate::host::Host;

/// Stall after which the node reports the log.
const STANDS_AFTER: Duration = Duration::from_secs(5);

/// Least time between two remembered arrival times.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Most remembered times for a log. With more entries, an older time stands for later ones.
const SAMPLES: usize = 64;

const LOGS_AT_ONCE: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sight {
    is_open: bool,
    ordered: Position,
    /// Position after all held entries.
    end: Position,
}

/// Invariant: `due` contains each log of `logs` once, and no others.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    logs: BTreeMap<LogId, Course>,
    /// Time of each log's next check.
    due: BTreeSet<(Time, LogId)>,
}

#[derive(Debug)]
struct Course {
    seen: Sight,
    since: Time,
    due: Time,
    /// The stall was reported.
    is_told: bool,
    /// When entries up to each position were first seen, oldest first.
    ends: VecDeque<(Time, Position)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Stalled for this long; whether the log is in a view.
    Stands(Duration, bool),
    /// Progress after this long a stall.
    GetsOn(Duration),
}

impl Progress {
    /// Notes the state after a step; `sight` is `None` if the replica has no work. Returns a turn
    /// if a reported stall ended.
    fn steps(&mut self, now: Time, log: LogId, sight: Option<Sight>) -> Option<Turn> {
        let Some(sight) = sight else {
            let course = self.logs.remove(&log)?;
            assert!(self.due.remove(&(course.due, log)), "{log} is looked at again");
            return course.is_told.then(|| Turn::GetsOn(now.since(course.since)));
        };
        let course = self.logs.entry(log).or_insert_with(|| {
            let due = now + STANDS_AFTER;
            self.due.insert((due, log));
            Course { seen: sight, since: now, due, is_told: false, ends: VecDeque::new() }
        });
        let stood = now.since(course.since);
        let gets_on = course.look(now, sight);
        (gets_on && std::mem::take(&mut course.is_told)).then_some(Turn::GetsOn(stood))
    }

    pub(crate) fn forget(&mut self, log: LogId) {
        if let Some(course) = self.logs.remove(&log) {
            assert!(self.due.remove(&(course.due, log)), "{log} is looked at again");
        }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Next due log, with a turn if it stalls and that is not reported yet.
    fn next_due(&mut self, now: Time) -> Option<(LogId, Option<Turn>)> {
        let (due, log) = *self.due.first().filter(|(due, _)| *due <= now)?;
        self.due.remove(&(due, log));
        let course = self.logs.get_mut(&log).expect("the due log is known");
        let stands_at = course.since + STANDS_AFTER;
        let is_news = stands_at <= now && !std::mem::replace(&mut course.is_told, stands_at <= now);
        course.due = stands_at.max(now + STANDS_AFTER);
        self.due.insert((course.due, log));
        Some((log, is_news.then(|| Turn::Stands(now.since(course.since), course.seen.is_open))))
    }

    /// Duration of a log's stall, and age of its oldest held entry.
    pub(crate) fn of(&self, now: Time, log: LogId) -> (Duration, Duration) {
        let Some(course) = self.logs.get(&log) else { return (Duration::ZERO, Duration::ZERO) };
        let lag = course.ends.front().map_or(Duration::ZERO, |(taken, _)| now.since(*taken));
        (now.since(course.since), lag)
    }
}

impl Course {
    /// Returns whether there was progress.
    fn look(&mut self, now: Time, sight: Sight) -> bool {
        let gets_on = sight.is_open && (sight.ordered > self.seen.ordered || !self.seen.is_open);
        // Neither a lost view nor ordered but unacknowledged records are progress.
        if gets_on {
            self.since = now;
        }
        self.seen = sight;
        while self.ends.front().is_some_and(|(_, end)| *end <= sight.ordered) {
            self.ends.pop_front();
        }
        let is_more =
            self.ends.back().is_none_or(|(taken, end)| *end < sight.end && now >= *taken + SAMPLE_EVERY);
        if is_more && sight.end > sight.ordered && self.ends.len() < SAMPLES {
            self.ends.push_back((now, sight.end));
        }
        gets_on
    }
}

impl Host {
    pub(crate) fn look_at_progress(&mut self, now: Time, key: RoleKey) {
        if key.endpoint != Endpoint::Sequencer {
            return;
        }
        let sight = self.sequencer(key.log).and_then(|role| {
            let (is_open, ordered, held) = (role.is_open(), role.ordered(), role.held());
            let end = Position(ordered.0.saturating_add(held));
            (!is_open || held > 0).then_some(Sight { is_open, ordered, end })
        });
        if let Some(turn) = self.progress.steps(now, key.log, sight) {
            self.notice_turn(now, key.log, turn);
        }
    }

    pub(crate) fn look_for_standing_logs(&mut self, now: Time) {
        for _ in 0..LOGS_AT_ONCE {
            let Some((log, turn)) = self.progress.next_due(now) else { return };
            if let Some(turn) = turn {
                self.notice_turn(now, log, turn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: LogId = LogId(1);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn holds(ordered: u64, held: u64) -> Option<Sight> {
        let (ordered, end) = (Position(ordered), Position(ordered + held));
        Some(Sight { is_open: true, ordered, end })
    }

    fn seconds(progress: &Progress, now: u64) -> (u64, u64) {
        let (stands, lag) = progress.of(at(now), LOG);
        (stands.as_secs(), lag.as_secs())
    }

    #[test]
    fn a_log_that_gets_on_never_stands_and_its_lag_is_the_age_of_the_oldest() {
        let mut progress = Progress::default();
        for second in 0..100 {
            progress.steps(at(second), LOG, holds(second * 100, 350));
            let (stands, lag) = seconds(&progress, second);
            assert_eq!(stands, 0);
            // All held entries arrived within the last four checks.
            assert!(lag <= 4, "{lag} s behind after {second} s");
        }
    }

    #[test]
    fn a_log_that_stands_is_told_by_for_how_long() {
        let mut progress = Progress::default();
        for second in 0..300 {
            progress.steps(at(second), LOG, holds(7, 10 + second));
        }
        assert_eq!(seconds(&progress, 300), (300, 300));
        assert_eq!(progress.logs[&LOG].ends.len(), SAMPLES);
        progress.steps(at(300), LOG, holds(8, 400));
        assert_eq!(seconds(&progress, 300).0, 0, "it moved");
        progress.steps(at(301), LOG, None);
        assert_eq!(seconds(&progress, 301), (0, 0), "it has nothing to do");
    }

    #[test]
    fn a_log_without_a_view_stands_whatever_it_holds() {
        let mut progress = Progress::default();
        let closed = Sight { is_open: false, ordered: Position(5), end: Position(5) };
        (0..10).for_each(|second| _ = progress.steps(at(second), LOG, Some(closed)));
        assert_eq!(seconds(&progress, 10), (10, 0));
    }

    fn due(progress: &mut Progress, now: u64) -> Vec<(LogId, Turn)> {
        let mut turns = vec![];
        while let Some((log, turn)) = progress.next_due(at(now)) {
            turns.extend(turn.map(|turn| (log, turn)));
        }
        turns
    }

    #[test]
    fn a_log_that_stands_is_told_of_once_and_when_it_gets_on() {
        let mut progress = Progress::default();
        assert_eq!(progress.steps(at(0), LOG, holds(7, 10)), None);
        assert_eq!(progress.deadline(), Some(at(5)));
        assert_eq!((due(&mut progress, 4), due(&mut progress, 5)), (vec![], stands(5, true)));
        assert_eq!((5..60).map(|now| due(&mut progress, now).len()).sum::<usize>(), 0);
        // Loss and replacement of the view: the loss is no progress.
        let closed = Sight { is_open: false, ordered: Position(7), end: Position(7) };
        assert_eq!(progress.steps(at(60), LOG, Some(closed)), None);
        let gets_on = Some(Turn::GetsOn(Duration::from_secs(70)));
        assert_eq!(progress.steps(at(70), LOG, holds(7, 10)), gets_on);
        assert_eq!(progress.steps(at(71), LOG, holds(9, 10)), None);
        assert_eq!(progress.steps(at(72), LOG, None), None);
        assert_eq!(progress.deadline(), None, "idle logs are not examined");
    }

    fn stands(seconds: u64, is_open: bool) -> Vec<(LogId, Turn)> {
        vec![(LOG, Turn::Stands(Duration::from_secs(seconds), is_open))]
    }

    #[test]
    fn a_log_that_gets_on_is_looked_at_now_and_then_and_not_told_of() {
        let mut progress = Progress::default();
        let mut looks = 0;
        for second in 0..100 {
            progress.steps(at(second), LOG, holds(second, 1));
            while let Some((_, turn)) = progress.next_due(at(second)) {
                assert_eq!(turn, None);
                looks += 1;
            }
        }
        assert!((10..=25).contains(&looks), "{looks}");
    }
}
