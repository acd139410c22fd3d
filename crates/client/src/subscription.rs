//! Records as they become final.

use std::collections::VecDeque;

use seriatim_delivery::subscriber;
use seriatim_model::{Position, Record, RecordId, limits};
use tokio::sync::mpsc;

use crate::engine::Command;
use crate::error::ReadError;

/// How many records wait for the application at most.
pub(crate) const WINDOW: u64 = 8192;
/// How many bytes of records wait for the application, but for the last record.
const WINDOW_BYTES: u64 = limits::SUBSCRIPTION_BYTES;

/// How a subscription is made.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SubscribeOptions {
    /// The position to stop at; none to go on for ever.
    pub end: Option<Position>,
}

impl SubscribeOptions {
    /// Stops when everything below `end` was delivered.
    #[must_use]
    pub fn until(end: Position) -> Self {
        Self { end: Some(end) }
    }
}

/// An event for the subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The next record.
    Deliver {
        /// Its position.
        position: Position,
        /// Its id.
        id: RecordId,
        /// The record that was appended.
        record: Record,
        /// Whether the position may still fail. With today's orderings it never does.
        speculative: bool,
    },
    /// Speculative records below this position are final now.
    Confirm {
        /// The bound.
        upto: Position,
    },
    /// Speculative records from this position on are void.
    Fail {
        /// The last position that holds, exclusive.
        after: Position,
    },
    /// The records that should have come next were trimmed; delivery goes on at `first`.
    Trimmed {
        /// The first position that is left.
        first: Position,
    },
}

/// A subscription. Dropping it ends it.
#[derive(Debug)]
pub struct Subscription {
    commands: mpsc::Sender<Command>,
    handle: u64,
    arrivals: mpsc::Receiver<subscriber::Event>,
    ready: VecDeque<Event>,
    /// Records, and their bytes, taken by the application since it last asked for more.
    taken: u64,
    taken_bytes: u64,
    is_over: bool,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let _ = self.commands.try_send(Command::Close { handle: self.handle, ends: false });
    }
}

impl Subscription {
    pub(crate) async fn start(
        commands: mpsc::Sender<Command>,
        handle: u64,
        arrivals: mpsc::Receiver<subscriber::Event>,
    ) -> Result<Self, ReadError> {
        let mut subscription = Self {
            commands,
            handle,
            arrivals,
            ready: VecDeque::new(),
            taken: WINDOW,
            taken_bytes: WINDOW_BYTES,
            is_over: false,
        };
        subscription.want_more().await?;
        Ok(subscription)
    }

    /// Asks for as much as was taken.
    async fn want_more(&mut self) -> Result<(), ReadError> {
        let command = Command::Want { handle: self.handle, records: self.taken, bytes: self.taken_bytes };
        self.commands.send(command).await.map_err(|_| ReadError::Stopped)?;
        (self.taken, self.taken_bytes) = (0, 0);
        Ok(())
    }

    /// The next event; nothing when the end that was asked for is reached, or after an error. Waits for
    /// as long as it takes. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Option<Result<Event, ReadError>> {
        loop {
            if self.taken >= WINDOW / 2 || self.taken_bytes >= WINDOW_BYTES / 2 {
                // If the client was stopped, the program hears of it after the records that have arrived.
                let _ = self.want_more().await;
            }
            if let Some(event) = self.ready.pop_front() {
                if let Event::Deliver { record, .. } = &event {
                    self.taken += 1;
                    self.taken_bytes += record.size() as u64;
                }
                return Some(Ok(event));
            }
            if self.is_over {
                return None;
            }
            match self.arrivals.recv().await {
                Some(subscriber::Event::Deliver { records, speculative }) => {
                    self.ready.extend(records.into_iter().map(|stored| Event::Deliver {
                        position: stored.position,
                        id: stored.id,
                        record: stored.record,
                        speculative,
                    }));
                }
                Some(subscriber::Event::Trimmed { first }) => self.ready.push_back(Event::Trimmed { first }),
                Some(subscriber::Event::Failed(failure)) => {
                    self.is_over = true;
                    return Some(Err(failure.into()));
                }
                Some(subscriber::Event::Finished) => self.is_over = true,
                Some(_) => {}
                None => {
                    self.is_over = true;
                    return Some(Err(ReadError::Stopped));
                }
            }
        }
    }
}
