//! The windows of a log with quotas, checked in every reachable state, over the machines themselves
//! (docs/design/belfast.md; docs/decisions/2026-11-26-closing-by-slots.md).
//!
//! A state has the members of the ordering layer, the replicas of two shards in one view, and their
//! messages. Messages arrive at any time, in any order, any number of times, or never; each
//! machine's clock advances from deadline to deadline by itself. Every state's view is closed in
//! every possible way: with each member of the layer, with each choice of remaining replicas, and
//! without one shard. Predictions must stand in all of them ([`rules`]): a crashed machine is one
//! outside the choice.
//!
//! Not modelled: liveness, durability `disk`, restarts of replicas, shards that lend, skipped
//! names, several views, and members that drop cuts (`place::Way` names the messages that are not
//! open, and why).

mod closing;
mod log;
mod place;
mod rules;

use std::time::Duration;

use log::Log;
use seriatim_protocol::Mutation;

use crate::{ENOUGH, explore, refute};

/// One shard has its quota for the first cut; the other receives its own.
const TURN: Log = Log { settled: [&[], &[10]], submits: [&[10], &[]], waits: 0, mutation: None };
/// The second window was decided with the first cut. One shard has its quota for the second cut;
/// the other receives more than its own.
const BEYOND: Log = Log { settled: [&[10], &[20]], submits: [&[11], &[]], waits: 0, mutation: None };
const TURNS: Log = Log { settled: [&[], &[]], submits: [&[10], &[10]], waits: 0, mutation: None };
const AHEAD: Log = Log { settled: [&[], &[10]], submits: [&[21], &[10]], waits: 0, mutation: None };
/// A record and one wait: other shards are asked for the turns that it waits for.
const ASKED: Log = Log { settled: [&[], &[]], submits: [&[1], &[]], waits: 1, mutation: None };
const WAITS: Log = Log { settled: [&[], &[]], submits: [&[1, 1], &[1]], waits: 3, mutation: None };

const SHORT: [(&str, Log); 2] = [("a turn", TURN), ("records of the next window", BEYOND)];

/// Models for `cargo xtask soak`, which does not reach the end of some.
const LONG: [(&str, Log); 4] = [
    ("a record that others are asked for", ASKED),
    ("turns of both shards", TURNS),
    ("records of both windows", AHEAD),
    ("records on both shards, and waits", WAITS),
];

/// A defect, the property that must fail, and the model.
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

/// Runs only with `SERIATIM_MODEL_MINUTES`, for that time.
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
