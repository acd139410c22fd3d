//! Records as they become final.

use std::collections::{BTreeSet, VecDeque};

use seriatim_delivery::{Awaited, Selection, subscriber};
use seriatim_model::{Filter, LogEntry, Position, Record, RecordId, ShardId, limits};
use tokio::sync::{mpsc, oneshot};

use crate::engine::Command;
use crate::error::ReadError;

/// Maximum number of delivered records that the application has not taken.
pub(crate) const WINDOW: u64 = 8192;
/// Maximum bytes of such records; the last one may exceed it.
const WINDOW_BYTES: u64 = limits::SUBSCRIPTION_BYTES;

/// Options of a subscription.
///
/// ```
/// use seriatim_client::{Filter, Position, SubscribeOptions};
///
/// // Records of one region, as soon as they are known, up to a position.
/// let options = SubscribeOptions::default()
///     .speculative()
///     .filter(Filter::key_prefix("eu/"))
///     .until(Position(1_000_000));
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SubscribeOptions {
    /// Position at which delivery stops. None: never.
    pub end: Option<Position>,
    /// Whether to deliver records before they are final. [`Event::Confirm`] reports the final
    /// prefix, [`Event::Fail`] the first void position.
    pub speculative: bool,
    /// Filter that the shards' replicas apply. None: all records.
    pub filter: Option<Filter>,
    /// Shards to deliver from. None: all.
    pub shards: Option<BTreeSet<ShardId>>,
    /// Whether delivery continues after a loss that an operator accepted, instead of an error.
    pub skip_lost: bool,
}

impl SubscribeOptions {
    /// Stops after everything below `end` is delivered and final.
    #[must_use]
    pub fn until(self, end: Position) -> Self {
        Self { end: Some(end), ..self }
    }

    /// Delivers a record as soon as its position is predicted. The prediction holds unless a node
    /// that orders the log fails. [`Event::Fail`] reports the first void position.
    #[must_use]
    pub fn speculative(self) -> Self {
        Self { speculative: true, ..self }
    }

    /// Delivers only the records that match the filter.
    #[must_use]
    pub fn filter(self, filter: Filter) -> Self {
        Self { filter: Some(filter), ..self }
    }

    /// Delivers only the records of these shards.
    #[must_use]
    pub fn shards(self, numbers: impl IntoIterator<Item = u32>) -> Self {
        Self { shards: Some(numbers.into_iter().map(ShardId).collect()), ..self }
    }

    /// Continues after lost records ([`Event::Lost`]).
    #[must_use]
    pub fn skip_lost(self) -> Self {
        Self { skip_lost: true, ..self }
    }

    pub(crate) fn check(&self, entry: &LogEntry) -> Result<(), ReadError> {
        if self.filter.as_ref().is_some_and(|filter| !filter.is_possible()) {
            return Err(ReadError::FilterTooLong { limit: limits::MAX_RECORD_OVERHEAD_BYTES });
        }
        let numbers = (0..).map(ShardId).zip(&entry.shards);
        let known: Vec<ShardId> =
            numbers.filter(|(_, nodes)| !nodes.is_empty()).map(|(shard, _)| shard).collect();
        let unknown = self.shards.iter().flatten().find(|shard| !known.contains(shard)).copied();
        match (unknown, &self.shards) {
            (Some(shard), _) => Err(ReadError::NoSuchShard { shard, known }),
            (None, Some(chosen)) if chosen.is_empty() => Err(ReadError::NoShards),
            _ => Ok(()),
        }
    }

    pub(crate) fn selection(self) -> Selection {
        Selection {
            speculative: self.speculative,
            filter: self.filter,
            shards: self.shards,
            skips_lost: self.skip_lost,
        }
    }
}

/// An event of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The next record.
    Deliver {
        /// Position.
        position: Position,
        /// Record id.
        id: RecordId,
        /// The appended record.
        record: Record,
        /// Whether the record is predicted and may still fail; only in
        /// [speculative](SubscribeOptions::speculative) subscriptions.
        speculative: bool,
    },
    /// All positions below `upto` are final, with or without records. Sent only to speculative
    /// subscriptions, in every ordering. A subscription confirmed up to the
    /// [tail](crate::Log::check_tail) has received every record below it that its options choose.
    Confirm {
        /// Exclusive bound.
        upto: Position,
    },
    /// Delivered records at `after` or above are void. The records that replace them follow, if
    /// there are any. `after` never lies below a confirmed bound.
    Fail {
        /// The first void position.
        after: Position,
    },
    /// The next records were trimmed; delivery continues at `first`.
    Trimmed {
        /// The first remaining position.
        first: Position,
    },
    /// The shard lost all its records at these positions, an operator accepted the loss, and no
    /// other chosen shard has a record there. Everything below is final and delivered. Sent only
    /// with [`skip_lost`](SubscribeOptions::skip_lost).
    Lost {
        /// The shard; others may have lost records there too.
        shard: ShardId,
        /// The first lost position.
        from: Position,
        /// The position after the last.
        end: Position,
    },
}

/// A subscription. Dropping it ends it.
#[derive(Debug)]
pub struct Subscription {
    commands: mpsc::Sender<Command>,
    handle: u64,
    arrivals: mpsc::Receiver<subscriber::Event>,
    ready: VecDeque<Event>,
    /// Records taken by the application since the last request for more, and their bytes below. A
    /// `Lost` event, or a `Confirm` without new records, counts as a record.
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

    async fn want_more(&mut self) -> Result<(), ReadError> {
        let command = Command::Want { handle: self.handle, records: self.taken, bytes: self.taken_bytes };
        self.commands.send(command).await.map_err(|_| ReadError::Stopped)?;
        (self.taken, self.taken_bytes) = (0, 0);
        Ok(())
    }

    /// The first position that is not yet delivered and final, and the reason, for a program that
    /// waits in [`next`](Self::next). None: the subscription is over.
    pub async fn awaited(&self) -> Option<Awaited> {
        let (waiter, answer) = oneshot::channel();
        self.commands.send(Command::Awaited { handle: self.handle, waiter }).await.ok()?;
        answer.await.ok()
    }

    /// Waits for the next event. None: the end was reached, or an error was returned before.
    /// Cancelling the future loses no event.
    pub async fn next(&mut self) -> Option<Result<Event, ReadError>> {
        loop {
            if self.taken >= WINDOW / 2 || self.taken_bytes >= WINDOW_BYTES / 2 {
                // If the client has stopped, return the received records first; the error follows.
                let _ = self.want_more().await;
            }
            if let Some(event) = self.ready.pop_front() {
                if let Event::Deliver { record, .. } = &event {
                    self.taken += 1;
                    self.taken_bytes += record.memory() as u64;
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
                Some(subscriber::Event::Confirm { upto }) => self.ready.push_back(Event::Confirm { upto }),
                Some(subscriber::Event::Passed { upto }) => {
                    self.taken += 1;
                    self.ready.push_back(Event::Confirm { upto });
                }
                Some(subscriber::Event::Fail { after }) => self.ready.push_back(Event::Fail { after }),
                Some(subscriber::Event::Trimmed { first }) => self.ready.push_back(Event::Trimmed { first }),
                Some(subscriber::Event::Lost { shard, from, end }) => {
                    self.taken += 1;
                    self.ready.push_back(Event::Lost { shard, from, end });
                }
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
