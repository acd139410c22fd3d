//! The runner: gives the machine a clock, subscriptions, targets and the control log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seriatim_client::{Client, ControlError, Log, Position, ReadError};
use seriatim_delivery::player::{
    Begin, Effect, Input, Map, Mapper, Player, PlayerConfig, PlayerLimits, Rule, Stop, StreamNumber,
    TargetConfig, TargetIndex,
};
use seriatim_model::Time;
use tokio::sync::{mpsc, watch};

use crate::Stream;
use crate::control::{CommandRecord, ControlLogError, Event, Events, Holder, RulesRecord, StatusRecord};
use crate::kept::{Bounds, Keeper};
use crate::pinning;
use crate::reporting::{Recorder, wall_ms};
use crate::sessions::{Call, Caller, Place};
use crate::starting::{self, Claimed};
use crate::streams::{self, Room};
use crate::targets::AnyTarget;

/// Happenings that wait for the machine.
const HAPPENINGS: usize = 4096;
/// Pulls that wait for a stream.
const PULLS: usize = 64;
/// Happenings that the machine handles before its effects are performed.
const AT_ONCE: usize = 64;
/// How long an ending player waits for the answers to its batches.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Wait before a failed question about the tail is repeated.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What a player does if another one may be active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// It asks, and does not start if the other one answers.
    #[default]
    Refuse,
    /// It takes the place of the other one at once.
    TakeOver,
    /// It waits until the other one is silent or has ended.
    Standby,
}

/// One target of a player.
#[derive(Debug)]
pub struct TargetSettings {
    /// Its id.
    pub id: String,
    /// The destination.
    pub target: AnyTarget,
    /// Whether a rejected message goes to the dead-letter log.
    pub dead_letters: bool,
}

/// Settings of a player.
#[derive(Debug)]
pub struct Settings {
    /// Name of the log.
    pub log: String,
    /// Name of the player.
    pub name: String,
    /// How entries are mapped to targets.
    pub map: Map,
    /// First position of a new target.
    pub begin: Begin,
    /// The targets.
    pub targets: Vec<TargetSettings>,
    /// What happens if another player may be active.
    pub start: Start,
    /// The epoch is above this one, if the control log was lost.
    pub above: Option<u64>,
    /// Whether the player ends when all targets have reached the tail as of its start.
    pub until_tail: bool,
    /// Whether a pin keeps the log from being trimmed above the lowest bound of the targets.
    pub pin: bool,
    /// Name of the dead-letter log. None: `NAME.dead`.
    pub dead_letter: Option<String>,
    /// Limits of queues and waits.
    pub limits: PlayerLimits,
}

/// A player that has started.
#[derive(Clone, Debug)]
pub struct Started {
    /// Name of the log.
    pub log: String,
    /// Name of the player.
    pub name: String,
    /// Its epoch.
    pub epoch: u64,
}

/// Why a player did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum PlayerError {
    /// The log does not exist, or cannot be asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The control log cannot be used.
    #[error(transparent)]
    ControlLog(#[from] ControlLogError),
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A target cannot be one.
    #[error("target '{id}': {reason}")]
    Target {
        /// Its id.
        id: String,
        /// The mistake, and what to do.
        reason: String,
    },
    /// Another player is active.
    #[error(
        "the player '{player}' is already at work: {}, epoch {}, since {} s; stop it, or take its place with --take-over",
        active.holder, active.epoch, active.at_ms.saturating_sub(active.since_ms) / 1000
    )]
    Active {
        /// Name of the player.
        player: String,
        /// Its status.
        active: Box<StatusRecord>,
    },
    /// Another player has claimed the stream.
    #[error("another player took over: {by}, epoch {epoch}")]
    Deposed {
        /// The other player.
        by: Holder,
        /// Its epoch.
        epoch: u64,
    },
    /// A target knows a higher epoch.
    #[error(
        "a target has served a player with epoch {theirs}, and this player has epoch {own}: if another player is \
         at work, leave it there; if the control log was lost, start with --above {theirs}"
    )]
    Fenced {
        /// The target's epoch.
        theirs: u64,
        /// This player's epoch.
        own: u64,
    },
    /// The recorded rules cannot be used.
    #[error("the rules in the control log: {0}")]
    Rules(String),
    /// The log was deleted.
    #[error("the log '{0}' was deleted")]
    Deleted(String),
    /// The log lost entries that targets may have applied, and gives their positions again.
    #[error("{0}: restore each target whose bound is above that position")]
    Reassigned(seriatim_client::Failure),
    /// An entry cannot be read.
    #[error(
        "the entry at position {position} cannot be read: {reason}; upgrade the player, or declare that the entry \
         belongs to no target: seriatim player skip {player} all {position}"
    )]
    Unreadable {
        /// Name of the player.
        player: String,
        /// The entry.
        position: Position,
        /// The fault of the entry.
        reason: String,
    },
    /// Some targets are stopped, and the others have reached the tail.
    #[error("stopped targets have not reached the tail: {}; see: seriatim player status {player}", .stopped.join(", "))]
    Unfinished {
        /// Name of the player.
        player: String,
        /// Their ids.
        stopped: Vec<String>,
    },
}

/// How a player ended in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All targets have reached the tail as of the start.
    Finished,
    /// The caller stopped it.
    Stopped,
}

/// An event for the runner.
#[derive(Debug)]
pub(crate) enum Happening {
    /// For the machine.
    Machine(Input),
    /// The log was deleted.
    Deleted(String),
    /// The log gives positions again.
    Reassigned(seriatim_client::Failure),
    /// A problem, for the operator.
    Notice(String),
}

/// News for the operator: a sentence, and whether it is a problem.
pub(crate) type Observer<'a> = &'a mut (dyn FnMut(&str, bool) + Send);

/// Runs a player until it ends or `stop` resolves. `started` is called after the claim.
///
/// # Errors
/// If the player cannot start, or must end.
pub async fn run(
    client: &Client,
    settings: Settings,
    mapper: Option<Arc<dyn Mapper>>,
    started: impl FnOnce(&Started),
    observer: Observer<'_>,
    stop: impl Future<Output = ()>,
) -> Result<Ending, PlayerError> {
    let ids = settings.targets.iter().map(|target| target.id.clone()).collect();
    let rule = Rule { map: settings.map.clone(), targets: ids };
    tokio::pin!(stop);
    let claimed = tokio::select! {
        claimed = starting::claim(client, &settings, &rule, mapper.as_ref()) => claimed?,
        () = &mut stop => return Ok(Ending::Stopped),
    };
    started(&Started { log: settings.log.clone(), name: settings.name.clone(), epoch: claimed.epoch });
    let mut runner = Runner::new(client.clone(), settings, claimed);
    let outcome = runner.play(observer, stop).await;
    runner.close(&outcome).await;
    outcome
}

/// A running player.
pub(crate) struct Runner {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    log: Log,
    pub(crate) epoch: u64,
    pub(crate) base: u64,
    claim: Position,
    pub(crate) rules: RulesRecord,
    pub(crate) skipped: BTreeSet<u64>,
    /// Bounds that targets cannot store.
    pub(crate) bounds: Bounds,
    /// For each target, whether messages may be delivered more than once.
    pub(crate) at_least_once: Vec<bool>,
    pub(crate) since_ms: u64,
    began: Instant,
    pub(crate) machine: Player,
    /// From the targets. A queue of their own, so that they do not wait behind fetched records.
    answers: mpsc::Receiver<Happening>,
    happenings: mpsc::Receiver<Happening>,
    pub(crate) sender: mpsc::Sender<Happening>,
    streams: BTreeMap<StreamNumber, (mpsc::Sender<Room>, tokio::task::JoinHandle<()>)>,
    targets: Vec<Caller>,
    pin: Option<watch::Sender<Option<Position>>>,
    /// Ends of the batches without answer, for each target.
    unanswered: Vec<VecDeque<Position>>,
    control_events: Events,
    pub(crate) recorder: Recorder,
    /// Effects of the machine's start.
    effects: Vec<Effect>,
}

impl Runner {
    fn new(client: Client, mut settings: Settings, claimed: Claimed) -> Self {
        let (sender, happenings) = mpsc::channel(HAPPENINGS);
        let (answering, answers) = mpsc::channel(HAPPENINGS);
        let stream = Stream { log: claimed.log.entry().id, player: settings.name.clone() };
        let mut targets = vec![];
        let mut configs = vec![];
        let mut at_least_once = vec![];
        for (number, (target, (_, rules))) in settings.targets.drain(..).zip(claimed.rules.iter()).enumerate()
        {
            let unanswered = target.target.unanswered();
            let index = TargetIndex(number);
            let (stream, happenings) = (stream.clone(), answering.clone());
            let keeper =
                Keeper::new(claimed.control.clone(), &target.id, &claimed.bounds, claimed.claim.next());
            at_least_once.push(target.target.is_at_least_once());
            let place = Place { index, stream, epoch: claimed.epoch, happenings };
            targets.push(target.target.serve(place, keeper));
            let config = TargetConfig { id: target.id, unanswered, dead_letters: target.dead_letters };
            configs.push((config, rules.clone()));
        }
        let config = PlayerConfig {
            targets: configs,
            tail: claimed.tail,
            until: settings.until_tail.then_some(claimed.tail),
            skipped: claimed.skipped.iter().copied().map(Position).collect(),
            limits: settings.limits,
            mutation: None,
        };
        let unanswered = config.targets.iter().map(|_| VecDeque::new()).collect();
        let mut machine = Player::new(Time::ZERO, config);
        let mut effects = vec![];
        for (number, target, command) in &claimed.pending {
            match input_of(&machine, *number, target.as_deref(), command, true) {
                Ok(input) => machine.step(Time::ZERO, input, &mut effects),
                Err(refused) => effects.push(refused),
            }
        }
        let mut recorder = Recorder::start(claimed.control, claimed.first, sender.clone());
        claimed.pending.iter().for_each(|(command, ..)| recorder.opened(*command));
        let pin =
            settings.pin.then(|| pinning::start(claimed.log.clone(), settings.name.clone(), sender.clone()));
        Self {
            client,
            settings,
            log: claimed.log,
            epoch: claimed.epoch,
            base: claimed.base,
            claim: claimed.claim,
            rules: RulesRecord::of(&claimed.rules),
            skipped: claimed.skipped,
            bounds: claimed.bounds,
            at_least_once,
            since_ms: wall_ms(),
            began: Instant::now(),
            machine,
            answers,
            happenings,
            sender,
            streams: BTreeMap::new(),
            targets,
            pin,
            unanswered,
            control_events: claimed.events,
            recorder,
            effects,
        }
    }

    fn now(&self) -> Time {
        Time(self.began.elapsed().as_nanos() as u64)
    }

    async fn play(
        &mut self,
        observer: Observer<'_>,
        mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Ending, PlayerError> {
        let mut arrived = Vec::with_capacity(AT_ONCE);
        let mut effects = std::mem::take(&mut self.effects);
        let mut ends_at = None;
        while ends_at.is_none() || self.unanswered.iter().any(|ends| !ends.is_empty()) {
            let wake = self.machine.deadline().map(|at| self.began + Duration::from_nanos(at.0));
            let wake = [wake, self.recorder.due()].into_iter().flatten().min();
            tokio::select! {
                biased;
                () = &mut stop, if ends_at.is_none() => ends_at = Some(Instant::now() + END_WITHIN),
                () = sleep_until(ends_at) => break,
                event = self.control_events.next() => self.controlled(event, &mut effects)?,
                Some(answer) = self.answers.recv() => arrived.push(answer),
                _ = self.happenings.recv_many(&mut arrived, AT_ONCE) => {}
                () = sleep_until(wake), if effects.is_empty() => {}
                () = std::future::ready(()), if !effects.is_empty() => {}
            }
            arrived.extend(std::iter::from_fn(|| self.answers.try_recv().ok()).take(AT_ONCE));
            if !arrived.is_empty() || !effects.is_empty() {
                self.recorder.touch();
            }
            for happening in arrived.drain(..) {
                match happening {
                    Happening::Machine(input) => {
                        if let Input::Ended { stream } | Input::Failed { stream, .. } = &input {
                            self.streams.remove(stream);
                        }
                        self.note_answer(&input);
                        self.machine.step(self.now(), input, &mut effects);
                    }
                    Happening::Deleted(log) => return Err(PlayerError::Deleted(log)),
                    Happening::Reassigned(cause) => return Err(PlayerError::Reassigned(cause)),
                    Happening::Notice(text) => observer(&text, true),
                }
            }
            let now = self.now();
            if self.machine.deadline().is_some_and(|at| at <= now) {
                self.machine.step(now, Input::Wake, &mut effects);
            }
            // An ending player starts no further calls.
            effects.retain(|effect| {
                ends_at.is_none() || !matches!(effect, Effect::Send { .. } | Effect::Attach { .. })
            });
            for effect in effects.drain(..) {
                if self.perform(effect, observer)?.is_break() {
                    return Ok(Ending::Finished);
                }
            }
            self.record_status();
            self.raise_pin();
        }
        Ok(Ending::Stopped)
    }

    fn note_answer(&mut self, input: &Input) {
        match input {
            Input::Applied { target, upto, .. } => self.unanswered[target.0].retain(|end| end > upto),
            // The session is over, with all its batches.
            Input::NotApplied { target, .. } | Input::Detached { target, .. } => {
                self.unanswered[target.0].clear();
            }
            _ => {}
        }
    }

    fn raise_pin(&self) {
        if let (Some(pin), Some(bound)) = (&self.pin, self.machine.lowest_bound()) {
            pin.send_if_modified(|pinned| pinned.replace(bound) != Some(bound));
        }
    }

    fn controlled(
        &mut self,
        event: Result<Option<(Position, Event)>, ControlLogError>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), PlayerError> {
        let Some((position, event)) = event? else { return Ok(()) };
        self.recorder.read(position);
        match event {
            Event::Claim { holder, base, .. } if position > self.claim => {
                return Err(PlayerError::Deposed { by: holder, epoch: base + position.0 + 1 });
            }
            // A later player may have trimmed its claim, and never its last status.
            Event::Status(status) if status.epoch > self.epoch => {
                return Err(PlayerError::Deposed { by: status.holder, epoch: status.epoch });
            }
            Event::Bound(record) if record.epoch == self.epoch => self.bounds.keep(position.0, record),
            Event::Hello { .. } => {
                self.recorder.ask();
            }
            Event::Command { target, command } => {
                self.recorder.opened(position.0);
                if let (None, CommandRecord::Skip { position }) = (&target, &command) {
                    self.skipped.insert(*position);
                }
                // `adopt` compares its position with the tail.
                let compares_tail = matches!(command, CommandRecord::Adopt { .. });
                match input_of(&self.machine, position.0, target.as_deref(), &command, false) {
                    Ok(input) if compares_tail => self.ask_tail(Some(input)),
                    Ok(input) => self.machine.step(self.now(), input, effects),
                    Err(refused) => effects.push(refused),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn perform(
        &mut self,
        effect: Effect,
        observer: &mut (dyn FnMut(&str, bool) + Send),
    ) -> Result<ControlFlow<()>, PlayerError> {
        match effect {
            Effect::Open { stream, from, end } => {
                let (pulls, receiver) = mpsc::channel(PULLS);
                let reading =
                    streams::read(self.log.clone(), stream, (from, end), receiver, self.sender.clone());
                self.streams.insert(stream, (pulls, tokio::spawn(reading)));
            }
            Effect::Pull { stream, records, bytes } => {
                if let Some((pulls, _)) = self.streams.get(&stream) {
                    // The stream may have ended just now. It has room: it used up earlier pulls.
                    let _ = pulls.try_send((records, bytes));
                }
            }
            Effect::Close { stream } => {
                if let Some((_, task)) = self.streams.remove(&stream) {
                    task.abort();
                }
            }
            Effect::Attach { target, term, adopts } => self.call(target, Call::Attach { term, adopts }),
            Effect::Send { target, term, batch } => {
                self.unanswered[target.0].push_back(batch.upto);
                self.call(target, Call::Send { term, batch });
            }
            Effect::Detach { target, term } => self.call(target, Call::Detach { term }),
            Effect::AskTail => self.ask_tail(None),
            Effect::DeadLetter { target, message, reason } => self.dead_letter(target, message, reason),
            Effect::Done { number, outcome } => self.recorder.done(number, outcome),
            Effect::Note(note) => {
                if let Some((text, is_problem)) = self.describe(&note) {
                    observer(&text, is_problem);
                }
            }
            Effect::Stop(stop) => return self.stopped(stop),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn call(&self, target: TargetIndex, call: Call) {
        self.targets[target.0].call(call);
    }

    fn stopped(&self, stop: Stop) -> Result<ControlFlow<()>, PlayerError> {
        let player = self.settings.name.clone();
        match stop {
            Stop::Finished => Ok(ControlFlow::Break(())),
            Stop::Fenced { epoch } => Err(PlayerError::Fenced { theirs: epoch, own: self.epoch }),
            Stop::Unreadable { position, reason } => {
                Err(PlayerError::Unreadable { player, position, reason })
            }
            Stop::FinishedWithout { stopped } => {
                let stopped = stopped.into_iter().map(|target| self.machine.id(target).to_string()).collect();
                Err(PlayerError::Unfinished { player, stopped })
            }
        }
    }

    /// Tells the machine the log's tail, and then gives it the input, if there is one.
    fn ask_tail(&self, then: Option<Input>) {
        let (log, sender) = (self.log.clone(), self.sender.clone());
        tokio::spawn(async move {
            let tail = loop {
                match log.check_tail().await {
                    Ok(tail) => break Happening::Machine(Input::Tail(tail)),
                    Err(ReadError::Deleted(log)) => break Happening::Deleted(log),
                    Err(_) => tokio::time::sleep(ASK_AGAIN).await,
                }
            };
            // A player that has ended needs no answer.
            let _ = sender.send(tail).await;
            if let Some(input) = then {
                let _ = sender.send(Happening::Machine(input)).await;
            }
        });
    }
}

/// The machine's input for a command, or the refusal if the target is unknown.
fn input_of(
    machine: &Player,
    number: u64,
    target: Option<&str>,
    command: &CommandRecord,
    again: bool,
) -> Result<Input, Effect> {
    let unknown =
        |id: &str| Effect::Done { number, outcome: Err(format!("the player has no target '{id}'")) };
    let target = target.map(|id| machine.find(id).ok_or_else(|| unknown(id))).transpose()?;
    Ok(Input::Commanded { number, target, command: command.command(), again })
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
