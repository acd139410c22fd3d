//! Wires between processes: delays and losses of frames on connections.

use std::time::Duration;

use bytes::Bytes;
use seriatim_model::Time;

use super::scene::{Flight, Happening, Scene};
use crate::capacity::Capacity;
use crate::network::{Connection, Lane, Network, Party};
use crate::pipes::{Bounds, Pipes, Way};

/// The network and, with a capacity, frames within the limits of connections.
#[derive(Debug)]
pub(super) struct Wires {
    pub(super) network: Network,
    pipes: Pipes,
}

impl Wires {
    pub(super) fn new(network: Network) -> Self {
        Self { network, pipes: Pipes::default() }
    }

    /// Sends a frame. Returns the connection if it must be broken, because its queue for a client
    /// is full.
    pub(super) fn send(
        &mut self,
        scene: &mut Scene,
        (ready, lane): (Time, Lane),
        (from, to): (Party, Party),
        frame: Bytes,
    ) -> Option<Connection> {
        let connection = self.network.connect(from, to, lane);
        let way = (connection, from, to);
        let Some(capacity) = scene.plan.capacity.filter(|_| self.network.lane(connection) != Lane::Urgent)
        else {
            self.fly(scene, ready, way, frame);
            return None;
        };
        if self.pipes.push((connection, to), from, ready, frame, bounds(&capacity, from)) {
            self.pump(scene, &capacity, way);
            return None;
        }
        scene.coverage.overflows += 1;
        // Only a connection to a client is broken: the client does not read the requested records.
        matches!((from, to), (Party::Node(_), Party::Client(_))).then_some(connection)
    }

    fn pump(&mut self, scene: &mut Scene, capacity: &Capacity, way: (Connection, Party, Party)) {
        let (connection, from, to) = way;
        loop {
            let leaving = self.pipes.pump((connection, to), scene.now, bounds(capacity, from));
            if leaving.is_empty() {
                return;
            }
            for (frame, at) in leaving {
                self.fly(scene, at, way, frame);
            }
        }
    }

    /// Delivers a frame whose last byte leaves at `at`.
    fn fly(&mut self, scene: &mut Scene, at: Time, way: (Connection, Party, Party), frame: Bytes) {
        let (connection, from, to) = way;
        let arrivals = self.network.arrivals(at, connection, from, to);
        if arrivals.is_empty() {
            self.pipes.taken((connection, to), frame.len());
        }
        if let Some((at, later)) = arrivals.last().copied().zip(self.network.echo(from, to)) {
            let flight = Flight { connection, from, to, frame: frame.clone(), straggles: true };
            scene.schedule(at + later, Happening::Arrive(flight));
        }
        for at in arrivals {
            let flight = Flight { connection, from, to, frame: frame.clone(), straggles: false };
            scene.schedule(at, Happening::Arrive(flight));
        }
    }

    /// Returns the message if it arrives: its connection is open, or broke too late to stop it.
    pub(super) fn arrives(&mut self, scene: &mut Scene, flight: Flight) -> Option<Flight> {
        if flight.straggles || self.network.stands(flight.connection) {
            return Some(flight);
        }
        let later: Duration = self.network.straggles(flight.connection, flight.from, flight.to)?;
        scene.schedule(scene.now + later, Happening::Arrive(Flight { straggles: true, ..flight }));
        None
    }

    pub(super) fn took(&mut self, scene: &mut Scene, way: Way, bytes: usize) {
        let Some(capacity) = scene.plan.capacity else { return };
        self.pipes.taken(way, bytes);
        let (connection, to) = way;
        if let Some(from) = self.network.other_end(connection, to) {
            self.pump(scene, &capacity, (connection, from, to));
        }
    }

    /// Notifies a client that dials a process that is down.
    pub(super) fn refuse(&mut self, scene: &mut Scene, dialler: Party, absent: Party) {
        if let (Party::Client(_), Party::Node(_)) = (dialler, absent) {
            let at = scene.now + self.network.notice();
            let lost =
                Happening::Lost { connection: Connection(0), at: dialler, other: absent, incarnation: 0 };
            scene.schedule(at, lost);
        }
    }

    /// Breaks a connection; both ends, in these incarnations, notice it slightly later.
    pub(super) fn reset(&mut self, scene: &mut Scene, connection: Connection, ends: [(Party, u64); 2]) {
        if !self.network.reset(connection) {
            return;
        }
        let [a, b] = ends;
        self.pipes.reset(connection, [a.0, b.0]);
        for ((at, incarnation), (other, _)) in [(a, b), (b, a)] {
            let when = scene.now + self.network.notice();
            scene.schedule(when, Happening::Lost { connection, at, other, incarnation });
        }
    }

    pub(super) fn held_at_nodes(&self) -> u64 {
        self.pipes.held_at_nodes() as u64
    }
}

fn bounds(capacity: &Capacity, sender: Party) -> Bounds {
    let Capacity { socket_bytes, queue_bytes, .. } = *capacity;
    let of_clients = capacity.client_link_bytes.filter(|_| matches!(sender, Party::Client(_)));
    let link_bytes = of_clients.unwrap_or(capacity.link_bytes);
    Bounds { link_bytes, socket_bytes, queue_bytes }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{NodeId, Order};

    use super::*;
    use crate::profiles::{self, Profile};
    use crate::random::Random;

    const NODE: Party = Party::Node(NodeId(1));
    const CLIENT: Party = Party::Client(7);

    fn wires(profile: &Profile) -> (Wires, Scene) {
        let plan = profile.plan(1, Order::ALL[0]);
        let network = Network::new(plan.network, Random::new(2));
        (Wires::new(network), Scene::new(plan, Random::new(1), false))
    }

    fn send(wires: &mut Wires, scene: &mut Scene, way: (Party, Party)) -> Option<Connection> {
        wires.send(scene, (Time::ZERO, Lane::Bulk), way, Bytes::from(vec![0; 100_000]))
    }

    #[test]
    fn a_client_that_does_not_read_is_given_up_and_a_node_is_not() {
        let (mut wires, mut scene) = wires(&Profile::named("overload").expect("there is such a profile"));
        let other = Party::Node(NodeId(2));
        assert!((0..2000).any(|_| send(&mut wires, &mut scene, (NODE, CLIENT)).is_some()));
        assert!((0..2000).all(|_| send(&mut wires, &mut scene, (NODE, other)).is_none()));
        assert!(wires.held_at_nodes() > 0 && scene.coverage.overflows > 1);
    }

    #[test]
    fn both_ends_notice_that_a_connection_broke_once() {
        let (mut wires, mut scene) = wires(&profiles::ANY);
        let connection = wires.network.connect(NODE, CLIENT, Lane::Bulk);
        for _ in 0..2 {
            wires.reset(&mut scene, connection, [(NODE, 3), (CLIENT, 0)]);
        }
        let mut told = vec![];
        while let Some(Happening::Lost { at, other, incarnation, .. }) = scene.next_until(Time(u64::MAX)) {
            told.push((at, other, incarnation));
        }
        told.sort();
        assert_eq!(told, [(NODE, CLIENT, 3), (CLIENT, NODE, 0)]);
    }
}
