//! Messages of Corfu's shards.

#![expect(missing_docs, reason = "the message has a comment; the names of its fields suffice")]

use seriatim_model::storage::Run;
use seriatim_model::wire::wire_enum;
use seriatim_model::{Endpoint, Position, RecordId, SessionId, Span, ViewNumber};

use crate::roles::{self, Family};
use crate::shard;

/// Messages about positions that clients write themselves.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client to each replica of a chain in turn, head first: writes records, once per position.
    /// Also primary to replica, to fill a hole. Reply: `Written`, or a refusal.
    Write {
        /// The view that granted the positions, or in which a client asks for their content.
        view: ViewNumber,
        runs: Vec<Run>,
    },
    /// Replica to writer: these positions are written, as durably as the log promises.
    Written {
        view: ViewNumber,
        spans: Vec<Span>,
        /// Positions among them with other records, and these records' ids.
        others: Vec<(Position, RecordId)>,
    },
    /// Replica to writer: written, but this replica cannot tell with which records. Another may.
    Unreadable { view: ViewNumber, spans: Vec<Span> },
    /// Replica to writer: asks for these writes again later.
    Retry {
        view: ViewNumber,
        spans: Vec<Span>,
        /// Whether the disk is full; otherwise the positions are too far ahead, or the view is not
        /// known yet.
        disk_full: bool,
    },
    /// Replica to client: the write is accepted, but the disk falls behind; ask for fewer
    /// positions.
    Pressed { view: ViewNumber },
    /// Client to replica: asks for a session's records in `from..end`. Reply: `Sought`.
    Seek {
        view: ViewNumber,
        session: SessionId,
        from: Position,
        /// There is no reply until everything below is final.
        end: Position,
    },
    /// Replica to client: records of the session.
    Sought {
        view: ViewNumber,
        session: SessionId,
        from: Position,
        /// End of the searched range; at most `from` if this replica cannot tell.
        upto: Position,
        /// The trim point. No replica knows the records below.
        trim: Position,
        found: Vec<(Position, RecordId)>,
    },
    /// Sequencer to primary: granted positions are overdue. Reply: `StableKnown`.
    FillRequest {
        view: ViewNumber,
        /// Bound of permanent placement: some shard has all its positions below in this view.
        written: Position,
        overdue: Position,
    },
    /// Primary to head: asks for the final content of these positions, with junk in holes. Reply:
    /// `Filled`.
    Fill { view: ViewNumber, spans: Vec<Span> },
    /// Head to primary: answers `Fill` with its records.
    Filled { view: ViewNumber, run: Run },
    /// Replica to client: view `old` is over, and these positions are vacant; asks for the client's
    /// records there. Reply: `Offer`.
    Vacant { claim: ViewNumber, old: ViewNumber, spans: Vec<Span> },
    /// Client to replica: its records for vacant positions. It takes no other positions in that
    /// view.
    Offer {
        claim: ViewNumber,
        /// Positions from here on were not examined: the message is full.
        upto: Position,
        runs: Vec<Run>,
    },
    /// Client to every replica of some shard: asks whether this is still the view. Reply:
    /// `Confirmed`.
    Confirm { request: u64, view: ViewNumber },
    /// Replica to client: it takes part in this view, and in no later one.
    Confirmed { request: u64, view: ViewNumber },
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
