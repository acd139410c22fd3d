//! A cluster whose register is in etcd.

use std::sync::Arc;
use std::time::Duration;

use seriatim_client::{AppendOptions, Client, ClientOptions, LogConfig, Position};
use seriatim_etcd::testing::EtcdServer;
use seriatim_host::{HostConfig, RegisterPlace};
use seriatim_model::NodeId;
use seriatim_net::{ListenOptions, Listener};
use seriatim_node::Node;
use seriatim_node::register::{EtcdOptions, open};
use seriatim_protocol::Options;
use seriatim_store::{Disk, JournalOptions, MemoryDisk, Secret, ShardOptions};

use crate::talk::NODES;

const TIMEOUT: Duration = Duration::from_secs(60);

async fn start(etcd: &EtcdServer, node: NodeId, disk: &MemoryDisk) -> Node {
    let options = EtcdOptions { endpoints: vec![etcd.endpoint()], cluster: "test".into() };
    let register = open(&options, None).await.unwrap();
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let config = HostConfig {
        cluster: register.cluster_id(),
        node,
        address: listener.address().to_string(),
        register: RegisterPlace::Outside,
        seed: rand::random(),
        secret: Secret::new(rand::random()),
        options: Options::default(),
        journal: JournalOptions { file_bytes: 1 << 20, batch_bytes: 1 << 20, ..JournalOptions::default() },
        shard_options: ShardOptions::default(),
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut node = Node::start(config, disk, listener, ListenOptions::default(), Some(register)).unwrap();
    assert!(tokio::time::timeout(TIMEOUT, node.joined()).await.unwrap());
    node
}

async fn client(node: &Node) -> Client {
    let mut options = ClientOptions::default();
    options.deadline = TIMEOUT;
    Client::connect_with(&node.address().to_string(), options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_outlives_its_nodes_and_its_etcd() {
    let Some(mut etcd) = EtcdServer::start() else { return };
    let disks = NODES.map(|_| MemoryDisk::new());
    let mut nodes = vec![];
    for (node, disk) in NODES.into_iter().zip(&disks) {
        nodes.push(start(&etcd, node, disk).await);
    }
    let writer = client(&nodes[0]).await;
    writer.create("orders", LogConfig::default()).await.unwrap();
    let log = writer.log("orders").await.unwrap();
    log.append("before", AppendOptions::sync()).await.unwrap();
    // A running log does not need etcd.
    etcd.kill();
    log.append("without", AppendOptions::sync()).await.unwrap();
    etcd.restart();
    // A restarted node needs a new view, and so etcd.
    nodes.pop().unwrap().stop().await.unwrap();
    nodes.push(start(&etcd, NODES[2], &disks[2]).await);
    log.append("after", AppendOptions::sync()).await.unwrap();
    let reader = client(&nodes[2]).await;
    let records = reader.log("orders").await.unwrap().read(Position(0), 10, TIMEOUT).await.unwrap();
    let payloads: Vec<_> = records.iter().map(|stored| stored.record.payload()).collect();
    assert_eq!(payloads, ["before", "without", "after"]);
    reader.delete("orders").await.unwrap();
    assert!(writer.list().await.unwrap().0.is_empty());
    for node in nodes {
        node.stop().await.unwrap();
    }
}
