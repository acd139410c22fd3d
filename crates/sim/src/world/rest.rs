//! Whether all work of the nodes for the log is done.

use std::time::Duration;

use seriatim_model::{LogId, Member, NodeId, Position, RetiredShard, ShardId, ShardMembers, Time, View};
use seriatim_store::ShardStore;

use super::leaving::Leavers;
use super::node::Node;
use super::reached::Copies;
use super::truth::Truth;
use crate::coverage::Step;

/// Calm time after which a log that reports itself unavailable ends the run.
const UNAVAILABLE_FOR: Duration = Duration::from_secs(5);
/// The same in plans with a capacity: forming a view takes longer.
const UNAVAILABLE_UNDER_LOAD_FOR: Duration = Duration::from_secs(60);

impl Truth<'_> {
    /// Bound of the positions that the leader has ordered.
    pub(super) fn leader_ordered(&self) -> Option<Position> {
        let view = self.scene.latest_view()?;
        Some(self.nodes[&view.leader].sequencer(self.scene.log)?.ordered())
    }

    /// Whether the latest view has its full number of members, all on running nodes.
    pub(super) fn is_restored(&self) -> bool {
        let (Some(entry), Some(view)) = (self.entry(), self.scene.latest_view()) else {
            return false;
        };
        let is_full = |members: &[Member], wanted: u32| {
            let is_alive = |member: &Member| self.nodes[&member.node].host.is_some();
            members.len() >= wanted as usize && members.iter().all(is_alive)
        };
        is_full(&view.sequencers, entry.config.sequencers)
            && view.shards.iter().all(|members| is_full(&members.replicas, entry.config.replicas))
    }

    /// Whether the log has been unavailable for a while, and no view is about to end that.
    pub(super) fn has_given_up(&self) -> bool {
        let calm = self.scene.history.calm_since.unwrap_or(Time(u64::MAX));
        let says_so = self.entry().is_some_and(|entry| entry.unavailable.is_some());
        let enough = self.scene.plan.capacity.map_or(UNAVAILABLE_FOR, |_| UNAVAILABLE_UNDER_LOAD_FOR);
        let is_over = says_so && !self.scene.plan.has_operator && self.scene.now >= calm + enough;
        is_over && !self.is_view_being_made()
    }

    /// Whether a controller forms a view and has all answers that it needs.
    fn is_view_being_made(&self) -> bool {
        let mut steps = self.nodes.keys().filter_map(|id| self.controller_step(*id));
        steps.any(|step| step >= Step::Flush)
    }

    /// Whether the latest view's members all take part and have everything, and no other roles
    /// exist, except on nodes that left permanently.
    pub(super) fn is_at_rest(&self, leavers: &Leavers, copies: &Copies) -> bool {
        let (Some(view), Some(ordered)) = (self.scene.latest_view(), self.leader_ordered()) else {
            return false;
        };
        let is_open = |member: &Member| {
            self.nodes[&member.node].sequencer(self.scene.log).is_some_and(|role| {
                role.is_open()
                    && role.view_number() == view.number
                    && role.held() == 0
                    && role.ordered() == ordered
            })
        };
        let there = || self.nodes.iter().filter(|(node, _)| !leavers.is_gone(**node));
        let hears_all = |node: &Node| {
            node.host.as_ref().is_some_and(|host| host.suspected().all(|other| leavers.is_gone(other)))
        };
        self.entry().and_then(|entry| entry.view.as_ref()) == Some(view)
            && view.sequencers.len() == self.scene.plan.config.sequencers as usize
            && view.sequencers.iter().all(is_open)
            && view.shards.iter().all(|members| self.is_whole(members, ordered))
            && view.retired.iter().all(|retired| self.is_kept(retired, leavers))
            && there().all(|(id, node)| hears_all(node) && self.hosts_its_roles_only(*id, view))
            && copies.dismissed().all(|(node, shard)| leavers.is_gone(node) || !self.has_store(node, shard))
    }

    /// Whether a node's disk has a store of a shard, used or not.
    pub(super) fn has_store(&self, id: NodeId, shard: ShardId) -> bool {
        let directory = format!("{}/", ShardStore::directory(self.scene.log, shard));
        self.nodes[&id].disk.files().iter().any(|file| file.starts_with(&directory))
    }

    fn is_whole(&self, members: &ShardMembers, ordered: Position) -> bool {
        let replica = |node: NodeId| self.nodes[&node].replica(self.scene.log, members.shard);
        let primary = members.primary().node;
        let is_whole = |member: &Member| {
            replica(member.node).is_some_and(|role| {
                let memory = role.memory();
                memory.incarnation == member.incarnation
                    && memory.view.as_ref().is_some_and(|view| Some(view) == self.scene.latest_view())
                    && role.missing().is_none()
                    && role.unplaced() == 0
                    && (role.stable() == ordered || member.node != primary)
            })
        };
        members.replicas.len() == self.scene.plan.config.replicas as usize
            && members.replicas.iter().all(is_whole)
    }

    /// Whether every running copy of a retired shard has all of its records, unless a part was
    /// given up.
    fn is_kept(&self, retired: &RetiredShard, leavers: &Leavers) -> bool {
        let back = self.that_are_back(self.scene.log, retired);
        let is_given_up = self.entry().is_some_and(|entry| retired.given_up(&entry.history).is_some());
        let is_there = |node: NodeId| self.nodes[&node].host.is_some() && !leavers.is_gone(node);
        let mut copies = (0..).zip(retired.nodes()).filter(|(_, node)| is_there(*node));
        !back.is_empty() && (is_given_up || copies.all(|(place, _)| back.contains(&place)))
    }

    /// Indices of a retired shard's copies that have all of its records.
    fn that_are_back(&self, log: LogId, retired: &RetiredShard) -> Vec<usize> {
        let is_back = |member: &Member| {
            let role = self.nodes[&member.node].replica(log, retired.shard);
            role.is_some_and(|role| {
                let knows = role.memory().view.as_ref().map(|view| view.number);
                knows == Some(retired.last.number)
                    && role.stable() >= retired.until
                    && role.missing().is_none()
            })
        };
        let replicas = retired.copies().replicas.iter().enumerate();
        replicas.filter(|(_, member)| is_back(member)).map(|(place, _)| place).collect()
    }

    /// Indices of the replicas from which a shard must be readable completely.
    pub(super) fn stored_to_read(&self, log: LogId, view: &View, shard: ShardId) -> Vec<usize> {
        match view.retired(shard) {
            Some(retired) => self.that_are_back(log, retired),
            None => (0..view.shard(shard).map_or(0, |members| members.replicas.len())).collect(),
        }
    }

    fn hosts_its_roles_only(&self, id: NodeId, view: &View) -> bool {
        let Some(host) = &self.nodes[&id].host else { return false };
        let names = |members: &[Member]| members.iter().any(|member| member.node == id);
        let is_clean = |members: &ShardMembers| {
            names(&members.replicas) || host.replica(self.scene.log, members.shard).is_none()
        };
        (names(&view.sequencers) || host.sequencer(self.scene.log).is_none())
            && view.shards.iter().all(is_clean)
    }
}
