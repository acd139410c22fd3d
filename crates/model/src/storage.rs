//! The requests of a shard replica to its record store.
//!
//! The store holds, for each position, the versions that were pushed under different views, and
//! answers reads with the valid one (see [`ViewHistory`]). Nothing is edited: every command adds an
//! entry.

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
    /// The position of the first.
    pub first: Position,
    /// The records, each with its id. Never empty.
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

/// Ids that were given consecutive positions, and the shard that their records were put on (LazyLog
/// §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// The ids. Never none.
    pub ids: IdRun,
    /// The shard, or [`ShardId::NOBODY`].
    pub shard: ShardId,
    /// Whether no record comes to their positions: no replica of the shard has the records, and
    /// they are no-ops, or nobody has the positions, and they stay empty. Invariant: nobody's are.
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

/// Consecutive positions that one shard holds, or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The shard, or [`ShardId::NOBODY`].
    pub shard: ShardId,
    /// How many. Never none.
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

/// Consecutive positions at which a view has the records that another one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebound {
    /// The other view.
    pub of: ViewNumber,
    /// The first position.
    pub first: Position,
    /// How many. Never none.
    pub count: u64,
}

wire_struct! { Rebound { of, first, count as number } }

/// The state that a shard replica must remember besides its records. Written whole whenever it
/// changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardState {
    /// This incarnation of the replica.
    pub incarnation: Incarnation,
    /// The promises of the log.
    pub config: LogConfig,
    /// The highest claim that it was fenced with, or the number of its view.
    pub claim: ViewNumber,
    /// The latest registered view that it knows.
    pub view: Option<View>,
    /// Which registered view decides where.
    pub history: ViewHistory,
}

wire_struct! { HardState { incarnation, config, claim, view, history } }

/// Positions that a replica has still to get from another one: those with `from <= position < end`.
/// There may be none: then it is only the trim point that it has to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingRange {
    /// The first of them.
    pub from: Position,
    /// The position after the last.
    pub end: Position,
}

wire_struct! { MissingRange { from, end as end } }

impl MissingRange {
    /// Whether it is one of them.
    #[must_use]
    pub fn contains(&self, position: Position) -> bool {
        self.from <= position && position < self.end
    }

    /// Whether there is no such position.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.from >= self.end
    }

    /// How many positions these are.
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

    /// The positions in both; possibly none.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        let end = self.end.min(other.end);
        Self { from: self.from.max(other.from).min(end), end }
    }

    /// The same without what is lost at either end of it; possibly nothing. `gaps` are in order.
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

    /// The same without what lies below `position`; possibly nothing.
    #[must_use]
    pub fn not_below(self, position: Position) -> Self {
        self.above(position).unwrap_or(Self { from: self.end, end: self.end })
    }

    /// The rest of it from `position` on.
    #[must_use]
    pub fn above(self, position: Position) -> Option<Self> {
        let from = self.from.max(position);
        (from < self.end).then_some(Self { from, ..self })
    }
}

/// A change of the store. One command is one entry of the node's journal at durability `disk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageCommand {
    /// Hold these records at these positions, as versions of `view`. Binding the same record again
    /// is harmless.
    Bind {
        /// The view that they are pushed under.
        view: ViewNumber,
        /// The records.
        runs: Vec<Run>,
    },
    /// Replace what is remembered besides records.
    Remember(HardState),
    /// Positions below this never change again. It is worth remembering, but nothing waits for it.
    Stable(Position),
    /// Positions below this are gone for good.
    Trim(Position),
    /// The same as [`StorageCommand::Remember`], with what the replica should hold and does not
    /// yet. It stands until the next of these.
    RememberMissing {
        /// The replica's memory.
        memory: HardState,
        /// The range that is missing, if any.
        missing: Option<MissingRange>,
    },
    /// Hold these records, which have no positions yet. Putting the same record again is harmless.
    Put(Vec<(RecordId, Record)>),
    /// The positions from `first` on belong to `runs`, one after another, as versions of `view`.
    /// Those of this shard are bound to records that were put and are not final yet; those that are
    /// void become no-ops.
    Order {
        /// The view that they are pushed under.
        view: ViewNumber,
        /// The first position.
        first: Position,
        /// The runs of ids that they belong to.
        runs: Vec<Ordered>,
    },
    /// Which shards hold the positions from `first` on, as versions of `view`: the part of
    /// [`StorageCommand::Order`] that is left of it when the records came with
    /// [`StorageCommand::Bind`].
    Map {
        /// The view that decides about the positions.
        view: ViewNumber,
        /// The first position.
        first: Position,
        /// Which shards hold them.
        owned: Vec<Owned>,
    },
    /// Records that were put under these ids, and have no position, will never get one.
    Discard(IdRun),
    /// The part that is kept of a [`StorageCommand::Bind`] of which some records were there, as
    /// versions of other views at the same positions: no replica asks for it, but the journal has
    /// no need of these records twice.
    Rebind {
        /// The view that they were pushed under.
        view: ViewNumber,
        /// Where another view has the very same records.
        same: Vec<Rebound>,
        /// The other records.
        runs: Vec<Run>,
    },
    /// Add these marks to those that tell which position was reached when, or take these in their
    /// place. As with what is stable, nothing waits for it. From now on a segment is sealed at
    /// `segment_bytes`, or where that is usual if it is shorter.
    Mark {
        /// The marks, and the log's time.
        times: TimeIndex,
        /// Whether these are all.
        whole: bool,
        /// Where segments end, in bytes, if the log has a limit of bytes.
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

/// Why a storage command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageFailure {
    /// No room; it works again when there is room.
    #[error("the disk is full")]
    Full,
    /// It names records that the store does not hold: the write that was to put them there failed.
    #[error("the records are not there")]
    Unheld,
    /// The store does not work any more.
    #[error("the disk failed")]
    Failed,
}

/// Which records to read: the valid ones of this shard with `from <= position < end`, in order, up
/// to `max_records` and about `max_bytes`, but at least one if there is one. Of the positions that
/// belong to nobody up to [`limits::READ_SPANS`] spans are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRange {
    /// The first position wanted.
    pub from: Position,
    /// The position after the last one wanted.
    pub end: Position,
    /// At most this many records.
    pub max_records: u32,
    /// Stop after this many bytes of records, as [`Record::memory`] counts them.
    pub max_bytes: u32,
}

/// A record at its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where it is.
    pub position: Position,
    /// Its id.
    pub id: RecordId,
    /// The record that was appended.
    pub record: Record,
}

wire_struct! { Stored { position, id, record } }

// The structure, and what frames a record on its way: its position, its id, and its length.
const _: () = assert!(size_of::<Stored>() + 8 + 24 <= limits::RECORD_STRUCTURE_BYTES);

/// The outcome of a read of `from..upto`: no record of the shard is at a position of that which is
/// not told here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The records, in order.
    pub records: Vec<Stored>,
    /// The positions that belong to nobody, in order. No two spans touch.
    pub empty: Vec<Span>,
    /// How far the read came: to the end of its range, unless a bound or a damaged record stopped
    /// it before. Where the end of the range is empty, to the end of that.
    pub upto: Position,
}

impl Found {
    /// The same without what lies beyond `end`, which a read that was to come no further passed
    /// only for empty positions.
    ///
    /// # Panics
    /// If there is a record beyond.
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

/// Why a read found nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// The record at this position is damaged on this replica.
    #[error("the record at position {0} is damaged on this replica")]
    Damaged(Position),
    /// The disk did not answer.
    #[error("the disk failed: {0}")]
    Disk(String),
}

/// The state that a store gives back when it is opened: everything that a shard replica needs to go
/// on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardRecovery {
    /// The replica's memory; nothing for a new store.
    pub memory: Option<HardState>,
    /// The highest known stable bound.
    pub stable: Position,
    /// The trim point.
    pub trim: Position,
    /// The positions that the replica misses.
    pub missing: Option<MissingRange>,
    /// The ids of the records that were put and have no final position yet, in order.
    pub put: Vec<IdRun>,
    /// The ids of the no-ops at positions that are not final yet, in order.
    pub void: Vec<IdRun>,
    /// For each view of which there are versions, of this shard's positions or of whose others are,
    /// the position after the last of them, in the order of views.
    pub ends: Vec<(ViewNumber, Position)>,
    /// Which position was reached when.
    pub times: TimeIndex,
}

/// An entry of a role's journal, as bytes.
pub type JournalEntry = Bytes;
