//! The quotas with which a view begins: those of the view before.

use std::collections::BTreeMap;

use bytes::Bytes;
use seriatim_model::wire::{decode_one, encode_one};
use seriatim_model::{LogConfig, ShardId, View, limits};

use super::owed::{Owed, OwedCuts};
use super::window::{Window, Windows};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Quotas(BTreeMap<ShardId, u32>);

impl Quotas {
    /// Quotas of the last decided window.
    pub(super) fn of(windows: &Windows) -> Self {
        Self(windows.quotas().collect())
    }

    /// Encodes the quotas for the next view, with the cuts that retired shards missed.
    pub(super) fn carried(&self, owed: &Owed) -> Bytes {
        let quotas: Vec<(ShardId, u32)> = self.0.iter().map(|(shard, quota)| (*shard, *quota)).collect();
        match (quotas.is_empty(), owed.0.is_empty()) {
            (true, true) => Bytes::new(),
            (false, true) => encode_one(&quotas),
            (_, false) => encode_one(&(quotas, owed.0.clone())),
        }
    }

    /// Decodes the carried form. There are no quotas if another build wrote an unknown form.
    pub(super) fn of_carried(carried: &Bytes) -> (Self, Owed) {
        type Both = (Vec<(ShardId, u32)>, Vec<OwedCuts>);
        let alone = || (decode_one(carried.clone()).unwrap_or_default(), vec![]);
        let (quotas, owed) = decode_one::<Both>(carried.clone()).unwrap_or_else(|_| alone());
        let bounded = |(shard, quota): (ShardId, u32)| (shard, quota.clamp(1, limits::MAX_QUOTA));
        (Self(quotas.into_iter().map(bounded).collect()), Owed(owed))
    }

    /// All members compute the same window from the view and their staged state.
    pub(super) fn first_window(&self, view: &View, config: &LogConfig) -> Window {
        let quota = |shard: &ShardId| (*shard, self.0.get(shard).copied().unwrap_or(limits::FIRST_QUOTA));
        let keepers: Vec<(ShardId, u32)> = view.open_shards().iter().map(quota).collect();
        Window::first(view.start, config.window, &keepers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_carried_and_bounded() {
        let quotas = Quotas(BTreeMap::from([(ShardId(1), 7), (ShardId(4), limits::MAX_QUOTA)]));
        let nothing = Owed::default();
        assert_eq!(Quotas::of_carried(&quotas.carried(&nothing)), (quotas, nothing.clone()));
        let wrong = Quotas(BTreeMap::from([(ShardId(1), 0), (ShardId(4), u32::MAX)]));
        let right = Quotas(BTreeMap::from([(ShardId(1), 1), (ShardId(4), limits::MAX_QUOTA)]));
        assert_eq!(Quotas::of_carried(&wrong.carried(&nothing)).0, right);
        assert_eq!(Quotas::default().carried(&nothing), Bytes::new());
        for other in [&b""[..], b"in another form"] {
            assert_eq!(Quotas::of_carried(&Bytes::from_static(other)), (Quotas::default(), nothing.clone()));
        }
    }
}
