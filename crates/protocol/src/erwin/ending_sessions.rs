//! How the members of a view end a session (docs/design/erwin.md, "Ending a session"), and the
//! leader's answers to shards about records whose ids no client sent it ("Orphans").
//!
//! ```text
//! client or shard      leader           followers
//!   |-- Close ---------->|                  |
//!   |   (or Orphans)     |---- Freeze ----->|     admits nothing more of it
//!   |                    |<--- Frozen ------|     the next number here
//!   |                    |---- End -------->|     the highest of these numbers
//!   |                    |<--- Ended -------|     durable
//!   |<- Ended -----------|                  |
//!   |   (or Undecided)   |                  |
//! ```
//!
//! The leader answers `NotEnded` if it knows neither the session nor its end. `Expired`, the answer
//! to an append, says less: one member has forgotten the session.
//!
//! A client that continues in another session names it as the successor, and the members journal it
//! with the end. So a restarted program finds its current session from its first.
//!
//! A session is frozen in one view only. A view change may lose an end that not all members
//! confirmed; the leader has reported it to no client. An end that all confirmed is in every
//! snapshot that a later view can recover from. Some member holds every number below the end, and
//! forwards it to the leader; if a view change loses such a number, the session ends lower in the
//! next view.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{Address, Endpoint, IdRun, NodeId, SessionId, Ticket, Time, ViewNumber, limits};

use super::ShardMessage;
use super::memory::JournalRecord;
use super::message::Message;
use super::sequencer::{Sequencer, reply};
use crate::mutation::Mutation;
use crate::parts::Gate;
use crate::parts::sessions::most_closed;
use crate::roles::RoleEffect;

type Out = Vec<RoleEffect>;
/// Waiting addresses, each with the successor that it named.
type EndWaiters = BTreeMap<Address, Option<SessionId>>;

#[derive(Clone, Debug, Default)]
pub(super) struct Endings(BTreeMap<SessionId, Ending>);

#[derive(Clone, Debug)]
struct Ending {
    askers: EndWaiters,
    successor: Option<SessionId>,
    step: Step,
    /// Followers that have not answered the present step.
    unanswered: BTreeSet<NodeId>,
    said_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// `highest`: the highest next number so far.
    Freezing {
        highest: u64,
    },
    Ending {
        at: u64,
        ticket: Ticket,
    },
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

    fn has_room(&self) -> bool {
        self.0.len() < limits::MAX_ENDINGS
    }

    /// Adds an asker; returns whether the session is already ending.
    fn join(&mut self, session: SessionId, asker: Address, successor: Option<SessionId>) -> bool {
        let Some(ending) = self.0.get_mut(&session) else { return false };
        ending.askers.insert(asker, successor);
        if matches!(ending.step, Step::Freezing { .. }) {
            ending.successor = ending.successor.or(successor);
        }
        true
    }

    /// Asks followers for their next numbers; `own` is the leader's.
    fn begin(
        &mut self,
        (now, view): (Time, ViewNumber),
        session: SessionId,
        (asker, successor): (Address, Option<SessionId>),
        own: u64,
        followers: BTreeSet<NodeId>,
        out: &mut Out,
    ) {
        let mut ending = Ending {
            askers: BTreeMap::from([(asker, successor)]),
            successor,
            step: Step::Freezing { highest: own },
            unanswered: followers,
            said_at: now,
        };
        ending.say(now, view, session, out);
        self.0.insert(session, ending);
    }

    /// Takes a follower's answer. `next`: its next number; `None`: it has ended the session.
    fn answered(&mut self, node: NodeId, session: SessionId, next: Option<u64>) {
        let Some(ending) = self.0.get_mut(&session) else { return };
        match (&mut ending.step, next) {
            (Step::Freezing { highest }, Some(next)) => {
                *highest = next.max(*highest);
                ending.unanswered.remove(&node);
            }
            (Step::Ending { .. }, None) => {
                ending.unanswered.remove(&node);
            }
            _ => {}
        }
    }

    fn answered_by_all(&self) -> Vec<SessionId> {
        self.0.iter().filter(|(_, ending)| ending.unanswered.is_empty()).map(|(id, _)| *id).collect()
    }

    /// Highest next number and successor, if still freezing.
    fn frozen_at(&self, session: SessionId) -> Option<(u64, Option<SessionId>)> {
        match self.0.get(&session)? {
            Ending { step: Step::Freezing { highest }, successor, .. } => Some((*highest, *successor)),
            _ => None,
        }
    }

    /// The leader ended the session with the write of `ticket`: asks the followers to do the same.
    fn end(
        &mut self,
        (now, view): (Time, ViewNumber),
        session: SessionId,
        (at, ticket): (u64, Ticket),
        followers: BTreeSet<NodeId>,
        out: &mut Out,
    ) {
        let Some(ending) = self.0.get_mut(&session) else { return };
        (ending.step, ending.unanswered) = (Step::Ending { at, ticket }, followers);
        ending.say(now, view, session, out);
    }

    /// Removes a session that all members ended durably; returns its end and askers.
    fn take_ended(&mut self, session: SessionId, gate: &Gate) -> Option<(u64, EndWaiters)> {
        let Ending { step: Step::Ending { at, ticket }, unanswered, .. } = self.0.get(&session)? else {
            return None;
        };
        let at = *at;
        if !unanswered.is_empty() || !gate.is_durable(*ticket) {
            return None;
        }
        self.0.remove(&session).map(|ending| (at, ending.askers))
    }

    pub(super) fn resend(&mut self, now: Time, view: ViewNumber, out: &mut Out) {
        for (session, ending) in &mut self.0 {
            if now >= ending.said_at + limits::RESEND_AFTER && !ending.unanswered.is_empty() {
                ending.say(now, view, *session, out);
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let waiting = self.0.values().filter(|ending| !ending.unanswered.is_empty());
        waiting.map(|ending| ending.said_at + limits::RESEND_AFTER).min()
    }
}

impl Sequencer {
    /// Leader: ends even an unknown session, since a follower may know it.
    pub(super) fn close(
        &mut self,
        now: Time,
        client: Address,
        session: SessionId,
        successor: Option<SessionId>,
        out: &mut Out,
    ) {
        // Only foreign clients name a session as its own successor.
        if successor != Some(session) {
            self.begin_end(now, client, session, successor, out);
        }
    }

    /// Leader: a shard replica has long held records whose ids no client sent. Their session ends;
    /// an active client continues in another.
    pub(super) fn suspected_orphans(&mut self, now: Time, replica: Address, ids: &[IdRun], out: &mut Out) {
        let Address::Node(_, Endpoint::Shard(_)) = replica else { return };
        if self.orderer.is_none() {
            return;
        }
        for run in ids.iter().take(limits::MAX_ORPHAN_SESSIONS) {
            let is_known = run.end() <= self.log.sessions().next(run.session).unwrap_or(0);
            if is_known || self.log.is_too_old(run.session) {
                self.tell_end(replica, run.session, out);
            } else {
                self.begin_end(now, replica, run.session, None, out);
            }
        }
    }

    /// Leader: ends a session unless it has ended; answers the asker.
    fn begin_end(
        &mut self,
        now: Time,
        asker: Address,
        session: SessionId,
        successor: Option<SessionId>,
        out: &mut Out,
    ) {
        let view = self.membership.number;
        if self.log.is_ahead(session) {
            // The session was opened above any tail, or an accepted loss lowered the tail.
            if let (Some(_), Address::Client(..)) = (&self.orderer, asker) {
                reply(asker, Message::NotEnded { view, session }, out);
            }
            return;
        }
        self.make_room_for(now, session, out);
        let (end, known) = (self.log.sessions().end_of(session), self.log.sessions().next(session));
        let (is_too_old, has_no_room) = (self.log.is_too_old(session), self.log.has_no_room_for(session));
        let Some(orderer) = &mut self.orderer else { return };
        if orderer.endings.join(session, asker, successor) {
            return;
        }
        if successor.is_some() && is_too_old {
            // The session was forgotten, and with it the outcome of its numbers.
            return reply(asker, Message::NotEnded { view, session }, out);
        }
        if end.is_some() && (successor.is_none() || self.log.sessions().successor_of(session).is_some()) {
            return self.tell_end(asker, session, out);
        }
        if let (None, Address::Client(..)) = (known.or(end), asker)
            && !is_too_old
            && !self.closers.has_room(asker.peer(), most_closed(self.options.limits.max_sessions))
        {
            // Remembering an unknown session's end would displace a session in use.
            return reply(asker, Message::NotEnded { view, session }, out);
        }
        if !orderer.endings.has_room() || has_no_room && !is_too_old {
            // There is no room: the asker retries.
            return;
        }
        if matches!(asker, Address::Client(..)) && known.or(end).is_none() {
            self.closers.take(asker.peer(), 1);
        }
        let (own, followers) = (self.log.freeze(session), orderer.followers().collect());
        orderer.endings.begin((now, view), session, (asker, successor), own, followers, out);
        self.go_on_ending(now, out);
    }

    pub(super) fn end(&mut self, now: Time, from: Address, message: Message, out: &mut Out) {
        match message {
            Message::Freeze { view, session } => {
                let next = self.log.freeze(session);
                reply(from, Message::Frozen { view, session, next }, out);
            }
            Message::End { view, session, at, successor } => {
                // Also ends unknown and old sessions: the leader's order may bring them back.
                if self.log.sessions().end_of(session).is_none() {
                    self.end_here(session, at, out);
                }
                self.succeed_here(session, successor, out);
                self.log.thaw(session);
                let successor = self.log.sessions().successor_of(session);
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
        self.log.end(session, at);
        self.persist(&JournalRecord::Ended { session, at }, out);
    }

    fn succeed_here(&mut self, session: SessionId, successor: Option<SessionId>, out: &mut Out) {
        if let Some(successor) = successor.filter(|_| self.log.sessions().successor_of(session).is_none()) {
            self.log.succeed(session, successor);
            self.persist(&JournalRecord::Succeeded { session, successor }, out);
        }
    }

    fn answered(&mut self, from: Address, session: SessionId, next: Option<u64>) {
        let (Some(orderer), Address::Node(node, _)) = (&mut self.orderer, from) else { return };
        orderer.endings.answered(node, session, next);
    }

    /// Leader: advances endings that all followers have answered.
    pub(super) fn go_on_ending(&mut self, now: Time, out: &mut Out) {
        let Some(orderer) = &self.orderer else { return };
        for session in orderer.endings.answered_by_all() {
            self.end_at_highest(now, session, out);
            self.finish_end(now, session, out);
        }
    }

    fn end_at_highest(&mut self, now: Time, session: SessionId, out: &mut Out) {
        let own = self.log.sessions().next(session).unwrap_or(0);
        let Some(orderer) = &mut self.orderer else { return };
        let Some((highest, successor)) = orderer.endings.frozen_at(session) else { return };
        let followers = orderer.followers().collect();
        let at = if self.options.mutates(Mutation::EndedAtLeadersNumber) { own } else { highest };
        let at = self.log.sessions().end_of(session).unwrap_or(at);
        self.log.thaw(session);
        // A forgotten session that is too old to return needs no end.
        if !self.log.is_too_old(session) {
            if self.log.sessions().end_of(session).is_none() {
                self.end_here(session, at, out);
            }
            self.succeed_here(session, successor, out);
        }
        let ticket = self.gate.issued();
        let Some(orderer) = &mut self.orderer else { return };
        let when = (now, self.membership.number);
        orderer.endings.end(when, session, (at, ticket), followers, out);
    }

    /// Once all members ended a session durably, answers its askers.
    fn finish_end(&mut self, now: Time, session: SessionId, out: &mut Out) {
        let Some(orderer) = &mut self.orderer else { return };
        let Some((at, askers)) = orderer.endings.take_ended(session, &self.gate) else { return };
        let view = self.membership.number;
        for (asker, wanted) in askers {
            let successor = self.log.sessions().successor_of(session);
            match asker {
                // This client named its successor too late for this end, which is repeated with it.
                Address::Client(..) if wanted.is_some() && successor.is_none() => {
                    self.begin_end(now, asker, session, wanted, out);
                }
                Address::Client(..) => reply(asker, Message::Ended { view, session, at, successor }, out),
                Address::Node(..) => self.tell_end(asker, session, out),
            }
        }
    }

    /// Sends the end to a client, or the undecided numbers to a shard.
    pub(super) fn tell_end(&self, asker: Address, session: SessionId, out: &mut Out) {
        let Some(orderer) = &self.orderer else { return };
        let view = self.membership.number;
        let end = self.log.sessions().end_of(session).filter(|_| !orderer.endings.is_under_way(session));
        match (asker, end) {
            (Address::Node(_, Endpoint::Shard(_)), end) => {
                // Numbers below `first` were ordered, and every shard holds its part. A forgotten
                // session gets no more positions at all.
                let next = self.log.sessions().next(session).unwrap_or(0);
                let below = self.log.ring().first_number(session).unwrap_or(next);
                let first = if self.log.is_too_old(session) { u64::MAX } else { below };
                let end = end.unwrap_or(u64::MAX);
                reply(asker, ShardMessage::Undecided { view, session, first, end }, out);
            }
            (client, Some(at)) => {
                let successor = self.log.sessions().successor_of(session);
                reply(client, Message::Ended { view, session, at, successor }, out);
            }
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::Position;

    use super::*;
    use crate::roles;

    const FOLLOWERS: [NodeId; 2] = [NodeId(2), NodeId(3)];

    fn said(out: &mut Out) -> Vec<String> {
        let said = out.drain(..).map(|effect| match effect {
            RoleEffect::Send { message: roles::Message::Erwin(Message::Freeze { .. }), .. } => {
                "freeze".into()
            }
            RoleEffect::Send { message: roles::Message::Erwin(Message::End { at, .. }), .. } => {
                format!("end {at}")
            }
            other => panic!("{other:?}"),
        });
        said.collect()
    }

    #[test]
    fn a_session_ends_at_the_highest_number_when_all_have_written_it() {
        let (session, mut endings, mut out) =
            (SessionId::new(Position(0), 1), Endings::default(), Out::new());
        let (when, asker) = ((Time::ZERO, ViewNumber(1)), Address::Node(NodeId(9), Endpoint::Sequencer));
        endings.begin(when, session, (asker, None), 4, FOLLOWERS.into(), &mut out);
        assert_eq!(said(&mut out), ["freeze", "freeze"]);
        endings.answered(NodeId(2), session, Some(6));
        endings.answered(NodeId(2), session, Some(8));
        assert!(endings.answered_by_all().is_empty());
        endings.resend(Time::ZERO + limits::RESEND_AFTER, ViewNumber(1), &mut out);
        assert_eq!(said(&mut out), ["freeze"], "the other one is asked again");
        endings.answered(NodeId(3), session, Some(5));
        assert_eq!(endings.answered_by_all(), [session]);
        let (at, successor) = endings.frozen_at(session).expect("all have answered");
        assert_eq!((at, successor), (8, None), "the higher of two reports counts");

        let mut gate = Gate::new(true);
        endings.end(when, session, (at, Ticket(1)), FOLLOWERS.into(), &mut out);
        assert_eq!(said(&mut out), ["end 8", "end 8"]);
        assert_eq!(endings.frozen_at(session), None);
        FOLLOWERS.iter().for_each(|node| endings.answered(*node, session, None));
        assert_eq!(endings.take_ended(session, &gate), None, "our own write is not durable");
        gate.persisted(Ticket(1), &mut out);
        let askers = EndWaiters::from([(asker, None)]);
        assert_eq!(endings.take_ended(session, &gate), Some((8, askers)));
        assert!(!endings.is_under_way(session));
    }
}
