//! A cut, as it travels and is kept.

use seriatim_model::storage::Ordered;
use seriatim_model::wire::wire_struct;
use seriatim_model::{Position, ShardId};

use crate::parts::Sessions;
use crate::shard::Submitted;

/// How long the local logs of the shards are that have been ordered, and whose records these are since the last cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The position of the first of its records: where the cut before it ended.
    pub from: Position,
    /// For each shard how much of its local log is decided. What was there before and is not among the names, here or
    /// in earlier cuts, never gets a position in this view.
    pub lengths: Vec<(ShardId, u64)>,
    /// The names that get the positions from the first on, in order.
    pub names: Vec<(ShardId, Submitted)>,
}

wire_struct! { Cut { from, lengths, names } }

impl Cut {
    /// The position after the last of its records.
    #[must_use]
    pub fn end(&self) -> Position {
        self.from + self.names.iter().map(|(_, names)| names.ids.count).sum::<u64>()
    }

    /// How much of a shard's local log is decided.
    pub(super) fn length(&self, shard: ShardId) -> u64 {
        self.lengths.iter().find(|(of, _)| *of == shard).map_or(0, |(_, length)| *length)
    }

    /// The names as the shards are told.
    pub(super) fn runs(&self) -> Vec<Ordered> {
        let run =
            |(shard, names): &(ShardId, Submitted)| Ordered { ids: names.ids, shard: *shard, is_void: false };
        self.names.iter().map(run).collect()
    }

    /// Takes note of what it orders.
    pub(super) fn settle(&self, sessions: &mut Sessions) {
        let mut position = self.from;
        for (_, Submitted { ids, lowest }) in &self.names {
            sessions.bind(*ids, position);
            sessions.admit(ids.session, ids.end(), *lowest, position);
            position += ids.count;
        }
    }
}
