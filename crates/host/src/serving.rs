//! Reads from record stores. Reads for clients run after all other work of the node.
//!
//! Clients choose how much they read, and from how many shards, so their reads wait in one queue
//! per node. The driver serves it after messages of writers and nodes, for a limited time. A
//! subscription has at most one read in the queue.

use std::collections::VecDeque;

use seriatim_model::storage::ReadRange;
use seriatim_model::{Input, Ticket, Time};
use seriatim_store::RoleKey;

use crate::host::Host;
use crate::role::Role;

/// Waiting reads of clients, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    queue: VecDeque<(RoleKey, Ticket, ReadRange)>,
}

impl Serving {
    /// Now if a read waits; `None` otherwise.
    pub(crate) fn deadline(&self) -> Option<Time> {
        (!self.queue.is_empty()).then_some(Time::ZERO)
    }

    pub(crate) fn add(&mut self, key: RoleKey, ticket: Ticket, range: ReadRange) {
        self.queue.push_back((key, ticket, range));
    }

    /// Drops the reads of a removed role: its next incarnation reuses tickets.
    pub(crate) fn forget(&mut self, key: RoleKey) {
        self.queue.retain(|(role, ..)| *role != key);
    }
}

impl Host {
    /// Performs the oldest waiting read and delivers its messages within the node. Returns the
    /// number of records; `None` if no read waits.
    pub fn serve_reader(&mut self, now: Time) -> Option<usize> {
        if self.failure.is_some() {
            return None;
        }
        let (key, ticket, range) = self.next_awaited_read()?;
        let found = self.read(now, key, ticket, range);
        self.drain_local(now);
        Some(found)
    }

    /// Oldest read with a connected reader. Drops the reads before it.
    fn next_awaited_read(&mut self) -> Option<(RoleKey, Ticket, ReadRange)> {
        while let Some(next) = self.serving.queue.pop_front() {
            let (key, ticket, _) = next;
            if matches!(self.roles.get(&key), Some(Role::Shard(role, _)) if role.awaits_read(ticket)) {
                return Some(next);
            }
        }
        None
    }

    /// Performs a read. Returns the number of records.
    pub(crate) fn read(&mut self, now: Time, key: RoleKey, ticket: Ticket, range: ReadRange) -> usize {
        let Some(Role::Shard(_, store)) = self.roles.get_mut(&key) else { return 0 };
        let outcome = store.read(range);
        let found = outcome.as_ref().map_or(0, |found| found.records.len());
        self.notice_damage(now, key, &outcome);
        self.local.push_back((key, Input::Read(ticket, outcome)));
        found
    }
}
