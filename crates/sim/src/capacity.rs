//! Capacity of a simulated cluster.
//!
//! Without a [`Capacity`] work takes no time and messages have no size: such a run tests message
//! order, not load.

use std::time::Duration;

use seriatim_model::{LogConfig, NodeId};

/// Rates and buffer sizes of a cluster. All are far below a server's: only their ratios matter.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Time of a node's only processor per message received or sent, in nanoseconds.
    pub message_ns: u64,
    /// Processor time of a node per byte received, sent or written, in nanoseconds.
    pub byte_ns: u64,
    /// Time of a client's processor per message, in nanoseconds.
    pub client_message_ns: u64,
    /// Disk write rate in bytes per second.
    pub disk_bytes: u64,
    /// Journal writes are padded to a multiple of this, in bytes.
    pub block_bytes: u64,
    /// A node and how many times slower its disk is.
    pub slow_disk: Option<(NodeId, u32)>,
    /// Rate of a connection per direction, in bytes per second.
    pub link_bytes: u64,
    /// Rate of a connection from a client, in bytes per second. `None`: `link_bytes`.
    pub client_link_bytes: Option<u64>,
    /// Received bytes that a connection buffers until its receiver reads them.
    pub socket_bytes: usize,
    /// Bytes that a connection queues at its sender. If they exceed this, a client's connection is
    /// closed; messages for a node are dropped.
    pub queue_bytes: usize,
    /// Longest pause of a node, as when its host runs other processes.
    pub stall: Duration,
    /// Longest pause of a node's heartbeat thread alone.
    pub beats_stall: Duration,
    /// Mean time between pauses of nodes, heartbeat threads and clients.
    pub stall_every: Duration,
    /// Longest pause of a client's process.
    pub client_stall: Duration,
    /// Duration of the load. `None`: the usual workload during all faults; checkers judge no cost
    /// or duration.
    pub load_for: Option<Duration>,
    /// Whether clients always exceed the capacity.
    pub saturates: bool,
}

/// Fraction of the capacity at which records must become stable under load.
const GOODPUT: f64 = 0.5;
/// How often the processor of a node with all roles handles a record's bytes: receives, journals,
/// sends to shards, writes, journals there.
const PASSES: u64 = 6;
/// Messages per record on that node, without batching.
const MESSAGES: u64 = 6;
/// Time until the first records are stable.
const RAMP: Duration = Duration::from_millis(300);

impl Capacity {
    /// A node's disk write rate, in bytes per second.
    #[must_use]
    pub fn disk_bytes_of(&self, node: NodeId) -> u64 {
        match self.slow_disk {
            Some((slow, times)) if slow == node => self.disk_bytes / u64::from(times),
            _ => self.disk_bytes,
        }
    }

    /// Disk writes per record on a node with all roles: the shard's files and journal, and the
    /// sequencing replica's journal if it keeps records.
    #[must_use]
    pub fn copies_on_a_disk(config: &LogConfig) -> u64 {
        if config.order.keeps_records() { 3 } else { 2 }
    }

    /// Bytes per second that the slowest disk, processor or link takes, in records of
    /// `record_bytes`.
    #[must_use]
    pub fn records_bytes(&self, config: &LogConfig, record_bytes: u64) -> u64 {
        let slowest = self.slow_disk.map_or(1, |(_, times)| u64::from(times));
        // All copies but one are in journals, padded by half a block on average.
        let copies = Self::copies_on_a_disk(config);
        let written = copies * record_bytes + (copies - 1) * self.block_bytes / 2;
        let disk = self.disk_bytes / slowest * record_bytes / written.max(1);
        let record_ns = MESSAGES * self.message_ns + PASSES * self.byte_ns * record_bytes;
        let processor = record_bytes * 1_000_000_000 / record_ns.max(1);
        disk.min(processor).min(self.client_link_bytes.unwrap_or(self.link_bytes))
    }

    /// Bytes of records that must be stable after a saturating load. Each of the `faults` may cost
    /// a second.
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

    /// Time allowed until `bytes` of records are stable.
    #[must_use]
    pub fn time_for(&self, config: &LogConfig, record_bytes: u64, bytes: u64) -> Duration {
        let rate = self.records_bytes(config, record_bytes) as f64 * GOODPUT;
        Duration::from_secs_f64(bytes as f64 / rate.max(1.0))
    }

    /// Whether nodes or their heartbeat threads pause.
    #[must_use]
    pub fn stalls(&self) -> bool {
        self.stall.max(self.beats_stall) > Duration::ZERO
    }

    /// Processor time of a node for these messages and bytes.
    #[must_use]
    pub fn work(&self, messages: u64, bytes: u64) -> Duration {
        Duration::from_nanos(messages * self.message_ns + bytes * self.byte_ns)
    }
}
