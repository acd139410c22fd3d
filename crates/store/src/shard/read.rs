//! Reading: which version of each position is valid, and the records themselves in large pieces.

use std::collections::BTreeSet;
use std::iter::Peekable;

use bytes::Bytes;
use seriatim_model::storage::{ReadFailure, ReadOutcome, ReadRange, Stored};
use seriatim_model::{Position, ViewHistory, ViewNumber};

use super::index::{IndexRun, MAX_RUN_BYTES};
use super::segment::Frames;
use super::{Part, ShardStore, StoreError};

/// The most that is read at once, in bytes, unless a single record is larger.
const MAX_EXTENT_BYTES: u32 = 1 << 20;

/// Positions of one run that are wanted.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: Position,
    run: IndexRun,
}

impl Piece {
    /// The part of a run that lies in `from..end`.
    fn within(first: Position, run: IndexRun, from: Position, end: Position) -> Self {
        let skipped = from.since(first);
        let first = first + skipped;
        let run = run.tail(skipped);
        Self { first, run: run.head(end.since(first).min(u64::from(run.count))) }
    }
}

/// Pieces whose bytes follow one another.
#[derive(Debug)]
struct Extent {
    segment: u32,
    offset: u32,
    bytes: u32,
    pieces: Vec<Piece>,
}

impl Extent {
    /// Takes pieces as long as they follow one another, up to about `bytes` and `records`.
    fn take(pieces: &mut Peekable<impl Iterator<Item = Piece>>, bytes: u32, records: u32) -> Option<Self> {
        let first = pieces.next()?;
        let IndexRun { segment, offset, .. } = first.run;
        let mut extent = Self { segment, offset, bytes: first.run.bytes, pieces: vec![first] };
        let mut taken = u32::from(first.run.count);
        while let Some(next) = pieces.next_if(|next| {
            next.run.segment == segment
                && offset.checked_add(extent.bytes) == Some(next.run.offset)
                && extent.bytes + next.run.bytes <= bytes
                && taken < records
        }) {
            extent.bytes += next.run.bytes;
            taken += u32::from(next.run.count);
            extent.pieces.push(next);
        }
        Some(extent)
    }
}

impl ShardStore {
    /// Reads the valid records of a range. It stops early only when `max_records` records, or
    /// `max_bytes` bytes of encoded records ([`Record::size`](seriatim_model::Record::size)), are
    /// there; an answer below both bounds is complete. Positions below the trim point are left out.
    ///
    /// # Errors
    /// If a record of the range is damaged, or the disk fails.
    pub fn read(&self, range: ReadRange) -> ReadOutcome {
        let from = range.from.max(self.trim.position());
        let mut found = Found::new(range);
        let Some(history) = self.history() else { return Ok(vec![]) };
        let mut pieces = spans(history, from, range.end).flat_map(|span| self.pieces(span)).peekable();
        while !found.is_enough()
            && let Some(extent) = Extent::take(&mut pieces, found.extent_bytes(), found.records_left())
        {
            let bytes = self.read_bytes(extent.segment, extent.offset, extent.bytes);
            let bytes = bytes.map_err(|error| ReadFailure::Disk(error.to_string()))?;
            for piece in &extent.pieces {
                found.add(piece, slice(&bytes, piece.run.offset - extent.offset, piece.run.bytes))?;
            }
        }
        Ok(found.records)
    }

    /// The positions of `part` at which the view already has just these records, undamaged.
    pub(super) fn held(&self, view: ViewNumber, part: Part<'_>) -> Result<BTreeSet<Position>, StoreError> {
        let mut held = BTreeSet::new();
        for piece in self.pieces(Span { view, from: part.first, end: part.end() }) {
            let IndexRun { segment, offset, bytes, .. } = piece.run;
            let bytes = self.read_bytes(segment, offset, bytes).map_err(|source| {
                let file = self.place.records_file(segment);
                StoreError::Failed { file, source }
            })?;
            let found = records_of(&piece, bytes);
            held.extend(found.filter_map(|(position, outcome)| {
                let (id, _) = &part.records[(position - part.first) as usize];
                outcome.is_ok_and(|stored| stored.id == *id).then_some(position)
            }));
        }
        Ok(held)
    }

    fn pieces(&self, span: Span) -> impl Iterator<Item = Piece> + use<'_> {
        let Span { view, from, end } = span;
        self.index.runs(view, from, end).map(move |(first, run)| Piece::within(first, run, from, end))
    }

    fn read_bytes(&self, segment: u32, offset: u32, bytes: u32) -> std::io::Result<Bytes> {
        let name = self.place.records_file(segment);
        self.place.disk.read_at(&name, u64::from(offset), bytes as usize)
    }
}

/// Consecutive positions that one view decides about.
#[derive(Clone, Copy, Debug)]
struct Span {
    view: ViewNumber,
    from: Position,
    end: Position,
}

/// Which view decides where in `from..end`.
fn spans(history: &ViewHistory, from: Position, end: Position) -> impl Iterator<Item = Span> + use<'_> {
    let mut next = Some(from);
    std::iter::from_fn(move || {
        let from = next.filter(|from| *from < end)?;
        next = history.cover_end(from);
        Some((from, next.unwrap_or(end).min(end)))
    })
    .filter_map(|(from, end)| history.cover(from).map(|view| Span { view, from, end }))
}

/// `len` bytes from `offset` on, or fewer if the file was shorter.
fn slice(bytes: &Bytes, offset: u32, len: u32) -> Bytes {
    let start = bytes.len().min(offset as usize);
    let end = bytes.len().min(start + len as usize);
    bytes.slice(start..end)
}

/// The records of a piece, each checked. `bytes` are those of its run.
fn records_of(piece: &Piece, bytes: Bytes) -> impl Iterator<Item = (Position, Result<Stored, ReadFailure>)> {
    let mut frames = Frames::of(bytes, piece.run.frames.into());
    for _ in 0..piece.run.skip {
        let _ = frames.next();
    }
    let first = piece.first;
    (0..u64::from(piece.run.count)).map(move |index| {
        let position = first + index;
        let stored = frames.next().map(|(id, record)| Stored { position, id, record });
        (position, stored.map_err(|_| ReadFailure::Damaged(position)))
    })
}

/// What a read has found so far.
#[derive(Debug)]
struct Found {
    records: Vec<Stored>,
    bytes: u64,
    range: ReadRange,
}

impl Found {
    fn new(range: ReadRange) -> Self {
        Self { records: vec![], bytes: 0, range }
    }

    fn is_enough(&self) -> bool {
        !self.records.is_empty()
            && (self.records_left() == 0 || self.bytes >= u64::from(self.range.max_bytes))
    }

    fn records_left(&self) -> u32 {
        self.range.max_records.saturating_sub(self.records.len() as u32)
    }

    /// How much is to be read next: what is still wanted, and a run more for what surrounds it.
    fn extent_bytes(&self) -> u32 {
        let wanted = u64::from(self.range.max_bytes).saturating_sub(self.bytes);
        let wanted = u32::try_from(wanted).expect("it is below max_bytes").saturating_add(MAX_RUN_BYTES);
        wanted.min(MAX_EXTENT_BYTES)
    }

    /// Adds the records of a piece until there are enough.
    fn add(&mut self, piece: &Piece, bytes: Bytes) -> Result<(), ReadFailure> {
        for (_, stored) in records_of(piece, bytes) {
            if self.is_enough() {
                break;
            }
            let stored = stored?;
            self.bytes += stored.record.size() as u64;
            self.records.push(stored);
        }
        Ok(())
    }
}
