//! Nodes that leave the cluster: others take over, and then they are lost for good, and removed.

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_model::storage::Lacking;
use seriatim_model::{Member, NodeId, ShardId, Time, ViewNumber};
use seriatim_protocol::control::parting::{self, Parting, PartingChange};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_store::MemoryDisk;

use super::scene::Happening;
use super::{CONTROL, World};
use crate::coverage::FaultKind;
use crate::plan::Departure;

/// How often an operator looks how far it is, and asks again.
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// Longer than any run.
const FOR_GOOD: Duration = Duration::from_secs(100_000);

/// A node that leaves.
#[derive(Debug)]
pub(super) struct Leaver {
    by: Option<NodeId>,
    stage: Stage,
    /// When it is to stay after all.
    stays_at: Option<Time>,
    /// It does not run any more, and never will.
    is_gone: bool,
    /// The shards of the tested log that it has, or is meant to have, replicas of.
    had: BTreeSet<ShardId>,
    /// The views that did without it first, where it was drained.
    left: Vec<(ShardId, ViewNumber)>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Others are to take over.
    Drained,
    /// It has nothing any more, and is to be removed.
    Removed,
    /// It is removed, or stays.
    Done,
}

impl World {
    /// Whether a node will never be there again.
    pub(super) fn is_gone(&self, id: NodeId) -> bool {
        self.leavers.get(&id).is_some_and(|leaver| leaver.is_gone)
    }

    /// Whether no operator waits for a node to leave, of those that can.
    pub(super) fn departures_are_over(&self) -> bool {
        let there = self.cluster.nodes.keys().filter(|node| !self.leavers.contains_key(node)).count();
        let config = &self.cluster.scene.plan.config;
        let can_leave = there >= config.sequencers.max(config.replicas) as usize;
        // An earlier log has one replica of everything: what that one forgot holds it up, for an operator to say what is lost.
        let is_held_up = |node: NodeId| {
            let mut has = self.cluster.entries().filter(|entry| !parting::is_rid_of(entry, node));
            has.any(|entry| entry.id != self.cluster.scene.log && entry.unavailable.is_some())
        };
        self.leavers.iter().all(|(node, leaver)| {
            let is_over = leaver.stage == Stage::Done || leaver.by.is_some();
            is_over || !can_leave || is_held_up(*node)
        })
    }

    /// How far all of them are, and which logs they still have something of, for a person.
    pub(super) fn what_holds_up_leavers(&self) -> Vec<String> {
        let tell = |(node, leaver): (&NodeId, &Leaver)| {
            let left = self.cluster.entries().filter(|entry| !parting::is_rid_of(entry, *node));
            let left: Vec<String> = left
                .map(|entry| {
                    let view = entry.view.as_ref().map(|view| (view.number, &view.sequencers, &view.shards));
                    let unavailable = &entry.unavailable;
                    format!(
                        "{}: {:?} {:?} {view:?} {unavailable:?}",
                        entry.name, entry.sequencers, entry.shards
                    )
                })
                .collect();
            format!("node {node} leaves: {leaver:?}, and has something of {left:?}")
        };
        self.leavers.iter().map(tell).collect()
    }

    /// A node is to leave.
    pub(super) fn departs(&mut self, departure: Departure) {
        let may_leave = |world: &Self, id: NodeId| id != CONTROL && !world.leavers.contains_key(&id);
        let mut nodes: Vec<NodeId> =
            self.cluster.nodes.keys().copied().filter(|id| may_leave(self, *id)).collect();
        let turn = self.cluster.scene.random.below(nodes.len() as u64 + 1) as usize;
        nodes.rotate_left(turn);
        nodes.sort_by_key(|node| !self.cluster.truth().is_meant(*node, departure.target));
        let Some(node) = nodes.first().copied() else { return };
        let is_free = |other: &NodeId| {
            let mut entries = self.cluster.entries();
            *other != node && entries.all(|entry| parting::is_rid_of(entry, *other))
        };
        let by = nodes.iter().copied().filter(|_| departure.has_successor).find(is_free);
        // Of an earlier log there is one replica.
        let bears_it =
            |entry: &LogEntry| entry.id == self.cluster.scene.log || parting::is_rid_of(entry, node);
        // Without enough others a node keeps what it has; but what a lost one had, nobody could have.
        let config = &self.cluster.scene.plan.config;
        let suffice =
            self.cluster.nodes.len() > self.leavers.len() + config.sequencers.max(config.replicas) as usize;
        if !suffice && self.leavers.values().any(|leaver| leaver.is_gone) {
            return;
        }
        let is_told = suffice && self.cluster.entry().is_some();
        let bears_it =
            is_told && self.cluster.scene.history.is_on_disk() && self.cluster.entries().all(bears_it);
        let is_lost = departure.is_lost && bears_it && self.cluster.bears(FaultKind::DiskLoss, &[node]);
        let stays_at = departure.stays_after.filter(|_| !is_lost).map(|after| self.cluster.scene.now + after);
        let stage = Stage::Drained;
        self.leavers.insert(
            node,
            Leaver { by, stage, stays_at, is_gone: is_lost, had: BTreeSet::new(), left: vec![] },
        );
        self.cluster.scene.tell(format_args!("node {node} is to leave, lost {is_lost}, to {by:?}"));
        if is_lost {
            self.cluster.kill_node(node, false, FOR_GOOD);
        }
        self.departures_go_on();
    }

    /// Looks how far all of them are.
    pub(super) fn departures_go_on(&mut self) {
        self.cluster.scene.schedule(self.cluster.scene.now + LOOKS_EVERY, Happening::DeparturesGoOn);
        for node in self.leavers.keys().copied().collect::<Vec<_>>() {
            self.departure_goes_on(node);
            self.observe_those_left(node);
        }
    }

    /// In the view that first does without a drained node as many of the others as the log is to have hold everything. What
    /// they lack they find out when they start it. One that is drained, too, and still there counts.
    fn observe_those_left(&mut self, node: NodeId) {
        for (shard, view) in self.leavers[&node].left.clone() {
            let registered = self
                .cluster
                .scene
                .history
                .views
                .get(&view)
                .and_then(|registered| registered.view.shard(shard));
            let members: Vec<Member> = registered.map(|members| members.replicas.clone()).unwrap_or_default();
            let lack: Vec<(NodeId, Lacking)> = members
                .iter()
                .filter_map(|member| Some((member.node, self.lacks_in(*member, shard, view)?)))
                .collect();
            if !lack.is_empty()
                && members.len() - lack.len() < self.cluster.scene.plan.config.replicas as usize
            {
                self.cluster.scene.history.left_early.push(format!(
                    "view {view} does without node {node}, and of shard {shard} these lack something: {lack:?}"
                ));
            }
        }
    }

    /// The positions below the start of its view that a member lacks. What a drained node held is below it.
    fn lacks_in(&self, member: Member, shard: ShardId, view: ViewNumber) -> Option<Lacking> {
        let role = self.cluster.nodes.get(&member.node)?.replica(self.cluster.scene.log, shard)?;
        let known = role.memory().view.as_ref().filter(|known| known.number == view)?;
        // One that lost its memory since then is no member of it.
        let is_member = role.memory().incarnation == member.incarnation;
        role.lacks().filter(|lacks| is_member && lacks.from < lacks.end.min(known.start))
    }

    fn departure_goes_on(&mut self, node: NodeId) {
        let Some(parting) = self.cluster.truth().partings().map(|partings| partings.get(&node).copied())
        else {
            return;
        };
        let leaver = &self.leavers[&node];
        let is_rid = parting.is_some() && self.cluster.entries().all(|entry| parting::is_rid_of(entry, node));
        match leaver.stage {
            Stage::Drained if leaver.stays_at.is_some_and(|at| self.cluster.scene.now >= at) => match parting
            {
                Some(_) => self.ask_to_part(node, PartingChange::Stay),
                None => self.leavers.get_mut(&node).expect("just seen").stage = Stage::Done,
            },
            Stage::Drained if is_rid => self.stop_drained(node),
            Stage::Drained => {
                let by = leaver.by;
                if parting != Some(Parting::Drained { by }) {
                    self.ask_to_part(node, PartingChange::Drain { by });
                }
            }
            Stage::Removed if parting == Some(Parting::Removed) => {
                self.cluster.scene.coverage.removed += 1;
                self.leavers.get_mut(&node).expect("just seen").stage = Stage::Done;
            }
            Stage::Removed => self.ask_to_part(node, PartingChange::Remove),
            Stage::Done => {}
        }
    }

    /// The operator is told that the node can be stopped, and does worse.
    fn stop_drained(&mut self, node: NodeId) {
        self.cluster.scene.tell(format_args!("node {node} has nothing any more"));
        self.cluster.scene.coverage.drained += 1;
        let leaver = self.leavers.get_mut(&node).expect("it leaves");
        (leaver.stage, leaver.is_gone, leaver.stays_at) = (Stage::Removed, true, None);
        self.cluster.kill_node(node, true, FOR_GOOD);
        self.cluster.nodes.get_mut(&node).expect("the node exists").disk = MemoryDisk::new();
        self.ask_to_part(node, PartingChange::Remove);
    }

    fn ask_to_part(&mut self, node: NodeId, change: PartingChange) {
        let message = control::Message::Part { request: self.cluster.scene.question(), node, change };
        self.cluster.ask_register(message);
    }

    /// The register may have another view, without a node that leaves.
    pub(super) fn observe_leavers(&mut self) {
        let Some(entry) = self.cluster.entry().filter(|_| !self.leavers.is_empty()) else { return };
        let entry = entry.clone();
        for (node, leaver) in std::mem::take(&mut self.leavers) {
            let members = |shard: ShardId| {
                let members = entry.view.as_ref().and_then(|view| view.shard(shard));
                members.map(|members| members.replicas.clone()).unwrap_or_default()
            };
            let has = |shard: &ShardId| {
                entry.shards[shard.0 as usize].contains(&node)
                    || members(*shard).iter().any(|member| member.node == node)
            };
            let all = (0..entry.shards.len() as u32).map(ShardId);
            let now: BTreeSet<ShardId> = all.filter(has).collect();
            let drained =
                self.cluster.truth().partings().is_some_and(|partings| partings.contains_key(&node));
            let mut left = leaver.left.clone();
            let latest = entry.view_number();
            left.extend(leaver.had.difference(&now).filter(|_| drained).map(|shard| (*shard, latest)));
            self.leavers.insert(node, Leaver { had: now, left, ..leaver });
        }
    }
}
