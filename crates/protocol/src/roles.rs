//! The messages that travel between machines: one line for each contract and each ordering.

use seriatim_model::wire::wire_enum;
use seriatim_model::{Endpoint, Member, Position, ViewNumber};

use crate::{control, corfu, erwin, scalog, shard};

/// Any message between two machines.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The view register, the catalog and the controller of views.
    Control(control::Message),
    /// The shard contract.
    Shard(shard::Message),
    /// Erwin's sequencing layer.
    Erwin(erwin::Message),
    /// Corfu's sequencer.
    Corfu(corfu::Message),
    /// Scalog's ordering layer.
    Scalog(scalog::Message),
}

wire_enum! {
    Message {
        1 => Control(message),
        2 => Shard(message),
        3 => Erwin(message),
        4 => Corfu(message),
        5 => Scalog(message),
    }
}

impl Message {
    /// Whether it is something that a client may say to `to`. Whatever else concerns nodes alone, who have
    /// to believe each other.
    #[must_use]
    pub fn is_from_client_to(&self, to: Endpoint) -> bool {
        use {control::Message as Control, corfu::Message as Corfu, erwin::Message as Erwin};
        use {scalog::Message as Scalog, shard::Message as Shard};
        match (self, to) {
            (Self::Control(message), Endpoint::Register) => matches!(
                message,
                Control::Lookup { .. }
                    | Control::List { .. }
                    | Control::Create { .. }
                    | Control::Delete { .. }
                    | Control::AddShard { .. }
                    | Control::RemoveShard { .. }
                    | Control::SetRetention { .. }
                    | Control::Part { .. }
                    | Control::AskPartings { .. }
                    | Control::EndSession { .. }
            ),
            (Self::Control(message), Endpoint::Node) => {
                matches!(message, Control::AskCondition { .. } | Control::AskKnown { .. })
            }
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
            (Self::Corfu(message), Endpoint::Sequencer) => {
                let asks = matches!(message, Corfu::CheckTail { .. } | Corfu::Status { .. });
                asks || matches!(message, Corfu::Next { .. } | Corfu::Close { .. })
            }
            (Self::Scalog(message), Endpoint::Sequencer) => matches!(
                message,
                Scalog::Locate { .. }
                    | Scalog::CheckTail { .. }
                    | Scalog::Close { .. }
                    | Scalog::Status { .. }
            ),
            (Self::Shard(message), Endpoint::Shard(_)) => matches!(
                message,
                Shard::Put { .. }
                    | Shard::Submit { .. }
                    | Shard::Write { .. }
                    | Shard::Offer { .. }
                    | Shard::Seek { .. }
                    | Shard::Confirm { .. }
                    | Shard::Read { .. }
                    | Shard::Map { .. }
                    | Shard::Subscribe { .. }
                    | Shard::Credit { .. }
                    | Shard::Cancel { .. }
                    | Shard::Trim { .. }
                    | Shard::Status { .. }
                    | Shard::Survey(_)
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

impl From<corfu::Message> for Message {
    fn from(message: corfu::Message) -> Self {
        Self::Corfu(message)
    }
}

impl From<scalog::Message> for Message {
    fn from(message: scalog::Message) -> Self {
        Self::Scalog(message)
    }
}

/// The facts that the sequencing roles of all orderings tell of themselves.
pub trait Sequencing {
    /// This life of it.
    fn member(&self) -> Member;
    /// Whether it takes part in a view.
    fn is_open(&self) -> bool;
    /// The highest claim that it obeys.
    fn claim(&self) -> ViewNumber;
    /// The view that its state belongs to.
    fn view_number(&self) -> ViewNumber;
    /// How far it ordered, as far as it knows.
    fn ordered(&self) -> Position;
    /// How many positions or entries are on their way to the shards.
    fn held(&self) -> u64;
    /// Whether it remembers anything beyond this life.
    fn keeps(&self) -> bool;
    /// The step that its background work waits for, for the simulator's counts.
    fn step_name(&self) -> Option<&'static str>;
}

impl Sequencing for erwin::Sequencer {
    fn member(&self) -> Member {
        self.member()
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    fn claim(&self) -> ViewNumber {
        self.claim()
    }

    fn view_number(&self) -> ViewNumber {
        self.view_number()
    }

    fn ordered(&self) -> Position {
        self.ordered()
    }

    fn held(&self) -> u64 {
        self.held() as u64
    }

    fn keeps(&self) -> bool {
        true
    }

    fn step_name(&self) -> Option<&'static str> {
        self.step_name()
    }
}

impl Sequencing for corfu::Sequencer {
    fn member(&self) -> Member {
        self.member()
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    fn claim(&self) -> ViewNumber {
        self.claim()
    }

    fn view_number(&self) -> ViewNumber {
        self.view_number()
    }

    fn ordered(&self) -> Position {
        self.next()
    }

    fn held(&self) -> u64 {
        self.unwritten()
    }

    fn keeps(&self) -> bool {
        false
    }

    fn step_name(&self) -> Option<&'static str> {
        None
    }
}

impl Sequencing for scalog::Sequencer {
    fn member(&self) -> Member {
        self.member()
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    fn claim(&self) -> ViewNumber {
        self.claim()
    }

    fn view_number(&self) -> ViewNumber {
        self.view_number()
    }

    fn ordered(&self) -> Position {
        self.end()
    }

    fn held(&self) -> u64 {
        self.held()
    }

    fn keeps(&self) -> bool {
        true
    }

    fn step_name(&self) -> Option<&'static str> {
        self.step_name()
    }
}

/// The effects of a role that no application talks to directly.
pub type RoleEffect = seriatim_model::Effect<Message, std::convert::Infallible>;

/// The inputs of a role that no application talks to directly.
pub type RoleInput = seriatim_model::Input<Message, std::convert::Infallible>;
