//! The local log of a shard: records that are submitted to its primary, in the order in which they came (Scalog §3).
//!
//! ```text
//! client          primary          backup          leader
//!   |--- Submit ---->|                |              |
//!   |                |--- Follow ---->|              |
//!   |                |--- Report -----|------------->|
//!   |                |                |--- Report -->|
//!   |                |<-- Cover ------|--------------|    a committed cut
//!   |<-- Appended ---|                |              |
//!   |                |- ReplicateC. ->|              |
//!   |                |<- Replicated --|              |
//!   |                |--- Bound ------|------------->|
//! ```
//!
//! A local log begins anew with each view: what no cut of a view covered is discarded when the next one begins, and
//! its client submits it again. The primary passes records on without waiting, and each replica reports for itself how
//! much is durable on it, at most once in each interval, and only if there is news.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::storage::StorageCommand;
use seriatim_model::{
    Address, Endpoint, IdRun, Incarnation, Member, NodeId, Position, Record, RecordId, SessionId, Ticket,
    Time, ViewNumber, limits,
};

use super::message::{Message, Submitted};
use super::primary_backup::{Replica, send};
use crate::deviation::Deviation;
use crate::roles::RoleEffect;

type Out = Vec<RoleEffect>;

/// The part of a shard's local log that is not decided yet, as one replica has it.
///
/// Invariant: `chunks` follow each other from `decided` or below up to `length`; `durable <= length`.
#[derive(Clone, Debug, Default)]
pub(super) struct Local {
    chunks: VecDeque<Chunk>,
    records: usize,
    bytes: usize,
    /// The index of what comes next.
    length: u64,
    /// Below this index every record has its position, or will never get one.
    decided: u64,
    /// Primary: below this index the leader was told whose records they are.
    told: u64,
    /// The length that the leader was told last, and when.
    reported: u64,
    reported_at: Option<Time>,
    /// How much of the local log is decided when positions below the key are final here.
    decisions: BTreeMap<Position, u64>,
    /// Primary: who submits.
    submitters: BTreeMap<SessionId, Submitter>,
    /// Primary: how far the backups are.
    backups: BTreeMap<NodeId, Backup>,
    /// Backup: from where on the primary was asked to go on.
    asked_from: Option<u64>,
    /// The write that tells that the view was entered. What is done before it is durable might be done again, otherwise,
    /// by a replica that was restarted.
    began: Ticket,
}

#[derive(Clone, Debug)]
struct Chunk {
    index: u64,
    names: Submitted,
    records: Vec<Record>,
    stored: Stored,
}

/// How far a chunk is on its way to this replica's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Writing(Ticket),
    /// There was no room. It is written again at this time.
    Failed(Time),
    Durable,
}

#[derive(Clone, Copy, Debug)]
struct Submitter {
    /// The number that goes on where the session left off.
    next: u64,
    client: Address,
}

#[derive(Clone, Copy, Debug)]
struct Backup {
    incarnation: Incarnation,
    followed: u64,
    /// When something was last sent to it, or came from it.
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

impl Local {
    /// How much is durable here.
    fn durable(&self) -> u64 {
        let waiting = self.chunks.iter().find(|chunk| chunk.stored != Stored::Durable);
        waiting.map_or(self.length, |chunk| chunk.index)
    }

    fn add(&mut self, names: Submitted, records: Vec<Record>, ticket: Ticket) {
        let chunk = Chunk { index: self.length, names, records, stored: Stored::Writing(ticket) };
        self.records += chunk.records.len();
        self.bytes += chunk.bytes();
        self.length = chunk.end();
        self.chunks.push_back(chunk);
    }

    /// Whether any of these is not decided.
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
        fits || self.chunks.is_empty()
    }

    fn is_full(&self) -> bool {
        self.chunks.iter().any(|chunk| matches!(chunk.stored, Stored::Failed(_)))
    }

    /// All writes up to this ticket are done.
    fn persisted(&mut self, ticket: Ticket) {
        for chunk in &mut self.chunks {
            if matches!(chunk.stored, Stored::Writing(written) if written <= ticket) {
                chunk.stored = Stored::Durable;
            }
        }
    }

    /// Where positions below `stable` are final, what the cuts decided is let go of. Returns those names.
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
        done
    }

    /// When a report is due: at once if there is news and the last one is an interval old, or again.
    fn report_at(&self, interval: std::time::Duration) -> Option<Time> {
        let durable = self.durable();
        if durable > self.reported {
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

    fn follow_at(&self) -> Option<Time> {
        let behind = self.backups.values().filter(|backup| backup.followed < self.length);
        behind.map(|backup| backup.heard_at + limits::RESEND_AFTER).min()
    }
}

impl Replica {
    /// Whether it takes part in a view of a log that is ordered by cuts.
    pub(super) fn has_local_log(&self) -> bool {
        self.memory.config.order.has_cuts()
    }

    /// A message that concerns the local log.
    pub(super) fn local(&mut self, now: Time, from: Address, message: Message, out: &mut Out) {
        if !self.has_local_log() {
            // A sender of messages that the log does not take is no client of ours.
            return;
        }
        match message {
            Message::Submit { view, session, lowest, first, records } => {
                let ids = IdRun { session, first, count: records.len() as u64 };
                self.submit(now, from, view, Submitted { ids, lowest }, records, out);
            }
            Message::Follow { view, incarnation, index, names, records }
                if incarnation == self.memory.incarnation
                    && self.accepts(from, view, out)
                    && self.has_begun() =>
            {
                self.follow(from, index, names, records, out);
            }
            Message::Followed { view, length, asks } if self.has_begun() && view == self.view_number() => {
                self.followed(now, from, (length, asks), out);
            }
            Message::Decided { view, end, length } if self.is_open() && view == self.view_number() => {
                // The leader may have missed what came in between.
                self.local.told = self.local.told.min(length);
                self.local.reported = self.local.reported.min(length);
                self.decided_at(end, length, out);
            }
            Message::Cover { view, of, batch, backups, length, runs }
                if self.obeys_cut(from, view, of, out) =>
            {
                self.cover(from, (view, of, batch), backups, length, runs, out);
            }
            Message::ReplicateCover { view, of, batch, incarnation, length, runs }
                if incarnation == self.memory.incarnation && self.obeys_cut(from, view, of, out) =>
            {
                self.cover_as_backup(from, (view, of, batch), length, runs, out);
            }
            // The rest are answers to others, or meant for another life.
            _ => {}
        }
    }

    /// Primary: a client's records come next, as far as they are new.
    fn submit(
        &mut self,
        now: Time,
        client: Address,
        view: ViewNumber,
        names: Submitted,
        mut records: Vec<Record>,
        out: &mut Out,
    ) {
        let Submitted { mut ids, lowest } = names;
        let bytes: usize = records.iter().map(Record::size).sum();
        let is_too_long = records.len() > 1 && bytes > limits::MAX_FRAME_BYTES / 2;
        if records.is_empty()
            || is_too_long
            || records.iter().any(|record| self.memory.config.is_too_large(record))
        {
            // No client of ours sends that.
            return;
        }
        if !self.is_open() || view != self.view_number() || !self.is_primary() || self.is_closed() {
            return send(client, self.fenced(), out);
        }
        if !self.has_begun() {
            return send(client, Message::Busy { view, ids, disk_full: false }, out);
        }
        let session = ids.session;
        let twice = self.options.deviates(Deviation::SubmittedTwice);
        let known = self.local.submitters.get(&session).filter(|_| !twice);
        let next = known.map_or(lowest, |known| known.next.max(lowest));
        if ids.first > next && !twice {
            return send(client, Message::OutOfOrder { view, session, expected: next }, out);
        }
        let skip = if twice { 0 } else { (next - ids.first).min(ids.count) };
        let disk_full = self.local.is_full();
        let limits = self.options.limits;
        let has_room = self.local.has_room(&records, limits) && !self.pressed;
        let share = self.unordered.room(client.peer(), limits);
        if skip < ids.count && (disk_full || !has_room || share == 0) {
            return send(client, Message::Busy { view, ids, disk_full }, out);
        }
        let taken = (skip + share).min(ids.count);
        if taken < ids.count {
            // So much of it as there is room for in the client's share.
            send(client, Message::Busy { view, ids: ids.tail(taken), disk_full }, out);
            ids = ids.head(taken);
            records.truncate(taken as usize);
        }
        if self.local.submitters.len() >= self.options.limits.max_sessions {
            // The leader recognizes a duplicate of what is in a cut already.
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
            if backup.followed == index {
                backup.heard_at = now;
            }
            let (incarnation, records) = (backup.incarnation, records.clone());
            let message = Message::Follow { view, incarnation, index, names, records };
            send(Address::Node(*node, Endpoint::Shard(self.shard)), message, out);
        }
        self.append(names, records, out);
    }

    /// Writes what comes next in the local log.
    fn append(&mut self, names: Submitted, records: Vec<Record>, out: &mut Out) {
        let named = names.ids.ids().zip(records.iter().cloned()).collect();
        let ticket = self.gate.store(StorageCommand::Put(named), out);
        self.hold_submitted(names.ids);
        self.local.add(names, records, ticket);
    }

    fn hold_submitted(&mut self, ids: IdRun) {
        let submitter = self.local.submitters.get(&ids.session);
        self.unordered.hold(ids, submitter.map(|submitter| submitter.client.peer()));
    }

    /// Backup: something comes from the primary. What is not next is asked for.
    fn follow(
        &mut self,
        primary: Address,
        index: u64,
        names: Submitted,
        records: Vec<Record>,
        out: &mut Out,
    ) {
        let view = self.view_number();
        if index > self.local.length {
            if self.local.asked_from != Some(self.local.length) {
                self.local.asked_from = Some(self.local.length);
                send(primary, Message::Followed { view, length: self.local.length, asks: true }, out);
            }
            return;
        }
        if index == self.local.length {
            self.append(names, records, out);
        }
        send(primary, Message::Followed { view, length: self.local.length, asks: false }, out);
    }

    /// Primary: a backup has everything below `length`. One that was not there when something was sent gets it now.
    fn followed(&mut self, now: Time, from: Address, (length, asks): (u64, bool), out: &mut Out) {
        let Address::Node(node, _) = from else { return };
        let Some(backup) = self.local.backups.get_mut(&node) else { return };
        backup.followed = backup.followed.max(length);
        backup.heard_at = now;
        if asks {
            self.send_again(now, node, out);
        }
    }

    /// Primary: sends a backup what it has not got, as much as one message may be large.
    fn send_again(&mut self, now: Time, node: NodeId, out: &mut Out) {
        let view = self.view_number();
        let Some(backup) = self.local.backups.get_mut(&node) else { return };
        backup.heard_at = now;
        let (incarnation, followed) = (backup.incarnation, backup.followed);
        let mut bytes = 0;
        for chunk in self.local.chunks.iter().filter(|chunk| chunk.index >= followed) {
            bytes += chunk.bytes();
            let (index, names, records) = (chunk.index, chunk.names, chunk.records.clone());
            let message = Message::Follow { view, incarnation, index, names, records };
            send(Address::Node(node, Endpoint::Shard(self.shard)), message, out);
            if bytes >= self.options.limits.batch_bytes {
                break;
            }
        }
    }

    /// A view that is registered begins: the local log begins anew. The leader is told, since it may have sent something
    /// before the replica could take it.
    pub(super) fn begin_local_log(&mut self, now: Time, out: &mut Out) {
        if !self.has_local_log() || !self.is_open() {
            return;
        }
        self.local = Local { began: self.gate.issued(), ..Local::default() };
        self.unordered.forget_placed();
        self.leave_unordered(out);
        let Some(members) = self.members().cloned() else { return };
        self.tell_leader((0, 0), vec![], out);
        if self.is_primary() {
            let backup = |member: &Member| {
                let incarnation = member.incarnation;
                (member.node, Backup { incarnation, followed: 0, heard_at: now })
            };
            self.local.backups = members.replicas[1..].iter().map(backup).collect();
        } else {
            // The primary's earlier messages count for nothing.
            let to = Address::Node(members.primary().node, Endpoint::Shard(self.shard));
            let asks = Message::Followed { view: self.view_number(), length: 0, asks: true };
            self.gate.confirm(to, asks, out);
        }
    }

    /// Whether the local log of the view can be added to.
    fn has_begun(&self) -> bool {
        self.is_open() && self.gate.is_durable(self.local.began)
    }

    /// The view is over. Whoever submitted what no cut is known to cover is told, and asks in the next one.
    pub(super) fn stop_local_log(&mut self, out: &mut Out) {
        let local = std::mem::take(&mut self.local);
        let sessions: BTreeSet<SessionId> =
            local.chunks.iter().map(|chunk| chunk.names.ids.session).collect();
        for session in sessions {
            if let Some(submitter) = local.submitters.get(&session) {
                send(submitter.client, self.fenced(), out);
            }
        }
    }

    /// Writes up to this ticket are done.
    pub(super) fn local_persisted(&mut self, ticket: Ticket) {
        self.local.persisted(ticket);
    }

    /// A write had no room: it is made again later. Says whether it was one of the local log.
    pub(super) fn local_failed(&mut self, now: Time, ticket: Ticket, out: &mut Out) {
        let is_it = |chunk: &&mut Chunk| chunk.stored == Stored::Writing(ticket);
        let Some(chunk) = self.local.chunks.iter_mut().find(is_it) else { return };
        chunk.stored = Stored::Failed(now + limits::RESEND_AFTER);
        let ids = chunk.names.ids;
        self.unordered.release(ids);
        if let Some(submitter) = self.local.submitters.get(&ids.session) {
            let message = Message::Busy { view: self.view_number(), ids, disk_full: true };
            send(submitter.client, message, out);
        }
    }

    /// Cuts up to this position decided the local log below `length`: that is known when they are in the store.
    pub(super) fn decided_at(&mut self, position: Position, length: u64, out: &mut Out) {
        let known = self.local.decisions.entry(position).or_default();
        *known = length.max(*known);
        self.finish_decided(out);
    }

    /// The replica lets go of what is final. A record that a cut passed over will never get a position.
    pub(super) fn finish_decided(&mut self, out: &mut Out) {
        for ids in self.local.decide(self.stable) {
            for passed_over in self.unordered.held(ids) {
                if self.local.names(passed_over) {
                    // They were submitted twice, and may be ordered yet.
                    continue;
                }
                self.unordered.release(passed_over);
                self.gate.store(StorageCommand::Discard(passed_over), out);
            }
        }
    }

    /// Primary: tells clients where their records are, for good.
    pub(super) fn answer_submitters(&self, named: impl Iterator<Item = (IdRun, Position)>, out: &mut Out) {
        let view = self.view_number();
        for (ids, first) in named {
            if let Some(submitter) = self.local.submitters.get(&ids.session) {
                send(submitter.client, Message::Appended { view, ids, first }, out);
            }
        }
    }

    /// When something of the local log is to be reported, written again, or sent again.
    pub(super) fn local_deadline(&self) -> Option<Time> {
        if !self.has_local_log() || !self.is_open() {
            return None;
        }
        let report = self.local.report_at(self.memory.config.interval());
        [report, self.local.retry_at(), self.local.follow_at()].into_iter().flatten().min()
    }

    pub(super) fn local_timer(&mut self, now: Time, out: &mut Out) {
        if self.local_deadline().is_none_or(|at| now < at) {
            return;
        }
        for index in 0..self.local.chunks.len() {
            let chunk = &self.local.chunks[index];
            if matches!(chunk.stored, Stored::Failed(at) if now >= at) {
                let (ids, named) = (chunk.names.ids, chunk.named());
                let ticket = self.gate.store(StorageCommand::Put(named), out);
                self.hold_submitted(ids);
                self.local.chunks[index].stored = Stored::Writing(ticket);
            }
        }
        let length = self.local.length;
        let is_late =
            |backup: &Backup| backup.followed < length && now >= backup.heard_at + limits::RESEND_AFTER;
        let late: Vec<NodeId> =
            self.local.backups.iter().filter(|(_, backup)| is_late(backup)).map(|(node, _)| *node).collect();
        late.into_iter().for_each(|node| self.send_again(now, node, out));
        self.local.asked_from = None;
        self.report(now, out);
    }

    /// Tells the leader how much is durable here, and the primary also whose records they are.
    fn report(&mut self, now: Time, out: &mut Out) {
        let interval = self.memory.config.interval();
        if self.local.report_at(interval).is_none_or(|at| now < at) {
            return;
        }
        let length = self.local.durable();
        // Names that were told before are told again if their decision is late.
        let from = if length > self.local.reported { self.local.told } else { self.local.decided };
        // The leader's word may be old: it knows whose the records are that were let go of.
        let from = self.local.chunks.front().map_or(from, |chunk| from.max(chunk.index));
        let new = self.local.chunks.iter().filter(|chunk| chunk.index >= from && chunk.end() <= length);
        let names: Vec<Submitted> = match self.is_primary() {
            true => new.map(|chunk| chunk.names).collect(),
            false => vec![],
        };
        self.tell_leader((length, from), names, out);
        (self.local.told, self.local.reported, self.local.reported_at) = (length, length, Some(now));
    }

    fn tell_leader(&self, (length, from): (u64, u64), names: Vec<Submitted>, out: &mut Out) {
        let Some(view) = self.memory.view.as_ref() else { return };
        let leader = Address::Node(view.leader, Endpoint::Sequencer);
        send(leader, Message::Report { view: view.number, length, from, names }, out);
    }
}

/// Whether a message is about the local log.
pub(super) fn is_about(message: &Message) -> bool {
    matches!(
        message,
        Message::Submit { .. }
            | Message::Follow { .. }
            | Message::Followed { .. }
            | Message::Decided { .. }
            | Message::Cover { .. }
            | Message::ReplicateCover { .. }
    )
}
