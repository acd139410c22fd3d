//! Nodes with full disks: a view excludes them while others suffice.
//!
//! Such a node answers and serves reads, but takes no records. A view that needs such a node names
//! it, and the controller accepts that.

use std::collections::BTreeSet;

use seriatim_model::{Address, Endpoint, LogEntry, NodeId, View};

use super::attempt::Liveness;
use super::members::{left_out, view_nodes};
use crate::roles::RoleEffect;
use crate::shard;

/// Nodes that report a full disk.
#[derive(Clone, Debug, Default)]
pub(super) struct FullDisks {
    nodes: BTreeSet<NodeId>,
    /// Nodes that the latest view names although their full disks were known.
    borne: BTreeSet<NodeId>,
}

impl FullDisks {
    pub(super) fn nodes(&self) -> &BTreeSet<NodeId> {
        &self.nodes
    }

    /// Returns whether the state changed.
    pub(super) fn note(&mut self, node: NodeId, is_full: bool) -> bool {
        self.borne.remove(&node);
        if is_full { self.nodes.insert(node) } else { self.nodes.remove(&node) }
    }

    pub(super) fn bear(&mut self, view: &View) {
        self.borne = view_nodes(view).into_iter().filter(|node| self.nodes.contains(node)).collect();
    }

    /// If the disk of this node, `own`, is full: asks primaries for trim points of shards that
    /// exclude its replica. Trims reach members only, and without them the node cannot return.
    pub(super) fn ask_for_trims(&self, own: NodeId, entry: &LogEntry, out: &mut Vec<RoleEffect>) {
        let is_own = |role: &Address| matches!(role, Address::Node(node, Endpoint::Shard(_)) if *node == own);
        if !self.nodes.contains(&own) {
            return;
        }
        for members in entry.view.iter().flat_map(|view| &view.shards) {
            let endpoint = Endpoint::Shard(members.shard);
            if left_out(entry).filter(is_own).any(|role| role == Address::Node(own, endpoint)) {
                let message = shard::Message::Status { request: entry.view_number().0 };
                let to = Address::Node(members.primary().node, endpoint);
                out.push(RoleEffect::Send { to, message: message.into() });
            }
        }
    }

    /// Passes a trim point to the excluded replica on this node.
    pub(super) fn pass_on_trim(
        &self,
        own: NodeId,
        entry: Option<&LogEntry>,
        from: Address,
        message: &shard::Message,
        out: &mut Vec<RoleEffect>,
    ) {
        let (Some(entry), Address::Node(_, endpoint)) = (entry, from) else { return };
        let shard::Message::StatusIs { view, trim, .. } = message else { return };
        let role = Address::Node(own, endpoint);
        if *view == entry.view_number() && left_out(entry).any(|left_out| left_out == role) {
            let message = shard::Message::Trim { request: 0, view: *view, position: *trim };
            out.push(RoleEffect::Send { to: role, message: message.into() });
        }
    }

    pub(super) fn has(&self, role: Address) -> bool {
        matches!(role, Address::Node(node, _) if self.nodes.contains(&node))
    }

    /// Whether the view names a node with a full disk.
    pub(super) fn is_in(&self, entry: &LogEntry) -> bool {
        entry.view.iter().flat_map(view_nodes).any(|node| self.nodes.contains(&node))
    }

    /// Whether the view names a node whose disk was not known to be full.
    pub(super) fn surprise(&self, entry: &LogEntry) -> bool {
        let is_new = |node| self.nodes.contains(&node) && !self.borne.contains(&node);
        entry.view.iter().flat_map(view_nodes).any(is_new)
    }
}

/// Whether another view could exclude a member with a full disk.
pub(super) fn can_do_without(entry: &LogEntry, liveness: Liveness<'_>) -> bool {
    let Some(view) = &entry.view else { return false };
    let has_full = |nodes: &BTreeSet<NodeId>| nodes.iter().any(|node| liveness.full.contains(node));
    let sequencers = view.sequencers.iter().map(|member| member.node).collect();
    // Any node can be a sequencing replica.
    let can_order = liveness.able().count() >= entry.config.least_sequencers();
    let can_hold = |nodes: &BTreeSet<NodeId>| {
        let holding = nodes.iter().filter(|node| liveness.can_hold(**node)).count();
        holding > 0 && holding + liveness.spares(nodes).count() >= entry.config.least_replicas()
    };
    let mut shards =
        view.shards.iter().map(|members| members.replicas.iter().map(|member| member.node).collect());
    has_full(&sequencers) && can_order || shards.any(|nodes| has_full(&nodes) && can_hold(&nodes))
}
