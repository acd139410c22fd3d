//! A replica's part in view changes. It writes its hard state before it sends a message that relies
//! on it.

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
    /// Rejects everything below a controller's claim from now on.
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
            // The register was set back and would replace a newer view by an older one.
            let message = Control::Ahead { claim, view: known };
            return out.push(RoleEffect::Send { to: from, message: message.into() });
        }
        self.reports.back_off(now);
        if claim > self.memory.claim {
            self.trim_as_wanted(out);
            self.retired = None;
            let before = self.before(path);
            // The replica may have missed the start of the registered view.
            self.learn(path, now, entry, out);
            let started_at = learn_flushed(self, path, entry);
            let is_fresh = entry.view.as_ref().is_none_or(|view| view.shard(self.shard).is_none());
            let was_member = is_fresh || self.is_named() && self.view_number() == entry.view_number();
            if !was_member {
                // An absent replica may also have missed a trim.
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

    fn stop_batches(&mut self, path: &mut dyn DataPath, out: &mut Out) {
        self.batches.clear();
        self.answered = Answered::default();
        self.writes.clear();
        path.stopped(self, out);
        self.readers.forget_predictions(self.stable);
    }

    /// Learns the registered view of `entry`, if it is new and names this replica, which was fenced
    /// for it. Returns whether it does. The caller writes the hard state.
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
        // An absent replica may have missed the history's trim, and later ones.
        self.trim_below(entry.history.start(), out);
        self.raise_stable(path, entry.history.start(), out);
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
            // An operator gave up all positions that the replica lacked. The replica counts as
            // complete at once, even if the next view follows immediately.
            self.missing = None;
        }
        true
    }

    fn take_view(&mut self, view: &View, history: &ViewHistory) {
        self.leftovers.in_another_view();
        self.memory.view = Some(remembered(view, &self.options));
        self.memory.history = history.clone();
        self.memory.history.forget_below(self.trim);
        self.leave_gaps();
    }

    pub(super) fn leave_gaps(&mut self) {
        let gaps = self.memory.history.gaps_of(self.shard);
        self.catch_up.leave_damage(self.trim, gaps.clone());
        self.missing = self.missing.map(|range| range.without(gaps.clone()));
    }

    fn drop_unstable(&mut self) {
        if self.options.mutates(Mutation::FenceDrops) {
            self.memory.history.push(self.memory.claim, self.stable);
        }
    }

    pub(super) fn registered(&mut self, path: &mut dyn DataPath, now: Time, entry: &LogEntry, out: &mut Out) {
        let Some(view) = &entry.view else { return };
        if view.number < self.view_number() || view.number == self.view_number() && !self.restarted {
            return;
        }
        let before = self.before(path);
        if !self.learn(path, now, entry, out) {
            match view.number.cmp(&self.reports.cannot_start()) {
                Ordering::Less => return,
                Ordering::Equal => {}
                // Only a new view can include the replica. This view's members may need its records
                // first.
                Ordering::Greater => self.needed_until = now + NEEDED_FOR,
            }
            self.reports.note(now, view.number);
            if view.number > self.memory.claim {
                // No controller fenced the replica, but its view is over.
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
        // The hard state just written implies the new bound.
        self.raise_stable(path, view.start, out);
        path.entered(self, now, out);
        if self.is_closed() {
            // No sequencing replica admits ids of this shard any more, so unbound puts stay
            // unbound.
            path.discard_unplaced(self, out);
        }
    }

    /// The store had no room for this write, and holds no part of it. The replica does not answer,
    /// and the sender retries. A change of the hard state is undone, since the replica may act only
    /// on stored changes.
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
            // The replica asks for the retired shard again.
            self.retired = None;
            // Positions trimmed meanwhile were final.
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

    /// The replica lost state of this view: it waits for the next one.
    pub(crate) fn sit_out(&mut self) {
        self.restarted = true;
    }
}

/// Whether this node replaces an absent one to which the log assigns the shard.
fn stands_in(core: &Core, entry: &LogEntry, members: &ShardMembers) -> bool {
    let assigned = entry.shards.get(core.shard.0 as usize).map(Vec::as_slice).unwrap_or_default();
    let is_away = |node: &NodeId| members.replicas.iter().all(|member| member.node != *node);
    !assigned.contains(&core.node) && assigned.iter().any(is_away)
}

fn remembered(view: &View, options: &Options) -> View {
    let mut view = view.clone();
    if options.mutates(Mutation::JoinForgotten) {
        view.shards.iter_mut().for_each(|members| members.begins = Position::ZERO);
    }
    view
}

/// Learns the registered view for an earlier incarnation on this node: a member that had the whole
/// flush, as the store proves, and lost its memory before it learned of the registration. No view
/// may lie in between, and records below the view's first position must be final. Returns the
/// view's start, which is stable once the hard state is written.
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

/// Learns of a retired shard, whose records still count. The replica may have missed the start of
/// the shard's last view.
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

/// Prepares a copy on a replica outside the retired shard's last view: all positions that it lacks
/// become missing.
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
