//! Faults: what each kind does, and how it ends.

use std::time::Duration;

use seriatim_model::{NodeId, View};
use seriatim_store::{Disk, MemoryDisk};

use super::network_faults::{NetworkFaults, NetworkMend, Struck};
use super::scene::Happening;
use super::{CONTROL, World};
use crate::coverage::FaultKind;
use crate::plan::{Fault, Target};

/// How long a run goes on when a node is back that was missed.
const BACK_FOR: Duration = Duration::from_millis(800);

/// The end of a fault that lasts.
#[derive(Debug)]
pub(super) enum Mend {
    Network(NetworkMend),
    Room(NodeId),
    Disk(NodeId),
    Lag(NodeId),
    Pause(NodeId, u64),
    Lie(NodeId, Duration),
}

impl World {
    /// A fault strikes, unless the log could not bear it and need not.
    pub(super) fn strike(&mut self, fault: Fault) {
        if self.cluster.scene.history.calm_since.is_some() {
            return;
        }
        let step = self.protocol_step();
        let victims = self.victims(fault);
        if !self.may_strike(fault.kind, &victims) {
            return;
        }
        self.cluster.scene.tell(format_args!("fault: {} at {step}, {victims:?}", fault.kind));
        self.cluster.scene.trace.number(fault.kind as u64);
        self.cluster.scene.coverage.struck(fault.kind, step);
        if self.cluster.scene.plan.lasts_long {
            self.busy_until = self.busy_until.max(self.cluster.scene.now + fault.lasting + BACK_FOR);
        }
        match fault.kind {
            FaultKind::Kill | FaultKind::ControlKill | FaultKind::DoubleKill => {
                self.kill_all(&victims, false, fault.lasting);
            }
            FaultKind::PowerLoss | FaultKind::PowerCut => self.kill_all(&victims, true, fault.lasting),
            FaultKind::KillInTurn => self.kill_in_turn(fault, &victims),
            FaultKind::Absence => {
                let down_for = self.stay_away();
                self.kill_all(&victims, false, down_for);
            }
            FaultKind::DiskLoss | FaultKind::JournalLoss | FaultKind::FileLoss => {
                self.lose_disk(fault, victims[0]);
            }
            FaultKind::LyingDisk => self.begin_to_lie(fault, victims[0]),
            FaultKind::BitRot => self.damage(victims[0]),
            FaultKind::Pause | FaultKind::ClockJump | FaultKind::SlowNode => {
                self.hold_up(fault, victims[0]);
            }
            FaultKind::Close | FaultKind::CloseAll => {
                for node in victims {
                    self.cluster.close_node(node, fault.lasting);
                }
            }
            FaultKind::SyncFailure | FaultKind::DiskFull | FaultKind::SlowDisk => {
                self.spoil_disk(fault, victims[0]);
            }
            FaultKind::Loss
            | FaultKind::Duplication
            | FaultKind::Reordering
            | FaultKind::Partition
            | FaultKind::PartialPartition
            | FaultKind::ControlPartition
            | FaultKind::ControlOneWay
            | FaultKind::OneWay
            | FaultKind::Mute
            | FaultKind::ClientPartition
            | FaultKind::SlowLinks => self.strike_network(fault, &victims),
            FaultKind::Reset => {
                let some = self.network_faults().some_connections();
                some.into_iter().for_each(|(connection, a, b)| self.cluster.reset(connection, a, b));
            }
            FaultKind::ClientCrash => {
                let clients = self.clients.mortal();
                let client = self.cluster.scene.random.pick(&clients);
                self.clients.kill(&mut self.cluster, client, fault.lasting);
            }
        }
    }

    fn network_faults(&mut self) -> NetworkFaults<'_> {
        let nodes = self.cluster.nodes.keys().copied().collect();
        let clients = self.cluster.scene.plan.workload.clients;
        NetworkFaults {
            network: &mut self.cluster.wires.network,
            random: &mut self.cluster.scene.random,
            nodes,
            clients,
        }
    }

    fn strike_network(&mut self, fault: Fault, victims: &[NodeId]) {
        let Struck { mend, broken } = self.network_faults().strike(fault, victims);
        self.cluster
            .scene
            .schedule(self.cluster.scene.now + fault.lasting, Happening::Mend(Mend::Network(mend)));
        broken.into_iter().for_each(|(connection, a, b)| self.cluster.reset(connection, a, b));
    }

    /// The nodes that are meant, in the order in which they are hit.
    fn victims(&mut self, fault: Fault) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.cluster.nodes.keys().copied().collect();
        // Any order, but the nodes that host the log's sequencing replicas more often first.
        for index in (1..nodes.len()).rev() {
            nodes.swap(index, self.cluster.scene.random.below(index as u64 + 1) as usize);
        }
        if self.cluster.scene.random.percent(60) {
            nodes.sort_by_key(|node| self.cluster.nodes[node].sequencer(self.cluster.scene.log).is_none());
        }
        nodes.sort_by_key(|node| !self.is_meant(*node, fault.target));
        let targeted = fault.target != Target::Any;
        let count = match fault.kind {
            FaultKind::Partition | FaultKind::PartialPartition if targeted => 1,
            FaultKind::PowerCut | FaultKind::CloseAll => nodes.len(),
            FaultKind::ControlKill | FaultKind::ControlPartition | FaultKind::ControlOneWay => {
                return vec![CONTROL];
            }
            FaultKind::DoubleKill | FaultKind::KillInTurn | FaultKind::OneWay => 2,
            // The register's disk is the only one of its kind.
            kind if kind.loses_disk() => {
                nodes.retain(|node| *node != CONTROL);
                1
            }
            FaultKind::Partition | FaultKind::PartialPartition => {
                self.cluster.scene.random.between(1, nodes.len() as u64 - 1) as usize
            }
            _ => 1,
        };
        nodes.truncate(count);
        nodes
    }

    pub(super) fn is_meant(&self, id: NodeId, target: Target) -> bool {
        let view = self.cluster.scene.latest_view();
        let leads = view.is_some_and(|view| view.leader == id);
        let orders = view.is_some_and(|view| view.sequencers.iter().any(|member| member.node == id));
        let holds = view.is_some_and(|view| {
            view.shards.iter().any(|members| members.replicas.iter().any(|member| member.node == id))
        });
        match target {
            Target::Any => true,
            Target::Leader => leads,
            Target::Follower => orders && !leads,
            Target::Shard => holds && !orders,
            Target::Primary => {
                view.is_some_and(|view| view.shards.iter().any(|members| members.primary().node == id))
            }
            Target::Controller => self.cluster.truth().controller_step(id).is_some(),
            Target::Node(node) => node == id,
        }
    }

    pub(super) fn may_strike(&self, kind: FaultKind, victims: &[NodeId]) -> bool {
        if kind == FaultKind::ClientCrash {
            return !self.clients.is_empty();
        }
        // Loss and damage together are more than anybody was told to expect, also of an operator. A view that is formed
        // without the other replicas is left with the damaged ones.
        let is_damaged = self.cluster.disks.damaged_node().is_some();
        let bears_it = !kind.loses_memory()
            || !is_damaged
                && (self.cluster.scene.history.is_on_disk() || self.cluster.scene.plan.may_lose_too_much)
            || self.does_without(victims);
        let reachable = match kind {
            FaultKind::Close | FaultKind::CloseAll | FaultKind::Pause | FaultKind::ClockJump => {
                victims.iter().any(|node| self.cluster.nodes[node].host.is_some())
            }
            _ if kind.loses_memory() => victims.iter().any(|node| self.cluster.nodes[node].host.is_some()),
            _ => true,
        };
        let spared = match kind {
            kind if kind.loses_disk() || kind == FaultKind::BitRot => {
                // A replica that goes away before it knows the view counts for nothing when it is back.
                let bears_it = |view: &View| {
                    let bearing = self.cluster.truth();
                    bearing.survives_knowing(view, victims, view.number)
                        && bearing.flush_survives(victims)
                        && bearing.is_all_elsewhere(kind == FaultKind::BitRot, view, victims)
                };
                self.cluster.disks.spoiled().is_none()
                    && self.cluster.scene.latest_view().is_some_and(bears_it)
            }
            _ => true,
        };
        bears_it && reachable && spared
    }

    fn kill_all(&mut self, nodes: &[NodeId], power: bool, down_for: Duration) {
        for node in nodes {
            let down_for = down_for + self.cluster.scene.random.millis(0, 20);
            self.cluster.kill_node(*node, power, down_for);
        }
    }

    /// How long a node stays away that is to be missed. The run waits for it.
    fn stay_away(&mut self) -> Duration {
        let down_for = self.cluster.scene.random.millis(3000, 6000);
        self.busy_until = self.busy_until.max(self.cluster.scene.now + down_for + BACK_FOR);
        down_for
    }

    /// The second is killed while the others are still busy with the first.
    fn kill_in_turn(&mut self, fault: Fault, nodes: &[NodeId]) {
        self.kill_all(&nodes[..1], false, fault.lasting);
        let next = Fault { kind: FaultKind::Kill, target: Target::Node(nodes[1]), ..fault };
        let pause = self.cluster.scene.random.micros(10, 3000);
        self.cluster.scene.schedule(self.cluster.scene.now + pause, Happening::Strike(next));
    }

    fn lose_disk(&mut self, fault: Fault, id: NodeId) {
        self.cluster.spoil(id, fault.kind);
        let down_for = if self.cluster.scene.random.percent(30) { self.stay_away() } else { fault.lasting };
        self.cluster.kill_node(id, false, down_for);
        match fault.kind {
            FaultKind::JournalLoss => self.lose_files(id, |name| name.starts_with("journal/"), false),
            FaultKind::FileLoss => {
                let directory = format!("logs/{:016x}/shard-", self.cluster.scene.log.0);
                self.lose_files(id, |name| name.starts_with(&directory), true);
            }
            _ => {
                let disk = if self.cluster.scene.plan.disk_goes_back {
                    self.cluster.disks.past_of(&mut self.cluster.scene, id)
                } else {
                    MemoryDisk::new()
                };
                self.cluster.nodes.get_mut(&id).expect("the node exists").disk = disk;
            }
        }
        self.cluster.nodes.get_mut(&id).expect("the node exists").asleep = None;
    }

    /// Removes files of a disk: all that are meant, or one of them.
    fn lose_files(&mut self, id: NodeId, is_meant: impl Fn(&String) -> bool, one: bool) {
        let disk = self.cluster.nodes[&id].disk.clone();
        let mut files: Vec<String> = disk.files().into_iter().filter(is_meant).collect();
        if one && !files.is_empty() {
            files = vec![self.cluster.scene.random.pick(&files)];
        }
        self.cluster.scene.tell(format_args!("node {id} loses {files:?}"));
        for file in files {
            disk.delete(&file).expect("a disk in memory deletes what it is told");
        }
    }

    /// From now on a disk says that it has synced, and has not, until the power fails.
    fn begin_to_lie(&mut self, fault: Fault, id: NodeId) {
        self.cluster.nodes[&id].disk.lie(true);
        let end = Mend::Lie(id, fault.lasting);
        self.cluster.scene.schedule(self.cluster.scene.now + fault.lasting, Happening::Mend(end));
    }

    /// The power fails that uncovers what a disk did not sync; all of its journal since then is lost, and any part of the
    /// rest. If the log could not bear that by now, it was all true.
    fn end_to_lie(&mut self, id: NodeId, down_for: Duration) {
        self.cluster.nodes[&id].disk.lie(false);
        let is_calm = self.cluster.scene.history.calm_since.is_some();
        if is_calm || !self.may_strike(FaultKind::LyingDisk, &[id]) {
            return self.cluster.nodes[&id].disk.keep_all();
        }
        self.cluster.spoil(id, FaultKind::LyingDisk);
        self.cluster.nodes[&id].disk.lose_unsynced("journal");
        self.cluster.kill_node(id, true, down_for);
        self.cluster.nodes.get_mut(&id).expect("the node exists").asleep = None;
    }

    /// Flips bits in the files of one replica of one shard, and makes sectors bad.
    fn damage(&mut self, id: NodeId) {
        self.cluster.spoil(id, FaultKind::BitRot);
        let disk = self.cluster.nodes[&id].disk.clone();
        let directory = format!("logs/{:016x}/shard-", self.cluster.scene.log.0);
        let is_segment = |name: &String| name.starts_with(&directory) && name.contains("/seg-");
        let files: Vec<String> = disk.files().into_iter().filter(is_segment).collect();
        if files.is_empty() {
            return;
        }
        for _ in 0..self.cluster.scene.random.between(1, 20) {
            let file = self.cluster.scene.random.pick(&files);
            let len = disk.content(&file).map_or(0, |content| content.len() as u64);
            let offset = self.cluster.scene.random.below(len.max(1));
            if self.cluster.scene.random.percent(25) {
                disk.spoil_sector(&file, offset);
            } else {
                disk.flip_bit(&file, offset, self.cluster.scene.random.below(8) as u8);
            }
        }
    }

    /// Whether the log has everything that these nodes hold elsewhere, too, and undamaged.
    fn does_without(&self, nodes: &[NodeId]) -> bool {
        let damaged = self.cluster.disks.damaged_node();
        let nodes: Vec<NodeId> = nodes.iter().copied().chain(damaged).collect();
        self.cluster.scene.latest_view().is_some_and(|view| {
            let bearing = self.cluster.truth();
            bearing.survives(view, &nodes) && (damaged.is_none() || bearing.is_complete_without(view, &nodes))
        })
    }

    fn hold_up(&mut self, fault: Fault, id: NodeId) {
        match fault.kind {
            FaultKind::Pause => {
                self.cluster.pause_node(id);
                let mend = Mend::Pause(id, self.cluster.nodes[&id].life);
                self.cluster.scene.schedule(self.cluster.scene.now + fault.lasting, Happening::Mend(mend));
            }
            FaultKind::ClockJump => {
                let jump = self.cluster.scene.random.millis(10, 5000);
                self.cluster.nodes.get_mut(&id).expect("the node exists").clock_ahead += jump;
                self.cluster.wake_node(id, self.cluster.scene.now);
            }
            _ => {
                let lag = self.cluster.scene.random.micros(1000, 40_000);
                let node = self.cluster.nodes.get_mut(&id).expect("the node exists");
                (node.lag, node.slowness) = (lag, 10);
                self.cluster
                    .scene
                    .schedule(self.cluster.scene.now + fault.lasting, Happening::Mend(Mend::Lag(id)));
            }
        }
    }

    fn spoil_disk(&mut self, fault: Fault, id: NodeId) {
        let room = self.cluster.scene.random.below(6000);
        let node = self.cluster.nodes.get_mut(&id).expect("the node exists");
        if fault.kind != FaultKind::SlowDisk {
            (node.has_torn_disk, self.cluster.scene.history.disks_failed) = (true, true);
        }
        match fault.kind {
            FaultKind::SyncFailure => node.disk.fail_syncs(1),
            FaultKind::DiskFull => {
                node.disk.set_capacity(Some(node.disk.used() + room));
                self.cluster
                    .scene
                    .schedule(self.cluster.scene.now + fault.lasting, Happening::Mend(Mend::Room(id)));
            }
            _ => {
                node.slowness = 20;
                self.cluster
                    .scene
                    .schedule(self.cluster.scene.now + fault.lasting, Happening::Mend(Mend::Disk(id)));
            }
        }
    }

    pub(super) fn mend(&mut self, mend: Mend) {
        match mend {
            Mend::Network(mend) => {
                mend.mend(&mut self.cluster.wires.network, self.cluster.scene.history.calm_since.is_some())
            }
            Mend::Room(node) => {
                self.cluster.nodes[&node].disk.set_capacity(self.cluster.scene.plan.disk.most)
            }
            Mend::Pause(node, life) => self.cluster.resume_node(node, life),
            Mend::Lie(node, down_for) => self.end_to_lie(node, down_for),
            Mend::Lag(node) => {
                let node = self.cluster.nodes.get_mut(&node).expect("the node exists");
                (node.lag, node.slowness) = (Duration::ZERO, 1);
            }
            Mend::Disk(node) => self.cluster.nodes.get_mut(&node).expect("the node exists").slowness = 1,
        }
    }

    /// From now on nothing goes wrong any more, and what went wrong is put right.
    pub(super) fn calm(&mut self) {
        self.cluster.scene.tell(format_args!("calm"));
        self.cluster.scene.history.calm_since = Some(self.cluster.scene.now);
        self.pending_faults.clear();
        self.cluster.wires.network.heal();
        let (mut down, mut up) = (vec![], vec![]);
        for node in self.cluster.nodes.values_mut() {
            node.disk.set_capacity(self.cluster.scene.plan.disk.most);
            node.disk.fail_syncs(0);
            node.disk.lie(false);
            (node.lag, node.slowness) = (Duration::ZERO, 1);
            if node.host.is_some() { &mut up } else { &mut down }.push((node.id, node.life));
        }
        for (node, life) in up {
            self.cluster.resume_node(node, life);
        }
        for (node, _) in down {
            if !self.is_gone(node) {
                self.cluster.start_node(node);
            }
        }
        self.look_at_register();
        let dead: Vec<u32> = self.clients.dead();
        for client in dead {
            self.clients.starts(&mut self.cluster, client);
        }
        let clients: Vec<u32> = self.clients.numbers();
        for client in clients {
            self.clients.hurry(&mut self.cluster, client);
        }
    }
}
