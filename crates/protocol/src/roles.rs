//! The messages between machines, and the sequencing role. `envelope!` has one line for each
//! contract and each ordering.

use std::convert::Infallible;
use std::fmt;

use bytes::Bytes;
use seriatim_model::wire::{WireError, wire_enum};
use seriatim_model::{Endpoint, LogConfig, Machine, Member, Order, Position, SessionId, ViewNumber};

use crate::mutation::Options;
use crate::parts::sequencing::WindowStatus;
use crate::parts::{Membership, sequencing};
use crate::{control, corfu, cuts, erwin, shard};

/// Properties that each family of messages defines; [`Message`] describes them.
pub(crate) trait Family {
    fn is_from_client_to(&self, to: Endpoint) -> bool;

    fn not_hosted(&self) -> Option<Message> {
        None
    }

    fn deed(&self) -> Option<(ViewNumber, &'static str)> {
        None
    }

    fn confirms(&self) -> Option<ViewNumber> {
        None
    }

    fn ends_session(&self) -> Option<(SessionId, u64)> {
        None
    }

    fn unplaced(&self) -> Option<shard::Unplaced> {
        None
    }

    fn placed(&self) -> Option<shard::Placed> {
        None
    }
}

/// Builds the enum of all messages from one line per family: wire number, name, type.
macro_rules! envelope {
    ($($(#[$about:meta])* $tag:literal => $family:ident($message:ty),)*) => {
        /// Any message between two machines.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Message {
            $($(#[$about])* $family($message),)*
        }

        wire_enum! { Message { $($tag => $family(message),)* } }

        $(impl From<$message> for Message {
            fn from(message: $message) -> Self {
                Self::$family(message)
            }
        })*

        impl Message {
            fn family(&self) -> &dyn Family {
                match self {
                    $(Self::$family(message) => message,)*
                }
            }
        }
    };
}

envelope! {
    /// The view register, the catalog and the controllers.
    1 => Control(control::Message),
    /// Messages of the sequencing roles of all orderings.
    2 => Shard(shard::Message),
    /// Erwin's sequencing layer.
    3 => Erwin(erwin::Message),
    /// Corfu's sequencer.
    4 => Corfu(corfu::Message),
    /// The layer that orders by cuts.
    5 => Cuts(cuts::Message),
    /// Any sequencing role.
    6 => Sequencing(sequencing::Message),
    /// Shards where clients put records by id.
    7 => ErwinShard(erwin::ShardMessage),
    /// Shards where clients write positions.
    8 => CorfuShard(corfu::ShardMessage),
    /// Shards of a log that is ordered by cuts.
    9 => CutsShard(cuts::ShardMessage),
}

impl Message {
    /// Whether a client may send this message to `to`. Only nodes, which trust each other, send all
    /// others.
    #[must_use]
    pub fn is_from_client_to(&self, to: Endpoint) -> bool {
        self.family().is_from_client_to(to)
    }

    /// A question for the state of a sequencing role; [`status`](Self::status) reads the answer.
    #[must_use]
    pub fn ask_status(request: u64) -> Self {
        sequencing::Message::Status { request }.into()
    }

    /// The state in an answer to [`ask_status`](Self::ask_status).
    #[must_use]
    pub fn status(&self) -> Option<SequencingStatus> {
        if let Self::Sequencing(message) = self { message.status() } else { None }
    }

    /// The reply of a node that does not host the receiving role, so that the asker looks
    /// elsewhere; `None` if the asker needs none.
    #[must_use]
    pub fn not_hosted(&self) -> Option<Self> {
        self.family().not_hosted()
    }

    /// For checkers: if sending this message is an action that only members of a view may take,
    /// that view, and the name of the action.
    #[must_use]
    pub fn deed(&self) -> Option<(ViewNumber, &'static str)> {
        self.family().deed()
    }

    /// For checkers: the view of this confirmation. The sender must not confirm a view below its
    /// claim.
    #[must_use]
    pub fn confirms(&self) -> Option<ViewNumber> {
        self.family().confirms()
    }

    /// For checkers: a session whose end the receiver learns, with the number after its last
    /// append.
    #[must_use]
    pub fn ends_session(&self) -> Option<(SessionId, u64)> {
        self.family().ends_session()
    }

    /// For checkers: records that the sending shard replica holds durably without positions.
    #[must_use]
    pub fn unplaced(&self) -> Option<shard::Unplaced> {
        self.family().unplaced()
    }

    /// For checkers: positions that this message gives to records, or in advance to shards.
    #[must_use]
    pub fn placed(&self) -> Option<shard::Placed> {
        self.family().placed()
    }
}

/// Self-reported state of a sequencing role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequencingStatus {
    /// Whether it takes part in a view.
    pub open: bool,
    /// A bound above all positions that the role knows.
    pub tail: Position,
    /// Number of sessions that it remembers.
    pub sessions: u64,
    /// State of the quotas; `None` unless it leads a log with quotas.
    pub windows: Option<WindowStatus>,
}

/// The sequencing role of a log on one node, in any ordering: a sequencing replica, a sequencer, or
/// a member of an ordering layer.
pub trait SequencingRole:
    Machine<Message = Message, Request = Infallible, Reply = Infallible> + fmt::Debug + Send + Sync
{
    /// The log's configuration.
    fn config(&self) -> &LogConfig;
    /// The role's place in the log's views.
    fn membership(&self) -> &Membership;
    /// Bound below which all positions are ordered, as the role knows.
    fn ordered(&self) -> Position;
    /// Number of positions or entries that are not on the shards yet.
    fn held(&self) -> u64;
    /// The whole state as one journal entry, which replaces all earlier ones; empty for a stateless
    /// role.
    fn snapshot(&self) -> Vec<Bytes>;
    /// The step of its background work, for the simulator's counts.
    fn step_name(&self) -> Option<&'static str>;

    /// Its node and incarnation.
    fn member(&self) -> Member {
        self.membership().me
    }

    /// Whether it takes part in a view.
    fn is_open(&self) -> bool {
        self.membership().is_open()
    }

    /// The highest claim that it obeys.
    fn claim(&self) -> ViewNumber {
        self.membership().claim
    }

    /// The view to which its state belongs.
    fn view_number(&self) -> ViewNumber {
        self.membership().number
    }

    /// Whether its state outlives this incarnation.
    fn keeps(&self) -> bool {
        self.config().order.properties().keeps_order
    }
}

/// A new sequencing role, inactive until a view stages it.
#[must_use]
pub fn new_sequencing_role(me: Member, config: LogConfig, options: Options) -> Box<dyn SequencingRole> {
    let role = recover_sequencing_role(me, config, options, []);
    role.expect("there is no entry that could be damaged")
}

/// The sequencing role from its journal entries; a stateless one starts empty.
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
        Order::Scalog | Order::Belfast => Box::new(cuts::Sequencer::recover(me, config, options, entries)?),
    })
}

/// The effects of a role without direct application requests.
pub type RoleEffect = seriatim_model::Effect<Message, Infallible>;

/// The inputs of a role without direct application requests.
pub type RoleInput = seriatim_model::Input<Message, Infallible>;
