//! Records as applications build them.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use seriatim_model::record::Header;

/// Maximum size of a record besides payload, key and headers, in bytes.
const FIXED_BYTES: usize = 32;
/// Size of a header besides its value, in bytes.
const HEADER_BYTES: usize = 6;

/// A record to append: a payload with an optional key and headers. The append adds the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    payload: Bytes,
    key: Option<Bytes>,
    headers: Vec<Header>,
}

impl<T: Into<Bytes>> From<T> for Record {
    fn from(payload: T) -> Self {
        Self { payload: payload.into(), key: None, headers: vec![] }
    }
}

impl Record {
    /// Sets the key.
    #[must_use]
    pub fn with_key(self, key: impl Into<Bytes>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Sets the headers. Types below 32,768 are reserved for Seriatim.
    #[must_use]
    pub fn with_headers(self, headers: Vec<Header>) -> Self {
        Self { headers, ..self }
    }

    /// Payload length, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    /// Whether the payload is empty. Empty records are valid.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// Size of the record besides the payload, in bytes.
    pub(crate) fn overhead(&self) -> usize {
        let headers = self.headers.iter().map(|header| HEADER_BYTES + header.value.len()).sum::<usize>();
        FIXED_BYTES + self.key.as_ref().map_or(0, Bytes::len) + headers
    }

    pub(crate) fn stamp(&self) -> seriatim_model::Record {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        seriatim_model::Record::build(&self.payload, now_ms, self.key.as_deref(), &self.headers)
    }
}
