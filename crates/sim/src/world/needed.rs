//! Detects a replica outside the view that removes its files while another replica reads from them.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_host::Outgoing;
use seriatim_model::{Endpoint, NodeId, Peer, ShardId, Time};
use seriatim_protocol::{Message, shard};

use super::scene::Scene;
use super::truth::Nodes;

/// Time for which a replica is needed after it answered a reading replica: less than the replicas'
/// own limit, since clocks differ.
const NEEDED_FOR: Duration = Duration::from_secs(2);

/// When each replica outside the view last answered a reading replica.
#[derive(Debug, Default)]
pub(super) struct Needed(BTreeMap<(NodeId, ShardId), Time>);

impl Needed {
    pub(super) fn sent(&mut self, scene: &Scene, nodes: &Nodes, id: NodeId, outgoing: &Outgoing) {
        let (Endpoint::Shard(shard), Endpoint::Shard(_), Peer::Node(_)) =
            (outgoing.from, outgoing.to, outgoing.peer)
        else {
            return;
        };
        let is_answer = matches!(
            outgoing.message,
            Message::Shard(shard::Message::Records { .. } | shard::Message::MappedRecords { .. })
        );
        if is_answer && nodes[&id].replica(scene.log, shard).is_some_and(|role| !role.is_open()) {
            self.0.insert((id, shard), scene.now);
        }
    }

    pub(super) fn was_dismissed(&mut self, scene: &mut Scene, id: NodeId, shard: ShardId) {
        let Some(answered) = self.0.remove(&(id, shard)) else { return };
        if scene.now - answered < NEEDED_FOR {
            scene.history.removed_early.push(format!(
                "node {id} removes its files of shard {shard} {:?} after another replica read of them",
                scene.now - answered
            ));
        }
    }

    /// Forgets the readers of a killed node, which its next process does not know.
    pub(super) fn lose_sight_of(&mut self, id: NodeId) {
        self.0.retain(|(node, _), _| *node != id);
    }
}
