//! The task behind a client. It owns the connections and the machines, and drives both.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_delivery::{Awaited, Fetch, Selection, Subscriber, fetch, subscriber};
use seriatim_model::timers::Timers;
use seriatim_model::{
    Address, Effect, Endpoint, Input, LogId, Machine, NodeId, Peer, Position, Record, Time, limits,
};
use seriatim_net::{
    Connected, ConnectionOptions, Frame, Hello, LinkEvent, Links, message_frame, open_message,
};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::parts::ShardChoice;
use seriatim_protocol::parts::appending::{AppendSpec, Failure, LogClientConfig, Reply, Request};
use seriatim_protocol::{Message, Options};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::appender::{Answer, Appender, Submitted};
use crate::operation::{Operation, Start, newer};
use crate::progress::Progress;
use crate::sessions::OpenShards;

const QUEUE: usize = 8192;
const DRAIN: usize = 4096;
/// Interval between repeated questions.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// How long the engine tries to end the session of a dropped handle.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Time after which an unanswered register question moves to the next node. Short, because appends
/// may be stalled and any node can answer.
const REGISTER_TIMEOUT: Duration = Duration::from_millis(5);

pub(crate) enum Command {
    Open {
        config: Box<LogClientConfig>,
        entry: Box<LogEntry>,
        progress: Arc<Progress>,
        open: Arc<OpenShards>,
        handle: oneshot::Sender<u64>,
    },
    Append {
        handle: u64,
        record: Record,
        sync: bool,
        shard: ShardChoice,
        submitted: Instant,
        /// Time during which the client repeats the append if the record becomes a no-op.
        again_for: Duration,
        waiter: oneshot::Sender<Answer>,
        room: OwnedSemaphorePermit,
    },
    CheckTail {
        handle: u64,
        waiter: oneshot::Sender<Answer>,
    },
    Session {
        handle: u64,
        waiter: oneshot::Sender<Answer>,
    },
    EndSession {
        handle: u64,
        waiter: oneshot::Sender<Answer>,
    },
    Close {
        handle: u64,
        /// Whether to end the session, because no other run resumes it.
        ends: bool,
    },
    Fetch {
        control: NodeId,
        entry: Box<LogEntry>,
        request: fetch::Request,
        waiter: oneshot::Sender<fetch::Reply>,
    },
    Subscribe {
        control: NodeId,
        entry: Box<LogEntry>,
        from: Position,
        end: Option<Position>,
        selection: Selection,
        events: mpsc::Sender<subscriber::Event>,
        handle: oneshot::Sender<u64>,
    },
    Want {
        handle: u64,
        records: u64,
        bytes: u64,
    },
    /// Asks which position a subscription waits for, and why.
    Awaited {
        handle: u64,
        waiter: oneshot::Sender<Awaited>,
    },
    Run {
        log: LogId,
        start: Start,
    },
    Ask {
        to: (NodeId, Endpoint),
        log: LogId,
        question: Question,
        waiter: oneshot::Sender<Message>,
    },
    Obstacles {
        late: Option<Late>,
        waiter: oneshot::Sender<String>,
    },
}

/// A caller's operation that missed its deadline `within`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) handle: u64,
    pub(crate) within: Duration,
    /// Submission time of an append; None for another operation.
    pub(crate) submitted: Option<Instant>,
}

/// Builds a question with the given request number, which is the asking machine's handle.
pub(crate) type Question = Box<dyn Fn(u64) -> Message + Send>;

pub(crate) fn start(
    connected: Connected,
    address: &str,
    hello: Hello,
    options: ConnectionOptions,
) -> mpsc::Sender<Command> {
    let (commands, queue) = mpsc::channel(QUEUE);
    let (link_events, arrivals) = mpsc::channel(QUEUE);
    let mut links = Links::new(hello, options, link_events);
    let register = connected.welcome.node;
    let addresses = BTreeMap::from([(register, address.to_owned())]);
    links.adopt(connected);
    let engine = Engine {
        commands: queue,
        arrivals,
        links,
        addresses,
        register: Route { node: register, unanswered_since: None, outage: None },
        entries: BTreeMap::new(),
        started: Instant::now(),
        machines: BTreeMap::new(),
        timers: Timers::default(),
        readings: BTreeMap::new(),
        last_handle: 0,
        outgoing: BTreeMap::new(),
    };
    tokio::spawn(engine.run());
    commands
}

struct Engine {
    commands: mpsc::Receiver<Command>,
    arrivals: mpsc::Receiver<LinkEvent>,
    links: Links,
    addresses: BTreeMap<NodeId, String>,
    register: Route,
    /// Newest known log entries: a new reader starts with the current view.
    entries: BTreeMap<LogId, LogEntry>,
    started: Instant,
    machines: BTreeMap<u64, Slot>,
    /// Wake time of each machine, by handle. May contain removed machines.
    timers: Timers<u64>,
    /// Handle of the machine that reads each log. The machine stays between reads, because it keeps
    /// the log's map of positions.
    readings: BTreeMap<LogId, u64>,
    last_handle: u64,
    outgoing: BTreeMap<NodeId, Vec<Bytes>>,
}

/// The node that forwards register questions: the last node that answered one. Any node can
/// forward.
struct Route {
    node: NodeId,
    unanswered_since: Option<Time>,
    /// Why the register is unusable, as a node reported since the last answer.
    outage: Option<String>,
}

struct Slot {
    log: LogId,
    kind: Kind,
}

enum Kind {
    Appender(Box<Appender>),
    Reading(Box<Reading>),
    Subscriber(Box<Subscriber>, mpsc::Sender<subscriber::Event>),
    Operation(Box<dyn Operation>),
    Ask(Ask),
}

struct Reading {
    machine: Fetch,
    last_token: u64,
    waiters: BTreeMap<u64, oneshot::Sender<fetch::Reply>>,
}

struct Ask {
    to: (NodeId, Endpoint),
    question: Question,
    look_at: Time,
    waiter: Option<oneshot::Sender<Message>>,
}

impl Engine {
    async fn run(mut self) {
        loop {
            let wake = self.wake_at();
            tokio::select! {
                biased;
                Some(event) = self.arrivals.recv() => self.arrived(event),
                command = self.commands.recv() => match command {
                    Some(command) => self.take(command),
                    None => break,
                },
                () = sleep_until(wake) => {}
            }
            self.drain();
            self.fire_timers();
            self.flush();
            self.links.look(|node| self.addresses.get(&node).map(String::as_str));
        }
    }

    fn drain(&mut self) {
        for _ in 0..DRAIN {
            match self.arrivals.try_recv() {
                Ok(event) => self.arrived(event),
                Err(_) => break,
            }
        }
        for _ in 0..DRAIN {
            match self.commands.try_recv() {
                Ok(command) => self.take(command),
                Err(_) => break,
            }
        }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wake_at(&self) -> Option<Instant> {
        let machines = self.timers.next().map(|at| self.started + at.since(Time::ZERO));
        machines.into_iter().chain(self.links.deadline()).min()
    }

    fn take(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Open { config, entry, progress, open, handle } => {
                let log = entry.id;
                let appender = Appender::new(*config, *entry, progress, open);
                let number = self.add(Slot { log, kind: Kind::Appender(Box::new(appender)) });
                let _ = handle.send(number);
            }
            Command::Append { handle, record, sync, shard, submitted, again_for, waiter, room } => {
                if let Some(answer) = self.lost(handle).filter(|_| again_for.is_zero()) {
                    let _ = waiter.send(answer);
                    return;
                }
                let spec = AppendSpec { sync, shard, again_until: now + again_for };
                let append = (submitted, room);
                self.request(now, handle, Request::Append { record, spec }, waiter, Some(append));
            }
            Command::CheckTail { handle, waiter } => {
                self.request(now, handle, Request::CheckTail, waiter, None)
            }
            Command::EndSession { handle, waiter } => {
                self.request(now, handle, Request::EndSession, waiter, None)
            }
            Command::Session { handle, waiter } => {
                self.request(now, handle, Request::OpenSession, waiter, None)
            }
            Command::Close { handle, ends } => self.close(now, handle, ends),
            Command::Fetch { control, entry, request, waiter } => {
                self.read(now, (control, self.newest(*entry)), request, waiter);
            }
            Command::Subscribe { control, entry, from, end, selection, events, handle } => {
                let log = entry.id;
                let (entry, window) = (self.newest(*entry), self.subscription_window());
                let (range, options) = ((from, end), Options::default());
                let subscriber = Subscriber::with(control, entry, range, window, selection, options);
                let subscriber = Box::new(subscriber);
                let number = self.add(Slot { log, kind: Kind::Subscriber(subscriber, events) });
                let _ = handle.send(number);
            }
            Command::Want { handle, records, bytes } => {
                let request = subscriber::Request::Want { records, bytes };
                self.step_subscriber(now, handle, Input::Request { token: 0, request });
            }
            Command::Awaited { handle, waiter } => self.awaited(now, handle, waiter),
            Command::Run { log, start } => {
                let operation = start(now, self.entries.get(&log));
                let handle = self.add(Slot { log, kind: Kind::Operation(operation) });
                self.step_operation(now, handle, Input::Wake);
            }
            Command::Ask { to, log, question, waiter } => {
                let ask = Ask { to, question, look_at: now + ASK_AGAIN, waiter: Some(waiter) };
                let handle = self.add(Slot { log, kind: Kind::Ask(ask) });
                self.ask(handle);
            }
            Command::Obstacles { late, waiter } => {
                let _ = waiter.send(self.obstacles(now, late));
            }
        }
    }

    fn add(&mut self, slot: Slot) -> u64 {
        self.last_handle += 1;
        self.machines.insert(self.last_handle, slot);
        self.update_timer(self.last_handle);
        self.last_handle
    }

    /// Call after each step or removal of a machine.
    fn update_timer(&mut self, handle: u64) {
        self.timers.set(handle, self.machines.get(&handle).and_then(Slot::deadline));
    }

    fn request(
        &mut self,
        now: Time,
        handle: u64,
        request: Request,
        waiter: oneshot::Sender<Answer>,
        append: Option<Submitted>,
    ) {
        let Some(Slot { kind: Kind::Appender(appender), .. }) = self.machines.get_mut(&handle) else {
            return;
        };
        appender.last_token += 1;
        let token = appender.last_token;
        appender.waiters.insert(token, (waiter, append));
        self.step_appender(now, handle, Input::Request { token, request });
    }

    /// Rejects appends to an expired session until the application has received the earlier
    /// failures, so that failures arrive in order.
    fn lost(&mut self, handle: u64) -> Option<Answer> {
        let Some(Slot { kind: Kind::Appender(appender), .. }) = self.machines.get_mut(&handle) else {
            return None;
        };
        let session = appender.lost.filter(|_| Arc::strong_count(&appender.untold) > 1)?;
        Some(appender.answer(Reply::Failed(Failure::SessionExpired(session))))
    }

    fn read(
        &mut self,
        now: Time,
        (control, entry): (NodeId, LogEntry),
        request: fetch::Request,
        waiter: oneshot::Sender<fetch::Reply>,
    ) {
        let log = entry.id;
        let handle = match self.readings.get(&log) {
            Some(handle) => *handle,
            None => self.add_reading(control, entry.clone()),
        };
        let Some(Slot { kind: Kind::Reading(reading), .. }) = self.machines.get_mut(&handle) else { return };
        let is_behind = reading.machine.entry().version < entry.version;
        reading.last_token += 1;
        let token = reading.last_token;
        reading.waiters.insert(token, waiter);
        if is_behind {
            let message = control::Message::Registered { entry }.into();
            let from = Address::Node(control, Endpoint::Register);
            self.step_reading(now, handle, Input::Message { from, message });
        }
        self.step_reading(now, handle, Input::Request { token, request });
    }

    /// Adds a reading machine. Beyond the limit it first removes an idle one.
    fn add_reading(&mut self, control: NodeId, entry: LogEntry) -> u64 {
        let is_idle = |handle: &u64| match self.machines.get(handle).map(|slot| &slot.kind) {
            Some(Kind::Reading(reading)) => reading.machine.is_idle(),
            _ => true,
        };
        let idle = self.readings.iter().find(|(_, handle)| is_idle(handle)).map(|(log, _)| *log);
        if let Some(log) = idle.filter(|_| self.readings.len() >= limits::MAPPED_LOGS) {
            let handle = self.readings.remove(&log);
            handle.and_then(|handle| self.machines.remove(&handle));
        }
        let log = entry.id;
        let machine = Fetch::new(control, entry, Options::default());
        let reading = Reading { machine, last_token: 0, waiters: BTreeMap::new() };
        let handle = self.add(Slot { log, kind: Kind::Reading(Box::new(reading)) });
        self.readings.insert(log, handle);
        handle
    }

    fn close(&mut self, now: Time, handle: u64, ends: bool) {
        if let Some(Kind::Appender(appender)) =
            self.machines.get_mut(&handle).map(|slot| &mut slot.kind).filter(|_| ends)
        {
            (appender.closed, appender.last) = (true, Some((appender.last_token + 1, now + END_WITHIN)));
            // No caller waits for the answer.
            return self.request(now, handle, Request::EndSession, oneshot::channel().0, None);
        }
        match self.machines.get_mut(&handle).map(|slot| &mut slot.kind) {
            Some(Kind::Appender(appender)) if !appender.waiters.is_empty() => appender.closed = true,
            Some(Kind::Subscriber(..)) => {
                let request = subscriber::Request::Cancel;
                self.step_subscriber(now, handle, Input::Request { token: 0, request });
                self.machines.remove(&handle);
            }
            _ => {
                self.machines.remove(&handle);
            }
        }
    }

    fn awaited(&self, now: Time, handle: u64, waiter: oneshot::Sender<Awaited>) {
        if let Some(Kind::Subscriber(machine, _)) = self.machines.get(&handle).map(|slot| &slot.kind) {
            let _ = waiter.send(machine.awaited(now));
        }
    }

    /// Why the register is unusable, if it is. If the log waits for a view, the text says so first.
    fn no_view(&self, log_waits: bool) -> Option<String> {
        let why = self.register.outage.as_ref()?;
        Some(if log_waits { format!("no active view: {why}") } else { why.clone() })
    }

    fn ask(&mut self, handle: u64) {
        let Some(Slot { log, kind: Kind::Ask(ask) }) = self.machines.get(&handle) else { return };
        let (log, to, message) = (*log, ask.to, (ask.question)(handle));
        self.send(log, handle, Address::Node(to.0, to.1), &message);
    }

    fn obstacles(&self, now: Time, late: Option<Late>) -> String {
        let slot = late.and_then(|late| Some((late, &self.machines.get(&late.handle)?.kind)));
        let mut obstacles = vec![];
        let (mut silent, mut before) = (vec![], 0);
        let mut has_full_disk = false;
        obstacles.extend(self.no_view(slot.is_some()));
        if let Some((late, Kind::Appender(appender))) = slot {
            before = late.submitted.map_or(0, |submitted| appender.before(submitted));
            // A node asked only recently does not explain the long wait.
            let long_ago = Time(now.0.saturating_sub(late.within.as_nanos() as u64 / 2));
            obstacles.extend(appender.machine.unavailable().map(str::to_owned));
            // Report a node once, with its worst state over all its roles.
            let mut awaited = BTreeMap::new();
            for (node, busy) in appender.machine.waits_for() {
                let worst = awaited.entry(node).or_insert(busy);
                *worst = (*worst).max(busy);
            }
            for (node, busy) in awaited {
                match busy {
                    Some(true) => {
                        has_full_disk = true;
                        obstacles.push(format!("the disk of node {node} is full, make room there"));
                    }
                    Some(false) => {
                        obstacles.push(format!("node {node} is busy and takes no more appends at present"))
                    }
                    None if appender.owes(node, long_ago) => silent.push(node),
                    None => {}
                }
            }
        }
        for (node, cause) in self.links.unreachable() {
            let address = self.addresses.get(&node).map_or("an unknown address", String::as_str);
            obstacles.push(format!("node {node} at {address} cannot be reached ({cause})"));
            silent.retain(|waited_for| *waited_for != node);
        }
        // If a disk is full or the register unusable, silent nodes probably wait for it too: do not
        // blame them.
        silent.retain(|_| !has_full_disk && self.register.outage.is_none());
        obstacles.extend(silent.iter().map(|node| format!("node {node} did not answer")));
        match before {
            0 => {}
            1 => obstacles.push("the append before it is not acknowledged either".to_owned()),
            _ => obstacles.push(format!("{before} appends before it are not acknowledged either")),
        }
        if obstacles.is_empty() { "some replicas did not answer".to_owned() } else { obstacles.join("; ") }
    }

    fn arrived(&mut self, event: LinkEvent) {
        let now = self.now();
        match event {
            LinkEvent::Dialled(node, outcome) => {
                let is_up = outcome.is_ok();
                if self.links.dialled(node, outcome) {
                    self.disconnected(now, node, |_| true);
                } else if !is_up {
                    // Notify only readers: they ask rarely and switch nodes at once. Appenders
                    // already know that the connection broke, and would retransmit at every dial
                    // attempt.
                    self.disconnected(now, node, |kind| !matches!(kind, Kind::Appender(_)));
                }
            }
            LinkEvent::Down(node) => {
                self.links.down(node);
                self.disconnected(now, node, |_| true);
            }
            LinkEvent::Frames(node, frames) => {
                for frame in frames {
                    self.received(now, node, frame);
                }
            }
        }
    }

    fn received(&mut self, now: Time, node: NodeId, frame: Frame) {
        // Drop an undecodable frame: the machine that needs it asks again.
        let Ok((_, from, Endpoint::Client(handle), message)) = open_message::<Message>(frame) else { return };
        if let Message::Control(control::Message::Unanswered { why }) = message {
            // Another node may reach the register. The question stays unanswered until its timeout.
            self.register.outage = Some(why);
            return;
        }
        if from == Endpoint::Register {
            self.register = Route { node, unanswered_since: None, outage: None };
        }
        if let Message::Control(message) = &message {
            self.learn(message);
        }
        let from = Address::Node(node, from);
        match self.machines.get_mut(&handle).map(|slot| &mut slot.kind) {
            Some(Kind::Appender(appender)) => {
                appender.unanswered.remove(&from);
                self.step_appender(now, handle, Input::Message { from, message });
            }
            Some(Kind::Reading(_)) => self.step_reading(now, handle, Input::Message { from, message }),
            Some(Kind::Subscriber(..)) => self.step_subscriber(now, handle, Input::Message { from, message }),
            Some(Kind::Operation(_)) => self.step_operation(now, handle, Input::Message { from, message }),
            Some(Kind::Ask(ask)) => {
                if let Some(waiter) = ask.waiter.take() {
                    let _ = waiter.send(message);
                }
                self.machines.remove(&handle);
            }
            None => {}
        }
    }

    fn learn(&mut self, message: &control::Message) {
        let (entries, nodes) = match message {
            control::Message::Found { entry, nodes, .. } => (std::slice::from_ref(entry), nodes),
            control::Message::Listing { entries, nodes, .. }
            | control::Message::KnownIs { entries, nodes, .. } => (entries.as_slice(), nodes),
            _ => return,
        };
        self.addresses.extend(nodes.iter().map(|node| (node.node, node.address.clone())));
        for entry in entries {
            let known = self.entries.entry(entry.id).or_insert_with(|| entry.clone());
            if known.version < entry.version {
                known.clone_from(entry);
            }
        }
    }

    /// Bytes in flight for the next subscription, over all its shards: its share among all
    /// subscriptions.
    fn subscription_window(&self) -> u64 {
        let others = self.machines.values().filter(|slot| matches!(slot.kind, Kind::Subscriber(..))).count();
        let share = limits::SUBSCRIPTIONS_BYTES / (others as u64 + 1);
        share.max(limits::SUBSCRIPTION_BYTES_LEAST)
    }

    fn newest(&self, entry: LogEntry) -> LogEntry {
        let known = self.entries.get(&entry.id);
        newer(entry, known)
    }

    /// Notifies the machines that `concerns` selects.
    fn disconnected(&mut self, now: Time, node: NodeId, concerns: impl Fn(&Kind) -> bool) {
        let concerned = self.machines.iter().filter(|(_, slot)| concerns(&slot.kind));
        let handles: Vec<u64> = concerned.map(|(handle, _)| *handle).collect();
        let peer = Peer::Node(node);
        for handle in handles {
            match self.machines.get(&handle).map(|slot| &slot.kind) {
                Some(Kind::Appender(_)) => self.step_appender(now, handle, Input::Disconnected(peer)),
                Some(Kind::Reading(_)) => self.step_reading(now, handle, Input::Disconnected(peer)),
                Some(Kind::Subscriber(..)) => self.step_subscriber(now, handle, Input::Disconnected(peer)),
                Some(Kind::Operation(_)) => self.step_operation(now, handle, Input::Disconnected(peer)),
                Some(Kind::Ask(_)) | None => {}
            }
        }
    }

    fn step_appender(&mut self, now: Time, handle: u64, input: Input<Message, Request>) {
        let Some(Slot { log, kind: Kind::Appender(appender) }) = self.machines.get_mut(&handle) else {
            return;
        };
        let log = *log;
        let mut effects = vec![];
        appender.machine.step(now, input, &mut effects);
        let oldest = appender.oldest();
        let mut sends = vec![];
        for effect in effects {
            match effect {
                Effect::Reply { token, reply } => {
                    if let Some((waiter, _append)) = appender.waiters.remove(&token) {
                        let _ = waiter.send(appender.answer(reply));
                    }
                }
                Effect::Send { to, message } => {
                    // Register questions are excluded: they switch nodes on a timeout.
                    if matches!(to, Address::Node(_, Endpoint::Sequencer | Endpoint::Shard(_))) {
                        appender.unanswered.entry(to).or_insert(now);
                    }
                    sends.push((to, message));
                }
                // A client has no disk.
                _ => {}
            }
        }
        appender.share(oldest);
        if appender.is_over(now) {
            self.machines.remove(&handle);
        }
        self.update_timer(handle);
        self.send_all(log, handle, sends);
    }

    fn step_reading(&mut self, now: Time, handle: u64, input: Input<Message, fetch::Request>) {
        let Some(Slot { log, kind: Kind::Reading(reading) }) = self.machines.get_mut(&handle) else {
            return;
        };
        let log = *log;
        let mut effects = vec![];
        if matches!(input, Input::Wake) {
            // A caller that stops waiting sends no cancellation.
            let dropped = reading.waiters.iter().filter(|(_, waiter)| waiter.is_closed());
            let dropped: Vec<u64> = dropped.map(|(token, _)| *token).collect();
            for token in dropped {
                reading.waiters.remove(&token);
                let request = fetch::Request::Cancel;
                reading.machine.step(now, Input::Request { token, request }, &mut effects);
            }
        }
        reading.machine.step(now, input, &mut effects);
        let mut sends = vec![];
        for effect in effects {
            match effect {
                Effect::Reply { token, reply } => {
                    if let Some(waiter) = reading.waiters.remove(&token) {
                        let _ = waiter.send(reply);
                    }
                }
                Effect::Send { to, message } => sends.push((to, message)),
                _ => {}
            }
        }
        self.update_timer(handle);
        self.send_all(log, handle, sends);
    }

    fn step_subscriber(&mut self, now: Time, handle: u64, input: Input<Message, subscriber::Request>) {
        let Some(Slot { log, kind: Kind::Subscriber(machine, events) }) = self.machines.get_mut(&handle)
        else {
            return;
        };
        let log = *log;
        let mut effects = vec![];
        machine.step(now, input, &mut effects);
        let mut sends = vec![];
        let mut is_lost = false;
        for effect in effects {
            match effect {
                // The reader requests at most its queue's capacity. A closed queue ends the
                // subscription.
                Effect::Reply { reply, .. } => is_lost |= events.try_send(reply).is_err(),
                Effect::Send { to, message } => sends.push((to, message)),
                _ => {}
            }
        }
        if is_lost && !machine.is_over() {
            return self.close(now, handle, false);
        }
        if machine.is_over() {
            self.machines.remove(&handle);
        }
        self.update_timer(handle);
        self.send_all(log, handle, sends);
    }

    fn step_operation(&mut self, now: Time, handle: u64, input: Input<Message, Infallible>) {
        let Some(Slot { log, kind: Kind::Operation(operation) }) = self.machines.get_mut(&handle) else {
            return;
        };
        let (log, mut sends) = (*log, vec![]);
        if operation.step(now, input, &mut sends) {
            self.machines.remove(&handle);
        }
        self.update_timer(handle);
        self.send_all(log, handle, sends);
    }

    fn send_all(&mut self, log: LogId, handle: u64, sends: Vec<(Address, Message)>) {
        for (to, message) in sends {
            self.send(log, handle, to, &message);
        }
    }

    fn send(&mut self, log: LogId, handle: u64, to: Address, message: &Message) {
        let Address::Node(node, endpoint) = to else { return };
        let node = if endpoint == Endpoint::Register { self.register_route() } else { node };
        match message_frame(log, Endpoint::Client(handle), endpoint, message) {
            Ok(frame) => self.outgoing.entry(node).or_default().extend(frame),
            // Limits keep messages below the largest frame; an oversized one is dropped.
            Err(cause) => debug_assert!(false, "{cause}"),
        }
    }

    /// The node for register questions: the current one, or the next if it is down or late.
    fn register_route(&mut self) -> NodeId {
        let now = self.now();
        let is_down = |node: &NodeId| self.links.unreachable().any(|(down, _)| down == *node);
        let Route { node: current, unanswered_since, .. } = self.register;
        let is_late = unanswered_since.is_some_and(|since| now >= since + REGISTER_TIMEOUT);
        if is_late || is_down(&current) {
            let after = self.addresses.range((Bound::Excluded(current), Bound::Unbounded));
            let nodes = || after.clone().chain(self.addresses.iter()).map(|(node, _)| *node);
            let next = nodes().find(|node| !is_down(node)).or_else(|| nodes().next());
            self.register.node = next.unwrap_or(current);
            self.register.unanswered_since = None;
        }
        self.register.unanswered_since.get_or_insert(now);
        self.register.node
    }

    /// Wakes due machines. Runs after the drain, so that queued data leaves in one message.
    fn fire_timers(&mut self) {
        let now = self.now();
        for handle in self.timers.take_due(now) {
            match self.machines.get_mut(&handle).map(|slot| &mut slot.kind) {
                Some(Kind::Appender(_)) => self.step_appender(now, handle, Input::Wake),
                Some(Kind::Reading(_)) => self.step_reading(now, handle, Input::Wake),
                Some(Kind::Subscriber(..)) => self.step_subscriber(now, handle, Input::Wake),
                Some(Kind::Operation(_)) => self.step_operation(now, handle, Input::Wake),
                Some(Kind::Ask(ask)) => {
                    ask.look_at = now + ASK_AGAIN;
                    if ask.waiter.as_ref().is_none_or(oneshot::Sender::is_closed) {
                        self.machines.remove(&handle);
                    } else {
                        self.ask(handle);
                        self.update_timer(handle);
                    }
                }
                None => {}
            }
        }
    }

    fn flush(&mut self) {
        for (node, frames) in std::mem::take(&mut self.outgoing) {
            let address = self.addresses.get(&node).map(String::as_str);
            self.links.send(node, address, frames);
        }
    }
}

impl Slot {
    fn deadline(&self) -> Option<Time> {
        match &self.kind {
            Kind::Appender(appender) => appender.machine.deadline(),
            Kind::Reading(reading) => reading.machine.deadline(),
            Kind::Subscriber(machine, _) => machine.deadline(),
            Kind::Operation(operation) => operation.deadline(),
            Kind::Ask(ask) => Some(ask.look_at),
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
