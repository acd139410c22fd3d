//! Full and failing disks.

use std::sync::Arc;
use std::time::Duration;

use seriatim_client::{AppendError, AppendOptions, Client, LogConfig, Position};
use seriatim_host::{HostConfig, RegisterPlace};
use seriatim_model::NodeId;
use seriatim_model::limits::DISK_LOW_BYTES;
use seriatim_net::{ListenOptions, Listener};
use seriatim_node::{Node, NodeError};
use seriatim_protocol::Options;
use seriatim_store::{Disk, MemoryDisk, Secret, ShardOptions};

use crate::support::{TIMEOUT, client, client_with, eventually, read_range, says, small_journal, within};

const NODES: u32 = 3;

/// A cluster on memory disks that fill up and fail on request.
struct OnMemory {
    disks: Vec<MemoryDisk>,
    nodes: Vec<Node>,
}

impl OnMemory {
    async fn start(disks: Vec<MemoryDisk>) -> Self {
        let mut nodes: Vec<Node> = vec![];
        for (number, disk) in (1..).zip(&disks) {
            let listener = Listener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.address().to_string();
            let first = nodes.first().map_or_else(|| address.clone(), |node| node.address().to_string());
            let config = HostConfig {
                cluster: 7,
                node: NodeId(number),
                address,
                register: RegisterPlace::Node { node: NodeId(1), address: first },
                seed: rand::random(),
                secret: Secret::new(rand::random()),
                options: Options::default(),
                journal: small_journal(),
                shard_options: ShardOptions::default(),
            };
            let disk: Arc<dyn Disk> = Arc::new(disk.clone());
            nodes.push(Node::start(config, disk, listener, ListenOptions::default(), None).unwrap());
        }
        for node in &mut nodes {
            within("the nodes to join", node.joined()).await;
        }
        Self { disks, nodes }
    }

    async fn fresh() -> Self {
        Self::start((0..NODES).map(|_| MemoryDisk::new()).collect()).await
    }

    fn address(&self) -> String {
        self.nodes[0].address().to_string()
    }

    async fn client(&self) -> Client {
        client(&self.address()).await
    }
}

/// Returns the number of acknowledged appends, and the error of the next append.
async fn append_until_it_fails(log: &seriatim_client::Log) -> (u64, AppendError) {
    let mut options = AppendOptions::default();
    options.deadline = Some(Duration::from_secs(2));
    for number in 0.. {
        if let Err(cause) = log.append(numbered(number), options).await {
            return (number, cause);
        }
    }
    unreachable!("the disk is full at some time");
}

fn numbered(number: u64) -> Vec<u8> {
    let mut payload = vec![b'.'; 100_000];
    payload[..8].copy_from_slice(&number.to_le_bytes());
    payload
}

async fn is_all_there(log: &seriatim_client::Log, acknowledged: u64) {
    for number in 0..acknowledged {
        let read = log.read(Position(number), 1, TIMEOUT).await.unwrap();
        assert!(read[0].record.payload() == numbered(number), "record {number}");
    }
}

/// Leaves `room` bytes above the disk's reserve.
fn leave(disk: &MemoryDisk, room: u64) {
    disk.set_capacity(Some(disk.used() + DISK_LOW_BYTES + room));
}

/// Fills the disks with the indices in `full`, then frees them. The log needs all three nodes.
async fn fill(full: &[usize]) {
    let cluster = OnMemory::fresh().await;
    let client = client_with(&cluster.address(), Duration::from_secs(5)).await;
    // The log needs all three nodes: else a full follower would not block, as entries without room
    // there are acknowledged once stable.
    let config = LogConfig { replicas: 3, min_replicas: 3, min_sequencers: 3, ..LogConfig::default() };
    client.create("log", config).await.unwrap();
    let reader = cluster.client().await.log("log").await.unwrap();
    reader.append_sync("first").await.unwrap();
    let log = client.log("log").await.unwrap();
    for index in full {
        leave(&cluster.disks[*index], 2 << 20);
    }
    let (acknowledged, cause) = append_until_it_fails(&log).await;
    assert!(matches!(cause, AppendError::DeadlineExceeded { .. }), "{cause:?}");
    // Of several full nodes, the error names those without enough room.
    let name = match full {
        [index] => format!("the disk of node {} is full", index + 1),
        _ => "the disk of node".to_owned(),
    };
    let mut parts = vec![name.as_str()];
    parts.extend(["not acknowledged within 2 s", "make room"]);
    says(&cause, &parts);
    assert!(!cause.to_string().contains("did not answer"), "nobody else is blamed: {cause}");
    assert!(acknowledged > 0);

    assert!(reader.check_tail().await.unwrap() > Position(acknowledged));
    let entry = client.lookup("log").await.unwrap();
    let stable = client.status(entry).await.stable.expect("the shards answer");
    let bound = read_range(&reader, Position(0), stable).await;
    assert_eq!(bound[0].record.payload(), "first");
    assert_eq!(client.list().await.unwrap().0.len(), 1);
    // A new client receives the same error, unless its record goes elsewhere and there is room for
    // its name.
    let mut options = AppendOptions::default();
    options.deadline = Some(Duration::from_secs(1));
    if let Err(cause) = reader.append("later", options).await {
        says(&cause, &parts[..1]);
    }

    for disk in &cluster.disks {
        disk.set_capacity(None);
    }
    // The sessions that failed continue.
    within("appends to go on", log.append_sync("again")).await.unwrap();
    within("appends to go on", reader.append_sync("and again")).await.unwrap();
    // Acknowledged appends are stored, expired ones were performed later, each once and in order.
    let tail = reader.check_tail().await.unwrap();
    let all = read_range(&reader, Position(0), tail).await;
    let of = |session| all.iter().filter(move |stored| stored.id.session == session);
    let theirs: Vec<_> = of(all[0].id.session).map(|stored| stored.record.payload()).collect();
    assert_eq!(theirs, ["first", "later", "and again"]);
    let ours: Vec<_> = of(log.session().await.unwrap().0).map(|stored| stored.record.payload()).collect();
    assert_eq!(ours.len() as u64, acknowledged + 2);
    for (number, payload) in (0..=acknowledged).zip(&ours) {
        assert!(*payload == numbered(number), "record {number}");
    }
    assert_eq!(all.len(), theirs.len() + ours.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn all_disks_are_full() {
    fill(&[0, 1, 2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_of_the_leader_is_full() {
    fill(&[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_of_a_follower_is_full() {
    fill(&[2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_does_without_a_full_disk_and_takes_it_back() {
    let cluster = OnMemory::fresh().await;
    let client = cluster.client().await;
    client.create("log", LogConfig { replicas: 3, ..LogConfig::default() }).await.unwrap();
    let log = client.log("log").await.unwrap();
    log.append_sync("first").await.unwrap();
    leave(&cluster.disks[2], 1 << 20);
    for number in 0..100 {
        within("appends to go on", log.append_sync(numbered(number))).await.unwrap();
    }
    let takes_part = async || {
        let view = client.lookup("log").await.unwrap().view.unwrap();
        let shards = view.shards.iter().flat_map(|members| &members.replicas);
        view.sequencers.iter().chain(shards).filter(|member| member.node == NodeId(3)).count()
    };
    eventually("it is done without", async || takes_part().await == 0).await;
    assert!(client.condition(NodeId(3)).await.unwrap().has_full_disk);
    // The reserve is still free: a trim needs some room.
    let disk = &cluster.disks[2];
    assert!(disk.free().unwrap() > Some(DISK_LOW_BYTES / 2), "{:?}", disk.free());
    within("a trim", log.trim(Position(50))).await.unwrap();
    disk.set_capacity(None);
    eventually("it is taken back", async || takes_part().await >= 2).await;
    assert!(!client.condition(NodeId(3)).await.unwrap().has_full_disk);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_memory_goes_on_while_there_is_room_for_it() {
    let cluster = OnMemory::fresh().await;
    let client = cluster.client().await;
    let memory = LogConfig { durability: seriatim_model::Durability::Memory, ..LogConfig::default() };
    client.create("memory", memory).await.unwrap();
    let log = client.log("memory").await.unwrap();
    for disk in &cluster.disks {
        leave(disk, 1 << 20);
    }
    let (acknowledged, cause) = append_until_it_fails(&log).await;
    says(&cause, &["not acknowledged within 2 s", "disk", "full"]);
    assert!(acknowledged > 0);
    for disk in &cluster.disks {
        disk.set_capacity(None);
    }
    let position = within("appends to go on", log.append_sync("again")).await.unwrap();
    assert!(position >= Position(acknowledged));
    is_all_there(&log, acknowledged).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_fails_ends_the_node_and_the_log_goes_on_and_loses_nothing() {
    let mut cluster = OnMemory::fresh().await;
    let client = client_with(&cluster.address(), Duration::from_secs(2)).await;
    client.create("log", LogConfig::default()).await.unwrap();
    let log = client.log("log").await.unwrap();
    for number in 0..20 {
        assert_eq!(log.append_sync(numbered(number)).await.unwrap(), Position(number));
    }
    // The failing sync may be that of the next journal file, whose failure shows when the file is
    // needed.
    cluster.disks[1].fail_syncs(1);
    let mut acknowledged = 20;
    let failure = within("the node to fail", async {
        loop {
            tokio::select! {
                failure = cluster.nodes[1].failed() => return failure,
                appended = log.append(numbered(acknowledged), AppendOptions::default()) => appended.unwrap(),
            };
            acknowledged += 1;
        }
    })
    .await;
    assert!(matches!(failure, NodeError::Host { node: 2, .. }), "{failure:?}");
    says(&failure, &["node 2", "journal failed", "journal/", "start"]);
    // Records stay readable while a replica of their shard is alive.
    let view = log.entry().view.clone().unwrap();
    let elsewhere = view.shards.iter().find(|shard| shard.primary().node != NodeId(2)).unwrap();
    let there = (0..20).map(Position).find(|at| view.placement.shard_of(*at) == elsewhere.shard);
    if let Some(position) = there {
        assert_eq!(log.read(position, 1, TIMEOUT).await.unwrap().len(), 1);
    }
    let disks = std::mem::take(&mut cluster.disks);
    for node in cluster.nodes {
        let _ = node.stop().await;
    }
    // A power failure loses unsynced data.
    for (seed, disk) in disks.iter().enumerate() {
        disk.crash(seed as u64);
    }
    let again = OnMemory::start(disks).await;
    let log = again.client().await.log("log").await.unwrap();
    is_all_there(&log, acknowledged).await;
    log.append_sync("after").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_fails_ends_the_node() {
    let mut cluster = OnMemory::fresh().await;
    let client = client_with(&cluster.address(), Duration::from_secs(1)).await;
    client.create("log", LogConfig::default()).await.unwrap();
    let log = client.log("log").await.unwrap();
    log.append_sync("before").await.unwrap();
    cluster.disks[2].fail_writes(1000);
    let _ = log.append("doomed", AppendOptions::default()).await;
    let failure = within("the node to fail", cluster.nodes[2].failed()).await;
    says(&failure, &["node 3"]);
    eventually("its connections are closed", || async {
        let hello = seriatim_net::Hello::client("late");
        let address = cluster.nodes[2].address().to_string();
        seriatim_net::connect(&address, &hello, &seriatim_net::ConnectionOptions::default()).await.is_err()
    })
    .await;
}
