//! How the ordering layer ends a session whose client goes on in another one.
//!
//! ```text
//! client            leader                followers
//!   |-- Close a, c --->|                      |
//!   |                  |-- Cut, a ends at 7 ->|
//!   |                  |<- Held --------------|    committed
//!   |<- Ended a at 7 --|                      |
//! ```
//!
//! Where a session ends is decided as everything is that is in the log: by a cut, at one position,
//! where a no-op stands. From there on no cut orders anything of it, whatever the shards have of it
//! in their local logs. Its client is told when the cut is committed: then all members hold it,
//! what was ordered of the session before is in the log for good, and no view change undoes either.

use seriatim_model::{Address, SessionId, limits};

use super::message::Message;
use super::sequencer::{Sequencer, reply};
use crate::mutation::Mutation;
use crate::parts::Sessions;
use crate::parts::sessions::most_closed;
use crate::roles::RoleEffect;

/// A client wants a session to end, and is not told yet that it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closing {
    client: Address,
    pub(super) session: SessionId,
    /// The session that its client goes on in, unless an earlier run went on in another one.
    pub(super) successor: SessionId,
    /// Whether a cut ends it.
    pub(super) is_cut: bool,
}

impl Closing {
    /// The answer that the client is to get, if that is certain.
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
    /// Leader: a client goes on in another session, and wants nothing more of this one to be
    /// ordered.
    pub(super) fn close(
        &mut self,
        client: Address,
        session: SessionId,
        successor: SessionId,
        out: &mut Vec<RoleEffect>,
    ) {
        // No client of ours goes on where it ended.
        if successor == session {
            return;
        }
        let most = most_closed(self.options.limits.max_sessions);
        let is_new = self.sessions.next(session).is_none() && !self.has_expired(session);
        if is_new && !self.may_begin(session) {
            // No tail was there for it yet, or a loss that was accepted took what was.
            return reply(client, Message::Expired { session }, out);
        }
        let is_cut = self.sessions.successor_of(session).is_some();
        let Some(leader) = &mut self.leader else { return };
        let is_known = leader.closings.iter().any(|known| (known.client, known.session) == (client, session));
        if !is_known && is_new && !leader.closers.has_room(client.peer(), most) {
            // That this one has ended would be remembered, in the place of a session that is in
            // use.
            return reply(client, Message::Expired { session }, out);
        }
        if !is_known && leader.closings.len() < limits::MAX_ENDINGS {
            leader.closers.take(client.peer(), u64::from(is_new));
            leader.closings.push(Closing { client, session, successor, is_cut });
        }
        self.tell_ended(out);
    }

    /// Leader: tells those whose sessions have ended for good, or are not known any more.
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

    /// Whether all that was decided of a session is committed, its end as well.
    pub(super) fn is_final(&self, session: SessionId) -> bool {
        let committed = self.leader.as_ref().map(|leader| leader.commits.committed());
        committed.is_some_and(|committed| self.sessions.is_bound_below(session, committed))
    }

    /// Whether nothing of a session can be ordered any more, because it is not known.
    pub(super) fn has_expired(&self, session: SessionId) -> bool {
        self.sessions.has_expired(session, self.end(), self.config.idle_positions())
    }

    /// Whether the first numbers of a session that is not known may be ordered.
    pub(super) fn may_begin(&self, session: SessionId) -> bool {
        let (end, most) = (self.end(), self.options.limits.max_sessions);
        let is_ahead = self.sessions.is_ahead(session, end);
        !self.has_expired(session) && !is_ahead && !self.sessions.is_too_many_ahead(session, end, most)
    }

    /// Whether a session ended, for good, at or below a number.
    pub(super) fn has_ended_below(&self, session: SessionId, number: u64) -> bool {
        self.sessions.end_of(session).is_some_and(|end| number >= end) && self.is_final(session)
    }
}

/// The number that a session ends at when nothing more of it is ordered; nothing if it has ended.
pub(super) fn end_of(closing: &Closing, sessions: &Sessions) -> Option<u64> {
    let is_open = sessions.successor_of(closing.session).is_none();
    is_open.then(|| sessions.next(closing.session).unwrap_or(0))
}
