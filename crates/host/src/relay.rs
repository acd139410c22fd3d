//! Questions for the register from clients of a node that does not host it.

use std::collections::BTreeMap;

use seriatim_model::{ConnectionId, Peer};

/// The most questions that are relayed at once; the oldest is given up for a new one.
const MOST: usize = 4096;

/// Which client asked what is being relayed.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    next: u64,
    askers: BTreeMap<u64, (ConnectionId, u64)>,
}

impl Relay {
    /// A number under which the question is passed on.
    pub(crate) fn number(&mut self, asker: (ConnectionId, u64)) -> u64 {
        if self.askers.len() >= MOST {
            self.askers.pop_first();
        }
        self.next += 1;
        self.askers.insert(self.next, asker);
        self.next
    }

    /// Who asked under this number. A question has one answer.
    pub(crate) fn take(&mut self, number: u64) -> Option<(ConnectionId, u64)> {
        self.askers.remove(&number)
    }

    pub(crate) fn forget(&mut self, peer: Peer) {
        self.askers.retain(|_, (connection, _)| Peer::Client(*connection) != peer);
    }
}
