//! A client's side of appending: it gets positions from the sequencer, and writes each record down
//! the chain of its position.
//!
//! Writes that queue up between two steps leave as one message per replica. Appends proceed in
//! parallel.

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::{
    Address, Endpoint, Input, Machine, NodeId, Peer, Position, Record, RecordId, SessionId, ShardId, Span,
    Time, ViewNumber, limits,
};

use super::ShardMessage;
use super::adaptive_timeout::AdaptiveTimeout;
use super::message::Message;
use super::resuming::{Earlier, Sought};
use super::tail::Answers;
use super::writes::Writes;
use crate::control::{self, LogEntry};
use crate::parts::appending::{AppendSpec, ClientEffect, Failure, LogClientConfig, Reply, Request, reply};
use crate::parts::known_log::News;
use crate::parts::{Conversation, Jitter, KnownLog, SessionWaiters, ShardChoice, Tails, sequencing};
use crate::roles;
use crate::shard;

/// One client's session and tail questions for one log.
///
/// Invariant: `pending` are the numbers from `base` on. The sequencer granted positions to the
/// numbers below `granted` in this take, unless they are completed; the client asked for positions
/// of all below `asked`.
#[derive(Clone, Debug)]
pub struct LogClient {
    pub(super) config: LogClientConfig,
    pub(super) log: KnownLog,
    pub(super) session: Option<SessionId>,
    sessions_opened: u64,
    /// Whether the client waits to open its session, for the tail or for the ends of earlier
    /// sessions.
    pub(super) is_opening: bool,
    /// Position of the session's last record known in the log, or the start of its first view.
    pub(super) since: Position,
    /// View and tail at the opening. The next view may grant positions below this tail again.
    opened_at: (ViewNumber, Position),
    pub(super) askers: SessionWaiters,
    pub(super) base: u64,
    pub(super) pending: VecDeque<Pending>,
    pub(super) granted: u64,
    pub(super) asked: u64,
    pub(super) take: u64,
    /// Bound above the highest number known to be in the log.
    pub(super) in_log: u64,
    /// A position was lost: no new requests until all outcomes are known.
    pub(super) is_recovering: bool,
    pub(super) placed: BTreeMap<Position, u64>,
    pub(super) writes: Writes,
    /// The conversation with the sequencer. Its window counts records that have not reached a head.
    pub(super) sequencer: Conversation,
    pub(super) in_flight_to_head: InFlightToHead,
    /// How long the sequencer should wait for a granted position's record to reach the head.
    pub(super) fill_timeout: AdaptiveTimeout,
    pub(super) tails: Tails<Answers>,
    pub(super) earlier: Earlier,
    pub(super) jitter: Jitter,
    /// When to send the sequencer a sign of life.
    pub(super) announce_at: Option<Time>,
    /// The view is over: the client has offered its records to flushing shards.
    pub(super) is_over: bool,
    pub(super) work_is_due: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) token: u64,
    pub(super) record: Record,
    pub(super) spec: AppendSpec,
    /// Number of earlier ids of this record.
    pub(super) again: u32,
    pub(super) completed: bool,
    pub(super) asked_at: Time,
    pub(super) place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Nowhere,
    /// `hops` replicas of the chain have the record.
    At {
        position: Position,
        hops: usize,
        /// Whether any replica may have the record.
        sent: bool,
    },
    /// The record was in flight when its view ended: the client asks the replicas in turn, and
    /// `tries` of them could not tell.
    Asked {
        position: Position,
        tries: usize,
    },
    /// Another record is at the append's position.
    Overtaken,
}

/// Records on the way to their heads: at most two batches, and half of a replica's window, so that
/// queueing alone makes no position overdue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InFlightToHead {
    records: usize,
    bytes: usize,
}

impl InFlightToHead {
    fn has_room(self, limits: limits::Limits, window: usize) -> bool {
        self.records < 2 * limits.batch_records && self.bytes < (2 * limits.batch_bytes).min(window / 2)
    }

    fn add(&mut self, record: &Record) {
        self.records += 1;
        self.bytes += record.size();
    }

    pub(super) fn remove(&mut self, record: &Record) {
        self.records = self.records.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(record.size());
    }
}

pub(super) type Out = Vec<ClientEffect>;

impl Machine for LogClient {
    type Message = roles::Message;
    type Request = Request;
    type Reply = Reply;

    fn step(&mut self, now: Time, input: Input<roles::Message, Request>, out: &mut Out) {
        if let Input::Message { from: Address::Node(node, _), .. } = &input {
            self.log.heard(*node);
        }
        match input {
            Input::Request { token, request: Request::Append { record, spec } } => {
                self.submit(token, record, spec, out);
            }
            Input::Request { token, request: Request::CheckTail } => self.ask_tail(now, Some(token), out),
            Input::Request { token, request: Request::EndSession } => {
                self.askers.ask_end(token);
                self.work_is_due = true;
            }
            Input::Request { token, request: Request::OpenSession } => {
                self.askers.ask_session(token);
                self.work_is_due = true;
            }
            Input::Message {
                from: Address::Node(_, Endpoint::Sequencer),
                message: roles::Message::Corfu(message),
            } => self.receive(now, message, out),
            Input::Message {
                from: Address::Node(_, Endpoint::Sequencer),
                message: roles::Message::Sequencing(message),
            } => self.sequencer_answered(now, message, out),
            Input::Message {
                from: Address::Node(node, Endpoint::Shard(shard)),
                message: message @ (roles::Message::Shard(_) | roles::Message::CorfuShard(_)),
            } => self.replica_answered(now, (shard, node), message, out),
            Input::Message { message: roles::Message::Control(message), .. } => {
                self.controlled(now, message, out)
            }
            Input::Disconnected(Peer::Node(node)) => self.disconnected(now, node),
            Input::Wake => self.timer(now, out),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.work_is_due {
            return Some(Time::ZERO);
        }
        let asks = self.session.is_some() && self.log.view().is_some() && !self.is_recovering;
        let at_once = self.may_ask().then(|| self.sequencer.resumes_at().unwrap_or(Time::ZERO));
        let waits = self.granted < self.asked;
        let sequencer = at_once.or_else(|| waits.then(|| self.sequencer.resend_at())).filter(|_| asks);
        let earlier = self.earlier.deadline().filter(|_| self.log.view().is_some());
        [
            self.log.deadline(),
            sequencer,
            self.writes.deadline(),
            self.tails.deadline(),
            earlier,
            self.announce_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

impl LogClient {
    /// Creates a client of the log in `entry`. It always opens its own session, perhaps as a
    /// resumed one's successor.
    #[must_use]
    pub fn new(config: LogClientConfig, entry: LogEntry) -> Self {
        let (jitter, batch_bytes) = (Jitter::new(config.random), config.options.limits.batch_bytes);
        let earlier = Earlier::new(config.resume);
        let mut client = Self {
            log: KnownLog::new(config.control, entry, config.random),
            config,
            session: None,
            sessions_opened: 0,
            is_opening: false,
            since: Position::ZERO,
            opened_at: (ViewNumber(0), Position::ZERO),
            askers: SessionWaiters::default(),
            base: 0,
            pending: VecDeque::new(),
            granted: 0,
            asked: 0,
            take: 0,
            in_log: 0,
            is_recovering: false,
            placed: BTreeMap::new(),
            writes: Writes::default(),
            sequencer: Conversation::new(Time::ZERO, batch_bytes),
            in_flight_to_head: InFlightToHead::default(),
            fill_timeout: AdaptiveTimeout::new(Time::ZERO),
            tails: Tails::default(),
            earlier,
            jitter,
            announce_at: None,
            is_over: false,
            work_is_due: false,
        };
        client.talk_anew();
        client.earlier.enter_view(client.log.entry());
        client
    }

    /// The open session and its next number. While the application repeats an earlier run's
    /// appends: that run's session and next number.
    #[must_use]
    pub fn session(&self) -> Option<(SessionId, u64)> {
        self.session.map(|session| self.earlier.past.next().unwrap_or((session, self.end())))
    }

    /// The latest known register entry.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        self.log.entry()
    }

    /// Why no view can be formed, if the sequencer reported it.
    #[must_use]
    pub fn unavailable(&self) -> Option<&str> {
        self.log.unavailable()
    }

    /// Nodes that have not answered, each with `Some(true)` if its disk is full, `Some(false)` if
    /// it lacks room otherwise, and `None` if it did not refuse.
    pub fn waits_for(&self) -> impl Iterator<Item = (NodeId, Option<bool>)> {
        let leader = self.log.view().map(|view| view.leader).filter(|_| self.granted < self.end());
        leader.map(|leader| (leader, None)).into_iter().chain(self.writes.waits_for())
    }

    /// Number of appends in progress.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pending.len() + self.earlier.past.in_flight()
    }

    /// Whether a caller waits for an answer that needs a view.
    fn is_waiting(&self) -> bool {
        let resumes =
            self.earlier.resuming.is_some() && (self.askers.want_session() || self.askers.want_end());
        self.in_flight() > 0 || !self.tails.is_empty() || resumes
    }

    fn submit(&mut self, token: u64, record: Record, spec: AppendSpec, out: &mut Out) {
        self.work_is_due = true;
        // `objection` does not apply to an earlier run's append. While this run resumes, an
        // append's run is unknown.
        if self.earlier.past.claim(token, true) {
            return;
        }
        if self.earlier.resuming.is_none()
            && let Some(failure) = self.objection(&record, spec)
        {
            return out.push(reply(token, Reply::Failed(failure)));
        }
        self.enqueue(token, record, spec, 0);
    }

    pub(super) fn objection(&self, record: &Record, spec: AppendSpec) -> Option<Failure> {
        let config = self.log.config();
        if matches!(spec.shard, ShardChoice::Fixed(_)) {
            Some(Failure::NoChoice(config.order))
        } else if config.is_too_large(record) {
            Some(Failure::TooLarge { limit: config.max_record_bytes })
        } else {
            None
        }
    }

    pub(super) fn enqueue(&mut self, token: u64, record: Record, spec: AppendSpec, again: u32) {
        let (completed, asked_at, place) = (false, Time::ZERO, Place::Nowhere);
        self.pending.push_back(Pending { token, record, spec, again, completed, asked_at, place });
        self.work_is_due = true;
    }

    pub(super) fn end(&self) -> u64 {
        self.base + self.pending.len() as u64
    }

    pub(super) fn numbered(&mut self, number: u64) -> Option<&mut Pending> {
        self.pending.get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    fn receive(&mut self, now: Time, message: Message, out: &mut Out) {
        let current = self.view_in_force();
        match message {
            Message::Given { view, session, take, first, spans }
                if Some(view) == current && Some(session) == self.session && take == self.take =>
            {
                self.given(now, first, &spans);
            }
            Message::OutOfOrder { view, session, take, expected }
                if Some(view) == current && Some(session) == self.session && take == self.take =>
            {
                self.ask_again_from(expected.max(self.granted));
                self.work_is_due = true;
            }
            Message::Closed { view, session, below } if Some(view) == current => {
                let batch = self.config.options.limits.batch_records;
                let outcome = self.earlier.closed(session, below, batch);
                self.conclude(outcome, out);
            }
            Message::Expired { view, session } if Some(view) == current && Some(session) == self.session => {
                self.session_lost(out);
            }
            Message::Unwritten { view, session, take, spans } if Some(view) == current => {
                self.is_asked(now, session, take, &spans, out);
            }
            _ => {}
        }
    }

    fn sequencer_answered(&mut self, now: Time, message: sequencing::Message, out: &mut Out) {
        match message {
            sequencing::Message::Tail { request, view, tail } => self.tail_answered(request, view, tail, out),
            sequencing::Message::Rejected { view, why } => self.log.was_rejected(now, view, why),
            _ => {}
        }
    }

    fn given(&mut self, now: Time, first: u64, spans: &[Span]) {
        if self.is_recovering || first > self.granted {
            return;
        }
        let Some(view) = self.log.view() else { return };
        let granted = self.granted;
        let numbers = first..self.base + self.pending.len() as u64;
        for (number, position) in numbers.zip(spans.iter().flat_map(|span| span.positions())) {
            if number < self.granted {
                continue;
            }
            self.granted = number + 1;
            let pending = &mut self.pending[(number - self.base) as usize];
            pending.place = Place::At { position, hops: 0, sent: false };
            self.placed.insert(position, number);
            self.writes.make_due(view, position, &pending.place);
        }
        self.asked = self.asked.max(self.granted);
        if self.granted > granted {
            self.sequencer.advances(now);
        }
        self.work_is_due = true;
    }

    fn controlled(&mut self, now: Time, message: control::Message, out: &mut Out) {
        let message = match message {
            control::Message::Current { entry } if entry.id == self.log.entry().id => {
                let outcome = self.earlier.register_says(&entry);
                self.conclude(outcome, out);
                control::Message::Registered { entry }
            }
            message => message,
        };
        match self.log.learn(message) {
            News::NewView => self.enter_view(now, out),
            News::Deleted => self.deleted(out),
            News::Nothing => {}
        }
    }

    /// Everything below the view's start is written: looks up the writes in flight there. Grants
    /// beyond are void.
    fn enter_view(&mut self, now: Time, out: &mut Out) {
        self.talk_anew();
        self.is_over = false;
        let Some(view) = self.log.view() else { return };
        self.placed.clear();
        // Unwritten positions above the start are granted again.
        self.since = self.since.min(view.start);
        let mut is_gone = false;
        for (number, pending) in
            (self.base..).zip(&mut self.pending).filter(|(_, pending)| !pending.completed)
        {
            pending.place = match pending.place {
                Place::At { position, sent: true, .. } | Place::Asked { position, .. }
                    if position < view.start =>
                {
                    self.placed.insert(position, number);
                    let place = Place::Asked { position, tries: 0 };
                    is_gone |= !self.writes.make_due(view, position, &place);
                    place
                }
                Place::Overtaken => Place::Overtaken,
                _ => Place::Nowhere,
            };
        }
        self.tails.enter_view();
        self.earlier.enter_view(self.log.entry());
        if is_gone {
            // The position is trimmed, and its shard has left: no replica knows the record there.
            self.session_lost(out);
        }
        self.give_up_positions();
        self.end_recovery_if_known(now, out);
        self.work_is_due = true;
    }

    fn disconnected(&mut self, now: Time, node: NodeId) {
        if self.log.view().is_some_and(|view| view.leader == node) {
            self.ask_again_from(self.granted);
            self.sequencer.disconnected(now);
            self.announce_later(now);
        }
        self.writes.disconnected(now, node);
        self.log.disconnected(now, node, self.is_waiting());
    }

    fn timer(&mut self, now: Time, out: &mut Out) {
        self.work_is_due = false;
        self.log.look_up_if_due(now, self.is_waiting(), out);
        self.log.watch(now, self.base..self.end(), self.config.options, out);
        self.repeat_tail_questions(now, out);
        let ends = self.earlier.resuming.is_some() && self.askers.want_end();
        let is_wanted = !self.pending.is_empty() || self.askers.want_session() || ends;
        if self.session.is_none() && is_wanted && !self.is_opening && self.log.view().is_some() {
            self.is_opening = true;
            self.ask_tail(now, None, out);
        }
        self.go_on_resuming(now, out);
        self.askers.tell_session(self.session(), out);
        self.announce_if_due(now, out);
        self.ask_positions(now, out);
        self.send_writes(now, out);
        self.end_session(out);
        if self.is_waiting() && self.log.has_lost(self.waits_for()) {
            self.log.ask_register(now);
        }
    }

    fn talk_anew(&mut self) {
        let batch_bytes = self.config.options.limits.batch_bytes;
        self.writes = self.log.view().map(|view| Writes::new(view, batch_bytes)).unwrap_or_default();
        self.sequencer = Conversation::new(Time::ZERO, batch_bytes);
    }

    /// Opens a session at this view's tail, younger than all forgotten ones. Its id has the view's
    /// start, since the next view may begin below the tail.
    pub(super) fn open_session(&mut self, view: ViewNumber, tail: Position) {
        let start = self.log.view().map_or(Position::ZERO, |view| view.start);
        let session = self.config.session(start, self.sessions_opened);
        self.sessions_opened += 1;
        (self.since, self.opened_at) = (start, (view, tail));
        match &mut self.earlier.resuming {
            Some(resuming) => resuming.begin(session),
            None => (self.session, self.is_opening) = (Some(session), false),
        }
        self.work_is_due = true;
    }

    /// Ends the session once all appends are completed: then no write is in flight.
    fn end_session(&mut self, out: &mut Out) {
        let is_drained = self.in_flight() == 0 && self.earlier.resuming.is_none();
        while let Some(token) = self.askers.take_end(is_drained) {
            out.push(reply(token, Reply::Ended(self.session.map(|session| (session, self.end())))));
            self.forget_session();
        }
    }

    pub(super) fn forget_session(&mut self) {
        self.session = None;
        (self.base, self.granted, self.asked, self.in_log) = (0, 0, 0, 0);
        self.is_recovering = false;
        self.placed.clear();
        self.earlier = Earlier::default();
        self.talk_anew();
        self.in_flight_to_head = InFlightToHead::default();
    }

    fn ask_positions(&mut self, now: Time, out: &mut Out) {
        let (Some(session), Some(view)) = (self.session, self.log.view()) else { return };
        let (view, leader) = (view.number, view.leader);
        if self.is_recovering || self.sequencer.pauses(now) {
            return;
        }
        assert!(
            self.base <= self.asked && self.granted <= self.asked && self.asked <= self.end(),
            "positions of numbers below {} are known, below {} requested, of {} to {}",
            self.granted,
            self.asked,
            self.base,
            self.end()
        );
        if self.granted < self.asked && self.sequencer.times_out(now) {
            self.ask_again_from(self.granted);
            self.log.wonder(out);
        }
        let (first, limits, window) = (self.asked, self.config.options.limits, self.window());
        for pending in self.pending.range_mut((first - self.base) as usize..) {
            if !self.in_flight_to_head.has_room(limits, window) {
                break;
            }
            self.in_flight_to_head.add(&pending.record);
            pending.asked_at = now;
            self.asked += 1;
        }
        let count = self.asked - first;
        if count == 0 {
            return;
        }
        if self.granted == first {
            self.sequencer.begins(now);
        }
        let message = Message::Next {
            view,
            session,
            take: self.take,
            ungranted: self.granted,
            first,
            count,
            fill_timeout_ms: self.fill_timeout.wanted().as_millis() as u32,
            since: if self.opened_at.0 == view { self.since.max(self.opened_at.1) } else { self.since },
        };
        out.push(send(leader, message));
    }

    /// Whether positions are needed, and would be used soon.
    fn may_ask(&self) -> bool {
        self.asked < self.end() && self.in_flight_to_head.has_room(self.config.options.limits, self.window())
    }

    /// Bytes that may be in flight to any replica.
    fn window(&self) -> usize {
        self.writes.window().min(self.sequencer.window())
    }

    /// A replica's disk falls behind. Writes with positions continue, since others wait for them;
    /// new requests slow down.
    fn pressed(&mut self, now: Time) {
        let jitter = self.jitter.draw();
        self.sequencer.slows(now, jitter);
    }

    fn ask_again_from(&mut self, number: u64) {
        while self.asked > number {
            self.asked -= 1;
            let pending = &self.pending[(self.asked - self.base) as usize];
            self.in_flight_to_head.remove(&pending.record);
        }
    }

    fn deleted(&mut self, out: &mut Out) {
        let uncompleted =
            self.pending.drain(..).filter(|pending| !pending.completed).map(|pending| pending.token);
        let tokens = uncompleted.chain(self.earlier.past.give_up()).chain(self.askers.give_up());
        self.log.tell_deleted(tokens.chain(self.tails.give_up()), out);
        self.is_opening = false;
        self.forget_session();
    }

    /// The view in which answers count; `None` once it is over.
    fn view_in_force(&self) -> Option<ViewNumber> {
        (!self.is_over).then(|| self.log.view_number())
    }

    pub(super) fn id(&self, number: u64) -> Option<RecordId> {
        self.session.map(|session| RecordId { session, number })
    }

    fn replica_answered(
        &mut self,
        now: Time,
        (shard, node): (ShardId, NodeId),
        message: roles::Message,
        out: &mut Out,
    ) {
        let current = self.view_in_force();
        match message {
            roles::Message::CorfuShard(ShardMessage::Vacant { claim, old, spans }) => {
                self.offer(now, (shard, node), (claim, old), &spans, out)
            }
            roles::Message::CorfuShard(ShardMessage::Written { view, spans, others })
                if Some(view) == current =>
            {
                self.written(now, node, &spans, &others, out);
            }
            roles::Message::CorfuShard(ShardMessage::Unreadable { view, spans }) if Some(view) == current => {
                self.unreadable(now, node, &spans, out);
            }
            roles::Message::CorfuShard(ShardMessage::Retry { view, spans, disk_full })
                if Some(view) == current =>
            {
                self.later(now, node, &spans, disk_full);
            }
            roles::Message::CorfuShard(ShardMessage::Sought { view, session, from, upto, trim, found })
                if Some(view) == current =>
            {
                let Some(view) = self.log.view() else { return };
                let (replica, span, options) = ((node, shard), (from, upto), self.config.options);
                let answer = Sought { replica, span, trim, found: &found };
                let outcome = self.earlier.sought(now, (view, options), session, answer, out);
                self.conclude(outcome, out);
            }
            roles::Message::CorfuShard(ShardMessage::Pressed { view }) if Some(view) == current => {
                self.writes.hear(now, (shard, node));
                self.pressed(now);
            }
            roles::Message::CorfuShard(ShardMessage::Confirmed { request, view }) => {
                self.tail_confirmed(node, request, view, out)
            }
            roles::Message::Shard(shard::Message::Fenced { claim, .. }) => self.log.was_fenced(now, claim),
            _ => {}
        }
    }
}

pub(super) fn send(node: NodeId, message: impl Into<roles::Message>) -> ClientEffect {
    ClientEffect::Send { to: Address::Node(node, Endpoint::Sequencer), message: message.into() }
}
