//! The controller of one log on one node: drives view changes (docs/design/views.md, "View
//! change").
//!
//! It needs no durable state: another controller can start over with a higher claim, and the
//! register decides between rivals. It retransmits questions. Answers carry the claim, so late ones
//! are recognised.
//!
//! Every node has one. The first controller that notices a need claims a view number. The others
//! wait a little, in the view's order of nodes, and wait for rival claims to end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::{
    Address, Endpoint, Gap, Input, LogEntry, LogId, Machine, Member, NodeId, ShardId, ShardMembers, Time,
    ViewNumber,
};

use super::attempt::{Attempt, Liveness, Step};
use super::evidence::Evidence;
use super::members::{Wish, dismiss, has_spares, left_out, named, retired, view_nodes};
use super::message::{Message, NodeAddress};
use super::operator::Orders;
use super::pace::Pace;
use super::rejoin_backoff::RejoinBackoff;
use super::retaining::{Retaining, Trimmed};
use super::room::{FullDisks, can_do_without};
use super::stale_register::{Known, Verdict};
use super::timings::Timings;
use super::{send, shard_set};
use crate::mutation::{Mutation, Options};
use crate::roles::{self, RoleEffect, RoleInput};
use crate::shard;

mod absences;
mod blocked;
mod copies;
mod giving_up;
mod goal;
mod leaving;
mod reminding;
mod rivals;

use absences::Absences;
use copies::{can_copy, look_after_copies};
use giving_up::{Inquiry, asks_of_retired_first};
use leaving::Leaving;

/// Interval of reminders to excluded roles.
const REMIND_EVERY: Duration = Duration::from_secs(1);
/// Wait of this node before it acts, for each live node that precedes it in the view.
const STAGGER: Duration = Duration::from_millis(15);

/// Drives the view changes of one log.
#[derive(Clone, Debug)]
pub struct Controller {
    log: LogId,
    node: NodeId,
    register: Address,
    options: Options,
    pace: Pace,
    phase: Phase,
    /// When to repeat the phase's questions.
    ask_at: Time,
    /// When the timer last checked whether the step is complete.
    looked_at: Time,
    /// When to abandon an attempt that makes no progress.
    give_up_at: Time,
    /// Roles that asked for a view since the last read of the register.
    reports: BTreeMap<Address, Report>,
    /// The latest entry with a view.
    current: Option<Box<LogEntry>>,
    /// The latest view that any node reported as registered.
    known: Known,
    /// The view that must be replaced.
    wanted: Option<ViewNumber>,
    /// The highest claim that this controller made or waited for. It waits only for higher ones.
    stood_back_for: ViewNumber,
    /// The live node that made this claim, while this controller waits for it.
    rival: Option<NodeId>,
    /// When rivals were last notified.
    announced_at: Time,
    nodes: BTreeSet<NodeId>,
    suspected: BTreeSet<NodeId>,
    silent_since: BTreeMap<NodeId, Time>,
    full: FullDisks,
    /// Members that were suspected when the latest view was formed: they cause no new view.
    tolerated: BTreeSet<NodeId>,
    /// Former members that the latest view excludes, and that have not reported since.
    dropped: BTreeSet<Address>,
    /// When to check whether a view is needed.
    look_at: Option<Time>,
    rejoin: RejoinBackoff,
    /// Whether an attempt failed since the last view; then the next one admits no new shard.
    is_joining_hard: bool,
    absences: Absences,
    orders: Orders,
    /// The survey of retired shards for an operator's question, and the number of surveys so far.
    inquiry: Option<Inquiry>,
    inquiries: u64,
    /// Abandoned positions of retired shards.
    given_up: Vec<Gap>,
    /// Whether the operator also accepts the loss that prevents a view.
    gives_up_all: bool,
    /// Replicas of retired shards with records that the latest view does not list as copies.
    keepers: BTreeSet<Address>,
    /// Number of failed flush reads of each shard.
    unreadable: BTreeMap<ShardId, usize>,
    timings: Timings,
    retaining: Retaining,
    leaving: Leaving,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    view: ViewNumber,
    cannot_start: ViewNumber,
}

#[derive(Clone, Debug)]
enum Phase {
    Idle,
    Reading,
    /// Waits for another controller's view, or until a view may be possible.
    Resting,
    /// Step 1 of a view change.
    Claiming(Box<LogEntry>),
    /// Steps 2 to 7 of a view change.
    Attempt(Box<Attempt>),
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
            Input::Suspected(node) => self.became_suspected(now, node, out),
            Input::Alive(node) => self.heard(now, node, out),
            Input::FullDisk(node, is_full) => self.disk_is(now, node, is_full, out),
            Input::Wall(wall_ms) => self.retaining.note_wall(wall_ms),
            Input::Wake => {
                self.inquire(now, Input::Wake, out);
                self.retaining.go_on(now, self.register, self.options, out);
                self.timer(now, out);
            }
            Input::Request { request, .. } => match request {},
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        let of_views = match &self.phase {
            Phase::Idle => self.look_at,
            Phase::Attempt(attempt) if matches!(attempt.step, Step::Seal | Step::Fence | Step::Stage) => {
                // Once per step: the time after which the necessary answers suffice.
                let gathered = Some(attempt.gathers_until()).filter(|at| *at > self.looked_at);
                [gathered, Some(self.ask_at), Some(self.give_up_at)].into_iter().flatten().min()
            }
            Phase::Attempt(_) => Some(self.ask_at.min(self.give_up_at)),
            _ => Some(self.ask_at),
        };
        let of_inquiry = self.inquiry.as_ref().and_then(Inquiry::deadline);
        [of_views, of_inquiry, self.retaining.deadline()].into_iter().flatten().min()
    }
}

impl Controller {
    /// The controller of `log` on `node`; the register answers at node `register`. `random` is
    /// unique among all controllers, past and present.
    #[must_use]
    pub fn new(log: LogId, node: NodeId, register: NodeId, random: u64, options: Options) -> Self {
        Self {
            log,
            node,
            register: Address::Node(register, Endpoint::Register),
            options,
            pace: Pace::new(random, options),
            phase: Phase::Idle,
            ask_at: Time::ZERO,
            looked_at: Time::ZERO,
            give_up_at: Time::ZERO,
            reports: BTreeMap::new(),
            current: None,
            known: Known::default(),
            wanted: None,
            stood_back_for: ViewNumber::NONE,
            rival: None,
            announced_at: Time::ZERO,
            nodes: BTreeSet::from([node]),
            suspected: BTreeSet::new(),
            silent_since: BTreeMap::new(),
            full: FullDisks::default(),
            tolerated: BTreeSet::new(),
            dropped: BTreeSet::new(),
            look_at: None,
            rejoin: RejoinBackoff::default(),
            is_joining_hard: false,
            absences: Absences::default(),
            orders: Orders::default(),
            inquiry: None,
            inquiries: 0,
            given_up: vec![],
            gives_up_all: false,
            keepers: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            timings: Timings::default(),
            retaining: Retaining::default(),
            leaving: Leaving::default(),
        }
    }

    /// Shard replicas of the view under way, for the simulator; empty before the flush.
    #[must_use]
    pub fn flushes_to(&self) -> &[ShardMembers] {
        match &self.phase {
            Phase::Attempt(attempt) => attempt.members_of_shards(),
            _ => &[],
        }
    }

    /// The view under way and its chosen sequencing replica, for the simulator.
    #[must_use]
    pub fn chosen(&self) -> Option<(ViewNumber, Member)> {
        let Phase::Attempt(attempt) = &self.phase else { return None };
        Some((attempt.claim(), attempt.evidence.chosen()?))
    }

    /// The step under way.
    #[must_use]
    pub fn step_name(&self) -> Option<&'static str> {
        match &self.phase {
            Phase::Idle | Phase::Reading | Phase::Resting => None,
            Phase::Claiming(_) => Some("claim"),
            Phase::Attempt(attempt) => Some(attempt.step.name()),
        }
    }

    /// The latest entry with a view.
    #[must_use]
    pub fn entry(&self) -> Option<&LogEntry> {
        self.current.as_deref()
    }

    /// Duration of the last view change here, from noticing the need.
    #[must_use]
    pub fn last_change_took(&self) -> Option<Duration> {
        self.timings.took()
    }

    /// The latest trim to a limit by this controller.
    #[must_use]
    pub fn last_retained(&self) -> Option<Trimmed> {
        self.retaining.trimmed()
    }

    /// Whether it reads the register or forms a view.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Resting)
    }

    fn controlled(&mut self, now: Time, from: Address, message: Message, out: &mut Vec<RoleEffect>) {
        match message {
            Message::Get { .. } => self.begin(now, out),
            Message::Report { view, cannot_start, .. } => {
                self.reports.insert(from, Report { view, cannot_start });
                self.dropped.remove(&from);
                if let Address::Node(node, _) = from {
                    self.known.note(node, view.max(cannot_start));
                }
                if !self.is_postponed(now, from) {
                    self.begin(now, out);
                }
            }
            Message::Current { entry } => {
                let confirmed = entry.view_number();
                self.register_answered(now, entry, out);
                self.retaining.confirmed(now, confirmed, self.options, out);
            }
            Message::Underway { claim } if self.rival.is_some() && claim >= self.stood_back_for => {
                self.stood_back_for = claim;
                self.ask_at = self.ask_at.max(now + self.options.limits.attempt_for);
            }
            Message::Registered { entry } => {
                let before = self.current.as_ref().map(|known| known.view_number());
                self.learn(now, &entry);
                self.rejoin.told_of(before, &entry, self.liveness().able().count());
            }
            Message::Gone { .. } => self.gone(),
            Message::Cluster { nodes } => {
                for NodeAddress { node, .. } in nodes {
                    if self.nodes.insert(node) {
                        self.remind_roles_of(node, out);
                    }
                }
            }
            Message::Partings { partings } => self.told_of_partings(now, partings, out),
            Message::Recover { request, accepts } => {
                if self.orders.take(now, from, request, accepts) {
                    (self.given_up, self.gives_up_all) = (vec![], false);
                    self.begin_at_once(now, out);
                }
            }
            Message::LastChange { request } => {
                let (view, steps) = self.timings.last(now);
                send(from, Message::LastChangeIs { request, view, steps }, out);
            }
            message => self.sequencer_answered(now, from, message, out),
        }
    }

    fn gone(&mut self) {
        (self.phase, self.rival) = (Phase::Idle, None);
        self.look_at = None;
        self.current = None;
        self.retaining.learn(Time::ZERO, self.node, None, self.options);
        self.known = Known::default();
        self.wanted = None;
        self.dropped.clear();
    }

    fn begin(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if matches!(self.phase, Phase::Idle) {
            self.timings.noticed(now);
            self.enter(now, Phase::Reading, out);
        }
    }

    fn begin_at_once(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if matches!(self.phase, Phase::Resting) {
            (self.phase, self.rival) = (Phase::Idle, None);
        }
        self.begin(now, out);
    }

    fn enter(&mut self, now: Time, phase: Phase, out: &mut Vec<RoleEffect>) {
        (self.phase, self.rival) = (phase, None);
        self.pace.restart_questions();
        self.ask(now, out);
    }

    /// Waits for `pause` before it reads the register again.
    fn rest(&mut self, now: Time, pause: Duration) {
        self.phase = Phase::Resting;
        self.rival = None;
        self.ask_at = now + pause;
    }

    fn timer(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        match &self.phase {
            Phase::Idle if self.look_at.is_some_and(|at| now >= at) => {
                self.look_at = None;
                self.remind(now, out);
                self.tolerated.clear();
                self.begin(now, out);
            }
            Phase::Idle => {}
            Phase::Resting if now >= self.ask_at => self.enter(now, Phase::Reading, out),
            Phase::Attempt(_) if now >= self.give_up_at => self.give_up(now, out),
            Phase::Attempt(_) => {
                self.looked_at = now;
                self.choose_again(now);
                self.proceed(now, out);
                if now >= self.ask_at {
                    self.ask(now, out);
                }
            }
            _ if now >= self.ask_at => self.ask(now, out),
            _ => {}
        }
    }

    /// Abandons the attempt, since a role is silent. The next attempt may exclude that role.
    fn give_up(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        self.pace.gives_up();
        // A joining shard may be the cause.
        self.is_joining_hard = true;
        self.enter(now, Phase::Reading, out);
    }

    fn choose_again(&mut self, now: Time) {
        if let Phase::Attempt(attempt) = &mut self.phase
            && self.options.mutates(Mutation::OneNumberTwice)
        {
            attempt.choose_another(now);
        }
    }

    fn liveness(&self) -> Liveness<'_> {
        let (full, partings) = (self.full.nodes(), &self.leaving.partings);
        let silent_since = &self.silent_since;
        Liveness { nodes: &self.nodes, suspected: &self.suspected, silent_since, full, partings }
    }

    fn ask(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        self.ask_at = self.pace.asked(now);
        match &self.phase {
            Phase::Idle | Phase::Resting => {}
            Phase::Reading => send(self.register, Message::Get { log: self.log }, out),
            Phase::Claiming(entry) => {
                send(self.register, Message::CompareAndSet { entry: (**entry).clone() }, out)
            }
            Phase::Attempt(attempt) => attempt.ask(self.register, self.liveness(), self.options, out),
        }
    }

    fn register_answered(&mut self, now: Time, entry: LogEntry, out: &mut Vec<RoleEffect>) {
        let known = self.current.as_ref().map(|known| known.view_number());
        self.learn(now, &entry);
        match &mut self.phase {
            Phase::Idle | Phase::Resting => {}
            Phase::Reading => {
                self.decide(now, entry, out);
                if matches!(self.phase, Phase::Idle) {
                    self.pass_on_news(known, out);
                }
            }
            Phase::Claiming(wanted) => {
                let won = entry.claimed == wanted.claimed && entry.claimant == wanted.claimant;
                if won {
                    self.timings.reached(now, "claim");
                    (self.give_up_at, self.announced_at) = (now + self.pace.timeout(), now);
                    let evidence = Evidence::new(entry, self.unreadable.clone(), self.options);
                    let attempt = Attempt::new(now, evidence, goal::goal(self, now));
                    self.enter(now, Phase::Attempt(Box::new(attempt)), out);
                } else if entry.version > wanted.version {
                    // The entry changed; a view may not be needed any more.
                    self.decide(now, entry, out);
                }
            }
            Phase::Attempt(attempt) => {
                if entry.claimed > attempt.claim() {
                    // Preempted.
                    self.stand_back(now, &entry, out);
                } else if entry.view_number() == attempt.claim() {
                    self.registered(now, &entry, out);
                } else if attempt.step == Step::Register && attempt.takes_pins_of(&entry) {
                    self.ask(now, out);
                } else if attempt.step == Step::Register && entry.version > attempt.entry().version {
                    self.rest(now, self.pace.backoff());
                }
            }
        }
    }

    fn learn(&mut self, now: Time, entry: &LogEntry) {
        let known = self.current.as_ref().map(|known| (known.view_number(), known.version));
        let Some(view) = &entry.view else { return };
        self.known.note(self.node, view.number);
        if known.is_some_and(|known| (entry.view_number(), entry.version) <= known) {
            return;
        }
        if self.wanted.is_some_and(|unwanted| unwanted < view.number) {
            self.wanted = None;
        }
        self.absences.learn(now, entry);
        if known.is_none_or(|(known, _)| view.number > known) {
            self.tolerated =
                view_nodes(view).into_iter().filter(|node| self.suspected.contains(node)).collect();
            self.look_at = None;
            self.full.bear(view);
            if self.orders.is_pending() {
                // Another controller may have formed this view without the operator's request:
                // checks again.
                self.look_after(now, STAGGER);
            }
        }
        let able = self.liveness().able().collect();
        self.rejoin.learned(now, self.current.as_deref(), entry, &able);
        self.dropped.extend(self.current.iter().flat_map(|known| named(known).chain(retired(known))));
        self.dropped.retain(|role| named(entry).chain(retired(entry)).all(|named| named != *role));
        self.current = Some(Box::new(entry.clone()));
        self.retaining.learn(now, self.node, Some(entry), self.options);
        look_after_copies(self, now);
        let is_unfinished = self.absences.is_any_short() || self.full.is_in(entry) || self.is_left_by_some();
        if !self.tolerated.is_empty() || self.are_some_away() || is_unfinished {
            self.look_after(now, REMIND_EVERY + STAGGER * self.rank());
        }
        if self.rival.is_some() && entry.view_number() >= self.stood_back_for {
            (self.phase, self.rival) = (Phase::Idle, None);
            if !self.reports.is_empty() {
                self.look_after(now, STAGGER * self.rank());
            }
        }
    }

    fn look_after(&mut self, now: Time, pause: Duration) {
        let at = now + pause;
        self.look_at = Some(self.look_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Number of live members that should act before this node.
    fn rank(&self) -> u32 {
        let nodes = self.current.as_ref().and_then(|entry| entry.view.as_ref()).map(view_nodes);
        let nodes: Vec<NodeId> =
            nodes.unwrap_or_default().into_iter().filter(|node| !self.suspected.contains(node)).collect();
        nodes.iter().position(|node| *node == self.node).unwrap_or(nodes.len()) as u32
    }

    fn became_suspected(&mut self, now: Time, node: NodeId, out: &mut Vec<RoleEffect>) {
        if !self.suspected.insert(node) {
            return;
        }
        self.silent_since.insert(node, now);
        self.tolerated.remove(&node);
        if self.rival == Some(node) {
            self.rival = None;
            self.ask_at = self.ask_at.min(now + STAGGER * self.rank());
        }
        if let Phase::Attempt(attempt) = &mut self.phase {
            if attempt.became_suspected(node) {
                return self.enter(now, Phase::Reading, out);
            }
            return self.proceed(now, out);
        }
        look_after_copies(self, now);
        let view = self.current.as_ref().and_then(|entry| entry.view.as_ref());
        if view.is_some_and(|view| view_nodes(view).contains(&node)) {
            self.act_in_turn(now, out);
        }
    }

    fn act_in_turn(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        match self.rank() {
            0 => self.begin(now, out),
            rank => self.look_after(now, STAGGER * rank),
        }
    }

    /// Once a disk has room again, its node's roles receive the view, and ask to return.
    fn disk_is(&mut self, now: Time, node: NodeId, is_full: bool, out: &mut Vec<RoleEffect>) {
        if self.options.mutates(Mutation::FullDiskIgnored) || !self.full.note(node, is_full) {
            return;
        }
        let others_do = self.current.as_ref().is_some_and(|entry| can_do_without(entry, self.liveness()));
        match &self.phase {
            _ if !is_full => self.remind_roles_of(node, out),
            Phase::Attempt(attempt) if others_do && attempt.counts_on(node) => {
                self.enter(now, Phase::Reading, out);
            }
            Phase::Idle if others_do => self.act_in_turn(now, out),
            _ => {}
        }
    }

    /// Sends the view again: the node may not know that it is excluded, or may have lost its disk.
    fn heard(&mut self, now: Time, node: NodeId, out: &mut Vec<RoleEffect>) {
        let was_suspected = self.suspected.remove(&node);
        self.silent_since.remove(&node);
        match &self.phase {
            Phase::Attempt(_) if was_suspected => self.ask(now, out),
            Phase::Resting if was_suspected && self.wanted.is_some() => {
                self.ask_at = now.max(self.ask_at.min(now + STAGGER))
            }
            _ => self.remind_roles_of(node, out),
        }
    }

    /// Whether a report only asks for a return that is not due yet.
    fn is_postponed(&self, now: Time, reporter: Address) -> bool {
        let Some(entry) = &self.current else { return false };
        let is_late = now >= self.rejoin.returns_at(reporter) && !self.full.has(reporter);
        !is_late && Wish::of(entry, reporter) == Wish::Rejoin
    }

    /// Decides whether a new view is needed; if not, answers an operator.
    fn decide(&mut self, now: Time, entry: LogEntry, out: &mut Vec<RoleEffect>) {
        match self.known.judge(now, entry.view_number()) {
            Verdict::Sound => {}
            Verdict::Doubtful => return self.rest(now, self.pace.backoff()),
            Verdict::Behind(blocked) => return self.cannot_form(now, entry, &blocked, out),
        }
        let needed = self.find_need(now, &entry, out);
        if !needed {
            self.phase = Phase::Idle;
            let is_unfinished = self.full.is_in(&entry) || self.is_left_by_some();
            if self.are_some_away() || self.absences.is_any_short() || is_unfinished {
                self.look_after(now, REMIND_EVERY);
            }
            look_after_copies(self, now);
            return self.answer_of_retired(now, &entry, out);
        }
        self.wanted = Some(entry.view_number());
        if asks_of_retired_first(self, now, &entry, out) {
            return;
        }
        // A claim by this node that it does not know is from before a restart: no attempt is under
        // way.
        let is_alive = entry.claimant_node() != self.node;
        if is_alive && entry.claimed > entry.view_number().max(self.stood_back_for) {
            return self.stand_back(now, &entry, out);
        }
        self.rejoin.tries(shard_set::due(&entry, self.liveness().able().count()));
        let (claimed, claimant) = (entry.claimed.next(), self.pace.attempt(self.node));
        let wanted = LogEntry { claimed, claimant, ..entry };
        self.stood_back_for = claimed;
        self.enter(now, Phase::Claiming(Box::new(wanted)), out);
    }

    fn find_need(&mut self, now: Time, entry: &LogEntry, out: &mut Vec<RoleEffect>) -> bool {
        let current = entry.view_number();
        let Some(view) = &entry.view else { return true };
        let is_asked_for = self.orders.is_pending() && entry.unavailable.is_some();
        // The times at which roles that ask to return may do so.
        let mut grows_at = vec![];
        let mut grows = can_do_without(entry, self.liveness());
        let mut needed = self.wanted == Some(current) || is_asked_for || grows && self.full.surprise(entry);
        for (reporter, report) in std::mem::take(&mut self.reports) {
            if report.view < current && report.cannot_start < current {
                send(reporter, Message::Registered { entry: entry.clone() }, out);
                continue;
            }
            match Wish::of(entry, reporter) {
                Wish::View => needed = true,
                Wish::Rejoin if self.full.has(reporter) || self.is_stood_in_for(entry, reporter) => {}
                Wish::Rejoin => grows_at.push(self.rejoin.returns_at(reporter)),
                Wish::Nothing => {}
                // A spare that no view named has no records.
                Wish::Keep => grows |= report.view > ViewNumber::NONE && self.keepers.insert(reporter),
                Wish::Leave => {
                    // An unfinished claim may have staged or fenced the role, which then obeys the
                    // claim and not this message. A new view resolves the claim.
                    grows |= entry.claimed > current;
                    dismiss(entry, reporter, out);
                }
            }
        }
        needed |= view_nodes(view).iter().any(|node| self.is_gone(*node));
        grows |=
            can_copy(self, now, entry) || has_spares(entry, &goal::goal(self, now).replaces, self.liveness());
        // The registered entry says that no view can be formed. A view may be needed although no
        // role asks, since the reporter may have restarted. But a reporter that is cut off reports
        // repeatedly, so the view must wait.
        grows |= entry.unavailable.is_some();
        let due = shard_set::due(entry, self.liveness().able().count());
        grows |= due.is_some();
        needed |= due.is_some_and(|due| self.rejoin.is_new_request(&due));
        grows |= self.may_be_left(entry);
        grows_at.extend(grows.then(|| self.rejoin.retry_at()));
        let grows_at = grows_at.into_iter().min();
        if let Some(at) = grows_at.filter(|at| !needed && *at > now) {
            self.look_after(now, at - now);
        }
        needed || grows_at.is_some_and(|at| at <= now)
    }

    fn sequencer_answered(&mut self, now: Time, from: Address, message: Message, out: &mut Vec<RoleEffect>) {
        let Address::Node(node, _) = from else { return };
        if let Message::Ahead { view, .. } = message {
            self.known.note(node, view);
        }
        let Phase::Attempt(attempt) = &mut self.phase else { return };
        let ours = attempt.claim();
        let is_news = match message {
            Message::Sealed { claim, incarnation, state } if claim == ours => {
                attempt.note_sealed(node, incarnation, state)
            }
            Message::Flushing { claim, bound } if claim == ours => attempt.note_flushing(bound),
            Message::Flushed { claim, first, end, carried } if claim == ours => {
                attempt.note_flushed(first, end, carried)
            }
            Message::Staged { claim, incarnation } if claim == ours => attempt.note_staged(node, incarnation),
            // During registration, the later view may be ours.
            Message::Ahead { claim, view }
                if claim == ours && view > attempt.old() && attempt.step < Step::Register =>
            {
                let entry = attempt.entry().clone();
                let blocked = self.known.prove(now, entry.view_number());
                return self.cannot_form(now, entry, &blocked, out);
            }
            // Equal numbers: the role has a view of that number. During registration it is ours;
            // before that, the register gave the number twice.
            Message::Preempted { claim }
                if claim > ours || claim == ours && attempt.step < Step::Register =>
            {
                return self.rest(now, self.pace.backoff());
            }
            _ => false,
        };
        self.progressed(now, is_news, out);
    }

    /// Only new answers give the attempt more time.
    fn progressed(&mut self, now: Time, is_news: bool, out: &mut Vec<RoleEffect>) {
        if is_news {
            if !self.options.mutates(Mutation::AttemptByTheClock) {
                self.give_up_at = now + self.pace.timeout();
            }
            self.tell_rivals(now, out);
            self.proceed(now, out);
        }
    }

    fn shard_answered(
        &mut self,
        now: Time,
        from: Address,
        message: &shard::Message,
        out: &mut Vec<RoleEffect>,
    ) {
        self.full.pass_on_trim(self.node, self.current.as_deref(), from, message, out);
        if let shard::Message::Surveyed(answer) = message {
            self.retaining.answered(now, from, answer, self.options, out);
            return self.surveyed(now, from, answer, out);
        }
        let Address::Node(node, Endpoint::Shard(shard)) = from else { return };
        if let shard::Message::Whole { view } = message {
            return self.note_whole(now, (shard, node), *view, out);
        }
        let Phase::Attempt(attempt) = &mut self.phase else { return };
        let ours = attempt.claim();
        let is_news = match message {
            shard::Message::Fenced { claim, incarnation, held } if *claim == ours => {
                attempt.note_fenced(shard, node, *incarnation, *held)
            }
            shard::Message::Fenced { claim, .. } if *claim > ours => {
                return self.rest(now, self.pace.backoff());
            }
            shard::Message::Flushed { claim, upto } if *claim == ours => {
                attempt.note_shard_flushed(shard, node, *upto)
            }
            shard::Message::FlushFailed { claim } if *claim == ours && attempt.step == Step::Flush => {
                // This replica may have flushed a part, so another one may flush only under a new
                // claim.
                *self.unreadable.entry(shard).or_default() += 1;
                return self.give_up(now, out);
            }
            _ => false,
        };
        self.progressed(now, is_news, out);
    }

    /// Enters the next step if this one is complete.
    fn proceed(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let (full, partings) = (self.full.nodes(), &self.leaving.partings);
        let silent_since = &self.silent_since;
        let liveness =
            Liveness { nodes: &self.nodes, suspected: &self.suspected, silent_since, full, partings };
        let Phase::Attempt(attempt) = &mut self.phase else { return };
        let (done, spares) = (attempt.step, attempt.spares());
        match attempt.next_step(now, liveness, self.options) {
            Ok(None) => {
                if attempt.spares() > spares {
                    self.ask(now, out);
                }
            }
            Ok(Some(step)) => {
                attempt.enter(now, step);
                self.pace.restart_questions();
                self.timings.reached(now, done.name());
                self.ask(now, out);
                self.proceed(now, out);
            }
            Err(blocked) => {
                let entry = attempt.entry().clone();
                self.cannot_form(now, entry, &blocked, out);
            }
        }
    }

    /// Step 8 of a view change.
    fn registered(&mut self, now: Time, entry: &LogEntry, out: &mut Vec<RoleEffect>) {
        let Some(view) = &entry.view else { return };
        let Phase::Attempt(attempt) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        self.timings.registered(now, view.number);
        let others = view_nodes(view).into_iter().filter(|node| *node != self.node);
        let controllers = others.map(|node| Address::Node(node, Endpoint::Controller));
        let away = left_out(entry).chain(self.dropped.iter().copied());
        for to in named(entry).chain(controllers).chain(away).chain(retired(entry)) {
            send(to, Message::Registered { entry: entry.clone() }, out);
        }
        let is_asked_of_retired = self.answer_registered(&attempt, view, out);
        self.pace.succeeded();
        self.is_joining_hard = false;
        self.reports.clear();
        // Tolerates members that were suspected before registration, but not nodes that became
        // suspected during it.
        self.tolerated.retain(|node| !attempt.left().contains(node));
        if is_asked_of_retired || view_nodes(view).iter().any(|node| self.is_gone(*node)) {
            self.begin(now, out);
        }
    }

    /// Whether a view with this node should be replaced.
    fn is_gone(&self, node: NodeId) -> bool {
        self.suspected.contains(&node) && !self.tolerated.contains(&node)
    }
}
