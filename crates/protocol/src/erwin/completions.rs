//! How a client's appends complete: acknowledged, located, refused, or lost with their session.

use seriatim_model::{Position, RecordId, SessionId, Time};

use super::client::{Failure, LogClient, Out, Reply, Session, send};
use super::message::Message;
use crate::mutation::Mutation;
use crate::parts::appending::reply;
use crate::parts::timeouts::RESEND_FIRST;

impl LogClient {
    pub(super) fn release(&mut self) {
        self.appends.release_below(self.committed);
        let (base, end) = (self.appends.base(), self.appends.end());
        assert!(
            base <= self.committed && self.committed <= end,
            "appends from {base} to {end} are there, and those below {} are committed",
            self.committed
        );
        // A caller that wants the session's end waits until nothing is in flight.
        self.work_is_due |= self.in_flight() == 0 && self.askers.want_end();
    }

    pub(super) fn located(&mut self, session: SessionId, number: u64, position: Position, out: &mut Out) {
        let Some(pending) = self.appends.get_mut(number) else { return };
        if pending.spec.sync && !pending.completed {
            pending.completed = true;
            let id = RecordId { session, number };
            out.push(reply(
                pending.token,
                Reply::Appended { id, position: Some(position), again: pending.again },
            ));
            // A final position implies that every shard replica holds the record.
            self.putting.forget(id, pending);
            self.committed = self.committed.max(number + 1).min(self.appends.end());
            self.complete_below(number, session, out);
            self.release();
        }
    }

    /// Completes a durable append whose caller did not ask for its position.
    pub(super) fn complete_if_done(&mut self, number: u64, out: &mut Out) {
        let Session::Open(session) = self.session else { return };
        let Some(pending) = self.appends.get_mut(number) else { return };
        let places = self.log.config().order.places_by_position();
        let committed = if places { self.committed } else { self.putting.ids_held };
        let is_done = number < committed && self.putting.is_stored(&pending.target);
        if is_done && !pending.spec.sync && !pending.completed {
            pending.completed = true;
            let id = RecordId { session, number };
            out.push(reply(pending.token, Reply::Appended { id, position: None, again: pending.again }));
        }
    }

    /// Completes the appends below a bound number: they are bound, too. Where records travel apart
    /// from their ids, these may be no-ops, so each must be stored.
    fn complete_below(&mut self, number: u64, session: SessionId, out: &mut Out) {
        let base = self.appends.base();
        if !self.log.config().order.places_by_position() {
            return (base..number).for_each(|number| self.complete_if_done(number, out));
        }
        for (number, pending) in self.appends.iter_mut().take_while(|(this, _)| *this < number) {
            if !pending.spec.sync && !pending.completed {
                pending.completed = true;
                let id = RecordId { session, number };
                out.push(reply(pending.token, Reply::Appended { id, position: None, again: pending.again }));
            }
        }
    }

    pub(super) fn stale(&mut self, session: SessionId, number: u64, out: &mut Out) {
        let Some(pending) = self.appends.get_mut(number) else { return };
        if !pending.completed {
            pending.completed = true;
            let id = RecordId { session, number };
            out.push(reply(pending.token, Reply::Failed(Failure::Stale(id))));
        }
        self.committed = self.committed.max(number + 1).min(self.appends.end());
        self.complete_below(number, session, out);
        self.release();
    }

    pub(super) fn too_large(&mut self, session: SessionId, number: u64, limit: u32, out: &mut Out) {
        let Some(pending) = self.appends.remove(number) else { return };
        out.push(reply(pending.token, Reply::Failed(Failure::TooLarge { limit })));
        // Later records have later numbers, and cannot move up in this session.
        self.session_lost(session, out);
    }

    /// Leaves a session that admits no more appends, but may not have ended: if a caller wants its
    /// end, the client asks the leader.
    pub(super) fn session_lost(&mut self, session: SessionId, out: &mut Out) {
        self.end_what_is_left();
        if self.config.options.mutates(Mutation::EndedByOne) {
            self.ended(session, 0, out);
        }
        self.leave_session(session, out);
    }

    pub(super) fn leave_session(&mut self, session: SessionId, out: &mut Out) {
        for pending in self.appends.restart().filter(|pending| !pending.completed) {
            out.push(reply(pending.token, Reply::Failed(Failure::SessionExpired(session))));
        }
        for token in self.past.give_up() {
            out.push(reply(token, Reply::Failed(Failure::SessionExpired(session))));
        }
        // The timer answers the caller that asked for the end.
        self.work_is_due = true;
        self.forget_session();
    }

    /// Resets the state: acknowledgements of this session do not count for the next.
    fn forget_session(&mut self) {
        self.resuming = None;
        self.session = Session::None;
        (self.committed, self.asked_below) = (0, 0);
        self.locate_at = None;
        self.putting.restart();
        for member in self.members.values_mut() {
            (member.sent, member.acknowledged) = (0, 0);
        }
    }

    pub(super) fn deleted(&mut self, out: &mut Out) {
        let uncompleted =
            self.appends.restart().filter(|pending| !pending.completed).map(|pending| pending.token);
        let ending = self.ending.take().map(|ending| ending.token);
        let tokens = uncompleted.chain(self.askers.give_up()).chain(ending).chain(self.past.give_up());
        self.log.tell_deleted(tokens.chain(self.tails.give_up()), out);
        self.forget_session();
    }

    /// Asks for the positions that callers wait for; repeats after a pause.
    pub(super) fn send_locates(&mut self, now: Time, session: SessionId, out: &mut Out) {
        let Some((view, leader)) = self.log.view().map(|view| (view.number, view.leader)) else { return };
        if self.locate_at.is_some_and(|at| now >= at) {
            self.asked_below = self.appends.base();
            self.locate_at = None;
        }
        let from = self.asked_below.max(self.appends.base());
        for (number, pending) in self.appends.from(from) {
            if pending.spec.sync && !pending.completed {
                self.locate_at = self.locate_at.or(Some(now + RESEND_FIRST));
                out.push(send(leader, Message::Locate { view, session, number }));
            }
        }
        self.asked_below = self.appends.end();
    }
}
