//! The callers that wait for a client's session to open or to end.

use std::collections::VecDeque;

use seriatim_model::SessionId;

use super::appending::{ClientEffect, Reply, reply};

/// The tokens of callers that ask for the session before any append, and of callers that ask for
/// its end.
#[derive(Clone, Debug, Default)]
pub struct SessionWaiters {
    session: Vec<u64>,
    end: VecDeque<u64>,
}

impl SessionWaiters {
    /// Adds a caller that asks for the session's id.
    pub fn ask_session(&mut self, token: u64) {
        self.session.push(token);
    }

    /// Adds a caller that asks for the session's end.
    pub fn ask_end(&mut self, token: u64) {
        self.end.push_back(token);
    }

    /// Whether a caller waits for the session's id.
    #[must_use]
    pub fn want_session(&self) -> bool {
        !self.session.is_empty()
    }

    /// Whether a caller waits for the session's end.
    #[must_use]
    pub fn want_end(&self) -> bool {
        !self.end.is_empty()
    }

    /// If the session is open, sends its id and next number to the callers that ask for it.
    pub fn tell_session(&mut self, open: Option<(SessionId, u64)>, out: &mut Vec<ClientEffect>) {
        if let Some((session, next)) = open {
            out.extend(self.session.drain(..).map(|token| reply(token, Reply::Session { session, next })));
        }
    }

    /// If the session `may_end`, removes and returns the first caller that asks for its end. Later
    /// callers end the next session.
    pub fn take_end(&mut self, may_end: bool) -> Option<u64> {
        if may_end { self.end.pop_front() } else { None }
    }

    /// Drops all callers and returns their tokens.
    pub fn give_up(&mut self) -> impl Iterator<Item = u64> + use<> {
        let Self { session, end } = std::mem::take(self);
        session.into_iter().chain(end)
    }
}
