//! The word of a node about itself, for a client that asks how it is.

use std::time::Duration;

use seriatim_model::{Address, Endpoint, LogId};
use seriatim_protocol::control::{Condition, Message};
use seriatim_store::RoleKey;

use crate::host::Host;
use crate::recovery::Problem;

/// The node itself, which works for no log in particular.
pub(crate) const NODE: RoleKey = RoleKey { log: LogId(0), endpoint: Endpoint::Node };

/// How it is told that a message is lost.
const UNSENT: &str = "a message cannot be sent";

impl Host {
    /// Takes note of measurements: how many suspicions turned out wrong, and how long journal writes take.
    pub fn note_condition(&mut self, wrong_suspicions: u64, journal_write: Duration) {
        let journal_write_us = u64::try_from(journal_write.as_micros()).unwrap_or(u64::MAX);
        self.measured = (wrong_suspicions, journal_write_us);
    }

    /// Takes note that a role's message was larger than any that travels, and is lost. It is told once for each role: the
    /// role says the same again, and its log waits for that.
    pub fn note_unsent(&mut self, log: LogId, endpoint: Endpoint, cause: &str) {
        let is_told = |problem: &Problem| {
            (problem.log, problem.endpoint) == (log, endpoint) && problem.cause.starts_with(UNSENT)
        };
        if !self.problems.iter().any(is_told) {
            self.problems.push(Problem { log, endpoint, cause: format!("{UNSENT}: {cause}") });
        }
    }

    pub(crate) fn tell_condition(&mut self, to: Address, request: u64) {
        let (wrong_suspicions, journal_write_us) = self.measured;
        let suspects = self.suspected().collect();
        let (has_full_disk, free_bytes) = (self.has_full_disk(), self.free_bytes());
        let condition = Condition { suspects, wrong_suspicions, journal_write_us, has_full_disk, free_bytes };
        self.send(NODE, to, Message::ConditionIs { request, condition }.into());
    }
}
