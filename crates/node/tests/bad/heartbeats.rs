//! Nodes with conflicting heartbeat settings, and with different but compatible ones.

use std::path::Path;
use std::time::Duration;

use seriatim_client::{AppendOptions, LogConfig};
use seriatim_model::NodeId;
use seriatim_model::limits::Limits;
use seriatim_node::{Awaits, Node, NodeError, NodeOptions, RegisterOptions, ServeOptions, serve};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::{TIMEOUT, client, small_journal};

fn options(number: u32, every_ms: u64, register: RegisterOptions, data: &Path) -> ServeOptions {
    let limits = Limits { heartbeat_every: Duration::from_millis(every_ms), ..Limits::default() };
    ServeOptions {
        node: NodeId(number),
        listen: "127.0.0.1:0".into(),
        advertise: None,
        data: data.join(number.to_string()),
        register,
        run: NodeOptions { limits, journal: small_journal(), ..NodeOptions::default() },
    }
}

async fn start(options: ServeOptions) -> Node {
    let (awaits, _) = watch::channel(Awaits::Nothing);
    serve(options, &awaits).await.unwrap()
}

async fn joined(options: ServeOptions) -> Node {
    let mut node = start(options).await;
    assert!(timeout(TIMEOUT, node.joined()).await.unwrap());
    node
}

async fn again(node: Node, options: ServeOptions) -> Node {
    let listen = node.advertised().to_owned();
    node.stop().await.unwrap();
    joined(ServeOptions { listen, ..options }).await
}

fn on(node: &Node) -> RegisterOptions {
    RegisterOptions::Node { node: NodeId(1), address: node.advertised().to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_heartbeats_the_others_would_not_wait_for_says_so_and_stops() {
    let data = tempfile::tempdir().unwrap();
    let elder = joined(options(1, 20, RegisterOptions::Embedded, data.path())).await;
    let mut late = start(options(2, 200, on(&elder), data.path())).await;
    let cause = timeout(TIMEOUT, late.failed()).await.unwrap();
    assert!(matches!(cause, NodeError::BeatsDiffer { node: 2, .. }), "{cause}");
    let text = cause.to_string();
    for words in
        ["node 1 has heartbeat_every_ms = 20", "node 2 has heartbeat_every_ms = 200", "at least twice"]
    {
        assert!(text.contains(words), "{text}");
    }
    // A node with too short a timeout stops too. The running node continues.
    let mut hasty = start(options(3, 5, on(&elder), data.path())).await;
    let cause = timeout(TIMEOUT, hasty.failed()).await.unwrap();
    assert!(matches!(cause, NodeError::BeatsDiffer { node: 3, .. }), "{cause}");
    elder.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_are_changed_from_node_to_node_while_the_log_goes_on() {
    let data = tempfile::tempdir().unwrap();
    let mut first = joined(options(1, 20, RegisterOptions::Embedded, data.path())).await;
    let mut second = joined(options(2, 50, on(&first), data.path())).await;
    let writer = client(first.advertised()).await;
    let config = LogConfig { shards: 1, sequencers: 2, replicas: 2, ..LogConfig::default() };
    writer.create("orders", config).await.unwrap();
    let log = writer.log("orders").await.unwrap();
    log.append("before", AppendOptions::sync()).await.unwrap();
    first = again(first, options(1, 50, RegisterOptions::Embedded, data.path())).await;
    log.append("half-way", AppendOptions::sync()).await.unwrap();
    let changed = options(2, 125, on(&first), data.path());
    second = again(second, changed).await;
    log.append("after", AppendOptions::sync()).await.unwrap();
    for node in [first, second] {
        node.stop().await.unwrap();
    }
}
