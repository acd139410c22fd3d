//! View changes where sequencing replicas hold records, or their ids, until the shards have them
//! (LazyLog §4.5).
//!
//! The chosen replica flushes, by the default of `Handover`; `view_change.rs` decides how much.

use seriatim_model::{Position, ViewNumber};

use crate::control::{Evidence, FlushRange, Handover};

/// The chosen replica binds, under the claim, the entries that the shards lack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unbound;

impl Unbound {
    /// The chosen replica's `ordered`: the shards hold everything below it. `None`: no replica is
    /// chosen.
    fn ordered(evidence: &Evidence) -> Option<Position> {
        evidence.chosen()?;
        Some(evidence.chosen_state().map_or(Position::ZERO, |state| state.ordered))
    }
}

impl Handover for Unbound {
    /// Start of the flush, whose end the chosen replica reports itself.
    fn range(&self, evidence: &Evidence) -> FlushRange {
        FlushRange::none_at(match Self::ordered(evidence) {
            Some(ordered) => ordered,
            None if evidence.old() == ViewNumber::NONE => Position::ZERO,
            None => evidence.highest_stable(),
        })
    }

    /// Positions below it keep their records. Without a chosen replica, only final positions do.
    fn certain(&self, evidence: &Evidence) -> Position {
        evidence.highest_stable().max(Self::ordered(evidence).unwrap_or_default())
    }

    /// New shards join at the start of the flush, which already uses the new view's placement.
    fn joins_at(&self, flush: FlushRange) -> Position {
        flush.first()
    }

    fn decides_from(&self, _: &Evidence, flush: FlushRange) -> Position {
        flush.first()
    }
}
