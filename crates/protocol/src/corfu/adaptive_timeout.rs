//! How long the sequencer waits for a client's records.

use std::time::Duration;

use seriatim_model::{Time, limits};

/// Minimum time for which a slow record counts; longer for long waits.
const REMEMBERED_FOR: Duration = Duration::from_secs(1);

/// Initial wait: a new client must first connect to the replicas.
const AT_FIRST: Duration = Duration::from_millis(100);

/// Factor by which a busy machine may slow a record.
const HICCUP: u32 = 4;

/// `HICCUP` times the time that the slowest recent record took to the head of its chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdaptiveTimeout {
    wanted: Duration,
    /// When half of `wanted` was last too short.
    needed_at: Time,
    least: Duration,
    most: Duration,
}

impl AdaptiveTimeout {
    pub(super) fn new(now: Time) -> Self {
        Self::within(now, AT_FIRST, (limits::FILL_AFTER, limits::MISSING_MOST))
    }

    /// Starts at `wanted`, and stays within the bounds.
    pub(super) fn within(now: Time, wanted: Duration, (least, most): (Duration, Duration)) -> Self {
        Self { wanted, needed_at: now, least, most }
    }

    pub(super) fn wanted(self) -> Duration {
        self.wanted
    }

    pub(super) fn took(&mut self, now: Time, took: Duration) {
        let wanted = (took * HICCUP).clamp(self.least, self.most);
        if wanted >= self.wanted {
            (self.wanted, self.needed_at) = (wanted, now);
        } else if now >= self.needed_at + REMEMBERED_FOR.max(self.wanted * HICCUP) {
            (self.wanted, self.needed_at) = (wanted.max(self.wanted / 2), now);
        } else if wanted >= self.wanted / 2 {
            self.needed_at = now;
        }
    }

    /// A position was filled before its record came.
    pub(super) fn was_too_short(&mut self, now: Time) {
        (self.wanted, self.needed_at) = ((self.wanted * 2).min(self.most), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_follows_the_slowest_and_forgets_it_in_time() {
        let at = |ms: u64| Time(ms * 1_000_000);
        let mut timeout = AdaptiveTimeout::new(at(0));
        assert_eq!(timeout.wanted(), ms(100));
        timeout.took(at(1), ms(40));
        assert_eq!(timeout.wanted(), ms(160));
        (2..1000).for_each(|now| timeout.took(at(now), ms(1)));
        assert_eq!(timeout.wanted(), ms(160));
        timeout.took(at(1001), ms(1));
        assert_eq!(timeout.wanted(), ms(80));
        timeout.was_too_short(at(1002));
        assert_eq!(timeout.wanted(), ms(160));
        timeout.took(at(1003), ms(2000));
        assert_eq!(timeout.wanted(), ms(8000));
        (1..120).for_each(|second| timeout.took(at(second * 1000 + 1004), ms(1)));
        assert_eq!(timeout.wanted(), limits::FILL_AFTER);
    }
}
