//! Messages for targets, and the answers of targets.

use std::fmt;

use bytes::Bytes;
use seriatim_model::{LogId, Position};

/// Memory of a message besides its contents, in bytes.
const MESSAGE_BYTES: usize = 128;
/// Memory of a part besides its contents, in bytes.
const PART_BYTES: usize = 32;

/// The name under which a target stores its bound. Log ids are never reused, so a new log with an
/// old name is another stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// The log.
    pub log: LogId,
    /// The player's name.
    pub player: String,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.log.0, self.player)
    }
}

/// Everything that one entry of the log holds for one target. The target applies it as a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The entry's position.
    pub position: Position,
    /// Time of the append by the appending client's clock, in milliseconds since 1970.
    pub appended_ms: u64,
    /// The entry's key.
    pub key: Option<Bytes>,
    /// The mutations for this target, in order. Never empty.
    pub parts: Vec<Bytes>,
}

impl Message {
    /// Memory that the message occupies, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let parts: usize = self.parts.iter().map(|part| part.len() + PART_BYTES).sum();
        MESSAGE_BYTES + self.key.as_ref().map_or(0, Bytes::len) + parts
    }
}

/// A transaction of a target. It checks that the target's bound is `after` and that the epoch is
/// the session's; applies the messages; and sets the bound to `upto`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The target's bound before the batch.
    pub after: Position,
    /// The target's bound after the batch; above `after`.
    pub upto: Position,
    /// The messages, in order, at positions in `after..upto`. An empty batch only moves the bound.
    pub messages: Vec<Message>,
}

/// Why a target did not attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// A player with a higher epoch has attached.
    Fenced {
        /// The highest epoch that attached.
        epoch: u64,
    },
    /// The target stores a bound for another log under this player's name and target id.
    OtherStream {
        /// The stream of that bound.
        stream: Stream,
    },
    /// The target's bound is lost or has no use. Only a bound that an operator gives may help.
    Unusable {
        /// What happened, and what to do.
        reason: String,
    },
    /// The target does not respond, or not as expected. A later attempt may succeed.
    Broken {
        /// What failed, and what to do.
        reason: String,
    },
}

/// Why a target did not apply a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The target cannot apply the message at this position, and no retry can succeed. The messages
    /// before it are applied: the target's bound is `position`.
    Rejected {
        /// The message's position.
        position: Position,
        /// The target's reason.
        reason: String,
    },
    /// The target's bound was not `after`, and nothing changed.
    Moved {
        /// The target's bound.
        applied: Position,
    },
    /// A player with a higher epoch has attached, and nothing changed.
    Fenced {
        /// The highest epoch that attached.
        epoch: u64,
    },
    /// The outcome is unknown: all, a part or nothing may be applied. A later attempt may succeed.
    Broken {
        /// What failed, and what to do.
        reason: String,
    },
}
