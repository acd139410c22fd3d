//! Records and their ids.

use std::fmt;

use bytes::Bytes;

use crate::limits;
use crate::position::Position;
use crate::wire::{Decoder, Encoder, Wire, WireError, at_most, decode_number, wire_struct};

/// A client's ordered stream of appends. The upper 64 bits are the log's tail at its opening, so
/// that a forgotten session differs from a new one. The lower 64 are random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

impl Wire for SessionId {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let id = Self(Wire::decode(input)?);
        if id != Self::NOBODY {
            at_most(limits::MAX_NUMBER, "SessionId", id.opened_at().0)?;
        }
        Ok(id)
    }
}

impl SessionId {
    /// The session of no client.
    pub const NOBODY: Self = Self(u128::MAX);

    /// A session opened when the tail was `opened_at`.
    #[must_use]
    pub fn new(opened_at: Position, random: u64) -> Self {
        Self((u128::from(opened_at.0) << 64) | u128::from(random))
    }

    /// The tail when the session was opened.
    #[must_use]
    pub fn opened_at(self) -> Position {
        Position((self.0 >> 64) as u64)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for SessionId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

/// The id of an append: its session and its number, from 0 without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// The session.
    pub session: SessionId,
    /// Number within the session.
    pub number: u64,
}

wire_struct! { RecordId { session, number as number } }

/// Consecutive numbers of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdRun {
    /// The session.
    pub session: SessionId,
    /// The first number.
    pub first: u64,
    /// Number of ids.
    pub count: u64,
}

wire_struct! { IdRun { session, first as number, count as number } }

impl IdRun {
    /// The number after the last.
    #[must_use]
    pub fn end(self) -> u64 {
        self.first + self.count
    }

    /// The first `count` ids.
    #[must_use]
    pub fn head(self, count: u64) -> Self {
        Self { count, ..self }
    }

    /// All but the first `count` ids.
    #[must_use]
    pub fn tail(self, count: u64) -> Self {
        Self { first: self.first + count, count: self.count - count, ..self }
    }

    /// The ids, in order.
    pub fn ids(self) -> impl DoubleEndedIterator<Item = RecordId> {
        (self.first..self.end()).map(move |number| RecordId { session: self.session, number })
    }
}

/// Ids of records at consecutive positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundIds {
    /// The ids. Never empty.
    pub ids: IdRun,
    /// Whether these positions are no-ops, because no replica had the records.
    pub is_void: bool,
}

/// Flag in the number of ids: their positions are no-ops.
const IS_VOID: u64 = 1 << 63;
const _: () = assert!(limits::MAX_NUMBER < IS_VOID);

impl Wire for BoundIds {
    fn encode(&self, out: &mut Encoder) {
        let void = if self.is_void { IS_VOID } else { 0 };
        IdRun { count: self.ids.count | void, ..self.ids }.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (session, first) = (Wire::decode(input)?, decode_number("BoundIds.first", input)?);
        let marked = u64::decode(input)?;
        let count = at_most(limits::MAX_NUMBER, "BoundIds.count", marked & !IS_VOID)?;
        Ok(Self { ids: IdRun { session, first, count }, is_void: marked & IS_VOID != 0 })
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.session, self.number)
    }
}

const FLAG_KEY: u8 = 1;
const FLAG_HEADERS: u8 = 2;
const FLAG_NO_OP: u8 = 4;
const KNOWN_FLAGS: u8 = FLAG_KEY | FLAG_HEADERS | FLAG_NO_OP;
const FIXED_BYTES: usize = 9;

/// The kind of the header that names the origin of a copied record: the text `LOG/PLAYER/POSITION`
/// has the id of the copied log, the player's name, and the position.
pub const ORIGIN_HEADER_KIND: u16 = 2;

/// A typed optional header of a record. Kinds below 32,768 belong to Seriatim, the others to users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The meaning of the value.
    pub kind: u16,
    /// The value.
    pub value: Bytes,
}

wire_struct! { Header { kind, value } }

/// Hash of a record's key: FNV-1a of 64 bits. It decides where records are stored and delivered, so
/// it must never change.
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    key.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A user's record or a no-op; stays encoded from the client to the disk and back. Layout: flags (1
/// byte), append time (8), key and headers if flagged, and the payload to the end.
/// [`from_encoded`](Self::from_encoded) checks it.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    encoded: Bytes,
    payload_offset: u32,
}

impl Record {
    /// A record appended `appended_ms` milliseconds after the Unix epoch.
    #[must_use]
    pub fn new(payload: &[u8], appended_ms: u64) -> Self {
        Self::build(payload, appended_ms, None, &[])
    }

    /// A record with a key and headers besides its payload.
    #[must_use]
    pub fn build(payload: &[u8], appended_ms: u64, key: Option<&[u8]>, headers: &[Header]) -> Self {
        let mut out = Vec::with_capacity(FIXED_BYTES + payload.len());
        let flags =
            if key.is_some() { FLAG_KEY } else { 0 } | if headers.is_empty() { 0 } else { FLAG_HEADERS };
        out.push(flags);
        out.extend_from_slice(&appended_ms.to_le_bytes());
        let mut rest = Encoder::new();
        if let Some(key) = key {
            Bytes::copy_from_slice(key).encode(&mut rest);
        }
        if !headers.is_empty() {
            headers.to_vec().encode(&mut rest);
        }
        for chunk in rest.finish() {
            out.extend_from_slice(&chunk);
        }
        let payload_offset = out.len() as u32;
        out.extend_from_slice(payload);
        Self { encoded: out.into(), payload_offset }
    }

    /// No-op for a position whose record no replica has.
    #[must_use]
    pub fn no_op() -> Self {
        const ENCODED: [u8; FIXED_BYTES] = {
            let mut bytes = [0; FIXED_BYTES];
            bytes[0] = FLAG_NO_OP;
            bytes
        };
        Self { encoded: Bytes::from_static(&ENCODED), payload_offset: FIXED_BYTES as u32 }
    }

    /// Checks encoded bytes, without copying.
    ///
    /// # Errors
    /// If the layout is wrong or a flag is unknown.
    pub fn from_encoded(encoded: Bytes) -> Result<Self, WireError> {
        let mut decoder = Decoder::new(encoded.clone());
        let flags = u8::decode(&mut decoder)?;
        u64::decode(&mut decoder)?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(WireError::Invalid("record flags"));
        }
        if flags & FLAG_KEY != 0 {
            Bytes::decode(&mut decoder)?;
        }
        if flags & FLAG_HEADERS != 0 {
            Vec::<Header>::decode(&mut decoder)?;
        }
        let payload_offset = (encoded.len() - decoder.remaining()) as u32;
        Ok(Self { encoded, payload_offset })
    }

    /// The bytes on the wire and on disk.
    #[must_use]
    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// The user's payload, byte for byte.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.encoded.slice(self.payload_offset as usize..)
    }

    /// Append time by the client, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn appended_ms(&self) -> u64 {
        u64::from_le_bytes(self.encoded[1..FIXED_BYTES].try_into().expect("a record has its fixed part"))
    }

    /// Whether this is a no-op, which readers skip.
    #[must_use]
    pub fn is_no_op(&self) -> bool {
        self.encoded[0] & FLAG_NO_OP != 0
    }

    /// The key, if it has one.
    #[must_use]
    pub fn key(&self) -> Option<Bytes> {
        let (key, _) = self.optional_parts();
        key
    }

    /// The headers; usually none.
    #[must_use]
    pub fn headers(&self) -> Vec<Header> {
        let (_, headers) = self.optional_parts();
        headers
    }

    fn optional_parts(&self) -> (Option<Bytes>, Vec<Header>) {
        let flags = self.encoded[0];
        let mut decoder = Decoder::new(self.encoded.slice(FIXED_BYTES..self.payload_offset as usize));
        let checked = "a record was checked when it was made";
        let key = (flags & FLAG_KEY != 0).then(|| Bytes::decode(&mut decoder).expect(checked));
        let headers =
            if flags & FLAG_HEADERS == 0 { vec![] } else { Vec::decode(&mut decoder).expect(checked) };
        (key, headers)
    }

    /// Size in bytes on the wire and on disk, without framing.
    #[must_use]
    pub fn size(&self) -> usize {
        self.encoded.len()
    }

    /// Size in memory, in bytes, with [`limits::RECORD_STRUCTURE_BYTES`]. All limits of buffers
    /// count this size.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.size() + limits::RECORD_STRUCTURE_BYTES
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record({:?})", self.payload())
    }
}

impl Wire for Record {
    fn encode(&self, out: &mut Encoder) {
        self.encoded.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Self::from_encoded(Bytes::decode(input)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        let headers = vec![Header { kind: 40_000, value: Bytes::from_static(b"h") }];
        let record = Record::build(b"\0a\n", 7, Some(b"k"), &headers);
        let copy = Record::from_encoded(record.encoded().clone()).unwrap();
        assert_eq!(copy, record);
        assert_eq!(copy.payload(), Bytes::from_static(b"\0a\n"));
        assert_eq!(copy.key(), Some(Bytes::from_static(b"k")));
        assert_eq!(copy.headers(), headers);
        assert_eq!(copy.appended_ms(), 7);
        assert!(Record::new(b"", 0).payload().is_empty());
    }

    #[test]
    fn a_no_op_says_so_and_holds_nothing() {
        let no_op = Record::from_encoded(Record::no_op().encoded().clone()).unwrap();
        assert!(no_op.is_no_op() && no_op.payload().is_empty());
        assert_eq!((no_op.key(), no_op.headers(), no_op.appended_ms()), (None, vec![], 0));
        assert!(!Record::new(b"", 0).is_no_op());
    }

    #[test]
    fn unknown_flags_and_short_bytes_are_refused() {
        assert!(Record::from_encoded(Bytes::from_static(b"\x80\0\0\0\0\0\0\0\0")).is_err());
        assert!(Record::from_encoded(Bytes::from_static(b"\0\0")).is_err());
        assert!(Record::from_encoded(Bytes::from_static(b"\x01\0\0\0\0\0\0\0\0\xff\xff\xff\xff")).is_err());
    }

    #[test]
    fn the_hash_of_a_key_is_fnv_1a() {
        assert_eq!(key_hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(key_hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(key_hash(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_session_remembers_when_it_was_opened() {
        let session = SessionId::new(Position(99), 5);
        assert_eq!(session.opened_at(), Position(99));
        assert_eq!(session.to_string().parse::<SessionId>().unwrap(), session);
    }
}
