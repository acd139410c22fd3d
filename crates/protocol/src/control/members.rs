//! The roles and nodes that an entry names or assigns, and their requests.

use std::collections::BTreeSet;

use seriatim_model::{Address, Endpoint, LogEntry, NodeId, View};

use super::attempt::Liveness;
use super::message::Message;
use super::send;
use crate::roles::RoleEffect;

/// The nodes of a view in the order in which they act.
pub(super) fn view_nodes(view: &View) -> Vec<NodeId> {
    let sequencers = view.sequencers.iter();
    let replicas = view.shards.iter().flat_map(|members| &members.replicas);
    let mut nodes = vec![];
    for member in sequencers.chain(replicas) {
        if !nodes.contains(&member.node) {
            nodes.push(member.node);
        }
    }
    nodes
}

/// Members of the view, shard replicas first.
pub(super) fn named(entry: &LogEntry) -> impl Iterator<Item = Address> {
    let shards = entry.view.iter().flat_map(|view| &view.shards).flat_map(|members| {
        let endpoint = Endpoint::Shard(members.shard);
        members.replicas.iter().map(move |member| Address::Node(member.node, endpoint))
    });
    let sequencers = entry.view.iter().flat_map(|view| &view.sequencers);
    shards.chain(sequencers.map(|member| Address::Node(member.node, Endpoint::Sequencer)))
}

/// Copies of retired shards.
pub(super) fn retired(entry: &LogEntry) -> impl Iterator<Item = Address> {
    let shards = entry.view.iter().flat_map(|view| &view.retired);
    shards.flat_map(|retired| {
        let endpoint = Endpoint::Shard(retired.shard);
        retired.nodes().map(move |node| Address::Node(node, endpoint))
    })
}

/// Assigned roles that the view excludes.
pub(super) fn left_out(entry: &LogEntry) -> impl Iterator<Item = Address> {
    let sequencers = entry.sequencers.iter().filter(|node| {
        entry.view.as_ref().is_some_and(|view| view.sequencers.iter().all(|member| member.node != **node))
    });
    let sequencers = sequencers.map(|node| Address::Node(*node, Endpoint::Sequencer));
    let shards = entry.view.iter().flat_map(|view| &view.shards).flat_map(|members| {
        let meant = entry.shards.get(members.shard.0 as usize).into_iter().flatten();
        let away = meant.filter(|node| members.replicas.iter().all(|member| member.node != **node));
        away.map(|node| Address::Node(*node, Endpoint::Shard(members.shard)))
    });
    sequencers.chain(shards)
}

/// Kinds of roles with fewer members than configured, with the members' nodes.
pub(super) fn short(entry: &LogEntry) -> impl Iterator<Item = (Endpoint, BTreeSet<NodeId>)> {
    let config = &entry.config;
    let sequencers = entry.view.iter().map(|view| (Endpoint::Sequencer, &view.sequencers, config.sequencers));
    let shards = entry.view.iter().flat_map(|view| &view.shards);
    let replicas = shards.map(|members| (Endpoint::Shard(members.shard), &members.replicas, config.replicas));
    let short = sequencers.chain(replicas).filter(|(_, members, wanted)| members.len() < *wanted as usize);
    short.map(|(kind, members, _)| (kind, members.iter().map(|member| member.node).collect()))
}

/// Whether a node can stand in for a missing member of these kinds.
pub(super) fn has_spares(entry: &LogEntry, kinds: &BTreeSet<Endpoint>, liveness: Liveness<'_>) -> bool {
    let mut short = short(entry).filter(|(kind, _)| kinds.contains(kind));
    short.any(|(_, take_part)| liveness.spares(&take_part).next().is_some())
}

pub(super) fn dismiss(entry: &LogEntry, role: Address, out: &mut Vec<RoleEffect>) {
    let Address::Node(node, endpoint) = role else { return };
    let message = Message::Dismiss { log: entry.id, role: endpoint, view: entry.view_number() };
    send(Address::Node(node, Endpoint::Node), message, out);
}

/// The request in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A new view: the present one names the reporter.
    View,
    /// A return: the view excludes the assigned role.
    Rejoin,
    /// The log does not need the role.
    Leave,
    /// None: the shard is retired, and the node is listed as a copy.
    Nothing,
    /// A place in the list of a retired shard's copies.
    Keep,
}

impl Wish {
    /// The request of a reporter without a view.
    pub(super) fn of(entry: &LogEntry, reporter: Address) -> Self {
        let (Address::Node(node, endpoint), Some(view)) = (reporter, &entry.view) else { return Self::View };
        if let Endpoint::Shard(shard) = endpoint
            && let Some(retired) = view.retired(shard)
        {
            return if retired.has_copy_on(node) { Self::Nothing } else { Self::Keep };
        }
        let (named, meant) = match endpoint {
            Endpoint::Shard(shard) => {
                let members = view.shard(shard).map(|members| &members.replicas);
                let meant = entry.shards.get(shard.0 as usize);
                (
                    members.is_some_and(|members| members.iter().any(|member| member.node == node)),
                    meant.is_some_and(|nodes| nodes.contains(&node)),
                )
            }
            _ => (view.sequencers.iter().any(|member| member.node == node), entry.sequencers.contains(&node)),
        };
        match (named, meant) {
            (true, _) => Self::View,
            (false, true) => Self::Rejoin,
            (false, false) => Self::Leave,
        }
    }
}
