//! A whole cluster in one process, over real loopback TCP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use rand::random;
use seriatim_host::RegisterPlace;
use seriatim_model::NodeId;
use seriatim_model::limits::HEARTBEATS_MISSED_IN_PROCESS;
use seriatim_net::Listener;
use tokio::sync::watch;

use crate::disk::DataDirectoryError;
use crate::identity::ClusterIdentity;
use crate::node::{Node, NodeError};
use crate::occupied;
use crate::start::{Awaits, Membership, NodeOptions, StartError, reachable, start_node};
use crate::stopping::Stopping;

/// How a cluster is started.
#[derive(Clone, Debug)]
pub struct DevOptions {
    /// Where its data is.
    pub data: PathBuf,
    /// Where its first node listens, `host:port`; port 0 takes a free one. The others take free
    /// ports.
    pub listen: String,
    /// How many nodes it has; what it had before, or 3, if nothing is said.
    pub nodes: Option<u32>,
    /// The options that its nodes run with.
    pub run: NodeOptions,
    /// The options of single nodes, in their place.
    pub run_of: BTreeMap<NodeId, NodeOptions>,
}

impl DevOptions {
    /// The usual cluster with its data in `data`. Its nodes do not suspect each other of being down
    /// because of silence.
    #[must_use]
    pub fn new(data: impl Into<PathBuf>, listen: impl Into<String>) -> Self {
        let mut run = NodeOptions::default();
        run.limits.heartbeats_missed = HEARTBEATS_MISSED_IN_PROCESS;
        Self { data: data.into(), listen: listen.into(), nodes: None, run, run_of: BTreeMap::new() }
    }

    fn run_of(&self, node: NodeId) -> &NodeOptions {
        self.run_of.get(&node).unwrap_or(&self.run)
    }
}

/// A running cluster. Dropping it is like killing it.
#[derive(Debug)]
pub struct Dev {
    nodes: Vec<Node>,
    options: DevOptions,
    identity: ClusterIdentity,
    /// Whether the nodes serve clients: from the moment that all nodes know each other. A log that
    /// is created earlier would have fewer replicas than the cluster has nodes.
    serves_clients: watch::Sender<bool>,
}

impl Dev {
    /// Starts a cluster, and waits until all its nodes know each other.
    ///
    /// # Errors
    /// If its directory or its address cannot be used, or a node cannot run.
    pub async fn start(options: DevOptions) -> Result<Self, StartError> {
        Self::start_told(options, &watch::Sender::new(Awaits::Nothing)).await
    }

    /// The same; `awaits` says meanwhile what the start waits for.
    ///
    /// # Errors
    /// As [`Dev::start`].
    pub async fn start_told(options: DevOptions, awaits: &watch::Sender<Awaits>) -> Result<Self, StartError> {
        // Bind first: a port in use must not leave a new data directory behind.
        let mut listeners = vec![occupied::bind(&options.listen, awaits).await?];
        DataDirectoryError::check(&options.data)?;
        let identity = ClusterIdentity::open(&options.data, options.nodes, random())?;
        let first = listeners[0].address();
        for _ in 1..identity.nodes {
            listeners.push(beside(first).await?);
        }
        let mut cluster =
            Self { nodes: vec![], options, identity, serves_clients: watch::Sender::new(false) };
        for (number, listener) in (1..).zip(listeners) {
            awaits.send_replace(Awaits::Files(NodeId(number)));
            cluster.start_next(first, listener, awaits).await?;
        }
        for (number, node) in (1..).zip(&mut cluster.nodes) {
            awaits.send_replace(Awaits::Node(NodeId(number)));
            has_joined(node).await?;
        }
        cluster.serves_clients.send_replace(true);
        Ok(cluster)
    }

    /// Starts the node after the last one. The first of all has the register.
    async fn start_next(
        &mut self,
        first: SocketAddr,
        listener: Listener,
        awaits: &watch::Sender<Awaits>,
    ) -> Result<(), StartError> {
        let number = self.nodes.len() as u32 + 1;
        let mut run = self.options.run_of(NodeId(number)).clone();
        run.listening.clients_from = Some(self.serves_clients.subscribe());
        let disk =
            occupied::open_disk(&self.options.data.join(format!("node-{number}")), &run, awaits).await?;
        let membership = Membership {
            cluster: self.identity.cluster(),
            node: NodeId(number),
            address: reachable(listener.address()).to_string(),
            register: RegisterPlace::Node { node: NodeId(1), address: reachable(first).to_string() },
        };
        self.nodes.push(start_node(membership, &run, disk, listener, None)?);
        Ok(())
    }

    /// Where its first node listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.nodes[0].address()
    }

    /// Warnings for the operator about each node.
    pub fn warnings(&self) -> impl Iterator<Item = watch::Receiver<Vec<String>>> {
        self.nodes.iter().map(Node::warnings)
    }

    /// How far an orderly end of each node is, for whoever waits for it.
    #[must_use]
    pub fn stopping(&self) -> Vec<Stopping> {
        self.nodes.iter().map(Node::stopping).collect()
    }

    /// Kills the last nodes, so many; the first one stays.
    pub async fn kill_last(&mut self, count: u32) {
        let stay = self.nodes.len().saturating_sub(count as usize).max(1);
        for node in self.nodes.split_off(stay) {
            node.kill().await;
        }
    }

    /// Starts the nodes that were killed, with what their files have, at other addresses; and waits
    /// until they have joined.
    ///
    /// # Errors
    /// If one cannot run. Those before it do.
    pub async fn restart_killed(&mut self) -> Result<(), StartError> {
        let (first, awaits) = (self.address(), watch::Sender::new(Awaits::Nothing));
        while self.nodes.len() < self.identity.nodes as usize {
            self.start_next(first, beside(first).await?, &awaits).await?;
            has_joined(self.nodes.last_mut().expect("it was just started")).await?;
        }
        Ok(())
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
    pub async fn stop(mut self) -> Result<(), StartError> {
        let mut outcome = Ok(());
        // None is to take another one for gone, and to change views.
        self.nodes.iter_mut().for_each(Node::begin_to_stop);
        for node in self.nodes {
            let stopped = node.stop().await;
            outcome = outcome.and(stopped);
        }
        Ok(outcome?)
    }
}

/// A free port at the same address.
async fn beside(first: SocketAddr) -> Result<Listener, StartError> {
    Ok(Listener::bind(&SocketAddr::new(first.ip(), 0).to_string()).await?)
}

/// Waits until the register knows the node.
async fn has_joined(node: &mut Node) -> Result<(), StartError> {
    match node.joined().await {
        true => Ok(()),
        false => Err(node.failed().await.into()),
    }
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
