//! A client: finding, creating and deleting logs.

use std::sync::Arc;
use std::time::Duration;

use seriatim_model::config::check_log_name;
use seriatim_model::{Endpoint, LogConfig, LogId, NodeId, Position, SessionId};
use seriatim_net::{ConnectionOptions, Hello, connect};
use seriatim_protocol::control::{self, LogEntry, NodeAddress, Refusal};
use seriatim_protocol::{Message, erwin, shard};
use tokio::sync::{mpsc, oneshot};

use crate::engine::{Command, Question, start};
use crate::error::{ConnectError, ControlError};
use crate::log::Log;

/// How often a log that was just created is looked at until it has its first view.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a client is told when it connects.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// How long an operation may take unless it says otherwise.
    pub deadline: Duration,
    /// What the client calls itself, for people who look at a node's connections.
    pub name: String,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), name: format!("pid {}", std::process::id()) }
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
}

/// How a log is opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogOptions {
    /// A session of an earlier run to go on with, and the number of its first append that was not seen
    /// acknowledged: from there on the same records are to be appended again, and are stored once.
    pub resume: Option<(SessionId, u64)>,
}

impl LogOptions {
    /// Goes on with a session of an earlier run; see [`LogOptions::resume`].
    #[must_use]
    pub fn resume(session: SessionId, number: u64) -> Self {
        Self { resume: Some((session, number)) }
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
    /// Connects to a cluster through any of its nodes, given as `host:port`.
    ///
    /// # Errors
    /// If nobody answers there, or not in the way that a node does.
    pub async fn connect(address: &str) -> Result<Self, ConnectError> {
        Self::connect_with(address, ClientOptions::default()).await
    }

    /// Connects with options.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_with(address: &str, options: ClientOptions) -> Result<Self, ConnectError> {
        let hello = Hello::client(options.name.clone());
        let connected = connect(address, &hello, &ConnectionOptions::default()).await?;
        let control = connected.welcome.node;
        let hello = hello.to(connected.welcome.cluster);
        let commands = start(connected, address, hello);
        Ok(Self { inner: Arc::new(Inner { commands, control, options }) })
    }

    /// Opens a log: a new session for its appends.
    ///
    /// # Errors
    /// If there is no such log, or nobody answers in time.
    pub async fn log(&self, name: &str) -> Result<Log, ControlError> {
        self.log_with(name, LogOptions::default()).await
    }

    /// Opens a log with options.
    ///
    /// # Errors
    /// As [`Client::log`].
    pub async fn log_with(&self, name: &str, options: LogOptions) -> Result<Log, ControlError> {
        let entry = self.lookup(name).await?;
        Log::open(self.clone(), entry, options.resume).await
    }

    /// What the register says about a log.
    ///
    /// # Errors
    /// As [`Client::log`].
    pub async fn lookup(&self, name: &str) -> Result<LogEntry, ControlError> {
        check_log_name(name).map_err(|reason| ControlError::Impossible { reason })?;
        let asked = name.to_owned();
        let question = move |request| control::Message::Lookup { request, name: asked.clone() };
        match self.ask_register(question, true).await? {
            control::Message::Found { entry, .. } => Ok(entry),
            other => Err(refused(other)),
        }
    }

    /// Creates a log, and waits until it can be appended to.
    ///
    /// # Errors
    /// If the name is taken or is none, if the cluster cannot hold such a log, or nobody answers in time.
    pub async fn create(&self, name: &str, config: LogConfig) -> Result<LogEntry, ControlError> {
        check_log_name(name).map_err(|reason| ControlError::Impossible { reason })?;
        let asked = name.to_owned();
        let question =
            move |request| control::Message::Create { request, name: asked.clone(), config: config.clone() };
        match self.ask_register(question, false).await? {
            control::Message::Done { .. } => {}
            other => return Err(refused(other)),
        }
        let formed = async {
            let mut look = tokio::time::interval(LOOK_EVERY);
            loop {
                look.tick().await;
                let entry = self.lookup(name).await?;
                if entry.view.is_some() {
                    return Ok(entry);
                }
            }
        };
        let deadline = self.inner.options.deadline;
        tokio::time::timeout(deadline, formed).await.unwrap_or_else(|_| {
            let waiting_for =
                format!("the log '{name}' was created and has no view yet; see: seriatim status");
            Err(ControlError::DeadlineExceeded { seconds: deadline.as_secs_f64(), waiting_for })
        })
    }

    /// Deletes a log with all its records, for good.
    ///
    /// # Errors
    /// If there is no such log, or nobody answers in time.
    pub async fn delete(&self, name: &str) -> Result<(), ControlError> {
        check_log_name(name).map_err(|reason| ControlError::Impossible { reason })?;
        let asked = name.to_owned();
        let question = move |request| control::Message::Delete { request, name: asked.clone() };
        match self.ask_register(question, false).await? {
            control::Message::Done { .. } => Ok(()),
            other => Err(refused(other)),
        }
    }

    /// All logs in the order of names, and all nodes.
    ///
    /// # Errors
    /// If nobody answers in time.
    pub async fn list(&self) -> Result<(Vec<LogEntry>, Vec<NodeStatus>), ControlError> {
        match self.ask_register(|request| control::Message::List { request }, true).await? {
            control::Message::Listing { entries, nodes, .. } => {
                let node = |NodeAddress { node, address }| NodeStatus { node, address };
                Ok((entries, nodes.into_iter().map(node).collect()))
            }
            other => Err(refused(other)),
        }
    }

    /// Asks the replicas of a log how far they are. Those that do not answer within a second are left out.
    pub async fn status(&self, entry: LogEntry) -> LogStatus {
        let mut status = LogStatus { entry, tail: None, stable: None, trim: None, open: 0, sessions: 0 };
        let Some(view) = status.entry.view.clone() else { return status };
        let log = status.entry.id;
        let sequencers = view.sequencers.iter().map(|member| {
            let question: Question = Box::new(|request| erwin::Message::Status { request }.into());
            self.ask_briefly((member.node, Endpoint::Sequencer), log, question)
        });
        let primaries = view.shards.iter().map(|members| {
            let question: Question = Box::new(|request| shard::Message::Status { request }.into());
            self.ask_briefly((members.primary().node, Endpoint::Shard(members.shard)), log, question)
        });
        let answers = sequencers.chain(primaries).map(tokio::spawn).collect::<Vec<_>>();
        let mut stable = Some(Position(u64::MAX)).filter(|_| !view.shards.is_empty());
        let mut shards = 0;
        for answer in answers {
            match answer.await {
                Ok(Some(Message::Erwin(erwin::Message::StatusIs {
                    open, ordered, held, sessions, ..
                }))) => {
                    status.open += usize::from(open);
                    status.tail = status.tail.max(Some(ordered + held));
                    status.sessions = status.sessions.max(sessions);
                }
                Ok(Some(Message::Shard(shard::Message::StatusIs { stable: known, trim, .. }))) => {
                    shards += 1;
                    stable = stable.min(Some(known));
                    status.trim = status.trim.max(Some(trim));
                }
                _ => {}
            }
        }
        status.stable = stable.filter(|_| shards == view.shards.len());
        status
    }

    fn ask_briefly(
        &self,
        to: (NodeId, Endpoint),
        log: LogId,
        question: Question,
    ) -> impl Future<Output = Option<Message>> + Send + use<> {
        let (waiter, answer) = oneshot::channel();
        let commands = self.inner.commands.clone();
        async move {
            commands.send(Command::Ask { to, log, question, again: true, waiter }).await.ok()?;
            tokio::time::timeout(Duration::from_secs(1), answer).await.ok()?.ok()
        }
    }

    async fn ask_register(
        &self,
        question: impl Fn(u64) -> control::Message + Send + 'static,
        again: bool,
    ) -> Result<control::Message, ControlError> {
        let (waiter, answer) = oneshot::channel();
        let question: Question = Box::new(move |request| question(request).into());
        let to = (self.inner.control, Endpoint::Register);
        let command = Command::Ask { to, log: LogId(0), question, again, waiter };
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

    /// What stands in the way at present, for an error that a deadline causes.
    pub(crate) async fn obstacles(&self, handle: Option<u64>) -> String {
        let (waiter, answer) = oneshot::channel();
        let asked = self.inner.commands.send(Command::Obstacles { handle, waiter }).await;
        let answer = if asked.is_ok() { answer.await.ok() } else { None };
        answer.unwrap_or_else(|| "the client was stopped".to_owned())
    }
}

fn refused(message: control::Message) -> ControlError {
    match message {
        control::Message::Refused { refusal: Refusal::NoSuchLog { name }, .. } => {
            ControlError::NoSuchLog { name }
        }
        control::Message::Refused { refusal: Refusal::Exists { name }, .. } => ControlError::Exists { name },
        control::Message::Refused { refusal: Refusal::Impossible { reason }, .. } => {
            ControlError::Impossible { reason }
        }
        _ => {
            ControlError::Impossible { reason: "the register gave an answer that makes no sense here".into() }
        }
    }
}
