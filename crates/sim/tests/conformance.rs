//! Runs every profile on every ordering of [`Order::ALL`] with the properties that it needs.

mod shares;

use seriatim_delivery::player::Stage;
use seriatim_model::Order;
use seriatim_sim::coverage::Coverage;
use seriatim_sim::profiles::{self, Profile};
use seriatim_sim::run::run;

use shares::run_share;

type Run = (&'static Profile, Order, u64);

/// All runs; profiles with the longest runs first.
fn runs() -> Vec<Run> {
    let mut profiles: Vec<&Profile> = profiles::ALL.iter().collect();
    profiles.sort_by_key(|profile| profile.seeds);
    let pairs = profiles.into_iter().flat_map(|profile| profile.orders().map(move |order| (profile, order)));
    pairs.flat_map(|(profile, order)| (0..profile.seeds).map(move |seed| (profile, order, seed))).collect()
}

/// Objections of the checkers, each with the command that reproduces it.
fn objections((profile, order, seed): Run) -> Vec<String> {
    let name = profile.name;
    let command = format!("seriatim-sim --profile {name} --protocol {order} --from {seed} --seeds 1 --trace");
    let objections = run(profile.plan(seed, order), false).objections;
    objections.iter().map(|objection| format!("{command}: {objection}")).collect()
}

#[test]
fn every_profile_is_clean_on_every_ordering_that_it_is_for() {
    let mut objected = run_share(&runs(), |run| objections(*run)).concat();
    objected.sort();
    assert!(objected.is_empty(), "{}", objected.join("\n"));
}

/// Only a missing property excludes an ordering from a profile.
#[test]
fn a_profile_is_left_out_for_a_reason_and_tried_on_some_ordering() {
    for profile in profiles::ALL {
        assert!(profile.orders().next().is_some(), "{} is for no ordering", profile.name);
        assert!(profile.seeds > 0, "{} is never tried", profile.name);
        for order in Order::ALL {
            let is_met = profile.needs.is_none_or(|need| (need.is_met)(&order.properties()));
            assert_eq!(profile.unfit(order).is_none(), is_met, "{}, {order}", profile.name);
            assert!(profile.unfit(order).is_none_or(|why| !why.is_empty()), "{}: no reason", profile.name);
        }
    }
}

#[test]
fn a_profile_has_a_name_of_its_own() {
    for (index, profile) in profiles::ALL.iter().enumerate() {
        let found = profiles::ALL.iter().position(|other| other.name == profile.name);
        assert_eq!(found, Some(index), "{}", profile.name);
    }
}

#[test]
fn readers_are_told_which_shards_to_ask() {
    for order in profiles::LOOKUPS.orders() {
        for seed in 0..5 {
            let told = run(profiles::LOOKUPS.plan(seed, order), false).coverage.maps;
            assert!(told >= 10, "{order}, seed {seed}: {told} answers");
        }
    }
}

/// Small limits bring targets of players into every state, and players die in each.
#[test]
fn players_and_their_targets_reach_every_state() {
    let order = Order::ALL[0];
    let mut coverage = Coverage::default();
    (0..60).for_each(|seed| coverage.add(&run(profiles::PLAYERS.plan(seed, order), false).coverage));
    let stages =
        [Stage::Normal, Stage::Recovering, Stage::Full, Stage::Attaching, Stage::Down, Stage::Stopped];
    let expected =
        stages.iter().flat_map(|stage| [format!("stage {stage}"), format!("killed while {stage}")]);
    let others = ["fenced", "paused", "restored", "trimmed", "dead letter", "call Late", "call KilledAfter"];
    let others = others.into_iter().chain(["stage paused", "paused by the operator", "adopted"]);
    for what in expected.chain(others.map(str::to_owned)) {
        assert!(coverage.played.contains_key(&what), "{what} did not occur in {:?}", coverage.played);
    }
}

/// A run depends on its seed alone.
#[test]
fn a_seed_run_twice_gives_the_same_run() {
    for (profile, seed) in [
        (profiles::ANY, 3),
        (profiles::ANY, 14),
        (profiles::ANY, 159),
        (profiles::ANY, 2653),
        (profiles::WITHIN_CAPACITY, 1),
        (profiles::PLAYERS, 7),
    ] {
        for order in profile.orders().take(1) {
            let hash = |seed| run(profile.plan(seed, order), false).hash;
            assert_eq!(hash(seed), hash(seed), "{}, seed {seed}", profile.name);
            assert_ne!(hash(seed), hash(seed + 1), "{}, seed {seed} and the next", profile.name);
        }
    }
}
