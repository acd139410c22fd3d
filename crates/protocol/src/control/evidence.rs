//! The answers of sealed and fenced replicas: all that a view change knows of the ending view.

use std::collections::BTreeMap;

use seriatim_model::{
    Incarnation, LogEntry, Member, NodeId, Position, ShardId, ShardMembers, View, ViewHistory, ViewNumber,
};

use super::message::SealedState;
use super::shard_set;
use crate::mutation::{Mutation, Options};
use crate::shard::Held;

/// The answers under one claim, each of a replica about itself.
///
/// Invariant: `chosen` is a sealed member of the ending view, and `None` before the first.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    /// The register's entry with the claim.
    entry: LogEntry,
    sealed: BTreeMap<NodeId, (Incarnation, Option<SealedState>)>,
    chosen: Option<Member>,
    fenced: BTreeMap<(ShardId, NodeId), (Incarnation, Held)>,
    /// Number of failed flush reads of each shard: the next flush reads from another replica.
    unreadable: BTreeMap<ShardId, usize>,
    /// Mutation: counts incomplete replicas.
    counts_incomplete: bool,
    /// Mutation: flushes trimmed positions.
    flushes_trimmed: bool,
}

impl Evidence {
    pub(super) fn new(entry: LogEntry, unreadable: BTreeMap<ShardId, usize>, options: Options) -> Self {
        Self {
            entry,
            sealed: BTreeMap::new(),
            chosen: None,
            fenced: BTreeMap::new(),
            unreadable,
            counts_incomplete: options.mutates(Mutation::MissingCounted),
            flushes_trimmed: options.mutates(Mutation::TrimmedFlushed),
        }
    }

    /// See [`Attempt::takes_pins_of`](super::attempt::Attempt::takes_pins_of).
    pub(super) fn takes_pins_of(&mut self, newer: &LogEntry) -> bool {
        let is_alike = newer.version > self.entry.version && self.entry.is_alike_but_for_pins(newer);
        if is_alike {
            self.entry.clone_from(newer);
        }
        is_alike
    }

    pub(crate) fn entry(&self) -> &LogEntry {
        &self.entry
    }

    /// Registered views, each with its first valid position.
    pub(crate) fn history(&self) -> &ViewHistory {
        &self.entry.history
    }

    /// The ending view; `None` before the first.
    pub(crate) fn old_view(&self) -> Option<&View> {
        self.entry.view.as_ref()
    }

    pub(crate) fn old(&self) -> ViewNumber {
        self.entry.view_number()
    }

    pub(super) fn old_sequencers(&self) -> impl Iterator<Item = Member> {
        self.old_view().into_iter().flat_map(|view| view.sequencers.iter().copied())
    }

    pub(crate) fn old_shards(&self) -> impl Iterator<Item = ShardId> {
        self.old_view().into_iter().flat_map(|view| view.shards.iter().map(|members| members.shard))
    }

    /// The shard's replicas in the ending view, in its order.
    pub(crate) fn old_replicas(&self, shard: ShardId) -> impl Iterator<Item = Member> {
        let members = self.old_view().and_then(|view| view.shard(shard));
        members.into_iter().flat_map(|members| members.replicas.iter().copied())
    }

    /// Whether no registered view pushed to the shard.
    pub(crate) fn is_fresh(&self, shard: ShardId) -> bool {
        self.old() == ViewNumber::NONE || shard_set::joins(&self.entry, shard)
    }

    /// Returns whether the answer is new.
    pub(super) fn note_sealed(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        state: Option<SealedState>,
    ) -> bool {
        let answer = (incarnation, state);
        self.sealed.insert(node, answer) != Some(answer)
    }

    pub(super) fn note_fenced(
        &mut self,
        shard: ShardId,
        node: NodeId,
        incarnation: Incarnation,
        held: Held,
    ) -> bool {
        let answer = (incarnation, held);
        self.fenced.insert((shard, node), answer) != Some(answer)
    }

    /// Drops the answers of a suspected node.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.forget_sealed(node);
        self.fenced.retain(|(_, fenced), _| *fenced != node);
    }

    pub(super) fn forget_sealed(&mut self, node: NodeId) {
        self.sealed.remove(&node);
    }

    pub(super) fn is_sealed(&self, node: NodeId) -> bool {
        self.sealed.contains_key(&node)
    }

    pub(super) fn is_fenced(&self, shard: ShardId, node: NodeId) -> bool {
        self.fenced.contains_key(&(shard, node))
    }

    /// The sealed member of the ending view with the most ordered positions, which has the least to
    /// flush; `None` if no member with its memory answered.
    pub(super) fn candidate(&self) -> Option<Member> {
        let view = self.old_view()?;
        let candidates = self.sealed.iter().filter_map(|(node, (incarnation, state))| {
            let member = Member { node: *node, incarnation: *incarnation };
            let state = state.as_ref()?;
            view.names_sequencer(member).then_some((state.ordered, *node == view.leader, member))
        });
        candidates.max().map(|(_, _, member)| member)
    }

    pub(super) fn choose(&mut self, chosen: Option<Member>) {
        let is_member = |chosen: Member| self.old_sequencers().any(|member| member == chosen);
        assert!(chosen.is_none_or(is_member), "a member of the view that ends is chosen: {chosen:?}");
        self.chosen = chosen;
    }

    pub(crate) fn chosen(&self) -> Option<Member> {
        self.chosen
    }

    pub(crate) fn chosen_state(&self) -> Option<&SealedState> {
        let (_, state) = self.sealed.get(&self.chosen?.node)?;
        state.as_ref()
    }

    /// State of the fenced replica on this node.
    pub(crate) fn held(&self, shard: ShardId, node: NodeId) -> Option<&Held> {
        self.fenced.get(&(shard, node)).map(|(_, held)| held)
    }

    pub(crate) fn all_held(&self) -> impl Iterator<Item = &Held> {
        self.fenced.values().map(|(_, held)| held)
    }

    pub(crate) fn fenced(&self, shard: ShardId) -> impl Iterator<Item = (Member, &Held)> + Clone {
        let fenced = self.fenced.range((shard, NodeId(0))..=(shard, NodeId(u32::MAX)));
        fenced
            .map(|((_, node), (incarnation, held))| (Member { node: *node, incarnation: *incarnation }, held))
    }

    pub(crate) fn complete(&self, shard: ShardId) -> impl Iterator<Item = (Member, &Held)> {
        self.fenced(shard).filter(move |(member, _)| self.is_complete(shard, Some(member)))
    }

    /// Whether a replica holds all records of the old view's members, and knows their trim point.
    pub(crate) fn is_complete(&self, shard: ShardId, member: Option<&Member>) -> bool {
        let Some(member) = member else { return false };
        let Some((incarnation, held)) = self.fenced.get(&(shard, member.node)) else { return false };
        let was_member = self.old_replicas(shard).any(|old| old == *member)
            && *incarnation == member.incarnation
            && held.view == self.old()
            && (self.counts_incomplete || held.missing.is_none());
        self.is_fresh(shard) || was_member
    }

    pub(crate) fn highest_stable(&self) -> Position {
        let start = self.old_view().map_or(Position::ZERO, |view| view.start);
        self.all_held().map(|held| held.stable).fold(start, Position::max)
    }

    /// The highest known trim point. A trim may have reached only some replicas.
    pub(crate) fn highest_trim(&self) -> Position {
        let held = self.all_held().filter(|_| !self.flushes_trimmed);
        held.map(|held| held.trim).max().unwrap_or_default()
    }

    /// Bound below which all positions are trimmed, and none of these replicas holds records. A
    /// shard holds none below the position where it joined, even if its replicas do not know of the
    /// trim. An absent replica learns the bound from the history.
    pub(crate) fn trimmed(&self, shards: &[ShardMembers]) -> Position {
        let trim = |shard, node| self.held(shard, node).map_or(Position::ZERO, |held| held.trim);
        let old = shards.iter().filter(|members| !self.is_fresh(members.shard));
        let members = old.flat_map(|ShardMembers { shard, begins, replicas }| {
            replicas.iter().map(|member| trim(*shard, member.node).max(*begins))
        });
        members.min().unwrap_or_default().min(self.highest_trim())
    }

    pub(crate) fn unreadable(&self, shard: ShardId) -> usize {
        self.unreadable.get(&shard).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{NodeId, Pin};

    use super::*;
    use crate::control::{catalog, testing};

    #[test]
    fn only_pins_may_change_during_an_attempt() {
        let entry = testing::entry(Some(testing::view()));
        let mut evidence = Evidence::new(entry.clone(), BTreeMap::new(), Options::default());
        assert!(!evidence.takes_pins_of(&entry), "it is no newer version");
        let pin = Pin { name: "p".into(), position: Position(3), most_bytes: 1 << 20, is_broken: false };
        let pinned = catalog::successor(LogEntry { pins: vec![pin], ..entry });
        assert!(evidence.takes_pins_of(&pinned));
        assert_eq!(evidence.entry(), &pinned);
        let moved =
            catalog::successor(LogEntry { sequencers: vec![NodeId(1)], pins: vec![], ..pinned.clone() });
        assert!(!evidence.takes_pins_of(&moved));
        assert_eq!(evidence.entry(), &pinned);
    }
}
