//! The answers of replicas that were sealed and fenced: all that a view change knows of the view
//! that ends.

use std::collections::BTreeMap;

use seriatim_model::{
    Incarnation, LogEntry, Member, NodeId, Position, ShardId, ShardMembers, View, ViewHistory, ViewNumber,
};

use super::message::SealedState;
use super::shard_set;
use crate::mutation::{Mutation, Options};
use crate::shard::Held;

/// The answers under one claim, each of which a replica gave for itself and with its incarnation.
///
/// Invariant: `chosen` is a sealed member of the view that ends. There is none before the first
/// view.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    /// The entry that the claim put into the register.
    entry: LogEntry,
    sealed: BTreeMap<NodeId, (Incarnation, Option<SealedState>)>,
    chosen: Option<Member>,
    fenced: BTreeMap<(ShardId, NodeId), (Incarnation, Held)>,
    /// How often a shard's replica could not read what it was to flush: then it is another's turn.
    unreadable: BTreeMap<ShardId, usize>,
    /// The mutation that counts on incomplete replicas.
    counts_incomplete: bool,
    /// The mutation of writing anew what was trimmed.
    flushes_trimmed: bool,
}

impl Evidence {
    /// None yet, under the claim that put this entry into the register.
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

    /// The entry that the claim put into the register.
    pub(crate) fn entry(&self) -> &LogEntry {
        &self.entry
    }

    /// The views that were registered, with where each of them began to decide.
    pub(crate) fn history(&self) -> &ViewHistory {
        &self.entry.history
    }

    /// The view that ends; none before the first.
    pub(crate) fn old_view(&self) -> Option<&View> {
        self.entry.view.as_ref()
    }

    /// The number of the view that ends.
    pub(crate) fn old(&self) -> ViewNumber {
        self.entry.view_number()
    }

    /// The sequencing replicas of the view that ends.
    pub(super) fn old_sequencers(&self) -> impl Iterator<Item = Member> {
        self.old_view().into_iter().flat_map(|view| view.sequencers.iter().copied())
    }

    /// The shards of the view that ends.
    pub(crate) fn old_shards(&self) -> impl Iterator<Item = ShardId> {
        self.old_view().into_iter().flat_map(|view| view.shards.iter().map(|members| members.shard))
    }

    /// The replicas that a shard has in the view that ends, in the order in which it names them.
    pub(crate) fn old_replicas(&self, shard: ShardId) -> impl Iterator<Item = Member> {
        let members = self.old_view().and_then(|view| view.shard(shard));
        members.into_iter().flat_map(|members| members.replicas.iter().copied())
    }

    /// Whether nothing was pushed to the shard in any view that was registered.
    pub(crate) fn is_fresh(&self, shard: ShardId) -> bool {
        self.old() == ViewNumber::NONE || shard_set::joins(&self.entry, shard)
    }

    /// A replica is sealed. Says whether that is news, as does the answer to a fence.
    pub(super) fn note_sealed(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        state: Option<SealedState>,
    ) -> bool {
        let answer = (incarnation, state);
        self.sealed.insert(node, answer) != Some(answer)
    }

    /// A replica of a shard is fenced.
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

    /// A node does not answer any more: its answers are not counted on.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.forget_sealed(node);
        self.fenced.retain(|(_, fenced), _| *fenced != node);
    }

    /// The answer of a sequencing replica is not counted on.
    pub(super) fn forget_sealed(&mut self, node: NodeId) {
        self.sealed.remove(&node);
    }

    /// Whether the sequencing replica on this node is sealed.
    pub(super) fn is_sealed(&self, node: NodeId) -> bool {
        self.sealed.contains_key(&node)
    }

    /// Whether the replica of a shard on this node is fenced.
    pub(super) fn is_fenced(&self, shard: ShardId, node: NodeId) -> bool {
        self.fenced.contains_key(&(shard, node))
    }

    /// A sealed replica that is a member of the view that ends, in the incarnation that this view
    /// names. The one that got furthest has the least to flush.
    pub(super) fn candidate(&self) -> Option<Member> {
        let view = self.old_view()?;
        let candidates = self.sealed.iter().filter_map(|(node, (incarnation, state))| {
            let member = Member { node: *node, incarnation: *incarnation };
            let state = state.as_ref()?;
            view.names_sequencer(member).then_some((state.ordered, *node == view.leader, member))
        });
        candidates.max().map(|(_, _, member)| member)
    }

    /// The view change goes on with the state of this replica, or without any.
    pub(super) fn choose(&mut self, chosen: Option<Member>) {
        let is_member = |chosen: Member| self.old_sequencers().any(|member| member == chosen);
        assert!(chosen.is_none_or(is_member), "a member of the view that ends is chosen: {chosen:?}");
        self.chosen = chosen;
    }

    /// The sequencing replica with whose state the view change goes on.
    pub(crate) fn chosen(&self) -> Option<Member> {
        self.chosen
    }

    /// The state that the chosen replica holds.
    pub(crate) fn chosen_state(&self) -> Option<&SealedState> {
        let (_, state) = self.sealed.get(&self.chosen?.node)?;
        state.as_ref()
    }

    /// The state of the replica of a shard on this node, if it is fenced.
    pub(crate) fn held(&self, shard: ShardId, node: NodeId) -> Option<&Held> {
        self.fenced.get(&(shard, node)).map(|(_, held)| held)
    }

    /// The state of each fenced replica of any shard.
    pub(crate) fn all_held(&self) -> impl Iterator<Item = &Held> {
        self.fenced.values().map(|(_, held)| held)
    }

    /// The fenced replicas of a shard, each with its state.
    pub(crate) fn fenced(&self, shard: ShardId) -> impl Iterator<Item = (Member, &Held)> + Clone {
        let fenced = self.fenced.range((shard, NodeId(0))..=(shard, NodeId(u32::MAX)));
        fenced
            .map(|((_, node), (incarnation, held))| (Member { node: *node, incarnation: *incarnation }, held))
    }

    /// The fenced replicas of a shard that are [complete](Self::is_complete), each with its state.
    pub(crate) fn complete(&self, shard: ShardId) -> impl Iterator<Item = (Member, &Held)> {
        self.fenced(shard).filter(move |(member, _)| self.is_complete(shard, Some(member)))
    }

    /// Whether a replica holds everything that the old view's members held, and knows what they
    /// trimmed.
    pub(crate) fn is_complete(&self, shard: ShardId, member: Option<&Member>) -> bool {
        let Some(member) = member else { return false };
        let Some((incarnation, held)) = self.fenced.get(&(shard, member.node)) else { return false };
        let was_member = self.old_replicas(shard).any(|old| old == *member)
            && *incarnation == member.incarnation
            && held.view == self.old()
            && (self.counts_incomplete || held.missing.is_none());
        self.is_fresh(shard) || was_member
    }

    /// Below it, everything is final, as far as anybody knows.
    pub(crate) fn highest_stable(&self) -> Position {
        let start = self.old_view().map_or(Position::ZERO, |view| view.start);
        self.all_held().map(|held| held.stable).fold(start, Position::max)
    }

    /// The highest trim point that a replica knows. A trim may have reached only some of them.
    pub(crate) fn highest_trim(&self) -> Position {
        let held = self.all_held().filter(|_| !self.flushes_trimmed);
        held.map(|held| held.trim).max().unwrap_or_default()
    }

    /// Below it, the log is trimmed, and none of these replicas has a position. A shard has none
    /// below the position at which it joined, whether its replicas know of the trim or not. A
    /// replica that is away learns of the trim from the history.
    pub(crate) fn trimmed(&self, shards: &[ShardMembers]) -> Position {
        let trim = |shard, node| self.held(shard, node).map_or(Position::ZERO, |held| held.trim);
        let old = shards.iter().filter(|members| !self.is_fresh(members.shard));
        let members = old.flat_map(|ShardMembers { shard, begins, replicas }| {
            replicas.iter().map(|member| trim(*shard, member.node).max(*begins))
        });
        members.min().unwrap_or_default().min(self.highest_trim())
    }

    /// How often a replica of this shard could not read what it was to flush.
    pub(crate) fn unreadable(&self, shard: ShardId) -> usize {
        self.unreadable.get(&shard).copied().unwrap_or_default()
    }
}
