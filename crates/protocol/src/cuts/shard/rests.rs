//! The rest of a local log after its view: a fenced replica keeps the ids of records that no known
//! cut covers, for a closing cut.
//!
//! A process that took part in the view knows the order of its local log. It keeps the ids until a
//! later view is registered, with or without the replica. The records are in the store. A restarted
//! replica still has them and reports their ids, without the order.

use std::collections::VecDeque;

use seriatim_model::{Address, Ticket, Time, ViewNumber, limits};

use super::message::{Message, Rest, Submitted};
use super::{Chunk, LocalPath, Stored};
use crate::mutation::Mutation;
use crate::roles::RoleEffect;
use crate::shard::{Core, send};

/// Maximum number of reported runs. A local log is bounded and has no more.
const MOST_NAMES: usize = limits::RING_RECORDS;
/// Encoded bytes of one run.
const NAME_BYTES: usize = 16 + 3 * 8;
const _: () = assert!(MOST_NAMES * NAME_BYTES + 1024 < limits::MAX_FRAME_BYTES);

/// A local log that takes no more records.
///
/// Invariant: `parts` are consecutive from index `from` on.
#[derive(Clone, Debug)]
pub(super) struct Frozen {
    of: ViewNumber,
    from: u64,
    parts: Vec<(Submitted, Stored)>,
    /// The member and claim that asked while a write was under way.
    asked: Option<(Address, ViewNumber)>,
}

impl Frozen {
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

    fn persisted(&mut self, ticket: Ticket) {
        for (_, stored) in &mut self.parts {
            if matches!(stored, Stored::Writing(written) if *written <= ticket) {
                *stored = Stored::Durable;
            }
        }
    }

    /// Notes a failed write, before which the rest ends. Returns its names, if it belongs to this
    /// log.
    pub(super) fn failed(&mut self, ticket: Ticket) -> Option<Submitted> {
        let (names, stored) = self.parts.iter_mut().find(|(_, stored)| *stored == Stored::Writing(ticket))?;
        *stored = Stored::Failed(Time::ZERO);
        Some(*names)
    }

    fn is_being_written(&self) -> bool {
        self.parts.iter().any(|(_, stored)| matches!(stored, Stored::Writing(_)))
    }

    /// Ids of the durable part up to the first gap.
    fn durable(&self) -> Rest {
        let durable = self.parts.iter().take_while(|(_, stored)| *stored == Stored::Durable);
        Rest::LocalLog { from: self.from, names: durable.map(|(names, _)| *names).collect() }
    }
}

impl LocalPath {
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
                // No write is under way: the replica has confirmed that it is fenced.
                false => Rest::Held { names: self.ids.records().ids().iter().take(MOST_NAMES).collect() },
            });
            return send(from, Message::RestIs { view: claim, rest }, out);
        };
        frozen.asked = Some((from, claim));
        self.tell_rest(out);
    }

    pub(super) fn rest_stored(&mut self, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        if let Some(frozen) = &mut self.frozen {
            frozen.persisted(ticket);
            self.tell_rest(out);
        }
    }

    pub(super) fn tell_rest(&mut self, out: &mut Vec<RoleEffect>) {
        let Some(frozen) = self.frozen.as_mut().filter(|frozen| !frozen.is_being_written()) else { return };
        if let Some((to, view)) = frozen.asked.take() {
            send(to, Message::RestIs { view, rest: Some(frozen.durable()) }, out);
        }
    }
}
