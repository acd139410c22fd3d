//! What passes through a sequencing layer.

use bytes::Bytes;
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, decode_one, encode_one};
use seriatim_model::{Order, Record, ShardId};

/// What a sequencing replica holds of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The record itself (LazyLog §4).
    Record(Record),
    /// On which shard its client puts it (LazyLog §5).
    Shard(ShardId),
}

/// What the number of a shard takes on the wire, in bytes. No record is as short.
const SHARD_BYTES: usize = 4;

impl Content {
    /// How many bytes it takes on the wire and in the journal, without framing.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Record(record) => record.size(),
            Self::Shard(_) => SHARD_BYTES,
        }
    }

    /// Whether this is what appends to a log of this order carry, if these shards take records.
    #[must_use]
    pub fn suits(&self, order: Order, open: &[ShardId]) -> bool {
        match self {
            Self::Record(_) => order == Order::ErwinBb,
            Self::Shard(shard) => order == Order::ErwinSt && open.contains(shard),
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
            Self::Shard(shard) => encode_one(shard).encode(out),
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let bytes = Bytes::decode(input)?;
        match bytes.len() {
            SHARD_BYTES => decode_one(bytes).map(Self::Shard),
            _ => Record::from_encoded(bytes).map(Self::Record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_come_back() {
        for content in [Content::Shard(ShardId(7)), Content::Record(Record::new(b"", 3))] {
            assert_eq!(decode_one::<Content>(encode_one(&content)), Ok(content));
        }
    }

    #[test]
    fn a_record_is_encoded_as_ever() {
        let record = Record::new(b"r", 3);
        assert_eq!(encode_one(&Content::Record(record.clone())), encode_one(&record));
    }
}
