//! All machines of one log, their messages, and the possible actions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use seriatim_model::{
    Durability, Incarnation, LogConfig, LogId, Member, NodeId, Order, Position, RecordId, SessionId, ShardId,
    Time, View, ViewNumber, limits,
};
use seriatim_protocol::control::controller::Controller;
use seriatim_protocol::control::register::Register;
use seriatim_protocol::control::{self, LogEntry, NodeAddress};
use seriatim_protocol::erwin::client::{LogClientConfig, Reply};
use seriatim_protocol::erwin::{self, LogClient, Sequencer};
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::shard::{self, Replica};
use seriatim_protocol::{Message, Mutation, Options};
use stateright::{Model, Property};

use crate::packet::Packet;
use crate::place::{Place, Placed, Role, Told};
use crate::rules::{self, Ghost};

const FIRST: NodeId = NodeId(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster {
    /// Number of sequencing replicas, and the fewest that make a view.
    pub(crate) sequencers: u32,
    pub(crate) least: u32,
    /// Number of the shard's replicas.
    pub(crate) replicas: u32,
    /// Number of clients that append one record each.
    pub(crate) records: u64,
    /// Whether an append may begin after another was acknowledged, or all begin first.
    pub(crate) staggered: bool,
    /// Number of questions for the tail.
    pub(crate) tails: u64,
    pub(crate) controllers: u32,
    /// Number of claims after the first view.
    pub(crate) claims: u64,
    /// Whether a controller abandons an unanswered attempt and claims again.
    pub(crate) gives_up: bool,
    /// Number of sequencing replicas that lose their memory.
    pub(crate) crashes: u8,
    pub(crate) mutation: Option<Mutation>,
}

#[derive(Clone, PartialEq, Hash)]
pub(crate) struct State {
    /// Machines in the order of their places.
    pub(crate) machines: Vec<Arc<Placed>>,
    /// Sent packets that can still have an effect, by digest.
    pub(crate) network: Vec<Arc<Packet>>,
    pub(crate) crashes_left: u8,
    pub(crate) next_controller: Option<Place>,
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
    /// A client receives the answers of every member of its view. Fewer answers have no visible
    /// effect.
    Hear(usize),
    /// A client begins its append, or asks for the tail.
    Begin(usize),
    /// A waiting client looks up the registered view.
    Learn(usize),
    /// A controller is notified that a new view is needed.
    Alarm(usize),
    /// A controller has enough answers and waits no longer.
    Gathered(usize),
    /// A controller has waited without success, or has rested.
    Again(usize),
    /// A sequencing replica restarts without its memory.
    Crash(usize),
}

impl Model for Cluster {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.formed()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let to_client = |packet: &Packet| matches!(packet.to, Place::Client(_));
        let one_by_one = matches!(
            self.mutation,
            Some(Mutation::OneAcknowledgement | Mutation::MixedViews | Mutation::TailFromLeader)
        );
        let deliverable = state.network.iter().filter(|packet| one_by_one || !to_client(packet));
        actions.extend(deliverable.cloned().map(Action::Deliver));
        let entry = state.entry();
        let may_claim = entry.claimed.0 <= self.claims;
        for (index, placed) in state.machines.iter().enumerate() {
            match &placed.role {
                Role::Client(client) => {
                    let Place::Client(number) = placed.place else { continue };
                    let answers = state.network.iter().filter(|packet| packet.to == placed.place).count();
                    let members = client.entry().view.as_ref().map_or(0, |view| view.sequencers.len());
                    if answers > 0 && answers >= members && !one_by_one {
                        actions.push(Action::Hear(index));
                    }
                    if !state.ghost.began(number) {
                        actions.push(Action::Begin(index));
                    } else if !state.ghost.is_done(number)
                        && client.entry().view_number() < entry.view_number()
                    {
                        actions.push(Action::Learn(index));
                    }
                }
                Role::Controller(controller) => {
                    let is_next = Some(placed.place) == state.next_controller || self.gives_up;
                    if placed.idles && may_claim && is_next {
                        actions.push(Action::Alarm(index));
                    }
                    if matches!(controller.step_name(), Some("seal" | "fence" | "stage")) {
                        actions.push(Action::Gathered(index));
                    }
                    let tries_again = placed.rests || self.gives_up && controller.step_name().is_some();
                    if tries_again && may_claim {
                        actions.push(Action::Again(index));
                    }
                }
                Role::Sequencer(_) if state.crashes_left > 0 => actions.push(Action::Crash(index)),
                _ => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Deliver(packet) => {
                let index = state.index(packet.to)?;
                if packet.is_question() {
                    state.network.retain(|other| *other != packet);
                }
                if !state.tell(index, &Told::Packet(packet)) {
                    return None;
                }
            }
            Action::Hear(index) => {
                let place = state.machines[index].place;
                let heard: Vec<_> = state.network.iter().filter(|p| p.to == place).cloned().collect();
                state.network.retain(|packet| packet.to != place);
                for packet in heard {
                    state.tell(index, &Told::Packet(packet));
                }
            }
            Action::Begin(index) => self.begin(&mut state, index),
            Action::Learn(index) => state.learn(index),
            Action::Alarm(index) => state.alarm(index),
            Action::Gathered(index) => {
                let sent = state.network.len();
                // Without enough answers the wait has no effect: it may as well end after the next
                // answer.
                if !state.gathered(index) || state.network.len() == sent {
                    return None;
                }
            }
            Action::Again(index) => state.again(index),
            Action::Crash(index) => self.crash(&mut state, index),
        }
        self.forget_spent(&mut state);
        state.judge(self);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rules::properties()
    }
}

impl Cluster {
    fn options(&self) -> Options {
        Options { mutation: self.mutation, ..Options::default() }
    }

    fn config(&self) -> LogConfig {
        LogConfig {
            order: Order::ErwinBb,
            durability: Durability::Memory,
            sequencers: self.sequencers,
            min_sequencers: self.least,
            shards: 1,
            replicas: self.replicas,
            min_replicas: 1,
            stripe: 1,
            ..LogConfig::default()
        }
    }

    fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..=self.sequencers.max(self.replicas).max(self.controllers)).map(NodeId)
    }

    /// State after the first view, which is formed like any other.
    pub(crate) fn formed(&self) -> State {
        let member = |node| Member { node, incarnation: Incarnation(1) };
        let mut machines = vec![self.register()];
        for node in (1..=self.controllers).map(NodeId) {
            machines.push(self.controller(node));
        }
        for node in (1..=self.sequencers).map(NodeId) {
            machines.push(self.fresh_machine(member(node)));
        }
        let Role::Register(register) = &machines[0].role else { unreachable!("it was put there") };
        let entry = register.entries().next().expect("the log was created").clone();
        for node in entry.shards[0].iter().copied() {
            let replica = Replica::new(member(node), ShardId(0), self.config(), self.options());
            let role = Role::Shard(Box::new(replica), Default::default());
            machines.push(Placed::new(Place::Shard(node), role, Time::ZERO));
        }
        let mut state = State {
            machines: machines.into_iter().map(Arc::new).collect(),
            network: vec![],
            crashes_left: 0,
            next_controller: Some(Place::Controller(FIRST)),
            ghost: Arc::default(),
            broken: 0,
        };
        let get = control::Message::Get { log: LogId(1) };
        state.tell_at_once(Place::Register, 1, get.into());
        let mut delivered = BTreeSet::new();
        while let Some(packet) = state.network.iter().find(|p| !delivered.contains(&p.digest)).cloned() {
            delivered.insert(packet.digest);
            if let Some(index) = state.index(packet.to) {
                state.tell(index, &Told::Packet(packet));
            }
        }
        // A crashed replica may receive the first view again.
        let registered =
            |p: &Packet| matches!(p.message, Message::Control(control::Message::Registered { .. }));
        state.network.retain(|packet| registered(packet) && matches!(packet.to, Place::Sequencer(_)));
        self.add_clients(&mut state);
        state.crashes_left = self.crashes;
        self.forget_spent(&mut state);
        state.judge(self);
        state
    }

    fn register(&self) -> Placed {
        let mut register = Register::new(FIRST, self.options());
        let client = Place::Client(99);
        let mut ask = |message: control::Message| {
            let packet = Packet::new(client, Place::Register, message.into()).expect("it matters");
            let role = Role::Register(register.clone());
            let outcome =
                Placed::new(Place::Register, role, Time::ZERO).tell(&Told::Packet(Arc::new(packet)));
            let Role::Register(changed) = &outcome.placed.role else { unreachable!("it stays a register") };
            register = changed.clone();
        };
        for node in self.nodes() {
            ask(control::Message::Join { node: NodeAddress { node, address: String::new() } });
        }
        ask(control::Message::Create { request: 1, name: "checked".into(), config: self.config() });
        Placed::new(Place::Register, Role::Register(register), Time::ZERO)
    }

    pub(crate) fn controller(&self, node: NodeId) -> Placed {
        let random = u64::from(node.0) << 32;
        let controller = Controller::new(LogId(1), node, FIRST, random, self.options());
        Placed::new(Place::Controller(node), Role::Controller(controller), Time::ZERO)
    }

    pub(crate) fn fresh_machine(&self, me: Member) -> Placed {
        let replica = Sequencer::new(me, self.config(), self.options());
        let placed = Placed::new(Place::Sequencer(me.node), Role::Sequencer(Box::new(replica)), Time::ZERO);
        let outcome = placed.tell(&Told::Late(Time::ZERO));
        (*outcome.placed).clone()
    }

    fn add_clients(&self, state: &mut State) {
        let entry = state.entry().clone();
        for number in 0..self.records + self.tails {
            let resume = Some((SessionId::new(Position::ZERO, number), 0));
            let config =
                LogClientConfig { control: FIRST, random: number + 1, resume, options: self.options() };
            let client = Role::Client(Box::new(LogClient::new(config, entry.clone())));
            let placed = Placed::new(Place::Client(number), client, Time::ZERO);
            state.machines.push(Arc::new(placed));
            if !self.staggered && number < self.records {
                Arc::make_mut(&mut state.ghost).begin(number);
                state.tell(state.machines.len() - 1, &Told::Append);
            }
        }
    }

    pub(crate) fn begin(&self, state: &mut State, index: usize) {
        let Place::Client(number) = state.machines[index].place else { return };
        Arc::make_mut(&mut state.ghost).begin(number);
        let asks = number >= self.records;
        state.tell(index, &if asks { Told::CheckTail } else { Told::Append });
    }

    pub(crate) fn crash(&self, state: &mut State, index: usize) {
        state.crashes_left -= 1;
        let Role::Sequencer(replica) = &state.machines[index].role else { return };
        let Member { node, incarnation } = replica.member();
        let me = Member { node, incarnation: Incarnation(incarnation.0 + 1) };
        state.machines[index] = Arc::new(self.fresh_machine(me));
    }

    pub(crate) fn forget_spent(&self, state: &mut State) {
        let State { network, machines, crashes_left, ghost, .. } = state;
        network.retain(|packet| {
            let Some(to) = machines.iter().find(|placed| placed.place == packet.to) else { return false };
            let is_done = matches!(packet.to, Place::Client(number) if ghost.is_done(number));
            !is_done && !packet.is_spent(to, self.mutation, *crashes_left > 0)
        });
    }
}

impl State {
    fn places(&self) -> impl Iterator<Item = Place> {
        self.machines.iter().map(|placed| placed.place)
    }

    pub(crate) fn index(&self, place: Place) -> Option<usize> {
        self.machines.iter().position(|placed| placed.place == place)
    }

    pub(crate) fn entry(&self) -> &LogEntry {
        let Role::Register(register) = &self.machines[0].role else { unreachable!("it comes first") };
        register.entries().next().expect("the log is never deleted")
    }

    pub(crate) fn tell_at_once(&mut self, from: Place, index: usize, message: Message) {
        if let Some(to) = self.machines.get(index).map(|placed| placed.place) {
            self.tell(index, &Told::Packet(Arc::new(Packet::by(from, to, message))));
        }
    }

    pub(crate) fn learn(&mut self, index: usize) {
        let message = control::Message::Registered { entry: self.entry().clone() };
        self.tell_at_once(Place::Register, index, message.into());
    }

    pub(crate) fn alarm(&mut self, index: usize) {
        let view = self.entry().view_number();
        let report = control::Message::Report { view, cannot_start: view, incarnation: Incarnation(0) };
        let Some(shard) = self.places().find(|place| matches!(place, Place::Shard(_))) else { return };
        self.tell_at_once(shard, index, report.into());
        // Controllers are alike: they act in order, each once.
        let next = self.places().nth(index + 1);
        self.next_controller = next.filter(|next| matches!(next, Place::Controller(_)));
    }

    /// Ends a controller's wait for more answers. Returns whether anything changed.
    pub(crate) fn gathered(&mut self, index: usize) -> bool {
        let at = self.machines[index].clock + limits::ATTEMPT_FOR / 2;
        self.tell(index, &Told::Late(at))
    }

    pub(crate) fn again(&mut self, index: usize) {
        let at = self.machines[index].clock + limits::ATTEMPT_FOR + Duration::from_secs(1);
        self.tell(index, &Told::Late(at));
    }

    /// Gives a machine an input. Returns whether anything changed.
    ///
    /// The register is linearizable: a question and its answer are one moment, and so are a change
    /// and its answer. A controller's proposal is in flight for a time, like any other message.
    ///
    /// Answers to a controller arrive at once. It then only asks others, which may take any time;
    /// and a replica that obeyed it unheard does nothing that a slow one could not do. The same
    /// holds for confirmations of followers: they only let the leader report a stable bound.
    pub(crate) fn tell(&mut self, index: usize, told: &Told) -> bool {
        let outcome = self.machines[index].tell(told);
        let mut changed = outcome.placed.digest != self.machines[index].digest || outcome.panicked;
        if outcome.panicked {
            self.broken |= rules::ASSERTION;
        }
        let place = self.machines[index].place;
        self.machines[index] = Arc::clone(&outcome.placed);
        for reply in &outcome.replies {
            changed = true;
            self.note(place, reply);
        }
        for packet in &outcome.sends {
            self.announced(packet);
            let is_get = matches!(packet.message, Message::Control(control::Message::Get { .. }));
            let is_dropped = matches!(packet.message, Message::Erwin(erwin::Message::TruncateAck { .. }));
            let to_controller = matches!(packet.to, Place::Controller(_));
            let at_once = to_controller || is_dropped || packet.to == Place::Register && is_get;
            if at_once {
                let to = self.index(packet.to).filter(|to| !packet.is_spent(&self.machines[*to], None, true));
                if let Some(to) = to {
                    changed |= self.tell(to, &Told::Packet(Arc::clone(packet)));
                }
            } else if let Err(at) = self.network.binary_search_by_key(&packet.digest, |known| known.digest) {
                self.network.insert(at, Arc::clone(packet));
                changed = true;
            }
        }
        if place == Place::Register
            && let Some(view) = self.entry().view.clone()
            && !self.ghost.views.contains_key(&view.number)
        {
            Arc::make_mut(&mut self.ghost).views.insert(view.number, view);
        }
        changed
    }

    /// A leader that sends the shards a stable bound may have sent it to its clients as well.
    fn announced(&mut self, packet: &Packet) {
        if let Message::Shard(shard::Message::Stable { stable, .. } | shard::Message::Bind { stable, .. }) =
            &packet.message
        {
            rules::note_stable(self, *stable);
        }
    }

    fn note(&mut self, place: Place, reply: &Reply) {
        let (Place::Client(number), ghost) = (place, Arc::make_mut(&mut self.ghost)) else { return };
        match reply {
            Reply::Appended { id, .. } => ghost.appended(number, *id),
            Reply::Tail(tail) => ghost.answered(number, *tail),
            Reply::Session { .. } | Reply::Ended(_) | Reply::Failed(_) => {}
        }
    }

    pub(crate) fn judge(&mut self, cluster: &Cluster) {
        if let Some(stable) = self.shards().map(|(_, replica, _)| replica.stable()).max() {
            rules::note_stable(self, stable);
        }
        self.broken |= rules::broken(self, cluster.mutation);
    }

    pub(crate) fn sequencers(&self) -> impl Iterator<Item = (&Arc<Placed>, &Sequencer)> {
        self.machines.iter().filter_map(|placed| match &placed.role {
            Role::Sequencer(replica) => Some((placed, &**replica)),
            _ => None,
        })
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = (&Arc<Placed>, &Replica, &crate::place::Store)> {
        self.machines.iter().filter_map(|placed| match &placed.role {
            Role::Shard(replica, store) => Some((placed, &**replica, store)),
            _ => None,
        })
    }
}

pub(crate) type Views = BTreeMap<ViewNumber, View>;

pub(crate) fn record(number: u64) -> RecordId {
    RecordId { session: SessionId::new(Position::ZERO, number), number: 0 }
}
