//! Filters that choose records of a log by key or header.

use bytes::Bytes;

use crate::limits::MAX_RECORD_OVERHEAD_BYTES;
use crate::record::{Header, Record};
use crate::wire::{Decoder, Encoder, Wire, WireError};

/// Chooses records by their key or a header. Shard replicas send only matching records. An empty
/// prefix matches every key, or every header of the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filter {
    /// Records whose key has this prefix.
    KeyPrefix(Bytes),
    /// Records with a header of this kind and value prefix.
    Header {
        /// The header's kind.
        kind: u16,
        /// The prefix of its value.
        prefix: Bytes,
    },
}

impl Filter {
    /// Records whose key begins with `prefix`.
    #[must_use]
    pub fn key_prefix(prefix: impl Into<Bytes>) -> Self {
        Self::KeyPrefix(prefix.into())
    }

    /// Records with a header of kind `kind` whose value begins with `prefix`.
    #[must_use]
    pub fn header(kind: u16, prefix: impl Into<Bytes>) -> Self {
        Self::Header { kind, prefix: prefix.into() }
    }

    /// Whether any record can match: the prefix is no longer than keys and headers may be.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.prefix().len() <= MAX_RECORD_OVERHEAD_BYTES as usize
    }

    fn prefix(&self) -> &Bytes {
        match self {
            Self::KeyPrefix(prefix) | Self::Header { prefix, .. } => prefix,
        }
    }

    /// Whether the filter chooses the record. It never chooses a no-op.
    #[must_use]
    pub fn matches(&self, record: &Record) -> bool {
        match self {
            _ if record.is_no_op() => false,
            Self::KeyPrefix(prefix) => record.key().is_some_and(|key| key.starts_with(prefix)),
            Self::Header { kind, prefix } => {
                let is_meant = |header: &Header| header.kind == *kind && header.value.starts_with(prefix);
                record.headers().iter().any(is_meant)
            }
        }
    }
}

impl Wire for Filter {
    fn encode(&self, out: &mut Encoder) {
        match self {
            Self::KeyPrefix(prefix) => {
                1u8.encode(out);
                prefix.encode(out);
            }
            Self::Header { kind, prefix } => {
                2u8.encode(out);
                kind.encode(out);
                prefix.encode(out);
            }
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let filter = match u8::decode(input)? {
            1 => Self::KeyPrefix(Wire::decode(input)?),
            2 => Self::Header { kind: Wire::decode(input)?, prefix: Wire::decode(input)? },
            _ => return Err(WireError::Invalid("Filter")),
        };
        // Reject a long filter: a replica keeps it for the whole subscription.
        if filter.is_possible() { Ok(filter) } else { Err(WireError::Invalid("length of a filter")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{decode_one, encode_one};

    fn record(key: Option<&[u8]>, headers: &[(u16, &'static [u8])]) -> Record {
        let headers =
            headers.iter().map(|(kind, value)| Header { kind: *kind, value: Bytes::from_static(value) });
        Record::build(b"payload", 7, key, &headers.collect::<Vec<_>>())
    }

    #[test]
    fn a_key_matches_by_how_it_begins() {
        let filter = Filter::key_prefix("eu/");
        assert!(filter.matches(&record(Some(b"eu/7"), &[])));
        assert!(filter.matches(&record(Some(b"eu/"), &[])));
        for other in [record(Some(b"eu"), &[]), record(Some(b"us/eu/"), &[]), record(None, &[(1, b"eu/")])] {
            assert!(!filter.matches(&other));
        }
        assert!(Filter::key_prefix("").matches(&record(Some(b""), &[])), "any key will do");
        assert!(!Filter::key_prefix("").matches(&record(None, &[])));
        assert!(!Filter::key_prefix("").matches(&Record::no_op()));
    }

    #[test]
    fn a_header_matches_by_its_kind_and_how_its_value_begins() {
        let filter = Filter::header(40_000, "b");
        assert!(filter.matches(&record(None, &[(40_000, b"a"), (40_000, b"bc")])), "any of its headers");
        assert!(!filter.matches(&record(Some(b"b"), &[(40_001, b"b"), (40_000, b"a")])));
        assert!(Filter::header(40_000, "").matches(&record(None, &[(40_000, b"")])));
    }

    #[test]
    fn filters_come_back_and_none_that_is_longer_than_what_a_record_has() {
        let longest = vec![7; MAX_RECORD_OVERHEAD_BYTES as usize];
        for filter in [Filter::key_prefix(longest.clone()), Filter::header(9, "x"), Filter::key_prefix("")] {
            assert_eq!(decode_one::<Filter>(encode_one(&filter)), Ok(filter));
        }
        let too_long = Filter::header(9, [&longest[..], b"x"].concat());
        assert_eq!(
            decode_one::<Filter>(encode_one(&too_long)),
            Err(WireError::Invalid("length of a filter"))
        );
        assert_eq!(decode_one::<Filter>(Bytes::from_static(b"\x03")), Err(WireError::Invalid("Filter")));
    }
}
