//! The state of a replica before each change that its store has not confirmed.

use std::collections::VecDeque;

use seriatim_model::storage::{HardState, MissingRange};
use seriatim_model::{Position, Ticket};

use super::applied::Applied;

/// The part of a replica that goes back when its store has no room for a change.
#[derive(Clone, Debug)]
pub(super) struct Before {
    pub(super) memory: HardState,
    pub(super) stable: Position,
    pub(super) restarted: bool,
    pub(super) missing: Option<MissingRange>,
    /// How far the store had everything, where the data path goes by that.
    pub(super) applied: Option<Applied>,
}

/// Changes on their way to the store, oldest first, with what was before each of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Unstored {
    changes: VecDeque<(Ticket, Before)>,
}

impl Unstored {
    /// A change left with this ticket.
    pub(super) fn left(&mut self, ticket: Ticket, before: Before) {
        self.changes.push_back((ticket, before));
    }

    /// All changes up to this ticket are in the store, or were taken back.
    pub(super) fn stored(&mut self, ticket: Ticket) {
        while self.changes.front().is_some_and(|(change, _)| *change <= ticket) {
            self.changes.pop_front();
        }
    }

    /// The change with this ticket failed. Returns what to go back to, unless a later change, which
    /// contains it, is still on its way; should that fail too, it goes back as far.
    pub(super) fn failed(&mut self, ticket: Ticket) -> Option<Before> {
        let index = self.changes.iter().position(|(change, _)| *change == ticket)?;
        let (_, before) = self.changes.remove(index)?;
        match self.changes.get_mut(index) {
            Some((_, later)) => {
                *later = before;
                None
            }
            None => Some(before),
        }
    }
}
