//! How the members of a view end a session (docs/design/erwin.md, "Ending a session"), and what the shards are told of records
//! that nobody named ("Orphans").
//!
//! ```text
//! client or shard      leader           followers
//!   |-- Close ---------->|                  |
//!   |   (or Unnamed)     |---- Freeze ----->|     nothing more of it is admitted
//!   |                    |<--- Frozen ------|     up to here
//!   |                    |---- End -------->|     the highest of these numbers
//!   |                    |<--- Ended -------|     durable
//!   |<- Ended -----------|                  |
//!   |   (or Undecided)   |                  |
//! ```
//!
//! A client whose session is not known, and cannot be remembered as one that ended, is told so (`NotEnded`). What an
//! append is told (`Expired`) says nothing of that: it is one member that has forgotten the session.
//!
//! A client that goes on in another session names it as the successor, which is written down with the end: a client
//! that knows the first session of a program finds the one that it appends to, however often it was restarted.
//!
//! A session is frozen in one view only. An end that not all members confirmed may get lost with the view, and
//! nobody was told of it; one that all confirmed is in every snapshot that a later view can be recovered from.
//! Below the end some member holds every number, and forwards it to the leader; where such a number is lost with
//! the view, the session ends lower in the next one.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{Address, Endpoint, IdRun, NodeId, SessionId, Ticket, Time, ViewNumber, limits};

use super::memory::JournalRecord;
use super::message::Message;
use super::sequencer::{Sequencer, reply};
use crate::deviation::Deviation;
use crate::parts::sessions::most_closed;
use crate::roles::RoleEffect;
use crate::shard;

type Out = Vec<RoleEffect>;

/// The sessions that a leader is ending.
#[derive(Clone, Debug, Default)]
pub(super) struct Endings(BTreeMap<SessionId, Ending>);

#[derive(Clone, Debug)]
struct Ending {
    /// The askers to be told, each with the successor that it named.
    askers: BTreeMap<Address, Option<SessionId>>,
    successor: Option<SessionId>,
    step: Step,
    /// The followers that have not answered.
    unanswered: BTreeSet<NodeId>,
    said_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The highest number that a member would go on with, so far.
    Freezing { highest: u64 },
    /// Where it ends, and our own write that says so.
    Ending { at: u64, ticket: Ticket },
}

impl Ending {
    fn say(&mut self, now: Time, view: ViewNumber, session: SessionId, out: &mut Out) {
        self.said_at = now;
        let message = match self.step {
            Step::Freezing { .. } => Message::Freeze { view, session },
            Step::Ending { at, .. } => Message::End { view, session, at, successor: self.successor },
        };
        for node in &self.unanswered {
            reply(Address::Node(*node, Endpoint::Sequencer), message.clone(), out);
        }
    }
}

impl Endings {
    pub(super) fn is_under_way(&self, session: SessionId) -> bool {
        self.0.contains_key(&session)
    }

    /// Says again what was not answered.
    pub(super) fn resend(&mut self, now: Time, view: ViewNumber, out: &mut Out) {
        for (session, ending) in &mut self.0 {
            if now >= ending.said_at + limits::RESEND_AFTER && !ending.unanswered.is_empty() {
                ending.say(now, view, *session, out);
            }
        }
    }

    /// When something is to be said again.
    pub(super) fn deadline(&self) -> Option<Time> {
        let waiting = self.0.values().filter(|ending| !ending.unanswered.is_empty());
        waiting.map(|ending| ending.said_at + limits::RESEND_AFTER).min()
    }
}

impl Sequencer {
    /// Leader: a client closes its session. A follower may know it that the leader has forgotten.
    pub(super) fn close(
        &mut self,
        now: Time,
        client: Address,
        session: SessionId,
        successor: Option<SessionId>,
        out: &mut Out,
    ) {
        // No client of ours goes on where it ended.
        if successor != Some(session) {
            self.begin_end(now, client, session, successor, out);
        }
    }

    /// Leader: a shard replica has records that have been lying there for long, without names. The session of a
    /// client that is still there ends with them, and it goes on with another.
    pub(super) fn unnamed(&mut self, now: Time, replica: Address, names: &[IdRun], out: &mut Out) {
        let Address::Node(_, Endpoint::Shard(_)) = replica else { return };
        if self.orderer.is_none() {
            return;
        }
        for run in names.iter().take(limits::MAX_UNNAMED) {
            let is_known = run.end() <= self.sessions.next(run.session).unwrap_or(0);
            if is_known || self.is_too_old(run.session) {
                self.tell_end(replica, run.session, out);
            } else {
                self.begin_end(now, replica, run.session, None, out);
            }
        }
    }

    /// Leader: ends a session, unless it has ended, and tells whoever asked.
    fn begin_end(
        &mut self,
        now: Time,
        asker: Address,
        session: SessionId,
        successor: Option<SessionId>,
        out: &mut Out,
    ) {
        let view = self.membership.number;
        if self.sessions.is_ahead(session, self.ordered) {
            // No tail was there for it yet, or a loss that was accepted took what was.
            if let (Some(_), Address::Client(..)) = (&self.orderer, asker) {
                reply(asker, Message::NotEnded { view, session }, out);
            }
            return;
        }
        self.make_room_for(now, session, out);
        let (end, known) = (self.sessions.end_of(session), self.sessions.next(session));
        let (is_too_old, has_no_room) = (self.is_too_old(session), self.has_no_room_for(session));
        let Some(orderer) = &mut self.orderer else { return };
        if let Some(ending) = orderer.endings.0.get_mut(&session) {
            ending.askers.insert(asker, successor);
            if matches!(ending.step, Step::Freezing { .. }) {
                ending.successor = ending.successor.or(successor);
            }
            return;
        }
        if successor.is_some() && is_too_old {
            // The fate of its numbers is not known any more.
            return reply(asker, Message::NotEnded { view, session }, out);
        }
        if end.is_some() && (successor.is_none() || self.sessions.successor_of(session).is_some()) {
            return self.tell_end(asker, session, out);
        }
        if let (None, Address::Client(..)) = (known.or(end), asker)
            && !is_too_old
            && !self.closers.has_room(asker.peer(), most_closed(self.options.limits.max_sessions))
        {
            // That this one has ended would be remembered, in the place of a session that is in use.
            return reply(asker, Message::NotEnded { view, session }, out);
        }
        let under_way = orderer.endings.0.len();
        if under_way >= limits::MAX_ENDINGS || has_no_room && !is_too_old {
            // The asker asks again.
            return;
        }
        if matches!(asker, Address::Client(..)) && known.or(end).is_none() {
            self.closers.take(asker.peer(), 1);
        }
        // One that has ended is frozen for good, and asking finds that out.
        if end.is_none() {
            self.frozen.insert(session, known.unwrap_or(0));
        }
        let mut ending = Ending {
            askers: BTreeMap::from([(asker, successor)]),
            successor,
            step: Step::Freezing { highest: end.or(known).unwrap_or(0) },
            unanswered: orderer.followers().collect(),
            said_at: now,
        };
        ending.say(now, view, session, out);
        orderer.endings.0.insert(session, ending);
        self.go_on_ending(now, out);
    }

    /// A member of the view is told, or answers.
    pub(super) fn end(&mut self, now: Time, from: Address, message: Message, out: &mut Out) {
        match message {
            Message::Freeze { view, session } => {
                // One that has ended is frozen for good: the question is late, or the leader has forgotten.
                let end = self.sessions.end_of(session);
                let next = end.or(self.sessions.next(session)).unwrap_or(0);
                if end.is_none() {
                    // The first answer counts: the leader may have gone by it.
                    self.frozen.entry(session).or_insert(next);
                }
                reply(from, Message::Frozen { view, session, next }, out);
            }
            Message::End { view, session, at, successor } => {
                // Also one that is not known here, however old: it may come back with what the leader orders.
                if self.sessions.end_of(session).is_none() {
                    // A leader that has forgotten the session may have bound more of it, which is dropped here since.
                    let is_too_low = self.frozen.get(&session).is_some_and(|frozen| at < *frozen);
                    let may_be = self.options.deviates(Deviation::EndedAtLeadersNumber);
                    assert!(
                        !is_too_low || may_be,
                        "session {session} ends at {at}, below what was frozen here"
                    );
                    self.end_here(session, at, out);
                }
                self.succeed_here(session, successor, out);
                self.frozen.remove(&session);
                let successor = self.sessions.successor_of(session);
                self.gate.confirm(from, Message::Ended { view, session, at, successor }, out);
            }
            Message::Frozen { session, next, .. } => self.answered(from, session, Some(next)),
            Message::Ended { session, .. } => self.answered(from, session, None),
            _ => {}
        }
        self.go_on_ending(now, out);
        self.limit_sessions(now, out);
    }

    fn end_here(&mut self, session: SessionId, at: u64, out: &mut Out) {
        self.sessions.end(session, at);
        self.persist(&JournalRecord::Ended { session, at }, out);
    }

    /// Notes in which session the client of one that has ended goes on, unless that is known.
    fn succeed_here(&mut self, session: SessionId, successor: Option<SessionId>, out: &mut Out) {
        if let Some(successor) = successor.filter(|_| self.sessions.successor_of(session).is_none()) {
            self.succeed(session, successor);
            self.persist(&JournalRecord::Succeeded { session, successor }, out);
        }
    }

    /// Leader: a follower is frozen at a number, or has ended the session.
    fn answered(&mut self, from: Address, session: SessionId, next: Option<u64>) {
        let (Some(orderer), Address::Node(node, _)) = (&mut self.orderer, from) else { return };
        let Some(ending) = orderer.endings.0.get_mut(&session) else { return };
        match (&mut ending.step, next) {
            (Step::Freezing { highest }, Some(next)) => {
                *highest = next.max(*highest);
                ending.unanswered.remove(&node);
            }
            (Step::Ending { .. }, None) => {
                ending.unanswered.remove(&node);
            }
            // It was said twice.
            _ => {}
        }
    }

    /// Leader: takes the next step of those endings that wait for nobody.
    pub(super) fn go_on_ending(&mut self, now: Time, out: &mut Out) {
        let Some(orderer) = &mut self.orderer else { return };
        let all_answered = |(_, ending): &(&SessionId, &Ending)| ending.unanswered.is_empty();
        let ready: Vec<SessionId> =
            orderer.endings.0.iter().filter(all_answered).map(|(id, _)| *id).collect();
        for session in ready {
            self.end_at_highest(now, session, out);
            self.finish_end(now, session, out);
        }
    }

    fn end_at_highest(&mut self, now: Time, session: SessionId, out: &mut Out) {
        let own = self.sessions.next(session).unwrap_or(0);
        let ending = self.orderer.as_ref().and_then(|orderer| orderer.endings.0.get(&session));
        let Some(Ending { step: Step::Freezing { highest }, successor, .. }) = ending else { return };
        let at = if self.options.deviates(Deviation::EndedAtLeadersNumber) { own } else { *highest };
        let (at, successor) = (self.sessions.end_of(session).unwrap_or(at), *successor);
        self.frozen.remove(&session);
        // A session that the leader has forgotten, and that is too old to come back, has no need of an end.
        if !self.is_too_old(session) {
            if self.sessions.end_of(session).is_none() {
                self.end_here(session, at, out);
            }
            self.succeed_here(session, successor, out);
        }
        let ticket = self.gate.issued();
        let Some(orderer) = &mut self.orderer else { return };
        let unanswered = orderer.followers().collect();
        let Some(ending) = orderer.endings.0.get_mut(&session) else { return };
        (ending.step, ending.unanswered) = (Step::Ending { at, ticket }, unanswered);
        ending.say(now, self.membership.number, session, out);
    }

    /// All members have ended it durably: it cannot be undone any more.
    fn finish_end(&mut self, now: Time, session: SessionId, out: &mut Out) {
        let Some(orderer) = &mut self.orderer else { return };
        let Some(Ending { step: Step::Ending { at, ticket }, unanswered, .. }) =
            orderer.endings.0.get(&session)
        else {
            return;
        };
        if !unanswered.is_empty() || !self.gate.is_durable(*ticket) {
            return;
        }
        let (at, view) = (*at, self.membership.number);
        let askers = orderer.endings.0.remove(&session).map(|ending| ending.askers).unwrap_or_default();
        for (asker, wanted) in askers {
            let successor = self.sessions.successor_of(session);
            match asker {
                // It asked when the end was on its way already, without a successor.
                Address::Client(..) if wanted.is_some() && successor.is_none() => {
                    self.begin_end(now, asker, session, wanted, out);
                }
                Address::Client(..) => reply(asker, Message::Ended { view, session, at, successor }, out),
                Address::Node(..) => self.tell_end(asker, session, out),
            }
        }
    }

    /// Says where a session ended, to its client; to a shard, which of its numbers may still get positions.
    pub(super) fn tell_end(&self, asker: Address, session: SessionId, out: &mut Out) {
        let Some(orderer) = &self.orderer else { return };
        let view = self.membership.number;
        let end = self.sessions.end_of(session).filter(|_| !orderer.endings.is_under_way(session));
        match (asker, end) {
            (Address::Node(_, Endpoint::Shard(_)), end) => {
                // Numbers below were ordered, and every shard holds its part; of a session that is forgotten all were, or never
                // will be.
                let next = self.sessions.next(session).unwrap_or(0);
                let below = self.ring.first_number(session).unwrap_or(next);
                let first = if self.is_too_old(session) { u64::MAX } else { below };
                let end = end.unwrap_or(u64::MAX);
                reply(asker, shard::Message::Undecided { view, session, first, end }, out);
            }
            (client, Some(at)) => {
                let successor = self.sessions.successor_of(session);
                reply(client, Message::Ended { view, session, at, successor }, out);
            }
            (_, None) => {}
        }
    }
}
