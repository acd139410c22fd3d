//! Plans with one early, lasting fault: clients' requests complete nevertheless.

use std::time::Duration;

use seriatim_model::retention::LimitChange;
use seriatim_model::{Durability, LogConfig, NodeId, Retention, RetentionChange};
use seriatim_store::{JournalOptions, ShardOptions};

use super::{FOR_GOOD, at, busy, quiet};
use crate::coverage::FaultKind;
use crate::plan::{Clocks, Departure, DiskPlan, Fault, PinChange, Plan, Reshape, Target, Workload};
use crate::random::Random;

/// A node is permanently cut off from all nodes, but not from clients: connections stall or break.
/// It soon fills up. All requests complete without it.
pub(super) fn cut_off(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xC07);
    let mut plan = quiet(seed);
    plan.config.shards = random.pick(&[1, 1, 2]);
    plan.options.limits.ring_records = random.pick(&[8, 32, 10_000]);
    plan.workload = Workload {
        appends: random.pick(&[10, 60]),
        window: random.pick(&[1, 8, 30]),
        think_us: random.pick(&[200, 8000, 40_000]),
        sync_percent: random.pick(&[0, 10, 100]),
        tail_percent: random.pick(&[5, 100]),
        lookups: random.pick(&[0, 2]),
        trims: random.percent(40),
        ends: random.percent(50),
        resume_percent: 0,
        ..busy()
    };
    let target = random.pick(&[Target::Leader, Target::Leader, Target::Primary, Target::Follower]);
    let cut = at(&mut random, FaultKind::Partition, target, 1, 300);
    plan.faults.push(Fault { lasting: FOR_GOOD, ..cut });
    plan.done_without_calm = Some(Duration::from_secs(20));
    plan
}

/// One node is lost permanently, for example by a crash or a full disk. All requests complete
/// without it.
pub(super) fn lost_for_good(seed: u64) -> Plan {
    let kinds = [
        FaultKind::Kill,
        FaultKind::PowerLoss,
        FaultKind::Pause,
        FaultKind::Mute,
        FaultKind::OneWay,
        FaultKind::PartialPartition,
        FaultKind::SlowDisk,
        FaultKind::SlowNode,
        FaultKind::DiskFull,
    ];
    for_good(seed, &kinds)
}

pub(super) fn full_for_good(seed: u64) -> Plan {
    for_good(seed, &[FaultKind::DiskFull])
}

fn for_good(seed: u64, kinds: &[FaultKind]) -> Plan {
    let mut random = Random::new(seed ^ 0x1057);
    let mut plan = cut_off(seed);
    plan.faults.clear();
    let kind = random.pick(kinds);
    let target = random.pick(&[Target::Leader, Target::Primary, Target::Follower, Target::Shard]);
    let fault = at(&mut random, kind, target, 1, 300);
    plan.faults.push(Fault { lasting: FOR_GOOD, ..fault });
    plan.options.limits.replace_after = random.millis(500, 3000);
    plan
}

/// An operator polls the status while shard replicas, mostly without backups, are down for longer
/// than a timeout.
pub(super) fn absent_primaries(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xAB57);
    let mut plan = quiet(seed);
    (plan.has_operator, plan.asks_nodes) = (true, true);
    plan.network.noise_permille = (if random.percent(30) { 100 } else { 0 }, 20, 20);
    // Correct clocks, so that the operator can search by time.
    plan.clocks = Some(Clocks::default());
    plan.config =
        LogConfig { shards: random.between(1, 3) as u32, replicas: random.pick(&[1, 1, 2]), ..plan.config };
    for round in 0..random.between(1, 3) {
        let kind = random.pick(&[FaultKind::Kill, FaultKind::Close, FaultKind::PowerLoss, FaultKind::Pause]);
        let target = random.pick(&[Target::Shard, Target::Primary, Target::Leader]);
        let fault = at(&mut random, kind, target, 20 + round * 300, 200 + round * 300);
        plan.faults.push(Fault { lasting: random.millis(300, 2500), ..fault });
    }
    if random.percent(50) {
        plan.reshapes.push((random.millis(100, 1500), Reshape::Add));
    }
    plan
}

/// All disks are small and repeatedly full, while read records are trimmed, other logs come and go,
/// and nodes restart. Only trims and deletions make room. All requests complete.
pub(super) fn small_disks(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x5D15);
    let mut plan = quiet(seed);
    plan.nodes = random.pick(&[3, 3, 5]);
    plan.config = LogConfig {
        shards: random.pick(&[1, 1, 2]),
        replicas: random.pick(&[1, 2, 3]),
        min_replicas: random.pick(&[1, 2]),
        durability: random.pick(&[Durability::Disk, Durability::Disk, Durability::Disk, Durability::Memory]),
        ..plan.config
    };
    // Sizes in the same proportions as on a server.
    plan.journal = JournalOptions {
        file_bytes: FILE_BYTES,
        batch_bytes: FILE_BYTES as usize / 2,
        checkpoint_bytes: 4 * FILE_BYTES,
        snapshot_bytes: random.pick(&[2000, 8000]),
        spare_files: random.pick(&[0, 2, 8]),
        block_bytes: 512,
    };
    plan.shard_options = ShardOptions::new(4 * FILE_BYTES);
    let limits = &mut plan.options.limits;
    (limits.ring_bytes, limits.journal_backlog_bytes) = (2 * FILE_BYTES as usize, FILE_BYTES as usize / 2);
    limits.batch_bytes = FILE_BYTES as usize / 16;
    plan.disk = DiskPlan {
        most: Some(FILE_BYTES * (random.between(16, 32) + 16 * u64::from(plan.config.shards))),
        low: 2 * FILE_BYTES,
        enough: 6 * FILE_BYTES,
    };
    plan.workload = Workload {
        appends: 300,
        payload_bytes: 600,
        think_us: random.pick(&[200, 8000]),
        sync_percent: random.pick(&[0, 10]),
        trims: true,
        resume_percent: 0,
        ..busy()
    };
    for _ in 0..random.below(4) {
        let comes = random.millis(0, 1200);
        plan.fleeting.push((comes, comes + random.millis(1, 800)));
    }
    for round in 0..random.below(4) {
        let kind = random.pick(&[FaultKind::Kill, FaultKind::Close, FaultKind::PowerLoss, FaultKind::Reset]);
        plan.faults.push(at(&mut random, kind, Target::Any, 100 + round * 500, 600 + round * 500));
    }
    plan.done_without_calm = Some(Duration::from_secs(120));
    plan
}

/// A log with small, changing limits, while wall clocks jump, and nodes restart or are absent.
pub(super) fn limited(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x11A1);
    let mut plan = quiet(seed);
    plan.nodes = random.pick(&[3, 5, 5]);
    plan.config = LogConfig {
        shards: random.pick(&[1, 1, 2]),
        replicas: random.pick(&[1, 2, 2, 3]),
        min_replicas: random.pick(&[1, 2]),
        durability: random.pick(&[Durability::Disk, Durability::Disk, Durability::Memory]),
        ..plan.config
    };
    plan.shard_options = ShardOptions::new(random.pick(&[6000, 50_000]));
    let limits = &mut plan.options.limits;
    limits.retain_every = random.pick(&[20, 50, 200].map(Duration::from_millis));
    limits.retain_every_idle = Duration::from_millis(500);
    limits.replace_after = random.millis(100, 2000);
    plan.workload = Workload {
        appends: random.pick(&[60, 300]),
        payload_bytes: 600,
        think_us: random.pick(&[4000, 20_000, 80_000]),
        ..busy()
    };
    let kept = |random: &mut Random| Retention {
        age_ms: random.percent(40).then(|| random.between(1000, 2500)),
        bytes: random.percent(50).then(|| random.between(65_536, 200_000)),
        records: random.percent(30).then(|| random.between(1, 300)),
    };
    plan.config.retention = kept(&mut random);
    for _ in 0..random.pick(&[0, 0, 1, 2]) {
        let change = |limit: Option<u64>| limit.map_or(LimitChange::Lift, LimitChange::Set);
        let Retention { age_ms, bytes, records } = kept(&mut random);
        let change =
            RetentionChange { age_ms: change(age_ms), bytes: change(bytes), records: change(records) };
        plan.limit_changes.push((random.millis(0, 2500), change));
    }
    let mut clocks = Clocks::default();
    for _ in 0..plan.nodes {
        clocks.ahead_ms.push(random.between(0, 400).cast_signed() - 200);
    }
    for _ in 0..random.pick(&[0, 0, 1, 3]) {
        let node = NodeId(random.between(1, u64::from(plan.nodes)) as u32);
        let lasting = if random.percent(30) { FOR_GOOD } else { random.millis(10, 1500) };
        let by = random.pick(&[-3_600_000, 3_600_000, 3_600_000, 100_000_000]);
        clocks.jumps.push((random.millis(0, 2500), lasting, node, by));
    }
    // At most one of a node's clocks is wrong.
    let jump = if clocks.jumps.is_empty() { FaultKind::ClockJump } else { FaultKind::Pause };
    plan.clocks = Some(clocks);
    for round in 0..random.below(5) {
        let kind = random.pick(&[
            FaultKind::Kill,
            FaultKind::Close,
            FaultKind::PowerLoss,
            FaultKind::PowerCut,
            FaultKind::Partition,
            FaultKind::Pause,
            jump,
            FaultKind::Absence,
            FaultKind::DiskLoss,
            FaultKind::Loss,
        ]);
        let target = random.pick(&[Target::Any, Target::Leader, Target::Leader, Target::Shard]);
        plan.faults.push(at(&mut random, kind, target, 100 + round * 500, 600 + round * 500));
    }
    plan.pin_changes = pin_changes(&mut random);
    plan
}

/// In most plans, up to three pins.
fn pin_changes(random: &mut Random) -> Vec<(Duration, PinChange)> {
    let count = if random.percent(60) { random.between(1, 12) } else { 0 };
    let changes = (0..count).map(|_| {
        let name = random.below(3);
        let change = match random.percent(15) {
            true => PinChange::Remove { name },
            false => PinChange::Set {
                name,
                back: random.between(0, 100),
                most_bytes: random.pick(&[None, None, Some(65_536)]),
            },
        };
        (random.millis(0, 1200), change)
    });
    changes.collect()
}

/// Nodes leave, in turn or two at once: they are drained, or replaced if already lost, then stop
/// permanently and are removed; or their departure is revoked. Other nodes restart, are cut off or
/// lose messages.
pub(super) fn departures(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xDE9A);
    let mut plan = quiet(seed);
    plan.nodes = random.pick(&[4, 5, 5, 6, 7]);
    plan.config = LogConfig {
        shards: random.pick(&[1, 1, 2, 3]),
        replicas: random.pick(&[1, 2, 2, 3]),
        min_replicas: random.pick(&[1, 2]),
        durability: random.pick(&[Durability::Disk, Durability::Disk, Durability::Memory]),
        ..plan.config
    };
    plan.options.limits.replace_after = random.millis(500, 20_000);
    plan.workload = Workload {
        appends: random.pick(&[60, 300]),
        think_us: random.pick(&[4000, 20_000, 40_000]),
        trims: random.percent(30),
        ..busy()
    };
    for round in 0..random.between(1, 2) {
        let target = random.pick(&[Target::Any, Target::Leader, Target::Primary, Target::Shard]);
        let departure = Departure {
            target,
            is_lost: random.percent(25),
            has_successor: random.percent(30),
            stays_after: random.percent(15).then(|| random.millis(10, 1500)),
        };
        let after = random.millis(20, 300) + Duration::from_millis(round * random.pick(&[0, 1000]));
        plan.departures.push((after, departure));
    }
    for round in 0..random.below(5) {
        let kind = random.pick(&[
            FaultKind::Kill,
            FaultKind::Kill,
            FaultKind::Close,
            FaultKind::PowerLoss,
            FaultKind::Partition,
            FaultKind::Pause,
            FaultKind::ControlKill,
            FaultKind::Absence,
            FaultKind::Loss,
            FaultKind::DiskFull,
        ]);
        let target = random.pick(&[Target::Any, Target::Leader, Target::Shard, Target::Primary]);
        let fault = at(&mut random, kind, target, 50 + round * 500, 550 + round * 500);
        plan.faults.push(Fault { lasting: random.millis(5, 1500), ..fault });
    }
    plan
}

const FILE_BYTES: u64 = 16_384;

/// A single early fault, of each kind in turn, for a moment or for seconds.
pub(super) fn one_fault(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x01F);
    let mut plan = quiet(seed);
    let kind = FaultKind::ALL[(seed % FaultKind::ALL.len() as u64) as usize];
    let target =
        random.pick(&[Target::Any, Target::Leader, Target::Primary, Target::Follower, Target::Shard]);
    let fault = at(&mut random, kind, target, 1, 60);
    let lasting = if random.percent(30) { random.millis(1000, 20_000) } else { fault.lasting };
    plan.faults.push(Fault { lasting, ..fault });
    plan
}
