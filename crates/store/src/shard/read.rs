//! Reads: the valid version of each position, in large pieces.

use std::collections::BTreeSet;
use std::iter::Peekable;

use bytes::Bytes;
use rustix::io::Errno;
use seriatim_model::storage::{Found, Owned, ReadFailure, ReadOutcome, ReadRange, Stored};
use seriatim_model::{IdRun, Position, Record, RecordId, ViewHistory, ViewNumber, limits};

use super::contents::Contents;
use super::index::{IndexRun, MAX_RUN_BYTES};
use super::runs::Stretch;
use super::segment::{DamagedFrame, Frames};
use super::{ShardStore, StoreError};

/// Most bytes per read, unless a record is larger.
const MAX_EXTENT_BYTES: u32 = 1 << 20;

/// The wanted positions of a run.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: Position,
    run: IndexRun,
}

/// Pieces with nearby bytes, fetched by one read.
#[derive(Debug)]
struct Extent {
    segment: u32,
    offset: u32,
    bytes: u32,
    pieces: Vec<Piece>,
}

impl Extent {
    fn take(pieces: &mut Peekable<impl Iterator<Item = Piece>>, bytes: u32, records: u32) -> Option<Self> {
        let first = pieces.next()?;
        let IndexRun { segment, offset, .. } = first.run;
        let mut extent = Self { segment, offset, bytes: first.run.bytes, pieces: vec![first] };
        let mut taken = u32::from(first.run.count);
        while taken < records
            && let Some(next) = pieces.next_if(|next| extent.grown(&next.run, bytes).is_some())
        {
            (extent.offset, extent.bytes) = extent.grown(&next.run, bytes).expect("it was taken for that");
            taken += u32::from(next.run.count);
            extent.pieces.push(next);
        }
        Some(extent)
    }

    /// Offset and length of the extent if it also covers `run`. `None` if it would exceed `most`
    /// bytes, or have more unwanted bytes than the longest run.
    fn grown(&self, run: &IndexRun, most: u32) -> Option<(u32, u32)> {
        let offset = self.offset.min(run.offset);
        let end = (self.offset + self.bytes).max(run.offset + run.bytes);
        let bytes = end - offset;
        let fits = self.segment == run.segment
            && bytes <= most
            && bytes <= (self.bytes + run.bytes).saturating_add(MAX_RUN_BYTES);
        fits.then_some((offset, bytes))
    }
}

impl ShardStore {
    /// Reads the valid records of a range, and its empty positions. Stops early after `max_records`
    /// records, after `max_bytes` bytes of records
    /// ([`Record::memory`](seriatim_model::Record::memory)), after [`limits::READ_SPANS`] spans, or
    /// before a damaged record. The last span may extend beyond the range, so that a reader skips a
    /// long one at once. Omits positions below the trim point.
    ///
    /// # Errors
    /// If the first record is damaged or unreadable, or if the disk fails otherwise.
    pub fn read(&self, range: ReadRange) -> ReadOutcome {
        let from = range.from.max(self.trim.position());
        let mut found = Reading::new(range);
        let Some(history) = self.contents.history() else { return Ok(found.end(&self.contents, from)) };
        let mut pieces = spans(history, from, range.end).flat_map(|span| self.pieces(span)).peekable();
        while !found.is_enough()
            && let Some(extent) = Extent::take(&mut pieces, found.extent_bytes(), found.records_left())
        {
            let failed = |error: std::io::Error| ReadFailure::Disk(error.to_string());
            let bytes = self.read_bytes(extent.segment, extent.offset, extent.bytes).map_err(failed)?;
            for piece in &extent.pieces {
                let IndexRun { segment, offset, bytes: len, .. } = piece.run;
                let bytes = match &bytes {
                    Some(bytes) => slice(bytes, offset - extent.offset, len),
                    // The extent is unreadable. Read each piece alone, because other pieces may be
                    // readable.
                    None => self.read_bytes(segment, offset, len).map_err(failed)?.unwrap_or_default(),
                };
                found.add(piece, bytes)?;
            }
        }
        Ok(found.end(&self.contents, from))
    }

    /// The intact held records of these ids.
    #[must_use]
    pub fn find(&self, ids: &[IdRun]) -> Vec<(RecordId, Record)> {
        let mut found = vec![];
        for ids in ids {
            for (first, run) in self.contents.held.within(*ids) {
                let Ok(Some(bytes)) = self.read_bytes(run.segment, run.offset, run.bytes) else { continue };
                found.extend(records_of_ids(*ids, first, run, bytes).map(|(_, record)| record));
            }
        }
        found
    }

    /// The valid owners of the positions from `from` on, up to `end` or the first unknown owner.
    /// Owners below the trim point are unknown.
    #[must_use]
    pub fn map(&self, from: Position, end: Position) -> Vec<Owned> {
        let mut owners: Vec<Owned> = vec![];
        let (mut next, history) = (from, self.contents.history());
        let spans = history.filter(|_| from >= self.trim.position()).map(|history| spans(history, from, end));
        for span in spans.into_iter().flatten() {
            for (first, owned) in self.contents.map.within(span.view, span.from, span.end) {
                if first != next {
                    return owners;
                }
                next += owned.count;
                match owners.last_mut().and_then(|last| last.join(owned).map(|joined| (last, joined))) {
                    Some((last, joined)) => *last = joined,
                    None => owners.push(owned),
                }
            }
        }
        owners
    }

    /// Offsets from `first` of the positions whose record `is_it` accepts. `is_it` receives `None`
    /// for a damaged record.
    pub(super) fn held(
        &self,
        view: ViewNumber,
        first: Position,
        count: u64,
        is_it: impl Fn(u64, Option<(RecordId, &Record)>) -> bool,
    ) -> Result<BTreeSet<u64>, StoreError> {
        let mut held = BTreeSet::new();
        for piece in self.pieces(ViewSpan { view, from: first, end: first + count }) {
            let bytes = self.read_run(piece.run)?;
            held.extend(records_of(&piece, bytes).filter_map(|(position, outcome)| {
                let index = position - first;
                let found = outcome.as_ref().ok().map(|stored| (stored.id, &stored.record));
                is_it(index, found).then_some(index)
            }));
        }
        Ok(held)
    }

    /// Offsets in `ids` of the ids with an intact held record.
    pub(super) fn held_numbers(&self, ids: IdRun) -> Result<BTreeSet<u64>, StoreError> {
        let mut held = BTreeSet::new();
        for (first, run) in self.contents.held.within(ids) {
            let bytes = self.read_run(run)?;
            held.extend(records_of_ids(ids, first, run, bytes).map(|(index, _)| index));
        }
        Ok(held)
    }

    /// The records of a run, in order; `None` for a damaged record.
    pub(super) fn records_of_run(
        &self,
        run: IndexRun,
    ) -> Result<impl Iterator<Item = Option<(RecordId, Record)>> + use<>, StoreError> {
        let bytes = self.read_run(run)?;
        Ok(frames_of(run, bytes).map(Result::ok))
    }

    fn pieces(&self, span: ViewSpan) -> impl Iterator<Item = Piece> + use<'_> {
        let ViewSpan { view, from, end } = span;
        self.contents.index.within(view, from, end).map(|(first, run)| Piece { first, run })
    }

    /// The bytes of a run. Empty if unreadable: all records of the run then count as damaged.
    fn read_run(&self, run: IndexRun) -> Result<Bytes, StoreError> {
        let bytes = self.read_bytes(run.segment, run.offset, run.bytes).map_err(|source| {
            let file = self.place.records_file(run.segment);
            StoreError::Failed { file, source }
        })?;
        Ok(bytes.unwrap_or_default())
    }

    /// Bytes of a segment's records. `None` if the disk reports a read error.
    fn read_bytes(&self, segment: u32, offset: u32, bytes: u32) -> std::io::Result<Option<Bytes>> {
        let name = self.place.records_file(segment);
        match self.place.disk.read_at(&name, u64::from(offset), bytes as usize) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => Ok(None),
            read => read.map(Some),
        }
    }
}

/// Positions decided by one view.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewSpan {
    pub(super) view: ViewNumber,
    pub(super) from: Position,
    pub(super) end: Position,
}

pub(super) fn spans(
    history: &ViewHistory,
    from: Position,
    end: Position,
) -> impl Iterator<Item = ViewSpan> + use<'_> {
    let mut next = Some(from);
    std::iter::from_fn(move || {
        let from = next.filter(|from| *from < end)?;
        next = history.cover_end(from);
        Some((from, next.unwrap_or(end).min(end)))
    })
    .filter_map(|(from, end)| history.cover(from).map(|view| ViewSpan { view, from, end }))
}

/// At most `len` bytes from `offset` on; fewer at the end of `bytes`.
fn slice(bytes: &Bytes, offset: u32, len: u32) -> Bytes {
    let start = bytes.len().min(offset as usize);
    let end = bytes.len().min(start + len as usize);
    bytes.slice(start..end)
}

fn frames_of(run: IndexRun, bytes: Bytes) -> impl Iterator<Item = Result<(RecordId, Record), DamagedFrame>> {
    let mut frames = Frames::of(bytes, run.frames.into());
    for _ in 0..run.skip {
        let _ = frames.next();
    }
    (0..run.count).map(move |_| frames.next())
}

fn records_of(piece: &Piece, bytes: Bytes) -> impl Iterator<Item = (Position, Result<Stored, ReadFailure>)> {
    let positions = (0..piece.run.count()).map({
        let first = piece.first;
        move |index| first + index
    });
    positions.zip(frames_of(piece.run, bytes)).map(|(position, frame)| {
        let stored = frame.map(|(id, record)| Stored { position, id, record });
        (position, stored.map_err(|_| ReadFailure::Damaged(position)))
    })
}

/// The intact records of a run that begins at number `first`, each with its offset in `ids`.
fn records_of_ids(
    ids: IdRun,
    first: u64,
    run: IndexRun,
    bytes: Bytes,
) -> impl Iterator<Item = (u64, (RecordId, Record))> {
    (first..).zip(frames_of(run, bytes)).filter_map(move |(number, frame)| {
        let found = frame.ok().filter(|(id, _)| *id == RecordId { session: ids.session, number })?;
        Some((number - ids.first, found))
    })
}

#[derive(Debug)]
struct Reading {
    records: Vec<Stored>,
    bytes: u64,
    range: ReadRange,
    /// Position of a damaged record that follows `records`.
    damaged: Option<Position>,
}

impl Reading {
    fn new(range: ReadRange) -> Self {
        Self { records: vec![], bytes: 0, range, damaged: None }
    }

    fn is_enough(&self) -> bool {
        self.damaged.is_some()
            || !self.records.is_empty()
                && (self.records_left() == 0 || self.bytes >= u64::from(self.range.max_bytes))
    }

    fn records_left(&self) -> u32 {
        self.range.max_records.saturating_sub(self.records.len() as u32)
    }

    /// Most bytes for the next read: the bytes still wanted, and one run of surplus.
    fn extent_bytes(&self) -> u32 {
        let wanted = u64::from(self.range.max_bytes).saturating_sub(self.bytes);
        let wanted = u32::try_from(wanted).expect("it is below max_bytes").saturating_add(MAX_RUN_BYTES);
        wanted.min(MAX_EXTENT_BYTES)
    }

    /// Adds a piece's records until there are enough or one is damaged. Fails only if the read's
    /// first record is damaged.
    fn add(&mut self, piece: &Piece, bytes: Bytes) -> Result<(), ReadFailure> {
        for (position, stored) in records_of(piece, bytes) {
            if self.is_enough() {
                break;
            }
            match stored {
                Ok(stored) => {
                    self.bytes += stored.record.memory() as u64;
                    self.records.push(stored);
                }
                Err(failure) if self.records.is_empty() => return Err(failure),
                Err(_) => self.damaged = Some(position),
            }
        }
        Ok(())
    }

    fn end(mut self, contents: &Contents, from: Position) -> Found {
        let mut upto = match (self.damaged, self.records.last()) {
            (Some(damaged), _) => damaged,
            (None, Some(last)) if self.is_enough() => last.position.next(),
            _ => self.range.end.max(self.range.from),
        };
        let mut empty = contents.empty_within(from, upto, limits::READ_SPANS + 1);
        if empty.len() > limits::READ_SPANS {
            upto = empty[limits::READ_SPANS].first;
            empty.truncate(limits::READ_SPANS);
            self.records.retain(|stored| stored.position < upto);
        }
        if let Some(last) = empty.last_mut().filter(|last| last.end() == upto) {
            upto = contents.empty_to(upto);
            last.count = upto - last.first;
        }
        Found { records: self.records, empty, upto }
    }
}
