//! Entries of binding logs.

use seriatim_model::storage::{HardState, MissingRange, Owned};
use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{IdRun, Position, SessionId, TimeIndex, ViewNumber};

use super::Remembered;
use super::index::IndexRun;
use super::segment::Written;

/// An entry of a binding log. Encoded as in `packed.rs`; in version 1 as a frame of `format.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// `count` positions from `first` on have, in `view`, the records in these bytes.
    Bind {
        view: ViewNumber,
        first: Position,
        count: u16,
        segment: u32,
        offset: u32,
        bytes: u32,
    },
    /// All positions below this one are final.
    Stable(Position),
    Remember(HardState),
    RememberMissing {
        memory: HardState,
        missing: Option<MissingRange>,
    },
    /// `count` ids from `first` on are held, with their records in these bytes.
    Put {
        session: SessionId,
        first: u64,
        count: u16,
        segment: u32,
        offset: u32,
        bytes: u32,
    },
    /// The owning shards of the positions from `first` on, and the bytes of this shard's records.
    Order {
        view: ViewNumber,
        first: Position,
        parts: Vec<OrderPart>,
    },
    /// The ids at the positions from `first` on. `is_void`: their records are no-ops.
    Ids {
        view: ViewNumber,
        first: Position,
        ids: IdRun,
        is_void: bool,
    },
    /// The owning shards of the positions from `first` on.
    Map {
        view: ViewNumber,
        first: Position,
        owned: Vec<Owned>,
    },
    /// Ids without positions, which are no longer held. In logs of earlier builds some of them may
    /// have positions: such ids stay.
    Discard(IdRun),
    /// The positions from `first` on share the records of a run with another view.
    Refer {
        view: ViewNumber,
        first: Position,
        run: IndexRun,
    },
    /// Ids from `first` on are held, with their records in `run`. Repeats an entry of a log that is
    /// rewritten.
    Held {
        session: SessionId,
        first: u64,
        run: IndexRun,
    },
    /// Times at which positions were reached: all known times (`whole`), or additions.
    Times {
        times: TimeIndex,
        whole: bool,
    },
}

wire_enum! {
    Binding {
        1 => Bind { view, first, count, segment, offset, bytes },
        2 => Stable(position),
        3 => Remember(memory),
        4 => RememberMissing { memory, missing },
        5 => Put { session, first, count, segment, offset, bytes },
        6 => Order { view, first, parts },
        7 => Ids { view, first, ids, is_void },
        8 => Map { view, first, owned },
        9 => Discard(ids),
        10 => Refer { view, first, run },
        11 => Held { session, first, run },
        12 => Times { times, whole },
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderPart {
    Elsewhere(Owned),
    Here(Bound),
}

wire_enum! { OrderPart { 1 => Elsewhere(owned), 2 => Here(bound) } }

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) ids: IdRun,
    pub(super) is_void: bool,
    /// The records' bytes. `None` if the records are trimmed, or unchanged at these positions.
    pub(super) place: Option<IndexRun>,
}

wire_struct! { Bound { ids, is_void, place } }

impl OrderPart {
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Elsewhere(owned) => owned.count,
            Self::Here(bound) => bound.ids.count,
        }
    }
}

impl Binding {
    pub(super) fn bind(view: ViewNumber, first: Position, segment: u32, written: Written) -> Self {
        let Written { count, offset, bytes } = written;
        Self::Bind { view, first, count, segment, offset, bytes }
    }

    pub(super) fn put(session: SessionId, first: u64, segment: u32, written: Written) -> Self {
        let Written { count, offset, bytes } = written;
        Self::Put { session, first, count, segment, offset, bytes }
    }

    pub(super) fn runs(&self) -> usize {
        match self {
            Self::Order { parts, .. } => parts.len(),
            Self::Map { owned, .. } => owned.len(),
            _ => 1,
        }
    }
}

impl Remembered {
    pub(super) fn bindings(&self) -> Vec<Binding> {
        let memory = self.memory.clone().map(|memory| match self.missing {
            None => Binding::Remember(memory),
            missing => Binding::RememberMissing { memory, missing },
        });
        let times = Some(self.times.clone()).filter(|times| *times != TimeIndex::default());
        let times = times.map(|times| Binding::Times { times, whole: true });
        memory.into_iter().chain([Binding::Stable(self.stable)]).chain(times).collect()
    }
}
