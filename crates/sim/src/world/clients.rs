//! Clients: their messages, deaths and restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::{Address, Endpoint, Position, SessionId, ShardId, Time, ViewNumber, limits};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::parts::appending::LogClientConfig;

use super::CONTROL;
use super::cluster::Cluster;
use super::desks::Desks;
use super::frames::{Brief, frame, open};
use super::scene::{Flight, Happening, Scene};
use super::second::{history_of, log_of, workload_of};
use crate::client::{Client, Legacy, Post, Producer, READER};
use crate::lookups::Lookups;
use crate::network::{Lane, Party};
use crate::reader::{Reader, Style};
use crate::subscription::Subscription;
use crate::trimmer::Trimmer;

/// Clients with higher numbers never die: survivors of killed programs, and late subscribers.
const SURVIVORS: u32 = 20_000;

/// All clients and the messages that their processes have not taken.
#[derive(Debug, Default)]
pub(super) struct Clients {
    up: BTreeMap<u32, Client>,
    dead: BTreeMap<u32, BTreeMap<u64, Legacy>>,
    desks: Desks,
    shards: usize,
}

impl Clients {
    pub(super) fn begin(&mut self, cluster: &mut Cluster) {
        let entry = cluster.entry().expect("the log exists").clone();
        for number in 0..cluster.scene.plan.workload.clients {
            let sessions = 0..u64::from(cluster.scene.plan.workload.sessions);
            let producers = sessions
                .map(|machine| (machine, producer(&mut cluster.scene, number, machine, &entry)))
                .collect();
            self.add(cluster, number, producers, &entry);
        }
    }

    fn add(
        &mut self,
        cluster: &mut Cluster,
        number: u32,
        producers: BTreeMap<u64, Producer>,
        entry: &LogEntry,
    ) {
        let style = if cluster.scene.random.percent(50) { Style::Subscribe } else { Style::Poll };
        let random = cluster.scene.random.fork();
        let reader = || Reader::new(CONTROL, entry.clone(), style, Position::ZERO, random);
        let random = cluster.scene.random.fork();
        let window = match cluster.scene.plan.capacity {
            Some(_) => cluster.scene.plan.options.limits.ring_bytes as u64 / 8,
            None => limits::SUBSCRIPTIONS_BYTES,
        };
        let subscribes = cluster.scene.plan.workload.reads && cluster.scene.random.percent(40);
        let client = Client {
            number,
            producers,
            subscription: subscribes.then(|| {
                let Scene { plan, history, .. } = &mut cluster.scene;
                Subscription::new(CONTROL, entry, random, window, plan, history)
            }),
            lookups: (number < cluster.scene.plan.workload.lookups).then(|| {
                Lookups::new(CONTROL, entry.clone(), cluster.scene.plan.options, cluster.scene.random.fork())
            }),
            reader: cluster.scene.plan.workload.reads.then(reader),
            trimmer: (number == 0
                && cluster.scene.plan.workload.trims
                && cluster.scene.history.accepted.is_none())
            .then(|| Trimmer::new(CONTROL, cluster.scene.plan.options)),
            wake_at: None,
        };
        self.enter(cluster, client);
    }

    pub(super) fn enter(&mut self, cluster: &mut Cluster, client: Client) {
        let number = client.number;
        cluster.client_comes(number);
        self.up.insert(number, client);
        self.wake(cluster, number, cluster.scene.now);
    }

    fn wake(&mut self, cluster: &mut Cluster, number: u32, at: Time) {
        let Some(client) = self.up.get_mut(&number) else { return };
        if client.wake_at.is_none_or(|planned| at < planned) {
            client.wake_at = Some(at);
            cluster.scene.schedule(at, Happening::ClientWakes(number));
        }
    }

    pub(super) fn wakes(&mut self, cluster: &mut Cluster, number: u32) {
        let now = cluster.scene.now;
        let Some(client) = self.up.get_mut(&number).filter(|client| client.wake_at == Some(now)) else {
            return;
        };
        client.wake_at = None;
        if let Some(until) = self.stalls_until(cluster, number) {
            return self.wake(cluster, number, until);
        }
        if cluster.scene.plan.workload.payload_of_disks {
            take_a_piece(cluster);
        }
        let mut out = vec![];
        let workload = workload_of(&cluster.scene.plan, number);
        let Some(client) = self.up.get_mut(&number) else { return };
        let history = history_of(&mut cluster.scene.history, number);
        client.wake(now, &workload, &mut cluster.scene.random, history, &mut out);
        self.send(cluster, number, out);
    }

    fn send(&mut self, cluster: &mut Cluster, number: u32, out: Vec<Post>) {
        for (machine, to, message) in out {
            let Address::Node(node, endpoint) = to else { continue };
            let log = log_of(&cluster.scene, number);
            let bytes = frame(log, Endpoint::Client(machine), endpoint, &message);
            let ready = self.works(cluster, number, bytes.len());
            cluster.transmit_at(ready, Lane::Bulk, Party::Client(number), Party::Node(node), bytes);
        }
        let Some(at) = self.up.get(&number).and_then(Client::deadline) else { return };
        self.wake(cluster, number, at.max(cluster.scene.now));
    }

    pub(super) fn receives(&mut self, cluster: &mut Cluster, number: u32, from: Party, bytes: &Bytes) {
        let (_, sender, to, message) = open(bytes.clone()).expect("what was encoded is decoded");
        let text = Brief(&message);
        cluster.scene.tell(format_args!("{from:?} {sender:?} to client {number} {to:?}: {text}"));
        let (Party::Node(node), Endpoint::Client(machine)) = (from, to) else { return };
        let Some(client) = self.up.get_mut(&number) else { return };
        let mut out = vec![];
        let history = history_of(&mut cluster.scene.history, number);
        client.receive(cluster.scene.now, machine, Address::Node(node, sender), message, history, &mut out);
        self.send(cluster, number, out);
    }

    pub(super) fn loses(&mut self, cluster: &mut Cluster, number: u32, other: Party) {
        let Party::Node(node) = other else { return };
        let Some(client) = self.up.get_mut(&number) else { return };
        let mut out = vec![];
        client.disconnected(
            cluster.scene.now,
            node,
            history_of(&mut cluster.scene.history, number),
            &mut out,
        );
        self.send(cluster, number, out);
    }

    pub(super) fn kill(&mut self, cluster: &mut Cluster, number: u32, down_for: Duration) {
        let workload = &cluster.scene.plan.workload;
        let remembers = cluster.scene.random.percent(workload.resume_percent) && !workload.unordered;
        let Some(client) = self.up.remove(&number) else { return };
        cluster.client_goes(number);
        if let Some(subscription) = &client.subscription {
            subscription.leave(&mut cluster.scene.history);
        }
        cluster.scene.coverage.expired += client.producers.values().map(Producer::expired).sum::<u64>();
        let lives_on =
            remembers && cluster.scene.random.percent(cluster.scene.plan.workload.lives_on_percent);
        let survivors = lives_on.then(|| client.survivors());
        let legacies: BTreeMap<u64, Legacy> = client
            .producers
            .into_iter()
            .map(|(machine, producer)| (machine, producer.die(remembers, &mut cluster.scene.random)))
            .collect();
        cluster.scene.tell(format_args!("client {number} is killed"));
        self.dead.insert(number, legacies);
        self.hang_up(cluster, number);
        cluster.scene.schedule(cluster.scene.now + down_for, Happening::ClientStarts(number));
        if let Some(survivors) = survivors {
            self.add_survivors(cluster, survivors);
        }
    }

    pub(super) fn mortal(&self) -> Vec<u32> {
        self.up.keys().copied().filter(|number| *number <= SURVIVORS).collect()
    }

    /// Adds a subscriber for each shard that is about to join.
    pub(super) fn look_at_register(&mut self, cluster: &mut Cluster) {
        let Some(entry) = cluster.entry().cloned() else { return };
        let known = std::mem::replace(&mut self.shards, entry.shards.len());
        if cluster.scene.plan.reshapes.is_empty() || known == 0 || cluster.scene.history.calm_since.is_some()
        {
            return;
        }
        for shard in (known..entry.shards.len()).map(|shard| ShardId(shard as u32)) {
            let (number, window) = (self.free_number(), limits::SUBSCRIPTIONS_BYTES);
            let Scene { plan, history, .. } = &mut cluster.scene;
            let subscription = Subscription::to_joining(CONTROL, &entry, shard, window, plan, history);
            cluster.scene.tell(format_args!("client {number} subscribes to shard {shard}, which is to join"));
            let client = Client { subscription: Some(subscription), ..Client::new(number, BTreeMap::new()) };
            self.enter(cluster, client);
        }
    }

    fn free_number(&self) -> u32 {
        self.up.keys().last().copied().unwrap_or_default().max(SURVIVORS) + 1
    }

    /// Adds a program that lives on although it is believed dead; its connections are broken.
    fn add_survivors(&mut self, cluster: &mut Cluster, producers: BTreeMap<u64, Producer>) {
        let number = self.free_number();
        let client = Client::new(number, producers);
        cluster.scene.tell(format_args!("it lives on as client {number}"));
        cluster.client_comes(number);
        self.up.insert(number, client);
        for node in cluster.ids() {
            self.loses(cluster, number, Party::Node(node));
        }
        let most_ms = cluster.scene.plan.workload.cut_off_most_ms;
        if most_ms > 0 {
            let lasting = cluster.scene.random.millis(1, most_ms);
            cluster.cut_off(Party::Client(number), lasting);
        }
        self.wake(cluster, number, cluster.scene.now);
    }

    pub(super) fn starts(&mut self, cluster: &mut Cluster, number: u32) {
        let Some(legacies) = self.dead.remove(&number) else { return };
        let known = cluster.scene.history.views.values().last().map(|known| known.view.clone());
        // The first entry may be outdated: the latest registered view replaces its view.
        let mut entry =
            cluster.entry().cloned().or_else(|| cluster.scene.first_entry.clone()).expect("the log exists");
        entry.view = known.or(entry.view);
        let mut producers = BTreeMap::new();
        for (machine, legacy) in legacies {
            let session = cluster.scene.history.open_session();
            let config = machine_config(&mut cluster.scene, legacy.session());
            cluster.scene.coverage.resumed += u64::from(legacy.session().is_some());
            let producer =
                Producer::new(machine, number, session, 0, (config, entry.clone()), cluster.scene.now);
            let mut producer = producer.resume(legacy, cluster.scene.now, &mut cluster.scene.history);
            if cluster.scene.history.calm_since.is_some() {
                producer.hurry();
            }
            producers.insert(machine, producer);
        }
        cluster.scene.tell(format_args!("client {number} starts"));
        self.add(cluster, number, producers, &entry);
    }

    /// Restarts dead clients and ends all pauses.
    pub(super) fn calm(&mut self, cluster: &mut Cluster) {
        for number in self.dead() {
            self.starts(cluster, number);
        }
        for number in self.numbers() {
            let producers =
                self.up.get_mut(&number).into_iter().flat_map(|client| client.producers.values_mut());
            producers.for_each(Producer::hurry);
            self.wake(cluster, number, cluster.scene.now);
        }
    }

    pub(super) fn ask_tails(&mut self, cluster: &mut Cluster) {
        for number in self.numbers() {
            let mut out = vec![];
            let history = history_of(&mut cluster.scene.history, number);
            let producers =
                self.up.get_mut(&number).into_iter().flat_map(|client| client.producers.values_mut());
            producers.for_each(|producer| producer.ask_tail(cluster.scene.now, history, &mut out));
            self.send(cluster, number, out);
        }
    }

    pub(super) fn end(&mut self, cluster: &mut Cluster) {
        let clients = std::mem::take(&mut self.up);
        clients.keys().for_each(|number| cluster.client_goes(*number));
        let producers = clients.values().flat_map(|client| client.producers.values());
        cluster.scene.coverage.expired += producers.map(Producer::expired).sum::<u64>();
    }

    /// Whether every subscription and every sequential read has reached `end`, or ended.
    pub(super) fn have_delivered(&self, end: Position) -> bool {
        let subscriptions = self.up.values().filter_map(|client| client.subscription.as_ref());
        let mut lookups = self.up.values().filter_map(|client| client.lookups.as_ref());
        subscriptions
            .into_iter()
            .all(|subscription| subscription.has_ended() || subscription.has_all_below(end))
            && lookups.all(|lookups| lookups.has_ended() || lookups.next() >= end)
    }

    pub(super) fn know(&self, view: ViewNumber) -> bool {
        let mut subscriptions = self.up.values().filter_map(|client| client.subscription.as_ref());
        subscriptions.all(|subscription| subscription.has_ended() || subscription.knows(view))
    }

    pub(super) fn are_done(&self) -> bool {
        let done = |client: &Client| {
            client.producers.values().all(Producer::is_done)
                && client.trimmer.as_ref().is_none_or(Trimmer::is_done)
        };
        self.dead.is_empty() && self.up.values().all(done)
    }

    /// Closes a client's connections and drops its unread messages.
    fn hang_up(&mut self, cluster: &mut Cluster, number: u32) {
        cluster.hang_up(Party::Client(number));
        self.desks.clear(number);
    }

    pub(super) fn add_reader(&mut self, cluster: &mut Cluster, number: u32, reader: Reader) {
        let client = Client { reader: Some(reader), ..Client::new(number, BTreeMap::new()) };
        self.enter(cluster, client);
    }

    pub(super) fn has_read(&self, number: u32) -> bool {
        self.up[&number].reader.as_ref().is_some_and(Reader::is_done)
    }

    pub(super) fn end_reader(&mut self, cluster: &mut Cluster, number: u32) -> Reader {
        let client = self.end_one(cluster, number);
        client.reader.unwrap_or_else(|| unreachable!("machine {READER} is a reader"))
    }

    /// Ends a client for which nothing waits.
    pub(super) fn end_one(&mut self, cluster: &mut Cluster, number: u32) -> Client {
        self.hang_up(cluster, number);
        cluster.client_goes(number);
        self.up.remove(&number).expect("it is there")
    }

    pub(super) fn add_trimmer(&mut self, cluster: &mut Cluster, number: u32, trimmer: Trimmer) {
        let client = Client { trimmer: Some(trimmer), ..Client::new(number, BTreeMap::new()) };
        self.enter(cluster, client);
    }

    pub(super) fn has_trimmed(&self, number: u32) -> bool {
        self.up[&number].trimmer.as_ref().is_some_and(Trimmer::is_done)
    }

    /// Clients with a running process.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.up.keys().copied().collect()
    }

    /// Clients waiting for a restart.
    pub(super) fn dead(&self) -> Vec<u32> {
        self.dead.keys().copied().collect()
    }

    pub(super) fn are_appending(&self) -> bool {
        let mut producers = self.up.values().flat_map(|client| client.producers.values());
        producers.any(Producer::is_appending)
    }

    pub(super) fn trim_no_more(&mut self) {
        self.up.values_mut().for_each(|client| client.trimmer = None);
    }

    pub(super) fn deadlines(&self) -> Vec<String> {
        self.up.values().map(Client::deadlines).collect()
    }

    pub(super) fn state(&self) -> Vec<String> {
        let mut lines = vec![];
        for client in self.up.values() {
            for (machine, producer) in client.producers.iter().filter(|(_, producer)| !producer.is_done()) {
                lines.push(format!("client {}, session {machine}: {}", client.number, producer.state()));
            }
            if let Some(subscription) = &client.subscription {
                lines.push(format!("client {}: subscription at {}", client.number, subscription.next()));
            }
            if let Some(lookups) = &client.lookups {
                lines.push(format!("client {}: read through up to {}", client.number, lookups.next()));
            }
            if let Some(trimmer) = client.trimmer.as_ref().filter(|trimmer| !trimmer.is_done()) {
                lines.push(format!("client {}: {trimmer:?}", client.number));
            }
        }
        lines
    }

    fn schedule_reset(cluster: &mut Cluster, client: u32) {
        let Some(every) = cluster.scene.plan.workload.reset_every else { return };
        let after = cluster.scene.random.micros(0, 2 * every.as_micros() as u64);
        cluster.scene.schedule(cluster.scene.now + after, Happening::ClientLosesAll(client));
    }

    /// Breaks a client's connections, repeatedly until the load ends.
    pub(super) fn loses_all(cluster: &mut Cluster, client: u32) {
        if cluster.scene.history.load.as_ref().is_none_or(|load| load.ended <= cluster.scene.now) {
            return;
        }
        cluster.reset_all(Party::Client(client));
        Self::schedule_reset(cluster, client);
    }

    pub(super) fn queue(&mut self, cluster: &mut Cluster, number: u32, flight: Flight) {
        if let Some(at) = self.desks.put(number, flight) {
            cluster.scene.schedule(at, Happening::ClientReads(number));
        }
    }

    fn stalls_until(&self, cluster: &Cluster, number: u32) -> Option<Time> {
        self.desks.stalls_until(number, cluster.scene.now)
    }

    /// Takes the client's next message, unless its process pauses.
    pub(super) fn takes(&mut self, cluster: &mut Cluster, number: u32) -> Option<Flight> {
        if let Some(until) = self.stalls_until(cluster, number) {
            cluster.scene.schedule(until, Happening::ClientReads(number));
            return None;
        }
        let flight = self.desks.take(number)?;
        self.works(cluster, number, flight.frame.len());
        cluster.took((flight.connection, flight.to), flight.frame.len());
        Some(flight)
    }

    pub(super) fn go_on(&mut self, cluster: &mut Cluster, number: u32) {
        if let Some(at) = self.desks.go_on(number) {
            cluster.scene.schedule(at, Happening::ClientReads(number));
        }
    }

    /// Occupies a client's processor with a message. Returns when it is free.
    fn works(&mut self, cluster: &mut Cluster, number: u32, bytes: usize) -> Time {
        let Some(capacity) = &cluster.scene.plan.capacity else { return cluster.scene.now };
        let takes = Duration::from_nanos(capacity.client_message_ns + bytes as u64 * capacity.byte_ns / 2);
        self.desks.work(number, cluster.scene.now, takes)
    }

    fn schedule_stall(&mut self, cluster: &mut Cluster, client: u32) {
        let Some(capacity) =
            cluster.scene.plan.capacity.filter(|capacity| capacity.client_stall > Duration::ZERO)
        else {
            return;
        };
        let after = cluster.scene.random.micros(0, (capacity.stall_every * 2).as_micros() as u64);
        let free_at = self.desks.free_at(client);
        cluster.scene.schedule(free_at.max(cluster.scene.now) + after, Happening::ClientStalls(client));
    }

    pub(super) fn stalls(&mut self, cluster: &mut Cluster, client: u32) {
        if cluster.scene.history.load.as_ref().is_none_or(|load| load.ended <= cluster.scene.now) {
            return;
        }
        let most = cluster.scene.plan.capacity.map_or(Duration::ZERO, |capacity| capacity.client_stall);
        let takes = cluster.scene.random.micros(0, most.as_micros() as u64);
        self.desks.stall(client, cluster.scene.now, takes);
        cluster.scene.tell(format_args!("client {client} is not scheduled for {takes:?}"));
        self.schedule_stall(cluster, client);
    }

    pub(super) fn begin_load(&mut self, cluster: &mut Cluster) {
        for client in self.numbers() {
            Self::schedule_reset(cluster, client);
            self.schedule_stall(cluster, client);
        }
    }

    /// Ends the load: clients make no new requests.
    pub(super) fn end_load(&mut self) {
        for client in self.up.values_mut() {
            client.producers.values_mut().for_each(Producer::stop);
        }
    }
}

fn producer(scene: &mut Scene, client: u32, machine: u64, entry: &LogEntry) -> Producer {
    let config = machine_config(scene, None);
    let start = scene.now + scene.random.micros(0, scene.plan.workload.think_us);
    let session = scene.history.open_session();
    Producer::new(machine, client, session, scene.plan.workload.appends, (config, entry.clone()), start)
}

/// Configuration of a session. `resume`: the session to resume and its next number.
pub(super) fn machine_config(scene: &mut Scene, resume: Option<(SessionId, u64)>) -> LogClientConfig {
    LogClientConfig { control: CONTROL, random: scene.random.draw(), resume, options: scene.plan.options }
}

/// Copies a piece of a random disk, for payloads.
fn take_a_piece(cluster: &mut Cluster) {
    let node = cluster.scene.random.pick(&cluster.ids());
    let disk = cluster.node(node).disk.clone();
    let files = disk.files();
    if files.is_empty() {
        return;
    }
    let file = cluster.scene.random.pick(&files);
    let content = disk.content(&file).unwrap_or_default();
    let written = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1) as u64;
    let most = cluster.scene.plan.workload.payload_bytes;
    let offset = cluster.scene.random.below(written + 1);
    let start = if cluster.scene.random.percent(70) { offset / 512 * 512 } else { offset };
    let end = written.min(start + most);
    cluster.scene.history.piece = Bytes::copy_from_slice(&content[start as usize..end as usize]);
}
