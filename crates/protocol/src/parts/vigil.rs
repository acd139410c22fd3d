//! When a client asks the register although replicas answer.
//!
//! A deposed leader that is cut off from other nodes, but not from its clients, still answers "not
//! now" or acknowledges as one replica of several. Only a completed append proves that the view
//! works. So a client whose oldest append waits long asks the register for a newer view, with
//! backoff: usually the log is only busy.

use std::time::Duration;

use seriatim_model::Time;

use super::lookup::LOOKUP_MOST;
use super::timeouts::RESEND_FIRST;
use super::{Backoff, Jitter};

/// How long the oldest append waits before the client asks, before jitter; doubles up to
/// [`LOOKUP_MOST`]. A client without answers asks sooner.
const WAIT_FIRST: Duration = RESEND_FIRST.saturating_mul(2);

/// The client's oldest append without an outcome, and when to ask the register about it.
#[derive(Clone, Debug)]
pub struct Vigil {
    oldest: Option<u64>,
    asks: Backoff,
    jitter: Jitter,
}

impl Vigil {
    /// Starts without a waiting append. `random` differs between clients.
    #[must_use]
    pub fn new(random: u64) -> Self {
        Self {
            oldest: None,
            asks: Backoff::new(Time::ZERO, WAIT_FIRST, LOOKUP_MOST),
            jitter: Jitter::new(random),
        }
    }

    /// When [`comes_due`](Self::comes_due) must be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.oldest.map(|_| self.asks.at())
    }

    /// A new view begins: restarts the wait.
    pub fn restart(&mut self) {
        self.oldest = None;
    }

    /// Whether to ask the register now, because append `oldest` has waited long.
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
