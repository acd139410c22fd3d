//! Players: processes with subscriptions of their own, and the events between them and their
//! targets.

mod upkeep;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use seriatim_delivery::player::{
    Command, Effect, Input, Map, Note, Player, PlayerConfig, Rule, Rules, Stage, Stop, StreamNumber,
    TargetConfig, TargetIndex, Why,
};
use seriatim_delivery::subscriber::{self, Event};
use seriatim_delivery::{Selection, Subscriber};
use seriatim_model::{Address, Endpoint, Machine, NodeId, Peer, Position, Time, limits};
use seriatim_protocol::Message;

use super::CONTROL;
use super::cluster::Cluster;
use super::frames::{Brief, frame, open};
use super::scene::Happening;
use super::targets::{Call, Request, Session, Target, lateness};
use crate::network::Party;
use crate::playing::{Database, Entry, MapKind, Played, PlayersPlan, Playing, RuleKind, Spread};
use crate::random::Random;
use upkeep::Upkeep;

/// Client numbers of players begin here.
pub(super) const PLAYERS: u32 = 40_000;
/// Time after which the last entries must be at all targets.
const PLAYED_WITHIN: Duration = Duration::from_secs(60);
/// Time between two looks at the targets.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time after its last fault from which a target counts as well.
const WELL_AFTER: Duration = Duration::from_millis(1000);
/// Age of final entries that a well target must have.
const WITHIN: Duration = Duration::from_millis(500);

/// An event of players and targets.
#[derive(Debug)]
pub(super) enum Play {
    Starts,
    Wakes(u32),
    /// The process takes its inputs.
    Takes(u32),
    /// An input for the process, in the order of its channel.
    Comes(u32, Box<Input>),
    Pauses(Duration),
    Resumes(u32),
    /// The process reads in the control log that a later one has claimed.
    IsDeposed(u32),
    /// An operator pauses a target for a while.
    Maintains(usize, Duration),
    /// The outcome of a command is in the control log, if the process still runs.
    Recorded(u32, u64),
    Handles(usize, Box<Call>),
    TargetStarts(usize),
    Looks,
}

/// One process.
#[derive(Debug)]
struct Run {
    number: u32,
    epoch: u64,
    since: Time,
    player: Player,
    streams: BTreeMap<StreamNumber, Subscriber>,
    inbox: VecDeque<Input>,
    /// Messages that wait until the process is resumed.
    held: VecDeque<Held>,
    is_paused: bool,
    wake_at: Option<Time>,
    takes_at: Option<Time>,
    /// Why targets were stopped, each with its bound.
    stopped: BTreeMap<usize, (Position, Why)>,
}

#[derive(Debug)]
enum Held {
    Frame(Party, Bytes),
    Lost(Party),
}

/// All players, their targets, and the control log.
#[derive(Debug)]
pub(super) struct Players {
    plan: Option<PlayersPlan>,
    random: Random,
    targets: Vec<Target>,
    runs: BTreeMap<u32, Run>,
    /// Number of claims in the control log. A player's epoch is the number of its claim.
    claims: u64,
    rules: Vec<Rules>,
    /// The end of what any player has read.
    highest: Position,
    /// Commands in the control log without an outcome.
    commands: BTreeMap<u64, (usize, Command)>,
    numbers: u64,
    upkeep: Upkeep,
    starts: u32,
    has_faults: bool,
    /// Ends of what players had read, with their times.
    finals: VecDeque<(Time, Position)>,
}

impl Players {
    pub(super) fn new(plan: Option<PlayersPlan>, seed: u64) -> Self {
        Self {
            plan,
            random: Random::new(seed ^ 0x91A7_E450),
            targets: vec![],
            runs: BTreeMap::new(),
            claims: 0,
            rules: vec![],
            highest: Position::ZERO,
            commands: BTreeMap::new(),
            numbers: 0,
            upkeep: Upkeep::new(seed),
            starts: 0,
            has_faults: true,
            finals: VecDeque::new(),
        }
    }

    fn after(&mut self, least_us: u64, most_us: u64, cluster: &mut Cluster, play: Play) {
        let at = cluster.scene.now + self.random.micros(least_us, most_us);
        cluster.scene.schedule(at, Happening::Play(play));
    }

    pub(super) fn begin(&mut self, cluster: &mut Cluster) {
        let Some(plan) = self.plan.clone() else { return };
        cluster.scene.history.playing = Some(Playing::new(&plan));
        for index in 0..plan.targets {
            self.add_target(cluster, index);
        }
        self.give_rules(Position::ZERO);
        self.starts += 1;
        self.after(0, 50_000, cluster, Play::Starts);
        self.after(0, 1000, cluster, Play::Looks);
        for (at, lasting) in &plan.pauses {
            cluster.scene.schedule(cluster.scene.now + *at, Happening::Play(Play::Pauses(*lasting)));
        }
        self.plan_upkeep(cluster, &plan);
    }

    fn add_target(&mut self, cluster: &Cluster, index: usize) {
        let plan = self.plan.as_ref().expect("there are players");
        let is_foreign = plan.foreign == Some(index);
        let database = Database { is_foreign, ..Database::default() };
        let played = Played { id: format!("t{index}"), database, ..Played::default() };
        let mutation = cluster.scene.plan.options.mutation;
        self.targets.push(Target::new(index, played, plan.slow == Some(index), mutation));
    }

    /// A rule of all targets from this position on.
    fn give_rules(&mut self, from: Position) {
        let map = self.plan.as_ref().expect("there are players").map;
        let targets: Vec<String> = self.targets.iter().map(|target| target.played.id.clone()).collect();
        let kind = RuleKind { map, targets: targets.clone() };
        let map = match map {
            MapKind::Key => Map::Key,
            MapKind::Spread => Map::Program(Arc::new(Spread { targets: targets.clone() })),
        };
        let rule = Arc::new(Rule { map, targets });
        self.rules.resize(self.targets.len(), vec![]);
        for (target, rules) in self.targets.iter_mut().zip(&mut self.rules) {
            if rules.last().is_some_and(|(last, _)| *last >= from) {
                rules.pop();
                target.played.rules.pop();
            }
            rules.push((from, rule.clone()));
            target.played.rules.push((from, kind.clone()));
        }
    }

    pub(super) fn step(&mut self, cluster: &mut Cluster, play: Play) {
        match play {
            Play::Starts => self.starts(cluster),
            Play::Wakes(number) => self.wakes(cluster, number),
            Play::Takes(number) => self.takes(cluster, number),
            Play::Comes(number, input) => self.comes(cluster, number, *input),
            Play::Pauses(lasting) => self.pauses(cluster, lasting),
            Play::Resumes(number) => self.resumes(cluster, number),
            Play::IsDeposed(number) => self.depose(cluster, number),
            Play::Maintains(target, lasting) => self.maintains(cluster, target, lasting),
            Play::Recorded(number, command) => self.recorded(number, command),
            Play::Handles(target, call) => self.handles(cluster, target, *call),
            Play::TargetStarts(target) => {
                let target = &mut self.targets[target];
                if target.starts_at.is_some_and(|at| at <= cluster.scene.now) {
                    target.starts_at = None;
                }
            }
            Play::Looks => self.looks(cluster),
        }
    }

    /// The tail as the log would answer.
    fn tail(&self, cluster: &Cluster) -> Position {
        cluster.truth().leader_ordered().unwrap_or_default().max(self.highest)
    }

    /// A process starts with a new claim.
    fn starts(&mut self, cluster: &mut Cluster) {
        if let Some(end) = self.upkeep.absent_until(cluster.scene.now) {
            return cluster.scene.schedule(end, Happening::Play(Play::Starts));
        }
        self.starts -= 1;
        let plan = self.plan.clone().expect("there are players");
        let tail = self.tail(cluster);
        if plan.adds_target && self.claims > 0 && self.targets.len() == plan.targets && self.runs.is_empty() {
            self.add_target(cluster, plan.targets);
            self.give_rules(tail);
        }
        self.claims += 1;
        let number = PLAYERS + self.claims as u32;
        let config = |(target, rules): (&Target, &Rules)| {
            let id = target.played.id.clone();
            (TargetConfig { id, unanswered: plan.unanswered, dead_letters: plan.dead_letters }, rules.clone())
        };
        let config = PlayerConfig {
            targets: self.targets.iter().zip(&self.rules).map(config).collect(),
            tail,
            until: None,
            skipped: [].into(),
            limits: plan.limits,
            mutation: cluster.scene.plan.options.mutation,
        };
        let now = cluster.scene.now;
        let run = Run {
            number,
            epoch: self.claims,
            since: now,
            player: Player::new(now, config),
            streams: BTreeMap::new(),
            inbox: VecDeque::new(),
            held: VecDeque::new(),
            is_paused: false,
            wake_at: None,
            takes_at: None,
            stopped: BTreeMap::new(),
        };
        cluster.scene.tell(format_args!("player {number} starts"));
        let earlier: Vec<u32> = self.runs.keys().copied().collect();
        for earlier in earlier {
            self.after(1000, 1_500_000, cluster, Play::IsDeposed(earlier));
        }
        cluster.client_comes(number);
        self.runs.insert(number, run);
        let commands = self.commands.clone();
        for (command, (target, what)) in commands {
            self.commanded(cluster, number, command, target, what, true);
        }
        self.wake(cluster, number);
    }

    fn commanded(
        &mut self,
        cluster: &mut Cluster,
        run: u32,
        number: u64,
        target: usize,
        command: Command,
        again: bool,
    ) {
        let input = Input::Commanded { number, target: Some(TargetIndex(target)), command, again };
        match self.upkeep.absent_until(cluster.scene.now) {
            Some(end) => cluster.scene.schedule(end, Happening::Play(Play::Comes(run, Box::new(input)))),
            None => self.after(0, 1000, cluster, Play::Comes(run, Box::new(input))),
        }
    }

    fn wake(&mut self, cluster: &mut Cluster, number: u32) {
        let Some(run) = self.runs.get_mut(&number) else { return };
        let streams = run.streams.values().filter_map(Machine::deadline).min();
        let Some(at) = [run.player.deadline(), streams].into_iter().flatten().min() else { return };
        let at = at.max(cluster.scene.now);
        if run.wake_at.is_none_or(|planned| at < planned) {
            run.wake_at = Some(at);
            cluster.scene.schedule(at, Happening::Play(Play::Wakes(number)));
        }
    }

    fn wakes(&mut self, cluster: &mut Cluster, number: u32) {
        let now = cluster.scene.now;
        let Some(run) = self.runs.get_mut(&number).filter(|run| run.wake_at == Some(now)) else { return };
        run.wake_at = None;
        if run.is_paused {
            return;
        }
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|at| now >= at);
        let is_player_due = is_due(run.player.deadline());
        let streams: Vec<StreamNumber> = run.streams.keys().copied().collect();
        for stream in streams {
            let Some(run) = self.runs.get(&number) else { return };
            if run.streams.get(&stream).is_some_and(|machine| is_due(machine.deadline())) {
                self.step_stream(cluster, number, stream, seriatim_model::Input::Wake);
            }
        }
        if is_player_due {
            self.feed(cluster, number, Input::Wake);
        }
        self.wake(cluster, number);
    }

    /// An input waits until the process takes it.
    fn comes(&mut self, cluster: &mut Cluster, number: u32, input: Input) {
        let delay = self.random.micros(0, 500);
        let Some(run) = self.runs.get_mut(&number) else { return };
        run.inbox.push_back(input);
        if run.takes_at.is_none() && !run.is_paused {
            let at = cluster.scene.now + delay;
            run.takes_at = Some(at);
            cluster.scene.schedule(at, Happening::Play(Play::Takes(number)));
        }
    }

    fn takes(&mut self, cluster: &mut Cluster, number: u32) {
        let Some(run) = self.runs.get_mut(&number) else { return };
        run.takes_at = None;
        while let Some(run) = self.runs.get_mut(&number).filter(|run| !run.is_paused) {
            let Some(input) = run.inbox.pop_front() else { break };
            if let Input::Fetched { record, .. } = &input {
                let (key, payload) = (record.record.key(), record.record.payload());
                self.highest = self.highest.max(record.position.next());
                self.read(cluster, record.position, Entry { key, payload });
            }
            self.feed(cluster, number, input);
        }
        self.wake(cluster, number);
    }

    fn read(&self, cluster: &mut Cluster, position: Position, entry: Entry) {
        let Some(playing) = &mut cluster.scene.history.playing else { return };
        let known = playing.read.entry(position).or_insert_with(|| entry.clone());
        if *known != entry {
            cluster.scene.note_problem(format!("players read two entries at position {position}"));
        }
    }

    /// Passes an input to the machine, and performs the effects. The process may die between two of
    /// them.
    fn feed(&mut self, cluster: &mut Cluster, number: u32, input: Input) {
        let now = cluster.scene.now;
        let Some(run) = self.runs.get_mut(&number) else { return };
        cluster.scene.trace.line(now, format_args!("player {number}: {input:?}"));
        let mut effects = vec![];
        run.player.step(now, input, &mut effects);
        self.measure(cluster, number);
        for effect in effects {
            let crash = self.plan.as_ref().map_or(0, |plan| plan.crash_permille);
            if self.has_faults && self.random.permille(crash) {
                return self.crash(cluster, number);
            }
            self.perform(cluster, number, effect);
        }
    }

    fn measure(&mut self, cluster: &mut Cluster, number: u32) {
        let Some(run) = self.runs.get(&number) else { return };
        let status = run.player.status();
        for target in &status.targets {
            cluster.scene.coverage.played(&format!("stage {}", target.stage));
        }
        let Some(playing) = &mut cluster.scene.history.playing else { return };
        let queued = status.targets.iter().map(|target| target.queued).max().unwrap_or_default();
        playing.most.messages = playing.most.messages.max(queued);
        playing.most.memory = playing.most.memory.max(status.memory);
    }

    fn perform(&mut self, cluster: &mut Cluster, number: u32, effect: Effect) {
        cluster.scene.trace.line(cluster.scene.now, format_args!("player {number} demands {effect:?}"));
        let epoch = self.runs[&number].epoch;
        match effect {
            Effect::Open { stream, from, end } => self.open(cluster, number, stream, (from, end)),
            Effect::Pull { stream, records, bytes } => {
                let request = subscriber::Request::Want { records, bytes };
                self.step_stream(
                    cluster,
                    number,
                    stream,
                    seriatim_model::Input::Request { token: 1, request },
                );
            }
            Effect::Close { stream } => {
                let request = subscriber::Request::Cancel;
                self.step_stream(
                    cluster,
                    number,
                    stream,
                    seriatim_model::Input::Request { token: 1, request },
                );
                self.runs.get_mut(&number).and_then(|run| run.streams.remove(&stream));
            }
            Effect::Attach { target, term, adopts } => {
                self.call(cluster, target.0, (number, term), Request::Attach { epoch, adopts });
            }
            Effect::Send { target, term, batch } => {
                self.call(cluster, target.0, (number, term), Request::Apply { epoch, batch });
            }
            Effect::Detach { target, term } => {
                self.call(cluster, target.0, (number, term), Request::Detach);
            }
            Effect::AskTail => {
                let tail = self.tail(cluster);
                self.after(100, 5000, cluster, Play::Comes(number, Box::new(Input::Tail(tail))));
            }
            Effect::DeadLetter { target, message, .. } => {
                let position = message.position;
                self.targets[target.0].played.dead_letters.insert(position);
                cluster.scene.coverage.played("dead letter");
                let input = Input::DeadLettered { target, position };
                self.after(100, 5000, cluster, Play::Comes(number, Box::new(input)));
            }
            Effect::Done { number: command, outcome } => self.done(cluster, number, command, &outcome),
            Effect::Note(note) => self.noted(cluster, number, note),
            Effect::Stop(stop) => self.stopped(cluster, number, &stop),
        }
    }

    fn open(
        &mut self,
        cluster: &mut Cluster,
        number: u32,
        stream: StreamNumber,
        range: (Position, Option<Position>),
    ) {
        let entry = cluster.entry().cloned().or_else(|| cluster.scene.first_entry.clone());
        let mut entry = entry.expect("the log exists");
        entry.view = cluster.scene.latest_view().cloned().or(entry.view);
        let selection = Selection { skips_lost: true, ..Selection::default() };
        let options = cluster.scene.plan.options;
        let window = limits::SUBSCRIPTIONS_BYTES;
        let machine = Subscriber::with(CONTROL, entry, range, window, selection, options);
        let Some(run) = self.runs.get_mut(&number) else { return };
        run.streams.insert(stream, machine);
        self.wake(cluster, number);
    }

    fn call(&mut self, cluster: &mut Cluster, target: usize, session: Session, request: Request) {
        let now = cluster.scene.now;
        let plan = self.plan.as_ref().filter(|_| self.has_faults);
        let (at, call) = self.targets[target].takes(now, (session, request), plan, &mut self.random);
        cluster.scene.schedule(at, Happening::Play(Play::Handles(target, Box::new(call))));
    }

    fn handles(&mut self, cluster: &mut Cluster, index: usize, call: Call) {
        let now = cluster.scene.now;
        let at = cluster.scene.history.tick();
        let plan = self.plan.as_ref().expect("there are players");
        let session = call.session;
        let target = &mut self.targets[index];
        cluster.scene.coverage.played(&format!("call {:?}", call.fault));
        let is_last = target.last_session(session.0) == Some(session);
        if is_last && self.upkeep.forbids(index, &call) {
            let process = session.0;
            cluster
                .scene
                .note_problem(format!("player {process} applies a batch to t{index}, which it paused"));
        }
        let handled = target.handles((now, at), call, plan, &mut self.random);
        if let Some(at) = target.starts_at.filter(|at| *at > now) {
            cluster.scene.schedule(at, Happening::Play(Play::TargetStarts(index)));
        }
        if handled.answer.is_none() {
            target.well_since = target.well_since.max(now + plan.limits.apply_within);
        }
        if let Some(input) = handled.answer {
            let at = target.answers_at(now, session, &mut self.random);
            cluster.scene.schedule(at, Happening::Play(Play::Comes(session.0, Box::new(input))));
        }
        if let Some(call) = handled.later {
            let at = now + lateness(&mut self.random);
            cluster.scene.schedule(at, Happening::Play(Play::Handles(index, Box::new(call))));
        }
    }

    fn noted(&mut self, cluster: &mut Cluster, number: u32, note: Note) {
        match note {
            Note::Stopped { target, why } => {
                if let Why::Gap { end, .. } = why {
                    let played = &mut self.targets[target.0].played;
                    played.skipped.push((played.database.bound, end));
                }
                cluster.scene.coverage.played("stopped");
                let bound = self.runs[&number].player.status().targets[target.0].bound;
                self.runs.get_mut(&number).and_then(|run| run.stopped.insert(target.0, (bound, why)));
            }
            Note::Restored { .. } => cluster.scene.coverage.played("restored"),
            Note::BeginsAbove { target, first, .. } => {
                self.targets[target.0].played.skipped.push((Position::ZERO, first));
                cluster.scene.coverage.played("begins above");
            }
            Note::Recovers { .. } => cluster.scene.coverage.played("recovers"),
            Note::CaughtUp { .. } => cluster.scene.coverage.played("caught up"),
            _ => {}
        }
    }

    fn stopped(&mut self, cluster: &mut Cluster, number: u32, stop: &Stop) {
        let Stop::Fenced { .. } = stop else {
            return cluster.scene.note_problem(format!("player {number} ended: {stop}"));
        };
        cluster.scene.coverage.played("fenced");
        self.ends(cluster, number);
        self.ensure_one(cluster);
    }

    fn depose(&mut self, cluster: &mut Cluster, number: u32) {
        if let Some(end) = self.upkeep.absent_until(cluster.scene.now) {
            return cluster.scene.schedule(end, Happening::Play(Play::IsDeposed(number)));
        }
        match self.runs.get(&number).map(|run| run.is_paused) {
            Some(false) => {
                self.ends(cluster, number);
                self.ensure_one(cluster);
            }
            Some(true) => self.after(1000, 500_000, cluster, Play::IsDeposed(number)),
            None => {}
        }
    }

    fn ends(&mut self, cluster: &mut Cluster, number: u32) {
        self.runs.remove(&number);
        self.upkeep.ended(number);
        cluster.client_goes(number);
        cluster.hang_up(Party::Client(number));
    }

    fn crash(&mut self, cluster: &mut Cluster, number: u32) {
        cluster.scene.tell(format_args!("player {number} is killed"));
        let status = self.runs[&number].player.status();
        for target in &status.targets {
            cluster.scene.coverage.played(&format!("killed while {}", target.stage));
        }
        self.ends(cluster, number);
        self.ensure_one(cluster);
    }

    /// Starts a process if none is at work.
    fn ensure_one(&mut self, cluster: &mut Cluster) {
        if self.starts == 0 && self.runs.values().all(|run| run.is_paused) {
            self.starts += 1;
            self.after(1000, 100_000, cluster, Play::Starts);
        }
    }

    fn pauses(&mut self, cluster: &mut Cluster, lasting: Duration) {
        if !self.has_faults {
            return;
        }
        let Some(run) = self.runs.values_mut().rfind(|run| !run.is_paused) else { return };
        (run.is_paused, run.takes_at) = (true, None);
        let number = run.number;
        cluster.scene.tell(format_args!("player {number} pauses"));
        cluster.scene.coverage.played("paused");
        cluster.scene.schedule(cluster.scene.now + lasting, Happening::Play(Play::Resumes(number)));
        self.ensure_one(cluster);
    }

    fn resumes(&mut self, cluster: &mut Cluster, number: u32) {
        let Some(run) = self.runs.get_mut(&number).filter(|run| run.is_paused) else { return };
        (run.is_paused, run.wake_at) = (false, None);
        let held = std::mem::take(&mut run.held);
        cluster.scene.tell(format_args!("player {number} resumes"));
        for held in held {
            match held {
                Held::Frame(from, bytes) => self.receives(cluster, number, from, &bytes),
                Held::Lost(other) => self.loses(cluster, number, other),
            }
        }
        self.takes(cluster, number);
    }

    pub(super) fn receives(&mut self, cluster: &mut Cluster, number: u32, from: Party, bytes: &Bytes) {
        let Some(run) = self.runs.get_mut(&number) else { return };
        if run.is_paused {
            return run.held.push_back(Held::Frame(from, bytes.clone()));
        }
        let (_, sender, to, message) = open(bytes.clone()).expect("the encoding is valid");
        let text = Brief(&message);
        cluster.scene.tell(format_args!("{from:?} {sender:?} to player {number} {to:?}: {text}"));
        let (Party::Node(node), Endpoint::Client(machine)) = (from, to) else { return };
        let input = seriatim_model::Input::Message { from: Address::Node(node, sender), message };
        self.step_stream(cluster, number, StreamNumber(machine), input);
        self.wake(cluster, number);
    }

    pub(super) fn loses(&mut self, cluster: &mut Cluster, number: u32, other: Party) {
        let Party::Node(node) = other else { return };
        let Some(run) = self.runs.get_mut(&number) else { return };
        if run.is_paused {
            return run.held.push_back(Held::Lost(other));
        }
        let streams: Vec<StreamNumber> = run.streams.keys().copied().collect();
        for stream in streams {
            let input = seriatim_model::Input::Disconnected(Peer::Node(node));
            self.step_stream(cluster, number, stream, input);
        }
        self.wake(cluster, number);
    }

    fn step_stream(
        &mut self,
        cluster: &mut Cluster,
        number: u32,
        stream: StreamNumber,
        input: seriatim_model::Input<Message, subscriber::Request>,
    ) {
        let now = cluster.scene.now;
        let Some(run) = self.runs.get_mut(&number) else { return };
        let Some(machine) = run.streams.get_mut(&stream) else { return };
        let mut effects = vec![];
        machine.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                seriatim_model::Effect::Send { to: Address::Node(node, endpoint), message } => {
                    self.sends(cluster, (number, stream), (node, endpoint), &message);
                }
                seriatim_model::Effect::Reply { reply, .. } => self.told(cluster, number, stream, reply),
                other => unreachable!("a subscriber has no disk: {other:?}"),
            }
        }
    }

    fn sends(
        &self,
        cluster: &mut Cluster,
        (number, stream): (u32, StreamNumber),
        (node, endpoint): (NodeId, Endpoint),
        message: &Message,
    ) {
        let bytes = frame(cluster.scene.log, Endpoint::Client(stream.0), endpoint, message);
        cluster.transmit(Party::Client(number), Party::Node(node), bytes);
    }

    fn told(&mut self, cluster: &mut Cluster, number: u32, stream: StreamNumber, event: Event) {
        let input = match event {
            Event::Deliver { records, .. } => {
                for record in records {
                    self.comes(cluster, number, Input::Fetched { stream, record });
                }
                return;
            }
            Event::Trimmed { first } => Input::Trimmed { stream, first },
            Event::Lost { from, end, .. } => Input::Lost { stream, from, end },
            Event::Finished => Input::Ended { stream },
            Event::Failed(failure) => Input::Failed { stream, reason: failure.to_string() },
            other => unreachable!("a subscription to all final records has no {other:?}"),
        };
        cluster.scene.coverage.played(match &input {
            Input::Trimmed { .. } => "trimmed",
            Input::Lost { .. } => "lost",
            Input::Failed { .. } => "stream failed",
            _ => "stream ended",
        });
        self.comes(cluster, number, input);
    }

    /// Notes whether each healthy target has its entries.
    fn looks(&mut self, cluster: &mut Cluster) {
        let now = cluster.scene.now;
        cluster.scene.schedule(now + LOOK_EVERY, Happening::Play(Play::Looks));
        self.operate(cluster);
        if !self.has_faults {
            return;
        }
        let is_log_well = cluster.scene.plan.faults.is_empty();
        let is_at_work = |run: &Run| !run.is_paused && now >= run.since + WELL_AFTER;
        let Some(run) = self.runs.values().next_back().filter(|run| is_log_well && is_at_work(run)) else {
            return;
        };
        self.finals.push_back((now, self.highest));
        while self.finals.get(1).is_some_and(|(at, _)| *at + WITHIN <= now) {
            self.finals.pop_front();
        }
        let Some((_, end)) = self.finals.front().filter(|(at, _)| *at + WITHIN <= now) else { return };
        let Some(playing) = &mut cluster.scene.history.playing else { return };
        for (target, status) in self.targets.iter_mut().zip(run.player.status().targets) {
            // A player waits longer after each failure of the target.
            if !matches!(status.stage, Stage::Normal | Stage::Recovering | Stage::Full) {
                target.well_since = target.well_since.max(now);
            }
            if !target.is_well() || now < target.well_since + WELL_AFTER {
                continue;
            }
            let bound = target.played.database.bound;
            let lacks =
                |(position, entry): &(&Position, &Entry)| !target.played.parts(**position, entry).is_empty();
            if bound < *end
                && let Some((position, _)) = playing.read.range(bound..*end).find(lacks)
            {
                playing.disturbed.push(format!("target {} lacks position {position} at {now}", status.id));
            }
        }
    }

    /// Whether faults may still strike.
    pub(super) fn are_over(&self, cluster: &Cluster) -> bool {
        let end = self.plan.as_ref().map(|plan| cluster.scene.began + plan.faults_for);
        end.is_none_or(|end| cluster.scene.now >= end)
    }

    /// Ends all faults.
    pub(super) fn calm(&mut self, cluster: &mut Cluster) {
        if self.plan.is_none() {
            return;
        }
        self.has_faults = false;
        self.upkeep.calm();
        self.targets.iter_mut().for_each(Target::calm);
        let paused: Vec<u32> = self.runs.values().filter(|run| run.is_paused).map(|run| run.number).collect();
        paused.into_iter().for_each(|number| self.resumes(cluster, number));
        self.ensure_one(cluster);
    }

    /// Whether the player has given all entries below `end` to its targets.
    fn have_played(&self, end: Position) -> bool {
        let Some(run) = self.runs.values().next_back() else { return false };
        let status = run.player.status();
        let is_done = |target: &seriatim_delivery::player::TargetStatus| {
            target.stage == Stage::Normal && target.queued == 0 && target.memory == 0
        };
        self.runs.len() == 1
            && status.dispatched.is_some_and(|dispatched| dispatched >= end)
            && self.commands.is_empty()
            && status.targets.iter().all(is_done)
    }

    /// Puts what happened into the history, and ends the players.
    fn end(&mut self, cluster: &mut Cluster) {
        let numbers: Vec<u32> = self.runs.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.ends(cluster, number));
        let Some(playing) = &mut cluster.scene.history.playing else { return };
        playing.targets = self.targets.iter().map(|target| target.played.clone()).collect();
    }

    /// The state of the players, for a person.
    pub(super) fn state(&self) -> Vec<String> {
        self.runs.values().map(|run| format!("player {}: {:?}", run.number, run.player.status())).collect()
    }
}

impl super::World {
    /// Waits until everything is at the targets.
    pub(super) fn play_to_the_end(&mut self) {
        if self.players.plan.is_none() {
            return;
        }
        let history = &self.cluster.scene.history;
        let seen = history.observations.iter().filter(|seen| !seen.is_void).map(|seen| seen.position.next());
        let end = seen.max().unwrap_or_default();
        if !self.run_until(PLAYED_WITHIN, |world| world.players.have_played(end)) {
            for line in self.players.state() {
                self.cluster.scene.tell(format_args!("not played to {end}: {line}"));
            }
        }
        self.players.end(&mut self.cluster);
    }
}
