//! Positions that a cut gives to names, and how far a replica has them (Scalog §3.3).
//!
//! A committed cut can have only one content, so what it binds is a version of the view that it was made in, whoever
//! says so: its leader, or a claim that follows the view. It is final from the first, and a replica gives it out as
//! soon as it has it and everything below in its own store, without knowing what others have. So the stable bound is
//! each replica's own.

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::storage::{Lacking, Ordered, StorageCommand};
use seriatim_model::{Address, Endpoint, Member, Position, Ticket, View, ViewNumber};

use super::message::Message;
use super::ordering::not_below;
use super::primary_backup::{Replica, Write, send};
use crate::deviation::Deviation;
use crate::roles::RoleEffect;

type Out = Vec<RoleEffect>;

/// A cut: who says so, the view that it was made in, and its first position.
pub(super) type Name = (ViewNumber, ViewNumber, Position);

/// How far the store has what cuts bound.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    /// Everything below is in the store durably, but for what the replica lacks.
    pub(super) end: Position,
    /// Parts that are in the store beyond, each with its end.
    parts: BTreeMap<Position, Position>,
    /// Parts on their way there.
    writing: VecDeque<(Ticket, Position, Position)>,
}

impl Reach {
    pub(super) fn from(end: Position) -> Self {
        Self { end, ..Self::default() }
    }

    /// A write had no room.
    pub(super) fn failed(&mut self, ticket: Ticket) {
        self.writing.retain(|(written, ..)| *written != ticket);
    }

    /// All writes up to this ticket are in the store.
    fn stored(&mut self, ticket: Ticket) {
        while let Some((_, first, end)) =
            self.writing.front().copied().filter(|(written, ..)| *written <= ticket)
        {
            self.writing.pop_front();
            self.add(first, end);
        }
    }

    fn add(&mut self, first: Position, end: Position) {
        let known = self.parts.entry(first).or_default();
        *known = end.max(*known);
        while let Some(entry) = self.parts.first_entry().filter(|entry| *entry.key() <= self.end) {
            self.end = self.end.max(entry.remove());
        }
    }
}

impl Replica {
    /// Primary: a committed cut. Clients are answered at once, for it is final.
    pub(super) fn cover(
        &mut self,
        leader: Address,
        (view, of, batch): Name,
        backups: Vec<Member>,
        length: u64,
        runs: Vec<Ordered>,
        out: &mut Out,
    ) {
        let arrival = self.options.deviates(Deviation::PositionsByArrival) && of == self.view_number();
        let first = if arrival { self.unordered.placed_end().max(self.stable) } else { batch };
        if of == self.view_number() && self.is_open() {
            self.answer_submitters(self.own(first, &runs), out);
        }
        let held_here = self.begin_batch(leader, (view, batch), &backups, vec![]);
        for backup in &backups {
            if self.batches[&(view, batch)].backups.contains(&backup.node) {
                let (incarnation, runs) = (backup.incarnation, runs.clone());
                let message = Message::ReplicateCover { view, of, batch, incarnation, length, runs };
                send(Address::Node(backup.node, Endpoint::Shard(self.shard)), message, out);
            }
        }
        if !held_here {
            self.hold_cover(Write::Primary(view, batch), (view, of, first), length, runs, out);
        }
    }

    /// Backup: the primary passes a committed cut on.
    pub(super) fn cover_as_backup(
        &mut self,
        primary: Address,
        (view, of, batch): Name,
        length: u64,
        runs: Vec<Ordered>,
        out: &mut Out,
    ) {
        self.hold_cover(Write::Backup(primary, view, batch), (view, of, batch), length, runs, out);
    }

    /// Whether a cut may be taken: under a claim, one of the view before; and in a view, once it is known to be
    /// registered and so where it starts.
    pub(super) fn obeys_cut(&self, from: Address, view: ViewNumber, of: ViewNumber, out: &mut Out) -> bool {
        self.accepts(from, view, out) && (of < view || self.is_open())
    }

    /// The shard's own names with their positions.
    fn own(
        &self,
        first: Position,
        runs: &[Ordered],
    ) -> impl Iterator<Item = (seriatim_model::IdRun, Position)> {
        let mut next = first;
        let placed = runs.iter().map(move |run| {
            let first = next;
            next = first + run.ids.count;
            (*run, first)
        });
        let shard = self.shard;
        placed.filter(move |(run, _)| run.shard == shard).map(|(run, first)| (run.ids, first))
    }

    /// Gives names their positions in the store, as far as it does not have them.
    fn hold_cover(
        &mut self,
        write: Write,
        (_, of, batch): Name,
        length: u64,
        runs: Vec<Ordered>,
        out: &mut Out,
    ) {
        let end = batch + runs.iter().map(|run| run.ids.count).sum::<u64>();
        // One that completes the view before says nothing of the local log of this one.
        if of == self.view_number() && self.is_open() {
            self.decided_at(end, length, out);
        }
        let (first, rest) = not_below(self.stable, batch, runs);
        if rest.is_empty() {
            return self.finish_write(write, out);
        }
        if self.lacks_name(&rest) {
            // It has reported less than that. Whoever pushes does so again.
            return;
        }
        self.unordered.place(of, first, self.shard, &rest);
        if self.hold(write, end, StorageCommand::Order { view: of, first, runs: rest }, out) {
            self.reach.writing.push_back((self.gate.issued(), first, end));
        }
    }

    fn lacks_name(&self, runs: &[Ordered]) -> bool {
        let own = runs.iter().filter(|run| run.shard == self.shard && !run.is_void);
        own.into_iter().any(|run| !self.unordered.missing(run.ids).is_empty())
    }

    /// Writes up to this ticket are in the store. What cuts bound by them is given out.
    pub(super) fn cuts_stored(&mut self, ticket: Ticket, out: &mut Out) {
        self.reach.stored(ticket);
        if self.is_open() && self.reach.end > self.stable {
            self.advance_stable(self.reach.end, out);
            self.finish_decided(out);
        }
    }

    /// A view that is registered begins: what lies below its start and is not here is lacking. A member of the view
    /// before has everything below `first`: that was completed on all of them.
    pub(super) fn lacks_below(&self, view: &View, begins: Position) -> Option<Lacking> {
        let (first, start) = (view.first, view.start);
        let missed = self.lacks.is_some_and(|lacks| lacks.end > start);
        if missed && self.memory.claim > view.number {
            // It learns of this view late: a later one passes it by as well.
            return self.lacks;
        }
        // Records in the store beyond the stable bound may have been completed for a claim that came to nothing.
        let from = if missed { self.stable } else { self.stable.max(first) };
        let lacks = self.lacks.map(|lacks| Lacking { end: lacks.end.min(start), ..lacks });
        // Where the shard joins there is nothing that it could lack.
        let is_behind = from < start && begins < start;
        if is_behind { Some(Lacking { from, end: start }.join(lacks)) } else { lacks }
    }

    /// The replica is no member of the view that is over: whatever that bound, and the next completes, passes it by.
    pub(super) fn misses_cuts(&mut self) {
        let missed = Lacking { from: self.stable, end: Position(u64::MAX) };
        self.lacks = Some(missed.join(self.lacks));
    }
}
