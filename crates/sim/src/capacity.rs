//! The capacity of a cluster in a second, and how much it is asked to do.
//!
//! Without a [`Capacity`] work takes no time and messages have no size: then a run shows what is
//! said in which order, and nothing that load alone could do.

use std::time::Duration;

use seriatim_model::{LogConfig, NodeId};

/// The amount of everything there is in a second, and of what waits for it. Numbers are small, and
/// so are the limits of a plan that has them: what counts is how they relate.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// How long a node's only processor works on a message that comes or leaves, in nanoseconds.
    pub message_ns: u64,
    /// And on each byte that comes, leaves, or is written, in nanoseconds.
    pub byte_ns: u64,
    /// How long a client's processor works on a message that comes or leaves, in nanoseconds.
    pub client_message_ns: u64,
    /// How much a disk writes in a second, in bytes. The journal and all other files share it.
    pub disk_bytes: u64,
    /// The size to a multiple of which a write of a journal is padded, in bytes.
    pub block_bytes: u64,
    /// A node whose disk is so many times slower than the others'.
    pub slow_disk: Option<(NodeId, u32)>,
    /// How much goes over one connection in one direction in a second, in bytes.
    pub link_bytes: u64,
    /// The same of what clients send, if that goes more slowly.
    pub client_link_bytes: Option<u64>,
    /// How much of what came over a connection is held for a receiver that does not take it, in
    /// bytes.
    pub socket_bytes: usize,
    /// How much waits at a sender for one connection, in bytes: above it a client's connection is
    /// closed, and what is for a node is dropped.
    pub queue_bytes: usize,
    /// How long a node is not scheduled now and then, at most. Whoever runs it gives the processor
    /// to others.
    pub stall: Duration,
    /// How long the thread of its heartbeats alone is not scheduled now and then, at most; as
    /// often.
    pub beats_stall: Duration,
    /// How often that happens, on average.
    pub stall_every: Duration,
    /// How long a client's process is not scheduled now and then, at most; as often.
    pub client_stall: Duration,
    /// For how long clients ask for more. None if they ask for what they always ask for, while all
    /// faults strike: then nothing is judged by what it costs or how long it takes.
    pub load_for: Option<Duration>,
    /// Whether they ask for more than there is, all the time.
    pub saturates: bool,
}

/// The least share of the capacity that has to become stable while clients ask for more.
const GOODPUT: f64 = 0.5;
/// How often a record's bytes pass the processor of the node that has all roles: they come from the
/// client, are journaled, leave for replicas of shards, are written, and journaled there.
const PASSES: u64 = 6;
/// How many messages a record costs that node, where none of them is carried together with others.
const MESSAGES: u64 = 6;
/// How long it takes until the first records are stable, besides what waits before them.
const RAMP: Duration = Duration::from_millis(300);

impl Capacity {
    /// How much a node's disk writes in a second, in bytes.
    #[must_use]
    pub fn disk_bytes_of(&self, node: NodeId) -> u64 {
        match self.slow_disk {
            Some((slow, times)) if slow == node => self.disk_bytes / u64::from(times),
            _ => self.disk_bytes,
        }
    }

    /// How often a record is written to the disk of the node that has all roles: once as it is kept
    /// by a replica of its shard, once as that journals it; and once more where sequencing replicas
    /// journal whole records.
    #[must_use]
    pub fn copies_on_a_disk(config: &LogConfig) -> u64 {
        if config.order.keeps_records() { 3 } else { 2 }
    }

    /// How many bytes of records of this size the slowest disk, processor, or link of the cluster
    /// can take in a second.
    #[must_use]
    pub fn records_bytes(&self, config: &LogConfig, record_bytes: u64) -> u64 {
        let slowest = self.slow_disk.map_or(1, |(_, times)| u64::from(times));
        // All copies but one are in journals, whose writes are padded: by half a block on average,
        // and a record may go alone.
        let copies = Self::copies_on_a_disk(config);
        let written = copies * record_bytes + (copies - 1) * self.block_bytes / 2;
        let disk = self.disk_bytes / slowest * record_bytes / written.max(1);
        let record_ns = MESSAGES * self.message_ns + PASSES * self.byte_ns * record_bytes;
        let processor = record_bytes * 1_000_000_000 / record_ns.max(1);
        disk.min(processor).min(self.client_link_bytes.unwrap_or(self.link_bytes))
    }

    /// How many bytes of records have to be stable at the end of the load, if it saturates the
    /// cluster, sequencing replicas hold `ring_bytes`, and `faults` struck meanwhile, each of which
    /// may cost a second.
    #[must_use]
    pub fn goodput(&self, config: &LogConfig, record_bytes: u64, ring_bytes: u64, faults: u32) -> u64 {
        let rate = self.records_bytes(config, record_bytes) as f64;
        let time = self
            .load_for
            .unwrap_or_default()
            .saturating_sub(RAMP + Duration::from_secs(1) * faults)
            .as_secs_f64();
        ((rate * time - ring_bytes as f64).max(0.0) * GOODPUT) as u64
    }

    /// How long the cluster may take for so many bytes of records.
    #[must_use]
    pub fn time_for(&self, config: &LogConfig, record_bytes: u64, bytes: u64) -> Duration {
        let rate = self.records_bytes(config, record_bytes) as f64 * GOODPUT;
        Duration::from_secs_f64(bytes as f64 / rate.max(1.0))
    }

    /// Whether something is not scheduled now and then.
    #[must_use]
    pub fn stalls(&self) -> bool {
        self.stall.max(self.beats_stall) > Duration::ZERO
    }

    /// How long a node's processor takes for messages and bytes.
    #[must_use]
    pub fn work(&self, messages: u64, bytes: u64) -> Duration {
        Duration::from_nanos(messages * self.message_ns + bytes * self.byte_ns)
    }
}
