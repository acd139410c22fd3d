//! The machine: its inputs, its effects, and the main stream.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use seriatim_model::storage::Stored;
use seriatim_model::{Position, Time};
use seriatim_protocol::Mutation;

use super::commands::{Command, skip_for_all};
use super::limits::PlayerLimits;
use super::mapping::{Mapped, Mapping, Rules, Unknown, Unreadable};
use super::message::{ApplyError, AttachError, Batch, Message};
use super::queue::Item;
use super::streams::{Owner, Streams};
use super::target::{Target, TargetConfig, Term, Why};
use super::targets::{Changed, Targets};

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
    /// A target starts to receive the entries that it missed.
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
        /// The fault of the entry.
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
    pub(super) targets: Targets,
    /// The highest known tail.
    pub(super) tail: Position,
    /// End of the main stream so far (`current_index` + 1 in the paper). None: it is not open yet.
    pub(super) dispatched: Option<Position>,
    pub(super) streams: Streams,
    pub(super) started_at: Time,
    pub(super) wake_at: Option<Time>,
    /// Time of the next search for quiet targets.
    pub(super) scan_at: Option<Time>,
    /// The main stream's end at the last search.
    pub(super) scanned: Position,
    pub(super) unknown: Unknown,
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
            targets: Targets::new(config.targets.iter().map(target).collect(), config.limits, mutation),
            tail: config.tail,
            dispatched: None,
            streams: Streams::default(),
            started_at: now,
            wake_at: Some(now),
            scan_at: None,
            scanned: Position::ZERO,
            unknown: Unknown::default(),
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
                None => {
                    let outcome = skip_for_all(&mut self.config.skipped, &command);
                    out.push(Effect::Done { number, outcome });
                }
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
            if self.unknown.count(&name, record.position) {
                out.push(Effect::Note(Note::Unknown { name, position: record.position }));
            }
        }
        let mut receivers = Changed::default();
        for (index, parts) in mapped.messages {
            let message = message(record, parts);
            if message.position >= self.targets[index].applied {
                self.targets.queue(index, Item::Message(message), &mut receivers);
            }
        }
        self.pass(now, record.position.next(), receivers, out);
        self.streams.refill_main(stream, out);
    }

    /// The entry's messages. None: the player stops, because it cannot read the entry.
    pub(super) fn map(&mut self, record: &Stored, out: &mut Out) -> Option<Mapped> {
        let mapped = self.mapping.unless_skipped(record, &self.config.skipped);
        mapped
            .map_err(|Unreadable { position, reason }| self.stop(Stop::Unreadable { position, reason }, out))
            .ok()
    }

    /// Moves the end of the main stream over an entry or a gap, which all its receivers have queued
    /// or noted as missed. Until then no target may send or recover: its bound, or the end of its
    /// recovery, could pass over the entry.
    pub(super) fn pass(&mut self, now: Time, upto: Position, receivers: Changed, out: &mut Out) {
        self.advance_main(upto);
        receivers.closed.into_iter().for_each(|stream| self.streams.close(stream, out));
        receivers.targets.into_iter().for_each(|index| self.advance(now, index, out));
        self.open_recoveries(now, out);
        if upto.since(self.scanned) >= self.config.limits.quiet_positions {
            self.scan(now, out);
        } else {
            self.scan_soon(now);
        }
    }

    /// Moves the end of the main stream.
    pub(super) fn advance_main(&mut self, upto: Position) {
        let dispatched = self.dispatched.expect("the main stream is open");
        assert!(upto >= dispatched, "the main stream does not go back");
        (self.dispatched, self.tail) = (Some(upto), self.tail.max(upto));
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
                let mut receivers = Changed::default();
                for index in 0..self.targets.len() {
                    let from = from.max(self.targets[index].applied).max(self.targets[index].first);
                    if from < end {
                        let reason = reason.to_string();
                        self.targets.queue(index, Item::Gap { from, end, reason }, &mut receivers);
                    }
                }
                self.pass(now, end, receivers, out);
                self.streams.refill_main(stream, out);
            }
            Owner::Recovery(index) => {
                let jumps = self.mutates(Mutation::GapJumped);
                self.targets.edit(index, |target| target.recover_gap((from, end), reason, jumps));
                self.advance(now, index, out);
                self.refill(now, index, out);
            }
        }
    }

    /// Ends the player when the requested range is complete.
    fn finish(&mut self, out: &mut Out) {
        let Some(until) = self.config.until.filter(|until| self.dispatched >= Some(*until)) else { return };
        if self.is_over {
            return;
        }
        if self.targets.iter().all(|target| target.is_at(until)) {
            let stopped = self.targets.stopped();
            self.stop(
                if stopped.is_empty() { Stop::Finished } else { Stop::FinishedWithout { stopped } },
                out,
            );
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
