//! A host's journal entries about its roles.

use bytes::Bytes;
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, wire_enum, wire_struct};
use seriatim_model::{Incarnation, LogConfig};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incarnated {
    pub(crate) config: LogConfig,
    pub(crate) incarnation: Incarnation,
}

wire_struct! { Incarnated { config, incarnation } }

/// A journal entry. Its key names the role.
#[derive(Debug)]
pub(crate) enum RoleRecord {
    /// The role's own entry.
    Own(Bytes),
    /// The role began, empty.
    Began(Incarnated),
    /// The role and its store are gone. For the node itself: the log was deleted permanently.
    Gone,
    /// Orderly end of a role without a journal, with its whole state.
    Closed { state: Option<Bytes> },
    /// A role without a journal runs again; invalidates `Closed`.
    Reopened { incarnation: Incarnation },
    /// Number of the disk, for the node itself.
    Disk { disk: u64 },
    /// New number of a disk that was set back. Earlier entries of roles are invalid.
    SetBack { disk: u64 },
}

wire_enum! {
    RoleRecord {
        1 => Own(entry),
        2 => Began(began),
        3 => Gone {},
        4 => Closed { state },
        5 => Reopened { incarnation },
        6 => Disk { disk },
        7 => SetBack { disk },
    }
}

/// A role's part of a checkpoint.
#[derive(Debug)]
pub(crate) struct RoleSnapshot {
    /// `None` for the register, which always exists.
    pub(crate) began: Option<Incarnated>,
    /// Entries that replace all earlier ones.
    pub(crate) own: Vec<Bytes>,
}

wire_struct! { RoleSnapshot { began, own } }

impl RoleSnapshot {
    /// Encodes a snapshot with one entry, without copying it.
    pub(crate) fn encode_single(began: &Option<Incarnated>, entry: &[Bytes]) -> Vec<Bytes> {
        let mut out = Encoder::new();
        began.encode(&mut out);
        1u32.encode(&mut out);
        put_chunks(entry, &mut out);
        out.finish()
    }

    pub(crate) fn decode_parts(bytes: Bytes) -> Result<Self, WireError> {
        let mut input = Decoder::new(bytes);
        let mut whole = Self::decode(&mut input)?;
        while input.remaining() > 0 {
            whole.own.extend(Self::decode(&mut input)?.own);
        }
        Ok(whole)
    }
}

/// Encodes `RoleRecord::Own` without copying the entry.
pub(crate) fn own_record(entry: &[Bytes]) -> Vec<Bytes> {
    let mut head = Encoder::new();
    1u8.encode(&mut head);
    put_chunks(entry, &mut head);
    head.finish()
}

fn put_chunks(chunks: &[Bytes], out: &mut Encoder) {
    (chunks.iter().map(Bytes::len).sum::<usize>() as u32).encode(out);
    chunks.iter().for_each(|chunk| out.put_shared(chunk));
}

pub(crate) fn encode(record: &impl Wire) -> Vec<Bytes> {
    let mut out = Encoder::new();
    record.encode(&mut out);
    out.finish()
}

#[cfg(test)]
mod tests {
    use seriatim_model::wire::decode_one;

    use super::*;

    #[test]
    fn an_own_record_is_encoded_like_any_other() {
        let chunks = own_record(&[Bytes::from_static(b"ab"), Bytes::from_static(b"c")]);
        let RoleRecord::Own(entry) = decode_one(chunks.concat().into()).unwrap() else { panic!() };
        assert_eq!(entry, Bytes::from_static(b"abc"));
    }

    #[test]
    fn a_snapshot_with_one_entry_is_encoded_like_any_other_and_comes_in_parts() {
        let entry = [Bytes::from(vec![7; 5000]), Bytes::from_static(b"c")];
        let single = RoleSnapshot::encode_single(&None, &entry).concat();
        let other = RoleSnapshot { began: None, own: vec![entry.concat().into()] };
        assert_eq!(single, encode(&other).concat());
        let parts = RoleSnapshot::decode_parts([single.clone(), single].concat().into()).unwrap();
        assert_eq!(parts.own, [other.own.clone(), other.own].concat());
    }
}
