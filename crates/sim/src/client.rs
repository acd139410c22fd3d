//! A client process: sessions, readers and a trimmer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::{Address, Effect, Input, Machine, NodeId, Peer, Record, SessionId, Time};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::parts::appending::{AppendSpec, Failure, LogClientConfig, Reply, Request};
use seriatim_protocol::{LogClient, Message};

use crate::history::{History, Outcome, TailCheck};
use crate::late_messages::LateMessages;
use crate::lookups::Lookups;
use crate::plan::Workload;
use crate::random::Random;
use crate::reader::Reader;
use crate::subscription::Subscription;
use crate::trimmer::Trimmer;

/// The reader's machine number.
pub const READER: u64 = 100;
/// The trimmer's machine number.
pub const TRIMMER: u64 = 101;
/// The subscription's machine number.
pub const SUBSCRIPTION: u64 = 102;
/// Machine number of random reads.
pub const LOOKUPS: u64 = 103;
/// First token of questions for the tail; lower tokens belong to appends.
const TAILS: u64 = 1 << 40;
/// Token of the request to end the session.
const END: u64 = 1 << 41;

/// Key of a record with this payload.
#[must_use]
pub fn key_of(payload: &[u8]) -> [u8; 2] {
    let sum = payload.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    [b'k', b'0' + sum % 3]
}

/// An application's session.
#[derive(Debug)]
pub struct Producer {
    number: u64,
    client: u32,
    config: LogClientConfig,
    machine: LogClient,
    /// Number of the present session, counted over all clients.
    session: u32,
    /// Appends of the present session by number, including those before a resume.
    in_session: Vec<usize>,
    /// The application's note of a resumed session: id, number, preceding appends in `in_session`.
    noted: Option<(SessionId, u64, usize)>,
    pending: BTreeSet<usize>,
    unanswered_tails: BTreeSet<usize>,
    remaining: u32,
    next_at: Time,
    /// Whether to append without pauses.
    hurry: bool,
    expired: u64,
    end: End,
    /// Whether another run of the program resumed the session: replies count, but this one appends
    /// no more.
    is_survivor: bool,
}

#[derive(Debug)]
enum End {
    Open,
    Asked,
    Ended(Option<LateMessages>),
}

/// What a producer leaves to the next run of its program.
#[derive(Debug)]
pub struct Legacy {
    remaining: u32,
    session: u32,
    in_session: Vec<usize>,
    pending: BTreeSet<usize>,
    noted: Option<(SessionId, u64, usize)>,
}

impl Legacy {
    /// The session to resume, if any, and its next number.
    #[must_use]
    pub fn session(&self) -> Option<(SessionId, u64)> {
        self.noted.map(|(session, number, _)| (session, number))
    }
}

/// Number of the sending machine, receiver, message.
pub type Post = (u64, Address, Message);

impl Producer {
    /// A session with `remaining` appends to make.
    #[must_use]
    pub fn new(
        number: u64,
        client: u32,
        session: u32,
        remaining: u32,
        (config, entry): (LogClientConfig, LogEntry),
        start: Time,
    ) -> Self {
        Self {
            number,
            client,
            machine: LogClient::new(config.clone(), entry),
            config,
            session,
            in_session: vec![],
            noted: None,
            pending: BTreeSet::new(),
            unanswered_tails: BTreeSet::new(),
            remaining,
            next_at: start,
            hurry: false,
            expired: 0,
            end: End::Open,
            is_survivor: false,
        }
    }

    /// Copy of the producer that lives on after another run of the program resumed its session.
    #[must_use]
    pub fn survivor(&self) -> Self {
        let entry = self.machine.entry().clone();
        let survivor =
            Self::new(self.number, self.client, self.session, 0, (self.config.clone(), entry), Time::ZERO);
        Self { machine: self.machine.clone(), is_survivor: true, ..survivor }
    }

    /// Continues a dead client's producer. `self` is a new producer, made with [`Legacy::session`].
    #[must_use]
    pub fn resume(mut self, legacy: Legacy, now: Time, history: &mut History) -> Self {
        self.remaining = legacy.remaining;
        let Some((_, _, lowest)) = legacy.noted else {
            for append in legacy.pending {
                history.complete(now, append, Outcome::Unknown);
            }
            return self;
        };
        self.noted = legacy.noted;
        self.session = legacy.session;
        self.pending = legacy.pending;
        self.in_session = legacy.in_session;
        let again = self.in_session[lowest..].to_vec();
        for append in again {
            let payload = history.appends[append].payload.clone();
            self.request(now, append, (&payload, history.keyed), AppendSpec::default());
        }
        self
    }

    /// State that the program's next run inherits if the client dies now. The next run resumes the
    /// session only if `remembers`: with resubmissions its numbers are unknown. The next number
    /// follows from the present session or from the resumed one, equivalently.
    #[must_use]
    pub fn die(self, remembers: bool, random: &mut Random) -> Legacy {
        let in_flight = |index: &usize| self.pending.contains(index);
        let lowest = self.in_session.iter().position(in_flight).unwrap_or(self.in_session.len());
        let known = self.machine.session().and_then(|(session, next)| {
            let after = (self.in_session.len() - lowest) as u64;
            Some((session, next.checked_sub(after)?, lowest))
        });
        let counted = |(session, number, index)| (session, number + (lowest - index) as u64, lowest);
        let first = self.noted.map(counted);
        let noted = if random.percent(50) { known.or(first) } else { first.or(known) };
        Legacy {
            remaining: self.remaining,
            session: self.session,
            in_session: self.in_session,
            pending: self.pending,
            noted: noted.filter(|_| remembers),
        }
    }

    /// Whether every append and question has its answer.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let is_ending = match &self.end {
            End::Open => false,
            End::Asked => true,
            End::Ended(late_messages) => {
                late_messages.as_ref().is_some_and(|late_messages| late_messages.deadline().is_some())
            }
        };
        !is_ending && self.has_appended()
    }

    fn has_appended(&self) -> bool {
        self.remaining == 0 && self.pending.is_empty() && self.unanswered_tails.is_empty()
    }

    /// Whether an append is in flight.
    #[must_use]
    pub fn is_appending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Description of its open work, for a person.
    #[must_use]
    pub fn state(&self) -> String {
        format!(
            "{} appends to make, waits for {} ({:?}…) and tails {:?}, session {:?}, knows view {}, unavailable {:?}",
            self.remaining,
            self.pending.len(),
            self.pending.iter().take(20).collect::<Vec<_>>(),
            self.unanswered_tails,
            self.machine.session(),
            self.machine.entry().view_number(),
            self.machine.unavailable()
        )
    }

    /// Number of its sessions that expired.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Ends pauses and tail questions.
    pub fn hurry(&mut self) {
        self.hurry = true;
        self.next_at = Time::ZERO;
    }

    /// Drops the appends not made yet.
    pub fn stop(&mut self) {
        self.remaining = 0;
    }

    /// Asks for the tail.
    pub fn ask_tail(&mut self, now: Time, history: &mut History, out: &mut Vec<Post>) {
        let index = history.tails.len();
        let invoked = history.tick();
        history.tails.push(TailCheck { invoked, invoked_at: now, returned: None });
        self.unanswered_tails.insert(index);
        let request = Input::Request { token: TAILS + index as u64, request: Request::CheckTail };
        self.step(now, request, history, out);
    }

    /// When to wake it.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let next = (self.remaining > 0).then_some(self.next_at);
        let late_messages = match &self.end {
            End::Ended(Some(late_messages)) => late_messages.deadline(),
            _ => None,
        };
        [self.machine.deadline(), next, late_messages].into_iter().flatten().min()
    }

    /// Gives an input to the machine.
    pub fn step(
        &mut self,
        now: Time,
        input: Input<Message, Request>,
        history: &mut History,
        out: &mut Vec<Post>,
    ) {
        let had_one = self.machine.session().is_some();
        let mut effects = vec![];
        self.machine.step(now, input, &mut effects);
        let lost = had_one && self.machine.session().is_none();
        self.perform(now, effects, lost, history, out);
    }

    /// Appends when it is time, and wakes the machine.
    pub fn wake(
        &mut self,
        now: Time,
        workload: &Workload,
        random: &mut Random,
        history: &mut History,
        out: &mut Vec<Post>,
    ) {
        if self.remaining > 0 && now >= self.next_at {
            self.append_some(now, workload, random, history, out);
        }
        if workload.per_session.is_some_and(|most| self.in_session.len() as u64 >= u64::from(most)) {
            self.begin_another(now, random, history, out);
        }
        if workload.ends && !self.is_survivor && self.has_appended() && matches!(self.end, End::Open) {
            self.end = End::Asked;
            self.step(now, Input::Request { token: END, request: Request::EndSession }, history, out);
        }
        if let End::Ended(Some(late_messages)) = &mut self.end {
            let sends = late_messages.wake(now, self.machine.entry(), random);
            out.extend(sends.into_iter().map(|(to, message)| (self.number, to, message)));
        }
        if self.machine.deadline().is_some_and(|at| now >= at) {
            self.step(now, Input::Wake, history, out);
        }
    }

    /// The program's next run opens its own session; the previous session is closed without
    /// waiting, or not at all.
    fn begin_another(&mut self, now: Time, random: &mut Random, history: &mut History, out: &mut Vec<Post>) {
        let is_idle = self.pending.is_empty() && self.unanswered_tails.is_empty();
        if self.remaining == 0 || !is_idle || !matches!(self.end, End::Open) {
            return;
        }
        if random.percent(40) {
            self.step(now, Input::Request { token: END, request: Request::EndSession }, history, out);
            self.step(now, Input::Wake, history, out);
            self.end = End::Open;
        }
        let config = LogClientConfig { random: random.draw(), resume: None, ..self.config.clone() };
        self.machine = LogClient::new(config, self.machine.entry().clone());
        self.session = history.open_session();
        self.in_session.clear();
        self.noted = None;
    }

    fn append_some(
        &mut self,
        now: Time,
        workload: &Workload,
        random: &mut Random,
        history: &mut History,
        out: &mut Vec<Post>,
    ) {
        let pause = if random.percent(workload.long_pause_percent) { 20 } else { 1 };
        self.next_at = now + random.micros(workload.think_us / 4 + 1, workload.think_us + 1) * pause;
        if self.hurry {
            self.next_at = now + Duration::from_millis(1);
        }
        for _ in 0..random.between(1, u64::from(workload.burst)) {
            if self.remaining == 0 || self.pending.len() >= workload.window as usize {
                return;
            }
            self.remaining -= 1;
            let oversize = random.permille(workload.oversize_permille);
            let mut spec =
                AppendSpec { sync: random.percent(workload.sync_percent), ..AppendSpec::default() };
            if workload.unordered {
                spec.again_until = now + random.millis(50, 5000);
            }
            let number = self.in_session.len() as u64;
            let payload = match workload.payload_of_disks {
                true => piece(history, workload, random),
                false => payload(history.appends.len(), workload, oversize, random),
            };
            let append = history.invoke(now, self.client, self.session, number, payload.clone());
            self.in_session.push(append);
            self.pending.insert(append);
            self.request(now, append, (&payload, history.keyed), spec);
            if random.percent(workload.tail_percent) && !self.hurry {
                self.ask_tail(now, history, out);
            }
        }
    }

    fn request(&mut self, now: Time, append: usize, (payload, keyed): (&Bytes, bool), spec: AppendSpec) {
        let (at, key) = (now.0 / 1_000_000, key_of(payload));
        let record = Record::build(payload, at, Some(&key[..]).filter(|_| keyed), &[]);
        let request = Request::Append { record, spec };
        let mut effects = vec![];
        self.machine.step(now, Input::Request { token: append as u64, request }, &mut effects);
        assert!(effects.is_empty(), "an append leaves with the timer that it makes due");
    }

    fn perform(
        &mut self,
        now: Time,
        effects: Vec<Effect<Message, Reply>>,
        mut session_ended: bool,
        history: &mut History,
        out: &mut Vec<Post>,
    ) {
        for effect in effects {
            match effect {
                Effect::Send { to, message } => out.push((self.number, to, message)),
                Effect::Reply { token, reply } if self.is_survivor && token < TAILS => {
                    if let Reply::Appended { id, position, .. } = reply {
                        history.acknowledge(now, token as usize, id, position);
                    }
                }
                Effect::Reply { token: END, reply } => {
                    let ended = if let Reply::Ended(ended) = reply { ended } else { None };
                    if let Some((session, at)) = ended {
                        history.end_session(session, at);
                    }
                    let late_messages = ended.map(|(session, at)| LateMessages::new(now, session, at));
                    self.end = End::Ended(late_messages);
                }
                Effect::Reply { token, reply } if token >= TAILS => {
                    self.tail_answered(now, (token - TAILS) as usize, &reply, history);
                }
                Effect::Reply { token, reply } => {
                    session_ended |= self.append_answered(now, token as usize, reply, history);
                }
                other => unreachable!("a client has no disk: {other:?}"),
            }
        }
        if session_ended && !self.is_survivor {
            self.expired += 1;
            self.session = history.open_session();
            self.in_session.clear();
            self.noted = None;
        }
    }

    fn tail_answered(&mut self, now: Time, index: usize, reply: &Reply, history: &mut History) {
        self.unanswered_tails.remove(&index);
        if let Reply::Tail(tail) = reply {
            let moment = history.tick();
            history.tails[index].returned = Some((moment, now, *tail));
        }
    }

    /// Handles an append's outcome. Returns whether the session ended.
    fn append_answered(&mut self, now: Time, append: usize, reply: Reply, history: &mut History) -> bool {
        self.pending.remove(&append);
        match reply {
            Reply::Appended { id, position, again } => {
                history.appends[append].again = again;
                history.acknowledge(now, append, id, position);
                false
            }
            Reply::Failed(Failure::Stale(id)) => {
                history.acknowledge(now, append, id, None);
                false
            }
            Reply::Failed(Failure::NotAppended(_)) => {
                history.complete(now, append, Outcome::Refused);
                false
            }
            Reply::Failed(Failure::TooLarge { .. }) => {
                history.complete(now, append, Outcome::Refused);
                true
            }
            Reply::Failed(_) => {
                history.complete(now, append, Outcome::Unknown);
                true
            }
            Reply::Tail(_) | Reply::Session { .. } | Reply::Ended(_) => {
                unreachable!("no answer to an append")
            }
        }
    }
}

fn payload(append: usize, workload: &Workload, oversize: bool, random: &mut Random) -> Bytes {
    let mut text = format!("append {append} ");
    if workload.payload_is_fixed {
        let mut bytes = text.into_bytes();
        bytes.resize(workload.payload_bytes.max(bytes.len() as u64) as usize, 0);
        return bytes.into();
    }
    let wanted = if oversize { 601 + random.below(100) } else { random.below(workload.payload_bytes + 1) };
    while (text.len() as u64) < wanted {
        text.push(char::from(b'a' + (text.len() % 26) as u8));
    }
    text.into()
}

/// Payload with a piece of a node's disk from a random start, followed by the append's number.
fn piece(history: &History, workload: &Workload, random: &mut Random) -> Bytes {
    let piece = &history.piece;
    let most = piece.len().min(workload.payload_bytes as usize) as u64;
    let start = random.pick(&[0, 0, random.clone().below(most + 1)]) as usize;
    let mut bytes = piece[start..most as usize].to_vec();
    bytes.extend_from_slice(format!("append {}", history.appends.len()).as_bytes());
    bytes.into()
}

/// A client process.
#[derive(Debug)]
pub struct Client {
    /// Its number.
    pub number: u32,
    /// Its sessions, by machine number.
    pub producers: BTreeMap<u64, Producer>,
    /// Its reader.
    pub reader: Option<Reader>,
    /// Its subscription.
    pub subscription: Option<Subscription>,
    /// Its random reads.
    pub lookups: Option<Lookups>,
    /// Trims the records that the reader has read.
    pub trimmer: Option<Trimmer>,
    /// When it will be woken.
    pub wake_at: Option<Time>,
}

impl Client {
    /// A client with these sessions only.
    #[must_use]
    pub fn new(number: u32, producers: BTreeMap<u64, Producer>) -> Self {
        Self {
            number,
            producers,
            reader: None,
            subscription: None,
            lookups: None,
            trimmer: None,
            wake_at: None,
        }
    }

    /// Its sessions as they live on after another run resumed them.
    #[must_use]
    pub fn survivors(&self) -> BTreeMap<u64, Producer> {
        self.producers.iter().map(|(number, producer)| (*number, producer.survivor())).collect()
    }
}

impl Client {
    /// Passes a message to its machine.
    pub fn receive(
        &mut self,
        now: Time,
        machine: u64,
        from: Address,
        message: Message,
        history: &mut History,
        out: &mut Vec<Post>,
    ) {
        if let Some(producer) = self.producers.get_mut(&machine) {
            producer.step(now, Input::Message { from, message }, history, out);
        } else if let (READER, Some(reader)) = (machine, &mut self.reader) {
            let mut sends = vec![];
            reader.receive(now, from, message, history, &mut sends);
            out.extend(sends.into_iter().map(|(to, message)| (READER, to, message)));
        } else if let (SUBSCRIPTION, Some(subscription)) = (machine, &mut self.subscription) {
            let mut sends = vec![];
            subscription.receive(now, from, message, history, &mut sends);
            out.extend(sends.into_iter().map(|(to, message)| (SUBSCRIPTION, to, message)));
        } else if let (LOOKUPS, Some(lookups)) = (machine, &mut self.lookups) {
            let mut sends = vec![];
            lookups.receive(now, from, message, history, &mut sends);
            out.extend(sends.into_iter().map(|(to, message)| (LOOKUPS, to, message)));
        } else if let (TRIMMER, Some(trimmer)) = (machine, &mut self.trimmer) {
            let mut sends = vec![];
            trimmer.receive(now, from, message, history, &mut sends);
            out.extend(sends.into_iter().map(|(to, message)| (TRIMMER, to, message)));
        }
    }

    /// Notes that the connection to a node is closed.
    pub fn disconnected(&mut self, now: Time, node: NodeId, history: &mut History, out: &mut Vec<Post>) {
        for producer in self.producers.values_mut() {
            producer.step(now, Input::Disconnected(Peer::Node(node)), history, out);
        }
        if let Some(reader) = &mut self.reader {
            reader.disconnected(now, node);
        }
        if let Some(subscription) = &mut self.subscription {
            let mut sends = vec![];
            subscription.disconnected(now, node, history, &mut sends);
            out.extend(sends.into_iter().map(|(to, message)| (SUBSCRIPTION, to, message)));
        }
        if let Some(lookups) = &mut self.lookups {
            let mut sends = vec![];
            lookups.disconnected(now, node, history, &mut sends);
            out.extend(sends.into_iter().map(|(to, message)| (LOOKUPS, to, message)));
        }
        if let Some(trimmer) = &mut self.trimmer {
            let mut sends = vec![];
            trimmer.disconnected(now, node, history, &mut sends);
            out.extend(sends.into_iter().map(|(to, message)| (TRIMMER, to, message)));
        }
    }

    /// Wakes its machines.
    pub fn wake(
        &mut self,
        now: Time,
        workload: &Workload,
        random: &mut Random,
        history: &mut History,
        out: &mut Vec<Post>,
    ) {
        for producer in self.producers.values_mut() {
            producer.wake(now, workload, random, history, out);
        }
        if let Some(subscription) = &mut self.subscription {
            let mut sends = vec![];
            subscription.wake(now, history, &mut sends);
            out.extend(sends.into_iter().map(|(to, message)| (SUBSCRIPTION, to, message)));
        }
        if let Some(lookups) = &mut self.lookups {
            let mut sends = vec![];
            lookups.wake(now, history, &mut sends);
            out.extend(sends.into_iter().map(|(to, message)| (LOOKUPS, to, message)));
        }
        if let Some(reader) = &mut self.reader {
            let mut sends = vec![];
            if reader.deadline().is_some_and(|at| now >= at) {
                reader.timer(now, history, &mut sends);
            }
            out.extend(sends.into_iter().map(|(to, message)| (READER, to, message)));
        }
        if let Some(trimmer) = &mut self.trimmer {
            let mut sends = vec![];
            trimmer.wake(now, self.reader.as_ref(), random, history, &mut sends);
            out.extend(sends.into_iter().map(|(to, message)| (TRIMMER, to, message)));
        }
    }

    /// Deadlines of its machines, for a person.
    #[must_use]
    pub fn deadlines(&self) -> String {
        let producers: Vec<_> =
            self.producers.values().map(|producer| (producer.deadline(), producer.state())).collect();
        format!("producers {producers:?}, reader {:?}", self.reader.as_ref().and_then(Reader::deadline))
    }

    /// When to wake it.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let producers = self.producers.values().filter_map(Producer::deadline).min();
        let reader = self.reader.as_ref().and_then(Reader::deadline);
        let trims_more = self.reader.is_some();
        let trimmer = self.trimmer.as_ref().and_then(|trimmer| trimmer.deadline(trims_more));
        let subscription = self.subscription.as_ref().and_then(Subscription::deadline);
        let lookups = self.lookups.as_ref().and_then(Lookups::deadline);
        [producers, reader, subscription, lookups, trimmer].into_iter().flatten().min()
    }
}
