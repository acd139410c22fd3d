//! The messages of the shard contract. The [module](super) lists its promises.

#![expect(missing_docs, reason = "the message has a comment; the names of its fields suffice")]

use seriatim_model::storage::{MissingRange, Ordered, Owned, Run, Stored};
use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{
    Endpoint, Filter, IdRun, Incarnation, LogEntry, Member, Placement, Position, ShardId, Span, ViewHistory,
    ViewNumber,
};

use super::read_error::ReadError;
use super::survey::{Retain, Survey, Surveyed};
use crate::roles::{self, Family};

/// The state that a replica reports to a view change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The latest registered view that names this incarnation.
    pub view: ViewNumber,
    pub stable: Position,
    /// The positions of that view that the replica does not hold yet.
    pub missing: Option<MissingRange>,
    pub trim: Position,
    /// The end of the replica's writes in that view.
    pub end: Position,
    /// The latest registered view known to this incarnation or an earlier one.
    pub knows: ViewNumber,
}

wire_struct! { Held { view, stable, missing, trim, end, knows } }

impl Held {
    /// The missing range as a member of a view whose flush began at `first`: the earlier missing
    /// range, joined with the positions bound in views without the replica. A `history` that has
    /// forgotten views starts at a trimmed position. An incarnation that no view named yet is
    /// complete below its first stable bound, except where later views rewrote positions.
    #[must_use]
    pub fn missing_from(&self, history: &ViewHistory, first: Position) -> Option<MissingRange> {
        let from = self.holds_to(history).unwrap_or(first);
        if from < first { Some(MissingRange { from, end: first }.join(self.missing)) } else { self.missing }
    }

    /// Like `missing_from`; an empty range if the replica is complete.
    #[must_use]
    pub fn missing_in(&self, history: &ViewHistory, first: Position) -> MissingRange {
        self.missing_from(history, first).unwrap_or(MissingRange { from: first, end: first })
    }

    /// Position up to which the replica has everything apart from `missing`. `None` if it misses
    /// nothing else.
    #[must_use]
    pub fn holds_to(&self, history: &ViewHistory) -> Option<Position> {
        let later = |than| history.steps().iter().find(|(number, _)| *number > than).map(|(_, from)| *from);
        if self.view == ViewNumber::NONE {
            Some(later(self.knows).map_or(self.stable, |from| from.min(self.stable)))
        } else {
            later(self.view)
        }
    }
}

/// Durable records without positions, in the order that all replicas of the shard share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unplaced {
    /// The view from whose start the records are counted.
    pub view: ViewNumber,
    pub length: u64,
    /// Number of the view's records before those in `names`.
    pub from: u64,
    pub names: Vec<IdRun>,
}

/// Assigns positions, in advance or by a committed cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Announces windows of a view to a replica.
    Windows { view: ViewNumber, windows: Vec<Turns> },
    /// A part of a committed cut of a view, or of a cut completed for a claim.
    Cut { view: ViewNumber, first: Position, runs: Vec<Ordered> },
    /// A part of the closing cut of a claim, which is the last cut of the view before it.
    Closing { claim: ViewNumber, first: Position, runs: Vec<Ordered> },
}

/// A window, restricted to shards with turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    pub number: u32,
    pub base: Position,
    pub cuts: u32,
    /// The number of groups in which the shards take turns.
    pub groups: u32,
    /// Shards with turns: quota, and index of the local log where the first turn begins.
    pub shares: Vec<(ShardId, u32, u64)>,
    /// Shards without turns: number of positions of each behind all turns.
    pub rooms: Vec<(ShardId, u32)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Sequencing layer to primary: asks it to hold these records. Answer: `Bound`.
    Bind {
        view: ViewNumber,
        /// Names the batch: its first position on any shard.
        batch: Position,
        /// The backups that must hold the records.
        backups: Vec<Member>,
        stable: Position,
        runs: Vec<Run>,
    },
    /// Primary to sequencing layer: all replicas hold the batch.
    Bound {
        view: ViewNumber,
        batch: Position,
        stable: Position,
        /// Ids whose records no replica has, now no-ops.
        voids: Vec<IdRun>,
    },
    /// Replica to client: no room; retry the put later.
    Busy { view: ViewNumber, ids: IdRun, disk_full: bool },
    /// Sequencing layer to primary, or primary to backup: positions below `stable` are final.
    Stable { view: ViewNumber, stable: Position },
    /// Primary to sequencing layer: answers `Stable`. Also backup to primary, when a reader asks
    /// for positions above this bound.
    StableKnown { view: ViewNumber, stable: Position },
    /// Replica to controller: answers `Fence`. Also to a sender whose view is over.
    Fenced { claim: ViewNumber, incarnation: Incarnation, held: Held },
    /// Controller to replica: asks it to reject everything of views below this claim.
    Fence { claim: ViewNumber, entry: LogEntry },
    /// Primary to backup: asks it to hold these records. Answer: `Replicated`.
    Replicate {
        view: ViewNumber,
        batch: Position,
        incarnation: Incarnation,
        stable: Position,
        runs: Vec<Run>,
    },
    /// Backup to primary: the backup holds the batch.
    Replicated { view: ViewNumber, batch: Position },
    /// Controller to replica: asks it to copy its records in `first..end` to the other replicas,
    /// under the claim. A position without a record receives a client's pending record, or else
    /// junk.
    Flush {
        claim: ViewNumber,
        incarnation: Incarnation,
        first: Position,
        end: Position,
        placement: Placement,
        backups: Vec<Member>,
    },
    /// Replica to controller: progress of `Flush`.
    Flushed {
        claim: ViewNumber,
        /// All replicas hold everything below this.
        upto: Position,
    },
    /// Replica to controller: a record to flush cannot be read here.
    FlushFailed { claim: ViewNumber },
    /// Reader to replica: reads records. The replica waits at most `wait_ms` for `from` to become
    /// final.
    Read { request: u64, from: Position, end: Position, max_records: u32, wait_ms: u32 },
    /// Replica to reader: answers `Read`: all records of this shard from the requested position to
    /// `upto`.
    Records { request: u64, records: Vec<Stored>, upto: Position },
    /// Like `Records`, if some positions are empty.
    RecordsWith {
        request: u64,
        records: Vec<Stored>,
        /// Positions that belong to no shard, in order.
        empty: Vec<Span>,
        upto: Position,
    },
    /// Replica to another replica: answers `Read` in logs with a map.
    MappedRecords { request: u64, records: Vec<Stored>, owned: Vec<Owned>, upto: Position },
    /// Reader to a replica of any shard: asks for the shards of positions.
    Map { request: u64, from: Position, end: Position },
    /// Replica to reader: answers `Map` for final positions, up to the first gap in the replica's
    /// map. May be empty although other replicas know owners.
    Mapped {
        request: u64,
        view: ViewNumber,
        /// The answer ends at this bound.
        stable: Position,
        owned: Vec<Owned>,
    },
    /// Replica to reader: rejects a `Read`, `Map`, `Subscribe` or `Trim`.
    ReadFailed { request: u64, error: ReadError },
    /// Reader to replica: subscribes to final records until `Cancel`. `credit` is the number of
    /// bytes that the replica may send before `Credit` arrives.
    Subscribe { request: u64, from: Position, credit: u64 },
    /// Like `Subscribe`, with options.
    SubscribeWith {
        request: u64,
        from: Position,
        credit: u64,
        /// Whether to send records before they are final.
        speculative: bool,
        /// The replica reports other records' positions as empty.
        filter: Option<Filter>,
    },
    /// Replica to reader: the next records of a subscription. `from` is the previous `upto`.
    Deliver {
        request: u64,
        /// The latest view that decides a position below `upto`: later views start at or above
        /// `upto`.
        view: ViewNumber,
        from: Position,
        records: Vec<Stored>,
        upto: Position,
    },
    /// Like `Deliver`, if some positions are empty.
    DeliverWith {
        request: u64,
        view: ViewNumber,
        from: Position,
        records: Vec<Stored>,
        /// Positions that belong to no shard, in order. Each span takes
        /// [`SPAN_BYTES`](seriatim_model::limits::SPAN_BYTES) of the credit.
        empty: Vec<Span>,
        upto: Position,
    },
    /// Primary to a reader that takes predictions: records that are not final. Only another view
    /// can put other records at their positions.
    Predict {
        request: u64,
        /// All positions are at or above this view's start.
        view: ViewNumber,
        /// The previous `upto`, of a delivery or a prediction.
        from: Position,
        records: Vec<Stored>,
        /// Positions that belong to no shard or that the filter excludes, in order.
        empty: Vec<Span>,
        /// May be the shard's next position, far above the tail.
        upto: Position,
    },
    /// Primary to a reader that takes predictions: every shard's predictions of this view below
    /// `upto` are final, except at skipped positions.
    Holds {
        request: u64,
        view: ViewNumber,
        /// The reader already knows all skipped positions below this.
        from: Position,
        upto: Position,
        /// The skipped positions, which are empty, in order. The credit counts them as in
        /// `DeliverWith`.
        void: Vec<Span>,
    },
    /// Reader to replica: raises the credit of a subscription.
    Credit { request: u64, bytes: u64 },
    /// Reader to replica: ends a read or subscription.
    Cancel { request: u64 },
    /// Client to every replica of a view: deletes positions below `position` permanently. Answer:
    /// `Trimmed`.
    Trim {
        request: u64,
        /// A replica that joins a later view asks the members of this view for the trim point.
        view: ViewNumber,
        position: Position,
    },
    /// Replica to client: the trim is durable.
    Trimmed { request: u64, first: Position },
    /// Client to replica: asks for its bounds.
    Status { request: u64 },
    /// Replica to client: answers `Status`.
    StatusIs { request: u64, view: ViewNumber, stable: Position, trim: Position },
    /// Controller or client to replica: asks for its progress and storage use.
    Survey(Survey),
    /// Replica to the sender: answers `Survey`.
    Surveyed(Surveyed),
    /// Controller to replica: applies the log's retention limits.
    Retain(Retain),
    /// Controller to replica: asks it to copy everything that a member of this view should hold.
    /// Answer: `Whole`, only when complete.
    AskWhole { view: ViewNumber },
    /// Replica to controller: the replica is complete.
    Whole { view: ViewNumber },
}

impl Message {
    /// The answer of a node that does not host the replica.
    #[must_use]
    pub(crate) fn not_here() -> Self {
        Self::Fenced { claim: ViewNumber::NONE, incarnation: Incarnation(0), held: Held::default() }
    }
}

impl Family for Message {
    fn is_from_client_to(&self, to: Endpoint) -> bool {
        matches!(to, Endpoint::Shard(_))
            && matches!(
                self,
                Self::Read { .. }
                    | Self::Map { .. }
                    | Self::Subscribe { .. }
                    | Self::SubscribeWith { .. }
                    | Self::Credit { .. }
                    | Self::Cancel { .. }
                    | Self::Trim { .. }
                    | Self::Status { .. }
                    | Self::Survey(_)
            )
    }

    fn not_hosted(&self) -> Option<roles::Message> {
        let waits = matches!(
            self,
            Self::Read { .. }
                | Self::Map { .. }
                | Self::Subscribe { .. }
                | Self::SubscribeWith { .. }
                | Self::Trim { .. }
        );
        waits.then(|| Self::not_here().into())
    }

    fn confirms(&self) -> Option<ViewNumber> {
        match *self {
            Self::Bound { view, .. } | Self::Replicated { view, .. } => Some(view),
            _ => None,
        }
    }
}

// Unused numbers from 20 to 63 were used before version 7, and 13 and 65 before version 9. They
// stay unused.
wire_enum! {
    Message {
        1 => Bind { view, batch, backups, stable, runs },
        2 => Bound { view, batch, stable, voids },
        3 => Stable { view, stable },
        4 => StableKnown { view, stable },
        5 => Fenced { claim, incarnation, held },
        6 => Fence { claim, entry },
        7 => Replicate { view, batch, incarnation, stable, runs },
        8 => Replicated { view, batch },
        9 => Read { request, from, end as end, max_records, wait_ms },
        10 => Records { request, records, upto },
        11 => ReadFailed { request, error },
        12 => Subscribe { request, from, credit },
        14 => Credit { request, bytes },
        15 => Cancel { request },
        16 => Trim { request, view, position },
        17 => Trimmed { request, first },
        18 => Status { request },
        19 => StatusIs { request, view, stable, trim },
        23 => Busy { view, ids, disk_full },
        28 => MappedRecords { request, records, owned, upto },
        29 => Map { request, from, end as end },
        30 => Mapped { request, view, stable, owned },
        40 => Flush { claim, incarnation, first, end, placement, backups },
        41 => Flushed { claim, upto },
        42 => FlushFailed { claim },
        57 => Survey(survey),
        58 => Surveyed(surveyed),
        59 => Retain(retain),
        60 => AskWhole { view },
        61 => Whole { view },
        64 => RecordsWith { request, records, empty, upto },
        66 => SubscribeWith { request, from, credit, speculative, filter },
        67 => Predict { request, view, from, records, empty, upto },
        68 => Holds { request, view, from, upto, void },
        69 => Deliver { request, view, from, records, upto },
        70 => DeliverWith { request, view, from, records, empty, upto },
    }
}
