//! The clients of a node, and what waits to be written to them.

use std::collections::BTreeMap;

use bytes::Bytes;
use seriatim_model::Peer;
use seriatim_net::{SendError, Sender, Together};

/// The connections of clients.
///
/// A bound holds for the bytes that wait for one of them, and one for all: above that, the one for which most waits is given
/// up, and what waited for it dropped. It did not read what it asked for, and the others are to have what it took.
pub(crate) struct Crowd {
    senders: BTreeMap<Peer, Sender>,
    together: Together,
    most: usize,
}

impl Crowd {
    /// Nobody yet. For all of them together `most` bytes may wait, about: what one client is sent at a time comes to it.
    pub(crate) fn new(together: Together, most: usize) -> Self {
        Self { senders: BTreeMap::new(), together, most }
    }

    pub(crate) fn enter(&mut self, peer: Peer, sender: Sender) {
        self.senders.insert(peer, sender);
    }

    pub(crate) fn leave(&mut self, peer: Peer) {
        self.senders.remove(&peer);
    }

    pub(crate) fn send(&mut self, peer: Peer, frames: Vec<Bytes>) {
        let Some(sender) = self.senders.get(&peer) else { return };
        if let Err(SendError::Overloaded { .. }) = sender.send(frames) {
            // It does not read what it asked for: better no connection than an endless queue.
            sender.close();
        }
        while self.together.queued_bytes() > self.most {
            let waiting = self.senders.values().filter(|sender| sender.queued_bytes() > 0);
            let Some(largest) = waiting.max_by_key(|sender| sender.queued_bytes()) else { return };
            largest.abandon();
        }
    }
}
