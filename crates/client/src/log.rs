//! An open log.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use seriatim_delivery::{Trim, fetch};
use seriatim_model::storage::Stored;
use seriatim_model::{Durability, Position, Record as StoredRecord, RecordId, SessionId, ShardId, limits};
use seriatim_protocol::Options;
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::parts::ShardChoice;
use seriatim_protocol::parts::appending::{Failure, Reply};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::appender::Answer;
use crate::client::{Client, LogOptions};
use crate::engine::{Command, Late};
use crate::error::{AppendError, ControlError, ReadError};
use crate::operation::newer;
use crate::progress::{Progress, answer_within};
use crate::record::Record;
use crate::sessions::{Lanes, OpenShards, Session, Shared};
use crate::subscription::{SubscribeOptions, Subscription, WINDOW};

/// Bytes per permit of `room`, the window of appends in flight.
const UNIT_BYTES: usize = limits::MAX_IN_FLIGHT_BYTES / limits::MAX_IN_FLIGHT;
/// Options of an append.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct AppendOptions {
    /// Whether to wait for the final position.
    pub sync: bool,
    /// Time limit. None: the client's deadline. It restarts when the session's oldest append in
    /// flight is acknowledged.
    pub deadline: Option<Duration>,
    /// Shard for the record, in an order `erwin-st`, `scalog` or `belfast` log. In another order an
    /// append to a fixed shard fails with [`NoChoice`](crate::AppendError::NoChoice).
    pub shard: ShardChoice,
}

impl AppendOptions {
    /// Waits for the final position.
    #[must_use]
    pub fn sync() -> Self {
        Self { sync: true, ..Self::default() }
    }

    /// Sets [`AppendOptions::deadline`].
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Stores the record on this shard; see [`AppendOptions::shard`].
    #[must_use]
    pub fn to_shard(self, number: u32) -> Self {
        Self { shard: ShardChoice::Fixed(ShardId(number)), ..self }
    }
}

/// Result of an acknowledged append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The record id.
    pub id: RecordId,
    /// Durability level.
    pub durability: Durability,
    /// Final position, if the append waited for it.
    pub position: Option<Position>,
    /// Number of repetitions, because the record missed its shard. 0 unless the handle is
    /// [unordered](crate::LogOptions::unordered).
    pub appended_again: u32,
}

/// An open log. Cheap to clone; clones share its sessions.
#[derive(Clone, Debug)]
pub struct Log {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    sessions: Vec<Session>,
    /// Sessions for records that choose their shard. None: such records use `sessions`, too.
    lanes: Option<Lanes>,
    shared: Shared,
    /// Whether the sessions end with the last clone of the handle.
    ends: bool,
    /// Count of submitted appends, by which sessions take turns. None: the handle is ordered.
    unordered: Option<AtomicUsize>,
    entry: LogEntry,
    room: Arc<Semaphore>,
}

impl Inner {
    async fn session(&self, choice: ShardChoice, record: &StoredRecord) -> Session {
        if let Some(lanes) = &self.lanes
            && let Some(session) =
                lanes.session((&self.client, &self.entry), &self.shared, (choice, record)).await
        {
            return session;
        }
        let turn = self.unordered.as_ref().map_or(0, |turn| turn.fetch_add(1, Ordering::Relaxed));
        self.sessions[turn % self.sessions.len()].clone()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // If the command queue is full, the machine stays until the client stops, at little cost.
        let lanes = self.lanes.iter_mut().flat_map(Lanes::handles);
        for handle in self.sessions.iter().map(|session| session.handle).chain(lanes) {
            let close = Command::Close { handle, ends: self.ends };
            let _ = self.client.inner.commands.try_send(close);
        }
    }
}

impl Log {
    pub(crate) async fn open(
        client: Client,
        entry: LogEntry,
        options: &LogOptions,
    ) -> Result<Self, ControlError> {
        let open = Arc::new(OpenShards::new(&entry));
        let shared = Shared { resume: options.resume, open, progress: Arc::new(Progress::default()) };
        let mut sessions = vec![];
        for _ in 0..options.unordered.unwrap_or(1) {
            sessions.push(shared.session(&client, &entry).await.ok_or(ControlError::Stopped)?);
        }
        let has_lanes = options.unordered.is_some() && entry.config.order.has_cuts();
        let lanes = has_lanes.then(Lanes::default);
        let room = Arc::new(Semaphore::new(limits::MAX_IN_FLIGHT));
        let unordered = options.unordered.map(|_| AtomicUsize::new(0));
        let ends = options.ends_when_dropped || options.unordered.is_some();
        Ok(Self { inner: Arc::new(Inner { client, sessions, lanes, shared, ends, unordered, entry, room }) })
    }

    /// Log name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.entry.name
    }

    /// The register's entry when the log was opened.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        &self.inner.entry
    }

    /// Appends a record and waits until it is durable, or, with `sync`, for its final position.
    ///
    /// # Errors
    /// See [`AppendError`]: each error says whether the record may be in the log.
    pub async fn append(
        &self,
        record: impl Into<Record>,
        options: AppendOptions,
    ) -> Result<Receipt, AppendError> {
        self.submit_with(record, options).await?.await
    }

    /// Appends a record and waits for its final position.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub async fn append_sync(&self, record: impl Into<Record>) -> Result<Position, AppendError> {
        let receipt = self.append(record, AppendOptions::sync()).await?;
        Ok(receipt.position.expect("a synchronous append has its position"))
    }

    /// Checks that the record is within the log's limits.
    ///
    /// # Errors
    /// [`TooLarge`](AppendError::TooLarge) or [`HeadersTooLarge`](AppendError::HeadersTooLarge).
    pub fn check(&self, record: &Record) -> Result<(), AppendError> {
        let limit = self.inner.entry.config.max_record_bytes;
        if record.len() > limit as usize {
            return Err(AppendError::TooLarge { size: record.len(), limit });
        }
        if record.overhead() > limits::MAX_RECORD_OVERHEAD_BYTES as usize {
            let limit = limits::MAX_RECORD_OVERHEAD_BYTES;
            return Err(AppendError::HeadersTooLarge { size: record.overhead(), limit });
        }
        Ok(())
    }

    /// Submits a record behind all earlier ones. Waits only for room in the window. The returned
    /// [`Append`] resolves at acknowledgement; dropping it withdraws nothing.
    ///
    /// # Errors
    /// If the record exceeds the log's limits, or if no room becomes free and the oldest appends in
    /// flight get no answer for the duration of the deadline.
    pub async fn submit(&self, record: impl Into<Record>) -> Result<Append, AppendError> {
        self.submit_with(record, AppendOptions::default()).await
    }

    /// Submits a record with options.
    ///
    /// # Errors
    /// As [`Log::submit`].
    pub async fn submit_with(
        &self,
        record: impl Into<Record>,
        options: AppendOptions,
    ) -> Result<Append, AppendError> {
        let record = record.into();
        self.check(&record)?;
        let record = record.stamp();
        let units = record.memory().div_ceil(UNIT_BYTES).min(limits::MAX_IN_FLIGHT) as u32;
        let deadline = options.deadline.unwrap_or(self.inner.client.inner.options.deadline);
        let room = match self.inner.room.clone().try_acquire_many_owned(units) {
            Ok(room) => room,
            Err(_) => {
                let room = self.inner.room.clone().acquire_many_owned(units);
                match answer_within(deadline, &self.inner.shared.progress, room).await {
                    Some(room) => room.map_err(|_| AppendError::Stopped)?,
                    None => return Err(self.too_late(self.first(deadline)).await),
                }
            }
        };
        let (waiter, answer) = oneshot::channel();
        let (sync, shard) = (options.sync, options.shard);
        let session = self.inner.session(shard, &record).await;
        let (handle, submitted) = (session.handle, Instant::now());
        let again_for = self.inner.unordered.as_ref().map_or(Duration::ZERO, |_| deadline);
        let command = Command::Append {
            handle,
            record,
            sync,
            shard,
            submitted: submitted.into_std(),
            again_for,
            waiter,
            room,
        };
        self.inner.client.inner.commands.send(command).await.map_err(|_| AppendError::Stopped)?;
        Ok(Append { log: self.clone(), session, answer, submitted, deadline, state: AppendState::New })
    }

    /// A missed deadline before a session was chosen: reports the obstacles of the first session.
    fn first(&self, within: Duration) -> Late {
        Late { handle: self.inner.sessions[0].handle, within, submitted: None }
    }

    async fn too_late(&self, late: Late) -> AppendError {
        let waiting_for = self.inner.client.obstacles(Some(late)).await;
        AppendError::DeadlineExceeded { seconds: late.within.as_secs_f64(), waiting_for }
    }

    /// The session of this handle and the number of its next append. Opens a session if none is
    /// open. A program that stores both values before it appends can resume; see
    /// [`LogOptions`](crate::LogOptions). None: the deadline passed, or the handle has several
    /// sessions.
    pub async fn session(&self) -> Option<(SessionId, u64)> {
        let [Session { handle, .. }] = self.inner.sessions[..] else { return None };
        if self.inner.lanes.is_some() {
            return None;
        }
        let (waiter, answer) = oneshot::channel();
        let command = Command::Session { handle, waiter };
        self.inner.client.inner.commands.send(command).await.ok()?;
        let deadline = self.inner.client.inner.options.deadline;
        match within(deadline, answer).await {
            Ok(Ok(Reply::Session { session, next })) => Some((session, next)),
            _ => None,
        }
    }

    /// Ends the session after all earlier appends complete; replicas then reject its late messages.
    /// The next append opens a new session. An append submitted during this call may fail.
    ///
    /// # Errors
    /// If a sequencing replica does not confirm in time, or a resumed session has expired.
    pub async fn end_session(&self) -> Result<(), AppendError> {
        let lanes = match &self.inner.lanes {
            Some(lanes) => lanes.all().await,
            None => vec![],
        };
        for session in self.inner.sessions.iter().chain(&lanes) {
            self.end(session).await?;
        }
        Ok(())
    }

    async fn end(&self, session: &Session) -> Result<(), AppendError> {
        let handle = session.handle;
        let (waiter, answer) = oneshot::channel();
        let command = Command::EndSession { handle, waiter };
        self.inner.client.inner.commands.send(command).await.map_err(|_| AppendError::Stopped)?;
        let deadline = self.inner.client.inner.options.deadline;
        let answered = answer_within(deadline, &session.progress, answer).await;
        match answered.map(|answer| answer.map(|answer| answer.reply)) {
            Some(Ok(Reply::Ended(_))) => Ok(()),
            Some(Ok(Reply::Failed(Failure::Deleted(name)))) => Err(AppendError::Deleted(name)),
            Some(Ok(Reply::Failed(Failure::SessionExpired(session)))) => {
                Err(AppendError::SessionExpired(session))
            }
            Some(_) => Err(AppendError::Stopped),
            None => Err(self.too_late(Late { handle, within: deadline, submitted: None }).await),
        }
    }

    /// A bound above the position of every append acknowledged before this call.
    ///
    /// While appends are in flight, it may exceed the last record in an order `erwin-st` or
    /// `erwin-bb` log: replicas with different records count all of them. A later answer may then
    /// be lower, but stays above every append acknowledged before its call. Without appends in
    /// flight the bound is exact.
    ///
    /// # Errors
    /// If a sequencing replica does not answer in time.
    pub async fn check_tail(&self) -> Result<Position, ReadError> {
        let (waiter, answer) = oneshot::channel();
        let command = Command::CheckTail { handle: self.inner.sessions[0].handle, waiter };
        self.inner.client.inner.commands.send(command).await.map_err(|_| ReadError::Stopped)?;
        let deadline = self.inner.client.inner.options.deadline;
        match within(deadline, answer).await {
            Ok(Ok(Reply::Tail(tail))) => Ok(tail),
            Ok(Ok(Reply::Failed(Failure::Deleted(name)))) => Err(ReadError::Deleted(name)),
            Ok(_) => Err(ReadError::Stopped),
            Err(_) => Err(self.read_too_late(deadline).await),
        }
    }

    pub(crate) async fn read_too_late(&self, deadline: Duration) -> ReadError {
        let waiting_for = self.inner.client.obstacles(Some(self.first(deadline))).await;
        ReadError::DeadlineExceeded { seconds: deadline.as_secs_f64(), waiting_for }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.inner.client.inner.options.deadline
    }

    /// Reads at most `max` records from `from` on, skipping empty positions. Waits up to `wait` for
    /// the first; an empty result means that none exists yet.
    ///
    /// # Errors
    /// If `from` is trimmed, or a shard does not answer.
    pub async fn read(&self, from: Position, max: u32, wait: Duration) -> Result<Vec<Stored>, ReadError> {
        let (waiter, answer) = oneshot::channel();
        let answer_within = self.inner.client.inner.options.deadline;
        let request = fetch::Request::Read { from, max, wait, answer_within };
        let control = self.inner.client.inner.control;
        let command = Command::Fetch { control, entry: Box::new(self.inner.entry.clone()), request, waiter };
        self.inner.client.inner.commands.send(command).await.map_err(|_| ReadError::Stopped)?;
        match answer.await {
            Ok(fetch::Reply::Records { records, .. }) => Ok(records),
            Ok(fetch::Reply::Failed(seriatim_delivery::Failure::Trimmed { first })) => {
                Err(ReadError::Trimmed { first })
            }
            Ok(fetch::Reply::Failed(failure)) => Err(failure.into()),
            Err(_) => Err(ReadError::Stopped),
        }
    }

    /// Delivers records from `from` on, in order, as they become final, or as the options say.
    ///
    /// # Errors
    /// If the client stopped, no record can match the filter, or the log never had a chosen shard.
    /// Later failures arrive as events.
    pub async fn subscribe(
        &self,
        from: Position,
        options: SubscribeOptions,
    ) -> Result<Subscription, ReadError> {
        let control = self.inner.client.inner.control;
        options.check(&self.inner.entry)?;
        // The queue's capacity: each record may have a `Confirm` or `Fail` of its own.
        let (events, arrivals) = mpsc::channel(2 * WINDOW as usize + 16);
        let (waiter, opened) = oneshot::channel();
        let commands = self.inner.client.inner.commands.clone();
        let entry = Box::new(self.inner.entry.clone());
        let (end, selection) = (options.end, options.selection());
        let command = Command::Subscribe { control, entry, from, end, selection, events, handle: waiter };
        commands.send(command).await.map_err(|_| ReadError::Stopped)?;
        let handle = opened.await.map_err(|_| ReadError::Stopped)?;
        Subscription::start(commands, handle, arrivals).await
    }

    /// Deletes all records below `position` permanently. Returns after all replicas of the view
    /// confirm. An absent replica learns the trim point when it rejoins a view, and may serve
    /// trimmed records until then.
    ///
    /// # Errors
    /// [`ReadError::Pinned`] if an intact pin lies below the position; the register's answer
    /// decides, so a pin set afterwards does not stop the trim. Otherwise if the position lies past
    /// the tail, or the register or a replica does not answer in time.
    pub async fn trim(&self, position: Position) -> Result<(), ReadError> {
        self.check_pins(position).await?;
        self.trim_despite_pins(position).await
    }

    /// As [`Log::trim`], but ignores pins, and needs no register. The pins stay, and keep the
    /// records that remain.
    ///
    /// # Errors
    /// If the position lies past the tail, or a replica does not confirm in time.
    pub async fn trim_despite_pins(&self, position: Position) -> Result<(), ReadError> {
        let tail = self.check_tail().await?;
        if position > tail {
            return Err(ReadError::PastTail { position, tail });
        }
        let Inner { client, entry, .. } = &*self.inner;
        let deadline = client.inner.options.deadline;
        let (control, entry) = (client.inner.control, entry.clone());
        let trimming = client.run(entry.id, move |now, known| {
            Trim::new(now, control, newer(entry, known), position, Options::default())
        });
        match tokio::time::timeout(deadline, trimming).await {
            Ok(Some(Ok(()))) => Ok(()),
            Ok(Some(Err(seriatim_delivery::Failure::Deleted(name)))) => Err(ReadError::Deleted(name)),
            Ok(Some(Err(failure))) => Err(failure.into()),
            Ok(None) => Err(ReadError::Stopped),
            Err(_) => Err(self.read_too_late(deadline).await),
        }
    }
}

async fn within(
    deadline: Duration,
    answer: oneshot::Receiver<Answer>,
) -> Result<Result<Reply, oneshot::error::RecvError>, tokio::time::error::Elapsed> {
    let answered = tokio::time::timeout(deadline, answer).await?;
    Ok(answered.map(|answer| answer.reply))
}

/// An append in flight. Resolves to its receipt.
#[derive(Debug)]
#[must_use = "an append that is not awaited may fail unnoticed"]
pub struct Append {
    log: Log,
    session: Session,
    answer: oneshot::Receiver<Answer>,
    submitted: Instant,
    /// Time limit since submission, or since the session's last progress.
    deadline: Duration,
    state: AppendState,
}

enum AppendState {
    New,
    Waiting(Pin<Box<tokio::time::Sleep>>),
    TooLate(Pin<Box<dyn Future<Output = AppendError> + Send>>),
}

impl std::fmt::Debug for AppendState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::New => "New",
            Self::Waiting(_) => "Waiting",
            Self::TooLate(_) => "TooLate",
        })
    }
}

impl Future for Append {
    type Output = Result<Receipt, AppendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(context) {
            return Poll::Ready(self.outcome(answer.map(|answer| answer.reply)));
        }
        let this = &mut *self;
        loop {
            match &mut this.state {
                AppendState::New => {
                    // An append that is already acknowledged needs no timer.
                    let sleep = tokio::time::sleep_until(this.submitted + this.deadline);
                    this.state = AppendState::Waiting(Box::pin(sleep));
                }
                AppendState::Waiting(sleep) => {
                    if sleep.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    let later = this.session.progress.advanced_at() + this.deadline;
                    if later > sleep.deadline() {
                        sleep.as_mut().reset(later);
                        continue;
                    }
                    let (log, handle, within) = (this.log.clone(), this.session.handle, this.deadline);
                    let late = Late { handle, within, submitted: Some(this.submitted.into_std()) };
                    this.state = AppendState::TooLate(Box::pin(async move { log.too_late(late).await }));
                }
                AppendState::TooLate(why) => return why.as_mut().poll(context).map(Err),
            }
        }
    }
}

impl Append {
    fn outcome(&self, answer: Result<Reply, oneshot::error::RecvError>) -> Result<Receipt, AppendError> {
        let durability = self.log.inner.entry.config.durability;
        match answer {
            Ok(Reply::Appended { id, position, again }) => {
                Ok(Receipt { id, durability, position, appended_again: again })
            }
            Ok(Reply::Failed(Failure::SessionExpired(session))) => Err(AppendError::SessionExpired(session)),
            Ok(Reply::Failed(Failure::TooLarge { limit })) => {
                Err(AppendError::TooLarge { size: limit as usize + 1, limit })
            }
            Ok(Reply::Failed(Failure::Stale(_))) => Err(AppendError::AppendedBefore),
            Ok(Reply::Failed(Failure::NotAppended(_))) => Err(AppendError::NotAppended),
            Ok(Reply::Failed(Failure::NoSuchShard { shard, open })) => {
                Err(AppendError::NoSuchShard { shard, open })
            }
            Ok(Reply::Failed(Failure::NoChoice(order))) => Err(AppendError::NoChoice(order)),
            Ok(Reply::Failed(Failure::Deleted(name))) => Err(AppendError::Deleted(name)),
            Ok(Reply::Tail(_) | Reply::Session { .. } | Reply::Ended(_)) | Err(_) => {
                Err(AppendError::Stopped)
            }
        }
    }
}
