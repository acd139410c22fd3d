//! Who takes part: nodes, logs, shards, members, and the numbered configurations (views) they form.

use std::fmt;

use crate::position::{Placement, Position};
use crate::wire::{wire_newtype, wire_struct};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        wire_newtype!($name);
    };
}

number! {
    /// A process that hosts roles. Numbered from 1 within a cluster.
    NodeId(u32)
}
number! {
    /// A log. Drawn once and never reused, not even after the log is deleted. 0 is no log.
    LogId(u64)
}
number! {
    /// A shard of a log, numbered from 0 within it.
    ShardId(u32)
}
number! {
    /// The number of a view. Claims and views share the numbers; 0 is before the first.
    ViewNumber(u64)
}
number! {
    /// Drawn at random when a replica starts without its memory, so that a view that names an earlier
    /// incarnation does not take the newcomer for the one that it trusted.
    Incarnation(u64)
}

impl ViewNumber {
    /// Before the first view of a log.
    pub const NONE: Self = Self(0);

    /// The next number to claim after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One replica as a view names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The node that hosts it.
    pub node: NodeId,
    /// Which of its lives is meant.
    pub incarnation: Incarnation,
}

wire_struct! { Member { node, incarnation } }

/// The replicas of one shard in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMembers {
    /// Which shard.
    pub shard: ShardId,
    /// Its replicas; the first is the primary, the others are backups. Never empty.
    pub replicas: Vec<Member>,
}

wire_struct! { ShardMembers { shard, replicas } }

impl ShardMembers {
    /// The replica that takes pushes and answers reads.
    #[must_use]
    pub fn primary(&self) -> Member {
        self.replicas[0]
    }
}

/// A numbered configuration of one log (LazyLog §4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its number.
    pub number: ViewNumber,
    /// The sequencing replicas. Every one of them must acknowledge an append. Never empty.
    pub sequencers: Vec<Member>,
    /// Which of the sequencing replicas establishes the order.
    pub leader: NodeId,
    /// The replicas of each shard, in the order of shard numbers.
    pub shards: Vec<ShardMembers>,
    /// Which shard holds which position.
    pub placement: Placement,
    /// Where the view's flush started: the `ordered` of the replica that it was recovered from.
    pub first: Position,
    /// Where the flush ended: `ordered` and `stable` at the start of the view.
    pub start: Position,
}

wire_struct! { View { number, sequencers, leader, shards, placement, first, start } }

impl View {
    /// Whether the view names this incarnation as a sequencing replica.
    #[must_use]
    pub fn names_sequencer(&self, member: Member) -> bool {
        self.sequencers.contains(&member)
    }

    /// The replicas of `shard`, if the view has that shard.
    #[must_use]
    pub fn shard(&self, shard: ShardId) -> Option<&ShardMembers> {
        self.shards.iter().find(|members| members.shard == shard)
    }
}

/// For each registered view, where it starts to decide what is valid: `(view, first)`.
///
/// A position may have been pushed under several views. The valid version is that of the latest
/// registered view whose `first` is at or below the position. A view hides what earlier views pushed
/// at or above its `first`.
///
/// Invariant: numbers increase, and so do the `first` values: a view that starts at or below an earlier
/// one's `first` removes the earlier one from the list, because it hides all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewHistory {
    steps: Vec<(ViewNumber, Position)>,
}

wire_struct! { ViewHistory { steps } }

impl ViewHistory {
    /// Adds a registered view. A view that is not newer than the latest one changes nothing.
    pub fn push(&mut self, view: ViewNumber, first: Position) {
        if view <= self.latest() {
            return;
        }
        while self.steps.last().is_some_and(|(_, earlier)| *earlier >= first) {
            self.steps.pop();
        }
        self.steps.push((view, first));
    }

    /// The number of the latest registered view, or [`ViewNumber::NONE`].
    #[must_use]
    pub fn latest(&self) -> ViewNumber {
        self.steps.last().map_or(ViewNumber::NONE, |(view, _)| *view)
    }

    /// The view whose version of `position` is valid, if any view covers it.
    #[must_use]
    pub fn cover(&self, position: Position) -> Option<ViewNumber> {
        let index = self.steps.partition_point(|(_, first)| *first <= position);
        (index > 0).then(|| self.steps[index - 1].0)
    }

    /// Where the view that covers `position` stops to decide: the `first` of the next one.
    #[must_use]
    pub fn cover_end(&self, position: Position) -> Option<Position> {
        let index = self.steps.partition_point(|(_, first)| *first <= position);
        self.steps.get(index).map(|(_, first)| *first)
    }

    /// Forgets what only decides about positions below `trim`.
    pub fn forget_below(&mut self, trim: Position) {
        let index = self.steps.partition_point(|(_, first)| *first <= trim);
        self.steps.drain(..index.saturating_sub(1));
    }

    /// The list itself, oldest first.
    #[must_use]
    pub fn steps(&self) -> &[(ViewNumber, Position)] {
        &self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_view_at_or_below_a_position_decides() {
        let mut history = ViewHistory::default();
        assert_eq!(history.cover(Position(0)), None);
        history.push(ViewNumber(1), Position(0));
        history.push(ViewNumber(3), Position(10));
        history.push(ViewNumber(2), Position(5));
        assert_eq!(history.cover(Position(9)), Some(ViewNumber(1)));
        assert_eq!(history.cover(Position(10)), Some(ViewNumber(3)));
        history.push(ViewNumber(4), Position(7));
        assert_eq!(history.cover(Position(6)), Some(ViewNumber(1)));
        assert_eq!(history.cover_end(Position(6)), Some(Position(7)));
        assert_eq!(history.cover(Position(12)), Some(ViewNumber(4)));
        history.forget_below(Position(8));
        assert_eq!(history.steps(), &[(ViewNumber(4), Position(7))]);
    }
}
