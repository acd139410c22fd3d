//! Views of logs that are ordered by cuts (Scalog §3): what a view leaves behind is completed as versions of that view,
//! and the next one begins after it.

use seriatim_model::storage::Lacking;
use seriatim_model::{Position, ViewNumber};

use super::attempt::Attempt;
use crate::shard::Held;

impl Attempt {
    /// Whether the sequencing replicas hold cuts.
    pub(super) fn has_cuts(&self) -> bool {
        self.entry.config.order.has_cuts()
    }

    /// Where the cuts of the old view end, as far as anybody knows.
    pub(super) fn cuts_end(&self) -> Position {
        match self.chosen_state() {
            Some(state) => state.ordered + state.held,
            None if self.old() == ViewNumber::NONE => Position::ZERO,
            None => self.highest_stable(),
        }
    }

    /// Below it, every replica of the old view that answered has everything.
    pub(super) fn lowest_stable(&self) -> Position {
        let known = self.fenced.values().filter(|(_, held)| held.view == self.old());
        known.map(|(_, held)| held.stable).min().unwrap_or_else(|| self.highest_stable())
    }

    /// The positions that a replica lacks below the flush, or where cuts are completed, below its end. Without the
    /// cuts nobody can complete them: then a replica has what it knows to be final.
    pub(super) fn lacks(&self, held: &Held) -> Lacking {
        let (history, certain) = (&self.entry.history, self.certain());
        if !self.has_cuts() {
            return held.lacks_in(history, certain);
        }
        let gets_cuts = held.view == self.old() && self.chosen.is_some();
        let from = if gets_cuts { certain } else { held.stable.min(certain) };
        Lacking { from, end: certain }.join(held.lacks)
    }
}
