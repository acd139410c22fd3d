//! The part of a replica that is the same in every ordering, as long as views do not change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::storage::{HardState, MissingRange, Run, ShardRecovery, StorageCommand};
use seriatim_model::{
    Address, Durability, Endpoint, Gap, IdRun, Member, NodeId, Position, ShardId, ShardMembers, Ticket, Time,
    ViewNumber,
};

use super::answered::Answered;
use super::catch_up::CatchUp;
use super::leftovers::Leftovers;
use super::message::{Held, Message};
use super::path::DataPath;
use super::readers::{Bounds, Lost, Readers, deciding};
use super::repair::{copies, gets_records};
use super::survey::Surveys;
use super::unstored::Unstored;
use crate::mutation::{Mutation, Options};
use crate::parts::{Gate, Reports};
use crate::roles::{self, RoleEffect};

type Out = Vec<RoleEffect>;

/// A replica without what its ordering decides.
///
/// Invariants: it binds only what is pushed under `memory.claim`, which is not below its view;
/// `trim` is not above `stable`. That does not go back, unless its store had no room for what told
/// it more.
#[derive(Clone, Debug)]
pub struct Core {
    pub(super) node: NodeId,
    pub(crate) shard: ShardId,
    pub(crate) options: Options,
    pub(crate) gate: Gate,
    pub(crate) memory: HardState,
    /// It takes part in nothing before a view is registered that names it.
    pub(super) restarted: bool,
    pub(crate) stable: Position,
    pub(crate) trim: Position,
    /// The latest write of the trim point.
    pub(super) trim_write: Ticket,
    /// The store had no room for it: it is written again before anything relies on it.
    pub(super) trim_refused: bool,
    /// Records that only the store knows of.
    pub(super) leftovers: Leftovers,
    /// A trim that came while a view was being formed, below what is stable.
    pub(super) wanted_trim: Position,
    /// The positions that it has still to get from others. An empty range: no records, but how far
    /// the log is trimmed.
    pub(crate) missing: Option<MissingRange>,
    pub(super) catch_up: CatchUp,
    /// After a restart everything is read once, to find what is damaged: where that goes on.
    pub(super) scrub: Option<Position>,
    pub(super) scrub_at: Time,
    /// Batches that this replica is primary for, and that are not held everywhere yet.
    pub(crate) batches: BTreeMap<(ViewNumber, Position), Batch>,
    pub(super) answered: Answered,
    /// For each view where the last of what was written under it ends.
    pub(super) ends: BTreeMap<ViewNumber, Position>,
    /// Writes on their way, oldest first, with what to do when they are durable, and where they
    /// end.
    pub(super) writes: VecDeque<(Ticket, Write, Position)>,
    pub(super) unstored: Unstored,
    /// The end of the highest run that was pushed. Only mutations use it.
    pub(super) pushed: Position,
    pub(super) readers: Readers,
    pub(super) surveys: Surveys,
    pub(super) reports: Reports,
    /// Its shard is retired.
    pub(super) retired: Option<Kept>,
    /// Outside of a view: until when others are taken to need what it holds.
    pub(super) needed_until: Time,
    /// Too much waits for the disk.
    pub(crate) pressed: bool,
}

/// The retired shard of a replica.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// The last view that the shard was in.
    pub(super) of: ViewNumber,
    /// The shard has no positions from there on.
    pub(super) until: Position,
    /// Where that begins which an operator gave up before `until`; otherwise the same. The replica
    /// has what the shard has when it knows all below to be final.
    pub(super) ends: Position,
    /// The replicas that keep the shard's records, or are to copy them.
    pub(super) copies: Vec<Member>,
}

#[derive(Clone, Debug)]
pub(crate) struct Batch {
    leader: Address,
    held_here: bool,
    /// The backups that have not answered.
    pub(crate) backups: BTreeSet<NodeId>,
    /// Ids whose records no replica has.
    voids: Vec<IdRun>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Our own copy of a batch that we are primary for.
    Primary(ViewNumber, Position),
    /// A backup's copy.
    Backup(Address, ViewNumber, Position),
}

impl Write {
    /// The view that the batch is pushed in.
    fn view(self) -> ViewNumber {
        let (Self::Primary(view, _) | Self::Backup(_, view, _)) = self;
        view
    }
}

impl Core {
    /// Rebuilds it from its store, as [`Replica::recover`](super::Replica::recover) says.
    pub(crate) fn recover(
        me: Member,
        shard: ShardId,
        recovery: ShardRecovery,
        options: Options,
    ) -> Option<Self> {
        let mut memory = recovery.memory?;
        memory.incarnation = me.incarnation;
        let forgetful = options.mutates(Mutation::ConfirmBeforeSync);
        let waits = !(forgetful && memory.config.durability == Durability::Disk);
        // Only what is stable is trimmed, and what no view decides about is: a store may have kept
        // one of them and not the others.
        let trim = recovery.trim.max(memory.history.start());
        let stable = recovery.stable.max(trim);
        Some(Self {
            node: me.node,
            shard,
            options,
            gate: Gate::new(waits),
            memory,
            restarted: true,
            stable,
            trim,
            trim_write: Ticket(0),
            trim_refused: false,
            leftovers: Leftovers::default(),
            wanted_trim: Position::ZERO,
            missing: recovery.missing.map(|range| range.not_below(trim)),
            catch_up: CatchUp::default(),
            scrub: (stable > trim).then_some(trim),
            scrub_at: Time::ZERO,
            batches: BTreeMap::new(),
            answered: Answered::default(),
            ends: recovery
                .ends
                .into_iter()
                .filter(|_| !options.mutates(Mutation::ClosedNotDurable))
                .collect(),
            writes: VecDeque::new(),
            unstored: Unstored::default(),
            pushed: Position::ZERO,
            readers: Readers::new(options),
            surveys: Surveys::recover(recovery.times, stable),
            reports: Reports::default(),
            retired: None,
            needed_until: Time::ZERO,
            pressed: false,
        })
    }

    /// When something is due that is the same in every ordering.
    pub(super) fn deadline(&self) -> Option<Time> {
        let report = self.wants_view().then_some(self.reports.deadline());
        let copy = if gets_records(self) { self.catch_up.deadline(copies(self)) } else { None };
        let scrub = self.scrub.filter(|_| self.is_open()).map(|_| self.scrub_at);
        [report, copy, scrub, self.readers.deadline()].into_iter().flatten().min()
    }

    /// One that takes part in no view says so.
    pub(super) fn report(&mut self, now: Time, out: &mut Out) {
        if self.wants_view() {
            let me = self.me();
            self.reports.report(now, me, self.view_number(), out);
        }
    }

    /// Whether it takes part in no view, and that may change. A replica of a retired shard asks as
    /// long as it may learn more.
    fn wants_view(&self) -> bool {
        let is_owed = |kept: &Kept| self.stable < kept.ends && self.missing.is_none() && self.is_named();
        // An earlier view left it behind, and it may hold what the copies of the shard lack.
        let is_unknown = |kept: &Kept| kept.of > self.view_number() && self.view_number() > ViewNumber::NONE;
        !self.is_open() && self.retired.as_ref().is_none_or(|kept| is_owed(kept) || is_unknown(kept))
    }

    pub(crate) fn view_number(&self) -> ViewNumber {
        self.memory.view.as_ref().map_or(ViewNumber::NONE, |view| view.number)
    }

    pub(crate) fn me(&self) -> Member {
        Member { node: self.node, incarnation: self.memory.incarnation }
    }

    /// Whether the latest view that it knows names this incarnation.
    pub(crate) fn is_named(&self) -> bool {
        self.members().is_some_and(|members| members.replicas.contains(&self.me()))
    }

    /// The retired shard that the replica keeps: it knows the last view that the shard was in, and
    /// so what it lacks.
    pub(super) fn kept(&self) -> Option<&Kept> {
        self.retired.as_ref().filter(|kept| kept.of == self.view_number())
    }

    /// Whether it takes part in a view.
    pub(crate) fn is_open(&self) -> bool {
        !self.restarted && self.is_named() && self.memory.claim == self.view_number()
    }

    /// Whether the shard takes no new records.
    pub(crate) fn is_closed(&self) -> bool {
        self.memory.view.as_ref().is_some_and(|view| !view.open_shards().contains(&self.shard))
    }

    pub(super) fn bounds<'a>(&self, path: &'a dyn DataPath) -> Bounds<'a> {
        // One that no view counts on may give out what it knows as final, for want of anybody else.
        let trim_is_known = self.missing.is_none() || !self.is_named() || self.knows_trim();
        let gaps: Vec<Gap> = self.memory.history.gaps_of(self.shard).collect();
        let places = self.memory.config.order.places_by_position();
        let placement = self.memory.view.as_ref().filter(|_| places).map(|view| view.placement.clone());
        let lost = (!gaps.is_empty()).then_some(Lost { placement, gaps });
        let readable = self.readable(path);
        let unbounded = self.options.mutates(Mutation::MapBeyondStable);
        let mappable = if unbounded { Position(u64::MAX) } else { readable };
        let (trim, is_mapped, view) = (self.trim, !places, self.view_number());
        let predicts = self.is_open() && self.is_primary();
        let (predictable, committed) = match predicts {
            true => (path.predictable(self), path.committed(self)),
            false => (self.stable, self.stable),
        };
        Bounds {
            readable,
            predictable,
            memory: path.memory().filter(|_| predicts),
            // Everything that may be read is called final.
            committed: committed.max(readable),
            mappable,
            trim,
            trim_is_known,
            missing: self.missing.filter(|_| !self.options.mutates(Mutation::MissingServed)),
            lost,
            is_mapped,
            view,
            history: deciding(&self.memory.history, &self.options),
        }
    }

    /// Whether no other replica could tell it more of the trim point.
    pub(super) fn knows_trim(&self) -> bool {
        let is_alone = self.members().is_some_and(|members| members.replicas == [self.me()]);
        is_alone || self.catch_up.knows_trim() || self.options.mutates(Mutation::TrimForgotten)
    }

    /// Below this, readers may see what is bound.
    fn readable(&self, path: &dyn DataPath) -> Position {
        if self.options.mutates(Mutation::ReadsUnstable) {
            self.stable.max(self.pushed)
        } else if self.options.mutates(Mutation::ReadFromHead) {
            path.written_below(self)
        } else {
            self.stable
        }
    }

    /// Whether the replica obeys pushes of `view`. If that view is over, it tells the sender so.
    pub(crate) fn accepts(&self, from: Address, view: ViewNumber, out: &mut Out) -> bool {
        let skipped = self.options.mutates(Mutation::FenceSkipped);
        if view < self.memory.claim && !skipped {
            send(from, self.fenced(), out);
        }
        // An incarnation that the view does not name may have lost records that the view counts on.
        let is_counted_on =
            if view == self.view_number() { self.is_named() } else { view > self.reports.cannot_start() };
        view == self.memory.claim && is_counted_on || skipped
    }

    pub(crate) fn fenced(&self) -> Message {
        Message::Fenced { claim: self.memory.claim, incarnation: self.memory.incarnation, held: self.held() }
    }

    /// The state that it brings to a view change.
    pub(crate) fn held(&self) -> Held {
        let view = if self.is_named() { self.view_number() } else { ViewNumber::NONE };
        let knows = self.view_number();
        // The role that orders says how far the log goes, unless it does not outlive the view.
        let is_asked = !self.memory.config.order.properties().keeps_order;
        let end = match &self.memory.view {
            Some(known) if is_asked => self.end_under(view).max(known.start),
            _ => Position::ZERO,
        };
        Held { view, stable: self.stable, missing: self.missing, trim: self.trim, end, knows }
    }

    pub(crate) fn bind(
        &mut self,
        path: &mut dyn DataPath,
        leader: Address,
        (view, name): (ViewNumber, Position),
        backups: &[Member],
        runs: Vec<Run>,
        out: &mut Out,
    ) {
        if self.answers_again(leader, (view, name), out) {
            return;
        }
        let skipped = self.options.mutates(Mutation::BackupsSkipped);
        let held_here = self.begin_batch(leader, (view, name), backups, vec![]);
        let known = &self.batches[&(view, name)];
        for backup in backups.iter().filter(|backup| skipped || known.backups.contains(&backup.node)) {
            let message = Message::Replicate {
                view,
                batch: name,
                incarnation: backup.incarnation,
                stable: self.stable,
                runs: runs.clone(),
            };
            send(Address::Node(backup.node, Endpoint::Shard(self.shard)), message, out);
        }
        if !held_here {
            let ends: Vec<_> = runs.iter().map(|run| (run.first, run.end())).collect();
            let write = self.hold_records(path, Write::Primary(view, name), view, runs, out);
            if write.is_some_and(|ticket| {
                path.predicting_mut().is_some_and(|known| known.pushed(self, view, ends, ticket))
            }) {
                self.predict(path, out);
            }
        }
    }

    /// Primary: a batch is to be held here and on the backups. One that is sent again goes on where
    /// it is. Says whether it is held here.
    pub(crate) fn begin_batch(
        &mut self,
        leader: Address,
        name: (ViewNumber, Position),
        backups: &[Member],
        voids: Vec<IdRun>,
    ) -> bool {
        let skipped = self.options.mutates(Mutation::BackupsSkipped);
        let backups = backups.iter().map(|backup| backup.node).filter(|_| !skipped).collect();
        let batch = Batch { leader, held_here: false, backups, voids: vec![] };
        let known = self.batches.entry(name).or_insert(batch);
        known.leader = leader;
        if !known.held_here {
            // A write that failed may have been of a record that no replica has any more.
            known.voids = voids;
        }
        known.held_here
    }

    /// Writes records at their positions.
    pub(super) fn hold_records(
        &mut self,
        path: &mut dyn DataPath,
        write: Write,
        view: ViewNumber,
        runs: Vec<Run>,
        out: &mut Out,
    ) -> Option<Ticket> {
        let end = runs.iter().map(Run::end).max().unwrap_or_default();
        self.hold(path, write, end, StorageCommand::Bind { view, runs }, out)
    }

    /// Writes a batch that reaches `end`, unless the very same write is on its way already. Returns
    /// the write if it did.
    pub(crate) fn hold(
        &mut self,
        path: &mut dyn DataPath,
        write: Write,
        end: Position,
        command: StorageCommand,
        out: &mut Out,
    ) -> Option<Ticket> {
        if self.writes.iter().any(|(_, under_way, _)| *under_way == write) {
            return None;
        }
        let obeys_others = [Mutation::FenceSkipped, Mutation::DeposedPrimaryObeyed];
        assert!(
            write.view() == self.memory.claim || obeys_others.iter().any(|each| self.options.mutates(*each)),
            "{write:?} is bound under claim {}",
            self.memory.claim
        );
        self.pushed = self.pushed.max(end);
        let ticket = self.gate.store(command, out);
        self.writes.push_back((ticket, write, end));
        if self.gate.is_durable(ticket) {
            self.persisted(path, ticket, out);
        }
        Some(ticket)
    }

    /// A batch is final here already, and so held.
    pub(crate) fn finish_write(&mut self, write: Write, out: &mut Out) {
        match write {
            Write::Primary(view, batch) => {
                if let Some(found) = self.batches.get_mut(&(view, batch)) {
                    found.held_here = true;
                    self.answer_if_held(view, batch, out);
                }
            }
            Write::Backup(primary, view, batch) => {
                self.answered.replicated.insert((view, batch));
                send(primary, Message::Replicated { view, batch }, out);
            }
        }
    }

    /// All writes up to this ticket are as durable as the log promises.
    pub(super) fn persisted(&mut self, path: &mut dyn DataPath, ticket: Ticket, out: &mut Out) {
        self.gate.persisted(ticket, out);
        self.unstored.stored(ticket);
        path.persisted(self, ticket, out);
        self.copied(path, ticket, out);
        while self.writes.front().is_some_and(|(written, ..)| *written <= ticket) {
            let (_, write, end) = self.writes.pop_front().expect("the front was just seen");
            // A view change may go by where this ends, so only what is written counts.
            self.note_end(write.view(), end);
            self.finish_write(write, out);
        }
    }

    pub(super) fn replicated(&mut self, from: Address, view: ViewNumber, batch: Position, out: &mut Out) {
        let Address::Node(node, _) = from else { return };
        if let Some(found) = self.batches.get_mut(&(view, batch)) {
            found.backups.remove(&node);
            self.answer_if_held(view, batch, out);
        }
    }

    fn answer_if_held(&mut self, view: ViewNumber, batch: Position, out: &mut Out) {
        let held = |batch: &Batch| batch.held_here && batch.backups.is_empty();
        if self.batches.get(&(view, batch)).is_some_and(held) {
            let Batch { leader, voids, .. } = self.batches.remove(&(view, batch)).expect("just seen");
            self.answered.bound.insert((view, batch), voids.clone());
            send(leader, Message::Bound { view, batch, stable: self.stable, voids }, out);
        }
    }

    /// Believes a leader of the registered view. Says whether it could.
    pub(crate) fn learn_stable(
        &mut self,
        path: &mut dyn DataPath,
        view: ViewNumber,
        stable: Position,
        out: &mut Out,
    ) -> bool {
        let early = self.options.mutates(Mutation::StableBeforeRegister) && view == self.memory.claim;
        if view != self.view_number() && !early {
            return false;
        }
        // Where each replica gives out what it has itself, it does not go by others.
        let stable = path.applied().map_or(stable, |applied| stable.min(applied.end));
        self.advance_stable(path, stable, out);
        true
    }

    /// Primary: tells the backups what became stable without a batch that would carry it.
    pub(crate) fn pass_on_stable(&self, view: ViewNumber, out: &mut Out) {
        let Some(members) = self.members().filter(|members| members.primary() == self.me()) else { return };
        for backup in &members.replicas[1..] {
            let to = Address::Node(backup.node, Endpoint::Shard(self.shard));
            send(to, Message::Stable { view, stable: self.stable }, out);
        }
    }

    /// Primary: a backup says how far it knows, because it was asked for more.
    pub(super) fn inform_backup(&self, from: Address, view: ViewNumber, known: Position, out: &mut Out) {
        let is_primary = self.members().is_some_and(|members| members.primary() == self.me());
        if is_primary && view == self.view_number() && view == self.memory.claim && known < self.stable {
            send(from, Message::Stable { view, stable: self.stable }, out);
        }
    }

    /// Backup: what the primary sent may have been lost.
    pub(super) fn ask_primary(&self, out: &mut Out) {
        let Some(members) = self.members().filter(|members| members.primary() != self.me()) else { return };
        let to = Address::Node(members.primary().node, Endpoint::Shard(self.shard));
        send(to, Message::StableKnown { view: self.view_number(), stable: self.stable }, out);
    }

    /// The replicas of the shard in the latest view that this one knows.
    pub(crate) fn members(&self) -> Option<&ShardMembers> {
        self.memory.view.as_ref()?.shard(self.shard)
    }

    /// More is final: the store is to know it.
    pub(crate) fn advance_stable(&mut self, path: &mut dyn DataPath, stable: Position, out: &mut Out) {
        if stable > self.stable {
            self.gate.store(StorageCommand::Stable(stable), out);
            self.raise_stable(path, stable, out);
        }
    }

    /// More is final, and the store knows it from something else.
    pub(super) fn raise_stable(&mut self, path: &mut dyn DataPath, stable: Position, out: &mut Out) {
        if stable > self.stable {
            self.stable = stable;
            self.answered.forget_below(stable);
            path.stable_raised(self, out);
            self.feed_readers(path, out);
        }
    }

    /// More may be read: readers that wait for it get it.
    pub(crate) fn feed_readers(&mut self, path: &dyn DataPath, out: &mut Out) {
        self.readers.stable_advanced(&self.bounds(path), out);
    }

    /// More may be predicted, or what is predicted became final: readers that take predictions are
    /// told.
    pub(crate) fn predict(&mut self, path: &dyn DataPath, out: &mut Out) {
        if self.readers.take_predictions() {
            self.readers.predicted(&self.bounds(path), out);
        }
    }

    /// Has the store read `from..end` for the data path, as much as one read takes. `question`
    /// comes back with the outcome.
    pub(crate) fn look_up(&mut self, question: u64, from: Position, end: Position, out: &mut Out) {
        self.readers.read_own(question, from, end, out);
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.members().is_some_and(|members| members.primary() == self.me())
    }

    /// Records were written under this view up to there.
    pub(crate) fn note_end(&mut self, view: ViewNumber, end: Position) {
        let known = self.ends.entry(view).or_default();
        *known = end.max(*known);
    }

    /// Where what was written under this view ends.
    pub(crate) fn end_under(&self, view: ViewNumber) -> Position {
        self.ends.get(&view).copied().unwrap_or_default()
    }
}

pub(crate) fn send(to: Address, message: impl Into<roles::Message>, out: &mut Out) {
    out.push(RoleEffect::Send { to, message: message.into() });
}
