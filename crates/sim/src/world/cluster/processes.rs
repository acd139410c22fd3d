//! Node processes: starts, deaths, shutdowns and pauses.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use seriatim_host::{Host, HostConfig, Problem, RegisterPlace};
use seriatim_model::{Endpoint, NodeId};
use seriatim_store::{Disk, MemoryDisk, Secret};

use super::Cluster;
use crate::excuses::Excuse;
use crate::network::Party;
use crate::world::CONTROL;
use crate::world::node::Waiting;
use crate::world::observe::Witness;
use crate::world::scene::Happening;

/// Wait before a failed start is repeated.
const START_AGAIN_AFTER: Duration = Duration::from_millis(100);

impl Cluster {
    pub(crate) fn start_node(&mut self, id: NodeId) {
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
        node.end_incarnation();
        match Host::open(config, Arc::new(node.disk.clone())) {
            Ok(host) => {
                let is_shard = |endpoint| matches!(endpoint, Endpoint::Shard(_));
                self.scene.coverage.put_aside += host.problems().len() as u64;
                // Without syncs, a power loss may leave any state.
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
                node.meter.forget_reads(host.visited(), &node.disk);
                let asleep = node.asleep.take();
                node.host = Some(host);
                node.start_failure = None;
                if asleep
                    .is_some_and(|asleep| !is_damaged && !asleep.go_on_in(&node.incarnations(log, shards)))
                {
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
                let incarnation = node.incarnation;
                node.start_failure = Some(cause.to_string());
                // An operator would do the same for an unreadable disk, or a journal with losses.
                node.disk.replace_bad_sectors();
                if lied {
                    node.disk = MemoryDisk::new();
                }
                self.scene.tell(format_args!("node {id} does not start: {cause}"));
                self.scene
                    .schedule(self.scene.now + START_AGAIN_AFTER, Happening::NodeStarts(id, incarnation));
            }
        }
    }

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

    /// Kills a node's process. With `power`, its disk keeps any part of the unsynced writes.
    pub(crate) fn kill_node(&mut self, id: NodeId, power: bool, down_for: Duration) {
        let cut_after = self.scene.random.below(12);
        let seed = self.scene.random.draw();
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.host.take().is_none() {
            return;
        }
        if let Some(write) = &node.write {
            // The write is cut short at some operation, or completes.
            let cut = CutShort { disk: node.disk.clone(), operations_left: AtomicU64::new(cut_after) };
            // The dead process does not learn the outcome.
            drop(write.perform(&cut));
        }
        if power {
            node.disk.crash(seed);
            (node.has_torn_disk, self.scene.history.disks_failed) = (true, true);
        }
        node.disk.fail_syncs(0);
        node.end_incarnation();
        self.witness.copies.lose_sight_of(id);
        self.witness.needed.lose_sight_of(id);
        let incarnation = node.incarnation;
        self.scene.history.stops(id);
        self.scene.tell(format_args!("node {id} is killed, power {power}"));
        self.hang_up(Party::Node(id));
        Witness::check_losses(&mut self.scene, &self.nodes);
        self.scene.schedule(self.scene.now + down_for, Happening::NodeStarts(id, incarnation));
    }

    /// Shuts the node's process down in an orderly way.
    pub(crate) fn close_node(&mut self, id: NodeId, down_for: Duration) {
        if self.nodes[&id].is_paused {
            self.resume_node(id, self.nodes[&id].incarnation);
        }
        // It completes work in progress and handles the events that have arrived, but begins
        // nothing new.
        let incarnation = self.nodes[&id].incarnation;
        self.written(id, incarnation);
        self.synced(id, incarnation);
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
        let incarnations = node.incarnations(log, shards);
        let host = node.host.take().expect("just seen");
        self.scene.history.stops(id);
        let has_returned = host.has_returned();
        match host.close() {
            Ok(()) => node.asleep = has_returned.then_some(incarnations),
            Err(cause) => self.scene.tell(format_args!("node {id} cannot be closed: {cause}")),
        }
        let node = self.nodes.get_mut(&id).expect("the node exists");
        node.end_incarnation();
        let incarnation = node.incarnation;
        self.scene.tell(format_args!("node {id} is closed"));
        self.hang_up(Party::Node(id));
        Witness::check_losses(&mut self.scene, &self.nodes);
        self.scene.schedule(self.scene.now + down_for, Happening::NodeStarts(id, incarnation));
    }

    pub(crate) fn pause_node(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        node.is_paused = node.host.is_some();
        node.wake_at = None;
    }

    /// Ends a node's pause. Does nothing if another process runs by now.
    pub(crate) fn resume_node(&mut self, id: NodeId, incarnation: u64) {
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.incarnation == incarnation {
            node.is_paused = false;
            node.pulse.go_on();
            self.plan_beat(id);
            self.wake_node(id, self.scene.now);
        }
    }
}

/// A disk that fails after `operations_left` operations, as the process dies during a write.
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
