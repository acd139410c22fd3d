//! Binding on the shards: batches in flight from a sequencing replica to the primaries, for the
//! leader's ordering and for a view change's flush.

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::storage::{Ordered, Run};
use seriatim_model::{
    Address, BoundIds, Endpoint, IdRun, Member, Placement, Position, RecordId, ShardId, Time, View,
    ViewNumber, limits,
};

use super::ShardMessage;
use crate::mutation::{Mutation, Options};
use crate::parts::sessions::runs_of;
use crate::parts::{Content, Entry, IdSet, Retransmit};
use crate::roles::{self, RoleEffect};
use crate::shard;

/// A batch of ids may name this many times `batch_bytes` of records per shard: most are stored
/// there already.
const IDS_FOR: usize = 16;

/// One view's batches in flight.
///
/// Invariant: batches are adjacent: each starts where the one before it ends.
#[derive(Clone, Debug)]
pub(super) struct Pusher {
    view: ViewNumber,
    placement: Placement,
    routes: BTreeMap<ShardId, Route>,
    batches: VecDeque<Batch>,
    options: Options,
    /// Retransmission of the oldest batch.
    retransmit: Retransmit,
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
    /// No-ops among the ids.
    voids: IdSet,
    unanswered: BTreeMap<ShardId, BatchPart>,
}

#[derive(Clone, Debug)]
enum BatchPart {
    /// The shard's records of the batch (LazyLog §4.3).
    Records(Vec<Run>),
    /// All ids of the batch (LazyLog §5.2).
    Ids(Vec<Ordered>),
}

/// A batch that every shard holds.
#[derive(Clone, Debug)]
pub(super) struct BoundBatch {
    pub(super) from: Position,
    pub(super) to: Position,
    pub(super) ids: Vec<BoundIds>,
}

impl Pusher {
    /// Pushes from `from` on, under `number`, to the shards of `view`.
    pub(super) fn new(number: ViewNumber, view: &View, from: Position, options: Options) -> Self {
        let route = |members: &seriatim_model::ShardMembers| Route {
            primary: Address::Node(members.primary().node, Endpoint::Shard(members.shard)),
            backups: members.replicas[1..].to_vec(),
        };
        Self {
            view: number,
            placement: view.placement.clone(),
            routes: view.shards.iter().map(|members| (members.shard, route(members))).collect(),
            batches: VecDeque::new(),
            options,
            retransmit: Retransmit::default(),
            end: from,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.batches.len() < limits::PUSH_WINDOW
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) fn bound_below(&self) -> Position {
        self.batches.front().map_or(self.end, |batch| batch.from)
    }

    pub(super) fn end(&self) -> Position {
        self.end
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = (ShardId, Address)> {
        self.routes.iter().map(|(shard, route)| (*shard, route.primary))
    }

    /// Binds `entries` to the next positions. Returns the shards that receive `stable` with them.
    pub(super) fn push<'a>(
        &mut self,
        now: Time,
        entries: impl Iterator<Item = &'a Entry> + Clone,
        stable: Position,
        out: &mut Vec<RoleEffect>,
    ) -> Vec<ShardId> {
        let from = self.end;
        let ids = runs_of(entries.clone().map(|entry| entry.id));
        self.end += ids.iter().map(|run| run.count).sum::<u64>();
        let puts = puts_of(entries.clone());
        let parts = match puts.is_empty() {
            true => records_of(&self.placement, from, entries),
            false => self.routes.keys().map(|shard| (*shard, BatchPart::Ids(puts.clone()))).collect(),
        };
        let batch = Batch { from, to: self.end, ids, voids: IdSet::default(), unanswered: parts };
        if self.batches.is_empty() {
            self.retransmit.start(now);
        }
        let shards = batch.unanswered.keys().copied().collect();
        send(&batch, self.view, &self.routes, stable, out);
        let ends = self.batches.back().map_or(batch.from, |last| last.to);
        assert_eq!(ends, batch.from, "batches are adjacent");
        self.batches.push_back(batch);
        shards
    }

    pub(super) fn bound(&mut self, shard: ShardId, batch: Position, voids: &[IdRun]) {
        let index = self.batches.partition_point(|candidate| candidate.from < batch);
        if let Some(found) = self.batches.get_mut(index).filter(|found| found.from == batch) {
            found.unanswered.remove(&shard);
            found.voids.extend(voids.iter().copied());
        }
    }

    /// Removes and returns the oldest batch, if every shard holds it.
    pub(super) fn take_bound(&mut self, now: Time) -> Option<BoundBatch> {
        self.batches.front().filter(|batch| batch.unanswered.is_empty())?;
        let Batch { from, to, ids, voids, .. } = self.batches.pop_front()?;
        self.retransmit.answered(now);
        self.retransmit.start(now);
        let parts = ids.into_iter().flat_map(|run| voids.split(run));
        Some(BoundBatch { from, to, ids: parts.map(|(ids, is_void)| BoundIds { ids, is_void }).collect() })
    }

    pub(super) fn resend(&mut self, now: Time, stable: Position, out: &mut Vec<RoleEffect>) {
        if self.batches.is_empty() || !self.retransmit.expires(now) {
            return;
        }
        let mut resent = 1;
        if self.options.mutates(Mutation::ResentWithoutBackoff) {
            resent = self.batches.len();
            self.retransmit = Retransmit::default();
            self.retransmit.start(now);
        }
        for batch in self.batches.iter().take(resent) {
            send(batch, self.view, &self.routes, stable, out);
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.batches.is_empty()).then(|| self.retransmit.deadline())
    }
}

/// Number of `entries` that make a batch.
///
/// The limit is in bytes of records, unless a single one is larger; for ids it applies per shard. A
/// replica without room fetches a batch's records from other replicas, and nothing is stable before
/// it has written them: unlimited batches could keep a slow disk busy for many seconds.
pub(super) fn takes<'a>(entries: impl Iterator<Item = &'a Entry>, limits: &limits::Limits) -> usize {
    let mut records = 0;
    let mut named: BTreeMap<ShardId, usize> = BTreeMap::new();
    let fits = |entry: &&Entry| {
        let (sum, bytes, most) = match &entry.content {
            Content::Record(record) => (&mut records, record.size(), limits.batch_bytes),
            Content::Put { shard, bytes } => {
                (named.entry(*shard).or_default(), *bytes as usize, limits.batch_bytes * IDS_FOR)
            }
        };
        let fits = *sum == 0 || *sum + bytes <= most;
        *sum += bytes;
        fits
    };
    entries.take(limits.batch_records).take_while(fits).count()
}

fn records_of<'a>(
    placement: &Placement,
    from: Position,
    entries: impl Iterator<Item = &'a Entry>,
) -> BTreeMap<ShardId, BatchPart> {
    let mut parts: BTreeMap<ShardId, Vec<Run>> = BTreeMap::new();
    let records = entries.filter_map(|entry| match &entry.content {
        Content::Record(record) => Some((entry.id, record.clone())),
        Content::Put { .. } => None,
    });
    let mut records = records.peekable();
    let mut first = from;
    while records.peek().is_some() {
        let (shard, stripe_end) = placement.stripe_at(first);
        let room = (stripe_end - first) as usize;
        let run = Run { first, records: records.by_ref().take(room).collect() };
        first = run.end();
        parts.entry(shard).or_default().push(run);
    }
    parts.into_iter().map(|(shard, runs)| (shard, BatchPart::Records(runs))).collect()
}

fn puts_of<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<Ordered> {
    let mut puts: Vec<Ordered> = vec![];
    for entry in entries {
        let Content::Put { shard, .. } = entry.content else { continue };
        let RecordId { session, number } = entry.id;
        match puts.last_mut() {
            Some(Ordered { ids, shard: last, .. })
                if *last == shard && ids.session == session && ids.end() == number =>
            {
                ids.count += 1;
            }
            _ => {
                let ids = IdRun { session, first: number, count: 1 };
                puts.push(Ordered { ids, shard, is_void: false });
            }
        }
    }
    puts
}

fn send(
    batch: &Batch,
    view: ViewNumber,
    routes: &BTreeMap<ShardId, Route>,
    stable: Position,
    out: &mut Vec<RoleEffect>,
) {
    for (shard, part) in &batch.unanswered {
        let route = routes.get(shard).expect("a placement names only shards of its view");
        let (batch, backups) = (batch.from, route.backups.clone());
        let message: roles::Message = match part.clone() {
            BatchPart::Records(runs) => shard::Message::Bind { view, batch, backups, stable, runs }.into(),
            BatchPart::Ids(runs) => ShardMessage::Order { view, batch, backups, stable, runs }.into(),
        };
        out.push(RoleEffect::Send { to: route.primary, message });
    }
}
