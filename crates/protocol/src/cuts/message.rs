//! Messages of the ordering layer. `shard/message.rs` has those of the shards.

#![expect(missing_docs, reason = "the message has a comment; the names of its fields suffice")]

use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{Endpoint, Position, SessionId, ViewNumber};

use crate::parts::sequencing;
use crate::roles::{self, Family};

pub use super::cut::{Course, Cut, End};

/// Consecutive numbers of a session that are in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub number: u64,
    /// At least 1.
    pub count: u64,
    /// Final position of the first number. `None`: it is no longer remembered.
    pub position: Option<Position>,
}

wire_struct! { Place { number as number, count as number, position } }

/// Messages between clients and members, and among members.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Leader to follower: the next cut to hold. The follower replies `Held`.
    Cut {
        view: ViewNumber,
        /// Position below which all replicas of the shards have the cuts.
        bound: Position,
        cut: Cut,
    },
    /// Follower to leader: it durably holds all cuts below `end`.
    Held { view: ViewNumber, end: Position },
    /// Client to leader: asks for the positions of `count` numbers from `first` on. The leader
    /// replies `Located` or `Expired`.
    Locate { view: ViewNumber, session: SessionId, first: u64, count: u64 },
    /// Reply to `Locate`. Numbers from `next` on that an earlier view left undecided are not in the
    /// log.
    Located {
        view: ViewNumber,
        session: SessionId,
        /// Cuts contain all lower numbers of the session.
        next: u64,
        /// The requested numbers that are in committed cuts.
        places: Vec<Place>,
    },
    /// Leader to client: the session is no longer known.
    Expired { session: SessionId },
    /// Client to leader: ends `session`; the client continues in `successor`. The leader replies
    /// `Ended` or `Expired`.
    Close {
        view: ViewNumber,
        session: SessionId,
        /// If clients name several successors, the first one counts.
        successor: SessionId,
    },
    /// Reply to `Close`: the session has ended permanently, and its records in the log are final.
    Ended {
        view: ViewNumber,
        session: SessionId,
        /// First number that is not in the log and never will be.
        at: u64,
        successor: SessionId,
    },
}

impl Family for Message {
    fn is_from_client_to(&self, to: Endpoint) -> bool {
        to == Endpoint::Sequencer && matches!(self, Self::Locate { .. } | Self::Close { .. })
    }

    fn not_hosted(&self) -> Option<roles::Message> {
        let waits = matches!(self, Self::Locate { .. } | Self::Close { .. });
        waits.then(|| sequencing::Message::not_here().into())
    }

    fn deed(&self) -> Option<(ViewNumber, &'static str)> {
        match *self {
            Self::Cut { view, .. } => Some((view, "made a cut")),
            Self::Held { view, .. } => Some((view, "held a cut")),
            _ => None,
        }
    }

    fn confirms(&self) -> Option<ViewNumber> {
        match *self {
            Self::Held { view, .. } => Some(view),
            _ => None,
        }
    }
}

// Tags 6 to 10 were used before version 6 and stay reserved.
wire_enum! {
    Message {
        1 => Cut { view, bound, cut },
        2 => Held { view, end },
        3 => Locate { view, session, first as number, count as number },
        4 => Located { view, session, next as number, places },
        5 => Expired { session },
        11 => Close { view, session, successor },
        12 => Ended { view, session, at as number, successor },
    }
}
