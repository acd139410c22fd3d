//! The other nodes, and the detector's findings for controllers.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{Address, Endpoint, Input, NodeId, Peer, Time};
use seriatim_protocol::control::parting::{self, NodeParting, Parting, Partings};
use seriatim_protocol::control::{self, NodeAddress};
use seriatim_store::RoleKey;

use crate::condition::NODE;
use crate::detector::{Cause, Liveness, Taken};
use crate::host::{Host, HostConfig};
use crate::register::RegisterPlace;

/// A node that is new to the detector, or has moved.
#[derive(Clone, Debug)]
pub struct Unmet {
    /// The node.
    pub node: NodeId,
    /// Its address.
    pub address: String,
    /// Counts its messages that the host takes.
    pub taken: Taken,
}

/// The known nodes, this one included.
#[derive(Debug)]
pub(crate) struct Others {
    addresses: BTreeMap<NodeId, String>,
    taken: BTreeMap<NodeId, Taken>,
    /// Nodes that reported their memory of this node's disk, or are suspected and cannot.
    told: BTreeSet<NodeId>,
    suspected: BTreeSet<NodeId>,
    /// Nodes, this one included, with full disks.
    full: BTreeSet<NodeId>,
    /// Nodes that the detector does not know yet.
    unmet: BTreeSet<NodeId>,
    /// Nodes that are drained or removed.
    partings: Partings,
    /// Removed nodes that the detector must forget.
    forgotten: Vec<NodeId>,
}

impl Others {
    pub(crate) fn new(config: &HostConfig) -> Self {
        let mut others = Self {
            addresses: BTreeMap::from([(config.node, config.address.clone())]),
            taken: BTreeMap::new(),
            told: BTreeSet::new(),
            suspected: BTreeSet::new(),
            full: BTreeSet::new(),
            unmet: BTreeSet::new(),
            partings: Partings::new(),
            forgotten: vec![],
        };
        if let RegisterPlace::Node { node, address } = &config.register
            && *node != config.node
        {
            others.note_address(*node, address.clone());
        }
        others
    }

    pub(crate) fn address_of(&self, node: NodeId) -> Option<&str> {
        self.addresses.get(&node).map(String::as_str)
    }

    pub(crate) fn known(&self) -> Vec<NodeAddress> {
        let known =
            |(node, address): (&NodeId, &String)| NodeAddress { node: *node, address: address.clone() };
        self.addresses.iter().map(known).collect()
    }

    fn note_address(&mut self, node: NodeId, address: String) {
        if self.is_removed(node) {
            return;
        }
        if self.addresses.get(&node) != Some(&address) {
            self.addresses.insert(node, address);
            self.unmet.insert(node);
        }
    }

    /// Whether the node seems to answer and to have room on its disk.
    pub(crate) fn is_able(&self, node: NodeId) -> bool {
        !self.suspected.contains(&node) && !self.full.contains(&node)
    }

    fn is_removed(&self, node: NodeId) -> bool {
        self.partings.get(&node) == Some(&Parting::Removed)
    }

    fn note_partings(&mut self, partings: Partings) -> bool {
        let is_news = self.partings != partings;
        self.partings = partings;
        for node in parting::removed(&self.partings).collect::<Vec<_>>() {
            self.suspected.remove(&node);
            self.full.remove(&node);
            self.unmet.remove(&node);
            if self.addresses.remove(&node).is_some() {
                self.forgotten.push(node);
            }
        }
        is_news
    }

    /// Known nodes that have not reported their memory of this disk.
    pub(crate) fn untold(&self, own: NodeId) -> BTreeSet<NodeId> {
        self.addresses.keys().copied().filter(|node| *node != own && !self.told.contains(node)).collect()
    }

    pub(crate) fn note_disk(&mut self, node: NodeId, is_full: bool) {
        match is_full {
            true => _ = self.full.insert(node),
            false => _ = self.full.remove(&node),
        }
    }

    pub(crate) fn note_message(&mut self, peer: Peer) {
        if let Peer::Node(node) = peer {
            self.taken.entry(node).or_default().note();
        }
    }

    fn take_unmet(&mut self) -> Vec<Unmet> {
        let unmet = std::mem::take(&mut self.unmet).into_iter();
        let tell = |node| Unmet {
            node,
            address: self.addresses.get(&node).cloned().unwrap_or_default(),
            taken: self.taken.entry(node).or_default().clone(),
        };
        unmet.map(tell).collect()
    }
}

impl Host {
    /// Suspected nodes.
    pub fn suspected(&self) -> impl Iterator<Item = NodeId> {
        self.others.suspected.iter().copied()
    }

    /// Nodes, this one included, with self-reported full disks.
    pub fn full_disks(&self) -> impl Iterator<Item = NodeId> {
        self.others.full.iter().copied()
    }

    /// Removes and returns nodes that are new to the detector or have moved.
    pub fn take_unmet(&mut self) -> Vec<Unmet> {
        self.others.take_unmet()
    }

    /// Whether this node was removed from its cluster.
    #[must_use]
    pub fn was_removed(&self) -> bool {
        self.others.is_removed(self.config.node)
    }

    /// Removes and returns nodes that the detector must forget.
    pub fn take_forgotten(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.others.forgotten)
    }

    /// Handles the register's list of drained and removed nodes.
    pub(crate) fn told_of_partings(&mut self, now: Time, partings: Vec<NodeParting>) {
        let own = self.config.node;
        if let RegisterPlace::Node { .. } = self.config.register {
            self.send_to_register(control::Message::PartingsKnown { node: own, partings: partings.clone() });
        }
        if !self.others.note_partings(parting::gathered(partings)) {
            return;
        }
        if self.others.is_removed(own) {
            return;
        }
        for key in self.controllers() {
            self.tell_partings(now, key);
        }
        self.hears_of_others(now);
    }

    fn tell_partings(&mut self, now: Time, key: RoleKey) {
        let message = control::Message::Partings { partings: parting::listed(&self.others.partings) };
        let from = Address::Node(self.config.node, Endpoint::Node);
        self.step(now, key, Input::Message { from, message: message.into() });
    }

    pub(crate) fn note_address(&mut self, node: NodeId, address: String) {
        self.others.note_address(node, address);
    }

    pub(crate) fn meet(&mut self, now: Time) {
        for key in self.controllers() {
            self.introduce(now, key);
        }
    }

    pub(crate) fn introduce(&mut self, now: Time, key: RoleKey) {
        let nodes = self.others.known();
        let message = control::Message::Cluster { nodes };
        let from = Address::Node(self.config.node, Endpoint::Node);
        self.step(now, key, Input::Message { from, message: message.into() });
        self.tell_partings(now, key);
        for node in self.others.suspected.clone() {
            self.step(now, key, Input::Suspected(node));
        }
        for node in self.others.full.clone() {
            self.step(now, key, Input::FullDisk(node, true));
        }
    }

    pub(crate) fn announce(&mut self, now: Time, change: Liveness) {
        if let Liveness::Suspected(node, _) = change
            && self.others.is_removed(node)
        {
            return;
        }
        let (node, input) = match change {
            // The register's message about that node was lost: a join makes it list the nodes
            // again.
            Liveness::Unknown(_) => {
                self.join_at.get_or_insert(now);
                return;
            }
            Liveness::Unproven(node) => return self.probe(node),
            Liveness::SetBack(node) => return self.was_set_back(node),
            Liveness::FullDisk(node, is_full) => return self.disk_is(node, is_full),
            Liveness::Told(node) => {
                self.others.told.insert(node);
                return self.hears_of_others(now);
            }
            Liveness::Suspected(node, cause) => {
                self.notice_lost(now, node, cause);
                self.others.suspected.insert(node);
                // Do not wait for a suspected node's report, except for an unwell node: it still
                // sends heartbeats.
                if !matches!(cause, Cause::Unwell(_)) {
                    self.others.told.insert(node);
                }
                (node, Input::Suspected(node))
            }
            Liveness::Alive(node) => {
                self.notice_back(now, node);
                self.others.suspected.remove(&node);
                (node, Input::Alive(node))
            }
        };
        if node == self.register_node() {
            // A restarted register knows only the nodes that joined since.
            self.join_at = Some(now);
        }
        for key in self.controllers() {
            self.step(now, key, input.clone());
        }
        self.hears_of_others(now);
    }

    /// Sends a probe over the path of all messages but heartbeats.
    fn probe(&mut self, node: NodeId) {
        self.send(NODE, Address::Node(node, Endpoint::Node), control::Message::Probe.into());
    }

    pub(crate) fn controllers(&self) -> Vec<RoleKey> {
        let is_controller = |key: &&RoleKey| key.endpoint == Endpoint::Controller;
        self.roles.keys().filter(is_controller).copied().collect()
    }
}
