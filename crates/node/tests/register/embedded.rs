//! The register embedded in a node: its state machine in memory, with a journal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::{Address, Effect, Endpoint, Input, LogConfig, Machine, NodeId, Time};
use seriatim_protocol::Options;
use seriatim_protocol::control::{self, Message, NodeAddress, catalog};
use seriatim_protocol::roles::{self, RoleInput};

use crate::news::Crowd;
use crate::scenarios::{SCENARIOS, Scenario, WITHIN_AN_INCARNATION};
use crate::talk::{NODES, Register, Talk, creation, itself};

const HOST: NodeId = NodeId(1);

pub(crate) struct Embedded {
    register: control::register::Register,
    now: Time,
    journal: Vec<Bytes>,
    said: VecDeque<(Address, Message)>,
    nodes: BTreeMap<NodeId, String>,
    restarts: Restarts,
    count: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Restarts {
    WhenTold,
    AfterEveryQuestion,
}

impl Embedded {
    fn new(restarts: Restarts) -> Self {
        Self {
            register: control::register::Register::new(HOST, Options::default()),
            now: Time::ZERO,
            journal: vec![],
            said: VecDeque::new(),
            nodes: BTreeMap::new(),
            restarts,
            count: 0,
        }
    }

    /// Performs a step. Its writes are durable at once.
    fn step(&mut self, input: RoleInput) {
        let mut effects = vec![];
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.register.step(self.now, input, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Persist { ticket, entry } => {
                        self.journal.push(entry.concat().into());
                        inputs.push_back(Input::Persisted(ticket));
                    }
                    Effect::Send { to, message: roles::Message::Control(message) } => {
                        self.said.push_back((to, message));
                    }
                    other => panic!("a register does not do this: {other:?}"),
                }
            }
        }
    }

    fn tell(&mut self, asker: Address, message: Message) {
        self.step(Input::Message { from: asker, message: message.into() });
    }
}

impl Register for Embedded {
    fn ask(&mut self, _through: NodeId, asker: Address, message: Message) {
        match &message {
            Message::Join { node } => drop(self.nodes.entry(node.node).or_insert(node.address.clone())),
            Message::Move { node, .. } => drop(self.nodes.insert(node.node, node.address.clone())),
            _ => {}
        }
        self.tell(asker, message);
        if self.restarts == Restarts::AfterEveryQuestion {
            self.restart();
        }
    }

    fn now(&self) -> Duration {
        self.now.since(Time::ZERO)
    }

    fn hear(&mut self, until: Duration) -> Option<(Address, Message)> {
        let end = Time::ZERO + until;
        while self.said.is_empty() {
            let Some(at) = self.register.deadline().filter(|at| *at <= end) else {
                self.now = self.now.max(end);
                return None;
            };
            self.now = self.now.max(at);
            self.step(Input::Wake);
        }
        self.said.pop_front()
    }

    /// Restarts the register, every other time from a snapshot. Nodes join again.
    fn restart(&mut self) {
        self.count += 1;
        if self.count.is_multiple_of(2) {
            self.journal = self.register.snapshot(None, usize::MAX).0;
        }
        self.register =
            control::register::Register::recover(HOST, Options::default(), self.journal.clone()).unwrap();
        if self.restarts == Restarts::WhenTold {
            self.register = self.register.clone().in_incarnation(self.count.into());
        }
        for (node, address) in self.nodes.clone() {
            let join = Message::Join { node: NodeAddress { node, address } };
            self.tell(Address::Node(node, Endpoint::Node), join);
        }
    }
}

fn run(restarts: Restarts, scenarios: &[Scenario]) {
    for (_, scenario) in scenarios {
        scenario(&mut Talk::joined(Box::new(Embedded::new(restarts))));
    }
}

#[test]
fn a_register_that_was_set_back_gives_no_id_again() {
    let mut register = Embedded::new(Restarts::WhenTold);
    let created = |register: &mut Embedded, name: &str| {
        let asker = Address::Node(HOST, Endpoint::Controller);
        register.ask(HOST, asker, creation(7, name));
        let log = register.said.drain(..).find_map(|(_, message)| match message {
            Message::Done { log, .. } => Some(log),
            _ => None,
        });
        log.expect("it is created")
    };
    for node in NODES {
        register.ask(node, itself(node), Message::Join { node: NodeAddress { node, address: "a:1".into() } });
    }
    created(&mut register, "a");
    let backup = register.journal.clone();
    let lost = created(&mut register, "b");
    register.journal = backup;
    register.restart();
    let next = created(&mut register, "b");
    assert_eq!([lost, next].map(catalog::count), [2, 2]);
    assert_ne!(lost, next);
}

#[test]
fn nodes_that_have_not_joined_again_are_told_of_a_deletion() {
    let mut register = Embedded::new(Restarts::WhenTold);
    for node in NODES {
        register.ask(node, itself(node), Message::Join { node: NodeAddress { node, address: "a:1".into() } });
    }
    for (restarts, name) in [(1, "a"), (2, "b")] {
        let asker = Address::Node(HOST, Endpoint::Controller);
        let config = LogConfig { shards: 1, replicas: 1, sequencers: 1, ..LogConfig::default() };
        register.ask(HOST, asker, Message::Create { request: restarts, name: name.into(), config });
        let log = register.said.drain(..).find_map(|(_, message)| match message {
            Message::Done { log, .. } => Some(log),
            _ => None,
        });
        register.nodes.clear();
        register.restart();
        let (log, name) = (log.expect("it is created"), name.into());
        register.ask(HOST, asker, Message::Delete { request: 8, name, log });
        let mut told = BTreeSet::new();
        while let Some((to, message)) = register.hear(Duration::from_secs(10)) {
            if message == (Message::RemoveLog { log }) {
                told.insert(to);
            }
        }
        assert_eq!(told, NODES.map(itself).into());
        for node in NODES {
            register.ask(node, itself(node), Message::Retired { log, node });
            register.ask(
                node,
                itself(node),
                Message::Join { node: NodeAddress { node, address: "a:1".into() } },
            );
        }
    }
}

#[test]
fn a_crowd_that_waits_asks_about_once_a_second_each_and_is_told_at_once() {
    let mut register = Embedded::new(Restarts::WhenTold);
    let (mut crowd, entry) = Crowd::gather(&mut register);
    crowd.wait(&mut register, Duration::from_secs(3));
    crowd.asked = 0;
    crowd.wait(&mut register, Duration::from_secs(30));
    assert!((4000..8000).contains(&crowd.asked), "{} questions of 200 clients in 30 s", crowd.asked);
    assert_eq!(crowd.is_told(&mut register, &entry, 1), Duration::ZERO);
}

#[test]
fn the_embedded_register_keeps_the_contract() {
    run(Restarts::WhenTold, SCENARIOS);
    run(Restarts::WhenTold, WITHIN_AN_INCARNATION);
}

#[test]
fn the_embedded_register_keeps_the_contract_across_restarts() {
    run(Restarts::AfterEveryQuestion, SCENARIOS);
}
