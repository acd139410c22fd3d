//! Cuts missed by retired shards: shards that a view excludes because no complete replica answered.
//! The ordering layer keeps them while the view lists the shards as retired.
//!
//! ```text
//! replica of a retired shard     leader
//!   |-- Owe ------------------------>|
//!   |<- Owed ------------------------|   the order of its last view, as versions of that view
//! ```
//!
//! The layer drops a cut when all replicas of all shards have it. So the member that closes a view
//! has every missed cut. These travel with the sessions from view to view.

use seriatim_model::storage::Ordered;
use seriatim_model::wire::wire_struct;
use seriatim_model::{Address, NodeId};
use seriatim_model::{Endpoint, IdRun, Position, RetiredShard, ShardId, View, ViewNumber};

use super::ShardMessage;
use super::cut::Cut;
use super::sequencer::{Sequencer, reply};
use crate::parts::junk::junk;
use crate::roles::RoleEffect;

/// Positions that a retired shard did not receive or confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwedCuts {
    shard: ShardId,
    /// The last view of the shard.
    of: ViewNumber,
    first: Position,
    /// Runs of consecutive positions. Only the shard's own runs carry record ids.
    runs: Vec<Ordered>,
}

wire_struct! { OwedCuts { shard, of, first, runs } }

impl OwedCuts {
    /// `cuts` are consecutive from `first` on. Positions of other shards are only counted.
    fn new(shard: ShardId, of: ViewNumber, first: Position, cuts: impl Iterator<Item = Cut>) -> Self {
        let mut owed = Self { shard, of, first, runs: vec![] };
        let mut position = first;
        for run in cuts.flat_map(|cut| cut.runs()) {
            owed.add(position, run);
            position += run.ids.count;
        }
        owed
    }

    fn add(&mut self, position: Position, run: Ordered) {
        if run.shard == self.shard {
            return self.runs.push(run);
        }
        match self.runs.last_mut().filter(|last| last.shard == run.shard) {
            Some(last) => last.ids.count += run.ids.count,
            None => {
                let (id, _) = junk(position);
                let ids = IdRun { session: id.session, first: id.number, count: run.ids.count };
                self.runs.push(Ordered { ids, ..run });
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owed(pub(super) Vec<OwedCuts>);

impl Owed {
    /// The missed cuts that view `next` needs: known ones, and `cuts` for each shard that retires
    /// now.
    pub(super) fn in_view(&self, next: &View, ends: ViewNumber, first: Position, cuts: &[Cut]) -> Self {
        let of = |retired: &RetiredShard| {
            let known = self.0.iter().find(|owed| owed.shard == retired.shard);
            let is_new = known.is_none() && retired.last.number == ends;
            let new = is_new.then(|| OwedCuts::new(retired.shard, ends, first, cuts.iter().cloned()));
            known.cloned().or(new)
        };
        Self(next.retired.iter().filter_map(of).collect())
    }
}

impl Sequencer {
    pub(super) fn owe(&self, replica: (ShardId, NodeId), view: ViewNumber, out: &mut Vec<RoleEffect>) {
        let Some(owed) = self.owed.0.iter().find(|owed| owed.shard == replica.0) else { return };
        let message = ShardMessage::Owed { view, of: owed.of, first: owed.first, runs: owed.runs.clone() };
        reply(Address::Node(replica.1, Endpoint::Shard(replica.0)), message, out);
    }
}
