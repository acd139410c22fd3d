//! A temporary cluster in this process, with one log.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_client::{
    Client, ClientOptions, DelayLine, Durability, Log, LogConfig, LogOptions, NodeId, Order,
};
use seriatim_net::{ConnectionOptions, ListenOptions};
use seriatim_node::{Dev, DevOptions, NodeOptions};
use tokio::runtime::Handle;

use crate::terminal::{Failure, Outcome};

pub(super) const NODES: u32 = 3;
pub(super) const LOG: &str = "bench";

#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) order: Order,
    pub(super) durability: Durability,
    pub(super) shards: u32,
    pub(super) replicas: u32,
    /// Number of cuts with fixed quotas, for orders with quotas.
    pub(super) window: u32,
    pub(super) delay: Option<DelayLine>,
    /// Additional nodes without sequencing replicas.
    pub(super) apart: Option<Apart>,
}

#[derive(Clone, Debug)]
pub(super) struct Apart {
    pub(super) delay: DelayLine,
    pub(super) nodes: u32,
}

impl Apart {
    pub(super) fn numbers(&self) -> impl Iterator<Item = NodeId> + use<> {
        (NODES + 1..=NODES + self.nodes).map(NodeId)
    }
}

fn delayed(delay: Option<DelayLine>) -> NodeOptions {
    let connection = ConnectionOptions { delay, ..ConnectionOptions::default() };
    let listening = ListenOptions { connection, ..ListenOptions::default() };
    NodeOptions { listening, ..NodeOptions::default() }
}

pub(super) struct Cluster {
    dev: Dev,
    address: String,
    delay: Option<DelayLine>,
    _data: tempfile::TempDir,
}

impl Cluster {
    pub(super) async fn start(shape: Shape, nodes: &Handle) -> Result<Self, Failure> {
        let Shape { order, durability, shards, replicas, window, delay, apart } = shape;
        let data = tempfile::tempdir()?;
        let run = delayed(delay.clone());
        let nodes_in_all = Some(NODES + apart.as_ref().map_or(0, |apart| apart.nodes));
        let run_of: BTreeMap<NodeId, NodeOptions> = apart
            .iter()
            .flat_map(|apart| apart.numbers().map(|node| (node, delayed(Some(apart.delay.clone())))))
            .collect();
        let new = DevOptions::new(data.path(), "127.0.0.1:0");
        let options = DevOptions { nodes: nodes_in_all, run, run_of, ..new };
        let dev = nodes.spawn(Dev::start(options)).await??;
        let address = dev.address().to_string();
        let cluster = Self { dev, address, delay, _data: data };
        let sequencers = NODES;
        let config =
            LogConfig { order, durability, shards, replicas, sequencers, window, ..LogConfig::default() };
        cluster.client().await?.create(LOG, config).await?;
        Ok(cluster)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) async fn client(&self) -> Result<Client, Failure> {
        let options = ClientOptions::default().with_delay(self.delay.clone());
        Ok(Client::connect_with(&self.address, options).await?)
    }

    /// A log handle with one unordered session: on a busy machine the client appends late records
    /// again.
    pub(super) async fn log(&self) -> Result<Log, Failure> {
        Ok(self.client().await?.log_with(LOG, LogOptions::unordered(1)).await?)
    }

    pub(super) async fn kill_apart(&mut self, apart: &Apart) {
        self.dev.kill_last(apart.nodes).await;
    }

    pub(super) async fn restart_apart(&mut self) -> Outcome {
        Ok(self.dev.restart_killed().await?)
    }

    pub(super) async fn stop(self) -> Outcome {
        Ok(self.dev.stop().await?)
    }
}

/// The log's stable bound, as its shards know it.
pub(super) async fn stable(client: &Client) -> Result<u64, Failure> {
    let status = client.status(client.lookup(LOG).await?).await;
    status.stable.map(|stable| stable.0).ok_or_else(|| Failure::new("a shard did not answer"))
}

/// Suspicions of nodes that were alive, summed over all nodes.
pub(super) async fn wrong_suspicions(client: &Client) -> Result<f64, Failure> {
    // The answer to this lookup brings the nodes' addresses.
    client.lookup(LOG).await?;
    let mut wrong = 0;
    for node in (1..=NODES).map(NodeId) {
        let silent = || Failure::new(format!("node {node} did not say how it is"));
        wrong += client.condition(node).await.ok_or_else(silent)?.wrong_suspicions;
    }
    Ok(wrong as f64)
}

/// A delay line for each direction of each connection, if `rtt` is not zero.
pub(super) fn delay_line(rtt: Duration) -> std::io::Result<Option<DelayLine>> {
    if rtt.is_zero() { Ok(None) } else { DelayLine::start(rtt / 2).map(Some) }
}
