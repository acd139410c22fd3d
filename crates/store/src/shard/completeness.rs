//! Finds the positions that a store should hold and lacks.

use seriatim_model::storage::{HardState, Owned};
use seriatim_model::{Position, View, ViewNumber};

use super::Remembered;
use super::contents::Contents;
use super::runs::Stretch;

impl Contents {
    /// The lowest hole below the stable bound, or the bound itself. A hole is a position without a
    /// known owner, or of this shard without a valid version.
    ///
    /// The search begins at the highest of: the trim point; the history's start (all below is
    /// trimmed); the position at which the shard joined (a replica learns no owners below it).
    /// Positions in the replica's missing range, or lost by the shard, are no holes: the replica
    /// gets no record there and need not learn the owner.
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

    /// The first hole in `from..end`, whose positions `view` decides; `None`: no view decides them.
    /// `owned` lists the owners from `from` on.
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

fn stripes(view: &View, from: Position, end: Position) -> impl Iterator<Item = (Position, Owned)> + use<'_> {
    let mut next = from;
    std::iter::from_fn(move || {
        let first = (next < end).then_some(next)?;
        let (shard, stripe_end) = view.placement.stripe_at(first);
        next = stripe_end.min(end);
        Some((first, Owned { shard, count: next.since(first) }))
    })
}
