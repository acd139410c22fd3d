//! The status of a cluster, for people and programs.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{BinaryBytes, HumanDuration};
use serde_json::{Value, json};
use seriatim_client::{Condition, LogStatus, NodeStatus, Position};

use super::Cluster;
use super::health::{Health, Judgement, LogHealth};
use crate::commands::{log, windows};
use crate::output::print_line;

/// Clears a terminal.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

pub(super) fn print(cluster: &Cluster, judgement: &Judgement, is_watched: bool) {
    if is_watched && io::stdout().is_terminal() {
        print_line(CLEAR);
    }
    if !cluster.has_register {
        print_line("the register does not answer; the nodes report:");
    }
    let mut table = new_table(["node", "address", "state", "roles", "version", "up", "used", "free"]);
    for ((node, condition), health) in cluster.nodes.iter().zip(&judgement.nodes) {
        table.add_row(node_row(node, condition.as_ref(), health));
    }
    print_line(table);
    for ((node, _), health) in cluster.nodes.iter().zip(&judgement.nodes) {
        if !health.reasons.is_empty() {
            print_line(format_args!("node {}: {}", node.node, health.reasons.join("; ")));
        }
    }
    print_line("");
    if cluster.logs.is_empty() {
        print_line("no logs; create one with: seriatim log create NAME");
    } else {
        print_logs(cluster, judgement);
    }
    if is_watched && !io::stdout().is_terminal() {
        print_line("");
    }
}

fn new_table<const COLUMNS: usize>(columns: [&str; COLUMNS]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(columns);
    table
}

fn node_row(node: &NodeStatus, condition: Option<&Condition>, health: &Health) -> [String; 8] {
    let bytes = |bytes: Option<u64>| bytes.map_or("-".into(), |bytes| BinaryBytes(bytes).to_string());
    let told = |value: &dyn Fn(&Condition) -> String| condition.map_or("-".into(), value);
    [
        node.node.to_string(),
        node.address.clone(),
        health.state.to_owned(),
        told(&|condition| roles(condition)),
        told(&|condition| condition.version.clone()),
        told(&|condition| HumanDuration(Duration::from_millis(condition.up_ms)).to_string()),
        bytes(condition.and_then(|condition| condition.used_bytes)),
        bytes(condition.and_then(|condition| condition.free_bytes)),
    ]
}

/// Sequencing replicas and shard replicas of a node.
fn counts(condition: &Condition) -> (usize, usize) {
    let sequencers = condition.logs.iter().filter(|log| log.sequences).count();
    let replicas = condition.logs.iter().map(|log| log.shards.len()).sum();
    (sequencers, replicas)
}

fn roles(condition: &Condition) -> String {
    let (sequencers, replicas) = counts(condition);
    let register = condition.has_register.then(|| "register".to_owned());
    let sequencers = (sequencers > 0).then(|| format!("{sequencers} sequencing"));
    let replicas = (replicas > 0).then(|| format!("{replicas} shard"));
    let all: Vec<String> = [register, sequencers, replicas].into_iter().flatten().collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

fn print_logs(cluster: &Cluster, judgement: &Judgement) {
    let mut table = new_table([
        "log",
        "order",
        "durability",
        "views",
        "sequencers",
        "replicas",
        "first",
        "stable",
        "tail",
        "lag",
        "behind",
        "bytes",
        "state",
    ]);
    for (log, told) in cluster.logs.iter().zip(&judgement.logs) {
        let view = log.entry.view.as_ref();
        table.add_row([
            log.entry.name.clone(),
            log.entry.config.order.to_string(),
            log.entry.config.durability.to_string(),
            view.map_or("-".into(), |view| view.number.to_string()),
            format!("{}/{}", log.open, log.entry.config.sequencers),
            format!("{}/{}", fewest_replicas(log), log.entry.config.replicas),
            shown(log.trim),
            shown(log.stable),
            shown(log.tail),
            lag(log).map_or("-".into(), |lag| lag.to_string()),
            told.lag.map_or("-".into(), lag_in_words),
            told.bytes.map_or("-".into(), |bytes| BinaryBytes(bytes).to_string()),
            told.health.state.to_owned(),
        ]);
    }
    print_line(table);
    for log in &cluster.logs {
        if let Some(windows) = &log.windows {
            print_line(format_args!("{}: {}", log.entry.name, windows::in_words(windows)));
        }
    }
    for (log, told) in cluster.logs.iter().zip(&judgement.logs) {
        if !told.health.reasons.is_empty() {
            print_line(format_args!("{}: {}", log.entry.name, told.health.reasons.join("; ")));
        }
    }
}

/// Replicas of the shard with the fewest.
fn fewest_replicas(log: &LogStatus) -> usize {
    let shards = log.entry.view.iter().flat_map(|view| &view.shards);
    shards.map(|members| members.replicas.len()).min().unwrap_or(0)
}

fn shown(position: Option<Position>) -> String {
    position.map_or("-".into(), |position| position.to_string())
}

/// A lag in milliseconds, or in whole seconds from one second on.
fn lag_in_words(lag: Duration) -> String {
    match lag.as_secs() {
        0 => format!("{} ms", lag.as_millis()),
        seconds => format!("{seconds} s"),
    }
}

/// Acknowledged records that are not readable yet.
fn lag(log: &LogStatus) -> Option<u64> {
    Some(log.tail?.since(log.stable?))
}

pub(super) fn as_json(cluster: &Cluster, judgement: &Judgement) -> Value {
    let nodes = cluster.nodes.iter().zip(&judgement.nodes);
    let nodes: Vec<Value> =
        nodes.map(|((node, condition), health)| describe_node(node, condition, health)).collect();
    let logs: Vec<Value> =
        cluster.logs.iter().zip(&judgement.logs).map(|(log, told)| describe_log(log, told)).collect();
    json!({
        "healthy": judgement.is_well(),
        "register_answers": cluster.has_register,
        "nodes": nodes,
        "logs": logs,
    })
}

fn describe_node(node: &NodeStatus, condition: &Option<Condition>, health: &Health) -> Value {
    let mut described = json!({
        "node": node.node.0,
        "address": node.address,
        "answers": condition.is_some(),
        "state": health.state,
        "reasons": health.reasons,
    });
    let told = match condition {
        None => return described,
        Some(condition) => {
            let (sequencers, replicas) = counts(condition);
            json!({
                "suspects": condition.suspects.iter().map(|node| node.0).collect::<Vec<_>>(),
                "wrong_suspicions": condition.wrong_suspicions,
                "disk_full": condition.has_full_disk,
                "disk_free_bytes": condition.free_bytes,
                "disk_wanted_bytes": condition.wanted_bytes,
                "disk_used_bytes": condition.used_bytes,
                "disk_free_percent": condition.free_percent,
                "disk_full_in_s": condition.full_in_s,
                "journal_write_us": condition.journal_write_us,
                "version": condition.version,
                "up_ms": condition.up_ms,
                "register": condition.has_register,
                "sequencing_replicas": sequencers,
                "shard_replicas": replicas,
            })
        }
    };
    extend(&mut described, told);
    described
}

fn describe_log(log: &LogStatus, told: &LogHealth) -> Value {
    let mut described = log::describe(&log.entry);
    let more = json!({
        "first": log.trim.map(|position| position.0),
        "stable": log.stable.map(|position| position.0),
        "tail": log.tail.map(|position| position.0),
        "lag": lag(log),
        "lag_ms": told.lag.map(|lag| u64::try_from(lag.as_millis()).unwrap_or(u64::MAX)),
        "bytes": told.bytes,
        "open_sequencers": log.open,
        "fewest_replicas": fewest_replicas(log),
        "sessions": log.sessions,
        "state": told.health.state,
        "reasons": told.health.reasons,
    });
    extend(&mut described, more);
    if let Some(windows) = &log.windows {
        extend(&mut described, json!({ "window": windows::describe(windows) }));
    }
    described
}

fn extend(described: &mut Value, more: Value) {
    if let (Some(described), Value::Object(more)) = (described.as_object_mut(), more) {
        described.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_hardly_behind_is_not_said_to_be_by_a_second() {
        let said = |millis| lag_in_words(Duration::from_millis(millis));
        assert_eq!([3, 999, 1000, 1999, 75_000].map(said), ["3 ms", "999 ms", "1 s", "1 s", "75 s"]);
    }
}
