//! The controller of one log: drives view changes, step by step (erwin.md, "View change").
//!
//! It keeps nothing that cannot be lost. If it dies at any point, another starts over with a higher
//! number; two that race are decided by the register. Every question is repeated until it is answered,
//! and every answer carries the claim, so answers to an attempt that is over are recognised.

use std::collections::BTreeMap;

use seriatim_model::{
    Address, Endpoint, Incarnation, Input, LogId, Machine, Member, NodeId, Placement, Position, ShardId,
    ShardMembers, Time, View, ViewNumber, limits,
};

use super::message::{LogEntry, Message, SealedState};
use crate::deviation::{Deviation, Options};
use crate::parts::Sessions;
use crate::roles::{self, RoleEffect, RoleInput};
use crate::shard;

/// How often those that a view does without are told of it.
const REMIND_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Drives the view changes of one log.
#[derive(Debug)]
pub struct Controller {
    log: LogId,
    register: Address,
    options: Options,
    /// Tells this controller's claims from any other's.
    random: u64,
    attempts: u64,
    phase: Phase,
    /// When the phase's questions are asked again.
    ask_at: Time,
    /// When the attempt is given up.
    give_up_at: Time,
    /// Those who asked for a view since the register was last read.
    reports: BTreeMap<Address, Report>,
    /// The latest entry that was registered here, if its view lacks a sequencing replica. Who was cut
    /// off may think that its old view goes on: it is told until it reports.
    incomplete: Option<Box<LogEntry>>,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    view: ViewNumber,
    cannot_start: ViewNumber,
}

impl Report {
    /// Whether a new view would change anything for the reporter. A view that names its node counts on
    /// it, in this life or an earlier one. One that does not has left it out, because it lost what its
    /// shard holds; so would the next one.
    fn can_be_helped(reporter: Address, view: &View) -> bool {
        match reporter {
            Address::Node(node, Endpoint::Shard(shard)) => {
                view.shard(shard).is_some_and(|members| members.replicas.iter().any(|m| m.node == node))
            }
            _ => true,
        }
    }
}

#[derive(Debug)]
enum Phase {
    /// Nothing to do.
    Idle,
    /// The register's entry was asked for.
    Reading,
    /// Step 1: the claim was sent to the register.
    Claiming(Box<LogEntry>),
    /// A step under a claim that was won.
    Attempt(Box<Attempt>),
}

/// An attempt to form the view `entry.claimed`.
#[derive(Debug)]
struct Attempt {
    /// The entry that the claim put into the register.
    entry: LogEntry,
    began: Time,
    step: Step,
    sealed: BTreeMap<NodeId, (Incarnation, Option<SealedState>)>,
    fenced: BTreeMap<(ShardId, NodeId), Incarnation>,
    chosen: Option<Member>,
    shards: Vec<ShardMembers>,
    flushed: Option<Flushed>,
    staged: BTreeMap<NodeId, Incarnation>,
    staging_since: Time,
}

#[derive(Clone, Debug)]
struct Flushed {
    first: Position,
    end: Position,
    sessions: Sessions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Seal,
    Fence,
    Flush,
    Stage,
    Register,
}

impl Machine for Controller {
    type Message = roles::Message;
    type Request = std::convert::Infallible;
    type Reply = std::convert::Infallible;

    fn step(&mut self, now: Time, input: RoleInput, out: &mut Vec<RoleEffect>) {
        match input {
            Input::Message { from, message } => match message {
                roles::Message::Control(message) => self.controlled(now, from, message, out),
                roles::Message::Shard(message) => self.shard_answered(now, from, &message, out),
                _ => {}
            },
            Input::Timer => self.timer(now, out),
            Input::Request { request, .. } => match request {},
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        (!matches!(self.phase, Phase::Idle) || self.incomplete.is_some()).then_some(self.ask_at)
    }
}

impl Controller {
    /// A controller of `log` whose register is on node `register`. `random` differs from that of every
    /// other controller, past or present.
    #[must_use]
    pub fn new(log: LogId, register: NodeId, random: u64, options: Options) -> Self {
        Self {
            log,
            register: Address::Node(register, Endpoint::Register),
            options,
            random,
            attempts: 0,
            phase: Phase::Idle,
            ask_at: Time::ZERO,
            give_up_at: Time::ZERO,
            reports: BTreeMap::new(),
            incomplete: None,
        }
    }

    /// Which step of a view change it is at, for status and for the simulator's counts.
    #[must_use]
    pub fn step_name(&self) -> Option<&'static str> {
        match &self.phase {
            Phase::Idle | Phase::Reading => None,
            Phase::Claiming(_) => Some("claim"),
            Phase::Attempt(attempt) => Some(match attempt.step {
                Step::Seal => "seal",
                Step::Fence => "fence",
                Step::Flush => "flush",
                Step::Stage => "stage",
                Step::Register => "register",
            }),
        }
    }

    fn controlled(&mut self, now: Time, from: Address, message: Message, out: &mut Vec<RoleEffect>) {
        match message {
            Message::Get { .. } => self.begin(now, out),
            Message::Report { view, cannot_start, .. } => {
                self.reports.insert(from, Report { view, cannot_start });
                self.begin(now, out);
            }
            Message::Current { entry } => self.register_answered(now, entry, out),
            Message::Gone { .. } => self.gone(),
            message => self.sequencer_answered(now, from, message, out),
        }
    }

    /// Forgets the log.
    fn gone(&mut self) {
        self.phase = Phase::Idle;
        self.incomplete = None;
    }

    fn begin(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if matches!(self.phase, Phase::Idle) {
            self.enter(now, Phase::Reading, out);
        }
    }

    /// Enters a phase and asks its questions.
    fn enter(&mut self, now: Time, phase: Phase, out: &mut Vec<RoleEffect>) {
        self.phase = phase;
        self.ask(now, out);
    }

    fn timer(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if now < self.ask_at {
            return;
        }
        if matches!(self.phase, Phase::Idle) {
            return self.remind(now, out);
        }
        if matches!(self.phase, Phase::Attempt(_)) && now >= self.give_up_at {
            return self.enter(now, Phase::Reading, out);
        }
        self.proceed(now, out);
        if now >= self.ask_at {
            self.ask(now, out);
        }
    }

    /// Tells those that the registered view does without.
    fn remind(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let Some(entry) = &self.incomplete else { return };
        self.ask_at = now + REMIND_EVERY;
        let takes_part = |node: &NodeId| {
            entry.view.as_ref().is_some_and(|view| view.sequencers.iter().any(|member| member.node == *node))
        };
        for node in entry.sequencers.iter().filter(|node| !takes_part(node)) {
            let to = Address::Node(*node, Endpoint::Sequencer);
            send(to, Message::Registered { entry: (**entry).clone() }, out);
        }
    }

    /// Asks, again if need be, whatever the phase waits for.
    fn ask(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        self.ask_at = now + limits::RESEND_AFTER;
        match &self.phase {
            Phase::Idle => {}
            Phase::Reading => send(self.register, Message::Get { log: self.log }, out),
            Phase::Claiming(entry) => {
                send(self.register, Message::CompareAndSet { entry: (**entry).clone() }, out)
            }
            Phase::Attempt(attempt) => attempt.ask(self.register, self.options, out),
        }
    }

    fn register_answered(&mut self, now: Time, entry: LogEntry, out: &mut Vec<RoleEffect>) {
        match &self.phase {
            Phase::Idle => {}
            Phase::Reading => self.decide(now, entry, out),
            Phase::Claiming(wanted) => {
                let won = entry.claimed == wanted.claimed && entry.claimant == wanted.claimant;
                if won {
                    self.give_up_at = now + limits::ATTEMPT_FOR;
                    let attempt = Box::new(Attempt::new(now, entry));
                    self.enter(now, Phase::Attempt(attempt), out);
                } else if entry.version > wanted.version {
                    // Someone else changed the entry: look whether a view is still needed.
                    self.decide(now, entry, out);
                }
            }
            Phase::Attempt(attempt) => {
                if entry.claimed > attempt.entry.claimed {
                    // Outbid. The winner's attempt makes this one pointless; stand back for a while.
                    self.phase = Phase::Reading;
                    self.ask_at = now + self.backoff();
                } else if entry.view_number() == attempt.entry.claimed {
                    self.registered(&entry, out);
                } else if attempt.step == Step::Register && entry.version > attempt.entry.version {
                    self.phase = Phase::Reading;
                    self.ask_at = now + self.backoff();
                }
            }
        }
    }

    fn backoff(&self) -> std::time::Duration {
        let spread = self.random.wrapping_mul(self.attempts + 1) >> 54;
        limits::RESEND_AFTER + std::time::Duration::from_micros(spread * 200)
    }

    /// Reads in the entry whether those who reported need a new view, or only to be told of one.
    fn decide(&mut self, now: Time, entry: LogEntry, out: &mut Vec<RoleEffect>) {
        let reports = std::mem::take(&mut self.reports);
        let current = entry.view_number();
        let mut needed = entry.view.is_none();
        for (reporter, report) in reports {
            if report.view >= current || report.cannot_start >= current {
                needed |= entry.view.as_ref().is_some_and(|view| Report::can_be_helped(reporter, view));
            } else {
                send(reporter, Message::Registered { entry: entry.clone() }, out);
            }
        }
        if !needed {
            self.phase = Phase::Idle;
            return;
        }
        self.attempts += 1;
        let mut wanted = entry;
        wanted.claimed = wanted.claimed.next();
        wanted.claimant = self.random.wrapping_add(self.attempts);
        self.enter(now, Phase::Claiming(Box::new(wanted)), out);
    }

    fn sequencer_answered(&mut self, now: Time, from: Address, message: Message, out: &mut Vec<RoleEffect>) {
        let (Phase::Attempt(attempt), Address::Node(node, _)) = (&mut self.phase, from) else { return };
        let ours = attempt.entry.claimed;
        match message {
            Message::Sealed { claim, incarnation, state } if claim == ours => {
                attempt.sealed.insert(node, (incarnation, state));
            }
            Message::Flushed { claim, first, end, sessions } if claim == ours => {
                if attempt.step == Step::Flush {
                    attempt.flushed = Some(Flushed { first, end, sessions });
                }
            }
            Message::Staged { claim, incarnation } if claim == ours => {
                attempt.staged.insert(node, incarnation);
            }
            Message::Outbid { claim } if claim > ours => {
                self.phase = Phase::Reading;
                self.ask_at = now + self.backoff();
                return;
            }
            _ => return,
        }
        self.proceed(now, out);
    }

    fn shard_answered(
        &mut self,
        now: Time,
        from: Address,
        message: &shard::Message,
        out: &mut Vec<RoleEffect>,
    ) {
        let Phase::Attempt(attempt) = &mut self.phase else { return };
        let (Address::Node(node, Endpoint::Shard(shard)), shard::Message::Fenced { claim, incarnation }) =
            (from, message)
        else {
            return;
        };
        if *claim == attempt.entry.claimed {
            attempt.fenced.insert((shard, node), *incarnation);
            self.proceed(now, out);
        } else if *claim > attempt.entry.claimed {
            self.phase = Phase::Reading;
            self.ask_at = now + self.backoff();
        }
    }

    /// Goes on to the next step as soon as the present one has what it needs.
    fn proceed(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let Phase::Attempt(attempt) = &mut self.phase else { return };
        match attempt.next_step(now, self.options) {
            Ok(None) => {}
            Ok(Some(step)) => {
                attempt.step = step;
                if step == Step::Stage {
                    attempt.staging_since = now;
                }
                self.ask(now, out);
                self.proceed(now, out);
            }
            Err(why) => self.cannot_form(now, &why, out),
        }
    }

    /// No replica that could still know what was acknowledged is left: says so, and does nothing more
    /// until somebody reports again.
    fn cannot_form(&mut self, now: Time, why: &str, out: &mut Vec<RoleEffect>) {
        let Phase::Attempt(attempt) = &self.phase else { return };
        for node in &attempt.entry.sequencers {
            let to = Address::Node(*node, Endpoint::Sequencer);
            send(to, Message::Unavailable { why: why.to_owned() }, out);
        }
        if attempt.entry.unavailable.as_deref() != Some(why) {
            let entry = LogEntry { unavailable: Some(why.to_owned()), ..attempt.entry.clone() };
            send(self.register, Message::CompareAndSet { entry }, out);
        }
        self.phase = Phase::Reading;
        self.reports.clear();
        self.ask_at = now + limits::ATTEMPT_FOR;
        self.give_up_at = self.ask_at;
    }

    /// Step 8: everyone may start.
    fn registered(&mut self, entry: &LogEntry, out: &mut Vec<RoleEffect>) {
        let Some(view) = &entry.view else { return };
        let sequencers = view.sequencers.iter().map(|member| Address::Node(member.node, Endpoint::Sequencer));
        let shards = view.shards.iter().flat_map(|members| {
            let endpoint = Endpoint::Shard(members.shard);
            members.replicas.iter().map(move |member| Address::Node(member.node, endpoint))
        });
        for to in shards.chain(sequencers) {
            send(to, Message::Registered { entry: entry.clone() }, out);
        }
        self.reports.clear();
        let complete = view.sequencers.len() == entry.sequencers.len();
        self.incomplete = (!complete).then(|| Box::new(entry.clone()));
        self.phase = Phase::Idle;
    }
}

impl Attempt {
    fn new(now: Time, entry: LogEntry) -> Self {
        Self {
            entry,
            began: now,
            step: Step::Seal,
            sealed: BTreeMap::new(),
            fenced: BTreeMap::new(),
            chosen: None,
            shards: vec![],
            flushed: None,
            staged: BTreeMap::new(),
            staging_since: now,
        }
    }

    fn claim(&self) -> ViewNumber {
        self.entry.claimed
    }

    fn old(&self) -> ViewNumber {
        self.entry.view_number()
    }

    /// How many sequencing replicas a view needs at least.
    fn quorum(&self) -> usize {
        self.entry.sequencers.len().min(2)
    }

    fn has_gathered(&self, since: Time, now: Time, answers: usize) -> bool {
        let all = answers >= self.entry.sequencers.len();
        all || answers >= self.quorum() && now >= since + limits::GATHER_FOR
    }

    /// The step to go on with, if the present one is complete; or why there can be no view.
    fn next_step(&mut self, now: Time, options: Options) -> Result<Option<Step>, String> {
        match self.step {
            Step::Seal => {
                if !self.has_gathered(self.began, now, self.sealed.len()) {
                    return Ok(None);
                }
                if self.old() == ViewNumber::NONE {
                    return Ok(Some(Step::Fence));
                }
                self.chosen = self.choose();
                match self.chosen {
                    Some(_) => Ok(Some(Step::Fence)),
                    None if self.sealed.len() < self.entry.sequencers.len() => Ok(None),
                    None => Err(lost("sequencing replicas")),
                }
            }
            Step::Fence if options.deviates(Deviation::FenceSkipped) && self.old() != ViewNumber::NONE => {
                self.shards = self.entry.view.as_ref().map(|view| view.shards.clone()).unwrap_or_default();
                Ok(Some(Step::Flush))
            }
            Step::Fence => {
                let wanted: usize = self.entry.shards.iter().map(Vec::len).sum();
                if self.fenced.len() < wanted {
                    return Ok(None);
                }
                self.shards = self.counted_on()?;
                if self.chosen.is_none() {
                    let nothing =
                        Flushed { first: Position::ZERO, end: Position::ZERO, sessions: Sessions::default() };
                    self.flushed = Some(nothing);
                    return Ok(Some(Step::Stage));
                }
                Ok(Some(Step::Flush))
            }
            Step::Flush => Ok(self.flushed.as_ref().map(|_| Step::Stage)),
            Step::Stage => {
                let done = self.has_gathered(self.staging_since, now, self.staged.len());
                Ok(done.then_some(Step::Register))
            }
            Step::Register => Ok(None),
        }
    }

    /// Step 3: a sealed replica that the old view names, this life of it. The one that got furthest has
    /// the least to flush.
    fn choose(&self) -> Option<Member> {
        let view = self.entry.view.as_ref()?;
        let candidates = self.sealed.iter().filter_map(|(node, (incarnation, state))| {
            let member = Member { node: *node, incarnation: *incarnation };
            let state = state.as_ref()?;
            view.names_sequencer(member).then_some((state.ordered, *node == view.leader, member))
        });
        candidates.max().map(|(_, _, member)| member)
    }

    /// The replicas of each shard that hold everything that the old view's did.
    fn counted_on(&self) -> Result<Vec<ShardMembers>, String> {
        let mut shards = vec![];
        for (index, nodes) in self.entry.shards.iter().enumerate() {
            let shard = ShardId(index as u32);
            let old = self.entry.view.as_ref().and_then(|view| view.shard(shard));
            let replicas: Vec<Member> = nodes
                .iter()
                .map(|node| Member { node: *node, incarnation: self.fenced[&(shard, *node)] })
                .filter(|member| old.is_none_or(|old| old.replicas.contains(member)))
                .collect();
            if replicas.is_empty() {
                return Err(lost(&format!("replicas of shard {shard}")));
            }
            shards.push(ShardMembers { shard, replicas });
        }
        Ok(shards)
    }

    fn placement(&self) -> Placement {
        match &self.entry.view {
            Some(view) => view.placement.clone(),
            None => {
                let shards = (0..self.entry.config.shards).map(ShardId).collect();
                Placement::new(shards, self.entry.config.stripe)
            }
        }
    }

    /// The new view, as far as it is known.
    fn view(&self, options: Options) -> View {
        let sequencers: Vec<Member> = self
            .entry
            .sequencers
            .iter()
            .filter_map(|node| {
                self.staged.get(node).map(|incarnation| Member { node: *node, incarnation: *incarnation })
            })
            .collect();
        let chosen = self.chosen.map(|chosen| chosen.node);
        let old_leader = chosen.filter(|chosen| self.staged.contains_key(chosen));
        let leader = old_leader.or(sequencers.first().map(|member| member.node)).unwrap_or_default();
        let (first, start) = self
            .flushed
            .as_ref()
            .map_or((Position::ZERO, Position::ZERO), |flushed| (flushed.first, flushed.end));
        let first = if options.deviates(Deviation::FirstAfterFlush) { start } else { first };
        View {
            number: self.claim(),
            sequencers,
            leader,
            shards: self.shards.clone(),
            placement: self.placement(),
            first,
            start,
        }
    }

    fn ask(&self, register: Address, options: Options, out: &mut Vec<RoleEffect>) {
        let claim = self.claim();
        let config = &self.entry.config;
        let sequencers = |answered: &BTreeMap<NodeId, _>| {
            let missing = self.entry.sequencers.iter().filter(|node| !answered.contains_key(node));
            missing.map(|node| Address::Node(*node, Endpoint::Sequencer)).collect::<Vec<_>>()
        };
        match self.step {
            Step::Seal => {
                let answered =
                    self.sealed.iter().map(|(node, (incarnation, _))| (*node, *incarnation)).collect();
                for to in sequencers(&answered) {
                    let message = Message::Seal { claim, old: self.old(), config: config.clone() };
                    send(to, message, out);
                }
            }
            Step::Fence => {
                for (index, nodes) in self.entry.shards.iter().enumerate() {
                    let shard = ShardId(index as u32);
                    for node in nodes.iter().filter(|node| !self.fenced.contains_key(&(shard, **node))) {
                        let to = Address::Node(*node, Endpoint::Shard(shard));
                        send(to, shard::Message::Fence { claim, config: config.clone() }, out);
                    }
                }
            }
            Step::Flush => {
                let Member { node, incarnation } = self.chosen.expect("a flush has a chosen replica");
                let message =
                    Message::Flush { claim, old: self.old(), incarnation, view: self.view(options) };
                send(Address::Node(node, Endpoint::Sequencer), message, out);
            }
            Step::Stage => {
                let Flushed { end, sessions, .. } = self.flushed.clone().expect("staging follows the flush");
                for to in sequencers(&self.staged) {
                    let message = Message::Stage { claim, ordered: end, sessions: sessions.clone() };
                    send(to, message, out);
                }
            }
            Step::Register => {
                let view = self.view(options);
                let mut entry = self.entry.clone();
                entry.history.push(view.number, view.first);
                entry.unavailable = None;
                entry.view = Some(view);
                send(register, Message::CompareAndSet { entry }, out);
            }
        }
    }
}

fn lost(what: &str) -> String {
    format!(
        "all {what} restarted without their memory, and the log's durability is 'memory': \
         appends that were not stable may be lost, so no view can be formed; what is stable can be read"
    )
}

fn send(to: Address, message: impl Into<roles::Message>, out: &mut Vec<RoleEffect>) {
    out.push(RoleEffect::Send { to, message: message.into() });
}
