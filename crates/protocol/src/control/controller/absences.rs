//! Members that are away, and when another node takes their place.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::{Address, Endpoint, LogEntry, NodeId, ShardId, Time};

use crate::control::members::{left_out, short};

/// Since when the views lack roles that the log is meant to have.
#[derive(Clone, Debug, Default)]
pub(super) struct Absences {
    /// The assigned roles that the latest view does without.
    roles: BTreeMap<Address, Time>,
    /// The kinds of roles with fewer members in the latest view than the log is configured for.
    kinds: BTreeMap<Endpoint, Time>,
}

impl Absences {
    /// This entry is registered.
    pub(super) fn learn(&mut self, now: Time, entry: &LogEntry) {
        let since = |role| (role, self.roles.get(&role).copied().unwrap_or(now));
        self.roles = left_out(entry).map(since).collect();
        let since = |(kind, _)| (kind, self.kinds.get(&kind).copied().unwrap_or(now));
        self.kinds = short(entry).map(since).collect();
    }

    /// Whether the view has fewer of some kind of role than the log is meant to have.
    pub(super) fn is_any_short(&self) -> bool {
        !self.kinds.is_empty()
    }

    /// The replicas that are to copy their shard: as many of those that stand in for a node of the
    /// shard as there are nodes of it that have been away for as long as they may be.
    pub(super) fn overdue_stand_ins<'a>(
        &'a self,
        now: Time,
        entry: &'a LogEntry,
        patience: Duration,
    ) -> impl Iterator<Item = (ShardId, NodeId)> + 'a {
        let shards = entry.view.iter().flat_map(|view| &view.shards);
        shards.flat_map(move |members| {
            let shard = members.shard;
            let assigned = entry.shards.get(shard.0 as usize).map(Vec::as_slice).unwrap_or_default();
            let since = |node: &NodeId| self.roles.get(&Address::Node(*node, Endpoint::Shard(shard)));
            let is_overdue = |node: &&NodeId| since(node).is_some_and(|since| now >= *since + patience);
            let overdue = assigned.iter().filter(is_overdue).count();
            let nodes = members.replicas.iter().map(|member| member.node);
            let stand_ins = nodes.filter(|node| !assigned.contains(node));
            stand_ins.take(overdue).map(move |node| (shard, node))
        })
    }

    /// The kinds of roles of which the view has too few, where one of the roles is overdue; or
    /// where none is away and the view has had too few for that long.
    pub(super) fn overdue_kinds(&self, now: Time, patience: Duration) -> impl Iterator<Item = Endpoint> {
        let overdue = self.kinds.iter().filter(move |(kind, short_since)| {
            let is_of_kind = |role: &Address| matches!(role, Address::Node(_, endpoint) if endpoint == *kind);
            let away = self.roles.iter().filter(|(role, _)| is_of_kind(role));
            let since = away.map(|(_, since)| *since).min().unwrap_or(**short_since);
            now >= since + patience
        });
        overdue.map(|(kind, _)| *kind)
    }
}
