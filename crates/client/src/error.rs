//! The errors of the client, and what the caller can do about them.

use seriatim_model::{Order, Position, SessionId, ShardId};

/// Why no node of a cluster was reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The given text is no address.
    #[error("'{0}' names no node; give HOST:PORT, or several separated by commas")]
    NoAddress(String),
    /// None of the addresses led to a node: what was wrong with each.
    #[error("{}", all(.0))]
    NoNode(Vec<seriatim_net::ConnectError>),
}

fn all(causes: &[seriatim_net::ConnectError]) -> String {
    let causes: Vec<String> = causes.iter().map(ToString::to_string).collect();
    causes.join("; ")
}

/// Why a log could not be found, created or deleted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No log has that name.
    #[error("there is no log '{name}'; create it with: seriatim log create {name}")]
    NoSuchLog {
        /// The name.
        name: String,
    },
    /// A log has that name already.
    #[error(
        "a log '{name}' exists already; choose another name, or delete it with: seriatim log delete {name}"
    )]
    Exists {
        /// The name.
        name: String,
    },
    /// The cluster cannot hold such a log.
    #[error("{reason}")]
    Impossible {
        /// The fault, and what would be right.
        reason: String,
    },
    /// The deadline passed.
    #[error("timed out after {seconds} s: {waiting_for}")]
    DeadlineExceeded {
        /// The deadline, in seconds.
        seconds: f64,
        /// The reason for the wait.
        waiting_for: String,
    },
    /// The client was stopped.
    #[error("the client was stopped")]
    Stopped,
}

/// Why an append was not acknowledged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The record is too large. It is not in the log.
    #[error(
        "the record has {size} bytes, more than the {limit} that the log allows; split it, or create a log with a larger --max-record-bytes"
    )]
    TooLarge {
        /// The payload's size, in bytes.
        size: usize,
        /// The largest payload allowed, in bytes.
        limit: u32,
    },
    /// The record's key and headers are too large. It is not in the log.
    #[error(
        "the record's key and headers take {size} bytes, more than the {limit} that they may; put them into the payload"
    )]
    HeadersTooLarge {
        /// The size of key and headers, in bytes.
        size: usize,
        /// How much they may take together, in bytes.
        limit: u32,
    },
    /// The session is forgotten: it was idle for too long, or resumed too late. This append, and
    /// others that were in flight, may or may not be in the log, at most once. Later appends open a
    /// new session; those that are submitted before the program has looked at every append that
    /// failed so, or dropped it, fail as well and are not in the log: nothing overtakes what may be
    /// appended again.
    #[error("session {0} has expired; appends in flight may or may not be in the log")]
    SessionExpired(SessionId),
    /// An earlier run of the session saw it acknowledged. It is in the log.
    #[error("the append was completed in an earlier run of the session and is in the log")]
    AppendedBefore,
    /// The record did not reach its shard in time. It is not in the log, and never will be: append
    /// it again.
    #[error("the record did not reach its shard in time and is not in the log; append it again")]
    NotAppended,
    /// The log has no such shard, or it takes no new records. The record is not in the log.
    #[error("no shard {shard} of the log takes records; open shards: {}", listed(.open))]
    NoSuchShard {
        /// The shard asked for.
        shard: ShardId,
        /// The shards that take records.
        open: Vec<ShardId>,
    },
    /// The program chose a shard in a log in which it cannot. The record is not in the log.
    #[error(
        "in a log of order {0} the position decides which shard takes a record; append without a shard, or create a log with --order erwin-st"
    )]
    NoChoice(Order),
    /// The log was deleted.
    #[error("the log '{0}' was deleted")]
    Deleted(String),
    /// The deadline passed, and the oldest append of the session was not acknowledged meanwhile.
    /// The append may or may not be in the log, at most once; the client goes on trying in the
    /// background.
    #[error("not acknowledged within {seconds} s, and may or may not be in the log: {waiting_for}")]
    DeadlineExceeded {
        /// The deadline, in seconds.
        seconds: f64,
        /// The reason for the wait.
        waiting_for: String,
    },
    /// The client was stopped. The append may or may not be in the log.
    #[error("the client was stopped; the append may or may not be in the log")]
    Stopped,
}

/// Why nothing could be read, checked or trimmed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The position is gone for good.
    #[error("positions below {first} are trimmed; the first one is {first}")]
    Trimmed {
        /// The first position that can still be read.
        first: Position,
    },
    /// The position lies past the tail.
    #[error("position {position} is past the tail, which is {tail}")]
    PastTail {
        /// The position asked for.
        position: Position,
        /// The tail.
        tail: Position,
    },
    /// The shards could not give it out.
    #[error(transparent)]
    Failed(#[from] seriatim_delivery::Failure),
    /// No record has a key or a header that is so long.
    #[error("the filter's prefix is longer than {limit} bytes, so no record matches it")]
    FilterTooLong {
        /// How many bytes a record has of keys and headers at most.
        limit: u32,
    },
    /// The log had no such shard when it was opened.
    #[error("the log has no shard {shard}; it has {}", listed(.known))]
    NoSuchShard {
        /// The shard.
        shard: ShardId,
        /// The shards that it had.
        known: Vec<ShardId>,
    },
    /// Records of no shard were asked for.
    #[error("no shard is chosen, so there is nothing to deliver")]
    NoShards,
    /// The log was deleted.
    #[error("the log '{0}' was deleted")]
    Deleted(String),
    /// The deadline passed.
    #[error("timed out after {seconds} s: {waiting_for}")]
    DeadlineExceeded {
        /// The deadline, in seconds.
        seconds: f64,
        /// The reason for the wait.
        waiting_for: String,
    },
    /// The client was stopped.
    #[error("the client was stopped")]
    Stopped,
}

/// Shards, for a person.
fn listed(shards: &[ShardId]) -> String {
    shards.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
