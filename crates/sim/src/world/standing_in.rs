//! Replicas that stand in for members which are away, and when they copy what these hold.

use std::collections::BTreeMap;

use seriatim_host::Outgoing;
use seriatim_model::{Endpoint, NodeId, ShardId, Time, ViewNumber};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::{Message, shard};

use super::scene::Scene;
use super::truth::Nodes;

/// The nodes to which the log assigns each shard, by the register.
#[derive(Debug, Default)]
pub(super) struct StandingIn {
    view: ViewNumber,
    assigned: BTreeMap<ShardId, Vec<NodeId>>,
    /// Since when the views do without each of these nodes that the present view does without.
    away_since: BTreeMap<(ShardId, NodeId), Time>,
}

impl StandingIn {
    /// The register's entry may be new.
    pub(super) fn look(&mut self, now: Time, entry: &LogEntry) {
        if entry.view_number() == self.view {
            return;
        }
        self.view = entry.view_number();
        self.assigned = (0..).map(ShardId).zip(entry.shards.iter().cloned()).collect();
        let since = std::mem::take(&mut self.away_since);
        for members in entry.view.iter().flat_map(|view| &view.shards) {
            let is_away = |node: &&NodeId| members.replicas.iter().all(|member| member.node != **node);
            for node in self.assigned.get(&members.shard).into_iter().flatten().filter(is_away) {
                let key = (members.shard, *node);
                self.away_since.insert(key, since.get(&key).copied().unwrap_or(now));
            }
        }
    }

    fn has(&self, shard: ShardId, node: NodeId) -> bool {
        self.assigned.get(&shard).is_none_or(|nodes| nodes.contains(&node))
    }

    /// Whether nodes of a shard are away, and none of them for longer than a replica may be. Others
    /// take over from a drained node at once, also where a third one is away.
    fn is_soon_back(&self, scene: &Scene, shard: ShardId) -> bool {
        let away = self.away_since.iter().filter(|((of, _), _)| *of == shard);
        let longest = away.map(|(_, since)| scene.now - *since).max();
        let patience = scene.plan.options.limits.replace_after;
        scene.plan.departures.is_empty() && longest.is_some_and(|longest| longest < patience)
    }

    /// A replica may ask another for records. One that stands in for a node copies its shard only
    /// when that node has been away for longer than a replica may be. A question for one position
    /// may be about a record that is damaged.
    pub(super) fn sent(&self, scene: &mut Scene, nodes: &Nodes, id: NodeId, outgoing: &Outgoing) {
        let (Endpoint::Shard(shard), Endpoint::Shard(_)) = (outgoing.from, outgoing.to) else { return };
        let Message::Shard(shard::Message::Read { from, end, .. }) = &outgoing.message else { return };
        let role = nodes[&id].replica(scene.log, shard);
        let knows =
            role.and_then(|role| role.memory().view.as_ref()).is_some_and(|view| view.number == self.view);
        if knows && !self.has(shard, id) && *end > from.next() && self.is_soon_back(scene, shard) {
            scene.history.copied_early.push(format!(
                "in view {} node {id} copies {from} to {end} of shard {shard} for a node that may soon be back",
                self.view
            ));
        }
    }
}
