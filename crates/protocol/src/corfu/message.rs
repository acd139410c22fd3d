//! The messages of Corfu's sequencer. What is written, and where it is written, is in
//! `shard/message.rs`.

use seriatim_model::wire::wire_enum;
use seriatim_model::{Endpoint, Position, SessionId, Span, ViewNumber};

use crate::parts::sequencing;
use crate::roles::{self, Family};

/// Messages between clients and the sequencer.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client to sequencer: positions for these numbers of a session, in order.
    Next {
        /// The view that the client believes in.
        view: ViewNumber,
        /// Its session.
        session: SessionId,
        /// How often the client gave up positions that it had been given. Whatever was asked for
        /// before does not count any more, from `ungranted` on.
        take: u64,
        /// The lowest number that the client has been told no position of, in this take.
        ungranted: u64,
        /// The first of the numbers: not below `ungranted`.
        first: u64,
        /// How many.
        count: u64,
        /// How long the client may take from here until the head of a chain has its records, in
        /// milliseconds.
        fill_timeout_ms: u32,
        /// The position of the last record of the session that its client knows to be in the log;
        /// if there is none, one from before the session was opened.
        since: Position,
    },
    /// Sequencer to client: these.
    Given {
        /// The view that this counts in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The take that was asked in.
        take: u64,
        /// The first of the numbers.
        first: u64,
        /// The positions of the numbers from the first on.
        spans: Vec<Span>,
    },
    /// Sequencer to client: questions are missing; ask from `expected` on.
    OutOfOrder {
        /// The sequencer's view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The take that was asked in.
        take: u64,
        /// The number to ask from.
        expected: u64,
    },
    /// Client to sequencer: another run goes on with this session, which is given no more
    /// positions.
    Close {
        /// The view that the client believes in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
    },
    /// Sequencer to client: it is given none in this view.
    Closed {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// All positions that it was ever given are below.
        below: Position,
    },
    /// Sequencer to client: another run went on with this session, or may have, and that was
    /// forgotten.
    Expired {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
    },
    /// Sequencer to client: these were given to it a while ago and are not written. Does it write
    /// them?
    Unwritten {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The take that they were given in.
        take: u64,
        /// The positions.
        spans: Vec<Span>,
    },
    /// Client to sequencer: it is there, and writes what it was asked for, but for some.
    Writing {
        /// The view that the client believes in.
        view: ViewNumber,
        /// Its session.
        session: SessionId,
        /// The positions that it does not write, or that the heads of their chains have: a shard
        /// that waits may bring down the chain what is there, or have them filled.
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

// 4 to 8 were used before version 6, and are not used again.
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
