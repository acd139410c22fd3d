//! When a client asks the register for a newer view.
//!
//! The register pushes a newer view to clients that asked recently. Repeated questions make up for
//! lost pushes: they are frequent at first, because a view change takes a few milliseconds, then
//! back off.

use std::time::Duration;

use seriatim_model::{Time, ViewNumber};

use super::{Backoff, Jitter};

/// Pause before the first repetition of a question; doubles up to [`LOOKUP_MOST`].
pub const LOOKUP_FIRST: Duration = Duration::from_millis(2);
/// The longest pause, before jitter.
pub const LOOKUP_MOST: Duration = Duration::from_secs(1);
/// Shortest pause that jitter changes. Shorter pauses fall within one view change.
const JITTER_FROM: Duration = Duration::from_millis(20);
/// How long the client gives a replica with an older view to learn the client's view, before it
/// asks the register.
const BEHIND_FOR: Duration = Duration::from_millis(20);

/// A client's pending question to the register, if any, and when to send it next.
#[derive(Clone, Debug)]
pub struct Lookup {
    asks: Option<Backoff>,
    jitter: Jitter,
    /// The highest view in any rejection.
    heard_of: ViewNumber,
}

impl Lookup {
    /// A lookup without a question. `random` differs between clients.
    #[must_use]
    pub fn new(random: u64) -> Self {
        Self { asks: None, jitter: Jitter::new(random), heard_of: ViewNumber::NONE }
    }

    /// Whether no question is pending.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.asks.is_none()
    }

    /// When [`comes_due`](Self::comes_due) must be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.asks.map(|asks| asks.at())
    }

    /// Asks at once, unless a question is pending.
    pub fn ask(&mut self, now: Time) {
        self.asks.get_or_insert(Backoff::new(now, LOOKUP_FIRST, LOOKUP_MOST));
    }

    /// Asks at once, and restarts the backoff.
    pub fn ask_anew(&mut self, now: Time) {
        self.asks = None;
        self.ask(now);
    }

    /// The view `known` works: stops asking, unless a rejection named a newer view. Otherwise a
    /// client that always has appends in flight would never stop, and would begin with a long pause
    /// after the next loss.
    pub fn works(&mut self, known: ViewNumber) {
        if self.heard_of <= known {
            self.asks = None;
        }
    }

    /// A replica in view `view` rejected a client that knows view `known`. `is_waiting`: the
    /// replica reported why there is no view.
    pub fn was_rejected(&mut self, now: Time, view: ViewNumber, known: ViewNumber, is_waiting: bool) {
        if view > known.max(self.heard_of) {
            // The last question may have reached the register before the new view: asks again.
            self.heard_of = view;
            self.asks = None;
        }
        // The register decides whether the replica is ahead or also waits for a view.
        if view >= known || is_waiting {
            self.ask(now);
        } else {
            self.ask(now + BEHIND_FOR);
        }
    }

    /// The client has learned a newer view: stops asking.
    pub fn found(&mut self) {
        self.asks = None;
    }

    /// Whether to ask the register now. The question repeats only while the client `waits`.
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
        // About ten questions, then one each second.
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
        // The known view or an older one is no news.
        lookup.was_rejected(late, KNOWN, KNOWN, false);
        assert!(lookup.deadline() > Some(late));
        lookup.was_rejected(late, KNOWN.next(), KNOWN, false);
        let all = asked(&mut lookup, late, late + Duration::from_millis(6));
        assert_eq!(all, [0, 2, 6].map(|ms| late + Duration::from_millis(ms)));
        // A second report of the same view is no news.
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
