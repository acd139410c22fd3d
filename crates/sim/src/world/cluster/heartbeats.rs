//! Heartbeats: each node's failure detector, which bypasses the host's queues.

use std::time::Duration;

use seriatim_host::{Event, Host, Liveness, Unmet, Via};
use seriatim_model::{Endpoint, LogId, NodeId, Time};
use seriatim_protocol::Mutation;
use seriatim_protocol::control::{self, Ailment, Heartbeat};

use super::Cluster;
use crate::network::{Connection, Lane, Party};
use crate::world::frames::frame;
use crate::world::node::Node;
use crate::world::scene::Happening;

impl Cluster {
    pub(super) fn start_detector(&mut self, id: NodeId, incarnation: u64) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let mut limits = self.scene.plan.options_of(id).limits;
        if self.scene.plan.options.mutates(Mutation::MutenessUnnoticed) {
            limits.unheard_for = Duration::from_secs(3600);
        }
        if self.scene.plan.options.mutates(Mutation::WorkIgnored) {
            limits.silence_at_work = 1;
        }
        let mark = node.host.as_ref().map(Host::mark).unwrap_or_default();
        node.pulse.start(incarnation, &limits, mark);
    }

    pub(super) fn heartbeat_arrives(&mut self, id: NodeId, via: Connection, from: NodeId, beat: Heartbeat) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let clock = node.clock(self.scene.now);
        if node.is_paused || node.beats_at_the_earliest() > self.scene.now {
            // The process reads the heartbeat when it resumes.
            return node.pulse.keeps(from, Via(via.0), beat);
        }
        let changes = node.pulse.hears(clock, from, Via(via.0), beat);
        self.tell_changes(id, changes);
        self.plan_beat(id);
    }

    pub(super) fn heartbeats_end(&mut self, id: NodeId, via: Connection, other: NodeId) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let changes = node.pulse.disconnected(other, Via(via.0));
        self.tell_changes(id, changes);
    }

    /// Reports met and forgotten nodes to the detector.
    pub(super) fn meet_nodes(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let clock = node.clock(self.scene.now);
        let Some(host) = &mut node.host else { return };
        for Unmet { node: other, taken, .. } in host.take_unmet() {
            node.pulse.meet(clock, other, taken);
        }
        for other in host.take_forgotten() {
            node.pulse.forget(other);
        }
        self.plan_beat(id);
    }

    /// Sends due heartbeats and suspects nodes with overdue answers.
    pub(crate) fn node_beats(&mut self, id: NodeId) {
        let now = self.scene.now;
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if !node.pulse.is_due(now) || node.is_paused || node.host.is_none() {
            return;
        }
        node.pulse.woken();
        if node.beats_at_the_earliest() > now {
            return self.plan_beat(id);
        }
        let clock = node.clock(now);
        let has_full_disk = node.host.as_ref().is_some_and(Host::has_full_disk);
        let (changes, beats) = node.pulse.beat(clock, has_full_disk.then_some(Ailment::DiskFull));
        self.tell_changes(id, changes);
        for (to, beat) in beats {
            let message = control::Message::Heartbeat(beat).into();
            let frame = frame(LogId(0), Endpoint::Node, Endpoint::Node, &message);
            let lane = self.heartbeat_lane();
            self.transmit_at(now, lane, Party::Node(id), Party::Node(to), frame);
        }
        self.plan_beat(id);
    }

    /// With a capacity, heartbeats have their own connection, on which nothing delays them.
    fn heartbeat_lane(&self) -> Lane {
        let waits = self.scene.plan.capacity.is_none()
            || self.scene.plan.options.mutates(Mutation::HeartbeatsBehindRecords);
        if waits { Lane::Bulk } else { Lane::Urgent }
    }

    pub(super) fn plan_beat(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.is_paused || node.host.is_none() {
            return;
        }
        let (ahead, earliest) = (node.clock_ahead, self.scene.now.max(node.beats_at_the_earliest()));
        let when = |at: Time| Node::shows(ahead, at).max(earliest);
        if let Some(at) = node.pulse.plan(when) {
            self.scene.schedule(at, Happening::NodeBeats(id));
        }
    }

    fn tell_changes(&mut self, id: NodeId, changes: Vec<Liveness>) {
        for change in changes {
            if matches!(change, Liveness::SetBack(_)) && !self.disks.was_set_back(&self.scene, id) {
                self.scene.note_problem(format!("node {id} takes its disk for set back, and it was not"));
            }
            self.node_is_told(id, Event::Liveness(change));
        }
    }
}
