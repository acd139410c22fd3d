//! All machines of one log in a view, their messages, and the possible actions.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use seriatim_model::{
    Durability, Incarnation, LogConfig, LogEntry, LogId, Member, NodeId, Order, Placement, Position, Record,
    SessionId, ShardId, ShardMembers, Time, View, ViewHistory, ViewNumber,
};
use seriatim_protocol::parts::Carried;
use seriatim_protocol::shard::{self, Replica};
use seriatim_protocol::{Message, Mutation, Options, control, cuts};
use stateright::{Model, Property};

use super::place::{Outsider, Packet, Place, Placed, Role, Told, Way};
use super::rules::{self, Ghost};

pub(crate) const VIEW: ViewNumber = ViewNumber(1);
/// The ordering layer: leader and follower.
pub(crate) const SEQUENCERS: [NodeId; 2] = [NodeId(1), NodeId(2)];
/// Replicas of the shards: primary and backup.
pub(crate) const SHARDS: [[NodeId; 2]; 2] = [[NodeId(3), NodeId(4)], [NodeId(5), NodeId(6)]];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    /// Record counts of messages processed before the exploration, per shard.
    pub(crate) settled: [&'static [u64]; 2],
    /// Record counts of messages submitted for the exploration, per shard.
    pub(crate) submits: [&'static [u64]; 2],
    /// Number of clock advances.
    pub(crate) waits: u8,
    pub(crate) mutation: Option<Mutation>,
}

#[derive(Clone, PartialEq, Hash)]
pub(crate) struct State {
    pub(crate) machines: Vec<Arc<Placed>>,
    /// Sent messages, by digest.
    pub(crate) network: Vec<Arc<Packet>>,
    pub(crate) waits: u8,
    pub(crate) ghost: Arc<Ghost>,
    /// Broken [`rules`], one bit each.
    pub(crate) broken: u16,
}

impl Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.ghost)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Deliver(Arc<Packet>),
    /// A machine's clock reaches its deadline.
    Late(Place),
}

impl Model for Log {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.begun()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.network.iter().cloned().map(Action::Deliver));
        let waits = state.machines.iter().filter(|placed| state.waits > 0 && placed.deadline().is_some());
        actions.extend(waits.map(|placed| Action::Late(placed.place)));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let (place, told) = match action {
            Action::Deliver(packet) => (packet.to, Told::Packet(packet)),
            Action::Late(place) => {
                state.waits -= 1;
                (place, Told::Late)
            }
        };
        state.tell(place, &told);
        if state == *last {
            return None;
        }
        state.broken |= rules::judge(&state, self);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rules::properties()
    }
}

impl Log {
    pub(crate) fn options(&self) -> Options {
        Options { mutation: self.mutation, ..Options::default() }
    }

    pub(crate) fn config(&self) -> LogConfig {
        LogConfig {
            order: Order::Belfast,
            durability: Durability::Memory,
            sequencers: 2,
            min_sequencers: 1,
            shards: 2,
            replicas: 2,
            min_replicas: 1,
            window: 2,
            ..LogConfig::default()
        }
    }

    pub(crate) fn entry(&self) -> LogEntry {
        let member = |node| Member { node, incarnation: Incarnation(1) };
        let shard = |(shard, nodes): (u32, [NodeId; 2])| ShardMembers {
            shard: ShardId(shard),
            replicas: nodes.map(member).to_vec(),
            begins: Position::ZERO,
        };
        let view = View {
            number: VIEW,
            sequencers: SEQUENCERS.map(member).to_vec(),
            leader: SEQUENCERS[0],
            shards: (0..).zip(SHARDS).map(shard).collect(),
            retired: vec![],
            placement: Placement::new(vec![ShardId(0), ShardId(1)], 1),
            first: Position::ZERO,
            start: Position::ZERO,
        };
        let mut history = ViewHistory::default();
        history.push(VIEW, Position::ZERO);
        LogEntry {
            id: LogId(1),
            name: "checked".into(),
            config: self.config(),
            sequencers: SEQUENCERS.to_vec(),
            shards: SHARDS.map(|nodes| nodes.to_vec()).to_vec(),
            leaving: vec![],
            version: 1,
            claimed: VIEW,
            claimant: 0,
            view: Some(view),
            history,
            unavailable: None,
            ended: control::EndedSessions::default(),
            pins: vec![],
        }
    }

    /// All machines take part, a reader subscribes to both shards with predictions, and the records
    /// are in flight.
    fn begun(&self) -> State {
        let (entry, config, options) = (self.entry(), self.config(), self.options());
        let view = entry.view.as_ref().expect("it has one");
        let of_shards = view.shards.iter().flat_map(|members| {
            members.replicas.iter().map(move |member| {
                let replica = Replica::new(*member, members.shard, self.config(), self.options());
                (Place::Shard(members.shard, member.node), Role::Shard(Box::new(replica)))
            })
        });
        let of_layer = view.sequencers.iter().map(|member| {
            let replica = cuts::Sequencer::new(*member, config.clone(), options);
            (Place::Sequencer(member.node), Role::Sequencer(Box::new(replica)))
        });
        let placed = |(place, role)| Arc::new(Placed::new(place, role, Time::ZERO));
        let mut state = State {
            machines: of_layer.chain(of_shards).map(placed).collect(),
            network: vec![],
            waits: self.waits,
            ghost: Arc::default(),
            broken: 0,
        };
        let before = LogEntry { view: None, ..entry.clone() };
        let places: Vec<Place> = state.machines.iter().map(|placed| placed.place).collect();
        for place in places.iter().copied() {
            let prepare: Message = match place {
                Place::Sequencer(_) => control::Message::Stage {
                    claim: VIEW,
                    old: ViewNumber::NONE,
                    config: config.clone(),
                    ordered: Position::ZERO,
                    carried: Carried::default(),
                }
                .into(),
                _ => shard::Message::Fence { claim: VIEW, entry: before.clone() }.into(),
            };
            state.told(Outsider::Controller, place, prepare);
        }
        // Messages sent before all machines take part do not count.
        state.network.clear();
        for place in places {
            let registered = control::Message::Registered { entry: entry.clone() };
            state.told(Outsider::Controller, place, registered.into());
        }
        for (shard, [primary, _]) in (0..).map(ShardId).zip(SHARDS) {
            let subscribe = shard::Message::SubscribeWith {
                request: 1,
                from: Position::ZERO,
                credit: 1 << 20,
                speculative: true,
                filter: None,
            };
            state.told(Outsider::Reader, Place::Shard(shard, primary), subscribe.into());
        }
        let next = self.submit([0, 0], self.settled, &mut state);
        state.settle();
        self.submit(next, self.submits, &mut state);
        state
    }

    /// Submits records numbered from `next`. Returns the next numbers.
    fn submit(&self, mut next: [u64; 2], messages: [&[u64]; 2], state: &mut State) -> [u64; 2] {
        for (number, [primary, _]) in SHARDS.into_iter().enumerate() {
            let shard = ShardId(number as u32);
            for count in messages[number] {
                let submit = cuts::ShardMessage::Submit {
                    view: VIEW,
                    session: SessionId::new(Position::ZERO, number as u64 + 1),
                    lowest: 0,
                    first: next[number],
                    records: vec![Record::new(b"record", 0); *count as usize],
                };
                next[number] += count;
                let (from, to) = (Place::Outside(Outsider::Submitter), Place::Shard(shard, primary));
                state.send(Packet::by(from, to, submit.into()).into());
            }
        }
        next
    }
}

impl State {
    fn told(&mut self, from: Outsider, to: Place, message: Message) {
        self.tell(to, &Told::Packet(Packet::by(Place::Outside(from), to, message).into()));
    }

    fn tell(&mut self, place: Place, told: &Told) {
        let index = self.machines.iter().position(|placed| placed.place == place).expect("it is there");
        let outcome = self.machines[index].tell(told);
        if outcome.panicked {
            self.broken |= rules::ASSERTED;
        }
        self.machines[index] = Arc::clone(&outcome.placed);
        for packet in &outcome.sends {
            match packet.way() {
                Way::Prompt => {
                    self.see(packet);
                    self.tell(packet.to, &Told::Packet(Arc::clone(packet)));
                }
                _ => self.send(Arc::clone(packet)),
            }
        }
    }

    /// Delivers all messages and their consequences.
    fn settle(&mut self) {
        let mut arrived = BTreeSet::new();
        while let Some(packet) = self.network.iter().find(|packet| !arrived.contains(&packet.digest)).cloned()
        {
            arrived.insert(packet.digest);
            self.tell(packet.to, &Told::Packet(packet));
        }
        self.network.clear();
    }

    /// Notes a sent message, whether or not it arrives.
    fn see(&mut self, packet: &Packet) {
        let mut ghost = (*self.ghost).clone();
        let broken = ghost.sees(packet);
        self.broken |= broken;
        if ghost != *self.ghost {
            self.ghost = Arc::new(ghost);
        }
    }

    fn send(&mut self, packet: Arc<Packet>) {
        self.see(&packet);
        if packet.way() == Way::Open
            && let Err(at) = self.network.binary_search_by_key(&packet.digest, |known| known.digest)
        {
            self.network.insert(at, packet);
        }
    }
}
