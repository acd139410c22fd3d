//! Heartbeats: each node's failure detector, which no queue of its host stands before.

use std::time::Duration;

use seriatim_host::{Detector, Event, Host, Liveness, Unmet, Via};
use seriatim_model::{Endpoint, LogId, NodeId};
use seriatim_protocol::Deviation;
use seriatim_protocol::control::{self, Ailment, Heartbeat};

use super::nodes::frame;
use super::{Happening, World};
use crate::network::{Connection, Lane, Party};

impl World {
    /// The node's process starts: its detector knows nobody.
    pub(super) fn start_detector(&mut self, id: NodeId, incarnation: u64) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let mut limits = self.plan.options_of(id).limits;
        if self.plan.options.deviates(Deviation::MutenessUnnoticed) {
            limits.unheard_for = Duration::from_secs(3600);
        }
        let mark = node.host.as_ref().map(Host::mark).unwrap_or_default();
        node.detector = Detector::new(incarnation, &limits, mark);
        node.beat_at = None;
    }

    /// A heartbeat arrives.
    pub(super) fn heartbeat_arrives(&mut self, id: NodeId, via: Connection, from: NodeId, beat: Heartbeat) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let clock = node.clock(self.now);
        if node.is_paused || node.stalled_until > self.now {
            // It is there when the process goes on.
            return node.unheard.push((from, Via(via.0), beat));
        }
        let changes = node.detector.heard(clock, from, Via(via.0), beat);
        self.tell_changes(id, changes);
        self.plan_beat(id);
    }

    /// A connection to another node is gone.
    pub(super) fn heartbeats_end(&mut self, id: NodeId, via: Connection, other: NodeId) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let change = node.detector.disconnected(other, Via(via.0));
        self.tell_changes(id, change.into_iter().collect());
    }

    /// Takes note of nodes that the host came to know.
    pub(super) fn meet_nodes(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let clock = node.clock(self.now);
        let Some(host) = &mut node.host else { return };
        for Unmet { node: other, taken, .. } in host.take_unmet() {
            node.detector.meet(clock, other, taken);
        }
        for other in host.take_forgotten() {
            node.detector.forget(other);
        }
        self.plan_beat(id);
    }

    /// Sends the heartbeats that are due, and suspects those whose answers are overdue.
    pub(super) fn node_beats(&mut self, id: NodeId) {
        let now = self.now;
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.beat_at != Some(now) || node.is_paused || node.host.is_none() {
            return;
        }
        node.beat_at = None;
        if node.stalled_until > now {
            return self.plan_beat(id);
        }
        let clock = node.clock(now);
        let mut changes = vec![];
        for (from, via, beat) in std::mem::take(&mut node.unheard) {
            changes.extend(node.detector.heard(clock, from, via, beat));
        }
        let has_full_disk = node.host.as_ref().is_some_and(Host::has_full_disk);
        node.detector.feel(has_full_disk.then_some(Ailment::DiskFull));
        let (beats, silent) = node.detector.beat(clock);
        changes.extend(silent);
        self.tell_changes(id, changes);
        for (to, beat) in beats {
            let message = control::Message::Heartbeat(beat).into();
            let frame = frame(LogId(0), Endpoint::Node, Endpoint::Node, &message);
            let lane = self.heartbeat_lane();
            self.transmit_at(now, lane, Party::Node(id), Party::Node(to), frame);
        }
        self.plan_beat(id);
    }

    /// Where messages have a size, heartbeats have a connection of their own, and nothing else waits before them.
    fn heartbeat_lane(&self) -> Lane {
        let waits =
            self.plan.capacity.is_none() || self.plan.options.deviates(Deviation::HeartbeatsBehindRecords);
        if waits { Lane::Bulk } else { Lane::Urgent }
    }

    /// Wakes the detector when it wants to be woken.
    pub(super) fn plan_beat(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.is_paused || node.host.is_none() {
            return;
        }
        let Some(at) = node.detector.deadline().map(|at| node.when(at).max(self.now)) else { return };
        let at = at.max(node.stalled_until);
        if node.beat_at.is_none_or(|planned| at < planned) {
            node.beat_at = Some(at);
            self.schedule(at, Happening::NodeBeats(id));
        }
    }

    fn tell_changes(&mut self, id: NodeId, changes: Vec<Liveness>) {
        for change in changes {
            if matches!(change, Liveness::SetBack(_)) && !self.was_set_back(id) {
                self.history.problems.push(format!("node {id} takes its disk for set back, and it was not"));
            }
            self.node_is_told(id, Event::Liveness(change));
        }
    }
}
