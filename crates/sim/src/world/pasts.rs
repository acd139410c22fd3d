//! How disks were some time ago, where one of them goes back to that.

use std::time::Duration;

use seriatim_model::{NodeId, Time};
use seriatim_store::MemoryDisk;

use super::World;
use crate::coverage::FaultKind;

/// How often a disk's state is kept.
const KEPT_EVERY: Duration = Duration::from_millis(20);
/// How far a disk goes back at least: by then others have seen what was written since.
const BACK_BY: Duration = Duration::from_millis(100);
/// How many states of each disk are kept.
const KEPT: usize = 20;

/// A disk as it was.
#[derive(Debug)]
pub(super) struct Past {
    node: NodeId,
    at: Time,
    disk: MemoryDisk,
}

impl World {
    /// A node wrote to its journal.
    pub(super) fn keep_past(&mut self, node: NodeId) {
        if !self.scene.plan.disk_goes_back || self.spoiled.is_some() {
            return;
        }
        let (now, of_it) = (self.scene.now, |past: &Past| past.node == node);
        if self.pasts.iter().rev().find(|past| of_it(past)).is_some_and(|past| now < past.at + KEPT_EVERY) {
            return;
        }
        let disk = self.nodes[&node].disk.fork();
        self.pasts.push(Past { node, at: now, disk });
        if self.pasts.iter().filter(|past| of_it(past)).count() > KEPT
            && let Some(oldest) = self.pasts.iter().position(of_it)
        {
            self.pasts.remove(oldest);
        }
    }

    /// Whether a node's disk went back.
    pub(super) fn was_set_back(&self, node: NodeId) -> bool {
        let is_so = |kind| kind == FaultKind::LyingDisk || self.scene.plan.disk_goes_back;
        self.spoiled.as_ref().is_some_and(|spoiled| spoiled.node == node && is_so(spoiled.kind))
    }

    /// A disk as it was some time ago, and as if the power had failed then: an empty one, if nothing is known of it.
    pub(super) fn past_of(&mut self, node: NodeId) -> MemoryDisk {
        let now = self.scene.now;
        let is_old = |past: &&Past| past.node == node && past.at + BACK_BY <= now;
        let pasts: Vec<&Past> = self.pasts.iter().filter(is_old).collect();
        if pasts.is_empty() {
            return MemoryDisk::new();
        }
        let past = pasts[self.scene.random.below(pasts.len() as u64) as usize];
        let (disk, at) = (past.disk.fork(), past.at);
        disk.crash(self.scene.random.draw());
        self.scene.trace.line(now, format_args!("the disk of node {node} goes back to {at:?}"));
        disk
    }
}
