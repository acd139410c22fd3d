//! Connections to the nodes of a cluster: made when there is something to send, kept until they break.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_model::NodeId;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::connection::{ConnectError, Connected, Receiver, Sender, connect};
use crate::frame::Frame;
use crate::handshake::HandshakeError;
use crate::hello::{Hello, RefusalCode};
use crate::limits::ConnectionOptions;

/// How much waits for a connection that is being made, in bytes; what is over it is dropped, and sent
/// again by whoever needs an answer.
const WAITING_BYTES: usize = 32 << 20;
/// How long to wait after a node could not be reached.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Why there is no connection to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlinked {
    /// In words.
    pub cause: String,
    /// The node's refusal, if it is there and refused.
    pub refusal: Option<RefusalCode>,
}

impl From<String> for Unlinked {
    fn from(cause: String) -> Self {
        Self { cause, refusal: None }
    }
}

/// The events of links.
#[derive(Debug)]
pub enum LinkEvent {
    /// Frames arrived from a node.
    Frames(NodeId, Vec<Frame>),
    /// A connection was made, or could not be. To be given to [`Links::dialled`].
    Dialled(NodeId, Result<Box<Connected>, Unlinked>),
    /// A connection broke. To be given to [`Links::down`].
    Down(NodeId),
}

/// One connection to each node that something was sent to.
///
/// A sent message may be lost when a connection breaks: a sender that needs an answer retransmits.
#[derive(Debug)]
pub struct Links {
    hello: Hello,
    options: ConnectionOptions,
    events: mpsc::Sender<LinkEvent>,
    started: Instant,
    links: BTreeMap<NodeId, Link>,
}

#[derive(Debug)]
enum Link {
    /// And the task that receives.
    Up(Sender, AbortHandle),
    Connecting {
        waiting: Vec<Bytes>,
        bytes: usize,
    },
    Down {
        until: Instant,
        cause: String,
    },
}

impl Links {
    /// Links within the bounds of `options`, which introduce themselves with `hello` and report to `events`.
    #[must_use]
    pub fn new(hello: Hello, options: ConnectionOptions, events: mpsc::Sender<LinkEvent>) -> Self {
        Self { hello, options, events, started: Instant::now(), links: BTreeMap::new() }
    }

    /// Sends whole frames to a node at `address`, as far as it can be reached.
    pub fn send(&mut self, node: NodeId, address: Option<&str>, frames: Vec<Bytes>) {
        match self.links.get_mut(&node) {
            Some(Link::Up(sender, _)) => {
                // If it is closed, its end is on the way to the events.
                let _ = sender.send(frames);
            }
            Some(Link::Connecting { waiting, bytes }) => {
                if *bytes < WAITING_BYTES {
                    *bytes += frames.iter().map(Bytes::len).sum::<usize>();
                    waiting.extend(frames);
                }
            }
            Some(Link::Down { until, .. }) if Instant::now() < *until => {}
            Some(Link::Down { .. }) | None => {
                let Some(address) = address else { return };
                let bytes = frames.iter().map(Bytes::len).sum();
                self.links.insert(node, Link::Connecting { waiting: frames, bytes });
                let hello = self.hello.clone().after(self.started.elapsed());
                let options = self.options.clone();
                let (address, events) = (address.to_owned(), self.events.clone());
                tokio::spawn(async move {
                    let outcome = dial(node, &address, &hello, &options).await;
                    let _ = events.send(LinkEvent::Dialled(node, outcome)).await;
                });
            }
        }
    }

    /// Takes a connection that was made elsewhere.
    pub fn adopt(&mut self, connected: Connected) {
        self.dialled(connected.welcome.node, Ok(Box::new(connected)));
    }

    /// A connection was made, or could not be.
    pub fn dialled(&mut self, node: NodeId, outcome: Result<Box<Connected>, Unlinked>) {
        let before = self.links.remove(&node);
        let connection = match outcome {
            Ok(connected) => connected.connection,
            Err(Unlinked { cause, .. }) => {
                let until = Instant::now() + RETRY_AFTER;
                self.links.insert(node, Link::Down { until, cause });
                return;
            }
        };
        if let Some(Link::Connecting { waiting, .. }) = before
            && !waiting.is_empty()
        {
            let _ = connection.sender.send(waiting);
        }
        let receiving = tokio::spawn(receive(node, connection.receiver, self.events.clone()));
        self.links.insert(node, Link::Up(connection.sender, receiving.abort_handle()));
    }

    /// A connection broke.
    pub fn down(&mut self, node: NodeId) {
        let cause = "the connection broke".to_owned();
        self.links.insert(node, Link::Down { until: Instant::now(), cause });
    }

    /// Gives up a connection that stands, and carries nothing as it seems. What is to be sent next makes another one, once
    /// this one has ended.
    pub fn renew(&self, node: NodeId) {
        if let Some(Link::Up(sender, _)) = self.links.get(&node) {
            sender.close();
        }
    }

    /// The node is somewhere else than before: a connection to where it was is dropped at once, whoever holds its other end. No
    /// event tells of that. Whether there was one.
    pub fn moved(&mut self, node: NodeId) -> bool {
        let Some(Link::Up(..)) = self.links.get(&node) else { return false };
        if let Some(Link::Up(sender, receiving)) = self.links.remove(&node) {
            sender.abandon();
            receiving.abort();
        }
        true
    }

    /// The nodes that cannot be reached at present, and why.
    pub fn unreachable(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.links.iter().filter_map(|(node, link)| match link {
            Link::Down { cause, .. } => Some((*node, cause.as_str())),
            Link::Up(..) | Link::Connecting { .. } => None,
        })
    }
}

async fn dial(
    node: NodeId,
    address: &str,
    hello: &Hello,
    options: &ConnectionOptions,
) -> Result<Box<Connected>, Unlinked> {
    match connect(address, hello, options).await {
        Ok(connected) if connected.welcome.node == node => Ok(Box::new(connected)),
        // An address that another node has taken over is as good as no address.
        Ok(connected) => Err(format!("node {} answers at {address}", connected.welcome.node).into()),
        // The caller that reports this knows the address.
        Err(ConnectError::Unreachable { source, .. }) => Err(source.to_string().into()),
        Err(ConnectError::Handshake { source: HandshakeError::Refused(refusal), .. }) => {
            Err(Unlinked { cause: refusal.to_string(), refusal: Some(refusal.code) })
        }
        Err(ConnectError::Handshake { source, .. }) => Err(source.to_string().into()),
    }
}

async fn receive(node: NodeId, mut receiver: Receiver, events: mpsc::Sender<LinkEvent>) {
    while let Ok(Some(frames)) = receiver.receive().await {
        if events.send(LinkEvent::Frames(node, frames)).await.is_err() {
            return;
        }
    }
    let _ = events.send(LinkEvent::Down(node)).await;
}
