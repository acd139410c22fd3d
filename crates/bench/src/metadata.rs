//! `seriatim bench metadata`: names (record ids) per second that one sequencing replica orders, in
//! one thread.
//!
//! The replica is the real leader, at durability `memory`. The bench times its node's work without
//! sockets, tasks and journal: decoding frames of names; admitting, ordering and dropping the
//! names; encoding messages. The answers of clients, shards and followers are encoded outside of
//! that time and decoded within it. The figure counts processor time, so that other load does not
//! disturb it; elapsed time is shown beside it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::{Durability, LogConfig, Order, Position, SessionId};
use seriatim_model::limits::Limits;
use seriatim_model::{
    Address, ConnectionId, Effect, Endpoint, Incarnation, Input, LogId, Machine, Member, NodeId, Placement,
    ShardId, ShardMembers, Time, View, ViewHistory, ViewNumber,
};
use seriatim_net::{FrameDecoder, message_frame, open_message};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::erwin::Sequencer;
use seriatim_protocol::parts::{Carried, Content};
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::{Message, Options, erwin, shard};

use super::chart::Chart;
use super::figure::Figure;
use super::figures::Measured;
use super::machine::cpu_time_of_this_thread;
use super::presentation::{Presentation, check};
use super::report::{Row, Subject};
use crate::arguments::MetadataArguments;
use crate::terminal::{Failure, Outcome, steps};

const LOG: LogId = LogId(1);
const VIEW: ViewNumber = ViewNumber(1);
/// Node of the first shard's only replica; the next nodes have the other shards.
const FIRST_SHARD: u32 = 100;

const FIGURES: [Figure; 2] = [Figure::Names, Figure::NamesOnTheClock];

pub(super) const PRESENTATION: Presentation = Presentation {
    figures: &FIGURES,
    remark: |_, table| {
        table.remark("names per second of one processor");
        table.remark(
            "with decoding, admission, ordering, dropping and encoding; without sockets, tasks and journal",
        );
    },
    charts: |rows| vec![Chart::bars("Names per second of one processor", rows, Figure::Names)],
};

pub(super) fn run(arguments: &MetadataArguments) -> Outcome {
    let repeat = &arguments.repeat;
    check(repeat)?;
    let bar = steps(u64::from(repeat.rounds) * arguments.batch.len() as u64);
    let mut found: Vec<Vec<Measured>> = arguments.batch.iter().map(|_| vec![]).collect();
    for number in 1..=repeat.rounds {
        bar.set_message(format!("round {number}"));
        for (batch, found) in arguments.batch.iter().zip(&mut found) {
            found.push(round(arguments, *batch)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let row = |(batch, rounds): (&u64, Vec<Measured>)| {
        let at_once = if *batch == 1 { "1 name".to_owned() } else { format!("{batch} names") };
        Row::new(Subject::named(format!("{at_once} at once")), rounds)
    };
    let rows = arguments.batch.iter().zip(found).map(row).collect();
    let circumstances = format!(
        "one leader, {} followers, {} shards, {} clients",
        arguments.followers, arguments.shards, arguments.clients
    );
    PRESENTATION.tell(rows, repeat, &[circumstances])
}

fn round(arguments: &MetadataArguments, batch: u64) -> Result<Measured, Failure> {
    let mut bench = Bench::new(arguments, batch)?;
    let enough = Duration::from_secs(arguments.duration);
    while bench.on_the_clock < enough {
        bench.drain(true)?;
    }
    while bench.machine.held() > 0 {
        bench.drain(false)?;
    }
    let ordered = bench.machine.ordered();
    if ordered != Position(bench.sent) {
        return Err(Failure::new(format!("{ordered} of {} names were ordered", bench.sent)));
    }
    let per_second = |took: Duration| bench.sent as f64 / took.as_secs_f64();
    let (of_processor, of_clock) = (per_second(bench.took), per_second(bench.on_the_clock));
    Ok(Measured::of([(Figure::Names, of_processor), (Figure::NamesOnTheClock, of_clock)]))
}

struct Bench<'a> {
    arguments: &'a MetadataArguments,
    /// Names per message of a client.
    batch: u64,
    machine: Sequencer,
    /// Number of names that each client has sent.
    next: u64,
    sent: u64,
    /// Answers of clients, shards and followers, delivered with the next drain.
    answers: Vec<(Address, Message)>,
    took: Duration,
    on_the_clock: Duration,
}

impl<'a> Bench<'a> {
    fn new(arguments: &'a MetadataArguments, batch: u64) -> Result<Self, Failure> {
        let member = |node: u32| Member { node: NodeId(node), incarnation: Incarnation(1) };
        let config = LogConfig {
            order: Order::ErwinSt,
            durability: Durability::Memory,
            shards: arguments.shards,
            sequencers: arguments.followers + 1,
            ..LogConfig::default()
        };
        // Order at once, so that no further names gather beyond the requested batch.
        let limits = Limits { order_every: Duration::ZERO, ..Limits::default() };
        let options = Options { limits, ..Options::default() };
        let machine = Sequencer::new(member(1), config.clone(), options);
        let mut bench = Self {
            arguments,
            batch,
            machine,
            next: 0,
            sent: 0,
            answers: vec![],
            took: Duration::ZERO,
            on_the_clock: Duration::ZERO,
        };
        let shards: Vec<ShardId> = (0..arguments.shards).map(ShardId).collect();
        let members = |shard: &ShardId| ShardMembers {
            shard: *shard,
            begins: Position(0),
            replicas: vec![member(FIRST_SHARD + shard.0)],
        };
        let view = View {
            number: VIEW,
            sequencers: (1..=config.sequencers).map(member).collect(),
            leader: NodeId(1),
            shards: shards.iter().map(members).collect(),
            retired: vec![],
            placement: Placement::new(shards, config.stripe),
            first: Position(0),
            start: Position(0),
        };
        let mut history = ViewHistory::default();
        history.push(VIEW, Position(0));
        let entry = LogEntry {
            id: LOG,
            name: "metadata".into(),
            config: config.clone(),
            sequencers: vec![],
            shards: vec![],
            leaving: vec![],
            version: 1,
            claimed: VIEW,
            claimant: 0,
            view: Some(view),
            history,
            unavailable: None,
            ended: control::EndedSessions::default(),
            pins: vec![],
        };
        let controller = Address::Node(NodeId(1), Endpoint::Controller);
        let (ordered, carried) = (Position(0), Carried::default());
        let old = ViewNumber::NONE;
        bench.step(
            controller,
            control::Message::Stage { claim: VIEW, old, config, ordered, carried }.into(),
        )?;
        bench.step(controller, control::Message::Registered { entry }.into())?;
        if bench.machine.is_open() { Ok(bench) } else { Err(Failure::new("the replica does not lead")) }
    }

    /// Delivers to the replica all answers and, if `has_names`, the clients' next names.
    fn drain(&mut self, has_names: bool) -> Outcome {
        let mut frames = vec![];
        for (from, answer) in self.answers.drain(..) {
            frames.push((from, message_frame(LOG, Endpoint::Node, Endpoint::Sequencer, &answer)?));
        }
        if has_names {
            for client in 0..self.arguments.clients {
                frames.push((Address::Client(ConnectionId(client), 1), self.names(client)?));
            }
            self.next += self.batch;
            self.sent += self.batch * self.arguments.clients;
        }
        let (began, before) = (Instant::now(), cpu_time_of_this_thread());
        let mut decoder = FrameDecoder::new();
        for (from, chunks) in frames {
            chunks.iter().for_each(|chunk| decoder.feed(chunk));
            let frame = decoder.next_frame()?.ok_or_else(|| Failure::new("a frame is cut off"))?;
            let (_, _, _, message) = open_message::<Message>(frame)?;
            self.step(from, message)?;
        }
        if self.machine.deadline() == Some(Time::ZERO) {
            let mut out = vec![];
            self.machine.step(Time::ZERO, Input::Wake, &mut out);
            self.perform(out)?;
        }
        self.took += cpu_time_of_this_thread().saturating_sub(before);
        self.on_the_clock += began.elapsed();
        Ok(())
    }

    fn names(&self, client: u64) -> Result<Vec<Bytes>, Failure> {
        let session = SessionId::new(Position(0), client + 1);
        let shards = u64::from(self.arguments.shards);
        let (first, end) = (self.next, self.next + self.batch);
        let shard = |number| ShardId((number % shards) as u32);
        let entries = (first..end).map(|number| Content::Put { shard: shard(number), bytes: 0 }).collect();
        let append = erwin::Message::Append { view: VIEW, session, first, lowest: first, entries };
        Ok(message_frame(LOG, Endpoint::Client(1), Endpoint::Sequencer, &Message::from(append))?)
    }

    fn step(&mut self, from: Address, message: Message) -> Outcome {
        let mut out = vec![];
        self.machine.step(Time::ZERO, Input::Message { from, message }, &mut out);
        self.perform(out)
    }

    /// Encodes messages. Writes are durable at once.
    fn perform(&mut self, effects: Vec<Effect<Message, std::convert::Infallible>>) -> Outcome {
        let mut written = None;
        for effect in effects {
            match effect {
                Effect::Send { to, message } => {
                    let frame = message_frame(LOG, Endpoint::Sequencer, Endpoint::Node, &message)?;
                    std::hint::black_box(&frame);
                    self.answers.extend(answer(&message).map(|answer| (to, answer)));
                }
                Effect::Persist { ticket, .. } => written = Some(ticket),
                _ => {}
            }
        }
        if let Some(ticket) = written {
            let mut out = vec![];
            self.machine.step(Time::ZERO, Input::Persisted(ticket), &mut out);
            self.perform(out)?;
        }
        Ok(())
    }
}

fn answer(message: &Message) -> Option<Message> {
    match message {
        Message::ErwinShard(erwin::ShardMessage::Order { view, batch, stable, .. }) => {
            Some(shard::Message::Bound { view: *view, batch: *batch, stable: *stable, voids: vec![] }.into())
        }
        Message::Erwin(erwin::Message::Truncate { view, from, runs }) => {
            let ordered = *from + runs.iter().map(|run| run.ids.count).sum::<u64>();
            Some(erwin::Message::TruncateAck { view: *view, ordered }.into())
        }
        _ => None,
    }
}
