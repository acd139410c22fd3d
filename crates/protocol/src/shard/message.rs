//! The messages of the shard contract. See the [module](super) for what they promise.

use seriatim_model::storage::{Lacking, Ordered, Owned, Run, Stored};
use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{
    IdRun, Incarnation, LogEntry, Member, NodeId, Placement, Position, Record, RecordId, SessionId,
    ViewHistory, ViewNumber,
};

use super::read_error::ReadError;
use super::survey::{Retain, Survey, Surveyed};

/// The state that a replica brings to a view change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The latest registered view that this life of the replica is a member of.
    pub view: ViewNumber,
    /// The stable bound that it knows.
    pub stable: Position,
    /// The positions that it should hold of that view and does not yet.
    pub lacks: Option<Lacking>,
    /// The trim point that it knows.
    pub trim: Position,
    /// The position after the last that was written in that view.
    pub end: Position,
    /// The latest registered view that it knows from this life or an earlier one.
    pub knows: ViewNumber,
}

wire_struct! { Held { view, stable, lacks, trim, end, knows } }

/// Names of records in a shard's local log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The names. Never none.
    pub ids: IdRun,
    /// The lowest number of the session that its client still waited for.
    pub lowest: u64,
}

wire_struct! { Submitted { ids, lowest as number } }

/// Consecutive positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub first: Position,
    /// How many. Never none.
    pub count: u64,
}

wire_struct! { Span { first, count as number } }

impl Span {
    /// The position after the last.
    #[must_use]
    pub fn end(self) -> Position {
        self.first + self.count
    }

    /// The positions.
    pub fn positions(self) -> impl Iterator<Item = Position> {
        (self.first.0..self.end().0).map(Position)
    }

    /// Joins positions in order that follow each other.
    #[must_use]
    pub fn of(positions: impl Iterator<Item = Position>) -> Vec<Self> {
        let mut spans: Vec<Self> = vec![];
        for position in positions {
            match spans.last_mut().filter(|span| span.end() == position) {
                Some(span) => span.count += 1,
                None => spans.push(Self { first: position, count: 1 }),
            }
        }
        spans
    }
}

impl Held {
    /// The positions that it lacks as a member of a view whose flush began at `first`: those that it lacked
    /// before, and those that were bound in views that it was no member of. `history` is that of the registered
    /// views: if it has forgotten some of those, the oldest that it knows decides from a position on that is
    /// trimmed. A life that no view named yet is whole below what it knew as stable when it began, as far as no
    /// later view wrote it anew.
    #[must_use]
    pub fn lacks_from(&self, history: &ViewHistory, first: Position) -> Option<Lacking> {
        let later = |than| history.steps().iter().find(|(number, _)| *number > than).map(|(_, from)| *from);
        let from = if self.view == ViewNumber::NONE {
            later(self.knows).map_or(self.stable, |from| from.min(self.stable))
        } else {
            later(self.view).unwrap_or(first)
        };
        if from < first { Some(Lacking { from, end: first }.join(self.lacks)) } else { self.lacks }
    }

    /// The same as a range, which is empty if it lacks nothing.
    #[must_use]
    pub fn lacks_in(&self, history: &ViewHistory, first: Position) -> Lacking {
        self.lacks_from(history, first).unwrap_or(Lacking { from: first, end: first })
    }
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
    /// Client to every replica of a shard: hold these records, whose names are on their way to the sequencing
    /// replicas (LazyLog §5.1).
    Put {
        /// The view that the client believes in.
        view: ViewNumber,
        /// Its session.
        session: SessionId,
        /// The number of the first record.
        first: u64,
        /// The records, with consecutive numbers.
        records: Vec<Record>,
    },
    /// Replica to client: held, as durably as the log promises.
    Stored {
        /// The view that this counts in.
        view: ViewNumber,
        /// Which.
        ids: IdRun,
    },
    /// Replica to client: these are no-ops, on every replica, for good.
    NotAppended {
        /// The view that this counts in.
        view: ViewNumber,
        /// Which.
        ids: IdRun,
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
    /// Sequencing layer to primary: the positions from `batch` on belong to these names, one after another.
    /// Every shard is told of all of them.
    Order {
        /// The view that pushes them.
        view: ViewNumber,
        /// Names the batch within the view: its first position.
        batch: Position,
        /// The backups that must hold them too.
        backups: Vec<Member>,
        /// The stable bound that the sender knows.
        stable: Position,
        /// The names.
        runs: Vec<Ordered>,
    },
    /// Primary to backup: the same, with what the primary decided to be no-ops.
    ReplicateOrder {
        /// The view that pushes them.
        view: ViewNumber,
        /// Names the batch.
        batch: Position,
        /// Which life of the backup is meant.
        incarnation: Incarnation,
        /// The stable bound that the primary knows.
        stable: Position,
        /// The names.
        runs: Vec<Ordered>,
        /// Other replicas that may have what the backup lacks.
        replicas: Vec<NodeId>,
    },
    /// Replica to another one: do you have these records?
    Want {
        /// The view that orders them.
        view: ViewNumber,
        /// The batch that they are in.
        batch: Position,
        /// The records.
        ids: Vec<IdRun>,
    },
    /// The answer to `Want`. What it says nothing of, it has, and gives when it is asked again.
    Have {
        /// The view.
        view: ViewNumber,
        /// The batch.
        batch: Position,
        /// The records that it has, as far as there is room.
        records: Vec<(RecordId, Record)>,
        /// The records that it does not have.
        lacks: Vec<IdRun>,
        /// The records that it holds to be no-ops.
        voids: Vec<IdRun>,
    },
    /// Replica to leader: records have been lying here for long, without positions, and nothing came of their
    /// sessions since. What is to become of them?
    Unnamed {
        /// The view.
        view: ViewNumber,
        /// For each session the numbers from the lowest of these to the highest.
        names: Vec<IdRun>,
    },
    /// Leader to replica: of this session only the numbers in `first..end` may still get positions. What is held of
    /// others, and has none, never gets one.
    Undecided {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// Every record below has been ordered, and is held by every shard that is to hold it. The largest number
        /// if the session is forgotten, and too old to come back.
        first: u64,
        /// Where the session ended; the largest number if it has not.
        end: u64,
    },
    /// Sequencing layer to primary, primary to backup: positions below this are final.
    Stable {
        /// The view that says so.
        view: ViewNumber,
        /// The bound.
        stable: Position,
    },
    /// Primary to sequencing layer: the answer to `Stable`. Also backup to primary, when it is asked for
    /// more than it knows to be final.
    StableKnown {
        /// The view that said so.
        view: ViewNumber,
        /// The bound that the shard knows.
        stable: Position,
    },
    /// Replica to controller: fenced. Also to anyone whose view is over: a higher claim was seen.
    Fenced {
        /// The highest claim seen.
        claim: ViewNumber,
        /// This life of the replica.
        incarnation: Incarnation,
        /// The state that it holds.
        held: Held,
    },
    /// Controller to replica: refuse whatever is below this claim.
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
        /// Which life of the backup is meant.
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

    /// Client to each replica of a position's chain in turn, head first: write these. A position is written once.
    /// Also primary to replica, when it fills a hole.
    Write {
        /// The view whose sequencer gave the positions, or in which it is asked what became of them.
        view: ViewNumber,
        /// The records.
        runs: Vec<Run>,
    },
    /// Replica to whoever writes: these positions are written, as durably as the log promises.
    Written {
        /// The view that this counts in.
        view: ViewNumber,
        /// The positions.
        spans: Vec<Span>,
        /// The positions among them that hold something else, and what that is called.
        others: Vec<(Position, RecordId)>,
    },
    /// Replica to whoever writes: these are written, and what is there this replica cannot tell. Another may.
    Unreadable {
        /// The view that this counts in.
        view: ViewNumber,
        /// The positions.
        spans: Vec<Span>,
    },
    /// Replica to whoever writes: write these again, later.
    Later {
        /// The view that this counts in.
        view: ViewNumber,
        /// The positions.
        spans: Vec<Span>,
        /// Whether the disk is full; otherwise the replica does not know the view yet.
        disk_full: bool,
    },
    /// Replica to client: what it wrote is taken, and more waits for the disk here than should. It has a position, so
    /// it is not refused; whatever comes next may come slower.
    Pressed {
        /// The view that was written in.
        view: ViewNumber,
    },
    /// Client to replica: where in `from..end` are records of this session?
    Seek {
        /// The view that the client believes in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The first position.
        from: Position,
        /// The position after the last. Below it everything is to be final; otherwise there is no answer yet.
        end: Position,
    },
    /// Replica to client: the answer to `Seek`.
    Sought {
        /// The view that this counts in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// Where the question began.
        from: Position,
        /// So far it was looked. No further than `from` if this replica cannot tell; another may.
        upto: Position,
        /// The trim point: what was below, nobody knows.
        trim: Position,
        /// The records of the session, in order.
        found: Vec<(Position, RecordId)>,
    },
    /// Sequencer to primary: positions were given out long ago that may not be written.
    Overdue {
        /// The view.
        view: ViewNumber,
        /// Some shard has written everything that it holds below: so far this view places positions for good.
        settled: Position,
        /// Positions below that are not written are to be filled.
        overdue: Position,
    },
    /// Primary to head: what is at these positions, for good? Where nothing is, write junk.
    Fill {
        /// The view.
        view: ViewNumber,
        /// The positions.
        spans: Vec<Span>,
    },
    /// Head to primary: this is.
    Filled {
        /// The view.
        view: ViewNumber,
        /// The records that the head holds.
        run: Run,
    },
    /// Replica to client: the view `old` is over, and at these positions nothing is; what does the client have for them?
    Vacant {
        /// The claim that they are flushed under.
        claim: ViewNumber,
        /// The view that ended.
        old: ViewNumber,
        /// The positions.
        spans: Vec<Span>,
    },
    /// Client to replica: this is what it has for vacant positions. It takes no other positions in that view.
    Offer {
        /// The claim.
        claim: ViewNumber,
        /// For positions from here on it was not looked: there was too much for one message.
        upto: Position,
        /// The records.
        runs: Vec<Run>,
    },
    /// Controller to replica: write what is here in `first..end` on the other replicas too, under the claim, with what clients
    /// have for positions where nothing is, and junk for the rest.
    Flush {
        /// The claim.
        claim: ViewNumber,
        /// Which life of the replica is meant.
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
    Unflushed {
        /// The claim.
        claim: ViewNumber,
    },
    /// Client to every replica of some shard: is this the view still?
    Confirm {
        /// Names the question.
        request: u64,
        /// The view.
        view: ViewNumber,
    },
    /// Replica to client: it takes part in it, and in none later.
    Confirmed {
        /// The question answered.
        request: u64,
        /// The view.
        view: ViewNumber,
    },

    /// Client to primary: append these to the shard's local log. They get their positions with a cut.
    Submit {
        /// The view that the client believes in.
        view: ViewNumber,
        /// Its session.
        session: SessionId,
        /// The lowest number that the client still waits for: what is below has a position.
        lowest: u64,
        /// The number of the first record.
        first: u64,
        /// The records, with consecutive numbers.
        records: Vec<Record>,
    },
    /// Primary to client: these have the positions from `first` on, for good.
    Appended {
        /// The view that this counts in.
        view: ViewNumber,
        /// Which.
        ids: IdRun,
        /// The position of the first.
        first: Position,
    },
    /// Primary to client: numbers are missing; submit from `expected`.
    OutOfOrder {
        /// The primary's view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The number to submit from.
        expected: u64,
    },
    /// Primary to backup: this comes next in the local log.
    Follow {
        /// The view, from whose start on indexes count.
        view: ViewNumber,
        /// Which life of the backup is meant.
        incarnation: Incarnation,
        /// The index of the first record.
        index: u64,
        /// The names under which they were submitted.
        names: Submitted,
        /// The records.
        records: Vec<Record>,
    },
    /// Backup to primary: everything below this index has come.
    Followed {
        /// The view.
        view: ViewNumber,
        /// The index.
        length: u64,
        /// Whether something is missing from there on.
        asks: bool,
    },
    /// Replica to leader: so long is the local log here, as durably as the log promises.
    Report {
        /// The view.
        view: ViewNumber,
        /// Its length.
        length: u64,
        /// The index from which on `names` tell whose records they are. Only the primary tells.
        from: u64,
        /// The names of the records from there on, in order.
        names: Vec<Submitted>,
    },
    /// Leader to primary: what lies below this index of the local log has a position or will never get one.
    Decided {
        /// The view.
        view: ViewNumber,
        /// Where the cuts end that decided it.
        end: Position,
        /// The index.
        length: u64,
    },
    /// Sequencing layer to primary: a committed cut. The positions from `batch` on belong to these names, one after
    /// another. Every shard is told of all of them.
    Cover {
        /// The view that says so: that of the cut, or a claim that follows it.
        view: ViewNumber,
        /// The view that the cut was made in. Its positions are versions of that one.
        of: ViewNumber,
        /// The first position.
        batch: Position,
        /// The backups that must hold it too.
        backups: Vec<Member>,
        /// How much of the shard's local log this and earlier cuts decide about.
        length: u64,
        /// The names.
        runs: Vec<Ordered>,
    },
    /// Primary to backup: the same.
    ReplicateCover {
        /// The view that says so.
        view: ViewNumber,
        /// The view that the cut was made in.
        of: ViewNumber,
        /// The first position.
        batch: Position,
        /// Which life of the backup is meant.
        incarnation: Incarnation,
        /// How much of the local log is decided about.
        length: u64,
        /// The names.
        runs: Vec<Ordered>,
    },

    /// Reader to replica: records from a position on. Waits until there is one, or `wait_ms` are over.
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
    /// Replica to another one: the answer to `Read` where records are not placed by their positions.
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
    /// Replica to reader: the answer to `Map`, as far as the replica knows the owners of final positions without a
    /// break. It may know none: what it was never told of, others know.
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
    /// Replica to reader: the next records of a subscription.
    Deliver {
        /// The subscription.
        request: u64,
        /// Where this delivery starts: the `upto` of the one before.
        from: Position,
        /// The records of this shard in `from..upto`.
        records: Vec<Stored>,
        /// Everything of this shard below it has been delivered.
        upto: Position,
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
        /// The view: who joins a later one asks those of this one where the trim point is.
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
    /// Replica to whoever asked: this.
    Surveyed(Surveyed),
    /// Controller to replica: keep to the log's limits.
    Retain(Retain),
    /// Controller to replica: do you hold everything that a member of this view should?
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
        13 => Deliver { request, from, records, upto },
        14 => Credit { request, bytes },
        15 => Cancel { request },
        16 => Trim { request, view, position },
        17 => Trimmed { request, first },
        18 => Status { request },
        19 => StatusIs { request, view, stable, trim },
        20 => Put { view, session, first as first, records },
        21 => Stored { view, ids },
        22 => NotAppended { view, ids },
        23 => Busy { view, ids, disk_full },
        24 => Order { view, batch, backups, stable, runs },
        25 => ReplicateOrder { view, batch, incarnation, stable, runs, replicas },
        26 => Want { view, batch, ids },
        27 => Have { view, batch, records, lacks, voids },
        28 => MappedRecords { request, records, owned, upto },
        29 => Map { request, from, end as end },
        30 => Mapped { request, view, stable, owned },
        31 => Unnamed { view, names },
        32 => Undecided { view, session, first, end },
        33 => Write { view, runs },
        34 => Written { view, spans, others },
        35 => Unreadable { view, spans },
        36 => Later { view, spans, disk_full },
        37 => Overdue { view, settled, overdue },
        38 => Fill { view, spans },
        39 => Filled { view, run },
        40 => Flush { claim, incarnation, first, end, placement, backups },
        41 => Flushed { claim, upto },
        42 => Unflushed { claim },
        43 => Confirm { request, view },
        44 => Confirmed { request, view },
        45 => Submit { view, session, lowest as number, first as first, records },
        46 => Appended { view, ids, first },
        47 => OutOfOrder { view, session, expected as number },
        48 => Follow { view, incarnation, index as number, names, records },
        49 => Followed { view, length as number, asks },
        50 => Report { view, length as number, from as number, names },
        51 => Decided { view, end, length as number },
        52 => Cover { view, of, batch, backups, length as number, runs },
        53 => ReplicateCover { view, of, batch, incarnation, length as number, runs },
        54 => Pressed { view },
        55 => Seek { view, session, from, end as end },
        56 => Sought { view, session, from, upto, trim, found },
        57 => Survey(survey),
        58 => Surveyed(surveyed),
        59 => Retain(retain),
        60 => AskWhole { view },
        61 => Whole { view },
        62 => Vacant { claim, old, spans },
        63 => Offer { claim, upto, runs },
    }
}
