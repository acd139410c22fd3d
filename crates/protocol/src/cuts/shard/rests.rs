//! The part of a local log that outlives its view for a while: a fenced replica keeps which records
//! it has that no cut is known to cover, so that a closing cut can cover them.
//!
//! A replica knows the order of its local log while its process lives that took part in the view,
//! until a later view is registered, whether or not that names it. The records are in the store,
//! and what is kept here is their ids. One that has restarted has its records all the same, and
//! says which they are.

use std::collections::VecDeque;

use seriatim_model::{Address, Ticket, Time, ViewNumber, limits};

use super::message::{Message, Rest, Submitted};
use super::{Chunk, LocalPath, Stored};
use crate::mutation::Mutation;
use crate::roles::RoleEffect;
use crate::shard::{Core, send};

/// How many runs of ids a replica tells at most: those of a local log, which is bounded, are no
/// more.
const MOST_NAMES: usize = limits::RING_RECORDS;
/// Bytes of one of them.
const NAME_BYTES: usize = 16 + 3 * 8;
const _: () = assert!(MOST_NAMES * NAME_BYTES + 1024 < limits::MAX_FRAME_BYTES);

/// A local log that is added to no more.
///
/// Invariant: `parts` follow each other from index `from` on.
#[derive(Clone, Debug)]
pub(super) struct Frozen {
    /// The view from whose start on indexes count.
    of: ViewNumber,
    from: u64,
    parts: Vec<(Submitted, Stored)>,
    /// The claim that asked while something was on its way to the store, and for whom.
    asked: Option<(Address, ViewNumber)>,
}

impl Frozen {
    /// The local log of view `of`, as far as it was not let go of.
    pub(super) fn new(of: ViewNumber, decided: u64, chunks: VecDeque<Chunk>) -> Self {
        let from = chunks.front().map_or(decided, |chunk| chunk.index);
        let follows = |end, chunk: &Chunk| (chunk.index == end).then(|| chunk.end());
        assert!(
            chunks.iter().try_fold(from, follows).is_some(),
            "the parts of a local log follow each other"
        );
        let parts = chunks.into_iter().map(|chunk| (chunk.names, chunk.stored)).collect();
        Self { of, from, parts, asked: None }
    }

    /// All writes up to this ticket are done.
    fn persisted(&mut self, ticket: Ticket) {
        for (_, stored) in &mut self.parts {
            if matches!(stored, Stored::Writing(written) if *written <= ticket) {
                *stored = Stored::Durable;
            }
        }
    }

    /// There was no room for a write: nothing from there on is of use. Returns whose the records
    /// were, if it was one of these.
    pub(super) fn failed(&mut self, ticket: Ticket) -> Option<Submitted> {
        let (names, stored) = self.parts.iter_mut().find(|(_, stored)| *stored == Stored::Writing(ticket))?;
        *stored = Stored::Failed(Time::ZERO);
        Some(*names)
    }

    fn is_being_written(&self) -> bool {
        self.parts.iter().any(|(_, stored)| matches!(stored, Stored::Writing(_)))
    }

    /// The ids of what is durable here without a gap.
    fn durable(&self) -> Rest {
        let durable = self.parts.iter().take_while(|(_, stored)| *stored == Stored::Durable);
        Rest::LocalLog { from: self.from, names: durable.map(|(names, _)| *names).collect() }
    }
}

impl LocalPath {
    /// A claim asks for the rest of view `of`.
    pub(super) fn asked_for_rest(
        &mut self,
        core: &Core,
        from: Address,
        (claim, of): (ViewNumber, ViewNumber),
        out: &mut Vec<RoleEffect>,
    ) {
        let Some(frozen) = self.frozen.as_mut().filter(|frozen| frozen.of == of) else {
            let was_member = core.view_number() == of && core.is_named();
            let rest = was_member.then(|| match core.options.mutates(Mutation::RestartedRest) {
                true => Rest::LocalLog { from: 0, names: vec![] },
                // Nothing is on its way to the store: it has said that it is fenced.
                false => Rest::Held { names: self.ids.records().ids().iter().take(MOST_NAMES).collect() },
            });
            return send(from, Message::RestIs { view: claim, rest }, out);
        };
        frozen.asked = Some((from, claim));
        self.tell_rest(out);
    }

    /// Writes up to this ticket are done: a claim that asked for the rest may get it now.
    pub(super) fn rest_stored(&mut self, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        if let Some(frozen) = &mut self.frozen {
            frozen.persisted(ticket);
            self.tell_rest(out);
        }
    }

    /// Tells a claim that asked for the rest, as soon as it is known how much of it is durable.
    pub(super) fn tell_rest(&mut self, out: &mut Vec<RoleEffect>) {
        let Some(frozen) = self.frozen.as_mut().filter(|frozen| !frozen.is_being_written()) else { return };
        if let Some((to, view)) = frozen.asked.take() {
            send(to, Message::RestIs { view, rest: Some(frozen.durable()) }, out);
        }
    }
}
