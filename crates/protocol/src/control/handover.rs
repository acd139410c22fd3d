//! The part of a view change that depends on the ordering: the remains of the ending view, and the
//! start of the next.

use std::fmt::Debug;

use seriatim_model::storage::MissingRange;
use seriatim_model::{Order, Position, ShardMembers, View};

use super::evidence::Evidence;
use super::flush::{Flush, FlushRange};
use crate::shard::Held;

/// How a view hands over to the next one, in one ordering.
///
/// The attempt does the common part: it asks, gathers answers, selects replicas, stages and
/// registers. The handover judges the [`Evidence`]. It is stateless and sends nothing: equal
/// evidence gets equal answers.
///
/// Invariants, asserted where the attempt asks: a [certain](Self::certain) position is not below
/// the start of the flush; the positions where [shards join](Self::joins_at) and from which the new
/// view [decides](Self::decides_from) are within the flush or at its end; a [flush](Self::flush) by
/// the chosen replica has one, and a flush by shards is done by participating replicas; an ordering
/// that does not [seal](Self::seals) chooses no replica.
pub(crate) trait Handover: Debug + Send + Sync {
    /// Whether sequencing replicas hold state when a view ends. If so, they are sealed first, one
    /// provides its state, and absent ones keep their places. If not, the first step is to fence,
    /// and the role may move freely.
    fn seals(&self) -> bool {
        true
    }

    /// The positions to flush, as known before the flush.
    fn range(&self, evidence: &Evidence) -> FlushRange;

    /// Positions below it keep their records: the shards hold them, at the latest after the flush.
    fn certain(&self, evidence: &Evidence) -> Position;

    /// The positions below [`certain`](Self::certain) that a shard replica would miss in the new
    /// view.
    fn missing(&self, evidence: &Evidence, held: &Held) -> MissingRange {
        held.missing_in(evidence.history(), self.certain(evidence))
    }

    /// Whether a replica that misses no record of the old view has everything below
    /// [`certain`](Self::certain).
    fn complete_suffices(&self, _: &Evidence) -> bool {
        true
    }

    /// How the ending view's positions reach the new view's replicas.
    fn flush(&self, evidence: &Evidence, _: &[ShardMembers]) -> Flush {
        match evidence.chosen() {
            Some(_) => Flush::by_chosen(),
            // No sequencing replica has entries to add.
            None => Flush::by_nobody(self.range(evidence)),
        }
    }

    /// First position whose record may go to a joining shard.
    fn joins_at(&self, flush: FlushRange) -> Position;

    /// First position that the new view decides; from there on its versions are valid.
    fn decides_from(&self, evidence: &Evidence, flush: FlushRange) -> Position;

    /// Bound below which no role needs the history of views.
    fn trimmed(&self, evidence: &Evidence, shards: &[ShardMembers]) -> Position {
        evidence.trimmed(shards)
    }
}

/// A registered view places records on newly opened shards from here; below, the previous placement
/// holds. Attempts and checkers share this rule.
#[must_use]
pub fn placed_from(order: Order, view: &View) -> Position {
    <dyn Handover>::of(order).joins_at(FlushRange::new(view.first, view.start))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use seriatim_model::{
        Incarnation, LogConfig, LogEntry, LogId, Member, NodeId, Placement, ShardId, ViewHistory, ViewNumber,
    };

    use super::*;
    use crate::control::{SealedState, catalog};
    use crate::mutation::Options;

    const OLD: ViewNumber = ViewNumber(3);
    const INCARNATION: Incarnation = Incarnation(1);

    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    /// Two shards on nodes 1 to 4, and perhaps a view that started at position 10.
    fn entry(order: Order, has_view: bool) -> LogEntry {
        let nodes: Vec<NodeId> = (1..=4).map(NodeId).collect();
        let sequencers = if order.properties().has_one_sequencer { 1 } else { 3 };
        let config = LogConfig { order, sequencers, shards: 2, replicas: 2, ..LogConfig::default() };
        let entry = catalog::place(LogId(1), "log".into(), config, &nodes).expect("they can hold it");
        let member = |node: &NodeId| Member { node: *node, incarnation: INCARNATION };
        let shards = (0..).map(ShardId).zip(&entry.shards).map(|(shard, nodes)| ShardMembers {
            shard,
            begins: Position::ZERO,
            replicas: nodes.iter().map(member).collect(),
        });
        let view = View {
            number: OLD,
            sequencers: entry.sequencers.iter().map(member).collect(),
            leader: entry.sequencers[0],
            shards: shards.collect(),
            retired: vec![],
            placement: Placement::new(vec![ShardId(0), ShardId(1)], 4),
            first: Position(8),
            start: Position(10),
        };
        let mut history = ViewHistory::default();
        history.push(OLD, view.first);
        if has_view { LogEntry { view: Some(view), history, ..entry } } else { entry }
    }

    /// Random answers, and the resulting shards.
    fn answered(order: Order, numbers: &mut Numbers) -> (Evidence, Vec<ShardMembers>) {
        let entry = entry(order, numbers.below(8) > 0);
        let mut evidence = Evidence::new(entry.clone(), BTreeMap::new(), Options::default());
        for node in entry.sequencers.iter().filter(|_| <dyn Handover>::of(order).seals()) {
            if entry.view.is_some() && numbers.below(3) > 0 {
                // All members ordered every final position.
                let ordered = Position(30 + numbers.below(20));
                evidence.note_sealed(
                    *node,
                    INCARNATION,
                    Some(SealedState { ordered, held: numbers.below(9) }),
                );
            }
        }
        evidence.choose(evidence.candidate());
        let mut shards = vec![];
        for (shard, nodes) in (0..).map(ShardId).zip(&entry.shards) {
            let mut replicas = vec![];
            for node in nodes {
                if numbers.below(4) == 0 {
                    continue;
                }
                let stable = Position(if entry.view.is_some() { 10 + numbers.below(20) } else { 0 });
                let trim = Position(numbers.below(stable.0 + 1));
                let end = stable + numbers.below(9);
                let missing = (numbers.below(3) == 0).then_some(MissingRange { from: trim, end: stable });
                let view = if numbers.below(5) > 0 { entry.view_number() } else { ViewNumber::NONE };
                let held = Held { view, stable, missing, trim, end, knows: entry.view_number() };
                evidence.note_fenced(shard, *node, INCARNATION, held);
                replicas.push(Member { node: *node, incarnation: INCARNATION });
            }
            if !replicas.is_empty() {
                shards.push(ShardMembers { shard, begins: Position::ZERO, replicas });
            }
        }
        (evidence, shards)
    }

    #[test]
    fn every_ordering_keeps_the_contract() {
        for order in Order::ALL {
            let (handover, mut numbers) = (<dyn Handover>::of(order), Numbers(order as u64));
            for _ in 0..2_000 {
                let (evidence, shards) = answered(order, &mut numbers);
                let (range, certain) = (handover.range(&evidence), handover.certain(&evidence));
                assert!(certain >= range.first(), "{order}: {certain}, {range:?}, {evidence:?}");
                for held in evidence.all_held() {
                    let missing = handover.missing(&evidence, held);
                    assert!(missing.from <= missing.end, "{order}: {missing:?}, {evidence:?}");
                }
                let flush = handover.flush(&evidence, &shards);
                assert!(!flush.is_by_chosen() || evidence.chosen().is_some(), "{order}: {evidence:?}");
                let takes_part = |(shard, source): (ShardId, Member)| {
                    shards.iter().any(|members| members.shard == shard && members.replicas.contains(&source))
                };
                assert!(flush.sources().all(takes_part), "{order}: {flush:?}, {evidence:?}");
                let range = flush.outcome().map_or(range, |outcome| outcome.range);
                for at in [handover.joins_at(range), handover.decides_from(&evidence, range)] {
                    assert!(range.reaches(at), "{order}: {at}, {range:?}");
                }
                assert!(handover.trimmed(&evidence, &shards) <= range.end(), "{order}: {evidence:?}");
            }
        }
    }

    #[test]
    fn the_first_view_begins_at_the_first_position() {
        for order in Order::ALL {
            let handover = <dyn Handover>::of(order);
            let evidence = Evidence::new(entry(order, false), BTreeMap::new(), Options::default());
            let nothing = FlushRange::default();
            assert_eq!((handover.range(&evidence), handover.certain(&evidence)), (nothing, Position::ZERO));
            assert!(!handover.flush(&evidence, &[]).is_by_chosen(), "{order}: by whom?");
        }
    }

    #[test]
    fn where_nobody_is_sealed_the_role_that_orders_keeps_nothing() {
        for order in Order::ALL {
            assert_eq!(<dyn Handover>::of(order).seals(), order.properties().keeps_order, "{order}");
        }
    }
}
