//! Laboratory of nodes and clients: each message and each sync takes a fixed time, everything else
//! none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use seriatim_host::{Event, HostConfig, Outgoing, RegisterPlace, Via, Watched};
use seriatim_model::limits::Limits;
use seriatim_model::machine::ConnectionId;
use seriatim_model::{Endpoint, LogConfig, LogId, NodeId, Peer, Position, Record, ShardId, Time};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::parts::appending::AppendSpec;
use seriatim_protocol::{Message, Options};
use seriatim_store::{Disk, JournalOptions, JournalWrite, MemoryDisk, Secret, ShardOptions};

use crate::programs::{Ask, Done, Happened, Program, Told};
use crate::spent::Pace;
use crate::trace::Trace;

/// Node of the register. It hosts nothing else of a log that [`Lab::open_apart`] made.
pub(crate) const REGISTER: NodeId = NodeId(4);
/// Number of nodes: one for each of three sequencing replicas, three replicas of a shard, and the
/// register.
const NODES: u32 = 7;
const APART: [ShardId; 1] = [ShardId(3)];
/// Time by which a log has again the backup that its view excluded for a moment, after any number
/// of view changes.
const GROWN: Duration = Duration::from_secs(2);
/// The connection between any two parties.
const VIA: Via = Via(1);
/// Client that creates logs, and sends messages to roles by hand.
pub(crate) const OPERATOR: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Node(NodeId),
    Client(u64),
}

/// A scheduled event.
#[derive(Debug)]
enum Happening {
    Arrive(Flight),
    /// The party notices that the node's process is gone.
    Lost(Party, NodeId),
    /// A node's connection to a client is gone.
    LeftBy(NodeId, u64),
    Written(NodeId, JournalWrite),
}

#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) source: Party,
    pub(crate) target: Party,
    pub(crate) log: LogId,
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
    pub(crate) message: Message,
}

/// Nodes, and clients with a connection to each of them.
pub(crate) struct Lab {
    pub(crate) now: Time,
    pace: Pace,
    hosts: BTreeMap<NodeId, Watched>,
    disks: BTreeMap<NodeId, MemoryDisk>,
    /// Nodes with a journal write in progress.
    writing: BTreeSet<NodeId>,
    /// Stopped nodes, and whether others can notice: a process that died closes its connections, a
    /// silent node does not.
    away: BTreeMap<NodeId, bool>,
    programs: BTreeMap<u64, Program>,
    happenings: BTreeMap<(Time, u64), Happening>,
    sequence: u64,
    log: LogId,
    /// Answers that clients received, with their times.
    pub(crate) told: Vec<Told>,
    /// Messages that arrived for [`OPERATOR`].
    pub(crate) received: Vec<Message>,
    /// Number of messages sent for appends and reads of the log.
    pub(crate) messages: u64,
    /// Number of journal syncs.
    pub(crate) syncs: u64,
    /// Node that last sent a claim to the register.
    pub(crate) claimant: Option<NodeId>,
    pub(crate) trace: Option<Trace>,
}

impl Lab {
    pub(crate) fn new(pace: Pace) -> Self {
        Self::with_nodes(pace, NODES)
    }

    pub(crate) fn with_nodes(pace: Pace, nodes: u32) -> Self {
        let disks: BTreeMap<NodeId, MemoryDisk> =
            (1..=nodes).map(|node| (NodeId(node), MemoryDisk::new())).collect();
        let open = |node: u32| {
            let disk: Arc<dyn Disk> = Arc::new(disks[&NodeId(node)].clone());
            (NodeId(node), Watched::open(config(node, 1), disk).expect("an empty disk can be opened"))
        };
        let mut lab = Self {
            now: Time::ZERO,
            pace,
            hosts: (1..=nodes).map(open).collect(),
            disks,
            writing: BTreeSet::new(),
            away: BTreeMap::new(),
            programs: BTreeMap::new(),
            happenings: BTreeMap::new(),
            sequence: 0,
            log: LogId(0),
            told: vec![],
            received: vec![],
            messages: 0,
            syncs: 0,
            claimant: None,
            trace: None,
        };
        // Time for the nodes to find each other.
        lab.wait(Duration::from_millis(100));
        lab
    }

    pub(crate) fn open_log(&mut self, config: LogConfig) -> LogEntry {
        self.create(LogConfig { shards: 1, ..config })
    }

    /// Creates a log with one shard, so that no node has two roles. Of four shards at first, each
    /// shares fewer nodes with the sequencing replicas; all but the last leave before the log has
    /// records.
    pub(crate) fn open_apart(&mut self, config: LogConfig) -> LogEntry {
        self.open_with(config, &APART)
    }

    /// [`Lab::open_apart`] with these shards. The last shard has a replica on the last node.
    pub(crate) fn open_with(&mut self, config: LogConfig, kept: &[ShardId]) -> LogEntry {
        let replicas = config.replicas as usize;
        let shards = kept.iter().map(|shard| shard.0 + 1).max().expect("there are shards");
        let entry = self.create(LogConfig { shards, ..config });
        for shard in (0..shards).map(ShardId).filter(|shard| !kept.contains(shard)) {
            let message = control::Message::RemoveShard { request: 2, log: entry.id, shard };
            self.say(OPERATOR, REGISTER, Endpoint::Register, LogId(0), message.into());
            self.wait(Duration::from_millis(100));
        }
        let last = *self.hosts.keys().last().expect("there are nodes");
        // A shard that leaves is gone after two more views: one without a backup for a moment, and
        // one with it again. The more short-lived views came before, the longer the second waits.
        self.tell(NodeId(1), Event::Disconnected(Peer::Node(last)));
        self.wait(GROWN);
        let entry = self.look_up();
        let view = entry.view.as_ref().expect("it has a view");
        let is_whole = view.shards.iter().all(|shard| shard.replicas.len() == replicas);
        assert!(is_whole && view.shards.len() == kept.len(), "views will follow: {view:?}");
        let mut hosts: Vec<NodeId> = view.sequencers.iter().map(|member| member.node).collect();
        hosts.extend(view.shards.iter().flat_map(|shard| &shard.replicas).map(|member| member.node));
        hosts.push(REGISTER);
        let apart: BTreeSet<NodeId> = hosts.iter().copied().collect();
        assert_eq!(apart.len(), hosts.len(), "roles share a node: {hosts:?}");
        entry
    }

    pub(crate) fn create(&mut self, config: LogConfig) -> LogEntry {
        let create = control::Message::Create { request: 0, name: "log".into(), config };
        self.say(OPERATOR, REGISTER, Endpoint::Register, LogId(0), create.into());
        self.wait(Duration::from_millis(200));
        let entry = self.look_up();
        self.log = entry.id;
        entry
    }

    pub(crate) fn look_up(&mut self) -> LogEntry {
        self.received.clear();
        let look = control::Message::Lookup { request: 1, name: "log".into() };
        self.say(OPERATOR, REGISTER, Endpoint::Register, LogId(0), look.into());
        self.wait(Duration::from_millis(10));
        let found = self.received.iter().find_map(|message| match message {
            Message::Control(control::Message::Found { entry, .. }) => Some(entry.clone()),
            _ => None,
        });
        let entry = found.expect("the log was created");
        assert!(entry.view.is_some(), "the log has its first view");
        entry
    }

    pub(crate) fn start(&mut self, client: u64, program: Program) {
        self.programs.insert(client, program);
    }

    /// Passes a request of the application to a client. The answer carries `token`.
    pub(crate) fn ask(&mut self, client: u64, token: u64, ask: Ask) {
        let program = self.programs.get_mut(&client).expect("the client was started");
        let done = program.ask(self.now, token, ask);
        self.perform(client, done);
    }

    /// Appends a record at a client. The answer carries `token`.
    pub(crate) fn append(&mut self, client: u64, token: u64, spec: AppendSpec) {
        let record = Record::new(&payload(client, token), 0);
        self.ask(client, token, Ask::Append(record, spec));
    }

    /// First answer with `token` that a client received.
    pub(crate) fn told(&self, client: u64, token: u64) -> Option<&Told> {
        self.told.iter().find(|told| (told.client, told.token) == (client, token))
    }

    /// Time at which a subscriber received the record that a client appended with `token`.
    pub(crate) fn handed_over(&self, client: u64, token: u64) -> Option<Time> {
        let payload = payload(client, token);
        self.told.iter().find(|told| told.answer.hands_over(&payload).is_some()).map(|told| told.at)
    }

    /// Position at which a subscriber received that record.
    pub(crate) fn position(&self, client: u64, token: u64) -> Option<Position> {
        let payload = payload(client, token);
        self.told.iter().find_map(|told| told.answer.hands_over(&payload))
    }

    /// Time at which a subscriber learned that the content of a position is final.
    pub(crate) fn confirmed(&self, position: Position) -> Option<Time> {
        self.told.iter().find(|told| told.answer.confirms(position)).map(|told| told.at)
    }

    /// Whether predictions of a subscriber failed.
    pub(crate) fn took_back(&self) -> bool {
        self.told.iter().any(|told| told.answer.takes_back())
    }

    /// Sends a client's message to a role by hand.
    pub(crate) fn say(&mut self, client: u64, node: NodeId, to: Endpoint, log: LogId, message: Message) {
        let (source, target) = (Party::Client(client), Party::Node(node));
        self.post(Flight { source, target, log, from: Endpoint::Client(client), to, message });
    }

    fn post(&mut self, flight: Flight) {
        let is_subscriber = |party: Party| {
            let Party::Client(client) = party else { return false };
            matches!(self.programs.get(&client), Some(Program::Subscriber(_)))
        };
        let is_feeding = is_subscriber(flight.source) || is_subscriber(flight.target);
        if let Some(trace) = &mut self.trace {
            trace.message(self.now, &flight);
        }
        let is_control = matches!(flight.message, Message::Control(_));
        self.messages += u64::from(flight.log == self.log && !is_feeding && !is_control);
        self.schedule(self.pace.delay, Happening::Arrive(flight));
    }

    fn schedule(&mut self, after: u64, what: Happening) {
        self.sequence += 1;
        self.happenings.insert((Time(self.now.0 + after), self.sequence), what);
    }

    /// Advances the time by `span`.
    pub(crate) fn wait(&mut self, span: Duration) {
        let end = self.now + span;
        self.run(end, |_| false);
        self.now = end;
    }

    /// Advances the time until a condition holds, at most by `most`. Returns whether it holds.
    pub(crate) fn wait_until(&mut self, most: Duration, is_true: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + most;
        self.run(end, &is_true);
        is_true(self)
    }

    fn run(&mut self, end: Time, is_enough: impl Fn(&Self) -> bool) {
        loop {
            self.quiesce();
            if is_enough(self) {
                return;
            }
            let next = self.happenings.keys().next().map(|(at, _)| *at);
            let hosts = self.hosts.values().filter_map(Watched::deadline);
            let programs = self.programs.values().filter_map(Program::deadline);
            let Some(next) = next.into_iter().chain(hosts).chain(programs).min() else { return };
            if next > end {
                return;
            }
            self.now = self.now.max(next);
            while let Some(first) = self.happenings.first_entry().filter(|first| first.key().0 <= self.now) {
                let what = first.remove();
                self.happens(what);
            }
        }
    }

    fn happens(&mut self, what: Happening) {
        match what {
            Happening::Arrive(flight) => self.arrive(flight),
            Happening::Lost(Party::Node(at), node) => {
                self.tell(at, Event::Disconnected(Peer::Node(node)));
            }
            Happening::Lost(Party::Client(client), node) => {
                self.program(client, Happened::Disconnected(node));
            }
            Happening::LeftBy(node, client) => {
                self.tell(node, Event::Disconnected(Peer::Client(ConnectionId(client))));
            }
            Happening::Written(node, write) => self.written(node, &write),
        }
    }

    /// Passes an event to a node, if it runs.
    fn tell(&mut self, node: NodeId, event: Event) {
        if let Some(host) = self.hosts.get_mut(&node) {
            host.handle(self.now, VIA, event);
        }
    }

    fn arrive(&mut self, flight: Flight) {
        let Flight { source, target, log, from, to, message } = flight;
        match (source, target) {
            (Party::Client(client), Party::Node(node)) if self.away.get(&node) == Some(&true) => {
                self.schedule(self.pace.delay, Happening::Lost(Party::Client(client), node));
            }
            (_, Party::Node(node)) => {
                let peer = match source {
                    Party::Node(other) => Peer::Node(other),
                    Party::Client(client) => Peer::Client(ConnectionId(client)),
                };
                self.tell(node, Event::Message { peer, log, from, to, message });
            }
            (Party::Node(node), Party::Client(client)) => {
                if client == OPERATOR {
                    self.received.push(message);
                } else {
                    self.program(client, Happened::Message(node, from, message));
                }
            }
            (Party::Client(_), Party::Client(_)) => unreachable!("clients do not speak to each other"),
        }
    }

    /// Passes an event to a client, if it runs.
    fn program(&mut self, client: u64, what: Happened) {
        if let Some(program) = self.programs.get_mut(&client) {
            let done = program.happens(self.now, what);
            self.perform(client, done);
        }
    }

    fn perform(&mut self, client: u64, done: Done) {
        let at = self.now;
        if let Some(trace) = &mut self.trace {
            done.told.iter().for_each(|(_, answer)| trace.answer(at, client, answer));
        }
        self.told.extend(done.told.into_iter().map(|(token, answer)| Told { at, client, token, answer }));
        for (node, to, message) in done.sends {
            self.say(client, node, to, self.log, message);
        }
    }

    /// Does everything that takes no time: due timers, starts of writes, sends.
    fn quiesce(&mut self) {
        loop {
            let mut sends: Vec<(NodeId, Outgoing)> = vec![];
            let mut writes = vec![];
            for (node, host) in &mut self.hosts {
                sends.extend(host.finish_turn(self.now).into_iter().map(|send| (*node, send)));
                if let Some(trace) = &mut self.trace {
                    trace.files(self.now, *node, &self.disks[node]);
                }
                if !self.writing.contains(node)
                    && let Some(write) = host.next_journal_write(self.now)
                {
                    writes.push((*node, write));
                }
                // Syncs of files take no time here.
                while let Some(work) = host.next_sync() {
                    let outcome = work.perform(&self.disks[node]);
                    host.handle(self.now, VIA, Event::FilesSynced(outcome));
                }
            }
            let is_busy = !(sends.is_empty() && writes.is_empty());
            sends.into_iter().for_each(|(node, send)| self.dispatch(node, send));
            writes.into_iter().for_each(|(node, write)| self.write(node, write));
            let due = |deadline: Option<Time>| deadline.is_some_and(|at| at <= self.now);
            let awake: Vec<u64> = self
                .programs
                .iter()
                .filter(|(_, it)| due(it.deadline()))
                .map(|(client, _)| *client)
                .collect();
            if !is_busy && awake.is_empty() && !self.hosts.values().any(|host| due(host.deadline())) {
                return;
            }
            awake.into_iter().for_each(|client| self.program(client, Happened::Timer));
        }
    }

    fn write(&mut self, node: NodeId, write: JournalWrite) {
        self.syncs += 1;
        self.writing.insert(node);
        if let Some(trace) = &mut self.trace {
            trace.journal(self.now, node);
        }
        match self.pace.sync {
            0 => self.written(node, &write),
            sync => self.schedule(sync, Happening::Written(node, write)),
        }
    }

    fn written(&mut self, node: NodeId, write: &JournalWrite) {
        self.writing.remove(&node);
        let outcome = write.perform(&self.disks[&node]);
        self.tell(node, Event::JournalWritten(outcome));
    }

    fn dispatch(&mut self, node: NodeId, send: Outgoing) {
        let Outgoing { peer, log, from, to, message } = send;
        if matches!(message, Message::Control(control::Message::CompareAndSet { .. })) {
            self.claimant = Some(node);
        }
        let target = match peer {
            Peer::Node(other) => Party::Node(other),
            Peer::Client(ConnectionId(client)) => Party::Client(client),
        };
        self.post(Flight { source: Party::Node(node), target, log, from, to, message });
    }

    /// Stops a node. If `is_noticed`, its process ends and connected parties notice; otherwise it
    /// falls silent.
    pub(crate) fn stop_node(&mut self, node: NodeId, is_noticed: bool) {
        self.hosts.remove(&node);
        self.away.insert(node, is_noticed);
        if let Some(trace) = &mut self.trace {
            trace.death(self.now, node);
        }
        if is_noticed {
            let nodes = self.hosts.keys().map(|other| Party::Node(*other));
            let clients = self.programs.keys().map(|client| Party::Client(*client));
            for party in nodes.chain(clients).collect::<Vec<_>>() {
                self.schedule(self.pace.delay, Happening::Lost(party, node));
            }
        }
    }

    /// Stops a client. If `is_noticed`, its process ends and the nodes notice; otherwise it falls
    /// silent. Its messages in flight are lost where `loses` says so.
    pub(crate) fn stop_client(&mut self, client: u64, is_noticed: bool, loses: impl Fn(&Flight) -> bool) {
        self.programs.remove(&client);
        let is_lost = |what: &Happening| matches!(what, Happening::Arrive(flight) if flight.source == Party::Client(client) && loses(flight));
        self.happenings.retain(|_, what| !is_lost(what));
        for node in self.hosts.keys().copied().filter(|_| is_noticed).collect::<Vec<_>>() {
            self.schedule(self.pace.delay, Happening::LeftBy(node, client));
        }
    }

    /// Restarts a stopped node's process, with the contents of its disk.
    pub(crate) fn start_node(&mut self, node: NodeId) {
        self.away.remove(&node);
        self.writing.remove(&node);
        let disk: Arc<dyn Disk> = Arc::new(self.disks[&node].clone());
        let host = Watched::open(config(node.0, 2), disk).expect("its disk can be opened");
        self.hosts.insert(node, host);
    }

    pub(crate) fn log(&self) -> LogId {
        self.log
    }

    /// Bound below which everything is final, as known to a node's shard replica.
    pub(crate) fn stable(&self, node: NodeId, shard: ShardId) -> Position {
        let replica = self.hosts.get(&node).and_then(|host| host.replica(self.log, shard));
        replica.map_or(Position::ZERO, |replica| replica.stable())
    }

    /// Bytes of the record files of a node's shards.
    pub(crate) fn bytes_of_records(&self, node: NodeId) -> usize {
        let disk = &self.disks[&node];
        let files = disk.files().into_iter().filter(|file| file.contains("/seg-"));
        files.map(|file| disk.content(&file).map_or(0, |content| content.len())).sum()
    }
}

/// Configuration of a node's process with this incarnation number.
fn config(node: u32, incarnation: u64) -> HostConfig {
    let limits = Limits { orphan_check_after: Duration::from_secs(1), ..Limits::default() };
    let seed = u64::from(node) + 1000 * (incarnation - 1);
    HostConfig {
        cluster: 1,
        node: NodeId(node),
        address: node.to_string(),
        register: RegisterPlace::Node { node: REGISTER, address: REGISTER.to_string() },
        seed,
        secret: Secret::new(seed.into()),
        options: Options { limits, ..Options::default() },
        journal: JournalOptions { file_bytes: 1 << 16, ..JournalOptions::default() },
        shard_options: ShardOptions::new(4096),
    }
}

fn payload(client: u64, token: u64) -> Vec<u8> {
    format!("{token} of {client}").into_bytes()
}
