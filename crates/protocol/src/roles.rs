//! The messages that travel between machines, and the role that orders: one line for each contract
//! and each ordering.

use std::convert::Infallible;
use std::fmt;

use bytes::Bytes;
use seriatim_model::wire::{WireError, wire_enum};
use seriatim_model::{Endpoint, LogConfig, Machine, Member, Order, Position, SessionId, ViewNumber};

use crate::mutation::Options;
use crate::parts::sequencing::WindowStatus;
use crate::parts::{Membership, sequencing};
use crate::{control, corfu, cuts, erwin, shard};

/// The questions that anybody may ask of a message, whatever it is about. Each family of messages,
/// those of a contract or of an ordering, answers for its own.
pub(crate) trait Family {
    /// Whether it is something that a client may say to `to`. Whatever else concerns nodes alone,
    /// who have to believe each other.
    fn is_from_client_to(&self, to: Endpoint) -> bool;

    /// The answer of a node that does not host the role that this is for, if its sender waits for
    /// one: it should look again where the role is.
    fn not_hosted(&self) -> Option<Message> {
        None
    }

    /// For checkers: the view that it counts in, and the deed, if nobody outside of that view may
    /// do it.
    fn deed(&self) -> Option<(ViewNumber, &'static str)> {
        None
    }

    /// For checkers: the view in which it confirms something that its sender may not confirm below
    /// its claim.
    fn confirms(&self) -> Option<ViewNumber> {
        None
    }

    /// For checkers: a session that its receiver is told the end of, with the number after its
    /// last.
    fn ends_session(&self) -> Option<(SessionId, u64)> {
        None
    }

    /// For checkers: records that its sender, a replica of a shard, has durably and that have no
    /// positions yet.
    fn unplaced(&self) -> Option<shard::Unplaced> {
        None
    }

    /// For checkers: positions that are given in advance, or a committed cut gives.
    fn placed(&self) -> Option<shard::Placed> {
        None
    }
}

/// Makes the enum of all messages from a line for each family: its number on the wire, its name,
/// its messages.
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
    /// The view register, the catalog and the controller of views.
    1 => Control(control::Message),
    /// The shard contract.
    2 => Shard(shard::Message),
    /// Erwin's sequencing layer.
    3 => Erwin(erwin::Message),
    /// Corfu's sequencer.
    4 => Corfu(corfu::Message),
    /// The layer that orders by cuts.
    5 => Cuts(cuts::Message),
    /// Any role that orders.
    6 => Sequencing(sequencing::Message),
    /// The shards of a log in which clients put records by id.
    7 => ErwinShard(erwin::ShardMessage),
    /// The shards of a log in which clients write positions.
    8 => CorfuShard(corfu::ShardMessage),
    /// The shards of a log that is ordered by cuts.
    9 => CutsShard(cuts::ShardMessage),
}

impl Message {
    /// Whether it is something that a client may say to `to`. Whatever else concerns nodes alone,
    /// who have to believe each other.
    #[must_use]
    pub fn is_from_client_to(&self, to: Endpoint) -> bool {
        self.family().is_from_client_to(to)
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

    /// The answer of a node that does not host the role that this is for: the asker should look
    /// again where it is. Nothing if it needs none.
    #[must_use]
    pub fn not_hosted(&self) -> Option<Self> {
        self.family().not_hosted()
    }

    /// For checkers: the view that it counts in, and the deed, if nobody outside of that view may
    /// do it.
    #[must_use]
    pub fn deed(&self) -> Option<(ViewNumber, &'static str)> {
        self.family().deed()
    }

    /// For checkers: the view in which it confirms something that its sender may not confirm below
    /// its claim.
    #[must_use]
    pub fn confirms(&self) -> Option<ViewNumber> {
        self.family().confirms()
    }

    /// For checkers: a session that its receiver is told the end of, with the number after its
    /// last.
    #[must_use]
    pub fn ends_session(&self) -> Option<(SessionId, u64)> {
        self.family().ends_session()
    }

    /// For checkers: records that its sender, a replica of a shard, has durably and that have no
    /// positions yet.
    #[must_use]
    pub fn unplaced(&self) -> Option<shard::Unplaced> {
        self.family().unplaced()
    }

    /// For checkers: positions that are given in advance, or a committed cut gives.
    #[must_use]
    pub fn placed(&self) -> Option<shard::Placed> {
        self.family().placed()
    }
}

/// The account that a sequencing role gives of itself, whatever its ordering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequencingStatus {
    /// Whether it takes part in a view.
    pub open: bool,
    /// A bound above all positions that it knows of.
    pub tail: Position,
    /// How many sessions it remembers.
    pub sessions: u64,
    /// How quotas are, if it leads a log whose shards have any.
    pub windows: Option<WindowStatus>,
}

/// The role of a log's order on one node: a sequencing replica, a sequencer, or a member of an
/// ordering layer. Nothing outside of the ordering's folder knows which.
pub trait SequencingRole:
    Machine<Message = Message, Request = Infallible, Reply = Infallible> + fmt::Debug + Send + Sync
{
    /// The promises of the log.
    fn config(&self) -> &LogConfig;
    /// Its place in the views of the log.
    fn membership(&self) -> &Membership;
    /// How far it ordered, as far as it knows.
    fn ordered(&self) -> Position;
    /// How many positions or entries are on their way to the shards.
    fn held(&self) -> u64;
    /// The whole state as one journal entry, in place of all entries so far. Empty if it keeps
    /// nothing.
    fn snapshot(&self) -> Vec<Bytes>;
    /// The step that its background work waits for, for the simulator's counts.
    fn step_name(&self) -> Option<&'static str>;

    /// This incarnation of it.
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

    /// The view that its state belongs to.
    fn view_number(&self) -> ViewNumber {
        self.membership().number
    }

    /// Whether it remembers anything beyond this incarnation.
    fn keeps(&self) -> bool {
        self.config().order.properties().keeps_order
    }
}

/// The sequencing role of a log that is new on its node: it takes part in nothing until it is
/// staged for a view.
#[must_use]
pub fn new_sequencing_role(me: Member, config: LogConfig, options: Options) -> Box<dyn SequencingRole> {
    let role = recover_sequencing_role(me, config, options, []);
    role.expect("there is no entry that could be damaged")
}

/// The sequencing role of a log, from the entries of its journal. One that keeps nothing begins
/// anew.
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

/// The effects of a role that no application talks to directly.
pub type RoleEffect = seriatim_model::Effect<Message, Infallible>;

/// The inputs of a role that no application talks to directly.
pub type RoleInput = seriatim_model::Input<Message, Infallible>;
