//! Costs of the nodes' work, in plans with a capacity.

use std::time::Duration;

use bytes::Bytes;
use seriatim_host::Outgoing;
use seriatim_model::{Announced, NodeId, Peer, Time};

use super::Cluster;
use crate::capacity::Capacity;
use crate::history::{Costs, Step};
use crate::pipes::Way;
use crate::world::changing;
use crate::world::frames::frame;
use crate::world::meter::Work;
use crate::world::scene::Happening;

/// Most events in one turn, as in the server's driver.
pub(super) const DRAIN: usize = 256;
/// Longest time for events in one turn.
pub(super) const DRAIN_FOR: Duration = Duration::from_millis(2);
/// Records after which a turn serves no more readers.
pub(super) const SERVED: usize = 8192;

/// A message to send `after` the start of the turn.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) outgoing: Outgoing,
    pub(super) frame: Bytes,
    pub(super) after: Duration,
}

impl Cluster {
    fn costs(&mut self) -> Option<&mut Costs> {
        let load = self.scene.history.load.as_mut().filter(|load| !load.is_over)?;
        Some(&mut load.costs)
    }

    /// Charges a node for its work since the last call and collects its messages. Takes and returns
    /// the time spent in the turn.
    pub(super) fn charge(
        &mut self,
        id: NodeId,
        spent: Duration,
        came: Option<(Way, usize)>,
        departures: &mut Vec<Departure>,
    ) -> Duration {
        let now = self.scene.now;
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let Some(host) = node.host.as_mut() else { return spent };
        let sends = host.take_sends();
        let Some(capacity) = &self.scene.plan.capacity else {
            departures.extend(sends.into_iter().map(|outgoing| departure(outgoing, spent)));
            return spent;
        };
        let (bytes_in, messages_in) = came.map_or((0, 0), |(_, bytes)| (bytes as u64, 1));
        let journal = host.journal_pending_bytes() as u64;
        let Work { journaled, stored, read, visited } = node.meter.work(journal, host.visited(), &node.disk);
        node.disk_free = node.disk_free.max(now) + node.disk_takes(capacity, stored);
        let mut spent = spent + capacity.work(messages_in, bytes_in + journaled + stored);
        let (mut made, mut sent) = (0, 0);
        for outgoing in sends {
            let mut departure = departure(outgoing, spent);
            let bytes = departure.frame.len() as u64;
            made += bytes;
            // Bytes to clients do not count: clients choose how much they read.
            sent += if matches!(departure.outgoing.peer, Peer::Node(_)) { bytes } else { 0 };
            spent += capacity.work(1, bytes);
            departure.after = spent;
            departures.push(departure);
        }
        // Only here do sequencing replicas hold whole records; in other orderings they hold ids or
        // nothing.
        let is_whole = self.scene.plan.config.order.announces() == Announced::Record;
        let record_bytes = if is_whole { self.scene.plan.workload.payload_bytes } else { 0 };
        let held = node.sequencer(self.scene.log).map_or(0, |role| role.held());
        node.held_bytes = journal + held * record_bytes;
        let held: u64 = self.nodes.values().map(|node| node.held_bytes).sum();
        let held = held + self.wires.held_at_nodes();
        if made + stored + journaled > self.scene.plan.options.limits.ring_bytes as u64 {
            self.scene.tell(format_args!(
                "node {id} sends {made}, stores {stored}, journals {journaled} bytes in a step"
            ));
        }
        changing::charge(&mut self.scene, &self.nodes, sent, stored + journaled);
        if let Some(costs) = self.costs() {
            costs.disk_bytes += stored;
            costs.sent_bytes += sent;
            costs.most_held = costs.most_held.max(held);
            costs.most_step = costs.most_step.max(Step { made: made + stored + journaled, read, visited });
        }
        spent
    }

    pub(super) fn journal_wrote(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let journal = node.host.as_ref().map_or(0, |host| host.journal_pending_bytes() as u64);
        let bytes = node.meter.wrote(journal, &node.disk);
        if let Some(costs) = self.costs() {
            costs.disk_bytes += bytes;
            costs.journal_bytes += bytes;
        }
    }

    /// Occupies a node's disk with `bytes` and a sync. Returns when it is free.
    pub(super) fn disk_is_busy(&mut self, id: NodeId, from: Time, bytes: u64, sync: Duration) -> Time {
        let Some(capacity) = &self.scene.plan.capacity else { return self.scene.now + sync };
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let times = capacity.slow_disk.filter(|(slow, _)| *slow == id).map_or(1, |(_, times)| times);
        let takes = node.disk_takes(capacity, bytes) + sync * times;
        node.disk_free = node.disk_free.max(from) + takes;
        node.disk_free
    }

    pub(crate) fn schedule_stall(&mut self, id: NodeId) {
        let Some(capacity) = self.scene.plan.capacity.filter(Capacity::stalls) else {
            return;
        };
        let most = (capacity.stall_every * 2).as_micros() as u64;
        let after = self.scene.random.micros(0, most);
        let from = self.nodes[&id].busy_until.max(self.scene.now);
        self.scene.schedule(from + after, Happening::NodeStalls(id));
    }

    /// Pauses a node or only its heartbeat thread.
    pub(crate) fn node_stalls(&mut self, id: NodeId) {
        let load_is_over = self.scene.history.load.as_ref().is_some_and(|load| load.ended <= self.scene.now);
        if load_is_over || self.scene.history.calm_since.is_some() {
            return;
        }
        let Some(capacity) = self.scene.plan.capacity else { return };
        let are_beats = capacity.beats_stall > Duration::ZERO && self.scene.random.percent(50);
        let most = if are_beats { capacity.beats_stall } else { capacity.stall };
        let takes = self.scene.random.micros(0, most.as_micros() as u64);
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if are_beats {
            // Pauses must not overlap: the thread works between them.
            if node.beats_stalled_until <= self.scene.now {
                node.beats_stalled_until = self.scene.now + takes;
                self.scene.tell(format_args!("the heartbeats of node {id} are not scheduled for {takes:?}"));
            }
            return self.schedule_stall(id);
        }
        node.stalled_until = node.stalled_until.max(self.scene.now + takes);
        node.busy_until = node.busy_until.max(self.scene.now + takes);
        self.scene.tell(format_args!("node {id} is not scheduled for {takes:?}"));
        self.schedule_stall(id);
    }
}

fn departure(outgoing: Outgoing, after: Duration) -> Departure {
    let frame = frame(outgoing.log, outgoing.from, outgoing.to, &outgoing.message);
    Departure { outgoing, frame, after }
}
