//! Configuration of one node: the file of `seriatim serve`.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use seriatim_model::NodeId;
use seriatim_model::limits::Limits;
use seriatim_node::{EtcdOptions, NodeOptions, RegisterOptions, ServeOptions};

use crate::arguments::byte_count;

/// Interval between heartbeats, in milliseconds.
const HEARTBEAT_MS: RangeInclusive<u64> = 1..=60_000;
const MISSED: RangeInclusive<u64> = 2..=1000;
/// Time until another node replaces an absent replica, in milliseconds.
const REPLACE_MS: RangeInclusive<u64> = 100..=86_400_000;
/// Time until a shard asks for the name of a held record, in milliseconds.
const ORPHAN_CHECK_MS: RangeInclusive<u64> = 100..=86_400_000;

/// Smallest disk of a node, in bytes: a part for the journal, and a reserve for work that frees
/// space.
const LEAST_DISK_BYTES: u64 = 512 << 20;

/// The parser's message for a removed setting, and the replacement.
const MOVED: (&str, &str) = (
    "unknown field `session_idle_positions`",
    "this is not a node setting any more, because all nodes of a log must use the same number: remove the line, and set \
     it when you create a log, with 'seriatim log create --session-idle-positions N'",
);

/// Why a configuration is invalid: one line with the file, the setting and a valid value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub(crate) struct ConfigError {
    path: PathBuf,
    what: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    id: u32,
    listen: String,
    advertise: Option<String>,
    data: PathBuf,
    max_disk_bytes: Option<ByteCount>,
    register: RegisterSection,
    limits: Option<LimitsSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegisterSection {
    etcd: Option<Vec<String>>,
    cluster: Option<String>,
    embedded: Option<bool>,
    node: Option<u32>,
    address: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsSection {
    ring_bytes: Option<ByteCount>,
    ring_records: Option<u64>,
    batch_records: Option<u64>,
    batch_bytes: Option<ByteCount>,
    heartbeat_every_ms: Option<u64>,
    heartbeats_missed: Option<u64>,
    replace_after_ms: Option<u64>,
    disk_warn_percent: Option<u64>,
    orphan_check_after_ms: Option<u64>,
}

/// Bytes as a number, or as text with a unit such as "10GiB".
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Written")]
struct ByteCount(u64);

#[derive(Deserialize)]
#[serde(untagged, expecting = "give a number of bytes, such as \"10GiB\", \"500MB\" or 1048576")]
enum Written {
    Number(u64),
    Text(String),
}

impl TryFrom<Written> for ByteCount {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => byte_count(&text).map(Self),
        }
    }
}

/// Reads a node's configuration. A relative data directory is beside the file.
pub(crate) fn read(path: &Path) -> Result<ServeOptions, ConfigError> {
    let failed = |what: String| ConfigError { path: path.to_owned(), what };
    let text = std::fs::read_to_string(path).map_err(|cause| failed(cause.to_string()))?;
    let mut options = parse(&text).map_err(failed)?;
    let beside = path.parent().unwrap_or(Path::new(""));
    options.data = beside.join(&options.data);
    Ok(options)
}

/// Parses limits from the command line, each `NAME=NUMBER` or `NAME=SIZE`, as in `[limits]` of a
/// file.
pub(crate) fn limits(given: &[String], usual: Limits) -> Result<Limits, String> {
    let mut text = String::new();
    for setting in given {
        let (name, number) = setting.split_once('=').unwrap_or((setting, ""));
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if !is_name || byte_count(number).is_err() {
            return Err(format!(
                "--limit {}: say NAME=NUMBER, as in heartbeats_missed=50, or NAME=SIZE, as in ring_bytes=16MiB",
                setting.escape_debug()
            ));
        }
        let value =
            number.parse::<u64>().map_or_else(|_| format!("\"{number}\""), |number| number.to_string());
        text += &format!("{name} = {value}\n");
    }
    let section: LimitsSection =
        toml::from_str(&text).map_err(|cause| format!("--limit: {}", cause.message()))?;
    section.limits(usual).map_err(|what| format!("--limit: {what}"))
}

fn parse(text: &str) -> Result<ServeOptions, String> {
    let file: ConfigFile = toml::from_str(text).map_err(|cause| located(text, &cause))?;
    if file.id == 0 {
        return Err("'id' is 0; number the nodes from 1".into());
    }
    check_address("listen", &file.listen, 0)?;
    if let Some(advertise) = &file.advertise {
        check_address("advertise", advertise, 1)?;
    }
    if file.data.as_os_str().is_empty() {
        return Err("'data' is empty; name the directory of the node's data".into());
    }
    let max_disk_bytes = file.max_disk_bytes.map(|ByteCount(most)| most);
    max_disk_bytes.map_or(Ok(()), check_disk_bytes)?;
    let limits = file.limits.unwrap_or_default().limits(Limits::default())?;
    Ok(ServeOptions {
        node: NodeId(file.id),
        listen: file.listen,
        advertise: file.advertise,
        data: file.data,
        register: file.register.options(file.id)?,
        run: NodeOptions { limits, max_disk_bytes, ..NodeOptions::default() },
    })
}

/// The parser's message with the line that it is about.
fn located(text: &str, cause: &toml::de::Error) -> String {
    let (moved, where_to) = MOVED;
    let message = match cause.message().starts_with(moved) {
        true => where_to.to_owned(),
        false => cause.message().replace('\n', ", "),
    };
    let Some(span) = cause.span().filter(|span| !span.is_empty()) else { return message };
    let before = &text[..span.start];
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    format!("line {number}, '{line}': {message}")
}

pub(crate) fn check_disk_bytes(most: u64) -> Result<(), String> {
    if most >= LEAST_DISK_BYTES {
        return Ok(());
    }
    Err(format!(
        "'max_disk_bytes' is {most}; it must be at least {LEAST_DISK_BYTES}, the least that a node needs"
    ))
}

fn check_address(key: &str, address: &str, least_port: u16) -> Result<(), String> {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    match port.and_then(|port| port.parse::<u16>().ok()) {
        Some(port) if port >= least_port => Ok(()),
        _ => Err(format!("'{key}' is '{address}'; it must be HOST:PORT, as in \"10.0.0.1:7700\"")),
    }
}

impl RegisterSection {
    fn options(self, id: u32) -> Result<RegisterOptions, String> {
        match self {
            Self { etcd: Some(endpoints), cluster, embedded: None, node: None, address: None } => {
                etcd(endpoints, cluster)
            }
            Self { etcd: None, cluster: None, embedded: Some(true), node: None, address: None } => {
                Ok(RegisterOptions::Embedded)
            }
            Self { etcd: None, cluster: None, embedded: None, node: Some(node), address: Some(address) } => {
                check_address("register.address", &address, 1)?;
                match node {
                    0 => Err("'register.node' is 0; nodes are numbered from 1".into()),
                    node if node == id => Err(format!(
                        "'register.node' is {id}, which is this node; say 'embedded = true' instead"
                    )),
                    node => Ok(RegisterOptions::Node { node: NodeId(node), address }),
                }
            }
            _ => Err(
                "[register] needs exactly one of: 'etcd' and 'cluster'; 'embedded = true'; 'node' and 'address'"
                    .into(),
            ),
        }
    }
}

fn etcd(endpoints: Vec<String>, cluster: Option<String>) -> Result<RegisterOptions, String> {
    if endpoints.is_empty() {
        return Err("'register.etcd' is empty; list the URLs of etcd's members".into());
    }
    let is_url = |url: &&String| ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    if let Some(other) = endpoints.iter().find(|url| !is_url(url)) {
        return Err(format!(
            "'register.etcd' has '{other}'; it must list URLs, as in [\"http://10.0.0.1:2379\"]"
        ));
    }
    let is_name = |name: &String| seriatim_model::config::is_log_name(name);
    match cluster {
        Some(cluster) if is_name(&cluster) => Ok(RegisterOptions::Etcd(EtcdOptions { endpoints, cluster })),
        Some(cluster) => {
            Err(format!("'register.cluster' is '{cluster}'; use letters, digits, '-', '_' and '.'"))
        }
        None => Err("'register.cluster' is missing; it names this cluster among those in that etcd".into()),
    }
}

impl LimitsSection {
    fn limits(self, usual: Limits) -> Result<Limits, String> {
        let bytes = |count: Option<ByteCount>| count.map(|ByteCount(bytes)| bytes);
        let lowered = |key, value: Option<u64>, usual: usize| {
            within(key, value, 1..=usual as u64).map(|value| value.map_or(usual, |value| value as usize))
        };
        let every = within("heartbeat_every_ms", self.heartbeat_every_ms, HEARTBEAT_MS)?;
        let missed = within("heartbeats_missed", self.heartbeats_missed, MISSED)?;
        let replace_after = within("replace_after_ms", self.replace_after_ms, REPLACE_MS)?;
        let disk_warn = within("disk_warn_percent", self.disk_warn_percent, 0..=100)?;
        let orphan_check_after =
            within("orphan_check_after_ms", self.orphan_check_after_ms, ORPHAN_CHECK_MS)?;
        Ok(Limits {
            ring_bytes: lowered("ring_bytes", bytes(self.ring_bytes), usual.ring_bytes)?,
            ring_records: lowered("ring_records", self.ring_records, usual.ring_records)?,
            largest_ring_records: usual.largest_ring_records,
            batch_records: lowered("batch_records", self.batch_records, usual.batch_records)?,
            batch_bytes: lowered("batch_bytes", bytes(self.batch_bytes), usual.batch_bytes)?,
            max_sessions: usual.max_sessions,
            ended_sessions: usual.ended_sessions,
            disk_low_bytes: usual.disk_low_bytes,
            disk_enough_bytes: usual.disk_enough_bytes,
            disk_warn_percent: disk_warn.unwrap_or(usual.disk_warn_percent),
            heartbeat_every: every.map_or(usual.heartbeat_every, Duration::from_millis),
            probe_after: usual.probe_after,
            unheard_for: usual.unheard_for,
            replace_after: replace_after.map_or(usual.replace_after, Duration::from_millis),
            retire_after: usual.retire_after,
            order_every: usual.order_every,
            orphan_check_after: orphan_check_after.map_or(usual.orphan_check_after, Duration::from_millis),
            missing_connected: usual.missing_connected,
            attempt_for: usual.attempt_for,
            heartbeats_missed: missed.map_or(usual.heartbeats_missed, |missed| missed as u32),
            silence_at_work: usual.silence_at_work,
            map_runs: usual.map_runs,
            waiting_reads: usual.waiting_reads,
            waiting_locates: usual.waiting_locates,
            held_records: usual.held_records,
            void_runs: usual.void_runs,
            journal_backlog_bytes: usual.journal_backlog_bytes,
            retain_every: usual.retain_every,
            retain_every_idle: usual.retain_every_idle,
            forget_after: usual.forget_after,
            forget_every: usual.forget_every,
        })
    }
}

fn within(key: &str, value: Option<u64>, range: RangeInclusive<u64>) -> Result<Option<u64>, String> {
    match value {
        Some(value) if !range.contains(&value) => {
            Err(format!("'limits.{key}' is {value}; it can be from {} to {}", range.start(), range.end()))
        }
        value => Ok(value),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
