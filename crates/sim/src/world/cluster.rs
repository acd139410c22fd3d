//! The cluster: nodes, wires and observers.

mod heartbeats;
mod processes;
mod turns;
mod work;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::{Endpoint, LogId, NodeId, Time};
use seriatim_protocol::control;
use seriatim_protocol::control::LogEntry;
use seriatim_store::MemoryDisk;

use super::disks::{Disks, Spoiled};
use super::faults::Mend;
use super::frames::frame;
use super::leaving::Leavers;
use super::network_faults::{NetworkFaults, NetworkMend};
use super::node::Node;
use super::observe::Witness;
use super::operator::OPERATOR;
use super::scene::{Flight, Happening, Scene};
use super::truth::{self, Nodes, Truth};
use super::wires::Wires;
use super::{CONTROL, FOUNDER};
use crate::coverage::FaultKind;
use crate::network::{Connection, Lane, Network, Party};
use crate::pipes::Way;
use crate::plan::Plan;
use crate::random::Random;

/// Calm time after which an operator joins a run that has none.
const CALLED_AFTER: Duration = Duration::from_secs(5);

/// The nodes of a run. Clients, faults and operators act on them from outside.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) scene: Scene,
    nodes: Nodes,
    wires: Wires,
    disks: Disks,
    witness: Witness,
    /// Clients with a running process.
    callers: BTreeSet<u32>,
}

impl Cluster {
    pub(super) fn new(plan: Plan, readable: bool) -> Self {
        let mut random = Random::new(plan.seed).fork();
        let network = Network::new(plan.network, random.fork());
        let mut cluster = Self {
            scene: Scene::new(plan, random, readable),
            nodes: Nodes::new(),
            wires: Wires::new(network),
            disks: Disks::default(),
            witness: Witness::default(),
            callers: BTreeSet::from([FOUNDER, OPERATOR]),
        };
        for number in 1..=cluster.scene.plan.nodes {
            let node = NodeId(number);
            let clock_ahead = cluster.scene.random.millis(0, 10_000);
            let limits = cluster.scene.plan.options_of(node).limits;
            let disk = MemoryDisk::new();
            disk.set_capacity(cluster.scene.plan.disk.most);
            cluster.nodes.insert(node, Node::new(node, disk, clock_ahead, &limits));
            cluster.start_node(node);
        }
        cluster
    }

    pub(super) fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[&id]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("the node exists")
    }

    pub(super) fn network_faults(&mut self) -> NetworkFaults<'_> {
        let (nodes, clients) = (self.ids(), self.scene.plan.workload.clients);
        NetworkFaults { network: &mut self.wires.network, random: &mut self.scene.random, nodes, clients }
    }

    /// Cuts a party off from all nodes for `lasting`.
    pub(super) fn cut_off(&mut self, party: Party, lasting: Duration) {
        let nodes = self.ids().into_iter().map(Party::Node);
        let links = nodes.flat_map(|node| [(party, node), (node, party)]).collect();
        let mend = Mend::Network(self.network_faults().cut(links));
        self.scene.schedule(self.scene.now + lasting, Happening::Mend(mend));
    }

    pub(super) fn mend_network(&mut self, mend: NetworkMend) {
        mend.mend(&mut self.wires.network, self.scene.history.calm_since.is_some());
    }

    pub(super) fn truth(&self) -> Truth<'_> {
        Truth { nodes: &self.nodes, scene: &self.scene }
    }

    /// Register entries of all logs. Empty while the register's node is down.
    pub(super) fn entries(&self) -> impl Iterator<Item = &LogEntry> {
        truth::entries(&self.nodes)
    }

    /// Register entry of the tested log. `None` while the register's node is down.
    pub(super) fn entry(&self) -> Option<&LogEntry> {
        truth::entry(&self.nodes, self.scene.log)
    }

    pub(super) fn client_comes(&mut self, client: u32) {
        self.callers.insert(client);
    }

    /// Notes that a client's process ended; its connections remain until they are reset.
    pub(super) fn client_goes(&mut self, client: u32) {
        self.callers.remove(&client);
    }

    pub(super) fn ask_register(&mut self, message: control::Message) {
        let frame = frame(LogId(0), Endpoint::Client(0), Endpoint::Register, &message.into());
        self.transmit(Party::Client(FOUNDER), Party::Node(CONTROL), frame);
    }

    pub(super) fn transmit(&mut self, from: Party, to: Party, frame: Bytes) {
        self.transmit_at(self.scene.now, Lane::Bulk, from, to, frame);
    }

    pub(super) fn transmit_at(&mut self, ready: Time, lane: Lane, from: Party, to: Party, frame: Bytes) {
        if !self.is_up(to) {
            return self.wires.refuse(&mut self.scene, from, to);
        }
        let overflowing = self.wires.send(&mut self.scene, (ready, lane), (from, to), frame);
        if let Some(connection) = overflowing {
            self.reset(connection, from, to);
        }
    }

    fn is_up(&self, party: Party) -> bool {
        match party {
            Party::Node(node) => self.nodes[&node].host.is_some(),
            Party::Client(client) => self.callers.contains(&client),
        }
    }

    /// Delivers a message, or returns it if it is for a client.
    pub(super) fn arrive(&mut self, flight: Flight) -> Option<Flight> {
        let flight = self.wires.arrives(&mut self.scene, flight)?;
        let Flight { connection, from, to, .. } = flight;
        self.scene.coverage.stragglers += u64::from(flight.straggles && self.is_up(to));
        self.scene.trace.bytes(self.scene.now, &flight.frame);
        let Party::Node(node) = to else { return Some(flight) };
        self.node_receives(node, connection, from, &flight.frame);
        None
    }

    /// Notes that the receiver read `bytes`: the connection has room for more.
    pub(super) fn took(&mut self, way: Way, bytes: usize) {
        self.wires.took(&mut self.scene, way, bytes);
    }

    /// Notifies a party of a closed connection. Returns the party if it is a client.
    pub(super) fn lost(
        &mut self,
        connection: Connection,
        at: Party,
        other: Party,
        incarnation: u64,
    ) -> Option<u32> {
        self.scene.trace.number(connection.0);
        self.wires.network.noticed(connection, at);
        match at {
            Party::Node(node) => {
                self.node_loses(node, connection, other, incarnation);
                None
            }
            Party::Client(client) => Some(client),
        }
    }

    pub(super) fn reset(&mut self, connection: Connection, a: Party, b: Party) {
        let incarnation = |party| match party {
            Party::Node(node) => self.nodes[&node].incarnation,
            Party::Client(_) => 0,
        };
        self.wires.reset(&mut self.scene, connection, [(a, incarnation(a)), (b, incarnation(b))]);
    }

    pub(super) fn reset_all(&mut self, party: Party) {
        for (connection, other) in self.wires.network.connections_of(party) {
            self.reset(connection, party, other);
        }
    }

    pub(super) fn hang_up(&mut self, party: Party) {
        self.reset_all(party);
        self.wires.network.died(party);
    }

    pub(super) fn judge_withheld(&mut self) {
        let damaged = self.disks.damaged_node();
        self.witness.damage.judge_withheld(&mut self.scene, &self.nodes, damaged);
    }

    pub(super) fn excuses_damage(&mut self) -> bool {
        let damaged = self.disks.damaged_node();
        self.witness.damage.excuses_end(&mut self.scene, &self.nodes, damaged)
    }

    pub(super) fn disks(&self) -> &Disks {
        &self.disks
    }

    /// Excuses a disk lost during a view change as more than the log can bear.
    pub(super) fn excuse_spoiled(&mut self) {
        self.disks.excuse(&mut self.scene, &self.nodes);
    }

    /// Whether a retired shard waits for records lost with a disk during a view change, without an
    /// operator to accept the loss. The log continues and so reports no loss.
    pub(super) fn misses_operator(&self) -> bool {
        let scene = &self.scene;
        let is_due = scene.history.calm_since.is_some_and(|since| scene.now >= since + CALLED_AFTER);
        let retires = |entry: &LogEntry| {
            entry.unavailable.is_none() && entry.view.as_ref().is_some_and(|view| !view.retired.is_empty())
        };
        is_due
            && !scene.plan.has_operator
            && self.entry().is_some_and(retires)
            && self.disks.are_too_many(scene, &self.nodes)
    }

    /// Notes that a node's disk is lost, or may be damaged from now on.
    pub(super) fn spoil(&mut self, node: NodeId, kind: FaultKind) {
        let incarnations = self.nodes[&node].incarnations(self.scene.log, self.scene.history.shard_count);
        self.disks.spoil(&mut self.scene, Spoiled { node, incarnations, kind });
    }

    /// Ends all faults. Returns the nodes that are down.
    pub(super) fn calm(&mut self) -> Vec<NodeId> {
        self.scene.tell(format_args!("calm"));
        self.scene.history.calm_since = Some(self.scene.now);
        self.wires.network.heal();
        self.nodes.values_mut().for_each(|node| node.heal(self.scene.plan.disk.most));
        let is_up = |node: &&Node| node.host.is_some();
        let (up, down): (Vec<&Node>, Vec<&Node>) = self.nodes.values().partition(is_up);
        let up: Vec<(NodeId, u64)> = up.into_iter().map(|node| (node.id, node.incarnation)).collect();
        let down = down.into_iter().map(|node| node.id).collect();
        up.into_iter().for_each(|(node, incarnation)| self.resume_node(node, incarnation));
        down
    }

    /// Replaces a lost disk by an empty one or, if planned, by an earlier state.
    pub(super) fn replace_disk(&mut self, id: NodeId) {
        let goes_back = self.scene.plan.disk_goes_back;
        let disk = if goes_back { self.disks.past_of(&mut self.scene, id) } else { MemoryDisk::new() };
        self.node_mut(id).disk = disk;
    }

    pub(super) fn take_news(&mut self) -> bool {
        self.witness.take_news()
    }

    /// Whether the nodes' work is done, except for nodes that have left.
    pub(super) fn is_at_rest(&self, leavers: &Leavers) -> bool {
        self.truth().is_at_rest(leavers, &self.witness.copies)
    }

    /// State of all nodes, and stores of dismissed replicas, for a person.
    pub(super) fn state(&self) -> Vec<String> {
        let (truth, scene) = (self.truth(), &self.scene);
        let nodes = self.nodes.values().flat_map(|node| node.state(scene.log, scene.history.shards()));
        let kept = self.witness.copies.dismissed().filter(|(node, shard)| truth.has_store(*node, *shard));
        let kept = kept.map(|(node, shard)| format!("node {node}, shard {shard}: dismissed, with a store"));
        nodes.chain(kept).collect()
    }

    pub(super) fn exceeds(&self) -> Option<String> {
        self.witness.limits.exceeds(self.truth())
    }
}
