//! The room that a store takes on its disk, which positions keep it there, and which position was
//! reached when.

use seriatim_model::retention::{Extent, MOST_EXTENTS, StoreUse};
use seriatim_model::{IdRun, Position, TimeIndex};

use super::binding::Binding;
use super::index::IndexRun;
use super::runs::Stretch;
use super::{Kept, ShardStore, StoreError, leaving};

/// Into how many parts the records of a segment are divided at most, about.
const PARTS_OF_A_SEGMENT: u64 = 32;

/// Of how many ids it is told at once that they are held.
const MOST_IDS: usize = 256;

/// No part of a segment is shorter, in bytes.
const LEAST_PART_BYTES: u64 = 1 << 10;

/// Which positions keep which records of a segment.
///
/// Invariant: parts lie one behind the other, without gaps. No part is longer than [`part_bytes`]
/// of where it ends, or than the one piece of a run that it is, or what lies between runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// Up to where in the segment each one goes, and a bound above its positions; zero where there
    /// are none.
    parts: Vec<(u64, Position)>,
}

impl Parts {
    /// The records of a run have the positions from `first` on.
    pub(super) fn bound(&mut self, run: IndexRun, first: Position) {
        // Where records of one run lie in its bytes only the segment knows: they are taken for
        // equally long.
        let (count, frames) = (run.count(), u64::from(run.frames.max(1)));
        let before = |frame: u64| u64::from(run.bytes) * frame / frames;
        let begins = u64::from(run.offset) + before(run.skip.into());
        let bytes = u64::from(run.offset) + before(u64::from(run.skip) + count) - begins;
        // One that a rewritten log tells is divided as it was.
        let pieces = (bytes / part_bytes(run.end())).clamp(1, count.max(1));
        for piece in 0..pieces {
            let upto = |piece: u64| begins + bytes * piece / pieces;
            self.keep(upto(piece), upto(piece + 1), first + (count * (piece + 1)).div_ceil(pieces));
        }
    }

    /// The bytes from `begins` up to `upto` are records with positions below `end`.
    fn keep(&mut self, begins: u64, upto: u64, end: Position) {
        self.divide_at(begins);
        self.divide_at(upto);
        let first = self.parts.partition_point(|(known, _)| *known <= begins);
        let last = self.parts.partition_point(|(known, _)| *known < upto);
        for (_, known) in self.parts.get_mut(first..=last).into_iter().flatten() {
            *known = (*known).max(end);
        }
        self.join(first.saturating_sub(1), last + 1);
    }

    /// From now on a part ends at this offset, unless one lies there that keeps something: that is
    /// not divided.
    fn divide_at(&mut self, offset: u64) {
        let index = self.parts.partition_point(|(upto, _)| *upto < offset);
        match self.parts.get(index) {
            Some((_, end)) if *end > Position::ZERO => {}
            Some((upto, _)) if *upto == offset => {}
            _ if offset == 0 => {}
            _ => self.parts.insert(index, (offset, Position::ZERO)),
        }
    }

    /// Joins parts from the one at `from` on, up to the one at `until`, that are short together.
    fn join(&mut self, from: usize, until: usize) {
        let mut index = from;
        for _ in from..until {
            let Some(&[(upto, end), (next_upto, next_end)]) = self.parts.get(index..index + 2) else {
                return;
            };
            let begins = index.checked_sub(1).map_or(0, |before| self.parts[before].0);
            assert!(begins < upto && upto < next_upto, "parts lie one behind the other");
            if next_upto - begins <= part_bytes(next_upto) {
                self.parts[index + 1].1 = end.max(next_end);
                self.parts.remove(index);
            } else {
                index += 1;
            }
        }
    }
}

/// How long a part is at most that ends at an offset of a segment and is joined of several.
fn part_bytes(offset: u64) -> u64 {
    (offset / PARTS_OF_A_SEGMENT).max(LEAST_PART_BYTES)
}

/// The room that segments take, the oldest first, and which positions keep it. Parts that are
/// trimmed keep none, unless one before them is kept.
struct Measured {
    usage: StoreUse,
    trim: Position,
}

impl Measured {
    /// A segment of these parts, whose positions end at `end`. It has so many bytes of records, and
    /// of all its files.
    fn add(&mut self, parts: &[(u64, Position)], end: Position, (records, bytes): (u64, u64)) {
        self.usage.bytes += bytes;
        let mut told = 0;
        for (upto, end) in parts {
            // Bindings go with the records that they tell of. Records behind the last part have no
            // positions.
            let until = u128::from(bytes) * u128::from(*upto) / u128::from(records.max(*upto).max(1));
            let part = Extent { end: *end, bytes: until as u64 - told };
            told = until as u64;
            if part.end > self.trim || !self.usage.extents.is_empty() {
                self.usage.extents.push(part);
            }
        }
        if parts.is_empty() && end > self.trim {
            self.usage.extents.push(Extent { end, bytes });
        }
    }

    /// All of it, in so many extents at most.
    fn finish(mut self) -> StoreUse {
        while self.usage.extents.len() > MOST_EXTENTS {
            let join = |pair: &[Extent]| Extent {
                end: pair[pair.len() - 1].end.max(pair[0].end),
                bytes: pair.iter().map(|extent| extent.bytes).sum(),
            };
            self.usage.extents = self.usage.extents.chunks(2).map(join).collect();
        }
        self.usage
    }
}

impl ShardStore {
    /// The room that it takes on its disk.
    #[must_use]
    pub fn measure(&self) -> StoreUse {
        let mut measured = Measured { usage: StoreUse::default(), trim: self.trim.position() };
        let given_up = self.removals.given_up(&self.trim);
        measured.usage.bytes = given_up.flat_map(|number| self.place.all_lens(number)).sum();
        for (number, parts, end) in self.contents.parts() {
            let lens @ [records, ..] = self.place.all_lens(number);
            measured.add(&parts.parts, end, (records, lens.iter().sum()));
        }
        measured.finish()
    }

    /// How many of these bytes are in segments without a needed record: the store deletes them as
    /// soon as the disk allows.
    #[must_use]
    pub fn going_bytes(&self) -> u64 {
        let can_leave = leaving::can_leave(self, leaving::worth_leaving(self));
        let dead = self.removals.given_up(&self.trim).start..self.removals.dead_to();
        dead.chain(can_leave.then_some(self.active.number))
            .flat_map(|number| self.place.all_lens(number))
            .sum()
    }

    /// The ids of records that it holds and that have no final position, a few of them.
    #[must_use]
    pub fn held_ids(&self) -> Vec<IdRun> {
        self.contents.held.ids().take(MOST_IDS).collect()
    }

    /// At which length a segment is sealed, in bytes.
    pub(super) fn segment_bytes(&self) -> u64 {
        let usual = self.options.segment_bytes;
        let memory = self.contents.remembered.memory.as_ref();
        // Until it is told of the log's limits, those count that the log had when the replica heard
        // of it last.
        let known = memory.and_then(|memory| {
            let shards = memory.view.as_ref().map_or(memory.config.shards as usize, |view| view.shards.len());
            memory.config.retention.segment_bytes(shards)
        });
        self.segment_bytes.or(known).map_or(usual, |bytes| bytes.min(usual))
    }

    /// Takes note of which position was reached when, and of where segments end.
    pub(super) fn note_times(
        &mut self,
        times: &TimeIndex,
        whole: bool,
        segment_bytes: Option<u64>,
    ) -> Result<Kept, StoreError> {
        self.segment_bytes = segment_bytes;
        let is_long = self.active.records.len() > self.segment_bytes();
        if is_long && segment_bytes.is_some() && !self.active.records.is_empty() {
            self.start_next_segment()?;
            self.raise_trim(self.trim.position())?;
        }
        if !self.active.records.is_empty() {
            leaving::leave_trimmed(self, 1)?;
        }
        let is_known = !whole && times.marks().is_empty() && times.time_ms() <= self.known_time();
        if is_known || whole && *times == self.contents.remembered.times {
            return Ok(Kept::Nothing);
        }
        self.note(vec![Binding::Times { times: times.clone(), whole }], None)?;
        Ok(Kept::Command)
    }

    fn known_time(&self) -> u64 {
        self.contents.remembered.times.time_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a segment, where its positions end, and its bytes of records and of all.
    type Segment<'a> = (&'a [(u64, u64)], u64, (u64, u64));

    fn measured(segments: &[Segment<'_>]) -> StoreUse {
        let mut measured = Measured { usage: StoreUse::default(), trim: Position(5) };
        for (parts, end, bytes) in segments {
            let parts: Vec<_> = parts.iter().map(|(upto, end)| (*upto, Position(*end))).collect();
            measured.add(&parts, Position(*end), *bytes);
        }
        measured.finish()
    }

    #[test]
    fn bindings_are_shared_out_among_the_parts_of_a_segment() {
        let usage = measured(&[(&[(10, 6), (40, 9)], 9, (40, 80)), (&[], 12, (7, 9))]);
        let extent = |end, bytes| Extent { end: Position(end), bytes };
        assert_eq!(usage.extents, [extent(6, 20), extent(9, 60), extent(12, 9)]);
        assert_eq!(usage.bytes, 89);
    }

    #[test]
    fn room_of_what_is_trimmed_is_kept_by_nothing_unless_it_lies_behind_what_is_kept() {
        let usage = measured(&[(&[(10, 5)], 5, (10, 10)), (&[], 4, (1, 1)), (&[(10, 6)], 6, (10, 10))]);
        assert_eq!((usage.bytes, usage.extents.len()), (21, 1));
        let usage = measured(&[(&[(10, 6), (20, 3)], 6, (20, 20))]);
        assert_eq!(usage.extents.len(), 2, "its segment goes as a whole");
    }

    #[test]
    fn many_extents_are_joined_two_by_two() {
        let segments: Vec<Segment<'_>> =
            (0..=MOST_EXTENTS as u64).map(|number| (&[][..], 6 + number, (1, 2))).collect();
        let usage = measured(&segments);
        assert_eq!(usage.extents.len(), MOST_EXTENTS / 2 + 1);
        assert_eq!(usage.extents.iter().map(|extent| extent.bytes).sum::<u64>(), usage.bytes);
    }
}
