//! The contract between the player and a target.

use std::future::Future;

use seriatim_model::Position;

pub use seriatim_delivery::player::{ApplyError, AttachError, Batch, Message, Stream};

/// A destination that applies messages: a database, a file, a service.
///
/// A target stores its bound together with the effects of the messages. The player trusts only this
/// bound, which makes the delivery exactly-once.
pub trait Target: Send {
    /// Starts a session and returns the bound: all messages below it are applied, and no others.
    /// After the answer, no call with a lower epoch changes anything in the target.
    ///
    /// With `adopts`, the stream and this bound replace another log's stream and bound. A bound of
    /// this stream stays: the call may arrive late, after batches of a later session.
    fn attach(
        &mut self,
        stream: &Stream,
        epoch: u64,
        adopts: Option<Position>,
    ) -> impl Future<Output = Result<Position, AttachError>> + Send;

    /// Applies a batch as one transaction, with the epoch of the last attach.
    fn apply(&mut self, batch: &Batch) -> impl Future<Output = Result<(), ApplyError>> + Send;
}
