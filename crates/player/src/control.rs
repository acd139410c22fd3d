//! The control log of a player: `NAME.player`.
//!
//! It holds one JSON record for each event. A claim's position + 1, plus the base of the claim, is
//! the epoch of the player that made it. The log orders the claims, so the latest player has the
//! highest epoch.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use seriatim_client::{
    AppendError, Client, ControlError, Event as LogEvent, Filter, Log, LogConfig, Position, ReadError,
    SubscribeOptions,
};
use seriatim_delivery::player::{Command, Map, Mapper, Route, Rule, Rules};

pub use crate::kept::{Bookmark, BoundRecord};

/// Silence after which a player counts as ended.
pub const SILENCE: Duration = Duration::from_secs(3);

/// Number of records in the control log above which the player trims it.
const MOST_RECORDS: u64 = 10_000;

/// The process of a player.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Name of the machine.
    pub host: String,
    /// Process number.
    pub process: u32,
}

impl Holder {
    /// This process.
    #[must_use]
    pub fn own() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { host, process: std::process::id() }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.process, self.host)
    }
}

/// A record of the control log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A program asks who plays. The active player answers with its status.
    Hello {
        /// The program.
        from: Holder,
    },
    /// A player starts. Its epoch is `base` + the record's position + 1.
    Claim {
        /// The player.
        holder: Holder,
        /// Added to the position. 0, unless an operator raised it.
        base: u64,
        /// The rules of all targets.
        rules: RulesRecord,
    },
    /// The state of the active player.
    Status(Box<StatusRecord>),
    /// The bound of a target that cannot store it.
    Bound(BoundRecord),
    /// A command of an operator.
    Command {
        /// Id of the target. None: all.
        target: Option<String>,
        /// The command.
        command: CommandRecord,
    },
    /// The outcome of a command.
    Done {
        /// Position of the command.
        command: u64,
        /// Why it was refused. None: it is done.
        error: Option<String>,
    },
    /// A player ended in order.
    Ended {
        /// Its epoch.
        epoch: u64,
    },
}

/// A command, as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "documented at `Command`")]
pub enum CommandRecord {
    Pause,
    Resume,
    Retry,
    Skip { position: u64 },
    DeadLetter { position: u64 },
    Adopt { position: u64 },
}

impl CommandRecord {
    /// The command of the machine.
    #[must_use]
    pub fn command(&self) -> Command {
        match *self {
            Self::Pause => Command::Pause,
            Self::Resume => Command::Resume,
            Self::Retry => Command::Retry,
            Self::Skip { position } => Command::Skip { position: Position(position) },
            Self::DeadLetter { position } => Command::DeadLetter { position: Position(position) },
            Self::Adopt { position } => Command::Adopt { position: Position(position) },
        }
    }
}

/// A route, as recorded. Without a prefix, all entries take it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "documented at `Route`")]
pub struct RouteRecord {
    pub to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<(u16, String)>,
}

/// A mapping, as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "documented at `Map`")]
pub enum MapRecord {
    Wal,
    Key,
    Routes { routes: Vec<RouteRecord>, all: bool },
    Program,
}

/// A rule, as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRecord {
    /// The mapping.
    pub map: MapRecord,
    /// Ids of the targets, in order.
    pub targets: Vec<String>,
}

/// The rules of all targets, as recorded: each rule once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesRecord {
    /// The rules.
    pub rules: Vec<RuleRecord>,
    /// For each target its id, and the first position and the index of each of its rules.
    pub targets: Vec<(String, Vec<(u64, usize)>)>,
}

impl RulesRecord {
    /// The record of these rules.
    #[must_use]
    pub fn of(rules: &[(String, Rules)]) -> Self {
        let mut record = Self::default();
        for (id, rules) in rules {
            let uses = rules.iter().map(|(first, rule)| {
                let rule = rule_record(rule);
                let known = record.rules.iter().position(|other| *other == rule);
                let index = known.unwrap_or_else(|| {
                    record.rules.push(rule);
                    record.rules.len() - 1
                });
                (first.0, index)
            });
            let uses = uses.collect();
            record.targets.push((id.clone(), uses));
        }
        record
    }

    /// The rules. `mapper` is the program's, for rules of a program.
    ///
    /// # Errors
    /// If a rule needs a mapper and there is none, or the record is damaged.
    pub fn rules(&self, mapper: Option<&Arc<dyn Mapper>>) -> Result<Vec<(String, Rules)>, String> {
        let rules = self.rules.iter().map(|rule| rule_of(rule, mapper).map(Arc::new));
        let rules = rules.collect::<Result<Vec<Arc<Rule>>, String>>()?;
        let of_target = |(id, uses): &(String, Vec<(u64, usize)>)| {
            let used = |(first, index): &(u64, usize)| {
                let rule =
                    rules.get(*index).ok_or_else(|| format!("target '{id}' names a rule that is missing"));
                Ok((Position(*first), rule?.clone()))
            };
            Ok((id.clone(), uses.iter().map(used).collect::<Result<Rules, String>>()?))
        };
        self.targets.iter().map(of_target).collect()
    }
}

fn rule_record(rule: &Rule) -> RuleRecord {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let route = |route: &Route| {
        let (key_prefix, header) = match &route.filter {
            None => (None, None),
            Some(Filter::KeyPrefix(prefix)) => (Some(text(prefix)), None),
            Some(Filter::Header { kind, prefix }) => (None, Some((*kind, text(prefix)))),
            Some(other) => unreachable!("no route has such a filter: {other:?}"),
        };
        RouteRecord { to: route.to.clone(), key_prefix, header }
    };
    let map = match &rule.map {
        Map::Wal => MapRecord::Wal,
        Map::Key => MapRecord::Key,
        Map::Routes { routes, all } => {
            MapRecord::Routes { routes: routes.iter().map(route).collect(), all: *all }
        }
        Map::Program(_) => MapRecord::Program,
    };
    RuleRecord { map, targets: rule.targets.clone() }
}

fn rule_of(record: &RuleRecord, mapper: Option<&Arc<dyn Mapper>>) -> Result<Rule, String> {
    let route = |record: &RouteRecord| {
        let by_key = record.key_prefix.clone().map(Filter::key_prefix);
        let by_header = record.header.clone().map(|(kind, prefix)| Filter::header(kind, prefix));
        Route { to: record.to.clone(), filter: by_key.or(by_header) }
    };
    let map = match &record.map {
        MapRecord::Wal => Map::Wal,
        MapRecord::Key => Map::Key,
        MapRecord::Routes { routes, all } => {
            Map::Routes { routes: routes.iter().map(route).collect(), all: *all }
        }
        MapRecord::Program => match mapper {
            Some(mapper) => Map::Program(mapper.clone()),
            None => {
                return Err("an earlier run used a mapper that is compiled into a program; \
                            run that program, or choose another player name"
                    .into());
            }
        },
    };
    Ok(Rule { map, targets: record.targets.clone() })
}

/// The state of one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetRecord {
    /// The target's id.
    pub id: String,
    /// Its state.
    pub state: String,
    /// Everything below is applied.
    pub bound: u64,
    /// Entries of the log that are not applied, whether or not they are for the target.
    pub lag_entries: u64,
    /// Age of the oldest entry that the target lacks, in milliseconds. 0: it lacks none.
    pub lag_ms: u64,
    /// Queued messages.
    pub queued: usize,
    /// Number of sessions since the player's start.
    pub sessions: u64,
    /// Number of rejected messages since the player's start.
    pub rejected: u64,
    /// Whether messages may be delivered more than once, because the target keeps no bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least_once: bool,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The state of a player.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusRecord {
    /// Its process.
    pub holder: Holder,
    /// Its epoch.
    pub epoch: u64,
    /// The base of its claim.
    pub base: u64,
    /// Name of the log.
    pub log: String,
    /// Time of the player's claim, in milliseconds since 1970.
    pub since_ms: u64,
    /// Time of this record, in milliseconds since 1970.
    pub at_ms: u64,
    /// End of the main stream. None: no target has attached yet.
    pub dispatched: Option<u64>,
    /// The log's tail.
    pub tail: u64,
    /// Memory of all queues and of all batches in flight, in bytes.
    pub memory: usize,
    /// The targets.
    pub targets: Vec<TargetRecord>,
    /// Names without target: the number of their messages, and the first position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<(String, u64, u64)>,
    /// Unreadable entries that an operator skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<u64>,
    /// The rules of all targets.
    pub rules: RulesRecord,
    /// Bounds that targets cannot store, each with the position of its record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<(u64, BoundRecord)>,
}

/// Why the control log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ControlLogError {
    /// It cannot be created or opened.
    #[error("the control log '{name}': {cause}")]
    Open {
        /// Its name.
        name: String,
        /// The cause.
        cause: ControlError,
    },
    /// An append failed.
    #[error("the control log '{name}' takes no record: {cause}")]
    Append {
        /// Its name.
        name: String,
        /// The cause.
        cause: AppendError,
    },
    /// It cannot be trimmed.
    #[error("the control log '{name}' cannot be trimmed: {cause}")]
    Trim {
        /// Its name.
        name: String,
        /// The cause.
        cause: ReadError,
    },
    /// It cannot be read.
    #[error("the control log '{name}' cannot be read: {cause}")]
    Read {
        /// Its name.
        name: String,
        /// The cause.
        cause: ReadError,
    },
    /// It does not exist, so no player of this name ever ran.
    #[error(
        "no player '{player}' has ever run on this cluster; start it with: seriatim player run --config FILE"
    )]
    NoPlayer {
        /// Name of the player.
        player: String,
    },
}

/// The control log of one player.
#[derive(Clone, Debug)]
pub struct ControlLog {
    log: Log,
    name: String,
}

impl ControlLog {
    /// Name of a player's control log.
    #[must_use]
    pub fn name_of(player: &str) -> String {
        format!("{player}.player")
    }

    /// Opens the control log, and creates it if it does not exist.
    ///
    /// # Errors
    /// If the cluster cannot create it.
    pub async fn create(client: &Client, player: &str) -> Result<Self, ControlLogError> {
        let name = Self::name_of(player);
        let config = LogConfig { shards: 1, ..LogConfig::default() };
        match client.create(&name, config).await {
            Ok(_) | Err(ControlError::Exists { .. }) => Self::open(client, player).await,
            Err(cause) => Err(ControlLogError::Open { name, cause }),
        }
    }

    /// Opens an existing control log.
    ///
    /// # Errors
    /// If no player of this name ever ran.
    pub async fn open(client: &Client, player: &str) -> Result<Self, ControlLogError> {
        let name = Self::name_of(player);
        match client.log(&name).await {
            Ok(log) => Ok(Self { log, name }),
            Err(ControlError::NoSuchLog { .. }) => Err(ControlLogError::NoPlayer { player: player.into() }),
            Err(cause) => Err(ControlLogError::Open { name, cause }),
        }
    }

    /// Appends an event, and returns its position.
    ///
    /// # Errors
    /// If the log does not acknowledge it in time.
    pub async fn append(&self, event: &Event) -> Result<Position, ControlLogError> {
        let record = serde_json::to_vec(event).expect("an event has a JSON form");
        let appended = self.log.append_sync(record).await;
        appended.map_err(|cause| ControlLogError::Append { name: self.name.clone(), cause })
    }

    /// The events from `from` to `end`, which must be the position of a record or the one after it.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn history(
        &self,
        from: Position,
        end: Position,
    ) -> Result<Vec<(Position, Event)>, ControlLogError> {
        let mut events = self.follow(from, Some(end)).await?;
        let mut history = vec![];
        while let Some(event) = events.next().await? {
            history.push(event);
        }
        Ok(history)
    }

    /// The events from a position on, to an end if there is one.
    ///
    /// # Errors
    /// If the client stopped.
    pub async fn follow(&self, from: Position, end: Option<Position>) -> Result<Events, ControlLogError> {
        let options = SubscribeOptions::default().skip_lost();
        let options = if let Some(end) = end { options.until(end) } else { options };
        let subscribed = self.log.subscribe(from, options).await;
        let subscription =
            subscribed.map_err(|cause| ControlLogError::Read { name: self.name.clone(), cause })?;
        Ok(Events { subscription, name: self.name.clone() })
    }

    /// Trims the log below `position`, the last full status, if it is long. Returns whether it did.
    pub(crate) async fn shorten(&self, first: Position, position: Position) -> Result<bool, ControlLogError> {
        if position.since(first) < MOST_RECORDS {
            return Ok(false);
        }
        match self.log.trim(position).await {
            Ok(()) => Ok(true),
            Err(cause) => Err(ControlLogError::Trim { name: self.name.clone(), cause }),
        }
    }
}

/// Events of a control log, in order. Records of other programs are skipped.
#[derive(Debug)]
pub struct Events {
    subscription: seriatim_client::Subscription,
    name: String,
}

impl Events {
    /// The next status within a time. None: there is none.
    pub(crate) async fn status_within(
        &mut self,
        wait: Duration,
    ) -> Result<Option<StatusRecord>, ControlLogError> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            match tokio::time::timeout_at(deadline, self.next()).await {
                Err(_) => return Ok(None),
                Ok(event) => match event? {
                    Some((_, Event::Status(status))) => return Ok(Some(*status)),
                    Some(_) => {}
                    None => return Ok(None),
                },
            }
        }
    }

    /// The next event. None: the end is reached. Cancelling the future loses no event.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn next(&mut self) -> Result<Option<(Position, Event)>, ControlLogError> {
        loop {
            match self.subscription.next().await {
                None => return Ok(None),
                Some(Err(cause)) => return Err(ControlLogError::Read { name: self.name.clone(), cause }),
                Some(Ok(LogEvent::Deliver { position, record, .. })) => {
                    if let Ok(event) = serde_json::from_slice(&record.payload()) {
                        return Ok(Some((position, event)));
                    }
                }
                Some(Ok(_)) => {}
            }
        }
    }
}

/// Questions for a player's status.
#[derive(Debug)]
pub struct Asking {
    control: ControlLog,
    events: Events,
    last: Option<StatusRecord>,
}

impl Asking {
    /// Asks for the status.
    ///
    /// # Errors
    /// If the control log cannot be used.
    pub async fn start(control: &ControlLog) -> Result<Self, ControlLogError> {
        let asked = control.append(&Event::Hello { from: Holder::own() }).await?;
        let status = |(_, event): (Position, Event)| match event {
            Event::Status(status) => Some(*status),
            _ => None,
        };
        let last =
            control.history(Position::ZERO, asked.next()).await?.into_iter().filter_map(status).next_back();
        let events = control.follow(asked.next(), None).await?;
        Ok(Self { control: control.clone(), events, last })
    }

    /// The status with which an active player answers within [`SILENCE`]. None: none answers.
    ///
    /// # Errors
    /// If the control log cannot be read.
    pub async fn answer(&mut self) -> Result<Option<StatusRecord>, ControlLogError> {
        self.events.status_within(SILENCE).await
    }

    /// The last status before the question. None: no player of this name reported one.
    #[must_use]
    pub fn last(&self) -> Option<StatusRecord> {
        self.last.clone()
    }

    /// The next status. After `wait` without one, it asks again and returns `None`.
    ///
    /// # Errors
    /// If the control log cannot be used.
    pub async fn next(&mut self, wait: Duration) -> Result<Option<StatusRecord>, ControlLogError> {
        let status = self.events.status_within(wait).await?;
        if status.is_none() {
            self.control.append(&Event::Hello { from: Holder::own() }).await?;
        }
        Ok(status)
    }
}
