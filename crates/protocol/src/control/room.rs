//! Nodes whose disks are full: a view does without them while the others suffice.
//!
//! Such a node answers, and can do everything but take records. It is left out as a lost one is, with one difference: a view
//! that cannot do without it names it, and is not changed again for that. What it holds can be read.

use std::collections::BTreeSet;

use seriatim_model::{Address, NodeId, View};

use super::attempt::Around;
use super::members::view_nodes;
use super::message::LogEntry;

/// The nodes whose disks have no room for records, by their own word.
#[derive(Clone, Debug, Default)]
pub(super) struct FullDisks {
    nodes: BTreeSet<NodeId>,
    /// The nodes of these that the latest view names all the same: it was formed with them knowingly.
    borne: BTreeSet<NodeId>,
}

impl FullDisks {
    pub(super) fn nodes(&self) -> &BTreeSet<NodeId> {
        &self.nodes
    }

    /// Says whether that is news.
    pub(super) fn note(&mut self, node: NodeId, is_full: bool) -> bool {
        self.borne.remove(&node);
        if is_full { self.nodes.insert(node) } else { self.nodes.remove(&node) }
    }

    /// There is another view.
    pub(super) fn bear(&mut self, view: &View) {
        self.borne = view_nodes(view).into_iter().filter(|node| self.nodes.contains(node)).collect();
    }

    /// Whether the role is on a node whose disk is full.
    pub(super) fn has(&self, role: Address) -> bool {
        matches!(role, Address::Node(node, _) if self.nodes.contains(&node))
    }

    /// Whether the view names one.
    pub(super) fn is_in(&self, entry: &LogEntry) -> bool {
        entry.view.iter().flat_map(view_nodes).any(|node| self.nodes.contains(&node))
    }

    /// Whether it names one of which nothing was known when it was formed.
    pub(super) fn surprise(&self, entry: &LogEntry) -> bool {
        let is_new = |node| self.nodes.contains(&node) && !self.borne.contains(&node);
        entry.view.iter().flat_map(view_nodes).any(is_new)
    }
}

/// Whether the registered view names nodes whose disks are full, and another one could do without them for some role.
pub(super) fn can_do_without(entry: &LogEntry, around: Around<'_>) -> bool {
    let Some(view) = &entry.view else { return false };
    let has_full = |nodes: &BTreeSet<NodeId>| nodes.iter().any(|node| around.full.contains(node));
    let sequencers = view.sequencers.iter().map(|member| member.node).collect();
    // Any node can stand in as a sequencing replica.
    let can_order = around.spares(&BTreeSet::new()).count() >= entry.config.least_sequencers();
    let can_hold = |nodes: &BTreeSet<NodeId>| {
        let holding = nodes.iter().filter(|node| around.can_hold(**node)).count();
        holding > 0 && holding + around.spares(nodes).count() >= entry.config.least_replicas()
    };
    let mut shards =
        view.shards.iter().map(|members| members.replicas.iter().map(|member| member.node).collect());
    has_full(&sequencers) && can_order || shards.any(|nodes| has_full(&nodes) && can_hold(&nodes))
}
