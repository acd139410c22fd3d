//! Keys and their values.

use bytes::Bytes;

use crate::generated::mvccpb;

/// Keys that are read or followed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub(crate) from: Vec<u8>,
    /// The first key beyond the range; empty for a single key.
    pub(crate) end: Vec<u8>,
}

impl Range {
    /// A single key.
    #[must_use]
    pub fn key(key: &str) -> Self {
        Self { from: key.into(), end: vec![] }
    }

    /// A key that never exists: reading it returns only the revision.
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
        // UTF-8 has no byte 255, so this cannot overflow.
        *end.last_mut().expect("the documented precondition") += 1;
        Self { from: first.into(), end }
    }
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Bytes,
    /// The store's revision at which the value was put.
    pub modified_at: i64,
}

impl KeyValue {
    /// `None` if the key is not UTF-8: this crate puts no such key.
    pub(crate) fn new(stored: mvccpb::KeyValue) -> Option<Self> {
        let key = String::from_utf8(stored.key.into()).ok()?;
        Some(Self { key, value: stored.value, modified_at: stored.mod_revision })
    }

    pub(crate) fn all(stored: Vec<mvccpb::KeyValue>) -> Vec<Self> {
        stored.into_iter().filter_map(Self::new).collect()
    }
}
