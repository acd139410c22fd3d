//! `seriatim admin drain` and `replace`: other nodes take over all roles of a node.

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_client::{Client, LogEntry, NodeId, PartingChange, parting};
use tokio::time::MissedTickBehavior;

use crate::output::{Failure, Outcome, print_line};

/// Interval between looks at the progress.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Most obstacles that a message names.
const NAMED: usize = 3;
/// Consecutive looks with an obstacle before the command fails: a node that starts is down for a
/// moment.
const STUCK_AFTER: u32 = 8;

/// Drains a node, in favour of the node `by` if there is one. Waits for the end unless `no_wait`.
pub(super) async fn run(client: &Client, node: NodeId, by: Option<NodeId>, no_wait: bool) -> Outcome {
    client.part(node, PartingChange::Drain { by }).await?;
    if no_wait {
        print_line(format_args!("node {node} is draining; for its progress: seriatim status"));
        return Ok(());
    }
    let all = left(client, node).await?.0.len();
    let (mut told, mut stuck) = (None, 0);
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let (left, nodes) = left(client, node).await?;
        let all = all.max(left.len());
        if left.is_empty() {
            break;
        }
        if told != Some(left.len()) {
            print_line(format_args!("{} of {all} logs moved", all - left.len()));
            (told, stuck) = (Some(left.len()), 0);
        }
        let there = able(client, &nodes).await?;
        let reasons: Vec<String> =
            left.iter().filter_map(|entry| obstacle(entry, node, by, &there)).collect();
        stuck = if reasons.is_empty() { 0 } else { stuck + 1 };
        if stuck >= STUCK_AFTER {
            return Err(cannot_go(node, &reasons));
        }
    }
    let done = match by {
        None => format!("node {node} is fully drained"),
        Some(by) => format!("node {by} has replaced node {node}"),
    };
    print_line(format_args!("{done}. Stop node {node}, then run: seriatim admin remove {node}"));
    Ok(())
}

/// The logs with roles on `node`, and all nodes.
async fn left(client: &Client, node: NodeId) -> Result<(Vec<LogEntry>, Vec<NodeId>), Failure> {
    let (entries, nodes) = client.list().await?;
    let left = entries.into_iter().filter(|entry| !parting::is_rid_of(entry, node)).collect();
    Ok((left, nodes.into_iter().map(|node| node.node).collect()))
}

/// The responding nodes that stay and have room.
async fn able(client: &Client, nodes: &[NodeId]) -> Result<BTreeSet<NodeId>, Failure> {
    let partings = client.partings().await?;
    let asked = nodes.iter().copied().filter(|node| !partings.contains_key(node)).map(|node| {
        let client = client.clone();
        tokio::spawn(async move {
            let condition = client.condition(node).await;
            condition.filter(|condition| !condition.has_full_disk).map(|_| node)
        })
    });
    let mut able = BTreeSet::new();
    for node in asked.collect::<Vec<_>>() {
        able.extend(node.await?);
    }
    Ok(able)
}

/// The obstacle to draining `node` from a log. It lasts until another condition changes. `able`
/// nodes stay, respond and have room.
pub(in crate::commands) fn obstacle(
    entry: &LogEntry,
    node: NodeId,
    by: Option<NodeId>,
    able: &BTreeSet<NodeId>,
) -> Option<String> {
    let name = &entry.name;
    if let Some(why) = &entry.unavailable {
        return Some(format!("log '{name}' has no active view: {why}"));
    }
    if let Some(retired) = parting::retired_shard_on(entry, node) {
        let (shard, end) = (retired.shard, retired.ends(&entry.history));
        return Some(format!(
            "log '{name}' has records of its retired shard {shard} on node {node}, which no other node copies: trim them, for \
             example with: seriatim trim {name} {end}"
        ));
    }
    let needed = entry.config.sequencers.max(entry.config.replicas) as usize;
    if able.len() < needed {
        let others = match able.len() {
            1 => "1 other is".to_owned(),
            others => format!("{others} others are"),
        };
        let nodes = if needed == 1 { "1 node".to_owned() } else { format!("{needed} nodes") };
        return Some(format!("log '{name}' needs {nodes}, and only {others} available"));
    }
    let by = by.filter(|by| !able.contains(by))?;
    Some(format!("node {by} cannot take over log '{name}' from node {node}: it is down or has no room"))
}

/// The first obstacles, and the number of the others.
pub(in crate::commands) fn in_short(reasons: &[String]) -> String {
    let mut told = reasons.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    if reasons.len() > NAMED {
        told.push_str(&format!("; and {} more", reasons.len() - NAMED));
    }
    told
}

fn cannot_go(node: NodeId, reasons: &[String]) -> Failure {
    let told = in_short(reasons);
    Failure::new(format!(
        "node {node} cannot be drained yet: {told}. Draining resumes on its own when that changes; to cancel: seriatim admin \
         drain {node} --cancel"
    ))
}

#[cfg(test)]
mod tests {
    use seriatim_client::LogConfig;

    use super::*;

    #[test]
    fn what_is_in_the_way_is_told_in_words() {
        let entry = LogEntry {
            id: seriatim_model::LogId(1),
            name: "x".into(),
            config: LogConfig { sequencers: 3, replicas: 2, ..LogConfig::default() },
            sequencers: vec![],
            shards: vec![],
            leaving: vec![],
            version: 1,
            claimed: Default::default(),
            claimant: 0,
            view: None,
            history: Default::default(),
            unavailable: None,
            ended: Default::default(),
            pins: vec![],
        };
        let able = |nodes: &[u32]| nodes.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
        let told = |entry: &LogEntry, by: Option<u32>, nodes: &[u32]| {
            obstacle(entry, NodeId(1), by.map(NodeId), &able(nodes)).unwrap_or_default()
        };
        let text = "log 'x' needs 3 nodes, and only 2 others are available";
        assert_eq!(told(&entry, None, &[2, 3]), text);
        assert_eq!(told(&entry, None, &[2, 3, 4]), "");
        assert!(told(&entry, Some(5), &[2, 3, 4]).starts_with("node 5 cannot take over log 'x'"));
        let unavailable = LogEntry { unavailable: Some("its nodes are down".into()), ..entry };
        assert_eq!(told(&unavailable, None, &[2, 3, 4]), "log 'x' has no active view: its nodes are down");
        let many: Vec<String> = (0..5).map(|log| log.to_string()).collect();
        assert!(format!("{:?}", cannot_go(NodeId(1), &many)).contains("0; 1; 2; and 2 more"));
    }
}
