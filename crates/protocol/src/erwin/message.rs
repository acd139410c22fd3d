//! Messages of Erwin's sequencing layer.

#![expect(missing_docs, reason = "the message has a comment; the names of its fields suffice")]

use seriatim_model::wire::wire_enum;
use seriatim_model::{BoundIds, Endpoint, IdRun, Position, SessionId, ViewNumber};

use crate::parts::Content;

use crate::parts::sequencing;
use crate::roles::{self, Family};

/// Messages between clients and sequencing replicas.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client to every sequencing replica: stores these appends. Reply: `Acknowledged`, or a
    /// refusal.
    Append {
        view: ViewNumber,
        session: SessionId,
        first: u64,
        /// Lowest number that the client still waits for.
        lowest: u64,
        /// Consecutive records, or the shards that the client puts them on.
        entries: Vec<Content>,
    },
    /// Replica to client: the session's numbers below `next` are held or bound, as durably as
    /// promised.
    Acknowledged { view: ViewNumber, session: SessionId, next: u64 },
    /// Replica to client: like `Acknowledged`, but the numbers in `voids` are no-ops: their records
    /// never reached their shards.
    NotAppended { view: ViewNumber, session: SessionId, next: u64, voids: Vec<IdRun> },
    /// Replica to client: numbers from `expected` on are missing; the client resends them.
    OutOfOrder { view: ViewNumber, session: SessionId, expected: u64 },
    /// Replica to client: no room; the client resends from `next` after a pause.
    Busy { view: ViewNumber, session: SessionId, next: u64, disk_full: bool },
    /// Replica to client: unknown or forgotten session; nothing was stored.
    Expired { session: SessionId },
    /// Replica to client: `number` is below the client's own `lowest`, or its position is no longer
    /// remembered.
    Stale { session: SessionId, number: u64 },
    /// Replica to client: the record is too large; nothing was stored.
    TooLarge {
        session: SessionId,
        number: u64,
        /// Largest payload allowed, in bytes.
        limit: u32,
    },
    /// Client to leader: asks for a number's position. Reply: `Located`, once the position is
    /// final, or the number's other outcome.
    Locate { view: ViewNumber, session: SessionId, number: u64 },
    /// Leader to client: the final position.
    Located { session: SessionId, number: u64, position: Position },
    /// Replica to client: known length of the log, in reply to
    /// [`CheckTail`](crate::parts::sequencing::Message::CheckTail).
    Tail {
        request: u64,
        view: ViewNumber,
        /// `ordered` plus `held`.
        count: Position,
        held: u64,
        /// Digest of the ids held or dropped in this view.
        seen: u64,
    },
    /// Replica to client, before [`Tail`](Self::Tail), if `floor` is above the tail: unknown
    /// sessions opened below `floor` have expired.
    Floor { view: ViewNumber, floor: Position },

    /// Client to leader: the session's appends are complete; end it. Reply: `Ended` or `NotEnded`.
    Close {
        view: ViewNumber,
        session: SessionId,
        /// Session in which the client continues; a successor named earlier takes precedence.
        successor: Option<SessionId>,
    },
    /// Leader to followers: admit nothing more of this session until `End`. Reply: `Frozen`.
    Freeze { view: ViewNumber, session: SessionId },
    /// Follower to leader, in reply to `Freeze`.
    Frozen {
        view: ViewNumber,
        session: SessionId,
        /// The session's next number at the follower.
        next: u64,
    },
    /// Leader to followers: the session ends; numbers from `at` on are refused. Reply: `Ended`.
    End { view: ViewNumber, session: SessionId, at: u64, successor: Option<SessionId> },
    /// Follower to leader: the session ended durably here. Leader to client: on all replicas.
    Ended { view: ViewNumber, session: SessionId, at: u64, successor: Option<SessionId> },
    /// Leader to client: neither the session nor its end is known.
    NotEnded { view: ViewNumber, session: SessionId },

    /// Follower to leader: entries that the leader may lack, to admit like an append.
    Forward { view: ViewNumber, session: SessionId, first: u64, entries: Vec<Content> },
    /// Leader to follower: the forwarded entries' session is forgotten, and too old to return.
    ForwardExpired {
        view: ViewNumber,
        session: SessionId,
        /// The leader's `ordered`: a follower below it may still hold bound entries.
        ordered: Position,
    },
    /// Leader to followers: these ids are bound, in order, to the positions from `from` on. Reply:
    /// `TruncateAck`.
    Truncate { view: ViewNumber, from: Position, runs: Vec<BoundIds> },
    /// Follower to leader: it has durably dropped the entries below `ordered`.
    TruncateAck { view: ViewNumber, ordered: Position },
}

impl Family for Message {
    fn is_from_client_to(&self, to: Endpoint) -> bool {
        to == Endpoint::Sequencer
            && matches!(self, Self::Append { .. } | Self::Locate { .. } | Self::Close { .. })
    }

    fn not_hosted(&self) -> Option<roles::Message> {
        let waits = matches!(self, Self::Append { .. } | Self::Locate { .. });
        waits.then(|| sequencing::Message::not_here().into())
    }

    fn deed(&self) -> Option<(ViewNumber, &'static str)> {
        match *self {
            Self::Acknowledged { view, .. } => Some((view, "acknowledged an append")),
            Self::Tail { view, .. } => Some((view, "told the tail")),
            Self::Truncate { view, .. } => Some((view, "established the order")),
            Self::TruncateAck { view, .. } => Some((view, "confirmed a drop")),
            _ => None,
        }
    }

    fn confirms(&self) -> Option<ViewNumber> {
        match *self {
            Self::Acknowledged { view, .. } | Self::TruncateAck { view, .. } => Some(view),
            _ => None,
        }
    }
}

// 8, 11, 16 and 17 were used before version 6 and stay unused.
wire_enum! {
    Message {
        1 => Append { view, session, first as first, lowest as number, entries },
        2 => Acknowledged { view, session, next as number },
        3 => OutOfOrder { view, session, expected as number },
        4 => Busy { view, session, next as number, disk_full },
        5 => Expired { session },
        6 => Stale { session, number as number },
        7 => TooLarge { session, number as number, limit },
        9 => Locate { view, session, number as number },
        10 => Located { session, number as number, position },
        12 => Tail { request, view, count, held as number, seen },
        13 => Forward { view, session, first as number, entries },
        14 => Truncate { view, from, runs },
        15 => TruncateAck { view, ordered },
        18 => ForwardExpired { view, session, ordered },
        19 => End { view, session, at as number, successor },
        20 => Ended { view, session, at as number, successor },
        21 => NotAppended { view, session, next as number, voids },
        22 => Close { view, session, successor },
        23 => Freeze { view, session },
        24 => Frozen { view, session, next as number },
        25 => Floor { view, floor },
        26 => NotEnded { view, session },
    }
}
