//! Views of logs whose records are on the shards from the first (Corfu §3): nobody but the shards' replicas holds
//! anything, so it is they who are fenced, and each shard flushes itself.
//!
//! A flush writes everything from where some shard had a hole once more, under the claim and on all replicas that the
//! new view is to have, with junk where nothing was; so a view starts without holes. What is written again is what
//! the first of a chain's replicas holds that is complete: it has whatever the ones after it have.

use seriatim_model::{Address, Endpoint, Member, NodeId, Position, ShardId, ShardMembers, ViewNumber};

use super::attempt::{Attempt, Flushed};
use super::send;
use crate::parts::Sessions;
use crate::roles::RoleEffect;
use crate::shard::{self, Held};

impl Attempt {
    /// Whether nobody but the shards holds anything.
    pub(super) fn places_first(&self) -> bool {
        self.entry.config.order.places_first()
    }

    /// Where shards join with this view.
    pub(super) fn joins_at(&self) -> Position {
        match &self.flushed {
            Some(flushed) if self.places_first() || self.has_cuts() => flushed.end,
            None if self.places_first() => self.written_end(),
            None if self.has_cuts() => self.cuts_end(),
            _ => self.first(),
        }
    }

    /// The old view's replicas of a shard that answered and lack nothing, each with what it holds.
    fn complete(&self, shard: ShardId) -> impl Iterator<Item = (Member, Held)> {
        let fenced = self.fenced.iter().filter(move |((of, _), _)| *of == shard);
        let members = fenced.map(|((_, node), (incarnation, held))| {
            (Member { node: *node, incarnation: *incarnation }, *held)
        });
        members.filter(move |(member, _)| self.is_complete(shard, Some(member)))
    }

    fn old_shards(&self) -> impl Iterator<Item = ShardId> {
        self.entry.view.iter().flat_map(|view| view.shards.iter().map(|members| members.shard))
    }

    /// Below it, every shard has everything on all replicas, as far as those say who hold everything; or nobody has to
    /// have it any more. A replica that has trimmed cannot say what was there: it would flush junk.
    pub(super) fn written_everywhere(&self) -> Position {
        self.stable_everywhere().max(self.highest_trim())
    }

    /// The highest trim point that a replica knows. With the new view, it is that of all: a trim may have reached only
    /// some of them, and what a view writes anew may not begin below it.
    pub(super) fn highest_trim(&self) -> Position {
        let fenced = self.fenced.values().filter(|_| !self.purpose.flushes_trimmed);
        fenced.map(|(_, held)| held.trim).max().unwrap_or_default()
    }

    fn stable_everywhere(&self) -> Position {
        let Some(view) = &self.entry.view else { return Position::ZERO };
        let stable = |shard| {
            self.complete(shard).next()?;
            let known = self.fenced.iter().filter(|((of, _), _)| *of == shard);
            known.map(|(_, (_, held))| held.stable.max(view.start)).max()
        };
        self.old_shards().filter_map(stable).min().unwrap_or_else(|| self.highest_stable())
    }

    /// Where what was written under the old view ends. Also of a shard none of whose replicas holds everything any
    /// more, what they know to be final is kept as far as one of them has it.
    fn written_end(&self) -> Position {
        let ends = self.old_shards().flat_map(|shard| self.complete(shard).map(|(_, held)| held.end));
        ends.fold(self.highest_stable(), Position::max)
    }

    /// Every shard of the old view is to flush itself, by the first complete replica of its chain; if there is none,
    /// by the one that has most.
    pub(super) fn plan_flushes(&mut self) {
        let (first, end) = (self.written_everywhere(), self.written_end());
        for ShardMembers { shard, replicas, .. } in &self.shards {
            if self.is_fresh(*shard) || first == end {
                continue;
            }
            let chain: Vec<Member> = self.old_replicas(*shard).collect();
            let mut holders: Vec<Member> =
                replicas.iter().copied().filter(|member| self.is_complete(*shard, Some(member))).collect();
            holders.sort_by_key(|member| std::cmp::Reverse(chain.iter().position(|old| old == member)));
            let turn = self.purpose.turns.get(shard).copied().unwrap_or_default();
            let source = match holders.len() {
                0 => replicas[0],
                count => holders[turn % count],
            };
            self.flushes.insert(*shard, (source, first));
        }
        self.flushed = Some(Flushed { first, end, sessions: Sessions::default() });
    }

    /// Whether every shard that had to has flushed itself.
    pub(super) fn have_shards_flushed(&self) -> bool {
        let end = self.flushed.as_ref().map_or(Position::ZERO, |flushed| flushed.end);
        self.flushes.values().all(|(_, upto)| *upto >= end)
    }

    /// A shard got further with its flush. Says whether that is news.
    pub(super) fn note_shard_flushed(&mut self, shard: ShardId, node: NodeId, upto: Position) -> bool {
        let known = self.flushes.get_mut(&shard).filter(|(source, _)| source.node == node);
        known.is_some_and(|(_, known)| {
            let further = upto > *known;
            *known = upto.max(*known);
            further
        })
    }

    pub(super) fn ask_shards_to_flush(&self, out: &mut Vec<RoleEffect>) {
        let (Some(Flushed { end, .. }), Some(view)) = (&self.flushed, &self.entry.view) else { return };
        assert!(view.number != ViewNumber::NONE, "a flush has an old view");
        for (shard, (source, upto)) in self.flushes.iter().filter(|(_, (_, upto))| upto < end) {
            let members = self.shards.iter().find(|members| members.shard == *shard);
            let others = members.into_iter().flat_map(|members| &members.replicas);
            let message = shard::Message::Flush {
                claim: self.claim(),
                incarnation: source.incarnation,
                first: *upto,
                end: *end,
                placement: view.placement.clone(),
                backups: others.filter(|member| *member != source).copied().collect(),
            };
            send(Address::Node(source.node, Endpoint::Shard(*shard)), message, out);
        }
    }
}
