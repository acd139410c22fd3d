//! The laboratory: nodes whose messages take one unit of time each, and one client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use seriatim_host::{Event, Host, HostConfig, Outgoing, RegisterPlace};
use seriatim_model::limits::Limits;
use seriatim_model::machine::ConnectionId;
use seriatim_model::{
    Address, Durability, Effect, Endpoint, Input, LogConfig, LogId, Machine, NodeId, Order, Peer, Position,
    Time,
};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::parts::appending::{LogClientConfig, Reply, Request};
use seriatim_protocol::{LogClient, Message, Options, shard};
use seriatim_store::{Disk, JournalOptions, MemoryDisk, ShardOptions};

/// One network delay, in nanoseconds.
pub(crate) const DELAY: u64 = 1_000_000;
const CLIENT: ConnectionId = ConnectionId(1);
const APPENDER: u64 = 1;
pub(crate) const READER: u64 = 2;

struct Flight {
    peer: Peer,
    log: LogId,
    from: Endpoint,
    to: Endpoint,
    message: Message,
}

/// Nodes, and one client connection to each of them.
pub(crate) struct Lab {
    pub(crate) now: Time,
    hosts: BTreeMap<NodeId, Host>,
    disks: BTreeMap<NodeId, MemoryDisk>,
    /// By arrival: to a node, or to the client from a node.
    flights: BTreeMap<(Time, u64), (Option<NodeId>, Flight)>,
    sequence: u64,
    appender: Option<LogClient>,
    log: LogId,
    /// What the client was told, and when.
    pub(crate) replies: Vec<(Time, Reply)>,
    pub(crate) received: Vec<(Time, u64, NodeId, Message)>,
    /// When whom a node told a stable bound, and which.
    pub(crate) stable_sent: Vec<(Time, Position)>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let limits = Limits { unnamed_for: Duration::from_secs(1), ..Limits::default() };
        let config = |node: u32| HostConfig {
            cluster: 1,
            node: NodeId(node),
            address: node.to_string(),
            register: RegisterPlace::Node { node: NodeId(1), address: "1".into() },
            seed: node.into(),
            options: Options { limits, deviation: None },
            journal: JournalOptions::default(),
            shard_options: ShardOptions { segment_bytes: 4096 },
        };
        let disks: BTreeMap<NodeId, MemoryDisk> =
            (1..=6).map(|node| (NodeId(node), MemoryDisk::new())).collect();
        let open = |node: u32| {
            let disk: Arc<dyn Disk> = Arc::new(disks[&NodeId(node)].clone());
            (NodeId(node), Host::open(config(node), disk).expect("an empty disk can be opened"))
        };
        Self {
            now: Time::ZERO,
            // The sequencing replicas, the primary, the backup and the register each have a node of their own.
            hosts: (1..=6).map(open).collect(),
            disks,
            flights: BTreeMap::new(),
            sequence: 0,
            appender: None,
            log: LogId(0),
            replies: vec![],
            received: vec![],
            stable_sent: vec![],
        }
    }

    fn post(&mut self, to: Option<NodeId>, flight: Flight) {
        self.sequence += 1;
        let arrival = Time(self.now.0 + DELAY);
        self.flights.insert((arrival, self.sequence), (to, flight));
    }

    /// The client says something to a role.
    pub(crate) fn say(&mut self, endpoint: u64, node: NodeId, to: Endpoint, log: LogId, message: Message) {
        let (peer, from) = (Peer::Client(CLIENT), Endpoint::Client(endpoint));
        self.post(Some(node), Flight { peer, log, from, to, message });
    }

    /// Lets everything happen up to `until`.
    fn run(&mut self, until: Time) {
        loop {
            self.settle();
            let arrival = self.flights.keys().next().map(|(at, _)| *at);
            let deadlines = self.hosts.values().filter_map(Host::deadline);
            let client = self.appender.as_ref().and_then(LogClient::deadline);
            let next = arrival.into_iter().chain(deadlines).chain(client).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.flights.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, flight) = entry.remove();
                self.arrive(to, flight);
            }
        }
        self.now = until;
    }

    fn arrive(&mut self, to: Option<NodeId>, flight: Flight) {
        let Flight { peer, log, from, to: endpoint, message } = flight;
        if let Some(node) = to {
            let host = self.hosts.get_mut(&node).expect("messages go to nodes that exist");
            host.handle(self.now, Event::Message { peer, log, from, to: endpoint, message });
            return;
        }
        let (Peer::Node(node), Endpoint::Client(number)) = (peer, endpoint) else { return };
        self.received.push((self.now, number, node, message.clone()));
        if number == APPENDER && self.appender.is_some() {
            self.step(Input::Message { from: Address::Node(node, from), message });
        }
    }

    pub(crate) fn step(&mut self, input: Input<Message, Request>) {
        let mut effects = vec![];
        self.appender.as_mut().expect("the client was opened").step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Reply { reply, .. } => self.replies.push((self.now, reply)),
                Effect::Send { to: Address::Node(node, to), message } => {
                    self.say(APPENDER, node, to, self.log, message);
                }
                _ => {}
            }
        }
    }

    /// What takes no time: timers that are due, writes, and sending.
    fn settle(&mut self) {
        loop {
            let mut sends: Vec<(NodeId, Outgoing)> = vec![];
            let mut is_quiet = true;
            for (node, host) in &mut self.hosts {
                host.settle(self.now);
                while let Some(write) = host.next_journal_write(self.now) {
                    // The disk of this laboratory is in memory and takes no time.
                    is_quiet = false;
                    drop(write);
                    host.handle(self.now, Event::JournalWritten(Ok(())));
                }
                sends.extend(host.take_sends().into_iter().map(|send| (*node, send)));
                is_quiet &= host.deadline().is_none_or(|at| at > self.now);
            }
            if self.appender.as_ref().and_then(LogClient::deadline).is_some_and(|at| at <= self.now) {
                is_quiet = false;
                self.step(Input::Timer);
            }
            is_quiet &= sends.is_empty();
            for (node, send) in sends {
                self.dispatch(node, send);
            }
            if is_quiet {
                return;
            }
        }
    }

    fn dispatch(&mut self, node: NodeId, send: Outgoing) {
        let Outgoing { peer, log, from, to, message } = send;
        if let Message::Shard(shard::Message::Stable { stable, .. }) = &message
            && from == Endpoint::Sequencer
        {
            self.stable_sent.push((self.now, *stable));
        }
        let flight = Flight { peer: Peer::Node(node), log, from, to, message };
        match peer {
            Peer::Node(other) => self.post(Some(other), flight),
            Peer::Client(_) => self.post(None, flight),
        }
    }

    pub(crate) fn wait(&mut self, delays: u64) {
        self.run(Time(self.now.0 + delays * DELAY));
    }

    /// Creates a log with one shard of two replicas and three sequencing replicas, and opens a session.
    pub(crate) fn open_log(&mut self, order: Order) -> LogEntry {
        self.open_log_with(LogConfig { order, ..LogConfig::default() })
    }

    /// The same with other numbers of replicas.
    pub(crate) fn open_log_with(&mut self, config: LogConfig) -> LogEntry {
        let config = LogConfig { durability: Durability::Memory, shards: 1, ..config };
        let create = control::Message::Create { request: 0, name: "log".into(), config };
        self.say(0, NodeId(1), Endpoint::Register, LogId(0), create.into());
        self.wait(1000);
        let look = control::Message::Lookup { request: 1, name: "log".into() };
        self.say(0, NodeId(1), Endpoint::Register, LogId(0), look.into());
        self.wait(10);
        let entry = self.received.iter().find_map(|(_, _, _, message)| match message {
            Message::Control(control::Message::Found { entry, .. }) => Some(entry.clone()),
            _ => None,
        });
        let entry = entry.expect("the log was created");
        assert!(entry.view.is_some(), "the log has its first view");
        let config =
            LogClientConfig { control: NodeId(1), random: 7, resume: None, options: Options::default() };
        self.log = entry.id;
        self.appender = Some(LogClient::new(config, entry.clone()));
        self.step(Input::Request { token: 1, request: Request::OpenSession });
        self.wait(100);
        self.replies.clear();
        entry
    }

    pub(crate) fn log(&self) -> LogId {
        self.log
    }

    /// How many bytes the records of a node's shards take.
    pub(crate) fn bytes_of_records(&self, node: NodeId) -> usize {
        let disk = &self.disks[&node];
        let files = disk.files().into_iter().filter(|file| file.contains("/seg-"));
        files.map(|file| disk.content(&file).map_or(0, |content| content.len())).sum()
    }
}
