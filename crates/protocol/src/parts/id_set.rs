//! Sets of record ids, stored as runs of consecutive numbers.

use std::ops::Range;

use rangemap::RangeSet;
use seriatim_model::{IdRun, RecordId};

/// Record ids. A run of one session takes a few dozen bytes, independent of its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdSet(RangeSet<RecordId>);

fn range(run: IdRun) -> Range<RecordId> {
    let id = |number| RecordId { session: run.session, number };
    id(run.first)..id(run.end())
}

fn run(range: Range<RecordId>) -> IdRun {
    let RecordId { session, number: first } = range.start;
    IdRun { session, first, count: range.end.number - first }
}

impl IdSet {
    /// Adds ids.
    pub fn add(&mut self, ids: IdRun) {
        if ids.count > 0 {
            self.0.insert(range(ids));
        }
    }

    /// Removes ids.
    pub fn remove(&mut self, ids: IdRun) {
        if ids.count > 0 {
            self.0.remove(range(ids));
        }
    }

    /// Removes all ids.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains the id.
    #[must_use]
    pub fn contains(&self, id: RecordId) -> bool {
        self.0.contains(&id)
    }

    /// For a set of one session: the part of the first run that has numbers at or above `number`.
    #[must_use]
    pub fn first_from(&self, number: u64) -> Option<IdRun> {
        let ids = self.iter().find(|ids| ids.end() > number)?;
        Some(ids.tail(number.saturating_sub(ids.first)))
    }

    /// All runs, in order.
    pub fn iter(&self) -> impl Iterator<Item = IdRun> {
        self.0.iter().cloned().map(run)
    }

    /// The parts of `ids` in the set.
    #[must_use]
    pub fn within(&self, ids: IdRun) -> Vec<IdRun> {
        if ids.count == 0 {
            return vec![];
        }
        let wanted = range(ids);
        let parts = self.0.overlapping(&wanted);
        parts.map(|part| run(part.start.max(wanted.start)..part.end.min(wanted.end))).collect()
    }

    /// The parts of `ids` outside the set.
    #[must_use]
    pub fn missing(&self, ids: IdRun) -> Vec<IdRun> {
        if ids.count == 0 {
            return vec![];
        }
        self.0.gaps(&range(ids)).map(run).collect()
    }

    /// Splits `ids` at the borders of the set's runs. The flag is true for parts in the set.
    #[must_use]
    pub fn split(&self, ids: IdRun) -> Vec<(IdRun, bool)> {
        // Sets are usually empty, and replicas look up every batch.
        if self.0.is_empty() {
            return vec![(ids, false)];
        }
        let inside = self.within(ids).into_iter().map(|part| (part, true));
        let mut parts: Vec<_> =
            inside.chain(self.missing(ids).into_iter().map(|part| (part, false))).collect();
        parts.sort_unstable();
        parts
    }
}

impl Extend<IdRun> for IdSet {
    fn extend<T: IntoIterator<Item = IdRun>>(&mut self, runs: T) {
        runs.into_iter().for_each(|run| self.add(run));
    }
}

impl FromIterator<IdRun> for IdSet {
    fn from_iter<T: IntoIterator<Item = IdRun>>(runs: T) -> Self {
        let mut ids = Self::default();
        ids.extend(runs);
        ids
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Position, SessionId};

    use super::*;

    fn ids(session: u64, first: u64, count: u64) -> IdRun {
        IdRun { session: SessionId::new(Position(0), session), first, count }
    }

    #[test]
    fn runs_of_one_session_touch_and_those_of_two_do_not() {
        let mut set: IdSet = [ids(1, 0, 3), ids(1, 5, 2), ids(2, 0, 4)].into_iter().collect();
        assert_eq!(set.within(ids(1, 2, 9)), [ids(1, 2, 1), ids(1, 5, 2)]);
        assert_eq!(set.missing(ids(1, 2, 9)), [ids(1, 3, 2), ids(1, 7, 4)]);
        set.add(ids(1, 3, 2));
        assert_eq!(set.within(ids(1, 0, 99)), [ids(1, 0, 7)]);
        set.remove(ids(1, 1, 5));
        assert_eq!(set.within(ids(1, 0, 99)), [ids(1, 0, 1), ids(1, 6, 1)]);
        assert_eq!(set.within(ids(2, 1, 1)), [ids(2, 1, 1)]);
        let parts = [(ids(1, 0, 1), true), (ids(1, 1, 5), false), (ids(1, 6, 1), true)];
        assert_eq!(set.split(ids(1, 0, 7)), parts);
        assert!(set.within(ids(2, 1, 0)).is_empty() && set.missing(ids(3, 0, 0)).is_empty());
    }
}
