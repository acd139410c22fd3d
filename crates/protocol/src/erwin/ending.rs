//! How a client closes its session: it asks the leader, and the view's members agree on the number
//! from which on nothing is stored or acknowledged (`ending_sessions.rs`).
//!
//! An `Expired` answer is no end: other replicas may know the session, and admit appends in
//! transit. So the client leaves the session, and continues to close it.

use seriatim_model::{SessionId, Time, ViewNumber};

use super::client::{LogClient, Out, Reply, Session, send};
use super::message::Message;
use crate::parts::appending::reply;
use crate::parts::timeouts::RESEND_FIRST;

/// An end in progress. The client may have left the session.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// Token of the request for the end.
    pub(super) token: u64,
    session: SessionId,
    /// A number above all appends of this run.
    below: u64,
    /// The view of the last `Close`.
    view: ViewNumber,
    say_at: Time,
}

impl LogClient {
    /// Ends the session once a caller wants it and nothing is in flight.
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
            // The leader may be slow or deposed.
            self.log.look_up(out);
        }
    }

    /// The session has ended on all members of a view.
    pub(super) fn ended(&mut self, session: SessionId, at: u64, out: &mut Out) {
        self.raise_end();
        if let Some(ending) = self.ending.take_if(|ending| ending.session == session) {
            // This run's appends lie below the end, even if the replicas forgot them.
            let at = at.max(ending.below);
            self.finish(&ending, Some((session, at)), out);
        }
    }

    /// The leader does not know the session. If an append is in flight, the client retries.
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

    /// The client leaves its session: keeps a requested end.
    pub(super) fn end_what_is_left(&mut self) {
        self.raise_end();
        if let (Session::Open(session), None) = (&self.session, &self.ending)
            && let Some(token) = self.askers.take_end(true)
        {
            self.ending = Some(Ending::new(token, *session, self.appends.end()));
        }
    }

    /// Raises `below` over appends submitted since the request.
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

    pub(super) fn deadline(&self) -> Time {
        self.say_at
    }
}
