//! Absent members, and when another node replaces them.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::{Address, Endpoint, LogEntry, NodeId, ShardId, Time};

use crate::control::members::{left_out, short};

/// Since when views lack roles that the log should have.
#[derive(Clone, Debug, Default)]
pub(super) struct Absences {
    /// Assigned roles that the latest view excludes.
    roles: BTreeMap<Address, Time>,
    /// Kinds of roles with fewer members than configured.
    kinds: BTreeMap<Endpoint, Time>,
}

impl Absences {
    pub(super) fn learn(&mut self, now: Time, entry: &LogEntry) {
        let since = |role| (role, self.roles.get(&role).copied().unwrap_or(now));
        self.roles = left_out(entry).map(since).collect();
        let since = |(kind, _)| (kind, self.kinds.get(&kind).copied().unwrap_or(now));
        self.kinds = short(entry).map(since).collect();
    }

    pub(super) fn is_any_short(&self) -> bool {
        !self.kinds.is_empty()
    }

    /// Stand-ins that must copy their shard: one per assigned node that has been absent for
    /// `patience`.
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

    /// Kinds with too few members where a role has been absent for `patience`; if none is absent,
    /// where the shortage has lasted that long.
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
