//! Shards that a view excludes, since their complete replicas have been silent for a while (SpecLog
//! §4.9).
//!
//! Other shards keep their positions. A retired shard gets no positions beyond the cuts of its last
//! view: the closing cut, which ends that view, leaves the shard's turns empty. The shard's nodes
//! get a new shard. When the retired replicas are back, they learn missed cuts from the ordering
//! layer, and serve its records.

use std::borrow::Cow;
use std::collections::BTreeSet;

use seriatim_model::{
    Address, Durability, Endpoint, LogEntry, NodeId, RetiredShard, ShardId, Time, View, limits,
};

use super::attempt::{Attempt, Liveness};
use super::flush::FlushRange;
use super::shard_set;
use crate::mutation::Options;

impl Attempt {
    pub(super) fn going_on(&self) -> impl Iterator<Item = ShardId> {
        shard_set::shards(self.entry()).filter(|shard| !self.retiring.contains(shard))
    }

    /// Selects shards to retire, if the ordering permits it and another open shard remains. Returns
    /// whether the attempt must wait longer for that.
    pub(super) fn retires_later(&mut self, now: Time, liveness: Liveness<'_>, options: Options) -> bool {
        self.retiring.clear();
        let config = &self.entry().config;
        // In-memory records are lost with their processes, so an operator decides.
        let comes_back = config.durability == Durability::Disk;
        let may_retire = config.order.has_quotas() && comes_back && self.evidence.chosen().is_some();
        let Some(old) = self.evidence.old_view().filter(|_| may_retire && !self.goal.accepts_loss) else {
            return false;
        };
        let mut silent = BTreeSet::new();
        let mut due = Time::ZERO;
        for members in &old.shards {
            if let Some(since) = self.silent_since(members.shard, liveness) {
                silent.insert(members.shard);
                due = due.max(since + options.limits.retire_after);
            }
        }
        let leaving = &self.entry().leaving;
        let goes_on = |shard: &ShardId| {
            let takes_records = !leaving.contains(shard) && !silent.contains(shard);
            takes_records && self.evidence.complete(*shard).next().is_some()
        };
        if silent.is_empty() || !old.open_shards().iter().any(goes_on) {
            return false;
        }
        if now >= due {
            self.retiring = silent;
        }
        now < due
    }

    /// Since when all possibly complete replicas of a shard are silent. `None`: one answered, or
    /// none exists.
    fn silent_since(&self, shard: ShardId, liveness: Liveness<'_>) -> Option<Time> {
        if self.evidence.complete(shard).next().is_some() {
            return None;
        }
        let away = self.evidence.old_replicas(shard).map(|member| member.node);
        let away: Vec<_> = away.filter(|node| !self.evidence.is_fenced(shard, *node)).collect();
        let since: Option<Vec<Time>> =
            away.iter().map(|node| liveness.silent_since.get(node).copied()).collect();
        since?.into_iter().max()
    }

    /// The new view's retired shards. Newly retired ones end where the flush begins.
    pub(super) fn retired(&self, flushed: Option<FlushRange>, liveness: Liveness<'_>) -> Vec<RetiredShard> {
        let Some(old) = self.evidence.old_view() else { return vec![] };
        let until = flushed.unwrap_or_else(|| self.handover.range(&self.evidence)).first();
        let last = View { retired: vec![], ..old.clone() };
        let new = self.retiring.iter().map(|shard| {
            let mut retired = RetiredShard::new(*shard, last.clone(), until);
            // An excluded assigned node may hold records that its stand-in had not copied.
            let meant = &self.entry().shards[shard.0 as usize];
            meant.iter().for_each(|node| retired.add_copy(*node));
            retired
        });
        let trimmed = self.evidence.trimmed(self.members_of_shards());
        let mut history = Cow::Borrowed(&self.entry().history);
        self.goal.given_up.iter().for_each(|gap| history.to_mut().give_up(*gap));
        let is_kept = |retired: &RetiredShard| retired.ends(&history) > trimmed.max(retired.members().begins);
        let mut retired: Vec<RetiredShard> = old.retired.iter().cloned().chain(new).filter(is_kept).collect();
        retired.sort_by_key(|retired| retired.shard);
        for retired in &mut retired {
            for replica in &self.goal.keepers {
                if let Address::Node(node, Endpoint::Shard(shard)) = replica
                    && *shard == retired.shard
                {
                    retired.add_copy(*node);
                }
            }
            let instead = stand_ins(retired, self.entry(), &self.goal.lost, liveness);
            instead.into_iter().for_each(|node| retired.add_copy(node));
        }
        retired
    }

    /// Assigns new shards to the nodes of newly retired ones; clears retired shards without
    /// remaining records.
    pub(super) fn have_retired(&self, entry: &mut LogEntry, view: &View) {
        for shard in &self.retiring {
            let takes_records = !entry.leaving.contains(shard);
            if takes_records && entry.shards.len() < limits::MAX_SHARDS as usize {
                entry.shards.push(entry.shards[shard.0 as usize].clone());
            }
            entry.leaving.retain(|leaving| leaving != shard);
        }
        let before = self.evidence.old_view().into_iter().flat_map(|old| &old.retired);
        let before = before.map(|retired| retired.shard).chain(self.retiring.iter().copied());
        for shard in before.filter(|shard| view.retired(*shard).is_none()) {
            entry.shards[shard.0 as usize].clear();
        }
    }
}

/// Nodes that replace `lost` holders of copies, if a copy answers. A lost holder stays listed: it
/// may return with the only copy of a record.
pub(super) fn stand_ins(
    retired: &RetiredShard,
    entry: &LogEntry,
    lost: &BTreeSet<NodeId>,
    liveness: Liveness<'_>,
) -> Vec<NodeId> {
    let copies: BTreeSet<NodeId> = retired.nodes().collect();
    if !copies.iter().any(|node| liveness.answers(*node)) {
        return vec![];
    }
    let missing = (entry.config.replicas as usize).saturating_sub(copies.difference(lost).count());
    liveness.spares(&copies).take(missing).collect()
}
