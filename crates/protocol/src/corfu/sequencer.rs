//! The sequencer: a counter.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::{
    Address, Endpoint, Input, LogConfig, Machine, Member, Position, ShardId, Time, View, ViewNumber, limits,
};

use super::ShardMessage;
use super::fences::Fences;
use super::grants::{Grants, Question, To};
use super::message::Message;
use super::tokens::{Answer, Tokens};
use crate::control;
use crate::mutation::{Mutation, Options};
use crate::parts::membership::{Registered, Staged};
use crate::parts::{Carried, Membership, sequencing};
use crate::roles::{self, RoleEffect, RoleInput, SequencingRole};
use crate::shard;

/// The sequencer of one log, on one node. After a restart it is a new incarnation without state,
/// and waits to be staged.
///
/// Invariant: it grants no position below the start of its view, and none twice in it, except to
/// the same number of the same session; and none to a session that another run continues.
#[derive(Clone, Debug)]
pub struct Sequencer {
    config: LogConfig,
    options: Options,
    membership: Membership,
    next: Position,
    tokens: Tokens,
    fences: Fences,
    /// Granted positions that may be unwritten.
    grants: Grants,
    /// Positions below this are written or overdue: no client writes there.
    overdue: Position,
    /// Bound of each shard's written positions, as its primary confirmed it.
    written: BTreeMap<ShardId, Position>,
    tell_at: Option<Time>,
    unanswered_since: BTreeMap<ShardId, Time>,
}

impl Machine for Sequencer {
    type Message = roles::Message;
    type Request = std::convert::Infallible;
    type Reply = std::convert::Infallible;

    fn step(&mut self, now: Time, input: RoleInput, out: &mut Vec<RoleEffect>) {
        match input {
            Input::Message { from, message } => match message {
                roles::Message::Corfu(message) => self.receive(now, from, message, out),
                roles::Message::Sequencing(message) => self.asked(from, message, out),
                roles::Message::Shard(shard::Message::StableKnown { view, stable }) => {
                    self.note_written(now, from, view, stable);
                }
                roles::Message::Control(message) => self.controlled(now, from, message, out),
                _ => {}
            },
            Input::Wake => self.timer(now, out),
            Input::Disconnected(peer) => {
                self.unanswered_since.clear();
                self.grants.disconnected(now, peer);
            }
            Input::Request { request, .. } => match request {},
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.is_open() { self.tell_at } else { self.membership.deadline() }
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
        self.next
    }

    fn held(&self) -> u64 {
        self.unwritten()
    }

    fn snapshot(&self) -> Vec<Bytes> {
        vec![]
    }

    fn step_name(&self) -> Option<&'static str> {
        None
    }
}

impl Sequencer {
    /// A sequencer that takes part in no view yet.
    #[must_use]
    pub fn new(me: Member, config: LogConfig, options: Options) -> Self {
        Self {
            grants: Grants::new(options.limits),
            config,
            options,
            membership: Membership::new(me, options),
            next: Position::ZERO,
            tokens: Tokens::default(),
            fences: Fences::default(),
            overdue: Position::ZERO,
            written: BTreeMap::new(),
            tell_at: None,
            unanswered_since: BTreeMap::new(),
        }
    }

    fn unwritten(&self) -> u64 {
        self.next.since(self.written.values().copied().min().unwrap_or(self.next))
    }

    fn receive(&mut self, now: Time, from: Address, message: Message, out: &mut Vec<RoleEffect>) {
        match message {
            Message::Next { view, session, take, ungranted, first, count, fill_timeout_ms, since }
                if self.membership.accepts(view) && is_possible(ungranted, first, count) =>
            {
                if !self.tokens.know(session) && self.fences.refuse(session, since) {
                    return reply(from, Message::Expired { view, session }, out);
                }
                self.grants.hear(from, session, take);
                if self.unwritten() + count > limits::MOST_AHEAD {
                    // The client retries after earlier positions are written or filled.
                    return;
                }
                let most = self.options.limits.max_sessions;
                match self.tokens.give(session, (take, ungranted), (first, count), self.next, most) {
                    Answer::Given(spans, next) => {
                        let fill_timeout = Duration::from_millis(fill_timeout_ms.into());
                        self.give(now, next, fill_timeout, Some(To { session, take, from }));
                        reply(from, Message::Given { view, session, take, first, spans }, out);
                    }
                    Answer::OutOfOrder { expected } => {
                        reply(from, Message::OutOfOrder { view, session, take, expected }, out);
                    }
                    Answer::Late => {}
                }
            }
            Message::Close { view, session } if self.membership.accepts(view) => {
                self.tokens.forget(session);
                self.grants.end(session);
                let below = self.fences.close(session, self.next, self.options.limits.ended_sessions);
                reply(from, Message::Closed { view, session, below }, out);
                self.rise_to_floor(now);
            }
            Message::Writing { view, session, left } if self.membership.accepts(view) => {
                self.grants.answered(now, from, session, &left);
                if !left.is_empty() {
                    self.tell_at = Some(now);
                }
            }
            Message::Next { view, .. } | Message::Close { view, .. } if !self.membership.accepts(view) => {
                reply(from, self.membership.rejection(), out);
            }
            _ => {}
        }
    }

    fn asked(&self, from: Address, message: sequencing::Message, out: &mut Vec<RoleEffect>) {
        let answer = match message {
            sequencing::Message::CheckTail { request, view } if self.membership.accepts(view) => {
                sequencing::Message::Tail { request, view, tail: self.next }
            }
            sequencing::Message::CheckTail { .. } => self.membership.rejection(),
            sequencing::Message::Status { request } => {
                let (view, open, tail) = (self.view_number(), self.is_open(), self.next);
                let (held, sessions) = (self.unwritten(), self.tokens.len() as u64);
                sequencing::Message::StatusIs { request, view, open, tail, held, sessions }
            }
            _ => return,
        };
        reply(from, answer, out);
    }

    /// Grants the positions below `next`; asks their client about them after `fill_timeout`.
    fn give(&mut self, now: Time, next: Position, fill_timeout: Duration, to: Option<To>) {
        if next == self.next {
            return;
        }
        assert!(next > self.next, "positions below {} were given out, and now those up to {next}", self.next);
        let fill_timeout = fill_timeout.clamp(limits::FILL_AFTER, limits::MISSING_MOST);
        self.grants.give(now, (self.next, next), fill_timeout, to);
        self.next = next;
        // Check late positions periodically.
        let due = self.grants.due().filter(|due| *due > now).unwrap_or(now + limits::FILL_AFTER);
        self.tell_at = Some(self.tell_at.map_or(due, |at| at.min(due)));
    }

    /// Raises the tail to the fences' floor, so that new sessions are opened above forgotten ones.
    /// In an idle log this costs a position.
    fn rise_to_floor(&mut self, now: Time) {
        self.give(now, self.fences.floor().max(self.next), limits::FILL_AFTER, None);
    }

    fn note_written(&mut self, now: Time, from: Address, view: ViewNumber, stable: Position) {
        let (Address::Node(_, Endpoint::Shard(shard)), true) = (from, self.membership.accepts(view)) else {
            return;
        };
        let Some(known) = self.written.get_mut(&shard) else { return };
        *known = stable.min(self.next).max(*known);
        if let Some(unanswered_since) = self.unanswered_since.remove(&shard) {
            self.grants.shard_answered(now, now - unanswered_since);
        }
        if self.unwritten() == 0 {
            self.grants.clear();
            (self.overdue, self.tell_at) = (self.next, None);
            return;
        }
        self.drop_done(now);
        if self.written_furthest() == self.next && self.overdue == self.next {
            // Everything is written, but the other shards do not know yet that nothing is missing.
            self.tell_at = Some(self.tell_at.map_or(now, |at| at.min(now + limits::FILL_AFTER / 10)));
        }
    }

    fn written_furthest(&self) -> Position {
        self.written.values().copied().max().unwrap_or_default()
    }

    fn timer(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if self.is_open() {
            if let Some(at) = self.tell_at.filter(|at| now >= *at) {
                if now >= at + limits::FILL_AFTER {
                    self.grants.looks_late(now, now - at);
                }
                self.tell_shards(now, out);
            }
        } else {
            self.membership.report(now, out);
        }
    }

    fn drop_done(&mut self, now: Time) {
        let Some(view) = &self.membership.view else { return };
        let by_the_clock = self.options.mutates(Mutation::FilledByTheClock);
        let is_written = |first, end| is_written(view, &self.written, first, end);
        let overdue = self.grants.drop_done(now, is_written, by_the_clock);
        self.overdue = overdue.unwrap_or(self.overdue).max(self.overdue);
    }

    /// Sends the overdue bound to lagging shards, and asks clients about late positions.
    fn tell_shards(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        self.drop_done(now);
        let Some(view) = &self.membership.view else { return };
        let (written, overdue) = (self.written_furthest(), self.overdue);
        for members in &view.shards {
            if self.written.get(&members.shard).is_some_and(|known| *known < self.next) {
                let to = Address::Node(members.primary().node, Endpoint::Shard(members.shard));
                let message = ShardMessage::FillRequest { view: view.number, written, overdue };
                out.push(RoleEffect::Send { to, message: message.into() });
                self.unanswered_since.entry(members.shard).or_insert(now);
            }
        }
        for question in self.grants.questions(now, |first, end| is_written(view, &self.written, first, end)) {
            let Question { to, session, take, spans } = question;
            reply(to, Message::Unwritten { view: view.number, session, take, spans }, out);
        }
        let soon = now + limits::FILL_AFTER;
        let due = self.grants.due().filter(|due| *due > now);
        self.tell_at = Some(due.map_or(soon, |due| soon.min(due)));
    }

    fn controlled(&mut self, now: Time, from: Address, message: control::Message, out: &mut Vec<RoleEffect>) {
        match message {
            control::Message::Stage { claim, old, .. } => self.stage(now, from, claim, old, out),
            control::Message::Registered { entry } => self.registered(now, &entry),
            control::Message::Unavailable { why } => self.membership.note_unavailable(why),
            _ => {}
        }
    }

    /// Prepares for the claimed view, and grants nothing in older ones.
    fn stage(
        &mut self,
        now: Time,
        from: Address,
        claim: ViewNumber,
        old: ViewNumber,
        out: &mut Vec<RoleEffect>,
    ) {
        // The sequencer has no state, so it is ready for any view.
        let staged = Staged { claim, ordered: Position::ZERO, carried: Carried::default() };
        if self.membership.stage(from, old, &staged, out).is_none() {
            return;
        }
        self.membership.prepare(staged);
        self.membership.back_off(now);
        reply(from, control::Message::Staged { claim, incarnation: self.member().incarnation }, out);
    }

    fn registered(&mut self, now: Time, entry: &control::LogEntry) {
        let Some(view) = &entry.view else { return };
        if self.membership.registered(now, view) != Registered::Starts {
            return;
        }
        let low = self.options.mutates(Mutation::SequencedTooLow);
        self.next = if low { view.first } else { view.start };
        self.overdue = self.next;
        self.written = view.shards.iter().map(|members| (members.shard, self.next)).collect();
        self.tokens = Tokens::default();
        let forgets = self.options.mutates(Mutation::FencesForgotten);
        self.fences = if forgets { Fences::default() } else { Fences::new(&entry.ended, view.start) };
        self.grants.clear();
        self.unanswered_since.clear();
        self.tell_at = None;
        self.membership.adopt(view.number, view.start);
        self.membership.start(view);
        self.rise_to_floor(now);
    }
}

fn is_written(view: &View, written: &BTreeMap<ShardId, Position>, first: Position, end: Position) -> bool {
    let is_behind = |(shard, known): (&ShardId, &Position)| {
        view.placement.first_of(*shard, first.max(*known), end).is_some()
    };
    !written.iter().any(is_behind)
}

/// Whether one of our clients may send such a request.
fn is_possible(ungranted: u64, first: u64, count: u64) -> bool {
    let most = limits::MAX_IN_FLIGHT as u64;
    ungranted <= first && count <= most && first + count - ungranted <= 2 * most
}

fn reply(to: Address, message: impl Into<roles::Message>, out: &mut Vec<RoleEffect>) {
    out.push(RoleEffect::Send { to, message: message.into() });
}
