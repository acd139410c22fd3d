//! Records damaged on one disk, and when the log may lack them.
//!
//! A view may exclude other replicas with the same records, because they lost their memory or are
//! slow. An excluded replica cannot know whether its records beyond its stable bound became final.
//! They count for nothing until it copies them, and only the damaged replica could provide them.
//! The log does not bear that. Nor does it bear damage found only while others copy. But damage
//! found while another member has the record must be repaired from there before a view excludes
//! that member.

use std::collections::BTreeSet;

use seriatim_model::{Member, NodeId, Position, ShardId};

use super::scene::Scene;
use super::truth::{Nodes, Truth};
use crate::excuses::Excuse;

/// Other copies of the records that a replica reported as damaged.
#[derive(Clone, Debug, Default)]
pub(super) struct Damage {
    /// Replicas that have an intact copy of such a record, and were members at or after the report.
    whole: BTreeSet<(NodeId, ShardId, Position)>,
    /// Damaged records whose intact copy was on a replica that was dismissed.
    thrown_away: BTreeSet<(ShardId, Position)>,
    /// Records in `thrown_away` that were reported damaged again: the replica had not repaired
    /// them.
    missed: BTreeSet<(ShardId, Position)>,
}

impl Damage {
    pub(super) fn was_told(&mut self, shard: ShardId, position: Position) {
        if self.thrown_away.contains(&(shard, position)) {
            self.missed.insert((shard, position));
        }
    }

    pub(super) fn was_dismissed(&mut self, node: NodeId, shard: ShardId) {
        let of_it = (node, shard, Position::ZERO)..=(node, shard, Position(u64::MAX));
        let had: Vec<Position> = self.whole.range(of_it).map(|(.., position)| *position).collect();
        for position in had {
            self.whole.remove(&(node, shard, position));
            self.thrown_away.insert((shard, position));
        }
    }

    /// Notes which damaged records a member holds intact.
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

    /// Judges subscriptions that ended at a record no replica served.
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

    /// Whether a run may end although damaged records are missing: no other member has them.
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

    /// Whether a record was reported damaged, and every other member runs and lacks it.
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
