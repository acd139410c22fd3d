//! `seriatim status`: how everything is.

use serde_json::json;
use seriatim_client::{Client, Condition, LogStatus, NodeStatus, Position};

use crate::output::{Failure, Outcome, print_line};

pub(crate) async fn run(client: &Client, as_json: bool) -> Outcome {
    let (entries, nodes) = client.list().await?;
    let asked = entries.into_iter().map(|entry| {
        let client = client.clone();
        tokio::spawn(async move { client.status(entry).await })
    });
    let (asked, nodes): (Vec<_>, _) = (asked.collect(), conditions(client, nodes).await?);
    let mut logs = vec![];
    for log in asked {
        logs.push(log.await?);
    }
    if as_json {
        let nodes: Vec<_> = nodes.iter().map(describe_node).collect();
        let logs: Vec<_> = logs.iter().map(describe).collect();
        print_line(json!({ "nodes": nodes, "logs": logs }));
        return Ok(());
    }
    let usual_us = usual_write(nodes.iter().filter_map(|(_, condition)| condition.as_ref()));
    for (node, condition) in &nodes {
        print_line(format_args!("node {}  {}{}", node.node, node.address, remark(condition, usual_us)));
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

/// A journal whose writes take so many times as long as is usual in its cluster is worth a word.
const SLOW: u64 = 10;

/// How long journal writes usually take on these nodes, in microseconds: the lower median.
fn usual_write<'a>(conditions: impl Iterator<Item = &'a Condition>) -> u64 {
    let mut times: Vec<u64> =
        conditions.map(|condition| condition.journal_write_us).filter(|us| *us > 0).collect();
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// A remark on a node, for its operator.
fn remark(condition: &Option<Condition>, usual_us: u64) -> String {
    let Some(condition) = condition else { return "  does not answer".into() };
    let mut remark = String::new();
    if condition.has_full_disk {
        let left = condition.free_bytes.map_or(String::new(), |bytes| format!(", {} MiB left", bytes >> 20));
        remark += &format!("  disk full{left}: make room, it takes no records");
    }
    if !condition.suspects.is_empty() {
        let nodes: Vec<String> = condition.suspects.iter().map(ToString::to_string).collect();
        remark += &format!("  takes node {} for gone", nodes.join(", "));
    }
    if usual_us > 0 && condition.journal_write_us >= SLOW * usual_us {
        let (took, times) = (condition.journal_write_us / 1000, condition.journal_write_us / usual_us);
        remark +=
            &format!("  slow disk: a journal write takes {took} ms, {times} times as long as usual here");
    }
    remark
}

fn describe_node((node, condition): &(NodeStatus, Option<Condition>)) -> serde_json::Value {
    let suspects =
        condition.as_ref().map(|condition| condition.suspects.iter().map(|node| node.0).collect::<Vec<_>>());
    json!({
        "node": node.node.0,
        "address": node.address,
        "answers": condition.is_some(),
        "suspects": suspects,
        "wrong_suspicions": condition.as_ref().map(|condition| condition.wrong_suspicions),
        "disk_full": condition.as_ref().map(|condition| condition.has_full_disk),
        "disk_free_bytes": condition.as_ref().and_then(|condition| condition.free_bytes),
        "journal_write_us": condition.as_ref().map(|condition| condition.journal_write_us),
    })
}

/// All nodes, each with what it says of itself if it answers.
async fn conditions(
    client: &Client,
    nodes: Vec<NodeStatus>,
) -> Result<Vec<(NodeStatus, Option<Condition>)>, Failure> {
    let asked = nodes.into_iter().map(|node| {
        let client = client.clone();
        tokio::spawn(async move {
            let condition = client.condition(node.node).await;
            (node, condition)
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

#[cfg(test)]
mod tests {
    use seriatim_client::NodeId;

    use super::*;

    fn takes(journal_write_us: u64) -> Condition {
        Condition { journal_write_us, ..Condition::default() }
    }

    #[test]
    fn a_disk_that_is_ten_times_slower_than_the_others_shows() {
        let all = [takes(9000), takes(700), takes(800)];
        let usual = usual_write(all.iter());
        assert_eq!(usual, 800);
        let slow = "  slow disk: a journal write takes 9 ms, 11 times as long as usual here";
        assert_eq!(remark(&Some(all[0].clone()), usual), slow);
        assert_eq!(remark(&Some(all[1].clone()), usual), "");
        assert_eq!(usual_write([takes(0)].iter()), 0, "nothing was written yet");
    }

    #[test]
    fn a_full_disk_is_named() {
        let full = Condition { has_full_disk: true, free_bytes: Some(3 << 20), ..Condition::default() };
        assert_eq!(remark(&Some(full), 0), "  disk full, 3 MiB left: make room, it takes no records");
    }

    #[test]
    fn silence_and_suspicions_are_named() {
        assert_eq!(remark(&None, 0), "  does not answer");
        let suspects = Condition { suspects: vec![NodeId(2), NodeId(3)], ..Condition::default() };
        assert_eq!(remark(&Some(suspects), 0), "  takes node 2, 3 for gone");
    }
}
