//! How a node talks to the view register: a role of one node, or something outside of all of them.

use seriatim_model::{Address, Endpoint, LogId, NodeId, Peer, Time};
use seriatim_protocol::control::message::NEWS;
use seriatim_protocol::control::register::Register;
use seriatim_protocol::control::{self, NodeAddress};
use seriatim_protocol::{Message, roles};
use seriatim_store::RoleKey;

use crate::host::{Host, HostConfig, JOIN_EVERY, Outgoing, REGISTER};
use crate::role::Role;

/// Where the view register is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterPlace {
    /// A role of one node, which keeps it in its journal.
    Node {
        /// That node.
        node: NodeId,
        /// Where it is reached.
        address: String,
    },
    /// Outside of the cluster's nodes: every node asks it by itself, through
    /// [`Host::take_questions`].
    Outside,
}

/// A node's question to a register outside, on behalf of one of its roles, its clients or itself.
#[derive(Debug)]
pub struct RegisterQuestion {
    /// The address that is to be answered.
    pub asker: Address,
    /// Which log the asker works for.
    pub log: LogId,
    /// The question: any message that a [`Register`] answers.
    pub message: control::Message,
}

impl Host {
    /// The node whose register role is asked; with a register outside, every node stands for it.
    pub(crate) fn register_node(&self) -> NodeId {
        match &self.config.register {
            RegisterPlace::Node { node, .. } => *node,
            RegisterPlace::Outside => self.config.node,
        }
    }

    pub(crate) fn hosts_register(&self) -> bool {
        matches!(&self.config.register, RegisterPlace::Node { node, .. } if *node == self.config.node)
    }

    pub(crate) fn add_register(&mut self) {
        if self.hosts_register() {
            let HostConfig { node, options, seed, .. } = self.config;
            self.roles
                .entry(REGISTER)
                .or_insert_with(|| Role::Register(Register::new(node, options).in_incarnation(seed)));
        }
    }

    /// The questions for a register outside that have gathered. Each is answered with
    /// [`Event::RegisterAnswered`](crate::Event::RegisterAnswered), or not at all: then it comes
    /// again.
    pub fn take_questions(&mut self) -> Vec<RegisterQuestion> {
        std::mem::take(&mut self.questions)
    }

    /// A message for the register that did not come from this node's own roles, or did.
    pub(crate) fn question_register(&mut self, now: Time, from: Address, log: LogId, message: Message) {
        match (&self.config.register, from, message) {
            (RegisterPlace::Outside, asker, Message::Control(message)) => {
                self.questions.push(RegisterQuestion { asker, log, message });
            }
            (RegisterPlace::Node { node, .. }, _, message) if *node == self.config.node => {
                self.dispatch(now, REGISTER, from, message);
            }
            // A client's question goes to the node that hosts the register, under a number of ours.
            (RegisterPlace::Node { node, .. }, Address::Client(connection, number), message) => {
                let peer = Peer::Node(*node);
                let from =
                    Endpoint::Client(self.register_proxy.number((connection, number), wants_news(&message)));
                self.sends.push(Outgoing { peer, log, from, to: Endpoint::Register, message });
                // The node still forwards the question: the register may answer before this node
                // learns of its return.
                if let Some(why) = self.notices.register_is_away(*node) {
                    let (peer, to) = (Peer::Client(connection), Endpoint::Client(number));
                    let message = control::Message::Unanswered { why }.into();
                    self.sends.push(Outgoing { peer, log, from: Endpoint::Node, to, message });
                }
            }
            _ => {}
        }
    }

    /// The register's answer goes to the client that asked.
    pub(crate) fn pass_back(&mut self, number: u64, from: Address, log: LogId, message: Message) {
        let Address::Node(_, from) = from else { return };
        if let Some((connection, number)) = self.register_proxy.asker(number) {
            let (peer, to) = (Peer::Client(connection), Endpoint::Client(number));
            self.sends.push(Outgoing { peer, log, from, to, message });
        }
    }

    /// A register outside says something.
    pub(crate) fn register_answered(&mut self, to: Address, log: LogId, message: control::Message) {
        let key = RoleKey { log, endpoint: Endpoint::Register };
        self.send(key, to, roles::Message::Control(message));
    }

    pub(crate) fn send_to_register(&mut self, message: control::Message) {
        let key = RoleKey { log: LogId(0), endpoint: Endpoint::Node };
        let to = Address::Node(self.register_node(), Endpoint::Register);
        self.send(key, to, message.into());
    }

    /// Tells the register where this node is, until it says that it knows.
    pub(crate) fn join(&mut self, now: Time) {
        if self.join_at.is_none_or(|at| now < at) {
            return;
        }
        self.join_at = Some(now + JOIN_EVERY);
        let node = self.own_address();
        self.send_to_register(control::Message::Join { node });
        self.drain_local(now);
    }

    /// Where the register says that this node is, if that is not where it is: another incarnation
    /// of the node said so since.
    #[must_use]
    pub fn is_said_to_be_at(&self) -> Option<&str> {
        self.elsewhere.as_deref()
    }

    /// The register has an address of an older incarnation.
    pub(crate) fn move_here(&mut self, version: u64) {
        let node = self.own_address();
        self.send_to_register(control::Message::Move { node, version });
    }

    /// The register tells which nodes there are.
    pub(crate) fn told_of(&mut self, now: Time, nodes: Vec<NodeAddress>) {
        let own = self.own_address();
        match nodes.iter().find(|node| node.node == own.node) {
            Some(known) if *known == own => {
                self.elsewhere = None;
                let register = self.register_node();
                if self.suspected().all(|node| node != register) {
                    self.join_at = None;
                }
            }
            // Another incarnation of this node was heard since.
            Some(known) => {
                self.elsewhere = Some(known.address.clone());
                self.join_at.get_or_insert(now + JOIN_EVERY);
            }
            // News of others only was sent before this node was known.
            None => {}
        }
        let others = nodes.into_iter().filter(|node| node.node != own.node);
        others.for_each(|node| self.note_address(node.node, node.address));
        self.meet(now);
        self.note_others(now);
    }

    /// A node that is taken for gone says where it is: the register's answer is to find it there,
    /// and not where it was.
    pub(crate) fn note_move(&mut self, peer: Peer, message: &Message) {
        if let (Peer::Node(node), Message::Control(control::Message::Join { node: place })) = (peer, message)
            && place.node == node
            && self.suspected().any(|suspected| suspected == node)
        {
            self.note_address(node, place.address.clone());
        }
    }

    fn own_address(&self) -> NodeAddress {
        NodeAddress { node: self.config.node, address: self.config.address.clone() }
    }
}

/// Whether a question has one answer at once, and others when there is something new.
fn wants_news(question: &Message) -> bool {
    matches!(question, Message::Control(control::Message::Lookup { request: NEWS, .. }))
}
