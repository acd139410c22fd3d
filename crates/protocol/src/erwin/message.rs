//! The messages of Erwin's sequencing layer.

use seriatim_model::wire::wire_enum;
use seriatim_model::{BoundIds, Endpoint, IdRun, Position, SessionId, ViewNumber};

use crate::parts::Content;

use crate::parts::sequencing;
use crate::roles::{self, Family};

/// Messages between clients and sequencing replicas.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client to every sequencing replica: hold these.
    Append {
        /// The view that the client believes in.
        view: ViewNumber,
        /// Its session.
        session: SessionId,
        /// The number of the first.
        first: u64,
        /// The lowest number that the client still waits for.
        lowest: u64,
        /// The appends, with consecutive numbers: records, or on which shards they are put.
        entries: Vec<Content>,
    },
    /// Replica to client: the session's numbers below `next` are held or bound, as durably as the
    /// log promises.
    Acknowledged {
        /// The view that this counts in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The next number.
        next: u64,
    },
    /// Replica to client: the same, but these of the numbers are no-ops: their records never
    /// reached their shards, and are not in the log.
    NotAppended {
        /// The view that this counts in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The next number.
        next: u64,
        /// The numbers.
        voids: Vec<IdRun>,
    },
    /// Replica to client: numbers are missing; send from `expected`.
    OutOfOrder {
        /// The replica's view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The number to send from.
        expected: u64,
    },
    /// Replica to client: no room at present; send again from `next`, later.
    Busy {
        /// The replica's view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The number to send from.
        next: u64,
        /// Whether that is because the disk is full.
        disk_full: bool,
    },
    /// Replica to client: the session is not known, or not any more; nothing was stored.
    Expired {
        /// The session.
        session: SessionId,
    },
    /// Replica to client: the client gave up these numbers itself.
    Stale {
        /// The session.
        session: SessionId,
        /// The first of the numbers.
        number: u64,
    },
    /// Replica to client: the record is larger than the log allows; nothing was stored.
    TooLarge {
        /// The session.
        session: SessionId,
        /// The record's number.
        number: u64,
        /// The largest payload allowed, in bytes.
        limit: u32,
    },
    /// Client to leader: where is this number bound? Answered when that is final.
    Locate {
        /// The view that the client believes in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The number.
        number: u64,
    },
    /// Leader to client: there.
    Located {
        /// The session.
        session: SessionId,
        /// The number.
        number: u64,
        /// Its final position.
        position: Position,
    },
    /// Replica to client: how long the log is, as far as it knows. The client asked for
    /// [the tail](crate::parts::sequencing::Message::CheckTail).
    Tail {
        /// The question answered.
        request: u64,
        /// The replica's view.
        view: ViewNumber,
        /// Its `ordered` and what it holds.
        count: Position,
        /// How many entries it holds.
        held: u64,
        /// Which records it knows of in this view.
        seen: u64,
    },
    /// Replica to client, before [`Tail`](Self::Tail): sessions that were opened below this, and
    /// are not known, have expired. It is said if it is above the tail.
    Floor {
        /// The replica's view.
        view: ViewNumber,
        /// From where on a session is to be opened.
        floor: Position,
    },

    /// Client to leader: nothing more will be appended in this session.
    Close {
        /// The view that the client believes in.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The session in which it goes on, unless another one was named before.
        successor: Option<SessionId>,
    },
    /// Leader to followers: admit nothing more of this session until the leader says where it ends.
    Freeze {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
    },
    /// Follower to leader: frozen.
    Frozen {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The number that the session would go on with here.
        next: u64,
    },
    /// Leader to followers: this session ends; nothing from this number on is to be stored any
    /// more.
    End {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The first number that is refused.
        at: u64,
        /// The session in which it goes on, if its client said so.
        successor: Option<SessionId>,
    },
    /// Follower to leader: ended, and durable so. Leader to client: ended, and durable so on all
    /// replicas.
    Ended {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The first number that is refused.
        at: u64,
        /// The session in which it goes on, if there is one.
        successor: Option<SessionId>,
    },
    /// Leader to client: the session is not known, or not any more, and that it has ended is not
    /// remembered.
    NotEnded {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
    },

    /// Follower to leader: entries that the leader may not have.
    Forward {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The number of the first.
        first: u64,
        /// The appends, with consecutive numbers.
        entries: Vec<Content>,
    },
    /// Leader to follower: the session of what was forwarded is forgotten, and too old to come
    /// back.
    ForwardExpired {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The leader's `ordered`: a follower that is not as far may still hold entries that are
        /// bound.
        ordered: Position,
    },
    /// Leader to followers: these ids are bound, in this order, to the positions from `from` on.
    Truncate {
        /// The view.
        view: ViewNumber,
        /// The first position.
        from: Position,
        /// The ids, and which of their positions are no-ops.
        runs: Vec<BoundIds>,
    },
    /// Follower to leader: dropped, and durable so.
    TruncateAck {
        /// The view.
        view: ViewNumber,
        /// The follower's `ordered`.
        ordered: Position,
    },
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

// 8, 11, 16 and 17 were used before version 6, and are not used again.
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
