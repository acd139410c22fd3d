//! The local log of a shard: records in the order in which the primary received them (Scalog §3).
//!
//! ```text
//! client          primary          backup          leader
//!   |--- Submit ---->|                |              |
//!   |                |--LocalAppend-->|              |
//!   |                |--- Report -----|------------->|
//!   |                |                |--- Report -->|
//!   |                |<-- Cover ------|--------------|    a committed cut
//!   |<-- Appended ---|                |              |
//!   |                |- ReplicateC. ->|              |
//!   |                |<- Replicated --|              |
//!   |                |--- Bound ------|------------->|
//! ```
//!
//! Each view begins a new local log. Fenced replicas keep the uncovered records (`rests.rs`) for
//! the closing cut (`closing.rs`). When the next view begins, they discard the records that it does
//! not cover either; the clients submit these again. The primary forwards records without waiting.
//! Each replica reports its own durable length, at most once per interval.

mod applied_cuts;
mod closing;
mod foretelling;
mod message;
mod padding;
mod rests;
mod retired;

pub use message::{Message, Rest, Submitted};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::storage::{MissingRange, StorageCommand};
use seriatim_model::{
    Address, Endpoint, IdRun, Incarnation, Member, NodeId, Position, Record, RecordId, SessionId, Ticket,
    Time, View, ViewHistory, ViewNumber, limits,
};

use crate::mutation::Mutation;
use crate::parts::HeldIds;
use crate::parts::junk::is_of_nobody;
use crate::roles::{self, RoleEffect};
use crate::shard::{self, Applied, Core, DataPath, Foretold, Retired, Write, send};

use foretelling::Foretelling;
use padding::{Awaited, Turn, Turns};
use rests::Frozen;
use retired::Owing;

type Out = Vec<RoleEffect>;

/// Data path of a log ordered by cuts.
#[derive(Clone, Debug)]
pub(crate) struct LocalPath {
    local: LocalLog,
    /// The local log of an ended view, until its successor is known.
    frozen: Option<Frozen>,
    /// Records of the local log, until their positions are final.
    pub(super) ids: HeldIds,
    pub(super) applied: Applied,
    /// Request for missed cuts, if the shard is retired.
    owing: Option<Owing>,
}

/// The undecided part of a shard's local log on one replica.
///
/// Invariant: `chunks` are consecutive from `decided` or below up to `length`; `durable <= length`.
#[derive(Clone, Debug, Default)]
struct LocalLog {
    /// The view whose start is index 0. `NONE`: there is no local log.
    of: ViewNumber,
    chunks: VecDeque<Chunk>,
    records: usize,
    bytes: usize,
    /// Index of the next record.
    length: u64,
    /// Records with lower indexes have their final positions, or never get one.
    decided: u64,
    /// Primary: the leader knows the names of all lower indexes.
    named: u64,
    /// The length last reported to the leader, and when.
    reported: u64,
    reported_at: Option<Time>,
    turn: Turn,
    /// Decided lengths of the local log. Each takes effect when all positions below its key are
    /// final here.
    decisions: BTreeMap<Position, u64>,
    submitters: BTreeMap<SessionId, Submitter>,
    backups: BTreeMap<NodeId, Backup>,
    /// Backup: index from which it asked the primary to send again.
    asked_from: Option<u64>,
    turns: Turns,
    awaited: Awaited,
    foretelling: Foretelling,
    /// Backup: the durable length last reported to the primary.
    acknowledged: u64,
    /// The write of the entry into the view. Before it is durable, a restarted replica might enter
    /// again and repeat its actions.
    began: Ticket,
}

#[derive(Clone, Debug)]
struct Chunk {
    index: u64,
    names: Submitted,
    records: Vec<Record>,
    stored: Stored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Writing(Ticket),
    /// The store had no room; the chunk is written again at this time.
    Failed(Time),
    Durable,
}

#[derive(Clone, Copy, Debug)]
struct Submitter {
    next: u64,
    client: Address,
}

#[derive(Clone, Copy, Debug)]
struct Backup {
    incarnation: Incarnation,
    received: u64,
    stored: u64,
    /// Time of the last message to the backup or from it.
    heard_at: Time,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.index + self.names.ids.count
    }

    fn named(&self) -> Vec<(RecordId, Record)> {
        self.names.ids.ids().zip(self.records.iter().cloned()).collect()
    }

    fn bytes(&self) -> usize {
        self.records.iter().map(Record::size).sum()
    }
}

impl LocalLog {
    fn durable(&self) -> u64 {
        let waiting = self.chunks.iter().find(|chunk| chunk.stored != Stored::Durable);
        waiting.map_or(self.length, |chunk| chunk.index)
    }

    fn add(&mut self, names: Submitted, records: Vec<Record>, ticket: Ticket) {
        let chunk = Chunk { index: self.length, names, records, stored: Stored::Writing(ticket) };
        self.records += chunk.records.len();
        self.bytes += chunk.bytes();
        self.push(chunk);
    }

    fn push(&mut self, chunk: Chunk) {
        let end = self.chunks.back().map_or(chunk.index, Chunk::end);
        assert!(end == chunk.index && end == self.length, "the local log continues at its end");
        self.length = chunk.end();
        self.chunks.push_back(chunk);
    }

    fn names(&self, ids: IdRun) -> bool {
        let is_one = |chunk: &Chunk| {
            let known = chunk.names.ids;
            known.session == ids.session && known.first < ids.end() && ids.first < known.end()
        };
        self.chunks.iter().any(is_one)
    }

    fn has_room(&self, records: &[Record], limits: limits::Limits) -> bool {
        let bytes: usize = records.iter().map(Record::size).sum();
        let fits =
            self.records + records.len() <= limits.ring_records && self.bytes + bytes <= limits.ring_bytes;
        fits || self.records == 0
    }

    fn is_full(&self) -> bool {
        self.chunks.iter().any(|chunk| matches!(chunk.stored, Stored::Failed(_)))
    }

    fn persisted(&mut self, ticket: Ticket) {
        for chunk in &mut self.chunks {
            if matches!(chunk.stored, Stored::Writing(written) if written <= ticket) {
                chunk.stored = Stored::Durable;
            }
        }
    }

    /// Drops chunks that cuts below `stable` decided. Returns their ids.
    fn decide(&mut self, stable: Position) -> Vec<IdRun> {
        while let Some(entry) = self.decisions.first_entry().filter(|entry| *entry.key() <= stable) {
            self.decided = self.decided.max(entry.remove());
        }
        let mut done = vec![];
        while self.chunks.front().is_some_and(|chunk| chunk.end() <= self.decided) {
            let chunk = self.chunks.pop_front().expect("the front was just seen");
            self.records -= chunk.records.len();
            self.bytes -= chunk.bytes();
            done.push(chunk.names.ids);
        }
        self.catch_up_with_padding();
        done
    }

    /// When a report is due: at once if another shard waits, otherwise an interval after the last
    /// one. Without news, it is repeated while records are undecided.
    fn report_at(&self, interval: std::time::Duration) -> Option<Time> {
        let durable = self.durable();
        if durable > self.reported {
            if self.is_awaited(durable) {
                return Some(Time::ZERO);
            }
            return Some(self.reported_at.map_or(Time::ZERO, |at| at + interval));
        }
        self.reported_at.filter(|_| durable > self.decided).map(|at| at + interval + limits::RESEND_AFTER)
    }

    fn retry_at(&self) -> Option<Time> {
        let times = self.chunks.iter().filter_map(|chunk| match chunk.stored {
            Stored::Failed(at) => Some(at),
            _ => None,
        });
        times.min()
    }

    fn resend_at(&self) -> Option<Time> {
        let behind = self.backups.values().filter(|backup| backup.received < self.length);
        behind.map(|backup| backup.heard_at + limits::RESEND_AFTER).min()
    }
}

impl LocalPath {
    /// After a restart. The store has the records `put`, without positions, and everything below
    /// `stable`.
    pub(crate) fn recover(put: Vec<IdRun>, stable: Position) -> Self {
        let (ids, applied) = (HeldIds::recover(put), Applied::from(stable));
        Self { local: LocalLog::default(), frozen: None, ids, applied, owing: None }
    }
}

impl DataPath for LocalPath {
    fn boxed(&self) -> Box<dyn DataPath> {
        Box::new(self.clone())
    }

    fn receive(&mut self, core: &mut Core, now: Time, from: Address, message: roles::Message, out: &mut Out) {
        let roles::Message::CutsShard(message) = message else { return };
        match message {
            Message::Submit { view, session, lowest, first, records } => {
                let ids = IdRun { session, first, count: records.len() as u64 };
                self.submit(core, now, from, view, (Submitted { ids, lowest }, records), out);
            }
            Message::LocalAppend { view, incarnation, index, names, records }
                if incarnation == core.memory.incarnation
                    && core.accepts(from, view, out)
                    && self.has_begun(core) =>
            {
                self.local_append(core, from, index, names, records, out);
            }
            Message::LocalAck { view, length, asks }
                if self.has_begun(core) && view == core.view_number() =>
            {
                self.local_ack(core, now, from, (length, asks), out);
            }
            Message::LocalStored { view, length } if self.has_begun(core) && view == core.view_number() => {
                self.stored_at_backup(core, from, length, out);
            }
            Message::CutAck { view, end, length } if core.is_open() && view == core.view_number() => {
                // The leader may have missed reports beyond `length`.
                self.local.named = self.local.named.min(length);
                self.local.reported = self.local.reported.min(length);
                self.note_decided(core, end, length, out);
            }
            Message::Cover { view, of, batch, backups, length, runs }
                if applied_cuts::is_obeyed(core, from, view, of, out) =>
            {
                self.cover(core, from, (view, of, batch), backups, (length, runs), out);
            }
            Message::ReplicateCover { view, of, batch, incarnation, length, runs }
                if incarnation == core.memory.incarnation
                    && applied_cuts::is_obeyed(core, from, view, of, out) =>
            {
                let write = Write::Backup(from, view, batch);
                self.hold_cover(core, write, (view, of, batch), length, runs, out);
            }
            Message::AskRest { view, of } if Self::may_close(core, from, view, out) => {
                self.asked_for_rest(core, from, (view, of), out);
            }
            Message::Closing { view, batch, backups, runs } if Self::may_close(core, from, view, out) => {
                self.close(core, from, (view, batch), &backups, runs, out);
            }
            Message::ReplicateClosing { view, batch, incarnation, runs }
                if incarnation == core.memory.incarnation && Self::may_close(core, from, view, out) =>
            {
                self.replicate_closing(core, from, (view, batch), runs, out);
            }
            Message::Fix { view, length } if core.is_open() && view == core.view_number() => {
                self.fix(core, now, length, out);
            }
            Message::Owed { view, of, first, runs } => self.got_owed(core, (view, of), (first, runs), out),
            Message::Windows { view, windows } if core.is_open() && view == core.view_number() => {
                self.learn_windows(core, from, windows, out);
            }
            _ => {}
        }
    }

    fn stored(&mut self, core: &mut Core, ticket: Ticket, out: &mut Out) {
        self.local.persisted(ticket);
        self.rest_stored(ticket, out);
        self.owed_stored(core, ticket, out);
        self.cuts_stored(core, ticket, out);
        self.tell_stored(core, out);
        self.foretell(core, out);
    }

    /// Retries a write of the local log that found no room.
    fn failed(&mut self, core: &mut Core, now: Time, ticket: Ticket, out: &mut Out) {
        self.applied.failed(ticket);
        self.owed_failed(ticket);
        if let Some(names) = self.frozen.as_mut().and_then(|frozen| frozen.failed(ticket)) {
            self.ids.release(names.ids);
            return self.tell_rest(out);
        }
        let is_it = |chunk: &&mut Chunk| chunk.stored == Stored::Writing(ticket);
        let Some(chunk) = self.local.chunks.iter_mut().find(is_it) else { return };
        chunk.stored = Stored::Failed(now + limits::RESEND_AFTER);
        let ids = chunk.names.ids;
        self.ids.release(ids);
        if let Some(submitter) = self.local.submitters.get(&ids.session) {
            let message = shard::Message::Busy { view: core.view_number(), ids, disk_full: true };
            send(submitter.client, message, out);
        }
    }

    fn taken_back(&mut self, core: &mut Core, applied: Option<Applied>) {
        self.applied = applied.expect("it counts the applied prefix");
        // The view that these belong to is unknown.
        (self.frozen, self.owing) = (None, None);
        core.sit_out();
    }

    /// Clients with undecided records get `Fenced` and ask the leader of the next view, whose
    /// closing cut may cover them. The replica keeps the ids; the records are in the store.
    fn stopped(&mut self, core: &mut Core, out: &mut Out) {
        let local = std::mem::take(&mut self.local);
        let sessions: BTreeSet<SessionId> =
            local.chunks.iter().map(|chunk| chunk.names.ids.session).collect();
        for session in sessions {
            if let Some(submitter) = local.submitters.get(&session) {
                send(submitter.client, core.fenced(), out);
            }
        }
        let is_kept = local.of == core.view_number() && !core.options.mutates(Mutation::RestDropped);
        if local.of != ViewNumber::NONE && is_kept {
            self.frozen = Some(Frozen::new(local.of, local.decided, local.chunks));
        }
    }

    fn discard_unplaced(&mut self, core: &mut Core, out: &mut Out) {
        for ids in std::mem::take(&mut self.ids).unplaced() {
            core.gate.store(StorageCommand::Discard(ids), out);
        }
    }

    fn discard_unknown(&mut self, core: &mut Core, ids: Vec<IdRun>, out: &mut Out) {
        // An open replica knows all records that it holds: it discards none here.
        let unknown = ids.into_iter().filter(|_| !core.is_open()).flat_map(|ids| self.ids.missing(ids));
        for ids in unknown.collect::<Vec<_>>() {
            core.gate.store(StorageCommand::Discard(ids), out);
        }
    }

    fn passed_over(&mut self, core: &mut Core, out: &mut Out) {
        Self::misses_cuts(core);
        // Forgets positions from claims: if a claim became a view, the store has them.
        self.ids.forget_placed();
        self.discard_unplaced(core, out);
    }

    fn missing(&self, core: &Core, view: &View, _: &ViewHistory, begins: Position) -> Option<MissingRange> {
        Self::missing_below(core, view, begins)
    }

    fn learned(&mut self, view: &View) {
        self.applied = Applied::from(view.start);
        self.frozen = None;
    }

    /// Drops the frozen local log: no claim asks this replica for it.
    fn left_out(&mut self) {
        self.frozen = None;
    }

    fn retired(&mut self, core: &mut Core, now: Time, retired: Retired, out: &mut Out) {
        self.learn_retired(core, now, retired, out);
    }

    /// Begins the local log of a registered view. The leader gets a report, since it may have sent
    /// messages too early.
    fn entered(&mut self, core: &mut Core, now: Time, out: &mut Out) {
        if !core.is_open() {
            return;
        }
        let foretelling = Foretelling::begin(core.stable);
        let (of, began) = (core.view_number(), core.gate.issued());
        self.owing = None;
        self.local = LocalLog { of, began, foretelling, ..LocalLog::default() };
        self.ids.forget_placed();
        self.discard_unplaced(core, out);
        let Some(members) = core.members().cloned() else { return };
        tell_leader(core, (0, 0), vec![], out);
        if core.is_primary() {
            let backup = |member: &Member| {
                let incarnation = member.incarnation;
                (member.node, Backup { incarnation, received: 0, stored: 0, heard_at: now })
            };
            self.local.backups = members.replicas[1..].iter().map(backup).collect();
        } else {
            // The replica has accepted none of the primary's earlier messages.
            let to = Address::Node(members.primary().node, Endpoint::Shard(core.shard));
            let asks = Message::LocalAck { view: core.view_number(), length: 0, asks: true };
            core.gate.confirm(to, asks, out);
        }
    }

    fn stable_raised(&mut self, core: &mut Core, out: &mut Out) {
        let mut orphans = vec![];
        while let Some(run) = self.ids.next_final(core.stable, &core.memory.history) {
            self.ids.note_active(core.stable, run.ids.session);
            self.ids.forget_idle(core.options.limits.max_sessions, BTreeSet::new);
            orphans.extend(self.ids.finish(core.shard, run));
        }
        let idle = HeldIds::over_after(&core.memory.config, core.options.limits);
        orphans.extend(self.ids.sweep(core.stable, idle).into_iter().flatten());
        for ids in orphans {
            core.gate.store(StorageCommand::Discard(ids), out);
        }
    }

    fn applied(&self) -> Option<&Applied> {
        Some(&self.applied)
    }

    fn predictable(&self, core: &Core) -> Position {
        self.foretold_upto().max(core.stable)
    }

    fn committed(&self, core: &Core) -> Position {
        self.committed_upto().max(core.stable)
    }

    fn memory(&self) -> Option<&dyn Foretold> {
        (!self.local.turns.is_empty()).then_some(self)
    }

    fn unplaced(&self) -> u64 {
        self.ids.unplaced_count()
    }

    fn deadline(&self, core: &Core) -> Option<Time> {
        if !core.is_open() {
            return self.owing.as_ref().and_then(|owing| owing.deadline(core));
        }
        let report = self.local.report_at(core.memory.config.interval());
        let pad = self.pad_at(core);
        [report, pad, self.local.retry_at(), self.local.resend_at()].into_iter().flatten().min()
    }

    fn timer(&mut self, core: &mut Core, now: Time, out: &mut Out) {
        if self.deadline(core).is_none_or(|at| now < at) {
            return;
        }
        self.ask_for_owed(core, now, out);
        for index in 0..self.local.chunks.len() {
            let chunk = &self.local.chunks[index];
            if matches!(chunk.stored, Stored::Failed(at) if now >= at) {
                let (ids, named) = (chunk.names.ids, chunk.named());
                let ticket = core.gate.store(StorageCommand::Put(named), out);
                self.hold_submitted(ids);
                self.local.chunks[index].stored = Stored::Writing(ticket);
            }
        }
        let length = self.local.length;
        let is_late =
            |backup: &Backup| backup.received < length && now >= backup.heard_at + limits::RESEND_AFTER;
        let late: Vec<NodeId> =
            self.local.backups.iter().filter(|(_, backup)| is_late(backup)).map(|(node, _)| *node).collect();
        late.into_iter().for_each(|node| self.send_again(core, now, node, out));
        self.local.asked_from = None;
        self.pad_if_due(core, now, out);
        self.report(core, now, out);
    }
}

impl LocalPath {
    fn submit(
        &mut self,
        core: &mut Core,
        now: Time,
        client: Address,
        view: ViewNumber,
        (Submitted { mut ids, lowest }, mut records): (Submitted, Vec<Record>),
        out: &mut Out,
    ) {
        let bytes: usize = records.iter().map(Record::size).sum();
        let is_too_long = records.len() > 1 && bytes > limits::MAX_FRAME_BYTES / 2;
        if records.is_empty()
            || is_too_long
            || records.iter().any(|record| core.memory.config.is_too_large(record))
        {
            // Our clients never send this.
            return;
        }
        if !core.is_open() || view != core.view_number() || !core.is_primary() || core.is_closed() {
            return send(client, core.fenced(), out);
        }
        if !self.has_begun(core) {
            return send(client, shard::Message::Busy { view, ids, disk_full: false }, out);
        }
        let session = ids.session;
        let twice = core.options.mutates(Mutation::SubmittedTwice);
        let known = self.local.submitters.get(&session).filter(|_| !twice);
        let next = known.map_or(lowest, |known| known.next.max(lowest));
        if ids.first > next && !twice {
            return send(client, Message::OutOfOrder { view, session, expected: next }, out);
        }
        let skip = if twice { 0 } else { (next - ids.first).min(ids.count) };
        let disk_full = self.local.is_full();
        let limits = core.options.limits;
        let has_room = self.local.has_room(&records, limits) && !core.pressed;
        let share = self.ids.records().room(client.peer(), limits.held_records);
        if skip < ids.count && (disk_full || !has_room || share == 0) {
            return send(client, shard::Message::Busy { view, ids, disk_full }, out);
        }
        let taken = (skip + share).min(ids.count);
        if taken < ids.count {
            // The client's share has room for a part only.
            send(client, shard::Message::Busy { view, ids: ids.tail(taken), disk_full }, out);
            ids = ids.head(taken);
            records.truncate(taken as usize);
        }
        if self.local.submitters.len() >= core.options.limits.max_sessions {
            // This is safe: the leader recognizes duplicates of ordered records.
            self.local.submitters.clear();
        }
        let next = next.max(ids.end());
        self.local.submitters.insert(session, Submitter { next, client });
        records.drain(..skip as usize);
        if records.is_empty() {
            return;
        }
        let names = Submitted { ids: ids.tail(skip), lowest };
        let index = self.local.length;
        for (node, backup) in &mut self.local.backups {
            if backup.received == index {
                backup.heard_at = now;
            }
            let (incarnation, records) = (backup.incarnation, records.clone());
            let message = Message::LocalAppend { view, incarnation, index, names, records };
            send(Address::Node(*node, Endpoint::Shard(core.shard)), message, out);
        }
        self.append(core, names, records, out);
        self.local.note_turn(now, index);
        self.pad_if_due(core, now, out);
    }

    fn append(&mut self, core: &mut Core, names: Submitted, records: Vec<Record>, out: &mut Out) {
        let named = names.ids.ids().zip(records.iter().cloned()).collect();
        let ticket = core.gate.store(StorageCommand::Put(named), out);
        self.hold_submitted(names.ids);
        self.local.add(names, records, ticket);
    }

    fn hold_submitted(&mut self, ids: IdRun) {
        let submitter = self.local.submitters.get(&ids.session);
        self.ids.records_mut().add(ids, submitter.map(|submitter| submitter.client.peer()));
    }

    /// Backup: adds records from the primary, or asks for missing ones.
    fn local_append(
        &mut self,
        core: &mut Core,
        primary: Address,
        index: u64,
        names: Submitted,
        records: Vec<Record>,
        out: &mut Out,
    ) {
        let view = core.view_number();
        if index > self.local.length {
            if self.local.asked_from != Some(self.local.length) {
                self.local.asked_from = Some(self.local.length);
                send(primary, Message::LocalAck { view, length: self.local.length, asks: true }, out);
            }
            return;
        }
        if is_of_nobody(names.ids.session) && core.options.mutates(Mutation::PaddingUncounted) {
            return;
        }
        if is_of_nobody(names.ids.session) {
            self.local.add_padding(index + names.ids.count);
        } else if index == self.local.length {
            self.append(core, names, records, out);
        }
        send(primary, Message::LocalAck { view, length: self.local.length, asks: false }, out);
    }

    /// Primary: notes the length that a backup has received, and resends if it asks.
    fn local_ack(
        &mut self,
        core: &Core,
        now: Time,
        from: Address,
        (length, asks): (u64, bool),
        out: &mut Out,
    ) {
        let Address::Node(node, _) = from else { return };
        let Some(backup) = self.local.backups.get_mut(&node) else { return };
        backup.received = backup.received.max(length);
        backup.heard_at = now;
        if asks {
            self.send_again(core, now, node, out);
        }
    }

    /// Sends a backup missing records, chunk by chunk until `batch_bytes` are reached.
    fn send_again(&mut self, core: &Core, now: Time, node: NodeId, out: &mut Out) {
        let view = core.view_number();
        let Some(backup) = self.local.backups.get_mut(&node) else { return };
        backup.heard_at = now;
        let (incarnation, followed) = (backup.incarnation, backup.received);
        let mut bytes = 0;
        for chunk in self.local.chunks.iter().filter(|chunk| chunk.index >= followed) {
            bytes += chunk.bytes();
            let (index, names, records) = (chunk.index, chunk.names, chunk.records.clone());
            let message = Message::LocalAppend { view, incarnation, index, names, records };
            send(Address::Node(node, Endpoint::Shard(core.shard)), message, out);
            if bytes >= core.options.limits.batch_bytes {
                break;
            }
        }
    }

    fn has_begun(&self, core: &Core) -> bool {
        core.is_open() && core.gate.is_durable(self.local.began)
    }

    /// Cuts up to `position` decide indexes below `length`, once the store has these cuts.
    pub(super) fn note_decided(&mut self, core: &mut Core, position: Position, length: u64, out: &mut Out) {
        let known = self.local.decisions.entry(position).or_default();
        *known = length.max(*known);
        self.finish_decided(core, out);
    }

    /// Drops decided records. Discards skipped ones, which never get a position.
    pub(super) fn finish_decided(&mut self, core: &mut Core, out: &mut Out) {
        let decided = self.local.decide(core.stable);
        self.forget_foretold(core);
        self.foretell(core, out);
        for ids in decided.into_iter().filter(|ids| !is_of_nobody(ids.session)) {
            for passed_over in self.ids.within(ids) {
                if self.local.names(passed_over) {
                    // The record was submitted twice: a later copy may still be ordered.
                    continue;
                }
                self.ids.release(passed_over);
                core.gate.store(StorageCommand::Discard(passed_over), out);
            }
        }
    }

    pub(super) fn answer_submitters(
        &self,
        core: &Core,
        named: impl Iterator<Item = (IdRun, Position)>,
        out: &mut Out,
    ) {
        let view = core.view_number();
        for (ids, first) in named {
            if let Some(submitter) = self.local.submitters.get(&ids.session) {
                send(submitter.client, Message::Appended { view, ids, first }, out);
            }
        }
    }

    /// Reports the durable length to the leader, if due. Only the primary adds names.
    fn report(&mut self, core: &Core, now: Time, out: &mut Out) {
        let interval = core.memory.config.interval();
        if self.local.report_at(interval).is_none_or(|at| now < at) {
            return;
        }
        let length = self.local.durable();
        // Without a new length, this repeats undecided names.
        let from = if length > self.local.reported { self.local.named } else { self.local.decided };
        // After an old `CutAck`, `from` may lie in dropped chunks, whose names the leader knows.
        let from = self.local.chunks.front().map_or(from, |chunk| from.max(chunk.index));
        let new = self.local.chunks.iter().filter(|chunk| chunk.end() > from && chunk.end() <= length);
        let names: Vec<Submitted> = match core.is_primary() {
            // `from` may lie within the first chunk, where a turn ended.
            true => new.map(|chunk| chunk.names.tail(from.saturating_sub(chunk.index))).collect(),
            false => vec![],
        };
        tell_leader(core, (length, from), names, out);
        (self.local.named, self.local.reported, self.local.reported_at) = (length, length, Some(now));
    }
}

fn tell_leader(core: &Core, (length, from): (u64, u64), names: Vec<Submitted>, out: &mut Out) {
    let Some(view) = core.memory.view.as_ref() else { return };
    let leader = Address::Node(view.leader, Endpoint::Sequencer);
    send(leader, Message::Report { view: view.number, length, from, names }, out);
}
