//! A reader's knowledge of the owners of positions (LazyLog §5.3).

use std::collections::BTreeMap;

use seriatim_model::storage::Owned;
use seriatim_model::{Position, ShardId, limits};

/// A run of positions with one owner: its exclusive end and the owner. It begins where the previous
/// run ends.
pub(crate) type Run = (Position, ShardId);

/// Owners of final positions, in a bounded number of runs.
///
/// A stretch is a contiguous range of positions, as a list of runs. If there are too many runs, the
/// map drops the least recently used stretch as a whole.
///
/// Invariants: stretches do not overlap, and none is empty; `run_count` is the number of all their
/// runs and at most `most_runs`; `by_use` names each stretch once, by its `used`.
#[derive(Debug)]
pub(crate) struct PositionMap {
    /// Stretches by first position.
    stretches: BTreeMap<Position, Stretch>,
    by_use: BTreeMap<u64, Position>,
    run_count: usize,
    most_runs: usize,
    last_use: u64,
}

#[derive(Debug)]
struct Stretch {
    runs: Vec<Run>,
    used: u64,
}

impl PositionMap {
    pub(crate) fn new(most_runs: usize) -> Self {
        let (stretches, by_use) = (BTreeMap::new(), BTreeMap::new());
        Self { stretches, by_use, run_count: 0, most_runs, last_use: 0 }
    }

    /// First position at or above `from` without a known owner.
    pub(crate) fn known_from(&self, from: Position) -> Position {
        let mut next = from;
        while let Some(end) = self.stretch_at(next).map(|(_, stretch)| stretch.end()) {
            next = end;
        }
        next
    }

    pub(crate) fn owners(&mut self, from: Position, end: Position) -> Option<Vec<Run>> {
        if self.known_from(from) < end {
            return None;
        }
        let mut owners: Vec<Run> = vec![];
        let mut next = from;
        while next < end {
            let (first, stretch) = self.stretch_at(next)?;
            let start = stretch.runs.partition_point(|(run_end, _)| *run_end <= next);
            for (run_end, shard) in &stretch.runs[start..] {
                next = end.min(*run_end);
                add(&mut owners, (next, *shard));
                if next == end {
                    break;
                }
            }
            self.touch(first);
        }
        Some(owners)
    }

    pub(crate) fn learn(&mut self, from: Position, owned: &[Owned]) {
        let mut runs: Vec<Run> = vec![];
        let mut end = from;
        for part in owned {
            end = Position(end.0.saturating_add(part.count));
            add(&mut runs, (end, part.shard));
        }
        let mut next = from;
        while next < end {
            next = self.known_from(next);
            let stop = self.stretches.range(next..).next().map_or(end, |(first, _)| end.min(*first));
            if next < stop {
                self.insert(next, within(&runs, next, stop));
            }
            next = stop;
        }
        while self.run_count > self.most_runs {
            let (_, first) = self.by_use.pop_first().expect("runs belong to stretches");
            let gone = self.stretches.remove(&first).expect("it was there to be used");
            self.run_count -= gone.runs.len();
        }
        self.assert_counted();
    }

    /// Drops the stretches that end at or below `first`.
    pub(crate) fn forget_below(&mut self, first: Position) {
        while self.stretches.first_key_value().is_some_and(|(_, lowest)| lowest.end() <= first) {
            let (lowest, _) = self.stretches.first_key_value().expect("just seen");
            self.remove(*lowest);
        }
        self.assert_counted();
    }

    pub(crate) fn forget_from(&mut self, first: Position) {
        let reaching = self.stretch_at(first).map(|(start, _)| start).filter(|start| *start < first);
        let kept = reaching.map(|start| (start, within(&self.stretches[&start].runs, start, first)));
        let gone: Vec<Position> = self.stretches.range(first..).map(|(start, _)| *start).collect();
        gone.into_iter().chain(reaching).for_each(|start| self.remove(start));
        if let Some((start, runs)) = kept {
            self.insert(start, runs);
        }
        self.assert_counted();
    }

    /// Checks that each stretch has an entry in `by_use` and at least one run.
    fn assert_counted(&self) {
        let (stretches, uses, runs) = (self.stretches.len(), self.by_use.len(), self.run_count);
        let has_some = runs >= stretches && (runs == 0) == (stretches == 0);
        assert!(uses == stretches && has_some, "{stretches} stretches, {uses} in use, {runs} runs");
    }

    fn stretch_at(&self, position: Position) -> Option<(Position, &Stretch)> {
        let (first, stretch) = self.stretches.range(..=position).next_back()?;
        (position < stretch.end()).then_some((*first, stretch))
    }

    /// Inserts runs of positions with unknown owners. Joins them to the adjacent stretch before, if
    /// that is short enough.
    fn insert(&mut self, first: Position, runs: Vec<Run>) {
        let (before, end) =
            (self.stretches.range(..first).next_back(), runs.last().map_or(first, |run| run.0));
        let is_free = before.is_none_or(|(_, stretch)| stretch.end() <= first)
            && self.stretches.range(first..).next().is_none_or(|(next, _)| end <= *next);
        assert!(
            first < end && is_free,
            "a stretch from {first} to {end} is empty, or not the only one there"
        );
        self.run_count += runs.len();
        let before = self.stretches.range_mut(..first).next_back();
        let before = before.filter(|(_, stretch)| {
            stretch.end() == first && stretch.runs.len() + runs.len() <= limits::MAP_POSITIONS as usize
        });
        let first = match before {
            Some((first, stretch)) => {
                self.run_count -= stretch.runs.len() + runs.len();
                runs.into_iter().for_each(|run| add(&mut stretch.runs, run));
                self.run_count += stretch.runs.len();
                *first
            }
            None => {
                self.stretches.insert(first, Stretch { runs, used: 0 });
                first
            }
        };
        self.touch(first);
    }

    fn remove(&mut self, first: Position) {
        let stretch = self.stretches.remove(&first).expect("only a known stretch is removed");
        self.by_use.remove(&stretch.used);
        self.run_count -= stretch.runs.len();
    }

    fn touch(&mut self, first: Position) {
        let stretch = self.stretches.get_mut(&first).expect("only a known stretch is used");
        self.last_use += 1;
        self.by_use.remove(&stretch.used);
        stretch.used = self.last_use;
        self.by_use.insert(stretch.used, first);
    }
}

impl Stretch {
    fn end(&self) -> Position {
        self.runs.last().expect("no stretch is empty").0
    }
}

/// Appends a run, or extends the last run if its shard is the same.
fn add(runs: &mut Vec<Run>, (end, shard): Run) {
    match runs.last_mut() {
        Some((last_end, last_shard)) if *last_shard == shard => *last_end = end,
        _ => runs.push((end, shard)),
    }
}

fn within(runs: &[Run], from: Position, end: Position) -> Vec<Run> {
    let start = runs.partition_point(|(run_end, _)| *run_end <= from);
    let mut part: Vec<Run> = vec![];
    for (run_end, shard) in &runs[start..] {
        part.push((end.min(*run_end), *shard));
        if *run_end >= end {
            break;
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owned(parts: &[(u32, u64)]) -> Vec<Owned> {
        parts.iter().map(|(shard, count)| Owned { shard: ShardId(*shard), count: *count }).collect()
    }

    fn runs(parts: &[(u64, u32)]) -> Option<Vec<Run>> {
        Some(parts.iter().map(|(end, shard)| (Position(*end), ShardId(*shard))).collect())
    }

    #[test]
    fn what_was_told_in_pieces_is_known_as_a_whole() {
        let mut map = PositionMap::new(100);
        map.learn(Position(4), &owned(&[(1, 2), (0, 4)]));
        assert_eq!(map.owners(Position(0), Position(6)), None);
        assert_eq!(map.known_from(Position(4)), Position(10));
        map.learn(Position(0), &owned(&[(0, 3), (1, 3), (0, 1)]));
        assert_eq!(map.owners(Position(1), Position(9)), runs(&[(3, 0), (6, 1), (9, 0)]));
        assert_eq!(map.owners(Position(5), Position(6)), runs(&[(6, 1)]));
        assert_eq!((map.known_from(Position(0)), map.known_from(Position(10))), (Position(10), Position(10)));
    }

    #[test]
    fn what_was_used_least_recently_goes_first() {
        let mut map = PositionMap::new(5);
        for first in [0, 10, 20] {
            map.learn(Position(first), &owned(&[(0, 1), (1, 1)]));
            assert!(map.run_count <= 4);
            let _ = map.owners(Position(0), Position(2));
        }
        let knows = [0, 10, 20].map(|first| map.known_from(Position(first)) > Position(first));
        assert_eq!(knows, [true, false, true]);
        map.learn(Position(30), &owned(&[(0, 1), (1, 1), (0, 1), (1, 1), (0, 1), (1, 1)]));
        assert_eq!((map.run_count, map.stretches.len()), (0, 0), "more than there is ever room for");
    }

    #[test]
    fn what_is_trimmed_or_given_up_is_forgotten() {
        let mut map = PositionMap::new(100);
        map.learn(Position(0), &owned(&[(0, 4), (1, 4)]));
        map.learn(Position(10), &owned(&[(0, 4)]));
        map.forget_from(Position(6));
        assert_eq!(map.owners(Position(0), Position(6)), runs(&[(4, 0), (6, 1)]));
        assert_eq!((map.known_from(Position(6)), map.known_from(Position(10))), (Position(6), Position(10)));
        map.forget_below(Position(5));
        assert_eq!(map.known_from(Position(5)), Position(6));
        map.forget_below(Position(6));
        assert_eq!((map.run_count, map.by_use.len()), (0, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Learn(u64, u64),
        Use(u64, u64),
        ForgetBelow(u64),
        ForgetFrom(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..200u64, 1..40u64).prop_map(|(from, count)| Step::Learn(from, count)),
            4 => (0..200u64, 1..40u64).prop_map(|(from, count)| Step::Use(from, count)),
            1 => (0..200u64).prop_map(Step::ForgetBelow),
            1 => (0..200u64).prop_map(Step::ForgetFrom),
        ]
    }

    /// Owner of a position: runs have different lengths.
    fn owner(position: u64) -> ShardId {
        ShardId((position / 3 % 4 * (position / 7 % 2)) as u32)
    }

    proptest! {
        /// Compares with a naive map: known owners are correct, and the map forgets only for room.
        #[test]
        fn it_knows_what_a_naive_map_knows(steps in prop::collection::vec(step(), 1..60), room in 4..200usize) {
            let mut map = PositionMap::new(room);
            let mut roomy = PositionMap::new(usize::MAX);
            let mut naive: BTreeMap<u64, ShardId> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Learn(from, count) => {
                        let positions = from..from + count;
                        let told: Vec<Owned> =
                            positions.clone().map(|at| Owned { shard: owner(at), count: 1 }).collect();
                        map.learn(Position(from), &told);
                        roomy.learn(Position(from), &told);
                        naive.extend(positions.map(|at| (at, owner(at))));
                    }
                    Step::Use(from, count) => {
                        let wanted = (Position(from), Position(from + count));
                        let expected: Option<Vec<ShardId>> =
                            (from..from + count).map(|at| naive.get(&at).copied()).collect();
                        let each = |runs: Vec<Run>| {
                            let mut next = from;
                            runs.into_iter().flat_map(move |(end, shard)| {
                                std::iter::repeat_n(shard, (end.0 - std::mem::replace(&mut next, end.0)) as usize)
                            }).collect::<Vec<_>>()
                        };
                        prop_assert_eq!(&roomy.owners(wanted.0, wanted.1).map(each), &expected);
                        if let Some(known) = map.owners(wanted.0, wanted.1) {
                            let mut next = from;
                            for (end, shard) in known {
                                prop_assert!((next..end.0).all(|at| owner(at) == shard));
                                next = end.0;
                            }
                            prop_assert_eq!(next, from + count);
                        }
                    }
                    Step::ForgetBelow(first) => {
                        map.forget_below(Position(first));
                        roomy.forget_below(Position(first));
                        // The map may keep owners below `first`; the naive map keeps the same ones.
                        let kept = (0..first).filter(|at| roomy.known_from(Position(*at)) == Position(*at));
                        kept.for_each(|at| { naive.remove(&at); });
                    }
                    Step::ForgetFrom(first) => {
                        map.forget_from(Position(first));
                        roomy.forget_from(Position(first));
                        naive.split_off(&first);
                    }
                }
                for map in [&map, &roomy] {
                    prop_assert!(map.run_count <= map.most_runs);
                    let count: usize = map.stretches.values().map(|stretch| stretch.runs.len()).sum();
                    prop_assert_eq!(map.run_count, count);
                    let uses: Vec<Position> = map.stretches.values().map(|stretch| map.by_use[&stretch.used]).collect();
                    let firsts: Vec<Position> = map.stretches.keys().copied().collect();
                    prop_assert_eq!(uses, firsts);
                    prop_assert_eq!(map.by_use.len(), map.stretches.len());
                }
            }
        }
    }
}
