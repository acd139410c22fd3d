//! How a replica makes room for new sessions: it forgets the sessions that were bound least
//! recently, and refuses their later appends.
//!
//! Each replica decides for itself. It must not take a record for new that is in the log as it
//! knows it; for that it is enough that every session that it forgot lies below its own floor. A
//! view is recovered from one replica, whose table and floor become everyone's together with its
//! log, and an append that some member refuses is never acknowledged.
//!
//! A floor is no higher than what is ordered while a replica knows sessions that were opened below
//! that, and may be forgotten. A table full of others has no such ones: of sessions that were
//! closed at the tail of a quiet log, or whose clients were told a tail that the log has not
//! reached. Then the floor rises above the tail, and the replica tells it to every client that
//! opens a session, so that the new session's id begins at the floor.

use seriatim_model::{Address, Position, SessionId, Time, limits};

use super::log_state::Excess;
use super::memory::JournalRecord;
use super::message::Message;
use super::orderer::Orderer;
use super::sequencer::{Sequencer, reply};
use crate::roles::RoleEffect;

impl Sequencer {
    /// Something comes of a session: if it is new, it needs room.
    pub(super) fn make_room_for(&mut self, now: Time, session: SessionId, out: &mut Vec<RoleEffect>) {
        if self.log.may_begin(session) && self.log.has_no_room_for(session) {
            self.expire_those(now, Excess::Sessions, out);
        }
    }

    /// Tells a client that opens a session from where on it is to be, if that is not the tail.
    pub(super) fn tell_floor(&self, client: Address, tail: Position, out: &mut Vec<RoleEffect>) {
        let (view, floor) = (self.membership.number, self.log.sessions().floor());
        if floor > tail {
            reply(client, Message::Floor { view, floor }, out);
        }
    }

    /// The records that the leader orders, and the sessions that end, may have made too many
    /// sessions known.
    pub(super) fn limit_sessions(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if self.log.exceeds(Excess::Sessions) {
            self.expire_those(now, Excess::Sessions, out);
        }
        self.limit_voids(now, out);
    }

    /// Forgets sessions if the last that was ordered made too many no-ops known.
    pub(super) fn limit_voids(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if self.log.exceeds(Excess::NoOps) {
            self.expire_those(now, Excess::NoOps, out);
        }
    }

    fn expire_those(&mut self, now: Time, excess: Excess, out: &mut Vec<RoleEffect>) {
        if now < self.expire_not_before {
            return;
        }
        let stable = self.orderer.as_ref().map_or(self.log.ordered(), Orderer::stable);
        let is_ending =
            |session| self.orderer.as_ref().is_some_and(|orderer| orderer.endings.is_under_way(session));
        let sessions = self.log.superfluous(excess, stable, is_ending);
        if sessions.is_empty() {
            // All of them are at work. That takes a moment, and so does looking.
            self.expire_not_before = now + limits::RESEND_AFTER;
            return;
        }
        self.log.expire(&sessions);
        self.persist(&JournalRecord::Expired { sessions }, out);
    }
}
