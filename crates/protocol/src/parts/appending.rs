//! The requests of an application to the machine that appends for it, and the replies: the same for
//! every ordering.

use seriatim_model::{Effect, NodeId, Order, Position, Record, RecordId, SessionId, ShardId, Time};

use crate::mutation::Options;
use crate::roles;

/// Which shard takes the record of an append, where clients put records on shards themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardChoice {
    /// That of its key, if it has one; else the shards take turns.
    #[default]
    ByKey,
    /// The shards take turns, whatever its key.
    InTurn,
    /// This one. If that takes no records any more when the append is sent, since it was lost or is
    /// to leave, another does: the appends after it in its session cannot do without it. Appends
    /// that come later fail.
    Fixed(ShardId),
}

impl ShardChoice {
    /// Whether the shards take turns with this record, whichever of them it is the turn of.
    #[must_use]
    pub fn is_in_turn(self, record: &Record) -> bool {
        match self {
            Self::InTurn => true,
            Self::ByKey => record.key().is_none(),
            Self::Fixed(_) => false,
        }
    }

    /// The shard for a record, of those that take records: it follows from its id, or from its key.
    /// A turn is `stripe` numbers of a session long.
    #[must_use]
    pub fn of(self, id: RecordId, record: &Record, stripe: u64, open: &[ShardId]) -> ShardId {
        let in_turn = || (id.session.0 as u64).wrapping_add(id.number / stripe);
        let turn = match self {
            Self::Fixed(shard) if open.contains(&shard) => return shard,
            Self::Fixed(shard) => u64::from(shard.0),
            Self::InTurn => in_turn(),
            Self::ByKey => record.key().map_or_else(in_turn, |key| hash(&key)),
        };
        open[(turn % open.len() as u64) as usize]
    }
}

/// FNV-1a: the same for ever, in every build.
fn hash(key: &[u8]) -> u64 {
    key.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A request of an application.
#[derive(Clone, Debug)]
pub enum Request {
    /// Append a record after those asked for before.
    Append {
        /// The record.
        record: Record,
        /// How.
        spec: AppendSpec,
    },
    /// A bound above the position of every append that was acknowledged before now.
    CheckTail,
    /// The session that appends go to, opened if need be.
    OpenSession,
    /// Nothing more will be appended in this session: once every earlier request is completed, no
    /// replica takes anything of it any more. Requests that come meanwhile may fail with it.
    EndSession,
}

/// How an append is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppendSpec {
    /// Whether to answer only when its position is final.
    pub sync: bool,
    /// Which shard takes the record.
    pub shard: ShardChoice,
    /// Until when the client appends it again, under the session's next number, if its id became a
    /// no-op: for programs that do not mind that it then comes after later submissions.
    pub again_until: Time,
}

/// A reply to an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Durable.
    Appended {
        /// The record id.
        id: RecordId,
        /// Its final position, if that was asked for.
        position: Option<Position>,
        /// How many ids it had before, all of which became no-ops.
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
    /// The session has ended: which, and the first number that is refused. Nothing, if none was
    /// open, or none that is known.
    Ended(Option<(SessionId, u64)>),
    /// It did not work.
    Failed(Failure),
}

/// The effects of a machine that appends.
pub type ClientEffect = Effect<roles::Message, Reply>;

/// Tells an application something.
#[must_use]
pub fn reply(token: u64, reply: Reply) -> ClientEffect {
    ClientEffect::Reply { token, reply }
}

/// Why a request failed for good. Anything that can pass by itself is retried instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The session is forgotten. Appends that were in flight may or may not be in the log, at most
    /// once.
    #[error("session {0} has expired; appends in flight may or may not be in the log")]
    SessionExpired(SessionId),
    /// The record is larger than the log allows. It is not in the log.
    #[error("the record is larger than the {limit} bytes that the log allows")]
    TooLarge {
        /// The largest payload allowed, in bytes.
        limit: u32,
    },
    /// An earlier run of this session saw the append acknowledged, and did not wait for it any
    /// more.
    #[error("append {0} was completed before; it is in the log")]
    Stale(RecordId),
    /// The record reached its shard too late, or not at all. It is not in the log, and never will
    /// be.
    #[error("append {0} did not reach its shard in time; it is not in the log")]
    NotAppended(RecordId),
    /// The log has no such shard, or it takes no new records. The record is not in the log.
    #[error("no shard {shard} of the log takes records")]
    NoSuchShard {
        /// The one that was chosen.
        shard: ShardId,
        /// The shards that take records.
        open: Vec<ShardId>,
    },
    /// A program cannot choose a shard in a log of this order. The record is not in the log.
    #[error("in a log of order {0} the position decides which shard takes a record")]
    NoChoice(Order),
    /// The log was deleted.
    #[error("the log '{0}' was deleted")]
    Deleted(String),
}

/// Where to find a log, and how to tell this client from others.
#[derive(Clone, Debug)]
pub struct LogClientConfig {
    /// The node of the register.
    pub control: NodeId,
    /// Drawn at random for each client: names its sessions and spreads its retries.
    pub random: u64,
    /// A session of an earlier run to go on with, and its next number: those of the sessions in
    /// which other runs went on with it follow its own.
    pub resume: Option<(SessionId, u64)>,
    /// Bounds, and deliberate defects for the simulator.
    pub options: Options,
}

impl LogClientConfig {
    /// The id of the session that is opened after so many others, when the tail was `tail`.
    #[must_use]
    pub fn session(&self, tail: Position, opened: u64) -> SessionId {
        SessionId::new(tail, self.random.wrapping_add(opened.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}
