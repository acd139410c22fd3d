//! The roles and nodes that an entry names, those that it means to have, and what each of them may
//! ask for.

use std::collections::BTreeSet;

use seriatim_model::{Address, Endpoint, LogEntry, NodeId, View};

use super::attempt::Liveness;
use super::message::Message;
use super::send;
use crate::roles::RoleEffect;

/// The nodes of a view, in the order in which they are to act: sequencing replicas first.
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

/// The roles that take part in the view: the shards' replicas first.
pub(super) fn named(entry: &LogEntry) -> impl Iterator<Item = Address> {
    let shards = entry.view.iter().flat_map(|view| &view.shards).flat_map(|members| {
        let endpoint = Endpoint::Shard(members.shard);
        members.replicas.iter().map(move |member| Address::Node(member.node, endpoint))
    });
    let sequencers = entry.view.iter().flat_map(|view| &view.sequencers);
    shards.chain(sequencers.map(|member| Address::Node(member.node, Endpoint::Sequencer)))
}

/// The copies of retired shards.
pub(super) fn retired(entry: &LogEntry) -> impl Iterator<Item = Address> {
    let shards = entry.view.iter().flat_map(|view| &view.retired);
    shards.flat_map(|retired| {
        let endpoint = Endpoint::Shard(retired.shard);
        retired.nodes().map(move |node| Address::Node(node, endpoint))
    })
}

/// The roles that are meant to take part in the view, and do not.
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

/// Where the view has fewer sequencing replicas, or replicas of a shard, than the log is meant to
/// have: the kind of role, and the nodes of those that it has.
pub(super) fn short(entry: &LogEntry) -> impl Iterator<Item = (Endpoint, BTreeSet<NodeId>)> {
    let config = &entry.config;
    let sequencers = entry.view.iter().map(|view| (Endpoint::Sequencer, &view.sequencers, config.sequencers));
    let shards = entry.view.iter().flat_map(|view| &view.shards);
    let replicas = shards.map(|members| (Endpoint::Shard(members.shard), &members.replicas, config.replicas));
    let short = sequencers.chain(replicas).filter(|(_, members, wanted)| members.len() < *wanted as usize);
    short.map(|(kind, members, _)| (kind, members.iter().map(|member| member.node).collect()))
}

/// Whether another node could stand in for a role of these kinds that the view is short of.
pub(super) fn has_spares(entry: &LogEntry, kinds: &BTreeSet<Endpoint>, liveness: Liveness<'_>) -> bool {
    let mut short = short(entry).filter(|(kind, _)| kinds.contains(kind));
    short.any(|(_, take_part)| liveness.spares(&take_part).next().is_some())
}

/// Tells a node that the log does not need one of its roles any more.
pub(super) fn dismiss(entry: &LogEntry, role: Address, out: &mut Vec<RoleEffect>) {
    let Address::Node(node, endpoint) = role else { return };
    let message = Message::Dismiss { log: entry.id, role: endpoint, view: entry.view_number() };
    send(Address::Node(node, Endpoint::Node), message, out);
}

/// The request in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The view counts on the reporter, in this incarnation or an earlier one.
    View,
    /// The view does without it, and should not.
    Rejoin,
    /// The log does not need it any more.
    Leave,
    /// Nothing: its shard is retired, and the node keeps a copy of that.
    Nothing,
    /// Its shard is retired, and the node is not known to keep a copy.
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
