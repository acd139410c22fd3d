//! The part of a replica that all orderings share, apart from view changes.

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

/// A replica without the part that its ordering decides.
///
/// Invariants: it binds only batches pushed under `memory.claim`, which is not below its view;
/// `trim` is not above `stable`. These bounds fall only if the store had no room for the change
/// that raised them.
#[derive(Clone, Debug)]
pub struct Core {
    pub(super) node: NodeId,
    pub(crate) shard: ShardId,
    pub(crate) options: Options,
    pub(crate) gate: Gate,
    pub(crate) memory: HardState,
    pub(super) restarted: bool,
    pub(crate) stable: Position,
    pub(crate) trim: Position,
    pub(super) trim_write: Ticket,
    /// The store had no room for the trim point. It must be written before anything relies on it.
    pub(super) trim_refused: bool,
    pub(super) leftovers: Leftovers,
    /// Trim received during a view change; the next fence applies it.
    pub(super) wanted_trim: Position,
    /// Positions to copy from other replicas. An empty range: only the trim point is unknown.
    pub(crate) missing: Option<MissingRange>,
    pub(super) catch_up: CatchUp,
    /// Next position of the scrub, which searches for damage once after a restart.
    pub(super) scrub: Option<Position>,
    pub(super) scrub_at: Time,
    /// Primary: batches that some replica does not hold yet.
    pub(crate) batches: BTreeMap<(ViewNumber, Position), Batch>,
    pub(super) answered: Answered,
    /// End of the durable writes under each view.
    pub(super) ends: BTreeMap<ViewNumber, Position>,
    /// Writes in flight, each with the end of its positions.
    pub(super) writes: VecDeque<(Ticket, Write, Position)>,
    pub(super) unstored: Unstored,
    /// End of the highest pushed run, for mutations.
    pub(super) pushed: Position,
    pub(super) readers: Readers,
    pub(super) surveys: Surveys,
    pub(super) reports: Reports,
    pub(super) retired: Option<Kept>,
    /// Outside of a view: until when other replicas may need the records.
    pub(super) needed_until: Time,
    pub(crate) pressed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) of: ViewNumber,
    /// Exclusive end of the shard's positions.
    pub(super) until: Position,
    /// Start of the positions that an operator gave up, which end at `until`. Equals `until` if
    /// there are none. The replica is complete when everything below is final here.
    pub(super) ends: Position,
    pub(super) copies: Vec<Member>,
}

#[derive(Clone, Debug)]
pub(crate) struct Batch {
    leader: Address,
    held_here: bool,
    pub(crate) backups: BTreeSet<NodeId>,
    voids: Vec<IdRun>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Primary(ViewNumber, Position),
    /// The address is the primary's.
    Backup(Address, ViewNumber, Position),
}

impl Write {
    fn view(self) -> ViewNumber {
        let (Self::Primary(view, _) | Self::Backup(_, view, _)) = self;
        view
    }
}

impl Core {
    /// See [`Replica::recover`](super::Replica::recover).
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
        // The store may have kept only one of these bounds.
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

    pub(super) fn deadline(&self) -> Option<Time> {
        let report = self.wants_view().then_some(self.reports.deadline());
        let copy = if gets_records(self) { self.catch_up.deadline(copies(self)) } else { None };
        let scrub = self.scrub.filter(|_| self.is_open()).map(|_| self.scrub_at);
        [report, copy, scrub, self.readers.deadline()].into_iter().flatten().min()
    }

    pub(super) fn report(&mut self, now: Time, out: &mut Out) {
        if self.wants_view() {
            let me = self.me();
            self.reports.report(now, me, self.view_number(), out);
        }
    }

    /// Whether the replica takes part in no view and a report may change that.
    fn wants_view(&self) -> bool {
        let is_owed = |kept: &Kept| self.stable < kept.ends && self.missing.is_none() && self.is_named();
        // The shard's last view is later than the replica's view: the replica may hold records that
        // the copies lack.
        let is_unknown = |kept: &Kept| kept.of > self.view_number() && self.view_number() > ViewNumber::NONE;
        !self.is_open() && self.retired.as_ref().is_none_or(|kept| is_owed(kept) || is_unknown(kept))
    }

    pub(crate) fn view_number(&self) -> ViewNumber {
        self.memory.view.as_ref().map_or(ViewNumber::NONE, |view| view.number)
    }

    pub(crate) fn me(&self) -> Member {
        Member { node: self.node, incarnation: self.memory.incarnation }
    }

    /// Whether the latest known view names this incarnation.
    pub(crate) fn is_named(&self) -> bool {
        self.members().is_some_and(|members| members.replicas.contains(&self.me()))
    }

    /// The retired shard, if the replica knows the shard's last view and thus its own missing
    /// range.
    pub(super) fn kept(&self) -> Option<&Kept> {
        self.retired.as_ref().filter(|kept| kept.of == self.view_number())
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.restarted && self.is_named() && self.memory.claim == self.view_number()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.memory.view.as_ref().is_some_and(|view| !view.open_shards().contains(&self.shard))
    }

    pub(super) fn bounds<'a>(&self, path: &'a dyn DataPath) -> Bounds<'a> {
        // A replica that no view names serves its unverified trim point: no other replica may be
        // left.
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

    /// Whether no other replica could report a higher trim point.
    pub(super) fn knows_trim(&self) -> bool {
        let is_alone = self.members().is_some_and(|members| members.replicas == [self.me()]);
        is_alone || self.catch_up.knows_trim() || self.options.mutates(Mutation::TrimForgotten)
    }

    fn readable(&self, path: &dyn DataPath) -> Position {
        if self.options.mutates(Mutation::ReadsUnstable) {
            self.stable.max(self.pushed)
        } else if self.options.mutates(Mutation::ReadFromHead) {
            path.written_below(self)
        } else {
            self.stable
        }
    }

    /// Whether the replica obeys pushes of `view`. Notifies the sender of an old view.
    pub(crate) fn accepts(&self, from: Address, view: ViewNumber, out: &mut Out) -> bool {
        let skipped = self.options.mutates(Mutation::FenceSkipped);
        if view < self.memory.claim && !skipped {
            send(from, self.fenced(), out);
        }
        // An unnamed incarnation may have lost records that the view relies on.
        let is_counted_on =
            if view == self.view_number() { self.is_named() } else { view > self.reports.cannot_start() };
        view == self.memory.claim && is_counted_on || skipped
    }

    pub(crate) fn fenced(&self) -> Message {
        Message::Fenced { claim: self.memory.claim, incarnation: self.memory.incarnation, held: self.held() }
    }

    pub(crate) fn held(&self) -> Held {
        let view = if self.is_named() { self.view_number() } else { ViewNumber::NONE };
        let knows = self.view_number();
        // In other orderings, the ordering role reports the end of the log.
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

    /// Primary: starts or continues a batch. Returns whether this replica holds it.
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
            // A failed write may have contained a record that no replica has any more.
            known.voids = voids;
        }
        known.held_here
    }

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

    /// Writes a batch. Returns `None` if the same write is in flight.
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

    /// Notes that this replica holds the batch, durably or as final records, and answers.
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

    /// All writes up to this ticket are at the log's durability level.
    pub(super) fn persisted(&mut self, path: &mut dyn DataPath, ticket: Ticket, out: &mut Out) {
        self.gate.persisted(ticket, out);
        self.unstored.stored(ticket);
        path.persisted(self, ticket, out);
        self.copied(path, ticket, out);
        while self.writes.front().is_some_and(|(written, ..)| *written <= ticket) {
            let (_, write, end) = self.writes.pop_front().expect("the front was just seen");
            // A view change may use this end, so only durable writes count.
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

    /// Accepts the bound of a registered view's leader. Returns `false` for other views.
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
        // With an applied prefix, a replica serves only records in its own store.
        let stable = path.applied().map_or(stable, |applied| stable.min(applied.end));
        self.advance_stable(path, stable, out);
        true
    }

    pub(crate) fn pass_on_stable(&self, view: ViewNumber, out: &mut Out) {
        let Some(members) = self.members().filter(|members| members.primary() == self.me()) else { return };
        for backup in &members.replicas[1..] {
            let to = Address::Node(backup.node, Endpoint::Shard(self.shard));
            send(to, Message::Stable { view, stable: self.stable }, out);
        }
    }

    /// Primary: sends its stable bound to a backup that has only `known`, where a reader asked for
    /// more.
    pub(super) fn inform_backup(&self, from: Address, view: ViewNumber, known: Position, out: &mut Out) {
        let is_primary = self.members().is_some_and(|members| members.primary() == self.me());
        if is_primary && view == self.view_number() && view == self.memory.claim && known < self.stable {
            send(from, Message::Stable { view, stable: self.stable }, out);
        }
    }

    /// Backup: asks the primary for its stable bound, since a message with it may have been lost.
    pub(super) fn ask_primary(&self, out: &mut Out) {
        let Some(members) = self.members().filter(|members| members.primary() != self.me()) else { return };
        let to = Address::Node(members.primary().node, Endpoint::Shard(self.shard));
        send(to, Message::StableKnown { view: self.view_number(), stable: self.stable }, out);
    }

    pub(crate) fn members(&self) -> Option<&ShardMembers> {
        self.memory.view.as_ref()?.shard(self.shard)
    }

    pub(crate) fn advance_stable(&mut self, path: &mut dyn DataPath, stable: Position, out: &mut Out) {
        if stable > self.stable {
            self.gate.store(StorageCommand::Stable(stable), out);
            self.raise_stable(path, stable, out);
        }
    }

    /// Raises the stable bound, which the store knows from another write.
    pub(super) fn raise_stable(&mut self, path: &mut dyn DataPath, stable: Position, out: &mut Out) {
        if stable > self.stable {
            self.stable = stable;
            self.answered.forget_below(stable);
            path.stable_raised(self, out);
            self.feed_readers(path, out);
        }
    }

    pub(crate) fn feed_readers(&mut self, path: &dyn DataPath, out: &mut Out) {
        self.readers.stable_advanced(&self.bounds(path), out);
    }

    pub(crate) fn predict(&mut self, path: &dyn DataPath, out: &mut Out) {
        if self.readers.take_predictions() {
            self.readers.predicted(&self.bounds(path), out);
        }
    }

    /// Starts at most one store read for the data path. `question` comes back with the outcome.
    pub(crate) fn look_up(&mut self, question: u64, from: Position, end: Position, out: &mut Out) {
        self.readers.read_own(question, from, end, out);
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.members().is_some_and(|members| members.primary() == self.me())
    }

    pub(crate) fn note_end(&mut self, view: ViewNumber, end: Position) {
        let known = self.ends.entry(view).or_default();
        *known = end.max(*known);
    }

    /// Zero without writes under this view.
    pub(crate) fn end_under(&self, view: ViewNumber) -> Position {
        self.ends.get(&view).copied().unwrap_or_default()
    }
}

pub(crate) fn send(to: Address, message: impl Into<roles::Message>, out: &mut Out) {
    out.push(RoleEffect::Send { to, message: message.into() });
}
