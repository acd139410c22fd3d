//! When a client asks the register for a newer view.
//!
//! The keeper of the register tells every client that asked not long ago as soon as there is a
//! newer view. The questions are for news that gets lost: soon at first, because a view change
//! takes a few milliseconds, and then less and less often.

use std::time::Duration;

use seriatim_model::{Time, ViewNumber};

use super::{Backoff, Jitter};

/// How long to wait before the first repetition of a question to the register; doubled up to
/// [`LOOKUP_MOST`].
pub const LOOKUP_FIRST: Duration = Duration::from_millis(2);
/// The longest wait before a repetition, but for jitter.
pub const LOOKUP_MOST: Duration = Duration::from_secs(1);
/// From this wait on there is jitter. Below, all questions of a client fit into the time of a view
/// change.
const JITTER_FROM: Duration = Duration::from_millis(20);
/// How long a replica that knows an older view than we do has to hear of ours, before the client
/// asks the register.
const BEHIND_FOR: Duration = Duration::from_millis(20);

/// Whether the client is asking the register, and when it asks again.
#[derive(Clone, Debug)]
pub struct Lookup {
    asks: Option<Backoff>,
    jitter: Jitter,
    /// The newest view that anybody spoke of.
    heard_of: ViewNumber,
}

impl Lookup {
    /// Asks nothing yet. `random` differs from client to client, so that they do not ask in step.
    #[must_use]
    pub fn new(random: u64) -> Self {
        Self { asks: None, jitter: Jitter::new(random), heard_of: ViewNumber::NONE }
    }

    /// Whether it asks nothing.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.asks.is_none()
    }

    /// When to call [`comes_due`](Self::comes_due) at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.asks.map(|asks| asks.at())
    }

    /// Asks at once, unless it does already.
    pub fn ask(&mut self, now: Time) {
        self.asks.get_or_insert(Backoff::new(now, LOOKUP_FIRST, LOOKUP_MOST));
    }

    /// Asks at once, and soon again.
    pub fn ask_anew(&mut self, now: Time) {
        self.asks = None;
        self.ask(now);
    }

    /// The view that is `known` does what it is asked for: unless there is a newer one there is
    /// nothing to ask. Otherwise a client that always waits for something would ask for ever, and
    /// after the next loss only as soon as that long pause is over.
    pub fn works(&mut self, known: ViewNumber) {
        if self.heard_of <= known {
            self.asks = None;
        }
    }

    /// A replica that knows `view` does not serve clients that know `known`. `is_waiting` says that
    /// there is no view at present.
    pub fn was_rejected(&mut self, now: Time, view: ViewNumber, known: ViewNumber, is_waiting: bool) {
        if view > known.max(self.heard_of) {
            // There is a new view: a question that is on its way came too early.
            self.heard_of = view;
            self.asks = None;
        }
        // Whether the other is ahead of us or waits for a view itself: the register knows.
        if view >= known || is_waiting {
            self.ask(now);
        } else {
            self.ask(now + BEHIND_FOR);
        }
    }

    /// A newer view is known.
    pub fn found(&mut self) {
        self.asks = None;
    }

    /// Whether to ask the register now; again as long as the client `waits`.
    pub fn comes_due(&mut self, now: Time, waits: bool) -> bool {
        let Some(asks) = self.asks.as_mut().filter(|asks| asks.is_due(now)) else { return false };
        let stretch = if asks.pause() < JITTER_FROM { 1.0 } else { self.jitter.draw() };
        asks.tried_with(now, stretch);
        if !waits {
            self.asks = None;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: ViewNumber = ViewNumber(3);

    /// When the client asks the register, from a first rejection until `end`.
    fn asked(lookup: &mut Lookup, from: Time, end: Time) -> Vec<Time> {
        let mut asked = vec![];
        while let Some(at) = lookup.deadline().map(|at| at.max(from)).filter(|at| *at <= end) {
            assert!(lookup.comes_due(at, true));
            asked.push(at);
        }
        asked
    }

    fn after(duration: Duration) -> Time {
        Time::ZERO + duration
    }

    #[test]
    fn the_first_questions_are_within_a_view_change_and_the_later_ones_are_rare() {
        let mut lookup = Lookup::new(7);
        lookup.was_rejected(Time::ZERO, KNOWN, KNOWN, false);
        let all = asked(&mut lookup, Time::ZERO, after(Duration::from_secs(60)));
        let first: Vec<Time> = [0, 2, 6, 14].map(|ms| after(Duration::from_millis(ms))).to_vec();
        assert_eq!(all[..4], first);
        // Ten to get there, and then one each second.
        assert!((55..80).contains(&all.len()), "{}", all.len());
        let pauses = all.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(pauses.max().is_some_and(|longest| longest <= LOOKUP_MOST.mul_f64(1.5)));
    }

    #[test]
    fn two_clients_do_not_ask_in_step() {
        let second = |random| {
            let mut lookup = Lookup::new(random);
            lookup.ask(Time::ZERO);
            asked(&mut lookup, Time::ZERO, after(Duration::from_secs(2))).pop()
        };
        assert_ne!(second(0x1234_5678), second(0x9abc_def0));
    }

    #[test]
    fn whoever_hears_of_a_new_view_asks_at_once_and_often_again() {
        let mut lookup = Lookup::new(7);
        lookup.ask(Time::ZERO);
        let late = after(Duration::from_secs(30));
        asked(&mut lookup, Time::ZERO, late);
        // The same again, or an older one, is no news.
        lookup.was_rejected(late, KNOWN, KNOWN, false);
        assert!(lookup.deadline() > Some(late));
        lookup.was_rejected(late, KNOWN.next(), KNOWN, false);
        let all = asked(&mut lookup, late, late + Duration::from_millis(6));
        assert_eq!(all, [0, 2, 6].map(|ms| late + Duration::from_millis(ms)));
        // It is heard of only once.
        asked(&mut lookup, late, late + Duration::from_secs(30));
        let later = late + Duration::from_secs(30);
        lookup.was_rejected(later, KNOWN.next(), KNOWN, false);
        assert!(lookup.deadline() > Some(later));
    }

    #[test]
    fn nobody_is_asked_when_nobody_waits() {
        let mut lookup = Lookup::new(7);
        lookup.ask(Time::ZERO);
        assert!(lookup.comes_due(Time::ZERO, false) && lookup.is_idle());
    }
}
