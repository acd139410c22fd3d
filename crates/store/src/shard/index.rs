//! The in-memory index of versions.
//!
//! Each view has a list of runs: consecutive positions whose records are adjacent in a segment.
//! Most runs are packed (`runs.rs`). Ten million records in stripes of 64 are 160,000 runs.

use std::collections::BTreeMap;
use std::ops::Bound;

use seriatim_model::storage::Owned;
use seriatim_model::wire::wire_struct;
use seriatim_model::{Position, ShardId, ViewHistory, ViewNumber};

use super::numbers::{Input, put_difference, put_number};
use super::runs::{Runs, Stretch, Visits};
use super::segment::Written;

/// Most bytes of a joined run. A read of one record may read all of them.
pub(super) const MAX_RUN_BYTES: u32 = 64 << 10;

/// How a run relates to the previous one: adjacent and alike (same count and length); adjacent;
/// elsewhere, alike; elsewhere; part of a larger stretch.
const FOLLOWS_ALIKE: u8 = 1;
const FOLLOWS: u8 = 2;
const APART_ALIKE: u8 = 3;
const APART: u8 = 4;
const PART: u8 = 5;

/// How an owner's number of positions is encoded: one; as in the last run; explicit.
const ALONE: u8 = 0;
const AS_MANY: u8 = 1;
const COUNTED: u8 = 2;
/// Shard numbers from this one on do not fit into the first byte.
const FAR_SHARD: u32 = 15;

/// Consecutive places (positions, or numbers of a session) whose records are adjacent.
///
/// The run is `count` records, after the first `skip`, of the `frames` records in `bytes` bytes
/// from `offset` on. A part keeps these bytes, because only the segment knows its records'
/// boundaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexRun {
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) bytes: u32,
    pub(super) skip: u16,
    pub(super) count: u16,
    pub(super) frames: u16,
}

wire_struct! { IndexRun { segment, offset, bytes, skip, count, frames } }

impl IndexRun {
    pub(super) fn new(segment: u32, written: Written) -> Self {
        let Written { count, offset, bytes } = written;
        Self { segment, offset, bytes, skip: 0, count, frames: count }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.count > 0 && u32::from(self.skip) + u32::from(self.count) <= u32::from(self.frames)
    }

    /// The stretch as written. `None` for a part of it.
    pub(super) fn whole(&self) -> Option<Written> {
        let Self { offset, bytes, skip, count, frames, .. } = *self;
        (skip == 0 && count == frames).then_some(Written { count, offset, bytes })
    }

    pub(super) fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.bytes)
    }

    fn is_continued_by(&self, next: &Self) -> bool {
        (self.segment, self.offset, self.bytes, self.frames)
            == (next.segment, next.offset, next.bytes, next.frames)
            && self.skip + self.count == next.skip
    }
}

impl Stretch for IndexRun {
    const NOTHING: Self = Self { segment: 0, offset: 0, bytes: 0, skip: 0, count: 0, frames: 0 };

    fn count(&self) -> u64 {
        self.count.into()
    }

    fn head(self, count: u64) -> Self {
        assert!(count <= u64::from(self.count), "a part of a run lies in it");
        Self { count: count as u16, ..self }
    }

    fn tail(self, count: u64) -> Self {
        assert!(count <= u64::from(self.count), "a part of a run lies in it");
        Self { skip: self.skip + count as u16, count: self.count - count as u16, ..self }
    }

    fn join(self, next: Self) -> Option<Self> {
        if self.is_continued_by(&next) {
            return Some(Self { count: self.count + next.count, ..self });
        }
        let is_neighbour = self.segment == next.segment
            && self.offset.checked_add(self.bytes) == Some(next.offset)
            && self.skip + self.count == self.frames
            && next.skip == 0;
        let bytes = self.bytes.checked_add(next.bytes).filter(|bytes| *bytes <= MAX_RUN_BYTES)?;
        let frames = self.frames.checked_add(next.frames)?;
        is_neighbour.then_some(Self { bytes, count: self.count + next.count, frames, ..self })
    }

    fn put_after(self, last: Self, out: &mut Vec<u8>) -> u8 {
        let is_whole = self.whole().is_some();
        let follows = self.segment == last.segment && u64::from(self.offset) == last.end();
        let is_alike = (self.count, self.bytes) == (last.count, last.bytes);
        if !(is_whole && follows) {
            put_difference(out, last.segment.into(), self.segment.into());
            put_difference(out, last.end(), self.offset.into());
        }
        let how = match (is_whole, follows, is_alike) {
            (true, true, true) => FOLLOWS_ALIKE,
            (true, true, false) => FOLLOWS,
            (true, false, true) => APART_ALIKE,
            (true, false, false) => APART,
            (false, ..) => PART,
        };
        if how != FOLLOWS_ALIKE && how != APART_ALIKE {
            put_number(out, self.count.into());
            put_difference(out, last.bytes.into(), self.bytes.into());
        }
        if how == PART {
            put_number(out, self.skip.into());
            put_number(out, self.frames.into());
        }
        how
    }

    fn take_after(last: Self, how: u8, input: &mut Input<'_>) -> Option<Self> {
        let mut run = Self { skip: 0, ..last };
        match how {
            FOLLOWS_ALIKE | FOLLOWS => run.offset = u32::try_from(last.end()).ok()?,
            APART_ALIKE | APART | PART => {
                run.segment = u32::try_from(input.difference(last.segment.into())?).ok()?;
                run.offset = u32::try_from(input.difference(last.end())?).ok()?;
            }
            _ => return None,
        }
        if matches!(how, FOLLOWS | APART | PART) {
            run.count = input.small()?;
            run.bytes = u32::try_from(input.difference(last.bytes.into())?).ok()?;
        }
        run.frames = run.count;
        if how == PART {
            run.skip = input.small()?;
            run.frames = input.small()?;
        }
        Some(run)
    }
}

impl Stretch for Owned {
    const NOTHING: Self = Self { shard: ShardId(0), count: 0 };

    fn count(&self) -> u64 {
        self.count
    }

    fn head(self, count: u64) -> Self {
        Self { count, ..self }
    }

    fn tail(self, count: u64) -> Self {
        Self { count: self.count - count, ..self }
    }

    fn join(self, next: Self) -> Option<Self> {
        let count = self.count.checked_add(next.count)?;
        (self.shard == next.shard).then_some(Self { count, ..self })
    }

    fn put_after(self, last: Self, out: &mut Vec<u8>) -> u8 {
        if self.shard.0 >= FAR_SHARD {
            put_number(out, self.shard.0.into());
        }
        let how = match self.count {
            1 => ALONE,
            count if count == last.count => AS_MANY,
            count => {
                put_number(out, count);
                COUNTED
            }
        };
        how | (self.shard.0.min(FAR_SHARD) as u8) << 2
    }

    fn take_after(last: Self, how: u8, input: &mut Input<'_>) -> Option<Self> {
        let shard = match u32::from(how >> 2) {
            FAR_SHARD => u32::try_from(input.number()?).ok()?,
            near => near,
        };
        let count = match how & 3 {
            ALONE => 1,
            AS_MANY => last.count,
            _ => input.number()?,
        };
        Some(Self { shard: ShardId(shard), count })
    }
}

/// The known versions of positions, for each view that may still be valid.
#[derive(Debug)]
pub(super) struct Versions<T: Copy> {
    views: BTreeMap<ViewNumber, Runs<T>>,
    visits: Visits,
}

pub(super) type Index = Versions<IndexRun>;

/// Owners of positions: two or three bytes per run of one shard; as much per record where shards
/// alternate.
pub(super) type Map = Versions<Owned>;

impl<T: Copy> Default for Versions<T> {
    fn default() -> Self {
        Self { views: BTreeMap::new(), visits: Visits::default() }
    }
}

impl<T: Stretch> Versions<T> {
    /// Replaces the view's earlier runs at these positions.
    pub(super) fn insert(&mut self, view: ViewNumber, first: Position, run: T) {
        self.views.entry(view).or_default().insert(first.0, run, &self.visits);
    }

    pub(super) fn remove(&mut self, view: ViewNumber, from: Position, end: Position) {
        if let Some(runs) = self.views.get_mut(&view) {
            runs.remove(from.0, end.0, &self.visits);
            if runs.is_empty() {
                self.views.remove(&view);
            }
        }
    }

    /// The view's runs, cut to `from..end`, each with its first position.
    pub(super) fn within(
        &self,
        view: ViewNumber,
        from: Position,
        end: Position,
    ) -> impl Iterator<Item = (Position, T)> + use<'_, T> {
        let runs = self.views.get(&view).into_iter();
        let found = runs.flat_map(move |runs| runs.within(from.0, end.0, &self.visits));
        found.map(|(first, run)| (Position(first), run))
    }

    /// Whether the view has runs for all `count` positions from `first` on, and `is_it` accepts
    /// each run. `is_it` receives the run's offset from `first`, and the run.
    pub(super) fn covers(
        &self,
        view: ViewNumber,
        first: Position,
        count: u64,
        is_it: impl Fn(u64, T) -> bool,
    ) -> bool {
        let (mut next, end) = (first, first + count);
        for (found, run) in self.within(view, first, end) {
            if found != next || !is_it(found.since(first), run) {
                return false;
            }
            next += run.count();
        }
        next == end
    }

    /// The later views with any run, latest first.
    pub(super) fn views_after(&self, view: ViewNumber) -> impl Iterator<Item = ViewNumber> + use<'_, T> {
        self.views.range((Bound::Excluded(view), Bound::Unbounded)).rev().map(|(view, _)| *view)
    }

    pub(super) fn below(&self, end: Position) -> Vec<(ViewNumber, Position, T)> {
        let found = self.views.iter().flat_map(|(view, runs)| {
            runs.within(0, end.0, &self.visits).map(|(first, run)| (*view, Position(first), run))
        });
        found.collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ViewNumber, Position, T)> + use<'_, T> {
        self.views.iter().flat_map(|(view, runs)| {
            runs.iter(&self.visits).map(|(first, run)| (*view, Position(first), run))
        })
    }

    pub(super) fn ends(&self) -> Vec<(ViewNumber, Position)> {
        self.views.iter().map(|(view, runs)| (*view, Position(runs.end()))).collect()
    }

    pub(super) fn hide(&mut self, history: &ViewHistory) {
        for (view, runs) in &mut self.views {
            if let Some(first) = hidden_from(history, *view) {
                runs.drop_from(first.0, &self.visits);
            }
        }
        self.views.retain(|_, runs| !runs.is_empty());
    }

    pub(super) fn trim(&mut self, trim: Position) {
        let mut all = usize::MAX;
        self.trim_some(trim, &mut all);
    }

    /// Drops up to `most` runs below `trim`, reducing `most`. Returns whether none is left.
    pub(super) fn trim_some(&mut self, trim: Position, most: &mut usize) -> bool {
        let before = *most;
        let is_done = self.views.values_mut().all(|runs| runs.drop_below(trim.0, most, &self.visits));
        self.visits.add(before - *most);
        self.views.retain(|_, runs| !runs.is_empty());
        is_done
    }

    pub(super) fn visited(&self) -> u64 {
        self.visits.count()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.views.values().map(Runs::len).sum()
    }
}

/// The position from which a newer registered view hides `view`.
pub(super) fn hidden_from(history: &ViewHistory, view: ViewNumber) -> Option<Position> {
    let steps = history.steps();
    let newer = steps.partition_point(|(number, _)| *number <= view);
    steps.get(newer).map(|(_, first)| *first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VIEW: ViewNumber = ViewNumber(1);

    fn run(offset: u32, count: u16) -> IndexRun {
        IndexRun::new(0, Written { count, offset, bytes: u32::from(count) * 10 })
    }

    /// The record at each position: its place in the segment, in frames of 10 bytes.
    fn places(index: &Index) -> Vec<Option<u32>> {
        let mut places = vec![None; 100];
        for (first, run) in index.within(VIEW, Position(0), Position(100)) {
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
                let found: Vec<_> = index.within(VIEW, Position(from), Position(from + 1)).collect();
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
        assert_eq!(index.within(VIEW, Position(7000), Position(7001)).count(), 1);
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
        assert_eq!(index.within(VIEW, Position(0), Position(100)).count(), 1);
        assert_eq!(index.within(ViewNumber(3), Position(0), Position(100)).count(), 1);
    }
}
