//! A replica of a shard: primary or backup, as each batch says.
//!
//! A replica learns its part from what it is sent: a `Bind` names the backups of the one that receives
//! it, a `Replicate` names the life of the backup that is meant. Both carry the view, so a deposed
//! primary is refused by its backups, and a replica that lost its memory by everyone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::storage::{Run, ShardMemory, ShardRecovery, StorageCommand};
use seriatim_model::{
    Address, Durability, Endpoint, Input, LogConfig, Machine, Member, NodeId, Peer, Position, ShardId,
    ShardMembers, Ticket, Time, ViewHistory, ViewNumber, limits,
};

use super::message::{Message, ReadError};
use super::readers::Readers;
use super::unstored::{Before, Unstored};
use crate::control;
use crate::deviation::{Deviation, Options};
use crate::parts::Gate;
use crate::roles::{self, RoleEffect, RoleInput};

/// How long a fenced replica waits for its new view before it asks for one.
const FENCED_PATIENCE: std::time::Duration = std::time::Duration::from_millis(400);

/// One replica of one shard of one log.
///
/// Invariants: it binds only what is pushed under `memory.claim`; `stable` never decreases and never
/// exceeds what a leader of a registered view, or the register, announced.
#[derive(Debug)]
pub struct Replica {
    node: NodeId,
    shard: ShardId,
    control: NodeId,
    options: Options,
    gate: Gate,
    pub(super) memory: ShardMemory,
    restarted: bool,
    pub(super) stable: Position,
    pub(super) trim: Position,
    /// Batches that this replica is primary for, and that are not held everywhere yet.
    batches: BTreeMap<(ViewNumber, Position), Batch>,
    /// Writes on their way, oldest first, with what to do when they are durable.
    writes: VecDeque<(Ticket, Write)>,
    unstored: Unstored,
    /// The end of the highest run that was pushed. Only the simulator's defects use it.
    pushed: Position,
    readers: Readers,
    cannot_start: ViewNumber,
    report_at: Time,
}

#[derive(Debug)]
struct Batch {
    leader: Address,
    held_here: bool,
    backups: BTreeSet<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
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
            Input::Message { .. } | Input::DiskFull(_) => {}
            Input::Persisted(ticket) => self.persisted(ticket, out),
            Input::StoreFailed(ticket, _) => self.store_failed(ticket),
            Input::Read(ticket, outcome) => self.readers.read(ticket, outcome, self.stable, self.trim, out),
            Input::Disconnected(peer) => self.disconnected(peer),
            Input::Timer => self.timer(now, out),
            Input::Request { request, .. } => match request {},
        }
    }

    fn deadline(&self) -> Option<Time> {
        let report = self.wants_a_view().then_some(self.report_at);
        [report, self.readers.deadline()].into_iter().flatten().min()
    }
}

impl Replica {
    /// A replica that never held anything. `control` is the node of the register and the controller.
    #[must_use]
    pub fn new(me: Member, shard: ShardId, control: NodeId, config: LogConfig, options: Options) -> Self {
        let memory = ShardMemory {
            incarnation: me.incarnation,
            config,
            claim: ViewNumber::NONE,
            view: None,
            history: ViewHistory::default(),
        };
        let recovery = ShardRecovery { memory: Some(memory), stable: Position::ZERO, trim: Position::ZERO };
        Self::recover(me, shard, control, recovery, options).expect("it has its memory")
    }

    /// Rebuilds a replica from its store. It answers reads below what it knows to be stable, and waits
    /// for a new view. `me` names a new life if the store may have lost something; then what it holds
    /// below `stable` is all that it is good for.
    ///
    /// Nothing, if the store remembers nothing.
    #[must_use]
    pub fn recover(
        me: Member,
        shard: ShardId,
        control: NodeId,
        recovery: ShardRecovery,
        options: Options,
    ) -> Option<Self> {
        let mut memory = recovery.memory?;
        memory.incarnation = me.incarnation;
        let forgetful = options.deviates(Deviation::ConfirmBeforeSync);
        let waits = !(forgetful && memory.config.durability == Durability::Disk);
        Some(Self {
            node: me.node,
            shard,
            control,
            options,
            gate: Gate::new(waits),
            memory,
            restarted: true,
            stable: recovery.stable,
            trim: recovery.trim,
            batches: BTreeMap::new(),
            writes: VecDeque::new(),
            unstored: Unstored::default(),
            pushed: Position::ZERO,
            readers: Readers::default(),
            cannot_start: ViewNumber::NONE,
            report_at: Time::ZERO,
        })
    }

    /// What the replica remembers besides its records; also what a new one has to write first.
    #[must_use]
    pub fn memory(&self) -> &ShardMemory {
        &self.memory
    }

    /// The stable bound that it knows.
    #[must_use]
    pub fn stable(&self) -> Position {
        self.stable
    }

    fn view_number(&self) -> ViewNumber {
        self.memory.view.as_ref().map_or(ViewNumber::NONE, |view| view.number)
    }

    fn me(&self) -> Member {
        Member { node: self.node, incarnation: self.memory.incarnation }
    }

    fn wants_a_view(&self) -> bool {
        let named = self.memory.view.as_ref().is_some_and(|view| {
            view.shard(self.shard).is_some_and(|members| members.replicas.contains(&self.me()))
        });
        self.restarted || !named || self.memory.claim != self.view_number()
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
                if incarnation == self.memory.incarnation && self.accepts(from, view, out) {
                    self.hold(Write::Backup(from, view, batch), view, runs, out);
                    self.learn_stable(view, stable, out);
                }
            }
            Message::Replicated { view, batch } => self.replicated(from, view, batch, out),
            Message::Stable { view, stable } => {
                if self.accepts(from, view, out) && self.learn_stable(view, stable, out) {
                    self.pass_on_stable(view, out);
                    if let Address::Node(_, Endpoint::Sequencer) = from {
                        send(from, Message::StableKnown { view, stable: self.stable }, out);
                    }
                }
            }
            Message::StableKnown { view, stable } => self.inform_backup(from, view, stable, out),
            Message::Fence { claim, config } => self.fence(now, from, claim, &config, out),
            Message::Status { request } => {
                let (view, stable, trim) = (self.view_number(), self.stable, self.trim);
                send(from, Message::StatusIs { request, view, stable, trim }, out);
            }
            Message::Trim { request, position } => self.trim(from, request, position, out),
            message => {
                let final_below = self.readable();
                self.readers.receive(now, from, message, final_below, self.trim, out);
            }
        }
    }

    /// Below this, readers may see what is bound.
    fn readable(&self) -> Position {
        if self.options.deviates(Deviation::ReadsUnstable) {
            self.stable.max(self.pushed)
        } else {
            self.stable
        }
    }

    /// Whether pushes of `view` are obeyed. Whoever's view is over is told.
    fn accepts(&self, from: Address, view: ViewNumber, out: &mut Vec<RoleEffect>) -> bool {
        let skipped = self.options.deviates(Deviation::FenceSkipped);
        if view < self.memory.claim && !skipped {
            send(from, self.fenced(), out);
        }
        // A life that the view does not name may have lost what the view counts on.
        let is_counted_on = view != self.view_number()
            || self.members().is_some_and(|members| members.replicas.contains(&self.me()));
        view == self.memory.claim && is_counted_on || skipped
    }

    fn fenced(&self) -> Message {
        Message::Fenced { claim: self.memory.claim, incarnation: self.memory.incarnation }
    }

    fn bind(
        &mut self,
        leader: Address,
        view: ViewNumber,
        name: Position,
        backups: &[Member],
        runs: Vec<Run>,
        out: &mut Vec<RoleEffect>,
    ) {
        let skipped = self.options.deviates(Deviation::BackupsSkipped);
        let everyone = backups.iter().map(|backup| backup.node).filter(|_| !skipped).collect();
        // A batch that is sent again goes on where it is: to the backups that have not answered.
        let batch = Batch { leader, held_here: false, backups: everyone };
        let known = self.batches.entry((view, name)).or_insert(batch);
        known.leader = leader;
        let held_here = known.held_here;
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
            self.hold(Write::Primary(view, name), view, runs, out);
        }
    }

    /// Writes a batch, unless the very same write is on its way already.
    fn hold(&mut self, write: Write, view: ViewNumber, runs: Vec<Run>, out: &mut Vec<RoleEffect>) {
        if self.writes.iter().any(|(_, under_way)| *under_way == write) {
            return;
        }
        self.pushed = runs.iter().map(Run::end).chain([self.pushed]).max().unwrap_or_default();
        let ticket = self.gate.store(StorageCommand::Bind { view, runs }, out);
        self.writes.push_back((ticket, write));
        if self.gate.is_durable(ticket) {
            self.persisted(ticket, out);
        }
    }

    fn persisted(&mut self, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        self.gate.persisted(ticket, out);
        self.unstored.stored(ticket);
        while self.writes.front().is_some_and(|(written, _)| *written <= ticket) {
            let (_, write) = self.writes.pop_front().expect("the front was just seen");
            match write {
                Write::Primary(view, batch) => {
                    if let Some(found) = self.batches.get_mut(&(view, batch)) {
                        found.held_here = true;
                        self.answer_if_held(view, batch, out);
                    }
                }
                Write::Backup(primary, view, batch) => {
                    send(primary, Message::Replicated { view, batch }, out);
                }
            }
        }
    }

    /// Nothing of this write is there: it is not answered, and comes again. A change of what is
    /// remembered is taken back: what the replica does with records, its store has to know.
    fn store_failed(&mut self, ticket: Ticket) {
        self.writes.retain(|(written, _)| *written != ticket);
        self.gate.failed(ticket);
        if let Some(Before { memory, stable, restarted }) = self.unstored.failed(ticket) {
            (self.memory, self.stable, self.restarted) = (memory, stable, restarted);
            self.readers.discard_reads();
        }
    }

    /// Writes what is remembered, as it is now, in place of what it was `before`.
    fn remember(&mut self, before: Before, out: &mut Vec<RoleEffect>) {
        let ticket = self.gate.store(StorageCommand::Remember(self.memory.clone()), out);
        self.unstored.left(ticket, before);
    }

    fn before(&self) -> Before {
        Before { memory: self.memory.clone(), stable: self.stable, restarted: self.restarted }
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
            let leader = self.batches.remove(&(view, batch)).expect("just seen").leader;
            send(leader, Message::Bound { view, batch, stable: self.stable }, out);
        }
    }

    /// Believes a leader of the registered view. Says whether it could.
    fn learn_stable(&mut self, view: ViewNumber, stable: Position, out: &mut Vec<RoleEffect>) -> bool {
        if view != self.view_number() {
            return false;
        }
        self.advance_stable(stable, out);
        true
    }

    /// Primary: tells the backups what became stable without a batch that would carry it.
    fn pass_on_stable(&self, view: ViewNumber, out: &mut Vec<RoleEffect>) {
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
    fn ask_primary(&self, out: &mut Vec<RoleEffect>) {
        let Some(members) = self.members().filter(|members| members.primary() != self.me()) else { return };
        let to = Address::Node(members.primary().node, Endpoint::Shard(self.shard));
        send(to, Message::StableKnown { view: self.view_number(), stable: self.stable }, out);
    }

    /// The replicas of the shard in the latest view that this one knows.
    fn members(&self) -> Option<&ShardMembers> {
        self.memory.view.as_ref()?.shard(self.shard)
    }

    fn advance_stable(&mut self, stable: Position, out: &mut Vec<RoleEffect>) {
        if stable > self.stable {
            self.gate.store(StorageCommand::Stable(stable), out);
            self.raise_stable(stable, out);
        }
    }

    fn raise_stable(&mut self, stable: Position, out: &mut Vec<RoleEffect>) {
        if stable > self.stable {
            self.stable = stable;
            let readable = self.readable();
            self.readers.stable_advanced(readable, self.trim, out);
        }
    }

    fn fence(
        &mut self,
        now: Time,
        from: Address,
        claim: ViewNumber,
        config: &LogConfig,
        out: &mut Vec<RoleEffect>,
    ) {
        self.report_at = now + FENCED_PATIENCE;
        if claim > self.memory.claim {
            let before = self.before();
            self.memory.claim = claim;
            self.memory.config = config.clone();
            self.batches.clear();
            self.writes.clear();
            self.remember(before, out);
        }
        let fenced = self.fenced();
        self.gate.confirm(from, fenced, out);
    }

    fn registered(&mut self, now: Time, entry: &control::LogEntry, out: &mut Vec<RoleEffect>) {
        let Some(view) = &entry.view else { return };
        if view.number < self.view_number() || view.number == self.view_number() && !self.restarted {
            return;
        }
        let members = view.shard(self.shard);
        let named = members.is_some_and(|members| members.replicas.contains(&self.me()));
        if !named || self.memory.claim < view.number || view.number == self.view_number() {
            // It is not counted on there: only a new view can bring it back.
            self.cannot_start = self.cannot_start.max(view.number);
            self.report_at = now;
            return;
        }
        let before = self.before();
        self.memory.view = Some(view.clone());
        self.memory.history = entry.history.clone();
        self.restarted = false;
        self.remember(before, out);
        // That the view's start is stable is part of what was just remembered.
        self.raise_stable(view.start, out);
    }

    fn trim(&mut self, from: Address, request: u64, position: Position, out: &mut Vec<RoleEffect>) {
        if position > self.stable {
            self.ask_primary(out);
            let error = ReadError::NotStable { stable: self.stable };
            return send(from, Message::ReadFailed { request, error }, out);
        }
        if position > self.trim {
            self.trim = position;
            self.memory.history.forget_below(position);
            self.gate.store(StorageCommand::Trim(position), out);
            self.readers.trimmed(position, out);
        }
        self.gate.confirm(from, Message::Trimmed { request, first: self.trim }, out);
    }

    fn disconnected(&mut self, peer: Peer) {
        self.readers.forget(peer);
    }

    fn timer(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if self.wants_a_view() && now >= self.report_at {
            self.report_at = now + limits::REPORT_EVERY;
            let message = control::Message::Report {
                view: self.view_number(),
                cannot_start: self.cannot_start,
                incarnation: self.memory.incarnation,
            };
            let to = Address::Node(self.control, Endpoint::Controller);
            out.push(RoleEffect::Send { to, message: message.into() });
        }
        self.readers.expire(now, out);
    }
}

pub(super) fn send(to: Address, message: Message, out: &mut Vec<RoleEffect>) {
    out.push(RoleEffect::Send { to, message: message.into() });
}
