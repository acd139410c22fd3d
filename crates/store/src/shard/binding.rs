//! Binding logs: which positions are where, and what else is remembered.

use bytes::Bytes;
use seriatim_model::storage::{Lacking, ShardMemory};
use seriatim_model::wire::wire_enum;
use seriatim_model::{Position, ViewNumber};

use super::Remembered;
use super::segment::Put;
use crate::format::encode_frame;

/// An entry of a binding log. Framed as in `format.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// The records in `bytes` bytes of `segment` from `offset` on are versions of `view` at `count`
    /// positions from `first` on.
    Bind { view: ViewNumber, first: Position, count: u16, segment: u32, offset: u32, bytes: u32 },
    /// Positions below this never change again.
    Stable(Position),
    /// What the replica remembers.
    Remember(ShardMemory),
    /// The same, with what it lacks.
    RememberLacking { memory: ShardMemory, lacks: Option<Lacking> },
}

wire_enum! {
    Binding {
        1 => Bind { view, first, count, segment, offset, bytes },
        2 => Stable(position),
        3 => Remember(memory),
        4 => RememberLacking { memory, lacks },
    }
}

impl Binding {
    pub(super) fn bind(view: ViewNumber, segment: u32, put: Put) -> Self {
        let Put { first, count, offset, bytes } = put;
        Self::Bind { view, first, count, segment, offset, bytes }
    }

    pub(super) fn encode_all(bindings: &[Self]) -> Bytes {
        let mut out = Vec::new();
        for binding in bindings {
            encode_frame(binding, &mut out);
        }
        out.into()
    }
}

impl Remembered {
    /// The entries that a binding log starts with.
    pub(super) fn bindings(&self) -> Vec<Binding> {
        let memory = self.memory.clone().map(|memory| match self.lacks {
            None => Binding::Remember(memory),
            lacks => Binding::RememberLacking { memory, lacks },
        });
        memory.into_iter().chain([Binding::Stable(self.stable)]).collect()
    }
}
