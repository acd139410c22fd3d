//! How a client's appends complete, and how it recovers when another record takes an append's
//! position.

use seriatim_model::{Position, SessionId, Time};

use super::client::{InFlightToHead, LogClient, Out, Place};
use crate::parts::appending::{Failure, Reply, reply};

impl LogClient {
    /// All replicas of a chain have the record.
    pub(super) fn complete(&mut self, number: u64, position: Position, out: &mut Out) {
        self.placed.remove(&position);
        self.in_log = self.in_log.max(number + 1);
        self.since = self.since.max(position);
        let Some(id) = self.id(number) else { return };
        let Some(pending) = self.numbered(number) else { return };
        if !pending.completed {
            pending.completed = true;
            pending.place = Place::Nowhere;
            let (token, again) = (pending.token, pending.again);
            out.push(reply(token, Reply::Appended { id, position: Some(position), again }));
        }
        self.release();
    }

    fn release(&mut self) {
        while self.pending.front().is_some_and(|pending| pending.completed) {
            self.pending.pop_front();
            self.base += 1;
        }
        // The end of the session may wait until no append is pending.
        self.work_is_due |= self.pending.is_empty();
    }

    /// Another record is at the append's position. The append may get a new one, unless a later
    /// append is in the log.
    pub(super) fn overtaken(&mut self, now: Time, number: u64, position: Position) {
        self.placed.remove(&position);
        let Some(pending) = self.numbered(number) else { return };
        let was_late = matches!(pending.place, Place::At { .. });
        pending.place = Place::Overtaken;
        if was_late {
            self.fill_timeout.was_too_short(now);
        }
        self.give_up_positions();
    }

    /// Requests no positions until the outcome of all sent writes is known. Appends after the last
    /// sent one abandon their positions.
    pub(super) fn give_up_positions(&mut self) {
        if !self.is_recovering {
            self.is_recovering = true;
            self.take += 1;
        }
        let on_its_way = |place: &Place| matches!(place, Place::At { sent: true, .. } | Place::Asked { .. });
        for pending in self.pending.iter_mut().rev() {
            if on_its_way(&pending.place) {
                break;
            }
            if let Place::At { position, .. } = pending.place {
                self.placed.remove(&position);
                pending.place = Place::Nowhere;
            }
        }
    }

    /// Once all outcomes are known, an append without a position fails if a later one is in the
    /// log; the others get new positions.
    pub(super) fn end_recovery_if_known(&mut self, now: Time, out: &mut Out) {
        if !self.is_recovering || !self.placed.is_empty() {
            return;
        }
        self.is_recovering = false;
        for number in self.base..self.in_log.min(self.end()) {
            self.not_appended(now, number, out);
        }
        for pending in self.pending.iter_mut().filter(|pending| !pending.completed) {
            pending.place = Place::Nowhere;
        }
        self.release();
        self.granted = self.in_log.max(self.base);
        self.asked = self.granted;
        self.in_flight_to_head = InFlightToHead::default();
        self.work_is_due = true;
    }

    /// A later append is in the log, so this one never will be.
    fn not_appended(&mut self, now: Time, number: u64, out: &mut Out) {
        let Some(id) = self.id(number) else { return };
        let Some(pending) = self.numbered(number).filter(|pending| !pending.completed) else { return };
        pending.completed = true;
        pending.place = Place::Nowhere;
        let (token, spec, again) = (pending.token, pending.spec, pending.again);
        if now < spec.again_until {
            let record = pending.record.clone();
            self.enqueue(token, record, spec, again + 1);
        } else {
            out.push(reply(token, Reply::Failed(Failure::NotAppended(id))));
        }
    }

    pub(super) fn session_lost(&mut self, out: &mut Out) {
        match self.session {
            Some(session) => self.lose(session, out),
            None => self.forget_session(),
        }
    }

    /// An append's outcome is unknown, in this session or an earlier one.
    pub(super) fn lose(&mut self, session: SessionId, out: &mut Out) {
        let uncompleted = self.pending.drain(..).filter(|pending| !pending.completed);
        let tokens = uncompleted.map(|pending| pending.token).chain(self.earlier.past.give_up());
        out.extend(tokens.map(|token| reply(token, Reply::Failed(Failure::SessionExpired(session)))));
        self.forget_session();
        self.work_is_due = true;
    }
}
