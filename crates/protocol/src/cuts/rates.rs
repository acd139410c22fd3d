//! Records per interval of the shards, and the resulting quotas (SpecLog §4.4).
//!
//! Each cut waits for the last shard to meet its quota, a whole number. So the ratios of quotas
//! matter. Shards with 2.1 and 1.9 records per interval get quotas 2 and 2. With 3 and 2, the
//! second shard would set a pace of 0.95 cuts per interval: 4.75 positions for 4 records, so a
//! sixth stays empty.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::{ShardId, Time, limits};

/// Parts of a counted record, so that an old record can count for less than one.
const PARTS: u64 = 1 << 10;
/// Parts of a record in a rate (per interval).
const RATE_PARTS: u128 = 1 << 20;
/// Intervals after a cut in which the log counts as in use. Disks deliver in groups, with pauses.
const ACTIVE: u32 = 8;
/// Candidate lengths of a turn, in eighths of an interval.
const EIGHTHS: std::ops::RangeInclusive<u128> = 4..=16;
/// Additional empty positions, per thousand, that do not justify new quotas.
const SAME_PER_MILLE: u128 = 20;

#[derive(Clone, Debug)]
pub(super) struct Rates {
    interval: Duration,
    /// Records since the last decision.
    new: Brought,
    /// Records before that, while rates are similar. Older ones count less.
    old: Brought,
    cut_at: Option<Time>,
}

#[derive(Clone, Debug, Default)]
struct Brought {
    /// Each shard's records, in parts of a record.
    shards: BTreeMap<ShardId, u64>,
    active: Duration,
}

impl Brought {
    fn of(&self, shard: ShardId) -> u64 {
        self.shards.get(&shard).copied().unwrap_or(0)
    }

    /// Parts of a record that a shard would bring in `time`.
    fn expected(&self, shard: ShardId, time: Duration) -> u128 {
        (u128::from(self.of(shard)) * time.as_nanos()).checked_div(self.active.as_nanos()).unwrap_or(0)
    }

    /// Whether a shard's count differs too much for chance.
    fn differs(&self, new: &Self) -> bool {
        let shards = self.shards.keys().chain(new.shards.keys());
        shards.into_iter().any(|shard| {
            let (expected, came) = (self.expected(*shard, new.active), u128::from(new.of(*shard)));
            let (difference, more) = (expected.abs_diff(came), expected.max(came));
            // The squared deviation of a random count is about the count.
            difference * 4 > more && difference.pow(2) > more * 9 * u128::from(PARTS)
        })
    }

    /// Reduces old counts by an eighth, and adds `new`.
    fn fade(&mut self, new: Self) {
        self.active = self.active / 8 * 7 + new.active;
        self.shards.values_mut().for_each(|records| *records = *records / 8 * 7);
        for (shard, records) in new.shards {
            *self.shards.entry(shard).or_default() += records;
        }
    }
}

impl Rates {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, new: Brought::default(), old: Brought::default(), cut_at: None }
    }

    /// Adds the time since the last cut, at most [`ACTIVE`] intervals: later no client appended.
    pub(super) fn cut(&mut self, now: Time) {
        let most = self.interval * ACTIVE;
        self.new.active += self.cut_at.map_or(most, |at| now.since(at).min(most));
        self.cut_at = Some(now);
    }

    /// Counts records without padding, which depends on the other shards.
    pub(super) fn count(&mut self, shard: ShardId, records: u64) {
        let parts = self.new.shards.entry(shard).or_default();
        *parts = parts.saturating_add(records.saturating_mul(PARTS));
    }

    /// The next quotas. The present ones, `before`, stay if they are about right.
    pub(super) fn quotas(&mut self, before: &[(ShardId, u32)]) -> Vec<(ShardId, u32)> {
        if self.new.active.is_zero() {
            return before.to_vec();
        }
        let new = std::mem::take(&mut self.new);
        match self.old.differs(&new) {
            true => self.old = new,
            false => self.old.fade(new),
        }
        let rates: Vec<u128> = before.iter().map(|(shard, _)| self.rate(*shard)).collect();
        let kept: Vec<u128> = before.iter().map(|(_, quota)| u128::from(*quota)).collect();
        let all: u128 = rates.iter().sum();
        let positions = kept.iter().sum::<u128>() * RATE_PARTS;
        let fits = positions * 2 >= all && positions <= all * 2;
        let best = best(&rates);
        let quotas = match fits && wasted(&rates, &kept) <= wasted(&rates, &best) + SAME_PER_MILLE {
            true => kept,
            false => best,
        };
        let quota = |((shard, _), quota): (&(ShardId, u32), u128)| {
            (*shard, u32::try_from(quota).expect("it is bounded"))
        };
        before.iter().zip(quotas).map(quota).collect()
    }

    /// Parts of a record that a shard brings per interval.
    fn rate(&self, shard: ShardId) -> u128 {
        self.old.expected(shard, self.interval) * (RATE_PARTS / u128::from(PARTS))
    }
}

/// Quotas that leave few positions empty; among these, turns of about an interval.
fn best(rates: &[u128]) -> Vec<u128> {
    let of = |eighths: u128| -> Vec<u128> {
        let whole = 8 * RATE_PARTS;
        let quota = |rate: &u128| ((rate * eighths + whole / 2) / whole).clamp(1, limits::MAX_QUOTA.into());
        rates.iter().map(quota).collect()
    };
    let rank = |eighths: &u128| (wasted(rates, &of(*eighths)) / SAME_PER_MILLE, eighths.abs_diff(8));
    of(EIGHTHS.min_by_key(rank).expect("there are some"))
}

/// Empty positions per thousand. The shard that needs the most turns sets the number of cuts.
fn wasted(rates: &[u128], quotas: &[u128]) -> u128 {
    let pace = rates.iter().zip(quotas).map(|(rate, quota)| rate.div_ceil(*quota)).max().unwrap_or(0);
    let (positions, records) = (pace * quotas.iter().sum::<u128>(), rates.iter().sum::<u128>());
    ((positions - records.min(positions)) * 1000).checked_div(positions).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(1);
    const SHARDS: [ShardId; 2] = [ShardId(3), ShardId(5)];

    struct Load {
        rates: Rates,
        now: Time,
    }

    impl Load {
        fn new() -> Self {
            let rates = Rates { cut_at: Some(Time::ZERO), ..Rates::new(INTERVAL) };
            Self { rates, now: Time::ZERO }
        }

        /// 100 cuts at this distance, with `records` of each shard in total.
        fn brings(&mut self, apart: Duration, records: [u64; 2], before: [u32; 2]) -> [u32; 2] {
            for cut in 0..100 {
                self.now = self.now + apart;
                self.rates.cut(self.now);
                for (shard, records) in SHARDS.iter().zip(records) {
                    self.rates.count(*shard, records * (cut + 1) / 100 - records * cut / 100);
                }
            }
            let before: Vec<(ShardId, u32)> = SHARDS.into_iter().zip(before).collect();
            let quotas = self.rates.quotas(&before);
            assert_eq!(quotas.iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), SHARDS);
            [quotas[0].1, quotas[1].1]
        }
    }

    #[test]
    fn a_quota_is_what_a_shard_brings_in_an_interval() {
        assert_eq!(Load::new().brings(INTERVAL, [3000, 6000], [10, 10]), [30, 60]);
        assert_eq!(Load::new().brings(INTERVAL / 4, [1000, 1000], [10, 10]), [40, 40]);
        let most = limits::MAX_QUOTA;
        assert_eq!(Load::new().brings(INTERVAL, [1 << 40, 1 << 40], [10, 10]), [most, most]);
    }

    #[test]
    fn quotas_stand_to_each_other_as_what_shards_bring() {
        assert_eq!(Load::new().brings(INTERVAL, [210, 190], [10, 10]), [2, 2]);
        assert_eq!(Load::new().brings(INTERVAL, [240, 160], [10, 10]), [3, 2]);
        assert_eq!(Load::new().brings(INTERVAL, [500, 10], [10, 10]), [10, 1]);
    }

    #[test]
    fn a_log_that_is_hardly_used_has_quotas_of_one() {
        assert_eq!(Load::new().brings(Duration::from_secs(60), [100, 100], [10, 10]), [1, 1]);
        assert_eq!(Load::new().brings(Duration::from_secs(60), [100, 0], [10, 10]), [1, 1]);
        assert_eq!(Load::new().brings(Duration::from_secs(60), [0, 0], [10, 10]), [1, 1]);
    }

    #[test]
    fn quotas_that_are_about_right_stay() {
        assert_eq!(Load::new().brings(INTERVAL, [10_150, 9_850], [100, 100]), [100, 100]);
        assert_eq!(Load::new().brings(INTERVAL, [12_000, 8_000], [100, 100]), [120, 80]);
        assert_eq!(Load::new().brings(INTERVAL, [60_000, 60_000], [100, 100]), [600, 600]);
        let before: Vec<(ShardId, u32)> = vec![(SHARDS[0], 7), (SHARDS[1], 9)];
        assert_eq!(Rates::new(INTERVAL).quotas(&before), before, "nothing was measured");
    }

    #[test]
    fn what_chance_brings_changes_little_and_another_load_all() {
        let mut load = Load::new();
        let mut quotas = load.brings(INTERVAL, [400, 400], [10, 10]);
        for (more, less) in [(410, 390), (380, 410), (420, 400), (380, 390)] {
            quotas = load.brings(INTERVAL, [more, less], quotas);
            assert_eq!(quotas, [4, 4]);
        }
        assert_eq!(load.brings(INTERVAL, [1600, 400], quotas), [16, 4]);
        assert_eq!(load.brings(INTERVAL, [1600, 0], [16, 4]), [26, 1]);
    }
}
