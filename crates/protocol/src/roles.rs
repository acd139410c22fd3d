//! The messages that travel between machines, and the role that orders: one line for each contract and each ordering.

use std::convert::Infallible;
use std::fmt;

use bytes::Bytes;
use seriatim_model::wire::{WireError, wire_enum};
use seriatim_model::{Endpoint, LogConfig, Machine, Member, Order, Position, ViewNumber};

use crate::deviation::Options;
use crate::parts::sequencing;
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
    /// Any role that orders.
    Sequencing(sequencing::Message),
}

wire_enum! {
    Message {
        1 => Control(message),
        2 => Shard(message),
        3 => Erwin(message),
        4 => Corfu(message),
        5 => Scalog(message),
        6 => Sequencing(message),
    }
}

/// Asks the same of the messages of each ordering. Those that all orderings share have no answer.
macro_rules! ask_ordering {
    ($of:ident, $message:ident => $ask:expr) => {
        match $of {
            Self::Control(_) | Self::Shard(_) | Self::Sequencing(_) => None,
            Self::Erwin($message) => Some($ask),
            Self::Corfu($message) => Some($ask),
            Self::Scalog($message) => Some($ask),
        }
    };
}

impl Message {
    /// Whether it is something that a client may say to `to`. Whatever else concerns nodes alone, who have
    /// to believe each other.
    #[must_use]
    pub fn is_from_client_to(&self, to: Endpoint) -> bool {
        use {control::Message as Control, shard::Message as Shard};
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
            (Self::Erwin(message), Endpoint::Sequencer) => message.is_from_client(),
            (Self::Corfu(message), Endpoint::Sequencer) => message.is_from_client(),
            (Self::Scalog(message), Endpoint::Sequencer) => message.is_from_client(),
            (Self::Sequencing(message), Endpoint::Sequencer) => message.is_from_client(),
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

    /// The question how a sequencing role is. [`status`](Self::status) reads the answer.
    #[must_use]
    pub fn ask_status(request: u64) -> Self {
        sequencing::Message::Status { request }.into()
    }

    /// The account that a sequencing role gives of itself, if it is that.
    #[must_use]
    pub fn status(&self) -> Option<SequencingStatus> {
        if let Self::Sequencing(message) = self { message.status() } else { None }
    }

    /// The answer of a node that does not host the sequencing role that this is for: the asker should look again where
    /// it is. Nothing if it needs none.
    #[must_use]
    pub fn not_hosted(&self) -> Option<Self> {
        let answer = match self {
            Self::Sequencing(message) => message.not_hosted(),
            ordering => match ask_ordering!(ordering, message => message.awaits_answer()) {
                Some(true) => Some(sequencing::Message::not_here()),
                _ => None,
            },
        };
        answer.map(Into::into)
    }

    /// For checkers: the view that a sequencing role's message counts in, and the deed, if nobody outside of that view may
    /// do it.
    #[must_use]
    pub fn deed(&self) -> Option<(ViewNumber, &'static str)> {
        match self {
            Self::Sequencing(message) => message.deed(),
            ordering => ask_ordering!(ordering, message => message.deed()).flatten(),
        }
    }

    /// For checkers: the view in which a sequencing role confirms something that it may not confirm below its claim.
    #[must_use]
    pub fn confirms(&self) -> Option<ViewNumber> {
        ask_ordering!(self, message => message.confirms()).flatten()
    }
}

/// The account that a sequencing role gives of itself, whatever its ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencingStatus {
    /// Whether it takes part in a view.
    pub open: bool,
    /// A bound above all positions that it knows of.
    pub tail: Position,
    /// How many sessions it remembers.
    pub sessions: u64,
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

impl From<sequencing::Message> for Message {
    fn from(message: sequencing::Message) -> Self {
        Self::Sequencing(message)
    }
}

/// The role of a log's order on one node: a sequencing replica, a sequencer, or a member of an ordering layer. Nothing
/// outside of the ordering's folder knows which.
pub trait SequencingRole:
    Machine<Message = Message, Request = Infallible, Reply = Infallible> + fmt::Debug + Send + Sync
{
    /// The promises of the log.
    fn config(&self) -> &LogConfig;
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
    /// The whole state as one journal entry, in place of all entries so far. Empty if it keeps nothing.
    fn snapshot(&self) -> Vec<Bytes>;
    /// The step that its background work waits for, for the simulator's counts.
    fn step_name(&self) -> Option<&'static str>;

    /// Whether it remembers anything beyond this life.
    fn keeps(&self) -> bool {
        self.config().order.properties().keeps_order
    }
}

/// The sequencing role of a log that is new on its node: it takes part in nothing until it is staged for a view.
#[must_use]
pub fn new_sequencing_role(me: Member, config: LogConfig, options: Options) -> Box<dyn SequencingRole> {
    let role = recover_sequencing_role(me, config, options, []);
    role.expect("there is no entry that could be damaged")
}

/// The sequencing role of a log, from the entries of its journal. One that keeps nothing begins anew.
///
/// # Errors
/// If an entry is damaged.
pub fn recover_sequencing_role(
    me: Member,
    config: LogConfig,
    options: Options,
    entries: impl IntoIterator<Item = Bytes>,
) -> Result<Box<dyn SequencingRole>, WireError> {
    Ok(match config.order {
        Order::ErwinBb | Order::ErwinSt => Box::new(erwin::Sequencer::recover(me, config, options, entries)?),
        Order::Corfu => Box::new(corfu::Sequencer::new(me, config, options)),
        Order::Scalog => Box::new(scalog::Sequencer::recover(me, config, options, entries)?),
    })
}

/// The effects of a role that no application talks to directly.
pub type RoleEffect = seriatim_model::Effect<Message, Infallible>;

/// The inputs of a role that no application talks to directly.
pub type RoleInput = seriatim_model::Input<Message, Infallible>;
