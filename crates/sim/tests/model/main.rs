//! The view change, checked in every reachable state, over the machines themselves (erwin.md, "View change").
//!
//! A state is the machines of one log, and the messages between them. Messages arrive at any time, in any
//! order, any number of times, or never; controllers stop at any point; replicas lose their memory. What is
//! checked is in [`rules`]; what is taken together, and why nothing is lost by that, beside what takes it
//! together: [`cluster::State::tell`], [`packet::Packet`], [`place::Placed`].
//!
//! Not modelled: liveness, trim, batches of more than one record, sessions of more than one record, durability
//! `disk`, restarts of shard replicas, several shards.
#![expect(clippy::print_stdout, reason = "how large a model is says what it is worth")]

mod cluster;
mod packet;
mod place;
mod rules;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cluster::Cluster;
use seriatim_protocol::Deviation;
use stateright::{Checker, HasDiscoveries, Model};

/// The least that is worth a look: one view change.
const SMALL: Cluster = Cluster {
    sequencers: 2,
    least: 1,
    replicas: 1,
    records: 1,
    staggered: false,
    tails: 0,
    controllers: 1,
    claims: 1,
    gives_up: false,
    crashes: 0,
    deviation: None,
};
const CRASH: Cluster = Cluster { crashes: 1, ..SMALL };
const TAIL: Cluster = Cluster { tails: 1, ..SMALL };
const THREE: Cluster = Cluster { sequencers: 3, ..SMALL };
const TWO_REPLICAS: Cluster = Cluster { replicas: 2, ..SMALL };
const TWO_RECORDS: Cluster = Cluster { records: 2, ..SMALL };
/// One controller that gives attempts up, and claims again.
const SECOND_ATTEMPT: Cluster = Cluster { claims: 2, gives_up: true, ..SMALL };
/// Two controllers that race, and may die.
const RACE: Cluster = Cluster { controllers: 2, claims: 2, ..SMALL };

/// What a test has time for.
const SHORT: [(&str, Cluster); 6] = [
    ("one view change", SMALL),
    ("two replicas of the shard", TWO_REPLICAS),
    ("one view change and a crash", CRASH),
    ("one view change and a question for the tail", TAIL),
    ("three sequencing replicas", THREE),
    ("two records", TWO_RECORDS),
];

/// What `cargo xtask soak` has time for, with what it does not get to the end of.
const LONG: [(&str, Cluster); 8] = [
    ("two attempts", SECOND_ATTEMPT),
    ("two attempts that race", RACE),
    ("two records, one after the other", Cluster { staggered: true, ..TWO_RECORDS }),
    ("two records and a crash", Cluster { crashes: 1, ..TWO_RECORDS }),
    ("three sequencing replicas and a crash", Cluster { crashes: 1, ..THREE }),
    ("two attempts that race, and a crash", Cluster { crashes: 1, ..RACE }),
    ("two records and a question for the tail", Cluster { records: 2, ..TAIL }),
    ("everything", Cluster { sequencers: 3, least: 2, records: 2, tails: 1, crashes: 1, ..RACE }),
];

/// A defect, the property that must fail, and where.
const REFUTED: [(Deviation, &str, Cluster); 17] = [
    (Deviation::OneAcknowledgement, rules::DURABLE, SMALL),
    (Deviation::SealSkipped, rules::DURABLE, SMALL),
    (Deviation::FilterUnion, rules::DURABLE, SMALL),
    (Deviation::MixedViews, rules::DURABLE, SMALL),
    (Deviation::BackupsSkipped, rules::DURABLE, TWO_REPLICAS),
    (Deviation::StageDestroys, rules::DURABLE, SECOND_ATTEMPT),
    (Deviation::FirstAfterFlush, rules::STABLE_FIXED, SMALL),
    (Deviation::StableBeforeRegister, rules::STABLE_FIXED, SMALL),
    (Deviation::SealedDrops, rules::STABLE_FIXED, TWO_RECORDS),
    (Deviation::ClaimUnchecked, rules::STABLE_FIXED, RACE),
    (Deviation::FilterForgotten, rules::NO_TWICE, SMALL),
    (Deviation::StableEarly, rules::READS_FINAL, SMALL),
    (Deviation::ReadsUnstable, rules::READS_FINAL, SMALL),
    (Deviation::AmnesiaAcknowledges, rules::NO_AMNESIA, CRASH),
    (Deviation::TailFromLeader, rules::TAIL_ABOVE, TAIL),
    (Deviation::TailIsMinimum, rules::TAIL_ABOVE, Cluster { records: 2, ..TAIL }),
    (Deviation::FlushReversed, rules::REAL_TIME, Cluster { staggered: true, ..TWO_RECORDS }),
];

/// How much of an action is shown.
const LINE: usize = 400;

/// Looks at every state that there is time for, and fails if a property does not hold in one.
fn explore(name: &str, cluster: Cluster, most: Duration) {
    let began = Instant::now();
    let first = HasDiscoveries::AnyFailures;
    let checker = cluster.checker().finish_when(first).timeout(most).threads(2).spawn_bfs().join();
    println!(
        "{name}: {} states{}, {} steps, {} deep, {:.1?}",
        checker.unique_state_count(),
        if began.elapsed() < most { "" } else { " and not all" },
        checker.state_count(),
        checker.max_depth(),
        began.elapsed()
    );
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        let line = |action| format!("  {action:?}").chars().take(LINE).chain(['\n']).collect::<String>();
        let path: String = path.into_actions().iter().map(line).collect();
        panic!("{name}: it does not hold that {property}:\n{path}");
    }
}

#[test]
fn every_state_is_sound() {
    for (name, cluster) in SHORT {
        explore(name, cluster, Duration::from_secs(3600));
    }
}

/// As long as `SERIATIM_MODEL_MINUTES` says.
#[test]
fn every_state_of_larger_models_is_sound() {
    let Ok(minutes) = std::env::var("SERIATIM_MODEL_MINUTES") else { return };
    let minutes: u32 = minutes.parse().expect("a number of minutes");
    let most = Duration::from_secs(60) * minutes / LONG.len() as u32;
    for (name, cluster) in LONG {
        explore(name, cluster, most);
    }
}

#[test]
fn every_defect_is_refuted() {
    for (deviation, property, cluster) in REFUTED {
        let began = Instant::now();
        let cluster = Cluster { deviation: Some(deviation), ..cluster };
        let found = HasDiscoveries::AnyOf(BTreeSet::from([property]));
        let checker = cluster.checker().finish_when(found).threads(2).spawn_bfs().join();
        println!("{deviation:?}: {} states, {:.1?}", checker.unique_state_count(), began.elapsed());
        assert!(checker.discovery(property).is_some(), "{deviation:?} leaves it true that {property}");
    }
}
