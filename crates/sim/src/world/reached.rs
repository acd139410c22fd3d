//! True progress of replicas in each view and shard.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{Member, NodeId, Position, ShardId, ViewNumber};
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::shard::Replica;

use crate::history::RegisteredView;

type Views = BTreeMap<ViewNumber, RegisteredView>;

/// Each member's progress per view. Positions below the minimum over all members are final.
#[derive(Debug, Default)]
pub(super) struct Reached {
    ordered: BTreeMap<(ViewNumber, NodeId), Position>,
    /// Written bound of each shard replica per view, where records get positions first.
    written: BTreeMap<(ViewNumber, ShardId, NodeId), Position>,
    /// View of each member that was open at the last observation.
    open: BTreeMap<NodeId, ViewNumber>,
}

impl Reached {
    /// Notes a sequencing replica's progress. Returns the final bound if it advanced.
    pub(super) fn note_ordered(
        &mut self,
        node: NodeId,
        role: &dyn SequencingRole,
        views: &Views,
    ) -> Option<Position> {
        let (view, ordered) = (role.view_number(), role.ordered());
        let is_open = role.is_open();
        let was_open = if is_open { self.open.insert(node, view) } else { self.open.remove(&node) };
        // Positions ordered just before a seal count.
        if !is_open && was_open != Some(view) {
            return None;
        }
        let known = self.ordered.entry((view, node)).or_default();
        if ordered <= *known {
            return None;
        }
        *known = ordered;
        let reached = |member: &Member| self.ordered.get(&(view, member.node)).copied().unwrap_or_default();
        Some(views.get(&view)?.view.sequencers.iter().map(reached).min().unwrap_or_default())
    }

    /// Notes a shard replica's progress. Returns the final bound if it advanced.
    pub(super) fn note_written(
        &mut self,
        node: NodeId,
        shard: ShardId,
        role: &Replica,
        views: &Views,
    ) -> Option<Position> {
        let view = role.memory().view.as_ref()?.number;
        let written = role.stable().max(role.written_below());
        let known = self.written.entry((view, shard, node)).or_default();
        if written <= *known {
            return None;
        }
        *known = written;
        let members = views.get(&view)?.view.shard(shard).into_iter().flat_map(|members| &members.replicas);
        let reached =
            |member: &Member| self.written.get(&(view, shard, member.node)).copied().unwrap_or_default();
        Some(members.map(reached).min().unwrap_or_default())
    }
}

#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Whether each existing replica lacks records.
    replicas: BTreeMap<(NodeId, ShardId), bool>,
    /// Dismissed replicas, whose stores must disappear.
    dismissed: BTreeSet<(NodeId, ShardId)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    None,
    /// The replica lacks no records any more.
    Complete,
    Dismissed,
}

impl Copies {
    /// Notes a running node's replica: `Some(true)` if it lacks records, `None` if there is no
    /// replica.
    pub(super) fn note(&mut self, node: NodeId, shard: ShardId, missing: Option<bool>) -> News {
        let before = match missing {
            Some(missing) => self.replicas.insert((node, shard), missing),
            None => self.replicas.remove(&(node, shard)),
        };
        if missing.is_some() {
            self.dismissed.remove(&(node, shard));
        } else if before.is_some() {
            self.dismissed.insert((node, shard));
            return News::Dismissed;
        }
        if before == Some(true) && missing == Some(false) { News::Complete } else { News::None }
    }

    pub(super) fn lose_sight_of(&mut self, node: NodeId) {
        self.replicas.retain(|(of, _), _| *of != node);
    }

    pub(super) fn dismissed(&self) -> impl Iterator<Item = (NodeId, ShardId)> {
        self.dismissed.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_complete_once_and_dismissed_once() {
        let (mut copies, node, shard) = (Copies::default(), NodeId(1), ShardId(0));
        let told: Vec<News> = [None, Some(true), Some(true), Some(false), Some(false), None, None]
            .map(|missing| copies.note(node, shard, missing))
            .to_vec();
        let nothing = News::None;
        assert_eq!(told, [nothing, nothing, nothing, News::Complete, nothing, News::Dismissed, nothing]);
        assert_eq!(copies.dismissed().collect::<Vec<_>>(), [(node, shard)]);
        copies.note(node, shard, Some(true));
        assert_eq!(copies.dismissed().count(), 0, "it is needed again");
    }

    #[test]
    fn a_replica_that_is_out_of_sight_is_not_dismissed() {
        let (mut copies, node, shard) = (Copies::default(), NodeId(1), ShardId(0));
        copies.note(node, shard, Some(false));
        copies.lose_sight_of(node);
        assert_eq!(copies.note(node, shard, None), News::None);
    }
}
