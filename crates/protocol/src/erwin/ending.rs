//! How a client closes its session: it tells the leader, which sees to it that every member of the
//! view agrees on the number from which on nothing is stored or acknowledged any more
//! (`ending_sessions.rs`).
//!
//! That a replica has forgotten the session, and says so when it gets an append, is no end: others
//! may know it, and take what is still on its way. The client leaves the session then, and goes on
//! closing it.

use seriatim_model::{SessionId, Time, ViewNumber};

use super::client::{LogClient, Out, Reply, Session, send};
use super::message::Message;
use crate::parts::appending::reply;
use crate::parts::timeouts::RESEND_FIRST;

/// A session on its way to its end. The client may have left it.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// The request that asked for it.
    pub(super) token: u64,
    session: SessionId,
    /// The numbers that this run gave lie below it.
    below: u64,
    /// The view whose leader the client told last.
    view: ViewNumber,
    say_at: Time,
}

impl LogClient {
    /// Ends the session, if that is wanted and nothing is in flight.
    pub(super) fn end_session(&mut self, now: Time, out: &mut Out) {
        let is_drained = self.in_flight() == 0 && self.session != Session::Opening;
        let may_end = is_drained && self.resuming.is_none() && self.ending.is_none();
        if let Some(token) = self.askers.take_end(may_end) {
            match self.session {
                Session::Open(session) => self.ending = Some(Ending::new(token, session, self.appends.end())),
                _ => out.push(reply(token, Reply::Ended(None))),
            }
        }
        let view = self.log.view().map(|view| (view.number, view.leader));
        let (Some(ending), Some((number, leader))) = (&mut self.ending, view) else { return };
        if ending.view == number && now < ending.say_at {
            return;
        }
        let is_repeated = ending.view == number;
        (ending.view, ending.say_at) = (number, now + RESEND_FIRST);
        let session = ending.session;
        out.push(send(leader, Message::Close { view: number, session, successor: None }));
        if is_repeated {
            // The leader may be slow, or leader no more.
            self.log.look_up(out);
        }
    }

    /// The session has ended, on all members of a view.
    pub(super) fn ended(&mut self, session: SessionId, at: u64, out: &mut Out) {
        self.raise_end();
        if let Some(ending) = self.ending.take_if(|ending| ending.session == session) {
            // The appends of this run lie below the end, also if the replicas have forgotten that.
            let at = at.max(ending.below);
            self.finish(&ending, Some((session, at)), out);
        }
    }

    /// The leader does not know the session, so it cannot end it. If an append is on its way to the
    /// leader, the client asks it again.
    pub(super) fn not_ended(&mut self, session: SessionId, out: &mut Out) {
        if self.session == Session::Open(session) && self.in_flight() > 0 {
            return;
        }
        if let Some(ending) = self.ending.take_if(|ending| ending.session == session) {
            self.finish(&ending, None, out);
        }
    }

    fn finish(&mut self, ending: &Ending, end: Option<(SessionId, u64)>, out: &mut Out) {
        out.push(reply(ending.token, Reply::Ended(end)));
        if self.session == Session::Open(ending.session) {
            self.leave_session(ending.session, out);
        }
        self.work_is_due = true;
    }

    /// The client is about to leave its session, which has not ended: ends it all the same, if that
    /// is wanted.
    pub(super) fn end_what_is_left(&mut self) {
        self.raise_end();
        if let (Session::Open(session), None) = (&self.session, &self.ending)
            && let Some(token) = self.askers.take_end(true)
        {
            self.ending = Some(Ending::new(token, *session, self.appends.end()));
        }
    }

    /// Appends may have been submitted since the session's end was asked for.
    fn raise_end(&mut self) {
        let end = self.appends.end();
        if let (Session::Open(session), Some(ending)) = (&self.session, &mut self.ending)
            && ending.session == *session
        {
            ending.below = ending.below.max(end);
        }
    }
}

impl Ending {
    fn new(token: u64, session: SessionId, below: u64) -> Self {
        Self { token, session, below, view: ViewNumber::NONE, say_at: Time::ZERO }
    }

    /// When the leader is to be told, if one is known.
    pub(super) fn deadline(&self) -> Time {
        self.say_at
    }
}
