//! A node's loop: takes events, steps the host, performs its effects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use seriatim_host::{
    Cause, Event, Host, HostError, Liveness, Measured, Notice, Outgoing, Problem, Usage, role_in_words,
};
use seriatim_model::{LogId, NodeId, Peer, Time};
use seriatim_net::{LinkEvent, Links, Sender, message_frame};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;

use crate::alarm::Alarm;
use crate::crowd::Crowd;
use crate::node::NodeError;
use crate::pulse::Pulse;
use crate::register::OutsideRegister;
use crate::rival::Rival;
use crate::syncer::Syncer;
use crate::usage::Meter;
use crate::vitals::{Stage, Vitals};

/// Most arrivals per drain of the inboxes.
const DRAIN: usize = 256;

/// Longest drain of the inboxes: the node's answers wait no longer.
const DRAIN_FOR: Duration = Duration::from_millis(2);

/// Number of records after which a turn reads no more for subscriptions. It also stops after
/// [`DRAIN_FOR`], or when an input arrives.
const SERVED: usize = 8192;

/// Most messages that wait within a drain before the driver sends them. Each may be as long as a
/// read's answer: a connection's full queue must reject them before the host makes more.
const SENDS: usize = 64;

/// A node with heartbeat settings that conflict with another node's stops within its first 10 s:
/// its operator is present, and its logs still exclude it. Later it only warns.
const STARTING_FOR: Duration = Duration::from_secs(10);

pub(crate) enum Arrival {
    Host(Event),
    Batch(Vec<Event>),
    /// A client connected; the sender answers it.
    Accepted(Peer, Sender),
    Closed(Peer),
    /// Another node rejects this node's conflicting heartbeats, with its explanation.
    BeatsDiffer(NodeId, String),
    /// Bytes of the node's files. `None` if the count took too long.
    Usage(Option<Usage>),
    /// A refused connection: address and cause.
    Refused(String, String),
    Rival(Rival),
    Removed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) has_joined: bool,
    pub(crate) failure: Option<String>,
    /// Address registered for this node, if it is not ours.
    pub(crate) elsewhere: Option<String>,
}

/// Queues by priority: each is emptied before the next.
///
/// Nodes come before clients: their messages follow from client requests that are already accepted.
/// Further requests would only delay these, and a view change.
pub(crate) struct Inboxes {
    /// Finished disk jobs, and reports of the failure detector.
    pub(crate) urgent: mpsc::Receiver<Arrival>,
    pub(crate) nodes: mpsc::Receiver<Arrival>,
    pub(crate) clients: mpsc::Receiver<Arrival>,
}

impl Inboxes {
    /// Waits for an arrival. `None` once no connection is accepted any more. Cancel safe.
    async fn next(&mut self) -> Option<Arrival> {
        tokio::select! {
            biased;
            Some(arrival) = self.urgent.recv() => Some(arrival),
            Some(arrival) = self.nodes.recv() => Some(arrival),
            arrival = self.clients.recv() => arrival,
        }
    }

    fn are_empty(&self) -> bool {
        let Self { urgent, nodes, clients } = self;
        [urgent, nodes, clients].into_iter().all(mpsc::Receiver::is_empty)
    }

    fn try_next(&mut self) -> Option<Arrival> {
        let Self { urgent, nodes, clients } = self;
        [urgent, nodes, clients].into_iter().find_map(|inbox| inbox.try_recv().ok())
    }
}

pub(crate) struct Driver {
    host: Host,
    inboxes: Inboxes,
    links: Links,
    link_events: mpsc::Receiver<LinkEvent>,
    clients: Crowd,
    syncer: Syncer,
    pulse: Pulse,
    vitals: Arc<Vitals>,
    register: Option<OutsideRegister>,
    started: Instant,
    alarm: Alarm,
    meter: Meter,
    measuring: bool,
    writing: bool,
    syncing: bool,
    health: watch::Sender<Health>,
    /// Warnings for the operator; how many the host raised; and nodes with conflicting heartbeats.
    warnings: watch::Sender<Vec<String>>,
    told: usize,
    differing: BTreeSet<NodeId>,
    /// Why the node must stop, although it could continue.
    refused: Option<NodeError>,
}

impl Driver {
    pub(crate) fn new(
        host: Host,
        inboxes: Inboxes,
        links: (Links, mpsc::Receiver<LinkEvent>),
        (syncer, pulse, vitals, meter): (Syncer, Pulse, Arc<Vitals>, Meter),
        register: Option<OutsideRegister>,
        (health, warnings): (watch::Sender<Health>, watch::Sender<Vec<String>>),
        clients: Crowd,
    ) -> Self {
        let told = warnings.borrow().len();
        Self {
            host,
            inboxes,
            links: links.0,
            link_events: links.1,
            clients,
            syncer,
            pulse,
            vitals,
            register,
            started: Instant::now(),
            alarm: Alarm::default(),
            meter,
            measuring: false,
            writing: false,
            syncing: false,
            health,
            warnings,
            told,
            differing: BTreeSet::new(),
            refused: None,
        }
    }

    pub(crate) async fn run(mut self, mut stop: oneshot::Receiver<()>) -> Result<(), NodeError> {
        let node = self.host.node();
        let failed = |cause| NodeError::Host { node: node.0, cause };
        self.perform();
        loop {
            let wake = self.wake_at();
            self.vitals.steps(false);
            tokio::select! {
                biased;
                told = &mut stop => match told {
                    Ok(()) => break,
                    // The node was dropped, without an orderly stop.
                    Err(_) => return Ok(()),
                },
                arrival = self.inboxes.next() => match arrival {
                    Some(arrival) => self.take(arrival),
                    None => break,
                },
                Some(event) = self.link_events.recv() => self.take_link(event),
                answer = next_answer(&mut self.register) => self.take(Arrival::Host(answer)),
                () = self.alarm.until(wake) => {}
            }
            self.vitals.steps(true);
            self.drain();
            // Answers leave at once. Shared work waits until all other ready tasks have run: more
            // inputs may arrive, and other tasks' answers do not wait for it.
            self.send();
            if self.host.deadline().is_some_and(|due| due <= self.now()) {
                yield_now().await;
                self.drain();
            }
            // Handle events of connections in every round, however busy the inbox is.
            while let Ok(event) = self.link_events.try_recv() {
                self.take_link(event);
            }
            // Handle the register's answers in every round; their number is bounded.
            while let Some(answer) = self.register.as_mut().and_then(OutsideRegister::try_next) {
                self.take(Arrival::Host(answer));
            }
            self.perform();
            if self.serve_readers() {
                self.perform();
            }
            if let Some(failure) = self.host.failure() {
                let failure = format!("{failure}; start the node again when its disk works");
                return Err(failed(HostError::Write(failure)));
            }
            if self.refused.is_some() {
                break;
            }
        }
        let refused = self.refused.take();
        self.finish().await.map_err(failed)?;
        refused.map_or(Ok(()), Err)
    }

    fn drain(&mut self) {
        self.host.note_wall(wall_ms());
        let until = Instant::now() + DRAIN_FOR;
        for _ in 1..DRAIN {
            match self.inboxes.try_next() {
                Some(arrival) => self.take(arrival),
                None => break,
            }
            if Instant::now() >= until {
                break;
            }
        }
    }

    /// Reads records for waiting readers. Writers come first: it reads once, and again only while
    /// no inbox has arrivals. Returns whether it read.
    fn serve_readers(&mut self) -> bool {
        let until = Instant::now() + DRAIN_FOR;
        let (mut has_read, mut records) = (false, 0);
        while let Some(found) = self.host.serve_reader(self.now()) {
            self.send();
            (has_read, records) = (true, records + found);
            if records >= SERVED || !self.inboxes.are_empty() || Instant::now() >= until {
                break;
            }
        }
        has_read
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wake_at(&self) -> Option<Instant> {
        self.host.deadline().map(|at| self.started + at.since(Time::ZERO))
    }

    fn take(&mut self, arrival: Arrival) {
        let now = self.now();
        match arrival {
            Arrival::Host(event) => {
                match event {
                    Event::JournalWritten(_) => {
                        self.writing = false;
                    }
                    Event::FilesSynced(_) => self.syncing = false,
                    // A network device may have forgotten the connection; a new connection may
                    // work.
                    Event::Liveness(Liveness::Suspected(node, Cause::Unreached(_))) => self.links.renew(node),
                    Event::Message { .. }
                    | Event::Disconnected(_)
                    | Event::Liveness(_)
                    | Event::FilesLost(_)
                    | Event::RegisterAnswered { .. } => {}
                }
                self.host.handle(now, event);
            }
            Arrival::Batch(events) => {
                for event in events {
                    self.host.handle(now, event);
                    if self.host.waiting_sends() >= SENDS {
                        self.send();
                    }
                }
            }
            Arrival::Accepted(peer, sender) => {
                self.clients.enter(peer, sender);
            }
            Arrival::Closed(peer) => {
                self.clients.leave(peer);
                self.host.handle(now, Event::Disconnected(peer));
            }
            Arrival::BeatsDiffer(node, cause) => self.beats_differ(node, cause),
            Arrival::Usage(usage) => {
                self.measuring = false;
                self.host.tell_condition(now, usage.as_ref());
            }
            Arrival::Refused(address, cause) => self.host.notice_refused(now, &address, &cause),
            Arrival::Rival(rival) => self.refused = Some(NodeError::Rival(rival)),
            Arrival::Removed => self.refused = Some(NodeError::Removed(self.host.node().0)),
        }
    }

    fn beats_differ(&mut self, other: NodeId, cause: String) {
        if self.started.elapsed() < STARTING_FOR {
            self.refused = Some(NodeError::BeatsDiffer { node: self.host.node().0, cause });
        } else if self.differing.insert(other) {
            let node = self.host.node();
            let warning = format!("node {node} sends no heartbeats to node {other}: {cause}");
            self.warnings.send_modify(|warnings| warnings.push(warning));
        }
    }

    fn take_link(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Dialled(node, outcome) => {
                self.links.dialled(node, outcome);
            }
            LinkEvent::Down(node) => {
                self.links.down(node);
                self.host.handle(self.now(), Event::Disconnected(Peer::Node(node)));
            }
            // Answers arrive over the other node's own connection.
            LinkEvent::Frames(..) => {}
        }
    }

    fn perform(&mut self) {
        let now = self.now();
        self.measure();
        self.host.note_wall(wall_ms());
        self.host.finish_turn(now);
        self.send();
        self.ask();
        if !self.writing
            && let Some(write) = self.host.next_journal_write(now)
        {
            self.writing = true;
            self.syncer.write(write);
        }
        if !self.syncing
            && let Some(files) = self.host.next_sync()
        {
            self.syncing = true;
            self.syncer.sync(files);
        }
        for unmet in self.host.take_unmet() {
            // Close the connection: the former address leads nowhere, or to another process.
            if self.links.moved(unmet.node) {
                self.host.handle(now, Event::Disconnected(Peer::Node(unmet.node)));
            }
            self.pulse.meet(unmet);
        }
        for node in self.host.take_forgotten() {
            self.links.moved(node);
            self.pulse.forget(node);
        }
        if self.host.was_removed() {
            self.refused.get_or_insert(NodeError::Removed(self.host.node().0));
        }
        // Heartbeats report the disk's state to other nodes.
        self.vitals.disk_is(self.host.has_full_disk());
        let (has_joined, elsewhere) = (self.host.has_joined(), self.host.is_said_to_be_at());
        self.health.send_if_modified(|health| {
            let changed = health.has_joined != has_joined || health.elsewhere.as_deref() != elsewhere;
            if changed {
                (health.has_joined, health.elsewhere) = (has_joined, elsewhere.map(str::to_owned));
            }
            changed
        });
        let node = self.host.node();
        for notice in self.host.take_notices(self.now()) {
            tell(node, &notice);
        }
        if self.host.problems().len() > self.told {
            let new = warnings(&self.host).split_off(self.told);
            self.told += new.len();
            self.warnings.send_modify(|warnings| warnings.extend(new));
        }
    }

    /// Starts the count of file bytes if clients ask for the node's condition; the host answers
    /// after it.
    fn measure(&mut self) {
        self.host.note_condition(Measured {
            wrong_suspicions: self.vitals.wrong_suspicions(),
            journal_write: self.syncer.write_time(),
            ailment: self.vitals.ailment(),
        });
        self.host.notice_writes(self.now(), self.vitals.writes_for());
        if self.host.is_asked() && !self.measuring {
            self.measuring = true;
            self.meter.look();
        }
    }

    fn ask(&mut self) {
        let questions = self.host.take_questions();
        if let Some(register) = &self.register {
            questions.into_iter().for_each(|question| register.ask(question));
        }
    }

    fn send(&mut self) {
        let mut batches: BTreeMap<Peer, Vec<Bytes>> = BTreeMap::new();
        for Outgoing { peer, log, from, to, message } in self.host.take_sends() {
            match message_frame(log, from, to, &message) {
                Ok(frame) => batches.entry(peer).or_default().extend(frame),
                // Limits keep messages below the largest frame; a longer one is dropped.
                Err(cause) => self.host.note_unsent(log, from, &cause.to_string()),
            }
        }
        for (peer, frames) in batches {
            match peer {
                Peer::Node(node) => {
                    let address = self.host.address_of(node);
                    self.links.send(node, address, frames);
                }
                Peer::Client(_) => self.clients.send(peer, frames),
            }
        }
    }

    /// Waits for disk jobs, then closes the host.
    async fn finish(mut self) -> Result<(), HostError> {
        self.vitals.stops(Stage::Writes);
        while self.writing || self.syncing {
            match self.inboxes.urgent.recv().await {
                Some(Arrival::Host(event)) => self.take(Arrival::Host(event)),
                Some(_) => {}
                None => break,
            }
        }
        let Self { host, syncer, inboxes, clients, links, pulse, vitals, .. } = self;
        vitals.stops(Stage::Closes);
        drop((inboxes, clients, links));
        tokio::task::spawn_blocking(move || {
            drop((syncer, pulse));
            let closed = host.close();
            vitals.stops(Stage::Ended);
            closed
        })
        .await
        .map_err(|cause| HostError::Write(cause.to_string()))?
    }
}

pub(crate) fn warnings(host: &Host) -> Vec<String> {
    let node = host.node();
    let told = |Problem { log, endpoint, cause }: &Problem| {
        let role = role_in_words(*endpoint);
        match host.log_name(*log) {
            _ if *log == LogId(0) => format!("node {node}: {cause}"),
            Some(name) => format!("node {node}: {role} of log '{name}': {cause}"),
            None => format!("node {node}: {role} of log {log}: {cause}"),
        }
    };
    host.problems().iter().map(told).collect()
}

fn tell(node: NodeId, notice: &Notice) {
    let Notice { is_warning, log, text } = notice;
    match (is_warning, log) {
        (true, Some(log)) => tracing::warn!(node = node.0, log, "{text}"),
        (true, None) => tracing::warn!(node = node.0, "{text}"),
        (false, Some(log)) => tracing::info!(node = node.0, log, "{text}"),
        (false, None) => tracing::info!(node = node.0, "{text}"),
    }
}

async fn next_answer(register: &mut Option<OutsideRegister>) -> Event {
    match register {
        Some(register) => register.next().await,
        None => std::future::pending().await,
    }
}

/// Wall-clock milliseconds since 1970.
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
