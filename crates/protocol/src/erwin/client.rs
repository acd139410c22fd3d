//! A client's side of appending: one session's window over all sequencing replicas (LazyLog §4.1).
//!
//! Appends go to every member of the view in parallel. Each member acknowledges the number below
//! which it holds the session without gaps; an append is done when every member of one view
//! acknowledged it. Appends that queue up between two steps leave as one message.

use std::collections::BTreeMap;

use seriatim_model::{
    Address, Endpoint, Input, Machine, NodeId, Peer, Position, Record, SessionId, Time, ViewNumber,
};

use super::appends::Appends;
use super::ending::Ending;
use super::message::Message;
use super::putting::Putting;
use super::rules::{self, Count};
use crate::control::{self, LogEntry};
use crate::mutation::Mutation;
use crate::parts::appending::{ClientEffect, reply};
use crate::parts::known_log::News;
use crate::parts::{
    Conversation, IdSetDigest, Jitter, KnownLog, Past, Resuming, SessionWaiters, Tails, sequencing,
};
use crate::roles;

pub use crate::parts::appending::{AppendSpec, Failure, LogClientConfig, Reply, Request};

/// One client's session and tail questions for one log.
///
/// Invariant: `appends` below `sent` of a member were sent to it in the current view; those below
/// `committed` are acknowledged by all members of one view.
#[derive(Clone, Debug)]
pub struct LogClient {
    pub(super) config: LogClientConfig,
    pub(super) log: KnownLog,
    pub(super) session: Session,
    sessions_opened: u64,
    pub(super) askers: SessionWaiters,
    pub(super) appends: Appends,
    pub(super) committed: u64,
    pub(super) members: BTreeMap<NodeId, MemberProgress>,
    pub(super) putting: Putting,
    pub(super) tails: Tails<BTreeMap<NodeId, Count>>,
    /// Lowest position at which a session may open.
    floor: Position,
    /// Positions of lower numbers were asked for. `locate_at`: time of the next repetition.
    pub(super) asked_below: u64,
    pub(super) locate_at: Option<Time>,
    /// Request in progress to end this session, or an earlier one.
    pub(super) ending: Option<Ending>,
    /// Resumption of an earlier run's session, in logs where this run cannot use its ids.
    pub(super) resuming: Option<Resuming>,
    pub(super) past: Past,
    pub(super) jitter: Jitter,
    pub(super) work_is_due: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Session {
    None,
    /// Waits for the tail, which becomes part of the session's id.
    Opening,
    Open(SessionId),
}

#[derive(Clone, Debug)]
pub(super) struct MemberProgress {
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
    pace: Conversation,
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
                self.tell_session(out);
            }
            Input::Message {
                from: Address::Node(node, Endpoint::Sequencer),
                message: roles::Message::Erwin(message),
            } => self.receive(now, node, message, out),
            Input::Message {
                from: Address::Node(_, Endpoint::Sequencer),
                message: roles::Message::Sequencing(sequencing::Message::Rejected { view, why }),
            } => self.log.was_rejected(now, view, why),
            Input::Message {
                from: Address::Node(node, Endpoint::Shard(shard)),
                message: message @ (roles::Message::Shard(_) | roles::Message::ErwinShard(_)),
            } => self.shard_answered(now, (shard, node), message, out),
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
        let members = self.members.values().filter_map(|member| self.member_deadline(member)).min();
        let ending = self.ending.as_ref().filter(|_| self.log.view().is_some()).map(Ending::deadline);
        let is_open = matches!(self.session, Session::Open(_));
        let puts = self.putting.deadline(self.appends.end()).filter(|_| is_open);
        let earlier = self.resuming.as_ref().and_then(Resuming::deadline).or_else(|| self.past.deadline());
        let earlier = earlier.filter(|_| self.log.view().is_some());
        [self.log.deadline(), members, puts, self.tails.deadline(), self.locate_at, ending, earlier]
            .into_iter()
            .flatten()
            .min()
    }
}

impl LogClient {
    /// Creates a client of the log in `entry`.
    #[must_use]
    pub fn new(config: LogClientConfig, entry: LogEntry) -> Self {
        let by_name = entry.config.order.places_by_position();
        let (session, base) = match config.resume {
            Some((session, number)) if by_name => (Session::Open(session), number),
            _ => (Session::None, 0),
        };
        let resumed = config.resume.filter(|_| !by_name);
        let resuming = resumed.map(|(session, number)| Resuming::new(session, number));
        let jitter = Jitter::new(config.random);
        let mut client = Self {
            log: KnownLog::new(config.control, entry, config.random),
            config,
            session,
            sessions_opened: 0,
            askers: SessionWaiters::default(),
            appends: Appends::new(base),
            committed: base,
            members: BTreeMap::new(),
            putting: Putting::default(),
            tails: Tails::default(),
            floor: Position::ZERO,
            asked_below: base,
            locate_at: None,
            ending: None,
            resuming,
            past: Past::default(),
            jitter,
            work_is_due: false,
        };
        client.enter_view(Time::ZERO);
        client
    }

    /// The open session and its next number. While appends of an earlier run are repeated: that
    /// run's session and next number.
    #[must_use]
    pub fn session(&self) -> Option<(SessionId, u64)> {
        match self.session {
            Session::Open(session) => self.past.next().or(Some((session, self.appends.end()))),
            _ => None,
        }
    }

    /// The latest known register entry.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        self.log.entry()
    }

    /// Why no view can be formed, if a replica reported it.
    #[must_use]
    pub fn unavailable(&self) -> Option<&str> {
        self.log.unavailable()
    }

    /// Members that have not acknowledged everything, each with `Some(true)` if its disk is full,
    /// `Some(false)` if it lacks room otherwise, and `None` if it did not refuse.
    pub fn waits_for(&self) -> impl Iterator<Item = (NodeId, Option<bool>)> {
        let resumes = self.resuming.is_some();
        let end = if resumes { 0 } else { self.appends.end() };
        let behind = self.members.iter().filter(move |(_, member)| member.acknowledged < end);
        let behind = behind.map(|(node, member)| (*node, member.pace.busy()));
        let leader = self.log.view().filter(|_| resumes || self.past.in_flight() > 0).map(|view| view.leader);
        behind.chain(self.putting.waits_for(end)).chain(leader.map(|leader| (leader, None)))
    }

    /// Number of appends in progress.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.appends.len() + self.past.in_flight()
    }

    /// Whether a caller waits for an answer that needs a view.
    fn is_waiting(&self) -> bool {
        let is_asked = !self.tails.is_empty() || self.askers.want_session();
        self.in_flight() > 0 || is_asked || self.ending.is_some()
    }

    fn submit(&mut self, token: u64, record: Record, spec: AppendSpec, out: &mut Out) {
        // `objection` does not apply to an earlier run's append. While this run resumes, an
        // append's run is unknown.
        if self.past.claim(token, spec.sync) {
            self.work_is_due = true;
            return;
        }
        if self.resuming.is_none()
            && let Some(failure) = self.objection(&record, spec.shard)
        {
            return out.push(reply(token, Reply::Failed(failure)));
        }
        self.work_is_due = true;
        self.appends.push(token, record, spec, 0);
    }

    fn receive(&mut self, now: Time, node: NodeId, message: Message, out: &mut Out) {
        if self.earlier_answered(&message, out) {
            return;
        }
        let current = self.log.view_number();
        match message {
            Message::Acknowledged { view, session, next }
                if self.is_mine(session)
                    && (view == current || self.config.options.mutates(Mutation::MixedViews)) =>
            {
                self.acknowledged(now, node, next, out);
            }
            Message::NotAppended { view, session, next, voids }
                if self.is_mine(session) && view == current =>
            {
                voids.into_iter().for_each(|ids| self.not_appended(now, ids, out));
                self.acknowledged(now, node, next, out);
            }
            Message::OutOfOrder { view, session, expected } if self.is_mine(session) && view == current => {
                match self.members.get_mut(&node) {
                    // The message is late: the member has these numbers by now.
                    Some(member) if expected < member.acknowledged => {}
                    _ if expected < self.appends.base() => self.session_lost(session, out),
                    Some(member) => {
                        let is_news = member.pace.goes_back_to(expected);
                        if is_news || self.config.options.mutates(Mutation::WentBackForEach) {
                            member.sent = member.sent.min(expected);
                            self.work_is_due = true;
                        }
                    }
                    None => {}
                }
            }
            Message::Busy { view, session, next, disk_full } if self.is_mine(session) && view == current => {
                self.pause(now, node, next, disk_full);
            }
            Message::Expired { session } if self.is_mine(session) => self.session_lost(session, out),
            Message::Stale { session, number } if self.is_mine(session) => self.stale(session, number, out),
            Message::TooLarge { session, number, limit } if self.is_mine(session) => {
                self.too_large(session, number, limit, out);
            }
            Message::Ended { session, at, .. } => self.ended(session, at, out),
            Message::NotEnded { view, session } if view == current => self.not_ended(session, out),
            Message::Located { session, number, position } if self.is_mine(session) => {
                self.located(session, number, position, out);
            }
            Message::Floor { view, floor } if view == current => self.floor = self.floor.max(floor),
            Message::Tail { request, view, count, held, seen } => {
                let count = Count { end: count, held, seen: IdSetDigest(seen) };
                self.tail_counted(node, request, view, count, out);
            }
            _ => {}
        }
    }

    fn is_mine(&self, session: SessionId) -> bool {
        self.session == Session::Open(session)
    }

    fn acknowledged(&mut self, now: Time, node: NodeId, next: u64, out: &mut Out) {
        // A member may have more numbers of a resumed session than this run.
        let next = next.min(self.appends.end());
        let has_records = self.log.config().order.places_by_position();
        let Some(member) = self.members.get_mut(&node) else { return };
        if next > member.acknowledged {
            let from = member.acknowledged.max(self.appends.base());
            let taken = self.appends.bytes_of((from, next), has_records);
            member.pace.takes(now, taken);
            member.pace.advances(now);
            self.work_is_due |= member.sent < self.appends.end();
            member.acknowledged = next;
        }
        member.sent = member.sent.max(next);
        member.assert_within(&self.appends);
        let acknowledged = self.members.values().map(|member| member.acknowledged);
        let committed = if self.config.options.mutates(Mutation::OneAcknowledgement) {
            acknowledged.max().unwrap_or(0)
        } else {
            rules::committed(acknowledged)
        };
        let committed = committed.min(self.appends.end());
        let before = self.committed.min(self.putting.ids_held).max(self.appends.base());
        self.committed = self.committed.max(committed);
        self.putting.ids_held = self.putting.ids_held.max(committed);
        for number in before..committed {
            self.complete_if_done(number, out);
        }
        self.release();
    }

    fn pause(&mut self, now: Time, node: NodeId, next: u64, disk_full: bool) {
        let jitter = self.jitter.draw();
        let Some(member) = self.members.get_mut(&node) else { return };
        let next = next.max(member.acknowledged).max(self.appends.base());
        member.sent = member.sent.min(next);
        member.pace.goes_back_to(next);
        member.pace.refused(now, disk_full, jitter);
    }

    fn controlled(&mut self, now: Time, message: control::Message, out: &mut Out) {
        match self.log.learn(message) {
            News::NewView => self.enter_view(now),
            News::Deleted => self.deleted(out),
            News::Nothing => {}
        }
    }

    /// Starts again with the view's members: acknowledgements of other views do not count.
    fn enter_view(&mut self, now: Time) {
        let Some(view) = self.log.view().cloned() else { return };
        let old = std::mem::take(&mut self.members);
        for member in &view.sequencers {
            let acknowledged = match old.get(&member.node) {
                Some(before) if self.config.options.mutates(Mutation::MixedViews) => before.acknowledged,
                _ => 0,
            };
            let pace = Conversation::new(now, self.config.options.limits.batch_bytes);
            let progress = MemberProgress { sent: self.appends.base(), acknowledged, pace };
            self.members.insert(member.node, progress);
        }
        self.tails.enter_view();
        let ids_held = self.putting.ids_held;
        self.putting = Putting::default();
        self.appends.none_is_stored();
        if let Session::Open(session) = self.session {
            self.appends.leave_closed_shards(session, &view, self.log.config().stripe);
        }
        if !self.log.config().order.places_by_position() {
            self.putting.enter_view(now, &view, self.appends.base(), self.config.options.limits);
        }
        if self.config.options.mutates(Mutation::MixedViews) {
            self.putting.ids_held = ids_held;
        }
        self.asked_below = self.appends.base();
        self.work_is_due = true;
    }

    fn disconnected(&mut self, now: Time, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node) {
            member.sent = member.acknowledged.max(self.appends.base());
            member.pace.disconnected(now);
        }
        self.putting.disconnected(now, node, self.appends.base());
        self.log.disconnected(now, node, self.is_waiting());
    }

    fn ask_tail(&mut self, now: Time, asker: Option<u64>, out: &mut Out) {
        let request = self.tails.ask(now, asker, self.log.view_number(), |_| BTreeMap::new());
        self.send_tail_question(request, out);
    }

    fn send_tail_question(&self, request: u64, out: &mut Out) {
        let message = sequencing::Message::CheckTail { request, view: self.log.view_number() };
        for node in self.members.keys() {
            out.push(send(*node, message.clone()));
        }
    }

    fn tail_counted(&mut self, node: NodeId, request: u64, view: ViewNumber, count: Count, out: &mut Out) {
        let Some(counts) = self.tails.answers_in(request, view) else { return };
        counts.insert(node, count);
        let leader = self.log.view().map(|view| view.leader);
        let Some(leading) = leader.and_then(|leader| counts.get(&leader)).copied() else { return };
        let options = self.config.options;
        let tail = if options.mutates(Mutation::TailFromLeader) {
            leading.end
        } else if !self.members.keys().all(|member| counts.contains_key(member)) {
            return;
        } else if options.mutates(Mutation::TailIsMinimum) {
            counts.values().map(|count| count.end).min().unwrap_or_default()
        } else if options.mutates(Mutation::TailIsMaximum) {
            counts.values().map(|count| count.end).max().unwrap_or_default()
        } else {
            let followers = counts.iter().filter(|(node, _)| Some(**node) != leader);
            rules::tail(leading, followers.map(|(_, count)| *count))
        };
        match self.tails.answered(request) {
            Some(token) => out.push(reply(token, Reply::Tail(tail))),
            None => self.open_session(tail, out),
        }
    }

    fn open_session(&mut self, tail: Position, out: &mut Out) {
        let session = self.config.session(tail.max(self.floor), self.sessions_opened);
        self.sessions_opened += 1;
        if let Some(resuming) = &mut self.resuming {
            resuming.begin(session);
            self.work_is_due = true;
        } else {
            self.session = Session::Open(session);
            self.tell_session(out);
        }
    }

    pub(super) fn tell_session(&mut self, out: &mut Out) {
        self.work_is_due = true;
        self.askers.tell_session(self.session(), out);
    }

    fn timer(&mut self, now: Time, out: &mut Out) {
        self.work_is_due = false;
        let waits = self.is_waiting();
        self.log.look_up_if_due(now, waits, out);
        self.log.watch(now, self.appends.base()..self.appends.end(), self.config.options, out);
        self.repeat_tail_questions(now, out);
        let ends = self.resuming.is_some() && self.askers.want_end();
        let is_wanted = !self.appends.is_empty() || self.askers.want_session() || ends;
        if self.session == Session::None && is_wanted && self.log.view().is_some() {
            self.session = Session::Opening;
            self.ask_tail(now, None, out);
        }
        self.go_on_resuming(now, out);
        if let Session::Open(session) = self.session {
            let config = self.log.config();
            if let Some(view) = self.log.view().filter(|_| !config.order.places_by_position()) {
                self.appends.choose_shards(session, view, config.stripe);
            }
            self.send_appends(now, session, out);
            self.send_locates(now, session, out);
        }
        self.end_session(now, out);
        if self.is_waiting() && self.log.has_lost(self.waits_for()) {
            self.log.ask_register(now);
        }
    }

    fn repeat_tail_questions(&mut self, now: Time, out: &mut Out) {
        let again = self.tails.again(now, self.log.view_number(), |_| BTreeMap::new());
        if again.has_timed_out {
            self.log.wonder(out);
        }
        for request in again.requests {
            self.send_tail_question(request, out);
        }
    }

    fn member_deadline(&self, member: &MemberProgress) -> Option<Time> {
        let Session::Open(_) = self.session else { return None };
        let resumes_at = member.pace.resumes_at().filter(|_| member.sent < self.appends.end());
        let is_on_its_way = member.acknowledged.max(self.appends.base()) < member.sent;
        resumes_at.or_else(|| is_on_its_way.then(|| member.pace.resend_at()))
    }

    fn send_appends(&mut self, now: Time, session: SessionId, out: &mut Out) {
        let (base, view) = (self.appends.base(), self.log.view_number());
        let limits = self.config.options.limits;
        let mut has_timed_out = self.putting.send(now, (view, session), &self.appends, limits, out);
        if has_timed_out {
            self.ask_leader_again();
        }
        let ids_below = self.putting.ids_below(&self.appends, limits.batch_bytes);
        let has_records = self.log.config().order.places_by_position();
        for (node, member) in &mut self.members {
            if member.pace.pauses(now) {
                continue;
            }
            let waits = member.acknowledged.max(base) < member.sent;
            let end = ids_below.max(member.sent);
            let mut was_sent = None;
            if waits && member.pace.times_out(now) {
                // Appends or answers may be lost. The first batch probes; the client resends later
                // ones only where the member misses them.
                has_timed_out = true;
                was_sent = Some(member.sent);
                member.sent = member.acknowledged.max(base);
            } else if member.sent >= end {
                continue;
            } else if member.acknowledged >= member.sent {
                member.pace.begins(now);
            }
            member.sent = member.sent.max(base);
            while member.sent < end {
                let acknowledged = member.acknowledged.max(base);
                let sent = (acknowledged, member.sent);
                let in_flight = self.appends.bytes_of(sent, has_records);
                // Without room, an acknowledgement must come first.
                let Some(most) = member.pace.room(in_flight) else { break };
                let mut bytes = 0;
                let mut entries = vec![];
                let unsent = self.appends.from(member.sent).take((end - member.sent) as usize);
                for (_, pending) in unsent.take(limits.batch_records) {
                    let content = pending.content();
                    bytes += content.size();
                    if !entries.is_empty() && bytes > most {
                        break;
                    }
                    entries.push(content);
                }
                let first = member.sent;
                member.sent += entries.len() as u64;
                self.putting.ids_sent = self.putting.ids_sent.max(member.sent);
                member.sent = member.sent.max(was_sent.take().unwrap_or(0));
                out.push(send(*node, Message::Append { view, session, first, lowest: base, entries }));
            }
            member.assert_within(&self.appends);
        }
        if has_timed_out {
            self.log.wonder(out);
        }
    }

    /// A shard does not answer puts of an expired or ended session, or of ids that are void but not
    /// final. The leader answers these.
    fn ask_leader_again(&mut self) {
        let leader = self.log.view().map(|view| view.leader);
        if let Some(member) = leader.and_then(|leader| self.members.get_mut(&leader)) {
            member.sent = self.appends.base();
        }
    }
}

impl MemberProgress {
    fn assert_within(&self, appends: &Appends) {
        let Self { sent, acknowledged, .. } = self;
        let end = appends.end();
        assert!(*sent <= end && *acknowledged <= end, "sent {sent}, acknowledged {acknowledged} of {end}");
    }
}

pub(super) fn send(node: NodeId, message: impl Into<roles::Message>) -> ClientEffect {
    ClientEffect::Send { to: Address::Node(node, Endpoint::Sequencer), message: message.into() }
}
