//! The machine: its inputs, its effects, and the main stream.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use seriatim_model::storage::Stored;
use seriatim_model::{Position, Time};
use seriatim_protocol::Mutation;

use super::commands::Command;
use super::limits::PlayerLimits;
use super::mapping::{Mapping, Rules};
use super::message::{ApplyError, AttachError, Batch, Message};
use super::queue::Item;
use super::streams::{Owner, Streams};
use super::target::{State, Target, TargetConfig, Term, Why};

/// Most names of unknown targets that a player counts.
const UNKNOWN_NAMES: usize = 64;

/// A subscription of the player. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamNumber(pub u64);

/// A target, by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetIndex(pub usize);

/// An event for the player.
#[derive(Clone, Debug)]
pub enum Input {
    /// A stream delivered a record.
    Fetched {
        /// The stream.
        stream: StreamNumber,
        /// The record.
        record: Stored,
    },
    /// A stream reached its end.
    Ended {
        /// The stream.
        stream: StreamNumber,
    },
    /// A stream failed. The player opens another one.
    Failed {
        /// The stream.
        stream: StreamNumber,
        /// What failed.
        reason: String,
    },
    /// The next records of a stream are trimmed.
    Trimmed {
        /// The stream.
        stream: StreamNumber,
        /// The first remaining position.
        first: Position,
    },
    /// Records of a stream are lost, and an operator accepted the loss.
    Lost {
        /// The stream.
        stream: StreamNumber,
        /// The first lost position.
        from: Position,
        /// The position after the last.
        end: Position,
    },
    /// Answer to [`Effect::Attach`].
    Attached {
        /// The target.
        target: TargetIndex,
        /// The session.
        term: Term,
        /// The target's bound, or why it has no session.
        outcome: Result<Position, AttachError>,
    },
    /// Answer to [`Effect::Send`]: everything below `upto` is applied.
    Applied {
        /// The target.
        target: TargetIndex,
        /// The session.
        term: Term,
        /// The end of a batch.
        upto: Position,
    },
    /// Answer to [`Effect::Send`]: the target did not apply a batch, and the session is over.
    NotApplied {
        /// The target.
        target: TargetIndex,
        /// The session.
        term: Term,
        /// The cause.
        error: ApplyError,
    },
    /// The session of [`Effect::Detach`] has ended: no call of it is running.
    Detached {
        /// The target.
        target: TargetIndex,
        /// The session.
        term: Term,
    },
    /// Answer to [`Effect::AskTail`].
    Tail(Position),
    /// Answer to [`Effect::DeadLetter`]: the message is in the dead-letter log.
    DeadLettered {
        /// The target.
        target: TargetIndex,
        /// The message's position.
        position: Position,
    },
    /// A command of an operator.
    Commanded {
        /// Number of the command, for [`Effect::Done`].
        number: u64,
        /// The target. None: the player, for [`Command::Skip`] of an unreadable entry.
        target: Option<TargetIndex>,
        /// The command.
        command: Command,
        /// Whether an earlier run of the player received the command and did not complete it.
        again: bool,
    },
    /// The deadline passed.
    Wake,
}

/// What the player demands.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Subscribes to the log.
    Open {
        /// The new stream.
        stream: StreamNumber,
        /// The first position.
        from: Position,
        /// The end. None: never ends.
        end: Option<Position>,
    },
    /// Adds room for records of a stream. Records follow while both are positive, so only the last
    /// record may exceed the bytes.
    Pull {
        /// The stream.
        stream: StreamNumber,
        /// Additional records.
        records: u64,
        /// Additional bytes.
        bytes: u64,
    },
    /// Ends a stream.
    Close {
        /// The stream.
        stream: StreamNumber,
    },
    /// Starts a session with a target.
    Attach {
        /// The target.
        target: TargetIndex,
        /// The session.
        term: Term,
        /// A bound that replaces the one of another log.
        adopts: Option<Position>,
    },
    /// Sends a batch to a target.
    Send {
        /// The target.
        target: TargetIndex,
        /// The session.
        term: Term,
        /// The batch.
        batch: Arc<Batch>,
    },
    /// Ends a session. The answer is [`Input::Detached`].
    Detach {
        /// The target.
        target: TargetIndex,
        /// The session.
        term: Term,
    },
    /// Asks for the log's tail.
    AskTail,
    /// Appends a message to the dead-letter log, until that succeeds.
    DeadLetter {
        /// The target that rejected it.
        target: TargetIndex,
        /// The message.
        message: Message,
        /// The target's reason.
        reason: String,
    },
    /// The outcome of a command.
    Done {
        /// The command's number.
        number: u64,
        /// The reason if it was refused.
        outcome: Result<(), String>,
    },
    /// News for the operator.
    Note(Note),
    /// The player ends: no effect follows.
    Stop(Stop),
}

/// News for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A target attached.
    Attached {
        /// The target.
        target: TargetIndex,
        /// Its bound.
        bound: Position,
    },
    /// A target's bound is lower than the one it acknowledged: it was restored from an older state.
    Restored {
        /// The target.
        target: TargetIndex,
        /// The acknowledged bound.
        from: Position,
        /// Its bound.
        to: Position,
    },
    /// A target's session failed.
    Down {
        /// The target.
        target: TargetIndex,
        /// What failed.
        reason: String,
    },
    /// A target waits for an operator.
    Stopped {
        /// The target.
        target: TargetIndex,
        /// The reason.
        why: Why,
    },
    /// A target starts to receive what it missed.
    Recovers {
        /// The target.
        target: TargetIndex,
        /// The first position.
        from: Position,
        /// The end.
        to: Position,
    },
    /// A target receives the main stream.
    CaughtUp {
        /// The target.
        target: TargetIndex,
    },
    /// A new target begins above positions that can no longer be read.
    BeginsAbove {
        /// The target.
        target: TargetIndex,
        /// The first position that the target may receive.
        first: Position,
        /// Why earlier positions cannot be read.
        reason: String,
    },
    /// An entry names a target that the player does not have.
    Unknown {
        /// The name.
        name: String,
        /// The first such entry.
        position: Position,
    },
    /// A stream failed, and the player opens another one.
    StreamFailed {
        /// What failed.
        reason: String,
    },
}

/// Why the player ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Another player with a higher epoch has attached to a target.
    Fenced {
        /// That epoch.
        epoch: u64,
    },
    /// The player cannot read an entry that may belong to a target.
    Unreadable {
        /// The entry.
        position: Position,
        /// What is wrong with it.
        reason: String,
    },
    /// All targets have reached the end of the requested range.
    Finished,
    /// The targets that are not stopped have reached the end of the requested range.
    FinishedWithout {
        /// The stopped targets.
        stopped: Vec<TargetIndex>,
    },
}

/// Settings of a player.
#[derive(Clone, Debug)]
pub struct PlayerConfig {
    /// The targets, with their rules. At least one.
    pub targets: Vec<(TargetConfig, Rules)>,
    /// The log's tail at the start.
    pub tail: Position,
    /// Where the player ends. None: never.
    pub until: Option<Position>,
    /// Unreadable entries that an operator declared to belong to no target.
    pub skipped: BTreeSet<Position>,
    /// Its limits.
    pub limits: PlayerLimits,
    /// A deliberate defect; `None` outside the simulator.
    pub mutation: Option<Mutation>,
}

/// The player's machine. It decides; the runner subscribes, calls the targets and keeps the time.
#[derive(Clone, Debug)]
pub struct Player {
    pub(super) config: PlayerConfig,
    pub(super) mapping: Mapping,
    pub(super) targets: Vec<Target>,
    /// Memory of all targets, in bytes.
    pub(super) memory: usize,
    /// The highest known tail.
    pub(super) tail: Position,
    /// End of the main stream so far (`current_index` + 1 in the paper). None: it is not open yet.
    pub(super) dispatched: Option<Position>,
    pub(super) streams: Streams,
    /// Orders the recoveries that wait for a stream.
    pub(super) turns: u64,
    pub(super) started_at: Time,
    pub(super) wake_at: Option<Time>,
    /// Time of the next search for quiet targets.
    pub(super) scan_at: Option<Time>,
    /// The main stream's end at the last search.
    pub(super) scanned: Position,
    /// Names of unknown targets, with the number of their messages and the first position.
    pub(super) unknown: BTreeMap<String, (u64, Position)>,
    pub(super) is_over: bool,
}

pub(super) type Out = Vec<Effect>;

impl Player {
    /// A player that starts now: it attaches to its targets at the first [`Input::Wake`].
    #[must_use]
    pub fn new(now: Time, config: PlayerConfig) -> Self {
        assert!(!config.targets.is_empty(), "a player has targets");
        let rules = config.targets.iter().map(|(target, rules)| (target.id.clone(), rules.clone())).collect();
        let mapping = Mapping::new(rules, config.mutation == Some(Mutation::RuleOfToday));
        let mutation = config.mutation;
        let target =
            |(target, rules): &(TargetConfig, Rules)| Target::new(target.clone(), rules[0].0, now, mutation);
        Self {
            mapping,
            targets: config.targets.iter().map(target).collect(),
            memory: 0,
            tail: config.tail,
            dispatched: None,
            streams: Streams::default(),
            turns: 0,
            started_at: now,
            wake_at: Some(now),
            scan_at: None,
            scanned: Position::ZERO,
            unknown: BTreeMap::new(),
            is_over: false,
            config,
        }
    }

    /// Handles an input and appends the effects. `now` never decreases.
    pub fn step(&mut self, now: Time, input: Input, out: &mut Out) {
        if self.is_over {
            return;
        }
        match input {
            Input::Fetched { stream, record } => self.fetched(now, stream, &record, out),
            Input::Ended { stream } => self.ended(now, stream, out),
            Input::Failed { stream, reason } => self.failed(now, stream, reason, out),
            Input::Trimmed { stream, first } => {
                let Some(from) = self.streams.next(stream) else { return };
                let reason = format!("the log is trimmed to position {first}");
                self.gap(now, stream, (from, first), &reason, out);
            }
            Input::Lost { stream, from, end } => {
                let reason = format!("the records from position {from} to {end} are lost");
                self.gap(now, stream, (from, end), &reason, out);
            }
            Input::Attached { target, term, outcome } => {
                self.attach_answered(now, target.0, term, outcome, out)
            }
            Input::Applied { target, term, upto } => self.applied(now, target.0, term, upto, out),
            Input::NotApplied { target, term, error } => self.not_applied(now, target.0, term, error, out),
            Input::Detached { target, term } => self.detached(target.0, term, out),
            Input::Tail(tail) => self.tail_answered(now, tail, out),
            Input::DeadLettered { target, position } => self.dead_lettered(now, target.0, position, out),
            Input::Commanded { number, target, command, again } => match target {
                Some(target) => self.commanded(now, target.0, number, command, again, out),
                None => self.commanded_to_all(number, &command, out),
            },
            Input::Wake => self.wake(now, out),
        }
        self.finish(out);
    }

    /// Latest time at which the player needs an [`Input::Wake`]. None: it needs none.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.is_over { None } else { self.wake_at }
    }

    pub(super) fn schedule(&mut self, at: Time) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    pub(super) fn mutates(&self, mutation: Mutation) -> bool {
        self.config.mutation == Some(mutation)
    }

    pub(super) fn stop(&mut self, why: Stop, out: &mut Out) {
        self.is_over = true;
        out.push(Effect::Stop(why));
    }

    /// Changes a target, and accounts for its memory.
    pub(super) fn edit<R>(&mut self, index: usize, change: impl FnOnce(&mut Target) -> R) -> R {
        let target = &mut self.targets[index];
        let before = target.memory();
        let result = change(target);
        self.memory = self.memory + target.memory() - before;
        result
    }

    fn fetched(&mut self, now: Time, stream: StreamNumber, record: &Stored, out: &mut Out) {
        let Some(owner) = self.streams.fetched(stream, record) else { return };
        match owner {
            Owner::Main => self.dispatch(now, stream, record, out),
            Owner::Recovery(index) => self.recovered(now, stream, index, record, out),
        }
    }

    /// Gives an entry of the main stream to its targets (algorithm 3 of the paper).
    fn dispatch(&mut self, now: Time, stream: StreamNumber, record: &Stored, out: &mut Out) {
        let Some(mapped) = self.map(record, out) else { return };
        for name in mapped.unknown {
            self.count_unknown(name, record.position, out);
        }
        let mut receivers = BTreeSet::new();
        for (index, parts) in mapped.messages {
            let message = message(record, parts);
            if message.position >= self.targets[index].applied {
                self.queue(index, Item::Message(message), &mut receivers, out);
            }
        }
        self.pass(now, record.position.next(), receivers, out);
        self.streams.refill_main(stream, out);
    }

    /// The entry's messages. None: the player stops, because it cannot read the entry.
    pub(super) fn map(&mut self, record: &Stored, out: &mut Out) -> Option<super::mapping::Mapped> {
        if self.config.skipped.contains(&record.position) {
            return Some(super::mapping::Mapped::default());
        }
        match self.mapping.map(record) {
            Ok(mapped) => Some(mapped),
            Err(unreadable) => {
                let super::mapping::Unreadable { position, reason } = unreadable;
                self.stop(Stop::Unreadable { position, reason }, out);
                None
            }
        }
    }

    fn count_unknown(&mut self, name: String, position: Position, out: &mut Out) {
        if let Some((count, _)) = self.unknown.get_mut(&name) {
            *count += 1;
        } else if self.unknown.len() < UNKNOWN_NAMES {
            self.unknown.insert(name.clone(), (1, position));
            out.push(Effect::Note(Note::Unknown { name, position }));
        }
    }

    /// Moves the end of the main stream over an entry or a gap, which all its receivers have queued
    /// or noted as missed. Until then no target may send or recover: its bound, or the end of its
    /// recovery, could pass over the entry.
    pub(super) fn pass(&mut self, now: Time, upto: Position, receivers: BTreeSet<usize>, out: &mut Out) {
        self.advance_main(upto);
        receivers.into_iter().for_each(|index| self.advance(now, index, out));
        self.open_recoveries(now, out);
        if upto.since(self.scanned) >= self.config.limits.quiet_positions {
            self.scan(now, out);
        } else if self.scan_at.is_none() {
            let at = now + self.config.limits.quiet_for;
            self.scan_at = Some(at);
            self.schedule(at);
        }
    }

    /// Moves the end of the main stream.
    pub(super) fn advance_main(&mut self, upto: Position) {
        let dispatched = self.dispatched.expect("the main stream is open");
        assert!(upto >= dispatched, "the main stream does not go back");
        (self.dispatched, self.tail) = (Some(upto), self.tail.max(upto));
    }

    /// Queues an item of the main stream, or notes that the target misses it. Adds the target and
    /// those whose queues make room to `changed`.
    fn queue(&mut self, index: usize, item: Item, changed: &mut BTreeSet<usize>, out: &mut Out) {
        let is_unbounded = self.mutates(Mutation::QueueUnbounded);
        let has_memory = is_unbounded || self.make_room(index, item.memory(), changed, out);
        changed.insert(index);
        let forgets = self.mutates(Mutation::OverflowForgotten);
        let joins_late = self.mutates(Mutation::JoinTooLate);
        let limits = self.config.limits;
        self.edit(index, |target| {
            let fits = is_unbounded || has_memory && target.normal.has_room(item.memory(), &limits);
            match &mut target.state {
                State::Normal if fits => target.push_normal(item),
                State::Normal => target.state = State::Full { missed: item.position() },
                State::Recovering(recovery) if recovery.missed.is_none() || joins_late => {
                    if fits {
                        target.push_normal(item);
                    } else {
                        recovery.missed = (!forgets).then_some(recovery.goal);
                        target.normal.clear();
                    }
                }
                _ => {}
            }
        });
    }

    /// Frees memory for an item of a target from the fullest queues. Returns whether it fits. Adds
    /// the targets of these queues to `changed`.
    pub(super) fn make_room(
        &mut self,
        index: usize,
        bytes: usize,
        changed: &mut BTreeSet<usize>,
        out: &mut Out,
    ) -> bool {
        while self.memory + bytes > self.config.limits.memory {
            let sizes = self.targets.iter().map(Target::queued_bytes).enumerate();
            let (fullest, size) = sizes.max_by_key(|(_, size)| *size).expect("a player has targets");
            if size == 0 {
                // Only batches in flight remain. One item of each target is within the bound.
                return self.targets[index].queued() == 0;
            }
            self.evict(fullest, out);
            changed.insert(fullest);
        }
        true
    }

    /// Drops a part of a target's queues. The target reads it again later.
    fn evict(&mut self, index: usize, out: &mut Out) {
        let closed = self.edit(index, |target| {
            let Target { state, normal, catchup, .. } = target;
            match state {
                State::Normal => {
                    let missed = normal.drop_half().expect("a queue with bytes has items");
                    *state = State::Full { missed };
                    None
                }
                State::Full { missed } => {
                    *missed = normal.drop_half().expect("a queue with bytes has items");
                    None
                }
                State::Recovering(recovery) if !normal.is_empty() => {
                    normal.clear();
                    recovery.missed = Some(recovery.goal);
                    None
                }
                State::Recovering(recovery) => {
                    recovery.next = catchup.drop_half().expect("a queue with bytes has items");
                    Some(())
                }
                other => unreachable!("a target without session has empty queues: {other:?}"),
            }
        });
        if closed.is_some() {
            self.yield_turn(index, out);
        }
    }

    /// Handles positions that a stream cannot read.
    fn gap(
        &mut self,
        now: Time,
        stream: StreamNumber,
        range: (Position, Position),
        reason: &str,
        out: &mut Out,
    ) {
        let (from, end) = range;
        let Some(owner) = self.streams.passed(stream, end) else { return };
        match owner {
            Owner::Main => {
                let end = end.max(self.dispatched.expect("the main stream is open"));
                let mut receivers = BTreeSet::new();
                for index in 0..self.targets.len() {
                    let from = from.max(self.targets[index].applied).max(self.targets[index].first);
                    if from < end {
                        self.queue_gap(index, out);
                        let reason = reason.to_string();
                        self.queue(index, Item::Gap { from, end, reason }, &mut receivers, out);
                    }
                }
                self.pass(now, end, receivers, out);
                self.streams.refill_main(stream, out);
            }
            Owner::Recovery(index) => {
                let jumps = self.mutates(Mutation::GapJumped);
                let reason = reason.to_string();
                self.edit(index, |target| {
                    let State::Recovering(recovery) = &mut target.state else { return };
                    let end = end.min(recovery.goal);
                    let from = from.max(recovery.next);
                    if from < end {
                        recovery.next = end;
                        if jumps {
                            target.catchup.clear();
                        }
                        target.push_catchup(Item::Gap { from, end, reason });
                    }
                });
                self.advance(now, index, out);
                self.refill(now, index, out);
            }
        }
    }

    /// With a deliberate defect, a gap drops the messages queued before it.
    fn queue_gap(&mut self, index: usize, _out: &mut Out) {
        if self.mutates(Mutation::GapJumped) {
            self.edit(index, |target| target.normal.clear());
        }
    }

    /// Ends the player when the requested range is complete.
    fn finish(&mut self, out: &mut Out) {
        let Some(until) = self.config.until.filter(|until| self.dispatched >= Some(*until)) else { return };
        if self.is_over {
            return;
        }
        let stopped = |(index, target): (usize, &Target)| {
            matches!(target.state, State::Stopped(_)).then_some(TargetIndex(index))
        };
        let stopped: Vec<TargetIndex> = self.targets.iter().enumerate().filter_map(stopped).collect();
        let is_done = |target: &Target| {
            matches!(target.state, State::Stopped(_))
                || target.state == State::Normal && target.applied >= until && target.queued() == 0
        };
        if self.targets.iter().all(is_done) {
            match stopped.is_empty() {
                true => self.stop(Stop::Finished, out),
                false => self.stop(Stop::FinishedWithout { stopped }, out),
            }
        }
    }
}

pub(super) fn message(record: &Stored, parts: Vec<bytes::Bytes>) -> Message {
    Message {
        position: record.position,
        appended_ms: record.record.appended_ms(),
        key: record.record.key(),
        parts,
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced { epoch } => write!(f, "a later player with epoch {epoch} is at work"),
            Self::Unreadable { position, reason } => write!(
                f,
                "the entry at position {position} cannot be read: {reason}; upgrade the player, or skip the entry \
                 for all targets"
            ),
            Self::Finished => write!(f, "all targets have reached the tail"),
            Self::FinishedWithout { stopped } => {
                write!(f, "{} targets are stopped, and all others have reached the tail", stopped.len())
            }
        }
    }
}
