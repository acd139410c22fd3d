//! The applied prefix of a replica's store, which receives parts in any order.

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::{Position, Ticket};

/// The applied prefix of a store.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// Bound below which everything is durably stored, except the missing range.
    pub(crate) end: Position,
    /// Stored parts beyond `end`: start and end of each.
    parts: BTreeMap<Position, Position>,
    writing: VecDeque<(Ticket, Position, Position)>,
}

impl Applied {
    pub(crate) fn from(end: Position) -> Self {
        Self { end, ..Self::default() }
    }

    pub(crate) fn writing(&mut self, ticket: Ticket, first: Position, end: Position) {
        self.writing.push_back((ticket, first, end));
    }

    pub(crate) fn failed(&mut self, ticket: Ticket) {
        self.writing.retain(|(written, ..)| *written != ticket);
    }

    pub(crate) fn stored(&mut self, ticket: Ticket) {
        while let Some((_, first, end)) =
            self.writing.front().copied().filter(|(written, ..)| *written <= ticket)
        {
            self.writing.pop_front();
            self.add(first, end);
        }
    }

    fn add(&mut self, first: Position, end: Position) {
        let known = self.parts.entry(first).or_default();
        *known = end.max(*known);
        while let Some(entry) = self.parts.first_entry().filter(|entry| *entry.key() <= self.end) {
            self.end = self.end.max(entry.remove());
        }
    }
}
