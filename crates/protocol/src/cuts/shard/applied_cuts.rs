//! The positions that cuts give to records, and a replica's progress in storing them (Scalog §3.3).
//!
//! A committed cut has only one content. So its bindings are final at once, and are versions of the
//! view that made it, also when a later claim sends it. A replica serves a record when its own
//! store has everything up to it, without knowing about other replicas. So each replica has its own
//! stable bound.

use seriatim_model::storage::{MissingRange, Ordered, StorageCommand};
use seriatim_model::{Address, Endpoint, IdRun, Member, Position, ShardId, Ticket, View, ViewNumber};

use super::LocalPath;
use super::message::Message;
use crate::mutation::Mutation;
use crate::parts::held_ids::not_below;
use crate::roles::RoleEffect;
use crate::shard::{Core, Write, send};

type Out = Vec<RoleEffect>;

/// Identity of a cut: sending view, view that made the cut, and first position.
pub(super) type Name = (ViewNumber, ViewNumber, Position);

impl LocalPath {
    /// Primary: answers clients at once, since a committed cut is final.
    pub(super) fn cover(
        &mut self,
        core: &mut Core,
        leader: Address,
        (view, of, batch): Name,
        backups: Vec<Member>,
        (length, runs): (u64, Vec<Ordered>),
        out: &mut Out,
    ) {
        let arrival = core.options.mutates(Mutation::PositionsByArrival) && of == core.view_number();
        let first = if arrival { self.ids.placed_end().max(core.stable) } else { batch };
        if of == core.view_number() && core.is_open() {
            self.answer_submitters(core, own(core.shard, first, &runs), out);
            self.note_committed(core, first, &runs, out);
        }
        let held_here = core.begin_batch(leader, (view, batch), &backups, vec![]);
        for backup in &backups {
            if core.batches[&(view, batch)].backups.contains(&backup.node) {
                let (incarnation, runs) = (backup.incarnation, runs.clone());
                let message = Message::ReplicateCover { view, of, batch, incarnation, length, runs };
                send(Address::Node(backup.node, Endpoint::Shard(core.shard)), message, out);
            }
        }
        if !held_here {
            self.hold_cover(core, Write::Primary(view, batch), (view, of, first), length, runs, out);
        }
    }

    /// Stores the bindings of a cut that the store lacks.
    pub(super) fn hold_cover(
        &mut self,
        core: &mut Core,
        write: Write,
        (_, of, batch): Name,
        length: u64,
        runs: Vec<Ordered>,
        out: &mut Out,
    ) {
        let end = batch + runs.iter().map(|run| run.ids.count).sum::<u64>();
        // A cut of the previous view does not concern this local log.
        if of == core.view_number() && core.is_open() {
            self.note_decided(core, end, length, out);
        }
        let (first, rest) = not_below(core.stable, batch, runs);
        if rest.is_empty() {
            return core.finish_write(write, out);
        }
        if self.misses_names(core.shard, &rest) {
            // A named record is missing here. The sender retransmits the cut.
            return;
        }
        self.ids.place(of, first, &rest);
        if core.hold(self, write, end, StorageCommand::Order { view: of, first, runs: rest }, out).is_some() {
            self.applied.writing(core.gate.issued(), first, end);
        }
    }

    pub(super) fn misses_names(&self, shard: ShardId, runs: &[Ordered]) -> bool {
        let own = runs.iter().filter(|run| run.shard == shard && !run.is_void);
        own.into_iter().any(|run| !self.ids.missing(run.ids).is_empty())
    }

    pub(super) fn cuts_stored(&mut self, core: &mut Core, ticket: Ticket, out: &mut Out) {
        self.applied.stored(ticket);
        if core.is_open() && self.applied.end > core.stable {
            let end = self.applied.end;
            core.advance_stable(self, end, out);
            self.finish_decided(core, out);
        }
    }

    /// Positions below the start of a registered view that this replica lacks.
    ///
    /// A member of the previous view has everything below `first`: those cuts were completed on all
    /// members. The closing cut covers `first..start`. The store tells whether it is here: its
    /// parts are versions of this view, and the last part was written only after all required
    /// replicas held the others. Memory would not suffice: after a power failure between
    /// registration and its announcement, no replica would know.
    pub(super) fn missing_below(core: &Core, view: &View, begins: Position) -> Option<MissingRange> {
        let (first, start) = (view.first, view.start);
        let missed = core.missing.is_some_and(|missing| missing.end > start);
        if missed && core.memory.claim > view.number {
            // The replica learns of this view late, and misses the view of a later claim as well.
            return core.missing;
        }
        // The store may have records above the stable bound that were completed for a failed claim.
        let from = match missed {
            true => core.stable,
            false if core.end_under(view.number) >= start => start,
            false => core.stable.max(first),
        };
        let missing = core.missing.map(|missing| MissingRange { end: missing.end.min(start), ..missing });
        // A shard that joins at the start lacks nothing below it.
        let is_behind = from < start && begins < start;
        if is_behind { Some(MissingRange { from, end: start }.join(missing)) } else { missing }
    }

    /// The replica is no member of the ended view: it misses all its cuts, also those completed
    /// later.
    pub(super) fn misses_cuts(core: &mut Core) {
        let missed = MissingRange { from: core.stable, end: Position(u64::MAX) };
        core.missing = Some(missed.join(core.missing));
    }
}

/// Whether to accept a cut. A claim may send cuts of earlier views. A view's own cuts are accepted
/// when its registration, which fixes the start, is known.
pub(super) fn is_obeyed(core: &Core, from: Address, view: ViewNumber, of: ViewNumber, out: &mut Out) -> bool {
    core.accepts(from, view, out) && (of < view || core.is_open())
}

fn own(shard: ShardId, first: Position, runs: &[Ordered]) -> impl Iterator<Item = (IdRun, Position)> {
    let mut next = first;
    let placed = runs.iter().map(move |run| {
        let first = next;
        next = first + run.ids.count;
        (*run, first)
    });
    placed.filter(move |(run, _)| run.shard == shard).map(|(run, first)| (run.ids, first))
}
