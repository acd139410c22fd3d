//! The configuration file of a player.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Deserialize;
use seriatim_model::config::check_log_name;
use seriatim_model::{Filter, Position, limits};

use crate::statement::{Dialect, Statement};

/// Most targets of a player.
const MAX_TARGETS: usize = limits::PLAYER_TARGETS;
/// The server that `seriatim` connects to by default.
const DEFAULT_SERVER: &str = "127.0.0.1:7700";
const DEFAULT_MEMORY_MIB: u64 = 256;
/// Permitted memory of all queues, in MiB.
const MEMORY_MIB: std::ops::RangeInclusive<u64> = 16..=1 << 20;
const DEFAULT_APPLY_WITHIN_MS: u64 = 30_000;
/// Permitted times for a batch, in milliseconds.
const APPLY_WITHIN_MS: std::ops::RangeInclusive<u64> = 100..=3_600_000;
const DEFAULT_SEPARATOR: &str = "\n";
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";
const KINDS: &str = "sqlite, file, postgres, grpc, http and log";

/// The configuration of a player.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the log that the player reads.
    pub log: String,
    /// Name of the player. Its control log is `NAME.player`.
    pub name: String,
    /// Address of a node, HOST:PORT.
    pub server: String,
    /// How an entry becomes messages.
    pub map: Map,
    /// Where a new target begins.
    pub from: From,
    /// Whether the player pins the log at its lowest bound.
    pub pin: bool,
    /// Memory of all queues together, in bytes.
    pub queue_memory: u64,
    /// Time in which a target must answer a batch, in milliseconds.
    pub apply_within_ms: u64,
    /// Name of the log for entries that targets reject.
    pub dead_letter: Option<String>,
    /// The targets, in the order of the file. Never empty.
    pub targets: Vec<TargetConfig>,
}

/// How an entry becomes messages.
#[derive(Clone, Debug, PartialEq)]
pub enum Map {
    /// Each entry names its targets, in the format of `seriatim_client::wal`.
    Wal,
    /// Each entry goes to one target, by its key.
    Key,
    /// Routes decide.
    Routes {
        /// The routes, in the order of the file. Never empty.
        routes: Vec<RouteConfig>,
        /// Whether an entry takes all matching routes, and not only the first one.
        all: bool,
    },
}

/// A route to a target.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteConfig {
    /// Id of the target.
    pub to: String,
    /// The entries that take the route. `None` for all entries.
    pub filter: Option<Filter>,
}

/// Where a target without a bound begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// At the log's first entry.
    Start,
    /// At the log's tail.
    Tail,
    /// At a position.
    Position(Position),
}

/// The configuration of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetConfig {
    /// The name under which the target stores its bound.
    pub id: String,
    /// Kind and place.
    pub kind: Kind,
    /// The reaction to a rejected entry.
    pub on_reject: OnReject,
}

/// Kind and place of a target.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A SQLite database.
    Sqlite {
        /// The database.
        path: PathBuf,
        /// The statements that create its tables, run at each attach.
        setup: Option<String>,
        /// The statements for each part, in order. Never empty.
        statements: Vec<Statement>,
    },
    /// A file to which parts are appended.
    File {
        /// The file.
        path: PathBuf,
        /// The text behind each part.
        separator: String,
    },
    /// A PostgreSQL database.
    Postgres {
        /// Address, user and database, without a password.
        url: String,
        /// The statements for each part, in order. Never empty.
        statements: Vec<Statement>,
        /// Where the password is. `None`: in the file that the environment variable `PGPASSFILE`
        /// names; without the variable there is no password.
        password: Option<Secret>,
        /// The authorities that may certify the server. `None` for those of this machine.
        ca_file: Option<PathBuf>,
    },
    /// A service that implements `seriatim.target.v1`.
    Grpc {
        /// Address of the service.
        url: String,
    },
    /// A receiver of HTTP requests.
    Http {
        /// Address of the receiver.
        url: String,
        /// The duties of the receiver.
        contract: Contract,
        /// Where the bearer token is. `None`: requests have no token.
        token: Option<Secret>,
        /// The authorities that may certify the receiver. `None` for those of this machine.
        ca_file: Option<PathBuf>,
    },
    /// Another Seriatim log.
    Log {
        /// Address of a node of its cluster.
        server: String,
        /// Its name.
        log: String,
    },
}

/// The duties of a receiver of HTTP requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contract {
    /// It stores its bound together with the effects.
    Bound,
    /// It drops a request whose key it has seen. The control log keeps the bound.
    Key {
        /// The media type of the parts.
        content_type: String,
    },
}

/// Where a password or a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// In a file of its own. A line feed at its end does not count.
    File(PathBuf),
    /// In an environment variable.
    Variable(String),
}

/// The reaction to a rejected entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnReject {
    /// The target stops until an operator decides.
    #[default]
    Stop,
    /// The player appends the entry to the dead-letter log, and skips it.
    DeadLetter,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    log: String,
    name: Option<String>,
    server: Option<String>,
    map: Option<String>,
    all: Option<bool>,
    from: Option<toml::Value>,
    pin: Option<bool>,
    apply_within_ms: Option<u64>,
    dead_letter: Option<String>,
    #[serde(default)]
    queue: QueueSection,
    #[serde(default)]
    route: Vec<RouteSection>,
    #[serde(default)]
    target: Vec<TargetSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueSection {
    memory_mib: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteSection {
    to: String,
    key_prefix: Option<String>,
    header: Option<HeaderSection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderSection {
    kind: u16,
    #[serde(default)]
    prefix: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetSection {
    id: String,
    kind: String,
    #[serde(default)]
    on_reject: OnReject,
    path: Option<PathBuf>,
    url: Option<String>,
    setup: Option<String>,
    statement: Option<toml::Value>,
    separator: Option<String>,
    password: Option<toml::Value>,
    password_file: Option<PathBuf>,
    password_env: Option<String>,
    ca_file: Option<PathBuf>,
    contract: Option<String>,
    content_type: Option<String>,
    token: Option<toml::Value>,
    token_file: Option<PathBuf>,
    token_env: Option<String>,
    log: Option<String>,
    server: Option<String>,
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// One sentence that begins with the file's path.
    pub fn load(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read the configuration {}: {error}", path.display()))?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, directory).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Parses the text of a configuration file. Relative paths start at `directory`.
    ///
    /// # Errors
    /// One sentence: the mistake, and what to do.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, String> {
        let file: ConfigFile = toml::from_str(text).map_err(|cause| located(text, &cause))?;
        check_log_name(&file.log).map_err(|error| format!("`log`: {error}"))?;
        let name = file.name.unwrap_or_else(|| file.log.clone());
        check_log_name(&name)
            .and_then(|()| check_log_name(&format!("{name}.player")))
            .map_err(|error| format!("`name`: {error} (the control log is {name}.player)"))?;
        let server = file.server.unwrap_or_else(|| DEFAULT_SERVER.into());
        check_address(&server)?;
        let source = Source { log: &file.log, server: &server };
        let from = parse_from(file.from.as_ref())?;
        let memory_mib = file.queue.memory_mib.unwrap_or(DEFAULT_MEMORY_MIB);
        check_range("memory_mib", memory_mib, &MEMORY_MIB)?;
        let apply_within_ms = file.apply_within_ms.unwrap_or(DEFAULT_APPLY_WITHIN_MS);
        check_range("apply_within_ms", apply_within_ms, &APPLY_WITHIN_MS)?;
        let targets = parse_targets(file.target, directory, &source)?;
        let map = parse_map(file.map.as_deref(), file.all, file.route, &targets)?;
        check_dead_letter(file.dead_letter.as_deref(), &file.log, &targets)?;
        Ok(Self {
            log: file.log,
            name,
            server,
            map,
            from,
            pin: file.pin.unwrap_or(false),
            queue_memory: memory_mib << 20,
            apply_within_ms,
            dead_letter: file.dead_letter,
            targets,
        })
    }
}

/// The parser's message with the number of its line.
fn located(text: &str, cause: &toml::de::Error) -> String {
    let message = cause.message().replace('\n', ", ");
    match cause.span().filter(|span| !span.is_empty()) {
        Some(span) => format!("line {}: {message}", text[..span.start].matches('\n').count() + 1),
        None => message,
    }
}

fn check_address(address: &str) -> Result<(), String> {
    let is_valid = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if is_valid {
        return Ok(());
    }
    Err(format!("`server` is '{address}'; it must be HOST:PORT, as in \"{DEFAULT_SERVER}\""))
}

fn check_range(key: &str, value: u64, range: &std::ops::RangeInclusive<u64>) -> Result<(), String> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(format!("`{key}` is {value}; it must be from {} to {}", range.start(), range.end()))
}

fn parse_from(value: Option<&toml::Value>) -> Result<From, String> {
    let wrong = |shown: &toml::Value| {
        format!("`from` is {shown}; it must be \"start\", \"tail\" or a position, as in 1000")
    };
    match value {
        None => Ok(From::Start),
        Some(toml::Value::String(text)) if text == "start" => Ok(From::Start),
        Some(toml::Value::String(text)) if text == "tail" => Ok(From::Tail),
        Some(value @ toml::Value::Integer(number)) => {
            let position = u64::try_from(*number).map(Position).ok();
            let position = position.filter(|position| *position < Position::MAX);
            position.map(From::Position).ok_or_else(|| wrong(value))
        }
        Some(value) => Err(wrong(value)),
    }
}

fn parse_map(
    map: Option<&str>,
    all: Option<bool>,
    routes: Vec<RouteSection>,
    targets: &[TargetConfig],
) -> Result<Map, String> {
    if map.is_some() && !routes.is_empty() {
        return Err("there are both `map` and [[route]]; remove one of them".into());
    }
    if all.is_some() && routes.is_empty() {
        return Err("`all` has a meaning only with [[route]]; remove it".into());
    }
    match map {
        Some("wal") => Ok(Map::Wal),
        Some("key") => Ok(Map::Key),
        Some(other) => Err(format!("`map` is '{other}'; it must be \"wal\" or \"key\"")),
        None if routes.is_empty() => {
            Err("it does not say which entries a target receives; add map = \"key\", map = \"wal\", or a [[route]]"
                .into())
        }
        None => {
            let routes = routes.into_iter().map(|route| parse_route(route, targets)).collect::<Result<_, _>>()?;
            Ok(Map::Routes { routes, all: all.unwrap_or(false) })
        }
    }
}

fn parse_route(route: RouteSection, targets: &[TargetConfig]) -> Result<RouteConfig, String> {
    if !targets.iter().any(|target| target.id == route.to) {
        return Err(format!("a [[route]] leads to '{}', which is no target of this file", route.to));
    }
    let filter = match (route.key_prefix, route.header) {
        (Some(_), Some(_)) => {
            return Err(format!(
                "a [[route]] to '{}' has both `key_prefix` and `header`; use two routes",
                route.to
            ));
        }
        (Some(prefix), None) => Some(Filter::KeyPrefix(prefix.into())),
        (None, Some(HeaderSection { kind, prefix })) => {
            Some(Filter::Header { kind, prefix: Bytes::from(prefix) })
        }
        (None, None) => None,
    };
    Ok(RouteConfig { to: route.to, filter })
}

/// The log that the player reads.
struct Source<'a> {
    log: &'a str,
    server: &'a str,
}

fn parse_targets(
    sections: Vec<TargetSection>,
    directory: &Path,
    source: &Source<'_>,
) -> Result<Vec<TargetConfig>, String> {
    if sections.is_empty() {
        return Err("there is no target; add a [[target]] with `id` and `kind`".into());
    }
    if sections.len() > MAX_TARGETS {
        return Err(format!(
            "there are {} targets, but a player serves at most {MAX_TARGETS}; divide them among several players",
            sections.len()
        ));
    }
    let (mut ids, mut files) = (BTreeSet::new(), BTreeSet::new());
    let mut targets = Vec::with_capacity(sections.len());
    for section in sections {
        let id = section.id.clone();
        check_log_name(&id)
            .map_err(|error| format!("`id`: {}", error.replace("name a log", "name a target")))?;
        if !ids.insert(id.clone()) {
            return Err(format!("two targets have the id '{id}'; each needs an id of its own"));
        }
        let on_reject = section.on_reject;
        let kind =
            parse_kind(section, directory, source).map_err(|error| format!("target '{id}': {error}"))?;
        if let Kind::File { path, .. } = &kind
            && !files.insert(path.clone())
        {
            return Err(format!(
                "target '{id}': another target writes to {}, too; use another path",
                path.display()
            ));
        }
        targets.push(TargetConfig { id, kind, on_reject });
    }
    Ok(targets)
}

fn parse_kind(section: TargetSection, directory: &Path, source: &Source<'_>) -> Result<Kind, String> {
    let keys: &[&str] = match section.kind.as_str() {
        "sqlite" => &["path", "setup", "statement"],
        "file" => &["path", "separator"],
        "postgres" => &["url", "statement", "password_file", "password_env", "ca_file"],
        "grpc" => &["url"],
        "http" => &["url", "contract", "content_type", "token_file", "token_env", "ca_file"],
        "log" => &["log", "server"],
        other => return Err(format!("the kind '{other}' is unknown; the kinds are {KINDS}")),
    };
    if section.password.is_some() {
        return Err(NO_PASSWORD.into());
    }
    if section.token.is_some() {
        return Err(NO_TOKEN.into());
    }
    if let Some(key) = section.keys().find(|key| !keys.contains(key)) {
        let kind = &section.kind;
        return Err(format!("`{key}` has no meaning for the kind {kind}; its keys are {}", keys.join(", ")));
    }
    let path = || section.path.as_ref().map(|path| directory.join(path)).ok_or("`path` is missing");
    let url = || section.url.clone().ok_or("`url` is missing");
    match section.kind.as_str() {
        "sqlite" => {
            let statements = parse_statements(section.statement.as_ref(), Dialect::Sqlite)?;
            Ok(Kind::Sqlite { path: path()?, setup: section.setup.clone(), statements })
        }
        "file" => {
            let separator = section.separator.clone().unwrap_or_else(|| DEFAULT_SEPARATOR.into());
            Ok(Kind::File { path: path()?, separator })
        }
        "postgres" => {
            let url = url()?;
            check_postgres_url(&url, section.ca_file.is_some())?;
            let statements = parse_statements(section.statement.as_ref(), Dialect::Postgres)?;
            let password = parse_secret("password", section.password_file, section.password_env, directory)?;
            let ca_file = section.ca_file.map(|file| directory.join(file));
            Ok(Kind::Postgres { url, statements, password, ca_file })
        }
        "http" => {
            let url = url()?;
            if section.ca_file.is_some() && !url.starts_with("https://") {
                return Err("`ca_file` has a meaning only for TLS; give an https url".into());
            }
            let contract = parse_contract(section.contract.as_deref(), section.content_type)?;
            let token = parse_secret("token", section.token_file, section.token_env, directory)?;
            let ca_file = section.ca_file.map(|file| directory.join(file));
            Ok(Kind::Http { url, contract, token, ca_file })
        }
        "log" => parse_log(section.log, section.server, source),
        _ => Ok(Kind::Grpc { url: url()? }),
    }
}

fn parse_log(log: Option<String>, server: Option<String>, source: &Source<'_>) -> Result<Kind, String> {
    let log = log.ok_or("`log` is missing; it is the name of the log that receives the entries")?;
    check_log_name(&log).map_err(|error| format!("`log`: {error}"))?;
    let server = server.unwrap_or_else(|| source.server.into());
    check_address(&server)?;
    match log == source.log && server == source.server {
        true => Err(format!("`log` is '{log}', the log that the player reads; name another log")),
        false => Ok(Kind::Log { server, log }),
    }
}

fn parse_contract(contract: Option<&str>, content_type: Option<String>) -> Result<Contract, String> {
    match (contract, content_type) {
        (None | Some("bound"), None) => Ok(Contract::Bound),
        (None | Some("bound"), Some(_)) => {
            Err("`content_type` has a meaning only with contract = \"key\"; remove it".into())
        }
        (Some("key"), content_type) => {
            let content_type = content_type.unwrap_or_else(|| DEFAULT_CONTENT_TYPE.into());
            let is_printable = content_type.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            match is_printable && content_type.contains('/') {
                true => Ok(Contract::Key { content_type }),
                false => Err(format!(
                    "`content_type` is '{}'; it must be a media type, as in \"application/json\"",
                    content_type.escape_debug()
                )),
            }
        }
        (Some(other), _) => Err(format!("`contract` is '{other}'; it must be \"bound\" or \"key\"")),
    }
}

/// Where the secret of the keys `NAME_file` and `NAME_env` is.
fn parse_secret(
    name: &str,
    file: Option<PathBuf>,
    variable: Option<String>,
    directory: &Path,
) -> Result<Option<Secret>, String> {
    match (file, variable) {
        (Some(_), Some(_)) => {
            Err(format!("there are both `{name}_file` and `{name}_env`; remove one of them"))
        }
        (Some(file), None) => Ok(Some(Secret::File(directory.join(file)))),
        (None, variable) => Ok(variable.map(Secret::Variable)),
    }
}

/// The error for a password in the file.
const NO_PASSWORD: &str = "there is a password in the configuration; move it into a file of its own that \
    `password_file` names, or into an environment variable that `password_env` names";

/// The error for a token in the file.
const NO_TOKEN: &str = "there is a token in the configuration; move it into a file of its own that \
    `token_file` names, or into an environment variable that `token_env` names";

impl TargetSection {
    /// The present keys besides those of all kinds.
    fn keys(&self) -> impl Iterator<Item = &'static str> {
        [
            ("path", self.path.is_some()),
            ("url", self.url.is_some()),
            ("setup", self.setup.is_some()),
            ("statement", self.statement.is_some()),
            ("separator", self.separator.is_some()),
            ("password_file", self.password_file.is_some()),
            ("password_env", self.password_env.is_some()),
            ("ca_file", self.ca_file.is_some()),
            ("contract", self.contract.is_some()),
            ("content_type", self.content_type.is_some()),
            ("token_file", self.token_file.is_some()),
            ("token_env", self.token_env.is_some()),
            ("log", self.log.is_some()),
            ("server", self.server.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, is_present)| is_present.then_some(key))
    }
}

fn parse_statements(value: Option<&toml::Value>, dialect: Dialect) -> Result<Vec<Statement>, String> {
    let wrong = "`statement` must be SQL in a string, or a list of such strings";
    let texts: Vec<&str> = match value {
        None => return Err("`statement` is missing; it is the SQL that applies an entry".into()),
        Some(toml::Value::String(text)) => vec![text],
        Some(toml::Value::Array(list)) if !list.is_empty() => {
            list.iter().map(|text| text.as_str().ok_or(wrong)).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(wrong.into()),
    };
    texts.into_iter().map(|text| Statement::parse(text, dialect)).collect()
}

#[cfg(feature = "postgres")]
fn check_postgres_url(url: &str, has_ca_file: bool) -> Result<(), String> {
    let parsed: tokio_postgres::Config =
        url.parse().map_err(|error| format!("`url` is not an address of PostgreSQL: {error}"))?;
    if parsed.get_password().is_some() {
        return Err(NO_PASSWORD.into());
    }
    if has_ca_file && parsed.get_ssl_mode() != tokio_postgres::config::SslMode::Require {
        return Err("`ca_file` has a meaning only for TLS; add sslmode=require to `url`".into());
    }
    Ok(())
}

#[cfg(not(feature = "postgres"))]
fn check_postgres_url(_url: &str, _has_ca_file: bool) -> Result<(), String> {
    Err("this program was built without the feature postgres".into())
}

fn check_dead_letter(dead_letter: Option<&str>, log: &str, targets: &[TargetConfig]) -> Result<(), String> {
    let user = targets.iter().find(|target| target.on_reject == OnReject::DeadLetter);
    match (dead_letter, user) {
        (Some(dead_letter), _) if dead_letter == log => {
            Err(format!("`dead_letter` is '{dead_letter}', the log that the player reads; name another log"))
        }
        (Some(dead_letter), _) => {
            check_log_name(dead_letter).map_err(|error| format!("`dead_letter`: {error}"))
        }
        (None, Some(target)) => Err(format!(
            "target '{}' has on_reject = \"dead-letter\"; add `dead_letter`, the name of the log for rejected entries",
            target.id
        )),
        (None, None) => Ok(()),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
