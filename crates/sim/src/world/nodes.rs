//! Nodes: the driver's loop, the disk, crashes and restarts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use seriatim_host::{Event, FileWork, Host, HostConfig, Outgoing, Problem, RegisterPlace};
use seriatim_model::limits::Limits;
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError};
use seriatim_model::{ConnectionId, Endpoint, Incarnation, LogId, NodeId, Peer, ShardId, Time, ViewNumber};
use seriatim_protocol::control::{self, Heartbeat};
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::shard::Replica;
use seriatim_protocol::{Deviation, Message};
use seriatim_store::{Disk, JournalWrite, MemoryDisk, Secret};

use super::CONTROL;
use super::cluster::Cluster;
use super::meter::Meter;
use super::observe::Witness;
use super::pulse::Pulse;
use super::scene::Happening;
use super::work::{DRAIN, DRAIN_FOR, Departure, Waiting};
use crate::capacity::Capacity;
use crate::excuses::Excuse;
use crate::network::{Connection, Lane, Party};
use crate::pipes::Way;

/// How long a node that could not start waits before it is started again.
const START_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How often a node may want to be woken at the same instant.
const MOST_ROUNDS: u32 = 1000;

/// A node and its disk.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) disk: MemoryDisk,
    pub(super) host: Option<Host>,
    pub(super) pulse: Pulse,
    /// Counts its starts and ends, so that what belongs to an earlier life is recognised.
    pub(super) life: u64,
    inbox: VecDeque<Waiting>,
    /// Events that are taken before the inbox, where work takes time: what the disk did, and what became of nodes.
    urgent: VecDeque<Waiting>,
    /// It works until then, and its disk until then, and it is not scheduled until then, where work takes time.
    pub(super) busy_until: Time,
    pub(super) stalled_until: Time,
    pub(super) disk_free: Time,
    pub(super) meter: Meter,
    /// How much it holds in memory of what is on its way to disks and positions, in bytes.
    pub(super) held_bytes: u64,
    wake_at: Option<Time>,
    write: Option<JournalWrite>,
    syncing: Option<FileWork>,
    /// How many times as long as usual a sync takes.
    pub(super) slowness: u32,
    /// How much later than it could it does anything.
    pub(super) lag: Duration,
    /// It does nothing until it is told to go on.
    pub(super) is_paused: bool,
    /// How far its clock is ahead of the world's. It never decreases.
    pub(super) clock_ahead: Duration,
    /// Its disk lost what was not synced, or had no room, at some time.
    pub(super) has_torn_disk: bool,
    /// The lives of its roles, if it was ended in an orderly way.
    pub(super) asleep: Option<Lives>,
    /// Why it does not start, if it does not.
    pub(super) trouble: Option<String>,
}

/// The incarnations of the tested log's roles on one node, apart from replicas that lack something. Of
/// replicas of shards also the latest view that they know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lives {
    pub(super) sequencer: Option<Incarnation>,
    pub(super) replicas: BTreeMap<ShardId, (Incarnation, ViewNumber)>,
}

impl Lives {
    /// Whether all these lives are among the later ones.
    fn go_on_in(&self, later: &Self) -> bool {
        let life = |lives: &Self, shard| lives.replicas.get(shard).map(|(life, _)| *life);
        self.sequencer == later.sequencer
            && self.replicas.keys().all(|shard| life(self, shard) == life(later, shard))
    }
}

impl Node {
    pub(super) fn new(id: NodeId, disk: MemoryDisk, clock_ahead: Duration, limits: &Limits) -> Self {
        Self {
            id,
            disk,
            host: None,
            pulse: Pulse::new(limits),
            life: 0,
            inbox: VecDeque::new(),
            urgent: VecDeque::new(),
            busy_until: Time::ZERO,
            stalled_until: Time::ZERO,
            disk_free: Time::ZERO,
            meter: Meter::default(),
            held_bytes: 0,
            wake_at: None,
            write: None,
            syncing: None,
            slowness: 1,
            lag: Duration::ZERO,
            is_paused: false,
            clock_ahead,
            has_torn_disk: false,
            asleep: None,
            trouble: None,
        }
    }

    pub(super) fn lives(&self, log: LogId, shards: u32) -> Lives {
        let Some(host) = &self.host else { return self.asleep.clone().unwrap_or_default() };
        let replica = |shard| {
            let role = host.replica(log, shard).filter(|role| role.lacks().is_none())?;
            Some((shard, (role.memory().incarnation, role.held().view)))
        };
        Lives {
            sequencer: host.sequencer(log).filter(|role| role.keeps()).map(|role| role.member().incarnation),
            replicas: (0..shards).map(ShardId).filter_map(replica).collect(),
        }
    }

    /// The sequencing role of the log, if the node is up and hosts it.
    pub(super) fn sequencer(&self, log: LogId) -> Option<&dyn SequencingRole> {
        self.host.as_ref()?.sequencer(log)
    }

    /// Its replica of a shard, if it runs.
    pub(super) fn replica(&self, log: LogId, shard: ShardId) -> Option<&Replica> {
        self.host.as_ref()?.replica(log, shard)
    }

    /// The life of one of its roles, and the highest claim that this obeys, if it runs.
    pub(super) fn life_and_claim(&self, log: LogId, role: Endpoint) -> Option<(Incarnation, ViewNumber)> {
        match role {
            Endpoint::Sequencer => {
                self.sequencer(log).map(|replica| (replica.member().incarnation, replica.claim()))
            }
            Endpoint::Shard(shard) => {
                let memory = self.replica(log, shard)?.memory();
                Some((memory.incarnation, memory.claim))
            }
            _ => None,
        }
    }

    fn forget_life(&mut self) {
        self.life += 1;
        self.inbox.clear();
        self.urgent.clear();
        (self.busy_until, self.stalled_until) = (Time::ZERO, Time::ZERO);
        self.meter.forget_writes(&self.disk);
        self.held_bytes = 0;
        self.pulse.stop();
        self.wake_at = None;
        self.write = None;
        self.syncing = None;
        self.is_paused = false;
    }

    /// Its state, and that of its roles of a log with these shards, for a person.
    pub(super) fn state(&self, log: LogId, shards: impl Iterator<Item = ShardId>) -> Vec<String> {
        let id = self.id;
        let mut lines = vec![];
        if let Some(trouble) = &self.trouble {
            lines.push(format!("node {id} does not start: {trouble}"));
        }
        let Some(host) = &self.host else { return lines };
        let silent: Vec<NodeId> = host.suspected().collect();
        if !silent.is_empty() {
            lines.push(format!("node {id} does not hear {silent:?}"));
        }
        if host.has_full_disk() {
            let mut sizes: BTreeMap<String, (usize, u64)> = BTreeMap::new();
            for file in self.disk.files() {
                let directory = file.rsplit_once('/').map_or("", |(directory, _)| directory).to_owned();
                let size = sizes.entry(directory).or_default();
                *size = (size.0 + 1, size.1 + self.disk.content(&file).map_or(0, |bytes| bytes.len() as u64));
            }
            let (free, waits) = (host.free_bytes(), host.journal_pending_bytes());
            lines.push(format!(
                "node {id} has a full disk, {free:?} left, {waits} bytes wait; files and bytes: {sizes:?}"
            ));
        }
        if let Some(role) = host.sequencer(log) {
            lines.push(format!(
                "node {id}, life {}: open {}, view {}, ordered {}, held {}",
                role.member().incarnation,
                role.is_open(),
                role.view_number(),
                role.ordered(),
                role.held()
            ));
        }
        for shard in shards {
            if let Some(role) = host.replica(log, shard) {
                let memory = role.memory();
                let view = memory.view.as_ref().map(|view| view.number);
                lines.push(format!(
                    "node {id}, shard {shard}, life {}: view {view:?}, claim {}, trim {}, stable {}, lacks {:?}, holds {} \
                     records that have no positions",
                    memory.incarnation,
                    memory.claim,
                    role.held().trim,
                    role.stable(),
                    role.lacks(),
                    role.unnamed()
                ));
            }
        }
        lines
    }

    /// It and its disk, which has room for `most` bytes, work as they should.
    pub(super) fn heal(&mut self, most: Option<u64>) {
        self.disk.set_capacity(most);
        self.disk.fail_syncs(0);
        self.disk.lie(false);
        (self.lag, self.slowness) = (Duration::ZERO, 1);
    }

    /// The event that comes next.
    fn next_waiting(&mut self) -> Option<Waiting> {
        self.urgent.pop_front().or_else(|| self.inbox.pop_front())
    }

    /// How long its disk takes for so many bytes.
    pub(super) fn disk_takes(&self, capacity: &Capacity, bytes: u64) -> Duration {
        let takes = bytes as u128 * 1_000_000_000 / u128::from(capacity.disk_bytes_of(self.id));
        Duration::from_nanos(takes as u64) * self.slowness
    }

    /// The time that the node's own clock shows.
    pub(super) fn clock(&self, now: Time) -> Time {
        now + self.clock_ahead
    }

    /// When the node's own clock shows `at`.
    pub(super) fn when(&self, at: Time) -> Time {
        Self::shows(self.clock_ahead, at)
    }

    /// When a clock that is so far ahead shows `at`.
    pub(super) fn shows(ahead: Duration, at: Time) -> Time {
        Time::ZERO + at.since(Time::ZERO + ahead)
    }
}

impl Cluster {
    pub(super) fn start_node(&mut self, id: NodeId) {
        let seed = self.scene.random.draw();
        let config = self.host_config(id, seed);
        let shards = self.scene.history.shard_count;
        let log = self.scene.log;
        let is_damaged = self.disks.damaged_node() == Some(id);
        let lost_a_part = self.disks.lost_a_part(id);
        let lied = lost_a_part && self.disks.was_set_back(&self.scene, id);
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.host.is_some() {
            return;
        }
        node.forget_life();
        match Host::open(config, Arc::new(node.disk.clone())) {
            Ok(host) => {
                let is_shard = |endpoint| matches!(endpoint, Endpoint::Shard(_));
                self.scene.coverage.put_aside += host.problems().len() as u64;
                // Without syncs, a power cut may leave anything.
                let is_torn = !self.scene.history.is_on_disk() && node.has_torn_disk;
                let is_unexpected = |problem: &&Problem| {
                    let is_rotten = is_damaged && problem.log == log && is_shard(problem.endpoint);
                    !self.scene.history.excuse(Excuse::PutAside, is_torn || lost_a_part || is_rotten)
                };
                let unexpected: Vec<_> = host.problems().iter().filter(is_unexpected).cloned().collect();
                for problem in unexpected {
                    let cause = format!(
                        "node {id} lost {:?} of log {}: {}",
                        problem.endpoint, problem.log, problem.cause
                    );
                    self.scene.note_problem(cause);
                }
                // A start is no step.
                node.meter.forget_reads(host.visited(), &node.disk);
                let asleep = node.asleep.take();
                node.host = Some(host);
                node.trouble = None;
                if asleep.is_some_and(|asleep| !is_damaged && !asleep.go_on_in(&node.lives(log, shards))) {
                    self.scene
                        .note_problem(format!("node {id} was ended in an orderly way and forgot who it is"));
                }
                self.scene.tell(format_args!("node {id} starts"));
                self.start_detector(id, seed);
                self.witness.started(&mut self.scene, &self.nodes, id);
                self.wake_node(id, self.scene.now);
                self.witness.look_at_register(&mut self.scene, &self.nodes);
            }
            Err(cause) => {
                let life = node.life;
                node.trouble = Some(cause.to_string());
                // The operator does this about a disk that does not read, or whose journal has lost what it needs.
                node.disk.replace_bad_sectors();
                if lied {
                    node.disk = MemoryDisk::new();
                }
                self.scene.tell(format_args!("node {id} does not start: {cause}"));
                self.scene.schedule(self.scene.now + START_AGAIN_AFTER, Happening::NodeStarts(id, life));
            }
        }
    }

    /// A node's configuration, for the process that starts with this seed.
    fn host_config(&self, id: NodeId, seed: u64) -> HostConfig {
        HostConfig {
            cluster: 77,
            node: id,
            address: format!("node-{id}:7700"),
            register: RegisterPlace::Node { node: CONTROL, address: format!("node-{CONTROL}:7700") },
            seed,
            secret: Secret::new(seed.into()),
            options: self.scene.plan.options_of(id),
            journal: self.scene.plan.journal,
            shard_options: self.scene.plan.shard_options,
        }
    }

    /// The node's process ends at once. With `power`, its disk keeps any part of what was not synced.
    pub(super) fn kill_node(&mut self, id: NodeId, power: bool, down_for: Duration) {
        let cut_after = self.scene.random.below(12);
        let seed = self.scene.random.draw();
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.host.take().is_none() {
            return;
        }
        if let Some(write) = &node.write {
            // The write was somewhere on its way; it may even be done.
            let cut = CutShort { disk: node.disk.clone(), operations_left: AtomicU64::new(cut_after) };
            // Whether it got through is nobody's knowledge.
            drop(write.perform(&cut));
        }
        if power {
            node.disk.crash(seed);
            (node.has_torn_disk, self.scene.history.disks_failed) = (true, true);
        }
        node.disk.fail_syncs(0);
        node.forget_life();
        self.witness.copies.lose_sight_of(id);
        let life = node.life;
        self.scene.tell(format_args!("node {id} is killed, power {power}"));
        self.hang_up(Party::Node(id));
        Witness::check_losses(&mut self.scene, &self.nodes);
        self.scene.schedule(self.scene.now + down_for, Happening::NodeStarts(id, life));
    }

    /// The node's process ends in an orderly way.
    pub(super) fn close_node(&mut self, id: NodeId, down_for: Duration) {
        if self.nodes[&id].is_paused {
            self.resume_node(id, self.nodes[&id].life);
        }
        // The node waits for the work under way, and hears what arrived by then; it begins nothing new.
        let life = self.nodes[&id].life;
        self.written(id, life);
        self.synced(id, life);
        let (log, shards, now) = (self.scene.log, self.scene.history.shard_count, self.scene.now);
        while let Some(Waiting { event, .. }) =
            self.nodes.get_mut(&id).expect("the node exists").next_waiting()
        {
            let node = self.nodes.get_mut(&id).expect("the node exists");
            let clock = node.clock(now);
            let Some(host) = &mut node.host else { return };
            host.handle(clock, event);
            self.witness.note_ordered(&mut self.scene, &self.nodes, id);
        }
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.host.is_none() {
            return;
        }
        let lives = node.lives(log, shards);
        let host = node.host.take().expect("just seen");
        let has_returned = host.has_returned();
        match host.close() {
            Ok(()) => node.asleep = has_returned.then_some(lives),
            Err(cause) => self.scene.tell(format_args!("node {id} cannot be closed: {cause}")),
        }
        let node = self.nodes.get_mut(&id).expect("the node exists");
        node.forget_life();
        let life = node.life;
        self.scene.tell(format_args!("node {id} is closed"));
        self.hang_up(Party::Node(id));
        Witness::check_losses(&mut self.scene, &self.nodes);
        self.scene.schedule(self.scene.now + down_for, Happening::NodeStarts(id, life));
    }

    /// The node's process does nothing until it is resumed.
    pub(super) fn pause_node(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        node.is_paused = node.host.is_some();
        node.wake_at = None;
    }

    /// The opposite of [`World::pause_node`], unless the process is another by now.
    pub(super) fn resume_node(&mut self, id: NodeId, life: u64) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.life == life {
            node.is_paused = false;
            node.pulse.go_on();
            self.plan_beat(id);
            self.wake_node(id, self.scene.now);
        }
    }

    pub(super) fn wake_node(&mut self, id: NodeId, at: Time) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let at = (at + node.lag).max(node.busy_until);
        if node.host.is_some() && !node.is_paused && node.wake_at.is_none_or(|planned| at < planned) {
            node.wake_at = Some(at);
            self.scene.schedule(at, Happening::NodeWakes(id));
        }
    }

    /// A node takes a little to get to what arrived, and finds more by then.
    fn wake_node_soon(&mut self, id: NodeId) {
        let (least, most) = self.scene.plan.network.delay_us;
        let pause = if least == most { Duration::ZERO } else { self.scene.random.micros(0, 30) };
        self.wake_node(id, self.scene.now + pause);
    }

    pub(super) fn node_receives(&mut self, id: NodeId, connection: Connection, from: Party, frame: &Bytes) {
        let (log, sender, to, message) = open(frame.clone()).expect("what was encoded is decoded");
        let text = Brief(&message);
        let what = format_args!("{from:?} {sender:?} to node {id} {to:?}, log {log}: {text}");
        self.scene.tell(what);
        if let Some((other, beat)) = heartbeat(from, &message)
            && !self.scene.plan.options.deviates(Deviation::HeartbeatsBehindRecords)
        {
            return self.heartbeat_arrives(id, connection, other, beat);
        }
        let peer = peer_of(connection, from);
        let came = self.scene.plan.capacity.map(|_| ((connection, Party::Node(id)), frame.len()));
        self.node_gets(id, Waiting { event: Event::Message { peer, log, from: sender, to, message }, came });
    }

    pub(super) fn node_loses(&mut self, id: NodeId, connection: Connection, other: Party, life: u64) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.life == life {
            let lane = self.wires.network.lane(connection);
            let has_lanes = self.scene.plan.capacity.is_some();
            if lane == Lane::Bulk {
                self.node_is_told(id, Event::Disconnected(peer_of(connection, other)));
            }
            if let Party::Node(other) = other
                && (lane == Lane::Urgent || !has_lanes)
            {
                self.heartbeats_end(id, connection, other);
            }
        }
    }

    /// Something is in the node's inbox, which it looks at soon.
    pub(super) fn node_is_told(&mut self, id: NodeId, event: Event) {
        self.node_gets(id, Waiting { event, came: None });
    }

    fn node_gets(&mut self, id: NodeId, waiting: Waiting) {
        let is_urgent = self.scene.plan.capacity.is_some() && matches!(waiting.event, Event::Liveness(_));
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if is_urgent { &mut node.urgent } else { &mut node.inbox }.push_back(waiting);
        self.wake_node_soon(id);
    }

    pub(super) fn written(&mut self, id: NodeId, life: u64) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.life != life {
            return;
        }
        let Some(write) = node.write.take() else { return };
        let event = Event::JournalWritten(write.perform(&node.disk));
        self.disks.keep(&self.scene, id, &self.nodes[&id].disk);
        self.disk_tells(id, event);
    }

    pub(super) fn synced(&mut self, id: NodeId, life: u64) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.life != life {
            return;
        }
        let Some(work) = node.syncing.take() else { return };
        let outcome = work.perform(&node.disk);
        self.scene.coverage.checkpoints += u64::from(work.is_checkpoint());
        self.disk_tells(id, Event::FilesSynced(outcome));
    }

    fn disk_tells(&mut self, id: NodeId, event: Event) {
        self.journal_wrote(id);
        let is_urgent = self.scene.plan.capacity.is_some();
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let waiting = Waiting { event, came: None };
        if is_urgent { &mut node.urgent } else { &mut node.inbox }.push_back(waiting);
        self.wake_node(id, self.scene.now);
    }

    /// A node is woken. Says whether it took its turn to the end.
    pub(super) fn node_wakes(&mut self, id: NodeId) -> bool {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.wake_at != Some(self.scene.now) || node.is_paused {
            return false;
        }
        // It may have been busy for longer than was known when it was to be woken.
        node.wake_at = None;
        if node.busy_until > self.scene.now {
            self.wake_node(id, self.scene.now);
            return false;
        }
        self.node_works(id)
    }

    /// A node takes what has arrived, does what is due, and performs its effects, as the server's driver does.
    fn node_works(&mut self, id: NodeId) -> bool {
        let now = self.scene.now;
        let mut departures = vec![];
        let Some(spent) = self.node_drains(id, &mut departures) else { return false };
        let Some(spent) = self.node_settles(id, spent, &mut departures) else { return false };
        let node = self.nodes.get_mut(&id).expect("the node exists");
        node.busy_until = now + spent;
        if let Some(failure) = node.host.as_ref().and_then(Host::failure) {
            self.scene.trace.line(now, format_args!("node {id} failed: {failure}"));
            let down_for = self.scene.random.millis(1, 100);
            self.kill_node(id, true, down_for);
            return false;
        }
        self.start_disk_work(id);
        for Departure { outgoing, frame, after } in departures {
            self.witness.sent(&mut self.scene, &self.nodes, id, &outgoing);
            self.send_from(id, &outgoing, frame, now + after);
        }
        let damaged = self.disks.damaged_node();
        self.witness.acted(&mut self.scene, &self.nodes, damaged, id);
        self.meet_nodes(id);
        let node = &self.nodes[&id];
        let has_more = !node.inbox.is_empty() || !node.urgent.is_empty();
        if let Some(at) = node.host.as_ref().and_then(Host::deadline) {
            self.wake_node(id, node.when(at).max(now + Duration::from_nanos(1)));
        }
        if has_more {
            self.wake_node(id, now + spent);
        }
        true
    }

    /// Takes what has arrived: all of it, unless work takes time. Says how long it took.
    fn node_drains(&mut self, id: NodeId, departures: &mut Vec<Departure>) -> Option<Duration> {
        let now = self.scene.now;
        let wall_ms = self.scene.wall_ms(id);
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if let (Some(wall_ms), Some(host)) = (wall_ms, &mut node.host) {
            host.note_wall(wall_ms);
        }
        let clock = node.clock(now);
        let most = if self.scene.plan.capacity.is_some() { DRAIN } else { node.inbox.len() };
        let mut spent = Duration::ZERO;
        for _ in 0..most {
            let node = self.nodes.get_mut(&id).expect("the node exists");
            let Some(Waiting { event, came }) = node.next_waiting() else { break };
            if let Some((via, other, beat)) = late_heartbeat(&event, came) {
                self.heartbeat_arrives(id, via, other, beat);
                continue;
            }
            node.host.as_mut()?.handle(clock + spent, event);
            // A confirmation that the node gave before a seal counts, even if the seal came with it.
            self.witness.note_ordered(&mut self.scene, &self.nodes, id);
            spent = self.charge(id, spent, came, departures);
            if let Some((way, bytes)) = came {
                self.took(way, bytes);
            }
            if spent >= DRAIN_FOR {
                break;
            }
        }
        Some(spent)
    }

    /// Does what is due. Says how long the turn took so far.
    fn node_settles(
        &mut self,
        id: NodeId,
        mut spent: Duration,
        departures: &mut Vec<Departure>,
    ) -> Option<Duration> {
        let now = self.scene.now;
        let clock = self.nodes[&id].clock(now);
        for _ in 0..=MOST_ROUNDS {
            let host = self.nodes.get_mut(&id).and_then(|node| node.host.as_mut())?;
            host.settle(clock + spent);
            let deadline = host.deadline();
            spent = self.charge(id, spent, None, departures);
            // Work that became due meanwhile is for the next turn.
            if deadline.is_none_or(|at| at > clock) || self.scene.plan.capacity.is_some() {
                return Some(spent);
            }
        }
        self.scene.note_problem(format!("node {id} wants to be woken for ever at {now}"));
        self.scene.is_over = true;
        Some(spent)
    }

    fn start_disk_work(&mut self, id: NodeId) {
        let (least, most) = self.scene.plan.sync_us;
        let node = self.nodes.get_mut(&id).expect("the node exists");
        let (life, slowness, ready) = (node.life, node.slowness, node.busy_until.max(self.scene.now));
        let clock = node.clock(ready);
        let Some(host) = &mut node.host else { return };
        let write = host.next_journal_write(clock);
        let files = host.next_sync();
        if let Some(write) = write {
            assert!(node.write.is_none(), "one write at a time");
            let bytes = write.bytes();
            node.write = Some(write);
            let takes = self.scene.random.micros(least, most) * slowness;
            let done = self.disk_is_busy(id, ready, bytes, takes);
            self.scene.schedule(done, Happening::Written(id, life));
        }
        if files.is_some() {
            self.nodes.get_mut(&id).expect("the node exists").syncing = files;
            let takes = self.scene.random.micros(least, most * 3) * slowness;
            let done = self.disk_is_busy(id, ready, 0, takes);
            self.scene.schedule(done, Happening::Synced(id, life));
        }
    }

    fn send_from(&mut self, id: NodeId, outgoing: &Outgoing, frame: Bytes, ready: Time) {
        let from = Party::Node(id);
        let to = match outgoing.peer {
            Peer::Node(node) => Some(Party::Node(node)),
            // A client's connection that is gone does not come back.
            Peer::Client(ConnectionId(number)) => self.wires.network.other_end(Connection(number), from),
        };
        if let Some(to) = to.filter(|to| !self.wires.network.is_mute(from, *to)) {
            self.transmit_at(ready, Lane::Bulk, from, to, frame);
        }
    }
}

/// A heartbeat of another node.
fn heartbeat(from: Party, message: &Message) -> Option<(NodeId, Heartbeat)> {
    match (from, message) {
        (Party::Node(node), Message::Control(control::Message::Heartbeat(beat))) => Some((node, *beat)),
        _ => None,
    }
}

/// One that waited with everything else.
fn late_heartbeat(event: &Event, came: Option<(Way, usize)>) -> Option<(Connection, NodeId, Heartbeat)> {
    let Event::Message { peer: Peer::Node(node), message, .. } = event else { return None };
    let (_, beat) = heartbeat(Party::Node(*node), message)?;
    let ((connection, _), _) = came?;
    Some((connection, *node, beat))
}

fn peer_of(connection: Connection, party: Party) -> Peer {
    match party {
        Party::Node(node) => Peer::Node(node),
        Party::Client(_) => Peer::Client(ConnectionId(connection.0)),
    }
}

/// A message as it travels.
pub(super) fn frame(log: LogId, from: Endpoint, to: Endpoint, message: &Message) -> Bytes {
    let mut out = Encoder::new();
    log.encode(&mut out);
    from.encode(&mut out);
    to.encode(&mut out);
    message.encode(&mut out);
    out.finish_contiguous()
}

/// The opposite of [`frame`].
pub(super) fn open(frame: Bytes) -> Result<(LogId, Endpoint, Endpoint, Message), WireError> {
    let mut decoder = Decoder::new(frame);
    let log = LogId::decode(&mut decoder)?;
    let from = Endpoint::decode(&mut decoder)?;
    let to = Endpoint::decode(&mut decoder)?;
    let message = Message::decode(&mut decoder)?;
    match decoder.remaining() {
        0 => Ok((log, from, to, message)),
        left => Err(WireError::LeftOver(left)),
    }
}

/// The beginning of a message, for a trace. Written out only if somebody reads it.
pub(super) struct Brief<'a>(pub(super) &'a Message);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:?}", self.0);
        let end = text.char_indices().map(|(at, _)| at).nth(4000).unwrap_or(text.len());
        f.write_str(&text[..end])?;
        if end < text.len() { f.write_str("…") } else { Ok(()) }
    }
}

/// A disk that stops after so many operations: its process dies in the middle of a write.
#[derive(Debug)]
struct CutShort {
    disk: MemoryDisk,
    operations_left: AtomicU64,
}

impl CutShort {
    fn spend(&self) -> io::Result<()> {
        let left = self.operations_left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other("the process is dead"));
        }
        self.operations_left.store(left - 1, Ordering::Relaxed);
        Ok(())
    }
}

impl Disk for CutShort {
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create(&self, name: &str) -> io::Result<()> {
        self.spend()?;
        self.disk.create(name)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        self.disk.len(name)
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Bytes> {
        self.disk.read_at(name, offset, len)
    }

    fn write_at(&self, name: &str, offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        self.spend()?;
        self.disk.write_at(name, offset, chunks)
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.spend()?;
        self.disk.truncate(name, len)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.spend()?;
        self.disk.sync(name)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.spend()?;
        self.disk.delete(name)
    }

    fn delete_dir(&self, dir: &str) -> io::Result<()> {
        self.spend()?;
        self.disk.delete_dir(dir)
    }

    fn rename_dir(&self, from: &str, to: &str) -> io::Result<()> {
        self.spend()?;
        self.disk.rename_dir(from, to)
    }
}
