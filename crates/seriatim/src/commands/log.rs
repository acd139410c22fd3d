//! `seriatim log …`: create, list, show, change shards and limits, delete.

use std::collections::BTreeSet;

use serde_json::json;
use seriatim_client::{Client, LogConfig, LogEntry, LogUse, NodeId, Pin, Position, Retention, WindowStatus};
use seriatim_model::{Member, ShardId, limits};

use super::windows;
use crate::arguments::{CreateArguments, LogCommand, age_in_words, bytes_in_words};
use crate::output::{Failure, Outcome, note, print_line};

pub(crate) async fn run(client: &Client, command: LogCommand) -> Outcome {
    match command {
        LogCommand::Create(arguments) => create(client, arguments).await,
        LogCommand::List { json } => {
            let (entries, _) = client.list().await?;
            if json {
                print_line(json!(entries.iter().map(describe).collect::<Vec<_>>()));
            } else {
                for entry in entries {
                    print_line(entry.name);
                }
            }
            Ok(())
        }
        LogCommand::Show { name, json } => {
            let entry = client.lookup(&name).await?;
            let usage = client.log_use(&entry).await;
            let windows = windows_of(client, &entry).await;
            if json {
                print_line(describe_with_use(&entry, &usage, windows.as_ref()));
            } else {
                show(&entry, &usage, windows.as_ref());
            }
            Ok(())
        }
        LogCommand::Set { name, retention } => {
            if retention.is_empty() {
                let limits = "--retain-age, --retain-bytes or --retain-records";
                return Err(Failure::new(format!("nothing to change: give {limits}")));
            }
            let entry = client.set_retention(&name, retention.change()).await?;
            print_line(format_args!("'{name}' keeps {}", keeps(&entry.config.retention)));
            Ok(())
        }
        LogCommand::Pin { name, pin, position, most_bytes } => {
            let log = client.log(&name).await?;
            log.pin(&pin, Position(position), most_bytes).await?;
            let pins = log.pins().await?;
            for pin in pins.iter().filter(|known| known.name == pin) {
                print_line(format_args!("pin '{}' of '{name}' is {}", pin.name, pin_in_words(pin)));
            }
            Ok(())
        }
        LogCommand::Unpin { name, pin } => unpin(client, &name, &pin).await,
        LogCommand::AddShard { name } => {
            let (shard, entry) = client.add_shard(&name).await?;
            let members = entry.view.as_ref().and_then(|view| view.shard(shard));
            let nodes = members.map_or_else(String::new, |members| nodes(&members.replicas));
            print_line(format_args!("shard {shard} of '{name}' takes records, on nodes {nodes}"));
            Ok(())
        }
        LogCommand::RemoveShard { name, shard } => {
            client.remove_shard(&name, ShardId(shard)).await?;
            print_line(format_args!(
                "shard {shard} of '{name}' is closed to new records; its records can be read until they are trimmed"
            ));
            Ok(())
        }
        LogCommand::Delete { name } => Ok(client.delete(&name).await?),
    }
}

async fn unpin(client: &Client, name: &str, pin: &str) -> Outcome {
    let log = client.log(name).await?;
    if !log.pins().await?.iter().any(|known| known.name == pin) {
        return Err(Failure::new(format!("'{name}' has no pin '{pin}'; see: seriatim log show {name}")));
    }
    log.unpin(pin).await?;
    print_line(format_args!("pin '{pin}' of '{name}' is removed"));
    Ok(())
}

/// A pin's position, limit and state, for people.
fn pin_in_words(pin: &Pin) -> String {
    let most = bytes_in_words(pin.most_bytes);
    match pin.is_broken {
        true => format!("broken: the records from position {} on took more than {most}", pin.position),
        false => format!("at position {}, for at most {most}", pin.position),
    }
}

/// The present window of a log with quotas.
async fn windows_of(client: &Client, entry: &LogEntry) -> Option<WindowStatus> {
    if !entry.config.order.has_quotas() {
        return None;
    }
    client.status(entry.clone()).await.windows
}

async fn create(client: &Client, arguments: CreateArguments) -> Outcome {
    let nodes = client.list().await?.1.len() as u32;
    let replicas = arguments.replicas.unwrap_or(3.min(nodes));
    let properties = arguments.order.properties();
    if let Some(count) = arguments.sequencers.filter(|count| *count != 1 && properties.has_one_sequencer) {
        let order = arguments.order;
        return Err(Failure::new(format!("a log of order {order} has one sequencer, not {count}")));
    }
    if arguments.interval.is_some() && !properties.has_cuts {
        return Err(Failure::new(format!("a log of order {} has no ordering interval", arguments.order)));
    }
    if arguments.window.is_some() && !properties.has_quotas {
        let order = arguments.order;
        return Err(Failure::new(format!("a log of order {order} fixes no quotas, so it has no window")));
    }
    if arguments.session_idle_positions.is_some() && !properties.remembers_sessions {
        return Err(Failure::new(format!("a log of order {} remembers no sessions", arguments.order)));
    }
    let sequencers = arguments.sequencers.unwrap_or(3.min(nodes));
    if let Some(least) = arguments.min_replicas.filter(|least| *least > replicas) {
        return Err(Failure::new(format!(
            "--min-replicas {least} is more than the {replicas} replicas of a shard"
        )));
    }
    if let Some(least) = arguments.min_sequencers.filter(|least| *least > sequencers) {
        let text = format!("--min-sequencers {least} is more than the {sequencers} sequencing replicas");
        return Err(Failure::new(text));
    }
    let config = LogConfig {
        order: arguments.order,
        durability: arguments.durability,
        shards: arguments.shards,
        replicas,
        sequencers,
        min_replicas: arguments.min_replicas.unwrap_or(2),
        min_sequencers: arguments.min_sequencers.unwrap_or(2),
        stripe: arguments.stripe,
        max_record_bytes: arguments.max_record_bytes,
        interval_us: arguments.interval.unwrap_or(limits::DEFAULT_INTERVAL_US),
        window: arguments.window.unwrap_or(limits::DEFAULT_WINDOW),
        session_idle_positions: arguments.session_idle_positions.unwrap_or(limits::SESSION_IDLE_POSITIONS),
        retention: arguments.retention.limits(),
    };
    let entry = client.create(&arguments.name, config).await?;
    warn_of_full_disks(client, &entry).await;
    Ok(())
}

/// Warns if the log is created on nodes whose disks are full.
async fn warn_of_full_disks(client: &Client, entry: &LogEntry) {
    let members: BTreeSet<NodeId> =
        entry.sequencers.iter().chain(entry.shards.iter().flatten()).copied().collect();
    let asked: Vec<_> = members
        .into_iter()
        .map(|node| {
            let client = client.clone();
            (node, tokio::spawn(async move { client.condition(node).await }))
        })
        .collect();
    let mut full = vec![];
    for (node, condition) in asked {
        if condition.await.ok().flatten().is_some_and(|condition| condition.has_full_disk) {
            full.push(node.to_string());
        }
    }
    if !full.is_empty() {
        let (nodes, name) = (full.join(", "), &entry.name);
        note(format_args!(
            "warning: '{name}' is created, but the disk of node {nodes} is full: appends may be blocked; see: seriatim status"
        ));
    }
}

fn show(entry: &LogEntry, usage: &LogUse, windows: Option<&WindowStatus>) {
    let config = &entry.config;
    print_line(format_args!("name              {}", entry.name));
    print_line(format_args!("order             {}", config.order));
    print_line(format_args!("durability        {}", config.durability));
    let unit = if config.order.places_by_position() { "positions" } else { "appends of a session" };
    print_line(format_args!("stripe            {} {unit}", config.stripe));
    print_line(format_args!("largest record    {} bytes", config.max_record_bytes));
    if config.order.has_cuts() {
        print_line(format_args!("interval          {} ms", f64::from(config.interval_us) / 1000.0));
    }
    if config.order.has_quotas() {
        print_line(format_args!("window            {} cuts", config.window));
    }
    if config.order.properties().remembers_sessions {
        print_line(format_args!("forgets sessions  after {}", idle_positions(config)));
    }
    print_line(format_args!("keeps             {}", keeps(&config.retention)));
    for pin in &entry.pins {
        print_line(format_args!("pin {:<13} {}", pin.name, pin_in_words(pin)));
    }
    match &entry.view {
        Some(view) => {
            print_line(format_args!("view              {}", view.number));
            print_line(format_args!("leader            node {}", view.leader));
            print_line(format_args!("sequencers        nodes {}", nodes(&view.sequencers)));
            for shard in &view.shards {
                let closed =
                    if view.open_shards().contains(&shard.shard) { "" } else { ", takes no new records" };
                let number = shard.shard.to_string();
                print_line(format_args!("shard {number:<11} nodes {}{closed}", nodes(&shard.replicas)));
            }
            for retired in &view.retired {
                let (number, until) = (retired.shard.to_string(), retired.until);
                let nodes = nodes(&retired.copies().replicas);
                print_line(format_args!(
                    "shard {number:<11} nodes {nodes}, retired; its records lie below {until}"
                ));
            }
        }
        None => print_line("view              none yet"),
    }
    if let Some(windows) = windows {
        print_line(format_args!("quotas            {}", windows::in_words(windows)));
    }
    show_use(usage);
    if let Some(why) = &entry.unavailable {
        print_line(format_args!("unavailable       {why}"));
    }
}

fn idle_positions(config: &LogConfig) -> String {
    let (chosen, counted) = (config.session_idle_positions, config.idle_positions());
    match counted.checked_div(chosen) {
        Some(times) if times > 1 => {
            format!("{counted} positions, {times} times {chosen}: most may be empty")
        }
        _ => format!("{counted} positions"),
    }
}

/// The limits of a log, for people.
fn keeps(limits: &Retention) -> String {
    let mut words = vec![];
    words.extend(limits.age_ms.map(|age| format!("records for {}", age_in_words(age))));
    words.extend(limits.bytes.map(|bytes| format!("at most {}", bytes_in_words(bytes))));
    words.extend(limits.records.map(|records| format!("the last {records} positions")));
    match words.is_empty() {
        true => "everything until it is trimmed".into(),
        false => words.join(", "),
    }
}

fn show_use(usage: &LogUse) {
    let (positions, first) = (usage.stable.since(usage.first), usage.first);
    print_line(format_args!("positions         {positions}, from {first} on, with or without a record"));
    for (node, bytes) in &usage.nodes {
        print_line(format_args!("disk of node {node:<4} {}", bytes_in_words(*bytes)));
    }
    let (all, once) = (bytes_in_words(usage.bytes), bytes_in_words(usage.once));
    print_line(format_args!("disks in all      {all}; each record once {once}"));
    for node in &usage.silent {
        print_line(format_args!("disk of node {node:<4} not known: it does not answer"));
    }
}

fn describe_with_use(entry: &LogEntry, usage: &LogUse, windows: Option<&WindowStatus>) -> serde_json::Value {
    let mut described = describe(entry);
    if let Some(windows) = windows {
        described["window"] = windows::describe(windows);
    }
    let nodes: serde_json::Map<String, serde_json::Value> =
        usage.nodes.iter().map(|(node, bytes)| (node.to_string(), json!(bytes))).collect();
    described["use"] = json!({
        "bytes": usage.bytes,
        "bytes_once": usage.once,
        "bytes_of_nodes": nodes,
        "silent_nodes": usage.silent.iter().map(|node| node.0).collect::<Vec<_>>(),
        "first": usage.first.0,
        "stable": usage.stable.0,
    });
    described
}

fn nodes(members: &[Member]) -> String {
    let nodes: Vec<String> = members.iter().map(|member| member.node.to_string()).collect();
    nodes.join(", ")
}

pub(crate) fn describe(entry: &LogEntry) -> serde_json::Value {
    let config = &entry.config;
    let nodes = |members: &[Member]| members.iter().map(|member| member.node.0).collect::<Vec<_>>();
    json!({
        "name": entry.name,
        "id": entry.id.0,
        "order": config.order.to_string(),
        "durability": config.durability.to_string(),
        "replicas": config.replicas,
        "sequencers": config.sequencers,
        "stripe": config.stripe,
        "max_record_bytes": config.max_record_bytes,
        "session_idle_positions": config.session_idle_positions,
        "session_idle_positions_with_empty": config.idle_positions(),
        "retain_age_ms": config.retention.age_ms,
        "retain_bytes": config.retention.bytes,
        "retain_records": config.retention.records,
        "pins": entry.pins.iter().map(|pin| json!({
            "name": pin.name,
            "position": pin.position.0,
            "most_bytes": pin.most_bytes,
            "broken": pin.is_broken,
        })).collect::<Vec<_>>(),
        "view": entry.view.as_ref().map(|view| json!({
            "number": view.number.0,
            "leader": view.leader.0,
            "sequencers": nodes(&view.sequencers),
            "shards": view.shards.iter().map(|shard| json!({
                "shard": shard.shard.0,
                "nodes": nodes(&shard.replicas),
                "takes_records": view.open_shards().contains(&shard.shard),
            })).collect::<Vec<_>>(),
            "retired": view.retired.iter().map(|retired| json!({
                "shard": retired.shard.0,
                "nodes": nodes(&retired.copies().replicas),
                "until": retired.until.0,
            })).collect::<Vec<_>>(),
        })),
        "unavailable": entry.unavailable,
    })
}

#[cfg(test)]
mod tests {
    use seriatim_client::Order;

    use super::*;

    #[test]
    fn it_is_said_why_a_session_may_be_idle_for_longer_than_was_chosen() {
        let said = |order| {
            idle_positions(&LogConfig { order, session_idle_positions: 1000, ..LogConfig::default() })
        };
        assert_eq!(said(Order::Scalog), "1000 positions");
        assert_eq!(said(Order::Belfast), "64000 positions, 64 times 1000: most may be empty");
    }
}
