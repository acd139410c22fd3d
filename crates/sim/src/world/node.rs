//! A node: its process while it runs, its disk, and their pending work.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use seriatim_host::{Event, FileWork, Host};
use seriatim_model::limits::Limits;
use seriatim_model::{Endpoint, Incarnation, LogId, NodeId, ShardId, Time, ViewNumber};
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::shard::Replica;
use seriatim_store::{JournalWrite, MemoryDisk};

use super::meter::Meter;
use super::pulse::Pulse;
use crate::capacity::Capacity;
use crate::pipes::Way;

#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) disk: MemoryDisk,
    pub(super) host: Option<Host>,
    pub(super) pulse: Pulse,
    /// Number of starts and ends of its process, to recognize events of earlier processes.
    pub(super) incarnation: u64,
    pub(super) inbox: VecDeque<Waiting>,
    /// With a capacity, events taken before the inbox: disk results and liveness.
    pub(super) urgent: VecDeque<Waiting>,
    /// With a capacity: times until which the node works and pauses. `disk_free`: the same for its
    /// disk's work.
    pub(super) busy_until: Time,
    pub(super) stalled_until: Time,
    /// End of the heartbeat thread's own pause.
    pub(super) beats_stalled_until: Time,
    pub(super) disk_free: Time,
    pub(super) meter: Meter,
    /// Bytes in memory that wait for a disk write or for positions.
    pub(super) held_bytes: u64,
    pub(super) wake_at: Option<Time>,
    pub(super) write: Option<JournalWrite>,
    pub(super) syncing: Option<FileWork>,
    /// Factor on the duration of disk work.
    pub(super) slowness: u32,
    /// Delay added to each wakeup of the node.
    pub(super) lag: Duration,
    pub(super) is_paused: bool,
    /// How far its clock is ahead of virtual time. Never decreases.
    pub(super) clock_ahead: Duration,
    /// Whether its disk ever lost unsynced writes or was full.
    pub(super) has_torn_disk: bool,
    /// Incarnations of its roles after an orderly shutdown.
    pub(super) asleep: Option<Incarnations>,
    pub(super) start_failure: Option<String>,
}

/// Incarnations of the tested log's roles on a node, except replicas that lack records; for shard
/// replicas also their latest known view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Incarnations {
    pub(super) sequencer: Option<Incarnation>,
    pub(super) replicas: BTreeMap<ShardId, (Incarnation, ViewNumber)>,
}

impl Incarnations {
    /// Whether all these incarnations persist in `later`.
    pub(super) fn go_on_in(&self, later: &Self) -> bool {
        let incarnation = |incarnations: &Self, shard| {
            incarnations.replicas.get(shard).map(|(incarnation, _)| *incarnation)
        };
        self.sequencer == later.sequencer
            && self.replicas.keys().all(|shard| incarnation(self, shard) == incarnation(later, shard))
    }
}

impl Node {
    pub(super) fn beats_at_the_earliest(&self) -> Time {
        self.stalled_until.max(self.beats_stalled_until)
    }

    pub(super) fn new(id: NodeId, disk: MemoryDisk, clock_ahead: Duration, limits: &Limits) -> Self {
        Self {
            id,
            disk,
            host: None,
            pulse: Pulse::new(limits),
            incarnation: 0,
            inbox: VecDeque::new(),
            urgent: VecDeque::new(),
            busy_until: Time::ZERO,
            stalled_until: Time::ZERO,
            beats_stalled_until: Time::ZERO,
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
            start_failure: None,
        }
    }

    pub(super) fn incarnations(&self, log: LogId, shards: u32) -> Incarnations {
        let Some(host) = &self.host else { return self.asleep.clone().unwrap_or_default() };
        let replica = |shard| {
            let role = host.replica(log, shard).filter(|role| role.missing().is_none())?;
            Some((shard, (role.memory().incarnation, role.held().view)))
        };
        Incarnations {
            sequencer: host.sequencer(log).filter(|role| role.keeps()).map(|role| role.member().incarnation),
            replicas: (0..shards).map(ShardId).filter_map(replica).collect(),
        }
    }

    pub(super) fn sequencer(&self, log: LogId) -> Option<&dyn SequencingRole> {
        self.host.as_ref()?.sequencer(log)
    }

    pub(super) fn replica(&self, log: LogId, shard: ShardId) -> Option<&Replica> {
        self.host.as_ref()?.replica(log, shard)
    }

    /// Incarnation of a role, and the highest claim that it obeys, if it runs.
    pub(super) fn incarnation_and_claim(
        &self,
        log: LogId,
        role: Endpoint,
    ) -> Option<(Incarnation, ViewNumber)> {
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

    pub(super) fn end_incarnation(&mut self) {
        self.incarnation += 1;
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

    pub(super) fn state(&self, log: LogId, shards: impl Iterator<Item = ShardId>) -> Vec<String> {
        let id = self.id;
        let mut lines = vec![];
        if let Some(start_failure) = &self.start_failure {
            lines.push(format!("node {id} does not start: {start_failure}"));
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
                "node {id}, incarnation {}: open {}, view {}, ordered {}, held {}",
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
                    "node {id}, shard {shard}, incarnation {}: view {view:?}, claim {}, trim {}, stable {}, lacks {:?}, holds {} \
                     records that have no positions",
                    memory.incarnation,
                    memory.claim,
                    role.held().trim,
                    role.stable(),
                    role.missing(),
                    role.unplaced()
                ));
            }
        }
        lines
    }

    /// Ends all faults. The disk has room for `most` bytes.
    pub(super) fn heal(&mut self, most: Option<u64>) {
        self.disk.set_capacity(most);
        self.disk.fail_syncs(0);
        self.disk.lie(false);
        (self.lag, self.slowness) = (Duration::ZERO, 1);
    }

    pub(super) fn next_waiting(&mut self) -> Option<Waiting> {
        self.urgent.pop_front().or_else(|| self.inbox.pop_front())
    }

    pub(super) fn disk_takes(&self, capacity: &Capacity, bytes: u64) -> Duration {
        let takes = bytes as u128 * 1_000_000_000 / u128::from(capacity.disk_bytes_of(self.id));
        Duration::from_nanos(takes as u64) * self.slowness
    }

    pub(super) fn clock(&self, now: Time) -> Time {
        now + self.clock_ahead
    }

    /// Virtual time at which its clock shows `at`.
    pub(super) fn when(&self, at: Time) -> Time {
        Self::shows(self.clock_ahead, at)
    }

    /// Virtual time at which a clock that is `ahead` shows `at`.
    pub(super) fn shows(ahead: Duration, at: Time) -> Time {
        Time::ZERO + at.since(Time::ZERO + ahead)
    }
}

/// An event for a node's processor.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) event: Event,
    /// Its connection and length, where connections are limited.
    pub(super) came: Option<(Way, usize)>,
}
