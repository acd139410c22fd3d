//! The positions that a primary may predict: those pushed to it in its view, without a gap.
//!
//! ```text
//!              stable            predictable
//!  --------------|--------------------|-----------
//!    final       |  pushed, no gap    |  unknown, or pushed beyond a gap
//! ```
//!
//! Sequencing replicas hold pushed records until they are stable, so only another leader's order
//! can change them. A prediction need not wait until they are durable or on the backups.

use std::collections::BTreeMap;

use seriatim_model::{Position, Ticket, ViewNumber};

use super::core::Core;

/// Pushed runs of a view that are not final.
#[derive(Clone, Debug, Default)]
pub struct Predicting {
    view: ViewNumber,
    runs: BTreeMap<Position, (Position, Ticket)>,
    /// Between the start of the view and `end` there is no gap.
    end: Position,
}

impl Predicting {
    /// Adds runs that this write stores. Returns whether more positions are predictable now.
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

    pub(crate) fn failed(&mut self, core: &Core, ticket: Ticket) {
        let before = self.runs.len();
        self.runs.retain(|_, (_, written)| *written != ticket);
        if self.runs.len() < before {
            self.end = Position::ZERO;
            self.extend(core);
        }
    }

    /// Drops final runs. Also called on entering a view, whose start is then `stable`.
    pub(crate) fn stable_raised(&mut self, core: &Core) {
        let stable = core.stable;
        while self.runs.first_key_value().is_some_and(|(_, (end, _))| *end <= stable) {
            self.runs.pop_first();
        }
        self.extend(core);
    }

    /// End of the predictable positions; at least the stable bound.
    pub(crate) fn end(&self, core: &Core) -> Position {
        if self.view == core.view_number() { self.end.max(core.stable) } else { core.stable }
    }

    /// Moves `end` over pushed runs and other shards' positions.
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
