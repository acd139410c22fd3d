//! Tolerated silence of a link: its recent answer times, with a margin.

use std::time::Duration;

use seriatim_model::Time;

/// Greatest timeout, as a multiple of the least.
const MOST_TIMEOUTS: u32 = 20;
/// Deviations above the mean at which an answer may come. TCP has four (RFC 6298), but a view
/// change costs more than a segment.
const DEVIATIONS: u32 = 8;
/// Time without a wrong suspicion after which the learned timeout is halved.
const FORGETS_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) struct Rhythm {
    least: Duration,
    mean: Duration,
    deviation: Duration,
    /// Least timeout learned from wrong suspicions, and its last change.
    taught: Duration,
    taught_at: Time,
}

impl Rhythm {
    /// A new link. `least` is its least timeout.
    pub(crate) fn new(least: Duration) -> Self {
        Self { least, mean: Duration::ZERO, deviation: Duration::ZERO, taught: least, taught_at: Time::ZERO }
    }

    pub(crate) fn gap(&mut self, now: Time, gap: Duration) {
        // Jacobson's estimator: an eighth of the error to the mean, a quarter to the deviation.
        let error = gap.abs_diff(self.mean);
        self.mean = if gap > self.mean { self.mean + error / 8 } else { self.mean - error / 8 };
        self.deviation = self.deviation - self.deviation / 4 + error / 4;
        if self.taught > self.least && now >= self.taught_at + FORGETS_AFTER {
            self.taught = (self.taught / 2).max(self.least);
            self.taught_at = now;
        }
    }

    pub(crate) fn suspected_wrongly(&mut self, now: Time) {
        self.taught = (self.timeout() * 2).min(self.most());
        self.taught_at = now;
    }

    pub(crate) fn timeout(&self) -> Duration {
        (self.mean + self.deviation * DEVIATIONS).max(self.taught).min(self.most())
    }

    /// Whether a running node may be silent this long. Longer means a broken link.
    pub(crate) fn is_momentary(&self, silence: Duration) -> bool {
        silence < self.most()
    }

    fn most(&self) -> Duration {
        self.least * MOST_TIMEOUTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(100);

    fn at(secs: u64) -> Time {
        Time::ZERO + Duration::from_secs(secs)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_calm_link_is_borne_for_the_least() {
        let mut rhythm = Rhythm::new(LEAST);
        (0..1000).for_each(|n| rhythm.gap(at(0), ms(20 + n % 3)));
        assert_eq!(rhythm.timeout(), LEAST);
    }

    #[test]
    fn answers_that_come_late_are_borne_for_longer_and_for_no_longer_than_the_most() {
        let mut rhythm = Rhythm::new(LEAST);
        (0..100).for_each(|n| rhythm.gap(at(0), ms(20 + 80 * (n % 2))));
        assert!(rhythm.timeout() > ms(300), "{rhythm:?}");
        (0..100).for_each(|n| rhythm.gap(at(0), ms(5000 * (n % 2))));
        assert_eq!(rhythm.timeout(), LEAST * MOST_TIMEOUTS);
    }

    #[test]
    fn a_wrong_suspicion_doubles_the_timeout_for_a_while() {
        let mut rhythm = Rhythm::new(LEAST);
        rhythm.suspected_wrongly(at(1));
        rhythm.suspected_wrongly(at(2));
        assert_eq!(rhythm.timeout(), LEAST * 4);
        rhythm.gap(at(62), ms(20));
        rhythm.gap(at(63), ms(20));
        assert_eq!(rhythm.timeout(), LEAST * 2);
        (0..20).for_each(|_| rhythm.suspected_wrongly(at(70)));
        assert_eq!(rhythm.timeout(), LEAST * MOST_TIMEOUTS);
    }
}
