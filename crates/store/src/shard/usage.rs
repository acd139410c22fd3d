//! The room that a store takes on its disk, which positions keep it there, and which position was reached when.

use seriatim_model::retention::{Extent, MOST_EXTENTS, StoreUse};
use seriatim_model::{IdRun, Position, TimeIndex};

use super::binding::Binding;
use super::index::IndexRun;
use super::runs::Stretch;
use super::{Kept, ShardStore, StoreError};

/// Into how many parts the records of a segment are divided at most, about.
const PARTS_OF_A_SEGMENT: u64 = 32;

/// Of how many names it is told at once that they are held.
const MOST_NAMES: usize = 256;

/// No part of a segment is shorter, in bytes.
const LEAST_PART_BYTES: u64 = 1 << 10;

/// Which positions keep which records of a segment.
///
/// Invariant: parts lie one behind the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// Up to where in the segment each one goes, and a bound above its positions.
    parts: Vec<(u64, Position)>,
}

impl Parts {
    /// The records of a run have the positions from `first` on.
    pub(super) fn bound(&mut self, run: IndexRun, first: Position) {
        let (bytes, count) = (u64::from(run.bytes), run.count());
        let begins = run.end() - bytes;
        // One run that a rewritten log tells is divided as it was: records are taken for equally long.
        let pieces = (bytes / part_bytes(run.end())).clamp(1, count.max(1));
        for piece in 1..=pieces {
            self.end_at(begins + bytes * piece / pieces, first + (count * piece).div_ceil(pieces));
        }
    }

    /// The records that end at this offset of the segment have positions below `end`.
    fn end_at(&mut self, offset: u64, end: Position) {
        let index = self.parts.partition_point(|(upto, _)| *upto < offset);
        if let Some((_, known)) = self.parts.get_mut(index) {
            *known = (*known).max(end);
            return;
        }
        let before = index.checked_sub(2).map_or(0, |index| self.parts[index].0);
        match self.parts.last_mut() {
            Some((upto, known)) if offset - before <= part_bytes(offset) => {
                (*upto, *known) = (offset, (*known).max(end));
            }
            _ => self.parts.push((offset, end)),
        }
    }
}

/// How long a part is at most that ends at an offset of a segment, about.
fn part_bytes(offset: u64) -> u64 {
    (offset / PARTS_OF_A_SEGMENT).max(LEAST_PART_BYTES)
}

impl ShardStore {
    /// The room that it takes on its disk.
    #[must_use]
    pub fn measure(&self) -> StoreUse {
        let trim = self.trim.position();
        let mut usage = StoreUse::default();
        // A file that is being replaced may be gone.
        let len = |name: String| self.place.disk.len(&name).unwrap_or_default();
        for number in self.removed_to..self.trim.first_segment() {
            usage.bytes += self.place.all_files(number).map(len).iter().sum::<u64>();
        }
        for (number, parts, end) in self.contents.parts() {
            let [records, bindings, packed] = self.place.all_files(number).map(len);
            let bytes = records + bindings + packed;
            usage.bytes += bytes;
            let mut told = 0;
            for (upto, end) in &parts.parts {
                // Bindings go with the records that they tell of. Records behind the last part have no positions.
                let until = u128::from(bytes) * u128::from(*upto) / u128::from(records.max(*upto).max(1));
                let part = Extent { end: *end, bytes: until as u64 - told };
                told = until as u64;
                if part.end > trim {
                    usage.extents.push(part);
                }
            }
            if parts.parts.is_empty() && end > trim {
                usage.extents.push(Extent { end, bytes });
            }
        }
        while usage.extents.len() > MOST_EXTENTS {
            let join = |pair: &[Extent]| Extent {
                end: pair[pair.len() - 1].end.max(pair[0].end),
                bytes: pair.iter().map(|extent| extent.bytes).sum(),
            };
            usage.extents = usage.extents.chunks(2).map(join).collect();
        }
        usage
    }

    /// The names of records that it holds and that have no final position, a few of them.
    #[must_use]
    pub fn held_by_name(&self) -> Vec<IdRun> {
        self.contents.names.ids().take(MOST_NAMES).collect()
    }

    /// At which length a segment is sealed, in bytes.
    pub(super) fn segment_bytes(&self) -> u64 {
        let usual = self.options.segment_bytes;
        let memory = self.contents.remembered.memory.as_ref();
        // Until it is told of the log's limits, those count that the log had when the replica heard of it last.
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
        // Trimmed records go with their segment, once that gets no more.
        let active = self.contents.parts().next_back();
        let is_trimmed = active.is_some_and(|(.., end)| end <= self.trim.position());
        let is_long = self.active.records.len() > self.segment_bytes();
        if !self.active.records.is_empty() && (is_trimmed || is_long && segment_bytes.is_some()) {
            self.start_next_segment()?;
            self.raise_trim(self.trim.position())?;
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
