//! Copying of missing and damaged records.

use std::time::Duration;

use seriatim_model::storage::{MissingRange, Owned, StorageCommand, Stored};
use seriatim_model::{Address, Endpoint, Member, Position, Ticket, Time, ViewNumber};

use super::catch_up::{as_mapped, as_pushed};
use super::core::Core;
use super::former::NEEDED_FOR;
use super::message::Message;
use super::path::DataPath;
use super::read_error::ReadError;
use super::readers::{Outcome, OwnOutcome};
use crate::mutation::Mutation;
use crate::roles::RoleEffect;

/// Pause between two scrub reads after a restart.
const SCRUB_EVERY: Duration = Duration::from_millis(20);
const SCRUB_TIMEOUT: Duration = Duration::from_secs(5);

impl Core {
    pub(super) fn got(
        &mut self,
        path: &mut dyn DataPath,
        now: Time,
        (from, request): (Address, u64),
        (records, owned): (Vec<Stored>, Vec<Owned>),
        upto: Position,
        out: &mut Vec<RoleEffect>,
    ) {
        self.catch_up.former.heard(from, request);
        if let Some((from, records)) = self.catch_up.records(now, request, records, upto) {
            let before = self.gate.issued();
            // Stays 0 if there is nothing to write.
            let mut ticket = Ticket(0);
            for (view, runs) in as_pushed(&self.memory.history, records) {
                ticket = self.gate.store(StorageCommand::Bind { view, runs }, out);
            }
            for (view, first, owned) in as_mapped(&self.memory.history, from, owned) {
                ticket = self.gate.store(StorageCommand::Map { view, first, owned }, out);
            }
            self.catch_up.writing(before, ticket);
            if self.gate.is_durable(ticket) {
                self.copied(path, ticket, out);
            }
        }
        self.copy(path, now, out);
    }

    pub(super) fn copied(&mut self, path: &mut dyn DataPath, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        if let Some(missing) = self.catch_up.written(ticket, self.missing) {
            let (before, lacked) = (self.before(path), self.missing);
            self.missing = missing;
            self.leave_gaps();
            self.remember(before, out);
            keeps_more(self, path, lacked, out);
        }
    }

    pub(super) fn copy(&mut self, path: &mut dyn DataPath, now: Time, out: &mut Vec<RoleEffect>) {
        if !gets_records(self) {
            return;
        }
        let is_complete = self.knows_trim() && copies(self).is_some_and(MissingRange::is_empty);
        if is_complete && self.catch_up.may_finish(now) {
            let (before, lacked) = (self.before(path), self.missing);
            self.missing = None;
            self.remember(before, out);
            keeps_more(self, path, lacked, out);
        }
        let missing = copies(self);
        if self.catch_up.deadline(missing).is_none_or(|at| now < at) {
            return;
        }
        if self.pressed {
            self.catch_up.yield_to_appends(now);
        }
        let others = others(self);
        // The positions before a gap come first.
        let next = missing.map(|range| {
            let gap = self.memory.history.gaps_of(self.shard).find(|gap| gap.from > range.from);
            gap.map_or(range, |gap| MissingRange { end: range.end.min(gap.from), ..range })
        });
        self.catch_up.keep(now, (self.shard, self.trim), next, out);
        let decided_by = decided_by(self, now, next);
        self.catch_up.ask(now, self.shard, (&others, decided_by), self.trim, next, out);
    }

    /// Serves a reader. If the reader is a replica, it is catching up, and may need former
    /// replicas.
    pub(super) fn serve_reader(
        &mut self,
        path: &dyn DataPath,
        now: Time,
        reader: Address,
        message: Message,
        out: &mut Vec<RoleEffect>,
    ) {
        if let (Address::Node(_, Endpoint::Shard(_)), Message::Read { end, .. }) = (reader, &message) {
            if *end > self.stable {
                // The asking replica knows that these positions are final, and retries.
                self.ask_primary(out);
            }
            match self.is_named() {
                true => self.catch_up.former.keep_for_another(now, (self.shard, self.trim), out),
                false => self.needed_until = now + NEEDED_FOR,
            }
        }
        self.readers.receive(now, reader, message, &self.bounds(path), out);
    }

    pub(super) fn scrub(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let Some(from) = self.scrub.filter(|_| self.is_open() && now >= self.scrub_at) else { return };
        self.scrub_at = now + SCRUB_TIMEOUT;
        self.readers.scrub(from.max(self.trim), self.stable, out);
    }

    /// Schedules the repair of a damaged record that a read found. Returns the outcome of the data
    /// path's own read.
    pub(super) fn take_read(&mut self, now: Time, outcome: Outcome) -> Option<(u64, OwnOutcome)> {
        let is_needed = |position: &Position| {
            let mut gaps = self.memory.history.gaps_of(self.shard);
            (self.trim..self.stable).contains(position) && !gaps.any(|gap| gap.contains(*position))
        };
        if let Some(position) = outcome.damaged.filter(is_needed) {
            self.catch_up.add_damaged(position);
        }
        if let Some(upto) = outcome.scrubbed {
            self.scrub = (upto < self.stable).then_some(upto);
            self.scrub_at = now + SCRUB_EVERY;
        }
        outcome.own
    }
}

pub(super) fn not_got(
    core: &mut Core,
    path: &mut dyn DataPath,
    now: Time,
    (from, request): (Address, u64),
    error: ReadError,
    out: &mut Vec<RoleEffect>,
) {
    core.catch_up.former.heard(from, request);
    let mut members = core.members().into_iter().flat_map(|members| &members.replicas);
    let is_member = matches!(from, Address::Node(node, _) if members.any(|member| member.node == node));
    match error {
        // Only a replica in a view: after a fence, the trim point of its `Fenced` answer counts.
        // Only from a member: an outside replica may have missed a trim, or trimmed positions that
        // the log assigned again after an accepted loss.
        ReadError::Trimmed { first } if first <= core.stable && core.is_open() && is_member => {
            core.catch_up.learned_trim(now, request);
            core.trim_below(first, out);
        }
        ReadError::Trimmed { first } if core.kept().is_some_and(|kept| first <= kept.ends) => {
            core.catch_up.learned_trim(now, request);
            core.advance_stable(path, first, out);
            core.trim_below(first, out);
        }
        ReadError::Missing { .. } => core.catch_up.not_there(now, request),
        ReadError::Damaged { .. } | ReadError::Trimmed { .. } => core.catch_up.refused(now, request, true),
        // Includes `Lost`: this replica does not know that view yet.
        _ => core.catch_up.refused(now, request, false),
    }
}

/// Raises the stable bound of a retired shard's copy as catch-up fills it. No cut announces these
/// positions; the source replica knew them to be final.
fn keeps_more(
    core: &mut Core,
    path: &mut dyn DataPath,
    lacked: Option<MissingRange>,
    out: &mut Vec<RoleEffect>,
) {
    let Some((ends, until)) = core.kept().map(|kept| (kept.ends, kept.until)) else { return };
    if lacked.is_some_and(|lacked| lacked.end >= ends) {
        let held = core.missing.map_or(until, |missing| missing.from.min(ends));
        core.advance_stable(path, held, out);
    }
}

/// Whether a replica copies records: as a member of a view, or as a copy of a retired shard.
pub(super) fn gets_records(core: &Core) -> bool {
    core.is_open() || core.kept().is_some()
}

pub(super) fn copies(core: &Core) -> Option<MissingRange> {
    let is_left = core.kept().is_some() && core.options.mutates(Mutation::RetiredUncopied);
    core.missing.filter(|_| gets_records(core) && !is_left)
}

/// The other members, or the other copies of the retired shard.
fn others(core: &Core) -> Vec<Member> {
    let of_view = || core.members().map(|members| &members.replicas[..]).unwrap_or_default();
    let replicas = core.kept().map_or_else(of_view, |kept| &kept.copies);
    replicas.iter().filter(|member| member.node != core.node).copied().collect()
}

/// The latest view that decides about the positions of the next question. Only outside replicas
/// that know this view are asked.
fn decided_by(core: &Core, now: Time, missing: Option<MissingRange>) -> Option<ViewNumber> {
    // These mutations are visible only if no former replica has the record.
    let is_alone = [Mutation::FormerNotAsked, Mutation::RepairWaits];
    if is_alone.iter().any(|mutation| core.options.mutates(*mutation)) {
        return None;
    }
    let range = core.catch_up.wants(now, core.trim, missing).filter(|range| !range.is_empty())?;
    core.memory.history.cover(Position(range.end.0.checked_sub(1)?))
}
