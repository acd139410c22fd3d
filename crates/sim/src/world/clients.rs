//! Clients: what they send and get, how they die and come back.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::{Address, Endpoint, NodeId, Position, Time, limits};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::parts::appending::LogClientConfig;

use super::nodes::{Brief, frame, open};
use super::scene::Happening;
use super::second::{history_of, workload_of};
use super::{CONTROL, World};
use crate::client::{Client, Legacy, Post, Producer, READER};
use crate::lookups::Lookups;
use crate::network::{Lane, Party};
use crate::reader::{Reader, Style};
use crate::subscription::Subscription;
use crate::trimmer::Trimmer;

/// Clients that live on have numbers above.
const SURVIVORS: u32 = 20_000;

impl World {
    /// Starts the clients that the plan wants.
    pub fn add_clients(&mut self) {
        let entry = self.entry().expect("the log exists").clone();
        for number in 0..self.scene.plan.workload.clients {
            let sessions = 0..u64::from(self.scene.plan.workload.sessions);
            let producers =
                sessions.map(|machine| (machine, self.producer(number, machine, &entry))).collect();
            self.add_client(number, producers, &entry);
        }
    }

    fn producer(&mut self, client: u32, machine: u64, entry: &LogEntry) -> Producer {
        let config = self.machine_config(None);
        let start = self.scene.now + self.scene.random.micros(0, self.scene.plan.workload.think_us);
        let session = self.scene.history.open_session();
        Producer::new(
            machine,
            client,
            session,
            self.scene.plan.workload.appends,
            (config, entry.clone()),
            start,
        )
    }

    pub(super) fn machine_config(
        &mut self,
        resume: Option<(seriatim_model::SessionId, u64)>,
    ) -> LogClientConfig {
        LogClientConfig {
            control: CONTROL,
            random: self.scene.random.draw(),
            resume,
            options: self.scene.plan.options,
        }
    }

    fn add_client(&mut self, number: u32, producers: BTreeMap<u64, Producer>, entry: &LogEntry) {
        let style = if self.scene.random.percent(50) { Style::Subscribe } else { Style::Poll };
        let random = self.scene.random.fork();
        let reader = || Reader::new(CONTROL, entry.clone(), style, Position::ZERO, random);
        let random = self.scene.random.fork();
        let window = match self.scene.plan.capacity {
            Some(_) => self.scene.plan.options.limits.ring_bytes as u64 / 8,
            None => limits::SUBSCRIPTION_BYTES,
        };
        let subscribes = self.scene.plan.workload.reads && self.scene.random.percent(40);
        let client = Client {
            number,
            producers,
            subscription: subscribes.then(|| Subscription::new(CONTROL, entry.clone(), random, window)),
            lookups: (number < self.scene.plan.workload.lookups).then(|| {
                Lookups::new(CONTROL, entry.clone(), self.scene.plan.options, self.scene.random.fork())
            }),
            reader: self.scene.plan.workload.reads.then(reader),
            trimmer: (number == 0 && self.scene.plan.workload.trims && self.scene.history.accepted.is_none())
                .then(|| Trimmer::new(CONTROL, self.scene.plan.options)),
            wake_at: None,
        };
        self.clients.insert(number, client);
        self.wake_client(number, self.scene.now);
    }

    pub(super) fn wake_client(&mut self, number: u32, at: Time) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        if client.wake_at.is_none_or(|planned| at < planned) {
            client.wake_at = Some(at);
            self.scene.schedule(at, Happening::ClientWakes(number));
        }
    }

    pub(super) fn client_wakes(&mut self, number: u32) {
        let now = self.scene.now;
        let Some(client) = self.clients.get_mut(&number).filter(|client| client.wake_at == Some(now)) else {
            return;
        };
        client.wake_at = None;
        if let Some(until) = self.client_stalls_until(number) {
            return self.wake_client(number, until);
        }
        if self.scene.plan.workload.payload_of_disks {
            self.take_a_piece();
        }
        let mut out = vec![];
        let workload = workload_of(&self.scene.plan, number);
        let Some(client) = self.clients.get_mut(&number) else { return };
        let history = history_of(&mut self.scene.history, number);
        client.wake(now, &workload, &mut self.scene.random, history, &mut out);
        self.after_client(number, out);
    }

    /// Somebody looks at a disk: from a block, or from a byte that is the journal's or a store's own on.
    fn take_a_piece(&mut self) {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        let disk = self.nodes[&self.scene.random.pick(&nodes)].disk.clone();
        let files = disk.files();
        if files.is_empty() {
            return;
        }
        let file = self.scene.random.pick(&files);
        let content = disk.content(&file).unwrap_or_default();
        let written = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1) as u64;
        let most = self.scene.plan.workload.payload_bytes;
        let offset = self.scene.random.below(written + 1);
        let start = if self.scene.random.percent(70) { offset / 512 * 512 } else { offset };
        let end = written.min(start + most);
        self.scene.history.piece = Bytes::copy_from_slice(&content[start as usize..end as usize]);
    }

    /// Sends what a client wants to send, and sees to it that it is woken.
    fn after_client(&mut self, number: u32, out: Vec<Post>) {
        for (machine, to, message) in out {
            let Address::Node(node, endpoint) = to else { continue };
            let log = self.log_of(number);
            let bytes = frame(log, Endpoint::Client(machine), endpoint, &message);
            let ready = self.client_works(number, bytes.len());
            self.transmit_at(ready, Lane::Bulk, Party::Client(number), Party::Node(node), bytes);
        }
        let Some(at) = self.clients.get(&number).and_then(Client::deadline) else { return };
        self.wake_client(number, at.max(self.scene.now));
    }

    pub(super) fn client_receives(&mut self, number: u32, from: Party, bytes: &Bytes) {
        let (_, sender, to, message) = open(bytes.clone()).expect("what was encoded is decoded");
        let text = Brief(&message);
        self.scene.tell(format_args!("{from:?} {sender:?} to client {number} {to:?}: {text}"));
        let (Party::Node(node), Endpoint::Client(machine)) = (from, to) else { return };
        let Some(client) = self.clients.get_mut(&number) else { return };
        let mut out = vec![];
        let history = history_of(&mut self.scene.history, number);
        client.receive(self.scene.now, machine, Address::Node(node, sender), message, history, &mut out);
        self.after_client(number, out);
    }

    pub(super) fn client_loses(&mut self, number: u32, other: Party) {
        let Party::Node(node) = other else { return };
        let Some(client) = self.clients.get_mut(&number) else { return };
        let mut out = vec![];
        client.disconnected(self.scene.now, node, history_of(&mut self.scene.history, number), &mut out);
        self.after_client(number, out);
    }

    /// A client's process dies. It is started again later.
    pub(super) fn kill_client(&mut self, number: u32, down_for: Duration) {
        let workload = &self.scene.plan.workload;
        let remembers = self.scene.random.percent(workload.resume_percent) && !workload.unordered;
        let Some(client) = self.clients.remove(&number) else { return };
        self.scene.coverage.expired += client.producers.values().map(Producer::expired).sum::<u64>();
        let lives_on = remembers && self.scene.random.percent(self.scene.plan.workload.lives_on_percent);
        let survivors = lives_on.then(|| client.survivors());
        let legacies: BTreeMap<u64, Legacy> = client
            .producers
            .into_iter()
            .map(|(machine, producer)| (machine, producer.die(remembers, &mut self.scene.random)))
            .collect();
        self.scene.tell(format_args!("client {number} is killed"));
        self.dead_clients.insert(number, legacies);
        self.hang_up(Party::Client(number));
        self.scene.schedule(self.scene.now + down_for, Happening::ClientStarts(number));
        if let Some(survivors) = survivors {
            self.add_survivors(survivors);
        }
    }

    /// The clients that may die: those that nobody took for dead before.
    pub(super) fn mortal_clients(&self) -> Vec<u32> {
        self.clients.keys().copied().filter(|number| *number <= SURVIVORS).collect()
    }

    /// A process that was taken for dead lives, and finds that its connections broke.
    fn add_survivors(&mut self, producers: BTreeMap<u64, Producer>) {
        let last = self.clients.keys().last().copied().unwrap_or_default();
        let number = last.max(SURVIVORS) + 1;
        let client = Client {
            number,
            producers,
            reader: None,
            subscription: None,
            lookups: None,
            trimmer: None,
            wake_at: None,
        };
        self.scene.tell(format_args!("it lives on as client {number}"));
        self.clients.insert(number, client);
        for node in self.nodes.keys().copied().collect::<Vec<NodeId>>() {
            self.client_loses(number, Party::Node(node));
        }
        self.wake_client(number, self.scene.now);
    }

    pub(super) fn client_starts(&mut self, number: u32) {
        let Some(legacies) = self.dead_clients.remove(&number) else { return };
        let known = self.scene.history.views.values().last().map(|known| known.view.clone());
        // The first entry that a client finds may be out of date.
        let mut entry = self.entry().cloned().or_else(|| self.first_entry.clone()).expect("the log exists");
        entry.view = known.or(entry.view);
        let mut producers = BTreeMap::new();
        for (machine, legacy) in legacies {
            let session = self.scene.history.open_session();
            let config = self.machine_config(legacy.session());
            self.scene.coverage.resumed += u64::from(legacy.session().is_some());
            let producer =
                Producer::new(machine, number, session, 0, (config, entry.clone()), self.scene.now);
            let mut producer = producer.resume(legacy, self.scene.now, &mut self.scene.history);
            if self.scene.history.calm_since.is_some() {
                producer.hurry();
            }
            producers.insert(machine, producer);
        }
        self.scene.tell(format_args!("client {number} starts"));
        self.add_client(number, producers, &entry);
    }

    /// Lets a client with nothing but a reader read, until that has all, but not longer than `most`.
    pub(super) fn read_with(&mut self, number: u32, reader: Reader, most: Duration) -> Reader {
        let producers = BTreeMap::new();
        let client = Client {
            number,
            producers,
            reader: Some(reader),
            subscription: None,
            lookups: None,
            trimmer: None,
            wake_at: None,
        };
        self.clients.insert(number, client);
        self.wake_client(number, self.scene.now);
        self.run_until(most, |world| {
            world.clients[&number].reader.as_ref().is_some_and(|reader| reader.is_done())
        });
        self.hang_up(Party::Client(number));
        let client = self.clients.remove(&number).expect("it is there");
        client.reader.unwrap_or_else(|| unreachable!("machine {READER} is a reader"))
    }

    /// A client makes no pauses any more.
    pub(super) fn hurry_client(&mut self, number: u32) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        client.producers.values_mut().for_each(Producer::hurry);
        self.wake_client(number, self.scene.now);
    }

    /// Every session of a client asks for the tail.
    pub(super) fn ask_tail_of(&mut self, number: u32) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let mut out = vec![];
        for producer in client.producers.values_mut() {
            producer.ask_tail(self.scene.now, history_of(&mut self.scene.history, number), &mut out);
        }
        self.after_client(number, out);
    }

    /// The clients end.
    pub(super) fn end_clients(&mut self) {
        let clients = std::mem::take(&mut self.clients);
        let producers = clients.values().flat_map(|client| client.producers.values());
        self.scene.coverage.expired += producers.map(Producer::expired).sum::<u64>();
    }

    /// Whether every subscription has delivered everything below `end`, and every read through the log too.
    pub(super) fn all_delivered(&self, end: Position) -> bool {
        let subscriptions = self.clients.values().filter_map(|client| client.subscription.as_ref());
        let mut lookups = self.clients.values().filter_map(|client| client.lookups.as_ref());
        subscriptions.into_iter().all(|subscription| subscription.has_ended() || subscription.next() >= end)
            && lookups.all(|lookups| lookups.has_ended() || lookups.next() >= end)
    }

    /// Whether every client is up and has nothing left to do.
    pub(super) fn all_done(&self) -> bool {
        let done = |client: &Client| {
            client.producers.values().all(Producer::is_done)
                && client.trimmer.as_ref().is_none_or(Trimmer::is_done)
        };
        self.dead_clients.is_empty() && self.clients.values().all(done)
    }
}
