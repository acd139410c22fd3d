//! A replica of a shard: primary or backup, as each batch says.
//!
//! A replica learns its part from what it is sent: a `Bind` names the backups of the one that receives
//! it, a `Replicate` names the life of the backup that is meant. Both carry the view, so a deposed
//! primary is refused by its backups, and a replica that lost its memory by everyone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::storage::{Lacking, Run, ShardMemory, ShardRecovery, StorageCommand};
use seriatim_model::{
    Address, Durability, Endpoint, Gap, IdRun, Input, LogConfig, Machine, Member, NodeId, Peer, Position,
    ShardId, ShardMembers, Ticket, Time, TimeIndex, ViewHistory, ViewNumber,
};

use super::answered::Answered;
use super::copying::Copying;
use super::covering::Reach;
use super::former::NEEDED_FOR;
use super::local::{self, Local};
use super::message::{Held, Message};
use super::readers::{Bounds, Lost, Readers};
use super::survey::Surveys;
use super::unordered::{Part, Unordered};
use super::unstored::{Before, Unstored};
use super::writing::{self, Chain};
use crate::control::{self, behind};
use crate::deviation::{Deviation, Options};
use crate::parts::{Gate, Reports};
use crate::roles::{self, RoleEffect, RoleInput};

/// One replica of one shard of one log.
///
/// Invariants: it binds only what is pushed under `memory.claim`; `stable` never decreases and never
/// exceeds what a leader of a registered view, or the register, announced.
#[derive(Clone, Debug)]
pub struct Replica {
    node: NodeId,
    pub(super) shard: ShardId,
    pub(super) options: Options,
    pub(super) gate: Gate,
    pub(super) memory: ShardMemory,
    restarted: bool,
    pub(super) stable: Position,
    pub(super) trim: Position,
    /// The latest write of the trim point.
    pub(super) trim_write: Ticket,
    /// The store had no room for it: it is written again before anything relies on it.
    pub(super) trim_refused: bool,
    /// A trim that came while a view was being formed, below what is stable.
    pub(super) wanted_trim: Position,
    /// The positions that it has still to get from others. An empty range: no records, but how far the log is
    /// trimmed.
    pub(super) lacks: Option<Lacking>,
    pub(super) copying: Copying,
    /// After a restart everything is read once, to find what is damaged: where that goes on.
    pub(super) scrub: Option<Position>,
    pub(super) scrub_at: Time,
    /// Batches that this replica is primary for, and that are not held everywhere yet.
    pub(super) batches: BTreeMap<(ViewNumber, Position), Batch>,
    pub(super) answered: Answered,
    /// The records that were put before they got positions.
    pub(super) unordered: Unordered,
    /// The positions that clients write.
    pub(super) chain: Chain,
    /// The records that are submitted here and have no position yet.
    pub(super) local: Local,
    /// How far the store has what cuts bound.
    pub(super) reach: Reach,
    /// Writes on their way, oldest first, with what to do when they are durable.
    writes: VecDeque<(Ticket, Write)>,
    unstored: Unstored,
    /// The end of the highest run that was pushed. Only the simulator's defects use it.
    pushed: Position,
    pub(super) readers: Readers,
    pub(super) surveys: Surveys,
    reports: Reports,
    /// Outside of a view: until when others are taken to need what it holds.
    pub(super) needed_until: Time,
    /// Too much waits for the disk.
    pub(super) pressed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Batch {
    leader: Address,
    held_here: bool,
    /// The backups that have not answered.
    pub(super) backups: BTreeSet<NodeId>,
    /// Records that nobody has.
    voids: Vec<IdRun>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// Our own copy of a batch that we are primary for.
    Primary(ViewNumber, Position),
    /// A backup's copy.
    Backup(Address, ViewNumber, Position),
}

impl Machine for Replica {
    type Message = roles::Message;
    type Request = std::convert::Infallible;
    type Reply = std::convert::Infallible;

    fn step(&mut self, now: Time, input: RoleInput, out: &mut Vec<RoleEffect>) {
        match input {
            Input::Message { from, message: roles::Message::Shard(message) } => {
                self.receive(now, from, message, out)
            }
            Input::Message {
                message: roles::Message::Control(control::Message::Registered { entry }),
                ..
            } => {
                self.registered(now, &entry, out);
            }
            Input::Found(ticket, records) => self.found(ticket, records, out),
            Input::Mapped(ticket, owned) => self.readers.mapped(ticket, owned, &self.bounds(), out),
            Input::Pressed(pressed) => self.pressed = pressed,
            Input::Measured(ticket, usage, names) => self.measured(now, ticket, usage, names, out),
            Input::Message { .. } | Input::DiskFull(_) | Input::FullDisk(..) | Input::Wall(_) => {}
            Input::Silent(_) | Input::Heard(_) => {}
            Input::Persisted(ticket) => {
                self.persisted(ticket, out);
                self.local_persisted(ticket);
                self.cuts_stored(ticket, out);
            }
            Input::StoreFailed(ticket, _) => self.store_failed(now, ticket, out),
            Input::Read(ticket, outcome) => {
                let outcome = self.readers.read(ticket, outcome, &self.bounds(), out);
                if let Some((question, outcome)) = self.take_read(now, outcome) {
                    self.take_own_read(question, outcome, out);
                }
            }
            Input::Disconnected(peer) => self.disconnected(now, peer),
            Input::Timer => self.timer(now, out),
            Input::Request { request, .. } => match request {},
        }
    }

    fn deadline(&self) -> Option<Time> {
        let report = (!self.is_open()).then_some(self.reports.deadline());
        let copy = if self.is_open() { self.copying.deadline(self.lacks) } else { None };
        let scrub = self.scrub.filter(|_| self.is_open()).map(|_| self.scrub_at);
        let missing = self.missing_deadline();
        let unnamed = self.unordered.unnamed_at().filter(|_| self.is_open() && !self.has_local_log());
        let local = self.local_deadline();
        let vacant = self.vacancy_deadline();
        [vacant, report, copy, scrub, missing, unnamed, local, self.readers.deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}

impl Replica {
    /// A replica that never held anything.
    #[must_use]
    pub fn new(me: Member, shard: ShardId, config: LogConfig, options: Options) -> Self {
        let memory = ShardMemory {
            incarnation: me.incarnation,
            config,
            claim: ViewNumber::NONE,
            view: None,
            history: ViewHistory::default(),
        };
        let (stable, trim) = (Position::ZERO, Position::ZERO);
        let (memory, put, void, ends) = (Some(memory), vec![], vec![], vec![]);
        let times = TimeIndex::default();
        let recovery = ShardRecovery { memory, stable, trim, lacks: None, put, void, ends, times };
        Self::recover(me, shard, recovery, options).expect("it has its memory")
    }

    /// Rebuilds a replica from its store. It answers reads below what it knows to be stable, and waits
    /// for a new view. `me` names a new life if the store may have lost something; then what it holds
    /// below `stable` is all that it is good for.
    ///
    /// Nothing, if the store remembers nothing.
    #[must_use]
    pub fn recover(me: Member, shard: ShardId, recovery: ShardRecovery, options: Options) -> Option<Self> {
        let mut memory = recovery.memory?;
        memory.incarnation = me.incarnation;
        let forgetful = options.deviates(Deviation::ConfirmBeforeSync);
        let waits = !(forgetful && memory.config.durability == Durability::Disk);
        // Only what is stable is trimmed, and what no view decides about is: a store may have kept one of them
        // and not the others.
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
            wanted_trim: Position::ZERO,
            lacks: recovery.lacks.map(|range| range.not_below(trim)),
            copying: Copying::default(),
            scrub: (stable > trim).then_some(trim),
            scrub_at: Time::ZERO,
            batches: BTreeMap::new(),
            answered: Answered::default(),
            unordered: Unordered::recover(recovery.put, recovery.void),
            chain: Chain::recover(recovery.ends),
            local: Local::default(),
            reach: Reach::from(stable),
            writes: VecDeque::new(),
            unstored: Unstored::default(),
            pushed: Position::ZERO,
            readers: Readers::new(options.limits),
            surveys: Surveys::recover(recovery.times, stable),
            reports: Reports::default(),
            needed_until: Time::ZERO,
            pressed: false,
        })
    }

    /// The state that the replica remembers besides its records; a new one has to write it first.
    #[must_use]
    pub fn memory(&self) -> &ShardMemory {
        &self.memory
    }

    /// The stable bound that it knows.
    #[must_use]
    pub fn stable(&self) -> Position {
        self.stable
    }

    /// The positions that it has still to get from other replicas.
    #[must_use]
    pub fn lacks(&self) -> Option<Lacking> {
        self.lacks
    }

    /// How many records it holds that have no positions.
    #[must_use]
    pub fn unnamed(&self) -> u64 {
        self.unordered.loose_count()
    }

    pub(super) fn view_number(&self) -> ViewNumber {
        self.memory.view.as_ref().map_or(ViewNumber::NONE, |view| view.number)
    }

    pub(super) fn me(&self) -> Member {
        Member { node: self.node, incarnation: self.memory.incarnation }
    }

    /// Whether the latest view that it knows names this life.
    pub(super) fn is_named(&self) -> bool {
        self.members().is_some_and(|members| members.replicas.contains(&self.me()))
    }

    /// Whether it takes part in a view.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.restarted && self.is_named() && self.memory.claim == self.view_number()
    }

    /// Whether the shard takes no new records.
    pub(super) fn is_closed(&self) -> bool {
        self.memory.view.as_ref().is_some_and(|view| !view.open_shards().contains(&self.shard))
    }

    pub(super) fn bounds(&self) -> Bounds {
        // One that no view counts on may give out what it knows as final, for want of anybody else.
        let trim_is_known = self.lacks.is_none() || !self.is_named() || self.knows_trim();
        let lacks = self.lacks.filter(|_| !self.options.deviates(Deviation::LackingServed));
        let gaps: Vec<Gap> = self.memory.history.gaps_of(self.shard).collect();
        let places = self.memory.config.order.places_by_position();
        let placement = self.memory.view.as_ref().filter(|_| places).map(|view| view.placement.clone());
        let lost = (!gaps.is_empty()).then_some(Lost { placement, gaps });
        let readable = self.readable();
        let unbounded = self.options.deviates(Deviation::MapBeyondStable);
        let mappable = if unbounded { Position(u64::MAX) } else { readable };
        let (trim, is_mapped, view) = (self.trim, !places, self.view_number());
        Bounds { readable, mappable, trim, trim_is_known, lacks, lost, is_mapped, view }
    }

    /// Whether nobody could tell it more of the trim point.
    pub(super) fn knows_trim(&self) -> bool {
        let is_alone = self.members().is_some_and(|members| members.replicas == [self.me()]);
        is_alone || self.copying.knows_trim() || self.options.deviates(Deviation::TrimForgotten)
    }

    fn receive(&mut self, now: Time, from: Address, message: Message, out: &mut Vec<RoleEffect>) {
        match message {
            Message::Bind { view, batch, backups, stable, runs } => {
                if self.accepts(from, view, out) {
                    // First, so that it goes on to the backups with the records.
                    self.learn_stable(view, stable, out);
                    self.bind(from, view, batch, &backups, runs, out);
                }
            }
            Message::Replicate { view, batch, incarnation, stable, runs } => {
                let deposed = self.options.deviates(Deviation::DeposedPrimaryObeyed);
                if incarnation == self.memory.incarnation && (deposed || self.accepts(from, view, out)) {
                    if !self.replicated_again(from, (view, batch), out) {
                        self.hold_records(Write::Backup(from, view, batch), view, runs, out);
                    }
                    self.learn_stable(view, stable, out);
                }
            }
            Message::Replicated { view, batch } => self.replicated(from, view, batch, out),
            Message::Put { view, session, first, records } => {
                self.put(now, from, (view, session), first, records, out);
            }
            Message::Order { view, batch, backups, stable, runs } => {
                if self.accepts(from, view, out) {
                    self.learn_stable(view, stable, out);
                    self.order(now, (view, batch), Part::Primary { leader: from, backups }, runs, out);
                }
            }
            Message::ReplicateOrder { view, batch, incarnation, stable, runs, replicas } => {
                if incarnation == self.memory.incarnation && self.accepts(from, view, out) {
                    let others = replicas.into_iter().filter(|node| *node != self.node).collect();
                    self.order(now, (view, batch), Part::Backup { primary: from, others }, runs, out);
                    self.learn_stable(view, stable, out);
                }
            }
            Message::Want { .. } | Message::Have { .. } | Message::Undecided { .. } => {
                self.told(now, from, message, out);
            }
            Message::Stable { view, stable } => {
                if self.accepts(from, view, out) && self.learn_stable(view, stable, out) {
                    self.pass_on_stable(view, out);
                    if let Address::Node(_, Endpoint::Sequencer) = from {
                        send(from, Message::StableKnown { view, stable: self.stable }, out);
                    }
                }
            }
            Message::StableKnown { view, stable } => self.inform_backup(from, view, stable, out),
            Message::Fence { claim, entry } => self.fence(now, from, claim, &entry, out),
            Message::Records { request, records, upto } => {
                self.got(now, request, (records, vec![]), upto, out);
            }
            Message::MappedRecords { request, records, owned, upto } => {
                self.got(now, request, (records, owned), upto, out);
            }
            Message::ReadFailed { request, error } => self.not_got(now, (from, request), error, out),
            Message::Status { request } => {
                let (view, stable, trim) = (self.view_number(), self.stable, self.trim);
                send(from, Message::StatusIs { request, view, stable, trim }, out);
            }
            Message::AskWhole { view } => self.tell_if_whole(from, view, out),
            Message::Survey(survey) => self.surveyed(now, from, survey, out),
            Message::Retain(retain) => self.retain(from, retain, out),
            Message::Trim { request, view, position } => {
                self.told_to_trim(from, request, view, position, out);
            }
            message if local::is_about(&message) => self.local(now, from, message, out),
            message if writing::is_about(&message) => self.wrote(now, from, message, out),
            message => self.serve_reader(now, from, message, out),
        }
    }

    /// Below this, readers may see what is bound.
    fn readable(&self) -> Position {
        if self.options.deviates(Deviation::ReadsUnstable) {
            self.stable.max(self.pushed)
        } else if self.options.deviates(Deviation::ReadFromHead) {
            self.written_below()
        } else {
            self.stable
        }
    }

    /// Whether pushes of `view` are obeyed. Whoever's view is over is told.
    pub(super) fn accepts(&self, from: Address, view: ViewNumber, out: &mut Vec<RoleEffect>) -> bool {
        let skipped = self.options.deviates(Deviation::FenceSkipped);
        if view < self.memory.claim && !skipped {
            send(from, self.fenced(), out);
        }
        // A life that the view does not name may have lost what the view counts on.
        let is_counted_on =
            if view == self.view_number() { self.is_named() } else { view > self.reports.cannot_start() };
        view == self.memory.claim && is_counted_on || skipped
    }

    pub(super) fn fenced(&self) -> Message {
        Message::Fenced { claim: self.memory.claim, incarnation: self.memory.incarnation, held: self.held() }
    }

    /// The state that it brings to a view change.
    #[must_use]
    pub fn held(&self) -> Held {
        let view = if self.is_named() { self.view_number() } else { ViewNumber::NONE };
        let (end, knows) = (self.written_end(view), self.view_number());
        Held { view, stable: self.stable, lacks: self.lacks, trim: self.trim, end, knows }
    }

    pub(super) fn bind(
        &mut self,
        leader: Address,
        view: ViewNumber,
        name: Position,
        backups: &[Member],
        runs: Vec<Run>,
        out: &mut Vec<RoleEffect>,
    ) {
        if self.answers_again(leader, (view, name), out) {
            return;
        }
        let skipped = self.options.deviates(Deviation::BackupsSkipped);
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
            self.hold_records(Write::Primary(view, name), view, runs, out);
        }
    }

    /// Primary: a batch is to be held here and on the backups. One that is sent again goes on where it is.
    /// Says whether it is held here.
    pub(super) fn begin_batch(
        &mut self,
        leader: Address,
        name: (ViewNumber, Position),
        backups: &[Member],
        voids: Vec<IdRun>,
    ) -> bool {
        let skipped = self.options.deviates(Deviation::BackupsSkipped);
        let backups = backups.iter().map(|backup| backup.node).filter(|_| !skipped).collect();
        let batch = Batch { leader, held_here: false, backups, voids: vec![] };
        let known = self.batches.entry(name).or_insert(batch);
        known.leader = leader;
        if !known.held_here {
            // A write that failed may have been of a record that nobody has any more.
            known.voids = voids;
        }
        known.held_here
    }

    fn hold_records(&mut self, write: Write, view: ViewNumber, runs: Vec<Run>, out: &mut Vec<RoleEffect>) {
        let end = runs.iter().map(Run::end).max().unwrap_or_default();
        self.chain.bound(view, end);
        self.hold(write, end, StorageCommand::Bind { view, runs }, out);
    }

    /// Writes a batch that reaches `end`, unless the very same write is on its way already. Says whether it did.
    pub(super) fn hold(
        &mut self,
        write: Write,
        end: Position,
        command: StorageCommand,
        out: &mut Vec<RoleEffect>,
    ) -> bool {
        if self.writes.iter().any(|(_, under_way)| *under_way == write) {
            return false;
        }
        self.pushed = self.pushed.max(end);
        let ticket = self.gate.store(command, out);
        self.writes.push_back((ticket, write));
        if self.gate.is_durable(ticket) {
            self.persisted(ticket, out);
        }
        true
    }

    /// A batch is final here already, and so held.
    pub(super) fn finish_write(&mut self, write: Write, out: &mut Vec<RoleEffect>) {
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

    fn persisted(&mut self, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        self.gate.persisted(ticket, out);
        self.unstored.stored(ticket);
        self.unordered.stored(ticket);
        self.chain_persisted(ticket, out);
        self.copied(ticket, out);
        while self.writes.front().is_some_and(|(written, _)| *written <= ticket) {
            let (_, write) = self.writes.pop_front().expect("the front was just seen");
            self.finish_write(write, out);
        }
    }

    /// Nothing of this write is there: it is not answered, and comes again. A change of what is
    /// remembered is taken back: what the replica does with records, its store has to know.
    fn store_failed(&mut self, now: Time, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        self.put_failed(now, ticket, out);
        self.local_failed(now, ticket, out);
        self.reach.failed(ticket);
        self.chain_failed(ticket, out);
        self.copying.failed(now, ticket);
        self.writes.retain(|(written, _)| *written != ticket);
        self.gate.failed(ticket);
        self.trim_refused |= self.trim_write == ticket;
        if let Some(before) = self.unstored.failed(ticket) {
            let Before { memory, stable, restarted, lacks, reach } = before;
            // Positions that were trimmed meanwhile were final.
            (self.memory, self.stable, self.reach) = (memory, stable.max(self.trim), reach);
            // Where appends wait for the shards, what came in this view is not known any more.
            self.restarted = restarted || !self.memory.config.order.is_lazy();
            self.lacks = lacks.map(|range| range.not_below(self.trim));
            self.leave_gaps();
            self.readers.discard_reads();
            self.chain.discard_reads();
        }
    }

    /// Writes what is remembered, as it is now, in place of what it was `before`.
    pub(super) fn remember(&mut self, before: Before, out: &mut Vec<RoleEffect>) {
        self.write_refused_trim(out);
        let memory = self.memory.clone();
        let command = match (before.lacks, self.lacks) {
            (None, None) => StorageCommand::Remember(memory),
            (_, lacks) => StorageCommand::RememberLacking { memory, lacks },
        };
        let ticket = self.gate.store(command, out);
        self.unstored.left(ticket, before);
    }

    pub(super) fn before(&self) -> Before {
        Before {
            memory: self.memory.clone(),
            stable: self.stable,
            restarted: self.restarted,
            lacks: self.lacks,
            reach: self.reach.clone(),
        }
    }

    fn replicated(&mut self, from: Address, view: ViewNumber, batch: Position, out: &mut Vec<RoleEffect>) {
        let Address::Node(node, _) = from else { return };
        if let Some(found) = self.batches.get_mut(&(view, batch)) {
            found.backups.remove(&node);
            self.answer_if_held(view, batch, out);
        }
    }

    fn answer_if_held(&mut self, view: ViewNumber, batch: Position, out: &mut Vec<RoleEffect>) {
        let held = |batch: &Batch| batch.held_here && batch.backups.is_empty();
        if self.batches.get(&(view, batch)).is_some_and(held) {
            let Batch { leader, voids, .. } = self.batches.remove(&(view, batch)).expect("just seen");
            self.answered.bound.insert((view, batch), voids.clone());
            send(leader, Message::Bound { view, batch, stable: self.stable, voids }, out);
        }
    }

    /// Believes a leader of the registered view. Says whether it could.
    fn learn_stable(&mut self, view: ViewNumber, stable: Position, out: &mut Vec<RoleEffect>) -> bool {
        let early = self.options.deviates(Deviation::StableBeforeRegister) && view == self.memory.claim;
        if view != self.view_number() && !early {
            return false;
        }
        // Where each replica gives out what it has itself, it does not go by others.
        let stable = if self.has_local_log() { stable.min(self.reach.end) } else { stable };
        self.advance_stable(stable, out);
        true
    }

    /// Primary: tells the backups what became stable without a batch that would carry it.
    pub(super) fn pass_on_stable(&self, view: ViewNumber, out: &mut Vec<RoleEffect>) {
        let Some(members) = self.members().filter(|members| members.primary() == self.me()) else { return };
        for backup in &members.replicas[1..] {
            let to = Address::Node(backup.node, Endpoint::Shard(self.shard));
            send(to, Message::Stable { view, stable: self.stable }, out);
        }
    }

    /// Primary: a backup says how far it knows, because it was asked for more.
    fn inform_backup(&self, from: Address, view: ViewNumber, known: Position, out: &mut Vec<RoleEffect>) {
        let is_primary = self.members().is_some_and(|members| members.primary() == self.me());
        if is_primary && view == self.view_number() && view == self.memory.claim && known < self.stable {
            send(from, Message::Stable { view, stable: self.stable }, out);
        }
    }

    /// Backup: what the primary sent may have been lost.
    pub(super) fn ask_primary(&self, out: &mut Vec<RoleEffect>) {
        let Some(members) = self.members().filter(|members| members.primary() != self.me()) else { return };
        let to = Address::Node(members.primary().node, Endpoint::Shard(self.shard));
        send(to, Message::StableKnown { view: self.view_number(), stable: self.stable }, out);
    }

    /// The replicas of the shard in the latest view that this one knows.
    pub(super) fn members(&self) -> Option<&ShardMembers> {
        self.memory.view.as_ref()?.shard(self.shard)
    }

    pub(super) fn advance_stable(&mut self, stable: Position, out: &mut Vec<RoleEffect>) {
        if stable > self.stable {
            self.gate.store(StorageCommand::Stable(stable), out);
            self.raise_stable(stable, out);
        }
    }

    fn raise_stable(&mut self, stable: Position, out: &mut Vec<RoleEffect>) {
        if stable > self.stable {
            self.stable = stable;
            self.answered.forget_below(stable);
            self.chain.forget_below(stable);
            self.finish_placed(out);
            self.readers.stable_advanced(&self.bounds(), out);
        }
    }

    fn fence(
        &mut self,
        now: Time,
        from: Address,
        claim: ViewNumber,
        entry: &control::LogEntry,
        out: &mut Vec<RoleEffect>,
    ) {
        let known = self.view_number().max(self.reports.cannot_start());
        if claim >= self.memory.claim && behind::is_shown_by(claim, entry.view_number(), known) {
            // The register was set back: what it would have in place of that view is older.
            let message = control::Message::Ahead { claim, view: known };
            return out.push(RoleEffect::Send { to: from, message: message.into() });
        }
        self.reports.be_patient(now);
        if claim > self.memory.claim {
            self.trim_as_wanted(out);
            let before = self.before();
            // A view that was registered, and that it did not see start, is the old view now.
            self.learn(now, entry, out);
            let is_fresh = entry.view.as_ref().is_none_or(|view| view.shard(self.shard).is_none());
            let was_member = is_fresh || self.is_named() && self.view_number() == entry.view_number();
            if !was_member {
                // A replica that is away may also miss a trim.
                self.lacks.get_or_insert(Lacking { from: self.stable, end: self.stable });
                if self.has_local_log() {
                    self.misses_cuts();
                    // Records that a failed attempt placed are bound in the store as far as they count.
                    self.unordered.forget_placed();
                }
                self.leave_unordered(out);
            }
            self.memory.claim = claim;
            self.memory.config = entry.config.clone();
            self.stop_batches(out);
            self.chain.fenced(claim);
            self.drop_unstable();
            self.remember(before, out);
        }
        let fenced = self.fenced();
        self.gate.confirm(from, fenced, out);
    }

    /// The replicas that pushed batches do not count any more.
    fn stop_batches(&mut self, out: &mut Vec<RoleEffect>) {
        self.batches.clear();
        self.answered = Answered::default();
        self.writes.clear();
        self.chain.stop();
        self.stop_local_log(out);
        self.unordered.stop_waiting();
    }

    /// Takes note of a registered view that names it and that it was fenced for. Says whether there was
    /// one to take note of. To be remembered by the caller.
    fn learn(&mut self, now: Time, entry: &control::LogEntry, out: &mut Vec<RoleEffect>) -> bool {
        let Some(view) = &entry.view else { return false };
        let Some(members) = view.shard(self.shard) else { return false };
        let named = members.replicas.contains(&self.me());
        if view.number <= self.view_number() || !named || self.memory.claim < view.number {
            return false;
        }
        if !self.is_named() {
            self.copying.newborn(now, self.options);
        }
        // A replica that was away may also have missed a trim: one that the history tells of, and later ones.
        self.trim_below(entry.history.start(), out);
        self.raise_stable(entry.history.start(), out);
        // Where the shard had not joined, there is nothing that it could lack.
        let from = self.trim.max(members.begins);
        let lacks = match self.has_local_log() {
            true => self.lacks_below(view, members.begins),
            false => {
                self.held().lacks_from(&entry.history, view.first).filter(|_| members.begins < view.first)
            }
        };
        self.lacks = lacks.map(|range| range.not_below(from));
        self.reach = Reach::from(view.start);
        self.chain.enter_view(view.number, view.start);
        if let Some((known, before)) =
            self.memory.view.as_ref().and_then(|known| Some((known, known.shard(self.shard)?)))
        {
            self.copying.former.succeed(known.number, before, members);
        }
        self.memory.view = Some(view.clone());
        self.memory.history = entry.history.clone();
        self.memory.history.forget_below(self.trim);
        self.leave_gaps();
        self.copying.restart();
        true
    }

    /// No replica has to give what is lost.
    pub(super) fn leave_gaps(&mut self) {
        let gaps = self.memory.history.gaps_of(self.shard);
        self.lacks = self.lacks.map(|range| range.without(gaps.clone()));
    }

    /// The defect: versions at or above the stable bound count for nothing any more.
    fn drop_unstable(&mut self) {
        if self.options.deviates(Deviation::FenceDrops) {
            self.memory.history.push(self.memory.claim, self.stable);
        }
    }

    fn registered(&mut self, now: Time, entry: &control::LogEntry, out: &mut Vec<RoleEffect>) {
        let Some(view) = &entry.view else { return };
        if view.number < self.view_number() || view.number == self.view_number() && !self.restarted {
            return;
        }
        let before = self.before();
        if !self.learn(now, entry, out) {
            // It is not counted on there: only a new view can bring it back. Those in its place may need it first.
            if view.number > self.reports.cannot_start() {
                self.needed_until = now + NEEDED_FOR;
            }
            self.reports.note(now, view.number);
            if view.number > self.memory.claim {
                // Nobody fenced it, but its view is over: it is as if somebody had.
                self.memory.claim = view.number;
                self.stop_batches(out);
                self.remember(before, out);
            }
            return;
        }
        self.unordered.enter_view(view.first);
        self.drop_unstable();
        self.restarted = false;
        self.reports.started();
        self.remember(before, out);
        // That the view's start is stable is part of what was just remembered.
        self.raise_stable(view.start, out);
        self.begin_local_log(now, out);
        if self.is_closed() {
            // A record that was put and is not bound by now never will be: no replica admits names of this shard any more.
            self.leave_unordered(out);
        }
    }

    fn disconnected(&mut self, now: Time, peer: Peer) {
        self.readers.forget(peer);
        self.writer_disconnected(peer);
        self.unordered.disconnected(now, peer);
    }

    fn timer(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if !self.is_open() {
            let me = self.me();
            self.reports.report(now, me, self.view_number(), out);
        }
        self.ask_for_missing(now, out);
        self.report_unnamed(now, out);
        self.local_timer(now, out);
        self.decide_vacant(now, out);
        self.readers.expire(now, out);
        self.copy(now, out);
        self.scrub(now, out);
    }
}

pub(super) fn send(to: Address, message: Message, out: &mut Vec<RoleEffect>) {
    out.push(RoleEffect::Send { to, message: message.into() });
}
