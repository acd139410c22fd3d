//! How a replica makes room for new sessions: it forgets those that were bound least recently, and refuses what comes of
//! them later.
//!
//! Each replica decides for itself. What it must not do is take a record for new that is in the log as it knows it; for
//! that it is enough that whatever it forgot lies below its own floor. A view is recovered from one replica, whose table
//! and floor become everyone's together with its log, and an append that some member refuses is never acknowledged.
//!
//! A floor is no higher than what is ordered while a replica knows sessions that were opened below that, and may be
//! forgotten. A table full of others has no such ones: of sessions that were closed at the tail of a quiet log, or whose
//! clients were told a tail that the log has not reached. Then the floor rises above the tail, and whoever opens a session
//! is told it, so that the new session has a name from the floor.

use seriatim_model::{Address, Position, SessionId, Time, limits};

use super::memory::JournalRecord;
use super::message::Message;
use super::orderer::Orderer;
use super::sequencer::{Sequencer, reply};
use crate::deviation::Deviation;
use crate::parts::Sessions;
use crate::roles::RoleEffect;

impl Sequencer {
    /// Whether there are so many sessions that this one, if it is not among them, is one too many.
    pub(super) fn has_no_room_for(&self, session: SessionId) -> bool {
        self.sessions.next(session).is_none() && self.sessions.len() >= self.options.limits.max_sessions
    }

    /// Notes in which session the client of one that has ended goes on. That one is remembered as well, so that it is
    /// there when something comes of it.
    pub(super) fn succeed(&mut self, session: SessionId, successor: SessionId) {
        let successor = self.sessions.succeed(session, successor);
        if self.may_begin(successor) {
            self.sessions.open(successor, self.ordered);
        }
    }

    /// Something comes of a session: if it is new, it needs room.
    pub(super) fn make_room_for(&mut self, now: Time, session: SessionId, out: &mut Vec<RoleEffect>) {
        if self.may_begin(session) && self.has_no_room_for(session) {
            self.expire_some(now, out);
        }
    }

    fn may_begin(&self, session: SessionId) -> bool {
        !self.is_too_old(session) && !self.sessions.is_ahead(session, self.ordered)
    }

    /// Tells a client that opens a session from where on it is to be, if that is not the tail.
    pub(super) fn tell_floor(&self, client: Address, tail: Position, out: &mut Vec<RoleEffect>) {
        let (view, floor) = (self.membership.number, self.sessions.floor());
        if floor > tail {
            reply(client, Message::Floor { view, floor }, out);
        }
    }

    /// The records that the leader orders, and the sessions that end, may have made too many sessions known.
    pub(super) fn limit_sessions(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if self.sessions.len() > self.options.limits.max_sessions {
            self.expire_some(now, out);
        }
        self.limit_voids(now, out);
    }

    /// Whether nothing more is admitted of a session until its client has taken note of what became no-ops: these are as
    /// many as are left for all others.
    pub(super) fn refuses_for_voids(&mut self, session: SessionId, lowest: u64) -> bool {
        let most = self.options.limits.void_runs;
        let has_too_many = |sessions: &Sessions| {
            let own = sessions.unsettled_voids(session);
            own > 0 && own >= most.saturating_sub(sessions.void_runs())
        };
        if !has_too_many(&self.sessions) {
            return false;
        }
        self.sessions.raise_lowest(session, lowest);
        has_too_many(&self.sessions)
    }

    /// Forgets sessions if the last that was ordered made too many no-ops known.
    pub(super) fn limit_voids(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let most = self.options.limits.void_runs;
        if self.sessions.void_runs() > most {
            self.expire_those(
                now,
                |sessions, settled, is_kept| sessions.most_voids(settled, most, is_kept),
                out,
            );
        }
    }

    fn expire_some(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let (most, ordered) = (self.options.limits.max_sessions, self.ordered);
        let choose = |sessions: &Sessions, settled, is_kept: &dyn Fn(SessionId) -> bool| {
            let oldest = sessions.least_recent((settled, ordered), most, is_kept);
            if oldest.is_empty() { sessions.opened_lowest(settled, most, is_kept) } else { oldest }
        };
        self.expire_those(now, choose, out);
    }

    fn expire_those(
        &mut self,
        now: Time,
        choose: impl Fn(&Sessions, Position, &dyn Fn(SessionId) -> bool) -> Vec<SessionId>,
        out: &mut Vec<RoleEffect>,
    ) {
        if now < self.expire_not_before {
            return;
        }
        let settled = self.orderer.as_ref().map_or(self.ordered, Orderer::stable);
        let is_ending =
            |session| self.orderer.as_ref().is_some_and(|orderer| orderer.endings.is_under_way(session));
        let is_kept =
            |session| self.ring.holds(session) || self.frozen.contains_key(&session) || is_ending(session);
        let sessions = choose(&self.sessions, settled, &is_kept);
        if sessions.is_empty() {
            // All of them are at work. That takes a moment, and so does looking.
            self.expire_not_before = now + limits::RESEND_AFTER;
            return;
        }
        self.expire(&sessions);
        self.persist(&JournalRecord::Expired { sessions }, out);
    }

    /// Forgets sessions for good, of which nothing is held here.
    pub(super) fn expire(&mut self, sessions: &[SessionId]) {
        let is_held = |id: &SessionId| self.ring.holds(*id);
        assert!(!sessions.iter().any(is_held), "no session is forgotten of which something is held");
        self.sessions.expire(sessions);
        if self.options.deviates(Deviation::ForgottenWithoutFloor) {
            self.sessions.lower_floor();
        }
    }
}
