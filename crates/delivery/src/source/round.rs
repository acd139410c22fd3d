//! One round of asking a shard's replicas for a position that some cannot serve.

use std::collections::BTreeSet;

use seriatim_model::{Member, NodeId};

use crate::failure::Failure;

/// A round asks a shard's replicas in turn, while they refuse. It ends when every replica of the
/// view has refused: a silent one may have the position.
#[derive(Debug, Default)]
pub(crate) struct Round {
    said_no: BTreeSet<NodeId>,
    /// Of the failures that replicas reported, the most recoverable.
    failure: Option<Failure>,
}

/// What to do after a replica refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Next,
    /// A replica refused twice and others are silent: pause, then ask all again.
    Again,
    /// Every replica refused; the round ends.
    All(Failure),
}

impl Round {
    /// Records the refusal of `node`. `replicas` may be empty if the shard has left.
    pub(crate) fn said_no(&mut self, node: NodeId, failure: Failure, replicas: &[Member]) -> Turn {
        let is_new = self.said_no.insert(node);
        let said = self.failure.take().filter(|said| hope(said) > hope(&failure)).unwrap_or(failure);
        if replicas.iter().all(|replica| self.said_no.contains(&replica.node)) {
            self.begin();
            return Turn::All(said);
        }
        self.failure = Some(said);
        if is_new { Turn::Next } else { Turn::Again }
    }

    pub(crate) fn begin(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_new(&self) -> bool {
        self.said_no.is_empty()
    }

    pub(crate) fn has_said_no(&self, node: NodeId) -> bool {
        self.said_no.contains(&node)
    }

    /// The replica whose answer is missing: the last one asked, or another that has not refused.
    pub(crate) fn silent(&self, asked: NodeId, replicas: &[Member]) -> NodeId {
        let nodes = std::iter::once(asked).chain(replicas.iter().map(|replica| replica.node));
        nodes.into_iter().find(|node| !self.said_no.contains(node)).unwrap_or(asked)
    }
}

/// How recoverable a failure is: replicas copy missing records, and damaged ones if another replica
/// has them whole.
fn hope(failure: &Failure) -> u8 {
    match failure {
        Failure::Missing { .. } => 2,
        Failure::Damaged { .. } => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Incarnation, Position, ShardId};

    use super::*;

    const REPLICAS: [Member; 3] = [member(1), member(2), member(3)];

    const fn member(node: u32) -> Member {
        Member { node: NodeId(node), incarnation: Incarnation(7) }
    }

    fn damaged() -> Failure {
        Failure::Damaged { position: Position(5), shard: ShardId(0) }
    }

    fn missing() -> Failure {
        Failure::Missing { position: Position(5), shard: ShardId(0) }
    }

    #[test]
    fn only_the_word_of_all_replicas_counts() {
        let mut round = Round::default();
        let mut say = |node, failure| round.said_no(NodeId(node), failure, &REPLICAS);
        assert_eq!(say(1, damaged()), Turn::Next);
        assert_eq!(say(3, damaged()), Turn::Next);
        assert_eq!(say(3, damaged()), Turn::Again, "node 2 is silent");
        assert_eq!(say(1, damaged()), Turn::Again);
        assert_eq!(round.silent(NodeId(1), &REPLICAS), NodeId(2));
        assert_eq!(round.said_no(NodeId(2), damaged(), &REPLICAS), Turn::All(damaged()));
        assert!(round.is_new());
        assert_eq!(round.silent(NodeId(1), &REPLICAS), NodeId(1));
        // Meanwhile a view excluded node 2, or the shard left.
        assert_eq!(round.said_no(NodeId(1), damaged(), &REPLICAS[..1]), Turn::All(damaged()));
        assert_eq!(round.said_no(NodeId(1), damaged(), &[]), Turn::All(damaged()));
    }

    #[test]
    fn in_which_order_they_answer_does_not_matter() {
        let failures = [missing(), damaged(), Failure::Disk { shard: ShardId(0), reason: String::new() }];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let mut round = Round::default();
            let turns = order
                .map(|index: usize| round.said_no(REPLICAS[index].node, failures[index].clone(), &REPLICAS));
            assert_eq!(
                turns,
                [Turn::Next, Turn::Next, Turn::All(missing())],
                "a replica receives its missing records"
            );
        }
    }
}
