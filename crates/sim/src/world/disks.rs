//! The disks that faults lose, spoil or set back, and how they were before.

use std::time::Duration;

use seriatim_model::{Incarnation, Member, NodeId, ShardMembers, Time};
use seriatim_store::MemoryDisk;

use super::node::Incarnations;
use super::scene::Scene;
use super::truth::{Nodes, Truth};
use crate::coverage::FaultKind;
use crate::excuses::Excuse;

/// How often a disk's state is kept.
const KEPT_EVERY: Duration = Duration::from_millis(20);
/// How far a disk goes back at least: by then others have seen what was written since.
const BACK_BY: Duration = Duration::from_millis(100);
/// How many states of each disk are kept.
const KEPT: usize = 20;

/// A node whose disk was lost or damaged.
#[derive(Debug)]
pub(super) struct Spoiled {
    pub(super) node: NodeId,
    /// The incarnations that its roles had.
    pub(super) incarnations: Incarnations,
    /// How.
    pub(super) kind: FaultKind,
}

/// A disk as it was.
#[derive(Debug)]
struct Past {
    node: NodeId,
    at: Time,
    disk: MemoryDisk,
}

/// The fate of the disks of a run.
#[derive(Debug, Default)]
pub(super) struct Disks {
    /// The nodes whose disks were lost, or may have been damaged. That happens to one node of a
    /// run, or to all that have a retired shard.
    spoiled: Vec<Spoiled>,
    /// How the disks were, where one of them goes back.
    pasts: Vec<Past>,
}

impl Disks {
    /// Whether the disk of a node was lost or damaged by now.
    pub(super) fn are_spoiled(&self) -> bool {
        !self.spoiled.is_empty()
    }

    /// A disk is lost, or may be damaged from now on.
    pub(super) fn spoil(&mut self, scene: &mut Scene, spoiled: Spoiled) {
        self.spoiled.push(spoiled);
        scene.history.disks_failed = true;
    }

    /// The node whose records were damaged.
    pub(super) fn damaged_node(&self) -> Option<NodeId> {
        self.spoiled.iter().find(|spoiled| spoiled.kind == FaultKind::BitRot).map(|spoiled| spoiled.node)
    }

    /// Whether a node may find that a part of what it held is missing.
    pub(super) fn lost_a_part(&self, node: NodeId) -> bool {
        self.spoiled.iter().any(|spoiled| spoiled.node == node && spoiled.kind.loses_disk())
    }

    /// Whether a node's disk went back.
    pub(super) fn was_set_back(&self, scene: &Scene, node: NodeId) -> bool {
        let is_so = |kind| kind == FaultKind::LyingDisk || scene.plan.disk_goes_back;
        self.spoiled.iter().any(|spoiled| spoiled.node == node && is_so(spoiled.kind))
    }

    /// A disk may be lost while a view is being formed that counts on it alone: then the log did
    /// not bear as much as it seemed to.
    pub(super) fn excuse(&self, scene: &mut Scene, nodes: &Nodes) {
        let is_too_much = !scene.history.lost_too_much && self.are_too_many(scene, nodes);
        if scene.history.excuse(Excuse::SpoiledInViewChange, is_too_much) {
            scene.history.lose_too_much();
        }
    }

    /// Whether the latest view, or a shard that is retired in it, counts on a disk that was lost,
    /// and on nobody else.
    pub(super) fn are_too_many(&self, scene: &Scene, nodes: &Nodes) -> bool {
        let ([spoiled], Some(view)) = (&self.spoiled[..], scene.latest_view()) else {
            return false;
        };
        let (node, incarnations) = (spoiled.node, &spoiled.incarnations);
        let lost = |members: &[Member], incarnation: Option<Incarnation>| {
            incarnation.is_some_and(|incarnation| members.contains(&Member { node, incarnation }))
        };
        let of_shard = |members: &ShardMembers| {
            let replica = incarnations.replicas.get(&members.shard);
            lost(&members.replicas, replica.map(|(incarnation, _)| *incarnation))
        };
        let is_lost = lost(&view.sequencers, incarnations.sequencer)
            || view.shards.iter().any(of_shard)
            || view.retired.iter().any(|retired| of_shard(retired.members()));
        is_lost && !(Truth { nodes, scene }).survives(view, &[node])
    }

    /// A node wrote to its journal, and its disk is like this now.
    pub(super) fn keep(&mut self, scene: &Scene, node: NodeId, disk: &MemoryDisk) {
        if !scene.plan.disk_goes_back || self.are_spoiled() {
            return;
        }
        let (now, of_it) = (scene.now, |past: &Past| past.node == node);
        if self.pasts.iter().rev().find(|past| of_it(past)).is_some_and(|past| now < past.at + KEPT_EVERY) {
            return;
        }
        self.pasts.push(Past { node, at: now, disk: disk.fork() });
        if self.pasts.iter().filter(|past| of_it(past)).count() > KEPT
            && let Some(oldest) = self.pasts.iter().position(of_it)
        {
            self.pasts.remove(oldest);
        }
    }

    /// A disk as it was some time ago, and as if the power had failed then: an empty one, if
    /// nothing is known of it.
    pub(super) fn past_of(&self, scene: &mut Scene, node: NodeId) -> MemoryDisk {
        let now = scene.now;
        let is_old = |past: &&Past| past.node == node && past.at + BACK_BY <= now;
        let pasts: Vec<&Past> = self.pasts.iter().filter(is_old).collect();
        if pasts.is_empty() {
            return MemoryDisk::new();
        }
        let past = pasts[scene.random.below(pasts.len() as u64) as usize];
        let (disk, at) = (past.disk.fork(), past.at);
        disk.crash(scene.random.draw());
        scene.tell(format_args!("the disk of node {node} goes back to {at:?}"));
        disk
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::Order;
    use seriatim_store::Disk;

    use super::*;
    use crate::profiles;
    use crate::random::Random;

    #[test]
    fn a_disk_goes_back_to_what_it_was_a_while_ago() {
        let mut plan = profiles::ANY.plan(1, Order::ALL[0]);
        plan.disk_goes_back = true;
        let mut scene = Scene::new(plan, Random::new(1), false);
        let (mut disks, disk, node) = (Disks::default(), MemoryDisk::new(), NodeId(2));
        for name in ["old", "new"] {
            disk.create(name).expect("there is room");
            disk.write_at(name, 0, &[vec![1; 10].into()]).expect("there is room");
            disk.sync(name).expect("it syncs");
            scene.now = scene.now + BACK_BY;
            disks.keep(&scene, node, &disk);
        }
        assert_eq!(disks.past_of(&mut scene, node).files(), ["old"]);
        assert!(disks.past_of(&mut scene, NodeId(3)).files().is_empty(), "nothing is known of another");
        assert!(!disks.was_set_back(&scene, node));
        disks.spoil(
            &mut scene,
            Spoiled { node, incarnations: Incarnations::default(), kind: FaultKind::DiskLoss },
        );
        assert!(disks.was_set_back(&scene, node) && disks.lost_a_part(node));
        assert_eq!(disks.damaged_node(), None, "it is lost, and not damaged");
    }
}
