//! Programs of the laboratory's clients: the machines of the client library.

use std::time::Duration;

use seriatim_delivery::{Fetch, Selection, Subscriber, fetch, subscriber};
use seriatim_model::{
    Address, Effect, Endpoint, Input, Machine, NodeId, Peer, Position, Record, Time, limits,
};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::parts::appending::{AppendSpec, LogClientConfig, Reply, Request};
use seriatim_protocol::{LogClient, Message, Options};

use crate::lab::REGISTER;

pub(crate) enum Program {
    Appender(Box<LogClient>),
    Reader(Box<Fetch>),
    Subscriber(Box<Subscriber>),
}

pub(crate) enum Ask {
    OpenSession,
    Append(Record, AppendSpec),
    CheckTail,
    Read(Position),
}

#[derive(Debug)]
pub(crate) enum Answer {
    Appending(Reply),
    Read(fetch::Reply),
    Subscription(subscriber::Event),
}

impl Answer {
    /// The position at which it delivers this payload.
    pub(crate) fn hands_over(&self, payload: &[u8]) -> Option<Position> {
        let Self::Subscription(subscriber::Event::Deliver { records, .. }) = self else { return None };
        records.iter().find(|stored| stored.record.payload() == payload).map(|stored| stored.position)
    }

    pub(crate) fn confirms(&self, position: Position) -> bool {
        matches!(self, Self::Subscription(subscriber::Event::Confirm { upto } | subscriber::Event::Passed { upto }) if *upto > position)
    }

    pub(crate) fn takes_back(&self) -> bool {
        matches!(self, Self::Subscription(subscriber::Event::Fail { .. }))
    }
}

#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) at: Time,
    pub(crate) client: u64,
    pub(crate) token: u64,
    pub(crate) answer: Answer,
}

pub(crate) enum Happened {
    Message(NodeId, Endpoint, Message),
    Disconnected(NodeId),
    Timer,
}

impl<Q> From<Happened> for Input<Message, Q> {
    fn from(happened: Happened) -> Self {
        match happened {
            Happened::Message(node, endpoint, message) => {
                Self::Message { from: Address::Node(node, endpoint), message }
            }
            Happened::Disconnected(node) => Self::Disconnected(Peer::Node(node)),
            Happened::Timer => Self::Wake,
        }
    }
}

#[derive(Default)]
pub(crate) struct Done {
    pub(crate) sends: Vec<(NodeId, Endpoint, Message)>,
    pub(crate) told: Vec<(u64, Answer)>,
}

impl Program {
    /// A program that appends. `random` distinguishes clients.
    pub(crate) fn appender(entry: &LogEntry, random: u64) -> Self {
        let config = LogClientConfig { control: REGISTER, random, resume: None, options: Options::default() };
        Self::Appender(Box::new(LogClient::new(config, entry.clone())))
    }

    pub(crate) fn reader(entry: &LogEntry) -> Self {
        Self::Reader(Box::new(Fetch::new(REGISTER, entry.clone(), Options::default())))
    }

    /// Subscribes from `from` on. Begins at once.
    pub(crate) fn subscriber(entry: &LogEntry, from: Position) -> Self {
        Self::subscriber_with(entry, from, Selection::default())
    }

    /// As `subscriber`, with predictions.
    pub(crate) fn speculator(entry: &LogEntry, from: Position) -> Self {
        Self::subscriber_with(entry, from, Selection { speculative: true, ..Selection::default() })
    }

    fn subscriber_with(entry: &LogEntry, from: Position, selection: Selection) -> Self {
        let (window, options) = (limits::SUBSCRIPTIONS_BYTES, Options::default());
        let range = (from, None);
        let mut subscriber = Subscriber::with(REGISTER, entry.clone(), range, window, selection, options);
        let request = subscriber::Request::Want { records: 1 << 20, bytes: 1 << 30 };
        let mut effects = vec![];
        subscriber.step(Time::ZERO, Input::Request { token: 0, request }, &mut effects);
        assert!(effects.is_empty(), "a subscription begins with its first timer");
        Self::Subscriber(Box::new(subscriber))
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        match self {
            Self::Appender(machine) => machine.deadline(),
            Self::Reader(machine) => machine.deadline(),
            Self::Subscriber(machine) => machine.deadline(),
        }
    }

    pub(crate) fn ask(&mut self, now: Time, token: u64, ask: Ask) -> Done {
        let request = match (&mut *self, ask) {
            (Self::Reader(machine), Ask::Read(from)) => {
                let (wait, answer_within) = (Duration::ZERO, Duration::from_secs(60));
                let request = fetch::Request::Read { from, max: 1, wait, answer_within };
                return step(&mut **machine, now, Input::Request { token, request }, Answer::Read);
            }
            (Self::Appender(_), Ask::OpenSession) => Request::OpenSession,
            (Self::Appender(_), Ask::Append(record, spec)) => Request::Append { record, spec },
            (Self::Appender(_), Ask::CheckTail) => Request::CheckTail,
            _ => unreachable!("the client runs another program"),
        };
        let Self::Appender(machine) = self else { unreachable!("only appenders are left") };
        step(&mut **machine, now, Input::Request { token, request }, Answer::Appending)
    }

    pub(crate) fn happens(&mut self, now: Time, what: Happened) -> Done {
        match self {
            Self::Appender(machine) => step(&mut **machine, now, what.into(), Answer::Appending),
            Self::Reader(machine) => step(&mut **machine, now, what.into(), Answer::Read),
            Self::Subscriber(machine) => step(&mut **machine, now, what.into(), Answer::Subscription),
        }
    }
}

fn step<M: Machine<Message = Message>>(
    machine: &mut M,
    now: Time,
    input: Input<Message, M::Request>,
    answer: fn(M::Reply) -> Answer,
) -> Done {
    let mut effects = vec![];
    machine.step(now, input, &mut effects);
    let mut done = Done::default();
    for effect in effects {
        match effect {
            Effect::Send { to: Address::Node(node, endpoint), message } => {
                done.sends.push((node, endpoint, message));
            }
            Effect::Reply { token, reply } => done.told.push((token, answer(reply))),
            _ => unreachable!("a client has no disk, and speaks to nodes"),
        }
    }
    done
}
