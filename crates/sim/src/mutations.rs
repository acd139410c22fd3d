//! Deliberate defects, and which checker must object to each.
//!
//! A checker that was never seen to object proves nothing.

use seriatim_protocol::Deviation;

use crate::checkers::Objection;
use crate::plan::Plan;
use crate::run::run;

/// A defect, who must notice it, and how soon.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// The defect.
    pub deviation: Deviation,
    /// The checker that must object.
    pub checker: &'static str,
    /// Within how many seeds of its profile, from 0.
    pub within: u64,
    /// What to run.
    pub profile: fn(u64) -> Plan,
}

impl Mutation {
    /// The first seed at which the named checker objects, and its objection.
    #[must_use]
    pub fn caught(&self) -> Option<(u64, Objection)> {
        (0..self.within).find_map(|seed| {
            let outcome = run((self.profile)(seed).deviating(Some(self.deviation)), false);
            let objection =
                outcome.objections.into_iter().find(|objection| objection.checker == self.checker);
            objection.map(|objection| (seed, objection))
        })
    }
}

const fn mutation(
    deviation: Deviation,
    checker: &'static str,
    within: u64,
    profile: fn(u64) -> Plan,
) -> Mutation {
    Mutation { deviation, checker, within, profile }
}

/// All of them.
pub const MUTATIONS: [Mutation; 19] = [
    mutation(Deviation::StableEarly, "no_unstable_reads", 20, Plan::from_seed),
    mutation(Deviation::FilterForgotten, "total_order", 20, Plan::from_seed),
    mutation(Deviation::FilterUnion, "durability", 20, Plan::from_seed),
    mutation(Deviation::SealSkipped, "durability", 20, Plan::from_seed),
    mutation(Deviation::SealedDrops, "stable_prefix", 20, Plan::from_seed),
    mutation(Deviation::FenceSkipped, "stable_prefix", 20, Plan::from_seed),
    mutation(Deviation::StageDestroys, "durability", 20, Plan::from_seed),
    mutation(Deviation::DropsUnordered, "durability", 20, Plan::from_seed),
    mutation(Deviation::FirstAfterFlush, "no_gap", 20, Plan::from_seed),
    mutation(Deviation::FlushReversed, "session_order", 20, Plan::from_seed),
    mutation(Deviation::AmnesiaAcknowledges, "amnesia", 20, Plan::from_seed),
    mutation(Deviation::ConfirmBeforeSync, "durability", 20, Plan::from_seed),
    mutation(Deviation::MixedViews, "durability", 20, Plan::from_seed),
    mutation(Deviation::OneAcknowledgement, "durability", 20, Plan::from_seed),
    mutation(Deviation::TailFromLeader, "tail_above_acknowledged", 20, Plan::from_seed),
    mutation(Deviation::TailIsMinimum, "tail_above_acknowledged", 20, Plan::from_seed),
    mutation(Deviation::GapsAdmitted, "session_order", 20, Plan::from_seed),
    mutation(Deviation::ReadsUnstable, "no_unstable_reads", 20, Plan::from_seed),
    mutation(Deviation::BackupsSkipped, "durability", 20, Plan::from_seed),
];
