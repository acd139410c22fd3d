//! Keys, and what is stored under them.

use bytes::Bytes;

use crate::generated::mvccpb;

/// Keys that are read or followed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub(crate) from: Vec<u8>,
    /// The first key beyond the range; empty if it is a single key.
    pub(crate) end: Vec<u8>,
}

impl Range {
    /// A single key.
    #[must_use]
    pub fn key(key: &str) -> Self {
        Self { from: key.into(), end: vec![] }
    }

    /// A key that nobody has: reading it tells the revision, and nothing else.
    pub(crate) fn nothing() -> Self {
        Self { from: vec![0], end: vec![] }
    }

    /// Every key that starts with `prefix`, which must not be empty.
    #[must_use]
    pub fn prefix(prefix: &str) -> Self {
        Self::between(prefix, prefix)
    }

    /// Every key from the first that starts with `first` to the last that starts with `last`, which
    /// must not be empty.
    #[must_use]
    pub fn between(first: &str, last: &str) -> Self {
        let mut end: Vec<u8> = last.into();
        // No byte of UTF-8 is 255: the last byte can always be the next.
        *end.last_mut().expect("the documented precondition") += 1;
        Self { from: first.into(), end }
    }
}

/// A key, and the value stored under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// The revision of the whole store at which the value was put.
    pub modified_at: i64,
}

impl KeyValue {
    /// Nothing for a key that is no text: it is none of those that this crate puts.
    pub(crate) fn new(stored: mvccpb::KeyValue) -> Option<Self> {
        let key = String::from_utf8(stored.key.into()).ok()?;
        Some(Self { key, value: stored.value, modified_at: stored.mod_revision })
    }

    pub(crate) fn all(stored: Vec<mvccpb::KeyValue>) -> Vec<Self> {
        stored.into_iter().filter_map(Self::new).collect()
    }
}
