//! Detects a replica outside the view that removes its files while another replica reads from them.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_host::Outgoing;
use seriatim_model::{Endpoint, NodeId, Peer, ShardId, Time};
use seriatim_protocol::{Message, shard};

use super::scene::Scene;
use super::truth::Nodes;

/// For how long after an answer to another replica one is needed: less than the replicas themselves
/// say, whose clocks differ.
const NEEDED_FOR: Duration = Duration::from_secs(2);

/// When each replica outside the view last answered another replica that reads of it.
#[derive(Debug, Default)]
pub(super) struct Needed(BTreeMap<(NodeId, ShardId), Time>);

impl Needed {
    /// A replica may answer another one.
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

    /// A node dismissed a replica.
    pub(super) fn was_dismissed(&mut self, scene: &mut Scene, id: NodeId, shard: ShardId) {
        let Some(answered) = self.0.remove(&(id, shard)) else { return };
        if scene.now - answered < NEEDED_FOR {
            scene.history.removed_early.push(format!(
                "node {id} removes its files of shard {shard} {:?} after another replica read of them",
                scene.now - answered
            ));
        }
    }

    /// A node was killed: its next process knows nothing of who read.
    pub(super) fn lose_sight_of(&mut self, id: NodeId) {
        self.0.retain(|(node, _), _| *node != id);
    }
}
