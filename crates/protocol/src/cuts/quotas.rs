//! The quotas that the shards of a view begin with: those that they had in the view before.

use std::collections::BTreeMap;

use bytes::Bytes;
use seriatim_model::wire::{decode_one, encode_one};
use seriatim_model::{LogConfig, ShardId, View, limits};

use super::owed::{Owed, OwedCuts};
use super::window::{Window, Windows};

/// The quotas of shards that have had some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Quotas(BTreeMap<ShardId, u32>);

impl Quotas {
    /// The ones of the last window that is decided.
    pub(super) fn of(windows: &Windows) -> Self {
        Self(windows.quotas().collect())
    }

    /// In the form that is carried into the next view, with what retired shards are owed.
    pub(super) fn carried(&self, owed: &Owed) -> Bytes {
        let quotas: Vec<(ShardId, u32)> = self.0.iter().map(|(shard, quota)| (*shard, *quota)).collect();
        match (quotas.is_empty(), owed.0.is_empty()) {
            (true, true) => Bytes::new(),
            (false, true) => encode_one(&quotas),
            (_, false) => encode_one(&(quotas, owed.0.clone())),
        }
    }

    /// The ones that were carried, and what is owed. None that another build wrote in another form:
    /// shards begin anew then.
    pub(super) fn of_carried(carried: &Bytes) -> (Self, Owed) {
        type Both = (Vec<(ShardId, u32)>, Vec<OwedCuts>);
        let alone = || (decode_one(carried.clone()).unwrap_or_default(), vec![]);
        let (quotas, owed) = decode_one::<Both>(carried.clone()).unwrap_or_else(|_| alone());
        let bounded = |(shard, quota): (ShardId, u32)| (shard, quota.clamp(1, limits::MAX_QUOTA));
        (Self(quotas.into_iter().map(bounded).collect()), Owed(owed))
    }

    /// The first window of a view that begins with these. All members know it, from the view and
    /// what they were staged with.
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
