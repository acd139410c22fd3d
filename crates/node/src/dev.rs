//! A whole cluster in one process, over real loopback TCP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rand::random;
use seriatim_host::HostConfig;
use seriatim_model::NodeId;
use seriatim_model::limits::Limits;
use seriatim_net::{BindError, ListenOptions, Listener};
use seriatim_protocol::Options;
use seriatim_store::disk::DataDirectoryError;
use seriatim_store::{Disk, JournalOptions, RealDisk, ShardOptions, VolatileDisk};

use crate::identity::{ClusterIdentity, IdentityError};
use crate::node::{Node, NodeError};

/// What kind of disk the nodes have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskKind {
    /// The data directory.
    #[default]
    Real,
    /// The data directory, with everything that is not synced held in memory: killing the process then
    /// loses what a power cut would. For tests.
    Volatile,
}

/// How a cluster is started.
#[derive(Clone, Debug)]
pub struct DevOptions {
    /// Where its data is.
    pub data: PathBuf,
    /// Where its first node listens, `host:port`; port 0 takes a free one. The others take free ports.
    pub listen: String,
    /// How many nodes it has; what it had before, or 3, if nothing is said.
    pub nodes: Option<u32>,
    /// What kind of disk the nodes have.
    pub disk: DiskKind,
    /// Bounds.
    pub limits: Limits,
    /// Sizes of the journals.
    pub journal: JournalOptions,
    /// Bounds of what its nodes accept.
    pub listening: ListenOptions,
}

impl DevOptions {
    /// The usual cluster with its data in `data`.
    #[must_use]
    pub fn new(data: impl Into<PathBuf>, listen: impl Into<String>) -> Self {
        Self {
            data: data.into(),
            listen: listen.into(),
            nodes: None,
            disk: DiskKind::default(),
            limits: Limits::default(),
            journal: JournalOptions::default(),
            listening: ListenOptions::default(),
        }
    }
}

/// Why a cluster cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// Its data directory belongs to something else.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its data directory cannot be taken.
    #[error(transparent)]
    Directory(#[from] DataDirectoryError),
    /// Its address cannot be taken.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// One of its nodes cannot run.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// A running cluster. Dropping it is like killing it.
#[derive(Debug)]
pub struct Dev {
    nodes: Vec<Node>,
}

impl Dev {
    /// Starts a cluster, and waits until all its nodes know each other.
    ///
    /// # Errors
    /// If its directory or its address cannot be used, or a node cannot run.
    pub async fn start(options: DevOptions) -> Result<Self, DevError> {
        // Bind first: a port in use must not leave a new data directory behind.
        let mut listeners = vec![Listener::bind(&options.listen).await?];
        let identity = ClusterIdentity::open(&options.data, options.nodes, random())?;
        let first = listeners[0].address();
        for _ in 1..identity.nodes {
            let any_port = SocketAddr::new(first.ip(), 0);
            listeners.push(Listener::bind(&any_port.to_string()).await?);
        }
        let mut nodes = vec![];
        for (number, listener) in (1..).zip(listeners) {
            let disk = open_disk(&options, number)?;
            let config = HostConfig {
                cluster: identity.cluster(),
                node: NodeId(number),
                address: reachable(listener.address()).to_string(),
                control: NodeId(1),
                control_address: reachable(first).to_string(),
                seed: random(),
                options: Options { limits: options.limits, deviation: None },
                journal: options.journal,
                shard_options: ShardOptions::default(),
            };
            // Opening a node reads its disk.
            let node =
                tokio::task::block_in_place(|| Node::start(config, disk, listener, options.listening))?;
            nodes.push(node);
        }
        for node in &mut nodes {
            node.joined().await;
        }
        Ok(Self { nodes })
    }

    /// Where its first node listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.nodes[0].address()
    }

    /// What an operator should know about the start.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().flat_map(|node| node.warnings().iter().map(String::as_str))
    }

    /// Waits until a node cannot go on, and says why.
    pub async fn failed(&mut self) -> NodeError {
        let failures: Vec<_> = self.nodes.iter_mut().map(|node| Box::pin(node.failed())).collect();
        select_first(failures).await
    }

    /// Ends all nodes in an orderly way: nothing is lost, at any durability.
    ///
    /// # Errors
    /// The first that a node reports. The others are ended all the same.
    pub async fn stop(self) -> Result<(), DevError> {
        let mut outcome = Ok(());
        for node in self.nodes {
            let stopped = node.stop().await;
            outcome = outcome.and(stopped);
        }
        Ok(outcome?)
    }
}

fn open_disk(options: &DevOptions, number: u32) -> Result<Arc<dyn Disk>, DevError> {
    let real = RealDisk::open(options.data.join(format!("node-{number}")))?;
    Ok(match options.disk {
        DiskKind::Real => Arc::new(real),
        DiskKind::Volatile => Arc::new(VolatileDisk::new(real)),
    })
}

/// An address that clients on this machine can connect to.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback: std::net::IpAddr = match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(loopback);
    }
    address
}

/// The outcome of whichever future is ready first.
async fn select_first<F: Future + Unpin>(mut futures: Vec<F>) -> F::Output {
    std::future::poll_fn(|context| {
        for future in &mut futures {
            if let std::task::Poll::Ready(output) = std::pin::Pin::new(future).poll(context) {
                return std::task::Poll::Ready(output);
            }
        }
        std::task::Poll::Pending
    })
    .await
}
