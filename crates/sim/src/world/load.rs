//! Load: what everything costs where a plan says what there is of it, and what waits meanwhile.

use std::time::Duration;

use bytes::Bytes;
use seriatim_host::{Event, Outgoing};
use seriatim_model::{Announced, NodeId, Peer, Position, Time, ViewNumber};

use super::World;
use super::meter::Work;
use super::nodes::frame;
use super::scene::{Flight, Happening};
use crate::capacity::Capacity;
use crate::client::Producer;
use crate::coverage::FaultKind;
use crate::history::{Costs, Load, STAYS_AWAY, Step};
use crate::network::{Connection, Lane, Party};
use crate::pipes::{Bounds, Way};

/// How many arrivals a node takes before it does what is due; see the server's driver.
pub(super) const DRAIN: usize = 256;
/// How long it takes arrivals before it does what is due.
pub(super) const DRAIN_FOR: Duration = Duration::from_millis(2);

/// A message that a node sends, and how long after its turn began it leaves.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) outgoing: Outgoing,
    pub(super) frame: Bytes,
    pub(super) after: Duration,
}

/// Something that waits for a node's processor.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) event: Event,
    /// Over which connection it came, if that has a bound, and how long it is.
    pub(super) came: Option<(Way, usize)>,
}

fn bounds(capacity: &Capacity, sender: Party) -> Bounds {
    let Capacity { socket_bytes, queue_bytes, .. } = *capacity;
    let of_clients = capacity.client_link_bytes.filter(|_| matches!(sender, Party::Client(_)));
    let link_bytes = of_clients.unwrap_or(capacity.link_bytes);
    Bounds { link_bytes, socket_bytes, queue_bytes }
}

impl World {
    /// Clients begin to ask for more than usual, if the plan wants that.
    pub(super) fn begin_load(&mut self) {
        let Some(capacity) = self.scene.plan.capacity else { return };
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.schedule_stall(node));
        let Some(load_for) = capacity.load_for else { return };
        let workload = self.scene.plan.workload;
        self.scene.tell(format_args!("the load begins: {workload:?}, {capacity:?}"));
        let appends = workload.clients * workload.sessions * workload.window;
        let limits = self.scene.plan.options.limits;
        self.scene.history.load = Some(Load {
            capacity,
            nodes: self.scene.plan.nodes,
            ring_bytes: limits.ring_bytes as u64,
            batch_records: limits.batch_records.min(limits.ring_records) as u64,
            record_bytes: workload.payload_bytes,
            has_resets: self.scene.plan.workload.reset_every.is_some(),
            is_shared: self.scene.plan.second_log_every.is_some(),
            has_mute_ways: self.scene.plan.faults.iter().any(|fault| fault.kind == FaultKind::Mute),
            readers: if workload.reads { workload.clients * self.scene.plan.config.shards } else { 0 },
            in_flight_bytes: u64::from(appends) * workload.payload_bytes,
            began: self.scene.now,
            ended: Time(u64::MAX),
            faults: self.scene.plan.faults.len() as u32,
            are_deaths: self
                .scene
                .plan
                .faults
                .iter()
                .all(|fault| fault.kind.is_death() && fault.lasting >= STAYS_AWAY),
            view: self.view_number(),
            last_view: ViewNumber::NONE,
            last_claim: ViewNumber::NONE,
            stable: Position::ZERO,
            costs: Costs::default(),
            is_over: false,
        });
        self.scene.schedule(self.scene.now + load_for, Happening::LoadEnds);
        let clients: Vec<u32> = self.clients.keys().copied().collect();
        for client in clients {
            self.schedule_reset(client);
            self.schedule_client_stall(client);
        }
    }

    fn schedule_reset(&mut self, client: u32) {
        let Some(every) = self.scene.plan.workload.reset_every else { return };
        let after = self.scene.random.micros(0, 2 * every.as_micros() as u64);
        self.scene.schedule(self.scene.now + after, Happening::ClientLosesAll(client));
    }

    /// A client's connections break, again and again until the load ends.
    pub(super) fn client_loses_all(&mut self, client: u32) {
        if self.scene.history.load.as_ref().is_none_or(|load| load.ended <= self.scene.now) {
            return;
        }
        let party = Party::Client(client);
        for (connection, other) in self.network.connections_of(party) {
            self.reset(connection, party, other);
        }
        self.schedule_reset(client);
    }

    fn view_number(&self) -> ViewNumber {
        self.scene.latest_view().map_or(ViewNumber::NONE, |view| view.number)
    }

    /// Clients ask for nothing more than they have asked for.
    pub(super) fn load_ends(&mut self) {
        for client in self.clients.values_mut() {
            client.producers.values_mut().for_each(Producer::stop);
        }
        self.scene.tell(format_args!("the load ends"));
        let stable = self.scene.history.stable.last().map_or(Position::ZERO, |(_, stable)| *stable);
        let Some(load) = &mut self.scene.history.load else { return };
        (load.ended, load.stable) = (self.scene.now, stable);
    }

    /// Everything that was asked for has come to an end, or does not.
    pub(super) fn close_load(&mut self) {
        let last_view = self.view_number();
        let last_claim = self.entry().map_or(last_view, |entry| entry.claimed);
        let Some(load) = self.scene.history.load.as_mut().filter(|load| !load.is_over) else { return };
        (load.last_view, load.last_claim, load.is_over) = (last_view, last_claim, true);
        let costs = load.costs;
        self.scene.tell(format_args!("everything that was asked for has its answer: {costs:?}"));
    }

    fn costs(&mut self) -> Option<&mut Costs> {
        let load = self.scene.history.load.as_mut().filter(|load| !load.is_over)?;
        Some(&mut load.costs)
    }

    /// A frame that is ready at `ready` goes the way that its connection has for it.
    pub(super) fn send_within(
        &mut self,
        capacity: &Capacity,
        ready: Time,
        way: (Connection, Party, Party),
        frame: Bytes,
    ) {
        let (connection, from, to) = way;
        if self.network.lane(connection) == Lane::Urgent {
            return self.fly(ready, way, frame);
        }
        if self.pipes.push((connection, to), from, ready, frame, bounds(capacity, from)) {
            self.pump(capacity, way);
        } else if let (Party::Node(_), Party::Client(_)) = (from, to) {
            // It does not read what it asked for.
            self.scene.coverage.overflows += 1;
            self.reset(connection, from, to);
        } else {
            self.scene.coverage.overflows += 1;
        }
    }

    /// Lets everything leave that has room at the receiver.
    fn pump(&mut self, capacity: &Capacity, way: (Connection, Party, Party)) {
        let (connection, from, to) = way;
        loop {
            let leaving = self.pipes.pump((connection, to), self.scene.now, bounds(capacity, from));
            if leaving.is_empty() {
                return;
            }
            for (frame, at) in leaving {
                self.fly(at, way, frame);
            }
        }
    }

    /// A frame's last byte leaves at `at`.
    pub(super) fn fly(&mut self, at: Time, way: (Connection, Party, Party), frame: Bytes) {
        let (connection, from, to) = way;
        let arrivals = self.network.arrivals(at, connection, from, to);
        if arrivals.is_empty() {
            self.pipes.taken((connection, to), frame.len());
        }
        if let Some((at, later)) = arrivals.last().copied().zip(self.network.echo(from, to)) {
            let flight = Flight { connection, from, to, frame: frame.clone(), straggles: true };
            self.scene.schedule(at + later, Happening::Arrive(flight));
        }
        for at in arrivals {
            let flight = Flight { connection, from, to, frame: frame.clone(), straggles: false };
            self.scene.schedule(at, Happening::Arrive(flight));
        }
    }

    /// The receiver took bytes that came over a connection: there is room for more.
    pub(super) fn took(&mut self, way: Way, bytes: usize) {
        let Some(capacity) = self.scene.plan.capacity else { return };
        self.pipes.taken(way, bytes);
        let (connection, to) = way;
        if let Some(from) = self.network.other_end(connection, to) {
            self.pump(&capacity, (connection, from, to));
        }
    }

    /// A message waits until a client's process gets to it.
    pub(super) fn client_is_sent(&mut self, number: u32, flight: Flight) {
        if let Some(at) = self.desks.put(number, flight) {
            self.scene.schedule(at, Happening::ClientReads(number));
        }
    }

    /// Until when a client's process is not scheduled, if it is not at present.
    pub(super) fn client_stalls_until(&self, number: u32) -> Option<Time> {
        self.desks.stalls_until(number, self.scene.now)
    }

    pub(super) fn client_reads(&mut self, number: u32) {
        if let Some(until) = self.client_stalls_until(number) {
            return self.scene.schedule(until, Happening::ClientReads(number));
        }
        let Some(flight) = self.desks.take(number) else { return };
        self.client_works(number, flight.frame.len());
        self.took((flight.connection, flight.to), flight.frame.len());
        self.client_gets(number, &flight);
        if let Some(at) = self.desks.go_on(number) {
            self.scene.schedule(at, Happening::ClientReads(number));
        }
    }

    /// A client's processor is busy with a message. Returns when that is over.
    pub(super) fn client_works(&mut self, number: u32, bytes: usize) -> Time {
        let Some(capacity) = &self.scene.plan.capacity else { return self.scene.now };
        let takes = Duration::from_nanos(capacity.client_message_ns + bytes as u64 * capacity.byte_ns / 2);
        self.desks.work(number, self.scene.now, takes)
    }

    fn schedule_stall(&mut self, id: NodeId) {
        let Some(capacity) = self.scene.plan.capacity.filter(|capacity| capacity.stall > Duration::ZERO)
        else {
            return;
        };
        let most = (capacity.stall_every * 2).as_micros() as u64;
        let after = self.scene.random.micros(0, most);
        let from = self.nodes[&id].busy_until.max(self.scene.now);
        self.scene.schedule(from + after, Happening::NodeStalls(id));
    }

    /// A node is not scheduled for a while.
    pub(super) fn node_stalls(&mut self, id: NodeId) {
        let load_is_over = self.scene.history.load.as_ref().is_some_and(|load| load.ended <= self.scene.now);
        if load_is_over || self.scene.history.calm_since.is_some() {
            return;
        }
        let most = self.scene.plan.capacity.map_or(Duration::ZERO, |capacity| capacity.stall);
        let takes = self.scene.random.micros(0, most.as_micros() as u64);
        let node = self.nodes.get_mut(&id).expect("the node exists");
        node.stalled_until = node.stalled_until.max(self.scene.now + takes);
        node.busy_until = node.busy_until.max(self.scene.now + takes);
        self.scene.tell(format_args!("node {id} is not scheduled for {takes:?}"));
        self.schedule_stall(id);
    }

    fn schedule_client_stall(&mut self, client: u32) {
        let Some(capacity) =
            self.scene.plan.capacity.filter(|capacity| capacity.client_stall > Duration::ZERO)
        else {
            return;
        };
        let after = self.scene.random.micros(0, (capacity.stall_every * 2).as_micros() as u64);
        let free_at = self.desks.free_at(client);
        self.scene.schedule(free_at.max(self.scene.now) + after, Happening::ClientStalls(client));
    }

    /// A client's process is not scheduled for a while.
    pub(super) fn client_stalls(&mut self, client: u32) {
        if self.scene.history.load.as_ref().is_none_or(|load| load.ended <= self.scene.now) {
            return;
        }
        let most = self.scene.plan.capacity.map_or(Duration::ZERO, |capacity| capacity.client_stall);
        let takes = self.scene.random.micros(0, most.as_micros() as u64);
        self.desks.stall(client, self.scene.now, takes);
        self.scene.tell(format_args!("client {client} is not scheduled for {takes:?}"));
        self.schedule_client_stall(client);
    }

    /// Charges a node for its work since the last call: its messages leave, and it was busy for so long, from `spent`
    /// after its turn began.
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
            // Clients choose how much they read.
            sent += if matches!(departure.outgoing.peer, Peer::Node(_)) { bytes } else { 0 };
            spent += capacity.work(1, bytes);
            departure.after = spent;
            departures.push(departure);
        }
        // Elsewhere the role that orders holds names, or nothing.
        let is_whole = self.scene.plan.config.order.announces() == Announced::Record;
        let record_bytes = if is_whole { self.scene.plan.workload.payload_bytes } else { 0 };
        let held = node.sequencer(self.scene.log).map_or(0, |role| role.held());
        node.held_bytes = journal + held * record_bytes;
        let held: u64 = self.nodes.values().map(|node| node.held_bytes).sum();
        let held = held + self.pipes.held_at_nodes() as u64;
        if made + stored + journaled > self.scene.plan.options.limits.ring_bytes as u64 {
            self.scene.tell(format_args!(
                "node {id} sends {made}, stores {stored}, journals {journaled} bytes in a step"
            ));
        }
        self.charge_change(sent, stored + journaled);
        if let Some(costs) = self.costs() {
            costs.disk_bytes += stored;
            costs.sent_bytes += sent;
            costs.most_held = costs.most_held.max(held);
            costs.most_step = costs.most_step.max(Step { made: made + stored + journaled, read, visited });
        }
        spent
    }

    /// Counts the bytes of a write of the journal that ended.
    pub(super) fn journal_wrote(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let journal = node.host.as_ref().map_or(0, |host| host.journal_pending_bytes() as u64);
        let bytes = node.meter.wrote(journal, &node.disk);
        if let Some(costs) = self.costs() {
            costs.disk_bytes += bytes;
            costs.journal_bytes += bytes;
        }
    }

    /// A node's disk is busy with so many bytes, and a sync that takes `sync`, from `from` on. Returns when that is over.
    pub(super) fn disk_is_busy(&mut self, id: NodeId, from: Time, bytes: u64, sync: Duration) -> Time {
        let Some(capacity) = &self.scene.plan.capacity else { return self.scene.now + sync };
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let times = capacity.slow_disk.filter(|(slow, _)| *slow == id).map_or(1, |(_, times)| times);
        let takes = node.disk_takes(capacity, bytes) + sync * times;
        node.disk_free = node.disk_free.max(from) + takes;
        node.disk_free
    }
}

fn departure(outgoing: Outgoing, after: Duration) -> Departure {
    let frame = frame(outgoing.log, outgoing.from, outgoing.to, &outgoing.message);
    Departure { outgoing, frame, after }
}
