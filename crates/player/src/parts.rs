//! Bytes of messages in JSON.

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde::Serialize;

/// A part or a key: text, or `{"base64": "…"}` if it is not UTF-8.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Part<'a> {
    Text(&'a str),
    Bytes { base64: String },
}

impl<'a> Part<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Bytes { base64: BASE64.encode(bytes) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_are_no_text_are_encoded() {
        let json = |bytes: &[u8]| serde_json::to_string(&Part::of(bytes)).unwrap();
        assert_eq!(json("two \"coffees\" ☕".as_bytes()), r#""two \"coffees\" ☕""#);
        assert_eq!(json(&[0xff, 0]), r#"{"base64":"/wA="}"#);
        assert_eq!(json(b""), r#""""#);
    }
}
