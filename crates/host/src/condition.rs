//! The word of a node about itself, for a client that asks how it is.

use std::time::Duration;

use seriatim_model::{Address, Endpoint, LogId};
use seriatim_protocol::control::{Condition, Message};
use seriatim_store::RoleKey;

use crate::host::Host;

/// The node itself, which works for no log in particular.
const NODE: RoleKey = RoleKey { log: LogId(0), endpoint: Endpoint::Node };

impl Host {
    /// Takes note of measurements: how many suspicions turned out wrong, and how long journal writes take.
    pub fn note_condition(&mut self, wrong_suspicions: u64, journal_write: Duration) {
        let journal_write_us = u64::try_from(journal_write.as_micros()).unwrap_or(u64::MAX);
        self.measured = (wrong_suspicions, journal_write_us);
    }

    pub(crate) fn tell_condition(&mut self, to: Address, request: u64) {
        let (wrong_suspicions, journal_write_us) = self.measured;
        let suspects = self.suspected().collect();
        let condition = Condition { suspects, wrong_suspicions, journal_write_us };
        self.send(NODE, to, Message::ConditionIs { request, condition }.into());
    }
}
