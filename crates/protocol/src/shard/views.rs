//! The views of a log as one of its replicas sees them: it is fenced for one, learns that it is
//! registered, and takes part in it. What it remembers of that is written before anything is said
//! that relies on it.

use std::cmp::Ordering;

use seriatim_model::storage::{MissingRange, StorageCommand};
use seriatim_model::{
    Address, Endpoint, LogEntry, Member, NodeId, Position, RetiredShard, ShardMembers, Ticket, Time, View,
    ViewHistory, ViewNumber,
};

use super::answered::Answered;
use super::core::{Core, Kept};
use super::former::NEEDED_FOR;
use super::path::{DataPath, Retired};
use super::unstored::Before;
use crate::control::message::Message as Control;
use crate::mutation::{Mutation, Options};
use crate::parts::claims;
use crate::roles::RoleEffect;

type Out = Vec<RoleEffect>;

impl Core {
    /// A controller forms another view: nothing below its claim is obeyed from now on.
    pub(super) fn fence(
        &mut self,
        path: &mut dyn DataPath,
        now: Time,
        from: Address,
        claim: ViewNumber,
        entry: &LogEntry,
        out: &mut Out,
    ) {
        let known = self.view_number().max(self.reports.cannot_start());
        if claim >= self.memory.claim && claims::shows_register_behind(claim, entry.view_number(), known) {
            // The register was set back: what it would have in place of that view is older.
            let message = Control::Ahead { claim, view: known };
            return out.push(RoleEffect::Send { to: from, message: message.into() });
        }
        self.reports.back_off(now);
        if claim > self.memory.claim {
            self.trim_as_wanted(out);
            self.retired = None;
            let before = self.before(path);
            // A view that was registered, and that it did not see start, is the old view now.
            self.learn(path, now, entry, out);
            let started_at = learn_flushed(self, path, entry);
            let is_fresh = entry.view.as_ref().is_none_or(|view| view.shard(self.shard).is_none());
            let was_member = is_fresh || self.is_named() && self.view_number() == entry.view_number();
            if !was_member {
                // A replica that is away may also miss a trim.
                self.missing.get_or_insert(MissingRange { from: self.stable, end: self.stable });
                path.passed_over(self, out);
            }
            self.memory.claim = claim;
            self.memory.config = entry.config.clone();
            self.stop_batches(path, out);
            path.fenced(claim);
            self.drop_unstable();
            self.remember(before, out);
            started_at.into_iter().for_each(|start| self.raise_stable(path, start, out));
        }
        self.gate.confirm(from, self.fenced(), out);
    }

    /// The replicas that pushed batches do not count any more.
    fn stop_batches(&mut self, path: &mut dyn DataPath, out: &mut Out) {
        self.batches.clear();
        self.answered = Answered::default();
        self.writes.clear();
        path.stopped(self, out);
        self.readers.forget_predictions(self.stable);
    }

    /// Takes note of a registered view that names it and that it was fenced for. Returns whether
    /// there was one to take note of. The caller writes it to the hard state.
    fn learn(&mut self, path: &mut dyn DataPath, now: Time, entry: &LogEntry, out: &mut Out) -> bool {
        let Some(view) = &entry.view else { return false };
        let Some(members) = view.shard(self.shard) else { return false };
        let named = members.replicas.contains(&self.me());
        if view.number <= self.view_number() || !named || self.memory.claim < view.number {
            return false;
        }
        if !self.is_named() {
            self.catch_up.start_as_new(now, self.options);
        }
        self.catch_up.joins(stands_in(self, entry, members), self.options);
        // A replica that was away may also have missed a trim: one that the history tells of, and
        // later ones.
        self.trim_below(entry.history.start(), out);
        self.raise_stable(path, entry.history.start(), out);
        // Where the shard had not joined, the replica can miss nothing.
        let from = self.trim.max(members.begins);
        let missing = path.missing(self, view, &entry.history, members.begins);
        self.missing = missing.map(|range| range.not_below(from));
        self.ends = self.ends.split_off(&view.number);
        path.learned(view);
        if let Some((known, before)) =
            self.memory.view.as_ref().and_then(|known| Some((known, known.shard(self.shard)?)))
        {
            self.catch_up.former.succeed(known.number, before, members);
        }
        self.take_view(view, &entry.history);
        self.catch_up.restart();
        if self.knows_trim() && self.missing.is_some_and(MissingRange::is_empty) {
            // An operator gave up all that the replica lacked, and no replica has more: it counts,
            // also if the next view comes at once.
            self.missing = None;
        }
        true
    }

    /// Knows this view from now on, and what was decided up to it.
    fn take_view(&mut self, view: &View, history: &ViewHistory) {
        self.leftovers.in_another_view();
        self.memory.view = Some(remembered(view, &self.options));
        self.memory.history = history.clone();
        self.memory.history.forget_below(self.trim);
        self.leave_gaps();
    }

    /// No replica has to give what is lost, and a damaged record neither where it is trimmed.
    pub(super) fn leave_gaps(&mut self) {
        let gaps = self.memory.history.gaps_of(self.shard);
        self.catch_up.leave_damage(self.trim, gaps.clone());
        self.missing = self.missing.map(|range| range.without(gaps.clone()));
    }

    /// The mutation: versions at or above the stable bound count for nothing any more.
    fn drop_unstable(&mut self) {
        if self.options.mutates(Mutation::FenceDrops) {
            self.memory.history.push(self.memory.claim, self.stable);
        }
    }

    /// A view is registered.
    pub(super) fn registered(&mut self, path: &mut dyn DataPath, now: Time, entry: &LogEntry, out: &mut Out) {
        let Some(view) = &entry.view else { return };
        if view.number < self.view_number() || view.number == self.view_number() && !self.restarted {
            return;
        }
        let before = self.before(path);
        if !self.learn(path, now, entry, out) {
            match view.number.cmp(&self.reports.cannot_start()) {
                // That came late: a later one is known.
                Ordering::Less => return,
                Ordering::Equal => {}
                // It is not counted on there: only a new view can bring it back. Those in its place
                // may need it first.
                Ordering::Greater => self.needed_until = now + NEEDED_FOR,
            }
            self.reports.note(now, view.number);
            if view.number > self.memory.claim {
                // No controller fenced it, but its view is over: it is as if one had.
                self.memory.claim = view.number;
                self.stop_batches(path, out);
                self.remember(before, out);
            }
            path.left_out();
            self.retired = None;
            learn_retired(self, path, now, entry, out);
            return;
        }
        self.retired = None;
        path.entering(view.first);
        self.drop_unstable();
        self.restarted = false;
        self.reports.started();
        self.remember(before, out);
        // That the view's start is stable is part of what was just remembered.
        self.raise_stable(path, view.start, out);
        path.entered(self, now, out);
        if self.is_closed() {
            // A record that was put and is not bound by now never will be: no sequencing replica
            // admits ids of this shard any more.
            path.discard_unplaced(self, out);
        }
    }

    /// Nothing of this write is there: it is not answered, and comes again. A change of what is
    /// remembered is taken back: what the replica does with records, its store has to know.
    pub(super) fn store_failed(&mut self, path: &mut dyn DataPath, now: Time, ticket: Ticket, out: &mut Out) {
        path.failed(self, now, ticket, out);
        self.readers.discard_reads_beyond(self.stable);
        self.catch_up.failed(now, ticket);
        self.leftovers.failed(ticket);
        self.writes.retain(|(written, ..)| *written != ticket);
        self.gate.failed(ticket);
        self.trim_refused |= self.trim_write == ticket;
        if let Some(before) = self.unstored.failed(ticket) {
            let Before { memory, stable, restarted, missing, applied } = before;
            // The replica asks again for the records of a retired shard.
            self.retired = None;
            // Positions that were trimmed meanwhile were final.
            (self.memory, self.stable) = (memory, stable.max(self.trim));
            self.restarted = restarted;
            self.missing = missing.map(|range| range.not_below(self.trim));
            self.leave_gaps();
            self.readers.discard_reads();
            self.readers.forget_predictions(self.stable);
            path.taken_back(self, applied);
        }
        self.predict(path, out);
    }

    /// Writes what is remembered, as it is now, in place of what it was `before`.
    pub(super) fn remember(&mut self, before: Before, out: &mut Out) {
        let (claim, view) = (self.memory.claim, self.view_number());
        assert!(claim >= view, "a replica of view {view} obeys claim {claim}");
        self.write_refused_trim(out);
        let memory = self.memory.clone();
        let command = match (before.missing, self.missing) {
            (None, None) => StorageCommand::Remember(memory),
            (_, missing) => StorageCommand::RememberMissing { memory, missing },
        };
        let ticket = self.gate.store(command, out);
        self.unstored.left(ticket, before);
    }

    pub(super) fn before(&self, path: &dyn DataPath) -> Before {
        Before {
            memory: self.memory.clone(),
            stable: self.stable,
            restarted: self.restarted,
            missing: self.missing,
            applied: path.applied().cloned(),
        }
    }

    /// The replica does not know any more what came in this view: it takes part in nothing before
    /// the next one.
    pub(crate) fn sit_out(&mut self) {
        self.restarted = true;
    }
}

/// Whether the replica is in the view in place of a member that is away: the log does not assign
/// the shard to its node, and the view does without a node that has it assigned.
fn stands_in(core: &Core, entry: &LogEntry, members: &ShardMembers) -> bool {
    let assigned = entry.shards.get(core.shard.0 as usize).map(Vec::as_slice).unwrap_or_default();
    let is_away = |node: &NodeId| members.replicas.iter().all(|member| member.node != *node);
    !assigned.contains(&core.node) && assigned.iter().any(is_away)
}

/// The view as a replica remembers it.
fn remembered(view: &View, options: &Options) -> View {
    let mut view = view.clone();
    if options.mutates(Mutation::JoinForgotten) {
        view.shards.iter_mut().for_each(|members| members.begins = Position::ZERO);
    }
    view
}

/// An earlier incarnation here was a member of the registered view, had all that it began with, and
/// lost its memory before it heard of the registration. The store tells so: this replica knows that
/// view as if the other had heard of it. Below where that begins to decide it has what it knows to
/// be final, if no other view came in between. Returns where the view started: that is stable once
/// this is remembered.
fn learn_flushed(core: &mut Core, path: &dyn DataPath, entry: &LogEntry) -> Option<Position> {
    let (view, known, me) = (entry.view.as_ref()?, core.view_number(), core.me());
    let is_earlier = |member: &Member| member.node == me.node && *member != me;
    let was_member = view.shard(core.shard)?.replicas.iter().any(is_earlier);
    let next = entry.history.steps().iter().find(|(number, _)| *number > known);
    let is_next = next.is_some_and(|(number, _)| *number == view.number);
    let is_flushed = view.first < view.start && path.has_flushed(core, view);
    if !was_member || !is_next || !is_flushed || core.stable < view.first {
        return None;
    }
    core.take_view(view, &entry.history);
    Some(view.start)
}

/// A registered view does without the shard, and not without what it has. The last view that had it
/// may have begun without this replica's hearing of it.
fn learn_retired(core: &mut Core, path: &mut dyn DataPath, now: Time, entry: &LogEntry, out: &mut Out) {
    let Some(view) = &entry.view else { return };
    let Some(retired) = view.retired(core.shard) else { return };
    let before = core.before(path);
    let last = LogEntry { view: Some(retired.last.clone()), ..entry.clone() };
    let is_new = core.learn(path, now, &last, out);
    entry.history.gaps_of(core.shard).for_each(|gap| core.memory.history.give_up(gap));
    core.memory.history.forget_below(core.trim);
    if is_new || core.memory.history != before.memory.history {
        core.leave_gaps();
        core.remember(before, out);
    }
    if is_new {
        core.raise_stable(path, retired.last.start, out);
    }
    let (of, ends) = (retired.last.number, retired.ends(&entry.history));
    core.retired = Some(Kept { of, until: retired.until, ends, copies: retired.copies().replicas.clone() });
    // Positions beyond the end are not the shard's.
    let below = MissingRange { from: Position::ZERO, end: retired.until };
    core.missing = core.missing.map(|missing| missing.meet(below));
    if retired.has_copy_on(core.node) {
        core.catch_up.copy_all();
    }
    if !core.is_named() || core.view_number() != of {
        keep_copy(core, path, retired, &entry.history, out);
    }
    let leader = Address::Node(view.leader, Endpoint::Sequencer);
    path.retired(core, now, Retired { view: view.number, leader, of, until: retired.until, ends }, out);
}

/// The replica is no member of the retired shard's last view: an earlier view named it, or it was
/// made anew. If it is to keep a copy, the replica gets from the others all that it does not hold
/// below the end of the shard.
fn keep_copy(
    core: &mut Core,
    path: &mut dyn DataPath,
    retired: &RetiredShard,
    history: &ViewHistory,
    out: &mut Out,
) {
    let ends = retired.ends(history);
    let lacks_rest = core.missing.is_some_and(|missing| missing.end >= ends);
    let has_begun = core.kept().is_some() && (lacks_rest || core.missing.is_none() && core.stable >= ends);
    if !retired.has_copy_on(core.node) || has_begun || core.options.mutates(Mutation::RetiredUncopied) {
        return;
    }
    let before = core.before(path);
    core.trim_below(history.start(), out);
    core.raise_stable(path, history.start(), out);
    let held = core.held().holds_to(history).map_or(core.stable, |end| end.min(core.stable));
    path.passed_over(core, out);
    let from = core.trim.max(retired.members().begins);
    let missing = MissingRange { from: held.min(retired.until), end: retired.until }.join(before.missing);
    core.missing = Some(missing.not_below(from));
    core.take_view(&retired.last, history);
    core.catch_up.restart();
    core.remember(before, out);
}
