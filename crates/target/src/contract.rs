//! The contract between the server and an application.

use std::future::Future;

use crate::proto::{Batch, Stream};

/// An application that applies messages: a database, an index, a service with effects.
///
/// It stores its bound together with the effects of the messages, which makes the delivery
/// exactly-once. The server calls the two functions for one pair of player and target id in order,
/// one at a time, and calls for different pairs at the same time. It never drops a running call.
pub trait Target: Send + Sync + 'static {
    /// Starts a session and returns the bound: all messages below it are applied, and no others.
    /// After the answer, no call with a lower epoch changes anything.
    ///
    /// With `adopts`, the session's stream and this bound replace another log's stream and bound.
    fn attach(
        &self,
        session: &Session,
        adopts: Option<u64>,
    ) -> impl Future<Output = Result<u64, AttachError>> + Send;

    /// In one transaction: checks that the stored epoch is the session's and the stored bound is
    /// `batch.after`; applies the messages; stores the bound `batch.upto`. When it returns, the
    /// transaction is durable.
    fn apply(&self, session: &Session, batch: &Batch) -> impl Future<Output = Result<(), ApplyError>> + Send;
}

/// A session of a player with a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    /// The log and the player.
    pub stream: Stream,
    /// The target id in the player's configuration.
    pub target: String,
    /// The run of the player. A later run has a higher epoch.
    pub epoch: u64,
}

/// Why a target did not attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// A player with a higher epoch has attached.
    Fenced {
        /// The stored epoch.
        epoch: u64,
    },
    /// The target stores a bound for another log.
    OtherStream {
        /// The stream of that bound.
        stream: Stream,
    },
    /// The target does not work now. The player retries.
    Broken {
        /// What failed.
        reason: String,
    },
}

/// Why a target did not apply a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The target cannot apply the message at this position, and no retry can succeed. The messages
    /// before it are applied: the stored bound is `position`.
    Rejected {
        /// The message's position.
        position: u64,
        /// The reason, for an operator.
        reason: String,
    },
    /// The stored bound is not the batch's `after`, and nothing changed.
    Moved {
        /// The stored bound.
        applied: u64,
    },
    /// A player with a higher epoch has attached, and nothing changed.
    Fenced {
        /// The stored epoch.
        epoch: u64,
    },
    /// The outcome is unknown: all or nothing may be applied. The player attaches again.
    Broken {
        /// What failed.
        reason: String,
    },
}
