//! Effects and ends of all kinds of faults.

use std::time::Duration;

use seriatim_model::{NodeId, Time, View};
use seriatim_store::Disk;

use super::CONTROL;
use super::clients::Clients;
use super::cluster::Cluster;
use super::network_faults::{NetworkMend, Struck};
use super::scene::{Happening, Scene};
use super::truth::Truth;
use crate::coverage::{FaultKind, Step};
use crate::plan::{Fault, Target, Trigger};

/// Time for which a run continues after a node's return.
const BACK_FOR: Duration = Duration::from_millis(800);

#[derive(Debug)]
pub(super) enum Mend {
    Network(NetworkMend),
    Room(NodeId),
    Disk(NodeId),
    Lag(NodeId),
    Pause(NodeId, u64),
    Lie(NodeId, Duration),
}

/// Pending faults, and the duration of active ones.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pending: Vec<Fault>,
    /// Time until which absent nodes return and catch up.
    busy_until: Time,
}

impl Faults {
    pub(super) fn schedule(&mut self, cluster: &mut Cluster) {
        let (loss, duplication, reordering) = cluster.scene.plan.network.noise_permille;
        cluster.network_faults().network.disturb(loss, duplication, reordering);
        for fault in cluster.scene.plan.faults.clone() {
            match fault.trigger {
                Trigger::At(after) => {
                    cluster.scene.schedule(cluster.scene.began + after, Happening::Strike(fault))
                }
                Trigger::Step(..) => self.pending.push(fault),
            }
        }
    }

    pub(super) fn busy_until(&self) -> Time {
        self.busy_until
    }

    pub(super) fn end(&mut self) {
        self.pending.clear();
    }

    pub(super) fn are_over(&self, scene: &Scene) -> bool {
        let strikes = |fault: &Fault| match fault.trigger {
            Trigger::At(after) => scene.now <= scene.began + after + fault.lasting,
            Trigger::Step(..) => false,
        };
        scene.now > self.busy_until && self.pending.is_empty() && !scene.plan.faults.iter().any(strikes)
    }

    pub(super) fn strike_at_step(&mut self, cluster: &mut Cluster, clients: &mut Clients) {
        if self.pending.is_empty() {
            return;
        }
        let step = Self::step(cluster, clients);
        let elapsed = cluster.scene.now - cluster.scene.began;
        let waits_for = |fault: &Fault| match fault.trigger {
            Trigger::Step(wanted, after) => wanted == step && elapsed >= after,
            Trigger::At(_) => false,
        };
        if let Some(index) = self.pending.iter().position(waits_for) {
            let fault = self.pending.remove(index);
            self.strike(cluster, clients, fault);
        }
    }

    fn step(cluster: &Cluster, clients: &Clients) -> Step {
        let truth = cluster.truth();
        let step = truth.view_change_step().or_else(|| truth.ordering_step());
        step.or_else(|| clients.are_appending().then_some(Step::Append)).unwrap_or(Step::Idle)
    }

    /// Strikes with a fault, unless the log could not bear it and need not.
    pub(super) fn strike(&mut self, cluster: &mut Cluster, clients: &mut Clients, fault: Fault) {
        if cluster.scene.history.calm_since.is_some() {
            return;
        }
        let step = Self::step(cluster, clients);
        let victims = Self::victims(cluster, fault);
        let bears_it = match (fault.kind, fault.target) {
            (FaultKind::ClientCrash, _) => !clients.mortal().is_empty(),
            (FaultKind::DiskLoss, Target::RetiredShard) => Self::may_lose_retired(cluster, &victims),
            (kind, _) => Self::may_strike(cluster, kind, &victims),
        };
        if !bears_it {
            return;
        }
        cluster.scene.tell(format_args!("fault: {} at {step}, {victims:?}", fault.kind));
        cluster.scene.trace.number(fault.kind as u64);
        cluster.scene.coverage.struck(fault.kind, step);
        if cluster.scene.plan.lasts_long {
            self.busy_until = self.busy_until.max(cluster.scene.now + fault.lasting + BACK_FOR);
        }
        match fault.kind {
            FaultKind::Kill | FaultKind::ControlKill | FaultKind::DoubleKill | FaultKind::KillAll => {
                Self::kill_all(cluster, &victims, false, fault.lasting);
            }
            FaultKind::PowerLoss | FaultKind::PowerCut => {
                Self::kill_all(cluster, &victims, true, fault.lasting)
            }
            FaultKind::KillInTurn => Self::kill_in_turn(cluster, fault, &victims),
            FaultKind::Absence => {
                let down_for = self.stay_away(cluster);
                Self::kill_all(cluster, &victims, false, down_for);
            }
            FaultKind::DiskLoss | FaultKind::JournalLoss | FaultKind::FileLoss => {
                self.lose_disks(cluster, fault, &victims);
            }
            FaultKind::LyingDisk => Self::begin_to_lie(cluster, fault, victims[0]),
            FaultKind::BitRot => Self::damage(cluster, victims[0]),
            FaultKind::Pause | FaultKind::ClockJump | FaultKind::SlowNode => {
                Self::hold_up(cluster, fault, victims[0]);
            }
            FaultKind::Close | FaultKind::CloseAll => {
                for node in victims {
                    cluster.close_node(node, fault.lasting);
                }
            }
            FaultKind::SyncFailure | FaultKind::DiskFull | FaultKind::SlowDisk => {
                Self::spoil_disk(cluster, fault, victims[0]);
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
            | FaultKind::SlowLinks => Self::strike_network(cluster, fault, &victims),
            FaultKind::Reset => {
                let some = cluster.network_faults().some_connections();
                some.into_iter().for_each(|(connection, a, b)| cluster.reset(connection, a, b));
            }
            FaultKind::ClientCrash => {
                let mortal = clients.mortal();
                let client = cluster.scene.random.pick(&mortal);
                clients.kill(cluster, client, fault.lasting);
            }
        }
    }

    fn strike_network(cluster: &mut Cluster, fault: Fault, victims: &[NodeId]) {
        let Struck { mend, broken } = cluster.network_faults().strike(fault, victims);
        cluster.scene.schedule(cluster.scene.now + fault.lasting, Happening::Mend(Mend::Network(mend)));
        broken.into_iter().for_each(|(connection, a, b)| cluster.reset(connection, a, b));
    }

    /// Nodes that a fault hits, in this order.
    fn victims(cluster: &mut Cluster, fault: Fault) -> Vec<NodeId> {
        if matches!(fault.target, Target::WholeShard | Target::RetiredShard) {
            let Some(view) = cluster.scene.latest_view().cloned() else { return vec![] };
            let shards = match fault.target {
                Target::WholeShard => view.shards,
                _ => view.retired.iter().map(|retired| retired.members().clone()).collect(),
            };
            if shards.is_empty() {
                return vec![];
            }
            let members = cluster.scene.random.pick(&shards);
            return members.replicas.iter().map(|member| member.node).collect();
        }
        let mut nodes = cluster.ids();
        // Random order, but often nodes with sequencing replicas first.
        for index in (1..nodes.len()).rev() {
            nodes.swap(index, cluster.scene.random.below(index as u64 + 1) as usize);
        }
        if cluster.scene.random.percent(60) {
            nodes.sort_by_key(|node| cluster.node(*node).sequencer(cluster.scene.log).is_none());
        }
        nodes.sort_by_key(|node| !cluster.truth().is_meant(*node, fault.target));
        let targeted = fault.target != Target::Any;
        let count = match fault.kind {
            FaultKind::Partition | FaultKind::PartialPartition if targeted => 1,
            FaultKind::PowerCut | FaultKind::CloseAll | FaultKind::KillAll => nodes.len(),
            FaultKind::ControlKill | FaultKind::ControlPartition | FaultKind::ControlOneWay => {
                return vec![CONTROL];
            }
            FaultKind::DoubleKill | FaultKind::KillInTurn | FaultKind::OneWay => 2,
            // No other disk holds the register, so its node is spared.
            kind if kind.loses_disk() => {
                nodes.retain(|node| *node != CONTROL);
                1
            }
            FaultKind::Partition | FaultKind::PartialPartition => {
                cluster.scene.random.between(1, nodes.len() as u64 - 1) as usize
            }
            _ => 1,
        };
        nodes.truncate(count);
        nodes
    }

    /// Whether the victims are up as needed and the log bears the fault.
    pub(super) fn may_strike(cluster: &Cluster, kind: FaultKind, victims: &[NodeId]) -> bool {
        // Loss and damage together are too much, even for an operator: a view without the other
        // replicas would rely on the damaged ones.
        let is_damaged = cluster.disks().damaged_node().is_some();
        let bears_it = !kind.loses_memory()
            || !is_damaged && (cluster.scene.history.is_on_disk() || cluster.scene.plan.may_lose_too_much)
            || Self::does_without(cluster, victims);
        let reachable = match kind {
            FaultKind::Close | FaultKind::CloseAll | FaultKind::Pause | FaultKind::ClockJump => {
                victims.iter().any(|node| cluster.node(*node).host.is_some())
            }
            _ if kind.loses_memory() => victims.iter().any(|node| cluster.node(*node).host.is_some()),
            _ => true,
        };
        let spared = match kind {
            kind if kind.loses_disk() || kind == FaultKind::BitRot => {
                // A replica that goes down before it knows the view counts for nothing when it
                // returns.
                Self::may_spoil(cluster, kind, victims, |truth, view| {
                    truth.survives_knowing(view, victims, view.number)
                })
            }
            _ => true,
        };
        bears_it && reachable && spared
    }

    /// Whether all replicas of a retired shard may lose their disks: the rest of the log survives
    /// that.
    fn may_lose_retired(cluster: &Cluster, victims: &[NodeId]) -> bool {
        let survives = |truth: &Truth<'_>, view: &View| truth.survives_losing_retired(view, victims);
        !victims.contains(&CONTROL) && Self::may_spoil(cluster, FaultKind::DiskLoss, victims, survives)
    }

    /// Whether these disks may be lost or damaged, if the log `survives` that.
    fn may_spoil(
        cluster: &Cluster,
        kind: FaultKind,
        victims: &[NodeId],
        survives: impl Fn(&Truth<'_>, &View) -> bool,
    ) -> bool {
        let bears_it = |view: &View| {
            let truth = cluster.truth();
            survives(&truth, view)
                && truth.flush_survives(victims)
                && truth.is_all_elsewhere(kind == FaultKind::BitRot, view, victims)
        };
        !cluster.disks().are_spoiled() && cluster.scene.latest_view().is_some_and(bears_it)
    }

    fn does_without(cluster: &Cluster, nodes: &[NodeId]) -> bool {
        let damaged = cluster.disks().damaged_node();
        let nodes: Vec<NodeId> = nodes.iter().copied().chain(damaged).collect();
        cluster.scene.latest_view().is_some_and(|view| {
            let truth = cluster.truth();
            truth.survives(view, &nodes) && (damaged.is_none() || truth.is_complete_without(view, &nodes))
        })
    }

    fn kill_all(cluster: &mut Cluster, nodes: &[NodeId], power: bool, down_for: Duration) {
        for node in nodes {
            let down_for = down_for + cluster.scene.random.millis(0, 20);
            cluster.kill_node(*node, power, down_for);
        }
    }

    /// Draws the duration of an absence, and extends the run until the node is back.
    fn stay_away(&mut self, cluster: &mut Cluster) -> Duration {
        let down_for = cluster.scene.random.millis(3000, 6000);
        self.busy_until = self.busy_until.max(cluster.scene.now + down_for + BACK_FOR);
        down_for
    }

    /// Kills two nodes: the second dies while the others react to the first death.
    fn kill_in_turn(cluster: &mut Cluster, fault: Fault, nodes: &[NodeId]) {
        Self::kill_all(cluster, &nodes[..1], false, fault.lasting);
        let next = Fault { kind: FaultKind::Kill, target: Target::Node(nodes[1]), ..fault };
        let pause = cluster.scene.random.micros(10, 3000);
        cluster.scene.schedule(cluster.scene.now + pause, Happening::Strike(next));
    }

    fn lose_disks(&mut self, cluster: &mut Cluster, fault: Fault, victims: &[NodeId]) {
        if fault.target != Target::RetiredShard {
            return self.lose_disk(cluster, fault, victims[0]);
        }
        cluster.scene.history.lose_too_much();
        victims.iter().for_each(|node| self.lose_disk(cluster, fault, *node));
    }

    fn lose_disk(&mut self, cluster: &mut Cluster, fault: Fault, id: NodeId) {
        cluster.spoil(id, fault.kind);
        let down_for = if cluster.scene.random.percent(30) { self.stay_away(cluster) } else { fault.lasting };
        cluster.kill_node(id, false, down_for);
        match fault.kind {
            FaultKind::JournalLoss => {
                Self::lose_files(cluster, id, |name| name.starts_with("journal/"), false)
            }
            FaultKind::FileLoss => {
                let directory = format!("logs/{:016x}/shard-", cluster.scene.log.0);
                Self::lose_files(cluster, id, |name| name.starts_with(&directory), true);
            }
            _ => cluster.replace_disk(id),
        }
        cluster.node_mut(id).asleep = None;
    }

    fn lose_files(cluster: &mut Cluster, id: NodeId, is_meant: impl Fn(&String) -> bool, one: bool) {
        let disk = cluster.node(id).disk.clone();
        let mut files: Vec<String> = disk.files().into_iter().filter(is_meant).collect();
        if one && !files.is_empty() {
            files = vec![cluster.scene.random.pick(&files)];
        }
        cluster.scene.tell(format_args!("node {id} loses {files:?}"));
        for file in files {
            disk.delete(&file).expect("a disk in memory deletes what it is told");
        }
    }

    fn begin_to_lie(cluster: &mut Cluster, fault: Fault, id: NodeId) {
        cluster.node(id).disk.lie(true);
        let end = Mend::Lie(id, fault.lasting);
        cluster.scene.schedule(cluster.scene.now + fault.lasting, Happening::Mend(end));
    }

    /// A power loss reveals the false syncs: the whole journal since then is lost, and any part of
    /// the rest. If the log could not bear that by now, the syncs count as true.
    fn end_to_lie(cluster: &mut Cluster, id: NodeId, down_for: Duration) {
        cluster.node(id).disk.lie(false);
        let is_calm = cluster.scene.history.calm_since.is_some();
        if is_calm || !Self::may_strike(cluster, FaultKind::LyingDisk, &[id]) {
            return cluster.node(id).disk.keep_all();
        }
        cluster.spoil(id, FaultKind::LyingDisk);
        cluster.node(id).disk.lose_unsynced("journal");
        cluster.kill_node(id, true, down_for);
        cluster.node_mut(id).asleep = None;
    }

    /// Flips bits in a node's segment files and makes sectors bad.
    fn damage(cluster: &mut Cluster, id: NodeId) {
        cluster.spoil(id, FaultKind::BitRot);
        let disk = cluster.node(id).disk.clone();
        let directory = format!("logs/{:016x}/shard-", cluster.scene.log.0);
        let is_segment = |name: &String| name.starts_with(&directory) && name.contains("/seg-");
        let files: Vec<String> = disk.files().into_iter().filter(is_segment).collect();
        if files.is_empty() {
            return;
        }
        for _ in 0..cluster.scene.random.between(1, 20) {
            let file = cluster.scene.random.pick(&files);
            let len = disk.content(&file).map_or(0, |content| content.len() as u64);
            let offset = cluster.scene.random.below(len.max(1));
            if cluster.scene.random.percent(25) {
                disk.spoil_sector(&file, offset);
            } else {
                disk.flip_bit(&file, offset, cluster.scene.random.below(8) as u8);
            }
        }
    }

    fn hold_up(cluster: &mut Cluster, fault: Fault, id: NodeId) {
        match fault.kind {
            FaultKind::Pause => {
                cluster.pause_node(id);
                let mend = Mend::Pause(id, cluster.node(id).incarnation);
                cluster.scene.schedule(cluster.scene.now + fault.lasting, Happening::Mend(mend));
            }
            FaultKind::ClockJump => {
                let jump = cluster.scene.random.millis(10, 5000);
                cluster.node_mut(id).clock_ahead += jump;
                cluster.wake_node(id, cluster.scene.now);
            }
            _ => {
                let lag = cluster.scene.random.micros(1000, 40_000);
                let node = cluster.node_mut(id);
                (node.lag, node.slowness) = (lag, 10);
                cluster.scene.schedule(cluster.scene.now + fault.lasting, Happening::Mend(Mend::Lag(id)));
            }
        }
    }

    fn spoil_disk(cluster: &mut Cluster, fault: Fault, id: NodeId) {
        let room = cluster.scene.random.below(6000);
        if fault.kind != FaultKind::SlowDisk {
            cluster.node_mut(id).has_torn_disk = true;
            cluster.scene.history.disks_failed = true;
        }
        let node = cluster.node_mut(id);
        match fault.kind {
            FaultKind::SyncFailure => node.disk.fail_syncs(1),
            FaultKind::DiskFull => {
                node.disk.set_capacity(Some(node.disk.used() + room));
                cluster.scene.schedule(cluster.scene.now + fault.lasting, Happening::Mend(Mend::Room(id)));
            }
            _ => {
                node.slowness = 20;
                cluster.scene.schedule(cluster.scene.now + fault.lasting, Happening::Mend(Mend::Disk(id)));
            }
        }
    }

    pub(super) fn mend(cluster: &mut Cluster, mend: Mend) {
        match mend {
            Mend::Network(mend) => cluster.mend_network(mend),
            Mend::Room(node) => cluster.node(node).disk.set_capacity(cluster.scene.plan.disk.most),
            Mend::Pause(node, incarnation) => cluster.resume_node(node, incarnation),
            Mend::Lie(node, down_for) => Self::end_to_lie(cluster, node, down_for),
            Mend::Lag(node) => {
                let node = cluster.node_mut(node);
                (node.lag, node.slowness) = (Duration::ZERO, 1);
            }
            Mend::Disk(node) => cluster.node_mut(node).slowness = 1,
        }
    }
}
