//! A player and its targets, checked in every reachable state, over the machine itself.
//!
//! A state has the players' machines, their streams, the targets, and the requests and answers
//! between them. Streams and targets take their turns in any order. A failure breaks a session: its
//! batch is lost, applied without an answer, or applied later. A second player starts at any time,
//! after the death of the first one or beside it.
//!
//! Not modelled: answers that never come, limits of memory, lost and trimmed ranges. Time passes
//! only where a player waits to attach again.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use seriatim_delivery::player::{
    ApplyError, AttachError, Batch, Command, Effect, Input, Map, Mapper, Messages, Player, PlayerConfig,
    PlayerLimits, Rule, Stage, Stop, StreamNumber, TargetConfig, TargetIndex, Term,
};
use seriatim_model::storage::Stored;
use seriatim_model::{Position, Record, RecordId, SessionId, Time};
use seriatim_protocol::Mutation;
use stateright::{Model, Property};

/// Longer than the longest wait for the next attach, and shorter than all other waits.
const SOON: Duration = Duration::from_secs(60);
const NEVER: Duration = Duration::from_secs(100_000);

pub(crate) const IN_ORDER: &str = "each target has exactly its entries below its bound, in order";
pub(crate) const FENCED: &str = "no player changes a target to which a later one has attached";
pub(crate) const COMPLETE: &str = "without more failures each target gets all its entries";

/// The parameters of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Playing {
    /// For each entry the targets that it is for, one bit each.
    pub(crate) entries: &'static [u8],
    pub(crate) targets: usize,
    /// Most broken sessions.
    pub(crate) failures: u8,
    /// Most starts after the first one.
    pub(crate) starts: u8,
    /// The entry that the first target refuses until an operator skips it.
    pub(crate) refused: Option<u64>,
    pub(crate) mutation: Option<Mutation>,
}

#[derive(Debug)]
struct ByBits(&'static [u8]);

impl Mapper for ByBits {
    fn map(&self, stored: &Stored, out: &mut Messages) {
        for target in (0..8).filter(|target| self.0[stored.position.0 as usize] >> target & 1 == 1) {
            out.put(target.to_string(), vec![stored.position.0 as u8]);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Call {
    Attach(Term),
    Apply(Term, Arc<Batched>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Batched {
    after: u64,
    upto: u64,
    positions: Vec<u64>,
}

/// Requests of a player to one target, and answers to it, in order.
#[derive(Clone, Debug, Default)]
struct Channel {
    calls: VecDeque<Call>,
    answers: VecDeque<Input>,
    /// Batches of broken sessions: the target handles them at any time, or never.
    late: Vec<Arc<Batched>>,
}

#[derive(Clone, Debug)]
struct Stream {
    next: u64,
    end: Option<u64>,
    room: u64,
}

#[derive(Clone, Debug)]
struct Run {
    player: Player,
    epoch: u64,
    now: Time,
    streams: BTreeMap<StreamNumber, Stream>,
    channels: Vec<Channel>,
}

#[derive(Clone, Debug, Default)]
struct Target {
    epoch: u64,
    bound: u64,
    effects: Vec<u64>,
}

/// A state of the model.
#[derive(Clone, Debug)]
pub(crate) struct State {
    runs: Vec<Run>,
    targets: Vec<Target>,
    failures: u8,
    starts: u8,
    is_skipped: bool,
    is_unfenced: bool,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        format!("{self:?}").hash(state);
    }
}

/// A step of the model; players by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Reads(usize, StreamNumber),
    Handles(usize, usize),
    /// The target handles a batch of a broken session.
    HandlesLate(usize, usize, usize),
    Answers(usize, usize),
    Wakes(usize),
    Skips(usize),
    /// The latest session breaks.
    Breaks(usize, usize),
    Dies(usize),
    Starts,
}

impl Playing {
    fn start(&self, epoch: u64) -> Run {
        let ids: Vec<String> = (0..self.targets).map(|target| target.to_string()).collect();
        let map = Map::Program(Arc::new(ByBits(self.entries)));
        let rules = vec![(Position::ZERO, Arc::new(Rule { map, targets: ids.clone() }))];
        let target = |id| (TargetConfig { id, unanswered: 1, dead_letters: false }, rules.clone());
        let limits = PlayerLimits {
            queue_messages: 2,
            join: 1,
            recoveries: 2,
            quiet_positions: u64::MAX,
            quiet_for: NEVER,
            apply_within: NEVER,
            start_within: NEVER,
            yield_after: NEVER,
            ..PlayerLimits::default()
        };
        let config = PlayerConfig {
            targets: ids.into_iter().map(target).collect(),
            tail: Position(self.entries.len() as u64),
            until: None,
            skipped: [].into(),
            limits,
            mutation: self.mutation,
        };
        let mut run = Run {
            player: Player::new(Time::ZERO, config),
            epoch,
            now: Time::ZERO,
            streams: BTreeMap::new(),
            channels: vec![Channel::default(); self.targets],
        };
        run.step(Input::Wake);
        run
    }

    fn record(position: u64) -> Stored {
        let id = RecordId { session: SessionId(1), number: position };
        Stored { position: Position(position), id, record: Record::new(&[], 0) }
    }

    fn is_for(&self, target: usize, position: u64) -> bool {
        self.entries[position as usize] >> target & 1 == 1
    }

    fn expected(&self, state: &State, target: usize, below: u64) -> Vec<u64> {
        let is_skipped = |position| target == 0 && state.is_skipped && self.refused == Some(position);
        (0..below).filter(|position| self.is_for(target, *position) && !is_skipped(*position)).collect()
    }

    fn handle(&self, state: &mut State, run: usize, index: usize) {
        let epoch = state.runs[run].epoch;
        let Some(call) = state.runs[run].channels[index].calls.pop_front() else { return };
        let target = TargetIndex(index);
        let answer = match call {
            Call::Attach(term) => {
                let database = &mut state.targets[index];
                let outcome = match database.epoch > epoch {
                    true => Err(AttachError::Fenced { epoch: database.epoch }),
                    false => Ok(Position(database.bound)),
                };
                database.epoch = database.epoch.max(epoch);
                Input::Attached { target, term, outcome }
            }
            Call::Apply(term, batch) => match self.apply(state, epoch, index, &batch) {
                Ok(()) => Input::Applied { target, term, upto: Position(batch.upto) },
                Err(error) => Input::NotApplied { target, term, error },
            },
        };
        state.runs[run].channels[index].answers.push_back(answer);
    }

    fn apply(&self, state: &mut State, epoch: u64, index: usize, batch: &Batched) -> Result<(), ApplyError> {
        let database = &mut state.targets[index];
        if database.epoch > epoch && self.mutation != Some(Mutation::OldEpochServed) {
            return Err(ApplyError::Fenced { epoch: database.epoch });
        }
        if database.bound != batch.after && self.mutation != Some(Mutation::AfterUnchecked) {
            return Err(ApplyError::Moved { applied: Position(database.bound) });
        }
        state.is_unfenced |= database.epoch > epoch;
        for position in &batch.positions {
            if index == 0 && self.refused == Some(*position) {
                database.bound = *position;
                return Err(ApplyError::Rejected { position: Position(*position), reason: String::new() });
            }
            database.effects.push(*position);
        }
        database.bound = batch.upto;
        Ok(())
    }

    /// The steps that are no failures.
    fn turns(&self, state: &State, out: &mut Vec<Action>) {
        for (index, run) in state.runs.iter().enumerate() {
            for (number, stream) in &run.streams {
                let has_ended = stream.end.is_some_and(|end| stream.next >= end);
                if has_ended || stream.room > 0 && stream.next < self.entries.len() as u64 {
                    out.push(Action::Reads(index, *number));
                }
            }
            for (target, channel) in run.channels.iter().enumerate() {
                if !channel.calls.is_empty() {
                    out.push(Action::Handles(index, target));
                }
                if !channel.answers.is_empty() {
                    out.push(Action::Answers(index, target));
                }
            }
            if run.player.deadline().is_some_and(|at| at <= run.now + SOON) {
                out.push(Action::Wakes(index));
            }
            if run.player.status().targets[0].stage == Stage::Stopped {
                out.push(Action::Skips(index));
            }
        }
    }
}

impl Run {
    /// The next record of a stream, or its end.
    fn read(&mut self, number: StreamNumber) -> Option<Input> {
        let stream = self.streams.get_mut(&number)?;
        if stream.end.is_some_and(|end| stream.next >= end) {
            self.streams.remove(&number);
            return Some(Input::Ended { stream: number });
        }
        let record = Playing::record(stream.next);
        (stream.next, stream.room) = (stream.next + 1, stream.room - 1);
        Some(Input::Fetched { stream: number, record })
    }

    /// Breaks the latest session with a target.
    fn breaks(&mut self, target: usize) -> Option<Input> {
        let Channel { calls, answers, late } = &mut self.channels[target];
        let (term, is_attach) = match (calls.back(), answers.back()) {
            (Some(Call::Attach(term)), _) | (None, Some(Input::Attached { term, .. })) => (*term, true),
            (Some(Call::Apply(term, _)), _) => (*term, false),
            (None, Some(Input::Applied { term, .. } | Input::NotApplied { term, .. })) => (*term, false),
            _ => return None,
        };
        answers.clear();
        late.extend(calls.drain(..).filter_map(|call| match call {
            Call::Apply(_, batch) => Some(batch),
            Call::Attach(_) => None,
        }));
        let (target, reason) = (TargetIndex(target), String::new());
        Some(match is_attach {
            true => Input::Attached { target, term, outcome: Err(AttachError::Broken { reason }) },
            false => Input::NotApplied { target, term, error: ApplyError::Broken { reason } },
        })
    }

    /// Steps the machine. Returns whether the player ended.
    fn step(&mut self, input: Input) -> bool {
        let mut effects = vec![];
        self.player.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Open { stream, from, end } => {
                    let end = end.map(|end| end.0);
                    self.streams.insert(stream, Stream { next: from.0, end, room: 0 });
                }
                Effect::Pull { stream, records, .. } => {
                    self.streams.get_mut(&stream).expect("it is open").room += records;
                }
                Effect::Close { stream } => drop(self.streams.remove(&stream)),
                Effect::Attach { target, term, .. } => {
                    self.channels[target.0].calls.push_back(Call::Attach(term));
                }
                Effect::Send { target, term, batch } => {
                    let Batch { after, upto, messages } = &*batch;
                    let positions = messages.iter().map(|message| message.position.0).collect();
                    let batched = Batched { after: after.0, upto: upto.0, positions };
                    self.channels[target.0].calls.push_back(Call::Apply(term, Arc::new(batched)));
                }
                Effect::Detach { .. } | Effect::Note(_) | Effect::Done { .. } => {}
                Effect::Stop(Stop::Fenced { .. }) => return true,
                other => unreachable!("nothing causes {other:?}"),
            }
        }
        false
    }
}

impl Model for Playing {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let targets = vec![Target::default(); self.targets];
        let runs = vec![self.start(1)];
        vec![State { runs, targets, failures: 0, starts: 0, is_skipped: false, is_unfenced: false }]
    }

    fn actions(&self, state: &State, out: &mut Vec<Action>) {
        self.turns(state, out);
        for (index, run) in state.runs.iter().enumerate() {
            let is_open = |channel: &Channel| !channel.calls.is_empty() || !channel.answers.is_empty();
            let open = run.channels.iter().enumerate().filter(|(_, channel)| is_open(channel));
            if state.failures < self.failures {
                out.extend(open.map(|(target, _)| Action::Breaks(index, target)));
            }
            for (target, channel) in run.channels.iter().enumerate() {
                out.extend((0..channel.late.len()).map(|late| Action::HandlesLate(index, target, late)));
            }
            if index + 1 < state.runs.len() {
                out.push(Action::Dies(index));
            }
        }
        if state.starts < self.starts {
            out.push(Action::Starts);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let (run, input) = match action {
            Action::Reads(run, number) => (run, state.runs[run].read(number)?),
            Action::Handles(run, target) => {
                self.handle(&mut state, run, target);
                return Some(state);
            }
            Action::HandlesLate(run, target, index) => {
                let epoch = state.runs[run].epoch;
                let batch = state.runs[run].channels[target].late.remove(index);
                let answer = self.apply(&mut state, epoch, target, &batch);
                drop(answer);
                return Some(state);
            }
            Action::Answers(run, target) => (run, state.runs[run].channels[target].answers.pop_front()?),
            Action::Wakes(run) => {
                let at = state.runs[run].player.deadline()?;
                state.runs[run].now = state.runs[run].now.max(at);
                (run, Input::Wake)
            }
            Action::Skips(run) => {
                state.is_skipped = true;
                let position = state.runs[run].player.status().targets[0].bound;
                let command = Command::Skip { position };
                (run, Input::Commanded { number: 1, target: Some(TargetIndex(0)), command, again: false })
            }
            Action::Breaks(run, target) => {
                state.failures += 1;
                (run, state.runs[run].breaks(target)?)
            }
            Action::Dies(run) => {
                state.runs.remove(run);
                return Some(state);
            }
            Action::Starts => {
                state.starts += 1;
                let epoch = u64::from(state.starts) + 1;
                state.runs.push(self.start(epoch));
                return Some(state);
            }
        };
        if state.runs[run].step(input) {
            state.runs.remove(run);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(IN_ORDER, |model: &Self, state| {
                let is_true = |(index, target): (usize, &Target)| {
                    target.effects == model.expected(state, index, target.bound)
                };
                state.targets.iter().enumerate().all(is_true)
            }),
            Property::always(FENCED, |_, state: &State| !state.is_unfenced),
            Property::always(COMPLETE, |model: &Self, state| {
                let mut turns = vec![];
                model.turns(state, &mut turns);
                let all = |(index, target): (usize, &Target)| {
                    target.effects == model.expected(state, index, model.entries.len() as u64)
                };
                !turns.is_empty() || state.targets.iter().enumerate().all(all)
            }),
        ]
    }
}
