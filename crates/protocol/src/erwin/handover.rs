//! View changes where sequencing replicas hold records, or their ids, until the shards have them
//! (LazyLog §4.5).
//!
//! The chosen replica flushes, which is the contract's default; `view_change.rs` decides how much
//! that is.

use seriatim_model::{Position, ViewNumber};

use crate::control::{Evidence, FlushRange, Handover};

/// The chosen replica binds, under the claim, whatever it holds and the shards do not have yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unbound;

impl Unbound {
    /// How far the chosen replica got: from there on its flush binds what it holds, and below the
    /// shards do.
    fn ordered(evidence: &Evidence) -> Option<Position> {
        evidence.chosen()?;
        Some(evidence.chosen_state().map_or(Position::ZERO, |state| state.ordered))
    }
}

impl Handover for Unbound {
    /// The chosen replica says itself how much it has.
    fn range(&self, evidence: &Evidence) -> FlushRange {
        FlushRange::none_at(match Self::ordered(evidence) {
            Some(ordered) => ordered,
            None if evidence.old() == ViewNumber::NONE => Position::ZERO,
            None => evidence.highest_stable(),
        })
    }

    /// The shards hold everything that the chosen replica does not have in hand any more. Without
    /// one, only what is final is sure to be there.
    fn certain(&self, evidence: &Evidence) -> Position {
        evidence.highest_stable().max(Self::ordered(evidence).unwrap_or_default())
    }

    /// The flush places what it binds as the new view does.
    fn joins_at(&self, flush: FlushRange) -> Position {
        flush.first()
    }

    /// All that the flush binds is the new view's.
    fn decides_from(&self, _: &Evidence, flush: FlushRange) -> Position {
        flush.first()
    }
}
