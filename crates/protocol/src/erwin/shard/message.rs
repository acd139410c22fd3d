//! The messages of the shards of a log whose clients put records by id (erwin-st).

use seriatim_model::storage::Ordered;
use seriatim_model::wire::wire_enum;
use seriatim_model::{
    Endpoint, IdRun, Incarnation, Member, NodeId, Position, Record, RecordId, SessionId, ViewNumber,
};

use crate::roles::Family;

/// Messages about records that are put before they have positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client to every replica of a shard: hold these records, whose ids are on their way to the
    /// sequencing replicas (LazyLog §5.1).
    Put {
        /// The view that the client believes in.
        view: ViewNumber,
        /// Its session.
        session: SessionId,
        /// The number of the first record.
        first: u64,
        /// The records, with consecutive numbers.
        records: Vec<Record>,
    },
    /// Replica to client: held, as durably as the log promises.
    Stored {
        /// The view that this counts in.
        view: ViewNumber,
        /// Which.
        ids: IdRun,
    },
    /// Replica to client: these are no-ops, on every replica, for good.
    NotAppended {
        /// The view that this counts in.
        view: ViewNumber,
        /// Which.
        ids: IdRun,
    },
    /// Sequencing layer to primary: the positions from `batch` on belong to these ids, one after
    /// another. Every shard gets all of them.
    Order {
        /// The view that pushes them.
        view: ViewNumber,
        /// Names the batch within the view: its first position.
        batch: Position,
        /// The backups that must hold them too.
        backups: Vec<Member>,
        /// The stable bound that the sender knows.
        stable: Position,
        /// The ids.
        runs: Vec<Ordered>,
    },
    /// Primary to backup: the same, with what the primary decided to be no-ops.
    ReplicateOrder {
        /// The view that pushes them.
        view: ViewNumber,
        /// Names the batch.
        batch: Position,
        /// Which incarnation of the backup is meant.
        incarnation: Incarnation,
        /// The stable bound that the primary knows.
        stable: Position,
        /// The ids.
        runs: Vec<Ordered>,
        /// Other replicas that may have records that the backup misses.
        replicas: Vec<NodeId>,
    },
    /// Replica to another one: do you have these records?
    FetchRecords {
        /// The view that orders them.
        view: ViewNumber,
        /// The batch that they are in.
        batch: Position,
        /// The records.
        ids: Vec<IdRun>,
    },
    /// The answer to `FetchRecords`. The replica also has the records that the answer does not
    /// mention, and sends them when it is asked again.
    FetchedRecords {
        /// The view.
        view: ViewNumber,
        /// The batch.
        batch: Position,
        /// The records that it has, as far as there is room.
        records: Vec<(RecordId, Record)>,
        /// The records that it does not have.
        missing: Vec<IdRun>,
        /// The records that it holds to be no-ops.
        voids: Vec<IdRun>,
    },
    /// Replica to leader: records have been lying here for long, without positions, and nothing
    /// came of their sessions since. What is to become of them?
    Orphans {
        /// The view.
        view: ViewNumber,
        /// For each session the numbers from the lowest of these to the highest.
        ids: Vec<IdRun>,
    },
    /// Leader to replica: of this session only the numbers in `first..end` may still get positions.
    /// What is held of others, and has none, never gets one.
    Undecided {
        /// The view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// Every record below has been ordered, and is held by every shard that is to hold it. The
        /// largest number if the session is forgotten, and too old to come back.
        first: u64,
        /// Where the session ended; the largest number if it has not.
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
