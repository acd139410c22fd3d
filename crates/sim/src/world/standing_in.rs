//! Spares that stand in for absent members, and when they copy records.

use std::collections::BTreeMap;

use seriatim_host::Outgoing;
use seriatim_model::{Endpoint, NodeId, ShardId, Time, ViewNumber};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::{Message, shard};

use super::scene::Scene;
use super::truth::Nodes;

/// Nodes assigned to each shard, by the register.
#[derive(Debug, Default)]
pub(super) struct StandingIn {
    view: ViewNumber,
    assigned: BTreeMap<ShardId, Vec<NodeId>>,
    /// For each assigned node outside the present view: since when views lack it.
    away_since: BTreeMap<(ShardId, NodeId), Time>,
}

impl StandingIn {
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

    /// Whether nodes of a shard are absent, none for longer than allowed. Never with departures: a
    /// drained node is replaced at once, even while a third one is absent.
    fn is_soon_back(&self, scene: &Scene, shard: ShardId) -> bool {
        let away = self.away_since.iter().filter(|((of, _), _)| *of == shard);
        let longest = away.map(|(_, since)| scene.now - *since).max();
        let patience = scene.plan.options.limits.replace_after;
        scene.plan.departures.is_empty() && longest.is_some_and(|longest| longest < patience)
    }

    /// Checks that a spare copies the shard only after the allowed absence. A request for one
    /// position may be a repair.
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
