//! How far a store can show that it holds what it should.

use seriatim_model::storage::{HardState, Owned};
use seriatim_model::{Position, View, ViewNumber};

use super::Remembered;
use super::contents::Contents;
use super::runs::Stretch;

impl Contents {
    /// The lowest position below the stable bound that is a hole, or the stable bound if there is
    /// none. A position is a hole if it is the shard's and there is no valid version of it, or if
    /// the store does not know its owner.
    ///
    /// The search begins at the highest of three positions: the trim point, the start of the
    /// history (everything below it is trimmed), and the position at which the shard joined (a
    /// replica learns no owners below it). No hole is a position that the replica knows to be
    /// missing, or that the shard lost: the replica gets no record there, and need not learn the
    /// owner.
    pub(super) fn first_hole(&self, trim: Position) -> Position {
        let Remembered { memory, stable, missing, .. } = &self.remembered;
        let Some(HardState { view: Some(view), history, config, .. }) = memory else { return *stable };
        let begins = view.holders(self.shard()).map_or(Position::ZERO, |members| members.begins);
        let lost = history.gaps_of(self.shard()).map(|gap| gap.from..gap.end);
        let lacks = missing.iter().map(|missing| missing.from..missing.end).chain(lost);
        let mut next = trim.max(history.start()).max(begins);
        while next < *stable {
            if let Some(lacking) = lacks.clone().find(|range| range.contains(&next)) {
                next = lacking.end;
                continue;
            }
            let decided_to = history.cover_end(next).unwrap_or(*stable).min(*stable);
            let later = lacks.clone().map(|range| range.start).filter(|from| *from > next);
            let end = later.fold(decided_to, Position::min);
            let cover = history.cover(next);
            let hole = match config.order.places_by_position() {
                true => self.hole_in(cover, (next, end), stripes(view, next, end)),
                false => {
                    let owned = cover.into_iter().flat_map(|cover| self.map.within(cover, next, end));
                    self.hole_in(cover, (next, end), owned)
                }
            };
            if let Some(hole) = hole {
                return hole;
            }
            next = end;
        }
        *stable
    }

    /// The first position of a range, which one view decides about, that has no owner, or the shard
    /// for its owner and no version.
    fn hole_in(
        &self,
        view: Option<ViewNumber>,
        (from, end): (Position, Position),
        owned: impl Iterator<Item = (Position, Owned)>,
    ) -> Option<Position> {
        let mut next = from;
        let runs = view.into_iter().flat_map(|view| self.index.within(view, from, end));
        let mut runs = runs.map(|(first, run)| (first, first + run.count())).peekable();
        for (first, Owned { shard, count }) in owned {
            if first != next {
                break;
            }
            while shard == self.shard() && next < first + count {
                while runs.next_if(|(_, run_end)| *run_end <= next).is_some() {}
                match runs.peek() {
                    Some((run_first, run_end)) if *run_first <= next => next = *run_end,
                    _ => return Some(next),
                }
            }
            next = first + count;
        }
        (next < end).then_some(next)
    }
}

/// Which shards the placement gives the positions of a range to.
fn stripes(view: &View, from: Position, end: Position) -> impl Iterator<Item = (Position, Owned)> + use<'_> {
    let mut next = from;
    std::iter::from_fn(move || {
        let first = (next < end).then_some(next)?;
        let (shard, stripe_end) = view.placement.stripe_at(first);
        next = stripe_end.min(end);
        Some((first, Owned { shard, count: next.since(first) }))
    })
}
