//! A whole cluster with its clients, in one thread and in virtual time.
//!
//! The machines, the store, the journal and the codec are those of the server. What is simulated is
//! what surrounds them: when a message arrives and whether, when a sync ends, what a crash leaves on a
//! disk, when a process dies and when it starts again.

mod changing;
mod clients;
mod damage;
mod faults;
mod finish;
mod fleeting;
mod heartbeats;
mod leaving;
mod limits;
mod load;
mod network_faults;
mod nodes;
mod observe;
mod operator;
mod pasts;
mod promises;
mod second;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::{
    Endpoint, LogConfig, LogId, NodeId, Position, RetentionChange, ShardId, Time, View, ViewNumber,
};
use seriatim_protocol::control;
use seriatim_protocol::control::LogEntry;
use seriatim_store::MemoryDisk;

use crate::client::{Client, Legacy};
use crate::coverage::{Coverage, Step};
use crate::history::{End, History};
use crate::network::{Connection, Lane, Network, Party};
use crate::operator::Operator;
use crate::pipes::Pipes;
use crate::plan::{Clocks, Departure, Fault, Plan, Reshape, Trigger};
use crate::random::Random;
use crate::trace::Trace;

use damage::Damage;
use faults::Spoiled;
use fleeting::Fleet;
use leaving::Leaver;
use limits::Limits;
use load::Desk;
pub use nodes::Node;
pub use observe::Milestone;
use operator::OPERATOR;
use pasts::Past;
use promises::Promises;

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
/// How many events a run may have, apart from what clients want by themselves: more is a storm of messages.
const MOST_EVENTS: u64 = 1_000_000;
/// How many a run may have in all.
const MOST_EVENTS_AND_WAKES: u64 = 5_000_000;

/// Something that is going to happen.
#[derive(Debug)]
enum Happening {
    Arrive(Flight),
    Lost { connection: Connection, at: Party, other: Party, life: u64 },
    NodeWakes(NodeId),
    NodeBeats(NodeId),
    ClientWakes(u32),
    ClientReads(u32),
    NodeStalls(NodeId),
    ClientStalls(u32),
    ClientLosesAll(u32),
    LoadEnds,
    Written(NodeId, u64),
    Synced(NodeId, u64),
    NodeStarts(NodeId, u64),
    ClientStarts(u32),
    Strike(Fault),
    Mend(faults::Mend),
    Reshape(Reshape),
    SetLimits(RetentionChange),
    Departs(Departure),
    DeparturesGoOn,
    OperatorLooks,
    LogComes(u64),
    LogGoes(u64),
}

/// A message on its way.
#[derive(Debug)]
struct Flight {
    connection: Connection,
    from: Party,
    to: Party,
    frame: Bytes,
    /// Its connection broke, and it arrives nevertheless.
    straggles: bool,
}

#[derive(Debug)]
struct Scheduled {
    at: Time,
    sequence: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// The cluster, its clients, and what happened to them.
#[derive(Debug)]
pub struct World {
    plan: Plan,
    now: Time,
    sequence: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    random: Random,
    nodes: BTreeMap<NodeId, Node>,
    clients: BTreeMap<u32, Client>,
    dead_clients: BTreeMap<u32, BTreeMap<u64, Legacy>>,
    network: Network,
    /// The frames in flight within the bounds of connections, and the messages that wait for clients, where the
    /// plan has a capacity.
    pipes: Pipes,
    desks: BTreeMap<u32, Desk>,
    log: LogId,
    second: Option<LogId>,
    began: Time,
    /// The register's entry when the log was new.
    first_entry: Option<LogEntry>,
    pending_faults: Vec<Fault>,
    /// A node stays away until then, and time is given to it to come back.
    busy_until: Time,
    /// The node whose disk was lost, or may have been damaged. That happens to one node of a run.
    spoiled: Option<Spoiled>,
    /// How the disks were, where one of them goes back.
    pasts: Vec<Past>,
    /// The replicas that exist, and whether each of them lacks something.
    replicas: BTreeMap<(NodeId, ShardId), bool>,
    /// The replicas that were dismissed: their stores go, too.
    dismissed: BTreeSet<(NodeId, ShardId)>,
    /// Damage that was told, and what became of the other copies.
    damage: Damage,
    operator: Operator,
    /// The nodes that are leaving, or have left.
    leavers: BTreeMap<NodeId, Leaver>,
    /// The logs that come and go.
    fleet: Fleet,
    promises: Promises,
    limits: Limits,
    /// How far each member got in each view.
    ordered: BTreeMap<(ViewNumber, NodeId), Position>,
    /// How far each replica of a shard is written in each view, in a log that is ordered first.
    written: BTreeMap<(ViewNumber, ShardId, NodeId), Position>,
    /// In which view each member took part when it was seen last.
    open: BTreeMap<NodeId, ViewNumber>,
    /// Something went wrong that makes it pointless to go on.
    is_over: bool,
    /// When something of interest happened first, for the tests that count delays.
    milestones: BTreeMap<Milestone, Time>,
    /// The history of the run, for the checkers.
    pub history: History,
    /// The situations that the run went through.
    pub coverage: Coverage,
    /// The events.
    pub trace: Trace,
}

impl World {
    /// A cluster that starts, as `plan` says.
    #[must_use]
    pub fn new(plan: Plan, readable: bool) -> Self {
        let mut random = Random::new(plan.seed).fork();
        let network = Network::new(plan.network, random.fork());
        let mut history = History::new(plan.config.clone());
        history.unordered = plan.workload.unordered;
        history.clocks_behind_ms = plan.clocks.as_ref().map_or(0, Clocks::most_behind_ms);
        let mut world = Self {
            now: Time::ZERO,
            sequence: 0,
            queue: BinaryHeap::new(),
            nodes: BTreeMap::new(),
            clients: BTreeMap::new(),
            dead_clients: BTreeMap::new(),
            network,
            pipes: Pipes::default(),
            desks: BTreeMap::new(),
            log: LogId(0),
            second: None,
            began: Time::ZERO,
            first_entry: None,
            pending_faults: vec![],
            busy_until: Time::ZERO,
            spoiled: None,
            pasts: vec![],
            replicas: BTreeMap::new(),
            dismissed: BTreeSet::new(),
            damage: Damage::default(),
            operator: Operator::default(),
            leavers: BTreeMap::new(),
            fleet: Fleet::new(),
            promises: Promises::default(),
            limits: Limits::default(),
            ordered: BTreeMap::new(),
            written: BTreeMap::new(),
            open: BTreeMap::new(),
            is_over: false,
            milestones: BTreeMap::new(),
            history,
            coverage: Coverage { runs: 1, ..Coverage::default() },
            trace: Trace::new(readable),
            random,
            plan,
        };
        for number in 1..=world.plan.nodes {
            let node = NodeId(number);
            let clock_ahead = world.random.millis(0, 10_000);
            let limits = world.plan.options_of(node).limits;
            let disk = MemoryDisk::new();
            disk.set_capacity(world.plan.disk.most);
            world.nodes.insert(node, Node::new(node, disk, clock_ahead, &limits));
            world.start_node(node);
        }
        world
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// The whole run: the log is created, clients use it, faults strike, calm returns, everything is
    /// read.
    pub fn run(&mut self) {
        self.found();
        if self.history.end != End::Running {
            return;
        }
        self.add_clients();
        self.add_second_client();
        self.begin_load();
        self.schedule_faults();
        self.schedule_fleeting();
        for (after, reshape) in self.plan.reshapes.clone() {
            self.schedule(self.began + after, Happening::Reshape(reshape));
        }
        for (after, change) in self.plan.limit_changes.clone() {
            self.schedule(self.began + after, Happening::SetLimits(change));
        }
        for (after, departure) in self.plan.departures.clone() {
            self.schedule(self.began + after, Happening::Departs(departure));
        }
        if self.plan.has_operator {
            self.schedule(self.now, Happening::OperatorLooks);
        }
        let busy_for = self.plan.capacity.and_then(|capacity| capacity.load_for).unwrap_or(BUSY_FOR);
        let end = self.began + busy_for;
        while self.now < end.max(self.busy_until) && !(self.all_done() && self.faults_are_over()) {
            self.run_for(Duration::from_millis(20));
        }
        self.come_to_an_end_before_calm();
        self.calm();
        self.settle();
        self.count();
    }

    /// Creates the logs.
    pub fn found(&mut self) {
        self.run_for(MEETING);
        let small = LogConfig { shards: 1, replicas: 1, sequencers: 1, ..self.plan.config.clone() };
        for number in 0..self.plan.earlier_logs {
            self.create(format!("earlier-{number}"), small.clone());
        }
        self.create(NAME.to_owned(), self.plan.config.clone());
        self.found_second();
        if self.plan.capacity.is_some() {
            // The rest of the run is judged by how long it takes: the first view does not count.
            self.run_until(FIRST_VIEW_WITHIN, |world| {
                world.latest_view().is_some_and(|view| world.is_settled(view)) && world.second_is_at_rest()
            });
        }
        self.began = self.now;
        self.first_entry = self.entry().cloned();
        if self.first_entry.is_none() {
            self.history.end = End::Stuck("the log could not be created".into());
        }
    }

    fn create(&mut self, name: String, config: LogConfig) {
        let message = control::Message::Create { request: 1, name, config };
        let frame = nodes::frame(LogId(0), Endpoint::Client(0), Endpoint::Register, &message.into());
        self.transmit(Party::Client(FOUNDER), Party::Node(CONTROL), frame);
        let end = self.now + FOUNDING;
        while self.step_until(end) {
            self.learn_id();
        }
        self.now = end;
    }

    /// The log's id is drawn: it is known as soon as there is an entry.
    fn learn_id(&mut self) {
        let found = self.entries().find(|entry| entry.name == NAME).map(|entry| entry.id);
        self.log = found.unwrap_or(self.log);
    }

    fn entries(&self) -> impl Iterator<Item = &LogEntry> {
        let register = self.nodes[&CONTROL].host.as_ref().and_then(|host| host.register());
        register.into_iter().flat_map(|register| register.entries())
    }

    /// The register's entry of the log, while its node is up.
    fn entry(&self) -> Option<&LogEntry> {
        self.entries().find(|entry| entry.id == self.log)
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.step_until(end) {}
        self.now = end;
    }

    /// Carries out what happens next, if that is not after `end`. Says whether there was something.
    fn step_until(&mut self, end: Time) -> bool {
        let is_due = self.queue.peek().is_some_and(|Reverse(next)| next.at <= end);
        if is_due {
            self.step();
        }
        is_due
    }

    /// Lets time pass until something is true, but not longer than `most`. Says whether it became true.
    pub fn run_until(&mut self, most: Duration, is_true: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + most;
        while !is_true(self) {
            if self.now >= end || self.is_over {
                return false;
            }
            self.run_for(Duration::from_millis(10));
        }
        true
    }

    fn step(&mut self) {
        let Some(Reverse(Scheduled { at, what, .. })) = self.queue.pop() else { return };
        self.now = at;
        self.history.now = at;
        if self.is_over {
            return;
        }
        self.coverage.events += 1;
        self.coverage.wakes += u64::from(matches!(what, Happening::ClientWakes(_)));
        let of_protocols = self.coverage.events - self.coverage.wakes;
        if of_protocols > MOST_EVENTS || self.coverage.events > MOST_EVENTS_AND_WAKES {
            let deadlines: Vec<String> = self.clients.values().map(Client::deadlines).collect();
            let missing = self.what_is_missing();
            let problem =
                format!("a storm of events at {at}, among them {what:?}; {missing}; clients: {deadlines:?}");
            self.history.problems.push(problem);
            self.is_over = true;
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

    fn schedule(&mut self, at: Time, what: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse(Scheduled { at: at.max(self.now), sequence: self.sequence, what }));
    }

    /// Puts a frame onto the connection between two parties.
    fn transmit(&mut self, from: Party, to: Party, frame: Bytes) {
        self.transmit_at(self.now, Lane::Bulk, from, to, frame);
    }

    /// The same, for a frame that is ready at `ready`.
    fn transmit_at(&mut self, ready: Time, lane: Lane, from: Party, to: Party, frame: Bytes) {
        if !self.is_up(to) {
            // A party that dials a process that is not there is told so.
            self.refuse(from, to);
            return;
        }
        let connection = self.network.connect(from, to, lane);
        match self.plan.capacity {
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
            let at = self.now + self.network.notice();
            let lost = Happening::Lost { connection: Connection(0), at: dialler, other: absent, life: 0 };
            self.schedule(at, lost);
        }
    }

    fn arrive(&mut self, flight: Flight) {
        let Flight { connection, from, to, .. } = flight;
        if !flight.straggles && !self.network.stands(connection) {
            if let Some(later) = self.network.straggles(connection, from, to) {
                self.schedule(self.now + later, Happening::Arrive(Flight { straggles: true, ..flight }));
            }
            return;
        }
        self.coverage.stragglers += u64::from(flight.straggles && self.is_up(to));
        self.trace.bytes(self.now, &flight.frame);
        match to {
            Party::Node(node) => self.node_receives(node, connection, from, &flight.frame),
            Party::Client(client) if self.plan.capacity.is_some() => self.client_is_sent(client, flight),
            Party::Client(client) => self.client_gets(client, &flight),
        }
    }

    /// A client's process takes a message.
    fn client_gets(&mut self, client: u32, flight: &Flight) {
        match client {
            OPERATOR => self.operator_hears(flight),
            FOUNDER => self.founder_hears(&flight.frame),
            client => self.client_receives(client, flight.from, &flight.frame),
        }
    }

    /// A party notices that a connection is gone.
    fn lost(&mut self, connection: Connection, at: Party, other: Party, life: u64) {
        self.trace.number(connection.0);
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
            let when = self.now + self.network.notice();
            self.schedule(when, Happening::Lost { connection, at, other, life });
        }
    }

    /// A process is gone, and its connections with it.
    fn hang_up(&mut self, party: Party) {
        for (connection, other) in self.network.connections_of(party) {
            self.reset(connection, party, other);
        }
        if let Party::Client(client) = party {
            self.clear_desk(client);
        }
        self.network.died(party);
    }

    /// The operator wants other shards, and says so once.
    fn reshape(&mut self, reshape: Reshape) {
        let Some(entry) = self.entry() else { return };
        let (log, request) = (entry.id, self.sequence);
        let message = match reshape {
            Reshape::Add if entry.shards.len() >= MOST_SHARDS => return,
            Reshape::Add => {
                control::Message::AddShard { request, log, shard: ShardId(entry.shards.len() as u32) }
            }
            Reshape::Remove => {
                let shard = ShardId(self.random.below(entry.shards.len() as u64) as u32);
                control::Message::RemoveShard { request, log, shard }
            }
        };
        self.trace.line(self.now, format_args!("the shards are to be changed: {message:?}"));
        let frame = nodes::frame(LogId(0), Endpoint::Client(0), Endpoint::Register, &message.into());
        self.transmit(Party::Client(FOUNDER), Party::Node(CONTROL), frame);
    }

    fn schedule_faults(&mut self) {
        let (loss, duplication, reordering) = self.plan.network.noise_permille;
        self.network.disturb(loss, duplication, reordering);
        for fault in self.plan.faults.clone() {
            match fault.trigger {
                Trigger::At(after) => self.schedule(self.began + after, Happening::Strike(fault)),
                Trigger::Step(..) => self.pending_faults.push(fault),
            }
        }
    }

    /// Whether no fault is to strike any more.
    fn faults_are_over(&self) -> bool {
        let strikes = |fault: &Fault| match fault.trigger {
            Trigger::At(after) => self.now <= self.began + after + fault.lasting,
            Trigger::Step(..) => false,
        };
        self.now > self.busy_until && self.pending_faults.is_empty() && !self.plan.faults.iter().any(strikes)
    }

    /// Lets the faults strike that wait for the step at which the protocol is now.
    fn strike_at_step(&mut self) {
        if self.pending_faults.is_empty() {
            return;
        }
        let step = self.protocol_step();
        let elapsed = self.now - self.began;
        let waits_for = |fault: &Fault| match fault.trigger {
            Trigger::Step(wanted, after) => wanted == step && elapsed >= after,
            Trigger::At(_) => false,
        };
        if let Some(index) = self.pending_faults.iter().position(waits_for) {
            let fault = self.pending_faults.remove(index);
            self.strike(fault);
        }
    }

    fn count(&mut self) {
        let history = &self.history;
        self.coverage.acknowledged = history.acknowledged() as u64;
        self.coverage.appended_again =
            history.appends.iter().filter(|append| append.again > 0).count() as u64;
        self.coverage.reads = history.observations.len() as u64;
        self.coverage.maps = history.maps.iter().filter(|told| told.positions() > 0).count() as u64;
        self.coverage.tails = history.tails.iter().filter(|tail| tail.returned.is_some()).count() as u64;
        self.coverage.trims = history.trims.len() as u64;
        self.coverage.views = history.views.len() as u64;
        let views: Vec<_> = history.views.values().map(|registered| &registered.view).collect();
        let more = |a: &View, b: &View| {
            b.shards.iter().filter(|members| a.shard(members.shard).is_none()).count() as u64
        };
        self.coverage.joins = views.windows(2).map(|pair| more(pair[0], pair[1])).sum();
        self.coverage.leaves = views.windows(2).map(|pair| more(pair[1], pair[0])).sum();
        let refused = |append: &&crate::history::Append| append.outcome == crate::history::Outcome::Refused;
        self.coverage.refused = history.appends.iter().filter(refused).count() as u64;
        self.coverage.unavailable = u64::from(matches!(history.end, End::Unavailable(_)));
    }

    /// Where the protocol is.
    fn protocol_step(&self) -> Step {
        self.view_change_step().or_else(|| self.ordering_step()).unwrap_or(Step::Idle)
    }
}
