//! Headers and frames of all files.
//!
//! A header is `magic (8) · version (2) · critical flags (2) · ignorable flags (2) · 0 (2) · body ·
//! zeros · crc32c (4)`, the checksum over everything before it. A frame is `crc32c (4) · length (4)
//! · body`, the checksum over the length and the body. Everything is little endian.
//!
//! | version | change |
//! |---|---|
//! | 1 | each entry of a binding log is a frame |
//! | 2 | packed binding logs (`shard/packed.rs`) |
//! | 3 | salts in journal files (`journal/secret.rs`) |
//! | 4 | block size in journal headers |
//! | 5 | snapshots describe the state at their own place in the journal |
//! | 6 | binding logs record when positions were reached |

use bytes::Bytes;
use seriatim_model::wire::{Encoder, Wire, decode_one};

use crate::error::OpenError;

/// Version of new files, and the newest that this program reads.
pub(crate) const VERSION: u16 = 6;

pub(crate) const PACKED_BINDINGS: u16 = 2;

pub(crate) const TIMED_BINDINGS: u16 = 6;

pub(crate) const SALTED_JOURNALS: u16 = 3;

/// Flags that a reader must know or refuse: none so far.
const KNOWN_CRITICAL_FLAGS: u16 = 0;

/// Bytes before a header's body.
const PREFIX_BYTES: usize = 16;

const CRC_BYTES: usize = 4;

/// Bytes before a frame's body.
pub(crate) const FRAME_PREFIX_BYTES: usize = 8;

pub(crate) type Magic = [u8; 8];

pub(crate) fn encode_header<T: Wire>(magic: Magic, body: &T, size: usize) -> Bytes {
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(&magic);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 6]);
    let mut encoder = Encoder::new();
    body.encode(&mut encoder);
    out.extend_from_slice(&encoder.finish_contiguous());
    assert!(out.len() + CRC_BYTES <= size, "a header's body fits into its fixed size");
    out.resize(size - CRC_BYTES, 0);
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.into()
}

/// Decodes a header that [`encode_header`] wrote. `header` has exactly its length.
pub(crate) fn decode_header<T: Wire>(file: &str, magic: Magic, header: &Bytes) -> Result<T, OpenError> {
    let damaged = |what| OpenError::damaged(file, 0, what);
    if header.len() < PREFIX_BYTES + CRC_BYTES {
        return Err(damaged("the file ends inside its header"));
    }
    if header[..8] != magic {
        return Err(damaged("the file does not start as such a file does"));
    }
    let version = u16_at(header, 8);
    if version == 0 || version > VERSION {
        return Err(OpenError::Version { file: file.to_owned(), found: version, known: VERSION });
    }
    let (content, crc) = header.split_at(header.len() - CRC_BYTES);
    if crc32c::crc32c(content) != u32_at(crc, 0) {
        return Err(damaged("the header's checksum is wrong"));
    }
    let flags = u16_at(header, 10);
    if flags & !KNOWN_CRITICAL_FLAGS != 0 {
        return Err(OpenError::Features { file: file.to_owned(), flags });
    }
    let mut decoder =
        seriatim_model::wire::Decoder::new(header.slice(PREFIX_BYTES..header.len() - CRC_BYTES));
    T::decode(&mut decoder).map_err(|_| damaged("the header is not readable"))
}

pub(crate) fn version_of(header: &[u8]) -> u16 {
    u16_at(header, 8)
}

#[cfg(test)]
pub(crate) fn encode_frame<T: Wire>(value: &T, out: &mut Vec<u8>) {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    let body = encoder.finish_contiguous();
    let length = (body.len() as u32).to_le_bytes();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&length), &body);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&length);
    out.extend_from_slice(&body);
}

/// The first frame of `bytes` and its length in bytes, if valid.
pub(crate) fn decode_frame<T: Wire>(bytes: &Bytes) -> Option<(T, usize)> {
    let prefix = bytes.get(..FRAME_PREFIX_BYTES)?;
    let end = FRAME_PREFIX_BYTES.checked_add(u32_at(prefix, 4) as usize)?;
    let checked = bytes.get(4..end)?;
    if crc32c::crc32c(checked) != u32_at(prefix, 0) {
        return None;
    }
    let value = decode_one(bytes.slice(FRAME_PREFIX_BYTES..end)).ok()?;
    Some((value, end))
}

/// Whether all bytes are zero, as in a file whose creation never became durable.
pub(crate) fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(bytes[offset..offset + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: Magic = *b"SERITEST";

    #[test]
    fn a_header_comes_back_and_every_bit_of_it_counts() {
        let header = encode_header(MAGIC, &7u64, 64);
        assert_eq!(decode_header::<u64>("f", MAGIC, &header).unwrap(), 7);
        for bit in 0..64 * 8 {
            let mut bytes = header.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_header::<u64>("f", MAGIC, &bytes.into()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn newer_versions_and_unknown_features_are_named() {
        let with = |offset: usize, value: u8| {
            let mut bytes = encode_header(MAGIC, &7u64, 64).to_vec();
            bytes[offset] = value;
            let crc = crc32c::crc32c(&bytes[..60]);
            bytes[60..].copy_from_slice(&crc.to_le_bytes());
            decode_header::<u64>("f", MAGIC, &bytes.into())
        };
        for older in 1..VERSION {
            assert_eq!(with(8, older as u8).unwrap(), 7, "what older programs wrote is read");
        }
        assert!(matches!(with(8, 7), Err(OpenError::Version { found: 7, known: 6, .. })));
        assert!(matches!(with(10, 4), Err(OpenError::Features { flags: 4, .. })));
        assert_eq!(with(12, 1).unwrap(), 7, "ignorable flags are ignored");
    }

    #[test]
    fn a_frame_comes_back_and_every_bit_of_it_counts() {
        let mut out = Vec::new();
        encode_frame(&0x0102_0304_u32, &mut out);
        let good = Bytes::from(out.clone());
        assert_eq!(decode_frame::<u32>(&good), Some((0x0102_0304, good.len())));
        for bit in 0..out.len() * 8 {
            let mut bytes = out.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_frame::<u32>(&bytes.into()), None, "bit {bit}");
        }
    }
}
