//! The client's errors, and what the caller can do about them.

use seriatim_model::{Order, Position, SessionId, ShardId};

/// No node of the cluster is reachable.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The given text contains no address.
    #[error("'{0}' names no node; give HOST:PORT, or several separated by commas")]
    NoAddress(String),
    /// No address led to a node; one cause per address.
    #[error("{}", all(.0))]
    NoNode(Vec<seriatim_net::ConnectError>),
}

fn all(causes: &[seriatim_net::ConnectError]) -> String {
    let causes: Vec<String> = causes.iter().map(ToString::to_string).collect();
    causes.join("; ")
}

/// Why a log could not be found, created or changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No log has this name.
    #[error("there is no log '{name}'; create it with: seriatim log create {name}")]
    NoSuchLog {
        /// Requested log name.
        name: String,
    },
    /// A log with this name exists.
    #[error(
        "a log '{name}' exists already; choose another name, or delete it with: seriatim log delete {name}"
    )]
    Exists {
        /// Requested log name.
        name: String,
    },
    /// The cluster cannot do this.
    #[error("{reason}")]
    Impossible {
        /// The fault and the remedy.
        reason: String,
    },
    /// A pin's position is trimmed.
    #[error("position {position} is trimmed; the first position that remains is {first}")]
    Trimmed {
        /// The requested position.
        position: Position,
        /// The first kept position.
        first: Position,
    },
    /// The deadline passed without an answer.
    #[error("timed out after {seconds} s: {waiting_for}")]
    DeadlineExceeded {
        /// The deadline, in seconds.
        seconds: f64,
        /// The missing answers, in words.
        waiting_for: String,
    },
    /// The client stopped.
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
        /// Payload size, in bytes.
        size: usize,
        /// Largest allowed payload, in bytes.
        limit: u32,
    },
    /// The key and headers are too large. The record is not in the log.
    #[error(
        "the record's key and headers take {size} bytes, more than the {limit} that they may; put them into the payload"
    )]
    HeadersTooLarge {
        /// Size of key and headers, in bytes.
        size: usize,
        /// Their joint limit, in bytes.
        limit: u32,
    },
    /// The session has expired: idle for too long, or resumed too late. This append, and others in
    /// flight, may or may not be in the log, at most once. Later appends open a new session.
    /// Appends submitted before the program has received or dropped every such failure also fail
    /// and are not in the log: no append overtakes a failed append that the program may repeat.
    #[error("session {0} has expired; appends in flight may or may not be in the log")]
    SessionExpired(SessionId),
    /// An earlier run of the session received the acknowledgement. The record is in the log.
    #[error("the append was completed in an earlier run of the session and is in the log")]
    AppendedBefore,
    /// The record did not reach its shard in time. It is not in the log and never will be: append
    /// it again.
    #[error("the record did not reach its shard in time and is not in the log; append it again")]
    NotAppended,
    /// The shard does not exist or is closed. The record is not in the log.
    #[error("no shard {shard} of the log takes records; open shards: {}", listed(.open))]
    NoSuchShard {
        /// The requested shard.
        shard: ShardId,
        /// The open shards.
        open: Vec<ShardId>,
    },
    /// The log's order does not allow a choice of shard. The record is not in the log.
    #[error(
        "in a log of order {0} the position decides which shard takes a record; append without a shard, or create a log with --order erwin-st"
    )]
    NoChoice(Order),
    /// The log was deleted.
    #[error("the log '{0}' was deleted")]
    Deleted(String),
    /// The deadline passed without an acknowledgement of the session's oldest append. The append
    /// may or may not be in the log, at most once; the client continues to retry in the background.
    #[error("not acknowledged within {seconds} s, and may or may not be in the log: {waiting_for}")]
    DeadlineExceeded {
        /// The deadline, in seconds.
        seconds: f64,
        /// The missing answers, in words.
        waiting_for: String,
    },
    /// The client stopped. The append may or may not be in the log.
    #[error("the client was stopped; the append may or may not be in the log")]
    Stopped,
}

/// Why a read, tail check or trim failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The position is trimmed permanently.
    #[error("positions below {first} are trimmed; the first one is {first}")]
    Trimmed {
        /// The first readable position.
        first: Position,
    },
    /// The trim position lies past the tail.
    #[error("position {position} is past the tail, which is {tail}")]
    PastTail {
        /// The requested position.
        position: Position,
        /// The tail.
        tail: Position,
    },
    /// A pin keeps records below the trim position.
    #[error(
        "the pin '{pin}' keeps '{log}' from position {at} on, so it is not trimmed to {position}: remove the pin with \
         'seriatim log unpin {log} {pin}', or trim with --despite-pins"
    )]
    Pinned {
        /// The log.
        log: String,
        /// The lowest pin.
        pin: String,
        /// Its position.
        at: Position,
        /// The requested position.
        position: Position,
    },
    /// The register's entry of the log could not be read.
    #[error(transparent)]
    Register(ControlError),
    /// The shards could not serve the position.
    #[error(transparent)]
    Failed(#[from] seriatim_delivery::Failure),
    /// The filter's prefix is longer than any key or header.
    #[error("the filter's prefix is longer than {limit} bytes, so no record matches it")]
    FilterTooLong {
        /// Maximum bytes of a record's key and headers.
        limit: u32,
    },
    /// The log had no such shard when it was opened.
    #[error("the log has no shard {shard}; it has {}", listed(.known))]
    NoSuchShard {
        /// The requested shard.
        shard: ShardId,
        /// The log's shards when it was opened.
        known: Vec<ShardId>,
    },
    /// The set of chosen shards is empty.
    #[error("no shard is chosen, so there is nothing to deliver")]
    NoShards,
    /// The log was deleted.
    #[error("the log '{0}' was deleted")]
    Deleted(String),
    /// The deadline passed without an answer.
    #[error("timed out after {seconds} s: {waiting_for}")]
    DeadlineExceeded {
        /// The deadline, in seconds.
        seconds: f64,
        /// The missing answers, in words.
        waiting_for: String,
    },
    /// The client stopped.
    #[error("the client was stopped")]
    Stopped,
}

fn listed(shards: &[ShardId]) -> String {
    shards.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
