//! Holds back what a role confirms until what it confirms is durable.

use std::collections::VecDeque;

use bytes::Bytes;
use seriatim_model::storage::StorageCommand;
use seriatim_model::wire::{Encoder, Wire};
use seriatim_model::{Address, Ticket};

use crate::roles::{Message, RoleEffect};

/// Issues the tickets of one role's writes, and keeps each confirmation until every write that left
/// before it is durable.
///
/// At durability `memory` a sequencing role's confirmations do not wait for its writes (`waits` is
/// false): its gate stands open.
///
/// Invariant: the tickets in `waiting` do not decrease.
#[derive(Clone, Debug)]
pub struct Gate {
    issued: Ticket,
    /// The latest write that a confirmation waits for. The stable bound is worth writing, but no
    /// role waits for it, and the node need not hurry to make it durable.
    awaited: Ticket,
    durable: Ticket,
    waits: bool,
    waiting: VecDeque<(Ticket, Address, Message)>,
}

impl Gate {
    /// A gate for a role whose confirmations wait for its writes, or not.
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

    /// Adds an entry that is already encoded to the role's journal.
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

    /// Sends a message as soon as everything written so far, apart from stable bounds, is durable.
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

    /// Takes note that the write with this ticket will never be: a role that waits for a
    /// confirmation of it, or of a later write, waits in vain, and asks again.
    pub fn failed(&mut self, ticket: Ticket) {
        self.waiting.retain(|(after, _, _)| *after < ticket);
    }

    /// Takes note that all writes up to `ticket` are durable, and sends what waited for them.
    pub fn persisted(&mut self, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        self.durable = self.durable.max(ticket);
        while self.waiting.front().is_some_and(|(after, _, _)| *after <= self.durable) {
            let (_, to, message) = self.waiting.pop_front().expect("the front was just seen");
            out.push(RoleEffect::Send { to, message });
        }
    }

    /// Whether everything that confirmations wait for is durable, or need not be.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.waits || self.durable >= self.awaited
    }

    /// Whether the write with this ticket is durable, or need not be.
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
