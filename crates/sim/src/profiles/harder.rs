//! Harder plans: partial disk losses, payloads of disk contents, late messages, other logs, long
//! faults.

use seriatim_model::Durability;

use super::{accepted_losses, at, busy, disk_losses, quiet, reshaped};
use crate::coverage::FaultKind;
use crate::plan::{Plan, Reshape, Target, Trigger, Workload};
use crate::random::Random;

/// A node returns without its journal or one store file. Later another fault strikes.
pub(super) fn part_losses(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x9A47);
    let mut plan = disk_losses(seed);
    plan.faults[0].kind = random.pick(&[FaultKind::JournalLoss, FaultKind::FileLoss]);
    plan.faults[0].trigger = Trigger::At(random.millis(100, 900));
    plan
}

/// A disk falsely reports syncs, then its node loses power. All other nodes saw the lost state and
/// notice.
pub(super) fn lying_disks(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x11E5);
    let mut plan = disk_losses(seed);
    plan.faults.truncate(1);
    plan.faults[0].kind = FaultKind::LyingDisk;
    plan.faults[0].trigger = Trigger::At(random.millis(100, 700));
    plan.faults[0].lasting = random.millis(100, 400);
    plan
}

/// Clients append pieces of disks: journal headers and batches, frames, segments. Restarting nodes
/// read them.
pub(super) fn own_bytes(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x0B17);
    let mut plan = quiet(seed);
    plan.config.max_record_bytes = 10_000;
    plan.journal.file_bytes = 65_536;
    plan.journal.block_bytes = random.pick(&[512, 4096]);
    plan.workload = Workload {
        appends: 40,
        payload_bytes: random.pick(&[1500, 5000, 9000]),
        payload_of_disks: true,
        resume_percent: 0,
        ..busy()
    };
    for round in 0..random.between(1, 5) {
        let kind =
            random.pick(&[FaultKind::Kill, FaultKind::PowerLoss, FaultKind::PowerCut, FaultKind::CloseAll]);
        let target = random.pick(&[Target::Leader, Target::Shard, Target::Any]);
        plan.faults.push(at(&mut random, kind, target, 50 + round * 300, 300 + round * 300));
    }
    plan
}

/// Connections between nodes break, nodes restart, and messages arrive again up to 600 ms later,
/// over another connection or at another incarnation.
pub(super) fn echoes(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xEC40);
    let mut plan = quiet(seed);
    plan.network.echo_permille = random.pick(&[20, 100, 300]);
    plan.network.straggle_percent = 100;
    plan.network.noise_permille = (random.pick(&[0, 30]), 0, 0);
    plan.config.replicas = random.pick(&[2, 3]);
    plan.workload = Workload { appends: 40, trims: random.percent(30), ends: random.percent(40), ..busy() };
    for round in 0..6 {
        let from = 20 + round * 300;
        plan.faults.push(at(&mut random, FaultKind::Reset, Target::Any, from, from + 250));
        if random.percent(60) {
            let kind =
                random.pick(&[FaultKind::Kill, FaultKind::Close, FaultKind::PowerLoss, FaultKind::Reset]);
            let target = random.pick(&[Target::Leader, Target::Follower, Target::Shard, Target::Controller]);
            plan.faults.push(at(&mut random, kind, target, from, from + 250));
        }
    }
    plan
}

/// [`echoes`] with other logs created and deleted on the same nodes.
pub(super) fn fleeting_logs(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xF1EE);
    let mut plan = echoes(seed);
    plan.nodes = random.pick(&[4, 5]);
    for _ in 0..random.between(2, 5) {
        let comes = random.millis(0, 1200);
        plan.fleeting.push((comes, comes + random.millis(1, 800)));
    }
    for _ in 0..random.between(0, 3) {
        let kind = random.pick(&[
            FaultKind::ControlKill,
            FaultKind::Absence,
            FaultKind::CloseAll,
            FaultKind::PowerCut,
        ]);
        plan.faults.push(at(&mut random, kind, Target::Any, 20, 2000));
    }
    plan
}

/// Clients resume sessions, which end, while more memory is lost than the log can bear: an ended
/// session's positions may be lost and given again.
pub(super) fn resumed_losses(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x5E10);
    let mut plan = accepted_losses(seed);
    plan.workload =
        Workload { resume_percent: 100, ends: random.percent(30), think_us: 10_000, ..plan.workload };
    for round in 0..6 {
        let from = 20 + round * 250;
        for _ in 0..random.between(1, 3) {
            plan.faults.push(at(&mut random, FaultKind::ClientCrash, Target::Any, from, from + 200));
        }
    }
    plan
}

/// Any plan with faults of 1 to 20 s and continuous work.
pub(super) fn long_faults(seed: u64) -> Plan {
    Plan::from_seed(seed).lengthened()
}

/// Shards join and leave a log in memory. Then all processes are killed at once, up to three times:
/// more than the log can bear. Each shard still has the records that were stable early enough
/// before the first kill.
pub(super) fn reshaped_losses(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x4A11);
    let mut plan = reshaped(seed);
    plan.config.durability = Durability::Memory;
    (plan.may_lose_too_much, plan.has_operator) = (true, random.percent(70));
    plan.workload = Workload { appends: 200, trims: random.percent(20), ..plan.workload };
    plan.reshapes.push((random.millis(20, 300), Reshape::Add));
    plan.faults.clear();
    let first = random.between(600, 1800);
    for round in 0..random.between(1, 3) {
        let from = first + round * 300;
        plan.faults.push(at(&mut random, FaultKind::KillAll, Target::Any, from, from + 200));
    }
    plan
}
