//! One read: the records from a position on, waiting for the first if need be.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::storage::Stored;
use seriatim_model::{
    Address, Effect, Endpoint, Input, Machine, NodeId, Peer, Placement, Position, ShardId, Time, View, limits,
};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::roles::Message;
use seriatim_protocol::shard::{self, ReadError};

use crate::directory::{Directory, Learned};
use crate::failure::Failure;
use crate::feed::disorder;

/// How long a shard is asked to wait at once. The view may change meanwhile without its noticing.
const POLL_FOR: Duration = Duration::from_secs(2);
/// How long to wait for an answer, beyond what the shard was asked to wait; doubled up to
/// [`RESEND_MOST`].
const RESEND_FIRST: Duration = Duration::from_millis(200);
const RESEND_MOST: Duration = Duration::from_secs(2);
/// How often all replicas may say that they do not hold a record yet, before that is believed.
const MISSING_ROUNDS: usize = 4;
/// How long to wait before all replicas are asked again for what none of them holds yet.
const MISSING_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait before a replica that refused or disconnected is asked again.
const PAUSE: Duration = Duration::from_millis(20);

/// What is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The first position wanted.
    pub from: Position,
    /// At most this many positions; not more than [`limits::READ_RECORDS`] are read at once.
    pub max: u32,
    /// How long to wait while nothing at `from` is final.
    pub wait: Duration,
    /// How long to wait, beyond that, for shards that do not answer.
    pub answer_within: Duration,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// What there is.
    Records {
        /// The records, in order, without no-ops.
        records: Vec<Stored>,
        /// Where to read on: every position from `from` up to it is in `records` or a no-op.
        next: Position,
    },
    /// It did not work.
    Failed(Failure),
}

/// Reads a log, one [`Request`] at a time.
///
/// Every shard that holds a position in the range is asked at once. The answer is the longest prefix
/// that they gave out: a shard that is behind the others shortens it, and only one that holds the very
/// next position is waited for.
#[derive(Debug)]
pub struct Fetch {
    directory: Directory,
    read: Option<Read>,
    last_request: u64,
}

#[derive(Debug)]
struct Read {
    token: u64,
    from: Position,
    end: Position,
    /// Until when to wait for the first record.
    until: Time,
    /// Until when to wait for an answer at all.
    give_up: Time,
    parts: BTreeMap<ShardId, Part>,
    doubt: Option<Doubt>,
}

/// A shard did not give out the first position although it should have it, by the view that is known.
/// Before anybody is blamed, the register is asked whether there is a newer one.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    shard: ShardId,
    /// Only answers to later questions count.
    asked: u64,
}

/// One shard's part of a read.
#[derive(Debug)]
struct Part {
    source: NodeId,
    replica: usize,
    /// How often all replicas said that they do not hold the record yet.
    rounds: usize,
    request: u64,
    /// When to ask, if no answer comes before; none when it answered.
    ask_at: Option<Time>,
    patience: Duration,
    /// Whether it ever answered this read.
    answered: bool,
    records: Vec<Stored>,
    upto: Position,
}

type Out = Vec<Effect<Message, Reply>>;

impl Machine for Fetch {
    type Message = Message;
    type Request = Request;
    type Reply = Reply;

    /// # Panics
    /// If a read is requested while another one runs.
    fn step(&mut self, now: Time, input: Input<Message, Request>, out: &mut Out) {
        match input {
            Input::Request { token, request } => self.start(now, token, request, out),
            Input::Message {
                from: Address::Node(node, Endpoint::Shard(shard)),
                message: Message::Shard(message),
            } => {
                self.receive(now, node, shard, message, out);
            }
            Input::Message { message: Message::Control(message), .. } => self.controlled(now, message, out),
            Input::Disconnected(Peer::Node(node)) => self.disconnected(now, node),
            Input::Timer => self.timer(now, out),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        let read = self.read.as_ref()?;
        let parts = read.parts.values().filter_map(|part| part.ask_at);
        parts.chain(self.directory.deadline()).chain([read.give_up]).min()
    }
}

impl Fetch {
    /// A reader of the log that `entry` describes. `control` is the node of the register.
    #[must_use]
    pub fn new(control: NodeId, entry: LogEntry) -> Self {
        Self { directory: Directory::new(control, entry), read: None, last_request: 0 }
    }

    /// Whether no read runs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.read.is_none()
    }

    /// The register's entry, as far as this reader knows.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        self.directory.entry()
    }

    fn start(&mut self, now: Time, token: u64, request: Request, out: &mut Out) {
        assert!(self.read.is_none(), "a Fetch serves one read at a time");
        let max = u64::from(request.max.min(limits::READ_RECORDS));
        let until = now + request.wait;
        let end = Position(request.from.0.saturating_add(max));
        if end == request.from {
            let reply = Reply::Records { records: vec![], next: end };
            return out.push(Effect::Reply { token, reply });
        }
        let give_up = until + request.answer_within;
        self.read = Some(Read {
            token,
            from: request.from,
            end,
            until,
            give_up,
            parts: BTreeMap::new(),
            doubt: None,
        });
        self.ask_shards(now);
        self.ask_due(now, out);
    }

    /// Sets up a part for each shard that holds a position in the range, at its primary.
    fn ask_shards(&mut self, now: Time) {
        let (Some(view), Some(read)) = (self.directory.view(), &mut self.read) else { return };
        for shard in shards_within(view, self.directory.placement(), read.from, read.end) {
            let Some(members) = view.shard(shard) else { continue };
            let source = members.primary().node;
            let part = read.parts.entry(shard).or_insert_with(|| Part::new(source, read.from));
            if part.upto == read.from {
                (part.source, part.replica) = (source, 0);
                (part.request, part.ask_at) = (0, Some(now));
            }
        }
    }

    /// Asks the shards whose time has come.
    fn ask_due(&mut self, now: Time, out: &mut Out) {
        let Some(read) = &mut self.read else { return };
        for (shard, part) in &mut read.parts {
            if part.ask_at.is_none_or(|at| now < at) {
                continue;
            }
            if part.request != 0 {
                // No answer: a lost message, or a replica that is gone or deposed.
                send(part.source, *shard, shard::Message::Cancel { request: part.request }, out);
                part.patience = (part.patience * 2).min(RESEND_MOST);
                self.directory.ask(now);
            }
            let wait = read.until.since(now).min(POLL_FOR);
            self.last_request += 1;
            part.request = self.last_request;
            part.ask_at = Some(now + wait + part.patience);
            let message = shard::Message::Read {
                request: part.request,
                from: read.from,
                end: read.end,
                max_records: u32::try_from(read.end - read.from).unwrap_or(u32::MAX),
                wait_ms: wait.as_millis() as u32,
            };
            send(part.source, *shard, message, out);
        }
    }

    fn receive(&mut self, now: Time, node: NodeId, shard: ShardId, message: shard::Message, out: &mut Out) {
        match message {
            shard::Message::Records { request, records, upto } => {
                let Some(read) = &mut self.read else { return };
                let Some(part) = read.part(node, shard, request) else { return };
                if let Some(position) = disorder(part.upto, &records, upto) {
                    return self.reply(Reply::Failed(Failure::Disordered { position, shard }), out);
                }
                (part.request, part.ask_at, part.answered) = (0, None, true);
                (part.records, part.upto) = (records, upto);
                self.conclude(now, out);
            }
            shard::Message::ReadFailed { request, error } => {
                let is_current =
                    self.read.as_mut().is_some_and(|read| read.part(node, shard, request).is_some());
                if is_current {
                    self.read_failed(now, shard, error, out);
                }
            }
            shard::Message::Fenced { .. } => self.directory.ask(now),
            // The rest are not for readers.
            _ => {}
        }
    }

    fn read_failed(&mut self, now: Time, shard: ShardId, error: ReadError, out: &mut Out) {
        let failure = match error {
            ReadError::Trimmed { first } => {
                return self.reply(Reply::Failed(Failure::Trimmed { first }), out);
            }
            ReadError::Lost { position, end } => {
                return self.reply(Reply::Failed(Failure::Lost { position, shard, end }), out);
            }
            ReadError::Damaged { position } => Some(Failure::Damaged { position, shard }),
            ReadError::Missing { position } => Some(Failure::Missing { position, shard }),
            ReadError::Disk { reason } => Some(Failure::Disk { shard, reason }),
            ReadError::Busy | ReadError::NotStable { .. } => None,
        };
        let members = self.directory.view().and_then(|view| view.shard(shard));
        let Some(part) = self.read.as_mut().and_then(|read| read.parts.get_mut(&shard)) else { return };
        let Some(failure) = failure else {
            (part.request, part.ask_at) = (0, Some(now + part.patience));
            return;
        };
        // The other replicas hold the same records, or will.
        part.replica += 1;
        match members.and_then(|members| members.replicas.get(part.replica)) {
            Some(member) => {
                part.source = member.node;
                (part.request, part.ask_at) = (0, Some(now));
                self.ask_due(now, out);
            }
            None if matches!(failure, Failure::Missing { .. }) && part.rounds + 1 < MISSING_ROUNDS => {
                // Another view may have somebody who holds it, or it is on its way.
                part.rounds += 1;
                part.replica = 0;
                part.source = members.map_or(part.source, |members| members.primary().node);
                (part.request, part.ask_at) = (0, Some(now + MISSING_PAUSE));
                self.directory.ask(now);
            }
            None => self.reply(Reply::Failed(failure), out),
        }
    }

    fn controlled(&mut self, now: Time, message: control::Message, out: &mut Out) {
        match self.directory.receive(message) {
            Learned::NewView => {
                if let Some(read) = &mut self.read
                    && read.doubt.take().is_some()
                {
                    read.parts.clear();
                }
                self.ask_shards(now);
                self.ask_due(now, out);
            }
            Learned::Deleted => {
                let failure = Failure::Deleted(self.directory.entry().name.clone());
                self.reply(Reply::Failed(failure), out);
            }
            Learned::Same(answer) => {
                let Some(read) = &self.read else { return };
                if let Some(Doubt { shard, .. }) = read.doubt.filter(|doubt| answer > doubt.asked) {
                    let failure = Failure::Gap { position: read.from, shard };
                    self.reply(Reply::Failed(failure), out);
                }
            }
            Learned::Nothing => {}
        }
    }

    fn disconnected(&mut self, now: Time, node: NodeId) {
        let Some(read) = &mut self.read else { return };
        for part in read.parts.values_mut().filter(|part| part.source == node && part.request != 0) {
            (part.request, part.ask_at) = (0, Some(now + PAUSE));
            self.directory.ask(now);
        }
    }

    fn timer(&mut self, now: Time, out: &mut Out) {
        let Some(read) = &self.read else { return };
        if now >= read.give_up {
            return self.give_up(out);
        }
        self.ask_due(now, out);
        self.directory.timer(now, out);
    }

    /// Answers if the shard that holds the next position has said what it has of it.
    fn conclude(&mut self, now: Time, out: &mut Out) {
        let (Some(_), Some(read)) = (self.directory.view(), &mut self.read) else { return };
        let next = read.reach(self.directory.placement());
        let shard = read.holder(self.directory.placement(), next);
        let Some(part) = read.parts.get(&shard).filter(|_| next < read.end) else {
            return self.answer(next, out);
        };
        let is_first = next == read.from;
        if part.ask_at.is_some() {
            if !is_first {
                // There is something to answer with: not much more patience for this shard.
                read.give_up = read.give_up.min(now + RESEND_FIRST);
            }
        } else if is_first && part.upto > next {
            read.doubt = Some(Doubt { shard, asked: self.directory.asked() });
            self.directory.ask(now);
        } else if is_first && now < read.until {
            // Nothing yet. Perhaps because the view is over and nobody told the shards.
            let from = read.from;
            let empty = read.parts.values_mut().filter(|part| part.upto == from && part.request == 0);
            empty.for_each(|part| part.ask_at = Some(now));
            self.directory.ask(now);
            self.ask_due(now, out);
        } else {
            self.answer(next, out);
        }
    }

    /// The time is over: what is there must do.
    fn give_up(&mut self, out: &mut Out) {
        let why = self.directory.entry().unavailable.clone();
        let (Some(_), Some(read)) = (self.directory.view(), &self.read) else {
            return self.reply(Reply::Failed(Failure::NoView { why }), out);
        };
        let next = read.reach(self.directory.placement());
        let shard = read.holder(self.directory.placement(), next);
        match read.parts.get(&shard) {
            Some(part) if next == read.from && !part.answered => {
                let failure = Failure::Unanswered { shard, node: part.source, why };
                self.reply(Reply::Failed(failure), out);
            }
            _ => self.answer(next, out),
        }
    }

    /// Merges what came of `from..next`.
    fn answer(&mut self, next: Position, out: &mut Out) {
        let Some(read) = &mut self.read else { return };
        let mut records: Vec<Stored> =
            read.parts.values_mut().flat_map(|part| std::mem::take(&mut part.records)).collect();
        records.retain(|stored| stored.position < next && !stored.record.is_no_op());
        records.sort_unstable_by_key(|stored| stored.position);
        self.reply(Reply::Records { records, next }, out);
    }

    fn reply(&mut self, reply: Reply, out: &mut Out) {
        let Some(read) = self.read.take() else { return };
        self.directory.rest();
        for (shard, part) in read.parts.iter().filter(|(_, part)| part.request != 0) {
            send(part.source, *shard, shard::Message::Cancel { request: part.request }, out);
        }
        out.push(Effect::Reply { token: read.token, reply });
    }
}

impl Read {
    /// The part that this answer is for.
    fn part(&mut self, node: NodeId, shard: ShardId, request: u64) -> Option<&mut Part> {
        self.parts.get_mut(&shard).filter(|part| part.source == node && part.request == request)
    }

    /// The shard that has `next`, or is the first to say whether it has.
    fn holder(&self, placement: Option<&Placement>, next: Position) -> ShardId {
        if let Some(placement) = placement {
            return placement.shard_of(next);
        }
        let is_silent = |part: &Part| part.ask_at.is_some() && part.upto <= next;
        let silent = self.parts.iter().find(|(_, part)| is_silent(part));
        let behind = self.parts.iter().find(|(_, part)| part.upto <= next);
        silent.or(behind).or(self.parts.iter().next()).map_or(ShardId(0), |(shard, _)| *shard)
    }

    /// The first position that did not come.
    fn reach(&self, placement: Option<&Placement>) -> Position {
        let mut taken: BTreeMap<ShardId, std::slice::Iter<'_, Stored>> =
            self.parts.iter().map(|(shard, part)| (*shard, part.records.iter())).collect();
        let mut next = self.from;
        let Some(placement) = placement else {
            let has = |records: &mut std::slice::Iter<'_, Stored>, next: Position| {
                records.as_slice().first().is_some_and(|stored| stored.position == next)
            };
            while let Some(records) =
                taken.values_mut().find_map(|records| has(records, next).then_some(records))
            {
                records.next();
                next = next.next();
            }
            return next;
        };
        while next < self.end {
            let (shard, stripe_end) = placement.stripe_at(next);
            let Some(records) = taken.get_mut(&shard) else { break };
            let stop = stripe_end.min(self.end);
            while next < stop && records.as_slice().first().is_some_and(|stored| stored.position == next) {
                records.next();
                next = next.next();
            }
            if next < stop {
                break;
            }
        }
        next
    }
}

impl Part {
    fn new(source: NodeId, from: Position) -> Self {
        Self {
            source,
            replica: 0,
            rounds: 0,
            request: 0,
            ask_at: None,
            patience: RESEND_FIRST,
            answered: false,
            records: vec![],
            upto: from,
        }
    }
}

/// The shards that may hold a position in `from..end`.
fn shards_within(view: &View, placement: Option<&Placement>, from: Position, end: Position) -> Vec<ShardId> {
    let Some(placement) = placement else {
        return view.shards.iter().map(|members| members.shard).collect();
    };
    let most = view.shards.len();
    let mut shards = vec![];
    let mut position = from;
    while position < end && shards.len() < most {
        let (shard, stripe_end) = placement.stripe_at(position);
        if !shards.contains(&shard) {
            shards.push(shard);
        }
        position = stripe_end;
    }
    shards
}

fn send(node: NodeId, shard: ShardId, message: shard::Message, out: &mut Out) {
    out.push(Effect::Send { to: Address::Node(node, Endpoint::Shard(shard)), message: message.into() });
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
