//! How far a replica's own store has everything.

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::{Position, Ticket};

/// How far a store has everything, where parts of it come in any order.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// Everything below is in the store durably, but for the missing range.
    pub(crate) end: Position,
    /// Parts that are in the store beyond, each with its end.
    parts: BTreeMap<Position, Position>,
    /// Parts on their way there.
    writing: VecDeque<(Ticket, Position, Position)>,
}

impl Applied {
    pub(crate) fn from(end: Position) -> Self {
        Self { end, ..Self::default() }
    }

    /// The positions in `first..end` are on their way to the store.
    pub(crate) fn writing(&mut self, ticket: Ticket, first: Position, end: Position) {
        self.writing.push_back((ticket, first, end));
    }

    /// A write had no room.
    pub(crate) fn failed(&mut self, ticket: Ticket) {
        self.writing.retain(|(written, ..)| *written != ticket);
    }

    /// All writes up to this ticket are in the store.
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
