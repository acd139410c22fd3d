//! What a host writes to the node's journal about its roles.

use bytes::Bytes;
use seriatim_model::wire::{Encoder, Wire, wire_enum, wire_struct};
use seriatim_model::{Incarnation, LogConfig};

/// How a role began this life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Birth {
    pub(crate) config: LogConfig,
    pub(crate) incarnation: Incarnation,
}

wire_struct! { Birth { config, incarnation } }

/// An entry of the journal. The key says which role it is about.
#[derive(Debug)]
pub(crate) enum RoleRecord {
    /// An entry of the role's own.
    Own(Bytes),
    /// The role began here, with nothing.
    Born(Birth),
    /// The role is gone, with its store. Of the node itself: the log was deleted, and no role of it comes back.
    Gone,
    /// Orderly end of a role that keeps no journal: everything it knows.
    Closed { state: Option<Bytes> },
    /// A role that keeps no journal began to run again; what `Closed` said is used up.
    Reopened { incarnation: Incarnation },
    /// Of the node itself: which disk this is, a number that was drawn when its journal began.
    Disk { disk: u64 },
    /// Of the node itself: the disk was set back, and counts as another. What was said of roles before counts for nothing.
    SetBack { disk: u64 },
}

wire_enum! {
    RoleRecord {
        1 => Own(entry),
        2 => Born(birth),
        3 => Gone {},
        4 => Closed { state },
        5 => Reopened { incarnation },
        6 => Disk { disk },
        7 => SetBack { disk },
    }
}

/// What a checkpoint says about a role.
#[derive(Debug)]
pub(crate) struct RoleSnapshot {
    /// Nothing for the register, which is always there.
    pub(crate) birth: Option<Birth>,
    /// The entries that stand for everything the role wrote before.
    pub(crate) own: Vec<Bytes>,
}

wire_struct! { RoleSnapshot { birth, own } }

/// `RoleRecord::Own`, encoded without copying the entry.
pub(crate) fn own_record(entry: &[Bytes]) -> Vec<Bytes> {
    let mut head = Encoder::new();
    1u8.encode(&mut head);
    (entry.iter().map(Bytes::len).sum::<usize>() as u32).encode(&mut head);
    let mut chunks = head.finish();
    chunks.extend_from_slice(entry);
    chunks
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
}
