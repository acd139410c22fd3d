//! Drained nodes: whether the log, or its next view, can exclude one.

use std::collections::BTreeSet;

use seriatim_model::{Address, Endpoint, LogEntry, NodeId, ShardId, Time, ViewNumber};

use super::Controller;
use super::goal::patience;
use crate::control::parting::{self, Group, NodeParting, Partings};
use crate::control::send;
use crate::mutation::Mutation;
use crate::roles::RoleEffect;
use crate::shard;

#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    pub(super) partings: Partings,
    /// The view in which the `whole` replicas are complete.
    view: ViewNumber,
    /// Replicas that hold all records of that view.
    whole: BTreeSet<(ShardId, NodeId)>,
}

impl Controller {
    pub(super) fn told_of_partings(
        &mut self,
        now: Time,
        partings: Vec<NodeParting>,
        out: &mut Vec<RoleEffect>,
    ) {
        let partings = parting::gathered(partings);
        if std::mem::replace(&mut self.leaving.partings, partings.clone()) == partings {
            return;
        }
        if self.is_left_by_some() {
            self.ask_whether_whole(now, out);
            self.act_in_turn(now, out);
        }
    }

    /// Whether drained nodes have roles of the log, or roles have surplus members.
    pub(super) fn is_left_by_some(&self) -> bool {
        self.current.as_ref().is_some_and(|entry| {
            let orders = self.orderers(entry).is_some_and(|group| group.is_unfinished());
            orders || self.holders(entry).any(|(_, group)| group.is_unfinished())
        })
    }

    /// Asks stand-ins for drained and long-absent nodes to copy everything and report it.
    pub(super) fn ask_whether_whole(&self, now: Time, out: &mut Vec<RoleEffect>) {
        let Some(entry) = self.current.as_deref().filter(|_| self.rank() == 0) else { return };
        let view = entry.view_number();
        let awaited = self.holders(entry).flat_map(|(shard, group)| {
            let awaited = group.awaited().into_iter().flatten().copied().collect::<Vec<_>>();
            awaited.into_iter().map(move |node| (shard, node))
        });
        let asked: BTreeSet<(ShardId, NodeId)> =
            awaited.chain(self.absences.overdue_stand_ins(now, entry, patience(self))).collect();
        for (shard, node) in asked.into_iter().filter(|(_, node)| !self.suspected.contains(node)) {
            send(Address::Node(node, Endpoint::Shard(shard)), shard::Message::AskWhole { view }, out);
        }
    }

    pub(super) fn note_whole(
        &mut self,
        now: Time,
        (shard, node): (ShardId, NodeId),
        view: ViewNumber,
        out: &mut Vec<RoleEffect>,
    ) {
        if self.leaving.view != view {
            (self.leaving.view, self.leaving.whole) = (view, BTreeSet::new());
        }
        let is_news = self.leaving.whole.insert((shard, node));
        if is_news && self.current.as_ref().is_some_and(|entry| self.may_be_left(entry)) {
            self.begin(now, out);
        }
    }

    /// Whether another view could exclude drained nodes, or add stand-ins for them.
    pub(super) fn may_be_left(&self, entry: &LogEntry) -> bool {
        let can_fill = |meant: &[NodeId], group: &Group| {
            let taken: BTreeSet<NodeId> = meant.iter().copied().chain(group.kept.clone()).collect();
            let spares = self.liveness().spares(&taken);
            group.unfilled > 0 && !group.stand_ins(spares, &self.leaving.partings).is_empty()
        };
        let orders = self.orderers(entry).filter(|group| !group.drained.is_empty());
        if orders.is_some_and(|group| group.is_whole() || can_fill(&entry.sequencers, &group)) {
            return true;
        }
        let says_so = |shard: ShardId, node: &NodeId| {
            let is_known = self.leaving.whole.contains(&(shard, *node));
            self.leaving.view == entry.view_number() && is_known
                || self.options.mutates(Mutation::DrainedUncopied)
        };
        self.holders(entry).filter(|(_, group)| group.is_unfinished()).any(|(shard, group)| {
            let held = group.awaited().is_some_and(|awaited| awaited.iter().all(|node| says_so(shard, node)));
            held || can_fill(&entry.shards[shard.0 as usize], &group)
        })
    }

    /// Whether stand-ins replace this role of a drained node, which then stays out.
    pub(super) fn is_stood_in_for(&self, entry: &LogEntry, role: Address) -> bool {
        let Address::Node(node, endpoint) = role else { return false };
        if !self.leaving.partings.contains_key(&node) {
            return false;
        }
        match endpoint {
            Endpoint::Shard(of) => self.holders(entry).any(|(shard, group)| shard == of && group.is_whole()),
            _ => self.orderers(entry).is_some_and(|group| group.is_whole()),
        }
    }

    fn orderers(&self, entry: &LogEntry) -> Option<Group> {
        let members = entry.view.as_ref()?.sequencers.iter().map(|member| member.node).collect();
        Some(Group::of(&entry.sequencers, &members, entry.config.sequencers, &self.leaving.partings))
    }

    fn holders<'a>(&'a self, entry: &'a LogEntry) -> impl Iterator<Item = (ShardId, Group)> + 'a {
        let shards = entry.view.iter().flat_map(|view| &view.shards);
        shards.map(|members| {
            let meant = entry.shards.get(members.shard.0 as usize).map(Vec::as_slice).unwrap_or_default();
            let nodes = members.replicas.iter().map(|member| member.node).collect();
            (members.shard, Group::of(meant, &nodes, entry.config.replicas, &self.leaving.partings))
        })
    }
}
