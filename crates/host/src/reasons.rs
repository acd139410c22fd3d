//! Reasons for a view, from its differences to the previous one.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{Endpoint, Incarnation, NodeId, View};
use seriatim_protocol::control::LogEntry;

fn members(view: &View) -> BTreeMap<(Endpoint, NodeId), Incarnation> {
    let sequencers = view.sequencers.iter().map(|member| (Endpoint::Sequencer, member));
    let shards = view.shards.iter().flat_map(|shard| {
        let endpoint = Endpoint::Shard(shard.shard);
        shard.replicas.iter().map(move |member| (endpoint, member))
    });
    let all = sequencers.chain(shards);
    all.map(|(endpoint, member)| ((endpoint, member.node), member.incarnation)).collect()
}

/// `because` returns why a node is excluded, if known.
pub(crate) fn reason(
    before: &View,
    entry: &LogEntry,
    view: &View,
    because: impl Fn(NodeId) -> Option<String>,
) -> String {
    let (old, new) = (members(before), members(view));
    let nodes = |members: &BTreeMap<(Endpoint, NodeId), Incarnation>| -> BTreeSet<NodeId> {
        members.keys().map(|(_, node)| *node).collect()
    };
    let meant: BTreeSet<NodeId> =
        entry.sequencers.iter().chain(entry.shards.iter().flatten()).copied().collect();
    let mut reasons = vec![];
    for node in nodes(&old).difference(&nodes(&new)) {
        reasons.push(match (meant.contains(node), because(*node)) {
            (true, Some(because)) => format!("node {node} left out ({because})"),
            (true, None) => format!("node {node} left out"),
            (false, _) => format!("node {node} was replaced or left the log"),
        });
    }
    for node in nodes(&new).difference(&nodes(&old)) {
        reasons.push(format!("node {node} joined"));
    }
    for (endpoint, node) in new.keys().filter(|(_, node)| nodes(&old).contains(node)) {
        let has_it_from_now_on = !old.contains_key(&(*endpoint, *node)) && before_has(before, *endpoint);
        if has_it_from_now_on {
            reasons.push(format!("node {node} received {}", a_role(*endpoint)));
        }
    }
    let anew = |(role, incarnation): (&(Endpoint, NodeId), &Incarnation)| {
        old.get(role).is_some_and(|before| before != incarnation).then_some(role.1)
    };
    for node in new.iter().filter_map(anew).collect::<BTreeSet<_>>() {
        reasons.push(format!("node {node} was restarted"));
    }
    reasons.extend(changes_of_shards(before, view));
    if reasons.is_empty() {
        return if old == new {
            "the previous view made no progress".to_owned()
        } else {
            "the same nodes with other replicas".to_owned()
        };
    }
    reasons.join(", ")
}

fn a_role(endpoint: Endpoint) -> String {
    match endpoint {
        Endpoint::Shard(shard) => format!("a replica of shard {shard}"),
        _ => "a sequencing replica".to_owned(),
    }
}

fn before_has(view: &View, endpoint: Endpoint) -> bool {
    match endpoint {
        Endpoint::Shard(shard) => view.shard(shard).is_some(),
        _ => true,
    }
}

fn changes_of_shards(before: &View, view: &View) -> Vec<String> {
    let shards = |view: &View| view.shards.iter().map(|members| members.shard).collect::<BTreeSet<_>>();
    let (old, new) = (shards(before), shards(view));
    let joined = new.difference(&old).map(|shard| format!("shard {shard} is new"));
    let left = old.difference(&new).map(|shard| format!("shard {shard} left the log"));
    let (was_open, is_open) = (before.open_shards(), view.open_shards());
    let closed = was_open.iter().filter(|shard| new.contains(shard) && !is_open.contains(shard));
    let closed = closed.map(|shard| format!("shard {shard} is closed to new records"));
    joined.chain(left).chain(closed).collect()
}

#[cfg(test)]
mod tests {
    use seriatim_model::{LogConfig, LogId, Member, Placement, Position, ShardId, ShardMembers, ViewNumber};
    use seriatim_protocol::control::EndedSessions;

    use super::*;

    fn member(node: u32, incarnation: u64) -> Member {
        Member { node: NodeId(node), incarnation: Incarnation(incarnation) }
    }

    /// A view in which all members sequence, and the first two hold its one shard.
    fn view(members: &[Member]) -> View {
        let replicas = members.iter().take(2).copied().collect();
        View {
            number: ViewNumber(2),
            sequencers: members.to_vec(),
            leader: members[0].node,
            shards: vec![ShardMembers { shard: ShardId(0), begins: Position::ZERO, replicas }],
            retired: vec![],
            placement: Placement::new(vec![ShardId(0)], 1),
            first: Position::ZERO,
            start: Position(7),
        }
    }

    fn entry(nodes: &[u32], view: &View) -> LogEntry {
        let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
        LogEntry {
            id: LogId(1),
            name: "l".into(),
            config: LogConfig::default(),
            sequencers: nodes.clone(),
            shards: vec![nodes],
            leaving: vec![],
            version: 1,
            claimed: view.number,
            claimant: 0,
            view: Some(view.clone()),
            history: Default::default(),
            unavailable: None,
            ended: EndedSessions::default(),
            pins: vec![],
        }
    }

    #[test]
    fn the_reason_of_a_view_is_what_differs_from_the_one_before() {
        let three = view(&[member(1, 1), member(2, 1), member(3, 1)]);
        let because = |node| (node == NodeId(3)).then(|| "its disk is full".to_owned());
        let reason = |meant: &[u32], after: View| reason(&three, &entry(meant, &after), &after, because);
        let without_three = view(&[member(1, 1), member(2, 1)]);
        assert_eq!(reason(&[1, 2, 3], without_three.clone()), "node 3 left out (its disk is full)");
        assert_eq!(reason(&[1, 2], without_three), "node 3 was replaced or left the log");
        let without_two = view(&[member(1, 1), member(3, 1)]);
        let text = "node 2 left out, node 3 received a replica of shard 0";
        assert_eq!(reason(&[1, 2, 3], without_two), text);
        let four = view(&[member(1, 1), member(2, 5), member(3, 1), member(4, 1)]);
        let text = "node 4 joined, node 2 was restarted";
        assert_eq!(reason(&[1, 2, 3, 4], four), text);
        assert_eq!(reason(&[1, 2, 3], three.clone()), "the previous view made no progress");
        let mut moved = three.clone();
        moved.shards[0].replicas = vec![member(1, 1), member(3, 1)];
        assert_eq!(reason(&[1, 2, 3], moved), "node 3 received a replica of shard 0");
        let mut more = three.clone();
        more.shards.push(ShardMembers { shard: ShardId(1), ..more.shards[0].clone() });
        assert_eq!(reason(&[1, 2, 3], more), "shard 1 is new");
    }
}
