//! Unpacked entries of a block.

use super::{Stretch, Visits};

/// A few disjoint stretches, in order.
#[derive(Debug)]
pub(super) struct Open<T>(Vec<(u64, T)>);

impl<T> Default for Open<T> {
    fn default() -> Self {
        Self(vec![])
    }
}

impl<T> FromIterator<(u64, T)> for Open<T> {
    fn from_iter<I: IntoIterator<Item = (u64, T)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl<T: Stretch> Open<T> {
    /// Adds a stretch, replacing the values at its places; joins it with the previous one if
    /// possible. Returns the replaced parts.
    pub(super) fn insert(&mut self, first: u64, stretch: T) -> Vec<T> {
        let replaced = self.remove(first, first + stretch.count());
        let at = self.count_before(first);
        if let Some((start, previous)) = self.0[..at].last_mut()
            && *start + previous.count() == first
            && let Some(joined) = previous.join(stretch)
        {
            *previous = joined;
        } else {
            self.0.insert(at, (first, stretch));
        }
        replaced
    }

    pub(super) fn insert_apart(&mut self, first: u64, stretch: T) -> Vec<T> {
        let replaced = self.remove(first, first + stretch.count());
        self.0.insert(self.count_before(first), (first, stretch));
        replaced
    }

    pub(super) fn remove(&mut self, from: u64, end: u64) -> Vec<T> {
        if from >= self.end() || from >= end {
            return vec![];
        }
        let touched = self.reaching(from)..self.count_before(end);
        let Some((&(first, left), &(last, right))) =
            self.0[touched.clone()].first().zip(self.0[touched.clone()].last())
        else {
            return vec![];
        };
        let (before, after) = (from.saturating_sub(first), (last + right.count()).saturating_sub(end));
        let left = (before > 0).then(|| (first, left.head(before)));
        let right = (after > 0).then(|| (end, right.tail(right.count() - after)));
        let removed = self.0.splice(touched, left.into_iter().chain(right));
        let within = removed.map(|(first, stretch)| {
            let stretch = stretch.head(stretch.count().min(end - first));
            stretch.tail(from.saturating_sub(first))
        });
        within.collect()
    }

    pub(super) fn whole<'a>(
        &'a self,
        from: u64,
        end: u64,
        visits: &'a Visits,
    ) -> impl Iterator<Item = (u64, T)> + use<'a, T> {
        let start = if from >= end { self.0.len() } else { self.reaching(from) };
        let found = self.0[start..].iter().copied().take_while(move |(first, _)| *first < end);
        found.inspect(|_| visits.add(1))
    }

    /// Frees up to `most` stretches below `end`, reducing `most`. Returns whether none is left.
    pub(super) fn drop_below(&mut self, end: u64, most: &mut usize) -> bool {
        let below = self.count_before(end);
        let dropped = below.min(*most);
        *most -= dropped;
        let last = self.0.drain(..dropped).next_back();
        if let Some((first, stretch)) = last.filter(|(first, stretch)| first + stretch.count() > end) {
            self.0.insert(0, (end, stretch.tail(end - first)));
        }
        dropped == below
    }

    pub(super) fn take_first(&mut self, count: usize) -> Self {
        Self(self.0.drain(..count).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, T)> + use<'_, T> {
        self.0.iter().copied()
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.0.first().map(|(first, _)| *first)
    }

    pub(super) fn end(&self) -> u64 {
        self.0.last().map_or(0, |(first, stretch)| first + stretch.count())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Number of entries that begin before a place.
    fn count_before(&self, place: u64) -> usize {
        match self.0.last() {
            Some((last, _)) if *last >= place => self.0.partition_point(|(first, _)| *first < place),
            _ => self.0.len(),
        }
    }

    /// Index of the first entry that ends after a place.
    fn reaching(&self, place: u64) -> usize {
        if place >= self.end() {
            return self.0.len();
        }
        self.0.partition_point(|(first, stretch)| first + stretch.count() <= place)
    }
}
