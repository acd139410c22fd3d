//! What the failure detector says, passed on to the controllers.

use seriatim_model::{Address, Endpoint, Input, NodeId, Time};
use seriatim_protocol::control::{self, NodeAddress};
use seriatim_store::RoleKey;

use crate::detector::Liveness;
use crate::host::Host;

impl Host {
    /// The nodes that are taken for gone.
    pub fn suspected(&self) -> impl Iterator<Item = NodeId> {
        self.suspected.iter().copied()
    }

    /// The nodes that the detector is to meet, and where they listen: those that came to be known, or moved, since this
    /// was asked last.
    pub fn take_unmet(&mut self) -> Vec<(NodeId, String)> {
        std::mem::take(&mut self.unmet).into_iter().collect()
    }

    /// Takes note of a node's address.
    pub(crate) fn note_address(&mut self, node: NodeId, address: String) {
        if self.nodes.get(&node) != Some(&address) {
            self.unmet.insert(node, address.clone());
            self.nodes.insert(node, address);
        }
    }

    /// Tells all controllers of the nodes that are known.
    pub(crate) fn meet(&mut self, now: Time) {
        for key in self.controllers() {
            self.introduce(now, key);
        }
    }

    /// Tells a controller what it has to know of the other nodes.
    pub(crate) fn introduce(&mut self, now: Time, key: RoleKey) {
        let address =
            |(node, address): (&NodeId, &String)| NodeAddress { node: *node, address: address.clone() };
        let message = control::Message::Cluster { nodes: self.nodes.iter().map(address).collect() };
        let from = Address::Node(self.config.node, Endpoint::Node);
        self.step(now, key, Input::Message { from, message: message.into() });
        for node in self.suspected.clone() {
            self.step(now, key, Input::Silent(node));
        }
    }

    /// Tells the controllers what became of a node.
    pub(crate) fn announce(&mut self, now: Time, change: Liveness) {
        let (node, input) = match change {
            // The register's word about it was lost.
            Liveness::Unknown(_) => {
                self.join_at.get_or_insert(now);
                return;
            }
            Liveness::Suspected(node, _) => {
                self.suspected.insert(node);
                (node, Input::Silent(node))
            }
            Liveness::Alive(node) => {
                self.suspected.remove(&node);
                (node, Input::Heard(node))
            }
        };
        if node == self.register_node() {
            // A register that restarted knows only the nodes that told it since.
            self.join_at = Some(now);
        }
        for key in self.controllers() {
            self.step(now, key, input.clone());
        }
    }

    fn controllers(&self) -> Vec<RoleKey> {
        let is_controller = |key: &&RoleKey| key.endpoint == Endpoint::Controller;
        self.roles.keys().filter(is_controller).copied().collect()
    }
}
