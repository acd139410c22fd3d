//! A machine with its clock, and the record store of a shard replica.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use seriatim_model::storage::StorageCommand;
use seriatim_model::{
    Address, ConnectionId, Effect, Endpoint, Input, NodeId, Position, RecordId, ShardId, Time, ViewHistory,
    ViewNumber,
};
use seriatim_protocol::control::controller::Controller;
use seriatim_protocol::control::register::Register;
use seriatim_protocol::erwin::client::{AppendSpec, Reply, Request};
use seriatim_protocol::erwin::{LogClient, Sequencer};
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::shard::Replica;

use crate::alike::{Seen, by_digest, digest, remembered, run};
use crate::packet::Packet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    Register,
    Controller(NodeId),
    Sequencer(NodeId),
    Shard(NodeId),
    Client(u64),
}

impl Place {
    /// The place of an address, in a log with one shard.
    pub(crate) fn of(address: Address) -> Option<Self> {
        match address {
            Address::Node(_, Endpoint::Register) => Some(Self::Register),
            Address::Node(node, Endpoint::Controller) => Some(Self::Controller(node)),
            Address::Node(node, Endpoint::Sequencer) => Some(Self::Sequencer(node)),
            Address::Node(node, Endpoint::Shard(_)) => Some(Self::Shard(node)),
            Address::Node(..) => None,
            Address::Client(_, number) => Some(Self::Client(number)),
        }
    }

    pub(crate) fn address(self) -> Address {
        match self {
            Self::Register => Address::Node(NodeId(1), Endpoint::Register),
            Self::Controller(node) => Address::Node(node, Endpoint::Controller),
            Self::Sequencer(node) => Address::Node(node, Endpoint::Sequencer),
            Self::Shard(node) => Address::Node(node, Endpoint::Shard(ShardId(0))),
            Self::Client(number) => Address::Client(ConnectionId(number), number),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Role {
    Register(Register),
    Controller(Controller),
    Sequencer(Box<Sequencer>),
    Shard(Box<Replica>, Store),
    Client(Box<LogClient>),
}

/// A shard replica's records: versions of each position, by view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    versions: BTreeMap<Position, BTreeMap<ViewNumber, RecordId>>,
}

impl Store {
    pub(crate) fn holds(&self, view: ViewNumber, position: Position) -> bool {
        self.versions.get(&position).is_some_and(|versions| versions.contains_key(&view))
    }

    /// The valid version of a position.
    pub(crate) fn read(&self, history: &ViewHistory, position: Position) -> Option<RecordId> {
        self.versions.get(&position)?.get(&history.cover(position)?).copied()
    }

    pub(crate) fn is_valid(&self, history: &ViewHistory) -> bool {
        self.versions.iter().all(|(at, versions)| {
            versions.len() == 1 && versions.keys().next().copied() == history.cover(*at)
        })
    }

    pub(crate) fn valid(&self, history: &ViewHistory) -> Self {
        let valid = |(at, versions): (&Position, &BTreeMap<ViewNumber, RecordId>)| {
            let view = history.cover(*at)?;
            Some((*at, BTreeMap::from([(view, *versions.get(&view)?)])))
        };
        Self { versions: self.versions.iter().filter_map(valid).collect() }
    }

    fn obey(&mut self, command: StorageCommand) {
        let StorageCommand::Bind { view, runs } = command else { return };
        for run in runs {
            for (index, (id, _)) in run.records.into_iter().enumerate() {
                self.versions.entry(run.first + index as u64).or_default().insert(view, id);
            }
        }
    }
}

#[derive(Clone)]
pub(crate) struct Placed {
    pub(crate) place: Place,
    pub(crate) role: Role,
    /// The machine's clock, which moves only for controllers.
    pub(crate) clock: Time,
    /// Whether a controller rests until a time, and whether it has nothing to do.
    pub(crate) rests: bool,
    pub(crate) idles: bool,
    /// Digest of everything that decides the machine's behaviour.
    ///
    /// It is a hash of the machine's `Debug` text, so that no field is forgotten. The text omits:
    ///
    /// - instants: only controllers' clocks move; a controller wakes when all its waits are over,
    ///   and while it gathers, all times that it compares with the clock began at its present time;
    /// - tickets: every write is durable at once;
    /// - times of a view change's steps, which are for people;
    /// - numbers of a ring's slots: only their order matters, so they count from the first;
    /// - that a view excluded a sequencing replica, once it takes part in that view or a later one.
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
    Append,
    CheckTail,
    /// The clock passed a deadline.
    Late(Time),
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) placed: Arc<Placed>,
    pub(crate) sends: Vec<Arc<Packet>>,
    pub(crate) replies: Vec<Reply>,
    pub(crate) panicked: bool,
}

thread_local! {
    static SEEN: Seen<Outcome> = const { RefCell::new(BTreeMap::new()) };
}

by_digest! { Placed }

impl Placed {
    pub(crate) fn new(place: Place, role: Role, clock: Time) -> Self {
        let mut text = canonical(&format!("{place:?} {role:?}"));
        if let Role::Sequencer(replica) = &role {
            text = without_slots(&text);
            for earlier in 0..=replica.view_number().0 {
                text = text.replace(&format!("cannot_start: ViewNumber({earlier}), "), "");
            }
        }
        let (rests, idles) = (text.contains("phase: Resting"), text.contains("phase: Idle"));
        Self { place, role, clock, rests, idles, digest: digest(&text) }
    }

    /// Gives the machine an input. Writes and due work complete at once.
    pub(crate) fn tell(&self, told: &Told) -> Arc<Outcome> {
        let input = match told {
            Told::Packet(packet) => packet.digest,
            other => digest(&format!("{other:?}")),
        };
        let panicked =
            || Outcome { placed: Arc::new(self.clone()), sends: vec![], replies: vec![], panicked: true };
        remembered(&SEEN, (self.digest, input), || self.clone().work(told), panicked)
    }

    fn work(mut self, told: &Told) -> Outcome {
        if let Told::Late(now) = told {
            self.clock = *now;
        }
        let (now, from) = (self.clock, self.place);
        let mut sends = vec![];
        let mut replies = vec![];
        match &mut self.role {
            Role::Register(machine) => run(machine, now, input(told), &mut |effect| {
                send(from, effect, &mut sends);
            }),
            Role::Controller(machine) => run(machine, now, input(told), &mut |effect| {
                send(from, effect, &mut sends);
            }),
            Role::Sequencer(machine) => run(&mut **machine, now, input(told), &mut |effect| {
                send(from, effect, &mut sends);
            }),
            Role::Shard(machine, store) => run(&mut **machine, now, input(told), &mut |effect| {
                if let Effect::Store { command, .. } = effect {
                    store.obey(command);
                } else {
                    send(from, effect, &mut sends);
                }
            }),
            Role::Client(machine) => run(&mut **machine, now, request(told), &mut |effect| {
                if let Effect::Reply { reply, .. } = effect {
                    replies.push(reply);
                } else {
                    send(from, effect, &mut sends);
                }
            }),
        }
        Outcome { placed: Arc::new(Self::new(from, self.role, now)), sends, replies, panicked: false }
    }
}

fn input<Q>(told: &Told) -> Input<seriatim_protocol::Message, Q> {
    match told {
        Told::Packet(packet) => {
            Input::Message { from: packet.from.address(), message: packet.message.clone() }
        }
        _ => Input::Wake,
    }
}

fn request(told: &Told) -> Input<seriatim_protocol::Message, Request> {
    let record = seriatim_model::Record::new(b"record", 0);
    match told {
        Told::Append => {
            Input::Request { token: 1, request: Request::Append { record, spec: AppendSpec::default() } }
        }
        Told::CheckTail => Input::Request { token: 2, request: Request::CheckTail },
        other => input(other),
    }
}

fn send<R>(from: Place, effect: Effect<seriatim_protocol::Message, R>, sends: &mut Vec<Arc<Packet>>) {
    if let Effect::Send { to, message } = effect
        && let Some(to) = Place::of(to)
    {
        sends.extend(Packet::new(from, to, message).map(Arc::new));
    }
}

fn canonical(text: &str) -> String {
    let text = text.split("timings: Timings").next().unwrap_or(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = ["Time(", "Ticket("].iter().filter_map(|name| rest.find(name)).min() {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        rest = &after[after.find(')').unwrap_or(after.len())..];
    }
    out.push_str(rest);
    out
}

fn without_slots(text: &str) -> String {
    let number = |text: &str| {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        (text[..digits].parse::<u64>().unwrap_or_default(), digits)
    };
    let Some((before, after)) = text.split_once("first_slot: ") else { return text.to_owned() };
    let (first, digits) = number(after);
    // Omits the map by session: the slots already name their sessions.
    let Some((slots, after)) = after[digits..].split_once("by_session: {") else { return text.to_owned() };
    let mut parts = after.split_once('}').map_or("", |(_, after)| after).split("next_slot: ");
    let mut out = format!("{before}{slots}{}", parts.next().unwrap_or_default());
    for part in parts {
        let (next, digits) = number(part);
        out.push_str(&format!("next_slot: {}{}", next.saturating_sub(first), &part[digits..]));
    }
    out
}
