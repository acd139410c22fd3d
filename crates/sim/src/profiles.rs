//! Plans that lead quickly to where a particular defect shows.

use std::time::Duration;

use seriatim_model::limits::Limits;
use seriatim_model::{Durability, LogConfig};
use seriatim_store::{JournalOptions, ShardOptions};

use crate::coverage::{FaultKind, Step};
use crate::plan::{Fault, NetworkPlan, Plan, Target, Trigger, Workload};
use crate::random::Random;

/// A quiet cluster: five nodes, of which three order and the others hold records; the register on a node
/// of its own.
#[must_use]
pub fn quiet(seed: u64) -> Plan {
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
        options: seriatim_protocol::Options { limits: Limits::default(), deviation: None },
        journal: JournalOptions { file_bytes: 65_536, ..JournalOptions::default() },
        shard_options: ShardOptions::default(),
        network: NetworkPlan { delay_us: (50, 1000), noise_permille: (0, 0, 0) },
        sync_us: (100, 1000),
        workload: busy(),
        faults: vec![],
        may_lose_too_much: false,
        ..Plan::from_seed(seed)
    }
}

/// Many clients that append all the time, and read.
fn busy() -> Workload {
    Workload {
        clients: 4,
        sessions: 2,
        appends: 60,
        window: 8,
        burst: 3,
        think_us: 8000,
        sync_percent: 10,
        oversize_permille: 0,
        payload_bytes: 30,
        tail_percent: 10,
        reads: true,
        trims: false,
        resume_percent: 60,
        long_pause_percent: 0,
    }
}

fn at(random: &mut Random, kind: FaultKind, target: Target, from_ms: u64, to_ms: u64) -> Fault {
    let trigger = Trigger::At(random.millis(from_ms, to_ms));
    Fault { trigger, kind, target, lasting: random.millis(5, 60) }
}

/// The sequencing replicas restart again and again, and messages are lost.
#[must_use]
pub fn churn(seed: u64) -> Plan {
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

/// The leader is cut off from all other nodes, but not from the clients, while a view without it is
/// formed.
#[must_use]
pub fn leader_cut_off(seed: u64) -> Plan {
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

/// A node that only holds records restarts: the view changes although every sequencing replica is well.
#[must_use]
pub fn shard_restarts(seed: u64) -> Plan {
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

/// View changes die before they are registered.
#[must_use]
pub fn dying_attempts(seed: u64) -> Plan {
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

/// Messages overtake each other all the time, and each session appends little.
#[must_use]
pub fn disorder(seed: u64) -> Plan {
    let mut plan = quiet(seed);
    plan.network.noise_permille = (0, 0, 300);
    plan.options.limits.batch_records = 1;
    plan.workload = Workload { appends: 12, window: 1, burst: 1, ..busy() };
    plan
}

/// Leaders die again and again, and every third message is lost.
#[must_use]
pub fn dying_leaders(seed: u64) -> Plan {
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

/// Sequencing replicas restart without their memory, as many at once as the log can bear.
#[must_use]
pub fn forgetful(seed: u64) -> Plan {
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

/// Clients reach only some of the replicas while leaders come and go.
#[must_use]
pub fn half_seen(seed: u64) -> Plan {
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
