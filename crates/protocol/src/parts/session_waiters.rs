//! The callers that wait for a client's session to be open, or to end.

use std::collections::VecDeque;

use seriatim_model::SessionId;

use super::appending::{ClientEffect, Reply, reply};

/// The callers that want to know the session before anything is appended, and those that want it to
/// end.
#[derive(Clone, Debug, Default)]
pub struct SessionWaiters {
    session: Vec<u64>,
    end: VecDeque<u64>,
}

impl SessionWaiters {
    /// This one wants to know the session.
    pub fn ask_session(&mut self, token: u64) {
        self.session.push(token);
    }

    /// This one wants the session to end.
    pub fn ask_end(&mut self, token: u64) {
        self.end.push_back(token);
    }

    /// Whether anybody wants to know the session.
    #[must_use]
    pub fn want_session(&self) -> bool {
        !self.session.is_empty()
    }

    /// Whether anybody wants the session to end.
    #[must_use]
    pub fn want_end(&self) -> bool {
        !self.end.is_empty()
    }

    /// Answers the callers that want to know the session, and the number of the next append, if it
    /// is open.
    pub fn tell_session(&mut self, open: Option<(SessionId, u64)>, out: &mut Vec<ClientEffect>) {
        if let Some((session, next)) = open {
            out.extend(self.session.drain(..).map(|token| reply(token, Reply::Session { session, next })));
        }
    }

    /// The caller that wants the session to end, if it may end now. A caller that asked later wants
    /// the next session to end.
    pub fn take_end(&mut self, may_end: bool) -> Option<u64> {
        if may_end { self.end.pop_front() } else { None }
    }

    /// Gives up: the tokens of all callers that wait.
    pub fn give_up(&mut self) -> impl Iterator<Item = u64> + use<> {
        let Self { session, end } = std::mem::take(self);
        session.into_iter().chain(end)
    }
}
