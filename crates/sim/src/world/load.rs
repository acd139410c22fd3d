//! Load: clients send more than usual for a while, and the costs are counted.

use seriatim_model::{Position, Time, ViewNumber};

use super::World;
use super::cluster::Cluster;
use super::scene::{Happening, Scene};
use crate::capacity::Capacity;
use crate::coverage::FaultKind;
use crate::history::{Costs, Load, STAYS_AWAY};
use crate::plan::Fault;

impl World {
    pub(super) fn begin_load(&mut self) {
        if self.cluster.begin_load() {
            self.clients.begin_load(&mut self.cluster);
        }
    }

    pub(super) fn load_ends(&mut self) {
        self.clients.end_load();
        self.cluster.scene.end_load();
    }
}

impl Cluster {
    /// Starts pauses of nodes and the load, if planned. Returns whether a load starts.
    fn begin_load(&mut self) -> bool {
        let Some(capacity) = self.scene.plan.capacity else { return false };
        self.ids().into_iter().for_each(|node| self.schedule_stall(node));
        let Some(load_for) = capacity.load_for else { return false };
        let workload = self.scene.plan.workload;
        self.scene.tell(format_args!("the load begins: {workload:?}, {capacity:?}"));
        self.scene.history.load = Some(load(&self.scene, capacity));
        self.scene.schedule(self.scene.now + load_for, Happening::LoadEnds);
        true
    }

    /// Closes the load: all requests have completed, or never will.
    pub(super) fn close_load(&mut self) {
        let last_view = self.scene.view_number();
        let last_claim = self.entry().map_or(last_view, |entry| entry.claimed);
        let Some(load) = self.scene.history.load.as_mut().filter(|load| !load.is_over) else { return };
        (load.last_view, load.last_claim, load.is_over) = (last_view, last_claim, true);
        let costs = load.costs;
        self.scene.tell(format_args!("everything that was asked for has its answer: {costs:?}"));
    }
}

impl Scene {
    /// Ends the load; requests in flight continue.
    fn end_load(&mut self) {
        self.tell(format_args!("the load ends"));
        let stable = self.history.stable.last().map_or(Position::ZERO, |(_, stable)| *stable);
        let Some(load) = &mut self.history.load else { return };
        (load.ended, load.stable) = (self.now, stable);
    }
}

fn load(scene: &Scene, capacity: Capacity) -> Load {
    let plan = &scene.plan;
    let (workload, limits) = (plan.workload, plan.options.limits);
    let appends = workload.clients * workload.sessions * workload.window;
    let is_death = |fault: &Fault| fault.kind.is_death() && fault.lasting >= STAYS_AWAY;
    Load {
        capacity,
        nodes: plan.nodes,
        ring_bytes: limits.ring_bytes as u64,
        batch_records: limits.batch_records.min(limits.ring_records) as u64,
        record_bytes: workload.payload_bytes,
        has_resets: workload.reset_every.is_some(),
        is_shared: plan.second_log_every.is_some(),
        has_mute_ways: plan.faults.iter().any(|fault| fault.kind == FaultKind::Mute),
        readers: if workload.reads { workload.clients * plan.config.shards } else { 0 },
        in_flight_bytes: u64::from(appends) * workload.payload_bytes,
        began: scene.now,
        ended: Time(u64::MAX),
        faults: plan.faults.len() as u32,
        are_deaths: plan.faults.iter().all(is_death),
        view: scene.view_number(),
        last_view: ViewNumber::NONE,
        last_claim: ViewNumber::NONE,
        stable: Position::ZERO,
        costs: Costs::default(),
        is_over: false,
    }
}
