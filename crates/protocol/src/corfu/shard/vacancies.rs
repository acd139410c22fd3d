//! Positions that a view's end finds vacant, and the clients that were about to write there.
//!
//! A shard that flushes itself writes junk where nothing is. A record that was on its way there
//! when its view ended would lose its position, and its append would fail if a later one of its
//! session is in the log. So the shard first asks the clients that wrote here in that view: each
//! offers its records for the vacant positions, and the shard flushes them as if they had arrived
//! in time. That is safe because a position has one client, which uses it for one record; because
//! that client, once it is asked, takes no other position in that view; and because each claim
//! decides once what to flush.
//!
//! The shard waits for the clients as long as it hears of any. A replica that started anew in that
//! view does not know which clients wrote to it: it waits a moment for clients that come again. A
//! position whose client says nothing, or did not write here before, gets junk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::storage::{Run, Stored};
use seriatim_model::{Address, Peer, Position, Record, RecordId, Span, Time, ViewNumber, limits};

use super::message::Message;
use crate::parts::junk::{self, junk};
use crate::roles::RoleEffect;
use crate::shard::send;

/// The clients that wrote here in the present view.
#[derive(Clone, Debug, Default)]
pub(super) struct Writers {
    clients: BTreeSet<Address>,
    /// Whether it has been there since the view began, and so knows all of them.
    are_known: bool,
}

impl Writers {
    /// A client writes. Of more than so many the rest are not asked: one connection may have any
    /// number.
    pub(super) fn note(&mut self, from: Address, most: usize) {
        if matches!(from, Address::Client(..)) && self.clients.len() < most {
            self.clients.insert(from);
        }
    }

    pub(super) fn disconnected(&mut self, peer: Peer) {
        self.clients.retain(|writer| writer.peer() != peer);
    }

    /// A view begins.
    pub(super) fn begin(&mut self) {
        self.clients.clear();
        self.are_known = true;
    }
}

/// A part of what is to be flushed, with positions for which clients are asked.
#[derive(Clone, Debug)]
pub(super) struct Vacancy {
    claim: ViewNumber,
    /// The view that ended.
    old: ViewNumber,
    first: Position,
    /// So far it is decided when all have answered.
    upto: Position,
    vacant: BTreeSet<Position>,
    /// The same, as clients are asked for them.
    spans: Vec<Span>,
    /// The records that are there or offered, and how many bytes they are.
    known: BTreeMap<Position, (RecordId, Record)>,
    bytes: usize,
    /// The clients that were asked, and those of them that have not answered.
    asked: BTreeSet<Address>,
    waiting: BTreeSet<Address>,
    /// Clients that are not known yet may come.
    may_come: bool,
    /// When all were asked, and when one that is waited for was heard last; nothing before the
    /// clock was looked at.
    asked_at: Option<Time>,
    heard_at: Time,
}

impl Vacancy {
    /// A part whose own positions are `own`; nothing if there is no client to ask, or no need to.
    pub(super) fn new(
        (claim, old): (ViewNumber, ViewNumber),
        (first, upto): (Position, Position),
        there: &[Stored],
        own: impl Iterator<Item = Position>,
        writers: &Writers,
    ) -> Option<Self> {
        let (known, asked) = (by_position(there), writers.clients.clone());
        let (waiting, may_come) = (asked.clone(), !writers.are_known);
        let vacant: BTreeSet<Position> = own.filter(|position| !known.contains_key(position)).collect();
        let spans = Span::of(vacant.iter().copied());
        let bytes = known.values().map(|(_, record)| record.size()).sum();
        let is_needed = !vacant.is_empty() && (may_come || !waiting.is_empty());
        is_needed.then_some(Self {
            claim,
            old,
            first,
            upto,
            vacant,
            spans,
            known,
            bytes,
            asked,
            waiting,
            may_come,
            asked_at: None,
            heard_at: Time::ZERO,
        })
    }

    /// Asks those that have not answered.
    pub(super) fn ask(&self, out: &mut Vec<RoleEffect>) {
        self.waiting.iter().for_each(|client| self.ask_one(*client, out));
    }

    fn ask_one(&self, client: Address, out: &mut Vec<RoleEffect>) {
        let (claim, old, spans) = (self.claim, self.old, self.spans.clone());
        send(client, Message::Vacant { claim, old, spans }, out);
    }

    /// A client writes here now: it is there, and the shard asks it unless it has done so before.
    pub(super) fn comes(&mut self, now: Time, client: Address, writers: &Writers, out: &mut Vec<RoleEffect>) {
        if self.waiting.contains(&client) {
            self.heard_at = now;
        } else if self.may_come && writers.clients.contains(&client) && self.asked.insert(client) {
            self.waiting.insert(client);
            self.ask_one(client, out);
        }
    }

    /// A client has these records for vacant positions, and no other for those below `upto`.
    pub(super) fn offered(&mut self, now: Time, from: Address, upto: Position, runs: Vec<Run>) {
        if !self.waiting.remove(&from) {
            return;
        }
        self.heard_at = now;
        for run in runs {
            for (position, named) in (run.first.0..).map(Position).zip(run.records) {
                if self.vacant.contains(&position) && !self.known.contains_key(&position) {
                    self.bytes += named.1.size();
                    self.known.insert(position, named);
                }
            }
        }
        self.cut(upto);
        // The shard flushes little at once, and asks for the rest again.
        while self.bytes > limits::FLUSHED_BYTES && self.known.len() > 1 {
            let last = *self.known.last_key_value().expect("there are some").0;
            self.cut(last);
        }
    }

    /// Nothing is decided from there on, but for the first position.
    fn cut(&mut self, upto: Position) {
        let vacant = self.vacant.first().copied().into_iter();
        let first = vacant.chain(self.known.keys().next().copied()).min().unwrap_or(self.first);
        self.upto = self.upto.min(upto.max(first.next()));
        let beyond = self.known.split_off(&self.upto);
        self.bytes -= beyond.values().map(|(_, record)| record.size()).sum::<usize>();
    }

    pub(super) fn disconnected(&mut self, peer: Peer) {
        self.waiting.retain(|client| client.peer() != peer);
    }

    /// When it is decided without those that have not answered. One that is there and says nothing
    /// for this long is not waited for.
    pub(super) fn deadline(&self, timeout: Duration) -> Time {
        let Some(asked_at) = self.asked_at else { return Time::ZERO };
        let come_until = if self.may_come { asked_at + limits::WRITERS_COME_WITHIN } else { Time::ZERO };
        if self.waiting.is_empty() {
            return come_until;
        }
        let heard_at = self.heard_at.max(asked_at);
        (heard_at + timeout).min(asked_at + limits::MISSING_MOST).max(come_until)
    }

    /// Whether it is decided what is flushed.
    pub(super) fn is_decided(&self, now: Time, timeout: Duration) -> bool {
        self.asked_at.is_some() && now >= self.deadline(timeout)
    }

    /// The clock is looked at: from now on it is waited.
    pub(super) fn begin(&mut self, now: Time) {
        self.asked_at.get_or_insert(now);
    }

    /// Where the part ends that is decided, and what is at the shard's own positions there.
    pub(super) fn decide(self, own: impl Iterator<Item = Position>) -> (Position, Vec<Run>) {
        assert!(self.first < self.upto, "a flush continues with each part");
        let Self { upto, known, .. } = self;
        (upto, filled(own.take_while(|position| *position < upto), known))
    }
}

/// Records by where they are.
pub(super) fn by_position(there: &[Stored]) -> BTreeMap<Position, (RecordId, Record)> {
    there.iter().map(|stored| (stored.position, (stored.id, stored.record.clone()))).collect()
}

/// The records that are flushed at these positions: junk where nothing is known.
pub(super) fn filled(
    own: impl Iterator<Item = Position>,
    mut known: BTreeMap<Position, (RecordId, Record)>,
) -> Vec<Run> {
    let mut runs = vec![];
    for position in own {
        let named = known.remove(&position).unwrap_or_else(|| junk(position));
        junk::push(&mut runs, position, named);
    }
    runs
}
