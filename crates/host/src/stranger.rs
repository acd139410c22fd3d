//! The answers of a node for a role that it does not host.

use seriatim_model::{Incarnation, ViewNumber};
use seriatim_protocol::{Message, control, shard};

/// The answer for a role that is not here: the asker should look again where it is.
pub(crate) fn unknown_role(message: &Message) -> Option<Message> {
    let held = shard::Held::default();
    let fenced = shard::Message::Fenced { claim: ViewNumber::NONE, incarnation: Incarnation(0), held };
    match message {
        Message::Shard(
            shard::Message::Read { .. }
            | shard::Message::Map { .. }
            | shard::Message::Subscribe { .. }
            | shard::Message::Trim { .. }
            | shard::Message::Write { .. }
            | shard::Message::Submit { .. }
            | shard::Message::Confirm { .. }
            | shard::Message::Seek { .. },
        ) => Some(fenced.into()),
        // The node lost its disk, and with it a role that the log counts on.
        Message::Control(control::Message::Registered { entry }) => {
            let (view, cannot_start) = (ViewNumber::NONE, entry.view_number());
            Some(control::Message::Report { view, cannot_start, incarnation: Incarnation(0) }.into())
        }
        _ => message.not_hosted(),
    }
}
