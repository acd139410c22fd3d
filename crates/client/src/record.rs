//! Records as applications build them.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use seriatim_model::record::Header;

/// Maximum size of a record besides payload, key and headers, in bytes.
const FIXED_BYTES: usize = 32;
/// Size of a header besides its value, in bytes.
const HEADER_BYTES: usize = 6;

/// A record to append: a payload with an optional key, headers and time. Without a time, the append
/// adds that of the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    payload: Bytes,
    key: Option<Bytes>,
    headers: Vec<Header>,
    time_ms: Option<u64>,
}

impl<T: Into<Bytes>> From<T> for Record {
    fn from(payload: T) -> Self {
        Self { payload: payload.into(), key: None, headers: vec![], time_ms: None }
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

    /// Sets the append time, in milliseconds since 1970, for example that of a copied record.
    #[must_use]
    pub fn with_time_ms(self, time_ms: u64) -> Self {
        Self { time_ms: Some(time_ms), ..self }
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
        let time_ms = self.time_ms.unwrap_or_else(now_ms);
        seriatim_model::Record::build(&self.payload, time_ms, self.key.as_deref(), &self.headers)
    }
}

/// The clock's time, in milliseconds since 1970.
fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_record_without_a_time_takes_the_clocks() {
        let before = now_ms();
        assert!((before..=now_ms()).contains(&Record::from("a").stamp().appended_ms()));
        let copied = Record::from("a").with_time_ms(7).with_key("k").with_headers(vec![]).stamp();
        assert_eq!((copied.appended_ms(), copied.key()), (7, Some("k".into())));
        assert_eq!(Record::from("a").with_time_ms(0).stamp().appended_ms(), 0);
    }
}
