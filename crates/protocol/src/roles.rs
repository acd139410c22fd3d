//! What travels between machines: one line for each contract and each ordering.

use seriatim_model::Endpoint;
use seriatim_model::wire::wire_enum;

use crate::{control, erwin, shard};

/// Any message between two machines.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The view register, the catalog and the controller of views.
    Control(control::Message),
    /// The shard contract.
    Shard(shard::Message),
    /// Erwin's sequencing layer.
    Erwin(erwin::Message),
}

wire_enum! { Message { 1 => Control(message), 2 => Shard(message), 3 => Erwin(message) } }

impl Message {
    /// Whether it is something that a client may say to `to`. Whatever else concerns nodes alone, who have
    /// to believe each other.
    #[must_use]
    pub fn is_from_client_to(&self, to: Endpoint) -> bool {
        use {control::Message as Control, erwin::Message as Erwin, shard::Message as Shard};
        match (self, to) {
            (Self::Control(message), Endpoint::Register) => matches!(
                message,
                Control::Lookup { .. }
                    | Control::List { .. }
                    | Control::Create { .. }
                    | Control::Delete { .. }
                    | Control::AddShard { .. }
                    | Control::RemoveShard { .. }
            ),
            (Self::Control(message), Endpoint::Controller) => {
                matches!(message, Control::Recover { .. } | Control::LastChange { .. })
            }
            (Self::Erwin(message), Endpoint::Sequencer) => matches!(
                message,
                Erwin::Append { .. }
                    | Erwin::Locate { .. }
                    | Erwin::CheckTail { .. }
                    | Erwin::Close { .. }
                    | Erwin::Status { .. }
            ),
            (Self::Shard(message), Endpoint::Shard(_)) => matches!(
                message,
                Shard::Put { .. }
                    | Shard::Read { .. }
                    | Shard::Map { .. }
                    | Shard::Subscribe { .. }
                    | Shard::Credit { .. }
                    | Shard::Cancel { .. }
                    | Shard::Trim { .. }
                    | Shard::Status { .. }
            ),
            _ => false,
        }
    }
}

impl From<control::Message> for Message {
    fn from(message: control::Message) -> Self {
        Self::Control(message)
    }
}

impl From<shard::Message> for Message {
    fn from(message: shard::Message) -> Self {
        Self::Shard(message)
    }
}

impl From<erwin::Message> for Message {
    fn from(message: erwin::Message) -> Self {
        Self::Erwin(message)
    }
}

/// The effects of a role that no application talks to directly.
pub type RoleEffect = seriatim_model::Effect<Message, std::convert::Infallible>;

/// The inputs of a role that no application talks to directly.
pub type RoleInput = seriatim_model::Input<Message, std::convert::Infallible>;
