//! How far a store can show that it holds what it should.

use seriatim_model::storage::ShardMemory;
use seriatim_model::{Order, Position, View};

use super::Remembered;
use super::contents::Contents;
use super::runs::Stretch;

impl Contents {
    /// The first of the shard's positions from the trim point on that is remembered as stable and of which
    /// there is no valid version, or of which nobody knows whose it is; where there is none such, the stable
    /// bound. Positions that the replica knows that it lacks do not count.
    pub(super) fn first_hole(&self, trim: Position) -> Position {
        let Remembered { memory, stable, lacks } = &self.remembered;
        let Some(ShardMemory { view: Some(view), history, config, .. }) = memory else { return *stable };
        let mut next = trim;
        while next < *stable {
            if let Some(lacks) = lacks.filter(|lacks| lacks.contains(next)) {
                next = lacks.end;
                continue;
            }
            let cover = history.cover(next);
            let owner = match config.order {
                Order::ErwinBb | Order::Corfu => Some(self.placed(view, next)),
                Order::ErwinSt | Order::Scalog => cover.and_then(|cover| {
                    let owned = self.map.at(cover, next)?;
                    Some((owned.shard == self.shard(), next + owned.count))
                }),
            };
            let Some((is_own, owned_to)) = owner else { return next };
            let mut end = owned_to;
            if is_own {
                let Some(run) = cover.and_then(|cover| self.index.at(cover, next)) else { return next };
                end = end.min(next + run.count());
            }
            next = history.cover_end(next).map_or(end, |decided_to| decided_to.min(end));
        }
        *stable
    }

    /// Whether the placement gives this position to the shard, and up to where.
    fn placed(&self, view: &View, position: Position) -> (bool, Position) {
        let (holder, end) = view.placement.stripe_at(position);
        (holder == self.shard(), end)
    }
}
