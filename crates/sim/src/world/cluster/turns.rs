//! Turns of a node, as in the server's driver: events, due work, messages, disk work.

use std::time::Duration;

use bytes::Bytes;
use seriatim_host::{Event, Host, Outgoing};
use seriatim_model::{ConnectionId, NodeId, Peer, Time};
use seriatim_protocol::control::{self, Heartbeat};
use seriatim_protocol::{Message, Mutation};

use super::Cluster;
use super::work::{DRAIN, DRAIN_FOR, Departure, SERVED};
use crate::network::{Connection, Lane, Party};
use crate::pipes::Way;
use crate::world::frames::{Brief, open};
use crate::world::node::Waiting;
use crate::world::scene::Happening;

/// Most wakeups of a node at one instant.
const MOST_ROUNDS: u32 = 1000;

impl Cluster {
    pub(crate) fn wake_node(&mut self, id: NodeId, at: Time) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let at = (at + node.lag).max(node.busy_until);
        if node.host.is_some() && !node.is_paused && node.wake_at.is_none_or(|planned| at < planned) {
            node.wake_at = Some(at);
            self.scene.schedule(at, Happening::NodeWakes(id));
        }
    }

    /// Wakes a node after a short pause: more events may arrive meanwhile.
    fn wake_node_soon(&mut self, id: NodeId) {
        let (least, most) = self.scene.plan.network.delay_us;
        let pause = if least == most { Duration::ZERO } else { self.scene.random.micros(0, 30) };
        self.wake_node(id, self.scene.now + pause);
    }

    pub(super) fn node_receives(&mut self, id: NodeId, connection: Connection, from: Party, frame: &Bytes) {
        let (log, sender, to, message) = open(frame.clone()).expect("what was encoded is decoded");
        let text = Brief(&message);
        let what = format_args!("{from:?} {sender:?} to node {id} {to:?}, log {log}: {text}");
        self.scene.tell(what);
        if let Some((other, beat)) = heartbeat(from, &message)
            && !self.scene.plan.options.mutates(Mutation::HeartbeatsBehindRecords)
        {
            return self.heartbeat_arrives(id, connection, other, beat);
        }
        let peer = peer_of(connection, from);
        let came = self.scene.plan.capacity.map(|_| ((connection, Party::Node(id)), frame.len()));
        self.node_gets(id, Waiting { event: Event::Message { peer, log, from: sender, to, message }, came });
    }

    pub(super) fn node_loses(&mut self, id: NodeId, connection: Connection, other: Party, incarnation: u64) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.incarnation == incarnation {
            let lane = self.wires.network.lane(connection);
            let has_lanes = self.scene.plan.capacity.is_some();
            if lane == Lane::Bulk {
                self.node_is_told(id, Event::Disconnected(peer_of(connection, other)));
            }
            if let Party::Node(other) = other
                && (lane == Lane::Urgent || !has_lanes)
            {
                self.heartbeats_end(id, connection, other);
            }
        }
    }

    pub(super) fn node_is_told(&mut self, id: NodeId, event: Event) {
        self.node_gets(id, Waiting { event, came: None });
    }

    fn node_gets(&mut self, id: NodeId, waiting: Waiting) {
        let is_urgent = self.scene.plan.capacity.is_some() && matches!(waiting.event, Event::Liveness(_));
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if is_urgent { &mut node.urgent } else { &mut node.inbox }.push_back(waiting);
        self.wake_node_soon(id);
    }

    pub(crate) fn written(&mut self, id: NodeId, incarnation: u64) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.incarnation != incarnation {
            return;
        }
        let Some(write) = node.write.take() else { return };
        let event = Event::JournalWritten(write.perform(&node.disk));
        self.disks.keep(&self.scene, id, &self.nodes[&id].disk);
        self.disk_tells(id, event);
    }

    pub(crate) fn synced(&mut self, id: NodeId, incarnation: u64) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.incarnation != incarnation {
            return;
        }
        let Some(work) = node.syncing.take() else { return };
        let outcome = work.perform(&node.disk);
        self.scene.coverage.checkpoints += u64::from(work.is_checkpoint());
        self.disk_tells(id, Event::FilesSynced(outcome));
    }

    fn disk_tells(&mut self, id: NodeId, event: Event) {
        self.journal_wrote(id);
        let is_urgent = self.scene.plan.capacity.is_some();
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let waiting = Waiting { event, came: None };
        if is_urgent { &mut node.urgent } else { &mut node.inbox }.push_back(waiting);
        self.wake_node(id, self.scene.now);
    }

    /// Runs a node's turn. Returns whether it was completed.
    pub(crate) fn node_wakes(&mut self, id: NodeId) -> bool {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.wake_at != Some(self.scene.now) || node.is_paused {
            return false;
        }
        // The node may be busy for longer than was known at scheduling.
        node.wake_at = None;
        if node.busy_until > self.scene.now {
            self.wake_node(id, self.scene.now);
            return false;
        }
        self.node_works(id)
    }

    fn node_works(&mut self, id: NodeId) -> bool {
        let now = self.scene.now;
        let mut departures = vec![];
        let Some(spent) = self.node_drains(id, &mut departures) else { return false };
        let Some(spent) = self.node_finishes_turn(id, spent, &mut departures) else { return false };
        let node = self.nodes.get_mut(&id).expect("the node exists");
        node.busy_until = now + spent;
        if let Some(failure) = node.host.as_ref().and_then(Host::failure) {
            self.scene.trace.line(now, format_args!("node {id} failed: {failure}"));
            let down_for = self.scene.random.millis(1, 100);
            self.kill_node(id, true, down_for);
            return false;
        }
        self.start_disk_work(id);
        for Departure { outgoing, frame, after } in departures {
            self.witness.sent(&mut self.scene, &self.nodes, id, &outgoing);
            self.send_from(id, &outgoing, frame, now + after);
        }
        let damaged = self.disks.damaged_node();
        self.witness.acted(&mut self.scene, &self.nodes, damaged, id);
        self.meet_nodes(id);
        let node = &self.nodes[&id];
        let has_more = !node.inbox.is_empty() || !node.urgent.is_empty();
        if let Some(at) = node.host.as_ref().and_then(Host::deadline) {
            self.wake_node(id, node.when(at).max(now + Duration::from_nanos(1)));
        }
        if has_more {
            self.wake_node(id, now + spent);
        }
        true
    }

    /// Handles waiting events: all, or in plans with a capacity some. Returns the time spent.
    fn node_drains(&mut self, id: NodeId, departures: &mut Vec<Departure>) -> Option<Duration> {
        let now = self.scene.now;
        let wall_ms = self.scene.wall_ms(id);
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if let (Some(wall_ms), Some(host)) = (wall_ms, &mut node.host) {
            host.note_wall(wall_ms);
        }
        let clock = node.clock(now);
        let most = if self.scene.plan.capacity.is_some() { DRAIN } else { node.inbox.len() };
        let mut spent = Duration::ZERO;
        for _ in 0..most {
            let node = self.nodes.get_mut(&id).expect("the node exists");
            let Some(Waiting { event, came }) = node.next_waiting() else { break };
            if let Some((via, other, beat)) = late_heartbeat(&event, came) {
                self.heartbeat_arrives(id, via, other, beat);
                continue;
            }
            node.host.as_mut()?.handle(clock + spent, event);
            // A confirmation given before a seal counts, even if the seal arrived with it.
            self.witness.note_ordered(&mut self.scene, &self.nodes, id);
            spent = self.charge(id, spent, came, departures);
            if let Some((way, bytes)) = came {
                self.took(way, bytes);
            }
            if spent >= DRAIN_FOR {
                break;
            }
        }
        Some(spent)
    }

    /// Finishes a node's turn. Returns the time spent in it so far.
    fn node_finishes_turn(
        &mut self,
        id: NodeId,
        mut spent: Duration,
        departures: &mut Vec<Departure>,
    ) -> Option<Duration> {
        let now = self.scene.now;
        let clock = self.nodes[&id].clock(now);
        for _ in 0..=MOST_ROUNDS {
            let host = self.nodes.get_mut(&id).and_then(|node| node.host.as_mut())?;
            host.finish_turn(clock + spent);
            spent = self.charge(id, spent, None, departures);
            spent = self.node_serves_readers(id, spent, departures)?;
            let deadline = self.nodes[&id].host.as_ref().and_then(Host::deadline);
            // Work that became due meanwhile is left to the next turn.
            if deadline.is_none_or(|at| at > clock) || self.scene.plan.capacity.is_some() {
                return Some(spent);
            }
        }
        self.scene.note_problem(format!("node {id} wants to be woken for ever at {now}"));
        self.scene.is_over = true;
        Some(spent)
    }

    /// Serves all waiting readers, or with a capacity as many as the server's driver in a turn.
    /// Returns the time spent in the turn so far.
    fn node_serves_readers(
        &mut self,
        id: NodeId,
        mut spent: Duration,
        departures: &mut Vec<Departure>,
    ) -> Option<Duration> {
        let clock = self.nodes[&id].clock(self.scene.now);
        let (until, mut records) = (spent + DRAIN_FOR, 0);
        loop {
            let host = self.nodes.get_mut(&id).and_then(|node| node.host.as_mut())?;
            let Some(found) = host.serve_reader(clock + spent) else { return Some(spent) };
            spent = self.charge(id, spent, None, departures);
            records += found;
            let node = &self.nodes[&id];
            let has_more = !node.inbox.is_empty() || !node.urgent.is_empty();
            if self.scene.plan.capacity.is_some() && (records >= SERVED || has_more || spent >= until) {
                return Some(spent);
            }
        }
    }

    fn start_disk_work(&mut self, id: NodeId) {
        let (least, most) = self.scene.plan.sync_us;
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let (incarnation, slowness, ready) =
            (node.incarnation, node.slowness, node.busy_until.max(self.scene.now));
        let clock = node.clock(ready);
        let Some(host) = &mut node.host else { return };
        let write = host.next_journal_write(clock);
        let files = host.next_sync();
        if let Some(write) = write {
            assert!(node.write.is_none(), "one write at a time");
            let bytes = write.bytes();
            node.write = Some(write);
            let takes = self.scene.random.micros(least, most) * slowness;
            let done = self.disk_is_busy(id, ready, bytes, takes);
            self.scene.schedule(done, Happening::Written(id, incarnation));
        }
        if files.is_some() {
            self.nodes.get_mut(&id).expect("the node exists").syncing = files;
            let takes = self.scene.random.micros(least, most * 3) * slowness;
            let done = self.disk_is_busy(id, ready, 0, takes);
            self.scene.schedule(done, Happening::Synced(id, incarnation));
        }
    }

    fn send_from(&mut self, id: NodeId, outgoing: &Outgoing, frame: Bytes, ready: Time) {
        let from = Party::Node(id);
        let to = match outgoing.peer {
            Peer::Node(node) => Some(Party::Node(node)),
            // A client's closed connection is never reopened.
            Peer::Client(ConnectionId(number)) => self.wires.network.other_end(Connection(number), from),
        };
        if let Some(to) = to.filter(|to| !self.wires.network.is_mute(from, *to)) {
            self.transmit_at(ready, Lane::Bulk, from, to, frame);
        }
    }
}

fn heartbeat(from: Party, message: &Message) -> Option<(NodeId, Heartbeat)> {
    match (from, message) {
        (Party::Node(node), Message::Control(control::Message::Heartbeat(beat))) => Some((node, *beat)),
        _ => None,
    }
}

/// A heartbeat that waited in the inbox.
fn late_heartbeat(event: &Event, came: Option<(Way, usize)>) -> Option<(Connection, NodeId, Heartbeat)> {
    let Event::Message { peer: Peer::Node(node), message, .. } = event else { return None };
    let (_, beat) = heartbeat(Party::Node(*node), message)?;
    let ((connection, _), _) = came?;
    Some((connection, *node, beat))
}

fn peer_of(connection: Connection, party: Party) -> Peer {
    match party {
        Party::Node(node) => Peer::Node(node),
        Party::Client(_) => Peer::Client(ConnectionId(connection.0)),
    }
}
