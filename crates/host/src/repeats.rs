//! Repeated notices: the first few of a kind within a minute are shown, the others counted.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::Time;

use crate::notices::Notice;

const WINDOW: Duration = Duration::from_secs(60);

/// Most kinds counted at once. Notices of further kinds are all shown.
const MOST_KINDS: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind(pub(crate) String);

#[derive(Debug, Default)]
pub(crate) struct Repeats {
    kinds: BTreeMap<Kind, Course>,
    /// End of the first window with withheld notices.
    due: Option<Time>,
}

#[derive(Debug)]
struct Course {
    began: Time,
    told: u32,
    withheld: u64,
    last: Option<Notice>,
}

impl Repeats {
    /// Returns the notice if fewer than `most` of its kind came within a minute, or counts it.
    pub(crate) fn admit(&mut self, now: Time, kind: Kind, most: u32, notice: Notice) -> Option<Notice> {
        let is_over = |course: &Course| now >= course.began + WINDOW && course.withheld == 0;
        if self.kinds.len() >= MOST_KINDS {
            self.kinds.retain(|_, course| !is_over(course));
        }
        let fresh = || Course { began: now, told: 0, withheld: 0, last: None };
        if !self.kinds.contains_key(&kind) && self.kinds.len() >= MOST_KINDS {
            return Some(notice);
        }
        let course = self.kinds.entry(kind).or_insert_with(fresh);
        if is_over(course) {
            *course = fresh();
        }
        if course.told < most {
            course.told += 1;
            return Some(notice);
        }
        course.withheld += 1;
        course.last = Some(notice);
        let due = course.began + WINDOW;
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
        None
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// Withheld counts of the kinds whose minute has ended, with the last text.
    pub(crate) fn close(&mut self, now: Time) -> Vec<Notice> {
        if self.due.is_none_or(|due| now < due) {
            return vec![];
        }
        let mut told = vec![];
        for course in self.kinds.values_mut().filter(|course| now >= course.began + WINDOW) {
            let withheld = std::mem::take(&mut course.withheld);
            course.began = now;
            if let Some(Notice { is_warning, log, text }) = course.last.take() {
                let text = format!("{text} ({withheld} more times within a minute, this is the latest)");
                told.push(Notice { is_warning, log, text });
            }
        }
        let withheld = self.kinds.values().filter(|course| course.withheld > 0);
        self.due = withheld.map(|course| course.began + WINDOW).min();
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn says(text: &str) -> Notice {
        Notice { is_warning: true, log: None, text: text.into() }
    }

    fn kind(text: &str) -> Kind {
        Kind(text.into())
    }

    #[test]
    fn what_comes_again_is_counted_and_told_after_a_minute() {
        let mut repeats = Repeats::default();
        let told = (0..100).filter_map(|number| {
            repeats.admit(at(number / 10), kind("a"), 3, says(&format!("it is {number}")))
        });
        assert_eq!(told.count(), 3);
        assert!(repeats.admit(at(9), kind("b"), 1, says("another")).is_some());
        assert_eq!((repeats.deadline(), repeats.close(at(59)).len()), (Some(at(60)), 0));
        let told = repeats.close(at(60));
        let text = "it is 99 (97 more times within a minute, this is the latest)";
        assert_eq!(told, [says(text)]);
        assert_eq!((repeats.deadline(), repeats.close(at(61)).len()), (None, 0));
        // While it continues, one notice per minute has the count.
        assert!(repeats.admit(at(62), kind("a"), 3, says("again")).is_none());
        assert_eq!(repeats.close(at(120)).len(), 1);
        // After a quiet minute the notice is given again.
        assert!(repeats.admit(at(200), kind("a"), 3, says("news")).is_some());
    }

    #[test]
    fn kinds_are_bounded_and_no_notice_is_lost_by_that() {
        let mut repeats = Repeats::default();
        for number in 0..2 * MOST_KINDS {
            assert!(repeats.admit(at(0), kind(&number.to_string()), 1, says("x")).is_some());
        }
        assert_eq!(repeats.kinds.len(), MOST_KINDS);
        assert!(repeats.admit(at(60), kind("later"), 1, says("x")).is_some());
        assert_eq!(repeats.kinds.len(), 1);
    }
}
