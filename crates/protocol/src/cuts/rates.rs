//! How many records the shards bring in an interval, from which the quotas of the next window follow (SpecLog §4.4).

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::{ShardId, Time, limits};

/// The records that the shards brought since a window began.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    interval: Duration,
    shards: BTreeMap<ShardId, Rate>,
    /// How long the log was in use, and when the last cut was made.
    active: Duration,
    cut_at: Option<Time>,
}

/// The records that one shard brought.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    records: u64,
    /// The most in an interval, and those of the present one with its beginning.
    fullest: u64,
    present: (Time, u64),
}

/// The rule by which a quota follows from what a shard brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// It is what the shard brought in an interval on average.
    Mean,
    /// It is what it brought in the fullest: where records come in bursts.
    Fullest,
}

impl Rates {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, shards: BTreeMap::new(), active: Duration::ZERO, cut_at: None }
    }

    /// A window begins.
    pub(super) fn begin(&mut self) {
        (self.shards, self.active) = (BTreeMap::new(), Duration::ZERO);
    }

    /// A cut is made. Of the time since the one before as much counts as two intervals: after that nobody appended.
    pub(super) fn cut(&mut self, now: Time) {
        let most = self.interval * 2;
        self.active += self.cut_at.map_or(most, |at| now.since(at).min(most));
        self.cut_at = Some(now);
    }

    /// A shard brought so many records to the cut. Padding is none: it says how others were.
    pub(super) fn count(&mut self, now: Time, shard: ShardId, records: u64) {
        let rate = self.shards.entry(shard).or_default();
        rate.records += records;
        let (began, present) = rate.present;
        let is_over = present == 0 || now.since(began) >= self.interval;
        rate.present = if is_over { (now, records) } else { (began, present + records) };
        rate.fullest = rate.fullest.max(rate.present.1);
    }

    /// The quota of a shard that had another one. If it is about that, it stays.
    pub(super) fn quota(&self, shard: ShardId, before: u32, measure: Measure) -> u32 {
        let active = self.active.as_nanos();
        if active == 0 {
            return before;
        }
        let rate = self.shards.get(&shard).copied().unwrap_or_default();
        let measured = match measure {
            Measure::Mean => (u128::from(rate.records) * self.interval.as_nanos()).div_ceil(active),
            Measure::Fullest => u128::from(rate.fullest),
        };
        let measured = u32::try_from(measured).unwrap_or(u32::MAX).clamp(1, limits::MAX_QUOTA);
        if measured.abs_diff(before) * 20 <= before { before } else { measured }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(1);
    const SHARD: ShardId = ShardId(3);

    /// So many cuts, each with so many records, one after another at such a distance.
    fn rates(cuts: u32, records: u64, apart: Duration) -> Rates {
        let mut rates = Rates::new(INTERVAL);
        rates.cut(Time::ZERO);
        rates.begin();
        for cut in 1..=cuts {
            let now = Time::ZERO + apart * cut;
            rates.cut(now);
            rates.count(now, SHARD, records);
        }
        rates
    }

    fn mean(rates: &Rates, before: u32) -> u32 {
        rates.quota(SHARD, before, Measure::Mean)
    }

    #[test]
    fn a_quota_is_what_a_shard_brings_in_an_interval() {
        assert_eq!(mean(&rates(50, 30, INTERVAL), 10), 30);
        assert_eq!(mean(&rates(50, 10, INTERVAL / 4), 10), 40);
        assert_eq!(mean(&rates(50, 1 << 40, INTERVAL), 10), limits::MAX_QUOTA);
    }

    #[test]
    fn a_log_that_is_hardly_used_has_quotas_of_one() {
        assert_eq!(mean(&rates(50, 1, Duration::from_secs(60)), 10), 1);
        assert_eq!(mean(&rates(50, 0, Duration::from_secs(60)), 10), 1);
    }

    #[test]
    fn a_quota_that_is_about_right_stays() {
        assert_eq!(mean(&rates(50, 105, INTERVAL), 100), 100);
        assert_eq!(mean(&rates(50, 95, INTERVAL), 100), 100);
        assert_eq!(mean(&rates(50, 106, INTERVAL), 100), 106);
        assert_eq!(mean(&Rates::new(INTERVAL), 7), 7);
    }

    #[test]
    fn the_fullest_interval_counts_where_records_come_in_bursts() {
        let mut rates = rates(40, 2, INTERVAL);
        for burst in 0..3 {
            rates.count(Time::ZERO + INTERVAL * 60 + INTERVAL / 4 * burst, SHARD, 50);
        }
        assert_eq!(rates.quota(SHARD, 10, Measure::Fullest), 150);
        assert_eq!(mean(&rates, 10), 6);
    }
}
