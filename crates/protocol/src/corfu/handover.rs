//! View changes of logs whose records are on the shards from the start (Corfu §3): only the shards'
//! replicas have state, so the controller fences them, and each shard flushes itself.
//!
//! A flush rewrites everything from the first hole of any shard on, under the claim, on all
//! replicas of the new view, with junk in the holes. The source is the first complete replica of a
//! chain: it has everything that the later ones have.

use std::collections::BTreeMap;

use seriatim_model::{Member, Position, ShardId, ShardMembers};

use crate::control::{Evidence, Flush, FlushRange, Handover};
use crate::shard::Held;

/// Rewrites positions that some chain does not have on all its replicas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chains;

impl Chains {
    /// Positions below are on all replicas, as the complete ones report, or trimmed somewhere. A
    /// replica that has trimmed would flush junk there, so the flush starts at the highest trim
    /// point, which the new view adopts.
    fn written_everywhere(evidence: &Evidence) -> Position {
        Self::stable_everywhere(evidence).max(evidence.highest_trim())
    }

    fn stable_everywhere(evidence: &Evidence) -> Position {
        let Some(view) = evidence.old_view() else { return Position::ZERO };
        let stable = |shard| {
            evidence.complete(shard).next()?;
            evidence.fenced(shard).map(|(_, held)| held.stable.max(view.start)).max()
        };
        evidence.old_shards().filter_map(stable).min().unwrap_or_else(|| evidence.highest_stable())
    }

    /// End of the old view's writes, as complete replicas report. For a shard without one, members
    /// of the old view count; the highest stable bound always counts.
    fn written_end(evidence: &Evidence) -> Position {
        let was_written = |held: &&Held| held.view == evidence.old();
        let ends = evidence.old_shards().flat_map(|shard| {
            let is_held = evidence.complete(shard).next().is_some();
            let complete = evidence.complete(shard).map(|(_, held)| held);
            let others = evidence.fenced(shard).map(|(_, held)| held).filter(move |_| !is_held);
            complete.chain(others.filter(was_written)).map(|held| held.end)
        });
        ends.fold(evidence.highest_stable(), Position::max)
    }

    /// Bound below which a replica has its part of the flush. A member misses only positions below
    /// the flush.
    fn kept(evidence: &Evidence, held: &Held) -> Position {
        held.holds_to(evidence.history()).unwrap_or(Position::MAX)
    }

    /// Bound below which the shards without a complete replica keep their records, on incomplete
    /// ones. `None`: there is no such shard.
    fn kept_everywhere(evidence: &Evidence) -> Option<Position> {
        let incomplete = evidence.old_shards().filter(|shard| evidence.complete(*shard).next().is_none());
        let kept = |shard| evidence.fenced(shard).map(|(_, held)| Self::kept(evidence, held)).max();
        let least = incomplete.map(|shard| kept(shard).unwrap_or_default()).min()?;
        Some(least.min(Self::written_end(evidence)))
    }

    /// The new view's replica that flushes a shard: the chain's first complete one, or the next
    /// after a failed read; without any, the replica with most of the range.
    fn source(evidence: &Evidence, ShardMembers { shard, replicas, .. }: &ShardMembers) -> Member {
        let chain: Vec<Member> = evidence.old_replicas(*shard).collect();
        let is_complete = |member: &Member| evidence.is_complete(*shard, Some(member));
        let mut holders: Vec<Member> = replicas.iter().copied().filter(is_complete).collect();
        holders.sort_by_key(|member| std::cmp::Reverse(chain.iter().position(|old| old == member)));
        match holders.len() {
            0 => {
                let held = |member: &Member| evidence.held(*shard, member.node);
                let kept = |member: &Member| held(member).map(|held| Self::kept(evidence, held));
                let most = replicas.iter().rev().max_by_key(|member| kept(member));
                most.copied().unwrap_or(replicas[0])
            }
            count => holders[evidence.unreadable(*shard) % count],
        }
    }
}

impl Handover for Chains {
    /// The sequencer has no state to seal.
    fn seals(&self) -> bool {
        false
    }

    fn range(&self, evidence: &Evidence) -> FlushRange {
        FlushRange::new(Self::written_everywhere(evidence), Self::written_end(evidence))
    }

    fn certain(&self, evidence: &Evidence) -> Position {
        Self::written_everywhere(evidence).max(Self::kept_everywhere(evidence).unwrap_or_default())
    }

    fn flush(&self, evidence: &Evidence, shards: &[ShardMembers]) -> Flush {
        let range = self.range(evidence);
        let has_part = |shard: ShardId| !evidence.is_fresh(shard) && !range.is_empty();
        let shards = shards.iter().filter(|members| has_part(members.shard));
        let sources: BTreeMap<ShardId, Member> =
            shards.map(|members| (members.shard, Self::source(evidence, members))).collect();
        Flush::by_shards(range, sources)
    }

    /// The flush keeps the old view's placement.
    fn joins_at(&self, flush: FlushRange) -> Position {
        flush.end()
    }

    /// The new view decides all flushed positions.
    fn decides_from(&self, _: &Evidence, flush: FlushRange) -> Position {
        flush.first()
    }

    fn trimmed(&self, evidence: &Evidence, _: &[ShardMembers]) -> Position {
        evidence.highest_trim()
    }
}
