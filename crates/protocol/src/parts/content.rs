//! Contents of appends at a sequencing layer.

use bytes::Bytes;
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, decode_one, encode_one};
use seriatim_model::{Announced, Order, Record, ShardId};

/// The part of an append that a sequencing replica holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The record itself (LazyLog §4).
    Record(Record),
    /// The client sends the record itself to this shard (LazyLog §5).
    Put {
        /// The shard.
        shard: ShardId,
        /// Size of the record in bytes, reported by its client: the shard needs this room before
        /// the id is bound. Zero in entries of earlier builds.
        bytes: u32,
    },
}

/// Encoded length of a `Put` without the size, as earlier builds wrote it.
const SHARD_BYTES: usize = 4;

impl Content {
    /// Encoded length of a `Put`, in bytes. Every record is longer.
    pub const NAME_BYTES: usize = 8;

    /// Bytes of the content on the wire and in the journal, without framing.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Record(record) => record.size(),
            Self::Put { .. } => Self::NAME_BYTES,
        }
    }

    /// Whether appends to a log of this `order`, with these `open` shards, carry such content.
    #[must_use]
    pub fn suits(&self, order: Order, open: &[ShardId]) -> bool {
        match self {
            Self::Record(_) => order.announces() == Announced::Record,
            Self::Put { shard, .. } => order.announces() == Announced::Id && open.contains(shard),
        }
    }
}

impl From<Record> for Content {
    fn from(record: Record) -> Self {
        Self::Record(record)
    }
}

impl Wire for Content {
    fn encode(&self, out: &mut Encoder) {
        match self {
            Self::Record(record) => record.encode(out),
            Self::Put { shard, bytes } => encode_one(&(*shard, *bytes)).encode(out),
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let bytes = Bytes::decode(input)?;
        match bytes.len() {
            Self::NAME_BYTES => decode_one(bytes).map(|(shard, bytes)| Self::Put { shard, bytes }),
            SHARD_BYTES => decode_one(bytes).map(|shard| Self::Put { shard, bytes: 0 }),
            _ => Record::from_encoded(bytes).map(Self::Record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_come_back() {
        let put = Content::Put { shard: ShardId(7), bytes: 600 };
        for content in [put, Content::Record(Record::new(b"", 3))] {
            assert_eq!(decode_one::<Content>(encode_one(&content)), Ok(content));
        }
    }

    #[test]
    fn what_earlier_builds_wrote_has_no_size() {
        let written = encode_one(&encode_one(&ShardId(7)));
        assert_eq!(decode_one::<Content>(written), Ok(Content::Put { shard: ShardId(7), bytes: 0 }));
    }

    #[test]
    fn a_record_is_encoded_as_ever() {
        let record = Record::new(b"r", 3);
        assert_eq!(encode_one(&Content::Record(record.clone())), encode_one(&record));
    }
}
