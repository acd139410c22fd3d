//! Connections to a cluster's nodes: made at the first send, kept until they break.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_model::NodeId;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::connection::{ConnectError, Connected, Connection, Receiver, Sender, connect};
use crate::frame::Frame;
use crate::handshake::HandshakeError;
use crate::hello::{Hello, RefusalCode};
use crate::limits::ConnectionOptions;
use crate::watch::{Due, Watch};

/// Most bytes queued for a connection being made. Further frames are dropped; askers retransmit.
const WAITING_BYTES: usize = 32 << 20;
/// Pause after a failed attempt.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Why a node has no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlinked {
    /// The cause in words.
    pub cause: String,
    /// The node's refusal, if it refused.
    pub refusal: Option<RefusalCode>,
}

impl From<String> for Unlinked {
    fn from(cause: String) -> Self {
        Self { cause, refusal: None }
    }
}

/// Events of links.
#[derive(Debug)]
pub enum LinkEvent {
    /// Frames arrived from a node.
    Frames(NodeId, Vec<Frame>),
    /// An attempt ended. Pass it to [`Links::dialled`].
    Dialled(NodeId, Result<Box<Connected>, Unlinked>),
    /// A connection broke. Pass it to [`Links::down`].
    Down(NodeId),
}

/// One connection per node, made at the first send.
///
/// Messages may be lost with a connection: a sender that needs an answer retransmits. If nothing
/// arrives after a message, [`look`](Self::look) probes the connection, then makes a second one;
/// the first of the two to carry a message stays. Attempts to one node run one at a time, ever more
/// rarely.
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
    Up(Up),
    Connecting { waiting: Vec<Bytes>, bytes: usize },
    Down { until: Instant, cause: String },
}

#[derive(Debug)]
struct Up {
    sender: Sender,
    receiving: AbortHandle,
    watch: Watch,
    /// Whether a second connection is being made.
    has_rival: bool,
}

impl Links {
    /// Links that send `hello` first and report to `events`.
    #[must_use]
    pub fn new(hello: Hello, options: ConnectionOptions, events: mpsc::Sender<LinkEvent>) -> Self {
        Self { hello, options, events, started: Instant::now(), links: BTreeMap::new() }
    }

    /// Sends whole frames to a node at `address`, if it can be reached.
    pub fn send(&mut self, node: NodeId, address: Option<&str>, frames: Vec<Bytes>) {
        match self.links.get_mut(&node) {
            Some(Link::Up(up)) => {
                up.watch.sends(Instant::now(), up.sender.heard_at());
                // If the connection is closed, `LinkEvent::Down` follows.
                let _ = up.sender.send(frames);
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
                self.dial(node, address);
            }
        }
    }

    fn dial(&self, node: NodeId, address: &str) {
        let hello = self.hello.clone().after(self.started.elapsed());
        let options = self.options.clone();
        let (address, events) = (address.to_owned(), self.events.clone());
        tokio::spawn(async move {
            let outcome = dial(node, &address, &hello, &options).await;
            let _ = events.send(LinkEvent::Dialled(node, outcome)).await;
        });
    }

    /// Time of the next [look](Self::look). `None`: no connection needs one.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let up = self.links.values().filter_map(|link| match link {
            Link::Up(up) => up.watch.deadline(),
            Link::Connecting { .. } | Link::Down { .. } => None,
        });
        up.min()
    }

    /// Probes silent connections. Makes a second connection to a node that does not answer the
    /// probe.
    pub fn look<'a>(&mut self, address: impl Fn(NodeId) -> Option<&'a str>) {
        let mut rivals = vec![];
        for (node, link) in &mut self.links {
            let Link::Up(up) = link else { continue };
            match up.watch.look(Instant::now(), up.sender.heard_at()) {
                Due::Nothing => {}
                Due::Probe => up.sender.ping(),
                Due::Replace => {
                    if let Some(address) = address(*node).filter(|_| !up.has_rival) {
                        up.has_rival = true;
                        rivals.push((*node, address));
                    }
                }
            }
        }
        rivals.into_iter().for_each(|(node, address)| self.dial(node, address));
    }

    /// Adopts a connection made elsewhere.
    pub fn adopt(&mut self, connected: Connected) {
        self.dialled(connected.welcome.node, Ok(Box::new(connected)));
    }

    /// Handles the end of an attempt. Returns whether the connection replaces a silent one, whose
    /// messages are lost.
    pub fn dialled(&mut self, node: NodeId, outcome: Result<Box<Connected>, Unlinked>) -> bool {
        if let Some(Link::Up(up)) = self.links.get_mut(&node) {
            return up.meets_rival(outcome, node, &self.events);
        }
        let before = self.links.remove(&node);
        let connection = match outcome {
            Ok(connected) => connected.connection,
            Err(Unlinked { cause, .. }) => {
                let until = Instant::now() + RETRY_AFTER;
                self.links.insert(node, Link::Down { until, cause });
                return false;
            }
        };
        let mut watch = Watch::default();
        if let Some(Link::Connecting { waiting, .. }) = before
            && !waiting.is_empty()
        {
            watch.sends(Instant::now(), connection.sender.heard_at());
            let _ = connection.sender.send(waiting);
        }
        self.links.insert(node, Link::Up(Up::new(node, connection, watch, &self.events)));
        false
    }

    /// Handles a broken connection.
    pub fn down(&mut self, node: NodeId) {
        let cause = "the connection broke".to_owned();
        self.links.insert(node, Link::Down { until: Instant::now(), cause });
    }

    /// Closes a connection that seems dead. After its end the next send makes another.
    pub fn renew(&self, node: NodeId) {
        if let Some(Link::Up(up)) = self.links.get(&node) {
            up.sender.close();
        }
    }

    /// Silently drops the connection to a node whose address changed. Returns whether there was
    /// one.
    pub fn moved(&mut self, node: NodeId) -> bool {
        let Some(Link::Up(..)) = self.links.get(&node) else { return false };
        if let Some(Link::Up(up)) = self.links.remove(&node) {
            up.abandon();
        }
        true
    }

    /// Unreachable nodes, with the cause.
    pub fn unreachable(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.links.iter().filter_map(|(node, link)| match link {
            Link::Down { cause, .. } => Some((*node, cause.as_str())),
            Link::Up(..) | Link::Connecting { .. } => None,
        })
    }
}

impl Up {
    fn new(node: NodeId, connection: Connection, watch: Watch, events: &mpsc::Sender<LinkEvent>) -> Self {
        let receiving = tokio::spawn(receive(node, connection.receiver, events.clone())).abort_handle();
        Self { sender: connection.sender, receiving, watch, has_rival: false }
    }

    fn abandon(&self) {
        self.sender.abandon();
        self.receiving.abort();
    }

    /// Decides between this connection and a second one. Returns whether the second replaces it.
    fn meets_rival(
        &mut self,
        outcome: Result<Box<Connected>, Unlinked>,
        node: NodeId,
        events: &mpsc::Sender<LinkEvent>,
    ) -> bool {
        self.has_rival = false;
        let is_silent = self.watch.is_silent(self.sender.heard_at());
        let Some(rival) = outcome.ok().filter(|_| is_silent) else { return false };
        self.abandon();
        *self = Self::new(node, rival.connection, self.watch.successor(), events);
        true
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
        // Another node has taken over the address.
        Ok(connected) => Err(format!("node {} answers at {address}", connected.welcome.node).into()),
        // The address is left out: the report of this failure names it.
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
