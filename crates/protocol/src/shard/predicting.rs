//! The positions that a primary may tell readers before they are final: those pushed to it in its
//! view, without a gap.
//!
//! ```text
//!              stable            predictable
//!  --------------|--------------------|-----------
//!    final       |  pushed, no gap    |  unknown, or pushed beyond a gap
//! ```
//!
//! It is bound here by a push of the view, and only another leader's order can change it:
//! sequencing replicas hold it until it is stable. That it is durable, or on the backups, need not
//! be waited for.

use std::collections::BTreeMap;

use seriatim_model::{Position, Ticket, ViewNumber};

use super::core::Core;

/// The runs of positions that were pushed in a view and are not final.
#[derive(Clone, Debug, Default)]
pub struct Predicting {
    view: ViewNumber,
    /// The end of each run, and the write that holds it.
    runs: BTreeMap<Position, (Position, Ticket)>,
    /// From the start of the view to there it is without a gap.
    end: Position,
}

impl Predicting {
    /// The write with this ticket holds what was pushed in `view` for `first..end`. Says whether
    /// more may be told.
    pub(crate) fn pushed(
        &mut self,
        core: &Core,
        view: ViewNumber,
        runs: impl IntoIterator<Item = (Position, Position)>,
        ticket: Ticket,
    ) -> bool {
        if view != self.view {
            *self = Self { view, ..Self::default() };
        }
        self.runs.extend(runs.into_iter().map(|(first, end)| (first, (end, ticket))));
        let before = self.end;
        self.extend(core);
        self.end > before
    }

    /// Nothing of this write is in the store.
    pub(crate) fn failed(&mut self, core: &Core, ticket: Ticket) {
        let before = self.runs.len();
        self.runs.retain(|_, (_, written)| *written != ticket);
        if self.runs.len() < before {
            self.end = Position::ZERO;
            self.extend(core);
        }
    }

    /// Final positions need not be predicted any more. Also when the replica enters a view, which
    /// begins there.
    pub(crate) fn stable_raised(&mut self, core: &Core) {
        let stable = core.stable;
        while self.runs.first_key_value().is_some_and(|(_, (end, _))| *end <= stable) {
            self.runs.pop_first();
        }
        self.extend(core);
    }

    /// Below it everything of this shard may be told: at least below what is stable.
    pub(crate) fn end(&self, core: &Core) -> Position {
        if self.view == core.view_number() { self.end.max(core.stable) } else { core.stable }
    }

    /// Goes on over what is there, and over positions of other shards.
    fn extend(&mut self, core: &Core) {
        let Some(view) = core.memory.view.as_ref().filter(|view| view.number == self.view && core.is_open())
        else {
            return;
        };
        let places = core.memory.config.order.places_by_position() && !core.is_closed();
        self.end = self.end.max(core.stable).max(view.start);
        loop {
            if places {
                let own = view.placement.first_of(core.shard, self.end, Position::MAX);
                self.end = own.unwrap_or(self.end);
            }
            let run = self.runs.range(..=self.end).next_back().map(|(_, (end, _))| *end);
            match run.filter(|end| *end > self.end) {
                Some(end) => self.end = end,
                None => return,
            }
        }
    }
}
