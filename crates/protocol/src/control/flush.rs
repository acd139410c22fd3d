//! The flush of an attempt: replicas, progress and outcome.

use std::collections::BTreeMap;

use seriatim_model::{Address, Endpoint, Member, NodeId, Position, ShardId, View, ViewNumber};

use super::evidence::Evidence;
use super::message::Message;
use super::send;
use crate::parts::Carried;
use crate::roles::RoleEffect;
use crate::shard;

/// The positions of a flush.
///
/// Invariant: the end is not below the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushRange {
    first: Position,
    end: Position,
}

impl FlushRange {
    /// Excludes `end`.
    pub(crate) fn new(first: Position, end: Position) -> Self {
        assert!(first <= end, "a flush from {first} ends at {end}");
        Self { first, end }
    }

    pub(crate) fn none_at(position: Position) -> Self {
        Self::new(position, position)
    }

    pub(crate) fn first(self) -> Position {
        self.first
    }

    /// Exclusive.
    pub(crate) fn end(self) -> Position {
        self.end
    }

    pub(crate) fn is_empty(self) -> bool {
        self.first == self.end
    }

    /// Whether `position` is in the range or at its end.
    pub(super) fn reaches(self, position: Position) -> bool {
        (self.first..=self.end).contains(&position)
    }
}

/// A flush under way.
///
/// Invariant: replicas carry it out, or its outcome is known from the start.
#[derive(Clone, Debug)]
pub(crate) struct Flush {
    by: By,
    outcome: Option<Outcome>,
}

#[derive(Clone, Debug)]
enum By {
    Nobody,
    /// The chosen sequencing replica; it has bound its entries below `bound`.
    Chosen {
        bound: Position,
    },
    /// For each shard: the replica that writes its positions again, and the bound below which it
    /// has.
    Shards(BTreeMap<ShardId, (Member, Position)>),
}

/// The flushed positions, and the state with which the new view begins.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) range: FlushRange,
    pub(super) carried: Carried,
}

impl Flush {
    /// Nothing to flush.
    pub(crate) fn by_nobody(range: FlushRange) -> Self {
        Self { by: By::Nobody, outcome: Some(Outcome { range, carried: Carried::default() }) }
    }

    /// A flush by the chosen sequencing replica, which reports its positions.
    pub(crate) fn by_chosen() -> Self {
        Self { by: By::Chosen { bound: Position::ZERO }, outcome: None }
    }

    /// A flush by one replica of each shard, which writes these positions again, on the others too.
    pub(crate) fn by_shards(range: FlushRange, sources: BTreeMap<ShardId, Member>) -> Self {
        assert!(sources.is_empty() || !range.is_empty(), "a shard that flushes has something to flush");
        let parts = sources.into_iter().map(|(shard, source)| (shard, (source, range.first)));
        let outcome = Outcome { range, carried: Carried::default() };
        Self { by: By::Shards(parts.collect()), outcome: Some(outcome) }
    }

    /// Whether the attempt has a flush step, even without sources.
    pub(super) fn is_a_step(&self) -> bool {
        !matches!(self.by, By::Nobody)
    }

    pub(super) fn is_by_chosen(&self) -> bool {
        matches!(self.by, By::Chosen { .. })
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = (ShardId, Member)> {
        let parts = if let By::Shards(parts) = &self.by { Some(parts) } else { None };
        parts.into_iter().flatten().map(|(shard, (source, _))| (*shard, *source))
    }

    /// `None` until it is known.
    pub(super) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Whether all flushed positions are on the shards.
    pub(super) fn is_done(&self) -> bool {
        let Some(Outcome { range, .. }) = &self.outcome else { return false };
        match &self.by {
            By::Nobody | By::Chosen { .. } => true,
            By::Shards(parts) => parts.values().all(|(_, upto)| *upto >= range.end),
        }
    }

    /// Returns whether the progress is new, as do the other `note_` methods.
    pub(super) fn note_bound(&mut self, upto: Position) -> bool {
        let By::Chosen { bound } = &mut self.by else { return false };
        let further = upto > *bound;
        *bound = upto.max(*bound);
        further
    }

    pub(super) fn note_flushed(&mut self, range: FlushRange, carried: Carried) -> bool {
        let awaited = self.is_by_chosen();
        if awaited {
            self.outcome = Some(Outcome { range, carried });
        }
        awaited
    }

    pub(super) fn note_shard_flushed(&mut self, shard: ShardId, node: NodeId, upto: Position) -> bool {
        let By::Shards(parts) = &mut self.by else { return false };
        let known = parts.get_mut(&shard).filter(|(source, _)| source.node == node);
        known.is_some_and(|(_, known)| {
            let further = upto > *known;
            *known = upto.max(*known);
            further
        })
    }

    /// Asks unfinished replicas, with the new view as known so far.
    pub(super) fn ask(&self, evidence: &Evidence, view: View, out: &mut Vec<RoleEffect>) {
        match &self.by {
            By::Nobody => {}
            By::Chosen { .. } => {
                let Member { node, incarnation } = evidence.chosen().expect("it was chosen before");
                let message = Message::Flush { claim: view.number, old: evidence.old(), incarnation, view };
                send(Address::Node(node, Endpoint::Sequencer), message, out);
            }
            By::Shards(parts) => self.ask_shards(parts, evidence, &view, out),
        }
    }

    fn ask_shards(
        &self,
        parts: &BTreeMap<ShardId, (Member, Position)>,
        evidence: &Evidence,
        view: &View,
        out: &mut Vec<RoleEffect>,
    ) {
        let (Some(Outcome { range, .. }), Some(old)) = (&self.outcome, evidence.old_view()) else { return };
        assert!(old.number != ViewNumber::NONE, "a flush has an old view");
        for (shard, (source, upto)) in parts.iter().filter(|(_, (_, upto))| *upto < range.end) {
            let replicas = view.shard(*shard).into_iter().flat_map(|members| &members.replicas);
            let message = shard::Message::Flush {
                claim: view.number,
                incarnation: source.incarnation,
                first: *upto,
                end: range.end,
                placement: old.placement.clone(),
                backups: replicas.filter(|member| *member != source).copied().collect(),
            };
            send(Address::Node(source.node, Endpoint::Shard(*shard)), message, out);
        }
    }
}
