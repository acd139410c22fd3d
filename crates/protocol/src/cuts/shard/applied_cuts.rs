//! Positions that a cut gives to names, and how far a replica has them (Scalog §3.3).
//!
//! A committed cut can have only one content, so what it binds is a version of the view that it was
//! made in, whether the leader of that says so or a claim that follows it. It is final from the
//! first, and a replica gives it out as soon as it has it and everything below in its own store,
//! without knowing what others have. So the stable bound is each replica's own.

use seriatim_model::storage::{MissingRange, Ordered, StorageCommand};
use seriatim_model::{Address, Endpoint, IdRun, Member, Position, ShardId, Ticket, View, ViewNumber};

use super::LocalPath;
use super::message::Message;
use crate::mutation::Mutation;
use crate::parts::held_ids::not_below;
use crate::roles::RoleEffect;
use crate::shard::{Core, Write, send};

type Out = Vec<RoleEffect>;

/// A cut: the view that says so, the view that it was made in, and its first position.
pub(super) type Name = (ViewNumber, ViewNumber, Position);

impl LocalPath {
    /// Primary: a committed cut. Clients are answered at once, for it is final.
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

    /// Gives names their positions in the store, as far as it does not have them.
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
        // One that completes the view before says nothing of the local log of this one.
        if of == core.view_number() && core.is_open() {
            self.note_decided(core, end, length, out);
        }
        let (first, rest) = not_below(core.stable, batch, runs);
        if rest.is_empty() {
            return core.finish_write(write, out);
        }
        if self.misses_names(core.shard, &rest) {
            // It has reported less than that. The cut is pushed again.
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

    /// Writes up to this ticket are in the store. What cuts bound by them is given out.
    pub(super) fn cuts_stored(&mut self, core: &mut Core, ticket: Ticket, out: &mut Out) {
        self.applied.stored(ticket);
        if core.is_open() && self.applied.end > core.stable {
            let end = self.applied.end;
            core.advance_stable(self, end, out);
            self.finish_decided(core, out);
        }
    }

    /// A view that is registered begins: what lies below its start and is not here is lacking. A
    /// member of the view before has everything below `first`: that was completed on all of them.
    /// Between that and the start lies what the closing cut covers. Whether that is here, the store
    /// tells: it was written as versions of this view, and the last part of it only after all
    /// others were on all replicas that were to hold them. What a replica was told before it
    /// restarted would not do: if the power fails after the view was registered and before anybody
    /// heard so, nobody would have it.
    pub(super) fn missing_below(core: &Core, view: &View, begins: Position) -> Option<MissingRange> {
        let (first, start) = (view.first, view.start);
        let missed = core.missing.is_some_and(|missing| missing.end > start);
        if missed && core.memory.claim > view.number {
            // It learns of this view late: a later one passes it by as well.
            return core.missing;
        }
        // Records in the store beyond the stable bound may have been completed for a claim that
        // came to nothing.
        let from = match missed {
            true => core.stable,
            false if core.end_under(view.number) >= start => start,
            false => core.stable.max(first),
        };
        let missing = core.missing.map(|missing| MissingRange { end: missing.end.min(start), ..missing });
        // Where the shard joins there is nothing that it could lack.
        let is_behind = from < start && begins < start;
        if is_behind { Some(MissingRange { from, end: start }.join(missing)) } else { missing }
    }

    /// The replica is no member of the view that is over: whatever that bound, and the next
    /// completes, passes it by.
    pub(super) fn misses_cuts(core: &mut Core) {
        let missed = MissingRange { from: core.stable, end: Position(u64::MAX) };
        core.missing = Some(missed.join(core.missing));
    }
}

/// Whether a cut may be taken: under a claim, one of the view before; and in a view, once it is
/// known to be registered and so where it starts.
pub(super) fn is_obeyed(core: &Core, from: Address, view: ViewNumber, of: ViewNumber, out: &mut Out) -> bool {
    core.accepts(from, view, out) && (of < view || core.is_open())
}

/// The shard's own names with their positions.
fn own(shard: ShardId, first: Position, runs: &[Ordered]) -> impl Iterator<Item = (IdRun, Position)> {
    let mut next = first;
    let placed = runs.iter().map(move |run| {
        let first = next;
        next = first + run.ids.count;
        (*run, first)
    });
    placed.filter(move |(run, _)| run.shard == shard).map(|(run, first)| (run.ids, first))
}
