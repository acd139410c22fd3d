//! Requests of a shard replica to its record store.
//!
//! The store holds versions of each position from different views, and answers reads with the valid
//! one (see [`ViewHistory`]). Commands add entries and edit nothing.

use bytes::Bytes;

use crate::config::LogConfig;
use crate::limits;
use crate::position::{Position, Span};
use crate::record::{BoundIds, IdRun, Record, RecordId};
use crate::retention::TimeIndex;
use crate::view::{Gap, Incarnation, ShardId, View, ViewHistory, ViewNumber};
use crate::wire::{Decoder, Encoder, Wire, WireError, decode_number, wire_enum, wire_struct};

/// Records at consecutive positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Position of the first record.
    pub first: Position,
    /// The records with their ids. Never empty.
    pub records: Vec<(RecordId, Record)>,
}

wire_struct! { Run { first, records } }

impl Run {
    /// The position after the last.
    #[must_use]
    pub fn end(&self) -> Position {
        self.first + self.records.len() as u64
    }
}

/// Ids of records at consecutive positions, and the shard of these records (LazyLog §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// The ids. Never empty.
    pub ids: IdRun,
    /// The shard, or [`ShardId::NOBODY`].
    pub shard: ShardId,
    /// Whether the positions get no record: they are no-ops because no replica has the records, or
    /// belong to no shard and stay empty. Invariant: true for [`ShardId::NOBODY`].
    pub is_void: bool,
}

impl Wire for Ordered {
    fn encode(&self, out: &mut Encoder) {
        BoundIds { ids: self.ids, is_void: self.is_void }.encode(out);
        self.shard.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let BoundIds { ids, is_void } = Wire::decode(input)?;
        let shard = ShardId::decode_owner(input)?;
        if shard == ShardId::NOBODY && !is_void {
            return Err(WireError::Invalid("owner of a record"));
        }
        Ok(Self { ids, shard, is_void })
    }
}

/// Consecutive positions of one shard, or of no shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The shard, or [`ShardId::NOBODY`].
    pub shard: ShardId,
    /// Number of positions. Never 0.
    pub count: u64,
}

impl Wire for Owned {
    fn encode(&self, out: &mut Encoder) {
        self.shard.encode(out);
        self.count.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Ok(Self { shard: ShardId::decode_owner(input)?, count: decode_number("Owned.count", input)? })
    }
}

/// Consecutive positions at which a view has the same records as an earlier view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebound {
    /// The earlier view.
    pub of: ViewNumber,
    /// The first position.
    pub first: Position,
    /// Number of positions. Never 0.
    pub count: u64,
}

wire_struct! { Rebound { of, first, count as number } }

/// State of a shard replica besides its records. Each change writes it whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardState {
    /// The replica's incarnation.
    pub incarnation: Incarnation,
    /// The log's configuration.
    pub config: LogConfig,
    /// Number of the highest claim that fenced the replica, or of its view.
    pub claim: ViewNumber,
    /// The latest registered view that the replica knows.
    pub view: Option<View>,
    /// Decides which view's version of a position is valid.
    pub history: ViewHistory,
}

wire_struct! { HardState { incarnation, config, claim, view, history } }

/// Positions `from <= position < end` that a replica must copy from another. With an empty range,
/// it only asks for the trim point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingRange {
    /// The first position.
    pub from: Position,
    /// The position after the last.
    pub end: Position,
}

wire_struct! { MissingRange { from, end as end } }

impl MissingRange {
    /// Whether the range contains the position.
    #[must_use]
    pub fn contains(&self, position: Position) -> bool {
        self.from <= position && position < self.end
    }

    /// Whether the range contains no position.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.from >= self.end
    }

    /// Number of positions.
    #[must_use]
    pub fn count(self) -> u64 {
        if self.is_empty() { 0 } else { self.end - self.from }
    }

    /// The smallest range that covers both.
    #[must_use]
    pub fn join(self, other: Option<Self>) -> Self {
        match other.filter(|other| !other.is_empty()) {
            None => self,
            Some(other) if self.is_empty() => other,
            Some(other) => Self { from: self.from.min(other.from), end: self.end.max(other.end) },
        }
    }

    /// The intersection; possibly empty.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        let end = self.end.min(other.end);
        Self { from: self.from.max(other.from).min(end), end }
    }

    /// Drops gaps at either end of the range; the result may be empty. `gaps` are in order.
    #[must_use]
    pub fn without(mut self, gaps: impl DoubleEndedIterator<Item = Gap> + Clone) -> Self {
        for gap in gaps.clone() {
            if gap.contains(self.from) {
                self.from = gap.end.min(self.end);
            }
        }
        for gap in gaps.rev() {
            if self.from < self.end && gap.from < self.end && self.end <= gap.end {
                self.end = gap.from.max(self.from);
            }
        }
        self
    }

    /// Drops positions below `position`; possibly empty.
    #[must_use]
    pub fn not_below(self, position: Position) -> Self {
        self.above(position).unwrap_or(Self { from: self.end, end: self.end })
    }

    /// The part from `position` on; `None` if empty.
    #[must_use]
    pub fn above(self, position: Position) -> Option<Self> {
        let from = self.from.max(position);
        (from < self.end).then_some(Self { from, ..self })
    }
}

/// A change of the store. At durability `disk`, each is one journal entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageCommand {
    /// Stores records at their positions, as versions of `view`. Idempotent.
    Bind {
        /// The view that pushes them.
        view: ViewNumber,
        /// The records.
        runs: Vec<Run>,
    },
    /// Replaces the hard state.
    Remember(HardState),
    /// Positions below this one never change again. No role waits for this write.
    Stable(Position),
    /// Deletes all positions below this one permanently.
    Trim(Position),
    /// [`StorageCommand::Remember`] with the missing range, valid until the next command of either
    /// kind.
    RememberMissing {
        /// The hard state.
        memory: HardState,
        /// The missing range, if any.
        missing: Option<MissingRange>,
    },
    /// Stores records that have no positions yet. Idempotent.
    Put(Vec<(RecordId, Record)>),
    /// Gives the positions from `first` on to `runs`, as versions of `view`. Positions of this
    /// shard are bound to records that were put and have no final position. Void ones become
    /// no-ops.
    Order {
        /// The view that pushes them.
        view: ViewNumber,
        /// The first position.
        first: Position,
        /// Runs of ids that get the positions.
        runs: Vec<Ordered>,
    },
    /// Stores which shards own the positions from `first` on, as versions of `view`. Replaces a
    /// [`StorageCommand::Order`] if the records came with [`StorageCommand::Bind`].
    Map {
        /// The view that decides the owners.
        view: ViewNumber,
        /// The first position.
        first: Position,
        /// The owners of the positions, in order.
        owned: Vec<Owned>,
    },
    /// Records put under these ids will never get a position.
    Discard(IdRun),
    /// Stored form of a [`StorageCommand::Bind`], if other views have some of its records at the
    /// same positions: the journal does not repeat those. No replica requests it.
    Rebind {
        /// The view that pushed them.
        view: ViewNumber,
        /// Positions at which another view has the same records.
        same: Vec<Rebound>,
        /// The other records.
        runs: Vec<Run>,
    },
    /// Adds marks to the time index, or replaces all. No role waits for this write. Segments are
    /// sealed at `segment_bytes`, or at the usual length if shorter.
    Mark {
        /// The marks and the log's time.
        times: TimeIndex,
        /// Whether these marks replace all others.
        whole: bool,
        /// Segment length in bytes; `None` without a byte limit.
        segment_bytes: Option<u64>,
    },
}

wire_enum! {
    StorageCommand {
        1 => Bind { view, runs },
        2 => Remember(memory),
        3 => Stable(position),
        4 => Trim(position),
        5 => RememberMissing { memory, missing },
        6 => Put(records),
        7 => Order { view, first, runs },
        8 => Map { view, first, owned },
        9 => Discard(ids),
        10 => Rebind { view, same, runs },
        11 => Mark { times, whole, segment_bytes },
    }
}

/// Why a storage command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageFailure {
    /// No room. The store works again when there is room.
    #[error("the disk is full")]
    Full,
    /// The named records are missing, because the command that put them failed.
    #[error("the records are not there")]
    Unheld,
    /// The store has stopped permanently.
    #[error("the disk failed")]
    Failed,
}

/// Range of valid records to read, in order, up to `max_records` and about `max_bytes`, but at
/// least one record. The answer has at most [`limits::READ_SPANS`] spans of empty positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRange {
    /// The first position.
    pub from: Position,
    /// The position after the last.
    pub end: Position,
    /// Most records in the answer.
    pub max_records: u32,
    /// Bytes after which the read stops, by [`Record::memory`].
    pub max_bytes: u32,
}

/// A record at its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Record position.
    pub position: Position,
    /// Record id.
    pub id: RecordId,
    /// The appended record.
    pub record: Record,
}

wire_struct! { Stored { position, id, record } }

// A stored record's frame has its position, id and length.
const _: () = assert!(size_of::<Stored>() + 8 + 24 <= limits::RECORD_STRUCTURE_BYTES);

/// Outcome of a read: all the shard's records in `from..upto`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The records, in order.
    pub records: Vec<Stored>,
    /// Positions of no shard, in order. Spans do not touch.
    pub empty: Vec<Span>,
    /// End of the range, or earlier if a bound or a damaged record stopped the read. If empty
    /// positions follow the range, the end of those positions.
    pub upto: Position,
}

impl Found {
    /// Removes the part beyond `end`. A read exceeds its range only by empty positions.
    ///
    /// # Panics
    /// If there is a record at or beyond `end`.
    #[must_use]
    pub fn below(mut self, end: Position) -> Self {
        if self.upto > end {
            assert!(
                self.records.last().is_none_or(|last| last.position < end),
                "records are read up to {end}"
            );
            self.empty = self.empty.into_iter().filter_map(|span| span.within(span.first, end)).collect();
            self.upto = end;
        }
        self
    }
}

/// The outcome of a read.
pub type ReadOutcome = Result<Found, ReadFailure>;

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// The record at this position is damaged on this replica.
    #[error("the record at position {0} is damaged on this replica")]
    Damaged(Position),
    /// The disk did not answer.
    #[error("the disk failed: {0}")]
    Disk(String),
}

/// State of an opened store, from which a shard replica resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardRecovery {
    /// The hard state; `None` for a new store.
    pub memory: Option<HardState>,
    /// The highest known stable bound.
    pub stable: Position,
    /// The trim point.
    pub trim: Position,
    /// The missing range, if any.
    pub missing: Option<MissingRange>,
    /// Ids of records put without final position, in order.
    pub put: Vec<IdRun>,
    /// Ids of no-ops at positions not yet final, in order.
    pub void: Vec<IdRun>,
    /// For each view with stored versions of records or owners, in order: the position after its
    /// last version.
    pub ends: Vec<(ViewNumber, Position)>,
    /// Index from time to position.
    pub times: TimeIndex,
}

/// An encoded entry of a role's journal.
pub type JournalEntry = Bytes;
