//! Events of a run, observed and true: the checkers' input.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::storage::{Owned, Stored};
use seriatim_model::{
    Durability, Incarnation, LogConfig, Member, NodeId, Pin, Placement, Position, RecordId, Retention,
    SessionId, ShardId, Span, Time, View, ViewNumber,
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

/// Number of an event in the order of the run. Finer than virtual time.
pub type Moment = u64;

/// An append's outcome, as reported to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// None yet.
    Pending,
    /// Acknowledged.
    Acknowledged,
    /// Unknown: the client crashed, or its session expired.
    Unknown,
    /// Definitely not in the log.
    Refused,
}

/// An append of an application, with all its retries.
#[derive(Clone, Debug)]
pub struct Append {
    /// Client process.
    pub client: u32,
    /// Session, counted over all clients in the order of their start.
    pub session: u32,
    /// Number that it must get in that session; the least possible, if it may be resubmitted.
    pub number: u64,
    /// Unique payload.
    pub payload: Bytes,
    /// When the application asked.
    pub invoked: Moment,
    /// Virtual time of the request.
    pub invoked_at: Time,
    /// When the outcome was known.
    pub completed: Option<Moment>,
    /// Virtual time at which the outcome was known.
    pub completed_at: Option<Time>,
    /// Its outcome.
    pub outcome: Outcome,
    /// Ids under which it was acknowledged.
    pub ids: BTreeSet<RecordId>,
    /// Position reported to a synchronous append.
    pub position: Option<Position>,
    /// When that position was reported.
    pub positioned: Option<Moment>,
    /// Number of resubmissions: ids before the acknowledged one.
    pub again: u32,
}

/// A record received by a reader.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When the record arrived.
    pub at: Moment,
    /// Its position.
    pub position: Position,
    /// Virtual time of the arrival.
    pub seen_at: Time,
    /// Its id.
    pub id: RecordId,
    /// Its append. `None` if no append has its payload.
    pub append: Option<usize>,
    /// Whether it is a no-op.
    pub is_void: bool,
    /// Whether it may have waited at the client for delivery in order.
    pub is_buffered: bool,
    /// Whether it may have arrived as a prediction, which any shard may confirm.
    pub is_confirmed: bool,
}

/// A shard replica's answer to a reader.
#[derive(Clone, Debug)]
pub struct Served {
    /// When the answer arrived.
    pub at: Moment,
    /// When the reader asked.
    pub asked: Moment,
    /// Whether it answers a subscription, whose request may be old.
    pub subscribed: bool,
    /// The replica's node.
    pub node: NodeId,
    /// Its shard.
    pub shard: ShardId,
    /// First position that the answer covers.
    pub from: Position,
    /// Position after the last that the answer covers.
    pub upto: Position,
    /// Indices of its observations.
    pub records: std::ops::Range<usize>,
    /// Positions reported empty.
    pub empty: Vec<Span>,
}

/// Records delivered at once by a subscription or a read.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// First position of the delivered range.
    pub from: Position,
    /// Position after the delivered range.
    pub upto: Position,
    /// Indices of its observations.
    pub records: std::ops::Range<usize>,
}

/// Shards of positions, as reported to a reader.
#[derive(Clone, Debug)]
pub struct MapTold {
    /// When the report arrived.
    pub at: Moment,
    /// First position.
    pub from: Position,
    /// Shards of the positions from `from` on.
    pub owned: Vec<Owned>,
}

impl MapTold {
    /// Number of positions covered.
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
    /// Virtual time of the question.
    pub invoked_at: Time,
    /// Moment, time and tail of the answer.
    pub returned: Option<(Moment, Time, Position)>,
}

/// A trim that every replica confirmed.
#[derive(Clone, Copy, Debug)]
pub struct Trim {
    /// When the last replica confirmed.
    pub confirmed: Moment,
    /// First position kept.
    pub first: Position,
}

/// A statement that only a view's member may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimed {
    /// The view.
    pub view: ViewNumber,
    /// The speaker and its incarnation.
    pub member: Member,
    /// The statement.
    pub what: &'static str,
}

/// A registered view.
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
    /// It did not end.
    Running,
    /// Everything completed and was read.
    AtRest {
        /// First position kept.
        trim: Position,
        /// Position after the last record.
        tail: Position,
    },
    /// The log is unavailable, for this reason.
    Unavailable(String),
    /// Something did not complete after the faults.
    Stuck(String),
    /// Some records have no intact copy.
    Damaged(String),
}

/// Costs of load, summed over all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Bytes written to disks, journals included.
    pub disk_bytes: u64,
    /// Bytes written to journals.
    pub journal_bytes: u64,
    /// Bytes sent between nodes.
    pub sent_bytes: u64,
    /// Most bytes in memory at once: unread, unsent or unwritten bytes, and unstable records in
    /// rings.
    pub most_held: u64,
    /// Highest cost of a single step, by resource.
    pub most_step: Step,
    /// Costs of view changes.
    pub changes: Changes,
}

/// Costs of view changes, each from its first claim to the view's registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Number of view changes.
    pub count: u64,
    /// Number of attempts to form a view.
    pub attempts: u64,
    /// View number that the last attempt claimed.
    pub claim: Option<ViewNumber>,
    /// Whether a view change is running.
    pub is_under_way: bool,
    /// Bytes sent between nodes.
    pub sent_bytes: u64,
    /// Bytes written to stores and journals.
    pub kept_bytes: u64,
}

/// A node's work for one arrival or wakeup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Bytes sent, written and journaled.
    pub made: u64,
    /// Bytes read from disk.
    pub read: u64,
    /// In-memory entries visited by record stores.
    pub visited: u64,
}

impl Step {
    /// The larger value of each cost.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            made: self.made.max(other.made),
            read: self.read.max(other.read),
            visited: self.visited.max(other.visited),
        }
    }
}

/// Shortest absence of a node after which the other nodes have a view without it.
pub const STAYS_AWAY: Duration = Duration::from_millis(500);

/// Load on a cluster with a capacity, and its outcome.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The cluster's capacity.
    pub capacity: Capacity,
    /// Number of nodes.
    pub nodes: u32,
    /// Size of a ring in bytes.
    pub ring_bytes: u64,
    /// Most records of a batch, at most those in flight.
    pub batch_records: u64,
    /// Bytes of each record.
    pub record_bytes: u64,
    /// Whether a second log gets appends, with space reserved on each disk.
    pub is_shared: bool,
    /// Whether only heartbeats pass between some nodes at times.
    pub has_mute_ways: bool,
    /// Whether clients' connections keep breaking.
    pub has_resets: bool,
    /// Number of subscriptions to shards.
    pub readers: u32,
    /// Most bytes of clients' appends in flight.
    pub in_flight_bytes: u64,
    /// Start of the load.
    pub began: Time,
    /// End of the load.
    pub ended: Time,
    /// Number of faults during the load.
    pub faults: u32,
    /// Whether all faults are deaths, long enough for a view without the node.
    pub are_deaths: bool,
    /// The view at the start.
    pub view: ViewNumber,
    /// The view when all appends had outcomes.
    pub last_view: ViewNumber,
    /// Highest view number claimed by then.
    pub last_claim: ViewNumber,
    /// Stable bound at the end of the load.
    pub stable: Position,
    /// Its costs.
    pub costs: Costs,
    /// Whether all appends have outcomes.
    pub is_over: bool,
}

/// A trim that retention limits caused, as seen at the first replica.
#[derive(Clone, Copy, Debug)]
pub struct Retained {
    /// When.
    pub at: Time,
    /// First position to keep.
    pub trim: Position,
    /// Bytes of the log's files, one replica per shard.
    pub used: u64,
    /// Bytes of `used` that records from the trim point on occupy.
    pub kept: u64,
}

/// The position found for a time.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// Time searched for, by a correct clock, in milliseconds since the start.
    pub right_ms: u64,
    /// The answer.
    pub answer: Position,
}

/// All events of a run.
#[derive(Debug)]
pub struct History {
    /// The log's promises.
    pub config: LogConfig,
    /// Number of shards that it ever had.
    pub shard_count: u32,
    /// Whether records may be resubmitted out of order.
    pub unordered: bool,
    moment: Moment,
    sessions: u32,
    /// Appends in order of invocation.
    pub appends: Vec<Append>,
    by_payload: BTreeMap<Bytes, usize>,
    /// Observations in order.
    pub observations: Vec<Observation>,
    /// Answers that contained the observations.
    pub served: Vec<Served>,
    /// Shard that first served each position.
    pub(crate) owners: BTreeMap<Position, ShardId>,
    /// Deliveries of subscriptions and reads over all shards.
    pub delivered: Vec<Delivered>,
    /// Shards of positions, as reported to readers.
    pub maps: Vec<MapTold>,
    /// Where a reader missed the next position.
    pub holes: Vec<String>,
    /// Questions for the tail.
    pub tails: Vec<TailCheck>,
    /// The log's limits, with the start of each.
    pub limits: Vec<(Time, Retention)>,
    /// The log's pins, with the start of each list.
    pub pins: Vec<(Time, Vec<Pin>)>,
    /// Bounds of the final positions over time, with limits.
    pub final_at: Vec<(Time, Position)>,
    /// Trims by limits.
    pub retained: Vec<Retained>,
    /// Positions found for times.
    pub sought: Vec<Sought>,
    /// Longest lag of any wall clock, in milliseconds.
    pub clocks_behind_ms: u64,
    /// A limit exceeded in the end.
    pub exceeds: Option<String>,
    /// Files left after a trim to the tail.
    pub unfreed: Option<String>,
    /// Where a log excluded a node before others held its records.
    pub left_early: Vec<String>,
    /// Where a spare copied a shard before the end of the allowed absence.
    pub copied_early: Vec<String>,
    /// Where a replica removed files in use by another.
    pub removed_early: Vec<String>,
    /// The trims.
    pub trims: Vec<Trim>,
    /// Ended sessions: end number, and last report.
    pub ended: BTreeMap<SessionId, (u64, Moment)>,
    /// Virtual time now.
    pub now: Time,
    /// A piece of a disk, for payloads.
    pub piece: Bytes,
    /// Members' statements, each with its first moment.
    pub claims: BTreeMap<Claimed, Moment>,
    /// Whether records have keys.
    pub keyed: bool,
    /// Ends of nodes' processes, with their moments.
    pub stopped: Vec<(NodeId, Moment)>,
    /// Subscriptions with predictions.
    pub speculations: Vec<Speculation>,
    /// Records of each subscription.
    pub choices: Vec<Chosen>,
    /// Positions given in advance.
    pub slots: Slots,
    /// Registered views.
    pub views: BTreeMap<ViewNumber, RegisteredView>,
    /// Sequencing replica chosen to provide the state of each view.
    pub chosen: BTreeMap<ViewNumber, Member>,
    /// Records without positions that outlived a view.
    pub kept: Vec<Kept>,
    /// Moment when each replica first obeyed each view.
    pub heard: BTreeMap<(Member, ShardId, ViewNumber), Moment>,
    /// Incarnations of each replica, each with its first moment.
    pub incarnations: BTreeMap<(NodeId, ShardId), Vec<(Moment, Incarnation)>>,
    /// Bounds of the final positions over time, derived from the replicas' states.
    pub stable: Vec<(Moment, Position)>,
    /// Bounds of each shard's final positions over time, where records get positions first.
    pub written: BTreeMap<ShardId, Vec<(Moment, Position)>>,
    /// The final log: id and append of each position.
    pub last: BTreeMap<Position, (RecordId, Option<usize>)>,
    /// Shard of each position of the final log.
    pub last_shards: BTreeMap<Position, ShardId>,
    /// Whether more memory was lost than the log can bear.
    pub lost_too_much: bool,
    /// When too much memory was lost.
    pub lost_at: Time,
    /// View in which too much memory was lost.
    pub lost_in: ViewNumber,
    /// Bounds over time: the replica has all its records below, and knows that they are final.
    pub known: BTreeMap<(NodeId, ShardId), Vec<(Time, Position)>>,
    /// Positions that a replica reported as damaged.
    pub damaged: BTreeSet<(ShardId, Position)>,
    /// Subscriptions that ended at a record that no replica served; judged at the end of the run.
    pub withheld: Vec<(ShardId, Position, String)>,
    /// Whether a disk lost or rejected writes.
    pub disks_failed: bool,
    /// Trim point of an unavailable log.
    pub trimmed_to: Position,
    /// When the final reading began.
    pub judged_from: Moment,
    /// Excuses for apparent violations.
    pub excuses: Excuses,
    /// Losses that an operator accepted.
    pub accepted: Option<Acceptance>,
    /// The operator's answers, in order.
    pub told: Vec<Told>,
    /// Replicas' broken promises to controllers.
    pub broken_promises: Vec<String>,
    /// Positions reported lost to readers, each with its first moment.
    pub told_lost: BTreeMap<(ShardId, Position), Moment>,
    /// Positions that readers skipped as lost.
    pub skipped: Vec<Skipped>,
    /// Roles and nodes that did not recover, and broken invariants.
    pub problems: Vec<String>,
    /// How the run ended.
    pub end: End,
    /// When faults ended.
    pub calm_since: Option<Time>,
    /// The load and its costs, if the cluster has a capacity.
    pub load: Option<Load>,
    /// The second log, with little load.
    pub second: Option<Box<History>>,
    /// What players did.
    pub playing: Option<crate::playing::Playing>,
}

impl History {
    /// An empty history.
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
            pins: vec![],
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
            playing: None,
        }
    }

    /// Returns a new, latest moment.
    pub fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    /// Number of a new session of an application.
    pub fn open_session(&mut self) -> u32 {
        self.sessions += 1;
        self.sessions
    }

    /// Final placement of positions on shards. A later view moves no final record.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement_at(Moment::MAX)
    }

    /// Placement by the views registered up to a moment. Final positions differ only after an
    /// accepted loss.
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

    /// Whether the log survives the loss of all memory.
    #[must_use]
    pub fn is_on_disk(&self) -> bool {
        self.config.durability == Durability::Disk
    }

    /// Notes a new append. Returns its index.
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

    /// Notes an append's outcome. The first definite one counts.
    pub fn complete(&mut self, now: Time, index: usize, outcome: Outcome) {
        let moment = self.tick();
        let append = &mut self.appends[index];
        if matches!(append.outcome, Outcome::Pending | Outcome::Unknown) {
            append.outcome = outcome;
            append.completed = Some(moment);
            append.completed_at = Some(now);
        }
    }

    /// Notes an acknowledgement. After an accepted loss another run may append the record again
    /// under another id.
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
            // Another run of the application may learn the position later.
            let moment = self.tick();
            let append = &mut self.appends[index];
            (append.position, append.positioned) = (position, Some(moment));
        }
    }

    /// Notes an answer to a reader. Returns the indices of its observations.
    pub fn serve(&mut self, mut served: Served, records: &[Stored]) -> std::ops::Range<usize> {
        served.at = self.tick();
        served.records = self.observe(served.at, records, false);
        for stored in records {
            self.owners.entry(stored.position).or_insert(served.shard);
        }
        self.served.push(served.clone());
        served.records
    }

    /// Notes that a reader received the positions `from..upto` in order.
    pub fn deliver(&mut self, from: Position, upto: Position, records: &[Stored]) {
        let at = self.tick();
        let records = self.observe(at, records, true);
        self.delivered.push(Delivered { from, upto, records });
    }

    /// Notes a confirmation of `from..upto`, to a subscription with predictions.
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

    /// Bound of the final positions at `moment`.
    #[must_use]
    pub fn stable_at(&self, moment: Moment) -> Position {
        let index = self.stable.partition_point(|(at, _)| *at <= moment);
        index.checked_sub(1).map_or(Position::ZERO, |index| self.stable[index].1)
    }

    /// The latest registered view at `moment`.
    #[must_use]
    pub fn view_at(&self, moment: Moment) -> Option<&View> {
        let earlier = self.views.values().rev().find(|registered| registered.at <= moment);
        earlier.map(|registered| &registered.view)
    }

    /// Notes that a replica obeys a view.
    pub fn note_heard(&mut self, member: Member, shard: ShardId, view: ViewNumber) {
        if !self.heard.contains_key(&(member, shard, view)) {
            let moment = self.tick();
            self.heard.insert((member, shard, view), moment);
        }
    }

    /// Notes a replica's incarnation.
    pub fn note_incarnation(&mut self, member: Member, shard: ShardId) {
        let Member { node, incarnation } = member;
        let last = self.incarnations.get(&(node, shard)).and_then(|all| all.last());
        if last.is_none_or(|(_, last)| *last != incarnation) {
            let moment = self.tick();
            self.incarnations.entry((node, shard)).or_default().push((moment, incarnation));
        }
    }

    /// The last seen incarnation of a replica at `moment`.
    #[must_use]
    pub fn incarnation_at(&self, node: NodeId, shard: ShardId, moment: Moment) -> Option<Incarnation> {
        let all = self.incarnations.get(&(node, shard))?;
        all.iter().rev().find(|(seen, _)| *seen <= moment).map(|(_, incarnation)| *incarnation)
    }

    /// Notes a loss of more memory than the log can bear.
    pub fn lose_too_much(&mut self) {
        (self.lost_too_much, self.lost_at) = (true, self.now);
        self.lost_in = self.views.keys().next_back().copied().unwrap_or(ViewNumber::NONE);
    }

    /// Notes that a replica has everything below `upto` as final.
    pub fn note_known(&mut self, node: NodeId, shard: ShardId, upto: Position) {
        let known = self.known.entry((node, shard)).or_default();
        if known.last().is_none_or(|(_, last)| *last != upto) {
            known.push((self.now, upto));
        }
    }

    /// The latest bound of [`History::note_known`] for a replica before `time`.
    #[must_use]
    pub fn known_at(&self, node: NodeId, shard: ShardId, time: Time) -> Position {
        let known = self.known.get(&(node, shard)).map_or(&[][..], Vec::as_slice);
        let index = known.partition_point(|(since, _)| *since < time);
        index.checked_sub(1).map_or(Position::ZERO, |index| known[index].1)
    }

    /// Notes a session's end. Of several reported numbers the least counts.
    pub fn end_session(&mut self, session: SessionId, end: u64) {
        let moment = self.tick();
        let (known, told) = self.ended.entry(session).or_insert((end, moment));
        (*known, *told) = (end.min(*known), moment);
    }

    /// Notes that all positions below `stable` are final.
    pub fn note_stable(&mut self, stable: Position) {
        if stable > self.stable.last().map_or(Position::ZERO, |(_, known)| *known) {
            let moment = self.tick();
            self.stable.push((moment, stable));
        }
    }

    /// Notes that the shard's positions below `written` are final.
    pub fn note_written(&mut self, shard: ShardId, written: Position) {
        let moment = self.tick();
        let known = self.written.entry(shard).or_default();
        if written > known.last().map_or(Position::ZERO, |(_, known)| *known) {
            known.push((moment, written));
        }
    }

    /// Bound of a shard's final positions at `moment`.
    #[must_use]
    pub fn written_at(&self, shard: ShardId, moment: Moment) -> Position {
        let known = self.written.get(&shard).map_or(&[][..], Vec::as_slice);
        let index = known.partition_point(|(at, _)| *at <= moment);
        index.checked_sub(1).map_or(Position::ZERO, |index| known[index].1)
    }

    /// Position of each append that was read or is in the final log.
    #[must_use]
    pub fn positions(&self) -> BTreeMap<usize, Position> {
        self.places().into_iter().map(|(append, (position, _))| (append, position)).collect()
    }

    /// Positions with the moment of their first sighting. For a record that an accepted loss let
    /// into the log again, the first position counts.
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
