//! How a replica makes room for new sessions: it forgets the least recently bound ones, and refuses
//! their later appends.
//!
//! Each replica decides for itself. It must not admit a record again that its log has, so every
//! forgotten session must lie below its own floor: unlisted sessions opened below the floor have
//! expired. A view recovers from one replica, whose sessions, floor and log all members adopt, and
//! an append that one member refuses is never acknowledged.
//!
//! The floor stays at or below `ordered` while sessions opened below that may be forgotten. A full
//! table may have none: they were closed at the tail of a quiet log, or their clients received a
//! tail that the log has not reached. Then the floor rises above the tail, and new sessions begin
//! at the floor.

use seriatim_model::{Address, Position, SessionId, Time, limits};

use super::log_state::Excess;
use super::memory::JournalRecord;
use super::message::Message;
use super::orderer::Orderer;
use super::sequencer::{Sequencer, reply};
use crate::roles::RoleEffect;

impl Sequencer {
    pub(super) fn make_room_for(&mut self, now: Time, session: SessionId, out: &mut Vec<RoleEffect>) {
        if self.log.may_begin(session) && self.log.has_no_room_for(session) {
            self.expire_those(now, Excess::Sessions, out);
        }
    }

    /// Sends a floor above the tail to a client that opens a session.
    pub(super) fn tell_floor(&self, client: Address, tail: Position, out: &mut Vec<RoleEffect>) {
        let (view, floor) = (self.membership.number, self.log.sessions().floor());
        if floor > tail {
            reply(client, Message::Floor { view, floor }, out);
        }
    }

    /// Forgets surplus sessions, which orders and ends may have added.
    pub(super) fn limit_sessions(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if self.log.exceeds(Excess::Sessions) {
            self.expire_those(now, Excess::Sessions, out);
        }
        self.limit_voids(now, out);
    }

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
            // All sessions are in use, and searching is expensive.
            self.expire_not_before = now + limits::RESEND_AFTER;
            return;
        }
        self.log.expire(&sessions);
        self.persist(&JournalRecord::Expired { sessions }, out);
    }
}
