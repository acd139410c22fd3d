//! The coverage of the runs: each kind of fault at each step of the protocol.

use std::collections::BTreeMap;
use std::fmt;

use seriatim_model::{Order, View};

use crate::excuses::Excuses;
use crate::history::{Append, End, History, Outcome};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A node is killed, and started again; its disk keeps what was written.
    Kill,
    /// A node loses power: its disk keeps any part of what was not synced.
    PowerLoss,
    /// All nodes lose power at once.
    PowerCut,
    /// The node of the register and the controllers is killed.
    ControlKill,
    /// Two nodes are killed at once.
    DoubleKill,
    /// A node is ended in an orderly way, and started again.
    Close,
    /// All nodes are ended in an orderly way, and started again.
    CloseAll,
    /// A sync fails.
    SyncFailure,
    /// A disk has no room for a while.
    DiskFull,
    /// A disk syncs slowly for a while.
    SlowDisk,
    /// Messages are lost for a while.
    Loss,
    /// Messages come twice for a while.
    Duplication,
    /// Messages overtake each other within connections for a while.
    Reordering,
    /// Some nodes cannot reach the others, nor be reached.
    Partition,
    /// Some nodes cannot reach some of the others, nor be reached by them, and some can.
    PartialPartition,
    /// One node is heard by another, and does not hear it.
    OneWay,
    /// Nothing but heartbeats gets from one node to another, or to all others, and back or not.
    Mute,
    /// The node of the register cannot reach the others.
    ControlPartition,
    /// Some clients cannot reach some nodes, or not be reached by them.
    ClientPartition,
    /// Connections break.
    Reset,
    /// Some links are slow.
    SlowLinks,
    /// A node does nothing for a while, and goes on as if nothing had been.
    Pause,
    /// A node's clock jumps forward.
    ClockJump,
    /// A node does everything slowly for a while.
    SlowNode,
    /// The node of the register is not heard, or does not hear.
    ControlOneWay,
    /// One node is killed, and at once another.
    KillInTurn,
    /// A node is killed, and stays away for seconds.
    Absence,
    /// A node is killed, and comes back with an empty disk.
    DiskLoss,
    /// Records on one node's disk are damaged.
    BitRot,
    /// A client dies between its messages, and comes back with its session or without.
    ClientCrash,
    /// A node is killed, and comes back without its journal; its stores are there.
    JournalLoss,
    /// A node is killed, and comes back without one of the files of the log's stores.
    FileLoss,
    /// A disk says that it synced and did not, for a while; then the node loses power.
    LyingDisk,
    /// All nodes are killed at once, and started again; their disks keep what was written.
    KillAll,
}

impl FaultKind {
    /// The kinds that are drawn. The meaning of a seed depends on how many there are.
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

    /// Whether one node dies of it.
    #[must_use]
    pub fn is_death(self) -> bool {
        matches!(self, Self::Kill | Self::PowerLoss)
    }

    /// The kinds that only some profiles have.
    pub const APART: [Self; 4] = [Self::JournalLoss, Self::FileLoss, Self::LyingDisk, Self::KillAll];

    /// Whether a part of what one disk holds is lost, or all of it.
    #[must_use]
    pub fn loses_disk(self) -> bool {
        matches!(self, Self::DiskLoss | Self::JournalLoss | Self::FileLoss | Self::LyingDisk)
    }

    /// Whether some node forgets what it held in memory.
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

/// Where the protocol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Nothing is going on.
    Idle,
    /// An append is on its way.
    Append,
    /// A batch is being bound on the shards.
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
    /// All of them.
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

    /// The step with the name that the controller gives it.
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

/// Counts over one run, or over many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Runs.
    pub runs: u64,
    /// Events.
    pub events: u64,
    /// How many of them were clients that wanted something by themselves.
    pub wakes: u64,
    /// Appends that were acknowledged.
    pub acknowledged: u64,
    /// Appends that were acknowledged under another name than their first.
    pub appended_again: u64,
    /// Records that readers got.
    pub reads: u64,
    /// Answers that told a reader which shards hold some positions.
    pub maps: u64,
    /// Tails that were told.
    pub tails: u64,
    /// Trims that every replica confirmed.
    pub trims: u64,
    /// Sessions that a client went on with after a crash.
    pub resumed: u64,
    /// Sessions that expired.
    pub expired: u64,
    /// Appends that were refused for their size.
    pub refused: u64,
    /// Views that were registered.
    pub views: u64,
    /// Checkpoints of journals.
    pub checkpoints: u64,
    /// Messages that arrived after their connection broke.
    pub stragglers: u64,
    /// Messages for which a connection's queue had no room.
    pub overflows: u64,
    /// Runs of a log that lost more memory than it can bear and said so.
    pub unavailable: u64,
    /// Replicas that got from others all that they lacked.
    pub copies: u64,
    /// Replicas that were dismissed because the log needs them no more.
    pub dismissals: u64,
    /// Times that a replica told a reader of a damaged record.
    pub damages: u64,
    /// The excuses that let something pass although it looks like a broken promise.
    pub excuses: Excuses,
    /// Stores that could not be opened and were put aside.
    pub put_aside: u64,
    /// Losses that an operator accepted.
    pub accepted_losses: u64,
    /// Answers to an operator who asked how far the log is.
    pub statuses: u64,
    /// Accounts of what nodes know, without the register.
    pub inventories: u64,
    /// Nodes that all logs did without in the end.
    pub drained: u64,
    /// Nodes that were removed.
    pub removed: u64,
    /// Shards that joined the log while it ran.
    pub joins: u64,
    /// Shards that left it altogether.
    pub leaves: u64,
    /// Times that a shard was told where a session ended of which it had records without names.
    pub ended_for_orphans: u64,
    /// Other logs that were deleted.
    pub deletions: u64,
    /// Each kind of fault at each step.
    pub faults: BTreeMap<(FaultKind, Step), u64>,
}

impl Coverage {
    /// A fault struck.
    pub fn struck(&mut self, kind: FaultKind, step: Step) {
        *self.faults.entry((kind, step)).or_default() += 1;
    }

    /// Counts what a run's history tells, once it is over.
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

    /// Adds the counts of another run.
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
        for (cell, count) in &other.faults {
            *self.faults.entry(*cell).or_default() += count;
        }
    }

    /// The events that never happened, by name. Nodes leave in plans of their own kind alone.
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
        // Elsewhere a client refuses what is too large before it has a number: none is tried.
        missing.retain(|name| order.properties().numbers_refused || name != "refused appends");
        // Where the role that orders keeps nothing, nothing is bound in the background, and nobody
        // is sealed.
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
        Ok(())
    }
}
