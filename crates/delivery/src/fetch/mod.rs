//! Reads: the records from a position on, with an optional wait for the first.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::storage::{Owned, Stored};
use seriatim_model::{
    Address, Effect, Endpoint, Input, Machine, NodeId, Peer, Position, ShardId, Span, Time, View, ViewNumber,
    limits,
};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::roles::Message;
use seriatim_protocol::shard::{self, ReadError};
use seriatim_protocol::{Mutation, Options};

mod map;
mod read;

use map::{PositionMap, Run};
use read::{Out, RESEND_FIRST, Read, Shared, Wanted};

use crate::failure::Failure;
use crate::source::{Directory, Learned, send};

/// A request to a [`Fetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reads records.
    Read {
        /// First wanted position.
        from: Position,
        /// Length of the range in positions, capped at [`limits::READ_RECORDS`]. If the whole range
        /// is empty, the read continues behind it.
        max: u32,
        /// How long to wait while no record at `from` is final.
        wait: Duration,
        /// Additional time limit, after `wait`, for the answers of slow shards.
        answer_within: Duration,
    },
    /// Drops the read with this token, without an answer.
    Cancel,
}

/// Outcome of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The available records.
    Records {
        /// In the order of positions, without no-ops.
        records: Vec<Stored>,
        /// Position at which to continue. All positions below are in `records` or have no record.
        /// It may exceed the wanted range.
        next: Position,
    },
    /// The read failed.
    Failed(Failure),
}

/// Reads a log, any number of [`Request`]s at a time.
///
/// It asks all shards of the range at once and answers with the longest available prefix: a slow
/// shard shortens the answer, and only the shard of the next position delays it.
///
/// Without a placement, the reader does not know at first which shard owns a position: it asks all
/// shards for records, and one of them for the map of owners around the range. Later reads ask only
/// the owners. The map of final positions stays valid through all views; it shrinks for room, by a
/// trim, or after an accepted loss.
#[derive(Debug)]
pub struct Fetch {
    shared: Shared,
    options: Options,
    reads: BTreeMap<u64, Read>,
    /// Owners of positions below the stable bounds of replicas that know view `entered` or a later
    /// one.
    map: PositionMap,
    questions: BTreeMap<u64, Question>,
    turn: usize,
    entered: ViewNumber,
    /// Highest stable bound that a shard reported.
    stable: Position,
    trim: Position,
}

/// An unanswered question for the map of `from..end`.
#[derive(Clone, Copy, Debug)]
struct Question {
    node: NodeId,
    from: Position,
    end: Position,
    tries: usize,
    until: Time,
}

impl Machine for Fetch {
    type Message = Message;
    type Request = Request;
    type Reply = Reply;

    /// # Panics
    /// If a read has the token of an unanswered read.
    fn step(&mut self, now: Time, input: Input<Message, Request>, out: &mut Out) {
        match input {
            Input::Request { token, request: Request::Read { from, max, wait, answer_within } } => {
                self.start(now, token, Wanted { from, max, until: now + wait, answer_within }, out);
            }
            Input::Request { token, request: Request::Cancel } => drop(self.end(token, out)),
            Input::Message {
                from: Address::Node(node, Endpoint::Shard(shard)),
                message: Message::Shard(message),
            } => self.receive(now, node, shard, message, out),
            Input::Message { message: Message::Control(message), .. } => self.controlled(now, message, out),
            Input::Disconnected(Peer::Node(node)) => {
                self.questions.retain(|_, question| question.node != node);
                self.reads.values_mut().for_each(|read| read.disconnected(now, node, &mut self.shared));
            }
            Input::Wake => {
                self.for_each(now, out, |read, shared, out| read.timer(now, shared, out));
                self.shared.directory.timer(now, out);
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        let first = self.reads.values().map(Read::deadline).min()?;
        Some(self.shared.directory.deadline().map_or(first, |at| at.min(first)))
    }
}

impl Fetch {
    /// A reader of the log of `entry`. `control` is the node for register questions.
    #[must_use]
    pub fn new(control: NodeId, entry: LogEntry, options: Options) -> Self {
        let entered = entry.view_number();
        Self {
            shared: Shared::new(Directory::new(control, entry)),
            options,
            reads: BTreeMap::new(),
            map: PositionMap::new(options.limits.map_runs),
            questions: BTreeMap::new(),
            turn: 0,
            entered,
            stable: Position::ZERO,
            trim: Position::ZERO,
        }
    }

    /// Whether no read runs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.reads.is_empty()
    }

    /// The latest known register entry.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        self.shared.directory.entry()
    }

    fn start(&mut self, now: Time, token: u64, wanted: Wanted, out: &mut Out) {
        assert!(!self.reads.contains_key(&token), "a token names one read");
        // No records exist above `Position::MAX`.
        let from = wanted.from.min(Position::MAX);
        let end = (from + u64::from(wanted.max.min(limits::READ_RECORDS))).min(Position::MAX);
        if end == from {
            let reply = Reply::Records { records: vec![], next: end };
            return out.push(Effect::Reply { token, reply });
        }
        if self.shared.directory.view().is_none() {
            self.shared.directory.ask(now);
        }
        let owners = self.owners(now, from, end, out);
        let mut read = Read::new(now, token, Wanted { from, ..wanted }, end, owners);
        read.ask_shards(now, &mut self.shared);
        read.ask_due(now, &mut self.shared, out);
        self.reads.insert(token, read);
    }

    /// Passes every read to `tell`, and finishes the reads for which it returns a reply.
    fn for_each(
        &mut self,
        now: Time,
        out: &mut Out,
        mut tell: impl FnMut(&mut Read, &mut Shared, &mut Out) -> Option<Reply>,
    ) {
        let mut ended = vec![];
        for (token, read) in &mut self.reads {
            ended.extend(tell(read, &mut self.shared, out).map(|reply| (*token, reply)));
        }
        for (token, reply) in ended {
            self.finish(now, token, reply, out);
        }
    }

    /// Answers a read. After only empty positions it continues behind them, within its time limit.
    fn finish(&mut self, now: Time, token: u64, reply: Reply, out: &mut Out) {
        let Some(read) = self.end(token, out) else { return };
        let stays = self.options.mutates(Mutation::EmptyEndsRead);
        let rest = match &reply {
            Reply::Records { records, next } if records.is_empty() && !stays => read.rest_from(*next),
            _ => None,
        };
        match rest {
            Some(rest) => self.start(now, token, rest, out),
            None => out.push(Effect::Reply { token, reply }),
        }
    }

    fn end(&mut self, token: u64, out: &mut Out) -> Option<Read> {
        let mut read = self.reads.remove(&token)?;
        read.cancel(&mut self.shared, out);
        if self.reads.is_empty() {
            self.shared.directory.rest();
        }
        Some(read)
    }

    fn receive(&mut self, now: Time, node: NodeId, shard: ShardId, message: shard::Message, out: &mut Out) {
        match message {
            shard::Message::Records { request, records, upto } => {
                self.given(now, (node, shard, request), (records, vec![], upto), out);
            }
            shard::Message::RecordsWith { request, records, empty, upto } => {
                self.given(now, (node, shard, request), (records, empty, upto), out);
            }
            shard::Message::ReadFailed { request, error } => {
                if let ReadError::Trimmed { first } = error {
                    self.trim = self.trim.max(first);
                    self.map.forget_below(self.trim);
                }
                if let Some(question) = self.questions.remove(&request) {
                    return self.ask_another(now, question, out);
                }
                self.answered(now, request, out, |read, shared, out| {
                    read.failed(now, (node, shard, request), error, shared, out)
                });
            }
            shard::Message::Mapped { request, view, stable, owned } => {
                self.mapped(now, request, (view, stable), &owned, out);
            }
            shard::Message::Fenced { .. } => self.shared.directory.ask(now),
            _ => {}
        }
    }

    fn given(
        &mut self,
        now: Time,
        (node, shard, request): (NodeId, ShardId, u64),
        found: (Vec<Stored>, Vec<Span>, Position),
        out: &mut Out,
    ) {
        self.stable = self.stable.max(found.2);
        self.answered(now, request, out, |read, shared, out| {
            read.receive(now, (node, shard, request), found, shared, out)
        });
    }

    fn answered(
        &mut self,
        now: Time,
        request: u64,
        out: &mut Out,
        tell: impl FnOnce(&mut Read, &mut Shared, &mut Out) -> Option<Reply>,
    ) {
        let Some(token) = self.shared.asker(request) else { return };
        let read = self.reads.get_mut(&token).expect("who asked has no answer yet");
        if let Some(reply) = tell(read, &mut self.shared, out) {
            self.finish(now, token, reply, out);
        }
    }

    fn controlled(&mut self, now: Time, message: control::Message, out: &mut Out) {
        match self.shared.directory.receive(message) {
            Learned::NewView { lost_from, .. } => self.enter_view(now, lost_from, out),
            Learned::Deleted => {
                let failure = Failure::Deleted(self.entry().name.clone());
                self.for_each(now, out, |_, _, _| Some(Reply::Failed(failure.clone())));
            }
            Learned::Same(answer) => {
                self.for_each(now, out, |read, shared, out| read.view_confirmed(now, answer, shared, out));
            }
            Learned::Nothing => {}
        }
    }

    /// Enters a newer view. Final positions keep their records and owners, except from `lost_from`
    /// on after an accepted loss.
    fn enter_view(&mut self, now: Time, lost_from: Position, out: &mut Out) {
        self.entered = self.entry().view_number();
        if !self.options.mutates(Mutation::MapBeyondStable) {
            self.map.forget_from(lost_from);
        }
        // A replica that was asked in an older view may not know of the loss.
        self.questions.clear();
        self.stable = self.stable.min(lost_from);
        self.for_each(now, out, |read, shared, out| {
            read.enter_view(now, lost_from, shared, out);
            None
        });
    }

    /// Known owners of `from..end`. None: unknown, or not needed (a placement names them, or only
    /// one shard exists). Asks for missing parts, and for the part likely to be read next.
    fn owners(&mut self, now: Time, from: Position, end: Position, out: &mut Out) -> Option<Vec<Run>> {
        let view = self.shared.directory.view()?;
        let has_ended = self.shared.directory.ended().next().is_some();
        let is_one = view.shards.len() + view.retired.len() == 1 && !has_ended;
        if self.shared.directory.placement().is_some() || is_one {
            return None;
        }
        self.questions.retain(|_, question| now < question.until);
        // While the stable bound is unknown, ask only for the map at `from`.
        let stable = if self.stable == Position::ZERO { from.next() } else { self.stable };
        let ahead = Position(end.0.saturating_add(end - from));
        let mut next = self.map.known_from(from.max(self.trim));
        while next < ahead.min(stable) && self.questions.len() < limits::MAP_QUESTIONS {
            let block = Position(next.0 - next.0 % limits::MAP_POSITIONS);
            let stop = Position(block.0.saturating_add(limits::MAP_POSITIONS));
            let is_asked = |question: &Question| question.from <= next && next < question.end;
            if !self.questions.values().any(is_asked) {
                let start = self.map.known_from(block.max(self.trim));
                self.ask_for_map(now, (start, stop), 0, out);
            }
            next = self.map.known_from(stop);
        }
        self.map.owners(from, end)
    }

    /// Asks the next shard's primary: every shard has the whole map.
    fn ask_for_map(&mut self, now: Time, (from, end): (Position, Position), tries: usize, out: &mut Out) {
        let Some(View { shards, .. }) = self.shared.directory.view() else { return };
        self.turn = (self.turn + 1) % shards.len();
        let (shard, node) = (shards[self.turn].shard, shards[self.turn].primary().node);
        let request = self.shared.next_request();
        let question = Question { node, from, end, tries, until: now + RESEND_FIRST };
        self.questions.insert(request, question);
        send(node, shard, shard::Message::Map { request, from, end }, out);
    }

    /// Asks another shard, because this replica has no map: it joined later, or is still copying.
    fn ask_another(&mut self, now: Time, question: Question, out: &mut Out) {
        let Question { from, end, tries, .. } = question;
        let count = self.shared.directory.view().map_or(0, |view| view.shards.len());
        let from = from.max(self.trim);
        if tries + 1 < count && from < end {
            self.ask_for_map(now, (from, end), tries + 1, out);
        }
    }

    fn mapped(
        &mut self,
        now: Time,
        request: u64,
        (view, stable): (ViewNumber, Position),
        owned: &[Owned],
        out: &mut Out,
    ) {
        let Some(question) = self.questions.remove(&request) else { return };
        if view < self.entered {
            // It may not know a later accepted loss.
            return self.ask_another(now, question, out);
        }
        self.stable = self.stable.max(stable);
        if owned.is_empty() && question.from < stable {
            self.ask_another(now, question, out);
        }
        self.map.learn(question.from, owned);
    }
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "fetch_map_tests.rs"]
mod map_tests;
