//! How a client resumes the session of an earlier run.
//!
//! Local logs may hold records of the earlier run, and cuts may order them until their session
//! ends. So the client ends that session first (`ending.rs`) and appends in its own, which is
//! stored as the successor. Records below the end are in the log; the client asks for their
//! positions when the application repeats the appends.
//!
//! ```text
//! client                              leader
//!   |--- Close a, successor c ---------->|
//!   |<-- Ended a at 7, successor b ------|     an earlier run continued in b
//!   |--- Close b, successor c ---------->|
//!   |<-- Ended b at 2, successor c ------|     final: later appends come after it
//!   |--- Locate a5, a6 ----------------->|
//!   |<-- Located ------------------------|
//! ```

use seriatim_model::{RecordId, SessionId, Time};

use super::client::{LogClient, Out, send};
use super::message::{Message, Place};
use crate::parts::Past;
use crate::parts::appending::{Failure, Reply, reply};
use crate::parts::resuming::Questions;

impl LogClient {
    /// Handles a reply about an earlier run's session. Returns whether `message` is one.
    pub(super) fn earlier_answered(&mut self, message: &Message, out: &mut Out) -> bool {
        let session = match *message {
            Message::Ended { session, .. }
            | Message::Located { session, .. }
            | Message::Expired { session } => session,
            _ => return false,
        };
        let is_resumed = self.resuming.as_ref().is_some_and(|resuming| resuming.concerns(session));
        if !is_resumed && !self.past.concerns(session) {
            return false;
        }
        match message {
            Message::Ended { view, at, successor, .. } => {
                if let Some(resuming) = &mut self.resuming {
                    resuming.note_ended(*view, session, *at, Some(*successor));
                }
            }
            Message::Located { places, .. } => self.earlier_located(session, places, out),
            _ if self.resuming.is_some() => self.resume_failed(out),
            _ => self.session_lost(out),
        }
        self.work_is_due = true;
        true
    }

    fn earlier_located(&mut self, session: SessionId, places: &[Place], out: &mut Out) {
        for Place { number: first, count, position } in places {
            let from = RecordId { session, number: *first };
            let known: Vec<RecordId> =
                self.past.from(from).take_while(|id| id.number - first < *count).collect();
            for id in known {
                let what = match position {
                    Some(position) => Ok(*position + (id.number - first)),
                    // The record is in the log, but its position is no longer remembered.
                    None => Err(Failure::Stale(id)),
                };
                self.past.record_outcome(id, what, out);
            }
        }
    }

    pub(super) fn go_on_resuming(&mut self, now: Time, out: &mut Out) {
        let Some((view, leader)) = self.log.view().map(|view| (view.number, view.leader)) else { return };
        let mut is_repeated = false;
        if let Some(resuming) = &mut self.resuming
            && let Some(successor) = resuming.successor()
        {
            resuming.enter_view(view);
            let Some(session) = resuming.closing() else { return self.go_on_after(out) };
            if let Some(is_again) = resuming.ask(now, view) {
                is_repeated = is_again;
                out.push(send(leader, Message::Close { view, session, successor }));
            }
        }
        let Questions { ids, is_repeated: is_again, .. } = self.past.questions(now, view);
        let ids: Vec<RecordId> = ids.into_iter().collect();
        for of_session in ids.chunk_by(|one, next| one.session == next.session) {
            let RecordId { session, number: first } = of_session[0];
            let count = of_session[of_session.len() - 1].number + 1 - first;
            out.push(send(leader, Message::Locate { view, session, first, count }));
        }
        if is_repeated || is_again {
            self.log.wonder(out);
        }
    }

    /// The resumption failed: the session is unknown, or never had that many numbers. Fails the
    /// pending appends, or else the next one.
    fn resume_failed(&mut self, out: &mut Out) {
        let Some(resuming) = self.resuming.take() else { return };
        let is_told = self.in_flight() > 0;
        for token in self.askers.give_up() {
            out.push(reply(token, Reply::Failed(Failure::SessionExpired(resuming.session()))));
        }
        self.lose(resuming.session(), out);
        (self.resuming, self.is_opening) = ((!is_told).then(|| resuming.anew()), false);
    }

    /// The fate of earlier runs' records is known: this run appends.
    fn go_on_after(&mut self, out: &mut Out) {
        let Some(resuming) = &self.resuming else { return };
        let (Some(successor), Some(names)) = (resuming.successor(), resuming.ids()) else {
            return self.resume_failed(out);
        };
        self.past = Past::new(names, resuming.pace());
        (self.resuming, self.session, self.is_opening) = (None, Some(successor), false);
        for pending in std::mem::take(&mut self.pending) {
            if self.past.claim(pending.token, true) {
                continue;
            }
            match self.objection(&pending.record, pending.spec) {
                Some(failure) => out.push(reply(pending.token, Reply::Failed(failure))),
                None => self.pending.push_back(pending),
            }
        }
        self.work_is_due = true;
    }
}
