//! Plans that soon expose a particular kind of defect.

mod harder;
mod lasting;
mod overload;
mod players;
mod table;
mod windows;

use std::time::Duration;

use seriatim_model::limits::{Limits, MISSING_FOR};
use seriatim_model::{Durability, LogConfig};
use seriatim_store::{JournalOptions, ShardOptions};

use crate::coverage::{FaultKind, Step};
use crate::plan::{Fault, NetworkPlan, Plan, Reshape, Target, Trigger, Workload};
use crate::random::Random;

pub use table::*;

/// Five nodes without faults: three order records, the others hold them. The register is on its own
/// node.
fn quiet(seed: u64) -> Plan {
    Plan {
        nodes: 5,
        earlier_logs: 1,
        config: LogConfig {
            durability: Durability::Disk,
            shards: 2,
            replicas: 2,
            sequencers: 3,
            stripe: 1,
            max_record_bytes: 600,
            ..LogConfig::default()
        },
        options: seriatim_protocol::Options {
            limits: Limits { orphan_check_after: Duration::from_secs(1), ..Limits::default() },
            ..seriatim_protocol::Options::default()
        },
        nodes_differ: false,
        lasts_long: false,
        journal: JournalOptions { file_bytes: 65_536, ..JournalOptions::default() },
        shard_options: ShardOptions::default(),
        network: NetworkPlan {
            delay_us: (50, 1000),
            noise_permille: (0, 0, 0),
            straggle_percent: 30,
            echo_permille: 0,
        },
        sync_us: (100, 1000),
        workload: busy(),
        faults: vec![],
        may_lose_too_much: false,
        has_operator: false,
        asks_nodes: false,
        reshapes: vec![],
        ..Plan::from_seed(seed)
    }
}

/// Many clients that append continuously, and read.
fn busy() -> Workload {
    Workload {
        keyed: false,
        clients: 4,
        sessions: 2,
        appends: 60,
        per_session: None,
        window: 8,
        burst: 3,
        think_us: 8000,
        sync_percent: 10,
        oversize_permille: 0,
        payload_bytes: 30,
        payload_is_fixed: false,
        payload_of_disks: false,
        tail_percent: 10,
        reads: true,
        lookups: 0,
        trims: false,
        resume_percent: 60,
        lives_on_percent: 0,
        cut_off_most_ms: 0,
        long_pause_percent: 0,
        ends: false,
        unordered: false,
        reset_every: None,
    }
}

/// Longer than any run.
const FOR_GOOD: Duration = Duration::from_secs(600);

fn at(random: &mut Random, kind: FaultKind, target: Target, from_ms: u64, to_ms: u64) -> Fault {
    let trigger = Trigger::At(random.millis(from_ms, to_ms));
    Fault { trigger, kind, target, lasting: random.millis(5, 60) }
}

/// Sequencing replicas restart repeatedly, and messages are lost.
fn churn(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xC4);
    let mut plan = quiet(seed);
    plan.network.noise_permille = (random.between(0, 150), 20, 20);
    for round in 0..5 {
        let target = random.pick(&[Target::Leader, Target::Follower, Target::Follower]);
        let kind = random.pick(&[FaultKind::Kill, FaultKind::PowerLoss, FaultKind::DoubleKill]);
        plan.faults.push(at(&mut random, kind, target, 30 + round * 350, 150 + round * 350));
    }
    plan
}

/// For orderings that assign positions first: chains change, messages are lost, and clients die
/// holding positions.
fn chains(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xC0);
    let mut plan = quiet(seed);
    plan.config.replicas = 3;
    plan.network.noise_permille = (random.between(5, 60), 20, 20);
    plan.workload = Workload { tail_percent: 60, sync_percent: 0, ..plan.workload };
    for round in 0..5 {
        let (from, to) = (30 + round * 300, 150 + round * 300);
        let target = random.pick(&[Target::Leader, Target::Shard, Target::Any]);
        let kind = random.pick(&[FaultKind::Kill, FaultKind::Partition, FaultKind::PowerLoss]);
        plan.faults.push(at(&mut random, kind, target, from, to));
        plan.faults.push(at(&mut random, FaultKind::ClientCrash, Target::Any, from, to));
    }
    plan
}

/// For orderings by cuts: shards and ordering layer change, messages are lost and reordered, and
/// clients die.
fn cuts(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xC75);
    let mut plan = quiet(seed);
    plan.config = LogConfig { replicas: 3, min_replicas: 1, ..plan.config };
    plan.network.noise_permille = (random.between(5, 60), 20, 60);
    plan.workload = Workload { tail_percent: 40, sync_percent: 0, ..plan.workload };
    for round in 0..5 {
        let (from, to) = (30 + round * 300, 150 + round * 300);
        let target = random.pick(&[Target::Leader, Target::Follower, Target::Shard, Target::Any]);
        let kind = random.pick(&[FaultKind::Kill, FaultKind::Partition, FaultKind::PowerLoss]);
        plan.faults.push(at(&mut random, kind, target, from, to));
        plan.faults.push(at(&mut random, FaultKind::ClientCrash, Target::Any, from, to));
    }
    plan
}

/// Sessions end during view changes.
fn endings(seed: u64) -> Plan {
    let mut plan = churn(seed);
    plan.workload = Workload { appends: 6, ends: true, ..plan.workload };
    plan
}

/// Programs open more sessions than the log remembers. Messages are late and duplicated, and
/// replicas die.
fn many_sessions(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x5E55);
    let mut plan = quiet(seed);
    plan.options.limits.max_sessions = random.pick(&[6, 12, 40]);
    plan.options.limits.ring_records = random.pick(&[3, 32, 10_000]);
    plan.network.delay_us = random.pick(&[(50, 1000), (10, 8000)]);
    plan.network.noise_permille = (random.between(0, 60), 100, 100);
    plan.workload = Workload {
        appends: 50,
        per_session: Some(random.between(1, 4) as u32),
        window: 4,
        think_us: random.pick(&[2000, 8000]),
        tail_percent: 0,
        resume_percent: 50,
        ends: random.percent(30),
        unordered: random.percent(30),
        ..busy()
    };
    for round in 0..random.below(5) {
        let from = 20 + round * 300;
        let target = random.pick(&[Target::Leader, Target::Follower, Target::Shard]);
        let kind =
            random.pick(&[FaultKind::Kill, FaultKind::PowerLoss, FaultKind::Close, FaultKind::ClientCrash]);
        plan.faults.push(at(&mut random, kind, target, from, from + 250));
    }
    plan
}

/// A view is formed without the leader, which is cut off from all nodes, but not from clients.
fn leader_cut_off(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x1E);
    let mut plan = quiet(seed);
    plan.config = LogConfig { shards: 1, replicas: 1, ..plan.config };
    plan.workload = Workload {
        sessions: 1,
        appends: 25,
        window: 2,
        burst: 1,
        think_us: 40_000,
        tail_percent: 100,
        long_pause_percent: 25,
        ..busy()
    };
    let cut = at(&mut random, FaultKind::Partition, Target::Leader, 100, 200);
    plan.faults.push(Fault { lasting: Duration::from_millis(2000), ..cut });
    plan.faults.push(at(&mut random, FaultKind::Close, Target::Follower, 210, 250));
    plan
}

/// Nodes with only shard replicas restart: views change while all sequencing replicas are up.
fn shard_restarts(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x5A);
    let mut plan = quiet(seed);
    plan.workload = Workload { think_us: 30_000, reads: false, ..busy() };
    for round in 0..5 {
        let from = 20 + round * 100;
        let fault = at(&mut random, FaultKind::Kill, Target::Shard, from, from + 60);
        plan.faults.push(Fault { lasting: random.millis(1, 5), ..fault });
    }
    plan
}

/// Controllers fail to finish view changes: attempts end before the view is registered.
fn dying_attempts(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xDA);
    let mut plan = quiet(seed);
    plan.workload.think_us = 3000;
    for round in 0..4 {
        let from = 20 + round * 400;
        plan.faults.push(at(&mut random, FaultKind::Kill, Target::Follower, from, from + 100));
        let step = random.pick(&[Step::Flush, Step::Stage, Step::Register]);
        let trigger = Trigger::Step(step, Duration::from_millis(from));
        let lasting = random.millis(1, 30);
        plan.faults.push(Fault { trigger, kind: FaultKind::ControlKill, target: Target::Any, lasting });
    }
    plan
}

/// Messages are reordered, and each session appends little.
fn disorder(seed: u64) -> Plan {
    let mut plan = quiet(seed);
    plan.network.noise_permille = (0, 0, 300);
    plan.options.limits.batch_records = 1;
    plan.workload = Workload { appends: 12, window: 1, burst: 1, ..busy() };
    plan
}

/// Leaders die repeatedly, and every third message is lost.
fn dying_leaders(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xD1);
    let mut plan = quiet(seed);
    plan.network.noise_permille = (300, 0, 0);
    plan.workload = Workload { appends: 40, reads: false, ..busy() };
    for round in 0..6 {
        plan.faults.push(at(
            &mut random,
            FaultKind::Kill,
            Target::Follower,
            20 + round * 350,
            40 + round * 350,
        ));
        plan.faults.push(at(
            &mut random,
            FaultKind::Kill,
            Target::Leader,
            100 + round * 350,
            350 + round * 350,
        ));
    }
    plan
}

/// Leaders die while readers receive their unstable records, and missing records become no-ops.
fn lost_leaders(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x10_57_1E);
    let mut plan = quiet(seed);
    plan.network.noise_permille = (random.pick(&[0, 60, 150]), 0, random.pick(&[50, 200, 400]));
    plan.workload = Workload {
        clients: 6,
        appends: 50,
        window: 20,
        burst: 8,
        think_us: 3000,
        keyed: true,
        resume_percent: 30,
        ..busy()
    };
    for round in 0..5 {
        let kind =
            random.pick(&[FaultKind::Kill, FaultKind::Kill, FaultKind::PowerLoss, FaultKind::Partition]);
        let (from, to) = (60 + round * 350, 300 + round * 350);
        plan.faults.push(at(&mut random, kind, Target::Leader, from, to));
        if random.percent(40) {
            plan.faults.push(at(&mut random, FaultKind::Kill, Target::Shard, from, to));
        }
    }
    plan
}

/// Processes of all roles are killed or cut off in turn: predictions hold, since a replica of each
/// shard continues.
fn foretold(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xF0_7E_11);
    let mut plan = quiet(seed);
    plan.network.noise_permille = (random.pick(&[0, 30, 200]), 0, random.pick(&[0, 100, 300]));
    plan.config.replicas = random.pick(&[2, 2, 3]);
    // Appends last as long as the faults.
    let burst = random.pick(&[1, 2, 4]);
    plan.workload = Workload {
        clients: 3,
        sessions: 1,
        appends: 150 * burst,
        window: 20,
        burst,
        think_us: 16_000,
        keyed: random.percent(30),
        resume_percent: 30,
        ..busy()
    };
    for round in 0..4 {
        let target = random.pick(&[Target::Leader, Target::Follower, Target::Primary, Target::Shard]);
        let kind = random.pick(&[FaultKind::Kill, FaultKind::PowerLoss, FaultKind::Partition]);
        let (from, to) = (50 + round * 350, 150 + round * 350);
        let fault = at(&mut random, kind, target, from, to);
        let lasting = if kind == FaultKind::Partition { random.millis(100, 300) } else { fault.lasting };
        plan.faults.push(Fault { lasting, ..fault });
    }
    plan
}

/// Sequencing replicas restart without memory, as many at once as the log can bear.
fn forgetful(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xF0);
    let mut plan = quiet(seed);
    plan.config.durability = Durability::Memory;
    plan.workload = Workload { appends: 40, ..busy() };
    for round in 0..4 {
        let target = random.pick(&[Target::Leader, Target::Follower]);
        plan.faults.push(at(&mut random, FaultKind::Kill, target, 20 + round * 300, 250 + round * 300));
    }
    plan
}

/// Clients reach only some replicas while leaders change.
fn half_seen(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x45);
    let mut plan = quiet(seed);
    plan.network.noise_permille = (100, 0, 0);
    plan.workload = Workload { appends: 40, reads: false, ..busy() };
    for round in 0..3 {
        let from = 20 + round * 800;
        let cut = at(&mut random, FaultKind::ClientPartition, Target::Any, from, from + 100);
        plan.faults.push(Fault { lasting: random.millis(400, 800), ..cut });
        plan.faults.push(at(&mut random, FaultKind::Kill, Target::Follower, from + 50, from + 150));
        let kill = at(&mut random, FaultKind::Kill, Target::Leader, from + 150, from + 500);
        plan.faults.push(Fault { lasting: random.millis(400, 600), ..kill });
    }
    plan
}

/// Records are lost on their way to the shards and arrive after their positions became no-ops,
/// while leaders and primaries die.
fn lost_records(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x10);
    let mut plan = quiet(seed);
    plan.config.replicas = random.pick(&[1, 2, 2]);
    plan.options.limits.missing_connected = MISSING_FOR;
    plan.network.noise_permille = (random.between(0, 100), 20, 20);
    plan.workload = Workload { appends: 40, ..busy() };
    for round in 0..4 {
        let from = 20 + round * 700;
        let cut = at(&mut random, FaultKind::ClientPartition, Target::Shard, from, from + 50);
        plan.faults.push(Fault { lasting: random.millis(100, 400), ..cut });
        let target = random.pick(&[Target::Leader, Target::Shard]);
        let kind = random.pick(&[FaultKind::Kill, FaultKind::Close]);
        plan.faults.push(at(&mut random, kind, target, from + 110, from + 350));
    }
    plan
}

/// Records reach the two replicas of the only shard late. The primary has decided their fate,
/// cannot notify the backup, and dies.
fn undecided_records(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x11);
    let mut plan = quiet(seed);
    plan.config.shards = 1;
    plan.options.limits.missing_connected = MISSING_FOR;
    plan.workload = Workload { appends: 40, window: 3, ..busy() };
    for round in 0..4 {
        let from = 20 + round * 700;
        for _ in 0..3 {
            let cut = at(&mut random, FaultKind::ClientPartition, Target::Shard, from, from + 5);
            plan.faults.push(Fault { lasting: random.millis(120, 200), ..cut });
        }
        let cut = at(&mut random, FaultKind::OneWay, Target::Shard, from + 100, from + 115);
        plan.faults.push(Fault { lasting: random.millis(300, 600), ..cut });
        plan.faults.push(at(&mut random, FaultKind::Kill, Target::Shard, from + 205, from + 300));
    }
    plan
}

/// [`lost_records`] with unordered appends.
fn appended_again(seed: u64) -> Plan {
    let mut plan = lost_records(seed);
    plan.workload.unordered = true;
    plan
}

/// All clients read at random positions, while leaders die that alone knew the latest order.
fn lookups(seed: u64) -> Plan {
    let mut plan = half_seen(seed);
    plan.config.shards = 3;
    plan.network.noise_permille = (20, 20, 20);
    plan.workload = Workload { think_us: 4000, lookups: 4, ..plan.workload };
    plan
}

/// Clients reach only some replicas, then die or return too late, while views change: their records
/// become orphans.
fn orphans(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x0F);
    let mut plan = quiet(seed);
    plan.config.replicas = random.pick(&[1, 2, 2]);
    plan.options.limits.orphan_check_after = random.millis(20, 200);
    plan.options.limits.missing_connected = MISSING_FOR;
    plan.network.noise_permille = (random.between(0, 100), 20, 20);
    plan.workload = Workload { appends: 40, resume_percent: 40, ends: random.percent(50), ..busy() };
    for round in 0..5 {
        let from = 20 + round * 600;
        let cut = at(&mut random, FaultKind::ClientPartition, Target::Any, from, from + 50);
        plan.faults.push(Fault { lasting: random.millis(100, 500), ..cut });
        let kind = random.pick(&[FaultKind::ClientCrash, FaultKind::ClientCrash, FaultKind::Loss]);
        plan.faults.push(at(&mut random, kind, Target::Any, from + 30, from + 150));
        if random.percent(60) {
            let target = random.pick(&[Target::Leader, Target::Leader, Target::Follower, Target::Shard]);
            let kind = random.pick(&[FaultKind::Kill, FaultKind::Close]);
            plan.faults.push(at(&mut random, kind, target, from + 100, from + 500));
        }
    }
    plan
}

/// Clients die during appends and resume their sessions, while views change and replicas die. One
/// session after the other ends.
fn resumed(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x5E);
    let mut plan = quiet(seed);
    plan.network.noise_permille = (random.between(0, 60), 20, 20);
    plan.workload = Workload { resume_percent: 100, ends: random.percent(30), ..busy() };
    for round in 0..8 {
        let from = 20 + round * 250;
        for _ in 0..random.between(1, 3) {
            plan.faults.push(at(&mut random, FaultKind::ClientCrash, Target::Any, from, from + 200));
        }
        if random.percent(40) {
            let target = random.pick(&[Target::Leader, Target::Leader, Target::Follower, Target::Shard]);
            let kind = random.pick(&[FaultKind::Kill, FaultKind::Close, FaultKind::ClientPartition]);
            plan.faults.push(at(&mut random, kind, target, from, from + 250));
        }
    }
    plan
}

/// [`resumed`], but earlier runs of the programs live and continue to send.
fn shut_out(seed: u64) -> Plan {
    let mut plan = resumed(seed);
    plan.workload.lives_on_percent = 60;
    plan
}

/// [`shut_out`] with isolated earlier runs: they send their remaining appends to a view that began
/// after their sessions ended.
fn shut_out_later(seed: u64) -> Plan {
    let mut plan = shut_out(seed);
    plan.workload.lives_on_percent = 100;
    plan.workload.cut_off_most_ms = 600;
    plan
}

/// Several nodes begin view changes at once, their claims interleave, and they die at each step.
fn racing_controllers(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x2C);
    let mut plan = quiet(seed);
    plan.network.delay_us = random.pick(&[(50, 1000), (10, 8000), (10, 30_000)]);
    plan.network.noise_permille = (0, 50, 50);
    plan.network.straggle_percent = 100;
    plan.workload.think_us = 3000;
    let steps = [Step::Claim, Step::Seal, Step::Fence, Step::Flush, Step::Stage, Step::Register, Step::Start];
    for round in 0..4 {
        let from = 20 + round * 500;
        let begin = random.pick(&[FaultKind::DoubleKill, FaultKind::KillInTurn, FaultKind::Reset]);
        plan.faults.push(at(&mut random, begin, Target::Any, from, from + 50));
        for _ in 0..3 {
            let kind = random.pick(&[
                FaultKind::Kill,
                FaultKind::PowerLoss,
                FaultKind::Pause,
                FaultKind::Reset,
                FaultKind::OneWay,
                FaultKind::ControlOneWay,
                FaultKind::SlowLinks,
            ]);
            let trigger = Trigger::Step(random.pick(&steps), Duration::from_millis(from));
            let target = random.pick(&[Target::Controller, Target::Controller, Target::Any]);
            plan.faults.push(Fault { trigger, kind, target, lasting: random.millis(1, 200) });
        }
    }
    plan
}

/// Nodes are absent for seconds, while others are spare.
fn absences(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xAB);
    let mut plan = quiet(seed);
    plan.nodes = random.pick(&[5, 6]);
    plan.options.limits.replace_after = random.millis(100, 2000);
    plan.config.durability = random.pick(&[Durability::Disk, Durability::Memory]);
    plan.workload = Workload { think_us: 60_000, ..busy() };
    let target = random.pick(&[Target::Leader, Target::Follower, Target::Shard]);
    plan.faults.push(at(&mut random, FaultKind::Absence, target, 20, 500));
    let kind = random.pick(&[FaultKind::Kill, FaultKind::Absence, FaultKind::Reset, FaultKind::Pause]);
    plan.faults.push(at(&mut random, kind, Target::Any, 20, 2000));
    plan
}

/// Spares stand in for absent replicas and copy their records, while new readers arrive.
fn copies(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xC0);
    let mut plan = quiet(seed);
    plan.options.limits.replace_after = random.millis(100, 300);
    plan.workload = Workload { think_us: 30_000, ..busy() };
    plan.faults.push(at(&mut random, FaultKind::Absence, Target::Shard, 300, 500));
    for round in 0..8 {
        let from = 400 + round * 150;
        plan.faults.push(at(&mut random, FaultKind::ClientCrash, Target::Any, from, from + 150));
    }
    plan
}

/// Replicas are absent while the log is trimmed and gets no appends.
fn trimmed_absences(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x7A);
    let mut plan = quiet(seed);
    plan.config.replicas = random.pick(&[2, 3]);
    plan.workload = Workload { appends: 12, trims: true, ..busy() };
    for round in 0..2 {
        let from = 80 + round * 300;
        let kill = at(&mut random, FaultKind::Kill, Target::Shard, from, from + 200);
        plan.faults.push(Fault { lasting: random.millis(100, 600), ..kill });
    }
    plan
}

/// Where clients write positions: a trim reaches some replicas, and a primary that alone knew the
/// stable bound is lost.
fn half_trimmed(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x47A1);
    let mut plan = quiet(seed);
    (plan.config.durability, plan.config.shards, plan.config.replicas) = (Durability::Memory, 2, 2);
    plan.network.delay_us = (50, 6000);
    plan.workload = Workload { appends: 20, trims: true, ..busy() };
    for round in 0..2 {
        let from = 30 + round * 400;
        plan.faults.push(at(&mut random, FaultKind::PowerLoss, Target::Primary, from, from + 200));
    }
    plan
}

/// A node returns with an empty disk.
fn disk_losses(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xD15C);
    let mut plan = absences(seed);
    plan.faults.clear();
    let target = random.pick(&[Target::Leader, Target::Follower, Target::Shard]);
    plan.faults.push(at(&mut random, FaultKind::DiskLoss, target, 20, 500));
    let kind = random.pick(&[FaultKind::Kill, FaultKind::Absence, FaultKind::Reset, FaultKind::Pause]);
    plan.faults.push(at(&mut random, kind, Target::Any, 20, 2000));
    plan
}

/// A node returns with an older disk, and all others notice. Where a log needs every node, it
/// rejoins its old view, and its records count.
fn set_back(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x5E7B);
    let mut plan = disk_losses(seed);
    plan.disk_goes_back = true;
    plan.faults.truncate(1);
    plan.faults[0].trigger = Trigger::At(random.millis(200, 900));
    if random.percent(40) {
        plan.nodes = 3;
        plan.config = LogConfig { replicas: 3, min_replicas: 3, ..plan.config };
    }
    plan
}

/// Records on one disk are damaged, and later a node restarts.
fn bit_rot(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xB1);
    let mut plan = quiet(seed);
    plan.config.replicas = random.pick(&[2, 3]);
    plan.faults.push(at(&mut random, FaultKind::BitRot, Target::Shard, 50, 500));
    let kind = random.pick(&[FaultKind::Kill, FaultKind::Close, FaultKind::Reset]);
    plan.faults.push(at(&mut random, kind, Target::Shard, 100, 1000));
    plan
}

/// A shard replica returns while a view with a spare is formed, and flushed records are damaged on
/// a node that did not restart.
fn mending(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x3E);
    let mut plan = quiet(seed);
    plan.nodes = 4;
    plan.config = LogConfig { shards: 1, sequencers: 1, ..plan.config };
    plan.shard_options = ShardOptions::new(1500);
    (plan.sync_us, plan.network.delay_us) = ((500, 6000), (50, 4000));
    let (killed, lasting) = (random.millis(60, 150), random.millis(5, 30));
    let damaged = Trigger::Step(Step::Flush, killed + lasting + random.millis(2, 30));
    let of = |trigger, kind| Fault { trigger, kind, target: Target::Shard, lasting };
    plan.faults = vec![of(Trigger::At(killed), FaultKind::Kill), of(damaged, FaultKind::BitRot)];
    plan
}

/// More memory is lost than the log can bear; an operator accepts the loss.
fn accepted_losses(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xAC);
    let mut plan = quiet(seed);
    (plan.may_lose_too_much, plan.has_operator) = (true, true);
    plan.config = LogConfig {
        durability: Durability::Memory,
        sequencers: random.pick(&[1, 2, 3]),
        replicas: random.pick(&[1, 2]),
        stripe: random.pick(&[1, 3, 64]),
        ..plan.config
    };
    plan.workload = Workload { think_us: 60_000, ..busy() };
    plan.options.limits.replace_after = random.millis(100, 2000);
    for round in 0..random.between(1, 2) {
        let kind = random.pick(&[FaultKind::DoubleKill, FaultKind::PowerCut, FaultKind::KillInTurn]);
        let target = random.pick(&[Target::Leader, Target::Shard, Target::Any]);
        plan.faults.push(at(&mut random, kind, target, 20 + round * 400, 800 + round * 400));
    }
    plan
}

/// Shards join and leave, nodes die, and read records are trimmed.
fn reshaped(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x5A);
    let mut plan = quiet(seed);
    plan.nodes = 5;
    plan.config = LogConfig {
        shards: random.pick(&[1, 2]),
        replicas: random.pick(&[1, 2]),
        min_replicas: random.pick(&[1, 2]),
        stripe: random.pick(&[1, 3, 64]),
        ..plan.config
    };
    let trims = random.percent(70);
    plan.workload = Workload { appends: 60, think_us: 20_000, reads: true, trims, lookups: 2, ..busy() };
    plan.options.limits.replace_after = random.millis(100, 2000);
    for _ in 0..random.between(3, 7) {
        let reshape = random.pick(&[Reshape::Add, Reshape::Remove]);
        plan.reshapes.push((random.millis(20, 1500), reshape));
    }
    for _ in 0..random.between(0, 3) {
        let kind = random.pick(&[FaultKind::Kill, FaultKind::Close, FaultKind::Reset]);
        let target = random.pick(&[Target::Leader, Target::Shard, Target::Controller, Target::Any]);
        plan.faults.push(at(&mut random, kind, target, 20, 1500));
    }
    plan
}

/// [`reshaped`] with readers of chosen shards and lost messages: a reader may learn of a view late.
fn chosen_shards(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xC405);
    let mut plan = reshaped(seed);
    plan.network.noise_permille = (random.pick(&[0, 30, 100]), 20, 20);
    plan.workload.trims = random.percent(30);
    plan.config.stripe = random.pick(&[1, 3, 8]);
    plan
}

/// [`power_losses`], mostly during checkpoints.
fn power_losses_in_checkpoints(seed: u64) -> Plan {
    let mut plan = power_losses(seed);
    (plan.journal.checkpoint_bytes, plan.journal.snapshot_bytes) = (3000, 300);
    plan
}

/// Followers lose power while the leader is down.
fn power_losses(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x90);
    let mut plan = quiet(seed);
    plan.sync_us = (500, 6000);
    plan.workload = Workload { appends: 40, think_us: 4000, ..busy() };
    for round in 0..3 {
        let from = 20 + round * 700;
        let kill = at(&mut random, FaultKind::Kill, Target::Leader, from, from + 10);
        plan.faults.push(Fault { lasting: random.millis(400, 600), ..kill });
        for _ in 0..2 {
            let loss = at(&mut random, FaultKind::PowerLoss, Target::Follower, from, from + 15);
            plan.faults.push(Fault { lasting: random.millis(1, 20), ..loss });
        }
    }
    plan
}
