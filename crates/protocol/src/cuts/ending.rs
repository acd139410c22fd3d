//! How the ordering layer ends a session whose client continues in another one.
//!
//! ```text
//! client            leader                followers
//!   |-- Close a, c --->|                      |
//!   |                  |-- Cut, a ends at 7 ->|
//!   |                  |<- Held --------------|    committed
//!   |<- Ended a at 7 --|                      |
//! ```
//!
//! A cut decides where a session ends, at one position, with a no-op. Later cuts order none of its
//! records, even if local logs hold some. The client gets the reply when the cut is committed: then
//! all members hold it, and no view change undoes the end or the session's earlier records.

use seriatim_model::{Address, SessionId, limits};

use super::message::Message;
use super::sequencer::{Sequencer, reply};
use crate::mutation::Mutation;
use crate::parts::Sessions;
use crate::parts::sessions::most_closed;
use crate::roles::RoleEffect;

/// A client's request to end a session, not yet answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    client: Address,
    pub(super) session: SessionId,
    /// Session in which the client continues, unless an earlier run named another one.
    pub(super) successor: SessionId,
    pub(super) is_cut: bool,
}

impl Closing {
    /// The reply, once the end is committed or the session has expired. `None`: not yet.
    fn answer(self, sequencer: &Sequencer) -> Option<Message> {
        let (Self { session, .. }, sessions) = (self, &sequencer.sessions);
        if sequencer.has_expired(session) {
            return Some(Message::Expired { session });
        }
        let successor = sessions.successor_of(session)?;
        let is_final = sequencer.is_final(session) || sequencer.options.mutates(Mutation::EndUncommitted);
        let at = sessions.end_of(session).or(sessions.next(session))?;
        let view = sequencer.membership.number;
        is_final.then_some(Message::Ended { view, session, at, successor })
    }
}

impl Sequencer {
    pub(super) fn close(
        &mut self,
        client: Address,
        session: SessionId,
        successor: SessionId,
        out: &mut Vec<RoleEffect>,
    ) {
        // Our clients never name a session as its own successor.
        if successor == session {
            return;
        }
        let most = most_closed(self.options.limits.max_sessions);
        let is_new = self.sessions.next(session).is_none() && !self.has_expired(session);
        if is_new && !self.may_begin(session) {
            // The session's id names a tail that no client can have received, except before an
            // accepted loss.
            return reply(client, Message::Expired { session }, out);
        }
        let is_cut = self.sessions.successor_of(session).is_some();
        let Some(leader) = &mut self.leader else { return };
        let is_known = leader.closings.iter().any(|known| (known.client, known.session) == (client, session));
        if !is_known && is_new && !leader.closers.has_room(client.peer(), most) {
            // To remember this session's end, the layer would have to forget a session in use.
            return reply(client, Message::Expired { session }, out);
        }
        if !is_known && leader.closings.len() < limits::MAX_ENDINGS {
            leader.closers.take(client.peer(), u64::from(is_new));
            leader.closings.push(Closing { client, session, successor, is_cut });
        }
        self.tell_ended(out);
    }

    /// Leader: answers requests whose sessions have expired, or whose end is committed.
    pub(super) fn tell_ended(&mut self, out: &mut Vec<RoleEffect>) {
        let Some(leader) = &mut self.leader else { return };
        let mut closings = std::mem::take(&mut leader.closings);
        closings.retain(|closing| match closing.answer(self) {
            Some(answer) => {
                reply(closing.client, answer, out);
                false
            }
            None => true,
        });
        if let Some(leader) = &mut self.leader {
            leader.closings = closings;
        }
    }

    /// Whether all decisions about a session are committed, also its end.
    pub(super) fn is_final(&self, session: SessionId) -> bool {
        let committed = self.leader.as_ref().map(|leader| leader.commits.committed());
        committed.is_some_and(|committed| self.sessions.is_bound_below(session, committed))
    }

    /// Whether no cut orders the session any more, since it is forgotten.
    pub(super) fn has_expired(&self, session: SessionId) -> bool {
        self.sessions.has_expired(session, self.end(), self.config.idle_positions())
    }

    /// Whether the first numbers of an unknown session may be ordered.
    pub(super) fn may_begin(&self, session: SessionId) -> bool {
        let (end, most) = (self.end(), self.options.limits.max_sessions);
        let is_ahead = self.sessions.is_ahead(session, end);
        !self.has_expired(session) && !is_ahead && !self.sessions.is_too_many_ahead(session, end, most)
    }

    pub(super) fn has_ended_below(&self, session: SessionId, number: u64) -> bool {
        self.sessions.end_of(session).is_some_and(|end| number >= end) && self.is_final(session)
    }
}

/// The number at which the session would end now. `None`: it has ended.
pub(super) fn end_of(closing: &Closing, sessions: &Sessions) -> Option<u64> {
    let is_open = sessions.successor_of(closing.session).is_none();
    is_open.then(|| sessions.next(closing.session).unwrap_or(0))
}
