//! Rival claims: how long to wait, and how rivals learn of progress.

use seriatim_model::{Address, Endpoint, LogEntry, Time};

use super::{Controller, Message, Phase, send};
use crate::roles::RoleEffect;

impl Controller {
    /// Waits once for a rival claim: long for a live claimant, which reports progress and abandons
    /// a stalled attempt; otherwise briefly.
    pub(super) fn stand_back(&mut self, now: Time, entry: &LogEntry, out: &mut Vec<RoleEffect>) {
        self.stood_back_for = entry.claimed;
        let (node, backoff) =
            (entry.claimant_node(), self.pace.backoff_after(entry.claimed, entry.view_number()));
        let is_heard = node != self.node && self.nodes.contains(&node) && !self.suspected.contains(&node);
        self.rest(now, if is_heard { backoff + self.options.limits.attempt_for } else { backoff });
        self.rival = is_heard.then_some(node);
        if is_heard {
            // A restarted claimant has forgotten its claim, and reads the register because of this.
            send(Address::Node(node, Endpoint::Controller), Message::Get { log: self.log }, out);
        }
    }

    /// Reports progress to the other live controllers, at most once per quarter of `attempt_for`.
    /// Each report makes waiting controllers wait at least `attempt_for` more.
    pub(super) fn tell_rivals(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let Phase::Attempt(attempt) = &self.phase else { return };
        if now < self.announced_at + self.options.limits.attempt_for / 4 {
            return;
        }
        self.announced_at = now;
        let claim = attempt.claim();
        for node in self.nodes.difference(&self.suspected).filter(|node| **node != self.node) {
            send(Address::Node(*node, Endpoint::Controller), Message::Underway { claim }, out);
        }
    }
}
