//! The part of a replica that depends on the ordering: how records arrive, and when they are final.

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

/// The path of records into a shard replica, in one ordering.
///
/// The [`Core`] does the work that all orderings share and calls these methods. A path without
/// state needs only `boxed`: the core handles batches of records with positions.
pub trait DataPath: Debug + Send + Sync {
    /// Clones the path.
    fn boxed(&self) -> Box<dyn DataPath>;

    /// Receives a message. A path ignores messages of other orderings.
    fn receive(&mut self, _: &mut Core, _now: Time, _from: Address, _: roles::Message, _: &mut Out) {}

    /// All writes up to this ticket are durable. The core answers waiting batches afterwards.
    fn persisted(&mut self, _: &mut Core, _: Ticket, _: &mut Out) {}

    /// All writes up to this ticket are in the store. The core has answered waiting batches.
    fn stored(&mut self, _: &mut Core, _: Ticket, _: &mut Out) {}

    /// The store had no room for this write, and holds no part of it.
    fn failed(&mut self, _: &mut Core, _now: Time, _: Ticket, _: &mut Out) {}

    /// The core undoes a change of its state; `applied` is the applied prefix before the change.
    fn taken_back(&mut self, _: &mut Core, _applied: Option<Applied>) {}

    /// Abandons the view's work: a higher claim or a view without the replica ended it.
    fn stopped(&mut self, _: &mut Core, _: &mut Out) {}

    /// The replica obeys this claim, for the first time in this run of its process.
    fn fenced(&mut self, _claim: ViewNumber) {}

    /// Drops records without positions: none will ever get one.
    fn discard_unplaced(&mut self, _: &mut Core, _: &mut Out) {}

    /// The replica is fenced, and is no member of the view that ends.
    fn passed_over(&mut self, core: &mut Core, out: &mut Out) {
        self.discard_unplaced(core, out);
    }

    /// The positions that this replica misses as a member of `view`, including trimmed ones. The
    /// shard joined the log at `begins`.
    fn missing(
        &self,
        core: &Core,
        view: &View,
        history: &ViewHistory,
        begins: Position,
    ) -> Option<MissingRange> {
        // Below `begins` the shard had no records to miss.
        core.held().missing_from(history, view.first).filter(|_| begins < view.first)
    }

    /// Whether the store has the whole flush of this registered view. `false` in orderings whose
    /// record versions do not show it.
    fn has_flushed(&self, _: &Core, _: &View) -> bool {
        false
    }

    /// The replica learned of a registered view that names it and may be over.
    fn learned(&mut self, _: &View) {}

    /// A view is registered that does not name the replica.
    fn left_out(&mut self) {}

    /// A view is registered that excludes the shard but counts its records.
    fn retired(&mut self, _: &mut Core, _now: Time, _: Retired, _: &mut Out) {}

    /// The replica will take part in a view whose flush began at `first`.
    fn entering(&mut self, _first: Position) {}

    /// The replica takes part in a view, unless a higher claim came.
    fn entered(&mut self, _: &mut Core, _now: Time, _: &mut Out) {}

    /// Primary: the predictable positions. `None` in orderings without predictions.
    fn predicting(&self) -> Option<&Predicting> {
        None
    }

    /// Mutable access to `predicting`.
    fn predicting_mut(&mut self) -> Option<&mut Predicting> {
        None
    }

    /// Primary: bound below which every record of this shard is known, though another view may
    /// still undo records at or above `stable`. Equals `stable` without predictions.
    fn predictable(&self, core: &Core) -> Position {
        self.predicting().map_or(core.stable, |predicting| predicting.end(core))
    }

    /// Bound below which everything is final, even if not yet in the store.
    fn committed(&self, core: &Core) -> Position {
        core.stable
    }

    /// Primary: the memory that holds records above the stable bound. `None`: the store holds them.
    fn memory(&self) -> Option<&dyn Foretold> {
        None
    }

    /// The stable bound rose.
    fn stable_raised(&mut self, _: &mut Core, _: &mut Out) {}

    /// The store's applied prefix, where each replica serves only its own store. `None` where the
    /// leader announces the stable bound.
    fn applied(&self) -> Option<&Applied> {
        None
    }

    /// Bound below which everything is written on this replica.
    fn written_below(&self, core: &Core) -> Position {
        core.stable
    }

    /// Number of held records without positions.
    fn unplaced(&self) -> u64 {
        0
    }

    /// When [`timer`](Self::timer) is due.
    fn deadline(&self, _: &Core) -> Option<Time> {
        None
    }

    /// Runs due work.
    fn timer(&mut self, _: &mut Core, _now: Time, _: &mut Out) {}

    /// A connection closed.
    fn disconnected(&mut self, _now: Time, _: Peer) {}

    /// The store found records by their ids.
    fn found(&mut self, _: &mut Core, _: Ticket, _: Vec<(RecordId, Record)>, _: &mut Out) {}

    /// The store answered the replica's own read.
    fn looked_up(&mut self, _: &mut Core, _question: u64, _: OwnOutcome, _: &mut Out) {}

    /// Drops the store's ids without final positions that the replica does not know.
    fn discard_unknown(&mut self, _: &mut Core, _: Vec<IdRun>, _: &mut Out) {}
}

/// The position range of a retired shard.
#[derive(Clone, Copy, Debug)]
pub struct Retired {
    pub(crate) view: ViewNumber,
    pub(crate) leader: Address,
    pub(crate) of: ViewNumber,
    pub(crate) until: Position,
    /// Start of the positions that an operator gave up, which end at `until`. Equals `until` if
    /// there are none.
    pub(crate) ends: Position,
}

/// Records of a shard that have positions and are not yet stored under them.
pub trait Foretold: Debug {
    /// This shard's predicted records from `from`, and the committed skipped positions of all
    /// shards. `from` is at or above the stable bound.
    fn foretold(&self, from: Position, max_records: u32, max_bytes: u32) -> Found;

    /// Positions in `from..upto`, of any shard, that cuts skipped: they are empty. The range is
    /// committed and not yet stable.
    fn passed_over(&self, from: Position, upto: Position) -> Vec<Span>;
}

impl Clone for Box<dyn DataPath> {
    fn clone(&self) -> Self {
        self.boxed()
    }
}
