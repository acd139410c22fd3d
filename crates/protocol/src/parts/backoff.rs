//! Retries with a pause that doubles up to a limit.

use std::time::Duration;

use seriatim_model::Time;

/// When to try an action that may fail, and the pause after the next try.
///
/// For actions of unknown duration. [`Retransmit`](super::Retransmit) and
/// [`Conversation`](super::Conversation) measure the time to an answer instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    at: Time,
    pause: Duration,
    first: Duration,
    /// Invariant: `pause` is never longer.
    most: Duration,
}

impl Backoff {
    /// The first try is due at `at`, followed by the pause `first`. Pauses grow up to `most`.
    ///
    /// # Panics
    /// If `first` is longer than `most`.
    #[must_use]
    pub const fn new(at: Time, first: Duration, most: Duration) -> Self {
        assert!(first.as_nanos() <= most.as_nanos(), "pauses grow from the first to the longest");
        Self { at, pause: first, first, most }
    }

    /// When the next try is due.
    #[must_use]
    pub const fn at(&self) -> Time {
        self.at
    }

    /// Whether a try is due.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.at
    }

    /// The pause after the next try.
    #[must_use]
    pub const fn pause(&self) -> Duration {
        self.pause
    }

    /// Notes a try at `now`: schedules the next one, and doubles the pause.
    pub fn tried(&mut self, now: Time) {
        self.wait(now, self.pause);
    }

    /// Like [`tried`](Self::tried); `stretch` multiplies this one pause, so that roles do not try
    /// in step.
    pub fn tried_with(&mut self, now: Time, stretch: f64) {
        self.wait(now, self.pause.mul_f64(stretch));
    }

    fn wait(&mut self, now: Time, pause: Duration) {
        self.at = now + pause;
        self.pause = (self.pause * 2).min(self.most);
    }

    /// Makes the next try due at `at` or earlier. The pause stays.
    pub fn due_by(&mut self, at: Time) {
        self.at = self.at.min(at);
    }

    /// Skips a try that is impossible now: the next is due after the pause, or at its scheduled
    /// time if that is later.
    pub fn postpone(&mut self, now: Time) {
        let at = self.at;
        self.tried(now);
        self.at = self.at.max(at);
    }

    /// Resets the pause after a success. The due time stays.
    pub fn helped(&mut self) {
        self.pause = self.first;
    }

    /// Makes the next try due at `at`, with the first pause.
    pub fn restart(&mut self, at: Time) {
        self.at = at;
        self.helped();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn tries(backoff: &mut Backoff, from: u64, until: u64) -> Vec<u64> {
        let is_tried = |at: &u64| {
            let now = Time::ZERO + ms(*at);
            let is_due = backoff.is_due(now);
            if is_due {
                backoff.tried(now);
            }
            is_due
        };
        (from..until).filter(is_tried).collect()
    }

    #[test]
    fn pauses_double_up_to_the_longest_until_something_comes_of_it() {
        let mut backoff = Backoff::new(Time::ZERO + ms(5), ms(10), ms(70));
        assert_eq!(tries(&mut backoff, 0, 300), [5, 15, 35, 75, 145, 215, 285]);
        backoff.helped();
        assert_eq!(backoff.at(), Time::ZERO + ms(355));
        assert_eq!(tries(&mut backoff, 300, 390), [355, 365, 385]);
        backoff.restart(Time::ZERO + ms(400));
        assert_eq!(tries(&mut backoff, 390, 440), [400, 410, 430]);
    }

    #[test]
    fn a_try_is_brought_forward_or_put_off() {
        let mut backoff = Backoff::new(Time::ZERO + ms(50), ms(10), ms(70));
        backoff.postpone(Time::ZERO + ms(5));
        assert_eq!((backoff.at(), backoff.pause()), (Time::ZERO + ms(50), ms(20)), "it was due later anyway");
        backoff.due_by(Time::ZERO + ms(30));
        backoff.due_by(Time::ZERO + ms(40));
        assert_eq!((backoff.at(), backoff.pause()), (Time::ZERO + ms(30), ms(20)));
        backoff.postpone(Time::ZERO + ms(20));
        assert_eq!((backoff.at(), backoff.pause()), (Time::ZERO + ms(40), ms(40)));
    }

    #[test]
    fn a_stretched_pause_stretches_no_other() {
        let mut backoff = Backoff::new(Time::ZERO, ms(10), ms(70));
        backoff.tried_with(Time::ZERO, 1.5);
        assert_eq!((backoff.at(), backoff.pause()), (Time::ZERO + ms(15), ms(20)));
    }
}
