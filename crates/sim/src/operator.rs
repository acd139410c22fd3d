//! A log's operator: polls the status, asks which records are lost and accepts losses, with the
//! machines that programs use.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use seriatim_model::{
    Address, Effect, Endpoint, Incarnation, Input, Machine, NodeId, Position, ShardId, Time, View, ViewNumber,
};
use seriatim_protocol::control::survey::TimeSearch;
use seriatim_protocol::control::{
    Awaited, Awaiting, Inventory, Known, LogEntry, Poll, Recovered, Recovery, Status,
};
use seriatim_protocol::{Message, Options};

use crate::history::{History, Moment, Sought};

/// Pause between two wakeups of the operator.
pub const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// Time for a controller to report losses.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Machine numbers. Each poll has a new one, from `FIRST_POLL` on, so that a late answer does not
/// reach a later poll.
const RECOVERY: u64 = 0;
const SEARCH: u64 = 1;
const AWAITING: u64 = 2;
const FIRST_POLL: u64 = 3;
/// First machine number of inventories (questions to nodes). Each has a new one, for the same
/// reason.
const FIRST_INVENTORY: u64 = 1 << 32;

/// Positions `from..end` of a shard that no replica holds.
pub type Gap = (ShardId, Position, Position);

/// A loss that an operator accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// When the operator accepted it.
    pub at: Moment,
    /// Positions below it are kept, except `gaps`.
    pub certain: Position,
    /// Positions that no replica of the shard holds.
    pub gaps: Vec<Gap>,
    /// When the operator learned of the log's continuation.
    pub done: Option<Moment>,
}

/// An answer to the operator.
#[derive(Clone, Debug)]
pub enum Told {
    /// Status of the log.
    Status {
        /// The status.
        status: Status,
        /// Number of sequencing replicas.
        sequencers: usize,
        /// Stable bounds of the primaries at the answer, if their process ran since the question: a
        /// restarted one may know a lower bound.
        stable: Vec<(ShardId, Position)>,
        /// Shards whose primary was down between question and answer.
        absent: Vec<ShardId>,
    },
    /// Report of losses, or that the log continues.
    Recovered(Recovered),
    /// The position found for a time.
    Sought(Sought),
    /// A shard takes records, in this view.
    Takes(ShardId, ViewNumber),
    /// The nodes' knowledge.
    Known {
        /// Their entries of the log.
        entries: Vec<LogEntry>,
        /// Entry version of the first asked node at the question, if its process still ran at the
        /// answer.
        least: Option<u64>,
        /// The register's entry version at the answer, if known.
        most: Option<u64>,
    },
}

/// Outcome of one of the operator's machines.
#[derive(Debug)]
pub enum Outcome {
    /// Status of the log.
    Status(Asked, Status),
    /// Answer about losses, and whether it was asked in calm (after all faults).
    Recovered(Recovered, bool),
    /// The position found for a time.
    Sought(Sought),
    /// A shard takes records, in this view.
    Takes(ShardId, ViewNumber),
    /// The nodes' knowledge.
    Known(FirstAsked, Known),
}

/// The first asked node, at the question.
#[derive(Clone, Copy, Debug)]
pub struct FirstAsked {
    /// Entry version that it knew.
    pub version: Option<u64>,
    /// Number of starts and ends of its process.
    pub incarnation: u64,
}

/// Replicas asked for their status.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The view that names them.
    pub view: View,
    /// Running primaries, with their node's number of starts and ends: an incarnation outlives a
    /// restart.
    pub there: BTreeMap<ShardId, (Incarnation, u64)>,
    /// Primaries that were down, with that number.
    pub absent: BTreeMap<ShardId, u64>,
}

/// The operator's knowledge and open questions.
#[derive(Debug, Default)]
pub struct Operator {
    request: u64,
    recovery: Option<(Recovery, bool)>,
    status: Option<(Poll, Asked)>,
    search: Option<(TimeSearch, u64)>,
    awaiting: Option<(Awaiting, ShardId)>,
    has_awaited: bool,
    polls: u64,
    inventory: Option<(Inventory, FirstAsked)>,
    inventories: u64,
    /// Time of the operator's next wakeup.
    pub look_at: Time,
    /// The loss reported in calm: certain bound and gaps.
    pub told: Option<(Position, Vec<Gap>)>,
    /// Whether the log continues after the accepted loss.
    pub goes_on: bool,
    /// Whether no loss was reported in calm.
    pub found_all: bool,
}

/// Messages to nodes, with the number of the sending machine.
pub type Sends = Vec<(u64, NodeId, Endpoint, Message)>;

impl Operator {
    /// Whether a question about losses is open.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// Whether a status poll is open.
    #[must_use]
    pub fn is_polling(&self) -> bool {
        self.status.is_some()
    }

    /// Accepts the reported loss and returns it.
    pub fn accept(&mut self, history: &mut History) -> Option<(Position, Vec<Gap>)> {
        let (certain, gaps) = self.told.clone()?;
        let at = history.tick();
        history.accepted = Some(Acceptance { at, certain, gaps, done: None });
        self.told.clone()
    }

    /// Asks for losses, or accepts the reported one.
    pub fn recover(&mut self, now: Time, entry: &LogEntry, is_calm: bool, options: Options) {
        self.request += 1;
        let recovery = Recovery::new(now, entry, (self.request, self.told.is_some()), TIMEOUT, options);
        self.recovery = Some((recovery, is_calm));
    }

    /// Asks replicas for their status.
    pub fn poll(&mut self, now: Time, asked: Asked) {
        self.polls += 1;
        self.status = Some((Poll::new(now, Status::questions(&asked.view, 1)), asked));
    }

    /// Asks nodes for their knowledge, unless already asked.
    pub fn ask_nodes(&mut self, now: Time, first: NodeId, asked: FirstAsked, options: Options) {
        if self.inventory.is_none() {
            self.inventories += 1;
            self.inventory = Some((Inventory::new(now, first, options), asked));
        }
    }

    /// Takes an answer about losses. It counts only if the question was asked in calm.
    pub fn hears(&mut self, told: Recovered, is_calm: bool, history: &mut History) -> Told {
        let moment = history.tick();
        self.found_all |= told.done && !told.lost && is_calm;
        if let Some(accepted) = history.accepted.as_mut().filter(|_| told.done) {
            accepted.done = Some(moment);
            self.goes_on = true;
        } else if told.lost && is_calm && history.accepted.is_none() {
            self.told = bounds_in(&told.text);
            if self.told.is_none() {
                history.problems.push(format!("the operator was told no certain bound: {}", told.text));
            }
        }
        Told::Recovered(told)
    }

    /// Searches the position for a time, unless a search runs: `wall_ms` by a correct clock,
    /// `right_ms` since the start.
    pub fn seek(&mut self, now: Time, control: NodeId, entry: &LogEntry, (wall_ms, right_ms): (u64, u64)) {
        let log = (entry.id, entry.name.clone());
        self.search.get_or_insert_with(|| (TimeSearch::new(now, control, log, wall_ms), right_ms));
    }

    /// Waits, only once, until a shard takes records.
    pub fn wait_for(&mut self, now: Time, control: NodeId, name: &str, shard: ShardId) {
        if !std::mem::replace(&mut self.has_awaited, true) {
            self.awaiting =
                Some((Awaiting::new(now, control, name.to_owned(), Awaited::Takes(shard)), shard));
        }
    }

    /// Wakes all machines.
    pub fn wake(&mut self, now: Time, options: Options, sends: &mut Sends) -> Vec<Outcome> {
        self.look_at = now + LOOKS_EVERY;
        let mut outcomes = vec![];
        let inventory = FIRST_INVENTORY + self.inventories;
        for machine in [RECOVERY, SEARCH, AWAITING, FIRST_POLL + self.polls, inventory] {
            outcomes.extend(self.step(machine, now, Input::Wake, options, sends));
        }
        outcomes
    }

    fn deadline(&self) -> Option<Time> {
        let recovery = self.recovery.as_ref().and_then(|(recovery, _)| recovery.deadline());
        let status = self.status.as_ref().and_then(|(poll, _)| poll.deadline());
        let search = self.search.as_ref().and_then(|(search, _)| search.deadline());
        let awaiting = self.awaiting.as_ref().and_then(|(awaiting, _)| awaiting.deadline());
        let inventory = self.inventory.as_ref().and_then(|(inventory, _)| inventory.deadline());
        [recovery, status, search, awaiting, inventory].into_iter().flatten().min()
    }

    /// Steps a machine and schedules the next look.
    pub fn step(
        &mut self,
        machine: u64,
        now: Time,
        input: Input<Message, Infallible>,
        options: Options,
        sends: &mut Sends,
    ) -> Option<Outcome> {
        let outcome = self.step_one(machine, now, input, options, sends);
        let due = self.deadline().map_or(self.look_at, |at| at.max(now + Duration::from_nanos(1)));
        self.look_at = self.look_at.min(due);
        outcome
    }

    fn step_one(
        &mut self,
        machine: u64,
        now: Time,
        input: Input<Message, Infallible>,
        options: Options,
        sends: &mut Sends,
    ) -> Option<Outcome> {
        let turn = (machine, now, input);
        match machine {
            RECOVERY => {
                let (told, is_calm) = drive(&mut self.recovery, turn, sends)?;
                told.map(|told| Outcome::Recovered(told, is_calm))
            }
            SEARCH => {
                let (answer, right_ms) = drive(&mut self.search, turn, sends)?;
                answer.map(|answer| Outcome::Sought(Sought { right_ms, answer }))
            }
            AWAITING => {
                let (found, shard) = drive(&mut self.awaiting, turn, sends)?;
                found.ok().map(|entry| Outcome::Takes(shard, entry.view_number()))
            }
            machine if machine == FIRST_INVENTORY + self.inventories => {
                let (known, asked) = drive(&mut self.inventory, turn, sends)?;
                known.map(|known| Outcome::Known(asked, known))
            }
            // An answer to an earlier poll.
            machine if machine != FIRST_POLL + self.polls => None,
            _ => {
                let (answers, asked) = drive(&mut self.status, turn, sends)?;
                let status = Status::told_by(&answers, &asked.view, options);
                Some(Outcome::Status(asked, status))
            }
        }
    }
}

/// Steps a machine. When it has an outcome, removes it and returns the outcome with the operator's
/// note.
fn drive<M, Note>(
    running: &mut Option<(M, Note)>,
    (machine, now, input): (u64, Time, Input<Message, Infallible>),
    sends: &mut Sends,
) -> Option<(M::Reply, Note)>
where
    M: Machine<Message = Message, Request = Infallible>,
{
    let (stepped, _) = running.as_mut()?;
    let mut effects = vec![];
    stepped.step(now, input, &mut effects);
    let outcome = take(machine, effects, sends)?;
    running.take().map(|(_, note)| (outcome, note))
}

fn take<R>(machine: u64, effects: Vec<Effect<Message, R>>, sends: &mut Sends) -> Option<R> {
    let mut outcome = None;
    for effect in effects {
        match effect {
            Effect::Send { to: Address::Node(node, endpoint), message } => {
                sends.push((machine, node, endpoint, message));
            }
            Effect::Reply { reply, .. } => outcome = Some(reply),
            _ => {}
        }
    }
    outcome
}

/// Parses the certain bound and the gaps from a report.
fn bounds_in(text: &str) -> Option<(Position, Vec<Gap>)> {
    let mut words = text.split_whitespace().map(|word| word.trim_end_matches([',', ';']));
    let mut numbers = |after: &str| -> Option<u64> {
        words.by_ref().find(|word| *word == after)?;
        words.next()?.parse().ok()
    };
    let certain = match text.starts_with("all positions are certain") {
        true => Position::MAX,
        false => Position(numbers("below")?),
    };
    let mut gaps = vec![];
    while let Some(shard) = numbers("shard") {
        let (from, end) = (numbers("from")?, numbers("to")?);
        gaps.push((ShardId(u32::try_from(shard).ok()?), Position(from), Position(end)));
    }
    Some((certain, gaps))
}
