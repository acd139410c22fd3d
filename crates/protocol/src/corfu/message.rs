//! Messages of Corfu's sequencer; `shard/message.rs` has those of the shards.

#![expect(missing_docs, reason = "the message has a comment; the names of its fields suffice")]

use seriatim_model::wire::wire_enum;
use seriatim_model::{Endpoint, Position, SessionId, Span, ViewNumber};

use crate::parts::sequencing;
use crate::roles::{self, Family};

/// Messages between clients and the sequencer.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client to sequencer: asks for positions for these numbers, in order. Reply: `Given`,
    /// `OutOfOrder` or `Expired`.
    Next {
        view: ViewNumber,
        session: SessionId,
        /// Number of times that the client abandoned positions. A new take supersedes earlier
        /// requests, from `ungranted` on.
        take: u64,
        /// Lowest number without a position in this take.
        ungranted: u64,
        /// First of the numbers; at least `ungranted`.
        first: u64,
        count: u64,
        /// Time that the client needs to reach the head of a chain, in milliseconds.
        fill_timeout_ms: u32,
        /// Position of the session's last record known to be in the log; without one, a position
        /// from before the session was opened.
        since: Position,
    },
    /// Sequencer to client: grants positions.
    Given {
        view: ViewNumber,
        session: SessionId,
        take: u64,
        first: u64,
        /// Positions of the numbers from `first` on.
        spans: Vec<Span>,
    },
    /// Sequencer to client: earlier requests are missing; repeat them from `expected` on.
    OutOfOrder { view: ViewNumber, session: SessionId, take: u64, expected: u64 },
    /// Client to sequencer: another run continues this session; grant it no more positions. Reply:
    /// `Closed`.
    Close { view: ViewNumber, session: SessionId },
    /// Sequencer to client: this view grants the session nothing more.
    Closed {
        view: ViewNumber,
        session: SessionId,
        /// Bound above every position ever granted to the session.
        below: Position,
    },
    /// Sequencer to client: another run continues this session, or may do so, since the sequencer
    /// has forgotten the session.
    Expired { view: ViewNumber, session: SessionId },
    /// Sequencer to client: asks whether the client still writes these late positions. Reply:
    /// `Writing`.
    Unwritten { view: ViewNumber, session: SessionId, take: u64, spans: Vec<Span> },
    /// Client to sequencer: the client is alive, and writes the positions except `left`.
    Writing {
        view: ViewNumber,
        session: SessionId,
        /// Positions that the client abandons, or whose heads already have its record: shards may
        /// complete these.
        left: Vec<Span>,
    },
}

impl Family for Message {
    fn is_from_client_to(&self, to: Endpoint) -> bool {
        to == Endpoint::Sequencer
            && matches!(self, Self::Next { .. } | Self::Writing { .. } | Self::Close { .. })
    }

    fn not_hosted(&self) -> Option<roles::Message> {
        let waits = matches!(self, Self::Next { .. } | Self::Close { .. });
        waits.then(|| sequencing::Message::not_here().into())
    }

    fn deed(&self) -> Option<(ViewNumber, &'static str)> {
        match *self {
            Self::Given { view, .. } => Some((view, "gave out positions")),
            _ => None,
        }
    }
}

// 4 to 8 were used before version 6 and stay unused.
wire_enum! {
    Message {
        1 => Next { view, session, take as number, ungranted as number, first as first, count as number, fill_timeout_ms, since },
        2 => Given { view, session, take as number, first as number, spans },
        3 => OutOfOrder { view, session, take as number, expected as number },
        9 => Close { view, session },
        10 => Closed { view, session, below },
        11 => Expired { view, session },
        12 => Unwritten { view, session, take as number, spans },
        13 => Writing { view, session, left },
    }
}
