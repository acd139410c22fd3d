//! The messages of Scalog's ordering layer. What is submitted to shards, and what they report, is
//! in `shard/message.rs`.

use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{Endpoint, Position, SessionId, ViewNumber};

use crate::parts::sequencing;
use crate::roles::{self, Family};

pub use super::cut::{Course, Cut, End};

/// Consecutive numbers of a session that are in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first number.
    pub number: u64,
    /// How many. Never none.
    pub count: u64,
    /// The position of the first, for good; nothing if it is not remembered any more.
    pub position: Option<Position>,
}

wire_struct! { Place { number as number, count as number, position } }

/// Messages between clients and members of the ordering layer, and among these.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Leader to follower: hold this cut.
    Cut {
        /// The view.
        view: ViewNumber,
        /// Everything below it is on all replicas of the shards.
        bound: Position,
        /// The cut.
        cut: Cut,
    },
    /// Follower to leader: it holds all cuts up to there, durably.
    Held {
        /// The view.
        view: ViewNumber,
        /// The position after the last.
        end: Position,
    },
    /// Client to leader: what became of these numbers?
    Locate {
        /// The view that the client believes in.
        view: ViewNumber,
        /// Its session.
        session: SessionId,
        /// The first number.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Leader to client: this. What an earlier view left undecided, and is not below `next`, is not
    /// in the log.
    Located {
        /// The view that this counts in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// Numbers below it are in cuts.
        next: u64,
        /// The numbers asked for that are in committed cuts, and where.
        places: Vec<Place>,
    },
    /// Leader to client: the session is not known any more.
    Expired {
        /// The session.
        session: SessionId,
    },
    /// Client to leader: nothing more of this session is to be ordered; its client goes on in
    /// another one.
    Close {
        /// The view that the client believes in.
        view: ViewNumber,
        /// The session that ends.
        session: SessionId,
        /// The other one. It is kept with the end: the first one that is named stays.
        successor: SessionId,
    },
    /// Leader to client: it has ended, for good, and what it has in the log is final.
    Ended {
        /// The view that this counts in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The first number that is not in the log, and never will be.
        at: u64,
        /// The session in which its client went on first.
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

// 6 to 10 were used before version 6, and are not used again.
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
