//! Plans with one thing that goes wrong early and stays so, or for seconds: what clients want is done all the same.

use std::time::Duration;

use super::{FOR_GOOD, at, busy, quiet};
use crate::coverage::FaultKind;
use crate::plan::{Fault, Plan, Target, Workload};
use crate::random::Random;

/// A node is cut off from all other nodes for good, but not from the clients: connections stand while nothing passes, or
/// are reset. It has little room, so that it is soon full of what it cannot get rid of. Everything that clients want is
/// done without it.
#[must_use]
pub fn cut_off(seed: u64) -> Plan {
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

/// One node is lost for good, in any of the ways in which a node is lost, while most of the work is still to be done: a disk
/// that is full for good is one of them. Everything that clients want is done without it.
#[must_use]
pub fn lost_for_good(seed: u64) -> Plan {
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

/// The disk of one node is full for good.
#[must_use]
pub fn full_for_good(seed: u64) -> Plan {
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
    plan
}

/// A single fault, early: of each kind in turn, for a moment or for seconds.
#[must_use]
pub fn one_fault(seed: u64) -> Plan {
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
