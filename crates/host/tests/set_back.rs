//! A node that comes back takes part when the others were heard, and holds nothing that counts if its disk was set back.

mod common;

use std::sync::Arc;

use seriatim_host::{Cause, Event, Host, HostConfig, Liveness, RegisterPlace};
use seriatim_model::{
    Durability, Endpoint, Incarnation, LogConfig, LogId, NodeId, Peer, ShardId, Time, ViewHistory, ViewNumber,
};
use seriatim_protocol::control::{self, LogEntry, NodeAddress};
use seriatim_protocol::shard::Message;
use seriatim_protocol::{self as protocol, Options};
use seriatim_store::{JournalOptions, MemoryDisk, Secret, ShardOptions};

use crate::common::write_all;

const LOG: LogId = LogId(1);
const SHARD: ShardId = ShardId(0);
const OWN: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(1);
const THIRD: NodeId = NodeId(3);

fn open(disk: &MemoryDisk) -> Host {
    // Starts differ: each finds another number of writes.
    let seed = disk.counters().writes;
    let config = HostConfig {
        cluster: 7,
        node: OWN,
        address: address(OWN).address,
        register: RegisterPlace::Node { node: OTHER, address: address(OTHER).address },
        seed,
        secret: Secret::new(seed.into()),
        options: Options::default(),
        journal: JournalOptions { file_bytes: 4096, checkpoint_bytes: 1, ..JournalOptions::default() },
        shard_options: ShardOptions::default(),
    };
    Host::open(config, Arc::new(disk.clone())).unwrap()
}

fn address(node: NodeId) -> NodeAddress {
    NodeAddress { node, address: format!("node-{}:7700", node.0) }
}

fn tell(host: &mut Host, to: Endpoint, message: protocol::Message) {
    let (peer, from) = (Peer::Node(OTHER), Endpoint::Controller);
    host.handle(Time::ZERO, Event::Message { peer, log: LOG, from, to, message });
    host.settle(Time::ZERO);
}

/// The register tells of three nodes.
fn cluster(host: &mut Host) {
    let nodes = [OTHER, OWN, THIRD].map(address).to_vec();
    tell(host, Endpoint::Node, control::Message::Cluster { nodes }.into());
}

fn liveness(host: &mut Host, change: Liveness) {
    host.handle(Time::ZERO, Event::Liveness(change));
    host.settle(Time::ZERO);
}

/// A controller wants to know what the replica holds.
fn fence(host: &mut Host, claim: u64) {
    let entry = LogEntry {
        id: LOG,
        name: "log".into(),
        config: LogConfig { durability: Durability::Disk, shards: 1, ..LogConfig::default() },
        sequencers: vec![OTHER],
        shards: vec![vec![OWN]],
        leaving: vec![],
        version: 1,
        claimed: ViewNumber(claim),
        claimant: 1,
        view: None,
        history: ViewHistory::default(),
        unavailable: None,
    };
    tell(host, Endpoint::Shard(SHARD), Message::Fence { claim: ViewNumber(claim), entry }.into());
}

/// The incarnation of the replica, if there is one.
fn incarnation(host: &Host) -> Option<Incarnation> {
    host.replica(LOG, SHARD).map(|replica| replica.memory().incarnation)
}

/// Whether the replica answers a fence.
fn takes_part(host: &mut Host, disk: &MemoryDisk, claim: u64) -> bool {
    has_answered(host);
    fence(host, claim);
    write_all(host, disk);
    has_answered(host)
}

/// Whether the replica has said something since this was asked last.
fn has_answered(host: &mut Host) -> bool {
    host.take_sends().iter().any(|sent| sent.from == Endpoint::Shard(SHARD))
}

/// A node that was killed while it had a replica.
fn with_replica() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut host = open(&disk);
    assert!(takes_part(&mut host, &disk, 1), "a node that holds nothing waits for nobody");
    disk
}

#[test]
fn a_node_that_comes_back_takes_part_when_all_others_were_heard_or_are_suspected() {
    let disk = with_replica();
    let mut host = open(&disk);
    assert!(!takes_part(&mut host, &disk, 2), "the register has not told who there is");
    cluster(&mut host);
    liveness(&mut host, Liveness::Told(OTHER));
    assert!(!takes_part(&mut host, &disk, 2), "the third may remember something");
    let unwell = Cause::Unwell(control::Ailment::DiskStalled);
    liveness(&mut host, Liveness::Suspected(THIRD, unwell));
    assert!(!takes_part(&mut host, &disk, 2), "it is there, and says what it remembers in a moment");
    liveness(&mut host, Liveness::Suspected(THIRD, Cause::Closed));
    assert!(takes_part(&mut host, &disk, 2));
}

#[test]
fn a_start_that_is_cut_short_writes_nothing_that_would_hide_how_little_there_was() {
    let disk = with_replica();
    let began = open(&disk).mark();
    for _ in 0..3 {
        let mut host = open(&disk);
        cluster(&mut host);
        write_all(&mut host, &disk);
        assert!(!takes_part(&mut host, &disk, 2));
    }
    assert_eq!(format!("{:?}", open(&disk).mark()), format!("{began:?}"));
}

#[test]
fn a_disk_that_was_set_back_holds_nothing_that_counts() {
    let disk = with_replica();
    let before = incarnation(&open(&disk)).unwrap();
    let mut host = open(&disk);
    cluster(&mut host);
    liveness(&mut host, Liveness::SetBack(OTHER));
    for node in [OTHER, THIRD] {
        liveness(&mut host, Liveness::Told(node));
    }
    assert_eq!(incarnation(&host), None);
    assert!(host.problems().iter().any(|problem| problem.cause.contains("set back")));
    fence(&mut host, 2);
    assert!(!has_answered(&mut host), "not before the journal says so");
    write_all(&mut host, &disk);
    assert!(has_answered(&mut host), "what nodes said meanwhile is heard then");
    let after = incarnation(&host).unwrap();
    assert_ne!(before, after);
    drop(host);
    // And so it stays, with the checkpoint that came meanwhile.
    assert_eq!(incarnation(&open(&disk)), Some(after));
}

#[test]
fn a_node_that_is_told_too_late_ends_and_has_forgotten_its_replicas_at_the_next_start() {
    let disk = with_replica();
    let mut host = open(&disk);
    cluster(&mut host);
    for node in [OTHER, THIRD] {
        liveness(&mut host, Liveness::Told(node));
    }
    assert!(takes_part(&mut host, &disk, 2));
    liveness(&mut host, Liveness::SetBack(THIRD));
    assert_eq!(host.failure(), None, "the journal has to say so first");
    write_all(&mut host, &disk);
    assert!(host.failure().is_some_and(|cause| cause.contains("Start the node again")));
    drop(host);
    assert_eq!(incarnation(&open(&disk)), None);
}
