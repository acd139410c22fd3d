//! A store's disk usage, the positions that keep it, and the times at which positions were reached.

use seriatim_model::retention::{Extent, MOST_EXTENTS, StoreUse};
use seriatim_model::{IdRun, Position, TimeIndex};

use super::binding::Binding;
use super::index::IndexRun;
use super::runs::Stretch;
use super::{Kept, ShardStore, StoreError, leaving};

/// Approximate maximum number of parts of a segment.
const PARTS_OF_A_SEGMENT: u64 = 32;

/// Most held ids in one report.
const MOST_IDS: usize = 256;

/// Least length of a part, in bytes.
const LEAST_PART_BYTES: u64 = 1 << 10;

/// The positions that keep parts of a segment.
///
/// Invariant: parts are adjacent. No part is longer than the largest of: [`part_bytes`] at its end,
/// the one piece of a run in it, and the gap between runs that it covers.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// End of each part in the segment, in bytes, and a bound above its positions; 0 if it has
    /// none.
    parts: Vec<(u64, Position)>,
}

impl Parts {
    pub(super) fn bound(&mut self, run: IndexRun, first: Position) {
        // Assumes that the run's records are equally long: only the segment knows their lengths.
        let (count, frames) = (run.count(), u64::from(run.frames.max(1)));
        let before = |frame: u64| u64::from(run.bytes) * frame / frames;
        let begins = u64::from(run.offset) + before(run.skip.into());
        let bytes = u64::from(run.offset) + before(u64::from(run.skip) + count) - begins;
        // A run from a rewritten log is divided like the original.
        let pieces = (bytes / part_bytes(run.end())).clamp(1, count.max(1));
        for piece in 0..pieces {
            let upto = |piece: u64| begins + bytes * piece / pieces;
            self.keep(upto(piece), upto(piece + 1), first + (count * (piece + 1)).div_ceil(pieces));
        }
    }

    /// Notes that these bytes have positions below `end`.
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

    /// Ends a part at this offset, unless that divides a part with positions.
    fn divide_at(&mut self, offset: u64) {
        let index = self.parts.partition_point(|(upto, _)| *upto < offset);
        match self.parts.get(index) {
            Some((_, end)) if *end > Position::ZERO => {}
            Some((upto, _)) if *upto == offset => {}
            _ if offset == 0 => {}
            _ => self.parts.insert(index, (offset, Position::ZERO)),
        }
    }

    /// Joins short neighbours.
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

/// Most bytes of a joined part that ends at this offset.
fn part_bytes(offset: u64) -> u64 {
    (offset / PARTS_OF_A_SEGMENT).max(LEAST_PART_BYTES)
}

/// Usage of segments, oldest first. The extents begin with the first part that is not trimmed. A
/// later trimmed part counts until that part goes, because the oldest segments are deleted first.
struct Measured {
    usage: StoreUse,
    trim: Position,
}

impl Measured {
    /// Adds a segment with positions below `end`, `records` bytes of records, and `bytes` in all
    /// files.
    fn add(&mut self, parts: &[(u64, Position)], end: Position, (records, bytes): (u64, u64)) {
        self.usage.bytes += bytes;
        let mut told = 0;
        for (upto, end) in parts {
            // Bindings count with their records. Records after the last part have no positions.
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
    /// The disk usage.
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

    /// Bytes in superfluous segments, which the store deletes as soon as the disk allows.
    #[must_use]
    pub fn going_bytes(&self) -> u64 {
        let can_leave = leaving::can_leave(self, leaving::worth_leaving(self));
        let dead = self.removals.given_up(&self.trim).start..self.removals.dead_to();
        dead.chain(can_leave.then_some(self.active.number))
            .flat_map(|number| self.place.all_lens(number))
            .sum()
    }

    /// A few of the ids held without a final position.
    #[must_use]
    pub fn held_ids(&self) -> Vec<IdRun> {
        self.contents.held.ids().take(MOST_IDS).collect()
    }

    /// Length at which a segment is sealed, in bytes.
    pub(super) fn segment_bytes(&self) -> u64 {
        let usual = self.options.segment_bytes;
        let memory = self.contents.remembered.memory.as_ref();
        // Until the log's limits are reported, use those in the hard state.
        let known = memory.and_then(|memory| {
            let shards = memory.view.as_ref().map_or(memory.config.shards as usize, |view| view.shards.len());
            memory.config.retention.segment_bytes(shards)
        });
        self.segment_bytes.or(known).map_or(usual, |bytes| bytes.min(usual))
    }

    /// Notes times of positions, and the segment length for the log's limits.
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

    /// A segment's parts, a bound above its positions, and its bytes (of records, in all files).
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
