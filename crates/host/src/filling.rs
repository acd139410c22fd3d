//! Warnings before a disk is full, at a configured share of its size and at half of it.

use std::collections::VecDeque;
use std::time::Duration;

use seriatim_model::Time;

/// Additional free share that ends a warning, in percent of the size.
const BEYOND: u64 = 2;
/// Interval and number of free-room samples: the rate covers the last minute.
const NOTE_EVERY: Duration = Duration::from_secs(5);
const NOTES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Percent of the size, rounded down.
    pub(crate) percent: u64,
    /// Bytes.
    pub(crate) free: u64,
    /// Time until full at the last minute's rate. `None`: not filling, or unknown.
    pub(crate) full_in: Option<Duration>,
}

#[derive(Debug, Default)]
pub(crate) struct Filling {
    /// Number of warning shares reached.
    level: usize,
    /// Free bytes by time, oldest first.
    notes: VecDeque<(Time, u64)>,
    size: Option<u64>,
}

impl Filling {
    /// Notes the free bytes. Returns the free share with `true` if it falls below `warn_at` percent
    /// or half of that, with `false` if it has risen again. 0 disables warnings.
    pub(crate) fn found(
        &mut self,
        now: Time,
        free: Option<u64>,
        size: Option<u64>,
        warn_at: u64,
    ) -> Option<(bool, Share)> {
        self.size = size;
        let free = free?;
        if self.notes.back().is_none_or(|(at, _)| now >= *at + NOTE_EVERY) {
            self.notes.push_back((now, free));
            if self.notes.len() > NOTES {
                self.notes.pop_front();
            }
        }
        let share = self.share(now, free)?;
        let shares = [warn_at, warn_at / 2];
        let reached = shares.iter().filter(|at| share.percent < **at).count();
        let left = shares.iter().filter(|at| **at > 0 && share.percent < **at + BEYOND).count();
        let before = self.level;
        self.level = before.clamp(reached, left);
        (self.level != before).then_some((self.level > before, share))
    }

    pub(crate) fn warning(&self, now: Time, free: Option<u64>) -> Option<Share> {
        self.share(now, free?).filter(|_| self.level > 0)
    }

    fn share(&self, now: Time, free: u64) -> Option<Share> {
        let size = self.size.filter(|size| *size > 0)?;
        let percent = u64::try_from(u128::from(free) * 100 / u128::from(size)).unwrap_or(u64::MAX);
        Some(Share { percent, free, full_in: self.full_in(now, free) })
    }

    fn full_in(&self, now: Time, free: u64) -> Option<Duration> {
        let (at, before) = *self.notes.front()?;
        let (lasted, taken) = (now.since(at), before.checked_sub(free)?);
        (lasted >= NOTE_EVERY && taken > 0).then(|| lasted.mul_f64(free as f64 / taken as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    /// Warnings on a disk of 1,000 MiB with these free MiB, one number per second.
    fn changes(free: impl Iterator<Item = u64>) -> Vec<(bool, u64)> {
        let mut filling = Filling::default();
        let found = (0..).zip(free).filter_map(|(second, free)| {
            let change = filling.found(at(second), Some(free * MIB), Some(1000 * MIB), 20)?;
            Some((change.0, change.1.percent))
        });
        found.collect()
    }

    #[test]
    fn a_disk_that_fills_up_is_reported_at_a_fifth_and_a_tenth_and_when_that_is_over() {
        assert_eq!(changes((0..500).rev()), [(true, 19), (true, 9)]);
        assert_eq!(changes((0..500).rev().chain(0..500)), [(true, 19), (true, 9), (false, 12), (false, 22)]);
        let around = (0..100).map(|second| 199 + 15 * (second % 2));
        assert_eq!(changes(around), [(true, 19)], "files that come and go change nothing");
        assert_eq!(changes([50].into_iter()), [(true, 5)], "once, although both are reached");
        assert_eq!(
            Filling::default().found(at(0), Some(MIB), Some(1000 * MIB), 0),
            None,
            "no warning is wanted"
        );
    }

    #[test]
    fn the_time_that_is_left_follows_the_rate_of_the_last_minute() {
        let mut filling = Filling::default();
        // An hour at rest, then 2 MiB per second.
        let free = |second: u64| 190 - 2 * second.saturating_sub(3600);
        for second in 0..3660 {
            filling.found(at(second), Some(free(second) * MIB), Some(1000 * MIB), 20);
        }
        let share = filling.warning(at(3660), Some(free(3660) * MIB)).expect("there is little");
        assert_eq!((share.percent, share.free), (7, 70 * MIB));
        let seconds = share.full_in.expect("it fills up").as_secs();
        assert!((30..=40).contains(&seconds), "70 MiB at 2 MiB/s: {seconds}");
        assert_eq!(filling.warning(at(3660), Some(195 * MIB)).and_then(|share| share.full_in), None);
        assert_eq!(Filling::default().warning(at(1), Some(0)), None, "its size is not known");
    }
}
