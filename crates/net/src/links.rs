//! Connections to the nodes of a cluster: made when there is something to send, kept until they
//! break.

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

/// How much waits for a connection that is being made, in bytes; what is over it is dropped, and
/// sent again by whoever needs an answer.
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
/// A connection over which nothing arrives after a message is [watched](Self::look): the links make
/// a second connection, and the one that carries a message first stays. One attempt at a time is
/// made for each node, ever more rarely.
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
    /// The task that receives.
    receiving: AbortHandle,
    watch: Watch,
    /// Whether another connection is being made that may take the place of this one.
    has_rival: bool,
}

impl Links {
    /// Links within the bounds of `options`, which introduce themselves with `hello` and report to
    /// `events`.
    #[must_use]
    pub fn new(hello: Hello, options: ConnectionOptions, events: mpsc::Sender<LinkEvent>) -> Self {
        Self { hello, options, events, started: Instant::now(), links: BTreeMap::new() }
    }

    /// Sends whole frames to a node at `address`, as far as it can be reached.
    pub fn send(&mut self, node: NodeId, address: Option<&str>, frames: Vec<Bytes>) {
        match self.links.get_mut(&node) {
            Some(Link::Up(up)) => {
                up.watch.sends(Instant::now(), up.sender.heard_at());
                // If it is closed, its end is on the way to the events.
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

    /// When to [look](Self::look) after the connections.
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

    /// Takes a connection that was made elsewhere.
    pub fn adopt(&mut self, connected: Connected) {
        self.dialled(connected.welcome.node, Ok(Box::new(connected)));
    }

    /// A connection was made, or could not be. Returns whether it takes the place of one that
    /// carried nothing any more: what was on its way over that is lost.
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

    /// A connection broke.
    pub fn down(&mut self, node: NodeId) {
        let cause = "the connection broke".to_owned();
        self.links.insert(node, Link::Down { until: Instant::now(), cause });
    }

    /// Gives up a connection that stands, and carries nothing as it seems. What is to be sent next
    /// makes another one, once this one has ended.
    pub fn renew(&self, node: NodeId) {
        if let Some(Link::Up(up)) = self.links.get(&node) {
            up.sender.close();
        }
    }

    /// The node is somewhere else than before: a connection to where it was is dropped at once,
    /// whoever holds its other end. No event tells of that. Whether there was one.
    pub fn moved(&mut self, node: NodeId) -> bool {
        let Some(Link::Up(..)) = self.links.get(&node) else { return false };
        if let Some(Link::Up(up)) = self.links.remove(&node) {
            up.abandon();
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

impl Up {
    fn new(node: NodeId, connection: Connection, watch: Watch, events: &mpsc::Sender<LinkEvent>) -> Self {
        let receiving = tokio::spawn(receive(node, connection.receiver, events.clone())).abort_handle();
        Self { sender: connection.sender, receiving, watch, has_rival: false }
    }

    fn abandon(&self) {
        self.sender.abandon();
        self.receiving.abort();
    }

    /// Another connection to the node was made, or could not be. Returns whether it takes the place
    /// of this one.
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
