//! Messages of erwin-st shards, whose clients put records by id.

#![expect(missing_docs, reason = "the message has a comment; the names of its fields suffice")]

use seriatim_model::storage::Ordered;
use seriatim_model::wire::wire_enum;
use seriatim_model::{
    Endpoint, IdRun, Incarnation, Member, NodeId, Position, Record, RecordId, SessionId, ViewNumber,
};

use crate::roles::Family;

/// Messages about records that are put before they have positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client to every replica of a shard: stores these records, whose ids go to the sequencing
    /// replicas at the same time (LazyLog §5.1). Reply: `Stored`, or a refusal.
    Put { view: ViewNumber, session: SessionId, first: u64, records: Vec<Record> },
    /// Replica to client: stored as durably as the log promises.
    Stored { view: ViewNumber, ids: IdRun },
    /// Replica to client: these ids are permanently no-ops on every replica.
    NotAppended { view: ViewNumber, ids: IdRun },
    /// Sequencing layer to every primary: the positions from `batch` on belong to these ids, in
    /// order.
    Order {
        view: ViewNumber,
        /// The batch's first position, and its name within the view.
        batch: Position,
        /// Backups that must hold the records.
        backups: Vec<Member>,
        /// The sender's stable bound.
        stable: Position,
        runs: Vec<Ordered>,
    },
    /// Primary to backup: an `Order`, with the primary's no-op decisions.
    ReplicateOrder {
        view: ViewNumber,
        batch: Position,
        incarnation: Incarnation,
        stable: Position,
        runs: Vec<Ordered>,
        /// Replicas that may have records that the backup misses.
        replicas: Vec<NodeId>,
    },
    /// Replica to another: asks for missing records.
    FetchRecords { view: ViewNumber, batch: Position, ids: Vec<IdRun> },
    /// Reply to `FetchRecords`. The sender also has the requested ids that no field lists; the
    /// receiver asks again.
    FetchedRecords {
        view: ViewNumber,
        batch: Position,
        /// Found records, as many as fit.
        records: Vec<(RecordId, Record)>,
        /// The sender does not have these.
        missing: Vec<IdRun>,
        /// These are no-ops at the sender.
        voids: Vec<IdRun>,
    },
    /// Replica to leader: these records have long had no positions, and their sessions are silent.
    /// Reply: `Undecided`.
    Orphans {
        view: ViewNumber,
        /// One span per session.
        ids: Vec<IdRun>,
    },
    /// Leader to replica: of this session only numbers in `first..end` may still get positions.
    Undecided {
        view: ViewNumber,
        session: SessionId,
        /// Every number below has been ordered, and its shards hold it. `u64::MAX` if the session
        /// is forgotten and too old to return.
        first: u64,
        /// The session's end; `u64::MAX` if it has none.
        end: u64,
    },
}

impl Family for Message {
    fn is_from_client_to(&self, to: Endpoint) -> bool {
        matches!(to, Endpoint::Shard(_)) && matches!(self, Self::Put { .. })
    }

    fn ends_session(&self) -> Option<(SessionId, u64)> {
        match *self {
            Self::Undecided { session, end, .. } if end < u64::MAX => Some((session, end)),
            _ => None,
        }
    }
}

wire_enum! {
    Message {
        1 => Put { view, session, first as first, records },
        2 => Stored { view, ids },
        3 => NotAppended { view, ids },
        4 => Order { view, batch, backups, stable, runs },
        5 => ReplicateOrder { view, batch, incarnation, stable, runs, replicas },
        6 => FetchRecords { view, batch, ids },
        7 => FetchedRecords { view, batch, records, missing, voids },
        8 => Orphans { view, ids },
        9 => Undecided { view, session, first, end },
    }
}
