//! Packed entries of a block.
//!
//! ```text
//! block   number of entries (1) · entries
//! entry   mode of its places (2 bits) and of its value (6) (1) · places · value
//! ```
//!
//! The first entry starts at the block's key. Others are predicted to follow the previous one, or
//! to skip as many places as the last skip.

use std::cell::Cell;
use std::marker::PhantomData;

use super::super::numbers::{Input, put_number};
use super::open::Open;
use super::{BLOCK_ENTRIES, Stretch, Visits};

/// How an entry's places relate to the previous entry's: continue; skip as many as before; skip
/// another number.
const GOES_ON: u8 = 0;
const STEPS_ON: u8 = 1;
const STEPS: u8 = 2;

// The number of entries is a byte.
const _: () = assert!(2 * BLOCK_ENTRIES < 256);

#[derive(Debug)]
pub(super) struct Packed<T> {
    bytes: Box<[u8]>,
    entries: PhantomData<T>,
}

/// A point before an entry of a packed block, from which a search can continue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finger<T> {
    key: u64,
    /// Bytes of the block that are left.
    remaining: usize,
    last: Last<T>,
}

/// The last entry, which predicts the next.
#[derive(Clone, Copy, Debug)]
struct Last<T> {
    /// End of the last entry.
    next: u64,
    /// Number of places in the last skip.
    step: u64,
    entry: T,
}

impl<T: Stretch> Last<T> {
    fn of(key: u64) -> Self {
        Self { next: key, step: 0, entry: T::NOTHING }
    }

    fn note(&mut self, first: u64, entry: T) {
        *self = Self { next: first + entry.count(), step: self.step, entry };
    }
}

impl<T: Stretch> Packed<T> {
    pub(super) fn new(key: u64, open: &Open<T>) -> Self {
        let mut bytes = Vec::with_capacity(4 * open.len());
        bytes.push(open.len() as u8);
        let mut last = Last::of(key);
        for (first, entry) in open.iter() {
            let at = bytes.len();
            bytes.push(0);
            let places = match first - last.next {
                0 => GOES_ON,
                step if step == last.step => STEPS_ON,
                step => {
                    put_number(&mut bytes, step);
                    last.step = step;
                    STEPS
                }
            };
            bytes[at] = places | entry.put_after(last.entry, &mut bytes) << 2;
            last.note(first, entry);
        }
        Self { bytes: bytes.into(), entries: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes[0].into()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn unpacked(&self, key: u64, visits: &Visits) -> Open<T> {
        visits.add(self.len());
        self.entries_from(Last::of(key), self.bytes.len() - 1).collect()
    }

    pub(super) fn whole<'a>(
        &'a self,
        key: u64,
        from: u64,
        end: u64,
        finger: &Cell<Option<Finger<T>>>,
        visits: &'a Visits,
    ) -> impl Iterator<Item = (u64, T)> + use<'a, T> {
        let known = finger.get().filter(|finger| finger.key == key && finger.last.next <= from);
        let start = known.map_or((Last::of(key), self.bytes.len() - 1), |at| (at.last, at.remaining));
        let mut entries = self.entries_from(start.0, start.1);
        let mut at = start;
        let first = loop {
            match entries.next().inspect(|_| visits.add(1)) {
                Some((first, entry)) if first + entry.count() <= from => at = entries.place(),
                other => break other,
            }
        };
        finger.set(Some(Finger { key, last: at.0, remaining: at.1 }));
        let others = entries.inspect(|_| visits.add(1));
        first.into_iter().chain(others).take_while(move |(first, _)| *first < end)
    }

    fn entries_from(&self, last: Last<T>, remaining: usize) -> Entries<'_, T> {
        Entries { input: Input::new(&self.bytes[self.bytes.len() - remaining..]), last }
    }
}

#[derive(Debug)]
struct Entries<'a, T> {
    input: Input<'a>,
    last: Last<T>,
}

impl<T: Stretch> Entries<'_, T> {
    fn place(&self) -> (Last<T>, usize) {
        (self.last, self.input.remaining())
    }

    fn read(&mut self, how: u8) -> Option<(u64, T)> {
        let Last { next, step, entry } = &mut self.last;
        if how & 3 == STEPS {
            *step = self.input.number()?;
        }
        let first = if how & 3 == GOES_ON { *next } else { *next + *step };
        let entry = T::take_after(*entry, how >> 2, &mut self.input)?;
        self.last.note(first, entry);
        Some((first, entry))
    }
}

impl<T: Stretch> Iterator for Entries<'_, T> {
    type Item = (u64, T);

    fn next(&mut self) -> Option<Self::Item> {
        let how = self.input.byte()?;
        Some(self.read(how).expect("a block has the entries that were put into it"))
    }
}
