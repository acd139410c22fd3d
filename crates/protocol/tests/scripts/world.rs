//! The machine of a script, with a clock, a disk and a register.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::limits::Limits;
use seriatim_model::retention::{Extent, StoreUse};
use seriatim_model::storage::{Found, ReadFailure, ReadRange, StorageCommand, StorageFailure, Stored};
use seriatim_model::{
    Address, Durability, Effect, Incarnation, Input, LogConfig, LogId, Machine, Member, NodeId, Order,
    Position, Record, ShardId, Ticket, Time, ViewHistory, ViewNumber,
};
use seriatim_protocol::control::controller::Controller;
use seriatim_protocol::control::register::Register;
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::parts::ShardChoice;
use seriatim_protocol::parts::appending::{AppendSpec, ClientEffect, LogClientConfig, Request};
use seriatim_protocol::roles::{
    RoleEffect, RoleInput, SequencingRole, new_sequencing_role, recover_sequencing_role,
};
use seriatim_protocol::shard::{self, Replica};
use seriatim_protocol::{LogClient, Message, Options};

use crate::chains::read_spans;
use crate::effects;
use crate::messages;
use crate::store;
use crate::words::{Parsed, Words, address, read_address, read_gap, read_member, read_view};

const CONTROL: NodeId = NodeId(1);

pub(crate) struct World {
    now: Time,
    machine: Option<Role>,
    me: Member,
    limits: Limits,
    /// The register's entry, and the last question to it.
    entry: LogEntry,
    asked: Option<control::Message>,
    issued: Ticket,
    durable: Ticket,
    journal: Vec<(Ticket, Bytes)>,
    store: Vec<(Ticket, StorageCommand)>,
    reads: BTreeMap<Ticket, ReadRange>,
    happened: Vec<String>,
}

enum Role {
    Sequencer(Box<dyn SequencingRole>),
    Shard(Box<Replica>, ShardId),
    Controller(Controller),
    Register(Register),
    Client(Box<LogClient>),
}

impl Default for World {
    fn default() -> Self {
        let node = |node: u32| NodeId(node);
        Self {
            now: Time::ZERO,
            machine: None,
            me: Member { node: NodeId(1), incarnation: Incarnation(1) },
            limits: Limits::default(),
            entry: LogEntry {
                id: LogId(1),
                name: "orders".into(),
                config: LogConfig::default(),
                sequencers: [1, 2, 3].map(node).to_vec(),
                shards: vec![[4, 5].map(node).to_vec()],
                leaving: vec![],
                version: 1,
                claimed: ViewNumber::NONE,
                claimant: 0,
                view: None,
                history: ViewHistory::default(),
                unavailable: None,
                ended: control::EndedSessions::default(),
                pins: vec![],
            },
            asked: None,
            issued: Ticket(0),
            durable: Ticket(0),
            journal: vec![],
            store: vec![],
            reads: BTreeMap::new(),
            happened: vec![],
        }
    }
}

impl World {
    /// Effects since the last call. Five or more equal ones become one line.
    pub(crate) fn take_effects(&mut self) -> Vec<String> {
        let happened = std::mem::take(&mut self.happened);
        let runs = happened.chunk_by(|a, b| a == b);
        let lines = runs.flat_map(|run| match run.len() {
            1..5 => run.to_vec(),
            count => vec![format!("{} ({count} times)", run[0])],
        });
        lines.collect()
    }

    pub(crate) fn command(&mut self, line: &str) -> Parsed<()> {
        let mut words = Words::new(line);
        let first = words.next()?;
        match first.as_str() {
            "log" => self.log(&mut words)?,
            "view" => self.view(&mut words)?,
            "unavailable" => self.entry.unavailable = Some("no view can be formed".into()),
            "claim" => {
                self.entry.claimed = words.view()?;
                let node: u64 = words.value("node")?.unwrap_or(0);
                self.entry.claimant = node << 32 | 999;
                self.entry.version += 1;
            }
            "sequencer" | "shard" | "controller" | "register" | "client" => {
                if first == "register" && (words.has("answers") || line.ends_with("applies")) {
                    let answers = !words.has("applies");
                    self.register_decides(answers)?;
                } else {
                    self.create(&first, &mut words)?;
                }
            }
            "restart" => {
                if words.has("lost") {
                    self.me.incarnation.0 += 1;
                    self.journal.clear();
                }
                self.restart()?;
            }
            "wait" => self.wait(&words.next()?)?,
            _ => match self.input(&first, &mut words)? {
                Some(input) => self.step(input)?,
                None => return Err(format!("no command is called '{first}'")),
            },
        }
        words.end()
    }

    /// Wakes the machine while it is due.
    pub(crate) fn drain(&mut self) -> Parsed<()> {
        for _ in 0..100 {
            if self.deadline().is_none_or(|at| at > self.now) {
                return Ok(());
            }
            self.step(Input::Wake)?;
        }
        Err("the machine wants to be woken for ever".into())
    }

    /// Waits for a time such as `4ms`, and wakes the machine when it is due.
    fn wait(&mut self, text: &str) -> Parsed<()> {
        let ms = text.strip_suffix("ms").and_then(|ms| ms.parse().ok()).ok_or("how many ms?")?;
        let end = self.now + Duration::from_millis(ms);
        self.drain()?;
        while let Some(at) = self.deadline().filter(|at| *at <= end) {
            self.now = at;
            self.drain()?;
        }
        self.now = end;
        Ok(())
    }

    fn log(&mut self, words: &mut Words) -> Parsed<()> {
        fn numbers(text: &str, by: char) -> Parsed<Vec<NodeId>> {
            let node = |word: &str| word.parse().map(NodeId).map_err(|_| format!("which node is '{word}'?"));
            text.split(by).map(node).collect()
        }
        let (entry, limits) = (&mut self.entry, &mut self.limits);
        if let Some(nodes) = words.value::<String>("sequencers")? {
            entry.sequencers = numbers(&nodes, ',')?;
        }
        if let Some(shards) = words.value::<String>("shards")? {
            entry.shards = shards.split(',').map(|nodes| numbers(nodes, '+')).collect::<Parsed<_>>()?;
        }
        entry.leaving = words.shards("leaving")?;
        let config = &mut entry.config;
        config.durability = words.value("durability")?.unwrap_or(Durability::Memory);
        config.order = words.value("order")?.unwrap_or(Order::ErwinBb);
        config.stripe = words.value("stripe")?.unwrap_or(1);
        config.window = words.value("window")?.unwrap_or(config.window);
        config.shards = entry.shards.len() as u32;
        config.sequencers = entry.sequencers.len() as u32;
        config.replicas = entry.shards.iter().map(Vec::len).max().unwrap_or(1) as u32;
        config.min_sequencers = words.value("min-sequencers")?.unwrap_or(2);
        config.min_replicas = words.value("min-replicas")?.unwrap_or(2);
        config.max_record_bytes = words.value("max-record-bytes")?.unwrap_or(config.max_record_bytes);
        let idle = words.value("idle-positions")?.unwrap_or(config.session_idle_positions);
        config.session_idle_positions = idle;
        limits.ring_records = words.value("ring-records")?.unwrap_or(limits.ring_records);
        limits.ring_bytes = words.value("ring-bytes")?.unwrap_or(limits.ring_bytes);
        limits.batch_records = words.value("batch-records")?.unwrap_or(limits.batch_records);
        limits.batch_bytes = words.value("batch-bytes")?.unwrap_or(limits.batch_bytes);
        let replace_after = words.value("replace-after-ms")?.map(Duration::from_millis);
        limits.replace_after = replace_after.unwrap_or(limits.replace_after);
        let orphan_check_after = words.value("orphan-check-after-ms")?.map(Duration::from_millis);
        limits.orphan_check_after = orphan_check_after.unwrap_or(limits.orphan_check_after);
        // Batches do not gather by default, so that each event has its own effect.
        limits.order_every = Duration::from_millis(words.value("order-every-ms")?.unwrap_or(0));
        limits.waiting_reads = words.value("waiting-reads")?.unwrap_or(limits.waiting_reads);
        limits.waiting_locates = words.value("waiting-locates")?.unwrap_or(limits.waiting_locates);
        limits.held_records = words.value("held-records")?.unwrap_or(limits.held_records);
        limits.void_runs = words.value("void-runs")?.unwrap_or(limits.void_runs);
        limits.max_sessions = words.value("max-sessions")?.unwrap_or(limits.max_sessions);
        Ok(())
    }

    /// Registers a view. `lost=0@3..5` accepts the loss of a shard's positions; `trimmed=7`: every
    /// replica has trimmed below 7.
    fn view(&mut self, words: &mut Words) -> Parsed<()> {
        let gap = words.value::<String>("lost")?.map(|word| read_gap(&word)).transpose()?;
        let trimmed = words.position("trimmed")?;
        let view = read_view(words, &self.entry)?;
        let entry = &mut self.entry;
        entry.claimed = entry.claimed.max(view.number);
        entry.history.push(view.number, view.first);
        gap.into_iter().for_each(|gap| entry.history.give_up(gap));
        entry.history.forget_views_below(trimmed);
        entry.view = Some(view);
        entry.version += 1;
        Ok(())
    }

    fn register_decides(&mut self, answers: bool) -> Parsed<()> {
        match self.asked.take().ok_or("the register was not asked")? {
            control::Message::CompareAndSet { entry } if entry.version == self.entry.version => {
                self.entry = LogEntry { version: entry.version + 1, ..entry };
            }
            _ => {}
        }
        let (from, _) = read_address("register")?;
        let message = control::Message::Current { entry: self.entry.clone() }.into();
        if answers { self.step(Input::Message { from, message }) } else { Ok(()) }
    }

    fn create(&mut self, kind: &str, words: &mut Words) -> Parsed<()> {
        let options = Options { limits: self.limits, ..Options::default() };
        let config = self.entry.config.clone();
        self.machine = Some(match kind {
            "sequencer" => {
                self.me = read_member(&words.next()?)?;
                Role::Sequencer(new_sequencing_role(self.me, config, options))
            }
            "shard" => {
                let word = words.next()?;
                let (shard, member) = word.split_once('.').ok_or("which shard, on which node?")?;
                let shard = ShardId(shard.parse().map_err(|_| "which shard?")?);
                self.me = read_member(member)?;
                let replica = Replica::new(self.me, shard, config, options);
                self.store = vec![(Ticket(0), StorageCommand::Remember(replica.memory().clone()))];
                Role::Shard(Box::new(replica), shard)
            }
            "controller" => {
                let node = words.value("node")?.map_or(CONTROL, NodeId);
                Role::Controller(Controller::new(self.entry.id, node, CONTROL, 1, options))
            }
            "register" => Role::Register(Register::new(CONTROL, Options::default())),
            _ => {
                let resume = words.value::<String>("resume")?;
                let resume = resume.map(|word| Words::new(&word).record()).transpose()?;
                let resume = resume.map(|(id, _)| (id.session, id.number));
                let random = words.value("random")?.unwrap_or(1);
                let config = LogClientConfig { control: CONTROL, random, resume, options };
                Role::Client(Box::new(LogClient::new(config, self.entry.clone())))
            }
        });
        if words.has("opened") {
            self.open_session()
        } else if words.has("in") {
            self.join(words.view()?)
        } else {
            Ok(())
        }
    }

    /// Opens the client's session in an empty log.
    fn open_session(&mut self) -> Parsed<()> {
        self.command("request 0 session")?;
        self.drain()?;
        let members = self.entry.view.as_ref().map(|view| view.sequencers.clone()).unwrap_or_default();
        let end = if self.entry.config.order.has_cuts() { "tail" } else { "count" };
        for member in members {
            let (node, view) = (member.node, self.entry.view_number());
            self.command(&format!("seq{node}: tail v{view} request=1 {end}=0"))?;
        }
        self.take_effects();
        Ok(())
    }

    /// Makes the machine start a view.
    fn join(&mut self, number: ViewNumber) -> Parsed<()> {
        if self.entry.view_number() != number {
            self.view(&mut Words::new(&format!("v{number}")))?;
        }
        let start = self.entry.view.as_ref().map_or(Position::ZERO, |view| view.start);
        match self.machine {
            Some(Role::Sequencer(_)) => {
                self.command(&format!("controller: stage v{number} ordered={start}"))?
            }
            Some(Role::Shard(..)) => {
                // Fences the shard as for the first view of a log; the number may be any.
                let entry = LogEntry { view: None, ..self.entry.clone() };
                let message = shard::Message::Fence { claim: number, entry }.into();
                self.step(Input::Message { from: read_address("controller")?.0, message })?;
            }
            _ => return Err("only a replica takes part in a view".into()),
        }
        self.command("controller: registered")?;
        self.command("persisted")?;
        self.take_effects();
        Ok(())
    }

    fn restart(&mut self) -> Parsed<()> {
        let durable = self.durable;
        let options = Options { limits: self.limits, ..Options::default() };
        self.journal.retain(|(ticket, _)| *ticket <= durable);
        self.store.retain(|(ticket, _)| *ticket <= durable);
        self.journal.iter_mut().for_each(|(ticket, _)| *ticket = Ticket(0));
        self.store.iter_mut().for_each(|(ticket, _)| *ticket = Ticket(0));
        (self.issued, self.durable) = (Ticket(0), Ticket(0));
        let journal = self.journal.iter().map(|(_, entry)| entry.clone());
        let config = self.entry.config.clone();
        let damaged = |_| "the journal cannot be read".to_owned();
        self.machine = Some(match self.machine.take().ok_or("there is no machine")? {
            Role::Sequencer(role) if role.keeps() => {
                let role = recover_sequencing_role(self.me, config, options, journal);
                Role::Sequencer(role.map_err(damaged)?)
            }
            Role::Register(_) => {
                Role::Register(Register::recover(CONTROL, Options::default(), journal).map_err(damaged)?)
            }
            Role::Shard(_, shard) => {
                let commands = self.store.iter().map(|(_, command)| command);
                let found = store::recovered(shard, commands);
                let replica = Replica::recover(self.me, shard, found, options);
                Role::Shard(Box::new(replica.ok_or("the store is empty")?), shard)
            }
            Role::Controller(_) | Role::Client(_) | Role::Sequencer(_) => {
                return Err("it keeps nothing: make a new one".into());
            }
        });
        Ok(())
    }

    pub(crate) fn read_back(&self, line: &str) -> Parsed<String> {
        let mut words = Words::new(line);
        let sender = words.next()?;
        let from = read_address(sender.trim_end_matches(':'))?;
        let kind = words.next()?;
        let message = messages::read(&kind, &mut words, from, &self.entry)?;
        words.end()?;
        Ok(format!("{sender} {}", effects::message(&message)))
    }

    fn input(&mut self, first: &str, words: &mut Words) -> Parsed<Option<Input<Message, Request>>> {
        if let Some(sender) = first.strip_suffix(':') {
            let (from, incarnation) = read_address(sender)?;
            let kind = words.next()?;
            let message = messages::read(&kind, words, (from, incarnation), &self.entry)?;
            return Ok(Some(Input::Message { from, message }));
        }
        let number = |word: String| {
            word.trim_start_matches('#').parse::<u64>().map_err(|_| format!("which number is '{word}'?"))
        };
        Ok(Some(match first {
            "request" => Input::Request { token: number(words.next()?)?, request: request(words)? },
            "persisted" => {
                self.durable = words.next().map_or(Ok(self.issued), |word| number(word).map(Ticket))?;
                Input::Persisted(self.durable)
            }
            "store-failed" => {
                let ticket = Ticket(number(words.next()?)?);
                self.store.retain(|(stored, _)| *stored != ticket);
                Input::StoreFailed(ticket, StorageFailure::Full)
            }
            "read" => {
                let ticket = Ticket(number(words.next()?)?);
                let damaged = words.value("damaged")?.map(Position);
                let range = self.reads.remove(&ticket).ok_or_else(|| format!("no read is #{}", ticket.0))?;
                let empty = words.value::<String>("empty")?.map(|spans| read_spans(&spans)).transpose()?;
                let records = messages::read_stored(words);
                let upto = words.value("upto")?.map_or_else(|| upto(&records, range), Position);
                let found = Found { records, empty: empty.unwrap_or_default(), upto };
                Input::Read(ticket, damaged.map_or(Ok(found), |at| Err(ReadFailure::Damaged(at))))
            }
            "found" => Input::Found(Ticket(number(words.next()?)?), words.records()),
            "measured" => {
                let ticket = Ticket(number(words.next()?)?);
                let extent = |(end, bytes)| Extent { end: Position(end), bytes };
                let extents = words.pairs("parts")?.into_iter().map(extent).collect();
                let going = words.value("going")?.unwrap_or_default();
                let usage = StoreUse { bytes: words.number("bytes")?, extents };
                Input::Measured(ticket, usage, going, words.ids())
            }
            "mapped" => Input::Mapped(Ticket(number(words.next()?)?), words.owned()?),
            "disk" => match words.next()?.as_str() {
                "behind" => Input::Pressed(true),
                "keeps-up" => Input::Pressed(false),
                room => Input::DiskFull(room == "full"),
            },
            "suspected" => Input::Suspected(NodeId(number(words.next()?)? as u32)),
            "alive" => Input::Alive(NodeId(number(words.next()?)? as u32)),
            "pressed" => Input::Pressed(true),
            "relieved" => Input::Pressed(false),
            "disconnected" => Input::Disconnected(read_address(&words.next()?)?.0.peer()),
            _ => return Ok(None),
        }))
    }

    fn deadline(&self) -> Option<Time> {
        match self.machine.as_ref()? {
            Role::Sequencer(machine) => machine.deadline(),
            Role::Shard(machine, _) => machine.deadline(),
            Role::Controller(machine) => machine.deadline(),
            Role::Register(machine) => machine.deadline(),
            Role::Client(machine) => machine.deadline(),
        }
    }

    fn step(&mut self, input: Input<Message, Request>) -> Parsed<()> {
        let now = self.now;
        let mut machine = self.machine.take().ok_or("there is no machine yet")?;
        if let Role::Client(client) = &mut machine {
            let mut out = vec![];
            client.step(now, input, &mut out);
            assert_host_admits(&out);
            out.into_iter().for_each(|effect| self.perform(effect, effects::reply));
        } else {
            let mut out: Vec<RoleEffect> = vec![];
            let input = for_role(input)?;
            match &mut machine {
                Role::Sequencer(role) => role.step(now, input, &mut out),
                Role::Shard(role, _) => role.step(now, input, &mut out),
                Role::Controller(role) => role.step(now, input, &mut out),
                Role::Register(role) => role.step(now, input, &mut out),
                Role::Client(_) => unreachable!("seen above"),
            }
            out.into_iter().for_each(|effect| self.perform(effect, |never| match *never {}));
        }
        self.machine = Some(machine);
        Ok(())
    }

    fn perform<R>(&mut self, effect: Effect<Message, R>, show: impl Fn(&R) -> String) {
        let line = match effect {
            Effect::Send { to, message } => {
                self.remember_question(to, &message);
                format!("-> {}: {}", address(to), effects::message(&message))
            }
            Effect::Persist { ticket, entry } => {
                self.issued = ticket;
                self.journal.push((ticket, entry.concat().into()));
                format!("persist #{}", ticket.0)
            }
            Effect::Store { ticket, command } => {
                self.issued = ticket;
                let line = format!("store #{} {}", ticket.0, effects::command(&command));
                self.store.push((ticket, command));
                line
            }
            Effect::Read { ticket, range, .. } => {
                self.reads.insert(ticket, range);
                format!("read #{} {}..{}", ticket.0, range.from, range.end)
            }
            Effect::Find { ticket, ids } => format!("find #{}{}", ticket.0, effects::ids(&ids)),
            Effect::Measure { ticket } => format!("measure #{}", ticket.0),
            Effect::Map { ticket, from, end } => format!("map #{} {from}..{end}", ticket.0),
            Effect::Reply { token, reply } => format!("reply {token} {}", show(&reply)),
        };
        self.happened.push(line);
    }

    fn remember_question(&mut self, to: Address, message: &Message) {
        if let (Message::Control(message), true) = (message, address(to) == "register") {
            self.asked = Some(message.clone());
        }
    }
}

fn for_role(input: Input<Message, Request>) -> Parsed<RoleInput> {
    Ok(match input {
        Input::Message { from, message } => Input::Message { from, message },
        Input::Disconnected(peer) => Input::Disconnected(peer),
        Input::Suspected(node) => Input::Suspected(node),
        Input::Alive(node) => Input::Alive(node),
        Input::Persisted(ticket) => Input::Persisted(ticket),
        Input::StoreFailed(ticket, failure) => Input::StoreFailed(ticket, failure),
        Input::Read(ticket, outcome) => Input::Read(ticket, outcome),
        Input::Found(ticket, records) => Input::Found(ticket, records),
        Input::Mapped(ticket, owned) => Input::Mapped(ticket, owned),
        Input::Measured(ticket, usage, going, ids) => Input::Measured(ticket, usage, going, ids),
        Input::Wall(wall_ms) => Input::Wall(wall_ms),
        Input::DiskFull(full) => Input::DiskFull(full),
        Input::FullDisk(node, full) => Input::FullDisk(node, full),
        Input::Pressed(pressed) => Input::Pressed(pressed),
        Input::Wake => Input::<Message, Infallible>::Wake,
        Input::Request { .. } => return Err("only a client takes requests".into()),
    })
}

fn request(words: &mut Words) -> Parsed<Request> {
    Ok(match words.next()?.as_str() {
        "append" => append(words, false)?,
        "append-sync" => append(words, true)?,
        "check-tail" => Request::CheckTail,
        "session" => Request::OpenSession,
        "end-session" => Request::EndSession,
        other => return Err(format!("no request is called '{other}'")),
    })
}

/// Reads an append: a record, `shard=1` or `shard=in-turn`, `again-until-ms=100`.
fn append(words: &mut Words, sync: bool) -> Parsed<Request> {
    let record = record(words)?;
    let shard = match words.value::<String>("shard")?.as_deref() {
        None => ShardChoice::ByKey,
        Some("in-turn") => ShardChoice::InTurn,
        Some(number) => {
            ShardChoice::Fixed(ShardId(number.parse().map_err(|_| format!("what is '{number}'?"))?))
        }
    };
    let again_until = Time::ZERO + Duration::from_millis(words.number("again-until-ms")?);
    Ok(Request::Append { record, spec: AppendSpec { sync, shard, again_until } })
}

/// `a0`, or `a0 key=k`.
fn record(words: &mut Words) -> Parsed<Record> {
    let (_, record) = words.record()?;
    let key = words.value::<String>("key")?;
    Ok(match key {
        None => record,
        Some(key) => Record::build(&record.payload(), 0, Some(key.as_bytes()), &[]),
    })
}

fn assert_host_admits(effects: &[ClientEffect]) {
    for effect in effects {
        if let Effect::Send { to: Address::Node(_, endpoint), message } = effect {
            assert!(message.is_from_client_to(*endpoint), "no host takes this from a client: {message:?}");
        }
    }
}

/// End of a store's read that finds these records.
fn upto(records: &[Stored], range: ReadRange) -> Position {
    let bytes: usize = records.iter().map(|stored| stored.record.memory()).sum();
    let is_enough = records.len() >= range.max_records as usize || bytes >= range.max_bytes as usize;
    let last = records.last().filter(|_| is_enough);
    last.map_or(range.end.max(range.from), |last| last.position.next())
}
