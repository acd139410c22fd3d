//! Two nodes with a log, on one clock, an honest client and a hostile one.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use seriatim_host::{Event, HostConfig, Outgoing, RegisterPlace, Via, Watched};
use seriatim_model::wire::{Wire, WireError, decode_one, encode_one};
use seriatim_model::{
    Address, Announced, ConnectionId, Durability, Effect, Endpoint, Input, LogConfig, LogId, Machine, NodeId,
    Order, Peer, Position, Record, SessionId, ShardId, Time, ViewNumber,
};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::parts::Content;
use seriatim_protocol::parts::appending::{AppendSpec, Failure, LogClientConfig, Reply, Request};
use seriatim_protocol::{LogClient, Message, Options, erwin};
use seriatim_store::{JournalOptions, MemoryDisk, Secret, ShardOptions};

const REGISTER: NodeId = NodeId(1);
const NODES: [NodeId; 2] = [REGISTER, NodeId(2)];
const HONEST: ConnectionId = ConnectionId(1);
const HOSTILE: ConnectionId = ConnectionId(2);
/// Connections are never replaced.
const VIA: Via = Via(1);
/// Longer than any role waits.
const LONG: Duration = Duration::from_secs(30);

pub(crate) const NAME: &str = "orders";

pub(crate) const ENDPOINTS: [Endpoint; 5] = [
    Endpoint::Node,
    Endpoint::Register,
    Endpoint::Controller,
    Endpoint::Sequencer,
    Endpoint::Shard(ShardId(0)),
];

/// Number of records that an honest client appends.
pub(crate) const APPENDED: u64 = 3;

/// Most appends in a row whose positions another client has taken.
const MOST_TAKEN: usize = 8;

/// Values of the log, for use in messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) log: LogId,
    pub(crate) view: ViewNumber,
    pub(crate) session: SessionId,
    pub(crate) next: u64,
    pub(crate) tail: Position,
}

pub(crate) struct Cluster {
    now: Time,
    disks: BTreeMap<NodeId, MemoryDisk>,
    hosts: BTreeMap<NodeId, Watched>,
    flights: VecDeque<(NodeId, Event)>,
    honest: Option<LogClient>,
    replies: Vec<Reply>,
    clients: u64,
}

impl Cluster {
    pub(crate) fn without_log() -> Self {
        let mut cluster = Self {
            now: Time::ZERO,
            disks: NODES.into_iter().map(|node| (node, MemoryDisk::new())).collect(),
            hosts: BTreeMap::new(),
            flights: VecDeque::new(),
            honest: None,
            replies: vec![],
            clients: 0,
        };
        cluster.start();
        cluster
    }

    pub(crate) fn with_log(order: Order) -> Self {
        let mut cluster = Self::without_log();
        let config = LogConfig {
            order,
            durability: Durability::Disk,
            shards: 1,
            replicas: 2,
            sequencers: 2,
            ..LogConfig::default()
        };
        let create = control::Message::Create { request: 1, name: NAME.into(), config };
        cluster.say(HONEST, (REGISTER, LogId(0), Endpoint::Register), create.into());
        cluster.run_until(LONG, |cluster| cluster.entry().is_some_and(|entry| entry.view.is_some()));
        cluster
    }

    fn start(&mut self) {
        for (node, disk) in &self.disks {
            let config = HostConfig {
                cluster: 1,
                node: *node,
                address: format!("node-{node}:7700"),
                register: RegisterPlace::Node { node: REGISTER, address: "node-1:7700".into() },
                seed: self.now.0 + u64::from(node.0),
                secret: Secret::new(self.now.0.into()),
                options: Options::default(),
                journal: JournalOptions::default(),
                shard_options: ShardOptions::default(),
            };
            let host = Watched::open(config, Arc::new(disk.clone())).expect("what a node wrote can be read");
            assert_eq!(host.problems(), []);
            self.hosts.insert(*node, host);
        }
        self.run_until(LONG, |cluster| cluster.hosts.values().all(|host| host.has_joined()));
    }

    pub(crate) fn restart(&mut self) {
        self.hosts.clear();
        self.flights.clear();
        self.start();
    }

    pub(crate) fn entry(&self) -> Option<LogEntry> {
        let register = self.hosts[&REGISTER].register().expect("it is here");
        register.entries().find(|entry| entry.name == NAME).cloned()
    }

    /// Appends with a new client.
    pub(crate) fn append(&mut self) -> Known {
        let known = (0..MOST_TAKEN).find_map(|_| self.try_append());
        let known = known.expect("the log takes an append");
        if self.entry().is_some_and(|entry| entry.config.order.announces() == Announced::Id) {
            self.make_void(known)
        } else {
            known
        }
    }

    /// Announces another id without a record: it becomes a no-op.
    fn make_void(&mut self, known: Known) -> Known {
        let Known { log, view, session, next, .. } = known;
        let entries = vec![Content::Put { shard: ShardId(0), bytes: 64 }];
        let append = erwin::Message::Append { view, session, first: next, lowest: 0, entries };
        for node in NODES {
            self.say(HOSTILE, (node, log, Endpoint::Sequencer), append.clone().into());
        }
        self.leave();
        self.run_until(LONG, |cluster| {
            let mut sequencers = cluster.hosts.values().filter_map(|host| host.sequencer(log));
            sequencers.all(|sequencer| sequencer.ordered() > known.tail)
        });
        Known { next: next + 1, tail: known.tail.next(), ..known }
    }

    /// Appends with a new client. `None` if another client has taken its positions.
    fn try_append(&mut self) -> Option<Known> {
        self.clients += 1;
        let (random, options) = (self.clients << 32, Options::default());
        let config = LogClientConfig { control: REGISTER, random, resume: None, options };
        self.honest = Some(LogClient::new(config, self.entry().expect("there is a log")));
        self.replies.clear();
        for token in 0..APPENDED {
            let spec = AppendSpec { sync: true, ..AppendSpec::default() };
            let request = Request::Append { record: Record::new(b"p", token), spec };
            self.step_honest(Input::Request { token, request });
        }
        self.run_until(LONG, |cluster| cluster.replies.len() as u64 == APPENDED);
        let client = self.honest.take().expect("it is here");
        let entry = client.entry();
        let mut tail = Position::ZERO;
        for reply in &self.replies {
            match reply {
                Reply::Appended { position: Some(position), .. } => tail = tail.max(position.next()),
                Reply::Failed(Failure::NotAppended(_)) if entry.config.order.places_first() => return None,
                other => panic!("the log takes no append: {other:?}"),
            }
        }
        let (session, next) = client.session().expect("it appended");
        Some(Known { log: entry.id, view: entry.view_number(), session, next, tail })
    }

    /// Sends the hostile client's message to all roles that accept it, then disconnects.
    pub(crate) fn take(&mut self, log: LogId, message: &Message) -> Result<(), WireError> {
        let message: Message = decode_one(encode_one(message))?;
        let to = ENDPOINTS.into_iter().filter(|endpoint| message.is_from_client_to(*endpoint));
        for endpoint in to {
            for node in NODES {
                self.say(HOSTILE, (node, log, endpoint), message.clone());
            }
        }
        self.leave();
        Ok(())
    }

    fn leave(&mut self) {
        self.run(Duration::from_millis(20));
        for node in NODES {
            self.flights.push_back((node, Event::Disconnected(Peer::Client(HOSTILE))));
        }
        self.run(Duration::from_millis(200));
    }

    pub(crate) fn say(
        &mut self,
        connection: ConnectionId,
        (node, log, to): (NodeId, LogId, Endpoint),
        message: Message,
    ) {
        let (peer, from) = (Peer::Client(connection), Endpoint::Client(1));
        self.flights.push_back((node, Event::Message { peer, log, from, to, message }));
    }

    fn step_honest(&mut self, input: Input<Message, Request>) {
        let Some(client) = &mut self.honest else { return };
        let (log, mut out) = (client.entry().id, vec![]);
        client.step(self.now, input, &mut out);
        for effect in out {
            match effect {
                Effect::Send { to: Address::Node(node, to), message } => {
                    self.say(HONEST, (node, log, to), travel(&message));
                }
                Effect::Reply { reply, .. } => self.replies.push(reply),
                _ => {}
            }
        }
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        self.quiesce();
        while let Some(at) = self.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.quiesce();
        }
        self.now = end;
    }

    fn run_until(&mut self, most: Duration, is_so: impl Fn(&Self) -> bool) {
        let end = self.now + most;
        self.quiesce();
        while !is_so(self) {
            assert!(self.now < end, "nothing comes of it in {most:?}");
            self.run(Duration::from_millis(10));
        }
    }

    fn deadline(&self) -> Option<Time> {
        let hosts = self.hosts.values().filter_map(Watched::deadline);
        hosts.chain(self.honest.as_ref().and_then(Machine::deadline)).min()
    }

    /// Runs until nothing is due now.
    fn quiesce(&mut self) {
        for _ in 0..10_000 {
            while let Some((node, event)) = self.flights.pop_front() {
                self.hosts.get_mut(&node).expect("there are two").handle(self.now, VIA, event);
            }
            if self.honest.as_ref().and_then(Machine::deadline).is_some_and(|at| at <= self.now) {
                self.step_honest(Input::Wake);
            }
            for node in NODES {
                self.quiesce_host(node);
            }
            if self.flights.is_empty() && self.deadline().is_none_or(|at| at > self.now) {
                return;
            }
        }
        panic!("the nodes never come to rest");
    }

    fn quiesce_host(&mut self, node: NodeId) {
        let (host, disk) = (self.hosts.get_mut(&node).expect("there are two"), &self.disks[&node]);
        let mut sends = host.finish_turn(self.now);
        loop {
            let (write, files) = (host.next_journal_write(self.now), host.next_sync());
            let is_done = write.is_none() && files.is_none();
            if let Some(write) = write {
                host.handle(self.now, VIA, Event::JournalWritten(write.perform(disk)));
            }
            if let Some(files) = files {
                host.handle(self.now, VIA, Event::FilesSynced(files.perform(disk)));
            }
            if is_done {
                break;
            }
            sends.extend(host.finish_turn(self.now));
        }
        assert_eq!(host.failure(), None, "node {node} stops");
        sends.into_iter().for_each(|send| self.deliver(node, send));
    }

    fn deliver(&mut self, node: NodeId, Outgoing { peer, log, from, to, message }: Outgoing) {
        let message = travel(&message);
        match peer {
            Peer::Node(other) => {
                let peer = Peer::Node(node);
                self.flights.push_back((other, Event::Message { peer, log, from, to, message }));
            }
            Peer::Client(HONEST) => {
                let from = Address::Node(node, from);
                self.step_honest(Input::Message { from, message });
            }
            Peer::Client(_) => {}
        }
    }
}

/// Only the hostile client's messages may be undecodable.
fn travel<T: Wire + PartialEq + Debug>(value: &T) -> T {
    let copy = decode_one::<T>(encode_one(value));
    assert_eq!(copy.as_ref(), Ok(value), "what is said can be read");
    copy.expect("it can")
}
