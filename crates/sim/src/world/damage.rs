//! Records that are damaged on one disk, and when the log may be without them.
//!
//! The log bears damage on one disk because others hold the same. It does not bear that, of the
//! others, some lose their memory or are too slow for a view, and are left out of it: a replica
//! that is left out cannot know whether what it has beyond its stable bound became final, and
//! counts for nothing there until it has copied it, which only the damaged one could give it. Nor
//! does it bear damage that is found only when the others are being copied to. But damage that was
//! found while a member had the record is mended from there, and not waited with until a view does
//! without that member.

use std::collections::BTreeSet;

use seriatim_model::{Member, NodeId, Position, ShardId};

use super::scene::Scene;
use super::truth::{Nodes, Truth};
use crate::excuses::Excuse;

/// Where else the records are that a replica said are damaged.
#[derive(Clone, Debug, Default)]
pub(super) struct Damage {
    /// Replicas that have such a record, and were members when or after that was said.
    whole: BTreeSet<(NodeId, ShardId, Position)>,
    /// Such records of replicas that were dismissed.
    thrown_away: BTreeSet<(ShardId, Position)>,
    /// Records among the thrown away ones that a replica said again to be damaged: it had not
    /// mended them.
    missed: BTreeSet<(ShardId, Position)>,
}

impl Damage {
    /// A replica says that a record is damaged.
    pub(super) fn was_told(&mut self, shard: ShardId, position: Position) {
        if self.thrown_away.contains(&(shard, position)) {
            self.missed.insert((shard, position));
        }
    }

    /// A replica was dismissed, with all that it had.
    pub(super) fn was_dismissed(&mut self, node: NodeId, shard: ShardId) {
        let of_it = (node, shard, Position::ZERO)..=(node, shard, Position(u64::MAX));
        let had: Vec<Position> = self.whole.range(of_it).map(|(.., position)| *position).collect();
        for position in had {
            self.whole.remove(&(node, shard, position));
            self.thrown_away.insert((shard, position));
        }
    }

    /// Notes what a node has whole, as a member, of what is damaged on another.
    pub(super) fn look(&mut self, scene: &Scene, nodes: &Nodes, damaged: Option<NodeId>, id: NodeId) {
        if scene.history.damaged.is_empty() || damaged == Some(id) {
            return;
        }
        for (shard, position) in &scene.history.damaged {
            let Some(role) = nodes[&id].replica(scene.log, *shard) else { continue };
            let members = scene.latest_view().and_then(|view| view.shard(*shard));
            let has_it = role.stable() > *position
                && role.missing().is_none_or(|missing| !missing.contains(*position));
            let copy = (id, *shard, *position);
            if !has_it {
                self.whole.remove(&copy);
            } else if members.is_some_and(|members| members.replicas.iter().any(|member| member.node == id)) {
                self.whole.insert(copy);
            }
        }
    }

    /// Judges subscriptions that ended because nobody gave out a record.
    pub(super) fn judge_withheld(&self, scene: &mut Scene, nodes: &Nodes, damaged: Option<NodeId>) {
        for (shard, position, told) in std::mem::take(&mut scene.history.withheld) {
            let is_borne = Self::is_alone_at(Truth { nodes, scene }, damaged, shard, position);
            if is_borne && !self.thrown_away.contains(&(shard, position)) {
                scene.history.excuse(Excuse::Withheld, true);
            } else {
                scene.note_problem(told);
            }
        }
    }

    /// Whether a run may end without what is damaged, because that is nowhere else among the
    /// members.
    pub(super) fn excuses_end(&self, scene: &mut Scene, nodes: &Nodes, damaged: Option<NodeId>) -> bool {
        let (Some(node), Some(view)) = (damaged, scene.latest_view()) else { return false };
        let is_alone = !(Truth { nodes, scene }).is_complete_without(view, &[node]);
        let mut missed = self.missed.iter();
        let is_excused = is_alone
            && !missed.any(|(shard, position)| {
                Self::is_alone_at(Truth { nodes, scene }, damaged, *shard, *position)
            });
        scene.history.excuse(Excuse::DamagedEnd, is_excused)
    }

    /// Whether a record was told to be damaged, and every other member of its shard runs and lacks
    /// it.
    fn is_alone_at(truth: Truth<'_>, damaged: Option<NodeId>, shard: ShardId, position: Position) -> bool {
        let (Some(node), Some(view)) = (damaged, truth.scene.latest_view()) else {
            return false;
        };
        let Some(members) = view.shard(shard) else { return false };
        let misses_it = |member: &Member| {
            let role = truth.nodes[&member.node].replica(truth.scene.log, shard);
            role.is_some_and(|role| role.missing().is_some_and(|missing| missing.contains(position)))
        };
        let mut others = members.replicas.iter().filter(|member| member.node != node);
        truth.scene.history.damaged.contains(&(shard, position)) && others.all(misses_it)
    }
}
