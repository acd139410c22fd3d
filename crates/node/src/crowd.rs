//! The clients of a node, and what waits to be written to them.

use std::collections::BTreeMap;

use bytes::Bytes;
use seriatim_model::Peer;
use seriatim_net::{SendError, Sender, Together};

/// The connections of clients.
///
/// A bound holds for the bytes that wait for one of them, and one for all: above that, the one for
/// which most waits is given up, and what waited for it dropped. It did not read what it asked for,
/// and the others are to have what it took.
pub(crate) struct Crowd {
    senders: BTreeMap<Peer, Sender>,
    /// The connections of clients that left, as long as something waits for them: it counts, and
    /// goes first.
    left: Vec<Sender>,
    together: Together,
    most: usize,
}

impl Crowd {
    /// Nobody yet. For all of them together `most` bytes may wait, about: what one client is sent
    /// at a time comes to it.
    pub(crate) fn new(together: Together, most: usize) -> Self {
        Self { senders: BTreeMap::new(), left: vec![], together, most }
    }

    pub(crate) fn enter(&mut self, peer: Peer, sender: Sender) {
        self.senders.insert(peer, sender);
    }

    pub(crate) fn leave(&mut self, peer: Peer) {
        self.left.retain(|sender| sender.queued_bytes() > 0);
        if let Some(sender) = self.senders.remove(&peer) {
            // It says no more, and may still read what waits for it.
            sender.close();
            self.left.push(sender);
        }
    }

    pub(crate) fn send(&mut self, peer: Peer, frames: Vec<Bytes>) {
        let Some(sender) = self.senders.get(&peer) else { return };
        if let Err(SendError::Overloaded { .. }) = sender.send(frames) {
            // It does not read what it asked for: better no connection than an endless queue.
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

/// The connection that most waits for, if anything does.
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

    /// Connections of so many clients that read nothing, with what waits for all of them.
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
