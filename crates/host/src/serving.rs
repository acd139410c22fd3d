//! Reads from record stores; and those for readers, which a node does when it has done everything
//! else.
//!
//! A client chooses how much it reads, and how many shards it reads at once. So what clients read
//! waits in one queue, over all logs and shards of a node. The driver takes from it after it took
//! what writers and other nodes sent, and decides by the clock how much fits into one turn. A
//! subscription has one read in the queue at most: the next one follows when that is answered.

use std::collections::VecDeque;

use seriatim_model::storage::ReadRange;
use seriatim_model::{Input, Ticket, Time};
use seriatim_store::RoleKey;

use crate::host::Host;
use crate::role::Role;

/// The reads that readers wait for, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    queue: VecDeque<(RoleKey, Ticket, ReadRange)>,
}

impl Serving {
    /// The time of the next read: now if a read waits. `None` if no read waits.
    pub(crate) fn deadline(&self) -> Option<Time> {
        (!self.queue.is_empty()).then_some(Time::ZERO)
    }

    /// A reader waits for this read.
    pub(crate) fn add(&mut self, key: RoleKey, ticket: Ticket, range: ReadRange) {
        self.queue.push_back((key, ticket, range));
    }

    /// Drops the reads of a role that is gone. Another incarnation numbers its tickets from the
    /// beginning.
    pub(crate) fn forget(&mut self, key: RoleKey) {
        self.queue.retain(|(role, ..)| *role != key);
    }
}

impl Host {
    /// Performs the oldest waiting read and delivers its messages to the node's roles. Returns the
    /// number of records that it found; `None` if no read waits.
    pub fn serve_reader(&mut self, now: Time) -> Option<usize> {
        if self.failure.is_some() {
            return None;
        }
        let (key, ticket, range) = self.next_awaited_read()?;
        let found = self.read(now, key, ticket, range);
        self.drain_local(now);
        Some(found)
    }

    /// Removes and returns the oldest read whose reader is still connected. Drops the reads before
    /// it.
    fn next_awaited_read(&mut self) -> Option<(RoleKey, Ticket, ReadRange)> {
        while let Some(next) = self.serving.queue.pop_front() {
            let (key, ticket, _) = next;
            if matches!(self.roles.get(&key), Some(Role::Shard(role, _)) if role.awaits_read(ticket)) {
                return Some(next);
            }
        }
        None
    }

    /// Reads from a replica's store, for the replica. Returns how many records there are.
    pub(crate) fn read(&mut self, now: Time, key: RoleKey, ticket: Ticket, range: ReadRange) -> usize {
        let Some(Role::Shard(_, store)) = self.roles.get_mut(&key) else { return 0 };
        let outcome = store.read(range);
        let found = outcome.as_ref().map_or(0, |found| found.records.len());
        self.notice_damage(now, key, &outcome);
        self.local.push_back((key, Input::Read(ticket, outcome)));
        found
    }
}
