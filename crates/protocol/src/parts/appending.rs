//! An application's append requests and their replies, the same in every ordering.

use seriatim_model::record::key_hash;
use seriatim_model::{Effect, NodeId, Order, Position, Record, RecordId, SessionId, ShardId, Time};

use crate::mutation::Options;
use crate::roles;

/// Selects an append's shard, where clients put records on shards themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardChoice {
    /// The key decides; records without key rotate over the shards.
    #[default]
    ByKey,
    /// Records rotate over the shards.
    InTurn,
    /// This shard. If it is closed or lost when the append is sent, another shard takes the record,
    /// since the session's later appends depend on it. Later appends to the closed shard fail.
    Fixed(ShardId),
}

impl ShardChoice {
    /// Whether the record rotates over the shards.
    #[must_use]
    pub fn is_in_turn(self, record: &Record) -> bool {
        match self {
            Self::InTurn => true,
            Self::ByKey => record.key().is_none(),
            Self::Fixed(_) => false,
        }
    }

    /// The record's shard among the open ones. The rotation advances every `stripe` numbers of a
    /// session.
    #[must_use]
    pub fn of(self, id: RecordId, record: &Record, stripe: u64, open: &[ShardId]) -> ShardId {
        let in_turn = || (id.session.0 as u64).wrapping_add(id.number / stripe);
        let turn = match self {
            Self::Fixed(shard) if open.contains(&shard) => return shard,
            Self::Fixed(shard) => u64::from(shard.0),
            Self::InTurn => in_turn(),
            Self::ByKey => record.key().map_or_else(in_turn, |key| key_hash(&key)),
        };
        open[(turn % open.len() as u64) as usize]
    }
}

/// A request of an application.
#[derive(Clone, Debug)]
pub enum Request {
    /// Appends a record after all earlier requests.
    Append {
        /// The record.
        record: Record,
        /// Its options.
        spec: AppendSpec,
    },
    /// Asks for a bound above the position of every append acknowledged before.
    CheckTail,
    /// Asks for the session of appends, and opens it if necessary.
    OpenSession,
    /// Ends the session after all earlier requests. Requests made meanwhile may fail with it.
    EndSession,
}

/// Options of an append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppendSpec {
    /// Whether to answer only when the position is final.
    pub sync: bool,
    /// The shard of the record.
    pub shard: ShardChoice,
    /// Until this time, if the record's id becomes a no-op, the client appends the record again
    /// under the session's next number. The record then follows later submissions.
    pub again_until: Time,
}

/// A reply to an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The record is durable.
    Appended {
        /// The record id.
        id: RecordId,
        /// Its final position, if requested.
        position: Option<Position>,
        /// Number of earlier ids of this record, which all became no-ops.
        again: u32,
    },
    /// The tail.
    Tail(Position),
    /// The session.
    Session {
        /// Its id.
        session: SessionId,
        /// The number of the next append.
        next: u64,
    },
    /// The session has ended: its id and its first refused number. `None` if there was no session.
    Ended(Option<(SessionId, u64)>),
    /// The request failed.
    Failed(Failure),
}

/// The effects of a machine that appends.
pub type ClientEffect = Effect<roles::Message, Reply>;

/// Builds the effect that answers a caller.
#[must_use]
pub fn reply(token: u64, reply: Reply) -> ClientEffect {
    ClientEffect::Reply { token, reply }
}

/// Why a request failed permanently; temporary failures are retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The session was forgotten. Each append in flight is in the log at most once.
    #[error("session {0} has expired; appends in flight may or may not be in the log")]
    SessionExpired(SessionId),
    /// The record exceeds the log's limit. It is not in the log.
    #[error("the record is larger than the {limit} bytes that the log allows")]
    TooLarge {
        /// The largest allowed payload, in bytes.
        limit: u32,
    },
    /// An earlier run of this session received the acknowledgement of this append, and waits for it
    /// no longer.
    #[error("append {0} was completed before; it is in the log")]
    Stale(RecordId),
    /// The record reached its shard too late or never, and will never be in the log.
    #[error("append {0} did not reach its shard in time; it is not in the log")]
    NotAppended(RecordId),
    /// The log has no such open shard. The record is not in the log.
    #[error("no shard {shard} of the log takes records")]
    NoSuchShard {
        /// The chosen shard.
        shard: ShardId,
        /// The open shards.
        open: Vec<ShardId>,
    },
    /// Programs cannot choose a shard in this order. The record is not in the log.
    #[error("in a log of order {0} the position decides which shard takes a record")]
    NoChoice(Order),
    /// The log was deleted.
    #[error("the log '{0}' was deleted")]
    Deleted(String),
}

/// Settings of a client of one log.
#[derive(Clone, Debug)]
pub struct LogClientConfig {
    /// The node of the register.
    pub control: NodeId,
    /// Random for each client: names its sessions and spreads its retries.
    pub random: u64,
    /// The session and number at which the client resumes an earlier run, counted across
    /// successors.
    pub resume: Option<(SessionId, u64)>,
    /// Bounds, and deliberate defects for the simulator.
    pub options: Options,
}

impl LogClientConfig {
    /// The id of the client's next session, opened at `tail`. The client has opened `opened`
    /// sessions before.
    #[must_use]
    pub fn session(&self, tail: Position, opened: u64) -> SessionId {
        SessionId::new(tail, self.random.wrapping_add(opened.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}
