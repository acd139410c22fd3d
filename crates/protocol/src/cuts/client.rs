//! A client's appends: records go to the primary of a shard, which replies with their positions.
//!
//! One message carries all records that queued up between two steps. All unanswered records of a
//! session are at one shard: before it moves to another, it waits for their positions. So no append
//! is ordered before an earlier one.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use seriatim_model::{
    Address, Endpoint, IdRun, Input, Machine, NodeId, Peer, Position, Record, RecordId, SessionId, ShardId,
    Time, View,
};

use super::ShardMessage;
use super::message::{Message, Place};
use crate::control::{self, LogEntry};
use crate::mutation::Mutation;
use crate::parts::appending::{AppendSpec, ClientEffect, Failure, LogClientConfig, Reply, Request, reply};
use crate::parts::known_log::News;
use crate::parts::lookup::LOOKUP_FIRST;
use crate::parts::timeouts::{RESEND_FIRST, RESEND_MOST};
use crate::parts::{
    Backoff, Conversation, Jitter, KnownLog, Past, Resuming, SessionWaiters, ShardChoice, Tails, sequencing,
};
use crate::roles;
use crate::shard;

/// Number of client windows that a session fills with records at one shard before it moves to
/// another. A move waits for all acknowledgements, which costs about 1/`TURN_WINDOWS` of the
/// throughput.
const TURN_WINDOWS: usize = 8;

/// Minimum stay of a session at one shard, in logs with quotas. Quotas follow a moved session after
/// one or two windows; until then the old shard pads, and records at the new one wait.
const STAY_IF_QUOTAS: Duration = Duration::from_secs(10);

/// One log, as one client uses it: a session for its appends, and tail requests.
///
/// Invariant: `pending` are the appends from number `base` on. Numbers in `base..sent` were
/// submitted to shard `at` in the present view. While `locate` is set, they were on their way when
/// that view began.
#[derive(Clone, Debug)]
pub struct LogClient {
    pub(super) config: LogClientConfig,
    pub(super) log: KnownLog,
    pub(super) session: Option<SessionId>,
    sessions_opened: u64,
    /// Whether a new session waits for the tail, which becomes part of its id, or for the end of
    /// earlier runs' sessions.
    pub(super) is_opening: bool,
    pub(super) askers: SessionWaiters,
    base: u64,
    pub(super) pending: VecDeque<Pending>,
    sent: u64,
    /// Numbers below this one were submitted, in this view or before, and may be in the log.
    submitted: u64,
    at: Option<ShardId>,
    came_at: Time,
    /// Bytes of records submitted since the session moved to `at`.
    turn_bytes: usize,
    /// When to ask the leader again about the records that were on their way when the view began.
    locate: Option<Backoff>,
    /// Bytes of records in `base..sent`.
    in_flight: usize,
    pace: Conversation,
    pub(super) tails: Tails<BTreeMap<NodeId, Position>>,
    pub(super) resuming: Option<Resuming>,
    pub(super) past: Past,
    jitter: Jitter,
    pub(super) work_is_due: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) token: u64,
    pub(super) record: Record,
    pub(super) spec: AppendSpec,
    completed: bool,
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
                message: roles::Message::Cuts(message),
            } => self.receive(message, out),
            Input::Message {
                from: Address::Node(node, Endpoint::Sequencer),
                message: roles::Message::Sequencing(message),
            } => self.member_answered(now, node, message, out),
            Input::Message {
                from: Address::Node(_, Endpoint::Shard(shard)),
                message: message @ (roles::Message::Shard(_) | roles::Message::CutsShard(_)),
            } => self.shard_answered(now, shard, message, out),
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
        let earlier = self.resuming.as_ref().and_then(Resuming::deadline).or_else(|| self.past.deadline());
        let earlier = earlier.filter(|_| self.log.view().is_some());
        let deadlines = [self.log.deadline(), self.submit_deadline(), self.tails.deadline(), earlier];
        deadlines.into_iter().flatten().min()
    }
}

impl LogClient {
    /// A client of the log that `entry` describes. It always opens its own session, also to resume
    /// another one.
    #[must_use]
    pub fn new(config: LogClientConfig, entry: LogEntry) -> Self {
        let (jitter, batch_bytes) = (Jitter::new(config.random), config.options.limits.batch_bytes);
        let resuming = config.resume.map(|(session, number)| Resuming::new(session, number));
        Self {
            log: KnownLog::new(config.control, entry, config.random),
            config,
            session: None,
            sessions_opened: 0,
            is_opening: false,
            askers: SessionWaiters::default(),
            base: 0,
            pending: VecDeque::new(),
            sent: 0,
            submitted: 0,
            at: None,
            came_at: Time::ZERO,
            turn_bytes: 0,
            locate: None,
            in_flight: 0,
            pace: Conversation::new(Time::ZERO, batch_bytes),
            tails: Tails::default(),
            resuming,
            past: Past::default(),
            jitter,
            work_is_due: false,
        }
    }

    /// The open session and the number of its next append. While appends of an earlier run are
    /// repeated: that run's session and next number.
    #[must_use]
    pub fn session(&self) -> Option<(SessionId, u64)> {
        self.session.map(|session| self.past.next().unwrap_or((session, self.end())))
    }

    /// The latest known entry of the register.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        self.log.entry()
    }

    /// Why no view can be formed, if a node reported a reason.
    #[must_use]
    pub fn unavailable(&self) -> Option<&str> {
        self.log.unavailable()
    }

    /// Nodes whose answer the client awaits. `Some`: the node has no room; `Some(true)`: its disk
    /// is full.
    pub fn waits_for(&self) -> impl Iterator<Item = (NodeId, Option<bool>)> {
        let resumes = self.resuming.is_some() || self.past.in_flight() > 0;
        let view = self.log.view().filter(|_| !self.pending.is_empty() || resumes);
        // Only the leader knows the fate of an earlier run's records.
        let asks = self.locate.is_some() || resumes;
        let leader = view.filter(|_| asks).map(|view| (view.leader, None));
        let primary = view.and_then(|view| Some(view.shard(self.at?)?.primary().node));
        let primary = primary.filter(|_| self.locate.is_none()).map(|node| (node, self.pace.busy()));
        leader.into_iter().chain(primary)
    }

    /// The number of unanswered appends.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pending.len() + self.past.in_flight()
    }

    fn is_waiting(&self) -> bool {
        let resumes = self.resuming.is_some() && (self.askers.want_session() || self.askers.want_end());
        self.in_flight() > 0 || !self.tails.is_empty() || resumes
    }

    fn submit(&mut self, token: u64, record: Record, spec: AppendSpec, out: &mut Out) {
        self.work_is_due = true;
        // Repeated appends of an earlier run are not checked. During a resumption the client does
        // not know yet which appends these are.
        if self.past.claim(token, true) {
            return;
        }
        if self.resuming.is_none()
            && let Some(failure) = self.objection(&record, spec)
        {
            return out.push(reply(token, Reply::Failed(failure)));
        }
        self.pending.push_back(Pending { token, record, spec, completed: false });
    }

    pub(super) fn objection(&self, record: &Record, spec: AppendSpec) -> Option<Failure> {
        let config = self.log.config();
        let open = self.log.view().map(View::open_shards);
        match (spec.shard, open) {
            (ShardChoice::Fixed(shard), Some(open)) if !open.contains(&shard) => {
                Some(Failure::NoSuchShard { shard, open: open.to_vec() })
            }
            _ if config.is_too_large(record) => Some(Failure::TooLarge { limit: config.max_record_bytes }),
            _ => None,
        }
    }

    fn end(&self) -> u64 {
        self.base + self.pending.len() as u64
    }

    fn receive(&mut self, message: Message, out: &mut Out) {
        if self.earlier_answered(&message, out) {
            return;
        }
        let current = self.log.view_number();
        match message {
            Message::Located { view, session, next, places }
                if view == current && Some(session) == self.session =>
            {
                self.located(next, &places, out);
            }
            Message::Expired { session } if Some(session) == self.session => self.session_lost(out),
            _ => {}
        }
    }

    fn member_answered(&mut self, now: Time, node: NodeId, message: sequencing::Message, out: &mut Out) {
        match message {
            sequencing::Message::Tail { request, view, tail } => {
                self.tail_told(node, request, view, tail, out)
            }
            sequencing::Message::Rejected { view, why } => {
                if view < self.log.view_number() {
                    // The member has not entered the client's view yet, but will soon.
                    self.locate.iter_mut().for_each(|asks| asks.due_by(now + LOOKUP_FIRST));
                }
                self.log.was_rejected(now, view, why);
            }
            _ => {}
        }
    }

    fn shard_answered(&mut self, now: Time, shard: ShardId, message: roles::Message, out: &mut Out) {
        let current = self.log.view_number();
        match message {
            roles::Message::CutsShard(ShardMessage::Appended { view, ids, first })
                if view == current && Some(ids.session) == self.session =>
            {
                self.pace.advances(now);
                let before = self.in_flight;
                self.appended(ids, Some(first), out);
                self.pace.takes(now, before - self.in_flight);
            }
            roles::Message::CutsShard(ShardMessage::OutOfOrder { view, session, expected })
                if view == current
                    && Some(session) == self.session
                    && Some(shard) == self.at
                    && self.pace.goes_back_to(expected) =>
            {
                self.sent_below(expected);
                self.work_is_due = true;
            }
            roles::Message::Shard(shard::Message::Busy { view, ids, disk_full })
                if view == current && Some(ids.session) == self.session && Some(shard) == self.at =>
            {
                self.was_refused(now, ids.first, disk_full);
            }
            roles::Message::Shard(shard::Message::Fenced { claim, .. }) => {
                // The replica has not entered the client's view yet, or has left it.
                self.sent_below(self.base);
                self.pace.fenced(now);
                self.log.was_fenced(now, claim);
            }
            _ => {}
        }
    }

    fn was_refused(&mut self, now: Time, first: u64, disk_full: bool) {
        let jitter = self.jitter.draw();
        self.sent_below(first);
        self.pace.goes_back_to(first);
        self.pace.refused(now, disk_full, jitter);
    }

    /// Notes that numbers from `end` on must be sent again.
    fn sent_below(&mut self, end: u64) {
        let end = end.max(self.base).min(self.sent);
        let again = self.pending.range((end - self.base) as usize..(self.sent - self.base) as usize);
        self.in_flight -= again.map(|pending| pending.record.size()).sum::<usize>();
        self.sent = end;
        self.assert_submitted();
    }

    fn assert_submitted(&self) {
        let Self { base, sent, submitted, at, locate, in_flight, .. } = self;
        let is_known = sent == base && *in_flight == 0
            || base < sent && sent <= submitted && (at.is_some() || locate.is_some());
        assert!(
            is_known && *sent <= self.end(),
            "from {base} to {sent} of {}, below {submitted}, at {at:?}: {in_flight} bytes",
            self.end()
        );
    }

    fn appended(&mut self, ids: IdRun, first: Option<Position>, out: &mut Out) {
        for number in ids.first.max(self.base)..ids.end().min(self.end()) {
            let pending = &mut self.pending[(number - self.base) as usize];
            if std::mem::replace(&mut pending.completed, true) {
                continue;
            }
            let id = RecordId { session: ids.session, number };
            let answer = match first {
                Some(first) => Reply::Appended { id, position: Some(first + (number - ids.first)), again: 0 },
                // The record is in the log, but its position is no longer remembered.
                None => Reply::Failed(Failure::Stale(id)),
            };
            out.push(reply(pending.token, answer));
        }
        while self.pending.front().is_some_and(|pending| pending.completed) {
            let pending = self.pending.pop_front().expect("the front was just seen");
            if self.base < self.sent {
                self.in_flight -= pending.record.size();
            }
            self.base += 1;
        }
        self.sent = self.sent.max(self.base);
        self.assert_submitted();
        // More records may be submitted, to another shard, or the session may end.
        self.work_is_due = true;
    }

    /// Takes the positions that the leader reports. Submits again the numbers that an earlier view
    /// left undecided.
    fn located(&mut self, next: u64, places: &[Place], out: &mut Out) {
        let Some(session) = self.session else { return };
        for Place { number, count, position } in places {
            self.appended(IdRun { session, first: *number, count: *count }, *position, out);
        }
        if self.locate.is_some() && (self.base >= next || self.pending.is_empty()) {
            self.locate = None;
            self.sent_below(self.base);
            self.submitted = self.base;
            self.work_is_due = true;
        }
    }

    fn controlled(&mut self, now: Time, message: control::Message, out: &mut Out) {
        match self.log.learn(message) {
            News::NewView => self.enter_view(now),
            News::Deleted => self.deleted(out),
            News::Nothing => {}
        }
    }

    fn enter_view(&mut self, now: Time) {
        if self.submitted > self.base || self.locate.is_some() {
            self.locate = Some(Backoff::new(now, RESEND_FIRST, RESEND_MOST));
        }
        self.pace = Conversation::new(now, self.config.options.limits.batch_bytes);
        self.at = None;
        self.tails.enter_view();
        self.work_is_due = true;
    }

    fn disconnected(&mut self, now: Time, node: NodeId) {
        let primary = self.log.view().and_then(|view| Some(view.shard(self.at?)?.primary().node));
        if primary == Some(node) {
            self.sent_below(self.base);
            self.pace.disconnected(now);
        }
        self.log.disconnected(now, node, self.is_waiting());
    }

    fn timer(&mut self, now: Time, out: &mut Out) {
        self.work_is_due = false;
        self.log.look_up_if_due(now, self.is_waiting(), out);
        self.log.watch(now, self.base..self.end(), self.config.options, out);
        self.repeat_tail_questions(now, out);
        let ends = self.resuming.is_some() && self.askers.want_end();
        let is_wanted = !self.pending.is_empty() || self.askers.want_session() || ends;
        if self.session.is_none() && is_wanted && !self.is_opening && self.log.view().is_some() {
            self.is_opening = true;
            self.ask_tail(now, None, out);
        }
        self.go_on_resuming(now, out);
        self.send_submits(now, out);
        self.askers.tell_session(self.session(), out);
        self.end_session(out);
        if self.is_waiting() && self.log.has_lost(self.waits_for()) {
            self.log.ask_register(now);
        }
    }

    pub(super) fn open_session(&mut self, tail: Position, out: &mut Out) {
        let session = self.config.session(tail, self.sessions_opened);
        self.sessions_opened += 1;
        if let Some(resuming) = &mut self.resuming {
            resuming.begin(session);
        } else {
            (self.session, self.is_opening) = (Some(session), false);
        }
        self.askers.tell_session(self.session(), out);
        self.work_is_due = true;
    }

    /// Ends the session once all appends are completed: then none of its records can still enter
    /// the log.
    fn end_session(&mut self, out: &mut Out) {
        let is_completed = self.in_flight() == 0 && self.resuming.is_none();
        while let Some(token) = self.askers.take_end(is_completed) {
            out.push(reply(token, Reply::Ended(self.session.map(|session| (session, self.end())))));
            self.forget_session();
        }
    }

    fn forget_session(&mut self) {
        self.session = None;
        (self.base, self.sent, self.submitted, self.in_flight) = (0, 0, 0, 0);
        (self.at, self.locate) = (None, None);
        self.pending.clear();
        (self.resuming, self.past) = (None, Past::default());
    }

    fn submit_deadline(&self) -> Option<Time> {
        if self.session.is_none() || self.log.view().is_none() {
            return None;
        }
        if let Some(asks) = &self.locate {
            return Some(asks.at());
        }
        let resumes_at = self.pace.resumes_at().filter(|_| self.sent < self.end());
        resumes_at.or_else(|| (self.sent > self.base).then(|| self.pace.resend_at()))
    }

    fn send_submits(&mut self, now: Time, out: &mut Out) {
        let (Some(session), Some(view)) = (self.session, self.log.view().cloned()) else { return };
        if let Some(asks) = self.locate.as_mut().filter(|asks| asks.is_due(now)) {
            if asks.pause() > RESEND_FIRST {
                self.log.wonder(out);
            }
            asks.tried(now);
            self.ask_what_became(session, out);
        }
        if self.locate.is_some() || self.pace.pauses(now) {
            return;
        }
        if self.sent == self.base {
            if self.submitted <= self.base && self.may_leave(now, &view) {
                (self.at, self.turn_bytes) = (None, 0);
            }
            self.pace.begins(now);
        } else if self.pace.times_out(now) {
            self.ask_what_became(session, out);
            self.log.wonder(out);
            // Retransmits only the first batch, which makes the primary report missing numbers.
            let most = self.config.options.limits.batch_bytes;
            self.send_batch(now, session, &view, (self.base..self.sent, most), out);
        }
        while let Some(most) = self.pace.room(self.in_flight) {
            let unsent = self.sent..self.end();
            let Some(bytes) = self.send_batch(now, session, &view, (unsent, most), out) else { break };
            self.in_flight += bytes;
        }
        self.assert_submitted();
    }

    fn stays_on(&self, now: Time) -> bool {
        let hops = self.config.options.mutates(Mutation::HopsEachStripe);
        self.log.config().order.has_quotas() && !hops && now < self.came_at + STAY_IF_QUOTAS
    }

    /// Whether an idle session may move: its stay is over, its shard is closed, or the next record
    /// names a shard.
    fn may_leave(&self, now: Time, view: &View) -> bool {
        let has_choice = |pending: &Pending| !pending.spec.shard.is_in_turn(&pending.record);
        let is_open = self.at.is_some_and(|shard| view.open_shards().contains(&shard));
        !self.stays_on(now) || !is_open || self.pending.front().is_some_and(has_choice)
    }

    /// Submits the first of `numbers`, up to a record for another shard or `most` bytes. Returns
    /// their bytes. `None`: it submitted nothing.
    fn send_batch(
        &mut self,
        now: Time,
        session: SessionId,
        view: &View,
        (numbers, most): (Range<u64>, usize),
        out: &mut Out,
    ) -> Option<usize> {
        let first = numbers.start;
        let (limits, stripe) = (self.config.options.limits, self.log.config().stripe);
        let (mut records, mut bytes) = (vec![], 0);
        let hops = self.config.options.mutates(Mutation::HopsEachStripe);
        let turn_bytes = if hops { 0 } else { TURN_WINDOWS * self.pace.window() };
        let stays_on = self.stays_on(now);
        let unsent = numbers.zip(self.pending.range((first - self.base) as usize..));
        for (number, pending) in unsent.take(limits.batch_records) {
            let id = RecordId { session, number };
            let choice = pending.spec.shard;
            let shard = choice.of(id, &pending.record, stripe, view.open_shards());
            let size = pending.record.size();
            let is_full = !records.is_empty() && bytes + size > most;
            // Within a view, a record is submitted to one shard only. A move costs a round trip.
            let stays = number < self.submitted
                || choice.is_in_turn(&pending.record) && (stays_on || self.turn_bytes + bytes < turn_bytes);
            if is_full {
                break;
            }
            let at = *self.at.get_or_insert_with(|| {
                self.came_at = now;
                shard
            });
            if at != shard && !stays {
                break;
            }
            bytes += size;
            records.push(pending.record.clone());
        }
        let members = self.at.and_then(|shard| view.shard(shard))?;
        if records.is_empty() {
            return None;
        }
        if first >= self.sent {
            self.turn_bytes += bytes;
        }
        self.sent = self.sent.max(first + records.len() as u64);
        self.submitted = self.submitted.max(self.sent);
        let to = Address::Node(members.primary().node, Endpoint::Shard(members.shard));
        let lowest = self.base;
        let message = ShardMessage::Submit { view: view.number, session, lowest, first, records };
        out.push(ClientEffect::Send { to, message: message.into() });
        Some(bytes)
    }

    fn ask_what_became(&self, session: SessionId, out: &mut Out) {
        let Some(view) = self.log.view() else { return };
        let (first, count) = (self.base, self.pending.len() as u64);
        out.push(send(view.leader, Message::Locate { view: view.number, session, first, count }));
    }

    pub(super) fn session_lost(&mut self, out: &mut Out) {
        if let Some(session) = self.session {
            self.lose(session, out);
        }
    }

    /// Fails all uncompleted appends: the fate of some is unknown.
    pub(super) fn lose(&mut self, session: SessionId, out: &mut Out) {
        let uncompleted = self.pending.drain(..).filter(|pending| !pending.completed);
        let tokens = uncompleted.map(|pending| pending.token).chain(self.past.give_up());
        out.extend(tokens.map(|token| reply(token, Reply::Failed(Failure::SessionExpired(session)))));
        self.forget_session();
        self.work_is_due = true;
    }

    fn deleted(&mut self, out: &mut Out) {
        let uncompleted =
            self.pending.drain(..).filter(|pending| !pending.completed).map(|pending| pending.token);
        let tokens = uncompleted.chain(self.past.give_up()).chain(self.askers.give_up());
        self.log.tell_deleted(tokens.chain(self.tails.give_up()), out);
        self.is_opening = false;
        self.forget_session();
    }
}

pub(super) fn send(node: NodeId, message: impl Into<roles::Message>) -> ClientEffect {
    ClientEffect::Send { to: Address::Node(node, Endpoint::Sequencer), message: message.into() }
}
