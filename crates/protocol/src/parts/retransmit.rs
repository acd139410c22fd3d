//! When what was not answered is sent again: after a measured time, the oldest first, less and less
//! often.

use std::time::Duration;

use seriatim_model::{Time, limits};

/// The longest wait before something is sent again.
const MOST: Duration = Duration::from_secs(2);

/// The retransmit timer of messages that are answered in about the order in which they were sent,
/// over connections that lose only what was on its way when they broke.
///
/// Only the oldest message is ever in doubt: those after it wait behind it, and what is sent again
/// while the receiver is merely slow makes it slower. So the timer runs for the oldest, starts anew
/// when that is answered, and doubles while it is not (as TCP's does, RFC 6298, section 5).
#[derive(Clone, Copy, Debug)]
pub struct Retransmit {
    /// How long answers have lately taken at most, twice.
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
    /// A message is the oldest from now on.
    pub fn start(&mut self, now: Time) {
        self.since = now;
        self.backoff = self.usual;
    }

    /// The oldest message was answered.
    pub fn answered(&mut self, now: Time) {
        // One that was sent again is measured from then on: that is too short, never too long, and
        // the doubled pause makes up for it.
        let took = (now - self.since).max(self.backoff / 4);
        let faded = self.usual - self.usual / 8;
        self.usual = faded.max(took * 2).clamp(limits::RESEND_AFTER, MOST);
    }

    /// Whether the oldest message is to be sent again now.
    pub fn expires(&mut self, now: Time) -> bool {
        let expired = now >= self.deadline();
        if expired {
            self.since = now;
            self.backoff = (self.backoff * 2).min(MOST);
        }
        expired
    }

    /// When it is to be sent again.
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
