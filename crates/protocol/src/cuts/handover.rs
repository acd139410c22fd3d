//! View changes of logs ordered by cuts (Scalog §3): the ending view's cuts are completed as
//! versions of that view. A closing cut orders the other records, as versions of the next view,
//! which begins after it.
//!
//! The chosen replica flushes, by default; `view_change.rs` decides how much.

use seriatim_model::storage::MissingRange;
use seriatim_model::{Position, ViewNumber};

use crate::control::{Evidence, FlushRange, Handover};
use crate::shard::Held;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts;

impl Cuts {
    /// Position below which every answering replica of the old view has everything.
    fn lowest_stable(evidence: &Evidence) -> Position {
        let known = evidence.all_held().filter(|held| held.view == evidence.old());
        known.map(|held| held.stable).min().unwrap_or_else(|| evidence.highest_stable())
    }
}

impl Handover for Cuts {
    /// With a chosen member: an empty range at the end of its cuts, where the closing cut begins.
    /// Without one: from the lowest to the highest position known to be final, where some replicas
    /// may lack records.
    fn range(&self, evidence: &Evidence) -> FlushRange {
        match evidence.chosen_state() {
            Some(state) => FlushRange::none_at(state.ordered + state.held),
            None if evidence.old() == ViewNumber::NONE => FlushRange::none_at(Position::ZERO),
            None => FlushRange::new(Self::lowest_stable(evidence), evidence.highest_stable()),
        }
    }

    fn certain(&self, evidence: &Evidence) -> Position {
        self.range(evidence).end()
    }

    /// A replica that gets the completed cuts lacks nothing below their end. Any other has only the
    /// positions that it knows to be final.
    fn missing(&self, evidence: &Evidence, held: &Held) -> MissingRange {
        let certain = self.certain(evidence);
        let gets_cuts = held.view == evidence.old() && evidence.chosen().is_some();
        let from = if gets_cuts { certain } else { held.stable.min(certain) };
        MissingRange { from, end: certain }.join(held.missing)
    }

    /// Without a member that has the cuts, records in local logs have no positions.
    fn complete_suffices(&self, evidence: &Evidence) -> bool {
        evidence.chosen().is_some()
    }

    /// New shards join after the closing cut: all earlier positions are on the old view's shards.
    fn joins_at(&self, flush: FlushRange) -> Position {
        flush.end()
    }

    /// Completed cuts remain versions of the old view; the closing cut is a version of the new one.
    /// Without a chosen member there is no closing cut, and the whole range belongs to the old
    /// view.
    fn decides_from(&self, evidence: &Evidence, flush: FlushRange) -> Position {
        if evidence.chosen().is_some() { flush.first() } else { flush.end() }
    }
}
