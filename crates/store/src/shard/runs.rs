//! Things that belong to consecutive places, in memory: one entry for each run of them, most of
//! them packed.
//!
//! ```text
//! blocks   first place ──▶ bytes, or for the one that was changed last, entries
//! tail     entries                                        the last ones, where most is added
//! ```
//!
//! A block is some [`BLOCK_ENTRIES`] entries, each told by how it differs from the one before it
//! (`runs/block.rs`): a record that is a run of its own takes two bytes, or up to ten if nothing
//! about it can be expected. A change unpacks the block that it is about, and packs the one that
//! was changed before. So what is added, replaced, looked up or dropped touches as many blocks as
//! it has entries, and one or two more, however many there are.

mod block;
mod open;

use std::cell::Cell;
use std::collections::BTreeMap;

use super::numbers::Input;
use block::{Finger, Packed};
use open::Open;

/// How many entries a block has that was filled from one side. It never has more than twice as
/// many.
pub(super) const BLOCK_ENTRIES: usize = if cfg!(test) { 4 } else { 64 };

/// A value that belongs to consecutive places (positions of the log, or numbers of a session).
pub(super) trait Stretch: Copy {
    /// The stretch that the first of a block is told apart from.
    const NOTHING: Self;

    /// How many places. Never none.
    fn count(&self) -> u64;

    /// The part for the first `count` places.
    fn head(self, count: u64) -> Self;

    /// All but the first `count` places.
    fn tail(self, count: u64) -> Self;

    /// This stretch and the one at the places after it as one, if one can stand for both.
    fn join(self, next: Self) -> Option<Self>;

    /// Writes in what it differs from the one before it. How that is to be read is the number
    /// returned, below 64.
    fn put_after(self, last: Self, out: &mut Vec<u8>) -> u8;

    /// Reads what was written.
    fn take_after(last: Self, how: u8, input: &mut Input<'_>) -> Option<Self>;
}

/// Counts the entries that were looked at: what no command may do more of because the log is long.
/// One is looked at when it is found, packed or unpacked, and when it is passed over on the way to
/// another one in its block.
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
#[derive(Debug)]
pub(super) struct Runs<T: Copy> {
    /// Invariant: each is at the first place of its first entry, and all of them are before the
    /// tail.
    blocks: BTreeMap<u64, Block<T>>,
    /// Which block is not packed, if any.
    unpacked: Option<u64>,
    /// Invariant: it has entries unless there are none at all.
    tail: Open<T>,
    /// Where the last look into a packed block began. Looks that go on from there pass over nothing
    /// twice.
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
    /// Adds a stretch, in place of what was at its places. It may be joined with the one before it.
    pub(super) fn insert(&mut self, first: u64, stretch: T, visits: &Visits) {
        self.insert_with(first, stretch, visits, |open| open.insert(first, stretch));
    }

    /// The same, and the stretch stays apart from those at its sides. Returns what was at its
    /// places, in order.
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
        // The removed entries may have been the tail.
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

    /// Frees the places `from..end`. Returns what was there, in order.
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
        // Of one entry there may be two left.
        self.pack_tail(visits);
        removed
    }

    /// The stretches that have a place in `from..end`, with their first places, in order.
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

    /// The same, without what lies outside of `from..end`.
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

    /// Frees the places below `end`, up to `most` stretches, and counts these off. Returns whether
    /// that is all.
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

    /// Frees the places from `from` on.
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

    /// All of them, in order.
    pub(super) fn iter<'a>(&'a self, visits: &'a Visits) -> impl Iterator<Item = (u64, T)> + use<'a, T> {
        self.whole(0, u64::MAX, visits)
    }

    /// Where the last of them ends; 0 if there are none.
    pub(super) fn end(&self) -> u64 {
        self.tail.end()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.tail.first().is_none()
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.blocks.values().map(Block::len).sum::<usize>() + self.tail.len()
    }

    /// Whether no block has anything at this place or after it.
    fn is_in_tail(&self, place: u64) -> bool {
        self.blocks.is_empty() || self.tail.first().is_some_and(|first| first <= place)
    }

    /// The blocks that may have a place in `from..end`.
    fn blocks_within(&self, from: u64, end: u64) -> impl Iterator<Item = (&u64, &Block<T>)> {
        let before = self.blocks.range(..=from).next_back().map_or(from, |(key, _)| *key);
        (from < end).then(|| self.blocks.range(before..end)).into_iter().flatten()
    }

    /// Changes the entries of a block.
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

    /// Unpacks a block, and packs the one that is unpacked.
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

    /// Packs the first entries of the tail if it is long.
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

    /// If the tail has no entries, the last block is the tail.
    fn fill_tail(&mut self, visits: &Visits) {
        if self.tail.first().is_none()
            && let Some((key, mut block)) = self.blocks.pop_last()
        {
            self.tail = block.take(key, visits);
            self.forget(key);
        }
    }

    /// A block is not what it was.
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

    /// Its entries. They are gone from it.
    fn take(&mut self, key: u64, visits: &Visits) -> Open<T> {
        match self {
            Self::Packed(packed) => packed.unpacked(key, visits),
            Self::Unpacked(open) => std::mem::take(open),
        }
    }
}

#[cfg(test)]
mod tests;
