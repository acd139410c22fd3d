//! Disks that faults lose, damage or set back, and their earlier states.

use std::time::Duration;

use seriatim_model::{Incarnation, Member, NodeId, ShardMembers, Time};
use seriatim_store::MemoryDisk;

use super::node::Incarnations;
use super::scene::Scene;
use super::truth::{Nodes, Truth};
use crate::coverage::FaultKind;
use crate::excuses::Excuse;

/// Interval between saved states.
const KEPT_EVERY: Duration = Duration::from_millis(20);
/// Shortest time by which a disk is set back: other nodes have seen the later writes.
const BACK_BY: Duration = Duration::from_millis(100);
/// Saved states per disk.
const KEPT: usize = 20;

#[derive(Debug)]
pub(super) struct Spoiled {
    pub(super) node: NodeId,
    /// Incarnations of the node's roles when the fault struck.
    pub(super) incarnations: Incarnations,
    pub(super) kind: FaultKind,
}

#[derive(Debug)]
struct Past {
    node: NodeId,
    at: Time,
    disk: MemoryDisk,
}

#[derive(Debug, Default)]
pub(super) struct Disks {
    /// Nodes with lost or possibly damaged disks: one per run, or all nodes of a retired shard.
    spoiled: Vec<Spoiled>,
    /// Earlier states, if the plan sets disks back.
    pasts: Vec<Past>,
}

impl Disks {
    pub(super) fn are_spoiled(&self) -> bool {
        !self.spoiled.is_empty()
    }

    pub(super) fn spoil(&mut self, scene: &mut Scene, spoiled: Spoiled) {
        self.spoiled.push(spoiled);
        scene.history.disks_failed = true;
    }

    /// The node with damaged records.
    pub(super) fn damaged_node(&self) -> Option<NodeId> {
        self.spoiled.iter().find(|spoiled| spoiled.kind == FaultKind::BitRot).map(|spoiled| spoiled.node)
    }

    /// Whether a node may miss a part of its contents.
    pub(super) fn lost_a_part(&self, node: NodeId) -> bool {
        self.spoiled.iter().any(|spoiled| spoiled.node == node && spoiled.kind.loses_disk())
    }

    pub(super) fn was_set_back(&self, scene: &Scene, node: NodeId) -> bool {
        let is_so = |kind| kind == FaultKind::LyingDisk || scene.plan.disk_goes_back;
        self.spoiled.iter().any(|spoiled| spoiled.node == node && is_so(spoiled.kind))
    }

    /// Excuses a disk lost while a view was formed that relied on it alone.
    pub(super) fn excuse(&self, scene: &mut Scene, nodes: &Nodes) {
        let is_too_much = !scene.history.lost_too_much && self.are_too_many(scene, nodes);
        if scene.history.excuse(Excuse::SpoiledInViewChange, is_too_much) {
            scene.history.lose_too_much();
        }
    }

    /// Whether the latest view, or a shard retired in it, relies on a lost disk alone.
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

    /// An earlier state, as after a power loss; an empty disk if none is known.
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
