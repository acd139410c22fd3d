//! View changes of logs whose records are on the shards from the first (Corfu §3): only the shards'
//! replicas hold anything, so the controller fences them, and each shard flushes itself.
//!
//! A flush writes everything from where some shard had a hole once more, under the claim and on all
//! replicas that the new view is to have, with junk where nothing was; so a view starts without
//! holes. It takes the records from the first complete replica of a chain: that one has whatever
//! the ones after it have.

use std::collections::BTreeMap;

use seriatim_model::{Member, Position, ShardId, ShardMembers};

use crate::control::{Evidence, Flush, FlushRange, Handover};
use crate::shard::Held;

/// The positions that some chain has not written to its end are written anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chains;

impl Chains {
    /// Below it, every shard has everything on all replicas, by the word of the complete ones; or
    /// no replica has to have it any more. A replica that has trimmed cannot say what was there: it
    /// would flush junk. With the new view, the highest trim point is that of all, so what it
    /// writes anew does not begin below.
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

    /// Where what was written under the old view ends. A shard none of whose replicas is complete
    /// any more also keeps what they know to be final, as far as one of them has it, and all that
    /// one has that was written to as a member.
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

    /// Below it, a replica has what its shard is to keep of what is written anew. What it misses as
    /// a member lies before that.
    fn kept(evidence: &Evidence, held: &Held) -> Position {
        held.holds_to(evidence.history()).unwrap_or(Position::MAX)
    }

    /// Below it, all shards keep what they have, although some have no complete replica any more:
    /// one of the others has it.
    fn kept_everywhere(evidence: &Evidence) -> Option<Position> {
        let incomplete = evidence.old_shards().filter(|shard| evidence.complete(*shard).next().is_none());
        let kept = |shard| evidence.fenced(shard).map(|(_, held)| Self::kept(evidence, held)).max();
        let least = incomplete.map(|shard| kept(shard).unwrap_or_default()).min()?;
        Some(least.min(Self::written_end(evidence)))
    }

    /// The replica of a shard that is to flush it, of those that the new view has for it: the first
    /// complete one of its chain, or the next if that could not read its records; if none is
    /// complete, the one that has most of what is flushed.
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
    /// The sequencer keeps nothing.
    fn seals(&self) -> bool {
        false
    }

    fn range(&self, evidence: &Evidence) -> FlushRange {
        FlushRange::new(Self::written_everywhere(evidence), Self::written_end(evidence))
    }

    fn certain(&self, evidence: &Evidence) -> Position {
        Self::written_everywhere(evidence).max(Self::kept_everywhere(evidence).unwrap_or_default())
    }

    /// Every shard of the old view flushes itself.
    fn flush(&self, evidence: &Evidence, shards: &[ShardMembers]) -> Flush {
        let range = self.range(evidence);
        let has_part = |shard: ShardId| !evidence.is_fresh(shard) && !range.is_empty();
        let shards = shards.iter().filter(|members| has_part(members.shard));
        let sources: BTreeMap<ShardId, Member> =
            shards.map(|members| (members.shard, Self::source(evidence, members))).collect();
        Flush::by_shards(range, sources)
    }

    /// The flush writes positions where the old view placed them.
    fn joins_at(&self, flush: FlushRange) -> Position {
        flush.end()
    }

    /// All that the flush writes is the new view's.
    fn decides_from(&self, _: &Evidence, flush: FlushRange) -> Position {
        flush.first()
    }

    /// The new view begins with the highest trim point for all its replicas.
    fn trimmed(&self, evidence: &Evidence, _: &[ShardMembers]) -> Position {
        evidence.highest_trim()
    }
}
