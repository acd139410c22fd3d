//! `seriatim status`: how everything is.

use serde_json::json;
use seriatim_client::{Client, LogStatus, NodeStatus, Position};

use crate::output::{Failure, Outcome, print_line};

pub(crate) async fn run(client: &Client, as_json: bool) -> Outcome {
    let (entries, nodes) = client.list().await?;
    let asked = entries.into_iter().map(|entry| {
        let client = client.clone();
        tokio::spawn(async move { client.status(entry).await })
    });
    let (asked, nodes): (Vec<_>, _) = (asked.collect(), who_answers(client, nodes).await?);
    let mut logs = vec![];
    for log in asked {
        logs.push(log.await?);
    }
    if as_json {
        let nodes: Vec<_> = nodes
            .iter()
            .map(
                |(node, answers)| json!({ "node": node.node.0, "address": node.address, "answers": answers }),
            )
            .collect();
        let logs: Vec<_> = logs.iter().map(describe).collect();
        print_line(json!({ "nodes": nodes, "logs": logs }));
        return Ok(());
    }
    for (node, answers) in &nodes {
        let silent = if *answers { "" } else { "  does not answer" };
        print_line(format_args!("node {}  {}{silent}", node.node, node.address));
    }
    if logs.is_empty() {
        print_line("no logs; create one with: seriatim log create NAME");
        return Ok(());
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "log",
        "order",
        "durability",
        "view",
        "sequencers",
        "replicas",
        "first",
        "stable",
        "tail",
        "lag",
        "state",
    ]);
    for log in &logs {
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
            state(log).to_owned(),
        ]);
    }
    print_line(table);
    for log in &logs {
        if let Some(why) = &log.entry.unavailable {
            print_line(format_args!("{}: {why}", log.entry.name));
        }
    }
    Ok(())
}

/// All nodes, each with whether it answers.
async fn who_answers(client: &Client, nodes: Vec<NodeStatus>) -> Result<Vec<(NodeStatus, bool)>, Failure> {
    let asked = nodes.into_iter().map(|node| {
        let client = client.clone();
        tokio::spawn(async move {
            let answers = client.answers(node.node).await;
            (node, answers)
        })
    });
    let mut nodes = vec![];
    for node in asked.collect::<Vec<_>>() {
        nodes.push(node.await?);
    }
    Ok(nodes)
}

/// How many replicas take part of the shard that has the fewest.
fn fewest_replicas(log: &LogStatus) -> usize {
    let shards = log.entry.view.iter().flat_map(|view| &view.shards);
    shards.map(|members| members.replicas.len()).min().unwrap_or(0)
}

fn shown(position: Option<Position>) -> String {
    position.map_or("-".into(), |position| position.to_string())
}

/// How many records are acknowledged and not readable yet.
fn lag(log: &LogStatus) -> Option<u64> {
    Some(log.tail?.since(log.stable?))
}

fn state(log: &LogStatus) -> &'static str {
    let members = log.entry.view.as_ref().map_or(0, |view| view.sequencers.len());
    if log.entry.unavailable.is_some() {
        "unavailable"
    } else if members == 0 || log.open < members {
        "changing view"
    } else if (log.open as u32) < log.entry.config.sequencers
        || (fewest_replicas(log) as u32) < log.entry.config.replicas
    {
        "reduced"
    } else {
        "ok"
    }
}

fn describe(log: &LogStatus) -> serde_json::Value {
    let mut described = super::log::describe(&log.entry);
    let more = json!({
        "first": log.trim.map(|position| position.0),
        "stable": log.stable.map(|position| position.0),
        "tail": log.tail.map(|position| position.0),
        "lag": lag(log),
        "open_sequencers": log.open,
        "fewest_replicas": fewest_replicas(log),
        "sessions": log.sessions,
        "state": state(log),
    });
    if let (Some(described), serde_json::Value::Object(more)) = (described.as_object_mut(), more) {
        described.extend(more);
    }
    described
}
