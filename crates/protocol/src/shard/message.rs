//! The messages of the shard contract. See the [module](super) for what they promise.

use seriatim_model::storage::{MissingRange, Ordered, Owned, Run, Stored};
use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{
    Endpoint, Filter, IdRun, Incarnation, LogEntry, Member, Placement, Position, ShardId, Span, ViewHistory,
    ViewNumber,
};

use super::read_error::ReadError;
use super::survey::{Retain, Survey, Surveyed};
use crate::roles::{self, Family};

/// The state that a replica brings to a view change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The latest registered view that this incarnation of the replica is a member of.
    pub view: ViewNumber,
    /// The stable bound that it knows.
    pub stable: Position,
    /// The positions that it should hold of that view and does not yet.
    pub missing: Option<MissingRange>,
    /// The trim point that it knows.
    pub trim: Position,
    /// The position after the last that was written in that view.
    pub end: Position,
    /// The latest registered view that it knows from this incarnation or an earlier one.
    pub knows: ViewNumber,
}

wire_struct! { Held { view, stable, missing, trim, end, knows } }

impl Held {
    /// The positions that the replica misses as a member of a view whose flush began at `first`:
    /// the ones that it missed before, and the ones that were bound in views that it was no member
    /// of. `history` is that of the registered views: if it has forgotten some of those, the oldest
    /// that it knows decides from a position on that is trimmed. An incarnation that no view named
    /// yet is complete below the stable bound that it knew when it began, as far as no later view
    /// wrote it anew.
    #[must_use]
    pub fn missing_from(&self, history: &ViewHistory, first: Position) -> Option<MissingRange> {
        let from = self.holds_to(history).unwrap_or(first);
        if from < first { Some(MissingRange { from, end: first }.join(self.missing)) } else { self.missing }
    }

    /// The same as a range, which is empty if the replica is complete.
    #[must_use]
    pub fn missing_in(&self, history: &ViewHistory, first: Position) -> MissingRange {
        self.missing_from(history, first).unwrap_or(MissingRange { from: first, end: first })
    }

    /// The end of what the replica holds, apart from what it misses as a member of its view; none
    /// for one that misses nothing else.
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

/// Records that a replica of a shard has durably, in an order that all replicas of the shard have
/// them in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unplaced {
    /// The view from whose start on they are counted.
    pub view: ViewNumber,
    /// How many.
    pub length: u64,
    /// The first of those whose names are told.
    pub from: u64,
    /// Names, in order.
    pub names: Vec<IdRun>,
}

/// The part of a message that tells of positions which are given in advance, or by a committed cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// A replica is told windows of a view.
    Windows {
        /// The view.
        view: ViewNumber,
        /// The windows.
        windows: Vec<Turns>,
    },
    /// A cut is committed that was made in a view, or it is completed for a claim.
    Cut {
        /// The view.
        view: ViewNumber,
        /// Its first position.
        first: Position,
        /// The names that have the positions.
        runs: Vec<Ordered>,
    },
    /// A part of the closing cut that a claim makes.
    Closing {
        /// The claim.
        claim: ViewNumber,
        /// Its first position.
        first: Position,
        /// The names that have the positions.
        runs: Vec<Ordered>,
    },
}

/// A window, as far as shards have turns in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Which one of its view.
    pub number: u32,
    /// Its first position.
    pub base: Position,
    /// How many cuts it has.
    pub cuts: u32,
    /// In how many groups the shards take turns.
    pub groups: u32,
    /// The shards, each with its quota and the index of its local log at which it begins.
    pub shares: Vec<(ShardId, u32, u64)>,
    /// The shards that have no turns, each with how many positions it has behind all turns.
    pub rooms: Vec<(ShardId, u32)>,
}

/// Messages of the shard contract.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Sequencing layer to primary: hold these records at these positions.
    Bind {
        /// The view that pushes them.
        view: ViewNumber,
        /// Names the batch within the view: the first position of the batch on any shard.
        batch: Position,
        /// The backups that must hold them too.
        backups: Vec<Member>,
        /// The stable bound that the sender knows.
        stable: Position,
        /// The records.
        runs: Vec<Run>,
    },
    /// Primary to sequencing layer: held on every replica.
    Bound {
        /// The view of the batch.
        view: ViewNumber,
        /// The batch.
        batch: Position,
        /// The stable bound that the shard knows.
        stable: Position,
        /// Which records no replica of the shard has: their positions are no-ops.
        voids: Vec<IdRun>,
    },
    /// Replica to client: no room at present; put it again, later.
    Busy {
        /// The view that this counts in.
        view: ViewNumber,
        /// Which.
        ids: IdRun,
        /// Whether that is because the disk is full.
        disk_full: bool,
    },
    /// Sequencing layer to primary, primary to backup: positions below this are final.
    Stable {
        /// The view that says so.
        view: ViewNumber,
        /// The bound.
        stable: Position,
    },
    /// Primary to sequencing layer: the answer to `Stable`. Also backup to primary, when a reader
    /// asks it for more than it knows to be final.
    StableKnown {
        /// The view that said so.
        view: ViewNumber,
        /// The bound that the shard knows.
        stable: Position,
    },
    /// Replica to controller: fenced. Also to a sender whose view is over: the replica has seen a
    /// higher claim.
    Fenced {
        /// The highest claim seen.
        claim: ViewNumber,
        /// This incarnation of the replica.
        incarnation: Incarnation,
        /// The state that it holds.
        held: Held,
    },
    /// Controller to replica: refuse everything of views below this claim.
    Fence {
        /// The claim.
        claim: ViewNumber,
        /// The register's entry, with the view that is to be replaced.
        entry: LogEntry,
    },
    /// Primary to backup: hold these records.
    Replicate {
        /// The view that pushes them.
        view: ViewNumber,
        /// Names the batch.
        batch: Position,
        /// Which incarnation of the backup is meant.
        incarnation: Incarnation,
        /// The stable bound that the primary knows.
        stable: Position,
        /// The records.
        runs: Vec<Run>,
    },
    /// Backup to primary: held.
    Replicated {
        /// The view of the batch.
        view: ViewNumber,
        /// The batch.
        batch: Position,
    },
    /// Controller to replica: write what is here in `first..end` on the other replicas too, under
    /// the claim, with what clients have for positions where nothing is, and junk for the rest.
    Flush {
        /// The claim.
        claim: ViewNumber,
        /// Which incarnation of the replica is meant.
        incarnation: Incarnation,
        /// The first position.
        first: Position,
        /// The position after the last.
        end: Position,
        /// Which positions are the shard's.
        placement: Placement,
        /// The other replicas.
        backups: Vec<Member>,
    },
    /// Replica to controller: so far it is done.
    Flushed {
        /// The claim.
        claim: ViewNumber,
        /// Everything below it is on all of them.
        upto: Position,
    },
    /// Replica to controller: a record that is to be flushed cannot be read here.
    FlushFailed {
        /// The claim.
        claim: ViewNumber,
    },
    /// Reader to replica: records from a position on. Waits until there is one, or `wait_ms` are
    /// over.
    Read {
        /// Names the read.
        request: u64,
        /// The first position wanted.
        from: Position,
        /// The position after the last one wanted.
        end: Position,
        /// At most this many records.
        max_records: u32,
        /// How long to wait while `from` is not final.
        wait_ms: u32,
    },
    /// Replica to reader: the answer to `Read`.
    Records {
        /// The read answered.
        request: u64,
        /// The records of this shard in `from..upto`.
        records: Vec<Stored>,
        /// Everything of this shard below it, from where the reader asked on, is in `records`.
        upto: Position,
    },
    /// Replica to reader: the answer to `Read` where some of the positions are empty.
    RecordsWith {
        /// The read answered.
        request: u64,
        /// The records of this shard in `from..upto`.
        records: Vec<Stored>,
        /// The positions in `from..upto` that belong to nobody, in order.
        empty: Vec<Span>,
        /// Everything of this shard below it, from where the reader asked on, is in `records`, and
        /// everything of nobody in `empty`.
        upto: Position,
    },
    /// Replica to another one: the answer to `Read` where records are not placed by their
    /// positions.
    MappedRecords {
        /// The read answered.
        request: u64,
        /// The records of this shard in `from..upto`.
        records: Vec<Stored>,
        /// Which shards hold the positions in `from..upto`.
        owned: Vec<Owned>,
        /// Everything of this shard below it, from where the reader asked on, is in `records`.
        upto: Position,
    },
    /// Reader to replica of any shard: which shards hold the positions from `from` on?
    Map {
        /// Names the question.
        request: u64,
        /// The first position.
        from: Position,
        /// The position after the last.
        end: Position,
    },
    /// Replica to reader: the answer to `Map`, as far as the replica knows the owners of final
    /// positions without a break. It may know none: what it was never told of, others know.
    Mapped {
        /// The question answered.
        request: u64,
        /// The latest view that the replica knows. What a later one decides, it may not know.
        view: ViewNumber,
        /// The stable bound that the replica knows. The answer does not reach beyond it.
        stable: Position,
        /// Which shards hold the positions from the first one asked for on.
        owned: Vec<Owned>,
    },
    /// Replica to reader: the answer to `Read`, `Map`, `Subscribe` or `Trim` when it failed.
    ReadFailed {
        /// The read, map, subscription or trim.
        request: u64,
        /// Why.
        error: ReadError,
    },
    /// Reader to replica: records from a position on, as they become final, until told to stop.
    Subscribe {
        /// Names the subscription.
        request: u64,
        /// The first position wanted.
        from: Position,
        /// How many bytes of records may be sent before more credit comes.
        credit: u64,
    },
    /// The same, with more to it.
    SubscribeWith {
        /// Names the subscription.
        request: u64,
        /// The first position wanted.
        from: Position,
        /// How many bytes of records may be sent before more credit comes.
        credit: u64,
        /// Whether records are wanted before they are final.
        speculative: bool,
        /// Which records are wanted. The positions of others are told as empty.
        filter: Option<Filter>,
    },
    /// Replica to reader: the next records of a subscription.
    Deliver {
        /// The subscription.
        request: u64,
        /// The latest view that decides about a position below `upto`: each later view starts at
        /// `upto` or above it.
        view: ViewNumber,
        /// Where this delivery starts: the `upto` of the one before.
        from: Position,
        /// The records of this shard in `from..upto`.
        records: Vec<Stored>,
        /// Everything of this shard below it has been delivered.
        upto: Position,
    },
    /// Replica to reader: the next records of a subscription, where some of the positions are
    /// empty.
    DeliverWith {
        /// The subscription.
        request: u64,
        /// The latest view that decides about a position below `upto`: each later view starts at
        /// `upto` or above it.
        view: ViewNumber,
        /// Where this delivery starts: the `upto` of the one before.
        from: Position,
        /// The records of this shard in `from..upto`.
        records: Vec<Stored>,
        /// The positions in `from..upto` that belong to nobody, in order. Each of these spans takes
        /// [`SPAN_BYTES`](seriatim_model::limits::SPAN_BYTES) of the credit.
        empty: Vec<Span>,
        /// Everything of this shard and of nobody below it has been delivered.
        upto: Position,
    },
    /// Primary to a reader that takes them: records that are not final. No other comes to their
    /// positions unless another view decides about these.
    Predict {
        /// The subscription.
        request: u64,
        /// The view that they are predicted in. All are at or above its start.
        view: ViewNumber,
        /// Where this begins: the `upto` of what came last, final or not.
        from: Position,
        /// The records of this shard in `from..upto`.
        records: Vec<Stored>,
        /// The positions in `from..upto` that belong to nobody, or whose records are not wanted, in
        /// order.
        empty: Vec<Span>,
        /// Everything of this shard below it is told: it may be the shard's next position, far
        /// above the tail.
        upto: Position,
    },
    /// Primary to a reader that takes predictions: below `upto` all that any shard predicted in
    /// this view is final, but for what was passed over.
    Holds {
        /// The subscription.
        request: u64,
        /// The view.
        view: ViewNumber,
        /// The bound below which the reader was told before of all that was passed over.
        from: Position,
        /// The bound.
        upto: Position,
        /// The positions in `from..upto` of records that were passed over, in order: these are
        /// empty. Each of these spans takes [`SPAN_BYTES`](seriatim_model::limits::SPAN_BYTES) of
        /// the credit.
        void: Vec<Span>,
    },
    /// Reader to replica: that many more bytes may be sent.
    Credit {
        /// The subscription.
        request: u64,
        /// Bytes of records.
        bytes: u64,
    },
    /// Reader to replica: stop.
    Cancel {
        /// The read or subscription.
        request: u64,
    },
    /// Client to every replica of a view: positions below are gone for good.
    Trim {
        /// Names the trim.
        request: u64,
        /// The view: a replica that joins a later one asks the members of this one where the trim
        /// point is.
        view: ViewNumber,
        /// The first position to keep.
        position: Position,
    },
    /// Replica to client: gone, durably.
    Trimmed {
        /// The trim answered.
        request: u64,
        /// The trim point.
        first: Position,
    },
    /// Client to replica: how far are you?
    Status {
        /// Names the question.
        request: u64,
    },
    /// Replica to client: this far.
    StatusIs {
        /// The question answered.
        request: u64,
        /// The view that it takes part in.
        view: ViewNumber,
        /// The stable bound that it knows.
        stable: Position,
        /// The trim point.
        trim: Position,
    },
    /// Controller or client to replica: how far are you, and what do you keep?
    Survey(Survey),
    /// Replica to the address that asked: this.
    Surveyed(Surveyed),
    /// Controller to replica: keep to the log's limits.
    Retain(Retain),
    /// Controller to replica: copy everything that a member of this view should hold, and say
    /// whether you hold it.
    AskWhole {
        /// The view.
        view: ViewNumber,
    },
    /// Replica to controller: it does. One that does not says nothing.
    Whole {
        /// The view.
        view: ViewNumber,
    },
}

impl Message {
    /// The answer of a node that does not host the replica: it takes part in no view.
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

// Between 20 and 63, the numbers that are missing were used before version 7, and 13 and 65 before
// version 9. They are not used again.
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
