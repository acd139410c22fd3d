//! Deliberate defects, and the checker that must object to each.
//!
//! A checker that never objected proves nothing.

use seriatim_model::{Announced, Order, Properties};
use seriatim_protocol::Mutation;

use crate::checkers::Objection;
use crate::profiles::{self, Profile};
use crate::run::run;

/// A defect, and the checker that must notice it.
#[derive(Clone, Copy, Debug)]
pub struct Detection {
    /// The defect.
    pub mutation: Mutation,
    /// The checker.
    pub checker: &'static str,
    /// Number of seeds in which it must object.
    pub within: u64,
    /// The profile to run.
    pub profile: Profile,
    /// Property of the orderings that have the defect. The first such ordering of the profile must
    /// show it.
    pub of: fn(&Properties) -> bool,
    /// The first seed.
    pub from: u64,
}

impl Detection {
    /// The first objection of the checker, with its seed.
    #[must_use]
    pub fn caught(&self) -> Option<(u64, Objection)> {
        let seeds = self.from..self.from + self.within;
        seeds.into_iter().find_map(|seed| {
            let plan = self.profile.plan(seed, self.order()).mutated(Some(self.mutation));
            let objections = run(plan, false).objections;
            let objection = objections.into_iter().find(|objection| objection.checker == self.checker);
            objection.map(|objection| (seed, objection))
        })
    }

    fn order(&self) -> Order {
        let shows = |order: &Order| (self.of)(&order.properties());
        self.profile.orders().find(shows).expect("some ordering shows it")
    }

    /// Restricts the defect to orderings with this property.
    #[must_use]
    pub const fn of(self, property: fn(&Properties) -> bool) -> Self {
        Self { of: property, ..self }
    }

    /// Starts at this seed.
    #[must_use]
    pub const fn from(self, seed: u64) -> Self {
        Self { from: seed, ..self }
    }
}

/// A defect to be shown by the profile's first ordering.
#[must_use]
pub const fn detection(
    mutation: Mutation,
    checker: &'static str,
    within: u64,
    profile: Profile,
) -> Detection {
    Detection { mutation, checker, within, profile, of: |_| true, from: 0 }
}

const PLACES_FIRST: fn(&Properties) -> bool = |order| order.places_first;
const HAS_CUTS: fn(&Properties) -> bool = |order| order.has_cuts;
const HAS_QUOTAS: fn(&Properties) -> bool = |order| order.has_quotas;
const SHARDS_CHOSEN: fn(&Properties) -> bool = |order| !order.places_by_position;
const NAMES_APART: fn(&Properties) -> bool = |order| matches!(order.announces, Announced::Id);

/// The log skips a session while its records are repeated, and the member that forgot the session
/// dies. That is rare: seeds vary a plan that showed it.
const PASSED_WHILE_REPEATED: Profile = Profile {
    make: |seed| {
        let mut plan = (profiles::ANY.make)(1_900_004_657);
        plan.seed += seed;
        plan
    },
    ..profiles::ANY
};

/// All defects.
pub static MUTATIONS: [Detection; 163] = [
    detection(Mutation::StableEarly, "no_unstable_reads", 3, profiles::QUIET),
    detection(Mutation::FilterForgotten, "at_most_once", 5, profiles::CHURN),
    detection(Mutation::FilterUnion, "durability", 20, profiles::HALF_SEEN),
    detection(Mutation::SealSkipped, "durability", 5, profiles::SHARD_RESTARTS),
    detection(Mutation::SealNotDurable, "kept_promises", 40, profiles::POWER_LOSSES),
    detection(Mutation::SealedTruncates, "no_unstable_reads", 150, profiles::CHURN),
    // Readers get no wrong record, since records keep their versions: only the broken promise
    // shows.
    detection(Mutation::FenceSkipped, "kept_promises", 10, profiles::RACING_CONTROLLERS),
    detection(Mutation::StageDestroys, "durability", 15, profiles::HALF_SEEN),
    // An assertion notices the defect first: drops come in order.
    detection(Mutation::TruncatesUnordered, "assertion", 3, profiles::DISORDER),
    detection(Mutation::FirstAfterFlush, "durability", 5, profiles::HALF_SEEN),
    detection(Mutation::FlushReversed, "assertion", 3, profiles::CHURN),
    detection(Mutation::AmnesiaAcknowledges, "amnesia", 40, profiles::ANY),
    detection(Mutation::ConfirmBeforeSync, "durability", 30, profiles::POWER_LOSSES),
    detection(Mutation::MixedViews, "durability", 15, profiles::HALF_SEEN).from(25),
    detection(Mutation::OneAcknowledgement, "durability", 20, profiles::DYING_LEADERS),
    detection(Mutation::TailFromLeader, "tail_above_acknowledged", 10, profiles::LEADER_CUT_OFF),
    detection(Mutation::TailIsMinimum, "tail_above_acknowledged", 5, profiles::HALF_SEEN),
    detection(Mutation::TailIsMaximum, "tail_above_acknowledged", 400, profiles::HALF_SEEN),
    detection(Mutation::FenceDrops, "durability", 20, profiles::DYING_ATTEMPTS),
    // The loser of a race believes that its view is registered, and acts for it.
    detection(Mutation::ClaimUnchecked, "amnesia", 100, profiles::RACING_CONTROLLERS),
    detection(Mutation::StableBeforeRegister, "no_unstable_reads", 20, profiles::DYING_ATTEMPTS),
    detection(Mutation::OneNumberTwice, "total_order", 60, profiles::CHURN),
    detection(Mutation::FollowerBeforeSync, "durability", 100, profiles::POWER_LOSSES),
    detection(Mutation::GapsAdmitted, "session_order", 20, profiles::CHURN),
    detection(Mutation::ReadsUnstable, "no_unstable_reads", 5, profiles::ANY),
    detection(Mutation::SessionEndLost, "session_end", 20, profiles::ENDINGS),
    detection(Mutation::ForgottenWithoutFloor, "at_most_once", 20, profiles::MANY_SESSIONS),
    detection(Mutation::BackupsSkipped, "no_gap", 10, profiles::DYING_LEADERS),
    // Readers get no wrong record, as for `FenceSkipped`.
    detection(Mutation::DeposedPrimaryObeyed, "kept_promises", 10, profiles::RACING_CONTROLLERS),
    detection(Mutation::MissingCounted, "liveness", 20, profiles::DEPARTURES),
    detection(Mutation::MissingServed, "no_gap", 100, profiles::COPIES),
    detection(Mutation::PutOffForEver, "liveness", 40, profiles::CUT_OFF),
    // The first seeds fail already because this defect asks only the view's members, as
    // `FormerNotAsked` does.
    detection(Mutation::RepairWaits, "liveness", 50, profiles::MENDING).from(50),
    detection(Mutation::StandInCopies, "copied_early", 20, profiles::ABSENCES),
    detection(Mutation::ReplacedAtOnce, "copied_early", 20, profiles::ABSENCES),
    detection(Mutation::NeededRemoved, "removed_early", 10, profiles::UNDECIDED_RECORDS),
    detection(Mutation::FormerNotAsked, "liveness", 15, profiles::MENDING).from(780),
    detection(Mutation::JoinForgotten, "stable_prefix", 10, profiles::RESHAPED_LOSSES).of(SHARDS_CHOSEN),
    detection(Mutation::TrimForgotten, "trim", 30, profiles::TRIMMED_ABSENCES),
    detection(Mutation::TrimHalfConfirmed, "trim", 30, profiles::TRIMMED_ABSENCES),
    detection(Mutation::RecoveryAcceptsUnasked, "durability", 20, profiles::ACCEPTED_LOSSES),
    detection(Mutation::StatusOfThoseHeard, "operator", 20, profiles::ABSENT_PRIMARIES),
    detection(Mutation::OldestKnown, "operator", 20, profiles::ABSENT_PRIMARIES),
    detection(Mutation::EmptyEndsRead, "liveness", 20, profiles::LOOKUPS).of(HAS_QUOTAS),
    detection(Mutation::TrimmedFlushed, "total_order", 10, profiles::HALF_TRIMMED).from(2200),
    detection(Mutation::VoidsForgotten, "durability", 20, profiles::LOST_RECORDS),
    detection(Mutation::VoidAcknowledged, "durability", 30, profiles::LOST_RECORDS),
    detection(Mutation::ScrubbedEarly, "durability", 20, profiles::LOST_RECORDS),
    detection(Mutation::OwnIdlePositions, "durability", 20, profiles::ORPHANS),
    detection(Mutation::ScrubbedByTime, "durability", 20, profiles::ORPHANS),
    detection(Mutation::EndedAtLeadersNumber, "session_end", 80, profiles::ORPHANS),
    detection(Mutation::EndedByOne, "session_end", 10, PASSED_WHILE_REPEATED).of(NAMES_APART).from(675),
    detection(Mutation::VoidNotReplicated, "no_gap", 10, profiles::LOST_RECORDS),
    detection(Mutation::PlacedAnew, "no_gap", 20, profiles::RESHAPED),
    detection(Mutation::LeftUntrimmed, "durability", 20, profiles::RESHAPED).from(50),
    detection(Mutation::AgainInDoubt, "at_most_once", 10, profiles::APPENDED_AGAIN),
    detection(Mutation::MapBeyondStable, "no_gap", 20, profiles::LOOKUPS),
    detection(Mutation::HandedOverEarly, "no_gap", 5, profiles::QUIET),
    detection(Mutation::SuccessorForgotten, "at_most_once", 20, profiles::RESUMED).of(SHARDS_CHOSEN),
    detection(Mutation::RefusedEarly, "at_most_once", 30, profiles::UNDECIDED_RECORDS).from(680),
    detection(Mutation::EndedOrdered, "at_most_once", 40, profiles::RESUMED).of(HAS_CUTS),
    detection(Mutation::EndUncommitted, "at_most_once", 30, profiles::RESUMED).of(HAS_CUTS).from(160),
    detection(Mutation::ResumedUncompleted, "session_order", 40, profiles::RESUMED).of(SHARDS_CHOSEN),
    detection(Mutation::EndsForgotten, "at_most_once", 60, profiles::RESUMED).of(PLACES_FIRST),
    detection(Mutation::FencesForgotten, "at_most_once", 20, profiles::SHUT_OUT_LATER).of(PLACES_FIRST),
    detection(Mutation::SoughtEarly, "at_most_once", 60, profiles::RESUMED).of(PLACES_FIRST),
    detection(Mutation::EndUnregistered, "at_most_once", 60, profiles::RESUMED).of(PLACES_FIRST),
    detection(Mutation::SequencedTooLow, "tail_above_acknowledged", 30, profiles::CHAINS),
    detection(Mutation::JunkOverValue, "total_order", 5, profiles::CHAINS),
    detection(Mutation::WrittenWhileFenced, "durability", 30, profiles::CHAINS),
    detection(Mutation::ReadFromHead, "no_unstable_reads", 30, profiles::CHAINS),
    detection(Mutation::CutUnreplicated, "liveness", 5, profiles::CUTS),
    detection(Mutation::CutUncommitted, "no_unstable_reads", 5, profiles::CUTS),
    detection(Mutation::PositionsByArrival, "total_order", 5, profiles::CUTS),
    detection(Mutation::CutsLost, "total_order", 5, profiles::CUTS),
    detection(Mutation::RestDropped, "no_needless_resubmission", 20, profiles::CUTS),
    detection(Mutation::ClosedAtSlowest, "speculation_holds", 20, profiles::FORETOLD).from(145),
    detection(Mutation::LenderPredicts, "foretold", 40, profiles::SLOW_SHARDS),
    detection(Mutation::ClosedUnpadded, "speculation_holds", 40, profiles::FORETOLD),
    detection(Mutation::RestartedRest, "no_needless_resubmission", 100, profiles::CUTS),
    detection(Mutation::ClosedUnlisted, "at_most_once", 20, profiles::CUTS),
    detection(Mutation::ClosedNotDurable, "liveness", 100, profiles::ANY).of(HAS_CUTS),
    detection(Mutation::SubmittedTwice, "assertion", 10, profiles::CUTS),
    detection(Mutation::EmptyTooFar, "no_gap", 10, profiles::CUTS).of(HAS_QUOTAS),
    detection(Mutation::StaleReadTaken, "no_gap", 100, profiles::ANY).of(SHARDS_CHOSEN).from(4600),
    detection(Mutation::PassedOverOrdered, "assertion", 4, profiles::MANY_SESSIONS).of(HAS_QUOTAS),
    detection(Mutation::WorkIgnored, "no_needless_view", 10, profiles::WITHIN_CAPACITY),
    detection(Mutation::HeartbeatsBehindRecords, "no_needless_view", 10, profiles::LARGE_RECORDS),
    detection(Mutation::NeverBusy, "memory_bound", 10, profiles::BURST),
    detection(Mutation::SharesIgnored, "fair", 10, profiles::TWO_LOGS).from(10),
    detection(Mutation::AttemptByTheClock, "recovers", 10, profiles::LONG_VIEW_CHANGE),
    detection(Mutation::IdsSentToFenced, "recovers", 20, profiles::LONG_VIEW_CHANGE).of(SHARDS_CHOSEN),
    detection(Mutation::HopsEachStripe, "recovers", 3, profiles::ONE_SESSION).of(HAS_CUTS),
    detection(Mutation::FilledByTheClock, "no_needless_failure", 20, profiles::SLOW_CLIENTS).of(PLACES_FIRST),
    detection(Mutation::VacantUnasked, "no_needless_failure", 20, profiles::DEATH_AMID_WRITES)
        .of(PLACES_FIRST),
    detection(Mutation::ResentWithoutBackoff, "amplification", 10, profiles::OVERLOAD_SLOW_DISK),
    detection(Mutation::OutsideUntrimmed, "liveness", 10, profiles::SMALL_DISKS).of(PLACES_FIRST),
    detection(Mutation::SequencersUnreplaced, "liveness", 10, profiles::LOST_FOR_GOOD),
    detection(Mutation::WentBackForEach, "liveness", 1, profiles::TAKING_TIME).from(700_001_013),
    detection(Mutation::MutenessUnnoticed, "recovers", 10, profiles::MUTE),
    detection(Mutation::FullDiskIgnored, "liveness", 40, profiles::FULL_FOR_GOOD),
    detection(Mutation::JoinedForgotten, "liveness", 30, profiles::FLEETING_LOGS).of(PLACES_FIRST),
    detection(Mutation::NewestKept, "freed", 10, profiles::SMALL_DISKS),
    detection(Mutation::ReserveSpent, "liveness", 6, profiles::SMALL_DISKS).of(PLACES_FIRST).from(10),
    detection(Mutation::SetBackUnnoticed, "no_gap", 40, profiles::SET_BACK),
    detection(Mutation::SnapshotAhead, "no_gap", 20, profiles::POWER_LOSSES_IN_CHECKPOINTS),
    detection(Mutation::JournaledAgain, "amplification", 3, profiles::OVERLOAD_RESETS),
    detection(Mutation::AttemptJournaledInFull, "view_change_cost", 60, profiles::LONG_VIEW_CHANGE).from(150),
    detection(Mutation::MeasuredByEncoding, "step_cost", 3, profiles::LONG_LOG),
    detection(Mutation::AgedByWall, "retention", 40, profiles::LIMITED),
    detection(Mutation::RetainedUnstable, "retention", 10, profiles::LIMITED),
    detection(Mutation::RetainedTooLittle, "retention", 10, profiles::LIMITED),
    detection(Mutation::RetainedThreeQuarters, "retention", 20, profiles::LIMITED),
    detection(Mutation::PinIgnored, "retention", 10, profiles::LIMITED),
    detection(Mutation::NeverRetained, "limits_kept", 5, profiles::LIMITED),
    detection(Mutation::MarksForgotten, "limits_kept", 10, profiles::LIMITED),
    detection(Mutation::MarkedEarlier, "position_at", 10, profiles::LIMITED),
    detection(Mutation::DrainedUncopied, "drained", 10, profiles::DEPARTURES),
    detection(Mutation::HoldsUncommitted, "confirmed_is_final", 10, profiles::LOST_LEADERS),
    detection(Mutation::PredictedUnreplicated, "speculation_holds", 120, profiles::FORETOLD),
    detection(Mutation::LeaseIgnored, "foretold", 20, profiles::FORETOLD),
    detection(Mutation::WindowEarly, "speculation_holds", 40, profiles::FORETOLD).from(300),
    detection(Mutation::CutUnmet, "foretold", 20, profiles::FORETOLD),
    detection(Mutation::PassedOverShifts, "foretold", 12, profiles::MANY_SESSIONS).of(HAS_QUOTAS),
    // An assertion notices the defect: a cut ends where its window says.
    detection(Mutation::QuotaAtOnce, "assertion", 10, profiles::FORETOLD),
    detection(Mutation::AcknowledgedOnPrediction, "real_time_order", 20, profiles::FORETOLD),
    detection(Mutation::PaddingUncounted, "liveness", 20, profiles::FORETOLD),
    detection(Mutation::OwedForgotten, "liveness", 10, profiles::LOST_SHARDS),
    detection(Mutation::EmptyNotTold, "liveness", 100, profiles::ANY),
    detection(Mutation::GivenUpWhole, "liveness", 10, profiles::LOST_SHARDS),
    detection(Mutation::GivenUpUntold, "liveness", 20, profiles::LOST_SHARDS).from(20),
    detection(Mutation::ReassignedUnmarked, "misled", 20, profiles::ACCEPTED_LOSSES),
    detection(Mutation::ReassignedIgnored, "misled", 20, profiles::ACCEPTED_LOSSES),
    detection(Mutation::LostBeyondOthers, "skipped", 15, profiles::LOST_SHARDS).from(175),
    detection(Mutation::RetiredUncopied, "liveness", 10, profiles::LOST_SHARDS),
    detection(Mutation::RetiredKeeps, "at_most_once", 10, profiles::LOST_SHARDS),
    detection(Mutation::HoldsAnyView, "confirmed_is_final", 20, profiles::LOST_LEADERS).from(205),
    detection(Mutation::OldPredictionsKept, "confirmed_is_final", 20, profiles::LOST_LEADERS).from(205),
    detection(Mutation::EmptyNotGiven, "confirmed_is_final", 10, profiles::LOST_LEADERS),
    detection(Mutation::FailTooFar, "speculation_order", 20, profiles::LOST_LEADERS),
    detection(Mutation::FlushedIsVoid, "speculation_holds", 40, profiles::LOST_LEADERS),
    detection(Mutation::UnknownViewSkipped, "chosen_shards", 20, profiles::CHOSEN_SHARDS),
    detection(Mutation::DecidingViewUntold, "chosen_shards", 20, profiles::CHOSEN_SHARDS)
        .of(SHARDS_CHOSEN)
        .from(235),
    detection(Mutation::JoiningNotAsked, "liveness", 20, profiles::RESHAPED),
    // The stream of the earlier session ends the new recovery early. The model shows the order.
    detection(Mutation::NoTerm, "delivered_all", 10, profiles::PLAYERS),
    detection(Mutation::NormalWhileFetching, "delivered_in_order", 20, profiles::PLAYERS),
    detection(Mutation::QueueKept, "delivered_in_order", 100, profiles::PLAYERS),
    detection(Mutation::JoinTooLate, "delivered_in_order", 100, profiles::PLAYERS),
    detection(Mutation::RecoveryEndsEarly, "delivered_all", 20, profiles::PLAYERS),
    detection(Mutation::CaughtUpEarly, "delivered_all", 100, profiles::PLAYERS),
    detection(Mutation::OverflowForgotten, "delivered_all", 100, profiles::PLAYERS),
    detection(Mutation::AdvanceOverQueued, "delivered_all", 20, profiles::PLAYERS),
    detection(Mutation::StartAtHighest, "delivered_all", 100, profiles::PLAYERS),
    detection(Mutation::AppliedRemembered, "delivered_all", 100, profiles::PLAYERS),
    detection(Mutation::SkipUnrecorded, "delivered_all", 100, profiles::PLAYERS),
    detection(Mutation::GapJumped, "delivered_all", 30, profiles::PLAYERS).from(270),
    detection(Mutation::AfterUnchecked, "delivered_once", 100, profiles::PLAYERS),
    detection(Mutation::OldEpochServed, "fenced", 100, profiles::PLAYERS),
    detection(Mutation::AckBeforeEffect, "bounds_true", 20, profiles::PLAYERS),
    detection(Mutation::BoundBeforeEffect, "bounds_true", 20, profiles::PLAYERS),
    detection(Mutation::RuleOfToday, "delivered_as_mapped", 100, profiles::PLAYERS),
    detection(Mutation::SlotKept, "undisturbed", 100, profiles::PLAYERS).from(150),
    detection(Mutation::QueueUnbounded, "queues_bounded", 20, profiles::PLAYERS),
];
