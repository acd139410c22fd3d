//! How long a controller waits: for others, before it tries again, and for progress.

use std::time::Duration;

#[cfg(doc)]
use seriatim_model::LogEntry;
use seriatim_model::{NodeId, Time, ViewNumber, limits};

use crate::mutation::{Mutation, Options};
use crate::parts::Backoff;

/// The longest pause before a phase's questions are asked again.
const ASK_MOST: Duration = Duration::from_millis(400);
/// How often backoff and timeout double while no view comes about.
const MOST_DOUBLINGS: u32 = 4;

/// The waits of one controller. None of them decides anything: progress does, and the register.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Tells this controller's claims from any other's.
    random: u64,
    attempts: u64,
    /// How many attempts were given up since the last view.
    given_up: u32,
    /// When the questions of a phase are asked again: less and less often, since a replica that is
    /// slow is not helped by more questions.
    asks: Backoff,
    /// How long an attempt goes on without progress, the first time.
    attempt_for: Duration,
    /// How often that doubles.
    doublings: u32,
}

impl Pace {
    /// `random` differs from that of every other controller, past or present.
    pub(super) fn new(random: u64, options: Options) -> Self {
        Self {
            random,
            attempts: 0,
            given_up: 0,
            asks: Backoff::new(Time::ZERO, limits::RESEND_AFTER, ASK_MOST),
            attempt_for: options.limits.attempt_for,
            doublings: if options.mutates(Mutation::AttemptByTheClock) { 0 } else { MOST_DOUBLINGS },
        }
    }

    /// A new attempt of a controller on this node. Returns what names its claimant; see
    /// [`LogEntry::claimant`].
    pub(super) fn attempt(&mut self, node: NodeId) -> u64 {
        self.attempts += 1;
        let own = self.random.wrapping_add(self.attempts) & u64::from(u32::MAX);
        u64::from(node.0) << 32 | own
    }

    /// An attempt made no progress.
    pub(super) fn gives_up(&mut self) {
        self.attempts += 1;
        self.given_up += 1;
    }

    /// There is a new view.
    pub(super) fn succeeded(&mut self) {
        self.given_up = 0;
    }

    /// Other questions are asked from now on.
    pub(super) fn restart_questions(&mut self) {
        self.asks.helped();
    }

    /// The questions are asked now. Returns when they are to be asked again.
    pub(super) fn asked(&mut self, now: Time) -> Time {
        self.asks.tried(now);
        self.asks.at()
    }

    /// How long to leave things to others, once.
    pub(super) fn backoff(&self) -> Duration {
        let spread = self.random.wrapping_mul(self.attempts + 1) >> 54;
        limits::RESEND_AFTER + Duration::from_micros(spread * 200)
    }

    /// How long the claimant of `claimed` is left alone, after view `registered`: longer with each
    /// claim that came to nothing, so that controllers which all take their time under load do not
    /// keep each other from finishing. It follows from the numbers, which all controllers see, and
    /// not from this one's tries: so it is no [`Backoff`].
    pub(super) fn backoff_after(&self, claimed: ViewNumber, registered: ViewNumber) -> Duration {
        let fruitless = claimed.0.saturating_sub(registered.0 + 1);
        let doublings = u32::try_from(fruitless).unwrap_or(u32::MAX).min(MOST_DOUBLINGS);
        self.backoff() * (1 << doublings)
    }

    /// For how long an attempt may make no progress: longer after each that was given up. Nothing
    /// is tried again when that is over, so it is no [`Backoff`] either.
    pub(super) fn timeout(&self) -> Duration {
        self.attempt_for * (1 << self.given_up.min(self.doublings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_come_to_nothing_are_given_more_time() {
        let mut pace = Pace::new(7, Options::default());
        assert_eq!(pace.timeout(), limits::ATTEMPT_FOR);
        (0..9).for_each(|_| pace.gives_up());
        assert_eq!(pace.timeout(), limits::ATTEMPT_FOR * 16);
        pace.succeeded();
        assert_eq!(pace.timeout(), limits::ATTEMPT_FOR);
    }

    #[test]
    fn a_claimant_is_left_alone_for_longer_after_each_claim_that_came_to_nothing() {
        let pace = Pace::new(7, Options::default());
        assert_eq!(pace.backoff_after(ViewNumber(1), ViewNumber::NONE), pace.backoff());
        assert_eq!(pace.backoff_after(ViewNumber(8), ViewNumber(5)), pace.backoff() * 4);
        assert_eq!(pace.backoff_after(ViewNumber(99), ViewNumber(5)), pace.backoff() * 16);
    }

    #[test]
    fn questions_are_asked_less_and_less_often_until_there_are_others() {
        let mut pace = Pace::new(7, Options::default());
        let now = Time::ZERO + Duration::from_secs(3);
        let pauses: Vec<u128> = (0..5).map(|_| (pace.asked(now) - now).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 400, 400]);
        pace.restart_questions();
        assert_eq!(pace.asked(now), now + limits::RESEND_AFTER);
    }
}
