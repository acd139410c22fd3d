//! Plans for logs with quotas (positions assigned to shards in advance): bursts of load, and shards
//! that others wait for.

use std::time::Duration;

use super::{at, busy, quiet};
use crate::coverage::FaultKind;
use crate::plan::{Fault, Plan, Target, Trigger, Workload};
use crate::random::Random;

/// Shards are busy in turn, so that quotas never fit, while views sometimes change.
pub(super) fn bursts(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xB5_57);
    let mut plan = quiet(seed);
    plan.config.shards = random.pick(&[2, 3]);
    plan.config.stripe = random.pick(&[1, 20, 60]);
    plan.workload = Workload {
        clients: 3,
        sessions: 1,
        appends: 200,
        window: 60,
        burst: random.pick(&[10, 30, 50]),
        think_us: random.pick(&[10_000, 30_000]),
        resume_percent: 30,
        ..busy()
    };
    for round in 0..random.below(4) {
        let target = random.pick(&[Target::Leader, Target::Follower, Target::Shard, Target::Primary]);
        let kind = random.pick(&[FaultKind::Kill, FaultKind::PowerLoss]);
        plan.faults.push(at(&mut random, kind, target, 100 + round * 500, 500 + round * 500));
    }
    plan
}

/// Bursts of all clients with long pauses: windows with and without quotas alternate.
pub(super) fn waves(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x3A_7E);
    let mut plan = bursts(seed);
    plan.workload = Workload {
        clients: 4,
        appends: 400,
        window: random.pick(&[20, 60]),
        burst: random.pick(&[1, 20, 40]),
        think_us: random.pick(&[3000, 12_000]),
        ..plan.workload
    };
    plan.faults.truncate(2);
    plan
}

/// All replicas of a shard die or are cut off, and return shortly before or after the log continues
/// without them, or much later. In the end everything is readable; or their disks are lost and an
/// operator accepts the loss.
pub(super) fn lost_shards(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x10_57_5A);
    let mut plan = quiet(seed);
    plan.nodes = random.pick(&[6, 7, 8]);
    plan.config.shards = random.pick(&[2, 3]);
    plan.config.replicas = random.pick(&[1, 2, 2]);
    plan.config.min_replicas = random.pick(&[1, 2]);
    plan.network.noise_permille = (random.pick(&[0, 30]), 0, random.pick(&[0, 100]));
    plan.options.limits.retire_after = random.millis(20, 300);
    plan.workload = Workload {
        clients: 3,
        sessions: 1,
        appends: 250,
        window: 20,
        burst: random.pick(&[1, 2, 4]),
        think_us: random.pick(&[4000, 16_000]),
        keyed: random.percent(30),
        resume_percent: 30,
        ..busy()
    };
    plan.has_operator = random.percent(60);
    let rounds = 1 + random.below(3);
    for round in 0..rounds {
        let kind =
            random.pick(&[FaultKind::Kill, FaultKind::Kill, FaultKind::PowerLoss, FaultKind::Partition]);
        let (from, to) = (80 + round * 600, 400 + round * 600);
        let fault = at(&mut random, kind, Target::WholeShard, from, to);
        let lasting = if random.percent(20) { random.millis(10, 200) } else { random.millis(300, 2500) };
        plan.faults.push(Fault { lasting, ..fault });
        if random.percent(40) {
            let target = random.pick(&[Target::Leader, Target::Follower, Target::Shard, Target::Primary]);
            plan.faults.push(at(&mut random, FaultKind::Kill, target, from, to));
        }
        if plan.has_operator && random.percent(50) {
            let (from, to) = (from + 100, to + 600);
            plan.faults.push(at(&mut random, FaultKind::DiskLoss, Target::RetiredShard, from, to));
        }
    }
    plan
}

/// Replicas of one shard after the other are slow until the shard loses its turns. Some nodes die.
pub(super) fn slow_shards(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x51_0A);
    let mut plan = quiet(seed);
    plan.config.shards = random.pick(&[2, 2, 3]);
    plan.workload = Workload {
        appends: 150,
        window: 20,
        burst: random.pick(&[2, 8]),
        think_us: random.pick(&[2000, 6000]),
        resume_percent: 30,
        ..busy()
    };
    for round in 0..4 {
        let (from, to) = (50 + round * 400, 250 + round * 400);
        let kind = random.pick(&[FaultKind::SlowNode, FaultKind::SlowDisk, FaultKind::SlowLinks]);
        let slow = at(&mut random, kind, Target::Shard, from, to);
        plan.faults.push(Fault { lasting: random.millis(100, 700), ..slow });
        if random.percent(25) {
            let target = random.pick(&[Target::Leader, Target::Shard, Target::Primary]);
            let trigger = Trigger::At(random.millis(from, to));
            let lasting = Duration::from_millis(random.between(5, 60));
            plan.faults.push(Fault { trigger, kind: FaultKind::Kill, target, lasting });
        }
    }
    plan
}
