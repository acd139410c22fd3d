//! A frame: a header of fixed size and a body.
//!
//! ```text
//!  0      4        6      8     9    17      21      25
//!  ┌──────┬────────┬──────┬─────┬────┬───────┬───────┬──────┐
//!  │magic │version │flags │kind │log │length │crc32c │ body │   little endian
//!  └──────┴────────┴──────┴─────┴────┴───────┴───────┴──────┘
//! ```
//!
//! The checksum covers the header before it, and the body. Flags of the low byte are critical: a
//! frame with an unknown one is refused. Flags of the high byte are ignored.

use bytes::{Buf, Bytes, BytesMut};
use seriatim_model::LogId;
use seriatim_model::limits::MAX_FRAME_BYTES;
use seriatim_model::wire::Encoder;

use crate::limits::{BUSY_READ_BYTES, MAX_HELLO_BYTES};

/// The first four bytes of every frame.
pub const MAGIC: [u8; 4] = *b"SRTM";

/// Version of the header's layout. The handshake negotiates the version of messages.
pub const FRAME_VERSION: u16 = 1;

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 25;

const CHECKSUM_AT: usize = 21;

/// Flags that a receiver must understand.
const CRITICAL_FLAGS: u16 = 0x00ff;

/// Known critical flags: none yet.
const KNOWN_FLAGS: u16 = 0;

/// Purpose of a frame. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// First frame of the connecting side: a [`crate::Hello`].
    Hello = 1,
    /// Answer of the accepting side: a [`crate::Welcome`].
    Welcome = 2,
    /// Last frame before its sender closes: a [`crate::Refusal`].
    Refusal = 3,
    /// An [`crate::Envelope`].
    Message = 4,
    /// Asks for a Pong. Empty.
    Ping = 5,
    /// Answers a Ping. Empty.
    Pong = 6,
}

impl FrameKind {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Hello, Self::Welcome, Self::Refusal, Self::Message, Self::Ping, Self::Pong]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Purpose of the frame.
    pub kind: FrameKind,
    /// Log number; 0 if none.
    pub log: LogId,
    /// Contents: a slice of the read buffer.
    pub body: Bytes,
}

/// Why bytes are not a frame. The connection ends: the next frame's start is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes do not begin like a frame.
    #[error("the peer does not speak the Seriatim protocol; check the address and the port")]
    BadMagic,
    /// The header has another version.
    #[error("the peer sends frames of version {found}, known is {FRAME_VERSION}; upgrade the older side")]
    UnsupportedVersion {
        /// Frame version.
        found: u16,
    },
    /// A critical flag is unknown.
    #[error("the frame has unknown critical flags {flags:#06x}; upgrade this side")]
    UnknownCriticalFlag {
        /// The unknown flags.
        flags: u16,
    },
    /// The kind is unknown.
    #[error("the frame is of unknown kind {kind}; upgrade this side")]
    UnknownKind {
        /// Kind number.
        kind: u8,
    },
    /// The header announces too long a body. Nothing was allocated for it.
    #[error("the frame announces {bytes} bytes, the limit is {limit}")]
    Oversized {
        /// The announced length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The frame is damaged.
    #[error("the frame's checksum is {found:08x}, but its contents give {computed:08x}")]
    ChecksumMismatch {
        /// The checksum in the header.
        found: u32,
        /// The checksum of the received bytes.
        computed: u32,
    },
    /// The connection ended within a frame.
    #[error("the connection ended within a frame, after {bytes} bytes of it")]
    Truncated {
        /// Received bytes of the frame.
        bytes: usize,
    },
}

/// The contents do not fit into a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message takes {bytes} bytes, but a frame holds at most {MAX_FRAME_BYTES}; send it in parts")]
pub struct FrameTooLarge {
    /// Length of the body.
    pub bytes: usize,
}

/// Encodes a frame with the body that `write` encodes, without copies of long payloads.
///
/// # Errors
/// If the body is longer than [`MAX_FRAME_BYTES`].
pub fn frame_chunks(
    kind: FrameKind,
    log: LogId,
    write: impl FnOnce(&mut Encoder),
) -> Result<Vec<Bytes>, FrameTooLarge> {
    let mut out = Encoder::new();
    out.put(&[0; HEADER_BYTES]);
    write(&mut out);
    let body_bytes = out.len() - HEADER_BYTES;
    if body_bytes > MAX_FRAME_BYTES {
        return Err(FrameTooLarge { bytes: body_bytes });
    }
    let mut chunks = out.finish();
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&FRAME_VERSION.to_le_bytes());
    header[8] = kind as u8;
    header[9..17].copy_from_slice(&log.0.to_le_bytes());
    header[17..21].copy_from_slice(&(body_bytes as u32).to_le_bytes());
    let checksum =
        chunks[1..].iter().fold(checksum(&header, &chunks[0][HEADER_BYTES..]), |checksum, chunk| {
            crc32c::crc32c_append(checksum, chunk)
        });
    header[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    put_header(&mut chunks[0], &header);
    Ok(chunks)
}

/// Writes the header into the first chunk. Copies the chunk if a later one shares its memory.
fn put_header(first: &mut Bytes, header: &[u8; HEADER_BYTES]) {
    let mut own = std::mem::take(first).try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    own[..HEADER_BYTES].copy_from_slice(header);
    *first = own.freeze();
}

fn checksum(header: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..CHECKSUM_AT]), body)
}

/// Decodes frames from bytes in pieces of any size.
///
/// An error is final: every further call returns it.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: BytesMut,
    limit: usize,
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self { buffer: BytesMut::new(), limit: MAX_FRAME_BYTES }
    }
}

impl FrameDecoder {
    /// A decoder of bodies up to [`MAX_FRAME_BYTES`]. It holds no memory until it is fed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder of handshake frames only, until [`Self::admit`].
    #[must_use]
    pub fn for_stranger() -> Self {
        Self { buffer: BytesMut::new(), limit: MAX_HELLO_BYTES }
    }

    /// Raises the limit to [`MAX_FRAME_BYTES`].
    pub fn admit(&mut self) {
        self.limit = MAX_FRAME_BYTES;
    }

    /// Copies received bytes into the buffer.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.buffer.is_empty() {
            // The buffer is exact: a frame that is kept for long holds no other memory.
            self.buffer = BytesMut::from(bytes);
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Returns the next frame, if it is complete.
    ///
    /// # Errors
    /// If the bytes cannot be a frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(header) = self.header()? else { return Ok(None) };
        let Some(rest) = self.buffer.get(HEADER_BYTES..HEADER_BYTES + header.body_bytes) else {
            return Ok(None);
        };
        let computed = checksum(&self.buffer, rest);
        if computed != header.checksum {
            return Err(FrameError::ChecksumMismatch { found: header.checksum, computed });
        }
        self.buffer.advance(HEADER_BYTES);
        let body = match header.body_bytes {
            0 => Bytes::new(),
            bytes => self.buffer.split_to(bytes).freeze(),
        };
        Ok(Some(Frame { kind: header.kind, log: header.log, body }))
    }

    /// Ends the input.
    ///
    /// # Errors
    /// If it ends within a frame.
    pub fn finish(&self) -> Result<(), FrameError> {
        match self.buffer.len() {
            0 => Ok(()),
            bytes => Err(FrameError::Truncated { bytes }),
        }
    }

    /// Whether no frame has begun.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Missing bytes of the current frame; 0 if its header is not complete.
    #[must_use]
    pub fn missing_bytes(&self) -> usize {
        match self.header() {
            Ok(Some(header)) => (HEADER_BYTES + header.body_bytes).saturating_sub(self.buffer.len()),
            _ => 0,
        }
    }

    /// The buffer, with room for one large read. It grows with received bytes, not with the
    /// announced length: a header alone allocates little.
    pub(crate) fn room(&mut self) -> &mut BytesMut {
        let room = self.missing_bytes().min(self.buffer.len()).max(BUSY_READ_BYTES);
        if self.buffer.capacity() - self.buffer.len() < BUSY_READ_BYTES / 4 {
            self.buffer.reserve(room);
        }
        &mut self.buffer
    }

    /// Frees memory beyond the current frame.
    pub(crate) fn shrink(&mut self) {
        self.buffer = BytesMut::from(&self.buffer[..]);
    }

    fn header(&self) -> Result<Option<Header>, FrameError> {
        let known = self.buffer.len().min(MAGIC.len());
        if self.buffer[..known] != MAGIC[..known] {
            return Err(FrameError::BadMagic);
        }
        match self.buffer.get(..HEADER_BYTES) {
            Some(bytes) => Header::parse(bytes, self.limit).map(Some),
            None => Ok(None),
        }
    }
}

struct Header {
    kind: FrameKind,
    log: LogId,
    body_bytes: usize,
    checksum: u32,
}

impl Header {
    fn parse(mut bytes: &[u8], limit: usize) -> Result<Self, FrameError> {
        bytes.advance(MAGIC.len());
        let version = bytes.get_u16_le();
        if version != FRAME_VERSION {
            return Err(FrameError::UnsupportedVersion { found: version });
        }
        let unknown = bytes.get_u16_le() & CRITICAL_FLAGS & !KNOWN_FLAGS;
        if unknown != 0 {
            return Err(FrameError::UnknownCriticalFlag { flags: unknown });
        }
        let number = bytes.get_u8();
        let kind = FrameKind::from_number(number).ok_or(FrameError::UnknownKind { kind: number })?;
        let log = LogId(bytes.get_u64_le());
        let body_bytes = bytes.get_u32_le() as usize;
        if body_bytes > limit {
            return Err(FrameError::Oversized { bytes: body_bytes, limit });
        }
        Ok(Self { kind, log, body_bytes, checksum: bytes.get_u32_le() })
    }
}
