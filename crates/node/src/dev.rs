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

/// Options of a cluster in one process.
#[derive(Clone, Debug)]
pub struct DevOptions {
    /// Data directory.
    pub data: PathBuf,
    /// Listening address of the first node, `host:port`; port 0 takes a free port. Other nodes take
    /// free ports.
    pub listen: String,
    /// Number of nodes. `None`: the number of the existing cluster, or 3 for a new one.
    pub nodes: Option<u32>,
    /// Options of all nodes.
    pub run: NodeOptions,
    /// Options of single nodes, which replace `run` for these nodes.
    pub run_of: BTreeMap<NodeId, NodeOptions>,
}

impl DevOptions {
    /// Default options with data in `data`. Nodes do not suspect silent nodes.
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

/// A running cluster. Dropping the value kills the nodes: unwritten data is lost.
#[derive(Debug)]
pub struct Dev {
    nodes: Vec<Node>,
    options: DevOptions,
    identity: ClusterIdentity,
    /// False until all nodes know each other; clients wait. A log created earlier would have too
    /// few replicas.
    serves_clients: watch::Sender<bool>,
}

impl Dev {
    /// Starts a cluster and waits until all nodes know each other.
    ///
    /// # Errors
    /// If its directory or address cannot be used, or a node cannot run.
    pub async fn start(options: DevOptions) -> Result<Self, StartError> {
        Self::start_told(options, &watch::Sender::new(Awaits::Nothing)).await
    }

    /// As [`Dev::start`]; `awaits` reports what the start waits for.
    ///
    /// # Errors
    /// As [`Dev::start`].
    pub async fn start_told(options: DevOptions, awaits: &watch::Sender<Awaits>) -> Result<Self, StartError> {
        // Bind the port first: a failed start must leave no new data directory.
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

    /// Starts the next node; node 1 has the register.
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

    /// Listening address of the first node.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.nodes[0].address()
    }

    /// Warnings for the operator, one list per node.
    pub fn warnings(&self) -> impl Iterator<Item = watch::Receiver<Vec<String>>> {
        self.nodes.iter().map(Node::warnings)
    }

    /// Progress of each node's orderly stop.
    #[must_use]
    pub fn stopping(&self) -> Vec<Stopping> {
        self.nodes.iter().map(Node::stopping).collect()
    }

    /// Kills the last `count` nodes, but never the first.
    pub async fn kill_last(&mut self, count: u32) {
        let stay = self.nodes.len().saturating_sub(count as usize).max(1);
        for node in self.nodes.split_off(stay) {
            node.kill().await;
        }
    }

    /// Restarts killed nodes from their files, at other addresses, and waits until they have
    /// joined.
    ///
    /// # Errors
    /// If a node cannot run. Earlier ones keep running.
    pub async fn restart_killed(&mut self) -> Result<(), StartError> {
        let (first, awaits) = (self.address(), watch::Sender::new(Awaits::Nothing));
        while self.nodes.len() < self.identity.nodes as usize {
            self.start_next(first, beside(first).await?, &awaits).await?;
            has_joined(self.nodes.last_mut().expect("it was just started")).await?;
        }
        Ok(())
    }

    /// Waits until a node fails. Returns the cause.
    pub async fn failed(&mut self) -> NodeError {
        let failures: Vec<_> = self.nodes.iter_mut().map(|node| Box::pin(node.failed())).collect();
        select_first(failures).await
    }

    /// Stops all nodes in an orderly way: no record is lost, at any durability level.
    ///
    /// # Errors
    /// The first error of a node. The others stop nevertheless.
    pub async fn stop(mut self) -> Result<(), StartError> {
        let mut outcome = Ok(());
        // All nodes begin to stop before any has ended, so that none suspects another.
        self.nodes.iter_mut().for_each(Node::begin_to_stop);
        for node in self.nodes {
            let stopped = node.stop().await;
            outcome = outcome.and(stopped);
        }
        Ok(outcome?)
    }
}

/// Binds a free port at the IP address of `first`.
async fn beside(first: SocketAddr) -> Result<Listener, StartError> {
    Ok(Listener::bind(&SocketAddr::new(first.ip(), 0).to_string()).await?)
}

async fn has_joined(node: &mut Node) -> Result<(), StartError> {
    match node.joined().await {
        true => Ok(()),
        false => Err(node.failed().await.into()),
    }
}

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
