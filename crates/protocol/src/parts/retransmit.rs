//! Retransmission of the oldest unanswered message, after a measured time and with backoff.

use std::time::Duration;

use seriatim_model::{Time, limits};

/// The longest timeout.
const MOST: Duration = Duration::from_secs(2);

/// The retransmit timer of messages answered roughly in order, over connections that lose messages
/// only when they break.
///
/// Only the oldest message is in doubt: later ones wait behind it, and retransmissions slow a slow
/// receiver further. The timer restarts at each answer and doubles without one (as in TCP, RFC
/// 6298, section 5).
#[derive(Clone, Copy, Debug)]
pub struct Retransmit {
    /// Twice the longest recent answer time.
    usual: Duration,
    backoff: Duration,
    since: Time,
}

impl Default for Retransmit {
    fn default() -> Self {
        Self { usual: limits::RESEND_AFTER, backoff: limits::RESEND_AFTER, since: Time::ZERO }
    }
}

impl Retransmit {
    /// Another message is the oldest now.
    pub fn start(&mut self, now: Time) {
        self.since = now;
        self.backoff = self.usual;
    }

    /// The oldest message was answered.
    pub fn answered(&mut self, now: Time) {
        // After a retransmission the measured time is too short: at least a quarter of the doubled
        // timeout counts.
        let took = (now - self.since).max(self.backoff / 4);
        let faded = self.usual - self.usual / 8;
        self.usual = faded.max(took * 2).clamp(limits::RESEND_AFTER, MOST);
    }

    /// Whether to retransmit the oldest message now.
    pub fn expires(&mut self, now: Time) -> bool {
        let expired = now >= self.deadline();
        if expired {
            self.since = now;
            self.backoff = (self.backoff * 2).min(MOST);
        }
        expired
    }

    /// When to retransmit.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.since + self.backoff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_slow_receiver_is_asked_less_and_less_often() {
        let mut timer = Retransmit::default();
        timer.start(at(0));
        let expiries: Vec<u64> = (0..8000).filter(|ms| timer.expires(at(*ms))).collect();
        assert_eq!(expiries, [100, 300, 700, 1500, 3100, 5100, 7100]);
    }

    #[test]
    fn answers_that_take_long_are_waited_for_the_next_time() {
        let mut timer = Retransmit::default();
        timer.start(at(0));
        timer.answered(at(80));
        timer.start(at(80));
        assert!(!timer.expires(at(239)) && timer.expires(at(240)));
        let mut now = 300;
        for _ in 0..100 {
            timer.start(at(now));
            now += 1;
            timer.answered(at(now));
        }
        timer.start(at(now));
        assert_eq!(timer.deadline(), at(now + 100));
    }
}
