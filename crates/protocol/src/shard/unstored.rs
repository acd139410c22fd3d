//! The states before changes that the store has not confirmed.

use std::collections::VecDeque;

use seriatim_model::storage::{HardState, MissingRange};
use seriatim_model::{Position, Ticket};

use super::applied::Applied;

/// The state to restore if the store has no room for a change.
#[derive(Clone, Debug)]
pub(super) struct Before {
    pub(super) memory: HardState,
    pub(super) stable: Position,
    pub(super) restarted: bool,
    pub(super) missing: Option<MissingRange>,
    /// The applied prefix, if the data path uses one.
    pub(super) applied: Option<Applied>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Unstored {
    changes: VecDeque<(Ticket, Before)>,
}

impl Unstored {
    pub(super) fn left(&mut self, ticket: Ticket, before: Before) {
        self.changes.push_back((ticket, before));
    }

    /// Changes up to this ticket are stored or undone.
    pub(super) fn stored(&mut self, ticket: Ticket) {
        while self.changes.front().is_some_and(|(change, _)| *change <= ticket) {
            self.changes.pop_front();
        }
    }

    /// Returns the state to restore, or `None` while a later change, which contains the failed one,
    /// is in flight. Should that fail too, the earlier state applies.
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
