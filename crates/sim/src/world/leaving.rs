//! Nodes leave the cluster: others take over, then the node is permanently lost and removed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::storage::MissingRange;
use seriatim_model::{Member, NodeId, ShardId, Time, ViewNumber};
use seriatim_protocol::control::parting::{self, Parting, PartingChange};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_store::MemoryDisk;

use super::CONTROL;
use super::cluster::Cluster;
use super::faults::Faults;
use super::scene::Happening;
use crate::coverage::FaultKind;
use crate::plan::Departure;

/// Interval at which the operator checks and repeats its requests.
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// Longer than any run.
const FOR_GOOD: Duration = Duration::from_secs(100_000);

#[derive(Debug)]
struct Leaver {
    by: Option<NodeId>,
    stage: Stage,
    /// When its departure is revoked.
    stays_at: Option<Time>,
    /// Whether it is permanently down.
    is_gone: bool,
    /// Shards of the tested log that it has or is assigned.
    had: BTreeSet<ShardId>,
    /// First view of each shard that excludes the drained node.
    left: Vec<(ShardId, ViewNumber)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Other nodes must take over its roles.
    Drained,
    /// It has no roles left and must be removed.
    Removed,
    /// The node is removed, or stays after all.
    Done,
}

/// Nodes that leave or have left, and their operator.
#[derive(Debug, Default)]
pub(super) struct Leavers(BTreeMap<NodeId, Leaver>);

impl Leavers {
    pub(super) fn is_gone(&self, id: NodeId) -> bool {
        self.0.get(&id).is_some_and(|leaver| leaver.is_gone)
    }

    /// Whether every departure that can complete is complete.
    pub(super) fn are_over(&self, cluster: &Cluster) -> bool {
        let there = cluster.ids().iter().filter(|node| !self.0.contains_key(node)).count();
        let config = &cluster.scene.plan.config;
        let can_leave = there >= config.sequencers.max(config.replicas) as usize;
        // An earlier log has one replica of everything: if that lost its memory, the departure
        // waits for an operator to accept the loss.
        let is_held_up = |node: NodeId| {
            let mut has = cluster.entries().filter(|entry| !parting::is_rid_of(entry, node));
            has.any(|entry| entry.id != cluster.scene.log && entry.unavailable.is_some())
        };
        // Records of a retired shard stay where they are until trimmed.
        let has_retired =
            |node: NodeId| cluster.entries().any(|entry| parting::retired_shard_on(entry, node).is_some());
        self.0.iter().all(|(node, leaver)| {
            let is_over = leaver.stage == Stage::Done || leaver.by.is_some();
            is_over || !can_leave || is_held_up(*node) || has_retired(*node)
        })
    }

    pub(super) fn state(&self, cluster: &Cluster) -> Vec<String> {
        let tell = |(node, leaver): (&NodeId, &Leaver)| {
            let left = cluster.entries().filter(|entry| !parting::is_rid_of(entry, *node));
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
        self.0.iter().map(tell).collect()
    }

    pub(super) fn departs(&mut self, cluster: &mut Cluster, departure: Departure) {
        let may_leave = |leavers: &Self, id: NodeId| id != CONTROL && !leavers.0.contains_key(&id);
        let mut nodes: Vec<NodeId> = cluster.ids().into_iter().filter(|id| may_leave(self, *id)).collect();
        let turn = cluster.scene.random.below(nodes.len() as u64 + 1) as usize;
        nodes.rotate_left(turn);
        nodes.sort_by_key(|node| !cluster.truth().is_meant(*node, departure.target));
        let Some(node) = nodes.first().copied() else { return };
        let is_free = |other: &NodeId| {
            let mut entries = cluster.entries();
            *other != node && entries.all(|entry| parting::is_rid_of(entry, *other))
        };
        let by = nodes.iter().copied().filter(|_| departure.has_successor).find(is_free);
        // An earlier log has only one replica, so the node must have none of its roles.
        let bears_it = |entry: &LogEntry| entry.id == cluster.scene.log || parting::is_rid_of(entry, node);
        // Without enough other nodes a node keeps its roles; those of a lost node could not be
        // placed.
        let config = &cluster.scene.plan.config;
        let suffice = cluster.ids().len() > self.0.len() + config.sequencers.max(config.replicas) as usize;
        if !suffice && self.0.values().any(|leaver| leaver.is_gone) {
            return;
        }
        let is_told = suffice && cluster.entry().is_some();
        let bears_it = is_told && cluster.scene.history.is_on_disk() && cluster.entries().all(bears_it);
        let is_lost =
            departure.is_lost && bears_it && Faults::may_strike(cluster, FaultKind::DiskLoss, &[node]);
        let stays_at = departure.stays_after.filter(|_| !is_lost).map(|after| cluster.scene.now + after);
        let stage = Stage::Drained;
        self.0.insert(
            node,
            Leaver { by, stage, stays_at, is_gone: is_lost, had: BTreeSet::new(), left: vec![] },
        );
        cluster.scene.tell(format_args!("node {node} is to leave, lost {is_lost}, to {by:?}"));
        if is_lost {
            cluster.kill_node(node, false, FOR_GOOD);
        }
        self.go_on(cluster);
    }

    pub(super) fn go_on(&mut self, cluster: &mut Cluster) {
        cluster.scene.schedule(cluster.scene.now + LOOKS_EVERY, Happening::DeparturesGoOn);
        for node in self.0.keys().copied().collect::<Vec<_>>() {
            self.goes_on(cluster, node);
            self.note_left(cluster, node);
        }
    }

    /// Checks the first view without a drained node: the log's full number of replicas must hold
    /// everything. Members discover their missing ranges when they start the view. A drained member
    /// that is still up counts.
    fn note_left(&self, cluster: &mut Cluster, node: NodeId) {
        for (shard, view) in self.0[&node].left.clone() {
            let registered =
                cluster.scene.history.views.get(&view).and_then(|registered| registered.view.shard(shard));
            let members: Vec<Member> = registered.map(|members| members.replicas.clone()).unwrap_or_default();
            let lack: Vec<(NodeId, MissingRange)> = members
                .iter()
                .filter_map(|member| Some((member.node, Self::missing_in(cluster, *member, shard, view)?)))
                .collect();
            if !lack.is_empty() && members.len() - lack.len() < cluster.scene.plan.config.replicas as usize {
                cluster.scene.history.left_early.push(format!(
                    "view {view} does without node {node}, and of shard {shard} these lack something: {lack:?}"
                ));
            }
        }
    }

    /// Range below its view's start that a member lacks. The drained node's records lie there.
    fn missing_in(
        cluster: &Cluster,
        member: Member,
        shard: ShardId,
        view: ViewNumber,
    ) -> Option<MissingRange> {
        let role = cluster.truth().nodes.get(&member.node)?.replica(cluster.scene.log, shard)?;
        let known = role.memory().view.as_ref().filter(|known| known.number == view)?;
        // A replica that lost its memory since then is no member.
        let is_member = role.memory().incarnation == member.incarnation;
        role.missing().filter(|missing| is_member && missing.from < missing.end.min(known.start))
    }

    fn goes_on(&mut self, cluster: &mut Cluster, node: NodeId) {
        let Some(parting) = cluster.truth().partings().map(|partings| partings.get(&node).copied()) else {
            return;
        };
        let leaver = &self.0[&node];
        let is_rid = parting.is_some() && cluster.entries().all(|entry| parting::is_rid_of(entry, node));
        match leaver.stage {
            Stage::Drained if leaver.stays_at.is_some_and(|at| cluster.scene.now >= at) => match parting {
                Some(_) => Self::ask_to_part(cluster, node, PartingChange::Stay),
                None => self.0.get_mut(&node).expect("just seen").stage = Stage::Done,
            },
            Stage::Drained if is_rid => self.stop_drained(cluster, node),
            Stage::Drained => {
                let by = leaver.by;
                if parting != Some(Parting::Drained { by }) {
                    Self::ask_to_part(cluster, node, PartingChange::Drain { by });
                }
            }
            Stage::Removed if parting == Some(Parting::Removed) => {
                cluster.scene.coverage.removed += 1;
                self.0.get_mut(&node).expect("just seen").stage = Stage::Done;
            }
            Stage::Removed => Self::ask_to_part(cluster, node, PartingChange::Remove),
            Stage::Done => {}
        }
    }

    /// Stops a drained node, as its operator may do now: kills it and erases its disk.
    fn stop_drained(&mut self, cluster: &mut Cluster, node: NodeId) {
        cluster.scene.tell(format_args!("node {node} has nothing any more"));
        cluster.scene.coverage.drained += 1;
        let leaver = self.0.get_mut(&node).expect("it leaves");
        (leaver.stage, leaver.is_gone, leaver.stays_at) = (Stage::Removed, true, None);
        cluster.kill_node(node, true, FOR_GOOD);
        cluster.node_mut(node).disk = MemoryDisk::new();
        Self::ask_to_part(cluster, node, PartingChange::Remove);
    }

    fn ask_to_part(cluster: &mut Cluster, node: NodeId, change: PartingChange) {
        let message = control::Message::Part { request: cluster.scene.question(), node, change };
        cluster.ask_register(message);
    }

    pub(super) fn look_at_register(&mut self, cluster: &Cluster) {
        let Some(entry) = cluster.entry().filter(|_| !self.0.is_empty()) else { return };
        let entry = entry.clone();
        for (node, leaver) in std::mem::take(&mut self.0) {
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
            let drained = cluster.truth().partings().is_some_and(|partings| partings.contains_key(&node));
            let mut left = leaver.left.clone();
            let latest = entry.view_number();
            left.extend(leaver.had.difference(&now).filter(|_| drained).map(|shard| (*shard, latest)));
            self.0.insert(node, Leaver { had: now, left, ..leaver });
        }
    }
}
