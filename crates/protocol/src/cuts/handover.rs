//! View changes of logs that are ordered by cuts (Scalog §3): the cuts that a view leaves are
//! completed as versions of that view. What no cut covers gets its positions from a closing cut, as
//! versions of the next one, which begins after it.
//!
//! The chosen replica flushes, which is the contract's default; `view_change.rs` decides how much
//! that is.

use seriatim_model::storage::MissingRange;
use seriatim_model::{Position, ViewNumber};

use crate::control::{Evidence, FlushRange, Handover};
use crate::shard::Held;

/// The cuts that the chosen replica holds are completed on the shards, and the view is closed
/// behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts;

impl Cuts {
    /// Below it, every replica of the old view that answered has everything.
    fn lowest_stable(evidence: &Evidence) -> Position {
        let known = evidence.all_held().filter(|held| held.view == evidence.old());
        known.map(|held| held.stable).min().unwrap_or_else(|| evidence.highest_stable())
    }
}

impl Handover for Cuts {
    /// With the cuts nothing is left open: where the last of them ends, the closing cut begins.
    /// Without them, its positions begin where those end that anybody knows to be final, of which
    /// some replicas may lack some.
    fn range(&self, evidence: &Evidence) -> FlushRange {
        match evidence.chosen_state() {
            Some(state) => FlushRange::none_at(state.ordered + state.held),
            None if evidence.old() == ViewNumber::NONE => FlushRange::none_at(Position::ZERO),
            None => FlushRange::new(Self::lowest_stable(evidence), evidence.highest_stable()),
        }
    }

    /// The cuts of the old view end there, as far as anybody knows.
    fn certain(&self, evidence: &Evidence) -> Position {
        self.range(evidence).end()
    }

    /// Where cuts are completed, a replica lacks what is below their end. Without the cuts nobody
    /// can complete them: then it has what it knows to be final.
    fn missing(&self, evidence: &Evidence, held: &Held) -> MissingRange {
        let certain = self.certain(evidence);
        let gets_cuts = held.view == evidence.old() && evidence.chosen().is_some();
        let from = if gets_cuts { certain } else { held.stable.min(certain) };
        MissingRange { from, end: certain }.join(held.missing)
    }

    /// Records in local logs have no positions without the cuts.
    fn complete_suffices(&self, evidence: &Evidence) -> bool {
        evidence.chosen().is_some()
    }

    /// Cuts say which records are where: those of the old view are on the shards that it had, the
    /// closing cut's as well.
    fn joins_at(&self, flush: FlushRange) -> Position {
        flush.end()
    }

    /// A cut that is completed stays the old view's: it can have only one content. The closing cut
    /// is the new one's. Without the cuts, there is none, and all that is in the range was the old
    /// view's.
    fn decides_from(&self, evidence: &Evidence, flush: FlushRange) -> Position {
        if evidence.chosen().is_some() { flush.first() } else { flush.end() }
    }
}
