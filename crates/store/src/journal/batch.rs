//! The layout of a journal file.
//!
//! A file is a header (512 bytes, see `format.rs`, with [`FileIdentity`] as its body) and batches.
//! A batch starts at a multiple of the file's block and is padded with zeros to the next. A block
//! is 4096 bytes, so that no disk sector holds parts of two batches: a power loss may destroy the
//! sector being written.
//!
//! ```text
//! magic (4) · 0 (4) · mark (8) · first lsn (8) · entries (4) · body length (4) · body crc (4) ·
//! crc of the 36 bytes before (4) · body · padding
//! ```
//!
//! A batch without entries notes that another file, already durable, continues the journal. It is
//! the last of its file, and missing if the node was killed before writing it.
//!
//! The body checksum covers the padding too, so every bit is checked. The mark identifies the use
//! of the file: the salt (`secret.rs`), or in versions before
//! [`SALTED_JOURNALS`](crate::format::SALTED_JOURNALS) the sequence number.

use bytes::Bytes;
use seriatim_model::NodeId;
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, wire_enum, wire_struct};

use super::{Lsn, RoleKey};
use crate::format::{Magic, u32_at, u64_at};

/// Block length in files before version 4, whose headers state none, in bytes. All other block
/// lengths are multiples of it.
pub(super) const LEAST_BLOCK_BYTES: u64 = 512;

pub(super) const FILE_MAGIC: Magic = *b"SERIAJNL";

pub(super) const FILE_HEADER_BYTES: u64 = 512;

const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"SJBT");

const BATCH_HEADER_BYTES: usize = 40;

/// Most bytes of framing for an entry that is alone in its batch: the batch's header and the
/// entry's own.
pub(super) const MOST_FRAMING_BYTES: u64 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    pub(super) cluster: u128,
    pub(super) node: NodeId,
    /// Number of this use, one higher than the previous file's.
    pub(super) sequence: u64,
    pub(super) first: u64,
    /// The mark that each batch of this use repeats; 0 before version 3.
    pub(super) salt: u64,
    /// Alignment of batches, in bytes; 0 before version 4.
    pub(super) block: u64,
}

wire_struct! { FileIdentity { cluster, node, sequence, first, salt, block } }

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Ordinary {
        key: RoleKey,
        bytes: Bytes,
    },
    /// A piece of a role's snapshot, with its state at the checkpoint's start. Written before
    /// version 5.
    SnapshotOfStart {
        start: u64,
        key: RoleKey,
        bytes: Bytes,
    },
    /// The end of the checkpoint's snapshots.
    End {
        start: u64,
    },
    /// A piece of a role's snapshot, with its state at the snapshot's first piece.
    Snapshot {
        start: u64,
        key: RoleKey,
        bytes: Bytes,
    },
}

const TAG_ORDINARY: u8 = 1;
const TAG_SNAPSHOT: u8 = 4;

wire_enum! {
    Entry {
        1 => Ordinary { key, bytes },
        2 => SnapshotOfStart { start, key, bytes },
        3 => End { start },
        4 => Snapshot { start, key, bytes },
    }
}

impl Entry {
    /// Encodes an [`Entry::Ordinary`] from `chunks` of `len` bytes, without joining them.
    pub(super) fn encode_ordinary(key: RoleKey, len: usize, chunks: &[Bytes], out: &mut Encoder) {
        TAG_ORDINARY.encode(out);
        key.encode(out);
        put_chunks(len, chunks, out);
    }

    pub(super) fn encode_snapshot(start: Lsn, key: RoleKey, len: usize, chunks: &[Bytes], out: &mut Encoder) {
        TAG_SNAPSHOT.encode(out);
        start.0.encode(out);
        key.encode(out);
        put_chunks(len, chunks, out);
    }
}

fn put_chunks(len: usize, chunks: &[Bytes], out: &mut Encoder) {
    u32::try_from(len).expect("an entry is far below 4 GiB").encode(out);
    for chunk in chunks {
        out.put_shared(chunk);
    }
}

#[derive(Debug)]
pub(super) struct PendingBatch {
    first: Lsn,
    entries: u32,
    body: Encoder,
}

impl PendingBatch {
    pub(super) fn new(first: Lsn) -> Self {
        Self { first, entries: 0, body: Encoder::new() }
    }

    pub(super) fn add(&mut self, encode: impl FnOnce(&mut Encoder)) {
        encode(&mut self.body);
        self.entries += 1;
    }

    pub(super) fn first(&self) -> Lsn {
        self.first
    }

    pub(super) fn last(&self) -> Lsn {
        Lsn(self.first.0 + u64::from(self.entries) - 1)
    }

    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }

    pub(super) fn padded_bytes(&self, block: u64) -> u64 {
        padded(self.body.len(), block)
    }

    pub(super) fn seal(self, mark: u64, block: u64) -> Vec<Bytes> {
        let header = BatchHeader {
            mark,
            first: self.first,
            entries: self.entries,
            body_len: u32::try_from(self.body.len()).expect("a batch is far below 4 GiB"),
        };
        let mut chunks = vec![Bytes::new()];
        chunks.extend(self.body.finish());
        chunks.push(Bytes::from(vec![0; header.padding(block)]));
        let body_crc = chunks.iter().fold(0, |crc, chunk| crc32c::crc32c_append(crc, chunk));
        chunks[0] = header.encode(body_crc);
        chunks
    }
}

fn padded(body_len: usize, block: u64) -> u64 {
    (BATCH_HEADER_BYTES as u64 + body_len as u64).next_multiple_of(block)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub(super) mark: u64,
    pub(super) first: Lsn,
    entries: u32,
    body_len: u32,
}

impl BatchHeader {
    fn encode(self, body_crc: u32) -> Bytes {
        let mut out = Vec::with_capacity(BATCH_HEADER_BYTES);
        out.extend_from_slice(&BATCH_MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.mark.to_le_bytes());
        out.extend_from_slice(&self.first.0.to_le_bytes());
        out.extend_from_slice(&self.entries.to_le_bytes());
        out.extend_from_slice(&self.body_len.to_le_bytes());
        out.extend_from_slice(&body_crc.to_le_bytes());
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..BATCH_HEADER_BYTES)?;
        let is_valid = u32_at(bytes, 0) == BATCH_MAGIC
            && u32_at(bytes, 4) == 0
            && crc32c::crc32c(&bytes[..BATCH_HEADER_BYTES - 4]) == u32_at(bytes, BATCH_HEADER_BYTES - 4);
        is_valid.then(|| Self {
            mark: u64_at(bytes, 8),
            first: Lsn(u64_at(bytes, 16)),
            entries: u32_at(bytes, 24),
            body_len: u32_at(bytes, 28),
        })
    }

    pub(super) fn padded_bytes(&self, block: u64) -> u64 {
        padded(self.body_len as usize, block)
    }

    fn padding(&self, block: u64) -> usize {
        self.padded_bytes(block) as usize - BATCH_HEADER_BYTES - self.body_len as usize
    }
}

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) header: BatchHeader,
    body: Bytes,
}

impl Batch {
    pub(super) fn at(file: &Bytes, offset: u64, block: u64) -> Option<Self> {
        let start = usize::try_from(offset).ok()?;
        let header = BatchHeader::decode(file.get(start..)?)?;
        let end = start.checked_add(usize::try_from(header.padded_bytes(block)).ok()?)?;
        let checked = file.get(start + BATCH_HEADER_BYTES..end)?;
        if crc32c::crc32c(checked) != u32_at(&file[start..], 32) {
            return None;
        }
        let body = start + BATCH_HEADER_BYTES;
        Some(Self { header, body: file.slice(body..body + header.body_len as usize) })
    }

    /// Whether it only notes that another file follows.
    pub(super) fn is_note_of_follower(&self) -> bool {
        self.header.entries == 0
    }

    pub(super) fn end(&self) -> Lsn {
        Lsn(self.header.first.0.saturating_add(u64::from(self.header.entries)))
    }

    pub(super) fn entries(self) -> Result<Vec<Entry>, WireError> {
        let mut decoder = Decoder::new(self.body);
        let mut entries = Vec::new();
        for _ in 0..self.header.entries {
            entries.push(Entry::decode(&mut decoder)?);
        }
        match decoder.remaining() {
            0 => Ok(entries),
            left => Err(WireError::LeftOver(left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Endpoint, LogId};

    use super::*;

    const BLOCK_BYTES: u64 = 4096;

    fn batch(len: usize) -> Bytes {
        let key = RoleKey { log: LogId(1), endpoint: Endpoint::Sequencer };
        let mut batch = PendingBatch::new(Lsn(5));
        let bytes = Bytes::from(vec![7; len]);
        batch.add(|out| {
            Entry::encode_ordinary(key, len, &[bytes.slice(..len / 2), bytes.slice(len / 2..)], out)
        });
        batch.add(|out| Entry::End { start: 5 }.encode(out));
        batch.add(|out| Entry::encode_snapshot(Lsn(5), key, len, std::slice::from_ref(&bytes), out));
        batch.seal(3, BLOCK_BYTES).concat().into()
    }

    #[test]
    fn a_batch_comes_back() {
        for len in [0, 1, 400, 3000, 9000] {
            let file = batch(len);
            assert_eq!(file.len() as u64 % BLOCK_BYTES, 0);
            let batch = Batch::at(&file, 0, BLOCK_BYTES).unwrap();
            assert_eq!((batch.header.mark, batch.end()), (3, Lsn(8)));
            assert_eq!(batch.header.padded_bytes(BLOCK_BYTES), file.len() as u64);
            let entries = batch.entries().unwrap();
            assert!(matches!(&entries[0], Entry::Ordinary { bytes, .. } if bytes.len() == len));
            assert_eq!(entries[1], Entry::End { start: 5 });
            assert!(matches!(&entries[2], Entry::Snapshot { start: 5, bytes, .. } if bytes.len() == len));
        }
    }

    #[test]
    fn every_bit_of_a_batch_counts() {
        let good = batch(100);
        for bit in 0..good.len() * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Batch::at(&bytes.into(), 0, BLOCK_BYTES).is_none(), "bit {bit}");
        }
    }
}
