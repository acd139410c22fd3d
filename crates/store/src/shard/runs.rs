//! In-memory maps from consecutive places (positions, or numbers of a session) to values: one entry
//! per run, mostly packed.
//!
//! ```text
//! blocks   first place ──▶ bytes, or entries for the block changed last
//! tail     entries                        the last ones, where most additions go
//! ```
//!
//! A block has about [`BLOCK_ENTRIES`] entries, each encoded as its difference from the previous
//! one (`runs/block.rs`): two bytes for a predictable run of one record, at most ten otherwise. A
//! change unpacks its block and packs the block changed before. So an operation costs as many
//! blocks as it has entries, plus one or two, regardless of the total.

mod block;
mod open;

use std::cell::Cell;
use std::collections::BTreeMap;

use super::numbers::Input;
use block::{Finger, Packed};
use open::Open;

/// Entries of a block filled from one side. No block has more than twice as many.
pub(super) const BLOCK_ENTRIES: usize = if cfg!(test) { 4 } else { 64 };

/// A value of consecutive places.
pub(super) trait Stretch: Copy {
    /// The prediction for the first entry of a block.
    const NOTHING: Self;

    /// Never 0.
    fn count(&self) -> u64;

    fn head(self, count: u64) -> Self;

    /// All but the first `count` places.
    fn tail(self, count: u64) -> Self;

    /// Joins both stretches, if one value describes them.
    fn join(self, next: Self) -> Option<Self>;

    /// Encodes the difference from `last`. Returns the decoding mode, below 64.
    fn put_after(self, last: Self, out: &mut Vec<u8>) -> u8;

    fn take_after(last: Self, how: u8, input: &mut Input<'_>) -> Option<Self>;
}

/// Counts entries found, packed, unpacked, or skipped in a block (see
/// [`ShardStore::visited`](super::ShardStore::visited)).
#[derive(Debug, Default)]
pub(super) struct Visits(Cell<u64>);

impl Visits {
    pub(super) fn add(&self, count: usize) {
        self.0.set(self.0.get() + count as u64);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.get()
    }
}

/// Disjoint stretches by first place.
#[derive(Debug)]
pub(super) struct Runs<T: Copy> {
    /// Invariant: each key is the first place of the block's first entry; all are before the tail.
    blocks: BTreeMap<u64, Block<T>>,
    unpacked: Option<u64>,
    /// Invariant: it has entries unless there are none at all.
    tail: Open<T>,
    /// Start of the last search in a packed block. A search that continues from there skips no
    /// entry twice.
    finger: Cell<Option<Finger<T>>>,
}

#[derive(Debug)]
enum Block<T> {
    Packed(Packed<T>),
    Unpacked(Box<Open<T>>),
}

impl<T: Copy> Default for Runs<T> {
    fn default() -> Self {
        Self { blocks: BTreeMap::new(), unpacked: None, tail: Open::default(), finger: Cell::new(None) }
    }
}

impl<T: Stretch> Runs<T> {
    /// Adds a stretch, replacing the values at its places. May join it with the previous one.
    pub(super) fn insert(&mut self, first: u64, stretch: T, visits: &Visits) {
        self.insert_with(first, stretch, visits, |open| open.insert(first, stretch));
    }

    /// Adds a stretch like [`Runs::insert`], but never joins it. Returns the replaced parts.
    pub(super) fn insert_apart(&mut self, first: u64, stretch: T, visits: &Visits) -> Vec<T> {
        self.insert_with(first, stretch, visits, |open| open.insert_apart(first, stretch))
    }

    fn insert_with(
        &mut self,
        first: u64,
        stretch: T,
        visits: &Visits,
        insert: impl FnOnce(&mut Open<T>) -> Vec<T>,
    ) -> Vec<T> {
        let mut replaced = vec![];
        if !self.is_in_tail(first) {
            replaced = self.remove(first, first + stretch.count(), visits);
        }
        // Check again: the removed entries may have been the tail.
        let within = if self.is_in_tail(first) {
            let replaced = insert(&mut self.tail);
            self.pack_tail(visits);
            replaced
        } else {
            let before = self.blocks.range(..=first).next_back().or_else(|| self.blocks.first_key_value());
            let key = *before.expect("a run outside of the tail is in a block").0;
            self.change(key, visits, insert)
        };
        visits.add(1 + within.len());
        replaced.extend(within);
        replaced
    }

    /// Frees the places `from..end`. Returns their values in order.
    pub(super) fn remove(&mut self, from: u64, end: u64, visits: &Visits) -> Vec<T> {
        let mut removed = vec![];
        if !self.is_in_tail(from) && self.whole(from, end, visits).next().is_some() {
            for key in self.blocks_within(from, end).map(|(key, _)| *key).collect::<Vec<_>>() {
                removed.extend(self.change(key, visits, |open| open.remove(from, end)));
            }
        }
        removed.extend(self.tail.remove(from, end));
        visits.add(removed.len());
        self.fill_tail(visits);
        // The removal may have split one entry into two.
        self.pack_tail(visits);
        removed
    }

    /// The stretches with a place in `from..end`, each with its first place, in order.
    pub(super) fn whole<'a>(
        &'a self,
        from: u64,
        end: u64,
        visits: &'a Visits,
    ) -> impl Iterator<Item = (u64, T)> + use<'a, T> {
        let blocks = (!self.is_in_tail(from)).then(|| self.blocks_within(from, end));
        let packed = blocks.into_iter().flatten().flat_map(move |(key, block)| {
            let (packed, open) = match block {
                Block::Packed(packed) => (Some(packed.whole(*key, from, end, &self.finger, visits)), None),
                Block::Unpacked(open) => (None, Some(open.whole(from, end, visits))),
            };
            packed.into_iter().flatten().chain(open.into_iter().flatten())
        });
        packed.chain(self.tail.whole(from, end, visits))
    }

    /// Like `whole`, cut to `from..end`.
    pub(super) fn within<'a>(
        &'a self,
        from: u64,
        end: u64,
        visits: &'a Visits,
    ) -> impl Iterator<Item = (u64, T)> + use<'a, T> {
        self.whole(from, end, visits).map(move |(first, stretch)| {
            let skipped = from.saturating_sub(first);
            let rest = stretch.tail(skipped);
            (first + skipped, rest.head(rest.count().min(end - first - skipped)))
        })
    }

    /// Frees up to `most` stretches below `end`, reducing `most`. Returns whether none is left.
    pub(super) fn drop_below(&mut self, end: u64, most: &mut usize, visits: &Visits) -> bool {
        while let Some((key, len)) = self.blocks.first_key_value().map(|(key, block)| (*key, block.len())) {
            if key >= end {
                return true;
            }
            let next = self.blocks.keys().nth(1).copied().or(self.tail.first());
            if next.is_some_and(|next| next <= end) && len <= *most {
                self.blocks.pop_first();
                self.forget(key);
                *most -= len;
            } else if *most == 0 || !self.change(key, visits, |open| open.drop_below(end, most)) {
                return false;
            }
        }
        self.tail.drop_below(end, most)
    }

    pub(super) fn drop_from(&mut self, from: u64, visits: &Visits) {
        if !self.is_in_tail(from) {
            self.tail = Open::default();
            for key in self.blocks.split_off(&from).into_keys() {
                self.forget(key);
            }
            self.fill_tail(visits);
        }
        self.tail.remove(from, u64::MAX);
        self.fill_tail(visits);
    }

    pub(super) fn iter<'a>(&'a self, visits: &'a Visits) -> impl Iterator<Item = (u64, T)> + use<'a, T> {
        self.whole(0, u64::MAX, visits)
    }

    /// End of the last stretch; 0 if there are none.
    pub(super) fn end(&self) -> u64 {
        self.tail.end()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tail.first().is_none()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.blocks.values().map(Block::len).sum::<usize>() + self.tail.len()
    }

    fn is_in_tail(&self, place: u64) -> bool {
        self.blocks.is_empty() || self.tail.first().is_some_and(|first| first <= place)
    }

    /// The blocks that may have a place in `from..end`.
    fn blocks_within(&self, from: u64, end: u64) -> impl Iterator<Item = (&u64, &Block<T>)> {
        let before = self.blocks.range(..=from).next_back().map_or(from, |(key, _)| *key);
        (from < end).then(|| self.blocks.range(before..end)).into_iter().flatten()
    }

    /// Unpacks a block and changes it; splits it if it grows too long.
    fn change<R>(&mut self, key: u64, visits: &Visits, change: impl FnOnce(&mut Open<T>) -> R) -> R {
        self.unpack(key, visits);
        let Some(Block::Unpacked(open)) = self.blocks.get_mut(&key) else {
            panic!("a block that is changed is unpacked")
        };
        let outcome = change(open);
        if open.first() == Some(key) && open.len() <= 2 * BLOCK_ENTRIES {
            return outcome;
        }
        self.unpacked = None;
        let Some(Block::Unpacked(mut open)) = self.blocks.remove(&key) else {
            panic!("a block that is changed is unpacked")
        };
        if open.len() > 2 * BLOCK_ENTRIES {
            self.add_packed(&open.take_first(BLOCK_ENTRIES), visits);
        }
        if let Some(first) = open.first() {
            self.unpacked = Some(first);
            self.blocks.insert(first, Block::Unpacked(open));
        }
        outcome
    }

    /// Unpacks a block, and packs the block unpacked before.
    fn unpack(&mut self, key: u64, visits: &Visits) {
        if self.unpacked == Some(key) {
            return;
        }
        if let Some(before) = self.unpacked
            && let Some(block) = self.blocks.get_mut(&before)
        {
            let open = block.take(before, visits);
            *block = Block::packed(before, &open, visits);
        }
        self.forget(key);
        if let Some(block @ Block::Packed(_)) = self.blocks.get_mut(&key) {
            *block = Block::Unpacked(Box::new(block.take(key, visits)));
            self.unpacked = Some(key);
        }
    }

    fn pack_tail(&mut self, visits: &Visits) {
        if self.tail.len() > 2 * BLOCK_ENTRIES {
            let first = self.tail.take_first(BLOCK_ENTRIES);
            self.add_packed(&first, visits);
        }
    }

    fn add_packed(&mut self, open: &Open<T>, visits: &Visits) {
        let key = open.first().expect("a block has entries");
        let tail = self.tail.first().expect("there are entries after the packed ones");
        assert!(key < tail, "the block of {key} is before the tail, which begins at {tail}");
        self.blocks.insert(key, Block::packed(key, open, visits));
    }

    /// Makes the last block the tail if that is empty.
    fn fill_tail(&mut self, visits: &Visits) {
        if self.tail.first().is_none()
            && let Some((key, mut block)) = self.blocks.pop_last()
        {
            self.tail = block.take(key, visits);
            self.forget(key);
        }
    }

    /// Drops references to a changed block.
    fn forget(&mut self, key: u64) {
        self.unpacked = self.unpacked.filter(|unpacked| *unpacked != key);
        self.finger.set(None);
    }
}

impl<T: Stretch> Block<T> {
    fn packed(key: u64, open: &Open<T>, visits: &Visits) -> Self {
        visits.add(open.len());
        Self::Packed(Packed::new(key, open))
    }

    fn len(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.len(),
            Self::Unpacked(open) => open.len(),
        }
    }

    fn take(&mut self, key: u64, visits: &Visits) -> Open<T> {
        match self {
            Self::Packed(packed) => packed.unpacked(key, visits),
            Self::Unpacked(open) => std::mem::take(open),
        }
    }
}

#[cfg(test)]
mod tests;
