//! Transactions over several targets of a player, each in one record (a write-ahead log).
//!
//! ```text
//! header     kind 1, value: the version, one byte
//! payload    number of mutations (4 bytes); for each, the target id and the mutation, each after
//!            its length (4)
//! ```
//!
//! Example: the mutation `x` for the target `a` is the header value `01` and the payload
//! `01000000 01000000 61 01000000 78`.

use bytes::Bytes;

use crate::config::is_log_name;
use crate::limits::MAX_TRANSACTION_MUTATIONS;
use crate::record::{Header, Record};
use crate::wire::{self, Decoder, WireError};

/// Kind of the header that marks a record as a transaction.
pub const HEADER_KIND: u16 = 1;

/// Version of the format, the value of the header.
const VERSION: u8 = 1;

/// A target id and a mutation, whose meaning only the target knows. A target applies several
/// mutations in order, as a unit.
pub type Mutation = (String, Bytes);

/// Why mutations are no transaction, or a transaction cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalError {
    /// A later version of Seriatim wrote the record.
    #[error("the transaction has version {version}, and this program reads version {VERSION}: upgrade it")]
    Newer {
        /// The record's version.
        version: u8,
    },
    /// The record has the header of a transaction, but not its layout.
    #[error("the transaction is damaged: {0}")]
    Damaged(#[from] WireError),
    /// More mutations than [`MAX_TRANSACTION_MUTATIONS`].
    #[error("the transaction has {count} mutations; the most is {MAX_TRANSACTION_MUTATIONS}")]
    TooMany {
        /// Number of mutations.
        count: usize,
    },
    /// A target id breaks the rule for log names ([`is_log_name`]).
    #[error(
        "{id:?} cannot name a target: use 1 to 128 letters, digits, '-', '_' and '.', not starting with '-' or '.'"
    )]
    NotAnId {
        /// The id, shortened.
        id: String,
    },
}

/// The header of a transaction.
#[must_use]
pub fn header() -> Header {
    Header { kind: HEADER_KIND, value: Bytes::from_static(&[VERSION]) }
}

/// Encodes the payload of a transaction. No mutations are a valid transaction of no target.
///
/// # Errors
/// [`WalError::TooMany`] or [`WalError::NotAnId`].
pub fn encode(mutations: Vec<Mutation>) -> Result<Bytes, WalError> {
    check(&mutations)?;
    Ok(wire::encode_one(&mutations))
}

/// Decodes the mutations of a record, in order; each is a slice of the record. `None` if the record
/// is no transaction: it has no header of kind [`HEADER_KIND`].
///
/// # Errors
/// If the record is marked as a transaction and cannot be read.
pub fn decode(record: &Record) -> Result<Option<Vec<Mutation>>, WalError> {
    let mut marks = record.headers().into_iter().filter(|header| header.kind == HEADER_KIND);
    let Some(mark) = marks.next() else { return Ok(None) };
    match *mark.value {
        [VERSION] if marks.next().is_none() => {}
        [version, ..] if version > VERSION => return Err(WalError::Newer { version }),
        _ => return Err(WireError::Invalid("header of a transaction").into()),
    }
    let payload = record.payload();
    let count = Decoder::new(payload.clone()).peek::<u32>()? as usize;
    if count > MAX_TRANSACTION_MUTATIONS {
        return Err(WalError::TooMany { count });
    }
    let mutations: Vec<Mutation> = wire::decode_one(payload)?;
    check(&mutations)?;
    Ok(Some(mutations))
}

fn check(mutations: &[Mutation]) -> Result<(), WalError> {
    if mutations.len() > MAX_TRANSACTION_MUTATIONS {
        return Err(WalError::TooMany { count: mutations.len() });
    }
    match mutations.iter().find(|(id, _)| !is_log_name(id)) {
        Some((id, _)) => Err(WalError::NotAnId { id: id.chars().take(SHOWN_CHARS).collect() }),
        None => Ok(()),
    }
}

/// Characters of an invalid id in an error.
const SHOWN_CHARS: usize = 128;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(payload: &[u8], marks: &[&'static [u8]]) -> Record {
        let header = |value: &&'static [u8]| Header { kind: HEADER_KIND, value: Bytes::from_static(value) };
        Record::build(payload, 7, None, &marks.iter().map(header).collect::<Vec<_>>())
    }

    fn written(mutations: &[Mutation]) -> Record {
        Record::build(&encode(mutations.to_vec()).unwrap(), 7, Some(b"k"), &[header()])
    }

    #[test]
    fn the_format_never_changes() {
        let mutations = vec![("a".into(), Bytes::from_static(b"x")), ("b-1".into(), Bytes::new())];
        let golden = b"\x02\0\0\0\x01\0\0\0a\x01\0\0\0x\x03\0\0\0b-1\0\0\0\0";
        assert_eq!(encode(mutations.clone()).unwrap(), golden[..]);
        assert_eq!(decode(&record(golden, &[b"\x01"])), Ok(Some(mutations)));
        assert_eq!(decode(&record(b"\0\0\0\0", &[b"\x01"])), Ok(Some(vec![])));
        assert_eq!((header().kind, &header().value[..]), (1, &b"\x01"[..]));
    }

    #[test]
    fn mutations_are_slices_of_the_record() {
        let record = written(&[("a".into(), vec![7; 5_000].into()), ("a".into(), "x".into())]);
        let bounds = record.encoded().as_ptr_range();
        for (_, mutation) in decode(&record).unwrap().unwrap() {
            assert!(bounds.contains(&mutation.as_ptr()));
        }
    }

    #[test]
    fn records_without_the_header_are_no_transactions() {
        assert_eq!(decode(&record(b"\0\0\0\0", &[])), Ok(None));
        assert_eq!(decode(&Record::no_op()), Ok(None));
    }

    #[test]
    fn versions_and_marks_are_checked() {
        for newer in [&b"\x02"[..], b"\x02more"] {
            assert_eq!(decode(&record(b"?", &[newer])), Err(WalError::Newer { version: 2 }));
        }
        let damaged = Err(WireError::Invalid("header of a transaction").into());
        for marks in [&[&b""[..]][..], &[b"\0"], &[b"\x01x"], &[b"\x01", b"\x01"]] {
            assert_eq!(decode(&record(b"\0\0\0\0", marks)), damaged, "{marks:?}");
        }
    }

    #[test]
    fn mutations_have_a_limit() {
        let mutations = |count| vec![("a".to_owned(), Bytes::new()); count];
        let most = mutations(MAX_TRANSACTION_MUTATIONS);
        assert_eq!(decode(&written(&most)), Ok(Some(most)));
        let more = mutations(MAX_TRANSACTION_MUTATIONS + 1);
        let too_many = WalError::TooMany { count: 1_025 };
        assert_eq!(encode(more.clone()), Err(too_many.clone()));
        assert_eq!(decode(&record(&wire::encode_one(&more), &[b"\x01"])), Err(too_many));
        let lying = decode(&record(&[0xff; 64], &[b"\x01"]));
        assert_eq!(lying, Err(WalError::TooMany { count: u32::MAX as usize }));
    }

    #[test]
    fn target_ids_follow_the_rule_of_log_names() {
        for id in ["", "-a", ".a", "a/b", "é", &"a".repeat(129)] {
            let mutations = vec![(id.to_owned(), Bytes::new())];
            let refused = encode(mutations.clone()).unwrap_err();
            assert!(
                matches!(&refused, WalError::NotAnId { id: shown } if id.starts_with(shown)),
                "{refused}"
            );
            assert_eq!(decode(&record(&wire::encode_one(&mutations), &[b"\x01"])), Err(refused));
        }
        let not_text = decode(&record(b"\x01\0\0\0\x01\0\0\0\xff\0\0\0\0", &[b"\x01"]));
        assert_eq!(not_text, Err(WireError::Invalid("UTF-8 text").into()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn transactions_come_back_and_no_part_of_one_is_one(
            mutations in proptest::collection::vec(
                ("[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,20}", proptest::collection::vec(any::<u8>(), 0..2_000)), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mutations =
                mutations.into_iter().map(|(id, mutation)| (id, mutation.into())).collect::<Vec<Mutation>>();
            let whole = written(&mutations);
            prop_assert_eq!(decode(&whole), Ok(Some(mutations)));
            let payload = whole.payload();
            let cut = record(&payload[..cut.index(payload.len())], &[b"\x01"]);
            prop_assert!(matches!(decode(&cut), Err(WalError::Damaged(_))));
            let longer = record(&[&payload[..], b"x"].concat(), &[b"\x01"]);
            prop_assert_eq!(decode(&longer), Err(WireError::LeftOver(1).into()));
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            count in 0u32..3, rest in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..64),
        ) {
            let payload = [&count.to_le_bytes()[..], &rest].concat();
            if let Ok(mutations) = decode(&record(&payload, &[b"\x01"])) {
                let mutations = mutations.expect("it has the header");
                prop_assert_eq!(encode(mutations).unwrap(), payload);
            }
        }
    }
}
