//! The register is set back to before the last view, as etcd restored from a snapshot. Acknowledged
//! records stay, and clients learn why the log does not continue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use seriatim_host::{Event, HostConfig, RegisterPlace, Via, Watched};
use seriatim_model::{
    Address, ConnectionId, Durability, Endpoint, Input, LogConfig, LogId, Machine, NodeId, Order, Peer,
    Position, Record, SessionId, ShardId, Time, View,
};
use seriatim_protocol::control::{self, register::Register};
use seriatim_protocol::parts::{Content, sequencing};
use seriatim_protocol::roles::RoleEffect;
use seriatim_protocol::{Message, Options, erwin, shard};
use seriatim_store::{JournalOptions, MemoryDisk, Secret, ShardOptions};

const LOG: LogId = LogId(1);
const CLIENT: ConnectionId = ConnectionId(1);
const BEHIND: &str = "the register is behind: node ";
/// Connections are never replaced.
const VIA: Via = Via(1);
const HOP: Duration = Duration::from_millis(1);

struct Cluster {
    now: Time,
    disks: BTreeMap<NodeId, MemoryDisk>,
    hosts: BTreeMap<NodeId, Watched>,
    starts: u64,
    register: Register,
    flights: Vec<(Time, NodeId, Event)>,
    heard: Vec<Message>,
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self {
            now: Time::ZERO,
            disks: BTreeMap::new(),
            hosts: BTreeMap::new(),
            starts: 0,
            register: Register::new(NodeId(1), Options::default()),
            flights: vec![],
            heard: vec![],
        };
        (1..=3).for_each(|node| cluster.start(node));
        cluster.run(500);
        let config = LogConfig {
            order: Order::ErwinBb,
            durability: Durability::Disk,
            sequencers: 3,
            replicas: 3,
            shards: 1,
            ..LogConfig::default()
        };
        let message = control::Message::Create { request: 1, name: "log".into(), config };
        cluster.ask_register(Address::Client(CLIENT, 1), LOG, message);
        cluster.run(1000);
        cluster
    }

    fn start(&mut self, node: u32) {
        self.starts += 1;
        let config = HostConfig {
            cluster: 1,
            node: NodeId(node),
            address: format!("node-{node}:7700"),
            register: RegisterPlace::Outside,
            seed: self.starts,
            secret: Secret::new(self.starts.into()),
            options: Options::default(),
            journal: JournalOptions::default(),
            shard_options: ShardOptions::default(),
        };
        let disk = self.disks.entry(NodeId(node)).or_default().clone();
        self.hosts.insert(NodeId(node), Watched::open(config, Arc::new(disk)).unwrap());
    }

    fn kill(&mut self, node: u32) {
        let dead = NodeId(node);
        self.hosts.remove(&dead);
        self.flights.retain(|(_, to, _)| *to != dead);
        let others = self.hosts.keys().map(|other| (self.now, *other, Event::Disconnected(Peer::Node(dead))));
        self.flights.extend(others);
    }

    fn ask_register(&mut self, from: Address, log: LogId, message: control::Message) {
        let mut out = vec![];
        self.register.step(self.now, Input::Message { from, message: message.into() }, &mut out);
        while !out.is_empty() {
            for effect in std::mem::take(&mut out) {
                match effect {
                    RoleEffect::Persist { ticket, .. } => {
                        self.register.step(self.now, Input::Persisted(ticket), &mut out);
                    }
                    RoleEffect::Send { to, message: Message::Control(message) } => {
                        if let Address::Node(node, _) = to {
                            let event = Event::RegisterAnswered { to, log, message };
                            self.flights.push((self.now + HOP, node, event));
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        while self.now < end {
            let arrived = self.flights.extract_if(.., |(at, ..)| *at <= self.now).collect::<Vec<_>>();
            for (_, to, event) in arrived {
                if let Some(host) = self.hosts.get_mut(&to) {
                    host.handle(self.now, VIA, event);
                }
            }
            let mut questions = vec![];
            for (node, host) in &mut self.hosts {
                let mut sends = host.finish_turn(self.now);
                while let Some(write) = host.next_journal_write(self.now) {
                    host.handle(self.now, VIA, Event::JournalWritten(write.perform(&self.disks[node])));
                    sends.extend(host.finish_turn(self.now));
                }
                for send in sends {
                    let Peer::Node(to) = send.peer else {
                        self.heard.push(send.message);
                        continue;
                    };
                    let event = Event::Message {
                        peer: Peer::Node(*node),
                        log: send.log,
                        from: send.from,
                        to: send.to,
                        message: send.message,
                    };
                    self.flights.push((self.now + HOP, to, event));
                }
                questions.extend(host.take_questions());
            }
            for question in questions {
                self.ask_register(question.asker, question.log, question.message);
            }
            self.now = self.now + HOP;
        }
    }

    fn say(&mut self, node: NodeId, to: Endpoint, message: impl Into<Message>) {
        let (peer, from) = (Peer::Client(CLIENT), Endpoint::Client(1));
        let event = Event::Message { peer, log: LOG, from, to, message: message.into() };
        self.flights.push((self.now, node, event));
    }

    fn registered(&self) -> View {
        self.register.entries().next().unwrap().view.clone().unwrap()
    }

    /// Appends at all members of a view and expects their acknowledgements.
    fn append(&mut self, view: &View, numbers: std::ops::Range<u64>) {
        self.heard.clear();
        let entries: Vec<Content> =
            numbers.clone().map(|number| Record::new(number.to_string().as_bytes(), 0).into()).collect();
        for member in &view.sequencers {
            let (view, first, entries) = (view.number, numbers.start, entries.clone());
            let append = erwin::Message::Append { view, session: session(), first, lowest: 0, entries };
            self.say(member.node, Endpoint::Sequencer, append);
        }
        self.run(500);
        let acknowledged = |message: &&Message| matches!(message, Message::Erwin(erwin::Message::Acknowledged { next, .. }) if *next == numbers.end);
        assert_eq!(self.heard.iter().filter(acknowledged).count(), view.sequencers.len(), "{:?}", self.heard);
    }

    fn read(&mut self, node: u32) -> Vec<String> {
        self.heard.clear();
        let (from, end) = (Position(0), Position(100));
        let read = shard::Message::Read { request: 1, from, end, max_records: 100, wait_ms: 0 };
        self.say(NodeId(node), Endpoint::Shard(ShardId(0)), read);
        self.run(20);
        let [Message::Shard(shard::Message::Records { records, .. })] = self.heard.as_slice() else {
            panic!("node {node} answers {:?}", self.heard);
        };
        records.iter().map(|stored| String::from_utf8(stored.record.payload().to_vec()).unwrap()).collect()
    }

    /// Accepts any loss. Returns the node's answer.
    fn recover(&mut self, node: u32) -> (bool, String) {
        self.heard.clear();
        let recover = control::Message::Recover { request: 1, accepts: true };
        self.say(NodeId(node), Endpoint::Controller, recover);
        self.run(5000);
        let answer = self.heard.iter().find_map(|message| match message {
            Message::Control(control::Message::Recovered { done, text, .. }) => Some((*done, text.clone())),
            _ => None,
        });
        answer.unwrap_or_else(|| panic!("node {node} does not answer"))
    }

    /// Why a node rejects an append to the first view.
    fn reason(&mut self, node: u32, first: &View) -> String {
        self.heard.clear();
        let (view, entries) = (first.number, vec![Record::new(b"x", 0).into()]);
        let append = erwin::Message::Append { view, session: session(), first: 8, lowest: 0, entries };
        self.say(NodeId(node), Endpoint::Sequencer, append);
        self.run(20);
        let reason = self.heard.iter().find_map(|message| match message {
            Message::Sequencing(sequencing::Message::Rejected { why, .. }) => why.clone(),
            _ => None,
        });
        reason.unwrap_or_else(|| panic!("node {node} says nothing: {:?}", self.heard))
    }
}

fn session() -> SessionId {
    SessionId::new(Position(0), 1)
}

fn numbers(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Node 3 misses the second view, the register is set back to the first, and the `restarted` nodes
/// restart. Then node 3 returns.
fn set_back(restarted: &[u32]) {
    let mut cluster = Cluster::new();
    let first = cluster.registered();
    cluster.append(&first, 0..3);
    let snapshot = cluster.register.clone();
    cluster.kill(3);
    cluster.run(3000);
    let second = cluster.registered();
    assert_eq!(second.sequencers.len(), 2);
    cluster.append(&second, 3..8);
    let latest = std::mem::replace(&mut cluster.register, snapshot);

    restarted.iter().for_each(|node| cluster.kill(*node));
    cluster.run(200);
    restarted.iter().for_each(|node| cluster.start(*node));
    cluster.run(10_000);
    cluster.start(3);
    cluster.run(20_000);

    assert_eq!(cluster.registered(), first, "no view is formed");
    let claims = cluster.register.entries().next().unwrap().claimed.0;
    assert!(claims < 10, "{claims} claims in half a minute");
    for node in 1..=3 {
        let (done, text) = cluster.recover(node);
        assert!(!done && text.starts_with(BEHIND), "{text}");
        let reason = cluster.reason(node, &first);
        assert!(reason.starts_with(BEHIND), "{reason}");
    }
    assert_eq!(cluster.registered(), first, "nor when an operator accepts a loss");
    for node in 1..=2 {
        // A restarted node serves up to its remembered stable bound.
        let known = if restarted.contains(&node) { 3 } else { 8 };
        assert_eq!(cluster.read(node), numbers(0..known));
    }
    if restarted.is_empty() {
        cluster.append(&second, 8..9);
    }

    cluster.register = latest;
    cluster.run(10_000);
    let view = cluster.registered();
    assert_eq!(view.sequencers.len(), 3, "the log goes on when the register is as it was");
    cluster.append(&view, 8..10);
    for node in 1..=3 {
        assert_eq!(cluster.read(node), numbers(0..10));
    }
}

#[test]
fn a_stale_member_of_the_first_view_comes_back() {
    set_back(&[]);
}

#[test]
fn a_member_of_the_second_view_restarts() {
    set_back(&[2]);
}

#[test]
fn all_members_of_the_second_view_restart() {
    set_back(&[1, 2]);
}
