//! Conversations of scenarios with any implementation of the register.

use std::time::Duration;

use seriatim_model::{Address, ConnectionId, Endpoint, LogConfig, LogId, NodeId};
use seriatim_protocol::control::{LogEntry, Message, NodeAddress};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before a question is retransmitted.
const ASK_EVERY: Duration = Duration::from_secs(1);

pub(crate) const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

pub(crate) trait Register {
    /// Asks through the node `through`: the asker's own, or a client's.
    fn ask(&mut self, through: NodeId, asker: Address, message: Message);

    /// Time since an arbitrary start.
    fn now(&self) -> Duration;

    /// The register's next message and its receiver. `None` if there is none before `until`.
    fn hear(&mut self, until: Duration) -> Option<(Address, Message)>;

    fn restart(&mut self);
}

pub(crate) struct Talk {
    register: Box<dyn Register>,
    /// Received messages that no call has taken yet.
    heard: Vec<(Address, Message)>,
    askers: u64,
}

impl Talk {
    /// A conversation in which no node has joined.
    pub(crate) fn with(register: Box<dyn Register>) -> Self {
        Self { register, heard: vec![], askers: 0 }
    }

    /// A conversation in which all nodes have joined.
    pub(crate) fn joined(register: Box<dyn Register>) -> Self {
        let mut talk = Self::with(register);
        for node in NODES {
            talk.join(node, &format!("node-{node}:1"));
        }
        for node in NODES {
            talk.hears_of(node, 3, |_| true);
        }
        talk
    }

    pub(crate) fn restart(&mut self) {
        self.register.restart();
    }

    /// A new asker: all messages to it answer its only question.
    pub(crate) fn asker(&mut self, through: NodeId) -> Address {
        self.askers += 1;
        Address::Client(ConnectionId(through.0.into()), self.askers)
    }

    pub(crate) fn ask(&mut self, asker: Address, message: Message) {
        let through = match asker {
            Address::Node(node, _) => node,
            Address::Client(connection, _) => NodeId(u32::try_from(connection.0).unwrap()),
        };
        self.register.ask(through, asker, message);
    }

    pub(crate) fn answer_once(&mut self, through: NodeId, message: Message) -> Message {
        let asker = self.asker(through);
        self.ask(asker, message);
        self.hears(asker, |_| true)
    }

    /// Asks until an answer arrives, as roles do.
    pub(crate) fn answer(&mut self, through: NodeId, message: Message) -> Message {
        let asker = self.asker(through);
        let end = self.register.now() + TIMEOUT;
        while self.register.now() < end {
            self.ask(asker, message.clone());
            if let Some(answer) = self.hears_within(ASK_EVERY, asker, |_| true) {
                return answer;
            }
        }
        panic!("no answer to {message:?}")
    }

    pub(crate) fn hears(&mut self, to: Address, fits: impl Fn(&Message) -> bool) -> Message {
        match self.hears_within(TIMEOUT, to, fits) {
            Some(message) => message,
            None => panic!("{to:?} heard nothing that fits; not asked for: {:?}", self.heard),
        }
    }

    /// The next fitting message to `to`; `None` if none arrives within `wait`.
    pub(crate) fn hears_within(
        &mut self,
        wait: Duration,
        to: Address,
        fits: impl Fn(&Message) -> bool,
    ) -> Option<Message> {
        let is_it = |(whom, message): &(Address, Message)| *whom == to && fits(message);
        if let Some(index) = self.heard.iter().position(is_it) {
            return Some(self.heard.remove(index).1);
        }
        let end = self.register.now() + wait;
        loop {
            let said = self.register.hear(end)?;
            if is_it(&said) {
                return Some(said.1);
            }
            self.heard.push(said);
        }
    }

    pub(crate) fn forget(&mut self) {
        self.heard.clear();
    }

    pub(crate) fn join(&mut self, node: NodeId, address: &str) {
        let join = Message::Join { node: NodeAddress { node, address: address.to_owned() } };
        self.ask(itself(node), join);
    }

    pub(crate) fn moves(&mut self, node: NodeId, address: &str) {
        self.forget();
        self.join(node, address);
        let version = self.see_elsewhere(node);
        let place = NodeAddress { node, address: address.to_owned() };
        self.ask(itself(node), Message::Move { node: place, version });
    }

    /// Waits for `Elsewhere`, and returns the version of the other registered address.
    pub(crate) fn see_elsewhere(&mut self, node: NodeId) -> u64 {
        match self.hears(itself(node), |message| matches!(message, Message::Elsewhere { .. })) {
            Message::Elsewhere { version } => version,
            _ => unreachable!("it fits"),
        }
    }

    /// Waits for a list of `count` nodes with a matching one.
    pub(crate) fn hears_of(&mut self, node: NodeId, count: usize, fits: impl Fn(&NodeAddress) -> bool) {
        self.hears(itself(node), |message| match message {
            Message::Cluster { nodes } => nodes.len() == count && nodes.iter().any(&fits),
            _ => false,
        });
    }

    pub(crate) fn create(&mut self, through: NodeId, name: &str) -> LogId {
        self.askers += 1;
        match self.answer_once(through, creation(self.askers, name)) {
            Message::Done { log, .. } => log,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub(crate) fn delete(&mut self, through: NodeId, name: &str, log: LogId) {
        let answer = self.answer_once(through, deletion(name, log));
        assert_eq!(answer, Message::Done { request: 8, log });
    }

    /// The log's entry; `None` if the log is deleted.
    pub(crate) fn get(&mut self, through: NodeId, log: LogId) -> Option<LogEntry> {
        match self.answer(through, Message::Get { log }) {
            Message::Current { entry } => Some(entry),
            Message::Gone { log: gone } if gone == log => None,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn itself(node: NodeId) -> Address {
    Address::Node(node, Endpoint::Node)
}

pub(crate) fn controller(node: NodeId) -> Address {
    Address::Node(node, Endpoint::Controller)
}

pub(crate) fn creation(request: u64, name: &str) -> Message {
    Message::Create { request, name: name.to_owned(), config: LogConfig::default() }
}

pub(crate) fn deletion(name: &str, log: LogId) -> Message {
    Message::Delete { request: 8, name: name.to_owned(), log }
}
