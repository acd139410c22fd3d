//! Communication with the view register: a role of one node, or external.

use seriatim_model::{Address, Endpoint, LogId, NodeId, Peer, Time};
use seriatim_protocol::control::message::NEWS;
use seriatim_protocol::control::register::Register;
use seriatim_protocol::control::{self, NodeAddress};
use seriatim_protocol::{Message, roles};
use seriatim_store::RoleKey;

use crate::host::{Host, HostConfig, JOIN_EVERY, Outgoing, REGISTER};
use crate::role::Role;

/// Place of the view register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterPlace {
    /// A role of one node, in its journal.
    Node {
        /// The node.
        node: NodeId,
        /// Its address.
        address: String,
    },
    /// External: every node asks it directly, through [`Host::take_questions`].
    Outside,
}

/// A question to an external register from a role, a client or the node itself.
#[derive(Debug)]
pub struct RegisterQuestion {
    /// Receiver of the answer.
    pub asker: Address,
    /// The asker's log.
    pub log: LogId,
    /// Any message that a [`Register`] answers.
    pub message: control::Message,
}

impl Host {
    /// The register's node; this node for an external register.
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

    /// Removes and returns questions for an external register; answers come as
    /// [`Event::RegisterAnswered`](crate::Event::RegisterAnswered). Unanswered questions are asked
    /// again.
    pub fn take_questions(&mut self) -> Vec<RegisterQuestion> {
        std::mem::take(&mut self.questions)
    }

    pub(crate) fn question_register(&mut self, now: Time, from: Address, log: LogId, message: Message) {
        match (&self.config.register, from, message) {
            (RegisterPlace::Outside, asker, Message::Control(message)) => {
                self.questions.push(RegisterQuestion { asker, log, message });
            }
            (RegisterPlace::Node { node, .. }, _, message) if *node == self.config.node => {
                self.dispatch(now, REGISTER, from, message);
            }
            // A client's question goes to the register's node under one of our numbers.
            (RegisterPlace::Node { node, .. }, Address::Client(connection, number), message) => {
                let peer = Peer::Node(*node);
                let from =
                    Endpoint::Client(self.register_proxy.number((connection, number), wants_news(&message)));
                self.sends.push(Outgoing { peer, log, from, to: Endpoint::Register, message });
                // Forwarded nevertheless: the register may answer before this node learns of its
                // return.
                if let Some(why) = self.notices.register_is_away(*node) {
                    let (peer, to) = (Peer::Client(connection), Endpoint::Client(number));
                    let message = control::Message::Unanswered { why }.into();
                    self.sends.push(Outgoing { peer, log, from: Endpoint::Node, to, message });
                }
            }
            _ => {}
        }
    }

    pub(crate) fn pass_back(&mut self, number: u64, from: Address, log: LogId, message: Message) {
        let Address::Node(_, from) = from else { return };
        if let Some((connection, number)) = self.register_proxy.asker(number) {
            let (peer, to) = (Peer::Client(connection), Endpoint::Client(number));
            self.sends.push(Outgoing { peer, log, from, to, message });
        }
    }

    pub(crate) fn register_answered(&mut self, to: Address, log: LogId, message: control::Message) {
        let key = RoleKey { log, endpoint: Endpoint::Register };
        self.send(key, to, roles::Message::Control(message));
    }

    pub(crate) fn send_to_register(&mut self, message: control::Message) {
        let key = RoleKey { log: LogId(0), endpoint: Endpoint::Node };
        let to = Address::Node(self.register_node(), Endpoint::Register);
        self.send(key, to, message.into());
    }

    /// Repeats this node's address to the register until it confirms.
    pub(crate) fn join(&mut self, now: Time) {
        if self.join_at.is_none_or(|at| now < at) {
            return;
        }
        self.join_at = Some(now + JOIN_EVERY);
        let node = self.own_address();
        self.send_to_register(control::Message::Join { node });
        self.drain_local(now);
    }

    /// Address registered for this node, if it is not ours: a later incarnation registered it.
    #[must_use]
    pub fn is_said_to_be_at(&self) -> Option<&str> {
        self.elsewhere.as_deref()
    }

    /// Replaces an older incarnation's address in the register.
    pub(crate) fn move_here(&mut self, version: u64) {
        let node = self.own_address();
        self.send_to_register(control::Message::Move { node, version });
    }

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
            // Another incarnation of this node registered later.
            Some(known) => {
                self.elsewhere = Some(known.address.clone());
                self.join_at.get_or_insert(now + JOIN_EVERY);
            }
            // The register sent this before it knew this node.
            None => {}
        }
        let others = nodes.into_iter().filter(|node| node.node != own.node);
        others.for_each(|node| self.note_address(node.node, node.address));
        self.meet(now);
        self.note_others(now);
    }

    /// Notes the new address of a suspected node, so that the register's answer reaches it.
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

/// Whether further answers follow with news.
fn wants_news(question: &Message) -> bool {
    matches!(question, Message::Control(control::Message::Lookup { request: NEWS, .. }))
}
