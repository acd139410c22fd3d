//! The events of a run, as seen from outside and as they truly were: what the checkers judge.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::storage::{Owned, Stored};
use seriatim_model::{
    Durability, Incarnation, LogConfig, Member, NodeId, Placement, Position, RecordId, Retention, SessionId,
    ShardId, Span, Time, View, ViewNumber,
};
use seriatim_protocol::control::placed_from;

use crate::capacity::Capacity;
use crate::chosen::Chosen;
use crate::excuses::{Excuse, Excuses};
pub use crate::foretold::{Foretelling, Foretold, Speculation};
use crate::kept::Kept;
pub use crate::losses::Skipped;
use crate::operator::{Acceptance, Told};
use crate::slots::Slots;

/// Counts events of the history: of two, the lower happened first. Finer than virtual time.
pub type Moment = u64;

/// The outcome of an append, as its client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet.
    Pending,
    /// Acknowledged.
    Acknowledged,
    /// The client cannot know: it crashed, or its session expired.
    Unknown,
    /// Definitely not in the log.
    Refused,
}

/// One append of an application, however often it was sent.
#[derive(Clone, Debug)]
pub struct Append {
    /// Which client process.
    pub client: u32,
    /// Which of all sessions of all clients, in the order in which the applications began them.
    pub session: u32,
    /// The number within that session that it must get; the least one, if it may be appended again.
    pub number: u64,
    /// The payload. No two appends have the same.
    pub payload: Bytes,
    /// When it was asked for.
    pub invoked: Moment,
    /// The same in virtual time.
    pub invoked_at: Time,
    /// When the outcome was known.
    pub completed: Option<Moment>,
    /// The same in virtual time.
    pub completed_at: Option<Time>,
    /// Its outcome.
    pub outcome: Outcome,
    /// The ids under which it was acknowledged.
    pub ids: BTreeSet<RecordId>,
    /// The position that a synchronous append was told.
    pub position: Option<Position>,
    /// When it was told that.
    pub positioned: Option<Moment>,
    /// How many ids it had before the one under which it was acknowledged.
    pub again: u32,
}

/// A record that a reader got.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When it came.
    pub at: Moment,
    /// Where it is in the log.
    pub position: Position,
    /// When it came, in virtual time.
    pub seen_at: Time,
    /// Its id.
    pub id: RecordId,
    /// Which append it is; none if its payload is not that of any append.
    pub append: Option<usize>,
    /// Whether it is a no-op: a name whose record never came.
    pub is_void: bool,
    /// Whether it may have waited for others to be handed over first.
    pub is_buffered: bool,
    /// Whether it may have been a prediction of its shard, which the word of any shard confirms.
    pub is_confirmed: bool,
}

/// An answer of a shard replica to a reader.
#[derive(Clone, Debug)]
pub struct Served {
    /// When it came.
    pub at: Moment,
    /// When it was asked for.
    pub asked: Moment,
    /// Whether it answers a subscription, which was asked for long ago.
    pub subscribed: bool,
    /// Which replica answered.
    pub node: NodeId,
    /// Of which shard.
    pub shard: ShardId,
    /// Where the answer starts.
    pub from: Position,
    /// Where it ends.
    pub upto: Position,
    /// The records, as indices into the observations.
    pub records: std::ops::Range<usize>,
    /// The positions that it called empty.
    pub empty: Vec<Span>,
}

/// The records that a subscription delivered at once, or a read of the whole log returned.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The position that had to come first.
    pub from: Position,
    /// The position that has to come next.
    pub upto: Position,
    /// The records, as indices into the observations.
    pub records: std::ops::Range<usize>,
}

/// Which shards hold which positions, as a reader was told.
#[derive(Clone, Debug)]
pub struct MapTold {
    /// When.
    pub at: Moment,
    /// The first position.
    pub from: Position,
    /// Their shards.
    pub owned: Vec<Owned>,
}

impl MapTold {
    /// How many positions it tells of.
    #[must_use]
    pub fn positions(&self) -> u64 {
        self.owned.iter().map(|owned| owned.count).sum()
    }
}

/// A question for the tail.
#[derive(Clone, Debug)]
pub struct TailCheck {
    /// When it was asked.
    pub invoked: Moment,
    /// The same in virtual time.
    pub invoked_at: Time,
    /// When it was answered, and with what.
    pub returned: Option<(Moment, Time, Position)>,
}

/// A trim that every replica confirmed.
#[derive(Clone, Copy, Debug)]
pub struct Trim {
    /// When the last replica had confirmed it.
    pub confirmed: Moment,
    /// The first position that is kept.
    pub first: Position,
}

/// Something that only a member of a view may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimed {
    /// The view that the speaker claimed to speak for.
    pub view: ViewNumber,
    /// The speaker, and which incarnation of it.
    pub member: Member,
    /// The statement.
    pub what: &'static str,
}

/// A view, and when the register first had it.
#[derive(Clone, Debug)]
pub struct RegisteredView {
    /// The view.
    pub view: View,
    /// When it was registered.
    pub at: Moment,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It did not get that far.
    Running,
    /// Everything was done, and the whole log was read.
    AtRest {
        /// The first position that is kept.
        trim: Position,
        /// The position after the last.
        tail: Position,
    },
    /// The log said that it is unavailable, and why.
    Unavailable(String),
    /// Something did not come to an end although nothing disturbed it any more.
    Stuck(String),
    /// Nobody has some records undamaged: who reads or copies them waits for ever.
    Damaged(String),
}

/// The cost of load to the nodes, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// How many bytes were written to disks, journals included.
    pub disk_bytes: u64,
    /// How many of them to journals.
    pub journal_bytes: u64,
    /// How many bytes nodes sent each other.
    pub sent_bytes: u64,
    /// How many bytes nodes held in memory at once, at most: what they had not taken, sent, or
    /// written yet, and what sequencing replicas kept of records that were not stable.
    pub most_held: u64,
    /// The cost of one step, of each the most.
    pub most_step: Step,
    /// The cost of view changes.
    pub changes: Changes,
}

/// The cost of view changes: everything that nodes did while a view was claimed and not registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// How many there were.
    pub count: u64,
    /// How many attempts were made in all.
    pub attempts: u64,
    /// The last of them.
    pub claim: Option<ViewNumber>,
    /// Whether one is under way.
    pub is_under_way: bool,
    /// How many bytes nodes sent each other.
    pub sent_bytes: u64,
    /// How many bytes they wrote to stores and gave to their journals.
    pub kept_bytes: u64,
}

/// The work of a node for one arrival, or for what was due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// How many bytes it sent, wrote, and gave to its journal.
    pub made: u64,
    /// How many bytes it read from its disk.
    pub read: u64,
    /// How many entries of what they hold in memory its record stores looked at.
    pub visited: u64,
}

impl Step {
    /// Of each the greater.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            made: self.made.max(other.made),
            read: self.read.max(other.read),
            visited: self.visited.max(other.visited),
        }
    }
}

/// For how long a node that died stays away at least that the others have a view without it.
pub const STAYS_AWAY: Duration = Duration::from_millis(500);

/// The load on a cluster whose capacity is known, and its outcome.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The amount of everything there is in a second.
    pub capacity: Capacity,
    /// How many nodes there are.
    pub nodes: u32,
    /// How much a sequencing replica holds before it says that it is busy, in bytes.
    pub ring_bytes: u64,
    /// How many records one batch has at most: no more than there may be on their way.
    pub batch_records: u64,
    /// How long each record is, in bytes.
    pub record_bytes: u64,
    /// Whether a second log is appended to, for which room is kept on each disk.
    pub is_shared: bool,
    /// Whether nothing but heartbeats passes between some nodes at times.
    pub has_mute_ways: bool,
    /// Whether the connections of clients break all the time.
    pub has_resets: bool,
    /// How many subscriptions clients have to shards.
    pub readers: u32,
    /// How much clients have on its way at once, at most, in bytes.
    pub in_flight_bytes: u64,
    /// When clients began to ask.
    pub began: Time,
    /// When they asked for nothing more.
    pub ended: Time,
    /// How many faults struck meanwhile.
    pub faults: u32,
    /// Whether all of these are nodes that die, and stay away until the others have a view without
    /// them.
    pub are_deaths: bool,
    /// The view when it began.
    pub view: ViewNumber,
    /// The view when everything was answered.
    pub last_view: ViewNumber,
    /// The highest number of a view that somebody tried to form by then.
    pub last_claim: ViewNumber,
    /// The stable bound when it ended.
    pub stable: Position,
    /// Its cost.
    pub costs: Costs,
    /// Everything that was asked for has come to its end.
    pub is_over: bool,
}

/// A trim that a log's limits brought, as it came to the first replica.
#[derive(Clone, Copy, Debug)]
pub struct Retained {
    /// When.
    pub at: Time,
    /// The first position to keep.
    pub trim: Position,
    /// How many bytes the log's files had, one replica of each shard counted.
    pub used: u64,
    /// How many of them records from the trim point on keep.
    pub kept: u64,
}

/// An answer to the question where a time begins.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// The time, in milliseconds since the world began, as a clock that is right says it.
    pub right_ms: u64,
    /// The answer.
    pub answer: Position,
}

/// All of it.
#[derive(Debug)]
pub struct History {
    /// The promises of the log.
    pub config: LogConfig,
    /// How many shards it ever had.
    pub shard_count: u32,
    /// Whether applications let records be appended again, out of the order in which they asked.
    pub unordered: bool,
    moment: Moment,
    sessions: u32,
    /// The appends, in the order in which they were asked for.
    pub appends: Vec<Append>,
    by_payload: BTreeMap<Bytes, usize>,
    /// The observations of readers, in the order in which they made them.
    pub observations: Vec<Observation>,
    /// How they got it.
    pub served: Vec<Served>,
    /// Which shard gave out what is at a position, when anybody first read it.
    pub(crate) owners: BTreeMap<Position, ShardId>,
    /// The deliveries of subscriptions and reads, over all shards.
    pub delivered: Vec<Delivered>,
    /// The shards of positions, as readers were told.
    pub maps: Vec<MapTold>,
    /// Where a reader did not get the position that had to come next, from whoever had to have it.
    pub holes: Vec<String>,
    /// The questions for the tail.
    pub tails: Vec<TailCheck>,
    /// The log's limits, and since when, where it has some.
    pub limits: Vec<(Time, Retention)>,
    /// Below which position everything was final, and since when, where the log has limits.
    pub final_at: Vec<(Time, Position)>,
    /// Trims that limits brought.
    pub retained: Vec<Retained>,
    /// Where times begin, by what was told.
    pub sought: Vec<Sought>,
    /// How far a clock on a wall was ever behind, in milliseconds.
    pub clocks_behind_ms: u64,
    /// Which limit it does not keep to in the end, if there is one.
    pub exceeds: Option<String>,
    /// The files that a log keeps in the end although it was trimmed to its tail, if there are any.
    pub unfreed: Option<String>,
    /// Where a log did without a node before others held what it held.
    pub left_early: Vec<String>,
    /// Where a replica copied the shard of a node that it stood in for, although that node could
    /// still come back in time.
    pub copied_early: Vec<String>,
    /// Where a replica removed its files although another one read of them.
    pub removed_early: Vec<String>,
    /// The trims.
    pub trims: Vec<Trim>,
    /// The sessions that have ended, at which number, and when that was told last.
    pub ended: BTreeMap<SessionId, (u64, Moment)>,
    /// The virtual time now.
    pub now: Time,
    /// A piece of what a node's disk holds, for those who append such.
    pub piece: Bytes,
    /// The statements that only a member may make, by speaker, and when each came first.
    pub claims: BTreeMap<Claimed, Moment>,
    /// Whether records have keys.
    pub keyed: bool,
    /// The processes of nodes that ended, and when.
    pub stopped: Vec<(NodeId, Moment)>,
    /// The subscriptions that take predictions.
    pub speculations: Vec<Speculation>,
    /// The records that each subscription received.
    pub choices: Vec<Chosen>,
    /// The positions that were given in advance.
    pub slots: Slots,
    /// The registered views.
    pub views: BTreeMap<ViewNumber, RegisteredView>,
    /// The sequencing replica with whose state each view was formed, or was to be.
    pub chosen: BTreeMap<ViewNumber, Member>,
    /// Records without positions that were kept from one view to the next.
    pub kept: Vec<Kept>,
    /// When a replica first went by a view.
    pub heard: BTreeMap<(Member, ShardId, ViewNumber), Moment>,
    /// The incarnations of each replica, and when each was first seen.
    pub incarnations: BTreeMap<(NodeId, ShardId), Vec<(Moment, Incarnation)>>,
    /// Below which position everything was final from which moment on, by what the replicas had
    /// done.
    pub stable: Vec<(Moment, Position)>,
    /// The same for the positions of single shards, in a log that is ordered first.
    pub written: BTreeMap<ShardId, Vec<(Moment, Position)>>,
    /// The log at the end: observations of the last reading, by position.
    pub last: BTreeMap<Position, (RecordId, Option<usize>)>,
    /// Which shard had each of these.
    pub last_shards: BTreeMap<Position, ShardId>,
    /// Whether more memory was lost than the log's durability can bear.
    pub lost_too_much: bool,
    /// When, if so.
    pub lost_at: Time,
    /// In which view.
    pub lost_in: ViewNumber,
    /// Up to where each replica has what it knows to be final, and since when.
    pub known: BTreeMap<(NodeId, ShardId), Vec<(Time, Position)>>,
    /// Which positions of shards a replica said are damaged on its disk.
    pub damaged: BTreeSet<(ShardId, Position)>,
    /// Subscriptions that ended because no replica gave out a record, and what they were told,
    /// until that is judged.
    pub withheld: Vec<(ShardId, Position, String)>,
    /// Whether a disk lost, or could not take, anything that had been written to it.
    pub disks_failed: bool,
    /// Up to where a log that is unavailable turned out to be trimmed.
    pub trimmed_to: Position,
    /// When the log was read to the end to be judged.
    pub judged_from: Moment,
    /// The excuses that let something pass although it looks like a broken promise.
    pub excuses: Excuses,
    /// The losses that an operator accepted.
    pub accepted: Option<Acceptance>,
    /// The operator's answers, in order.
    pub told: Vec<Told>,
    /// Where a replica did not do what it had promised to a controller.
    pub broken_promises: Vec<String>,
    /// The positions that a reader was told are lost, and when first.
    pub told_lost: BTreeMap<(ShardId, Position), Moment>,
    /// The positions that readers skipped since they were told that what was there is lost.
    pub skipped: Vec<Skipped>,
    /// Roles and nodes that could not be brought back, and invariants that broke.
    pub problems: Vec<String>,
    /// How it ended.
    pub end: End,
    /// When faults stopped.
    pub calm_since: Option<Time>,
    /// The load, if the plan says what the cluster can do.
    pub load: Option<Load>,
    /// The same of a second log, of which little is asked.
    pub second: Option<Box<History>>,
}

impl History {
    /// Nothing happened yet.
    #[must_use]
    pub fn new(config: LogConfig) -> Self {
        Self {
            shard_count: config.shards,
            config,
            unordered: false,
            moment: 0,
            sessions: 0,
            appends: vec![],
            by_payload: BTreeMap::new(),
            observations: vec![],
            served: vec![],
            owners: BTreeMap::new(),
            delivered: vec![],
            maps: vec![],
            holes: vec![],
            tails: vec![],
            limits: vec![],
            final_at: vec![],
            retained: vec![],
            sought: vec![],
            clocks_behind_ms: 0,
            exceeds: None,
            unfreed: None,
            left_early: vec![],
            copied_early: vec![],
            removed_early: vec![],
            trims: vec![],
            ended: BTreeMap::new(),
            now: Time::ZERO,
            piece: Bytes::new(),
            claims: BTreeMap::new(),
            keyed: false,
            stopped: vec![],
            speculations: vec![],
            choices: vec![],
            slots: Slots::default(),
            views: BTreeMap::new(),
            kept: vec![],
            chosen: BTreeMap::new(),
            heard: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            stable: vec![],
            written: BTreeMap::new(),
            last: BTreeMap::new(),
            last_shards: BTreeMap::new(),
            lost_too_much: false,
            lost_at: Time::ZERO,
            lost_in: ViewNumber::NONE,
            known: BTreeMap::new(),
            damaged: BTreeSet::new(),
            withheld: vec![],
            disks_failed: false,
            trimmed_to: Position::ZERO,
            judged_from: Moment::MAX,
            excuses: Excuses::default(),
            accepted: None,
            told: vec![],
            broken_promises: vec![],
            told_lost: BTreeMap::new(),
            skipped: vec![],
            problems: vec![],
            end: End::Running,
            calm_since: None,
            load: None,
            second: None,
        }
    }

    /// A new moment, after all others.
    pub fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    /// A number for a session that an application begins.
    pub fn open_session(&mut self) -> u32 {
        self.sessions += 1;
        self.sessions
    }

    /// How the positions are spread over the shards. A later view leaves what is final where it
    /// was.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement_at(Moment::MAX)
    }

    /// The same by the views that were registered up to a moment. Only where an operator accepted a
    /// loss that makes a difference to what was final then.
    #[must_use]
    pub fn placement_at(&self, moment: Moment) -> Placement {
        let mut placement =
            Placement::new((0..self.config.shards).map(ShardId).collect(), self.config.stripe);
        for RegisteredView { view, .. } in self.views.values().filter(|known| known.at <= moment) {
            if view.open_shards() != placement.latest() {
                let from = placed_from(self.config.order, view);
                placement = placement.then(from, view.open_shards().to_vec());
            }
        }
        placement
    }

    /// All shards that the log ever had.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.shard_count).map(ShardId)
    }

    /// Whether the log promises to survive the loss of all memory.
    #[must_use]
    pub fn is_on_disk(&self) -> bool {
        self.config.durability == Durability::Disk
    }

    /// An append was asked for. Returns its index.
    pub fn invoke(&mut self, now: Time, client: u32, session: u32, number: u64, payload: Bytes) -> usize {
        let invoked = self.tick();
        let index = self.appends.len();
        let known = self.by_payload.insert(payload.clone(), index);
        assert!(known.is_none(), "payloads are unique");
        self.appends.push(Append {
            client,
            session,
            number,
            payload,
            invoked,
            invoked_at: now,
            completed: None,
            completed_at: None,
            outcome: Outcome::Pending,
            ids: BTreeSet::new(),
            position: None,
            positioned: None,
            again: 0,
        });
        index
    }

    /// The outcome of an append. The first that is definite counts.
    pub fn complete(&mut self, now: Time, index: usize, outcome: Outcome) {
        let moment = self.tick();
        let append = &mut self.appends[index];
        if matches!(append.outcome, Outcome::Pending | Outcome::Unknown) {
            append.outcome = outcome;
            append.completed = Some(moment);
            append.completed_at = Some(now);
        }
    }

    /// An append was acknowledged under this name, maybe with its position. What was acknowledged,
    /// and may be gone since an operator accepted a loss, another run of its application may append
    /// again under another name.
    pub fn acknowledge(&mut self, now: Time, index: usize, id: RecordId, position: Option<Position>) {
        self.complete(now, index, Outcome::Acknowledged);
        let append = &self.appends[index];
        let is_other = append.ids.first().is_some_and(|known| *known != id);
        let is_lost = append.completed.is_some_and(|before| match append.position {
            Some(position) => self.was_lost(position, before, Moment::MAX),
            None => self.is_accepted_between(before, Moment::MAX),
        });
        if is_other && self.excuse(Excuse::Moved, is_lost) {
            let moment = self.tick();
            let append = &mut self.appends[index];
            append.ids.clear();
            (append.position, append.positioned, append.completed) = (None, None, Some(moment));
        }
        self.appends[index].ids.insert(id);
        if position.is_some() && self.appends[index].position != position {
            // Another run of the application may be told it later than the append was acknowledged.
            let moment = self.tick();
            let append = &mut self.appends[index];
            (append.position, append.positioned) = (position, Some(moment));
        }
    }

    /// A reader got an answer. Returns which observations it made.
    pub fn serve(&mut self, mut served: Served, records: &[Stored]) -> std::ops::Range<usize> {
        served.at = self.tick();
        served.records = self.observe(served.at, records, false);
        for stored in records {
            self.owners.entry(stored.position).or_insert(served.shard);
        }
        self.served.push(served.clone());
        served.records
    }

    /// A subscription or a read delivered the records of `from..upto`.
    pub fn deliver(&mut self, from: Position, upto: Position, records: &[Stored]) {
        let at = self.tick();
        let records = self.observe(at, records, true);
        self.delivered.push(Delivered { from, upto, records });
    }

    /// A subscription that takes predictions was told that those of `from..upto` are final.
    pub fn confirm(&mut self, from: Position, upto: Position, records: &[Stored]) {
        let first = self.observations.len();
        self.deliver(from, upto, records);
        self.observations[first..].iter_mut().for_each(|seen| seen.is_confirmed = true);
    }

    fn observe(&mut self, at: Moment, records: &[Stored], is_buffered: bool) -> std::ops::Range<usize> {
        let first = self.observations.len();
        for stored in records {
            let is_void = stored.record.is_no_op();
            let payload = stored.record.payload();
            let append = self.by_payload.get(&payload).copied().filter(|_| !is_void);
            let (position, id, seen_at) = (stored.position, stored.id, self.now);
            let is_confirmed = false;
            let seen = Observation { at, seen_at, position, id, append, is_void, is_buffered, is_confirmed };
            self.observations.push(seen);
        }
        first..self.observations.len()
    }

    /// The highest position that was final at `moment`, as a bound.
    #[must_use]
    pub fn stable_at(&self, moment: Moment) -> Position {
        let index = self.stable.partition_point(|(at, _)| *at <= moment);
        index.checked_sub(1).map_or(Position::ZERO, |index| self.stable[index].1)
    }

    /// The view that was registered last at `moment`.
    #[must_use]
    pub fn view_at(&self, moment: Moment) -> Option<&View> {
        let earlier = self.views.values().rev().find(|registered| registered.at <= moment);
        earlier.map(|registered| &registered.view)
    }

    /// A replica goes by this view.
    pub fn note_heard(&mut self, member: Member, shard: ShardId, view: ViewNumber) {
        if !self.heard.contains_key(&(member, shard, view)) {
            let moment = self.tick();
            self.heard.insert((member, shard, view), moment);
        }
    }

    /// A replica runs in this incarnation.
    pub fn note_incarnation(&mut self, member: Member, shard: ShardId) {
        let Member { node, incarnation } = member;
        let last = self.incarnations.get(&(node, shard)).and_then(|all| all.last());
        if last.is_none_or(|(_, last)| *last != incarnation) {
            let moment = self.tick();
            self.incarnations.entry((node, shard)).or_default().push((moment, incarnation));
        }
    }

    /// The incarnation in which a replica was seen last at `moment`.
    #[must_use]
    pub fn incarnation_at(&self, node: NodeId, shard: ShardId, moment: Moment) -> Option<Incarnation> {
        let all = self.incarnations.get(&(node, shard))?;
        all.iter().rev().find(|(seen, _)| *seen <= moment).map(|(_, incarnation)| *incarnation)
    }

    /// More memory is lost than the log's durability can bear.
    pub fn lose_too_much(&mut self) {
        (self.lost_too_much, self.lost_at) = (true, self.now);
        self.lost_in = self.views.keys().next_back().copied().unwrap_or(ViewNumber::NONE);
    }

    /// A replica has everything below this, and knows it to be final.
    pub fn note_known(&mut self, node: NodeId, shard: ShardId, upto: Position) {
        let known = self.known.entry((node, shard)).or_default();
        if known.last().is_none_or(|(_, last)| *last != upto) {
            known.push((self.now, upto));
        }
    }

    /// Up to where a replica had at `time` what it knew to be final.
    #[must_use]
    pub fn known_at(&self, node: NodeId, shard: ShardId, time: Time) -> Position {
        let known = self.known.get(&(node, shard)).map_or(&[][..], Vec::as_slice);
        let index = known.partition_point(|(since, _)| *since < time);
        index.checked_sub(1).map_or(Position::ZERO, |index| known[index].1)
    }

    /// A session ends at a number, as was told: the least counts.
    pub fn end_session(&mut self, session: SessionId, end: u64) {
        let moment = self.tick();
        let (known, told) = self.ended.entry(session).or_insert((end, moment));
        (*known, *told) = (end.min(*known), moment);
    }

    /// Everything below this is final now.
    pub fn note_stable(&mut self, stable: Position) {
        if stable > self.stable.last().map_or(Position::ZERO, |(_, known)| *known) {
            let moment = self.tick();
            self.stable.push((moment, stable));
        }
    }

    /// Everything of a shard below this is final now.
    pub fn note_written(&mut self, shard: ShardId, written: Position) {
        let moment = self.tick();
        let known = self.written.entry(shard).or_default();
        if written > known.last().map_or(Position::ZERO, |(_, known)| *known) {
            known.push((moment, written));
        }
    }

    /// Where the positions of a shard that are final end, as was known at `moment`.
    #[must_use]
    pub fn written_at(&self, shard: ShardId, moment: Moment) -> Position {
        let known = self.written.get(&shard).map_or(&[][..], Vec::as_slice);
        let index = known.partition_point(|(at, _)| *at <= moment);
        index.checked_sub(1).map_or(Position::ZERO, |index| known[index].1)
    }

    /// Where each append is, as far as anybody saw: at the end, by a reader, or by its own client.
    #[must_use]
    pub fn positions(&self) -> BTreeMap<usize, Position> {
        self.places().into_iter().map(|(append, (position, _))| (append, position)).collect()
    }

    /// The same, with when it was first known to be there. What is in the log again after an
    /// operator accepted a loss, although it was not lost itself, is where it was before.
    #[must_use]
    pub fn places(&self) -> BTreeMap<usize, (Position, Moment)> {
        let mut places: BTreeMap<usize, (Position, Moment)> = BTreeMap::new();
        let observed = self.observations.iter().map(|seen| (seen.append, seen.position, seen.at));
        let at_the_end = self.last.iter().map(|(position, (_, append))| (*append, *position, Moment::MAX));
        for (append, position, moment) in observed.chain(at_the_end) {
            let Some(append) = append else { continue };
            let place = places.entry(append).or_insert((position, moment));
            if place.0 != position && (self.may_be_gone(place.0) || self.accepted.is_none()) {
                *place = (position, moment);
            }
        }
        for (index, append) in self.appends.iter().enumerate() {
            if let Some(position) = append.position {
                places.entry(index).or_insert((position, append.positioned.unwrap_or(Moment::MAX)));
            }
        }
        places
    }
}
