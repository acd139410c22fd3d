//! How long a controller waits: for others, before a retry, and for progress.

use std::time::Duration;

#[cfg(doc)]
use seriatim_model::LogEntry;
use seriatim_model::{NodeId, Time, ViewNumber, limits};

use crate::mutation::{Mutation, Options};
use crate::parts::Backoff;

/// The longest pause before retransmission.
const ASK_MOST: Duration = Duration::from_millis(400);
/// The highest number of doublings of backoff and timeout.
const MOST_DOUBLINGS: u32 = 4;

/// The waits of one controller. Correctness depends on the register alone.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Distinguishes this controller's claims.
    random: u64,
    attempts: u64,
    /// Attempts without progress since the last view.
    given_up: u32,
    /// Pauses between questions. They grow, since more questions do not help a slow replica.
    asks: Backoff,
    /// How long the first attempt may lack progress.
    attempt_for: Duration,
    doublings: u32,
}

impl Pace {
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

    /// Counts an attempt, and returns its [`LogEntry::claimant`].
    pub(super) fn attempt(&mut self, node: NodeId) -> u64 {
        self.attempts += 1;
        let own = self.random.wrapping_add(self.attempts) & u64::from(u32::MAX);
        u64::from(node.0) << 32 | own
    }

    pub(super) fn gives_up(&mut self) {
        self.attempts += 1;
        self.given_up += 1;
    }

    pub(super) fn succeeded(&mut self) {
        self.given_up = 0;
    }

    pub(super) fn restart_questions(&mut self) {
        self.asks.helped();
    }

    /// Returns when to retransmit.
    pub(super) fn asked(&mut self, now: Time) -> Time {
        self.asks.tried(now);
        self.asks.at()
    }

    /// A random pause to let others act.
    pub(super) fn backoff(&self) -> Duration {
        let spread = self.random.wrapping_mul(self.attempts + 1) >> 54;
        limits::RESEND_AFTER + Duration::from_micros(spread * 200)
    }

    /// How long to wait for the claimant of `claimed` after view `registered`. It doubles with each
    /// failed claim, so that slow controllers do not preempt each other forever. It depends on
    /// numbers that all controllers see, not on own retries, so it is no [`Backoff`].
    pub(super) fn backoff_after(&self, claimed: ViewNumber, registered: ViewNumber) -> Duration {
        let fruitless = claimed.0.saturating_sub(registered.0 + 1);
        let doublings = u32::try_from(fruitless).unwrap_or(u32::MAX).min(MOST_DOUBLINGS);
        self.backoff() * (1 << doublings)
    }

    /// How long an attempt may make no progress: longer after each failure. No retry follows, so it
    /// is no [`Backoff`].
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
