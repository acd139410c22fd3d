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

/// The number of a question of which a machine asks no other: answers come to the machine.
pub(crate) const REQUEST: u64 = 1;
/// How long one of several nodes may take to greet a client before the next one is tried.
const GREET_WITHIN: Duration = Duration::from_secs(2);

/// The options that a client is given when it connects.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// How long an operation may take unless it says otherwise; an append, since it was submitted
    /// or the oldest one of its session that was in flight was acknowledged, whatever was later.
    pub deadline: Duration,
    /// The name of the client, for people who look at a node's connections.
    pub name: String,
    /// Holds back what the client sends, for benchmarks of longer ways.
    pub delay: Option<DelayLine>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        let name = format!("pid {}", std::process::id());
        Self { deadline: Duration::from_secs(10), name, delay: None }
    }
}

impl ClientOptions {
    /// Sets how long an operation may take; see [`ClientOptions::deadline`].
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets what the client calls itself; see [`ClientOptions::name`].
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets how far the nodes are away; see [`ClientOptions::delay`].
    #[must_use]
    pub fn with_delay(self, delay: Option<DelayLine>) -> Self {
        Self { delay, ..self }
    }
}

/// How a log is opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogOptions {
    /// A session of an earlier run to go on with, and the number of its first append that this run
    /// saw no acknowledgement of: from there on the program appends the same records again, in the
    /// same order, and the log stores each once. An append that was refused at once, because it was
    /// too large or its shard takes no records, has no number.
    ///
    /// In a log of order `erwin-st`, `scalog` or `corfu` the old session ends, and what it does not
    /// have yet is appended in a new one, whose name [`Log::session`] and the receipts have. A
    /// program need not keep that: it may go on with the first session for as long as the log
    /// remembers that, and count on from its numbers as if there had been no other. An earlier
    /// run's later appends fail with [`SessionExpired`](crate::AppendError::SessionExpired).
    ///
    /// A log of order `corfu` remembers the last 1,000 sessions that were resumed, and nothing of
    /// others: the client reads what became of appends in the log, from its end back to the last
    /// append that was acknowledged. If that is trimmed already, no replica knows what came after
    /// it, and the run's appends fail with [`SessionExpired`](crate::AppendError::SessionExpired).
    pub resume: Option<(SessionId, u64)>,
    /// For a program that does not mind in which order its appends are in the log: over how many
    /// sessions the client spreads them, so that one does not wait for another. Then the client
    /// appends a record again that did not reach its shard in time, until its deadline, and its
    /// receipt says so ([`Receipt::appended_again`](crate::Receipt::appended_again)): it is in the
    /// log at most once even so. In a log of order `scalog` or `belfast` there is a further session
    /// for each shard that records name, by their keys or otherwise: one session waits for all its
    /// acknowledgements before it goes on at another shard. Nothing for one ordered session, whose
    /// program decides by itself.
    pub unordered: Option<u32>,
    /// Whether the session ends when the last clone of the handle is dropped and nothing is in
    /// flight any more, so that the log need not remember it: for a program that does not
    /// [resume](Self::resume) it. The client tells the log, and does not wait; see
    /// [`Log::end_session`]. The sessions of an [unordered](Self::unordered) handle always end.
    pub ends_when_dropped: bool,
}

/// The most sessions of one handle.
const MAX_SESSIONS: u32 = 256;

impl LogOptions {
    /// Goes on with a session of an earlier run; see [`LogOptions::resume`].
    #[must_use]
    pub fn resume(session: SessionId, number: u64) -> Self {
        Self { resume: Some((session, number)), ..Self::default() }
    }

    /// A session that ends with the handle; see [`LogOptions::ends_when_dropped`].
    #[must_use]
    pub fn ending_when_dropped() -> Self {
        Self { ends_when_dropped: true, ..Self::default() }
    }

    /// Appends without any order among them, spread over so many sessions; see
    /// [`LogOptions::unordered`].
    #[must_use]
    pub fn unordered(sessions: u32) -> Self {
        Self { unordered: Some(sessions), ..Self::default() }
    }
}

/// A node, as the register knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its number.
    pub node: NodeId,
    /// Where it listens.
    pub address: String,
}

impl NodeStatus {
    fn of(NodeAddress { node, address }: NodeAddress) -> Self {
        Self { node, address }
    }
}

/// A log, as its replicas describe it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogStatus {
    /// The register's entry: name, promises, view.
    pub entry: LogEntry,
    /// The largest count of all sequencing replicas, if one answered.
    pub tail: Option<Position>,
    /// The smallest stable bound that a shard's primary knows, if all answered.
    pub stable: Option<Position>,
    /// The largest trim point, if a shard answered.
    pub trim: Option<Position>,
    /// How many sequencing replicas take part.
    pub open: usize,
    /// How many sessions the log remembers.
    pub sessions: u64,
    /// How quotas are, if its shards have any and the leader answered.
    pub windows: Option<WindowStatus>,
}

/// The outcome of asking a log to recover.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Whether the log has a view, and goes on.
    pub done: bool,
    /// Whether going on would lose something.
    pub lost: bool,
    /// Which positions are certain and what may be gone; or what stands in the way.
    pub text: String,
}

/// The view change that a node carried out last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ViewChange {
    /// The view that it registered.
    pub view: ViewNumber,
    /// Each step by its name, and how long before the answer it was done; the first is when the
    /// controller noticed the need for a view.
    pub steps: Vec<(String, Duration)>,
}

/// A connection to a cluster. Cheap to clone; the last clone to go takes the connection with it.
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
    /// Connects to a cluster through any of its nodes, given as `host:port`. The client tries
    /// several addresses, separated by commas, in turn. Once connected, the client learns of the
    /// other nodes, and uses them when this one is lost.
    ///
    /// # Errors
    /// If no program answers there, or not in the way that a node does.
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

    /// Opens a log: a new session for its appends.
    ///
    /// # Errors
    /// If there is no such log, or no node answers in time.
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

    /// The register's entry for a log.
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

    /// Creates a log, and waits until it takes appends. The register creates it once, however often
    /// the client has to ask; but if it is deleted before the first answer is here, the next
    /// question creates a new, empty one.
    ///
    /// # Errors
    /// If the name is taken or is none, if the cluster cannot hold such a log, or no node answers
    /// in time.
    pub async fn create(&self, name: &str, config: LogConfig) -> Result<LogEntry, ControlError> {
        check_log_name(name).map_err(|reason| ControlError::Impossible { reason })?;
        let (asked, request) = (name.to_owned(), random());
        let question =
            move |_| control::Message::Create { request, name: asked.clone(), config: config.clone() };
        self.change_catalog(question).await?;
        let waiting_for = format!("the log '{name}' was created and has no view yet; see: seriatim status");
        self.look_until(name, waiting_for, Awaited::HasView).await
    }

    /// Waits until the register's entry of a log is as wanted.
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

    /// Deletes a log with all its records, for good: the one that has the name now.
    ///
    /// # Errors
    /// If there is no such log, or no node answers in time.
    pub async fn delete(&self, name: &str) -> Result<(), ControlError> {
        let (asked, log) = (name.to_owned(), self.lookup(name).await?.id);
        let question = move |request| control::Message::Delete { request, name: asked.clone(), log };
        self.change_catalog(question).await
    }

    /// Asks the register for a change, and waits until it is done.
    pub(crate) async fn change_catalog(
        &self,
        question: impl Fn(u64) -> control::Message + Send + 'static,
    ) -> Result<(), ControlError> {
        match self.ask_register(question).await? {
            control::Message::Done { .. } => Ok(()),
            other => Err(refused(other)),
        }
    }

    /// All logs in the order of names, and all nodes.
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

    /// The logs and the nodes as far as the nodes know, without the register: of each log the
    /// newest entry that a node has, in the order of names. None if the node that this client is
    /// connected to does not answer within a second.
    pub async fn known(&self) -> Option<(Vec<LogEntry>, Vec<NodeStatus>)> {
        let control = self.inner.control;
        let asking = self.run(LogId(0), move |now, _| Inventory::new(now, control, Options::default()));
        let Known { entries, nodes } = asking.await.flatten()?;
        Some((entries, nodes.into_iter().map(NodeStatus::of).collect()))
    }

    /// Asks the replicas of a log how far they are. Those that do not answer within a second are
    /// left out.
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

    /// Asks what would be lost if a log that is unavailable went on without what no replica holds
    /// any more; with `accept_loss`, lets it go on.
    ///
    /// # Errors
    /// If there is no such log, or no node answers in time.
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

    /// How a node is, by its own word. None if it does not answer within a second.
    pub async fn condition(&self, node: NodeId) -> Option<Condition> {
        let question: Question = Box::new(|request| control::Message::AskCondition { request }.into());
        let answer = self.ask_briefly((node, Endpoint::Node), LogId(0), question).await?;
        let Message::Control(control::Message::ConditionIs { condition, .. }) = answer else { return None };
        Some(condition)
    }

    /// Asks a node for the view change of a log that it carried out last. None if it does not
    /// answer within a second, or carried out none since it was started.
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

    /// The obstacles at present, for an error that a deadline causes.
    pub(crate) async fn obstacles(&self, late: Option<Late>) -> String {
        let (waiter, answer) = oneshot::channel();
        let asked = self.inner.commands.send(Command::Obstacles { late, waiter }).await;
        let answer = if asked.is_ok() { answer.await.ok() } else { None };
        answer.unwrap_or_else(|| "the client was stopped".to_owned())
    }
}

/// Connects to the first of the addresses, separated by commas, at which a node answers.
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
