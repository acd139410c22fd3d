//! Clients of a node and the frames queued for them.

use std::collections::BTreeMap;

use bytes::Bytes;
use seriatim_model::Peer;
use seriatim_net::{SendError, Sender, Together};

/// Connections of clients.
///
/// The queued bytes of each client are limited, and those of all clients together. Above the common
/// limit the node abandons the client with the longest queue: it did not read its answers, and
/// others need the memory.
pub(crate) struct Crowd {
    senders: BTreeMap<Peer, Sender>,
    /// Connections of departed clients with queued bytes, which count too. They are abandoned
    /// first.
    left: Vec<Sender>,
    together: Together,
    most: usize,
}

impl Crowd {
    /// `most`: limit of all clients' queued bytes; one send may exceed it briefly.
    pub(crate) fn new(together: Together, most: usize) -> Self {
        Self { senders: BTreeMap::new(), left: vec![], together, most }
    }

    pub(crate) fn enter(&mut self, peer: Peer, sender: Sender) {
        self.senders.insert(peer, sender);
    }

    pub(crate) fn leave(&mut self, peer: Peer) {
        self.left.retain(|sender| sender.queued_bytes() > 0);
        if let Some(sender) = self.senders.remove(&peer) {
            // The client sends nothing more, but may still read its queue.
            sender.close();
            self.left.push(sender);
        }
    }

    pub(crate) fn send(&mut self, peer: Peer, frames: Vec<Bytes>) {
        let Some(sender) = self.senders.get(&peer) else { return };
        if let Err(SendError::Overloaded { .. }) = sender.send(frames) {
            // The client does not read its answers: close its connection rather than let its queue
            // grow.
            sender.close();
        }
        while self.together.queued_bytes() > self.most {
            let Some(given_up) = largest(&self.left).or_else(|| largest(self.senders.values())) else {
                return;
            };
            given_up.abandon();
        }
    }
}

/// The longest queue's sender; `None` if all are empty.
fn largest<'a>(senders: impl IntoIterator<Item = &'a Sender>) -> Option<&'a Sender> {
    let waiting = senders.into_iter().filter(|sender| sender.queued_bytes() > 0);
    waiting.max_by_key(|sender| sender.queued_bytes())
}

#[cfg(test)]
mod tests {
    use seriatim_model::limits::Limits;
    use seriatim_model::{ConnectionId, Endpoint, LogId, NodeId, Peer};
    use seriatim_net::{
        ClusterId, Connection, ConnectionOptions, Hello, Identity, ListenOptions, Listener, connect,
        message_frame,
    };

    use super::*;

    const MIB: usize = 1 << 20;

    async fn clients(count: u64) -> (Vec<(Connection, Connection)>, Together) {
        let identity = Identity::new(ClusterId(1), NodeId(1), 1, &Limits::default());
        let options = ListenOptions::default();
        let together = options.clients_together.clone();
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.address().to_string();
        let mut incoming = listener.serve(identity, options);
        let mut pairs = vec![];
        for _ in 0..count {
            let hello = Hello::client("idle");
            let connected = connect(&address, &hello, &ConnectionOptions::default()).await.unwrap();
            pairs.push((connected.connection, incoming.next().await.connection.attach().unwrap()));
        }
        (pairs, together)
    }

    #[tokio::test]
    async fn what_waits_for_a_client_that_left_goes_before_others_pay_for_it() {
        let (pairs, together) = clients(2).await;
        let mut crowd = Crowd::new(together.clone(), 32 * MIB);
        let [gone, stays] = [1, 2].map(|number| Peer::Client(ConnectionId(number)));
        for (peer, (_, node)) in [gone, stays].into_iter().zip(&pairs) {
            crowd.enter(peer, node.sender.clone());
        }
        let frame = |bytes: usize| {
            let payload = Bytes::from(vec![7; bytes]);
            message_frame(LogId(1), Endpoint::Client(1), Endpoint::Sequencer, &payload).unwrap()
        };
        for _ in 0..3 {
            crowd.send(gone, frame(10 * MIB));
        }
        crowd.leave(gone);
        crowd.send(stays, frame(10 * MIB));
        assert!(together.queued_bytes() <= 32 * MIB, "{} bytes wait", together.queued_bytes());
        let [(_, gone), (_, stays)] = &pairs[..] else { unreachable!() };
        assert_eq!(gone.sender.queued_bytes(), 0);
        assert!(stays.sender.queued_bytes() > 0 && stays.sender.close_reason().is_none());
    }
}
