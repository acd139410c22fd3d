//! Deliberate defects, and which checker must object to each.
//!
//! A checker that was never seen to object proves nothing.

use seriatim_model::Order;
use seriatim_protocol::Deviation;

use crate::checkers::Objection;
use crate::plan::Plan;
use crate::profiles;
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
    /// The profile to run.
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
pub const MUTATIONS: [Mutation; 96] = [
    mutation(Deviation::StableEarly, "no_unstable_reads", 3, profiles::quiet),
    mutation(Deviation::FilterForgotten, "at_most_once", 5, profiles::churn),
    mutation(Deviation::FilterUnion, "durability", 20, profiles::half_seen),
    mutation(Deviation::SealSkipped, "durability", 5, profiles::shard_restarts),
    mutation(Deviation::SealNotDurable, "kept_promises", 40, profiles::power_losses),
    mutation(Deviation::SealedDrops, "no_unstable_reads", 150, profiles::churn),
    // No reader is given a wrong record: records keep their versions.
    mutation(Deviation::FenceSkipped, "kept_promises", 10, profiles::racing_controllers),
    mutation(Deviation::StageDestroys, "durability", 15, profiles::half_seen),
    // Found by the assertion that drops come in order, before any checker.
    mutation(Deviation::DropsUnordered, "assertion", 3, profiles::disorder),
    mutation(Deviation::FirstAfterFlush, "durability", 5, profiles::half_seen),
    mutation(Deviation::FlushReversed, "session_order", 3, profiles::churn),
    mutation(Deviation::AmnesiaAcknowledges, "amnesia", 40, Plan::from_seed),
    mutation(Deviation::ConfirmBeforeSync, "durability", 30, profiles::power_losses),
    mutation(Deviation::MixedViews, "durability", 10, |seed| profiles::churn(seed + 50)),
    mutation(Deviation::OneAcknowledgement, "durability", 20, profiles::dying_leaders),
    mutation(Deviation::TailFromLeader, "tail_above_acknowledged", 10, profiles::leader_cut_off),
    mutation(Deviation::TailIsMinimum, "tail_above_acknowledged", 5, profiles::half_seen),
    mutation(Deviation::TailIsMaximum, "tail_above_acknowledged", 400, profiles::half_seen),
    mutation(Deviation::FenceDrops, "durability", 20, profiles::dying_attempts),
    // The loser of a race believes that its view is registered, and speaks for it.
    mutation(Deviation::ClaimUnchecked, "amnesia", 100, profiles::racing_controllers),
    mutation(Deviation::StableBeforeRegister, "no_unstable_reads", 20, profiles::dying_attempts),
    mutation(Deviation::OneNumberTwice, "total_order", 60, profiles::churn),
    mutation(Deviation::FollowerBeforeSync, "durability", 100, profiles::power_losses),
    mutation(Deviation::GapsAdmitted, "session_order", 20, profiles::churn),
    mutation(Deviation::ReadsUnstable, "no_unstable_reads", 5, Plan::from_seed),
    mutation(Deviation::SessionEndLost, "session_end", 20, profiles::endings),
    mutation(Deviation::ForgottenWithoutFloor, "at_most_once", 20, profiles::many_sessions),
    mutation(Deviation::BackupsSkipped, "no_gap", 10, profiles::dying_leaders),
    // The same.
    mutation(Deviation::DeposedPrimaryObeyed, "kept_promises", 10, profiles::racing_controllers),
    mutation(Deviation::LackingCounted, "liveness", 100, profiles::absences),
    mutation(Deviation::LackingServed, "no_gap", 100, profiles::copies),
    mutation(Deviation::PutOffForEver, "liveness", 40, profiles::cut_off),
    // Without the seeds that fail where nobody outside the view is asked.
    mutation(Deviation::MendingWaits, "liveness", 50, |seed| profiles::mending(seed + 50)),
    mutation(Deviation::FormerNotAsked, "liveness", 10, |seed| profiles::mending(seed + 110)),
    mutation(Deviation::TrimForgotten, "trim", 30, profiles::trimmed_absences),
    mutation(Deviation::TrimHalfConfirmed, "trim", 30, profiles::trimmed_absences),
    mutation(Deviation::TrimmedFlushed, "total_order", 10, |seed| profiles::half_trimmed(seed + 1010)),
    mutation(Deviation::VoidsForgotten, "durability", 20, profiles::lost_records),
    mutation(Deviation::VoidAcknowledged, "durability", 30, profiles::lost_records),
    mutation(Deviation::ScrubbedEarly, "durability", 20, profiles::lost_records),
    mutation(Deviation::OwnIdlePositions, "durability", 20, profiles::orphans),
    mutation(Deviation::ScrubbedByTime, "durability", 20, profiles::orphans),
    mutation(Deviation::EndedAtLeadersNumber, "session_end", 80, profiles::orphans),
    // The log passes a session while something of it is repeated, and the member dies that has forgotten it.
    // That is rare: so the plan is one in which it was seen, with other chances.
    mutation(Deviation::EndedByOne, "session_end", 10, |seed| {
        let mut plan = Plan::from_seed(1_900_004_657).ordered(Order::ErwinSt);
        plan.seed += 450 + seed;
        plan
    }),
    mutation(Deviation::VoidNotReplicated, "no_gap", 10, profiles::lost_records),
    mutation(Deviation::PlacedAnew, "no_gap", 20, profiles::reshaped),
    mutation(Deviation::LeftUntrimmed, "durability", 20, profiles::reshaped),
    mutation(Deviation::AgainInDoubt, "at_most_once", 10, profiles::appended_again),
    mutation(Deviation::MapBeyondStable, "no_gap", 20, profiles::lookups),
    mutation(Deviation::SuccessorForgotten, "at_most_once", 20, profiles::resumed),
    mutation(Deviation::RefusedEarly, "at_most_once", 150, profiles::undecided_records),
    mutation(Deviation::EndedOrdered, "at_most_once", 40, |seed| {
        profiles::resumed(seed).ordered(Order::Scalog)
    }),
    mutation(Deviation::EndUncommitted, "at_most_once", 40, |seed| {
        profiles::resumed(seed).ordered(Order::Scalog)
    }),
    mutation(Deviation::ResumedUnsettled, "session_order", 40, profiles::resumed),
    mutation(Deviation::EndsForgotten, "at_most_once", 60, |seed| {
        profiles::resumed(seed).ordered(Order::Corfu)
    }),
    mutation(Deviation::FencesForgotten, "at_most_once", 120, profiles::shut_out),
    mutation(Deviation::SoughtEarly, "at_most_once", 60, |seed| {
        profiles::resumed(seed).ordered(Order::Corfu)
    }),
    mutation(Deviation::EndUnregistered, "at_most_once", 60, |seed| {
        profiles::resumed(seed).ordered(Order::Corfu)
    }),
    mutation(Deviation::SequencedTooLow, "tail_above_acknowledged", 30, profiles::chains),
    mutation(Deviation::JunkOverValue, "total_order", 5, profiles::chains),
    mutation(Deviation::WrittenWhileFenced, "durability", 30, profiles::chains),
    mutation(Deviation::ReadFromHead, "no_unstable_reads", 30, profiles::chains),
    mutation(Deviation::CutUnreplicated, "liveness", 5, profiles::cuts),
    mutation(Deviation::CutUncommitted, "no_unstable_reads", 5, profiles::cuts),
    mutation(Deviation::PositionsByArrival, "total_order", 5, profiles::cuts),
    mutation(Deviation::CutsLost, "total_order", 5, profiles::cuts),
    mutation(Deviation::SubmittedTwice, "at_most_once", 10, profiles::cuts),
    mutation(Deviation::HeartbeatsBehindRecords, "no_needless_view", 10, profiles::large_records),
    mutation(Deviation::NeverBusy, "memory_bound", 10, profiles::burst),
    mutation(Deviation::SharesIgnored, "fair", 10, profiles::two_logs),
    mutation(Deviation::AttemptByTheClock, "recovers", 10, profiles::long_view_change),
    mutation(Deviation::UnnamedToFenced, "recovers", 20, |seed| {
        profiles::long_view_change(seed).ordered(Order::ErwinSt)
    }),
    mutation(Deviation::HopsEachStripe, "recovers", 3, |seed| {
        profiles::one_session(seed).ordered(Order::Scalog)
    }),
    mutation(Deviation::FilledByTheClock, "no_needless_failure", 20, |seed| {
        profiles::slow_clients(seed).ordered(Order::Corfu)
    }),
    mutation(Deviation::VacantUnasked, "no_needless_failure", 20, |seed| {
        profiles::death_amid_writes(seed).ordered(Order::Corfu)
    }),
    mutation(Deviation::ResentWithoutBackoff, "amplification", 10, profiles::overload_slow_disk),
    mutation(Deviation::OutsideUntrimmed, "liveness", 10, |seed| {
        profiles::small_disks(seed).ordered(Order::Corfu)
    }),
    mutation(Deviation::SequencersUnreplaced, "liveness", 10, profiles::lost_for_good),
    mutation(Deviation::WentBackForEach, "liveness", 1, |seed| profiles::taking_time(700_000_924 + seed)),
    mutation(Deviation::MutenessUnnoticed, "recovers", 10, profiles::mute),
    mutation(Deviation::FullDiskIgnored, "liveness", 40, profiles::full_for_good),
    mutation(Deviation::JoinedForgotten, "liveness", 30, |seed| {
        profiles::fleeting_logs(seed).ordered(Order::Corfu)
    }),
    mutation(Deviation::ReserveSpent, "liveness", 6, |seed| {
        profiles::small_disks(seed + 29).ordered(Order::Corfu)
    }),
    mutation(Deviation::SetBackUnnoticed, "no_gap", 40, profiles::set_back),
    mutation(Deviation::SnapshotAhead, "no_gap", 20, profiles::power_losses_in_checkpoints),
    mutation(Deviation::JournaledAgain, "amplification", 3, profiles::overload_resets),
    mutation(Deviation::AttemptJournaledInFull, "view_change_cost", 60, profiles::long_view_change),
    mutation(Deviation::MeasuredByEncoding, "step_cost", 3, profiles::long_log),
    mutation(Deviation::AgedByWall, "retention", 40, profiles::limited),
    mutation(Deviation::RetainedUnstable, "retention", 10, profiles::limited),
    mutation(Deviation::RetainedTooLittle, "retention", 10, profiles::limited),
    mutation(Deviation::RetainedThreeQuarters, "retention", 20, profiles::limited),
    mutation(Deviation::NeverRetained, "limits_kept", 5, profiles::limited),
    mutation(Deviation::MarksForgotten, "limits_kept", 10, profiles::limited),
    mutation(Deviation::MarkedEarlier, "position_at", 10, profiles::limited),
    mutation(Deviation::DrainedUncopied, "drained", 10, profiles::departures),
];
