//! A machine with its clock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use seriatim_model::{Address, ConnectionId, Effect, Endpoint, Input, Machine, NodeId, ShardId, Time};
use seriatim_protocol::shard::Replica;
use seriatim_protocol::{Message, cuts};

use super::log::SHARDS;
use crate::alike::{Seen, Sent, by_digest, digest, remembered, run};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    Sequencer(NodeId),
    Shard(ShardId, NodeId),
    /// Submitting and reading clients, and the controller that closes the view.
    Outside(Outsider),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Outsider {
    Submitter,
    Reader,
    Controller,
}

impl Place {
    pub(crate) fn of(address: Address) -> Option<Self> {
        match address {
            Address::Node(node, Endpoint::Sequencer) => Some(Self::Sequencer(node)),
            Address::Node(node, Endpoint::Shard(shard)) => Some(Self::Shard(shard, node)),
            Address::Node(_, Endpoint::Controller) => Some(Self::Outside(Outsider::Controller)),
            Address::Client(ConnectionId(1), _) => Some(Self::Outside(Outsider::Submitter)),
            Address::Client(..) => Some(Self::Outside(Outsider::Reader)),
            Address::Node(..) => None,
        }
    }

    pub(crate) fn address(self) -> Address {
        match self {
            Self::Sequencer(node) => Address::Node(node, Endpoint::Sequencer),
            Self::Shard(shard, node) => Address::Node(node, Endpoint::Shard(shard)),
            Self::Outside(Outsider::Submitter) => Address::Client(ConnectionId(1), 1),
            Self::Outside(Outsider::Reader) => Address::Client(ConnectionId(2), 2),
            Self::Outside(Outsider::Controller) => Address::Node(NodeId(1), Endpoint::Controller),
        }
    }
}

pub(crate) type Packet = Sent<Place>;

by_digest! { Packet, Placed }

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The message arrives at any time, or never.
    Open,
    /// The message arrives at once: it reports existing state, and is retransmitted until it is
    /// heard.
    Prompt,
    /// The message never arrives: it lets others forget, or repeats known facts.
    Lost,
}

impl Packet {
    /// Only some messages are open, to limit the states: no promise rests on the others.
    pub(crate) fn way(&self) -> Way {
        use cuts::ShardMessage as Cuts;
        let is_primary = |place| matches!(place, Place::Shard(_, node) if SHARDS.iter().any(|[primary, _]| *primary == node));
        match (&self.message, self.to) {
            (_, Place::Outside(_)) => Way::Lost,
            (Message::CutsShard(Cuts::WindowsKnown { .. } | Cuts::LocalAck { .. }), _) => Way::Prompt,
            // An empty report only announces its sender.
            (Message::CutsShard(Cuts::Report { length: 0, .. }), _) => Way::Prompt,
            (Message::CutsShard(Cuts::Windows { .. }), place) if !is_primary(place) => Way::Prompt,
            (Message::CutsShard(Cuts::CutAck { .. } | Cuts::ReplicateCover { .. }), _) => Way::Lost,
            (Message::CutsShard(Cuts::Cover { .. }), place) if !is_primary(place) => Way::Lost,
            (Message::CutsShard(_) | Message::Cuts(_), _) => Way::Open,
            _ => Way::Lost,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Role {
    Sequencer(Box<cuts::Sequencer>),
    Shard(Box<Replica>),
}

#[derive(Clone)]
pub(crate) struct Placed {
    pub(crate) place: Place,
    pub(crate) role: Role,
    pub(crate) clock: Time,
    /// Digest of everything that decides the machine's behaviour: a hash of its `Debug` text, so
    /// that no field is forgotten.
    pub(crate) digest: u64,
}

impl Debug for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.place)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Told {
    Packet(Arc<Packet>),
    /// Its clock reaches its deadline.
    Late,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) placed: Arc<Placed>,
    pub(crate) sends: Vec<Arc<Packet>>,
    pub(crate) panicked: bool,
}

thread_local! {
    static SEEN: Seen<Outcome> = const { RefCell::new(BTreeMap::new()) };
}

impl Placed {
    pub(crate) fn new(place: Place, role: Role, clock: Time) -> Self {
        let digest = digest(&format!("{place:?} {clock:?} {role:?}"));
        Self { place, role, clock, digest }
    }

    /// Next deadline after the clock.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let deadline = match &self.role {
            Role::Sequencer(machine) => machine.deadline(),
            Role::Shard(machine) => machine.deadline(),
        };
        deadline.filter(|at| *at > self.clock)
    }

    /// Gives the machine an input. Writes and due work complete at once.
    pub(crate) fn tell(&self, told: &Told) -> Arc<Outcome> {
        let input = match told {
            Told::Packet(packet) => packet.digest,
            Told::Late => 0,
        };
        let panicked = || Outcome { placed: Arc::new(self.clone()), sends: vec![], panicked: true };
        remembered(&SEEN, (self.digest, input), || self.clone().work(told), panicked)
    }

    fn work(mut self, told: &Told) -> Outcome {
        let first = match told {
            Told::Packet(packet) => {
                Input::Message { from: packet.from.address(), message: packet.message.clone() }
            }
            Told::Late => {
                self.clock = self.deadline().expect("it has a deadline");
                Input::Wake
            }
        };
        let (now, from) = (self.clock, self.place);
        let mut sends = vec![];
        let mut perform = |effect| {
            if let Effect::Send { to, message } = effect
                && let Some(to) = Place::of(to)
            {
                sends.push(Arc::new(Packet::by(from, to, message)));
            }
        };
        match &mut self.role {
            Role::Sequencer(machine) => run(&mut **machine, now, first, &mut perform),
            Role::Shard(machine) => run(&mut **machine, now, first, &mut perform),
        }
        Outcome { placed: Arc::new(Self::new(from, self.role, now)), sends, panicked: false }
    }
}
