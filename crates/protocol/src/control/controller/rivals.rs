//! Claims of other controllers: how long they are left alone, and how they hear that this one gets
//! on.

use seriatim_model::{Address, Endpoint, LogEntry, Time};

use super::{Controller, Message, Phase, send};
use crate::roles::RoleEffect;

impl Controller {
    /// Another controller has claimed, and gets its time, once. As long as its node is alive that
    /// is as long as an attempt may make no progress, for it gives up itself, and says when there
    /// is some; else it is a moment.
    pub(super) fn stand_back(&mut self, now: Time, entry: &LogEntry, out: &mut Vec<RoleEffect>) {
        self.stood_back_for = entry.claimed;
        let (node, backoff) =
            (entry.claimant_node(), self.pace.backoff_after(entry.claimed, entry.view_number()));
        let is_heard = node != self.node && self.nodes.contains(&node) && !self.suspected.contains(&node);
        self.rest(now, if is_heard { backoff + self.options.limits.attempt_for } else { backoff });
        self.rival = is_heard.then_some(node);
        if is_heard {
            // One that was started anew since has forgotten that it claimed, and has perhaps no
            // other reason to look.
            send(Address::Node(node, Endpoint::Controller), Message::Get { log: self.log }, out);
        }
    }

    /// Tells the controllers that stand back for this claim, now and then, that it makes progress.
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
