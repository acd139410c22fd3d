//! The cuts that retired shards have missed: the ordering layer keeps them for their replicas, as
//! long as the shard is in the view.
//!
//! ```text
//! replica of a retired shard     leader
//!   |-- Owe ------------------------>|
//!   |<- Owed ------------------------|   what its last view left, as versions of that view
//! ```
//!
//! A cut is let go of when all replicas of all shards have it. So the member that closes a view has
//! all that a shard was not told of by then, and what it keeps of that goes with the sessions from
//! view to view.

use seriatim_model::storage::Ordered;
use seriatim_model::wire::wire_struct;
use seriatim_model::{Address, NodeId};
use seriatim_model::{Endpoint, IdRun, Position, RetiredShard, ShardId, View, ViewNumber};

use super::ShardMessage;
use super::cut::Cut;
use super::sequencer::{Sequencer, reply};
use crate::parts::junk::junk;
use crate::roles::RoleEffect;

/// The part of a retired shard's order that it was not told of, or did not confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwedCuts {
    shard: ShardId,
    /// The view in which it was.
    of: ViewNumber,
    first: Position,
    /// Runs of positions, the shard's own with their ids.
    runs: Vec<Ordered>,
}

wire_struct! { OwedCuts { shard, of, first, runs } }

impl OwedCuts {
    /// All of these cuts, which follow each other from `first` on. Of what other shards have, it
    /// says only where it is.
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

/// The retired shards of a view, each with what it is owed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owed(pub(super) Vec<OwedCuts>);

impl Owed {
    /// The next view owes this, where the one that ends leaves these cuts.
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
    /// A replica of a retired shard asks for what it has missed.
    pub(super) fn owe(&self, replica: (ShardId, NodeId), view: ViewNumber, out: &mut Vec<RoleEffect>) {
        let Some(owed) = self.owed.0.iter().find(|owed| owed.shard == replica.0) else { return };
        let message = ShardMessage::Owed { view, of: owed.of, first: owed.first, runs: owed.runs.clone() };
        reply(Address::Node(replica.1, Endpoint::Shard(replica.0)), message, out);
    }
}
