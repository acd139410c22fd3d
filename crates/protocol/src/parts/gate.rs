//! Defers a role's confirmations until its writes are durable.

use std::collections::VecDeque;

use bytes::Bytes;
use seriatim_model::storage::StorageCommand;
use seriatim_model::wire::{Encoder, Wire};
use seriatim_model::{Address, Ticket};

use crate::roles::{Message, RoleEffect};

/// Issues a role's tickets (the numbers of its writes), and defers each confirmation until all
/// earlier writes are durable.
///
/// At durability `memory`, a sequencing role's confirmations do not wait (`waits` is false).
///
/// Invariant: the tickets in `waiting` do not decrease.
#[derive(Clone, Debug)]
pub struct Gate {
    issued: Ticket,
    /// The latest write that confirmations wait for. They do not wait for stable bounds and marks.
    awaited: Ticket,
    durable: Ticket,
    waits: bool,
    waiting: VecDeque<(Ticket, Address, Message)>,
}

impl Gate {
    /// `waits`: whether confirmations wait for writes.
    #[must_use]
    pub fn new(waits: bool) -> Self {
        Self { issued: Ticket(0), awaited: Ticket(0), durable: Ticket(0), waits, waiting: VecDeque::new() }
    }

    /// Adds an entry to the role's journal.
    pub fn persist<T: Wire>(&mut self, entry: &T, out: &mut Vec<RoleEffect>) -> Ticket {
        let mut encoder = Encoder::new();
        entry.encode(&mut encoder);
        self.persist_encoded(encoder.finish(), out)
    }

    /// Adds an encoded entry to the role's journal.
    pub fn persist_encoded(&mut self, entry: Vec<Bytes>, out: &mut Vec<RoleEffect>) -> Ticket {
        self.issued.0 += 1;
        self.awaited = self.issued;
        out.push(RoleEffect::Persist { ticket: self.issued, entry });
        self.issued
    }

    /// Changes the role's record store.
    pub fn store(&mut self, command: StorageCommand, out: &mut Vec<RoleEffect>) -> Ticket {
        self.issued.0 += 1;
        if !matches!(command, StorageCommand::Stable(_) | StorageCommand::Mark { .. }) {
            self.awaited = self.issued;
        }
        out.push(RoleEffect::Store { ticket: self.issued, command });
        self.issued
    }

    /// Sends a message once all earlier writes, except stable bounds and marks, are durable.
    pub fn confirm(&mut self, to: Address, message: impl Into<Message>, out: &mut Vec<RoleEffect>) {
        let message = message.into();
        if self.is_open() {
            out.push(RoleEffect::Send { to, message });
        } else {
            let before = self.waiting.back().map_or(Ticket(0), |(after, _, _)| *after);
            assert!(
                before <= self.awaited,
                "a confirmation waits for {before:?}, a later one for {:?}",
                self.awaited
            );
            self.waiting.push_back((self.awaited, to, message));
        }
    }

    /// A write failed. Drops the confirmations that wait for it; their receivers retry.
    pub fn failed(&mut self, ticket: Ticket) {
        self.waiting.retain(|(after, _, _)| *after < ticket);
    }

    /// All writes up to `ticket` are durable: sends their confirmations.
    pub fn persisted(&mut self, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        self.durable = self.durable.max(ticket);
        while self.waiting.front().is_some_and(|(after, _, _)| *after <= self.durable) {
            let (_, to, message) = self.waiting.pop_front().expect("the front was just seen");
            out.push(RoleEffect::Send { to, message });
        }
    }

    /// Whether confirmations need not wait now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.waits || self.durable >= self.awaited
    }

    /// Whether confirmations need not wait for this write.
    #[must_use]
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        !self.waits || ticket <= self.durable
    }

    /// The ticket of the latest write.
    #[must_use]
    pub fn issued(&self) -> Ticket {
        self.issued
    }
}
