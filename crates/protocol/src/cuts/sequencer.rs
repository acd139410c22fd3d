//! A member of the ordering layer: it holds cuts, makes them as leader, and hands them over when
//! its view ends.

use std::collections::VecDeque;

use bytes::Bytes;
use seriatim_model::{
    Address, Durability, Endpoint, Input, LogConfig, Machine, Member, Position, SessionId, Ticket, Time,
    View, ViewNumber, limits,
};

use super::ShardMessage;
use super::cut::Cut;
use super::leader::Leader;
use super::memory::JournalRecord;
use super::message::{Message, Place};
use super::owed::Owed;
use super::quotas::Quotas;
use super::view_change::Flush;
use super::window::{Window, Windows};
use crate::control;
use crate::mutation::{Mutation, Options};
use crate::parts::membership::Staged;
use crate::parts::{Gate, Membership, Sessions, sequencing};
use crate::roles::{self, RoleEffect, RoleInput, SequencingRole};
use crate::shard;

/// One member of the ordering layer of one log.
///
/// Invariant: `cuts` are consecutive from `bound` on. Cuts below `bound` are on all replicas of the
/// shards, or were when their view ended. `sessions` reflect all cuts ever held.
#[derive(Clone, Debug)]
pub struct Sequencer {
    pub(super) membership: Membership,
    pub(super) config: LogConfig,
    pub(super) options: Options,
    pub(super) gate: Gate,
    pub(super) cuts: VecDeque<Cut>,
    /// Start of the first held cut.
    pub(super) bound: Position,
    pub(super) sessions: Sessions,
    /// The latest claim that sealed this member since its process started.
    pub(super) sealed_for: ViewNumber,
    pub(super) flush: Option<Flush>,
    pub(super) leader: Option<Leader>,
    /// The quotas with which its view began.
    pub(super) quotas: Quotas,
    pub(super) owed: Owed,
    /// Progress of the view's windows, if the member has seen the view start. No replica knows a
    /// window of the view before all members have.
    pub(super) windows: Option<Windows>,
}

impl Machine for Sequencer {
    type Message = roles::Message;
    type Request = std::convert::Infallible;
    type Reply = std::convert::Infallible;

    fn step(&mut self, now: Time, input: RoleInput, out: &mut Vec<RoleEffect>) {
        match input {
            Input::Message { from, message } => match message {
                roles::Message::Cuts(message) => self.receive(now, from, message, out),
                roles::Message::Sequencing(message) => self.asked(from, message, out),
                message @ (roles::Message::Shard(_) | roles::Message::CutsShard(_)) => {
                    self.shard_answered(now, from, message, out)
                }
                roles::Message::Control(message) => self.controlled(now, from, message, out),
                _ => {}
            },
            Input::Persisted(ticket) => {
                self.gate.persisted(ticket, out);
                self.commit(now, out);
            }
            Input::Wake => self.timer(now, out),
            Input::Disconnected(peer) => {
                if let Some(leader) = &mut self.leader {
                    leader.closers.give_back(peer, leader.closers.of(peer));
                }
            }
            Input::Request { request, .. } => match request {},
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        let flush = self.flush.as_ref().and_then(Flush::deadline);
        let leader = self.leader.as_ref().and_then(Leader::deadline);
        [self.membership.deadline(), flush, leader].into_iter().flatten().min()
    }
}

impl SequencingRole for Sequencer {
    fn config(&self) -> &LogConfig {
        &self.config
    }

    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn ordered(&self) -> Position {
        self.end()
    }

    /// Number of ordered positions that a shard replica may lack. Only the leader knows it; others
    /// report 0.
    fn held(&self) -> u64 {
        self.leader.as_ref().map_or(0, |leader| self.end().since(leader.commits.bound()))
    }

    fn snapshot(&self) -> Vec<Bytes> {
        self.whole_state()
    }

    fn step_name(&self) -> Option<&'static str> {
        self.leader.as_ref().and_then(|leader| leader.commits.step_name())
    }
}

impl Sequencer {
    /// A member without memory. It takes part in nothing until it is staged.
    #[must_use]
    pub fn new(me: Member, config: LogConfig, options: Options) -> Self {
        let waits = config.durability == Durability::Disk && !options.mutates(Mutation::ConfirmBeforeSync);
        Self {
            membership: Membership::new(me, options),
            config,
            options,
            gate: Gate::new(waits),
            cuts: VecDeque::new(),
            bound: Position::ZERO,
            sessions: Sessions::default(),
            sealed_for: ViewNumber::NONE,
            flush: None,
            leader: None,
            quotas: Quotas::default(),
            owed: Owed::default(),
            windows: None,
        }
    }

    pub(super) fn end(&self) -> Position {
        self.cuts.back().map_or(self.bound, Cut::end)
    }

    fn receive(&mut self, now: Time, from: Address, message: Message, out: &mut Vec<RoleEffect>) {
        match message {
            Message::Cut { view, bound, cut } if self.membership.accepts(view) => {
                self.hold_next(from, bound, cut, out);
            }
            Message::Held { view, end } if self.membership.accepts(view) => {
                let (Some(leader), Address::Node(node, _)) = (&mut self.leader, from) else { return };
                leader.commits.note_held(now, node, end);
                self.commit(now, out);
            }
            Message::Locate { view, session, first, count }
                if self.membership.accepts(view) && self.leader.is_some() =>
            {
                self.locate(from, session, first, count, out);
            }
            Message::Close { view, session, successor }
                if self.membership.accepts(view) && self.leader.is_some() =>
            {
                self.close(from, session, successor, out);
            }
            Message::Locate { .. } | Message::Close { .. } => reply(from, self.membership.rejection(), out),
            _ => {}
        }
    }

    fn asked(&self, from: Address, message: sequencing::Message, out: &mut Vec<RoleEffect>) {
        let answer = match message {
            sequencing::Message::CheckTail { request, view } if self.membership.accepts(view) => {
                sequencing::Message::Tail { request, view, tail: self.end() }
            }
            sequencing::Message::CheckTail { .. } => self.membership.rejection(),
            sequencing::Message::Status { request } => {
                let (view, open, tail) = (self.membership.number, self.is_open(), self.end());
                let (held, sessions) = (self.held(), self.sessions.len() as u64);
                match self.leader.as_ref().and_then(Leader::window_status) {
                    Some(windows) => {
                        sequencing::Message::StatusWith { request, view, open, tail, held, sessions, windows }
                    }
                    None => sequencing::Message::StatusIs { request, view, open, tail, held, sessions },
                }
            }
            _ => return,
        };
        reply(from, answer, out);
    }

    fn hold_next(&mut self, leader: Address, bound: Position, cut: Cut, out: &mut Vec<RoleEffect>) {
        let differs = |held: &Cut| held.from <= cut.from && cut.from < held.end() && *held != cut;
        let is_next = cut.from == self.end();
        if self.leader.is_some() || cut.from > self.end() || !is_next && self.cuts.iter().any(differs) {
            return;
        }
        if is_next {
            self.let_go_below(bound);
            cut.apply(&mut self.sessions, self.options);
            self.take_course(&cut);
            self.hold(cut, out);
        }
        let (view, end) = (self.membership.number, self.end());
        let held = Message::Held { view, end };
        if self.options.mutates(Mutation::FollowerBeforeSync) {
            return reply(leader, held, out);
        }
        self.gate.confirm(leader, held, out);
    }

    pub(super) fn take_course(&mut self, cut: &Cut) {
        if let Some(windows) = &mut self.windows {
            windows.take(cut);
        }
    }

    fn hold(&mut self, cut: Cut, out: &mut Vec<RoleEffect>) -> seriatim_model::Ticket {
        let record = JournalRecord::Held { bound: self.bound, cut };
        let ticket = self.persist(&record, out);
        let JournalRecord::Held { cut, .. } = record else { unreachable!("built above") };
        self.keep(cut);
        ticket
    }

    pub(super) fn keep(&mut self, cut: Cut) {
        let (from, end) = (cut.from, self.end());
        assert!(from == end, "a cut from {from} on follows those up to {end}");
        self.sweep(cut.end());
        self.cuts.push_back(cut);
    }

    /// Forgets old and surplus sessions, at the same cut on all members.
    pub(super) fn sweep(&mut self, ordered: Position) {
        sweep(&mut self.sessions, ordered, &self.config, self.options);
    }

    pub(super) fn let_go_below(&mut self, bound: Position) {
        while let Some(cut) = self.cuts.front().filter(|cut| cut.end() <= bound) {
            self.bound = cut.end();
            self.cuts.pop_front();
        }
    }

    fn commit(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if let Some(leader) = &mut self.leader {
            leader.commit(now, &self.gate, out);
            self.tell_ended(out);
        }
    }

    fn locate(&self, client: Address, session: SessionId, first: u64, count: u64, out: &mut Vec<RoleEffect>) {
        let Some(leader) = &self.leader else { return };
        if self.has_ended_below(session, first) {
            // Another run continues the session, and knows that these numbers are not in the log.
            return reply(client, Message::Expired { session }, out);
        }
        let Some(next) = self.sessions.next(session) else {
            let is_new = first == 0 && self.may_begin(session);
            let view = self.membership.number;
            let unknown = Message::Located { view, session, next: 0, places: vec![] };
            return reply(client, if is_new { unknown } else { Message::Expired { session } }, out);
        };
        let mut places: Vec<Place> = vec![];
        for number in first..first.saturating_add(count.min(limits::MAX_IN_FLIGHT as u64)).min(next) {
            let position = self.sessions.position(session, number);
            if position.is_some_and(|position| position >= leader.commits.committed()) {
                // The number's cut is uncommitted, and may still be lost. The client asks again.
                break;
            }
            match places.last_mut().filter(|last| {
                let follows = last.position.map(|known| known + last.count) == position;
                follows && last.number + last.count == number
            }) {
                Some(last) => last.count += 1,
                None => places.push(Place { number, count: 1, position }),
            }
        }
        reply(client, Message::Located { view: self.membership.number, session, next, places }, out);
    }

    fn shard_answered(
        &mut self,
        now: Time,
        from: Address,
        message: roles::Message,
        out: &mut Vec<RoleEffect>,
    ) {
        let Address::Node(node, Endpoint::Shard(shard)) = from else { return };
        match message {
            roles::Message::CutsShard(ShardMessage::Report { view, length, from, names })
                if self.membership.accepts(view) =>
            {
                if let Some(leader) = &mut self.leader {
                    leader.reported(now, (shard, node), length, (from, names), out);
                }
            }
            roles::Message::CutsShard(ShardMessage::WindowsKnown { view, number })
                if self.membership.accepts(view) =>
            {
                if let Some(leader) = &mut self.leader {
                    leader.windows_known((shard, node), number);
                }
            }
            roles::Message::Shard(shard::Message::Bound { view, batch, .. })
                if self.membership.accepts(view) =>
            {
                if let Some(leader) = &mut self.leader {
                    leader.commits.note_bound(shard, batch);
                    let bound = leader.commits.bound();
                    self.let_go_below(bound);
                }
            }
            roles::Message::Shard(shard::Message::Bound { view, batch, .. }) => {
                self.flush_bound(now, shard, view, batch, out)
            }
            roles::Message::CutsShard(ShardMessage::Owe { view }) if self.membership.accepts(view) => {
                self.owe((shard, node), view, out);
            }
            roles::Message::CutsShard(ShardMessage::RestIs { view, rest }) => {
                self.rest_told(now, (shard, node), view, rest, out);
            }
            _ => {}
        }
    }

    fn controlled(&mut self, now: Time, from: Address, message: control::Message, out: &mut Vec<RoleEffect>) {
        match message {
            control::Message::Seal { claim, old, .. } => self.seal(now, from, claim, old, out),
            // Only sealed cuts may be completed: cuts of this incarnation and view.
            control::Message::Flush { claim, old, incarnation, view }
                if (old, incarnation) == (self.membership.number, self.membership.me.incarnation) =>
            {
                self.begin_flush(now, from, claim, &view, out);
            }
            control::Message::Stage { claim, old, ordered, carried, .. } => {
                self.stage(from, old, Staged { claim, ordered, carried }, out);
            }
            control::Message::Registered { entry } => self.registered(now, entry, out),
            control::Message::Unavailable { why } => self.membership.note_unavailable(why),
            _ => {}
        }
    }

    pub(super) fn start(&mut self, view: &View, started: Ticket) {
        self.adopt_staged(view.number, view.start);
        self.windows = self.first_window(view).map(Windows::begin);
        let (me, leads) = (self.membership.me.node, self.membership.start(view));
        self.leader = leads
            .then(|| Leader::new(view, me, started, (&self.config, self.windows.as_ref()), self.options));
        if let Some(leader) = &mut self.leader {
            leader.persisted(&self.gate);
        }
        self.flush = None;
    }

    fn first_window(&self, view: &View) -> Option<Window> {
        self.config.order.has_quotas().then(|| self.quotas.first_window(view, &self.config))
    }

    fn timer(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if !self.is_open() {
            self.membership.report(now, out);
            return self.resend_flush(now, out);
        }
        let Some(leader) = &mut self.leader else { return };
        if let Some(cut) = leader.make_cut(now, &mut self.sessions) {
            self.take_course(&cut);
            let ticket = self.hold(cut.clone(), out);
            if let Some(leader) = &mut self.leader {
                leader.commits.hold(now, cut, ticket, out);
            }
            self.commit(now, out);
        }
        if let Some(leader) = &mut self.leader {
            leader.ask_and_tell(now, out);
            leader.resend(now, &self.cuts, out);
        }
    }
}

pub(super) fn sweep(sessions: &mut Sessions, ordered: Position, config: &LogConfig, options: Options) {
    let limits = options.limits;
    sessions.sweep(ordered, config.idle_positions(), false, |_| false);
    if sessions.len() > limits.max_sessions {
        let oldest = sessions.least_recent((ordered, ordered), limits.max_sessions, |_| false);
        sessions.expire(&oldest);
        if options.mutates(Mutation::ForgottenWithoutFloor) {
            sessions.lower_floor();
        }
    }
}

/// Sends without waiting for the journal.
pub(super) fn reply(to: Address, message: impl Into<roles::Message>, out: &mut Vec<RoleEffect>) {
    out.push(RoleEffect::Send { to, message: message.into() });
}
