//! Segments: records in arrival order, without positions.
//!
//! A segment's file of records or bindings is a header (64 bytes, see `format.rs`, with
//! [`FileIdentity`] as its body), entries, and when sealed a footer (32 bytes):
//!
//! ```text
//! "SERIAEND" (8) · entries (8) · length before the footer (8) · crc of that (4)
//!   · crc of the 28 bytes before (4)
//! ```
//!
//! A record's frame, whose checksum covers all that follows it:
//!
//! ```text
//! crc (4) · length of the encoded record (4) · session (16) · number (8) · encoded record
//! ```

use bytes::Bytes;
use seriatim_model::wire::{Decoder, Encoder, Wire, wire_struct};
use seriatim_model::{Record, RecordId};

use super::binding::Binding;
use super::contents::Contents;
use super::packed::Expected;
use super::{Owner, Place, ShardOptions, StoreError};
use crate::disk::Disk;
use crate::format::{Magic, encode_header, u32_at, u64_at};

pub(super) const RECORDS_MAGIC: Magic = *b"SERIAREC";

pub(super) const BINDINGS_MAGIC: Magic = *b"SERIABND";

pub(super) const HEADER_BYTES: u64 = 64;

pub(super) const FOOTER_BYTES: u64 = 32;

const FOOTER_MAGIC: Magic = *b"SERIAEND";

/// Bytes of a frame before the encoded record.
const FRAME_HEADER_BYTES: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    pub(super) owner: Owner,
    pub(super) segment: u32,
}

wire_struct! { FileIdentity { owner, segment } }

/// Place of records written together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) count: u16,
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

pub(super) fn records_bytes(records: &[(RecordId, Record)]) -> u64 {
    records.iter().map(|(_, record)| (FRAME_HEADER_BYTES + record.size()) as u64).sum()
}

/// Encodes the records of all parts at `offset`. Returns each part's stretches of at most `most`
/// bytes, or of one larger record.
pub(super) fn encode_records<'a>(
    parts: impl Iterator<Item = &'a [(RecordId, Record)]>,
    offset: u64,
    most: u32,
) -> (Vec<Vec<Written>>, Vec<Bytes>) {
    let mut out = Encoder::new();
    let mut written = Vec::new();
    for part in parts {
        let mut stretches: Vec<Written> = vec![];
        for (id, record) in part {
            let start = offset + out.len() as u64;
            encode_record(*id, record, &mut out);
            let bytes = (FRAME_HEADER_BYTES + record.size()) as u32;
            match stretches.last_mut() {
                Some(last) if last.bytes + bytes <= most => {
                    last.bytes += bytes;
                    last.count += 1;
                }
                _ => {
                    let offset = u32::try_from(start).expect("a segment is far below 4 GiB");
                    stretches.push(Written { count: 1, offset, bytes });
                }
            }
        }
        written.push(stretches);
    }
    (written, out.finish())
}

fn encode_record(id: RecordId, record: &Record, out: &mut Encoder) {
    let mut header = [0; FRAME_HEADER_BYTES];
    header[4..8].copy_from_slice(&(record.size() as u32).to_le_bytes());
    header[8..24].copy_from_slice(&id.session.0.to_le_bytes());
    header[24..].copy_from_slice(&id.number.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[4..]), record.encoded());
    header[..4].copy_from_slice(&crc.to_le_bytes());
    out.put(&header);
    out.put_shared(record.encoded());
}

#[derive(Clone, Debug)]
pub(super) struct Frames {
    bytes: Bytes,
    at: usize,
    /// Number of frames not read yet.
    count: u64,
    /// Whether the boundaries of all frames are known in spite of a damaged one. `None` before the
    /// first damage.
    is_aligned: Option<bool>,
}

/// A frame is damaged, or follows a damaged one so that its index is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DamagedFrame;

impl Frames {
    /// Reads an unknown number of frames.
    pub(super) fn new(bytes: Bytes) -> Self {
        Self::of(bytes, u64::MAX)
    }

    pub(super) fn of(bytes: Bytes, count: u64) -> Self {
        Self { bytes, at: 0, count, is_aligned: None }
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next record, after its checksum is checked.
    ///
    /// A frame does not contain its index: the frames before it determine that. A damaged frame may
    /// have a wrong length. Frames after it count only if their number is right and each damaged
    /// frame is followed by an intact one or by the end, so that it covers exactly its own bytes. A
    /// payload may imitate frames, so no other boundary may lead to the end either.
    pub(super) fn next(&mut self) -> Result<(RecordId, Record), DamagedFrame> {
        if self.is_aligned == Some(false) {
            return Err(DamagedFrame);
        }
        let (at, count) = (self.at, self.count);
        let next = self.check();
        if next.is_err() && self.is_aligned.is_none() {
            self.is_aligned = Some(Self { at, count, ..self.clone() }.are_aligned());
        }
        next
    }

    /// Whether the frames' lengths end exactly at the last byte.
    pub(super) fn end_with_one(mut self) -> bool {
        while self.take().is_ok() {}
        self.remaining() == 0
    }

    /// Whether the boundaries of all frames are known although the first frame is damaged.
    fn are_aligned(mut self) -> bool {
        if self.count > (self.remaining() / FRAME_HEADER_BYTES) as u64 {
            return false;
        }
        let mut is_after_damage = false;
        while self.count > 0 {
            let before = self.clone();
            let is_damaged = self.check().is_err();
            if is_damaged && (is_after_damage || self.at == before.at) {
                return false;
            }
            if is_damaged && before.places_of_the_next().any(|place| place != self.at) {
                return false;
            }
            is_after_damage = is_damaged;
        }
        self.remaining() == 0
    }

    /// Offsets at which this frame may end: from each of them, exactly the remaining number of
    /// frames, all intact, leads to the end.
    fn places_of_the_next(&self) -> impl Iterator<Item = usize> {
        let (at, end, left) = (self.at, self.bytes.len(), self.count - 1);
        // Number of intact frames from each place to the end.
        let mut frames = vec![None; end - at + 1];
        frames[end - at] = Some(0);
        for place in (at + 1..end).rev() {
            let mut next = Self { at: place, ..self.clone() };
            if let Ok(frame) = next.take()
                && let Some(more) = frames[next.at - at].filter(|more| *more < left)
                && is_whole(&frame)
            {
                frames[place - at] = Some(more + 1);
            }
        }
        (at..=end).zip(frames).filter_map(move |(place, frames)| (frames == Some(left)).then_some(place))
    }

    fn check(&mut self) -> Result<(RecordId, Record), DamagedFrame> {
        let frame = self.take()?;
        if !is_whole(&frame) {
            return Err(DamagedFrame);
        }
        let mut id = Decoder::new(frame.slice(8..FRAME_HEADER_BYTES));
        let id = RecordId::decode(&mut id).map_err(|_| DamagedFrame)?;
        let record = Record::from_encoded(frame.slice(FRAME_HEADER_BYTES..)).map_err(|_| DamagedFrame)?;
        Ok((id, record))
    }

    fn take(&mut self) -> Result<Bytes, DamagedFrame> {
        self.count = self.count.saturating_sub(1);
        let rest = &self.bytes[self.at..];
        let header = rest.get(..FRAME_HEADER_BYTES).ok_or(DamagedFrame)?;
        let len = FRAME_HEADER_BYTES.checked_add(u32_at(header, 4) as usize).ok_or(DamagedFrame)?;
        if len > rest.len() {
            return Err(DamagedFrame);
        }
        let start = self.at;
        self.at += len;
        Ok(self.bytes.slice(start..self.at))
    }
}

fn is_whole(frame: &[u8]) -> bool {
    crc32c::crc32c(&frame[4..]) == u32_at(frame, 0)
}

/// The valid part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trusted {
    /// Length in bytes, header included.
    pub(super) len: u64,
    pub(super) entries: u64,
    pub(super) crc: u32,
}

wire_struct! { Trusted { len, entries, crc } }

impl Trusted {
    pub(super) fn of(bytes: &[u8], entries: u64) -> Self {
        Self { len: bytes.len() as u64, entries, crc: crc32c::crc32c(bytes) }
    }

    pub(super) fn footer(&self) -> Bytes {
        let mut out = Vec::with_capacity(FOOTER_BYTES as usize);
        out.extend_from_slice(&FOOTER_MAGIC);
        out.extend_from_slice(&self.entries.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.into()
    }

    /// Decodes the footer of a file of `file_len` bytes, if it is one.
    pub(super) fn from_footer(footer: &[u8], file_len: u64) -> Option<Self> {
        let is_valid = footer.len() as u64 == FOOTER_BYTES
            && footer[..8] == FOOTER_MAGIC
            && crc32c::crc32c(&footer[..28]) == u32_at(footer, 28)
            && u64_at(footer, 16).checked_add(FOOTER_BYTES) == Some(file_len);
        is_valid.then(|| Self {
            len: u64_at(footer, 16),
            entries: u64_at(footer, 8),
            crc: u32_at(footer, 24),
        })
    }
}

#[derive(Debug)]
pub(super) struct AppendFile {
    name: String,
    trusted: Trusted,
}

/// An append that is not committed yet.
#[derive(Clone, Copy, Debug)]
#[must_use = "it counts when it is committed"]
pub(super) struct Appended(Trusted);

impl AppendFile {
    pub(super) fn new(name: String, trusted: Trusted) -> Self {
        Self { name, trusted }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn len(&self) -> u64 {
        self.trusted.len
    }

    pub(super) fn trusted(&self) -> Trusted {
        self.trusted
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trusted.entries == 0
    }

    pub(super) fn commit(&mut self, appended: Appended) {
        self.trusted = appended.0;
    }

    pub(super) fn append(
        &self,
        disk: &dyn Disk,
        chunks: &[Bytes],
        entries: u64,
    ) -> Result<Appended, StoreError> {
        disk.write_at(&self.name, self.trusted.len, chunks).map_err(StoreError::at(&self.name))?;
        let Trusted { len, entries: before, crc } = self.trusted;
        Ok(Appended(Trusted {
            len: len + chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>(),
            entries: before + entries,
            crc: chunks.iter().fold(crc, |crc, chunk| crc32c::crc32c_append(crc, chunk)),
        }))
    }

    pub(super) fn seal(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        disk.write_at(&self.name, self.trusted.len, &[self.trusted.footer()])
            .map_err(StoreError::at(&self.name))
    }

    /// Removes uncommitted bytes, durably: they must not reappear under later writes.
    fn cut_back(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        // Report any error as final: even an error about room may have lost data.
        let failed = |source| StoreError::Failed { file: self.name.clone(), source };
        disk.truncate(&self.name, self.trusted.len).and_then(|()| disk.sync(&self.name)).map_err(failed)
    }
}

/// Creates or replaces a segment's file: a header and `body`.
pub(super) fn new_file(
    place: &Place,
    name: String,
    magic: Magic,
    segment: u32,
    body: &[u8],
    entries: u64,
) -> Result<AppendFile, StoreError> {
    let identity = FileIdentity { owner: place.owner, segment };
    let bytes = Bytes::from([&encode_header(magic, &identity, HEADER_BYTES as usize), body].concat());
    let created = place.disk.create(&name).and_then(|()| place.disk.truncate(&name, 0));
    created.map_err(StoreError::at(&name))?;
    let trusted = Trusted::of(&bytes, entries);
    place.disk.write_at(&name, 0, &[bytes]).map_err(StoreError::at(&name))?;
    Ok(AppendFile::new(name, trusted))
}

#[derive(Debug)]
pub(super) struct ActiveSegment {
    pub(super) number: u32,
    pub(super) records: AppendFile,
    pub(super) bindings: AppendFile,
    /// Encoder state of the binding log.
    pub(super) expected: Expected,
    /// Length of the binding log at its creation, in bytes. After an opening: the length that a new
    /// log would have had then.
    pub(super) bindings_began: u64,
}

impl ActiveSegment {
    pub(super) fn create(place: &Place, number: u32, initial: &[Binding]) -> Result<Self, StoreError> {
        let mut expected = Expected::default();
        let batch = expected.batch(initial);
        let (name, count) = (place.bindings_file(number), initial.len() as u64);
        let records = new_file(place, place.records_file(number), RECORDS_MAGIC, number, &[], 0)?;
        let bindings = new_file(place, name, BINDINGS_MAGIC, number, &batch, count)?;
        let bindings_began = bindings.len();
        Ok(Self { number, records, bindings, expected, bindings_began })
    }

    /// Whether the log doubled since its start. Otherwise a store with much hard state would make a
    /// new log at each step.
    pub(super) fn is_worth_a_new_log(&self, contents: &Contents, options: ShardOptions) -> bool {
        let start = match options.measures_by_encoding {
            false => self.bindings_began,
            true => Expected::default().batch(&contents.all_bindings()).len() as u64,
        };
        self.bindings.len() > 2 * start
    }

    /// Seals this segment and creates the next one. On failure this segment is unchanged.
    pub(super) fn seal_and_start_next(&self, place: &Place, initial: &[Binding]) -> Result<Self, StoreError> {
        let number = self.number + 1;
        let outcome = self.seal(&*place.disk).and_then(|()| Self::create(place, number, initial));
        if outcome.is_err() {
            for name in place.segment_files(number) {
                let _ = place.disk.delete(&name);
            }
        }
        self.or_cut_back(&*place.disk, outcome)
    }

    pub(super) fn seal(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        self.records.seal(disk)?;
        self.bindings.seal(disk)
    }

    fn cut_back(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        self.bindings.cut_back(disk)?;
        self.records.cut_back(disk)
    }

    fn or_cut_back<T>(&self, disk: &dyn Disk, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if outcome.is_err() {
            self.cut_back(disk)?;
        }
        outcome
    }

    pub(super) fn append_records(
        &self,
        disk: &dyn Disk,
        chunks: &[Bytes],
        count: u64,
    ) -> Result<Appended, StoreError> {
        self.or_cut_back(disk, self.records.append(disk, chunks, count))
    }

    pub(super) fn append_bindings(
        &mut self,
        disk: &dyn Disk,
        bindings: &[Binding],
    ) -> Result<Appended, StoreError> {
        let batch = self.expected.batch(bindings);
        let outcome = self.bindings.append(disk, &[batch], bindings.len() as u64);
        if outcome.is_err() {
            // The next batch must not refer to this one.
            self.expected = Expected::default();
        }
        self.or_cut_back(disk, outcome)
    }
}
