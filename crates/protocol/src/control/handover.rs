//! The part of a view change that an ordering decides: what the view that ends leaves, and where
//! the next one begins.

use std::fmt::Debug;

use seriatim_model::storage::MissingRange;
use seriatim_model::{Order, Position, ShardMembers, View};

use super::evidence::Evidence;
use super::flush::{Flush, FlushRange};
use crate::shard::Held;

/// How a view hands over to the next one, in one ordering.
///
/// The attempt does what is the same for all: it asks, repeats, gathers answers, selects replicas,
/// stages and registers. The log's handover judges the [`Evidence`]. It is a value without state:
/// the same evidence gets the same answer, however often an attempt asks. A handover claims and
/// sends nothing, and waits for nothing.
///
/// Invariants, asserted where the attempt asks: a [certain](Self::certain) position is not below
/// where the flush begins; the positions where [shards join](Self::joins_at) and where the new view
/// [decides from](Self::decides_from) are within the flush, or at its end; a [flush](Self::flush)
/// by the chosen replica has a chosen replica, and one by shards has each done by a replica that
/// takes part; where nothing is [sealed](Self::seals) no replica is chosen.
pub(crate) trait Handover: Debug + Send + Sync {
    /// Whether sequencing replicas hold anything that a view leaves. Then they are sealed first,
    /// and the view change goes on with the state of one of them; and one that is away keeps its
    /// place. Otherwise the first step is to fence, and where the role that orders was does not
    /// matter.
    fn seals(&self) -> bool {
        true
    }

    /// The positions that the flush is about, as far as they can be told before it.
    fn range(&self, evidence: &Evidence) -> FlushRange;

    /// Below it, positions stay as they are: the shards hold them, or will when the flush is done.
    fn certain(&self, evidence: &Evidence) -> Position;

    /// The positions below [`certain`](Self::certain) that a replica of a shard would miss in the
    /// new view.
    fn missing(&self, evidence: &Evidence, held: &Held) -> MissingRange {
        held.missing_in(evidence.history(), self.certain(evidence))
    }

    /// Whether a replica that misses nothing of what came to it in the old view has everything
    /// below [`certain`](Self::certain).
    fn complete_suffices(&self, _: &Evidence) -> bool {
        true
    }

    /// The way in which what the old view leaves comes to these replicas, which are to be those of
    /// the new one.
    fn flush(&self, evidence: &Evidence, _: &[ShardMembers]) -> Flush {
        match evidence.chosen() {
            Some(_) => Flush::by_chosen(),
            // No sequencing replica has anything that the shards do not have.
            None => Flush::by_nobody(self.range(evidence)),
        }
    }

    /// From there on, new records go to the shards that join with the new view.
    fn joins_at(&self, flush: FlushRange) -> Position;

    /// From there on, the new view's versions of positions are valid.
    fn decides_from(&self, evidence: &Evidence, flush: FlushRange) -> Position;

    /// Below it, no role needs what the history says of views.
    fn trimmed(&self, evidence: &Evidence, shards: &[ShardMembers]) -> Position {
        evidence.trimmed(shards)
    }
}

/// From there on, a registered view of a log of this ordering places positions on the shards that
/// it opened: below, they are where the view before placed them. The attempt that forms a view and
/// whoever judges where records are go by this one rule.
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

    /// Different numbers, the same for a seed.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    /// A log of this ordering with two shards on nodes 1 to 4, in a view that started at position
    /// 10, or in none yet.
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

    /// Some of the members answered: sealed ones if the ordering has such, and for each shard the
    /// members that it is to have.
    fn answered(order: Order, numbers: &mut Numbers) -> (Evidence, Vec<ShardMembers>) {
        let entry = entry(order, numbers.below(8) > 0);
        let mut evidence = Evidence::new(entry.clone(), BTreeMap::new(), Options::default());
        for node in entry.sequencers.iter().filter(|_| <dyn Handover>::of(order).seals()) {
            if entry.view.is_some() && numbers.below(3) > 0 {
                // Everything that is final was ordered by all members.
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
