//! Binding logs: which positions and ids are where, and what else is remembered.

use seriatim_model::storage::{HardState, MissingRange, Owned};
use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{IdRun, Position, SessionId, TimeIndex, ViewNumber};

use super::Remembered;
use super::index::IndexRun;
use super::segment::Written;

/// An entry of a binding log. Written as in `packed.rs`; logs of version 1 have frames as in
/// `format.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// The records in `bytes` bytes of `segment` from `offset` on are versions of `view` at `count`
    /// positions from `first` on.
    Bind { view: ViewNumber, first: Position, count: u16, segment: u32, offset: u32, bytes: u32 },
    /// Positions below this never change again.
    Stable(Position),
    /// The memory of the replica.
    Remember(HardState),
    /// The same, with what it lacks.
    RememberMissing { memory: HardState, missing: Option<MissingRange> },
    /// The records in `bytes` bytes of `segment` from `offset` on are held by id: `count` numbers
    /// of the session from `first` on.
    Put { session: SessionId, first: u64, count: u16, segment: u32, offset: u32, bytes: u32 },
    /// The shards that the positions from `first` on belong to, as versions of `view`, and where
    /// the shard's own records are.
    Order { view: ViewNumber, first: Position, parts: Vec<OrderPart> },
    /// The ids at the positions from `first` on, which are versions of `view`.
    Ids { view: ViewNumber, first: Position, ids: IdRun, is_void: bool },
    /// Which shards the positions from `first` on belong to, as versions of `view`.
    Map { view: ViewNumber, first: Position, owned: Vec<Owned> },
    /// The ids among these that have no position are held no longer. None had one when this was
    /// written, except in logs of earlier builds.
    Discard(IdRun),
    /// The records of a run are versions of `view` at the positions from `first` on, and of another
    /// view as well.
    Refer { view: ViewNumber, first: Position, run: IndexRun },
    /// Ids of the session from `first` on that are held, told again because a log is packed that
    /// told them.
    Held { session: SessionId, first: u64, run: IndexRun },
    /// Which position was reached when: all that is known, or what is added.
    Times { times: TimeIndex, whole: bool },
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

/// Consecutive positions of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderPart {
    /// Other shards'.
    Elsewhere(Owned),
    /// The shard's own.
    Here(Bound),
}

wire_enum! { OrderPart { 1 => Elsewhere(owned), 2 => Here(bound) } }

/// Ids at consecutive positions of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) ids: IdRun,
    pub(super) is_void: bool,
    /// Where their records are; nowhere new if they are trimmed, or were at these positions before.
    pub(super) place: Option<IndexRun>,
}

wire_struct! { Bound { ids, is_void, place } }

impl OrderPart {
    /// How many positions.
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

    /// How many runs it tells of.
    pub(super) fn runs(&self) -> usize {
        match self {
            Self::Order { parts, .. } => parts.len(),
            Self::Map { owned, .. } => owned.len(),
            _ => 1,
        }
    }
}

impl Remembered {
    /// The entries that tell it.
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
