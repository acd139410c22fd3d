//! A whole cluster with its clients, in one thread and in virtual time.
//!
//! Machines, store, journal and codec are the server's. Simulated are messages, syncs, disk
//! contents after crashes, and deaths and restarts of processes.
//!
//! A run takes place on a [`Scene`]: plan, time, randomness and history. The cluster adds nodes,
//! wires, and an observer of true states. Clients, faults, operator, leavers and other logs receive
//! the cluster with each of their events. Only the world knows all of them, and dispatches the
//! events.

mod changing;
mod clients;
mod cluster;
mod damage;
mod desks;
mod disks;
mod faults;
mod finish;
mod fleeting;
mod frames;
mod freeing;
mod leaving;
mod limits;
mod load;
mod meter;
mod needed;
mod network_faults;
mod node;
mod observe;
mod operator;
mod pins;
mod players;
mod promises;
mod pulse;
mod reached;
mod rest;
mod scene;
mod second;
mod standing_in;
mod survivors;
mod targets;
mod truth;
mod wires;

use std::time::Duration;

use seriatim_model::{LogConfig, NodeId, ShardId, Time};
use seriatim_protocol::control;

use crate::history::End;
use crate::network::{Connection, Party};
use crate::operator::Operator;
use crate::plan::{Plan, Reshape};

use clients::Clients;
use cluster::Cluster;
use faults::Faults;
use fleeting::Fleet;
use leaving::Leavers;
use node::Node;
use operator::OPERATOR;
use players::{PLAYERS, Players};
pub use scene::Scene;
use scene::{Flight, Happening};

/// Node of the register.
const CONTROL: NodeId = NodeId(1);
/// Client that creates the logs.
const FOUNDER: u32 = 10_000;
/// Client that reads the whole log at the end.
const JUDGE: u32 = 10_001;
/// The tested log.
const NAME: &str = "tested";
/// Time for the nodes to find each other.
const MEETING: Duration = Duration::from_millis(500);
/// Time to create a log.
const FOUNDING: Duration = Duration::from_millis(60);
/// Time for a log's first view, with a capacity.
const FIRST_VIEW_WITHIN: Duration = Duration::from_secs(5);
/// Longest time with faults and clients, unless the plan has a load or nodes are absent for longer.
const BUSY_FOR: Duration = Duration::from_millis(2500);
/// Longest time for everything to complete after calm returned.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Most shards that a log may ever have.
const MOST_SHARDS: usize = 6;

/// The cluster and everything around it.
#[derive(Debug)]
pub struct World {
    cluster: Cluster,
    clients: Clients,
    faults: Faults,
    operator: Operator,
    /// Nodes that leave or have left.
    leavers: Leavers,
    /// Other logs, which are created and deleted.
    fleet: Fleet,
    players: Players,
}

impl World {
    /// A starting cluster for `plan`.
    #[must_use]
    pub fn new(plan: Plan, readable: bool) -> Self {
        Self {
            players: Players::new(plan.players.clone(), plan.seed),
            cluster: Cluster::new(plan, readable),
            clients: Clients::default(),
            faults: Faults::default(),
            operator: Operator::default(),
            leavers: Leavers::default(),
            fleet: Fleet::default(),
        }
    }

    /// The scene with the history.
    #[must_use]
    pub fn into_scene(self) -> Scene {
        self.cluster.scene
    }

    /// Runs the plan: creates the log, runs clients and faults, restores calm, reads everything.
    pub fn run(&mut self) {
        self.found();
        if self.cluster.scene.history.end != End::Running {
            return;
        }
        self.clients.begin(&mut self.cluster);
        self.clients.begin_second(&mut self.cluster);
        self.players.begin(&mut self.cluster);
        self.begin_load();
        self.faults.schedule(&mut self.cluster);
        Fleet::schedule(&mut self.cluster);
        self.schedule_wishes();
        self.pass_faults();
        self.come_to_an_end_before_calm();
        self.calm();
        self.drain();
        self.cluster.scene.coverage.count(&self.cluster.scene.history);
    }

    fn schedule_wishes(&mut self) {
        let scene = &mut self.cluster.scene;
        let began = scene.began;
        for (after, reshape) in scene.plan.reshapes.clone() {
            scene.schedule(began + after, Happening::Reshape(reshape));
        }
        for (after, change) in scene.plan.limit_changes.clone() {
            scene.schedule(began + after, Happening::SetLimits(change));
        }
        for (after, change) in scene.plan.pin_changes.clone() {
            scene.schedule(began + after, Happening::ChangePins(change));
        }
        for (after, departure) in scene.plan.departures.clone() {
            scene.schedule(began + after, Happening::Departs(departure));
        }
        if scene.plan.has_operator {
            scene.schedule(scene.now, Happening::OperatorLooks);
        }
    }

    /// Runs until clients are done and faults are over, within their time limits.
    fn pass_faults(&mut self) {
        let Scene { plan, began, .. } = &self.cluster.scene;
        let end = *began + plan.capacity.and_then(|capacity| capacity.load_for).unwrap_or(BUSY_FOR);
        while self.cluster.scene.now < end.max(self.faults.busy_until())
            && !(self.clients.are_done()
                && self.faults.are_over(&self.cluster.scene)
                && self.players.are_over(&self.cluster))
        {
            self.run_for(Duration::from_millis(20));
        }
    }

    /// Creates the logs.
    pub fn found(&mut self) {
        self.run_for(MEETING);
        let plan = &self.cluster.scene.plan;
        let (config, earlier_logs) = (plan.config.clone(), plan.earlier_logs);
        let small = LogConfig { shards: 1, replicas: 1, sequencers: 1, ..config.clone() };
        for number in 0..earlier_logs {
            self.create(format!("earlier-{number}"), small.clone());
        }
        self.create(NAME.to_owned(), config);
        self.found_second();
        if self.cluster.scene.plan.capacity.is_some() {
            // Waits for the first view, whose duration is not judged; later durations are.
            self.run_until(FIRST_VIEW_WITHIN, |world| {
                world.nodes_are_at_rest() && world.cluster.truth().second_is_at_rest()
            });
        }
        let entry = self.cluster.entry().cloned();
        let scene = &mut self.cluster.scene;
        (scene.began, scene.first_entry) = (scene.now, entry);
        if scene.first_entry.is_none() {
            scene.history.end = End::Stuck("the log could not be created".into());
        }
    }

    fn create(&mut self, name: String, config: LogConfig) {
        let message = control::Message::Create { request: 1, name, config };
        self.cluster.ask_register(message);
        let end = self.cluster.scene.now + FOUNDING;
        while self.step_until(end) {
            self.learn_id();
        }
        self.cluster.scene.now = end;
    }

    fn learn_id(&mut self) {
        let found = self.cluster.entries().find(|entry| entry.name == NAME).map(|entry| entry.id);
        self.cluster.scene.log = found.unwrap_or(self.cluster.scene.log);
    }

    /// Runs for `span`.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.cluster.scene.now + span;
        while self.step_until(end) {}
        self.cluster.scene.now = end;
    }

    /// Runs the next event up to `end`. Returns whether there was one.
    fn step_until(&mut self, end: Time) -> bool {
        let next = self.cluster.scene.next_until(end);
        let is_due = next.is_some();
        if let Some(what) = next.filter(|_| !self.cluster.scene.is_over) {
            self.step(what);
        }
        is_due
    }

    /// Runs until a condition holds, for at most `most`. Returns whether it holds.
    pub fn run_until(&mut self, most: Duration, is_true: impl Fn(&Self) -> bool) -> bool {
        let end = self.cluster.scene.now + most;
        while !is_true(self) {
            if self.cluster.scene.now >= end || self.cluster.scene.is_over {
                return false;
            }
            self.run_for(Duration::from_millis(10));
        }
        true
    }

    fn step(&mut self, what: Happening) {
        if self.cluster.scene.count(&what) {
            let deadlines: Vec<String> = self.clients.deadlines();
            let (at, missing) = (self.cluster.scene.now, self.what_is_missing());
            let problem =
                format!("a storm of events at {at}, among them {what:?}; {missing}; clients: {deadlines:?}");
            self.cluster.scene.note_problem(problem);
            self.cluster.scene.is_over = true;
        }
        match what {
            Happening::Arrive(flight) => self.arrive(flight),
            Happening::Lost { connection, at, other, incarnation } => {
                self.lost(connection, at, other, incarnation)
            }
            Happening::NodeWakes(node) => {
                let took_its_turn = self.cluster.node_wakes(node);
                self.look_at_register();
                if took_its_turn {
                    self.faults.strike_at_step(&mut self.cluster, &mut self.clients);
                }
            }
            Happening::NodeBeats(node) => self.cluster.node_beats(node),
            Happening::ClientWakes(client) => self.clients.wakes(&mut self.cluster, client),
            Happening::ClientReads(client) => {
                if let Some(flight) = self.clients.takes(&mut self.cluster, client) {
                    self.client_gets(client, &flight);
                    self.clients.go_on(&mut self.cluster, client);
                }
            }
            Happening::NodeStalls(node) => self.cluster.node_stalls(node),
            Happening::ClientStalls(client) => self.clients.stalls(&mut self.cluster, client),
            Happening::ClientLosesAll(client) => Clients::loses_all(&mut self.cluster, client),
            Happening::LoadEnds => self.load_ends(),
            Happening::Written(node, incarnation) => self.cluster.written(node, incarnation),
            Happening::Synced(node, incarnation) => self.cluster.synced(node, incarnation),
            Happening::NodeStarts(node, incarnation) => {
                if self.cluster.node(node).incarnation == incarnation && !self.leavers.is_gone(node) {
                    self.cluster.start_node(node);
                }
            }
            Happening::ClientStarts(client) => self.clients.starts(&mut self.cluster, client),
            Happening::Strike(fault) => self.faults.strike(&mut self.cluster, &mut self.clients, fault),
            Happening::Mend(mend) => Faults::mend(&mut self.cluster, mend),
            Happening::Reshape(reshape) => self.reshape(reshape),
            Happening::SetLimits(change) => self.set_limits(change),
            Happening::ChangePins(change) => self.change_pins(change),
            Happening::Departs(departure) => self.leavers.departs(&mut self.cluster, departure),
            Happening::DeparturesGoOn => self.leavers.go_on(&mut self.cluster),
            Happening::OperatorLooks => {
                operator::looks(&mut self.operator, &mut self.cluster, &mut self.clients)
            }
            Happening::LogComes(number) => self.fleet.log_comes(&mut self.cluster, number),
            Happening::Play(play) => self.players.step(&mut self.cluster, play),
            Happening::LogGoes(number) => self.fleet.log_goes(&mut self.cluster, number),
        }
        self.look_at_register();
        self.cluster.judge_withheld();
    }

    fn arrive(&mut self, flight: Flight) {
        let Some(flight) = self.cluster.arrive(flight) else { return };
        match flight.to {
            Party::Client(client) if self.cluster.scene.plan.capacity.is_some() => {
                self.clients.queue(&mut self.cluster, client, flight);
            }
            Party::Client(client) => self.client_gets(client, &flight),
            Party::Node(_) => {}
        }
    }

    fn client_gets(&mut self, client: u32, flight: &Flight) {
        match client {
            OPERATOR => operator::hears(&mut self.operator, &mut self.cluster, flight),
            FOUNDER => self.fleet.hears(&mut self.cluster.scene, &flight.frame),
            client if client >= PLAYERS => {
                self.players.receives(&mut self.cluster, client, flight.from, &flight.frame)
            }
            client => self.clients.receives(&mut self.cluster, client, flight.from, &flight.frame),
        }
    }

    fn lost(&mut self, connection: Connection, at: Party, other: Party, incarnation: u64) {
        if let Some(client) = self.cluster.lost(connection, at, other, incarnation) {
            match client >= PLAYERS {
                true => self.players.loses(&mut self.cluster, client, other),
                false => self.clients.loses(&mut self.cluster, client, other),
            }
        }
    }

    pub(super) fn look_at_register(&mut self) {
        if self.cluster.take_news() {
            self.fleet.look_at_register(&mut self.cluster);
            self.leavers.look_at_register(&self.cluster);
            self.clients.look_at_register(&mut self.cluster);
        }
    }

    /// Requests a change of shards from the register, once.
    fn reshape(&mut self, reshape: Reshape) {
        let Some(entry) = self.cluster.entry() else { return };
        let (log, request) = (entry.id, self.cluster.scene.question());
        let message = match reshape {
            Reshape::Add if entry.shards.len() >= MOST_SHARDS => return,
            Reshape::Add => {
                control::Message::AddShard { request, log, shard: ShardId(entry.shards.len() as u32) }
            }
            Reshape::Remove => {
                let shard = ShardId(self.cluster.scene.random.below(entry.shards.len() as u64) as u32);
                control::Message::RemoveShard { request, log, shard }
            }
        };
        self.cluster.scene.tell(format_args!("the shards are to be changed: {message:?}"));
        self.cluster.ask_register(message);
    }

    /// Ends and repairs all faults.
    pub(super) fn calm(&mut self) {
        self.faults.end();
        for node in self.cluster.calm() {
            if !self.leavers.is_gone(node) {
                self.cluster.start_node(node);
            }
        }
        self.look_at_register();
        self.clients.calm(&mut self.cluster);
        self.players.calm(&mut self.cluster);
    }
}
