//! Receivers that keep no bound, and drop a request whose key they have seen: at least once.

use bytes::Bytes;
use hyper::{Method, StatusCode};
use seriatim_model::Position;

use super::receiver::{Place, Receiver};
use crate::bounds::{Checked, Session, Stored};
use crate::kept::Keeper;
use crate::rejecting::Failure;
use crate::targets::not_attached;
use crate::{ApplyError, AttachError, Batch, Message, Stream, Target};

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A receiver without a bound.
#[derive(Clone, Debug)]
pub struct Keyed {
    place: Place,
    content_type: String,
}

/// A receiver without a bound, as a target. The control log keeps the bound.
#[derive(Debug)]
pub(crate) struct KeyedTarget {
    keyed: Keyed,
    keeper: Keeper,
    /// State of the target. `None` before the first attach. Its bound is not below the recorded
    /// one.
    stored: Option<Stored>,
    /// `None` before an attach, during a call, and after a failed call.
    open: Option<Receiver>,
}

impl Keyed {
    /// The receiver at a place, for parts of this media type. Connects to nothing.
    #[must_use]
    pub fn new(place: Place, content_type: String) -> Self {
        Self { place, content_type }
    }

    /// Asks for the headers of the url.
    ///
    /// # Errors
    /// One sentence: what failed, and what to do.
    pub async fn check(&self) -> Result<Checked, String> {
        let (receiver, answer) = self.place.check(Method::HEAD, &[]).await?;
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(receiver.failed(&answer)),
            _ => Ok(Checked::AtLeastOnce),
        }
    }

    pub(crate) fn target(self, keeper: Keeper) -> KeyedTarget {
        KeyedTarget { keyed: self, keeper, stored: None, open: None }
    }

    /// Sends each part of a message in a request of its own.
    async fn post(&self, receiver: &Receiver, stream: &Stream, message: &Message) -> Result<(), Failure> {
        for (index, part) in message.parts.iter().enumerate() {
            let key = match index {
                0 => format!("{stream}/{}", message.position),
                _ => format!("{stream}/{}/{index}", message.position),
            };
            let headers = [(IDEMPOTENCY_KEY, key), (super::CONTENT_TYPE, self.content_type.clone())];
            let answer = receiver.send(Method::POST, &headers, Bytes::clone(part)).await;
            receiver.judge(&answer.map_err(Failure::broken)?)?;
        }
        Ok(())
    }
}

impl Target for KeyedTarget {
    async fn attach(
        &mut self,
        stream: &Stream,
        epoch: u64,
        adopts: Option<Position>,
    ) -> Result<Position, AttachError> {
        self.open = None;
        let session = Session { stream: stream.clone(), epoch };
        let mut stored = self.keeper.attach(&session, adopts)?;
        if let Some(known) = self.stored.as_ref().filter(|known| known.stream == stored.stream) {
            stored.bound = known.bound.max(stored.bound);
        }
        let receiver = self.keyed.place.receiver().map_err(|reason| AttachError::Broken { reason })?;
        self.keeper.begin(self.keeper.record(&stored)).await?;
        let bound = stored.bound;
        (self.stored, self.open) = (Some(stored), Some(receiver));
        Ok(bound)
    }

    async fn apply(&mut self, batch: &Batch) -> Result<(), ApplyError> {
        let receiver = self.open.take().ok_or_else(not_attached)?;
        let stored = self.stored.as_mut().ok_or_else(not_attached)?;
        if stored.bound != batch.after {
            return Err(ApplyError::Moved { applied: stored.bound });
        }
        for message in &batch.messages {
            match self.keyed.post(&receiver, &stored.stream, message).await {
                Ok(()) => stored.bound = message.position.next(),
                Err(Failure::Other(error)) => return Err(error),
                Err(Failure::Rejected(reason)) => {
                    stored.bound = message.position;
                    self.keeper.keep(self.keeper.record(stored)).await?;
                    return Err(ApplyError::Rejected { position: message.position, reason });
                }
            }
            if self.keeper.is_due() {
                self.keeper.keep(self.keeper.record(stored)).await?;
            }
        }
        stored.bound = batch.upto;
        self.keeper.keep(self.keeper.record(stored)).await?;
        self.open = Some(receiver);
        Ok(())
    }
}
