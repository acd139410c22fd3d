//! The word of an operator, who asks what would be lost if the log went on, or accepts it.

use std::time::Duration;

use seriatim_model::{Address, Time};

use super::message::Message;
use crate::roles::RoleEffect;

/// How long what was accepted counts, if no attempt comes to an end.
const ORDER_FOR: Duration = Duration::from_secs(20);

/// The question of an operator that is not answered yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders(Option<Order>);

#[derive(Clone, Debug)]
struct Order {
    asker: Address,
    request: u64,
    accepts: bool,
    until: Time,
}

impl Orders {
    /// Takes a question. Says whether it is a new one.
    pub(super) fn take(&mut self, now: Time, asker: Address, request: u64, accepts: bool) -> bool {
        let is_asked = |order: &Order| (order.asker, order.request) == (asker, request);
        let is_repeated = self.0.as_ref().is_some_and(is_asked);
        self.0 = Some(Order { asker, request, accepts, until: now + ORDER_FOR });
        !is_repeated
    }

    /// Whether an operator waits for an answer.
    pub(super) fn is_pending(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the loss was accepted, and that still counts.
    pub(super) fn accepts_at(&self, now: Time) -> bool {
        self.0.as_ref().is_some_and(|order| order.accepts && now < order.until)
    }

    /// Answers every operator that waits.
    pub(super) fn answer(&mut self, done: bool, lost: bool, text: String, out: &mut Vec<RoleEffect>) {
        if let Some(Order { asker, request, .. }) = self.0.take() {
            let message = Message::Recovered { request, done, lost, text };
            out.push(RoleEffect::Send { to: asker, message: message.into() });
        }
    }
}
