//! Vacant positions (those without a record at a view's end), and the clients that were about to
//! write there.
//!
//! A flushing shard writes junk into vacant positions. A record in flight at the view's end would
//! lose its position, and its append would fail if a later one of its session is in the log. So the
//! shard first asks the clients that wrote here in that view, and flushes their offers as if they
//! had arrived in time. This is safe: a position has one client, which uses it for one record; once
//! asked, that client takes no other position in that view; and each claim decides once what to
//! flush.
//!
//! The shard waits while waiting clients send something, at most `MISSING_MOST`. A replica
//! restarted in that view does not know its writers, and waits a moment for them. A position
//! without an offer gets junk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::storage::{Run, Stored};
use seriatim_model::{Address, Peer, Position, Record, RecordId, Span, Time, ViewNumber, limits};

use super::message::Message;
use crate::parts::junk::{self, junk};
use crate::roles::RoleEffect;
use crate::shard::send;

/// Clients that wrote here in the present view.
#[derive(Clone, Debug, Default)]
pub(super) struct Writers {
    clients: BTreeSet<Address>,
    /// Whether this replica served the whole view, and so knows all its writers.
    are_known: bool,
}

impl Writers {
    /// Notes a client. Beyond `most` clients the rest are not asked: one connection may have any
    /// number.
    pub(super) fn note(&mut self, from: Address, most: usize) {
        if matches!(from, Address::Client(..)) && self.clients.len() < most {
            self.clients.insert(from);
        }
    }

    pub(super) fn disconnected(&mut self, peer: Peer) {
        self.clients.retain(|writer| writer.peer() != peer);
    }

    pub(super) fn begin(&mut self) {
        self.clients.clear();
        self.are_known = true;
    }
}

#[derive(Clone, Debug)]
pub(super) struct Vacancy {
    claim: ViewNumber,
    old: ViewNumber,
    first: Position,
    /// End of the part of the flush that is decided now.
    upto: Position,
    vacant: BTreeSet<Position>,
    /// The vacant positions, as sent to clients.
    spans: Vec<Span>,
    /// Stored or offered records, and their bytes.
    known: BTreeMap<Position, (RecordId, Record)>,
    bytes: usize,
    /// Clients that the shard has asked, and the clients among them that have not answered.
    asked: BTreeSet<Address>,
    waiting: BTreeSet<Address>,
    may_come: bool,
    /// Start of the wait, and time of the last message of an awaited client.
    asked_at: Option<Time>,
    heard_at: Time,
}

impl Vacancy {
    /// `None` if no position is vacant, or no client can offer anything.
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

    pub(super) fn ask(&self, out: &mut Vec<RoleEffect>) {
        self.waiting.iter().for_each(|client| self.ask_one(*client, out));
    }

    fn ask_one(&self, client: Address, out: &mut Vec<RoleEffect>) {
        let (claim, old, spans) = (self.claim, self.old, self.spans.clone());
        send(client, Message::Vacant { claim, old, spans }, out);
    }

    /// A client writes, so it is alive. Asks it, unless it was asked before.
    pub(super) fn comes(&mut self, now: Time, client: Address, writers: &Writers, out: &mut Vec<RoleEffect>) {
        if self.waiting.contains(&client) {
            self.heard_at = now;
        } else if self.may_come && writers.clients.contains(&client) && self.asked.insert(client) {
            self.waiting.insert(client);
            self.ask_one(client, out);
        }
    }

    /// A client has these records, and no others for vacant positions below `upto`.
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
        // Flush little at once; the rest is asked for again.
        while self.bytes > limits::FLUSHED_BYTES && self.known.len() > 1 {
            let last = *self.known.last_key_value().expect("there are some").0;
            self.cut(last);
        }
    }

    /// Shortens the part of the flush to `upto`, but keeps its first position.
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

    /// When to decide without the remaining answers: `timeout` after an awaited client's last
    /// message.
    pub(super) fn deadline(&self, timeout: Duration) -> Time {
        let Some(asked_at) = self.asked_at else { return Time::ZERO };
        let come_until = if self.may_come { asked_at + limits::WRITERS_COME_WITHIN } else { Time::ZERO };
        if self.waiting.is_empty() {
            return come_until;
        }
        let heard_at = self.heard_at.max(asked_at);
        (heard_at + timeout).min(asked_at + limits::MISSING_MOST).max(come_until)
    }

    pub(super) fn is_decided(&self, now: Time, timeout: Duration) -> bool {
        self.asked_at.is_some() && now >= self.deadline(timeout)
    }

    pub(super) fn begin(&mut self, now: Time) {
        self.asked_at.get_or_insert(now);
    }

    pub(super) fn decide(self, own: impl Iterator<Item = Position>) -> (Position, Vec<Run>) {
        assert!(self.first < self.upto, "a flush continues with each part");
        let Self { upto, known, .. } = self;
        (upto, filled(own.take_while(|position| *position < upto), known))
    }
}

pub(super) fn by_position(there: &[Stored]) -> BTreeMap<Position, (RecordId, Record)> {
    there.iter().map(|stored| (stored.position, (stored.id, stored.record.clone()))).collect()
}

/// The records to flush: junk where no record is known.
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
