//! The windows of a log with quotas, checked in every reachable state, over the machines themselves
//! (docs/design/belfast.md; docs/decisions/2026-11-26-closing-by-slots.md).
//!
//! A state is the members of the ordering layer and the replicas of two shards in one view, and the
//! messages between them. Messages arrive at any time, in any order, any number of times, or never;
//! the clock of each machine goes on from one of its deadlines to the next, whatever the others'
//! do. In every state the view is closed in every way that is possible then: by each member of the
//! layer, with each choice of replicas that are left, and without one shard. What was told before
//! it was final is to stand in all of them ([`rules`]): a machine that crashes is one that is not
//! left.
//!
//! Not modelled: liveness, durability `disk`, replicas that restart, shards that lend, names that
//! are passed over, more than one view; and that members let go of cuts (`place::Way` says which
//! messages are not open, and why).

mod closing;
mod log;
mod place;
mod rules;

use std::time::Duration;

use log::Log;
use seriatim_protocol::Mutation;

use crate::{ENOUGH, explore, refute};

/// One shard has what it is to bring to the first cut, and the other gets it.
const TURN: Log = Log { settled: [&[], &[10]], submits: [&[10], &[]], waits: 0, mutation: None };
/// The second window was decided with the first cut; one shard has what it is to bring to the
/// second cut, and the other gets that and more.
const BEYOND: Log = Log { settled: [&[10], &[20]], submits: [&[11], &[]], waits: 0, mutation: None };
/// Both shards get what they are to bring to the first cut.
const TURNS: Log = Log { settled: [&[], &[]], submits: [&[10], &[10]], waits: 0, mutation: None };
/// One shard gets records of both windows, the other those of the second cut.
const AHEAD: Log = Log { settled: [&[], &[10]], submits: [&[21], &[10]], waits: 0, mutation: None };
/// A record, and one wait: others are asked for the turns that it waits for.
const ASKED: Log = Log { settled: [&[], &[]], submits: [&[1], &[]], waits: 1, mutation: None };
/// Records on both shards, and some waits.
const WAITS: Log = Log { settled: [&[], &[]], submits: [&[1, 1], &[1]], waits: 3, mutation: None };

/// The models that a test has time for, to their end.
const SHORT: [(&str, Log); 2] = [("a turn", TURN), ("records of the next window", BEYOND)];

/// The models that `cargo xtask soak` has time for, with those that it does not get to the end of.
const LONG: [(&str, Log); 4] = [
    ("a record that others are asked for", ASKED),
    ("turns of both shards", TURNS),
    ("records of both windows", AHEAD),
    ("records on both shards, and waits", WAITS),
];

/// A defect, the property that must fail, and where.
const REFUTED: [(Mutation, u16, Log); 10] = [
    (Mutation::PredictedUnreplicated, rules::STANDS, TURN),
    (Mutation::ClosedAtSlowest, rules::STANDS, TURN),
    (Mutation::CutsLost, rules::HOLDS, TURN),
    (Mutation::HoldsUncommitted, rules::HOLDS, TURN),
    (Mutation::CutUnreplicated, rules::CLOSES, TURN),
    (Mutation::QuotaAtOnce, rules::ASSERTED, TURN),
    (Mutation::LeaseIgnored, rules::STANDS, BEYOND),
    (Mutation::ClosedUnpadded, rules::STANDS, BEYOND),
    (Mutation::CutUnmet, rules::STANDS, TURNS),
    (Mutation::WindowEarly, rules::STANDS, AHEAD),
];

#[test]
fn every_state_is_sound() {
    SHORT.into_iter().for_each(|(name, log)| explore(name, log, ENOUGH));
}

/// If `SERIATIM_MODEL_MINUTES` is set: for as long as it says.
#[test]
fn every_state_of_larger_models_is_sound() {
    let Ok(minutes) = std::env::var("SERIATIM_MODEL_MINUTES") else { return };
    let minutes: u32 = minutes.parse().expect("a number of minutes");
    let most = Duration::from_secs(60) * minutes / LONG.len() as u32;
    LONG.into_iter().for_each(|(name, log)| explore(name, log, most));
}

#[test]
fn every_defect_is_refuted() {
    for (mutation, rule, log) in REFUTED {
        refute(mutation, rules::name(rule), Log { mutation: Some(mutation), ..log });
    }
}
