//! Helpers for tests of single hosts.

use std::sync::Arc;

use seriatim_host::{Event, Host, HostConfig, Liveness, RegisterPlace};
use seriatim_model::{
    Durability, Endpoint, Incarnation, LogConfig, LogId, NodeId, Peer, ShardId, Time, ViewHistory, ViewNumber,
};
use seriatim_protocol::control::{self, LogEntry, NodeAddress};
use seriatim_protocol::shard::Message;
use seriatim_protocol::{self as protocol, Options};
use seriatim_store::{JournalOptions, MemoryDisk, Secret, ShardOptions, ShardStore};

pub(crate) const LOG: LogId = LogId(1);
pub(crate) const SHARD: ShardId = ShardId(0);
pub(crate) const OWN: NodeId = NodeId(2);
pub(crate) const OTHER: NodeId = NodeId(1);
pub(crate) const THIRD: NodeId = NodeId(3);

pub(crate) fn config(disk: &MemoryDisk) -> HostConfig {
    // Starts differ, because each finds another number of writes.
    let seed = disk.counters().writes;
    HostConfig {
        cluster: 7,
        node: OWN,
        address: address(OWN).address,
        register: RegisterPlace::Node { node: OTHER, address: address(OTHER).address },
        seed,
        secret: Secret::new(seed.into()),
        options: Options::default(),
        journal: JournalOptions { file_bytes: 32 << 10, checkpoint_bytes: 1, ..JournalOptions::default() },
        shard_options: ShardOptions::default(),
    }
}

pub(crate) fn open(disk: &MemoryDisk) -> Host {
    Host::open(config(disk), Arc::new(disk.clone())).unwrap()
}

pub(crate) fn address(node: NodeId) -> NodeAddress {
    NodeAddress { node, address: format!("node-{}:7700", node.0) }
}

pub(crate) fn tell(host: &mut Host, to: Endpoint, message: protocol::Message) {
    let (peer, from) = (Peer::Node(OTHER), Endpoint::Controller);
    host.handle(Time::ZERO, Event::Message { peer, log: LOG, from, to, message });
    host.finish_turn(Time::ZERO);
}

/// The register lists three nodes.
pub(crate) fn cluster(host: &mut Host) {
    let nodes = [OTHER, OWN, THIRD].map(address).to_vec();
    tell(host, Endpoint::Node, control::Message::Cluster { nodes }.into());
}

pub(crate) fn liveness(host: &mut Host, change: Liveness) {
    host.handle(Time::ZERO, Event::Liveness(change));
    host.finish_turn(Time::ZERO);
}

/// The other nodes report nothing beyond the host's disk.
pub(crate) fn others_are_heard(host: &mut Host) {
    cluster(host);
    [OTHER, THIRD].into_iter().for_each(|node| liveness(host, Liveness::Told(node)));
}

/// A fence, the first message that creates a replica.
pub(crate) fn fence(host: &mut Host, durability: Durability, claim: u64) {
    let config = LogConfig { durability, shards: 1, ..LogConfig::default() };
    let entry = claimed(LOG, config, claim);
    tell(host, Endpoint::Shard(SHARD), Message::Fence { claim: ViewNumber(claim), entry }.into());
}

/// The entry of a claimed log without a view.
pub(crate) fn claimed(id: LogId, config: LogConfig, claim: u64) -> LogEntry {
    LogEntry {
        id,
        name: "log".into(),
        config,
        sequencers: vec![OTHER],
        shards: vec![vec![OWN]],
        leaving: vec![],
        version: 1,
        claimed: ViewNumber(claim),
        claimant: 1,
        view: None,
        history: ViewHistory::default(),
        unavailable: None,
        ended: control::EndedSessions::default(),
        pins: vec![],
    }
}

/// The first message that creates a sequencing replica.
pub(crate) fn seal(host: &mut Host, claim: u64) {
    let config = LogConfig { durability: Durability::Disk, shards: 1, ..LogConfig::default() };
    let message = control::Message::Seal { claim: ViewNumber(claim), old: ViewNumber::NONE, config };
    tell(host, Endpoint::Sequencer, message.into());
}

pub(crate) fn incarnation(host: &Host) -> Option<Incarnation> {
    host.replica(LOG, SHARD).map(|replica| replica.memory().incarnation)
}

pub(crate) fn keeps_store(disk: &MemoryDisk) -> bool {
    let directory = format!("{}/", ShardStore::directory(LOG, SHARD));
    disk.files().iter().any(|file| file.starts_with(&directory))
}

/// A node with a replica in its journal's checkpoint.
pub(crate) fn with_replica(durability: Durability) -> (Host, MemoryDisk) {
    let disk = MemoryDisk::new();
    let mut host = open(&disk);
    fence(&mut host, durability, 1);
    write_all(&mut host, &disk);
    assert!(host.replica(LOG, SHARD).is_some() && keeps_store(&disk));
    (host, disk)
}

pub(crate) fn write_all(host: &mut Host, disk: &MemoryDisk) {
    loop {
        let write = host.next_journal_write(Time::ZERO);
        let files = host.next_sync();
        if write.is_none() && files.is_none() {
            return;
        }
        if let Some(write) = write {
            host.handle(Time::ZERO, Event::JournalWritten(write.perform(disk)));
        }
        if let Some(files) = files {
            host.handle(Time::ZERO, Event::FilesSynced(files.perform(disk)));
        }
        host.finish_turn(Time::ZERO);
    }
}
