//! The replicas of a shard that were asked for a position in turn and cannot give it out: when that
//! is believed, and which one is asked next.

use std::collections::BTreeSet;

use seriatim_model::{Member, NodeId};

use crate::failure::Failure;

/// One after the other is asked. A replica that is silent may have the position whole: until it has
/// answered, or a view does without it, what the others say is not the last word.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The replicas that said that they cannot give it out, ...
    said_no: BTreeSet<NodeId>,
    /// ... and the failure that is the most likely to pass.
    failure: Option<Failure>,
}

/// The replicas that said in this round that they cannot give out what comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Some of them: the next one is asked.
    Next,
    /// Some of them, this one a second time: others are silent. All are asked again after a pause.
    Again,
    /// All of them. The round is over.
    All(Failure),
}

impl Round {
    /// One of these replicas, of which there may be none any more, cannot give it out.
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

    /// Nothing that was said counts any more.
    pub(crate) fn begin(&mut self) {
        *self = Self::default();
    }

    /// Whether no replica has said anything yet.
    pub(crate) fn is_new(&self) -> bool {
        self.said_no.is_empty()
    }

    /// Whether this replica said in this round that it cannot give it out.
    pub(crate) fn has_said_no(&self, node: NodeId) -> bool {
        self.said_no.contains(&node)
    }

    /// The replica that is waited for: the one that was asked last, or one of these if that has
    /// answered.
    pub(crate) fn silent(&self, asked: NodeId, replicas: &[Member]) -> NodeId {
        let nodes = std::iter::once(asked).chain(replicas.iter().map(|replica| replica.node));
        nodes.into_iter().find(|node| !self.said_no.contains(node)).unwrap_or(asked)
    }
}

/// How likely it is that a failure passes by itself. A replica gets what it lacks from the others
/// as a matter of course, and what it has damaged if one of them has it whole.
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
        // A view without node 2 came meanwhile, or the shard has left.
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
