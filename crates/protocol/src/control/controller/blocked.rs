//! What happens when no view can be formed: notices, and a later retry.

use std::time::Duration;

use seriatim_model::{Address, Endpoint, LogEntry, Time};

use super::giving_up::Then;
use super::{Controller, Message, Phase, retired, send};
use crate::control::attempt::Attempt;
use crate::control::data_loss::Blocked;
use crate::roles::RoleEffect;

impl Controller {
    /// Reports that no view can be formed, and rests.
    pub(super) fn cannot_form(
        &mut self,
        now: Time,
        entry: LogEntry,
        blocked: &Blocked,
        out: &mut Vec<RoleEffect>,
    ) {
        // The operator accepted the loss after this attempt began: a new attempt applies it.
        let is_older = |attempt: &Attempt| !attempt.goal.accepts_loss && attempt.goal.given_up.is_empty();
        let is_older = matches!(&self.phase, Phase::Attempt(attempt) if is_older(attempt));
        if is_older && self.orders.accepts_at(now) && matches!(blocked, Blocked::Lost(_)) {
            return self.rest(now, Duration::ZERO);
        }
        // Gives the waiting controllers a turn: they may reach nodes that this one cannot.
        let turn = self.pace.backoff_after(entry.claimed, entry.view_number()) * 3;
        let why = blocked.to_string();
        for node in &entry.sequencers {
            send(Address::Node(*node, Endpoint::Sequencer), Message::Unavailable { why: why.clone() }, out);
        }
        // Nothing is written to a register that was set back.
        if entry.unavailable.as_deref() != Some(&why) && !matches!(blocked, Blocked::Behind { .. }) {
            let entry = LogEntry { unavailable: Some(why.clone()), ..entry.clone() };
            send(self.register, Message::CompareAndSet { entry }, out);
        }
        match blocked {
            Blocked::Lost(loss) if self.orders.is_pending() && retired(&entry).next().is_some() => {
                self.ask_of_retired(now, &entry, Then::Add(loss.clone()), out);
            }
            Blocked::Lost(loss) => self.answer_orders((false, true), loss.to_string(), out),
            Blocked::Waits(_) | Blocked::Behind { .. } => self.answer_orders((false, false), why, out),
        }
        self.reports.clear();
        self.rest(now, self.options.limits.attempt_for + turn);
    }
}
