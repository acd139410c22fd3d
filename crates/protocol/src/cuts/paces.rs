//! How often the shards bring records to the leader. With a slow disk they come in groups, which
//! does not make the shard late.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::{ShardId, Time};

#[derive(Clone, Debug, Default)]
pub(super) struct Paces(BTreeMap<ShardId, Pace>);

#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    end: u64,
    at: Option<Time>,
    /// Mean interval between new records; recent intervals count more.
    usual: Option<Duration>,
}

impl Paces {
    /// `end`: length of the named local log. A shard that was asked for more had no records before
    /// `asked_at`.
    pub(super) fn note(&mut self, now: Time, shard: ShardId, end: u64, asked_at: Option<Time>) {
        let pace = self.0.entry(shard).or_default();
        if end <= pace.end {
            return;
        }
        if let Some(since) = pace.at.max(asked_at) {
            let took = now.since(since);
            pace.usual = Some(pace.usual.map_or(took, |usual| usual - usual / 8 + took / 8));
        }
        (pace.end, pace.at) = (end, Some(now));
    }

    /// Usual interval of the fastest other shard. `None`: no other is known.
    pub(super) fn of_others(&self, shard: ShardId) -> Option<Duration> {
        self.0.iter().filter(|(other, _)| **other != shard).filter_map(|(_, pace)| pace.usual).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_pace_is_the_usual_time_between_what_comes_and_not_that_of_silence() {
        let mut paces = Paces::default();
        let (one, other) = (ShardId(1), ShardId(2));
        paces.note(at(0), one, 10, None);
        assert_eq!(paces.of_others(other), None, "it came once");
        for group in 1..=20 {
            paces.note(at(5 * group), one, 10 + group, None);
            paces.note(at(5 * group + 2), one, 10 + group, None);
        }
        assert_eq!(paces.of_others(other), Some(Duration::from_millis(5)));
        assert_eq!(paces.of_others(one), None);
        for second in 1..=20 {
            paces.note(at(1000 * second + 3), other, second, Some(at(1000 * second)));
        }
        assert_eq!(paces.of_others(one), Some(Duration::from_millis(3)), "it was asked");
    }
}
