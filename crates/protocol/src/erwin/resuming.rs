//! How a client goes on with the session of an earlier run, where records do not travel with their names.
//!
//! Two runs must not put different records under one name: each replica of a shard could hold another one. So nothing
//! is put under the old names any more. The old session ends, what became of its numbers is asked for, and this run
//! appends in a session of its own, which is written down as the successor of the old one. Whoever goes on with the
//! old session once more, after another crash, finds this one by that.
//!
//! ```text
//! client                              leader
//!   |--- Close a, successor c ---------->|     on all members: `ending_sessions.rs`
//!   |<-- Ended a at 7, successor b ------|     an earlier run went on in b
//!   |--- Close b, successor c ---------->|
//!   |<-- Ended b at 2, successor c ------|
//!   |--- Locate a6, b1 ----------------->|
//!   |<-- Located ------------------------|     final: whatever is appended now comes after them
//! ```
//!
//! The first appends of this run are those of a and b again, in their order, and each is answered by what became of
//! its number. The rest goes to c.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::{IdRun, Position, RecordId, SessionId, Time, ViewNumber, limits};

use super::client::{Failure, LogClient, Out, Reply, Session, send};
use super::message::Message;
use crate::deviation::Deviation;
use crate::parts::appending::reply;
use crate::parts::pauses::RESEND_FIRST;

/// A session of an earlier run, on its way to its end.
#[derive(Clone, Debug)]
pub(super) struct Resuming {
    /// The session that the application knows.
    session: SessionId,
    /// The number in it, or in those that came after it, that the application goes on with.
    number: u64,
    /// The session of this run, once it has a name.
    successor: Option<SessionId>,
    /// The session that is being ended; none if all have ended.
    closing: Option<SessionId>,
    /// Those that have ended, in order.
    ended: Vec<Ended>,
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    session: SessionId,
    /// The number after the last.
    end: u64,
    /// Whether its last number has its final position, or never gets one.
    is_settled: bool,
}

/// When something was said last, and when it is to be said again.
#[derive(Clone, Copy, Debug)]
struct Pace {
    view: ViewNumber,
    say_at: Time,
}

impl Pace {
    const AT_ONCE: Self = Self { view: ViewNumber::NONE, say_at: Time::ZERO };

    /// Whether it is to be said, or said again, in this view.
    fn is_due(self, now: Time, view: ViewNumber) -> bool {
        self.view != view || now >= self.say_at
    }

    /// Whether it was said in this view already, and not answered.
    fn is_repeated(self, view: ViewNumber) -> bool {
        self.view == view && self.say_at > Time::ZERO
    }

    fn said(now: Time, view: ViewNumber) -> Self {
        Self { view, say_at: now + RESEND_FIRST }
    }
}

/// The appends of this run that an earlier one made.
#[derive(Clone, Debug)]
pub(super) struct Past {
    /// The names that are still to be claimed by an append.
    names: VecDeque<IdRun>,
    /// Those that were claimed and are not answered.
    asked: BTreeMap<RecordId, Asked>,
    /// Those of them that nobody was asked about yet.
    unsaid: Vec<RecordId>,
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    token: u64,
    sync: bool,
}

impl Default for Past {
    fn default() -> Self {
        Self { names: VecDeque::new(), asked: BTreeMap::new(), unsaid: vec![], pace: Pace::AT_ONCE }
    }
}

impl Past {
    /// The name of the next append, if an earlier run made it.
    pub(super) fn next(&self) -> Option<(SessionId, u64)> {
        self.names.front().map(|names| (names.session, names.first))
    }

    /// An append is made again. Says whether an earlier run made it.
    pub(super) fn claim(&mut self, token: u64, sync: bool) -> bool {
        let Some(names) = self.names.front_mut() else { return false };
        let id = RecordId { session: names.session, number: names.first };
        *names = names.tail(1);
        if names.count == 0 {
            self.names.pop_front();
        }
        self.asked.insert(id, Asked { token, sync });
        self.unsaid.push(id);
        true
    }

    /// How many appends wait for an answer.
    pub(super) fn in_flight(&self) -> usize {
        self.asked.len()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.asked.is_empty()).then_some(self.pace.say_at)
    }

    /// Gives up: the tokens of those who wait.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(self).asked.into_values().map(|asked| asked.token)
    }
}

impl Resuming {
    pub(super) fn new(session: SessionId, number: u64) -> Self {
        let pace = Pace::AT_ONCE;
        Self { session, number, successor: None, closing: Some(session), ended: vec![], pace }
    }

    /// The session of this run has a name.
    pub(super) fn begin(&mut self, successor: SessionId) {
        self.successor = Some(successor);
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.successor.map(|_| self.pace.say_at)
    }

    /// The names from the one on that the application goes on with; nothing if there never were so many.
    fn names(&self) -> Option<VecDeque<IdRun>> {
        let mut skip = self.number;
        let mut names = VecDeque::new();
        for ended in &self.ended {
            let run = IdRun { session: ended.session, first: 0, count: ended.end };
            let skipped = skip.min(run.count);
            skip -= skipped;
            names.push_back(run.tail(skipped));
        }
        names.retain(|names| names.count > 0);
        (skip == 0).then_some(names)
    }

    fn start_over(&mut self) {
        self.closing = Some(self.session);
        self.ended.clear();
    }

    /// What is asked for at present.
    fn questions(&self, view: ViewNumber) -> Vec<Message> {
        if let Some(session) = self.closing {
            return vec![Message::Close { view, session, successor: self.successor }];
        }
        let unsettled = self.ended.iter().filter(|ended| !ended.is_settled && ended.end > 0);
        let locate = |ended: &Ended| Message::Locate { view, session: ended.session, number: ended.end - 1 };
        unsettled.map(locate).collect()
    }

    /// A session has ended, or turned out to have ended earlier than it was said before.
    fn has_ended(&mut self, view: ViewNumber, session: SessionId, end: u64, successor: Option<SessionId>) {
        if self.pace.view != view {
            return;
        }
        if self.closing == Some(session) && successor.is_some() {
            self.closing = successor.filter(|_| successor != self.successor);
            self.ended.push(Ended { session, end, is_settled: false });
            self.pace.say_at = Time::ZERO;
        } else if let Some(known) = self.of(session).filter(|known| end < known.end) {
            known.end = end;
            self.pace.say_at = Time::ZERO;
        }
    }

    /// The last number of a session has come to its end, and so have all before it.
    fn settle(&mut self, session: SessionId, number: u64) {
        if let Some(ended) = self.of(session).filter(|ended| number + 1 == ended.end) {
            ended.is_settled = true;
        }
    }

    fn of(&mut self, session: SessionId) -> Option<&mut Ended> {
        self.ended.iter_mut().find(|ended| ended.session == session)
    }
}

impl LogClient {
    /// Whether an answer of the leader is about what an earlier run left; it is taken then.
    pub(super) fn earlier_answered(&mut self, message: &Message, out: &mut Out) -> bool {
        let session = match *message {
            Message::Ended { session, .. }
            | Message::Located { session, .. }
            | Message::NotAppended { session, .. }
            | Message::Stale { session, .. }
            | Message::Expired { session } => session,
            _ => return false,
        };
        let is_resumed =
            |resuming: &mut Resuming| resuming.closing == Some(session) || resuming.of(session).is_some();
        let is_asked = self.past.asked.keys().any(|id| id.session == session);
        if !is_asked && !self.resuming.as_mut().is_some_and(is_resumed) {
            return false;
        }
        match *message {
            Message::Ended { view, session, at, successor } => {
                if let Some(resuming) = &mut self.resuming {
                    resuming.has_ended(view, session, at, successor);
                }
                let lost = RecordId { session, number: at }..=RecordId { session, number: u64::MAX };
                let lost: Vec<RecordId> = self.past.asked.range(lost).map(|(id, _)| *id).collect();
                for id in lost {
                    self.settled(id, Err(Failure::NotAppended(id)), out);
                }
            }
            Message::Located { session, number, position } => {
                self.settled(RecordId { session, number }, Ok(position), out);
            }
            Message::NotAppended { session, next, .. } => {
                let id = RecordId { session, number: next - 1 };
                self.settled(id, Err(Failure::NotAppended(id)), out);
            }
            Message::Stale { session, number } => {
                let id = RecordId { session, number };
                self.settled(id, Err(Failure::Stale(id)), out);
            }
            _ if self.resuming.is_some() => self.resume_failed(out),
            _ => self.session_lost(session, out),
        }
        self.work_is_due = true;
        true
    }

    /// It is known what became of an append of an earlier run.
    fn settled(&mut self, id: RecordId, what: Result<Position, Failure>, out: &mut Out) {
        if let Some(resuming) = &mut self.resuming {
            resuming.settle(id.session, id.number);
        }
        let Some(Asked { token, sync }) = self.past.asked.remove(&id) else { return };
        let answer = match what {
            Ok(position) => Reply::Appended { id, position: Some(position).filter(|_| sync), again: 0 },
            Err(failure) => Reply::Failed(failure),
        };
        out.push(reply(token, answer));
    }

    /// Says what is to be said about sessions of earlier runs.
    pub(super) fn go_on_resuming(&mut self, now: Time, out: &mut Out) {
        let Some((view, leader)) = self.log.view().map(|view| (view.number, view.leader)) else { return };
        let mut is_repeated = false;
        let skips = self.config.options.deviates(Deviation::ResumedUnsettled);
        if let Some(resuming) = self.resuming.as_mut().filter(|resuming| resuming.successor.is_some()) {
            if resuming.pace.view != view {
                // Nothing is taken for granted that was said in another view, which may have been lost.
                resuming.start_over();
            }
            let questions = resuming.questions(view);
            if questions.is_empty() || skips && resuming.closing.is_none() {
                return self.go_on_after(out);
            }
            if resuming.pace.is_due(now, view) {
                is_repeated = resuming.pace.is_repeated(view);
                resuming.pace = Pace::said(now, view);
                out.extend(questions.into_iter().map(|question| send(leader, question)));
            }
        }
        let past = &mut self.past;
        let mut ids: BTreeSet<RecordId> = std::mem::take(&mut past.unsaid).into_iter().collect();
        let is_due = !past.asked.is_empty() && past.pace.is_due(now, view);
        let is_new_view = is_due && past.pace.view != view;
        if is_due {
            is_repeated |= past.pace.is_repeated(view) && ids.is_empty();
            ids.extend(past.asked.keys().take(limits::BATCH_RECORDS));
        }
        if !ids.is_empty() {
            past.pace = Pace::said(now, view);
        }
        if let (true, Session::Open(own)) = (is_new_view, &self.session) {
            // A view that has lost where they end is told.
            for session in ids.iter().map(|id| id.session).collect::<BTreeSet<_>>() {
                out.push(send(leader, Message::Close { view, session, successor: Some(*own) }));
            }
        }
        for RecordId { session, number } in ids {
            out.push(send(leader, Message::Locate { view, session, number }));
        }
        if is_repeated {
            // The leader may be slow, or leader no more.
            self.log.look_up(out);
        }
    }

    /// The session is not known any more, or never had so many numbers. If no append is told so, the next one is.
    fn resume_failed(&mut self, out: &mut Out) {
        let Some(Resuming { session, number, .. }) = self.resuming.take() else { return };
        let is_told = self.in_flight() > 0;
        for token in self.askers.give_up() {
            out.push(reply(token, Reply::Failed(Failure::SessionExpired(session))));
        }
        self.session_lost(session, out);
        self.resuming = (!is_told).then(|| Resuming::new(session, number));
        self.work_is_due = true;
    }

    /// What earlier runs left is settled: this one appends.
    fn go_on_after(&mut self, out: &mut Out) {
        let Some(resuming) = &self.resuming else { return };
        let (Some(successor), Some(names)) = (resuming.successor, resuming.names()) else {
            return self.resume_failed(out);
        };
        (self.past.names, self.past.pace) = (names, resuming.pace);
        self.resuming = None;
        self.session = Session::Open(successor);
        for pending in std::mem::take(&mut self.pending) {
            if self.past.claim(pending.token, pending.terms.sync) {
                continue;
            }
            match self.objection(&pending.record, pending.terms.shard) {
                Some(failure) => out.push(reply(pending.token, Reply::Failed(failure))),
                None => self.pending.push_back(pending),
            }
        }
        self.tell_session(out);
    }
}
