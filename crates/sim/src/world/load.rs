//! Load: what everything costs where a plan says what there is of it, and what waits meanwhile.

use seriatim_model::{NodeId, Position, Time, ViewNumber};

use super::World;
use super::scene::Happening;
use crate::coverage::FaultKind;
use crate::history::{Costs, Load, STAYS_AWAY};

impl World {
    /// Clients begin to ask for more than usual, if the plan wants that.
    pub(super) fn begin_load(&mut self) {
        let Some(capacity) = self.cluster.scene.plan.capacity else { return };
        let nodes: Vec<NodeId> = self.cluster.nodes.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.cluster.schedule_stall(node));
        let Some(load_for) = capacity.load_for else { return };
        let workload = self.cluster.scene.plan.workload;
        self.cluster.scene.tell(format_args!("the load begins: {workload:?}, {capacity:?}"));
        let appends = workload.clients * workload.sessions * workload.window;
        let limits = self.cluster.scene.plan.options.limits;
        self.cluster.scene.history.load = Some(Load {
            capacity,
            nodes: self.cluster.scene.plan.nodes,
            ring_bytes: limits.ring_bytes as u64,
            batch_records: limits.batch_records.min(limits.ring_records) as u64,
            record_bytes: workload.payload_bytes,
            has_resets: self.cluster.scene.plan.workload.reset_every.is_some(),
            is_shared: self.cluster.scene.plan.second_log_every.is_some(),
            has_mute_ways: self.cluster.scene.plan.faults.iter().any(|fault| fault.kind == FaultKind::Mute),
            readers: if workload.reads {
                workload.clients * self.cluster.scene.plan.config.shards
            } else {
                0
            },
            in_flight_bytes: u64::from(appends) * workload.payload_bytes,
            began: self.cluster.scene.now,
            ended: Time(u64::MAX),
            faults: self.cluster.scene.plan.faults.len() as u32,
            are_deaths: self
                .cluster
                .scene
                .plan
                .faults
                .iter()
                .all(|fault| fault.kind.is_death() && fault.lasting >= STAYS_AWAY),
            view: self.cluster.scene.view_number(),
            last_view: ViewNumber::NONE,
            last_claim: ViewNumber::NONE,
            stable: Position::ZERO,
            costs: Costs::default(),
            is_over: false,
        });
        self.cluster.scene.schedule(self.cluster.scene.now + load_for, Happening::LoadEnds);
        self.clients.begin_load(&mut self.cluster);
    }

    /// Clients ask for nothing more than they have asked for.
    pub(super) fn load_ends(&mut self) {
        self.clients.end_load();
        self.cluster.scene.tell(format_args!("the load ends"));
        let stable = self.cluster.scene.history.stable.last().map_or(Position::ZERO, |(_, stable)| *stable);
        let Some(load) = &mut self.cluster.scene.history.load else { return };
        (load.ended, load.stable) = (self.cluster.scene.now, stable);
    }

    /// Everything that was asked for has come to an end, or does not.
    pub(super) fn close_load(&mut self) {
        let last_view = self.cluster.scene.view_number();
        let last_claim = self.cluster.entry().map_or(last_view, |entry| entry.claimed);
        let Some(load) = self.cluster.scene.history.load.as_mut().filter(|load| !load.is_over) else {
            return;
        };
        (load.last_view, load.last_claim, load.is_over) = (last_view, last_claim, true);
        let costs = load.costs;
        self.cluster.scene.tell(format_args!("everything that was asked for has its answer: {costs:?}"));
    }
}
