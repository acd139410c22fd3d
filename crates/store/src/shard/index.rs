//! Where the versions of positions are, in memory.
//!
//! For each view a list of runs: consecutive positions whose records follow one another in a segment.
//! A run is 32 bytes with its key. Ten million records in stripes of 64 are 160,000 runs.

use std::collections::BTreeMap;

use seriatim_model::{Position, ViewHistory, ViewNumber};

use super::segment::Put;

/// Neighbouring runs are joined up to this length, in bytes: what may have to be read to find one record.
pub(super) const MAX_RUN_BYTES: u32 = 64 << 10;

/// Consecutive positions whose records follow one another.
///
/// `frames` records lie in `bytes` bytes from `offset` on. The run's positions are `count` of them,
/// after the first `skip`. (Where a part of a run was bound anew, the rest keeps its place, because
/// the boundaries between its records are known only to the segment.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexRun {
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) bytes: u32,
    pub(super) skip: u16,
    pub(super) count: u16,
    pub(super) frames: u16,
}

impl IndexRun {
    pub(super) fn new(segment: u32, put: Put) -> Self {
        let Put { count, offset, bytes, .. } = put;
        Self { segment, offset, bytes, skip: 0, count, frames: count }
    }

    /// This run and the next as one, if their positions and their bytes are neighbours.
    fn join(self, next: Self) -> Option<Self> {
        let is_neighbour = self.segment == next.segment
            && self.offset.checked_add(self.bytes) == Some(next.offset)
            && self.skip + self.count == self.frames
            && next.skip == 0;
        let bytes = self.bytes.checked_add(next.bytes).filter(|bytes| *bytes <= MAX_RUN_BYTES)?;
        let frames = self.frames.checked_add(next.frames)?;
        is_neighbour.then_some(Self { bytes, count: self.count + next.count, frames, ..self })
    }

    /// The first `count` positions.
    pub(super) fn head(self, count: u64) -> Self {
        assert!(count <= u64::from(self.count), "a part of a run lies in it");
        Self { count: count as u16, ..self }
    }

    /// All but the first `count` positions.
    pub(super) fn tail(self, count: u64) -> Self {
        assert!(count <= u64::from(self.count), "a part of a run lies in it");
        Self { skip: self.skip + count as u16, count: self.count - count as u16, ..self }
    }
}

/// The runs of all views that may still be valid.
#[derive(Debug, Default)]
pub(super) struct Index {
    views: BTreeMap<ViewNumber, BTreeMap<Position, IndexRun>>,
}

impl Index {
    /// Adds a run. Where the view had other records at its positions, they are replaced.
    pub(super) fn insert(&mut self, view: ViewNumber, first: Position, run: IndexRun) {
        let runs = self.views.entry(view).or_default();
        carve(runs, first, first + u64::from(run.count));
        if let Some((start, previous)) = runs.range_mut(..first).next_back()
            && *start + u64::from(previous.count) == first
            && let Some(joined) = previous.join(run)
        {
            *previous = joined;
        } else {
            runs.insert(first, run);
        }
    }

    /// The view's runs that hold a position in `from..end`, with their first positions, in order.
    pub(super) fn runs(
        &self,
        view: ViewNumber,
        from: Position,
        end: Position,
    ) -> impl Iterator<Item = (Position, IndexRun)> + use<'_> {
        let runs = self.views.get(&view);
        let start = runs.and_then(|runs| reaching(runs, from)).unwrap_or(from);
        let range = runs.filter(|_| from < end).map(|runs| runs.range(start..end));
        range.into_iter().flatten().map(|(first, run)| (*first, *run))
    }

    /// The end of the view's run that holds `position`, if there is one.
    pub(super) fn held_to(&self, view: ViewNumber, position: Position) -> Option<Position> {
        let (first, run) = self.runs(view, position, position.next()).next()?;
        Some(first + u64::from(run.count))
    }

    /// Drops the versions that a registered view hides, as far as they fill whole runs.
    pub(super) fn hide(&mut self, history: &ViewHistory) {
        for (view, runs) in &mut self.views {
            let newer = history.steps().iter().find(|(number, _)| number > view);
            if let Some((_, first)) = newer {
                runs.split_off(first);
            }
        }
        self.views.retain(|_, runs| !runs.is_empty());
    }

    /// Drops the runs that end at or below `trim`.
    pub(super) fn trim(&mut self, trim: Position) {
        for runs in self.views.values_mut() {
            while let Some(first) = runs.first_entry()
                && *first.key() + u64::from(first.get().count) <= trim
            {
                first.remove();
            }
        }
        self.views.retain(|_, runs| !runs.is_empty());
    }

    /// How many runs there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.views.values().map(BTreeMap::len).sum()
    }
}

/// The start of the run that starts before `position` and reaches it.
fn reaching(runs: &BTreeMap<Position, IndexRun>, position: Position) -> Option<Position> {
    let (first, run) = runs.range(..position).next_back()?;
    (*first + u64::from(run.count) > position).then_some(*first)
}

/// Frees the positions `from..end`.
fn carve(runs: &mut BTreeMap<Position, IndexRun>, from: Position, end: Position) {
    let start = reaching(runs, from).unwrap_or(from);
    while let Some((first, run)) = runs.range(start..end).next_back().map(|(first, run)| (*first, *run)) {
        let run_end = first + u64::from(run.count);
        if run_end <= from {
            break;
        }
        runs.remove(&first);
        if first < from {
            runs.insert(first, run.head(from - first));
        }
        if run_end > end {
            runs.insert(end, run.tail(end - first));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VIEW: ViewNumber = ViewNumber(1);

    fn run(offset: u32, count: u16) -> IndexRun {
        let put = Put { first: Position(0), count, offset, bytes: u32::from(count) * 10 };
        IndexRun::new(0, put)
    }

    /// For each position below 100 where its record is, in units of frames.
    fn places(index: &Index) -> Vec<Option<u32>> {
        let mut places = vec![None; 100];
        for (first, run) in index.runs(VIEW, Position(0), Position(100)) {
            for n in 0..u32::from(run.count) {
                places[first.0 as usize + n as usize] = Some(run.offset / 10 + u32::from(run.skip) + n);
            }
        }
        places
    }

    proptest! {
        #[test]
        fn the_latest_binding_of_a_position_wins(binds in prop::collection::vec((0u64..80, 1u16..20), 1..20)) {
            let (mut index, mut model, mut next) = (Index::default(), vec![None; 100], 0);
            for (first, count) in binds {
                index.insert(VIEW, Position(first), run(next * 10, count));
                for n in 0..u32::from(count) {
                    model[first as usize + n as usize] = Some(next + n);
                }
                next += u32::from(count);
                prop_assert_eq!(places(&index), model.clone());
            }
            for from in 0..100 {
                let found: Vec<_> = index.runs(VIEW, Position(from), Position(from + 1)).collect();
                prop_assert_eq!(found.len(), usize::from(model[from as usize].is_some()), "position {}", from);
            }
        }
    }

    #[test]
    fn neighbours_are_joined_up_to_a_length() {
        let mut index = Index::default();
        for n in 0..20_000u32 {
            index.insert(VIEW, Position(u64::from(n)), run(n * 10, 1));
        }
        assert_eq!(index.len(), 200_000usize.div_ceil(MAX_RUN_BYTES as usize / 10 * 10));
        index.trim(Position(7000));
        assert_eq!(index.runs(VIEW, Position(7000), Position(7001)).count(), 1);
    }

    #[test]
    fn a_newer_view_hides_older_versions() {
        let mut index = Index::default();
        index.insert(VIEW, Position(0), run(0, 10));
        index.insert(VIEW, Position(20), run(500, 10));
        index.insert(ViewNumber(3), Position(20), run(700, 10));
        let mut history = ViewHistory::default();
        history.push(VIEW, Position(0));
        history.push(ViewNumber(2), Position(15));
        index.hide(&history);
        assert_eq!(index.runs(VIEW, Position(0), Position(100)).count(), 1);
        assert_eq!(index.runs(ViewNumber(3), Position(0), Position(100)).count(), 1);
    }

    #[test]
    fn a_run_is_a_few_dozen_bytes() {
        assert!(size_of::<Position>() + size_of::<IndexRun>() <= 32);
    }
}
