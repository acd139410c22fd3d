//! How a client closes its session: it tells the leader, which sees to it that every member of the view agrees on
//! the number from which on nothing is stored or acknowledged any more (`ending_sessions.rs`).

use seriatim_model::{SessionId, Time, ViewNumber};

use super::client::{LogClient, Out, Reply, Session, send};
use super::message::Message;
use crate::parts::appending::reply;
use crate::parts::pauses::RESEND_FIRST;

/// A session on its way to its end.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// The request that asked for it.
    pub(super) token: u64,
    /// The view whose leader was told last.
    view: ViewNumber,
    say_at: Time,
}

impl LogClient {
    /// Ends the session, if that is wanted and nothing is in flight.
    pub(super) fn end_session(&mut self, now: Time, out: &mut Out) {
        let is_settled = self.in_flight() == 0 && self.session != Session::Opening;
        let may_end = is_settled && self.resuming.is_none() && self.ending.is_none();
        if let Some(token) = self.askers.take_end(may_end) {
            match self.session {
                Session::Open(_) => {
                    self.ending = Some(Ending { token, view: ViewNumber::NONE, say_at: Time::ZERO });
                }
                _ => out.push(reply(token, Reply::Ended(None))),
            }
        }
        let view = self.log.view().map(|view| (view.number, view.leader));
        let (Some(ending), Session::Open(session), Some((number, leader))) =
            (&mut self.ending, &self.session, view)
        else {
            return;
        };
        if ending.view == number && now < ending.say_at {
            return;
        }
        let is_repeated = ending.view == number;
        (ending.view, ending.say_at) = (number, now + RESEND_FIRST);
        out.push(send(leader, Message::Close { view: number, session: *session, successor: None }));
        if is_repeated {
            // The leader may be slow, or leader no more.
            self.log.look_up(out);
        }
    }

    /// The session has ended, on all members of a view.
    pub(super) fn ended(&mut self, session: SessionId, at: u64, out: &mut Out) {
        // The appends of this run lie below the end, also if the replicas have forgotten that.
        let at = at.max(self.end());
        if let Some(ending) = self.ending.take() {
            out.push(reply(ending.token, Reply::Ended(Some((session, at)))));
            self.session_lost(session, out);
        }
        self.work_is_due = true;
    }
}

impl Ending {
    /// When the leader is to be told, if one is known.
    pub(super) fn deadline(&self) -> Time {
        self.say_at
    }
}
