//! How a client resumes the session of an earlier run, where records travel apart from their ids.
//!
//! Two runs must not put different records under one id: replicas of a shard could then differ. So
//! this run ends the old session, asks the leader for the outcome of its numbers, and appends in a
//! session of its own, which the members journal as the old one's successor. A later run finds it
//! by that.
//!
//! ```text
//! client                              leader
//!   |--- Close a, successor c ---------->|     on all members: `ending_sessions.rs`
//!   |<-- Ended a at 7, successor b ------|     an earlier run continued in b
//!   |--- Close b, successor c ---------->|
//!   |<-- Ended b at 2, successor c ------|
//!   |--- Locate a6, b1 ----------------->|
//!   |<-- Located ------------------------|     final: later appends come after them
//! ```
//!
//! The run's first appends repeat those of a and b, in order; the client answers each with the
//! outcome of its number. Later appends use c.

use std::collections::BTreeSet;

use seriatim_model::{Position, RecordId, Time, ViewNumber};

use super::client::{Failure, LogClient, Out, Reply, Session, send};
use super::message::Message;
use crate::mutation::Mutation;
use crate::parts::appending::reply;
use crate::parts::resuming::{Past, Questions, Resuming};

impl LogClient {
    /// Handles the leader's answers about earlier runs' sessions; returns whether this is one.
    pub(super) fn earlier_answered(&mut self, message: &Message, out: &mut Out) -> bool {
        let session = match *message {
            Message::Ended { session, .. }
            | Message::Located { session, .. }
            | Message::NotAppended { session, .. }
            | Message::Stale { session, .. }
            | Message::NotEnded { session, .. }
            | Message::Expired { session } => session,
            _ => return false,
        };
        let is_resumed = self.resuming.as_ref().is_some_and(|resuming| resuming.concerns(session));
        if !is_resumed && !self.past.concerns(session) {
            return false;
        }
        match *message {
            Message::Ended { view, session, at, successor } => {
                if let Some(resuming) = &mut self.resuming {
                    resuming.note_ended(view, session, at, successor);
                }
                let lost: Vec<RecordId> = self.past.from(RecordId { session, number: at }).collect();
                for id in lost {
                    self.record_outcome(id, Err(Failure::NotAppended(id)), out);
                }
            }
            Message::Located { session, number, position } => {
                self.record_outcome(RecordId { session, number }, Ok(position), out);
            }
            Message::NotAppended { session, next, .. } => {
                let id = RecordId { session, number: next - 1 };
                self.record_outcome(id, Err(Failure::NotAppended(id)), out);
            }
            Message::Stale { session, number } => {
                let id = RecordId { session, number };
                self.record_outcome(id, Err(Failure::Stale(id)), out);
            }
            _ if self.resuming.is_some() => self.resume_failed(out),
            _ => self.session_lost(session, out),
        }
        self.work_is_due = true;
        true
    }

    fn record_outcome(&mut self, id: RecordId, what: Result<Position, Failure>, out: &mut Out) {
        if let Some(resuming) = &mut self.resuming {
            resuming.note_completed(id.session, id.number);
        }
        self.past.record_outcome(id, what, out);
    }

    pub(super) fn go_on_resuming(&mut self, now: Time, out: &mut Out) {
        let Some((view, leader)) = self.log.view().map(|view| (view.number, view.leader)) else { return };
        let mut is_repeated = false;
        let skips = self.config.options.mutates(Mutation::ResumedUncompleted);
        if let Some(resuming) = self.resuming.as_mut().filter(|resuming| resuming.successor().is_some()) {
            resuming.enter_view(view);
            let questions = questions(resuming, view);
            if questions.is_empty() || skips && resuming.closing().is_none() {
                return self.go_on_after(out);
            }
            if let Some(is_again) = resuming.ask(now, view) {
                is_repeated = is_again;
                out.extend(questions.into_iter().map(|question| send(leader, question)));
            }
        }
        let Questions { ids, is_new_view, is_repeated: is_again } = self.past.questions(now, view);
        is_repeated |= is_again;
        if let (true, Session::Open(own)) = (is_new_view, &self.session) {
            // A view change may have lost the ends of these sessions.
            for session in ids.iter().map(|id| id.session).collect::<BTreeSet<_>>() {
                out.push(send(leader, Message::Close { view, session, successor: Some(*own) }));
            }
        }
        for RecordId { session, number } in ids {
            out.push(send(leader, Message::Locate { view, session, number }));
        }
        if is_repeated {
            // The leader may be slow or deposed.
            self.log.look_up(out);
        }
    }

    /// No replica knows the session, or it never had that many numbers. Fails the waiting appends,
    /// or else the next one.
    fn resume_failed(&mut self, out: &mut Out) {
        let Some(resuming) = self.resuming.take() else { return };
        let session = resuming.session();
        let is_told = self.in_flight() > 0;
        for token in self.askers.give_up() {
            out.push(reply(token, Reply::Failed(Failure::SessionExpired(session))));
        }
        self.session_lost(session, out);
        self.resuming = (!is_told).then(|| resuming.anew());
        self.work_is_due = true;
    }

    /// The outcome of earlier appends is known: starts to append.
    fn go_on_after(&mut self, out: &mut Out) {
        let Some(resuming) = &self.resuming else { return };
        let (Some(successor), Some(ids)) = (resuming.successor(), resuming.ids()) else {
            return self.resume_failed(out);
        };
        self.past = Past::new(ids, resuming.pace());
        self.resuming = None;
        self.session = Session::Open(successor);
        for pending in self.appends.take() {
            if self.past.claim(pending.token, pending.spec.sync) {
                continue;
            }
            match self.objection(&pending.record, pending.spec.shard) {
                Some(failure) => out.push(reply(pending.token, Reply::Failed(failure))),
                None => self.appends.push_again(pending),
            }
        }
        self.tell_session(out);
    }
}

fn questions(resuming: &Resuming, view: ViewNumber) -> Vec<Message> {
    if let Some(session) = resuming.closing() {
        return vec![Message::Close { view, session, successor: resuming.successor() }];
    }
    let locate = |RecordId { session, number }| Message::Locate { view, session, number };
    resuming.uncompleted().map(locate).collect()
}
