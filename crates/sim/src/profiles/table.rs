//! All profiles (kinds of plans), each with the property that it needs from an ordering and the
//! number of seeds to pass.

use std::time::Duration;

use seriatim_model::{Announced, Order, Properties};

use super::{harder, lasting, overload, players, windows};
use crate::plan::Plan;

/// A kind of plans.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// Makes a seed's plan, for any ordering.
    pub make: fn(u64) -> Plan,
    /// Property needed for these plans to be useful.
    pub needs: Option<Need>,
    /// Seeds, from 0, to pass before a merge; fewer for slow plans.
    pub seeds: u64,
}

/// A property of some orderings.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Whether an ordering has it.
    pub is_met: fn(&Properties) -> bool,
    /// Why other orderings have no use for the plans.
    pub why_not: &'static str,
}

/// Delay until nodes remove trimmed or deleted records, by seed.
const FORGET_AFTER: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(300), Duration::from_secs(5)];

impl Profile {
    /// A seed's plan for this ordering.
    ///
    /// # Panics
    /// If the ordering lacks the needed property.
    #[must_use]
    pub fn plan(&self, seed: u64, order: Order) -> Plan {
        assert_eq!(self.unfit(order), None, "{} is not for {order}", self.name);
        let mut plan = (self.make)(seed).ordered(order);
        // A run lasts seconds: some nodes remove trimmed records during it, some not before its
        // end.
        let limits = &mut plan.options.limits;
        limits.forget_after = FORGET_AFTER[(seed % FORGET_AFTER.len() as u64) as usize];
        limits.forget_every = 4 * limits.forget_after;
        plan
    }

    /// Why the profile is useless for an ordering, if it is.
    #[must_use]
    pub fn unfit(&self, order: Order) -> Option<&'static str> {
        self.needs.filter(|need| !(need.is_met)(&order.properties())).map(|need| need.why_not)
    }

    /// Orderings with the needed property.
    pub fn orders(&self) -> impl Iterator<Item = Order> {
        Order::ALL.into_iter().filter(|order| self.unfit(*order).is_none())
    }

    /// The profile with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().copied().find(|profile| profile.name == name)
    }
}

const PLACES_FIRST: Need = Need {
    is_met: |order| order.places_first,
    why_not: "no client has a position before its record is written",
};
const HAS_CUTS: Need = Need { is_met: |order| order.has_cuts, why_not: "no cuts order its records" };
const PREDICTS: Need =
    Need { is_met: |order| order.is_lazy || order.has_quotas, why_not: "nothing is told before it is final" };
const HAS_QUOTAS: Need =
    Need { is_met: |order| order.has_quotas, why_not: "no position is given in advance" };
const RECORDS_PUT: Need = Need {
    is_met: |order| !matches!(order.announces, Announced::Record),
    why_not: "clients give no records to shards",
};
const NAMES_APART: Need = Need {
    is_met: |order| matches!(order.announces, Announced::Id),
    why_not: "no record is at a shard while its name is elsewhere",
};
const FILLS_LATE: Need = Need {
    is_met: |order| order.fills_late,
    why_not: "no append fails because its record came too late, so none is tried again",
};
const SHARDS_CHOSEN: Need = Need {
    is_met: |order| !order.places_by_position,
    why_not: "a position says which shard to ask, so there is nothing to look up",
};

macro_rules! profiles {
    ($($constant:ident: $name:literal, $make:path, $seeds:literal $(, $needs:ident)?;)*) => {
        $(
            #[doc = concat!("`", $name, "`; what happens in such plans is said where they are made.")]
            pub const $constant: Profile =
                Profile { name: $name, make: $make, needs: profiles!(@needs $($needs)?), seeds: $seeds };
        )*

        /// All profiles.
        pub const ALL: &[Profile] = &[$($constant),*];
    };
    (@needs) => { None };
    (@needs $needs:ident) => { Some($needs) };
}

profiles! {
    ANY: "any", Plan::from_seed, 120;
    QUIET: "quiet", super::quiet, 10;
    CHURN: "churn", super::churn, 10;
    LEADER_CUT_OFF: "leader-cut-off", super::leader_cut_off, 10;
    CUT_OFF: "cut-off", lasting::cut_off, 12;
    LOST_FOR_GOOD: "lost-for-good", lasting::lost_for_good, 10;
    FULL_FOR_GOOD: "full-for-good", lasting::full_for_good, 4;
    SMALL_DISKS: "small-disks", lasting::small_disks, 3;
    ONE_FAULT: "one-fault", lasting::one_fault, 15;
    SHARD_RESTARTS: "shard-restarts", super::shard_restarts, 10;
    DYING_ATTEMPTS: "dying-attempts", super::dying_attempts, 10;
    DISORDER: "disorder", super::disorder, 10;
    DYING_LEADERS: "dying-leaders", super::dying_leaders, 10;
    LOST_LEADERS: "lost-leaders", super::lost_leaders, 20, PREDICTS;
    FORETOLD: "foretold", super::foretold, 20, HAS_QUOTAS;
    BURSTS: "bursts", windows::bursts, 10, HAS_QUOTAS;
    WAVES: "waves", windows::waves, 10, HAS_QUOTAS;
    LOST_SHARDS: "lost-shards", windows::lost_shards, 20, HAS_QUOTAS;
    SLOW_SHARDS: "slow-shards", windows::slow_shards, 10, HAS_QUOTAS;
    FORGETFUL: "forgetful", super::forgetful, 10;
    HALF_SEEN: "half-seen", super::half_seen, 10;
    LOST_RECORDS: "lost-records", super::lost_records, 20, RECORDS_PUT;
    APPENDED_AGAIN: "appended-again", super::appended_again, 20, FILLS_LATE;
    LOOKUPS: "lookups", super::lookups, 10, SHARDS_CHOSEN;
    ORPHANS: "orphans", super::orphans, 20, NAMES_APART;
    RESUMED: "resumed", super::resumed, 10;
    SHUT_OUT: "shut-out", super::shut_out, 10;
    SHUT_OUT_LATER: "shut-out-later", super::shut_out_later, 5;
    UNDECIDED_RECORDS: "undecided-records", super::undecided_records, 10, RECORDS_PUT;
    RACING_CONTROLLERS: "racing-controllers", super::racing_controllers, 10;
    ABSENCES: "absences", super::absences, 10;
    DISK_LOSSES: "disk-losses", super::disk_losses, 10;
    SET_BACK: "set-back", super::set_back, 10;
    BIT_ROT: "bit-rot", super::bit_rot, 10;
    MENDING: "mending", super::mending, 10;
    POWER_LOSSES: "power-losses", super::power_losses, 10;
    POWER_LOSSES_IN_CHECKPOINTS: "power-losses-in-checkpoints", super::power_losses_in_checkpoints, 10;
    CHAINS: "chains", super::chains, 20, PLACES_FIRST;
    CUTS: "cuts", super::cuts, 20, HAS_CUTS;
    ENDINGS: "endings", super::endings, 10;
    MANY_SESSIONS: "many-sessions", super::many_sessions, 12;
    ACCEPTED_LOSSES: "accepted-losses", super::accepted_losses, 10;
    ABSENT_PRIMARIES: "absent-primaries", lasting::absent_primaries, 10;
    TRIMMED_ABSENCES: "trimmed-absences", super::trimmed_absences, 10;
    HALF_TRIMMED: "half-trimmed", super::half_trimmed, 20, PLACES_FIRST;
    COPIES: "copies", super::copies, 6;
    RESHAPED: "reshaped", super::reshaped, 6;
    CHOSEN_SHARDS: "chosen-shards", super::chosen_shards, 8;
    TAKING_TIME: "taking-time", overload::taking_time, 40;
    RESUMED_LOSSES: "resumed-losses", harder::resumed_losses, 10;
    RESHAPED_LOSSES: "reshaped-losses", harder::reshaped_losses, 6;
    WITHIN_CAPACITY: "within-capacity", overload::within_capacity, 4;
    OVERLOAD: "overload", overload::overload, 2;
    SLOW_CLIENTS: "slow-clients", overload::slow_clients, 6;
    DEATH_AMID_WRITES: "death-amid-writes", overload::death_amid_writes, 3;
    ONE_SESSION: "one-session", overload::one_session, 3;
    BURST: "burst", overload::burst, 2;
    LONG_VIEW_CHANGE: "long-view-change", overload::long_view_change, 2;
    OVERLOAD_CRASH: "overload-crash", overload::overload_crash, 2;
    OVERLOAD_SLOW_DISK: "overload-slow-disk", overload::overload_slow_disk, 3;
    LARGE_RECORDS: "large-records", overload::large_records, 3;
    OVERLOAD_RESETS: "overload-resets", overload::overload_resets, 2;
    TWO_LOGS: "two-logs", overload::two_logs, 3;
    MUTE: "mute", overload::mute, 4;
    LONG_LOG: "long-log", overload::long_log, 1;
    PART_LOSSES: "part-losses", harder::part_losses, 10;
    LYING_DISKS: "lying-disks", harder::lying_disks, 10;
    OWN_BYTES: "own-bytes", harder::own_bytes, 5;
    ECHOES: "echoes", harder::echoes, 5;
    LONG_FAULTS: "long-faults", harder::long_faults, 5;
    FLEETING_LOGS: "fleeting-logs", harder::fleeting_logs, 6;
    LIMITED: "limited", lasting::limited, 3;
    DEPARTURES: "departures", lasting::departures, 10;
    PLAYERS: "players", players::players, 20;
    PLAYERS_AND_FAULTS: "players-and-faults", players::players_and_faults, 10;
}
