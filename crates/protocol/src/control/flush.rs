//! The flush of an attempt: the replicas that do it, how far they are, and what became of it.

use std::collections::BTreeMap;

use seriatim_model::{Address, Endpoint, Member, NodeId, Position, ShardId, View, ViewNumber};

use super::evidence::Evidence;
use super::message::Message;
use super::send;
use crate::parts::Carried;
use crate::roles::RoleEffect;
use crate::shard;

/// The positions that a flush is about.
///
/// Invariant: it does not end below where it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushRange {
    first: Position,
    end: Position,
}

impl FlushRange {
    /// The positions from `first` to before `end`.
    pub(crate) fn new(first: Position, end: Position) -> Self {
        assert!(first <= end, "a flush from {first} ends at {end}");
        Self { first, end }
    }

    /// No positions: the new view goes on there.
    pub(crate) fn none_at(position: Position) -> Self {
        Self::new(position, position)
    }

    /// The first position.
    pub(crate) fn first(self) -> Position {
        self.first
    }

    /// The position after the last.
    pub(crate) fn end(self) -> Position {
        self.end
    }

    /// Whether there is nothing to flush.
    pub(crate) fn is_empty(self) -> bool {
        self.first == self.end
    }

    /// Whether it has this position, or ends there.
    pub(super) fn reaches(self, position: Position) -> bool {
        (self.first..=self.end).contains(&position)
    }
}

/// A flush under way.
///
/// Invariant: the attempt asks a replica to do it, or knows its outcome from the first.
#[derive(Clone, Debug)]
pub(crate) struct Flush {
    by: By,
    outcome: Option<Outcome>,
}

/// The replicas that flush, and how far they are.
#[derive(Clone, Debug)]
enum By {
    Nobody,
    /// The chosen sequencing replica. It binds what it holds, and is known to be that far.
    Chosen {
        bound: Position,
    },
    /// A replica of each of these shards. It writes the shard's positions anew, and is known to be
    /// that far.
    Shards(BTreeMap<ShardId, (Member, Position)>),
}

/// The positions that a flush decided, and the knowledge that the new view begins with.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) range: FlushRange,
    pub(super) carried: Carried,
}

impl Flush {
    /// There is nothing that anybody could flush.
    pub(crate) fn by_nobody(range: FlushRange) -> Self {
        Self { by: By::Nobody, outcome: Some(Outcome { range, carried: Carried::default() }) }
    }

    /// The chosen sequencing replica flushes what it holds. It says itself which positions that
    /// takes.
    pub(crate) fn by_chosen() -> Self {
        Self { by: By::Chosen { bound: Position::ZERO }, outcome: None }
    }

    /// Each shard flushes itself: one of its replicas writes what it holds of these positions anew,
    /// on the others too.
    pub(crate) fn by_shards(range: FlushRange, sources: BTreeMap<ShardId, Member>) -> Self {
        assert!(sources.is_empty() || !range.is_empty(), "a shard that flushes has something to flush");
        let parts = sources.into_iter().map(|(shard, source)| (shard, (source, range.first)));
        let outcome = Outcome { range, carried: Carried::default() };
        Self { by: By::Shards(parts.collect()), outcome: Some(outcome) }
    }

    /// Whether the attempt waits for it, be it for nothing.
    pub(super) fn is_a_step(&self) -> bool {
        !matches!(self.by, By::Nobody)
    }

    /// Whether the chosen sequencing replica is to flush.
    pub(super) fn is_by_chosen(&self) -> bool {
        matches!(self.by, By::Chosen { .. })
    }

    /// The replicas that flush their shards.
    pub(super) fn sources(&self) -> impl Iterator<Item = (ShardId, Member)> {
        let parts = if let By::Shards(parts) = &self.by { Some(parts) } else { None };
        parts.into_iter().flatten().map(|(shard, (source, _))| (*shard, *source))
    }

    /// The positions that it decided, and what else is known of it, as soon as that is known.
    pub(super) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Whether everything is where it belongs.
    pub(super) fn is_done(&self) -> bool {
        let Some(Outcome { range, .. }) = &self.outcome else { return false };
        match &self.by {
            By::Nobody | By::Chosen { .. } => true,
            By::Shards(parts) => parts.values().all(|(_, upto)| *upto >= range.end),
        }
    }

    /// The chosen replica is on its way. Says whether that is news, as do the other answers.
    pub(super) fn note_bound(&mut self, upto: Position) -> bool {
        let By::Chosen { bound } = &mut self.by else { return false };
        let further = upto > *bound;
        *bound = upto.max(*bound);
        further
    }

    /// The chosen replica has flushed what it holds.
    pub(super) fn note_flushed(&mut self, range: FlushRange, carried: Carried) -> bool {
        let awaited = self.is_by_chosen();
        if awaited {
            self.outcome = Some(Outcome { range, carried });
        }
        awaited
    }

    /// A shard got further with its part.
    pub(super) fn note_shard_flushed(&mut self, shard: ShardId, node: NodeId, upto: Position) -> bool {
        let By::Shards(parts) = &mut self.by else { return false };
        let known = parts.get_mut(&shard).filter(|(source, _)| source.node == node);
        known.is_some_and(|(_, known)| {
            let further = upto > *known;
            *known = upto.max(*known);
            further
        })
    }

    /// Asks the replicas that are to flush and have not said that they have, for the new view as
    /// far as that is known.
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
