//! Players with targets that fail.

use std::time::Duration;

use seriatim_delivery::player::PlayerLimits;

use super::{busy, quiet};
use crate::plan::{Plan, Workload};
use crate::playing::{MapKind, PlayersPlan};
use crate::random::Random;

/// Small limits in most plans, so that targets reach every state.
fn limits(random: &mut Random) -> PlayerLimits {
    if random.percent(10) {
        return PlayerLimits { start_within: Duration::from_millis(100), ..PlayerLimits::default() };
    }
    PlayerLimits {
        queue_messages: random.pick(&[1, 2, 4, 16]),
        queue_bytes: random.pick(&[600, 2000, 4 << 20]),
        memory: random.pick(&[4000, 20_000, 1 << 20]),
        batch_messages: random.pick(&[1, 3, 256]),
        batch_bytes: random.pick(&[500, 1 << 20]),
        join: random.pick(&[1, 3, 10, 40, 2048]),
        recoveries: random.pick(&[1, 1, 2, 4]),
        quiet_positions: random.pick(&[1, 5, 10_000]),
        quiet_for: random.pick(&[20, 300, 10_000].map(Duration::from_millis)),
        apply_within: random.pick(&[60, 200].map(Duration::from_millis)),
        start_within: random.pick(&[5, 50].map(Duration::from_millis)),
        yield_after: random.pick(&[2, 5].map(Duration::from_millis)),
    }
}

fn some_players(seed: u64) -> PlayersPlan {
    let mut random = Random::new(seed ^ 0x009A_7E45);
    let map = random.pick(&[MapKind::Key, MapKind::Spread]);
    let targets = random.between(1, 4) as usize;
    let pauses = match random.below(3) {
        0 => vec![],
        count => (0..count).map(|_| (random.millis(50, 1500), random.millis(20, 600))).collect::<Vec<_>>(),
    };
    // Drawn apart: plans of earlier versions keep their other faults.
    let mut upkeep = Random::new(seed ^ 0x0B5E_47E4);
    let count = upkeep.pick(&[0, 0, 1, 3]);
    let maintenances = (0..count)
        .map(|_| (upkeep.millis(50, 1500), upkeep.millis(20, 500), upkeep.below(targets as u64) as usize));
    let maintenances = maintenances.collect();
    let foreign = upkeep.percent(25).then(|| upkeep.below(targets as u64) as usize);
    let count = upkeep.pick(&[0, 0, 1, 2]);
    let absences = (0..count).map(|_| (upkeep.millis(20, 1800), upkeep.millis(50, 800))).collect();
    PlayersPlan {
        targets,
        map,
        // A player with the earlier rules could still apply entries by them.
        adds_target: pauses.is_empty() && map == MapKind::Key && random.percent(70),
        limits: limits(&mut random),
        unanswered: random.pick(&[1, 1, 3, 8]),
        dead_letters: random.percent(30),
        slow: random.percent(50).then(|| random.below(targets as u64) as usize),
        kill_permille: random.pick(&[0, 3, 20]),
        restore_percent: random.pick(&[0, 50]),
        lost_permille: random.pick(&[0, 3, 20]),
        slow_permille: random.pick(&[0, 5]),
        refuse_permille: random.pick(&[0, 0, 20]),
        crash_permille: random.pick(&[0, 1, 5]),
        pauses,
        maintenances,
        foreign,
        absences,
        faults_for: Duration::from_millis(2200),
    }
}

/// Players of a log without faults.
pub(super) fn players(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x9_1A7E);
    let mut plan = quiet(seed);
    let keyed = random.percent(70);
    let burst = random.pick(&[1, 3, 8]);
    plan.workload =
        Workload { clients: 2, sessions: 1, appends: 120, burst, think_us: 30_000, keyed, ..busy() };
    plan.workload.trims = random.percent(20);
    plan.players = Some(some_players(seed));
    plan
}

/// Players of a log with faults.
pub(super) fn players_and_faults(seed: u64) -> Plan {
    let mut plan = Plan::from_seed(seed);
    (plan.may_lose_too_much, plan.has_operator) = (false, false);
    plan.workload.keyed = Random::new(seed ^ 0x9_1A7E).percent(70);
    plan.workload.reads = true;
    plan.players = Some(some_players(seed));
    plan
}
