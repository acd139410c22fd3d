//! Records as they become final.

use std::collections::{BTreeSet, VecDeque};

use seriatim_delivery::{Awaited, Selection, subscriber};
use seriatim_model::{Filter, LogEntry, Position, Record, RecordId, ShardId, limits};
use tokio::sync::{mpsc, oneshot};

use crate::engine::Command;
use crate::error::ReadError;

/// How many records wait for the application at most.
pub(crate) const WINDOW: u64 = 8192;
/// How many bytes of records wait for the application, but for the last record.
const WINDOW_BYTES: u64 = limits::SUBSCRIPTION_BYTES;

/// How a subscription is made.
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
    /// The position to stop at; none to go on for ever.
    pub end: Option<Position>,
    /// Whether records are wanted before they are final. [`Event::Confirm`] says up to where they
    /// are, in every ordering; [`Event::Fail`] from where on they are void.
    pub speculative: bool,
    /// Which records are wanted; none: all. The replicas of the shards leave out the others.
    pub filter: Option<Filter>,
    /// The shards whose records are wanted; none: all.
    pub shards: Option<BTreeSet<ShardId>>,
    /// Whether to go on after records that are lost, of which an operator accepted that. Otherwise
    /// the subscription ends there, with an error.
    pub skip_lost: bool,
}

impl SubscribeOptions {
    /// Stops when everything below `end` was delivered, and is final.
    #[must_use]
    pub fn until(self, end: Position) -> Self {
        Self { end: Some(end), ..self }
    }

    /// Delivers records before they are final, as soon as it is known where they will be if no node
    /// that orders is lost.
    #[must_use]
    pub fn speculative(self) -> Self {
        Self { speculative: true, ..self }
    }

    /// Delivers the records that the filter chooses, and no others.
    #[must_use]
    pub fn filter(self, filter: Filter) -> Self {
        Self { filter: Some(filter), ..self }
    }

    /// Delivers the records of these shards, and no others.
    #[must_use]
    pub fn shards(self, numbers: impl IntoIterator<Item = u32>) -> Self {
        Self { shards: Some(numbers.into_iter().map(ShardId).collect()), ..self }
    }

    /// Goes on after records that are lost, and says which they are: [`Event::Lost`].
    #[must_use]
    pub fn skip_lost(self) -> Self {
        Self { skip_lost: true, ..self }
    }

    /// Whether a log can be subscribed to like this.
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
        /// Whether it may still fail. It never does unless that was [asked
        /// for](SubscribeOptions::speculative).
        speculative: bool,
    },
    /// Everything below this position is final: the records that were delivered, and that there are
    /// no others. Comes only to a speculative subscription, and there in every ordering, also for
    /// records that were final from the beginning, and where positions stay without a record. A
    /// subscription that is told the [tail](crate::Log::check_tail), or more, has all that was
    /// there when the tail was asked for.
    Confirm {
        /// The bound.
        upto: Position,
    },
    /// Records that were delivered at this position or above are void: something else stands at
    /// this position, or nothing. What does comes next. It never lies below a bound that was
    /// confirmed.
    Fail {
        /// The first position that is void.
        after: Position,
    },
    /// The records that should have come next were trimmed; delivery goes on at `first`.
    Trimmed {
        /// The first position that is left.
        first: Position,
    },
    /// All that this shard had at these positions is lost, and no other shard of those that are
    /// wanted has a record there: an operator accepted that. Everything below is final, and was
    /// delivered; delivery goes on at `end`. Comes only where that was [asked
    /// for](SubscribeOptions::skip_lost).
    Lost {
        /// The shard. Another shard may have lost records at these positions, too.
        shard: ShardId,
        /// The first of the positions.
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
    /// Records, and their bytes, taken by the application since it last asked for more. A bound
    /// that was told although no record lay below it counts as one, and so does a loss.
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

    /// The position from which on nothing has come that is final, and what is known of why: for a
    /// program that [`next`](Self::next) keeps waiting. Nothing once the subscription is over.
    pub async fn awaited(&self) -> Option<Awaited> {
        let (waiter, answer) = oneshot::channel();
        self.commands.send(Command::Awaited { handle: self.handle, waiter }).await.ok()?;
        answer.await.ok()
    }

    /// The next event; nothing when the end that was asked for is reached, or after an error. Waits
    /// for as long as it takes. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Option<Result<Event, ReadError>> {
        loop {
            if self.taken >= WINDOW / 2 || self.taken_bytes >= WINDOW_BYTES / 2 {
                // If the client was stopped, the program hears of it after the records that have
                // arrived.
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
