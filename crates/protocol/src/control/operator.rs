//! The order of an operator, who asks for the loss if the log continues, or accepts it.

use std::time::Duration;

use seriatim_model::{Address, Time};

use super::message::Message;
use crate::roles::RoleEffect;

/// How long an acceptance is valid if no attempt ends.
const ORDER_FOR: Duration = Duration::from_secs(20);

/// The operator's unanswered question; a later one replaces it.
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
    /// Returns whether the question is new.
    pub(super) fn take(&mut self, now: Time, asker: Address, request: u64, accepts: bool) -> bool {
        let is_asked = |order: &Order| (order.asker, order.request) == (asker, request);
        let is_repeated = self.0.as_ref().is_some_and(is_asked);
        self.0 = Some(Order { asker, request, accepts, until: now + ORDER_FOR });
        !is_repeated
    }

    pub(super) fn is_pending(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the operator accepted the loss recently.
    pub(super) fn accepts_at(&self, now: Time) -> bool {
        self.0.as_ref().is_some_and(|order| order.accepts && now < order.until)
    }

    pub(super) fn answer(&mut self, done: bool, lost: bool, text: String, out: &mut Vec<RoleEffect>) {
        if let Some(Order { asker, request, .. }) = self.0.take() {
            let message = Message::Recovered { request, done, lost, text };
            out.push(RoleEffect::Send { to: asker, message: message.into() });
        }
    }
}
