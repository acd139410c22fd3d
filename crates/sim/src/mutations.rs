//! Deliberate defects, and which checker must object to each.
//!
//! A checker that was never seen to object proves nothing.

use seriatim_model::{Announced, Order, Properties};
use seriatim_protocol::Deviation;

use crate::checkers::Objection;
use crate::profiles::{self, Profile};
use crate::run::run;

/// A defect, the checker that must notice it, and how soon.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// The defect.
    pub deviation: Deviation,
    /// The checker that must object.
    pub checker: &'static str,
    /// Within how many seeds of its profile.
    pub within: u64,
    /// The profile to run.
    pub profile: Profile,
    /// The property of the orderings that show it. The first of those that the profile is for is the one that must.
    pub of: fn(&Properties) -> bool,
    /// The first seed.
    pub from: u64,
}

impl Mutation {
    /// The first seed at which the named checker objects, and its objection.
    #[must_use]
    pub fn caught(&self) -> Option<(u64, Objection)> {
        let seeds = self.from..self.from + self.within;
        seeds.into_iter().find_map(|seed| {
            let plan = self.profile.plan(seed, self.order()).deviating(Some(self.deviation));
            let objections = run(plan, false).objections;
            let objection = objections.into_iter().find(|objection| objection.checker == self.checker);
            objection.map(|objection| (seed, objection))
        })
    }

    /// The ordering that must show it.
    fn order(&self) -> Order {
        let shows = |order: &Order| (self.of)(&order.properties());
        self.profile.orders().find(shows).expect("some ordering shows it")
    }

    /// The same, on the first ordering with a property.
    #[must_use]
    pub const fn of(self, property: fn(&Properties) -> bool) -> Self {
        Self { of: property, ..self }
    }

    /// The same, from this seed on.
    #[must_use]
    pub const fn from(self, seed: u64) -> Self {
        Self { from: seed, ..self }
    }
}

/// A defect that the first ordering shows which the profile is for.
#[must_use]
pub const fn mutation(
    deviation: Deviation,
    checker: &'static str,
    within: u64,
    profile: Profile,
) -> Mutation {
    Mutation { deviation, checker, within, profile, of: |_| true, from: 0 }
}

const PLACES_FIRST: fn(&Properties) -> bool = |order| order.places_first;
const HAS_CUTS: fn(&Properties) -> bool = |order| order.has_cuts;
const SHARDS_CHOSEN: fn(&Properties) -> bool = |order| !order.places_by_position;
const NAMES_APART: fn(&Properties) -> bool = |order| matches!(order.announces, Announced::Name);

/// The log passes a session while something of it is repeated, and the member dies that has forgotten it. That is rare: so the
/// plan is one in which it was seen, with other chances.
const PASSED_WHILE_REPEATED: Profile = Profile {
    make: |seed| {
        let mut plan = (profiles::ANY.make)(1_900_004_657);
        plan.seed += seed;
        plan
    },
    ..profiles::ANY
};

/// All of them.
pub const MUTATIONS: [Mutation; 99] = [
    mutation(Deviation::StableEarly, "no_unstable_reads", 3, profiles::QUIET),
    mutation(Deviation::FilterForgotten, "at_most_once", 5, profiles::CHURN),
    mutation(Deviation::FilterUnion, "durability", 20, profiles::HALF_SEEN),
    mutation(Deviation::SealSkipped, "durability", 5, profiles::SHARD_RESTARTS),
    mutation(Deviation::SealNotDurable, "kept_promises", 40, profiles::POWER_LOSSES),
    mutation(Deviation::SealedDrops, "no_unstable_reads", 150, profiles::CHURN),
    // No reader is given a wrong record: records keep their versions.
    mutation(Deviation::FenceSkipped, "kept_promises", 10, profiles::RACING_CONTROLLERS),
    mutation(Deviation::StageDestroys, "durability", 15, profiles::HALF_SEEN),
    // Found by the assertion that drops come in order, before any checker.
    mutation(Deviation::DropsUnordered, "assertion", 3, profiles::DISORDER),
    mutation(Deviation::FirstAfterFlush, "durability", 5, profiles::HALF_SEEN),
    mutation(Deviation::FlushReversed, "session_order", 3, profiles::CHURN),
    mutation(Deviation::AmnesiaAcknowledges, "amnesia", 40, profiles::ANY),
    mutation(Deviation::ConfirmBeforeSync, "durability", 30, profiles::POWER_LOSSES),
    mutation(Deviation::MixedViews, "durability", 10, profiles::CHURN).from(50),
    mutation(Deviation::OneAcknowledgement, "durability", 20, profiles::DYING_LEADERS),
    mutation(Deviation::TailFromLeader, "tail_above_acknowledged", 10, profiles::LEADER_CUT_OFF),
    mutation(Deviation::TailIsMinimum, "tail_above_acknowledged", 5, profiles::HALF_SEEN),
    mutation(Deviation::TailIsMaximum, "tail_above_acknowledged", 400, profiles::HALF_SEEN),
    mutation(Deviation::FenceDrops, "durability", 20, profiles::DYING_ATTEMPTS),
    // The loser of a race believes that its view is registered, and speaks for it.
    mutation(Deviation::ClaimUnchecked, "amnesia", 100, profiles::RACING_CONTROLLERS),
    mutation(Deviation::StableBeforeRegister, "no_unstable_reads", 20, profiles::DYING_ATTEMPTS),
    mutation(Deviation::OneNumberTwice, "total_order", 60, profiles::CHURN),
    mutation(Deviation::FollowerBeforeSync, "durability", 100, profiles::POWER_LOSSES),
    mutation(Deviation::GapsAdmitted, "session_order", 20, profiles::CHURN),
    mutation(Deviation::ReadsUnstable, "no_unstable_reads", 5, profiles::ANY),
    mutation(Deviation::SessionEndLost, "session_end", 20, profiles::ENDINGS),
    mutation(Deviation::ForgottenWithoutFloor, "at_most_once", 20, profiles::MANY_SESSIONS),
    mutation(Deviation::BackupsSkipped, "no_gap", 10, profiles::DYING_LEADERS),
    // The same.
    mutation(Deviation::DeposedPrimaryObeyed, "kept_promises", 10, profiles::RACING_CONTROLLERS),
    mutation(Deviation::LackingCounted, "liveness", 100, profiles::ABSENCES),
    mutation(Deviation::LackingServed, "no_gap", 100, profiles::COPIES),
    mutation(Deviation::PutOffForEver, "liveness", 40, profiles::CUT_OFF),
    // Without the seeds that fail where nobody outside the view is asked.
    mutation(Deviation::MendingWaits, "liveness", 50, profiles::MENDING).from(50),
    mutation(Deviation::FormerNotAsked, "liveness", 10, profiles::MENDING).from(110),
    mutation(Deviation::TrimForgotten, "trim", 30, profiles::TRIMMED_ABSENCES),
    mutation(Deviation::TrimHalfConfirmed, "trim", 30, profiles::TRIMMED_ABSENCES),
    mutation(Deviation::RecoveryAcceptsUnasked, "durability", 20, profiles::ACCEPTED_LOSSES),
    mutation(Deviation::StatusOfThoseHeard, "operator", 20, profiles::ABSENT_PRIMARIES),
    mutation(Deviation::TrimmedFlushed, "total_order", 10, profiles::HALF_TRIMMED).from(1010),
    mutation(Deviation::VoidsForgotten, "durability", 20, profiles::LOST_RECORDS),
    mutation(Deviation::VoidAcknowledged, "durability", 30, profiles::LOST_RECORDS),
    mutation(Deviation::ScrubbedEarly, "durability", 20, profiles::LOST_RECORDS),
    mutation(Deviation::OwnIdlePositions, "durability", 20, profiles::ORPHANS),
    mutation(Deviation::ScrubbedByTime, "durability", 20, profiles::ORPHANS),
    mutation(Deviation::EndedAtLeadersNumber, "session_end", 80, profiles::ORPHANS),
    mutation(Deviation::EndedByOne, "session_end", 10, PASSED_WHILE_REPEATED).of(NAMES_APART).from(450),
    mutation(Deviation::VoidNotReplicated, "no_gap", 10, profiles::LOST_RECORDS),
    mutation(Deviation::PlacedAnew, "no_gap", 20, profiles::RESHAPED),
    mutation(Deviation::LeftUntrimmed, "durability", 20, profiles::RESHAPED),
    mutation(Deviation::AgainInDoubt, "at_most_once", 10, profiles::APPENDED_AGAIN),
    mutation(Deviation::MapBeyondStable, "no_gap", 20, profiles::LOOKUPS),
    mutation(Deviation::HandedOverEarly, "no_gap", 5, profiles::QUIET),
    mutation(Deviation::SuccessorForgotten, "at_most_once", 20, profiles::RESUMED).of(SHARDS_CHOSEN),
    mutation(Deviation::RefusedEarly, "at_most_once", 150, profiles::UNDECIDED_RECORDS),
    mutation(Deviation::EndedOrdered, "at_most_once", 40, profiles::RESUMED).of(HAS_CUTS),
    mutation(Deviation::EndUncommitted, "at_most_once", 40, profiles::RESUMED).of(HAS_CUTS),
    mutation(Deviation::ResumedUnsettled, "session_order", 40, profiles::RESUMED).of(SHARDS_CHOSEN),
    mutation(Deviation::EndsForgotten, "at_most_once", 60, profiles::RESUMED).of(PLACES_FIRST),
    mutation(Deviation::FencesForgotten, "at_most_once", 120, profiles::SHUT_OUT).of(PLACES_FIRST),
    mutation(Deviation::SoughtEarly, "at_most_once", 60, profiles::RESUMED).of(PLACES_FIRST),
    mutation(Deviation::EndUnregistered, "at_most_once", 60, profiles::RESUMED).of(PLACES_FIRST),
    mutation(Deviation::SequencedTooLow, "tail_above_acknowledged", 30, profiles::CHAINS),
    mutation(Deviation::JunkOverValue, "total_order", 5, profiles::CHAINS),
    mutation(Deviation::WrittenWhileFenced, "durability", 30, profiles::CHAINS),
    mutation(Deviation::ReadFromHead, "no_unstable_reads", 30, profiles::CHAINS),
    mutation(Deviation::CutUnreplicated, "liveness", 5, profiles::CUTS),
    mutation(Deviation::CutUncommitted, "no_unstable_reads", 5, profiles::CUTS),
    mutation(Deviation::PositionsByArrival, "total_order", 5, profiles::CUTS),
    mutation(Deviation::CutsLost, "total_order", 5, profiles::CUTS),
    mutation(Deviation::SubmittedTwice, "at_most_once", 10, profiles::CUTS),
    mutation(Deviation::HeartbeatsBehindRecords, "no_needless_view", 10, profiles::LARGE_RECORDS),
    mutation(Deviation::NeverBusy, "memory_bound", 10, profiles::BURST),
    mutation(Deviation::SharesIgnored, "fair", 10, profiles::TWO_LOGS),
    mutation(Deviation::AttemptByTheClock, "recovers", 10, profiles::LONG_VIEW_CHANGE),
    mutation(Deviation::UnnamedToFenced, "recovers", 20, profiles::LONG_VIEW_CHANGE).of(SHARDS_CHOSEN),
    mutation(Deviation::HopsEachStripe, "recovers", 3, profiles::ONE_SESSION).of(HAS_CUTS),
    mutation(Deviation::FilledByTheClock, "no_needless_failure", 20, profiles::SLOW_CLIENTS).of(PLACES_FIRST),
    mutation(Deviation::VacantUnasked, "no_needless_failure", 20, profiles::DEATH_AMID_WRITES)
        .of(PLACES_FIRST),
    mutation(Deviation::ResentWithoutBackoff, "amplification", 10, profiles::OVERLOAD_SLOW_DISK),
    mutation(Deviation::OutsideUntrimmed, "liveness", 10, profiles::SMALL_DISKS).of(PLACES_FIRST),
    mutation(Deviation::SequencersUnreplaced, "liveness", 10, profiles::LOST_FOR_GOOD),
    mutation(Deviation::WentBackForEach, "liveness", 1, profiles::TAKING_TIME).from(700_000_924),
    mutation(Deviation::MutenessUnnoticed, "recovers", 10, profiles::MUTE),
    mutation(Deviation::FullDiskIgnored, "liveness", 40, profiles::FULL_FOR_GOOD),
    mutation(Deviation::JoinedForgotten, "liveness", 30, profiles::FLEETING_LOGS).of(PLACES_FIRST),
    mutation(Deviation::ReserveSpent, "liveness", 6, profiles::SMALL_DISKS).of(PLACES_FIRST).from(29),
    mutation(Deviation::SetBackUnnoticed, "no_gap", 40, profiles::SET_BACK),
    mutation(Deviation::SnapshotAhead, "no_gap", 20, profiles::POWER_LOSSES_IN_CHECKPOINTS),
    mutation(Deviation::JournaledAgain, "amplification", 3, profiles::OVERLOAD_RESETS),
    mutation(Deviation::AttemptJournaledInFull, "view_change_cost", 60, profiles::LONG_VIEW_CHANGE),
    mutation(Deviation::MeasuredByEncoding, "step_cost", 3, profiles::LONG_LOG),
    mutation(Deviation::AgedByWall, "retention", 40, profiles::LIMITED),
    mutation(Deviation::RetainedUnstable, "retention", 10, profiles::LIMITED),
    mutation(Deviation::RetainedTooLittle, "retention", 10, profiles::LIMITED),
    mutation(Deviation::RetainedThreeQuarters, "retention", 20, profiles::LIMITED),
    mutation(Deviation::NeverRetained, "limits_kept", 5, profiles::LIMITED),
    mutation(Deviation::MarksForgotten, "limits_kept", 10, profiles::LIMITED),
    mutation(Deviation::MarkedEarlier, "position_at", 10, profiles::LIMITED),
    mutation(Deviation::DrainedUncopied, "drained", 10, profiles::DEPARTURES),
];
