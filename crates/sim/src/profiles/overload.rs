//! Plans with more load than capacity.

use std::time::Duration;

use seriatim_model::limits::Limits;
use seriatim_model::{LogConfig, NodeId};
use seriatim_store::{JournalOptions, ShardOptions};

use super::{at, quiet};
use crate::capacity::Capacity;
use crate::coverage::FaultKind;
use crate::history::STAYS_AWAY;
use crate::plan::{Fault, NetworkPlan, Plan, Target, Workload};
use crate::random::Random;

/// Block size of journals, scaled down with the disk: a checkpoint piece takes several blocks and
/// is padded to a whole one.
const BLOCK_BYTES: u64 = 512;
const LOAD_FOR: Duration = Duration::from_millis(2500);
/// Silence after which a node probes a link, and longest time that the link may then stay mute.
const PROBE_AFTER: Duration = Duration::from_millis(50);
const UNHEARD_FOR: Duration = Duration::from_millis(400);
/// Time without progress that ends an attempt at a view, where whole attempts take longer.
const ATTEMPT_FOR: Duration = Duration::from_millis(100);

/// Pauses of the heartbeat thread, drawn separately.
fn beats_stall(seed: u64) -> Duration {
    Random::new(seed ^ 0xBEA7).pick(&[0, 150].map(Duration::from_millis))
}

/// Three nodes with all roles, as in `seriatim dev`, at about a hundredth of real rates and limits.
fn small(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x10AD);
    // The bottleneck is the disk or the processor. A ring is some tenths of a second of work.
    let (disk_bytes, byte_ns, message_ns, ring_bytes) = random.pick(&[
        (500_000, 30, 5_000, 64 << 10),
        (2_000_000, 30, 10_000, 256 << 10),
        (8_000_000, 30, 150_000, 256 << 10),
    ]);
    let ring_bytes = ring_bytes * random.pick(&[1, 2]);
    let capacity = Capacity {
        message_ns,
        byte_ns,
        client_message_ns: 5_000,
        disk_bytes,
        block_bytes: BLOCK_BYTES,
        slow_disk: None,
        link_bytes: random.pick(&[4_000_000, 20_000_000]),
        client_link_bytes: None,
        socket_bytes: ring_bytes / 8,
        queue_bytes: ring_bytes,
        stall: random.pick(&[0, 20, 40].map(Duration::from_millis)),
        beats_stall: beats_stall(seed),
        stall_every: Duration::from_millis(200),
        client_stall: Duration::ZERO,
        load_for: Some(LOAD_FOR),
        saturates: true,
    };
    let mut plan = quiet(seed);
    (plan.nodes, plan.earlier_logs) = (3, 0);
    plan.config = LogConfig {
        shards: random.pick(&[1, 2]),
        replicas: random.pick(&[2, 3]),
        stripe: 64,
        max_record_bytes: 1 << 17,
        ..plan.config
    };
    plan.options.limits = Limits {
        ring_bytes,
        ring_records: ring_bytes / 64,
        journal_backlog_bytes: ring_bytes / 4,
        batch_bytes: ring_bytes / 16,
        ..Limits::default()
    };
    plan.journal = small_journal(ring_bytes);
    plan.shard_options = ShardOptions::new(ring_bytes as u64);
    plan.network = NetworkPlan { delay_us: (20, 80), ..plan.network };
    plan.sync_us = (200, 1500);
    plan.capacity = Some(capacity);
    let payload_bytes = 1024;
    plan.workload = Workload {
        clients: 4,
        sessions: 2,
        appends: u32::MAX,
        // Slightly more than two rings in flight.
        window: (ring_bytes as u64 * 2 / payload_bytes / 8 + 8) as u32,
        burst: 64,
        think_us: 2000,
        sync_percent: 0,
        payload_bytes,
        payload_is_fixed: true,
        tail_percent: 0,
        reads: random.percent(25),
        ..plan.workload
    };
    plan
}

fn small_journal(ring_bytes: usize) -> JournalOptions {
    JournalOptions {
        file_bytes: ring_bytes as u64 / 4,
        batch_bytes: ring_bytes / 8,
        // In a node's usual proportion to its rings.
        checkpoint_bytes: 2 * ring_bytes as u64,
        snapshot_bytes: ring_bytes / 16,
        spare_files: 8,
        block_bytes: BLOCK_BYTES,
    }
}

/// All faults, on nodes with limited resources that also pause: messages queue, and their order
/// changes.
pub(super) fn taking_time(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x7173);
    let mut plan = Plan::from_seed(seed);
    plan.capacity = Some(Capacity {
        message_ns: random.pick(&[5_000, 50_000, 200_000]),
        byte_ns: random.pick(&[30, 300]),
        client_message_ns: 5_000,
        disk_bytes: random.pick(&[200_000, 2_000_000, 20_000_000]),
        block_bytes: plan.journal.block_bytes,
        slow_disk: None,
        link_bytes: random.pick(&[1_000_000, 4_000_000]),
        client_link_bytes: None,
        socket_bytes: random.pick(&[8 << 10, 256 << 10]),
        queue_bytes: 8 << 20,
        stall: random.pick(&[0, 20, 200].map(Duration::from_millis)),
        beats_stall: beats_stall(seed),
        stall_every: Duration::from_millis(300),
        client_stall: Duration::ZERO,
        load_for: None,
        saturates: false,
    });
    plan
}

/// Load within the capacity: clients wait for answers.
pub(super) fn within_capacity(seed: u64) -> Plan {
    let mut plan = small(seed);
    plan.workload.window = 6;
    plan.capacity = plan.capacity.map(|capacity| Capacity { saturates: false, ..capacity });
    plan
}

pub(super) fn overload(seed: u64) -> Plan {
    small(seed)
}

/// Bursts far above what the cluster can hold, with pauses between.
pub(super) fn burst(seed: u64) -> Plan {
    let mut plan = small(seed);
    plan.workload.window *= 4;
    plan.workload.burst = plan.workload.window;
    plan.workload.think_us = 1_200_000;
    plan.capacity = plan.capacity.map(|capacity| Capacity { saturates: false, ..capacity });
    plan
}

/// Clients pause for most of a second while they hold positions, or have slow links. No node
/// failed: the cluster waits for them.
pub(super) fn slow_clients(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x510C);
    let mut plan = within_capacity(seed);
    let client_stall = random.pick(&[300, 900].map(Duration::from_millis));
    let client_message_ns = random.pick(&[5_000, 500_000]);
    // Over the client's link a batch takes half or a quarter of a second.
    let batch_bytes = plan.options.limits.batch_bytes as u64;
    let client_link_bytes = random.pick(&[None, Some(batch_bytes * 2), Some(batch_bytes * 4)]);
    plan.config.shards = 2;
    plan.capacity = plan.capacity.map(|capacity| Capacity {
        client_stall,
        client_message_ns,
        client_link_bytes,
        ..capacity
    });
    plan
}

/// A node dies while clients write to several shards over slow links.
pub(super) fn death_amid_writes(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xDEAD);
    let mut plan = within_capacity(seed);
    let batch_bytes = plan.options.limits.batch_bytes as u64;
    let client_link_bytes = Some(batch_bytes * random.between(8, 32));
    (plan.config.shards, plan.config.stripe) = (2, random.pick(&[1, 2, 8]));
    // The cluster continues without the dead node: the register is on another one.
    (plan.config.replicas, plan.config.min_replicas) = (3, 2);
    plan.nodes = 4;
    plan.capacity = plan.capacity.map(|capacity| Capacity { client_link_bytes, ..capacity });
    let target = Target::Node(NodeId(random.between(2, 4) as u32));
    let fault = at(&mut random, FaultKind::Kill, target, 300, 1000);
    plan.faults.push(Fault { lasting: STAYS_AWAY * 2, ..fault });
    plan
}

/// One session overloads a log with slow syncs: sequential work shows.
pub(super) fn one_session(seed: u64) -> Plan {
    let mut plan = small(seed);
    let ring_bytes = plan.options.limits.ring_bytes as u64;
    (plan.config.shards, plan.config.stripe) = (2, 4);
    (plan.workload.clients, plan.workload.sessions) = (1, 1);
    plan.workload.window = (ring_bytes * 2 / plan.workload.payload_bytes) as u32;
    plan.sync_us = (2_000, 10_000);
    // In some orderings a session uses one shard at a time and leaves other disks idle.
    plan.capacity = plan.capacity.map(|capacity| Capacity { saturates: false, ..capacity });
    plan
}

/// [`overload`]; one node dies and returns.
pub(super) fn overload_crash(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xC4A5);
    let mut plan = small(seed);
    let target = random.pick(&[Target::Leader, Target::Follower, Target::Any]);
    let kind = random.pick(&[FaultKind::Kill, FaultKind::PowerLoss]);
    plan.faults.push(at(&mut random, kind, target, 300, 1000));
    plan
}

/// Only heartbeats pass between some nodes, until long after the load.
pub(super) fn mute(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x307E);
    let mut plan = within_capacity(seed);
    plan.options.limits.probe_after = PROBE_AFTER;
    plan.options.limits.unheard_for = UNHEARD_FOR;
    let target = random.pick(&[Target::Leader, Target::Follower, Target::Any]);
    let fault = at(&mut random, FaultKind::Mute, target, 300, 1000);
    plan.faults.push(Fault { lasting: LOAD_FOR * 4, ..fault });
    plan
}

/// A sequencing replica dies with many bytes in flight: the view change takes seconds.
pub(super) fn long_view_change(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x51F);
    let mut plan = small(seed);
    let ring_bytes = plan.options.limits.ring_bytes as u64;
    plan.capacity = plan.capacity.map(|capacity| Capacity {
        message_ns: 5_000,
        disk_bytes: ring_bytes / 2,
        load_for: Some(Duration::from_secs(4)),
        saturates: false,
        ..capacity
    });
    plan.options.limits.attempt_for = ATTEMPT_FOR;
    plan.faults.push(at(&mut random, FaultKind::Kill, Target::Follower, 3000, 3500));
    plan
}

/// [`overload`] with clients that lose their connections and resend everything unacknowledged.
/// Goodput is not judged: clients spend half of the time reconnecting.
pub(super) fn overload_resets(seed: u64) -> Plan {
    let mut plan = small(seed);
    plan.capacity = plan.capacity.map(|capacity| Capacity { saturates: false, ..capacity });
    plan.workload.reset_every = Some(Duration::from_millis(40));
    plan
}

/// [`overload`] with one disk ten times slower.
pub(super) fn overload_slow_disk(seed: u64) -> Plan {
    let mut plan = small(seed);
    let slow = NodeId((seed % u64::from(plan.nodes)) as u32 + 1);
    plan.capacity = plan.capacity.map(|capacity| Capacity { slow_disk: Some((slow, 10)), ..capacity });
    plan
}

/// [`overload`] with ten appends per second to a second log.
pub(super) fn two_logs(seed: u64) -> Plan {
    let mut plan = small(seed);
    plan.second_log_every = Some(Duration::from_millis(100));
    // The note that another file follows takes one block per file.
    plan.journal.file_bytes += BLOCK_BYTES;
    plan
}

/// Many small records, few in flight: the log is long compared with everything bounded.
pub(super) fn long_log(seed: u64) -> Plan {
    let mut plan = small(seed);
    // Each record is a run of its own in the shards' position maps.
    (plan.config.shards, plan.config.stripe) = (2, 1);
    plan.workload.payload_bytes = 64;
    (plan.workload.sessions, plan.workload.window) = (8, 8);
    plan.workload.reads = false;
    plan.options.limits.ring_records = 256;
    plan.capacity = plan.capacity.map(|capacity| Capacity {
        message_ns: 2_000,
        disk_bytes: 8_000_000,
        load_for: Some(Duration::from_millis(800)),
        saturates: false,
        ..capacity
    });
    plan
}

/// Records as large as a batch; a few fill a ring.
pub(super) fn large_records(seed: u64) -> Plan {
    let mut plan = small(seed);
    let ring_bytes = plan.options.limits.ring_bytes as u64;
    plan.workload.payload_bytes = ring_bytes / 32;
    plan.workload.window = 10;
    plan.workload.burst = 4;
    plan
}
