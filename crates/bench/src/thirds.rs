//! The thirds of a measurement: a disturbance happens in the second one.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(super) struct Thirds {
    start: Instant,
    pub(super) third: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Before,
    During,
    After,
}

impl Thirds {
    pub(super) fn new(start: Instant, duration: Duration) -> Self {
        Self { start, third: duration / 3 }
    }

    pub(super) fn begins(self) -> Instant {
        self.start + self.third
    }

    pub(super) fn ends(self) -> Instant {
        self.start + self.third * 2
    }

    pub(super) fn part(self, at: Instant) -> Part {
        match at {
            at if at < self.begins() => Part::Before,
            at if at < self.ends() => Part::During,
            _ => Part::After,
        }
    }

    /// Milliseconds since the disturbance began, rounded down; negative before it.
    pub(super) fn ms_since(self, at: Instant) -> i64 {
        let (since, before) =
            (at.checked_duration_since(self.begins()), self.begins().saturating_duration_since(at));
        match since {
            Some(since) => since.as_millis() as i64,
            None => -(before.as_nanos().div_ceil(1_000_000) as i64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_before_is_counted_down() {
        let start = Instant::now();
        let thirds = Thirds::new(start, Duration::from_secs(3));
        let at = |us| start + Duration::from_micros(us);
        assert_eq!(
            [0, 999_500, 1_000_000, 2_000_900].map(|us| thirds.ms_since(at(us))),
            [-1000, -1, 0, 1000]
        );
        let parts = [999_999, 1_000_000, 2_000_000].map(|us| thirds.part(at(us)));
        assert_eq!(parts, [Part::Before, Part::During, Part::After]);
    }
}
