//! Things that belong to consecutive places, in memory: one entry for each run of them.

use std::cell::Cell;
use std::collections::BTreeMap;

/// What belongs to consecutive places (positions of the log, or numbers of a session).
pub(super) trait Stretch: Copy {
    /// How many places. Never none.
    fn count(&self) -> u64;

    /// The part for the first `count` places.
    fn head(self, count: u64) -> Self;

    /// All but the first `count` places.
    fn tail(self, count: u64) -> Self;

    /// This stretch and the one at the places after it as one, if one can stand for both.
    fn join(self, next: Self) -> Option<Self>;
}

/// Counts the entries that were looked at: what no command may do more of because the log is long.
#[derive(Debug, Default)]
pub(super) struct Visits(Cell<u64>);

impl Visits {
    /// So many more.
    pub(super) fn add(&self, count: usize) {
        self.0.set(self.0.get() + count as u64);
    }

    /// How many there were so far.
    pub(super) fn count(&self) -> u64 {
        self.0.get()
    }
}

/// Stretches that do not overlap, by the first of their places.
#[derive(Clone, Debug)]
pub(super) struct Runs<T>(BTreeMap<u64, T>);

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Stretch> Runs<T> {
    /// Adds a stretch, in place of what was at its places. Returns how many stretches that were.
    pub(super) fn insert(&mut self, first: u64, stretch: T) -> usize {
        let replaced = self.remove(first, first + stretch.count()).len();
        if let Some((start, previous)) = self.0.range_mut(..first).next_back()
            && *start + previous.count() == first
            && let Some(joined) = previous.join(stretch)
        {
            *previous = joined;
        } else {
            self.0.insert(first, stretch);
        }
        replaced
    }

    /// The same, and the stretch stays apart from those at its sides. Returns what was at its places, in order.
    pub(super) fn insert_apart(&mut self, first: u64, stretch: T) -> Vec<T> {
        let replaced = self.remove(first, first + stretch.count());
        self.0.insert(first, stretch);
        replaced
    }

    /// Frees the places `from..end`. Returns what was there, in order.
    pub(super) fn remove(&mut self, from: u64, end: u64) -> Vec<T> {
        let mut removed = vec![];
        let found: Vec<(u64, T)> = self.whole(from, end).collect();
        for (first, stretch) in found {
            self.0.remove(&first);
            let (before, after) = (from.saturating_sub(first), (first + stretch.count()).saturating_sub(end));
            if before > 0 {
                self.0.insert(first, stretch.head(before));
            }
            if after > 0 {
                self.0.insert(end, stretch.tail(stretch.count() - after));
            }
            removed.push(stretch.head(stretch.count() - after).tail(before));
        }
        removed
    }

    /// The stretches that have a place in `from..end`, with their first places, in order.
    pub(super) fn whole(&self, from: u64, end: u64) -> impl Iterator<Item = (u64, T)> + use<'_, T> {
        let reaching = self.0.range(..from).next_back();
        let start = reaching.filter(|(first, stretch)| **first + stretch.count() > from);
        let start = start.map_or(from, |(first, _)| *first);
        let range = (from < end).then(|| self.0.range(start..end));
        range.into_iter().flatten().map(|(first, stretch)| (*first, *stretch))
    }

    /// The same, without what lies outside of `from..end`.
    pub(super) fn within(&self, from: u64, end: u64) -> impl Iterator<Item = (u64, T)> + use<'_, T> {
        self.whole(from, end).map(move |(first, stretch)| {
            let skipped = from.saturating_sub(first);
            let rest = stretch.tail(skipped);
            (first + skipped, rest.head(rest.count().min(end - first - skipped)))
        })
    }

    /// Frees the places below `end`, up to `most` stretches, and counts these off. Returns whether that is all.
    pub(super) fn drop_below(&mut self, end: u64, most: &mut usize) -> bool {
        while let Some(entry) = self.0.first_entry().filter(|entry| *entry.key() < end) {
            if *most == 0 {
                return false;
            }
            *most -= 1;
            let (first, stretch) = entry.remove_entry();
            if first + stretch.count() > end {
                self.0.insert(end, stretch.tail(end - first));
            }
        }
        true
    }

    /// Frees the places from `from` on.
    pub(super) fn drop_from(&mut self, from: u64) {
        self.0.split_off(&from);
        if let Some(mut last) = self.0.last_entry()
            && *last.key() + last.get().count() > from
        {
            let head = last.get().head(from - *last.key());
            last.insert(head);
        }
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, T)> + use<'_, T> {
        self.0.iter().map(|(first, stretch)| (*first, *stretch))
    }

    /// Where the last of them ends; 0 if there are none.
    pub(super) fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(first, stretch)| first + stretch.count())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
