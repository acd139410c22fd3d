//! Coverage of the runs: counts of other events, and of each kind of fault at each step of the
//! protocol.

use std::collections::BTreeMap;
use std::fmt;

use seriatim_model::{Order, View};

use crate::excuses::Excuses;
use crate::history::{Append, End, History, Outcome};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A node is killed and restarted.
    Kill,
    /// A node loses power, and any part of its unsynced writes.
    PowerLoss,
    /// All nodes lose power at once.
    PowerCut,
    /// The register's node is killed.
    ControlKill,
    /// Two nodes are killed at once.
    DoubleKill,
    /// A node shuts down and restarts.
    Close,
    /// All nodes shut down and restart.
    CloseAll,
    /// A sync fails.
    SyncFailure,
    /// A disk is full.
    DiskFull,
    /// A disk syncs slowly.
    SlowDisk,
    /// Messages are lost.
    Loss,
    /// Messages are duplicated.
    Duplication,
    /// Messages overtake each other within connections.
    Reordering,
    /// Some nodes are cut off from the others.
    Partition,
    /// Some nodes are cut off from some of the others.
    PartialPartition,
    /// A node does not hear another, which hears it.
    OneWay,
    /// Only heartbeats pass from one node to another or to all, or back.
    Mute,
    /// The register's node is cut off.
    ControlPartition,
    /// Some clients and nodes cannot reach each other, in one direction or both.
    ClientPartition,
    /// Connections break.
    Reset,
    /// Some links are slow.
    SlowLinks,
    /// A node pauses.
    Pause,
    /// A node's clock jumps forward.
    ClockJump,
    /// A node is slow.
    SlowNode,
    /// The register's node is not heard, or does not hear.
    ControlOneWay,
    /// Two nodes are killed in turn.
    KillInTurn,
    /// A node is down for seconds.
    Absence,
    /// A node restarts with an empty disk.
    DiskLoss,
    /// Records on one disk are damaged.
    BitRot,
    /// A client dies and restarts, with or without its session.
    ClientCrash,
    /// A node restarts without its journal, but with its stores.
    JournalLoss,
    /// A node restarts without one of the log's store files.
    FileLoss,
    /// A disk falsely reports syncs for a while, then the node loses power.
    LyingDisk,
    /// All nodes are killed at once and restarted.
    KillAll,
}

impl FaultKind {
    /// Kinds that plans of all profiles draw from. Their number determines which seed draws which
    /// kind.
    pub const ALL: [Self; 30] = [
        Self::Kill,
        Self::PowerLoss,
        Self::PowerCut,
        Self::ControlKill,
        Self::DoubleKill,
        Self::Close,
        Self::CloseAll,
        Self::SyncFailure,
        Self::DiskFull,
        Self::SlowDisk,
        Self::Loss,
        Self::Duplication,
        Self::Reordering,
        Self::Partition,
        Self::PartialPartition,
        Self::OneWay,
        Self::Mute,
        Self::ControlPartition,
        Self::ClientPartition,
        Self::Reset,
        Self::SlowLinks,
        Self::Pause,
        Self::ClockJump,
        Self::SlowNode,
        Self::ControlOneWay,
        Self::KillInTurn,
        Self::Absence,
        Self::DiskLoss,
        Self::BitRot,
        Self::ClientCrash,
    ];

    /// Whether it is the death of one node.
    #[must_use]
    pub fn is_death(self) -> bool {
        matches!(self, Self::Kill | Self::PowerLoss)
    }

    /// Kinds that only certain profiles use.
    pub const APART: [Self; 4] = [Self::JournalLoss, Self::FileLoss, Self::LyingDisk, Self::KillAll];

    /// Whether one disk loses contents.
    #[must_use]
    pub fn loses_disk(self) -> bool {
        matches!(self, Self::DiskLoss | Self::JournalLoss | Self::FileLoss | Self::LyingDisk)
    }

    /// Whether a node loses its memory.
    #[must_use]
    pub fn loses_memory(self) -> bool {
        matches!(
            self,
            Self::Kill
                | Self::PowerLoss
                | Self::PowerCut
                | Self::ControlKill
                | Self::DoubleKill
                | Self::SyncFailure
                | Self::KillInTurn
                | Self::Absence
                | Self::DiskLoss
                | Self::JournalLoss
                | Self::FileLoss
                | Self::LyingDisk
                | Self::KillAll
        )
    }
}

/// A step of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Nothing happens.
    Idle,
    /// An append is in flight.
    Append,
    /// Shards bind the records of a batch to positions.
    Bind,
    /// Followers are truncating a batch.
    Truncate,
    /// View change, step 1.
    Claim,
    /// View change, steps 2 and 3.
    Seal,
    /// View change, step 4.
    Fence,
    /// View change, step 5.
    Flush,
    /// View change, step 6.
    Stage,
    /// View change, step 7.
    Register,
    /// View change, step 8.
    Start,
}

impl Step {
    /// All steps.
    pub const ALL: [Self; 11] = [
        Self::Idle,
        Self::Append,
        Self::Bind,
        Self::Truncate,
        Self::Claim,
        Self::Seal,
        Self::Fence,
        Self::Flush,
        Self::Stage,
        Self::Register,
        Self::Start,
    ];

    /// The step that a controller calls `name`.
    #[must_use]
    pub fn of_controller(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.to_string() == name)
    }

    /// Whether it is a step of a view change.
    #[must_use]
    pub fn is_view_change(self) -> bool {
        self >= Self::Claim
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_lowercase())
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(letter.to_lowercase());
        }
        f.pad(&name)
    }
}

/// Counts of one or many runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Runs.
    pub runs: u64,
    /// Events.
    pub events: u64,
    /// Events that woke a client.
    pub wakes: u64,
    /// Acknowledged appends.
    pub acknowledged: u64,
    /// Appends acknowledged only after a resubmission, under a later id.
    pub appended_again: u64,
    /// Records read.
    pub reads: u64,
    /// Answers that report the shards of positions.
    pub maps: u64,
    /// Tails answered.
    pub tails: u64,
    /// Completed trims.
    pub trims: u64,
    /// Resumed sessions.
    pub resumed: u64,
    /// Expired sessions.
    pub expired: u64,
    /// Appends refused for their size.
    pub refused: u64,
    /// Registered views.
    pub views: u64,
    /// Journal checkpoints.
    pub checkpoints: u64,
    /// Messages that arrived after their connection broke.
    pub stragglers: u64,
    /// Messages dropped because a send queue was full.
    pub overflows: u64,
    /// Runs of a log that became unavailable.
    pub unavailable: u64,
    /// Completed catch-ups of replicas.
    pub copies: u64,
    /// Dismissed replicas.
    pub dismissals: u64,
    /// Damaged records reported to readers.
    pub damages: u64,
    /// Excuses for apparent violations.
    pub excuses: Excuses,
    /// Unreadable stores put aside.
    pub put_aside: u64,
    /// Accepted losses.
    pub accepted_losses: u64,
    /// Status answers to an operator.
    pub statuses: u64,
    /// Reports of nodes' knowledge.
    pub inventories: u64,
    /// Nodes excluded by all logs.
    pub drained: u64,
    /// Removed nodes.
    pub removed: u64,
    /// Shards that joined.
    pub joins: u64,
    /// Shards that left.
    pub leaves: u64,
    /// Session ends reported to shards that held orphans (records without positions) of the
    /// session.
    pub ended_for_orphans: u64,
    /// Other logs deleted.
    pub deletions: u64,
    /// Faults by kind and step.
    pub faults: BTreeMap<(FaultKind, Step), u64>,
    /// Events of players and targets, by name.
    pub played: BTreeMap<String, u64>,
}

impl Coverage {
    /// Counts a fault that struck at a step.
    pub fn struck(&mut self, kind: FaultKind, step: Step) {
        *self.faults.entry((kind, step)).or_default() += 1;
    }

    /// Counts an event of players and targets.
    pub(crate) fn played(&mut self, what: &str) {
        *self.played.entry(what.to_owned()).or_default() += 1;
    }

    /// Counts a finished run.
    pub(crate) fn count(&mut self, history: &History) {
        self.acknowledged = history.acknowledged() as u64;
        self.appended_again = history.appends.iter().filter(|append| append.again > 0).count() as u64;
        self.reads = history.observations.len() as u64;
        self.maps = history.maps.iter().filter(|told| told.positions() > 0).count() as u64;
        self.tails = history.tails.iter().filter(|tail| tail.returned.is_some()).count() as u64;
        self.trims = history.trims.len() as u64;
        self.views = history.views.len() as u64;
        let views: Vec<_> = history.views.values().map(|registered| &registered.view).collect();
        let more = |a: &View, b: &View| {
            b.shards.iter().filter(|members| a.shard(members.shard).is_none()).count() as u64
        };
        self.joins = views.windows(2).map(|pair| more(pair[0], pair[1])).sum();
        self.leaves = views.windows(2).map(|pair| more(pair[1], pair[0])).sum();
        let refused = |append: &&Append| append.outcome == Outcome::Refused;
        self.refused = history.appends.iter().filter(refused).count() as u64;
        self.unavailable = u64::from(matches!(history.end, End::Unavailable(_)));
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.events += other.events;
        self.wakes += other.wakes;
        self.acknowledged += other.acknowledged;
        self.appended_again += other.appended_again;
        self.reads += other.reads;
        self.maps += other.maps;
        self.tails += other.tails;
        self.trims += other.trims;
        self.resumed += other.resumed;
        self.expired += other.expired;
        self.refused += other.refused;
        self.views += other.views;
        self.checkpoints += other.checkpoints;
        self.stragglers += other.stragglers;
        self.overflows += other.overflows;
        self.unavailable += other.unavailable;
        self.copies += other.copies;
        self.dismissals += other.dismissals;
        self.damages += other.damages;
        self.excuses.add(&other.excuses);
        self.put_aside += other.put_aside;
        self.accepted_losses += other.accepted_losses;
        self.statuses += other.statuses;
        self.inventories += other.inventories;
        self.drained += other.drained;
        self.removed += other.removed;
        self.joins += other.joins;
        self.leaves += other.leaves;
        self.ended_for_orphans += other.ended_for_orphans;
        self.deletions += other.deletions;
        for (what, count) in &other.played {
            *self.played.entry(what.clone()).or_default() += count;
        }
        for (cell, count) in &other.faults {
            *self.faults.entry(*cell).or_default() += count;
        }
    }

    /// Names of events that never happened. Departures of nodes are not required: only profiles of
    /// their own have them.
    #[must_use]
    pub fn missing(&self, order: Order) -> Vec<String> {
        let counts = [
            ("acknowledged appends", self.acknowledged),
            ("reads", self.reads),
            ("tails", self.tails),
            ("trims", self.trims),
            ("resumed sessions", self.resumed),
            ("expired sessions", self.expired),
            ("refused appends", self.refused),
            ("views", self.views),
            ("checkpoints", self.checkpoints),
            ("stragglers", self.stragglers),
            ("unavailable logs", self.unavailable),
            ("completed copies", self.copies),
            ("dismissed replicas", self.dismissals),
            ("damaged records", self.damages),
            ("stores put aside", self.put_aside),
            ("accepted losses", self.accepted_losses),
            ("statuses", self.statuses),
            ("shards that joined", self.joins),
            ("shards that left", self.leaves),
        ];
        let mut missing: Vec<String> =
            counts.into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name.to_owned()).collect();
        // Where clients refuse large appends before they number them, plans contain none.
        missing.retain(|name| order.properties().numbers_refused || name != "refused appends");
        // Where sequencing replicas keep no order, no batch is bound in the background, and none is
        // sealed.
        let is_unsealed = !order.properties().keeps_order;
        let happens = |step: &Step| !is_unsealed || !matches!(step, Step::Bind | Step::Truncate | Step::Seal);
        for kind in FaultKind::ALL {
            for step in Step::ALL.into_iter().filter(happens) {
                if !self.faults.contains_key(&(kind, step)) {
                    missing.push(format!("{kind} at {step}"));
                }
            }
        }
        missing
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<18}", "fault \\ step")?;
        for step in Step::ALL {
            write!(f, "{step:>9}")?;
        }
        writeln!(f)?;
        let struck = |kind: &FaultKind| self.faults.keys().any(|(struck, _)| struck == kind);
        for kind in FaultKind::ALL.into_iter().chain(FaultKind::APART.into_iter().filter(struck)) {
            write!(f, "{kind:<18}")?;
            for step in Step::ALL {
                write!(f, "{:>9}", self.faults.get(&(kind, step)).copied().unwrap_or(0))?;
            }
            writeln!(f)?;
        }
        for (what, count) in &self.played {
            writeln!(f, "{what:<24}{count:>9}")?;
        }
        Ok(())
    }
}
