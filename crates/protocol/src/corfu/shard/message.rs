//! The messages of the shards of a log whose positions are given out first.

use seriatim_model::storage::Run;
use seriatim_model::wire::wire_enum;
use seriatim_model::{Endpoint, Position, RecordId, SessionId, Span, ViewNumber};

use crate::roles::{self, Family};
use crate::shard;

/// Messages about positions that clients write themselves.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client to each replica of a position's chain in turn, head first: write these. A position is
    /// written once. Also primary to replica, when it fills a hole.
    Write {
        /// The view whose sequencer gave the positions, or in which a client asks what became of
        /// them.
        view: ViewNumber,
        /// The records.
        runs: Vec<Run>,
    },
    /// Replica to the writer: these positions are written, as durably as the log promises.
    Written {
        /// The view that this counts in.
        view: ViewNumber,
        /// The positions.
        spans: Vec<Span>,
        /// The positions among them that hold something else, and what that is called.
        others: Vec<(Position, RecordId)>,
    },
    /// Replica to the writer: these are written, but this replica cannot tell with what. Another
    /// may.
    Unreadable {
        /// The view that this counts in.
        view: ViewNumber,
        /// The positions.
        spans: Vec<Span>,
    },
    /// Replica to the writer: write these again, later.
    Retry {
        /// The view that this counts in.
        view: ViewNumber,
        /// The positions.
        spans: Vec<Span>,
        /// Whether the disk is full; otherwise the replica does not know the view yet.
        disk_full: bool,
    },
    /// Replica to client: what it wrote is taken, and more waits for the disk here than should. It
    /// has a position, so it is not refused; whatever comes next may come slower.
    Pressed {
        /// The view that was written in.
        view: ViewNumber,
    },
    /// Client to replica: where in `from..end` are records of this session?
    Seek {
        /// The view that the client believes in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The first position.
        from: Position,
        /// The position after the last. Below it everything is to be final; otherwise there is no
        /// answer yet.
        end: Position,
    },
    /// Replica to client: the answer to `Seek`.
    Sought {
        /// The view that this counts in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// Where the question began.
        from: Position,
        /// So far it was looked. No further than `from` if this replica cannot tell; another may.
        upto: Position,
        /// The trim point: no replica knows what was below.
        trim: Position,
        /// The records of the session, in order.
        found: Vec<(Position, RecordId)>,
    },
    /// Sequencer to primary: positions were given out long ago that may not be written.
    FillRequest {
        /// The view.
        view: ViewNumber,
        /// Some shard has written everything that it holds below: so far this view places positions
        /// for good.
        written: Position,
        /// Positions below that are not written are to be filled.
        overdue: Position,
    },
    /// Primary to head: what is at these positions, for good? Where nothing is, write junk.
    Fill {
        /// The view.
        view: ViewNumber,
        /// The positions.
        spans: Vec<Span>,
    },
    /// Head to primary: this is.
    Filled {
        /// The view.
        view: ViewNumber,
        /// The records that the head holds.
        run: Run,
    },
    /// Replica to client: the view `old` is over, and at these positions nothing is; what does the
    /// client have for them?
    Vacant {
        /// The claim that they are flushed under.
        claim: ViewNumber,
        /// The view that ended.
        old: ViewNumber,
        /// The positions.
        spans: Vec<Span>,
    },
    /// Client to replica: this is what it has for vacant positions. It takes no other positions in
    /// that view.
    Offer {
        /// The claim.
        claim: ViewNumber,
        /// For positions from here on it was not looked: there was too much for one message.
        upto: Position,
        /// The records.
        runs: Vec<Run>,
    },
    /// Client to every replica of some shard: is this the view still?
    Confirm {
        /// Names the question.
        request: u64,
        /// The view.
        view: ViewNumber,
    },
    /// Replica to client: it takes part in it, and in none later.
    Confirmed {
        /// The question answered.
        request: u64,
        /// The view.
        view: ViewNumber,
    },
}

impl Family for Message {
    fn is_from_client_to(&self, to: Endpoint) -> bool {
        matches!(to, Endpoint::Shard(_))
            && matches!(
                self,
                Self::Write { .. } | Self::Offer { .. } | Self::Seek { .. } | Self::Confirm { .. }
            )
    }

    fn not_hosted(&self) -> Option<roles::Message> {
        let waits = matches!(self, Self::Write { .. } | Self::Confirm { .. } | Self::Seek { .. });
        waits.then(|| shard::Message::not_here().into())
    }

    fn confirms(&self) -> Option<ViewNumber> {
        match *self {
            Self::Written { view, .. } | Self::Filled { view, .. } | Self::Confirmed { view, .. } => {
                Some(view)
            }
            _ => None,
        }
    }
}

wire_enum! {
    Message {
        1 => Write { view, runs },
        2 => Written { view, spans, others },
        3 => Unreadable { view, spans },
        4 => Retry { view, spans, disk_full },
        5 => Pressed { view },
        6 => Seek { view, session, from, end as end },
        7 => Sought { view, session, from, upto, trim, found },
        8 => FillRequest { view, written, overdue },
        9 => Fill { view, spans },
        10 => Filled { view, run },
        11 => Vacant { claim, old, spans },
        12 => Offer { claim, upto, runs },
        13 => Confirm { request, view },
        14 => Confirmed { request, view },
    }
}
