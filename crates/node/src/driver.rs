//! Event, step, effects: the loop of a node.

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

/// How many arrivals one drain takes before effects are performed.
const DRAIN: usize = 256;

/// How long one drain takes: what a node owes to others does not wait for longer.
const DRAIN_FOR: Duration = Duration::from_millis(2);

/// After how many records one turn reads no more for readers. It also reads no more after
/// [`DRAIN_FOR`], or when something arrived.
const SERVED: usize = 8192;

/// How many messages that are to leave gather within a drain. Each may be as long as a read's
/// answer, and what a connection's queue does not take is not to be made first.
const SENDS: usize = 64;

/// How long a node counts as being started. One that other nodes' heartbeats do not go together
/// with stops in this time: its operator is there, and its logs do without it still. Later it only
/// says so.
const STARTING_FOR: Duration = Duration::from_secs(10);

/// An arrival in a node's inbox.
pub(crate) enum Arrival {
    Host(Event),
    Batch(Vec<Event>),
    /// A client came, and how to answer it.
    Accepted(Peer, Sender),
    Closed(Peer),
    /// Another node does not take this one's heartbeats, because its own do not go together with
    /// them; and what it says.
    BeatsDiffer(NodeId, String),
    /// The bytes that the node's files take, if they could be counted in time.
    Usage(Option<Usage>),
    /// A connection was refused: from where, and why.
    Refused(String, String),
    /// Another process has this node's number.
    Rival(Rival),
    /// This node was removed from its cluster.
    Removed,
}

/// How a node is, for those who watch it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) has_joined: bool,
    pub(crate) failure: Option<String>,
    /// Where else the register says that the node is.
    pub(crate) elsewhere: Option<String>,
}

/// The queues of a driver, in the order in which it takes from them: all of the first before any of
/// the second.
///
/// Nodes come before clients. What nodes send follows from what clients sent and was taken; a node
/// that took more of the latter while the former waits would only make that wait longer, a change
/// of view with it.
pub(crate) struct Inboxes {
    /// Jobs of the disk that are done, and what the detector says.
    pub(crate) urgent: mpsc::Receiver<Arrival>,
    pub(crate) nodes: mpsc::Receiver<Arrival>,
    pub(crate) clients: mpsc::Receiver<Arrival>,
}

impl Inboxes {
    /// The next, when there is one; nothing once no connection is accepted any more. Cancel safe.
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

    /// The next, if there is one now.
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
    /// The register, if it is outside of all nodes.
    register: Option<OutsideRegister>,
    started: Instant,
    alarm: Alarm,
    meter: Meter,
    measuring: bool,
    writing: bool,
    syncing: bool,
    health: watch::Sender<Health>,
    /// The warnings for the operator; how many of them are the host's; and the nodes whose
    /// heartbeats they tell of.
    warnings: watch::Sender<Vec<String>>,
    told: usize,
    differing: BTreeSet<NodeId>,
    /// Why the node must not go on, although it could.
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

    /// Runs until it is told to stop, or cannot go on.
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
                    // The node was dropped.
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
            // Answers leave at once. What can be done for many inputs together is done after
            // everything else that is ready to run: more may have come by then, and the others'
            // answers do not wait for it.
            self.send();
            if self.host.deadline().is_some_and(|due| due <= self.now()) {
                yield_now().await;
                self.drain();
            }
            // However busy the inbox is, connections come and go.
            while let Ok(event) = self.link_events.try_recv() {
                self.take_link(event);
            }
            // So does what the register says, which is bounded.
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

    /// Reads for readers, as much as one turn allows. Writers come first: it reads at least once
    /// where a reader waits, and not again while something is in an inbox. Returns whether it read.
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
                    // The path may have forgotten the connection, and know a new one.
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

    /// A node that is being started with other heartbeats than the cluster can live with does not
    /// go on.
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
            // Answers come over the other node's own connection.
            LinkEvent::Frames(..) => {}
        }
    }

    /// Lets the host finish its turn, and performs its effects, all at once.
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
            // A connection to where it was before leads to nobody, or to a process that is not the
            // node any more.
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
        // Others hear of it with the next heartbeats.
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

    /// Clients that ask how the node is are answered when it is known what its files take.
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

    /// Questions go to the register that is outside of all nodes.
    fn ask(&mut self) {
        let questions = self.host.take_questions();
        if let Some(register) = &self.register {
            questions.into_iter().for_each(|question| register.ask(question));
        }
    }

    /// Everything for one connection leaves as one send.
    fn send(&mut self) {
        let mut batches: BTreeMap<Peer, Vec<Bytes>> = BTreeMap::new();
        for Outgoing { peer, log, from, to, message } in self.host.take_sends() {
            match message_frame(log, from, to, &message) {
                Ok(frame) => batches.entry(peer).or_default().extend(frame),
                // Limits keep messages below the largest frame; one that is not is lost.
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

    /// An orderly end: what is under way is waited for, then everything is written down.
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

/// Warnings for the operator.
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

/// One line for an operator.
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

/// The time by the clock on the wall, in milliseconds since 1970.
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
