//! How far a store can show that it holds what it should.

use seriatim_model::storage::ShardMemory;
use seriatim_model::{Position, ShardId, View};

use super::Remembered;
use super::index::Index;

impl Remembered {
    /// A view that is remembered as registered started with what its flush had made stable.
    pub(super) fn believe_start(&mut self) {
        let view = self.memory.as_ref().and_then(|memory| memory.view.as_ref());
        self.stable = self.stable.max(view.map_or(Position::ZERO, |view| view.start));
    }

    /// The first of the shard's positions from the trim point on that is remembered as stable and of which
    /// there is no valid version; where there is none such, the stable bound. Positions that the replica
    /// knows that it lacks do not count.
    pub(super) fn first_hole(&self, shard: ShardId, index: &Index, trim: Position) -> Position {
        let Some(ShardMemory { view: Some(view), history, .. }) = &self.memory else { return self.stable };
        let mut next = own(view, shard, trim, self.stable);
        while next < self.stable {
            let held_to = match self.lacks.filter(|lacks| lacks.contains(next)) {
                Some(lacks) => Some(lacks.end),
                None => history.cover(next).and_then(|view| index.held_to(view, next)),
            };
            let Some(held_to) = held_to else { return next };
            let decided_to = history.cover_end(next).unwrap_or(self.stable);
            next = own(view, shard, held_to.min(decided_to), self.stable);
        }
        self.stable
    }
}

/// The first position from `from` on that the shard is to hold, or `end` or more if that is not below.
fn own(view: &View, shard: ShardId, from: Position, end: Position) -> Position {
    let mut next = from;
    while next < end {
        let (holder, stripe_end) = view.placement.stripe_at(next);
        if holder == shard {
            break;
        }
        next = stripe_end;
    }
    next
}
