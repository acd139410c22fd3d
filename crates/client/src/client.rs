//! A client: finding, creating and deleting logs.

use std::sync::Arc;
use std::time::Duration;

use rand::random;
use seriatim_model::config::check_log_name;
use seriatim_model::{Endpoint, LogConfig, LogId, NodeId, Position, SessionId, ViewNumber, limits};
use seriatim_net::{Connected, ConnectionOptions, DelayLine, Hello, connect};
use seriatim_protocol::control::{
    self, Awaited, Awaiting, Condition, Inventory, Known, LogEntry, NodeAddress, Poll, Recovered, Refusal,
};
use seriatim_protocol::parts::sequencing::WindowStatus;
use seriatim_protocol::{Message, Options};
use tokio::sync::{mpsc, oneshot};

use crate::engine::{Command, Late, Question, start};
use crate::error::{ConnectError, ControlError};
use crate::log::Log;
use crate::operation::newer;

/// Request number for a machine that asks only one question: replies carry the machine's handle.
pub(crate) const REQUEST: u64 = 1;
/// Time limit for a node's greeting; then the client tries the next address.
const GREET_WITHIN: Duration = Duration::from_secs(2);

/// Options of a client's connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Default time limit of an operation. For an append it restarts when the session's oldest
    /// append in flight is acknowledged.
    pub deadline: Duration,
    /// Client name for operators who inspect a node's connections.
    pub name: String,
    /// Delay of sent messages, for benchmarks.
    pub delay: Option<DelayLine>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        let name = format!("pid {}", std::process::id());
        Self { deadline: Duration::from_secs(10), name, delay: None }
    }
}

impl ClientOptions {
    /// Sets [`ClientOptions::deadline`].
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets [`ClientOptions::name`].
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets [`ClientOptions::delay`].
    #[must_use]
    pub fn with_delay(self, delay: Option<DelayLine>) -> Self {
        Self { delay, ..self }
    }
}

/// Options for opening a log.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogOptions {
    /// Session of an earlier run to resume, and the number of its first unacknowledged append. The
    /// program appends the same records from that number on, in order; the log stores each once. An
    /// append that was rejected at once (too large, or shard closed) has no number.
    ///
    /// In an order `erwin-st`, `scalog`, `belfast` or `corfu` log the old session ends and a new
    /// one appends the missing records; [`Log::session`] and the receipts name the new one. The
    /// program may also resume the first session again and again, with consecutive numbers, while
    /// the log remembers it. Later appends of the earlier run fail with
    /// [`SessionExpired`](crate::AppendError::SessionExpired).
    ///
    /// An order `corfu` log remembers only the last 1,000 resumed sessions. The client looks for
    /// the earlier run's appends in the log, from its end back to the last acknowledged append. If
    /// that append is trimmed, the new run's appends fail with
    /// [`SessionExpired`](crate::AppendError::SessionExpired).
    pub resume: Option<(SessionId, u64)>,
    /// Number of sessions for appends that need no order, 1 to 256. None: one ordered session.
    ///
    /// With `Some`, the client repeats an append that did not reach its shard in time, until the
    /// append's deadline. The record is in the log at most once, and
    /// [`Receipt::appended_again`](crate::Receipt::appended_again) counts the repetitions. With
    /// `None`, such an append fails with [`NotAppended`](crate::AppendError::NotAppended), and the
    /// program decides.
    ///
    /// In an order `scalog` or `belfast` log, `Some` also opens a session per shard that records
    /// name, by key or explicitly: a single session waits for all its acknowledgements before it
    /// appends to another shard.
    pub unordered: Option<u32>,
    /// Whether the session ends, in the background, after the last clone of the handle is dropped
    /// and no append is in flight; see [`Log::end_session`]. For programs that never
    /// [resume](Self::resume) it. Sessions of an [unordered](Self::unordered) handle always end.
    pub ends_when_dropped: bool,
}

const MAX_SESSIONS: u32 = 256;

impl LogOptions {
    /// Resumes a session of an earlier run; see [`LogOptions::resume`].
    #[must_use]
    pub fn resume(session: SessionId, number: u64) -> Self {
        Self { resume: Some((session, number)), ..Self::default() }
    }

    /// Sets [`LogOptions::ends_when_dropped`].
    #[must_use]
    pub fn ending_when_dropped() -> Self {
        Self { ends_when_dropped: true, ..Self::default() }
    }

    /// Sets [`LogOptions::unordered`].
    #[must_use]
    pub fn unordered(sessions: u32) -> Self {
        Self { unordered: Some(sessions), ..Self::default() }
    }
}

/// A node in the register.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Node number.
    pub node: NodeId,
    /// Listen address.
    pub address: String,
}

impl NodeStatus {
    fn of(NodeAddress { node, address }: NodeAddress) -> Self {
        Self { node, address }
    }
}

/// State of a log as its replicas report it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogStatus {
    /// The register's entry: name, promises, view.
    pub entry: LogEntry,
    /// Largest record count that a sequencing replica reports. None: no replica answered.
    pub tail: Option<Position>,
    /// Smallest stable bound of the shards' primaries: all records below it are final. None: a
    /// primary did not answer.
    pub stable: Option<Position>,
    /// Largest trim point. None: no shard answered.
    pub trim: Option<Position>,
    /// Number of open sequencing replicas.
    pub open: usize,
    /// Number of sessions that the log remembers.
    pub sessions: u64,
    /// State of the quotas. None: the log has no quotas, or the leader did not answer.
    pub windows: Option<WindowStatus>,
}

/// Outcome of [`Client::recover`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Whether the log has a view and is available.
    pub done: bool,
    /// Whether resuming the log would lose records.
    pub lost: bool,
    /// For operators: the safe positions and possible losses, or the obstacle.
    pub text: String,
}

/// The most recent view change of a node's controller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ViewChange {
    /// The view that the change registered.
    pub view: ViewNumber,
    /// Each step's name, and how long before this answer it ended. The first step detects the need
    /// for a view.
    pub steps: Vec<(String, Duration)>,
}

/// A connection to a cluster. Cheap to clone; the drop of the last clone closes the connection.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) control: NodeId,
    pub(crate) options: ClientOptions,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("node", &self.inner.control).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to a cluster through any node (`host:port`). Tries several addresses, separated by
    /// commas, in turn. The client then learns the other nodes, and uses them if it loses this one.
    ///
    /// # Errors
    /// If no Seriatim node answers at any address.
    pub async fn connect(address: &str) -> Result<Self, ConnectError> {
        Self::connect_with(address, ClientOptions::default()).await
    }

    /// Connects with options.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_with(address: &str, options: ClientOptions) -> Result<Self, ConnectError> {
        let hello = Hello::client(options.name.clone());
        let connection = ConnectionOptions { delay: options.delay.clone(), ..ConnectionOptions::default() };
        let (address, connected) = connect_to_one(address, &hello, &connection).await?;
        let control = connected.welcome.node;
        let hello = hello.to(connected.welcome.cluster);
        let commands = start(connected, address, hello, connection);
        Ok(Self { inner: Arc::new(Inner { commands, control, options }) })
    }

    /// Opens a log with a new session.
    ///
    /// # Errors
    /// If the log does not exist, or no node answers in time.
    pub async fn log(&self, name: &str) -> Result<Log, ControlError> {
        self.log_with(name, LogOptions::default()).await
    }

    /// Opens a log with options.
    ///
    /// # Errors
    /// As [`Client::log`]; also if the options contradict each other.
    pub async fn log_with(&self, name: &str, options: LogOptions) -> Result<Log, ControlError> {
        let entry = self.lookup(name).await?;
        let is_possible = |(session, number): (SessionId, u64)| {
            session.opened_at() <= Position::MAX && number <= limits::MAX_FIRST
        };
        if !options.resume.is_none_or(is_possible) {
            let reason = "the session is unknown, or has fewer appends than this number; open a new session"
                .to_owned();
            return Err(ControlError::Impossible { reason });
        }
        let sessions = options.unordered.unwrap_or(1);
        if !(1..=MAX_SESSIONS).contains(&sessions) {
            let reason = format!("a handle has 1 to {MAX_SESSIONS} sessions, not {sessions}");
            return Err(ControlError::Impossible { reason });
        }
        if options.unordered.is_some() && options.resume.is_some() {
            let reason = "a resumed session appends in order; open another handle for unordered appends";
            return Err(ControlError::Impossible { reason: reason.to_owned() });
        }
        Log::open(self.clone(), entry, &options).await
    }

    /// Returns the register's entry of a log.
    ///
    /// # Errors
    /// As [`Client::log`].
    pub async fn lookup(&self, name: &str) -> Result<LogEntry, ControlError> {
        check_log_name(name).map_err(|reason| ControlError::Impossible { reason })?;
        let asked = name.to_owned();
        let question = move |request| control::Message::Lookup { request, name: asked.clone() };
        match self.ask_register(question).await? {
            control::Message::Found { entry, .. } => Ok(entry),
            other => Err(refused(other)),
        }
    }

    /// Creates a log and waits until it accepts appends. Idempotent, unless another client deletes
    /// the log before the first answer: a retry then creates a new one.
    ///
    /// # Errors
    /// If the name is taken or invalid, the cluster cannot hold the log, or no node answers in
    /// time.
    pub async fn create(&self, name: &str, config: LogConfig) -> Result<LogEntry, ControlError> {
        check_log_name(name).map_err(|reason| ControlError::Impossible { reason })?;
        let (asked, request) = (name.to_owned(), random());
        let question =
            move |_| control::Message::Create { request, name: asked.clone(), config: config.clone() };
        self.change_catalog(question).await?;
        let waiting_for = format!("the log '{name}' was created and has no view yet; see: seriatim status");
        self.look_until(name, waiting_for, Awaited::HasView).await
    }

    pub(crate) async fn look_until(
        &self,
        name: &str,
        waiting_for: String,
        goal: Awaited,
    ) -> Result<LogEntry, ControlError> {
        let (control, named) = (self.inner.control, name.to_owned());
        let waiting = self.run(LogId(0), move |now, _| Awaiting::new(now, control, named, goal));
        let deadline = self.inner.options.deadline;
        match tokio::time::timeout(deadline, waiting).await {
            Ok(Some(Ok(entry))) => Ok(entry),
            Ok(Some(Err(refusal))) => Err(refused_by(refusal)),
            Ok(None) => Err(ControlError::Stopped),
            Err(_) => Err(ControlError::DeadlineExceeded { seconds: deadline.as_secs_f64(), waiting_for }),
        }
    }

    /// Deletes the log of this name, with all records, permanently.
    ///
    /// # Errors
    /// If the log does not exist, or no node answers in time.
    pub async fn delete(&self, name: &str) -> Result<(), ControlError> {
        let (asked, log) = (name.to_owned(), self.lookup(name).await?.id);
        let question = move |request| control::Message::Delete { request, name: asked.clone(), log };
        self.change_catalog(question).await
    }

    pub(crate) async fn change_catalog(
        &self,
        question: impl Fn(u64) -> control::Message + Send + 'static,
    ) -> Result<(), ControlError> {
        match self.ask_register(question).await? {
            control::Message::Done { .. } => Ok(()),
            other => Err(refused(other)),
        }
    }

    /// All logs, sorted by name, and all nodes.
    ///
    /// # Errors
    /// If no node answers in time.
    pub async fn list(&self) -> Result<(Vec<LogEntry>, Vec<NodeStatus>), ControlError> {
        match self.ask_register(|request| control::Message::List { request }).await? {
            control::Message::Listing { entries, nodes, .. } => {
                Ok((entries, nodes.into_iter().map(NodeStatus::of).collect()))
            }
            other => Err(refused(other)),
        }
    }

    /// Logs (newest known entries, sorted by name) and nodes that the connected node knows without
    /// the register. None: it did not answer within a second.
    pub async fn known(&self) -> Option<(Vec<LogEntry>, Vec<NodeStatus>)> {
        let control = self.inner.control;
        let asking = self.run(LogId(0), move |now, _| Inventory::new(now, control, Options::default()));
        let Known { entries, nodes } = asking.await.flatten()?;
        Some((entries, nodes.into_iter().map(NodeStatus::of).collect()))
    }

    /// State of a log, as reported by its replicas that answer within a second.
    pub async fn status(&self, entry: LogEntry) -> LogStatus {
        let mut told = control::Status::default();
        if let Some(view) = entry.view.clone() {
            let asked = view.clone();
            let polled =
                self.run(entry.id, move |now, _| Poll::new(now, control::Status::questions(&asked, REQUEST)));
            let answers = polled.await.unwrap_or_default();
            told = control::Status::told_by(&answers, &view, Options::default());
        }
        let control::Status { tail, stable, trim, open, sessions, windows } = told;
        LogStatus { entry, tail, stable, trim, open, sessions, windows }
    }

    /// Reports what an unavailable log would lose by resuming without unavailable records. With
    /// `accept_loss`, resumes it.
    ///
    /// # Errors
    /// If the log does not exist, or no node answers in time.
    pub async fn recover(&self, name: &str, accept_loss: bool) -> Result<Recovery, ControlError> {
        let entry = self.lookup(name).await?;
        let timeout = self.inner.options.deadline;
        let asking = self.run(entry.id, move |now, known| {
            let question = (REQUEST, accept_loss);
            control::Recovery::new(now, &newer(entry, known), question, timeout, Options::default())
        });
        if let Some(Recovered { done, lost, text }) = asking.await.ok_or(ControlError::Stopped)? {
            return Ok(Recovery { done, lost, text });
        }
        let waiting_for = format!("a node that hosts a replica of the log '{name}'");
        Err(ControlError::DeadlineExceeded { seconds: timeout.as_secs_f64(), waiting_for })
    }

    /// Self-reported condition of a node. None: no answer within a second.
    pub async fn condition(&self, node: NodeId) -> Option<Condition> {
        let question: Question = Box::new(|request| control::Message::AskCondition { request }.into());
        let answer = self.ask_briefly((node, Endpoint::Node), LogId(0), question).await?;
        let Message::Control(control::Message::ConditionIs { condition, .. }) = answer else { return None };
        Some(condition)
    }

    /// The log's last view change that this node's controller carried out. None: no answer within a
    /// second, or the controller carried out none since the node started.
    pub async fn last_view_change(&self, log: LogId, node: NodeId) -> Option<ViewChange> {
        let question: Question = Box::new(|request| control::Message::LastChange { request }.into());
        let answer = self.ask_briefly((node, Endpoint::Controller), log, question).await?;
        let Message::Control(control::Message::LastChangeIs { view, steps, .. }) = answer else {
            return None;
        };
        let steps = steps.into_iter().map(|step| (step.step, Duration::from_micros(step.micros_ago)));
        (view != ViewNumber::NONE).then(|| ViewChange { view, steps: steps.collect() })
    }

    pub(crate) fn ask_briefly(
        &self,
        to: (NodeId, Endpoint),
        log: LogId,
        question: Question,
    ) -> impl Future<Output = Option<Message>> + Send + use<> {
        let (waiter, answer) = oneshot::channel();
        let commands = self.inner.commands.clone();
        async move {
            commands.send(Command::Ask { to, log, question, waiter }).await.ok()?;
            tokio::time::timeout(Duration::from_secs(1), answer).await.ok()?.ok()
        }
    }

    pub(crate) async fn ask_register(
        &self,
        question: impl Fn(u64) -> control::Message + Send + 'static,
    ) -> Result<control::Message, ControlError> {
        let (waiter, answer) = oneshot::channel();
        let question: Question = Box::new(move |request| question(request).into());
        let to = (self.inner.control, Endpoint::Register);
        let command = Command::Ask { to, log: LogId(0), question, waiter };
        let stopped = |_| ControlError::Stopped;
        self.inner.commands.send(command).await.map_err(|_| ControlError::Stopped)?;
        let deadline = self.inner.options.deadline;
        match tokio::time::timeout(deadline, answer).await {
            Ok(answer) => match answer.map_err(stopped)? {
                Message::Control(message) => Ok(message),
                _ => Err(ControlError::Stopped),
            },
            Err(_) => {
                let waiting_for = self.obstacles(None).await;
                Err(ControlError::DeadlineExceeded { seconds: deadline.as_secs_f64(), waiting_for })
            }
        }
    }

    pub(crate) async fn obstacles(&self, late: Option<Late>) -> String {
        let (waiter, answer) = oneshot::channel();
        let asked = self.inner.commands.send(Command::Obstacles { late, waiter }).await;
        let answer = if asked.is_ok() { answer.await.ok() } else { None };
        answer.unwrap_or_else(|| "the client was stopped".to_owned())
    }
}

async fn connect_to_one<'a>(
    addresses: &'a str,
    hello: &Hello,
    options: &ConnectionOptions,
) -> Result<(&'a str, Connected), ConnectError> {
    let listed: Vec<&str> =
        addresses.split(',').map(str::trim).filter(|address| !address.is_empty()).collect();
    let mut options = options.clone();
    if listed.len() > 1 {
        options.handshake_for = GREET_WITHIN;
    }
    let mut causes = vec![];
    for address in listed {
        match connect(address, hello, &options).await {
            Ok(connected) => return Ok((address, connected)),
            Err(cause) => causes.push(cause),
        }
    }
    if causes.is_empty() {
        return Err(ConnectError::NoAddress(addresses.to_owned()));
    }
    Err(ConnectError::NoNode(causes))
}

pub(crate) fn refused(message: control::Message) -> ControlError {
    match message {
        control::Message::Refused { refusal, .. } => refused_by(refusal),
        _ => ControlError::Impossible { reason: "the register sent an unexpected answer".into() },
    }
}

fn refused_by(refusal: Refusal) -> ControlError {
    match refusal {
        Refusal::NoSuchLog { name } => ControlError::NoSuchLog { name },
        Refusal::Exists { name } => ControlError::Exists { name },
        Refusal::Impossible { reason } => ControlError::Impossible { reason },
    }
}
