//! One node of a cluster.

use std::net::SocketAddr;
use std::sync::Arc;

use seriatim_host::{Detector, Host, HostConfig, HostError, RegisterPlace};
use seriatim_net::{ClusterId, Hello, Identity, Lane, Links, ListenOptions, Listener, Together};
use seriatim_store::{Disk, Journal, OpenError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::crowd::Crowd;
use crate::driver::{self, Arrival, Driver, Health, Inboxes};
use crate::own_address::Misdirected;
use crate::pulse::{Pulse, PulseParts};
use crate::readers::{Doors, accept};
use crate::register::EtcdRegister;
use crate::rival::{self, Itself, Rival};
use crate::stopping::Stopping;
use crate::syncer::Syncer;
use crate::usage::Meter;
use crate::vitals::Vitals;

/// Socket reads queued for the driver, each up to 256 KiB. When the queue is full, each reader
/// waits in turn with one read: a quiet connection's read waits only for these.
const READS: usize = 16;
const INBOX: usize = 1024;

/// Why a node cannot run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The disk failed, or its contents cannot be used.
    #[error("node {node}: {cause}")]
    Host {
        /// The node.
        node: u32,
        /// The cause.
        cause: HostError,
    },
    /// Heartbeat settings conflict with another node's.
    #[error("node {node} stops: {cause}; change its settings, or those of the other node first")]
    BeatsDiffer {
        /// The node.
        node: u32,
        /// The other node's complaint.
        cause: String,
    },
    /// Another process uses the node's number.
    #[error("stopped: {0}")]
    Rival(Rival),
    /// An operator removed it from its cluster.
    #[error(
        "node {0} was removed from its cluster, and its number is not used again: to bring this machine back, give it another \
         number and an empty data directory"
    )]
    Removed(u32),
    /// The operating system started no thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The node's task ended unexpectedly.
    #[error("node {node} stopped unexpectedly: {cause}")]
    Stopped {
        /// The node.
        node: u32,
        /// The cause, if known.
        cause: String,
    },
}

fn introductions(config: &HostConfig) -> (Identity, Hello, Itself) {
    let HostConfig { node, seed: incarnation, address, .. } = config;
    let cluster = ClusterId(config.cluster);
    let identity = Identity::new(cluster, *node, *incarnation, &config.options.limits);
    let hello = Hello::node(cluster, *node, *incarnation, address.clone()).beating(identity.beats);
    let itself = Itself { cluster, node: *node, address: address.clone(), incarnation: Some(*incarnation) };
    (identity, hello, itself)
}

/// Opens the host, unless the disk had a journal and lost it.
fn open_host(config: HostConfig, disk: &Arc<dyn Disk>) -> Result<Host, HostError> {
    if Journal::is_missing(&**disk)? {
        return Err(OpenError::NoJournal.into());
    }
    let host = Host::open(config, disk.clone())?;
    Journal::note_begun(&**disk)?;
    Ok(host)
}

/// A running node. Dropping the value kills the node: unwritten data is lost.
#[derive(Debug)]
pub struct Node {
    number: u32,
    address: SocketAddr,
    itself: Itself,
    warnings: watch::Receiver<Vec<String>>,
    health: watch::Receiver<Health>,
    outage: Option<watch::Receiver<Option<String>>>,
    stop: Option<oneshot::Sender<()>>,
    vitals: Arc<Vitals>,
    /// `None` once the driver's outcome was returned.
    driver: Option<JoinHandle<Result<(), NodeError>>>,
}

impl Node {
    /// Starts a node on `disk` that listens with `listener`, within the limits of `listening`.
    /// `listening.connection` also applies to connections that the node makes. `register` must be
    /// given exactly if `config` places the register outside of all nodes. Call it within a tokio
    /// runtime.
    ///
    /// # Errors
    /// If the disk's contents cannot be used, or a thread cannot start.
    ///
    /// # Panics
    /// If `register` and `config` contradict each other.
    pub fn start(
        config: HostConfig,
        disk: Arc<dyn Disk>,
        listener: Listener,
        mut listening: ListenOptions,
        register: Option<EtcdRegister>,
    ) -> Result<Self, NodeError> {
        // Each node of this process counts its own clients' bytes.
        listening.clients_together = Together::default();
        assert_eq!(config.register == RegisterPlace::Outside, register.is_some(), "where is the register?");
        assert!(register.as_ref().is_none_or(|register| register.cluster_id() == config.cluster));
        let node = config.node;
        let number = config.node.0;
        let address = listener.address();
        let (identity, hello, itself) = introductions(&config);
        let (incarnation, limits) = (config.seed, config.options.limits);
        let place = config.register.clone();
        let host = open_host(config, &disk).map_err(|cause| NodeError::Host { node: number, cause })?;
        let detector = Detector::new(incarnation, &limits, host.mark());
        let (of_clients, clients) = mpsc::channel::<Arrival>(READS);
        let (of_nodes, nodes) = mpsc::channel::<Arrival>(READS);
        let (urgent, urgent_arrivals) = mpsc::channel::<Arrival>(INBOX);
        let syncer = Syncer::start(&disk, &urgent).map_err(NodeError::Thread)?;
        let (health, watched) = watch::channel(Health::default());
        let (warning, warnings) = watch::channel(driver::warnings(&host));
        let (stop, stopped) = oneshot::channel();
        let vitals = Arc::new(Vitals::new(syncer.progress()));
        let told_by = vitals.clone();
        let links_over = |lane| {
            let (events, arrivals) = mpsc::channel(INBOX);
            (Links::new(hello.clone().over(lane), listening.connection.clone(), events), arrivals)
        };
        let parts = PulseParts {
            detector,
            links: links_over(Lane::Heartbeats),
            vitals: vitals.clone(),
            driver: urgent.clone(),
        };
        let meter = Meter::new(disk, urgent.clone());
        tokio::spawn(rival::watch(itself.clone(), place, watched.clone(), urgent));
        let pulse = Pulse::start(parts).map_err(NodeError::Thread)?;
        let links = links_over(Lane::Bulk);
        let crowd = Crowd::new(listening.clients_together.clone(), listening.clients_queue_bytes);
        let incoming = listener.serve(identity, listening);
        tokio::spawn(accept(incoming, Doors { clients: of_clients, nodes: of_nodes, pulse: pulse.door() }));
        let outage = register.as_ref().map(EtcdRegister::outage);
        let register = register.map(|register| register.attend(node));
        let driver = Driver::new(
            host,
            Inboxes { urgent: urgent_arrivals, nodes, clients },
            links,
            (syncer, pulse, vitals, meter),
            register,
            (health, warning),
            crowd,
        );
        let driver = tokio::spawn(driver.run(stopped));
        Ok(Self {
            number,
            address,
            itself,
            warnings,
            health: watched,
            outage,
            stop: Some(stop),
            vitals: told_by,
            driver: Some(driver),
        })
    }

    /// Listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address that the node gives to others.
    #[must_use]
    pub fn advertised(&self) -> &str {
        &self.itself.address
    }

    /// Connects to the address that the node gives to others, unless it is the listening address.
    /// Returns `None` if this node answers, and otherwise why no node answered within 2 s: behind a
    /// load balancer or an address translation, a node may not reach itself.
    ///
    /// # Errors
    /// If another process answers.
    pub async fn reach_itself(&self) -> Result<Option<String>, Misdirected> {
        if self.itself.address == self.address.to_string() {
            return Ok(None);
        }
        self.itself.reach_itself().await
    }

    /// Warnings for the operator. The list grows while the node runs.
    #[must_use]
    pub fn warnings(&self) -> watch::Receiver<Vec<String>> {
        self.warnings.clone()
    }

    /// Trouble with a register outside of all nodes, for the operator. `None` if the register is in
    /// a node.
    #[must_use]
    pub fn register_outage(&self) -> Option<watch::Receiver<Option<String>>> {
        self.outage.clone()
    }

    /// Waits until the register knows the node. False if the node fails before.
    pub async fn joined(&mut self) -> bool {
        self.health.wait_for(|health| health.has_joined).await.is_ok()
    }

    /// Waits until the node fails. Returns the cause.
    pub async fn failed(&mut self) -> NodeError {
        let Some(driver) = &mut self.driver else { return Self::failed_before(self.number) };
        let outcome = Self::outcome(self.number, driver.await);
        self.driver = None;
        outcome
            .err()
            .unwrap_or(NodeError::Stopped { node: self.number, cause: "it was asked to stop".into() })
    }

    fn failed_before(node: u32) -> NodeError {
        NodeError::Stopped { node, cause: "it had failed before".into() }
    }

    /// Progress of an orderly stop.
    #[must_use]
    pub fn stopping(&self) -> Stopping {
        Stopping::new(self.number, self.vitals.clone())
    }

    /// Stops the node in an orderly way: no record is lost, at any durability level.
    ///
    /// # Errors
    /// If its disk fails meanwhile, or had failed before.
    pub async fn stop(mut self) -> Result<(), NodeError> {
        self.begin_to_stop();
        let Some(driver) = self.driver else { return Err(Self::failed_before(self.number)) };
        Self::outcome(self.number, driver.await)
    }

    /// Kills the node, and waits until its files are free.
    pub(crate) async fn kill(mut self) {
        self.stop = None;
        if let Some(driver) = self.driver.take() {
            let _ = driver.await;
        }
    }

    /// Starts an orderly stop: the node takes no further input and no longer watches other nodes.
    pub(crate) fn begin_to_stop(&mut self) {
        // The send fails only if the driver has failed before.
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    fn outcome(
        node: u32,
        outcome: Result<Result<(), NodeError>, tokio::task::JoinError>,
    ) -> Result<(), NodeError> {
        match outcome {
            Ok(outcome) => outcome,
            Err(cause) => Err(NodeError::Stopped { node, cause: cause.to_string() }),
        }
    }
}
