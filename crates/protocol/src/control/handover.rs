//! The part of a view change that an ordering decides: what the view that ends leaves, and where the next one begins.

use std::fmt::Debug;

use seriatim_model::storage::Lacking;
use seriatim_model::{Position, ShardMembers};

use super::evidence::Evidence;
use super::flush::{Flush, FlushRange};
use crate::shard::Held;

/// How a view hands over to the next one, in one ordering.
///
/// The attempt does what is the same for all: it asks, repeats, gathers answers, selects replicas, stages and
/// registers. It has the [`Evidence`] judged by the log's handover, which is a value without state: the same evidence
/// gets the same answer, whoever asks and how often. A handover claims and sends nothing, and waits for nothing.
///
/// Invariants, asserted where the attempt asks: a [certain](Self::certain) position is not below where the flush
/// begins; the positions where [shards join](Self::joins_at) and where the new view
/// [decides from](Self::decides_from) are within the flush, or at its end; a [flush](Self::flush) by the chosen replica
/// has a chosen replica, and one by shards has each done by a replica that takes part; where nothing is
/// [sealed](Self::seals) nobody is chosen.
pub(crate) trait Handover: Debug + Send + Sync {
    /// Whether sequencing replicas hold anything that a view leaves. Then they are sealed first, and the view change goes
    /// on with the state of one of them; and one that is away keeps its place. Otherwise the first step is to fence, and
    /// where the role that orders was does not matter.
    fn seals(&self) -> bool {
        true
    }

    /// The positions that the flush is about, as far as they can be told before it.
    fn range(&self, evidence: &Evidence) -> FlushRange;

    /// Below it, positions stay as they are: the shards hold them, or will when the flush is done.
    fn certain(&self, evidence: &Evidence) -> Position;

    /// The positions below [`certain`](Self::certain) that a replica of a shard would lack in the new view.
    fn lacks(&self, evidence: &Evidence, held: &Held) -> Lacking {
        held.lacks_in(evidence.history(), self.certain(evidence))
    }

    /// Whether a replica that lacks nothing of what came to it in the old view has everything below
    /// [`certain`](Self::certain).
    fn complete_suffices(&self, _: &Evidence) -> bool {
        true
    }

    /// The way in which what the old view leaves comes to these replicas, which are to be those of the new one.
    fn flush(&self, evidence: &Evidence, _: &[ShardMembers]) -> Flush {
        match evidence.chosen() {
            Some(_) => Flush::by_chosen(),
            // Nobody has anything that the shards do not have.
            None => Flush::by_nobody(self.range(evidence)),
        }
    }

    /// From there on, new records go to the shards that join with the new view.
    fn joins_at(&self, flush: FlushRange) -> Position;

    /// From there on, the new view's versions of positions are valid.
    fn decides_from(&self, flush: FlushRange) -> Position;

    /// Below it, nobody needs what the history says of views.
    fn trimmed(&self, evidence: &Evidence, shards: &[ShardMembers]) -> Position {
        evidence.trimmed(shards)
    }
}
