//! The operator of a log: looks how far it is, asks what is lost when it says that it lost
//! something, and accepts that; by the machines that programs use.

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

/// How often the operator looks.
pub const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// How long a node with a controller may take to answer what is lost.
const TIMEOUT: Duration = Duration::from_secs(4);
/// The machine that asks about losses, the one that looks where a time begins, and the one that
/// waits for a shard. Those that ask how far the log is have numbers from the last one on: an
/// answer that comes late is for none that asks then.
const RECOVERY: u64 = 0;
const SEARCH: u64 = 1;
const AWAITING: u64 = 2;
const FIRST_POLL: u64 = 3;
/// The first machine that asks nodes what they know. Each is another, for the same reason.
const FIRST_INVENTORY: u64 = 1 << 32;

/// Positions of a shard that nobody holds: from the first one to the one after the last.
pub type Gap = (ShardId, Position, Position);

/// The losses that an operator accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// When.
    pub at: Moment,
    /// Positions below it are kept, apart from `gaps`.
    pub certain: Position,
    /// Positions of a shard that nobody is known to hold.
    pub gaps: Vec<Gap>,
    /// When it was known that the log goes on.
    pub done: Option<Moment>,
}

/// Something that the operator was told.
#[derive(Clone, Debug)]
pub enum Told {
    /// How far the log is.
    Status {
        /// The status.
        status: Status,
        /// How many sequencing replicas there are.
        sequencers: usize,
        /// The stable bound that the primary of each shard knew when that was told, if it is the
        /// one that was there when the operator asked, in the same process: a bound is written
        /// behind, and one that restarted may know a lower one.
        stable: Vec<(ShardId, Position)>,
        /// The shards whose primary's process did not run from when the operator asked to when that
        /// was told.
        absent: Vec<ShardId>,
    },
    /// Losses, or that the log goes on.
    Recovered(Recovered),
    /// A position at which a time begins.
    Sought(Sought),
    /// That a shard takes records, in this view.
    Takes(ShardId, ViewNumber),
    /// The account that nodes gave.
    Known {
        /// The entries of the log.
        entries: Vec<LogEntry>,
        /// The version of its entry that the node which was asked first knew then, if its process
        /// ran from then on.
        least: Option<u64>,
        /// The version that the register had when the operator was told, if its node was there.
        most: Option<u64>,
    },
}

/// The outcome of one of the operator's machines.
#[derive(Debug)]
pub enum Outcome {
    /// The log is so far.
    Status(Asked, Status),
    /// The answer about losses, and whether it was asked for when nothing went wrong any more.
    Recovered(Recovered, bool),
    /// A time begins at this position.
    Sought(Sought),
    /// A shard takes records, in this view.
    Takes(ShardId, ViewNumber),
    /// Nodes know that of the cluster.
    Known(FirstAsked, Known),
}

/// The node that is asked first what it knows: the version of the log's entry that it knew then,
/// and what tells its process from a later one.
#[derive(Clone, Copy, Debug)]
pub struct FirstAsked {
    /// The version, if it knew one.
    pub version: Option<u64>,
    /// How often its process was started and ended.
    pub incarnation: u64,
}

/// The replicas that are asked how far they are.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The view that names them.
    pub view: View,
    /// The primaries that were there when they were asked, each with how often its node was started
    /// and ended: an incarnation outlives a restart.
    pub there: BTreeMap<ShardId, (Incarnation, u64)>,
    /// The primaries whose process did not run then, with what tells that from a later time at
    /// which it does not run.
    pub absent: BTreeMap<ShardId, u64>,
}

/// The operator's knowledge, and what is asked at present.
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
    /// When the operator looks the next time.
    pub look_at: Time,
    /// The records that would be lost, as far as the operator was told when nothing went wrong any
    /// more.
    pub told: Option<(Position, Vec<Gap>)>,
    /// Whether the log goes on without that.
    pub goes_on: bool,
    /// Whether the operator was told, when nothing went wrong any more, that nothing is lost.
    pub found_all: bool,
}

/// Messages to nodes, each with the number of the machine that sends it.
pub type Sends = Vec<(u64, NodeId, Endpoint, Message)>;

impl Operator {
    /// Whether an answer to the question what is lost is awaited.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// Whether the answers of replicas are awaited.
    #[must_use]
    pub fn is_polling(&self) -> bool {
        self.status.is_some()
    }

    /// Accepts to lose what the operator was told. Returns that.
    pub fn accept(&mut self, history: &mut History) -> Option<(Position, Vec<Gap>)> {
        let (certain, gaps) = self.told.clone()?;
        let at = history.tick();
        history.accepted = Some(Acceptance { at, certain, gaps, done: None });
        self.told.clone()
    }

    /// Asks what is lost, or accepts it, once that was told. `is_calm` says that nothing goes wrong
    /// any more.
    pub fn recover(&mut self, now: Time, entry: &LogEntry, is_calm: bool, options: Options) {
        self.request += 1;
        let recovery = Recovery::new(now, entry, (self.request, self.told.is_some()), TIMEOUT, options);
        self.recovery = Some((recovery, is_calm));
    }

    /// Asks replicas how far they are.
    pub fn poll(&mut self, now: Time, asked: Asked) {
        self.polls += 1;
        self.status = Some((Poll::new(now, Status::questions(&asked.view, 1)), asked));
    }

    /// Asks nodes what they know, unless that is asked already.
    pub fn ask_nodes(&mut self, now: Time, first: NodeId, asked: FirstAsked, options: Options) {
        if self.inventory.is_none() {
            self.inventories += 1;
            self.inventory = Some((Inventory::new(now, first, options), asked));
        }
    }

    /// Takes an answer about losses. It is believed if it was asked for when nothing went wrong any
    /// more.
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

    /// Looks where what was appended at a time begins, unless that is done already: at `wall_ms` by
    /// a clock that is right, which is `right_ms` after the world began.
    pub fn seek(&mut self, now: Time, control: NodeId, entry: &LogEntry, (wall_ms, right_ms): (u64, u64)) {
        let log = (entry.id, entry.name.clone());
        self.search.get_or_insert_with(|| (TimeSearch::new(now, control, log, wall_ms), right_ms));
    }

    /// Waits once until a shard of the log takes records.
    pub fn wait_for(&mut self, now: Time, control: NodeId, name: &str, shard: ShardId) {
        if !std::mem::replace(&mut self.has_awaited, true) {
            self.awaiting =
                Some((Awaiting::new(now, control, name.to_owned(), Awaited::Takes(shard)), shard));
        }
    }

    /// Does what is due, and looks again soon.
    pub fn wake(&mut self, now: Time, options: Options, sends: &mut Sends) -> Vec<Outcome> {
        self.look_at = now + LOOKS_EVERY;
        let mut outcomes = vec![];
        let inventory = FIRST_INVENTORY + self.inventories;
        for machine in [RECOVERY, SEARCH, AWAITING, FIRST_POLL + self.polls, inventory] {
            outcomes.extend(self.step(machine, now, Input::Wake, options, sends));
        }
        outcomes
    }

    /// When the first of the machines wants to be woken.
    fn deadline(&self) -> Option<Time> {
        let recovery = self.recovery.as_ref().and_then(|(recovery, _)| recovery.deadline());
        let status = self.status.as_ref().and_then(|(poll, _)| poll.deadline());
        let search = self.search.as_ref().and_then(|(search, _)| search.deadline());
        let awaiting = self.awaiting.as_ref().and_then(|(awaiting, _)| awaiting.deadline());
        let inventory = self.inventory.as_ref().and_then(|(inventory, _)| inventory.deadline());
        [recovery, status, search, awaiting, inventory].into_iter().flatten().min()
    }

    /// Steps one of the machines, if it is there, and looks again when the first of them wants to
    /// be woken.
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
            // The answer to a question that is over.
            machine if machine != FIRST_POLL + self.polls => None,
            _ => {
                let (answers, asked) = drive(&mut self.status, turn, sends)?;
                let status = Status::told_by(&answers, &asked.view, options);
                Some(Outcome::Status(asked, status))
            }
        }
    }
}

/// Steps a machine, if it runs, and sends what it says. One that has its outcome runs no more: that
/// is returned, with what the operator noted beside it.
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

/// Takes the messages that are to be sent, and returns the outcome if there is one.
fn take<R>(machine: u64, effects: Vec<Effect<Message, R>>, sends: &mut Sends) -> Option<R> {
    let mut outcome = None;
    for effect in effects {
        match effect {
            Effect::Send { to: Address::Node(node, endpoint), message } => {
                sends.push((machine, node, endpoint, message));
            }
            Effect::Reply { reply, .. } => outcome = Some(reply),
            // An operator has no disk.
            _ => {}
        }
    }
    outcome
}

/// The certain bound, and the gaps below it, in what an operator is told.
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
