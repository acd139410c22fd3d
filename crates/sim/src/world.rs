//! A whole cluster with its clients, in one thread and in virtual time.
//!
//! The machines, the store, the journal and the codec are those of the server. What is simulated is
//! what surrounds them: when a message arrives and whether, when a sync ends, what a crash leaves on a
//! disk, when a process dies and when it starts again.

mod bearing;
mod changing;
mod clients;
mod damage;
mod desks;
mod faults;
mod finish;
mod fleeting;
mod heartbeats;
mod leaving;
mod limits;
mod load;
mod meter;
mod network_faults;
mod nodes;
mod observe;
mod operator;
mod pasts;
mod promises;
mod pulse;
mod reached;
mod scene;
mod second;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::{Endpoint, LogConfig, LogId, NodeId, ShardId, Time};
use seriatim_protocol::control;
use seriatim_protocol::control::LogEntry;
use seriatim_store::MemoryDisk;

use crate::client::{Client, Legacy};
use crate::coverage::Step;
use crate::history::End;
use crate::network::{Connection, Lane, Network, Party};
use crate::pipes::Pipes;
use crate::plan::{Fault, Plan, Reshape, Trigger};
use crate::random::Random;

use damage::Damage;
use desks::Desks;
use faults::Spoiled;
use fleeting::Fleet;
use leaving::Leaver;
use limits::Limits;
use nodes::Node;
use operator::{OPERATOR, Operator};
use pasts::Past;
use promises::Promises;
use reached::{Copies, Reached};
pub use scene::Scene;
use scene::{Flight, Happening};

/// The node of the register.
const CONTROL: NodeId = NodeId(1);
/// The client that creates the logs.
const FOUNDER: u32 = 10_000;
/// The client that reads everything in the end.
const JUDGE: u32 = 10_001;
/// The log that is tested.
const NAME: &str = "tested";
/// How long the nodes have to find each other.
const MEETING: Duration = Duration::from_millis(500);
/// How long it takes to create a log.
const FOUNDING: Duration = Duration::from_millis(60);
/// How long it takes until a log has its first view, where work takes time.
const FIRST_VIEW_WITHIN: Duration = Duration::from_secs(5);
/// How long faults may last altogether.
const BUSY_FOR: Duration = Duration::from_millis(2500);
/// How long everything may take once nothing disturbs it any more.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many shards a log may ever have.
const MOST_SHARDS: usize = 6;

/// The cluster, its clients, and what happened to them.
#[derive(Debug)]
pub struct World {
    /// The plan, the time, and the record of what happened.
    pub scene: Scene,
    nodes: BTreeMap<NodeId, Node>,
    clients: BTreeMap<u32, Client>,
    dead_clients: BTreeMap<u32, BTreeMap<u64, Legacy>>,
    network: Network,
    /// The frames in flight within the bounds of connections, and the messages that wait for clients, where the
    /// plan has a capacity.
    pipes: Pipes,
    desks: Desks,
    /// The register's entry when the log was new.
    first_entry: Option<LogEntry>,
    pending_faults: Vec<Fault>,
    /// A node stays away until then, and time is given to it to come back.
    busy_until: Time,
    /// The node whose disk was lost, or may have been damaged. That happens to one node of a run.
    spoiled: Option<Spoiled>,
    /// How the disks were, where one of them goes back.
    pasts: Vec<Past>,
    copies: Copies,
    /// Damage that was told, and what became of the other copies.
    damage: Damage,
    operator: Operator,
    /// The nodes that are leaving, or have left.
    leavers: BTreeMap<NodeId, Leaver>,
    /// The logs that come and go.
    fleet: Fleet,
    promises: Promises,
    limits: Limits,
    reached: Reached,
}

impl World {
    /// A cluster that starts, as `plan` says.
    #[must_use]
    pub fn new(plan: Plan, readable: bool) -> Self {
        let mut random = Random::new(plan.seed).fork();
        let network = Network::new(plan.network, random.fork());
        let mut world = Self {
            scene: Scene::new(plan, random, readable),
            nodes: BTreeMap::new(),
            clients: BTreeMap::new(),
            dead_clients: BTreeMap::new(),
            network,
            pipes: Pipes::default(),
            desks: Desks::default(),
            first_entry: None,
            pending_faults: vec![],
            busy_until: Time::ZERO,
            spoiled: None,
            pasts: vec![],
            copies: Copies::default(),
            damage: Damage::default(),
            operator: Operator::default(),
            leavers: BTreeMap::new(),
            fleet: Fleet::default(),
            promises: Promises::default(),
            limits: Limits::default(),
            reached: Reached::default(),
        };
        for number in 1..=world.scene.plan.nodes {
            let node = NodeId(number);
            let clock_ahead = world.scene.random.millis(0, 10_000);
            let limits = world.scene.plan.options_of(node).limits;
            let disk = MemoryDisk::new();
            disk.set_capacity(world.scene.plan.disk.most);
            world.nodes.insert(node, Node::new(node, disk, clock_ahead, &limits));
            world.start_node(node);
        }
        world
    }

    /// The whole run: the log is created, clients use it, faults strike, calm returns, everything is
    /// read.
    pub fn run(&mut self) {
        self.found();
        if self.scene.history.end != End::Running {
            return;
        }
        self.add_clients();
        self.add_second_client();
        self.begin_load();
        self.schedule_faults();
        self.schedule_fleeting();
        for (after, reshape) in self.scene.plan.reshapes.clone() {
            self.scene.schedule(self.scene.began + after, Happening::Reshape(reshape));
        }
        for (after, change) in self.scene.plan.limit_changes.clone() {
            self.scene.schedule(self.scene.began + after, Happening::SetLimits(change));
        }
        for (after, departure) in self.scene.plan.departures.clone() {
            self.scene.schedule(self.scene.began + after, Happening::Departs(departure));
        }
        if self.scene.plan.has_operator {
            self.scene.schedule(self.scene.now, Happening::OperatorLooks);
        }
        let busy_for = self.scene.plan.capacity.and_then(|capacity| capacity.load_for).unwrap_or(BUSY_FOR);
        let end = self.scene.began + busy_for;
        while self.scene.now < end.max(self.busy_until) && !(self.all_done() && self.faults_are_over()) {
            self.run_for(Duration::from_millis(20));
        }
        self.come_to_an_end_before_calm();
        self.calm();
        self.settle();
        self.scene.coverage.count(&self.scene.history);
    }

    /// Creates the logs.
    pub fn found(&mut self) {
        self.run_for(MEETING);
        let small = LogConfig { shards: 1, replicas: 1, sequencers: 1, ..self.scene.plan.config.clone() };
        for number in 0..self.scene.plan.earlier_logs {
            self.create(format!("earlier-{number}"), small.clone());
        }
        self.create(NAME.to_owned(), self.scene.plan.config.clone());
        self.found_second();
        if self.scene.plan.capacity.is_some() {
            // The rest of the run is judged by how long it takes: the first view does not count.
            self.run_until(FIRST_VIEW_WITHIN, |world| {
                world.scene.latest_view().is_some_and(|view| world.is_settled(view))
                    && world.second_is_at_rest()
            });
        }
        self.scene.began = self.scene.now;
        self.first_entry = self.entry().cloned();
        if self.first_entry.is_none() {
            self.scene.history.end = End::Stuck("the log could not be created".into());
        }
    }

    fn create(&mut self, name: String, config: LogConfig) {
        let message = control::Message::Create { request: 1, name, config };
        let frame = nodes::frame(LogId(0), Endpoint::Client(0), Endpoint::Register, &message.into());
        self.transmit(Party::Client(FOUNDER), Party::Node(CONTROL), frame);
        let end = self.scene.now + FOUNDING;
        while self.step_until(end) {
            self.learn_id();
        }
        self.scene.now = end;
    }

    /// The log's id is drawn: it is known as soon as there is an entry.
    fn learn_id(&mut self) {
        let found = self.entries().find(|entry| entry.name == NAME).map(|entry| entry.id);
        self.scene.log = found.unwrap_or(self.scene.log);
    }

    fn entries(&self) -> impl Iterator<Item = &LogEntry> {
        let register = self.nodes[&CONTROL].host.as_ref().and_then(|host| host.register());
        register.into_iter().flat_map(|register| register.entries())
    }

    /// The register's entry of the log, while its node is up.
    fn entry(&self) -> Option<&LogEntry> {
        self.entries().find(|entry| entry.id == self.scene.log)
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.scene.now + span;
        while self.step_until(end) {}
        self.scene.now = end;
    }

    /// Carries out what happens next, if that is not after `end`. Says whether there was something.
    fn step_until(&mut self, end: Time) -> bool {
        let next = self.scene.next_until(end);
        let is_due = next.is_some();
        if let Some(what) = next.filter(|_| !self.scene.is_over) {
            self.step(what);
        }
        is_due
    }

    /// Lets time pass until something is true, but not longer than `most`. Says whether it became true.
    pub fn run_until(&mut self, most: Duration, is_true: impl Fn(&Self) -> bool) -> bool {
        let end = self.scene.now + most;
        while !is_true(self) {
            if self.scene.now >= end || self.scene.is_over {
                return false;
            }
            self.run_for(Duration::from_millis(10));
        }
        true
    }

    fn step(&mut self, what: Happening) {
        if self.scene.count(&what) {
            let deadlines: Vec<String> = self.clients.values().map(Client::deadlines).collect();
            let (at, missing) = (self.scene.now, self.what_is_missing());
            let problem =
                format!("a storm of events at {at}, among them {what:?}; {missing}; clients: {deadlines:?}");
            self.scene.history.problems.push(problem);
            self.scene.is_over = true;
        }
        match what {
            Happening::Arrive(flight) => self.arrive(flight),
            Happening::Lost { connection, at, other, life } => self.lost(connection, at, other, life),
            Happening::NodeWakes(node) => self.node_wakes(node),
            Happening::NodeBeats(node) => self.node_beats(node),
            Happening::ClientWakes(client) => self.client_wakes(client),
            Happening::ClientReads(client) => self.client_reads(client),
            Happening::NodeStalls(node) => self.node_stalls(node),
            Happening::ClientStalls(client) => self.client_stalls(client),
            Happening::ClientLosesAll(client) => self.client_loses_all(client),
            Happening::LoadEnds => self.load_ends(),
            Happening::Written(node, life) => self.written(node, life),
            Happening::Synced(node, life) => self.synced(node, life),
            Happening::NodeStarts(node, life) => {
                if self.nodes[&node].life == life && !self.is_gone(node) {
                    self.start_node(node);
                }
            }
            Happening::ClientStarts(client) => self.client_starts(client),
            Happening::Strike(fault) => self.strike(fault),
            Happening::Mend(mend) => self.mend(mend),
            Happening::Reshape(reshape) => self.reshape(reshape),
            Happening::SetLimits(change) => self.set_limits(change),
            Happening::Departs(departure) => self.departs(departure),
            Happening::DeparturesGoOn => self.departures_go_on(),
            Happening::OperatorLooks => self.operator_looks(),
            Happening::LogComes(number) => self.log_comes(number),
            Happening::LogGoes(number) => self.log_goes(number),
        }
        self.judge_withheld();
    }

    /// Puts a frame onto the connection between two parties.
    fn transmit(&mut self, from: Party, to: Party, frame: Bytes) {
        self.transmit_at(self.scene.now, Lane::Bulk, from, to, frame);
    }

    /// The same, for a frame that is ready at `ready`.
    fn transmit_at(&mut self, ready: Time, lane: Lane, from: Party, to: Party, frame: Bytes) {
        if !self.is_up(to) {
            // A party that dials a process that is not there is told so.
            self.refuse(from, to);
            return;
        }
        let connection = self.network.connect(from, to, lane);
        match self.scene.plan.capacity {
            Some(capacity) => self.send_within(&capacity, ready, (connection, from, to), frame),
            None => self.fly(ready, (connection, from, to), frame),
        }
    }

    fn is_up(&self, party: Party) -> bool {
        match party {
            Party::Node(node) => self.nodes[&node].host.is_some(),
            Party::Client(client) => {
                self.clients.contains_key(&client) || client == FOUNDER || client == OPERATOR
            }
        }
    }

    fn refuse(&mut self, dialler: Party, absent: Party) {
        if let (Party::Client(_), Party::Node(_)) = (dialler, absent) {
            let at = self.scene.now + self.network.notice();
            let lost = Happening::Lost { connection: Connection(0), at: dialler, other: absent, life: 0 };
            self.scene.schedule(at, lost);
        }
    }

    fn arrive(&mut self, flight: Flight) {
        let Flight { connection, from, to, .. } = flight;
        if !flight.straggles && !self.network.stands(connection) {
            if let Some(later) = self.network.straggles(connection, from, to) {
                self.scene.schedule(
                    self.scene.now + later,
                    Happening::Arrive(Flight { straggles: true, ..flight }),
                );
            }
            return;
        }
        self.scene.coverage.stragglers += u64::from(flight.straggles && self.is_up(to));
        self.scene.trace.bytes(self.scene.now, &flight.frame);
        match to {
            Party::Node(node) => self.node_receives(node, connection, from, &flight.frame),
            Party::Client(client) if self.scene.plan.capacity.is_some() => {
                self.client_is_sent(client, flight)
            }
            Party::Client(client) => self.client_gets(client, &flight),
        }
    }

    /// A client's process takes a message.
    fn client_gets(&mut self, client: u32, flight: &Flight) {
        match client {
            OPERATOR => self.operator_hears(&flight.frame),
            FOUNDER => self.founder_hears(&flight.frame),
            client => self.client_receives(client, flight.from, &flight.frame),
        }
    }

    /// A party notices that a connection is gone.
    fn lost(&mut self, connection: Connection, at: Party, other: Party, life: u64) {
        self.scene.trace.number(connection.0);
        self.network.noticed(connection, at);
        match at {
            Party::Node(node) => self.node_loses(node, connection, other, life),
            Party::Client(client) => self.client_loses(client, other),
        }
    }

    /// Breaks a connection; both ends notice it a little later.
    fn reset(&mut self, connection: Connection, a: Party, b: Party) {
        if !self.network.reset(connection) {
            return;
        }
        self.pipes.reset(connection, [a, b]);
        for (at, other) in [(a, b), (b, a)] {
            let life = match at {
                Party::Node(node) => self.nodes[&node].life,
                Party::Client(_) => 0,
            };
            let when = self.scene.now + self.network.notice();
            self.scene.schedule(when, Happening::Lost { connection, at, other, life });
        }
    }

    /// A process is gone, and its connections with it.
    fn hang_up(&mut self, party: Party) {
        for (connection, other) in self.network.connections_of(party) {
            self.reset(connection, party, other);
        }
        if let Party::Client(client) = party {
            self.desks.clear(client);
        }
        self.network.died(party);
    }

    /// The operator wants other shards, and says so once.
    fn reshape(&mut self, reshape: Reshape) {
        let Some(entry) = self.entry() else { return };
        let (log, request) = (entry.id, self.scene.question());
        let message = match reshape {
            Reshape::Add if entry.shards.len() >= MOST_SHARDS => return,
            Reshape::Add => {
                control::Message::AddShard { request, log, shard: ShardId(entry.shards.len() as u32) }
            }
            Reshape::Remove => {
                let shard = ShardId(self.scene.random.below(entry.shards.len() as u64) as u32);
                control::Message::RemoveShard { request, log, shard }
            }
        };
        self.scene.tell(format_args!("the shards are to be changed: {message:?}"));
        let frame = nodes::frame(LogId(0), Endpoint::Client(0), Endpoint::Register, &message.into());
        self.transmit(Party::Client(FOUNDER), Party::Node(CONTROL), frame);
    }

    fn schedule_faults(&mut self) {
        let (loss, duplication, reordering) = self.scene.plan.network.noise_permille;
        self.network.disturb(loss, duplication, reordering);
        for fault in self.scene.plan.faults.clone() {
            match fault.trigger {
                Trigger::At(after) => self.scene.schedule(self.scene.began + after, Happening::Strike(fault)),
                Trigger::Step(..) => self.pending_faults.push(fault),
            }
        }
    }

    /// Whether no fault is to strike any more.
    fn faults_are_over(&self) -> bool {
        let strikes = |fault: &Fault| match fault.trigger {
            Trigger::At(after) => self.scene.now <= self.scene.began + after + fault.lasting,
            Trigger::Step(..) => false,
        };
        self.scene.now > self.busy_until
            && self.pending_faults.is_empty()
            && !self.scene.plan.faults.iter().any(strikes)
    }

    /// Lets the faults strike that wait for the step at which the protocol is now.
    fn strike_at_step(&mut self) {
        if self.pending_faults.is_empty() {
            return;
        }
        let step = self.protocol_step();
        let elapsed = self.scene.now - self.scene.began;
        let waits_for = |fault: &Fault| match fault.trigger {
            Trigger::Step(wanted, after) => wanted == step && elapsed >= after,
            Trigger::At(_) => false,
        };
        if let Some(index) = self.pending_faults.iter().position(waits_for) {
            let fault = self.pending_faults.remove(index);
            self.strike(fault);
        }
    }

    /// Where the protocol is.
    fn protocol_step(&self) -> Step {
        self.view_change_step().or_else(|| self.ordering_step()).unwrap_or(Step::Idle)
    }
}
