//! The view change, checked in every reachable state, over the machines themselves
//! (docs/design/views.md, "View change").
//!
//! A state has the machines of one log and their messages. Messages arrive at any time, in any
//! order, any number of times, or never; controllers stop at any point; replicas lose their memory.
//! [`rules`] has the checks. Simplifications are justified in place: [`cluster::State::tell`],
//! [`packet::Packet`], [`place::Placed`]. Small models run to their end in small steps, larger ones
//! in [`macro_steps`]; [`sights`] compares the two. [`windows`] models the windows of a log with
//! quotas, in one view and in every way to close it.
//!
//! Not modelled: liveness, trim, batches or sessions of more than one record, durability `disk`,
//! restarts of shard replicas, several shards.
#![expect(clippy::print_stdout, reason = "how large a model is says what it is worth")]

mod alike;
mod cluster;
mod macro_steps;
mod packet;
mod place;
mod player;
mod rules;
mod sights;
mod windows;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

use cluster::Cluster;
use macro_steps::MacroSteps;
use player::Playing;
use seriatim_protocol::Mutation;
use stateright::{Checker, HasDiscoveries, Model};

/// The smallest useful model: one view change.
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
    mutation: None,
};
const CRASH: Cluster = Cluster { crashes: 1, ..SMALL };
const TAIL: Cluster = Cluster { tails: 1, ..SMALL };
const THREE: Cluster = Cluster { sequencers: 3, ..SMALL };
const TWO_REPLICAS: Cluster = Cluster { replicas: 2, ..SMALL };
const TWO_RECORDS: Cluster = Cluster { records: 2, ..SMALL };
const SECOND_ATTEMPT: Cluster = Cluster { claims: 2, gives_up: true, ..SMALL };
/// Two racing controllers, which may die.
const RACE: Cluster = Cluster { controllers: 2, claims: 2, ..SMALL };

const SHORT: [(&str, Cluster); 6] = [
    ("one view change", SMALL),
    ("two replicas of the shard", TWO_REPLICAS),
    ("one view change and a crash", CRASH),
    ("one view change and a question for the tail", TAIL),
    ("three sequencing replicas", THREE),
    ("two records", TWO_RECORDS),
];

/// Models for `cargo xtask soak`, which does not reach the end of some.
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

/// A defect, the property that must fail, and the model.
const REFUTED: [(Mutation, &str, Cluster); 17] = [
    (Mutation::OneAcknowledgement, rules::DURABLE, SMALL),
    (Mutation::SealSkipped, rules::DURABLE, SMALL),
    (Mutation::FilterUnion, rules::DURABLE, SMALL),
    (Mutation::MixedViews, rules::DURABLE, SMALL),
    (Mutation::BackupsSkipped, rules::DURABLE, TWO_REPLICAS),
    (Mutation::StageDestroys, rules::DURABLE, SECOND_ATTEMPT),
    (Mutation::FirstAfterFlush, rules::STABLE_FIXED, SMALL),
    (Mutation::StableBeforeRegister, rules::STABLE_FIXED, SMALL),
    (Mutation::SealedTruncates, rules::STABLE_FIXED, TWO_RECORDS),
    (Mutation::ClaimUnchecked, rules::STABLE_FIXED, RACE),
    (Mutation::FilterForgotten, rules::NO_TWICE, SMALL),
    (Mutation::StableEarly, rules::READS_FINAL, SMALL),
    (Mutation::ReadsUnstable, rules::READS_FINAL, SMALL),
    (Mutation::AmnesiaAcknowledges, rules::NO_AMNESIA, CRASH),
    (Mutation::TailFromLeader, rules::TAIL_ABOVE, TAIL),
    (Mutation::TailIsMinimum, rules::TAIL_ABOVE, Cluster { records: 2, ..TAIL }),
    (Mutation::FlushReversed, rules::REAL_TIME, Cluster { staggered: true, ..TWO_RECORDS }),
];

/// Defects that macro steps do not show: of clients that note answers without effect, and of a
/// shard with two replicas.
const NEEDS_SMALL_STEPS: [Mutation; 3] =
    [Mutation::MixedViews, Mutation::TailFromLeader, Mutation::BackupsSkipped];

/// The full model of a view change.
const FULL: Cluster = Cluster { sequencers: 3, least: 2, records: 2, crashes: 1, ..RACE };

const SHORT_MACRO_STEPS: [(&str, Cluster); 4] = [
    ("two attempts that race, in macro_steps", RACE),
    ("two attempts that race, and a crash, in macro_steps", Cluster { crashes: 1, ..RACE }),
    (
        "two of three sequencing replicas and two attempts that race, in macro_steps",
        Cluster { sequencers: 3, least: 2, ..RACE },
    ),
    ("two records and two attempts that race, in macro_steps", Cluster { records: 2, ..RACE }),
];

/// Models that `cargo xtask soak` explores to the end.
const LONG_MACRO_STEPS: [(&str, Cluster); 2] = [
    ("the full model, in macro_steps", FULL),
    ("the full model with one record after the other, in macro_steps", Cluster { staggered: true, ..FULL }),
];

const COMPARED: [(&str, Cluster); 2] = [("one view change", SMALL), ("one view change and a crash", CRASH)];
/// Further comparisons, for `cargo xtask soak`.
const COMPARED_LONG: [(&str, Cluster); 4] = [
    ("two of three sequencing replicas", Cluster { least: 2, ..THREE }),
    ("two records", TWO_RECORDS),
    ("two records, one after the other", Cluster { staggered: true, ..TWO_RECORDS }),
    ("two attempts that race", RACE),
];

/// A player with one target. Two of five entries are for no target of the model.
const ONE_TARGET: Playing =
    Playing { entries: &[1, 0, 1, 0, 1], targets: 1, failures: 1, starts: 1, refused: None, mutation: None };
const TWO_TARGETS: Playing = Playing { entries: &[1, 3, 2], targets: 2, ..ONE_TARGET };

const PLAYERS: [(&str, Playing); 4] = [
    ("a target and two failures", Playing { failures: 2, starts: 0, ..ONE_TARGET }),
    ("a target, a failure and a second player", ONE_TARGET),
    ("a target, a failure and a refused entry", Playing { refused: Some(2), starts: 0, ..ONE_TARGET }),
    ("two targets and a failure", Playing { starts: 0, ..TWO_TARGETS }),
];

const LINE: usize = 400;

/// A time limit longer than any model that ends.
const ENOUGH: Duration = Duration::from_secs(24 * 3600);

/// Explores states for at most `most`. Fails if a property does not hold.
fn explore<M>(name: &str, model: M, most: Duration)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let began = Instant::now();
    let first = HasDiscoveries::AnyFailures;
    let checker = model.checker().finish_when(first).timeout(most).threads(2).spawn_bfs().join();
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

/// Fails if a property holds in every state of a model with a defect.
fn refute<M>(mutation: Mutation, property: &'static str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let began = Instant::now();
    let found = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = model.checker().finish_when(found).threads(2).spawn_bfs().join();
    println!("{mutation:?}: {} states, {:.1?}", checker.unique_state_count(), began.elapsed());
    assert!(checker.discovery(property).is_some(), "{mutation:?} leaves it true that {property}");
}

#[test]
fn every_state_is_sound() {
    for (name, cluster) in SHORT {
        explore(name, cluster, ENOUGH);
    }
}

#[test]
fn every_state_of_players_is_sound() {
    for (name, playing) in PLAYERS {
        explore(name, playing, ENOUGH);
    }
}

#[test]
fn every_defect_of_players_is_refuted() {
    for (mutation, property) in [
        (Mutation::AfterUnchecked, player::IN_ORDER),
        (Mutation::OldEpochServed, player::FENCED),
        (Mutation::RecoveryEndsEarly, player::IN_ORDER),
        (Mutation::NoTerm, player::IN_ORDER),
    ] {
        refute(mutation, property, Playing { mutation: Some(mutation), ..ONE_TARGET });
    }
}

#[test]
fn every_macro_step_is_sound() {
    for (name, cluster) in SHORT_MACRO_STEPS {
        explore(name, MacroSteps(cluster), ENOUGH);
    }
}

/// Runs only with `SERIATIM_MODEL_MINUTES`: macro steps to their end, other models for that time.
#[test]
fn every_state_of_larger_models_is_sound() {
    let Ok(minutes) = std::env::var("SERIATIM_MODEL_MINUTES") else { return };
    let minutes: u32 = minutes.parse().expect("a number of minutes");
    for (name, cluster) in LONG_MACRO_STEPS {
        explore(name, MacroSteps(cluster), ENOUGH);
    }
    for (name, cluster) in COMPARED_LONG {
        sights::compare(name, cluster);
    }
    let most = Duration::from_secs(60) * minutes / (LONG.len() as u32 + 1);
    let tail = Cluster { tails: 1, ..FULL };
    explore("the full model with a question for the tail, in macro_steps", MacroSteps(tail), most);
    for (name, cluster) in LONG {
        explore(name, cluster, most);
    }
}

#[test]
fn every_defect_is_refuted() {
    for (mutation, property, cluster) in REFUTED {
        refute(mutation, property, Cluster { mutation: Some(mutation), ..cluster });
    }
}

/// Any property may fail: a defect may break the assumptions of macro steps.
#[test]
fn every_defect_is_refuted_by_macro_steps() {
    for (mutation, _, cluster) in REFUTED {
        if NEEDS_SMALL_STEPS.contains(&mutation) {
            continue;
        }
        let cluster =
            Cluster { mutation: Some(mutation), replicas: 1, controllers: cluster.claims as u32, ..cluster };
        let checker = MacroSteps(cluster).checker().finish_when(HasDiscoveries::AnyFailures);
        let checker = checker.threads(2).spawn_bfs().join();
        println!("{mutation:?}: {} states", checker.unique_state_count());
        assert!(!checker.discoveries().is_empty(), "{mutation:?} is not seen in macro_steps");
    }
}

#[test]
fn macro_steps_lose_nothing() {
    COMPARED.into_iter().for_each(|(name, cluster)| sights::compare(name, cluster));
}
