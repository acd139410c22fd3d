//! The callers that wait for a client's session to open or to end.

use std::collections::VecDeque;

use seriatim_model::SessionId;

use super::appending::{ClientEffect, Reply, reply};

/// Callers that ask for the session before any append, and callers that end it.
#[derive(Clone, Debug, Default)]
pub struct SessionWaiters {
    session: Vec<u64>,
    end: VecDeque<u64>,
}

impl SessionWaiters {
    /// Adds a caller that asks for the session.
    pub fn ask_session(&mut self, token: u64) {
        self.session.push(token);
    }

    /// Adds a caller that ends the session.
    pub fn ask_end(&mut self, token: u64) {
        self.end.push_back(token);
    }

    /// Whether a caller asks for the session.
    #[must_use]
    pub fn want_session(&self) -> bool {
        !self.session.is_empty()
    }

    /// Whether a caller ends the session.
    #[must_use]
    pub fn want_end(&self) -> bool {
        !self.end.is_empty()
    }

    /// Sends an open session's id and next number to the callers that ask for it.
    pub fn tell_session(&mut self, open: Option<(SessionId, u64)>, out: &mut Vec<ClientEffect>) {
        if let Some((session, next)) = open {
            out.extend(self.session.drain(..).map(|token| reply(token, Reply::Session { session, next })));
        }
    }

    /// Takes the first caller that ends the session, if it may end. Later callers end the next
    /// session.
    pub fn take_end(&mut self, may_end: bool) -> Option<u64> {
        if may_end { self.end.pop_front() } else { None }
    }

    /// Drops all callers and returns their tokens.
    pub fn give_up(&mut self) -> impl Iterator<Item = u64> + use<> {
        let Self { session, end } = std::mem::take(self);
        session.into_iter().chain(end)
    }
}
