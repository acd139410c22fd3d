//! When a client that is answered asks the register nevertheless.
//!
//! "Not now" is an answer, and so is "here I have it" from one of several. A replica that leads no
//! more gives such answers, too, if it does not know that, because it is cut off from all others
//! and not from its clients. Only the end of a wait shows that a view still does its work. So a
//! client whose oldest append has waited for long asks the register for a newer view, whatever
//! replicas answer meanwhile, and by and by less often: most of the time its log is only busy.

use std::time::Duration;

use seriatim_model::Time;

use super::lookup::LOOKUP_MOST;
use super::timeouts::RESEND_FIRST;
use super::{Backoff, Jitter};

/// How long the oldest append waits before the client asks the register, but for jitter; doubled up
/// to [`LOOKUP_MOST`]. Where no answer comes at all, it asks sooner.
const WAIT_FIRST: Duration = RESEND_FIRST.saturating_mul(2);

/// How long the oldest of what a client waits for has been that.
#[derive(Clone, Debug)]
pub struct Vigil {
    oldest: Option<u64>,
    asks: Backoff,
    jitter: Jitter,
}

impl Vigil {
    /// Waits for nothing. `random` differs from client to client, so that they do not ask in step.
    #[must_use]
    pub fn new(random: u64) -> Self {
        Self {
            oldest: None,
            asks: Backoff::new(Time::ZERO, WAIT_FIRST, LOOKUP_MOST),
            jitter: Jitter::new(random),
        }
    }

    /// When to call [`comes_due`](Self::comes_due) at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.oldest.map(|_| self.asks.at())
    }

    /// A new view begins: what is waited for may come now.
    pub fn restart(&mut self) {
        self.oldest = None;
    }

    /// Whether the register is to be asked now: `oldest` is what is waited for, and has been for
    /// long.
    pub fn comes_due(&mut self, now: Time, oldest: Option<u64>) -> bool {
        let is_another = self.oldest != oldest;
        let is_due = !is_another && oldest.is_some() && self.asks.is_due(now);
        if is_another || is_due {
            self.oldest = oldest;
            if is_another {
                self.asks.helped();
            }
            self.asks.tried_with(now, self.jitter.draw());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// When the client asks the register within a minute, while the oldest is always the same.
    fn asked(random: u64) -> Vec<u64> {
        let mut vigil = Vigil::new(random);
        (0..60_000).filter(|ms| vigil.comes_due(at(*ms), Some(7))).collect()
    }

    #[test]
    fn a_wait_that_does_not_end_asks_soon_and_then_about_once_a_second() {
        let asked = asked(0x1234_5678);
        assert!((200..=600).contains(&asked[0]), "{asked:?}");
        assert!((45..80).contains(&asked.len()), "{asked:?}");
        assert!(asked.windows(2).all(|pair| (400..=1500).contains(&(pair[1] - pair[0]))), "{asked:?}");
    }

    #[test]
    fn two_clients_do_not_ask_in_step() {
        assert_ne!(asked(0x1234_5678).last(), asked(0x9abc_def0).last());
    }

    #[test]
    fn nobody_is_asked_while_waits_end() {
        let mut vigil = Vigil::new(7);
        assert!((0..60_000).all(|ms| !vigil.comes_due(at(ms), Some(ms / 200))));
        assert!(vigil.deadline().is_some());
        assert!((60_000..120_000).all(|ms| !vigil.comes_due(at(ms), None)));
        assert_eq!(vigil.deadline(), None);
    }
}
