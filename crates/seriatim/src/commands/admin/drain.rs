//! `seriatim admin drain` and `replace`: others take over what a node has.

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_client::{Client, LogEntry, NodeId, PartingChange, parting};
use tokio::time::MissedTickBehavior;

use crate::output::{Failure, Outcome, print_line};

/// How often it is looked how far that is.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How many logs that stand in the way are named.
const NAMED: usize = 3;
/// How often in a row nothing can be done before that is told: a node that is being started is not
/// up for a moment.
const STUCK_AFTER: u32 = 8;

/// Lets others, or the node `by` alone, take over all that a node has; waits until they have,
/// unless that is not wanted.
pub(super) async fn run(client: &Client, node: NodeId, by: Option<NodeId>, no_wait: bool) -> Outcome {
    client.part(node, PartingChange::Drain { by }).await?;
    if no_wait {
        print_line(format_args!("node {node} is draining; how far it is: seriatim status"));
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
        None => format!("node {node} has nothing any more"),
        Some(by) => format!("node {by} has all that node {node} had"),
    };
    print_line(format_args!(
        "{done}: it is safe to stop node {node}, and then: seriatim admin remove {node}"
    ));
    Ok(())
}

/// The logs that a node still has something of, and all nodes.
async fn left(client: &Client, node: NodeId) -> Result<(Vec<LogEntry>, Vec<NodeId>), Failure> {
    let (entries, nodes) = client.list().await?;
    let left = entries.into_iter().filter(|entry| !parting::is_rid_of(entry, node)).collect();
    Ok((left, nodes.into_iter().map(|node| node.node).collect()))
}

/// The nodes that stay and can be given roles: they answer, and have room.
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

/// The obstacle that keeps a log from doing without a node, as long as nothing else changes. `able`
/// nodes stay, answer, and have room.
pub(in crate::commands) fn obstacle(
    entry: &LogEntry,
    node: NodeId,
    by: Option<NodeId>,
    able: &BTreeSet<NodeId>,
) -> Option<String> {
    let name = &entry.name;
    if let Some(why) = &entry.unavailable {
        return Some(format!("the log '{name}' forms no view: {why}"));
    }
    if let Some(retired) = parting::retired_shard_on(entry, node) {
        let (shard, end) = (retired.shard, retired.ends(&entry.history));
        return Some(format!(
            "the log '{name}' has records of its retired shard {shard} there, which no other node gets: node {node} is free of \
             them when they are trimmed, as by: seriatim trim {name} {end}"
        ));
    }
    let needed = entry.config.sequencers.max(entry.config.replicas) as usize;
    if able.len() < needed {
        let others = match able.len() {
            1 => "1 other is".to_owned(),
            others => format!("{others} others are"),
        };
        let nodes = if needed == 1 { "1 node".to_owned() } else { format!("{needed} nodes") };
        return Some(format!("the log '{name}' needs {nodes}, and only {others} up with room"));
    }
    let by = by.filter(|by| !able.contains(by))?;
    Some(format!(
        "node {by}, which is to take over the log '{name}' from node {node}, is not up, or has no room"
    ))
}

/// The first obstacles, and how many more there are.
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
        "node {node} cannot be done without: {told}. It keeps what it has, and goes on draining when that changes; to let it \
         stay: seriatim admin drain {node} --cancel"
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
        };
        let able = |nodes: &[u32]| nodes.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
        let told = |entry: &LogEntry, by: Option<u32>, nodes: &[u32]| {
            obstacle(entry, NodeId(1), by.map(NodeId), &able(nodes)).unwrap_or_default()
        };
        let text = "the log 'x' needs 3 nodes, and only 2 others are up with room";
        assert_eq!(told(&entry, None, &[2, 3]), text);
        assert_eq!(told(&entry, None, &[2, 3, 4]), "");
        assert!(told(&entry, Some(5), &[2, 3, 4]).starts_with("node 5, which is to take over"));
        let unavailable = LogEntry { unavailable: Some("nobody answers".into()), ..entry };
        assert_eq!(told(&unavailable, None, &[2, 3, 4]), "the log 'x' forms no view: nobody answers");
        let many: Vec<String> = (0..5).map(|log| log.to_string()).collect();
        assert!(format!("{:?}", cannot_go(NodeId(1), &many)).contains("0; 1; 2; and 2 more"));
    }
}
