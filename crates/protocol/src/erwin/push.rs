//! Binding on the shards: batches on their way from a sequencing replica to the primaries.
//!
//! The leader's background ordering and the flush of a view change push in the same way; they differ in
//! what happens when a batch is bound.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use seriatim_model::storage::Run;
use seriatim_model::{
    Address, Endpoint, Member, Placement, Position, RecordId, ShardId, Time, View, ViewNumber, limits,
};

use crate::parts::Entry;
use crate::parts::sessions::{IdRun, runs_of};
use crate::roles::RoleEffect;
use crate::shard;

/// The longest wait before a batch is sent again.
const RESEND_MOST: Duration = Duration::from_secs(1);

/// The batches of one view on their way to the shards, in the order of positions.
///
/// Invariant: batches are adjacent: each starts where the one before it ends.
#[derive(Clone, Debug)]
pub(super) struct Pusher {
    view: ViewNumber,
    placement: Placement,
    routes: BTreeMap<ShardId, Route>,
    batches: VecDeque<Batch>,
    end: Position,
}

#[derive(Clone, Debug)]
struct Route {
    primary: Address,
    backups: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Batch {
    from: Position,
    to: Position,
    ids: Vec<IdRun>,
    unanswered: BTreeMap<ShardId, Vec<Run>>,
    sent_at: Time,
    patience: Duration,
}

/// A batch that every shard holds.
#[derive(Clone, Debug)]
pub(super) struct BoundBatch {
    pub(super) from: Position,
    pub(super) to: Position,
    pub(super) ids: Vec<IdRun>,
}

impl Pusher {
    /// Starts to push at `from`, under the number of `view`, to its shards.
    pub(super) fn new(number: ViewNumber, view: &View, from: Position) -> Self {
        let route = |members: &seriatim_model::ShardMembers| Route {
            primary: Address::Node(members.primary().node, Endpoint::Shard(members.shard)),
            backups: members.replicas[1..].to_vec(),
        };
        Self {
            view: number,
            placement: view.placement.clone(),
            routes: view.shards.iter().map(|members| (members.shard, route(members))).collect(),
            batches: VecDeque::new(),
            end: from,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.batches.len() < limits::PUSH_WINDOW
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Everything below it is bound.
    pub(super) fn bound_below(&self) -> Position {
        self.batches.front().map_or(self.end, |batch| batch.from)
    }

    /// Where the next batch starts.
    pub(super) fn end(&self) -> Position {
        self.end
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = (ShardId, Address)> {
        self.routes.iter().map(|(shard, route)| (*shard, route.primary))
    }

    /// Binds `entries` to the next positions. Returns the shards that were told `stable` with it.
    pub(super) fn push<'a>(
        &mut self,
        now: Time,
        entries: impl Iterator<Item = &'a Entry> + Clone,
        stable: Position,
        out: &mut Vec<RoleEffect>,
    ) -> Vec<ShardId> {
        let from = self.end;
        let ids = runs_of(entries.clone().map(|entry| entry.id));
        let mut parts: BTreeMap<ShardId, Vec<Run>> = BTreeMap::new();
        let mut entries = entries.peekable();
        while entries.peek().is_some() {
            let (shard, stripe_end) = self.placement.stripe_at(self.end);
            let room = (stripe_end - self.end) as usize;
            let records: Vec<(RecordId, _)> =
                entries.by_ref().take(room).map(|entry| (entry.id, entry.record.clone())).collect();
            let first = self.end;
            self.end += records.len() as u64;
            parts.entry(shard).or_default().push(Run { first, records });
        }
        let batch = Batch {
            from,
            to: self.end,
            ids,
            unanswered: parts,
            sent_at: now,
            patience: limits::RESEND_AFTER,
        };
        let told = batch.unanswered.keys().copied().collect();
        send(&batch, self.view, &self.routes, stable, out);
        self.batches.push_back(batch);
        told
    }

    /// Takes note of a shard's answer.
    pub(super) fn bound(&mut self, shard: ShardId, batch: Position) {
        let index = self.batches.partition_point(|candidate| candidate.from < batch);
        if let Some(found) = self.batches.get_mut(index).filter(|found| found.from == batch) {
            found.unanswered.remove(&shard);
        }
    }

    /// The oldest batch, if every shard holds it.
    pub(super) fn take_bound(&mut self) -> Option<BoundBatch> {
        self.batches.front().filter(|batch| batch.unanswered.is_empty())?;
        let Batch { from, to, ids, .. } = self.batches.pop_front()?;
        Some(BoundBatch { from, to, ids })
    }

    /// Sends again what has not been answered for too long: less and less often, since a shard that is
    /// slow is not helped by more of the same.
    pub(super) fn resend(&mut self, now: Time, stable: Position, out: &mut Vec<RoleEffect>) {
        for batch in &mut self.batches {
            if now >= batch.sent_at + batch.patience {
                batch.sent_at = now;
                batch.patience = (batch.patience * 2).min(RESEND_MOST);
                send(batch, self.view, &self.routes, stable, out);
            }
        }
    }

    /// When something is due to be sent again.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.batches.iter().map(|batch| batch.sent_at + batch.patience).min()
    }
}

fn send(
    batch: &Batch,
    view: ViewNumber,
    routes: &BTreeMap<ShardId, Route>,
    stable: Position,
    out: &mut Vec<RoleEffect>,
) {
    for (shard, runs) in &batch.unanswered {
        let route = routes.get(shard).expect("a placement names only shards of its view");
        let message = shard::Message::Bind {
            view,
            batch: batch.from,
            backups: route.backups.clone(),
            stable,
            runs: runs.clone(),
        };
        out.push(RoleEffect::Send { to: route.primary, message: message.into() });
    }
}
