//! A record as a line of JSON: output of `read --json` and `tail --json`, input of `append --input
//! json`.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use seriatim_client::{Header, Position, Record, RecordId, StoredRecord};

/// One record. Bytes that are not UTF-8 use the field whose name ends with `_base64`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JsonRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    /// Time of the append in UTC, by the client's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    headers: Vec<JsonHeader>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record_base64: Option<String>,
    /// Whether the record may still be taken back. None outside of speculative reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    speculative: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonHeader {
    kind: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// Smaller header kinds belong to Seriatim.
const FIRST_KIND_OF_USERS: u16 = 32_768;

const EXAMPLE: &str = r#"{"record":"text","key":"k","headers":[{"kind":40000,"value":"urgent"}]}"#;

impl JsonRecord {
    pub(crate) fn delivered(position: Position, id: RecordId, record: &StoredRecord) -> Self {
        let (payload, payload_base64) = readable(&record.payload());
        let (key, key_base64) = record.key().map_or((None, None), |key| readable(&key));
        let headers = record.headers().into_iter().map(|header| {
            let (value, value_base64) = readable(&header.value);
            JsonHeader { kind: header.kind, value, value_base64 }
        });
        Self {
            position: Some(position.0),
            time: time(record.appended_ms()),
            session: Some(id.session.to_string()),
            number: Some(id.number),
            key,
            key_base64,
            headers: headers.collect(),
            record: payload,
            record_base64: payload_base64,
            speculative: None,
        }
    }

    pub(crate) fn speculative(self, speculative: bool) -> Self {
        Self { speculative: Some(speculative), ..self }
    }

    /// The record to append. Ignores fields of readers (position, time, session, number,
    /// speculative), so that one log can be copied to another.
    pub(crate) fn parse(line: &[u8]) -> Result<Record, String> {
        let wrong = |cause| format!("not a record: {cause}; write a JSON object such as {EXAMPLE}");
        let line: Self = serde_json::from_slice(line).map_err(wrong)?;
        let payload = bytes_of("record", line.record, line.record_base64)?
            .ok_or("it has neither 'record' nor 'record_base64'")?;
        let mut headers = vec![];
        for header in line.headers {
            if header.kind < FIRST_KIND_OF_USERS {
                let kind = header.kind;
                return Err(format!("header {kind}: kinds below {FIRST_KIND_OF_USERS} belong to Seriatim"));
            }
            let value = bytes_of("value", header.value, header.value_base64)?.unwrap_or_default();
            headers.push(Header { kind: header.kind, value });
        }
        let record = Record::from(payload).with_headers(headers);
        Ok(match bytes_of("key", line.key, line.key_base64)? {
            Some(key) => record.with_key(key),
            None => record,
        })
    }
}

/// The bytes as text, or else in base64.
fn readable(bytes: &Bytes) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

fn bytes_of(name: &str, text: Option<String>, encoded: Option<String>) -> Result<Option<Bytes>, String> {
    match (text, encoded) {
        (Some(_), Some(_)) => Err(format!("it has both '{name}' and '{name}_base64'")),
        (Some(text), None) => Ok(Some(text.into())),
        (None, Some(encoded)) => match STANDARD.decode(encoded) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(cause) => Err(format!("{name}_base64: {cause}")),
        },
        (None, None) => Ok(None),
    }
}

/// A time in RFC 3339. None beyond the year 9999.
fn time(appended_ms: u64) -> Option<String> {
    const LAST_MS: u64 = 253_402_300_799_999;
    let at = UNIX_EPOCH + Duration::from_millis(appended_ms.min(LAST_MS));
    (appended_ms <= LAST_MS).then(|| humantime::format_rfc3339_millis(at).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_appended() {
        let headers = [Header { kind: 40_000, value: Bytes::from_static(b"\xff") }];
        let stored = StoredRecord::build(b"two\ncoffees", 1_700_000_000_123, Some(b"k"), &headers);
        let id = RecordId { session: "2a".parse().unwrap(), number: 7 };
        let printed = serde_json::to_string(&JsonRecord::delivered(Position(3), id, &stored)).unwrap();
        assert_eq!(
            printed,
            concat!(
                r#"{"position":3,"time":"2023-11-14T22:13:20.123Z","session":"0000000000000000000000000000002a","#,
                r#""number":7,"key":"k","headers":[{"kind":40000,"value_base64":"/w=="}],"record":"two\ncoffees"}"#
            )
        );
        let expected = Record::from(&b"two\ncoffees"[..]).with_key(&b"k"[..]).with_headers(headers.to_vec());
        assert_eq!(JsonRecord::parse(printed.as_bytes()), Ok(expected));
    }

    #[test]
    fn bytes_that_are_no_text_come_back() {
        let stored = StoredRecord::build(b"\xfe", u64::MAX, Some(b"\xff"), &[]);
        let id = RecordId { session: "1".parse().unwrap(), number: 0 };
        let printed = serde_json::to_string(&JsonRecord::delivered(Position(0), id, &stored)).unwrap();
        assert!(!printed.contains("time"), "{printed}");
        assert_eq!(
            JsonRecord::parse(printed.as_bytes()),
            Ok(Record::from(&b"\xfe"[..]).with_key(&b"\xff"[..]))
        );
    }

    #[test]
    fn the_example_is_a_record() {
        let example = JsonRecord::parse(EXAMPLE.as_bytes()).expect("it is valid");
        let header = Header { kind: 40_000, value: "urgent".into() };
        assert_eq!(example, Record::from("text").with_key("k").with_headers(vec![header]));
    }

    #[test]
    fn lines_that_are_no_records_are_told_apart() {
        for (line, what) in [
            (&b"two coffees"[..], "not a record"),
            (b"{}", "neither 'record'"),
            (br#"{"recrod": "x"}"#, "unknown field `recrod`"),
            (br#"{"record": "x", "record_base64": "eA=="}"#, "both 'record'"),
            (br#"{"record_base64": "?"}"#, "record_base64"),
            (br#"{"record": "x", "headers": [{"kind": 7, "value": "y"}]}"#, "header 7"),
            (br#"{"record": "x", "headers": [{"kind": 70000}]}"#, "not a record"),
        ] {
            let wrong = JsonRecord::parse(line).unwrap_err();
            assert!(wrong.contains(what), "{}: {wrong}", line.escape_ascii());
        }
    }
}
