//! Connections to the other nodes: made when there is something to send, kept until they break.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_model::{NodeId, Peer};
use seriatim_net::{Connected, ConnectionOptions, Hello, Sender, connect};
use tokio::sync::mpsc;

use crate::driver::Arrival;
use crate::readers::watch;

/// How much waits for a connection that is being made; what is over it is dropped, and sent again by
/// whoever needs an answer.
const WAITING_BYTES: usize = 4 << 20;
/// How long to wait after a node could not be reached.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// The connections of one node to the others.
pub(crate) struct Links {
    hello: Hello,
    inbox: mpsc::Sender<Arrival>,
    links: BTreeMap<NodeId, Link>,
}

enum Link {
    Up(Sender),
    Connecting { waiting: Vec<Bytes>, bytes: usize },
    Down { until: Instant },
}

impl Links {
    pub(crate) fn new(hello: Hello, inbox: mpsc::Sender<Arrival>) -> Self {
        Self { hello, inbox, links: BTreeMap::new() }
    }

    /// Sends frames to a node, as far as it can be reached.
    pub(crate) fn send(&mut self, node: NodeId, address: Option<&str>, frames: Vec<Bytes>) {
        let size = |frames: &[Bytes]| frames.iter().map(Bytes::len).sum::<usize>();
        match self.links.get_mut(&node) {
            Some(Link::Up(sender)) => {
                if sender.send(frames).is_err() {
                    // Its end is on the way to the inbox.
                }
            }
            Some(Link::Connecting { waiting, bytes }) => {
                if *bytes < WAITING_BYTES {
                    *bytes += size(&frames);
                    waiting.extend(frames);
                }
            }
            Some(Link::Down { until }) if Instant::now() < *until => {}
            Some(Link::Down { .. }) | None => {
                let Some(address) = address else { return };
                let bytes = size(&frames);
                self.links.insert(node, Link::Connecting { waiting: frames, bytes });
                tokio::spawn(dial(node, address.to_owned(), self.hello.clone(), self.inbox.clone()));
            }
        }
    }

    /// A connection is made, or could not be.
    pub(crate) fn dialled(&mut self, node: NodeId, connected: Option<Connected>) {
        let before = self.links.remove(&node);
        let Some(Connected { connection, .. }) = connected else {
            self.links.insert(node, Link::Down { until: Instant::now() + RETRY_AFTER });
            return;
        };
        if let Some(Link::Connecting { waiting, .. }) = before
            && !waiting.is_empty()
        {
            let _ = connection.sender.send(waiting);
        }
        tokio::spawn(watch(Peer::Node(node), connection.receiver, self.inbox.clone()));
        self.links.insert(node, Link::Up(connection.sender));
    }

    /// A connection broke.
    pub(crate) fn down(&mut self, node: NodeId) {
        self.links.insert(node, Link::Down { until: Instant::now() });
    }
}

async fn dial(node: NodeId, address: String, hello: Hello, inbox: mpsc::Sender<Arrival>) {
    let connected = connect(&address, &hello, &ConnectionOptions::default()).await.ok();
    // An address that another node has taken over is as good as no address.
    let connected = connected.filter(|connected| connected.welcome.node == node);
    let _ = inbox.send(Arrival::Dialled(node, connected.map(Box::new))).await;
}
