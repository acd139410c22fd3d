//! What travels between machines: one line for each contract and each ordering.

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
