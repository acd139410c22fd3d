//! Runs every profile on every ordering of [`Order::ALL`] with the properties that it needs.

mod shares;

use seriatim_model::Order;
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

/// A run depends on its seed alone.
#[test]
fn a_seed_run_twice_gives_the_same_run() {
    for (profile, seed) in [
        (profiles::ANY, 3),
        (profiles::ANY, 14),
        (profiles::ANY, 159),
        (profiles::ANY, 2653),
        (profiles::WITHIN_CAPACITY, 1),
    ] {
        for order in profile.orders().take(1) {
            let hash = |seed| run(profile.plan(seed, order), false).hash;
            assert_eq!(hash(seed), hash(seed), "{}, seed {seed}", profile.name);
            assert_ne!(hash(seed), hash(seed + 1), "{}, seed {seed} and the next", profile.name);
        }
    }
}
