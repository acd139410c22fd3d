//! The part of a replica that an ordering decides: how records come to it, and when they are final.

use std::fmt::Debug;

use seriatim_model::storage::{Found, MissingRange};
use seriatim_model::{
    Address, IdRun, Peer, Position, Record, RecordId, Span, Ticket, Time, View, ViewHistory, ViewNumber,
};

use super::applied::Applied;
use super::core::Core;
use super::predicting::Predicting;
use super::readers::OwnOutcome;
use crate::roles::{self, RoleEffect};

type Out = Vec<RoleEffect>;

/// The way that records take into a replica of a shard, in one ordering.
///
/// The [`Core`] of the replica does what is the same for all: fence and claim, the stable bound,
/// trims, what is missing, catch-up, readers, and batches that a primary shares with its backups.
/// It asks its path, and tells it. A path that keeps nothing needs no method but the first: batches
/// of records at their positions are the core's.
pub trait DataPath: Debug + Send + Sync {
    /// A copy.
    fn boxed(&self) -> Box<dyn DataPath>;

    /// A message that only some orderings have. A path ignores the messages of others: no client of
    /// ours sends them.
    fn receive(&mut self, _: &mut Core, _now: Time, _from: Address, _: roles::Message, _: &mut Out) {}

    /// All writes up to this ticket are durable. The batches that waited for that are answered
    /// after this.
    fn persisted(&mut self, _: &mut Core, _: Ticket, _: &mut Out) {}

    /// All writes up to this ticket are in the store. The batches that waited for that were
    /// answered before.
    fn stored(&mut self, _: &mut Core, _: Ticket, _: &mut Out) {}

    /// Nothing of this write is in the store: there was no room.
    fn failed(&mut self, _: &mut Core, _now: Time, _: Ticket, _: &mut Out) {}

    /// A change of what the replica remembers is taken back. It had `applied` so much before.
    fn taken_back(&mut self, _: &mut Core, _applied: Option<Applied>) {}

    /// A claim that is higher than the view, or a view without the replica: what was begun under
    /// another does not go on.
    fn stopped(&mut self, _: &mut Core, _: &mut Out) {}

    /// The replica obeys this claim from now on, and has not since its process started.
    fn fenced(&mut self, _claim: ViewNumber) {}

    /// Records without positions are not counted on here: none of them will ever get one.
    fn discard_unplaced(&mut self, _: &mut Core, _: &mut Out) {}

    /// The replica is fenced for a view change in which it is no member of the view that ends.
    fn passed_over(&mut self, core: &mut Core, out: &mut Out) {
        self.discard_unplaced(core, out);
    }

    /// The positions that the replica misses as a member of this view, which the shard joined at
    /// `begins`, whatever is trimmed.
    fn missing(
        &self,
        core: &Core,
        view: &View,
        history: &ViewHistory,
        begins: Position,
    ) -> Option<MissingRange> {
        // Where the shard had not joined, the replica can miss nothing.
        core.held().missing_from(history, view.first).filter(|_| begins < view.first)
    }

    /// Whether the store has everything of this registered view that was there when the view began,
    /// from its first position on. Only where versions of the view themselves tell that.
    fn has_flushed(&self, _: &Core, _: &View) -> bool {
        false
    }

    /// It is known that a view was registered that the replica is a member of. It may be over
    /// already.
    fn learned(&mut self, _: &View) {}

    /// A view is registered that the replica takes no part in.
    fn left_out(&mut self) {}

    /// A view is registered that does without the shard, and with what the shard has.
    fn retired(&mut self, _: &mut Core, _now: Time, _: Retired, _: &mut Out) {}

    /// The replica is about to take part in a view whose flush began at `first`.
    fn entering(&mut self, _first: Position) {}

    /// The replica takes part in a view from now on, if no higher claim came.
    fn entered(&mut self, _: &mut Core, _now: Time, _: &mut Out) {}

    /// Primary: what may be told of the records that were pushed here in this view, before they are
    /// final. Nothing, where pushes do not say that.
    fn predicting(&self) -> Option<&Predicting> {
        None
    }

    /// The same, to take note of a write that holds some of them.
    fn predicting_mut(&mut self) -> Option<&mut Predicting> {
        None
    }

    /// Primary: below it everything of this shard is known, whether it is final or may still be
    /// undone by another view. Where nothing is known before it is final, that is what is stable.
    fn predictable(&self, core: &Core) -> Position {
        self.predicting().map_or(core.stable, |predicting| predicting.end(core))
    }

    /// Below it everything is final, whether the replica's store has it yet or not.
    fn committed(&self, core: &Core) -> Position {
        core.stable
    }

    /// Primary: where what is beyond the stable bound is read from, if that is memory. Otherwise it
    /// is in the store.
    fn memory(&self) -> Option<&dyn Foretold> {
        None
    }

    /// More is final.
    fn stable_raised(&mut self, _: &mut Core, _: &mut Out) {}

    /// How far its own store has everything, if each replica gives out what it has itself.
    /// Otherwise it believes its leader what is final.
    fn applied(&self) -> Option<&Applied> {
        None
    }

    /// How far everything is written on this replica, whatever the others have.
    fn written_below(&self, core: &Core) -> Position {
        core.stable
    }

    /// How many records are held that have no positions.
    fn unplaced(&self) -> u64 {
        0
    }

    /// When [`timer`](Self::timer) is due.
    fn deadline(&self, _: &Core) -> Option<Time> {
        None
    }

    /// Time passed.
    fn timer(&mut self, _: &mut Core, _now: Time, _: &mut Out) {}

    /// A connection closed.
    fn disconnected(&mut self, _now: Time, _: Peer) {}

    /// The store found records by their ids.
    fn found(&mut self, _: &mut Core, _: Ticket, _: Vec<(RecordId, Record)>, _: &mut Out) {}

    /// The store answered a question that the replica asked itself.
    fn looked_up(&mut self, _: &mut Core, _question: u64, _: OwnOutcome, _: &mut Out) {}

    /// The store holds records without final positions under these ids: it is to drop those that
    /// the replica does not know of.
    fn discard_unknown(&mut self, _: &mut Core, _: Vec<IdRun>, _: &mut Out) {}
}

/// The place of a shard that is retired.
#[derive(Clone, Copy, Debug)]
pub struct Retired {
    /// The view that does without it, and its leader.
    pub(crate) view: ViewNumber,
    pub(crate) leader: Address,
    /// The last view that it was in, and where what that left ends.
    pub(crate) of: ViewNumber,
    pub(crate) until: Position,
    /// Where that ends which nobody gave up.
    pub(crate) ends: Position,
}

/// The records of a shard that have positions and are not in its store with them yet.
pub trait Foretold: Debug {
    /// Everything of this shard in `from..`, as far as it is foretold, and no more than so much;
    /// and, of what is committed, the positions of all shards that were passed over. `from` is not
    /// below what is stable.
    fn foretold(&self, from: Position, max_records: u32, max_bytes: u32) -> Found;

    /// The positions in `from..upto` of records that were passed over, of any shard: these are
    /// empty. All is committed there, and nothing is stable.
    fn passed_over(&self, from: Position, upto: Position) -> Vec<Span>;
}

impl Clone for Box<dyn DataPath> {
    fn clone(&self) -> Self {
        self.boxed()
    }
}
