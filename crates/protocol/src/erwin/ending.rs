//! How a client ends its session (erwin.md, "Ending a session"): every member of one view agrees on the
//! number from which on nothing is stored or acknowledged any more.

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_model::{NodeId, SessionId, Time, ViewNumber};

use super::client::{LogClient, Out, Reply, Session, reply, send};
use super::message::Message;

/// How long to wait for an answer.
const SAY_AGAIN: Duration = Duration::from_millis(200);

/// A session on its way to its end.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// Who asked for it.
    pub(super) token: u64,
    /// The number that was agreed on so far. A member may have seen a higher one.
    at: u64,
    view: ViewNumber,
    confirmed: BTreeSet<NodeId>,
    say_at: Time,
    said: u32,
}

impl Ending {
    /// Ends a session at `at`, the number that its client would give next.
    pub(super) fn new(token: u64, at: u64, view: ViewNumber) -> Self {
        Self { token, at, view, confirmed: BTreeSet::new(), say_at: Time::ZERO, said: 0 }
    }

    /// Whether it had to be said more than once: a member may be silent, or no member any more.
    pub(super) fn is_repeated(&self) -> bool {
        self.said > 1
    }

    /// When something is due to be said.
    pub(super) fn deadline(&self) -> Time {
        self.say_at
    }

    /// What is to be said to whom now.
    pub(super) fn say(
        &mut self,
        now: Time,
        view: ViewNumber,
        session: SessionId,
        members: impl Iterator<Item = NodeId>,
    ) -> Vec<(NodeId, Message)> {
        if self.view != view {
            // What members of another view said does not count.
            self.view = view;
            self.confirmed.clear();
            self.say_at = now;
        }
        if now < self.say_at {
            return vec![];
        }
        self.say_at = now + SAY_AGAIN;
        self.said += 1;
        let unconfirmed = members.filter(|node| !self.confirmed.contains(node));
        unconfirmed.map(|node| (node, Message::End { view, session, at: self.at })).collect()
    }

    /// A member ended the session at `at`. Returns where it ended, once all members agree.
    pub(super) fn ended(
        &mut self,
        node: NodeId,
        view: ViewNumber,
        at: u64,
        mut members: impl Iterator<Item = NodeId>,
    ) -> Option<u64> {
        if view != self.view || at < self.at {
            return None;
        }
        if at > self.at {
            self.at = at;
            self.confirmed.clear();
            self.say_at = Time::ZERO;
        }
        self.confirmed.insert(node);
        members.all(|member| self.confirmed.contains(&member)).then_some(self.at)
    }
}

impl LogClient {
    /// Ends the session, if that is wanted and nothing is in flight.
    pub(super) fn end_session(&mut self, now: Time, out: &mut Out) {
        if self.pending.is_empty()
            && let Some(token) = self.end_asker.take_if(|_| self.session != Session::Opening)
        {
            match self.session {
                Session::Open(_) => {
                    self.ending = Some(Ending::new(token, self.end(), self.entry.view_number()));
                }
                _ => out.push(reply(token, Reply::Ended(None))),
            }
        }
        if let (Some(ending), Session::Open(session)) = (&mut self.ending, &self.session) {
            let view = self.entry.view_number();
            let said = ending.say(now, view, *session, self.members.keys().copied());
            if !said.is_empty() && ending.is_repeated() {
                self.look_up(out);
            }
            out.extend(said.into_iter().map(|(node, message)| send(node, message)));
        }
    }

    pub(super) fn ended(
        &mut self,
        node: NodeId,
        view: ViewNumber,
        session: SessionId,
        at: u64,
        out: &mut Out,
    ) {
        let Some(ending) = &mut self.ending else { return };
        if let Some(at) = ending.ended(node, view, at, self.members.keys().copied()) {
            out.push(reply(ending.token, Reply::Ended(Some((session, at)))));
            self.ending = None;
            self.session_lost(session, out);
        }
        self.work_is_due = true;
    }
}
