//! Binding records that clients put themselves: how a replica obeys an order of names, and what it does
//! about records that it lacks (LazyLog §5.2, §5.4; docs/design/erwin.md, "Append").
//!
//! ```text
//! client          primary          backup         leader
//!   |--- Put ------->|                |              |
//!   |--- Put --------|--------------->|              |
//!   |<-- Stored -----|                |              |
//!   |<-- Stored -----|----------------|              |
//!   |                |<-- Order -------|-------------|
//!   |                |- ReplicateOrder>|             |
//!   |                |<- Replicated ---|             |
//!   |                |--- Bound -------|------------>|
//! ```
//!
//! A primary that lacks a record waits for a while, then asks its backups. What none of them has becomes a no-op, on all of
//! them, but not while its client is still sending or connected. A backup that lacks a record gets it from any of the
//! others. A record that a batch waits for is taken however little room there is: everything behind it waits, too.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::storage::{Ordered, StorageCommand};
use seriatim_model::{
    Address, Endpoint, IdRun, Member, NodeId, Order, Peer, Position, Record, RecordId, SessionId, Ticket,
    Time, ViewNumber, limits,
};

use super::message::Message;
use super::primary_backup::{Batch, Replica, Write, send};
use super::unordered::{Part, Question, Waiting};
use crate::deviation::Deviation;
use crate::parts::Names;
use crate::parts::pauses::RESEND_MOST;
use crate::roles::RoleEffect;

/// How long a backup waits for a record that its client may just have put everywhere.
const BACKUP_WAITS: Duration = Duration::from_millis(10);

type Out = Vec<RoleEffect>;

impl Replica {
    /// A client's records. They are taken whatever the view, so that a view change costs nobody an append;
    /// but they are acknowledged only in a view that this replica takes part in.
    pub(super) fn put(
        &mut self,
        now: Time,
        client: Address,
        (view, session): (ViewNumber, SessionId),
        first: u64,
        records: Vec<Record>,
        out: &mut Out,
    ) {
        let names = IdRun { session, first, count: records.len() as u64 };
        let config = &self.memory.config;
        if config.order != Order::ErwinSt || records.iter().any(|record| config.is_too_large(record)) {
            // No client of ours sends that.
            return;
        }
        if !self.is_named() || self.is_closed() {
            return send(client, self.fenced(), out);
        }
        if self.unordered.expires(self.stable, session, self.over_after()) {
            // Its client is told by the sequencing replicas. That a name is void may be forgotten here.
            return;
        }
        let from = (client.peer(), session);
        self.unordered.hear(now, self.stable, from, self.options.limits);
        let mut sorted = self.unordered.sort(names, self.options.deviates(Deviation::RefusedEarly));
        let takes_voids = self.options.deviates(Deviation::VoidAcknowledged);
        for ids in self.turn_away(client.peer(), &mut sorted.fresh) {
            send(client, Message::Busy { view, ids, disk_full: false }, out);
        }
        for ids in &sorted.fresh {
            let from = (ids.first - first) as usize;
            let named = ids.ids().zip(records[from..from + ids.count as usize].iter().cloned());
            self.store_records(client, named.collect(), out);
        }
        if !self.is_open() || view != self.view_number() {
            send(client, self.fenced(), out);
        } else {
            let stored = sorted.known.into_iter().chain(sorted.fresh);
            let voids = sorted.refused.iter().copied().filter(|_| takes_voids);
            for ids in stored.chain(voids) {
                self.gate.confirm(client, Message::Stored { view, ids }, out);
            }
            for ids in sorted.refused.into_iter().filter(|_| !takes_voids) {
                send(client, Message::NotAppended { view, ids }, out);
            }
        }
        self.go_on(now, out);
    }

    /// Takes those out for which there is no room, or none in the share of their client.
    fn turn_away(&self, client: Peer, fresh: &mut Vec<IdRun>) -> Vec<IdRun> {
        let count: u64 = fresh.iter().map(|names| names.count).sum();
        let limits = self.options.limits;
        if count == 0 || !self.pressed && count <= self.unordered.room(client, limits) {
            return vec![];
        }
        let wanted = self.unordered.wanted(self.shard);
        let (mut away, mut before) = (vec![], 0);
        for names in std::mem::take(fresh) {
            let room = self.unordered.room_for(client, names, limits).saturating_sub(before);
            let taken = if self.pressed { 0 } else { names.count.min(room) };
            before += taken;
            let (within, rest) = (names.head(taken), names.tail(taken));
            away.extend(wanted.missing(rest));
            fresh.extend(Some(within).filter(|within| within.count > 0));
            fresh.extend(wanted.within(rest));
        }
        away
    }

    /// Writes records of one session with consecutive numbers.
    fn store_records(&mut self, from: Address, records: Vec<(RecordId, Record)>, out: &mut Out) {
        let Some((RecordId { session, number }, _)) = records.first() else { return };
        let ids = IdRun { session: *session, first: *number, count: records.len() as u64 };
        let ticket = self.gate.store(StorageCommand::Put(records), out);
        self.unordered.hold(ids, Some(from.peer()));
        self.unordered.puts.push_back((ticket, from, ids));
    }

    /// Primary: the leader orders names.
    pub(super) fn order(
        &mut self,
        now: Time,
        (view, batch): (ViewNumber, Position),
        part: Part,
        runs: Vec<Ordered>,
        out: &mut Out,
    ) {
        let (first, runs) = not_below(self.stable, batch, runs);
        if runs.is_empty() {
            return self.done(view, batch, &part, out);
        }
        let is_answered = match &part {
            Part::Primary { leader, .. } => self.answers_again(*leader, (view, batch), out),
            Part::Backup { primary, .. } => self.replicated_again(*primary, (view, batch), out),
        };
        if is_answered {
            return;
        }
        if let Some(waiting) = self.unordered.waiting.get_mut(&(view, batch)) {
            waiting.part = part;
            return;
        }
        // While a view is being formed clients are turned away: what is missing comes from another replica or, as good as
        // always, not before the view is there.
        let patience = match part {
            _ if !self.is_open() => BACKUP_WAITS,
            Part::Primary { .. } => self.unordered.patience(limits::MISSING_FOR),
            Part::Backup { .. } => self.unordered.patience(BACKUP_WAITS),
        };
        let waiting = Waiting {
            part,
            first,
            runs,
            since: now,
            ask_at: now + patience,
            pause: limits::RESEND_AFTER,
            at_most: now + limits::MISSING_MOST,
            is_last_call: false,
            turn: 0,
            lacks: BTreeMap::new(),
        };
        self.unordered.waiting.insert((view, batch), waiting);
        self.go_on(now, out);
    }

    /// All of a batch is final here: whoever asks had no answer.
    fn done(&self, view: ViewNumber, batch: Position, part: &Part, out: &mut Out) {
        match part {
            Part::Primary { leader, .. } => {
                let message = Message::Bound { view, batch, stable: self.stable, voids: vec![] };
                send(*leader, message, out);
            }
            Part::Backup { primary, .. } => send(*primary, Message::Replicated { view, batch }, out),
        }
    }

    /// Places the batches of which nothing is missing any more.
    fn go_on(&mut self, now: Time, out: &mut Out) {
        let names: Vec<_> = self.unordered.waiting.keys().copied().collect();
        for name in names {
            self.give_up_lacking(name);
            let waiting = &self.unordered.waiting[&name];
            let resolved = self.unordered.resolve(self.shard, waiting);
            if resolved.missing.is_empty() {
                let waiting = self.unordered.waiting.remove(&name).expect("just seen");
                if self.is_open() && !resolved.runs.iter().any(|run| run.is_void) {
                    self.unordered.completes(now, &waiting, self.options.limits);
                }
                self.place(name, waiting, resolved.runs, out);
            }
        }
    }

    /// Primary: what no replica has, and no client is about to put, becomes a no-op.
    fn give_up_lacking(&mut self, name: (ViewNumber, Position)) {
        let waiting = &self.unordered.waiting[&name];
        if !waiting.is_last_call || matches!(waiting.part, Part::Backup { .. }) {
            return;
        }
        let lost = waiting.lacked_by_all(self.unordered.resolve(self.shard, waiting).missing);
        self.unordered.make_void(lost);
    }

    fn place(
        &mut self,
        (view, batch): (ViewNumber, Position),
        waiting: Waiting,
        runs: Vec<Ordered>,
        out: &mut Out,
    ) {
        let Waiting { part, first, .. } = waiting;
        self.unordered.place(view, first, self.shard, &runs);
        let end = first + runs.iter().map(|run| run.ids.count).sum::<u64>();
        let command = StorageCommand::Order { view, first, runs: runs.clone() };
        match part {
            Part::Primary { leader, backups } => {
                let own = runs.iter().filter(|run| run.shard == self.shard && run.is_void);
                let voids: Vec<IdRun> = own.map(|run| run.ids).collect();
                let alone = !voids.is_empty() && self.options.deviates(Deviation::VoidNotReplicated);
                let backups = if alone { vec![] } else { backups };
                let held_here = self.begin_batch(leader, (view, batch), &backups, voids);
                self.pass_on(view, batch, &backups, &runs, out);
                if !held_here {
                    self.hold(Write::Primary(view, batch), end, command, out);
                }
            }
            Part::Backup { primary, .. } => {
                self.hold(Write::Backup(primary, view, batch), end, command, out);
            }
        }
    }

    /// Primary: tells the backups that have not answered.
    fn pass_on(
        &self,
        view: ViewNumber,
        batch: Position,
        backups: &[Member],
        runs: &[Ordered],
        out: &mut Out,
    ) {
        let Some(Batch { backups: unanswered, .. }) = self.batches.get(&(view, batch)) else { return };
        let replicas: Vec<NodeId> =
            backups.iter().map(|member| member.node).chain([self.me().node]).collect();
        for backup in backups.iter().filter(|backup| unanswered.contains(&backup.node)) {
            let message = Message::ReplicateOrder {
                view,
                batch,
                incarnation: backup.incarnation,
                stable: self.stable,
                runs: runs.to_vec(),
                replicas: replicas.clone(),
            };
            send(Address::Node(backup.node, Endpoint::Shard(self.shard)), message, out);
        }
    }

    /// When a batch has waited long enough for records.
    pub(super) fn missing_deadline(&self) -> Option<Time> {
        self.unordered.waiting.values().map(|waiting| waiting.ask_at).min()
    }

    /// Asks the other replicas for records that are missing for too long.
    pub(super) fn ask_for_missing(&mut self, now: Time, out: &mut Out) {
        let due = |(_, waiting): &(_, &Waiting)| now >= waiting.ask_at;
        let due: Vec<_> = self.unordered.waiting.iter().filter(due).map(|(name, _)| *name).collect();
        for (view, batch) in &due {
            let waiting = &self.unordered.waiting[&(*view, *batch)];
            let ids = self.unordered.resolve(self.shard, waiting).missing;
            let until = self.unordered.sending_until(waiting, &ids, self.options.limits);
            let sending_until = until.min(waiting.at_most);
            let is_primary = matches!(waiting.part, Part::Primary { .. });
            let waiting = self.unordered.waiting.get_mut(&(*view, *batch)).expect("just seen");
            waiting.is_last_call = is_primary && now >= sending_until;
            for node in waiting.next_asked() {
                let message = Message::Want { view: *view, batch: *batch, ids: ids.clone() };
                send(Address::Node(node, Endpoint::Shard(self.shard)), message, out);
            }
            waiting.ask_at = now + waiting.pause;
            if is_primary && !waiting.is_last_call {
                waiting.ask_at = waiting.ask_at.min(sending_until);
            }
            waiting.pause = (waiting.pause * 2).min(RESEND_MOST);
        }
        if !due.is_empty() {
            self.go_on(now, out);
        }
    }

    /// Another replica lacks records.
    pub(super) fn wanted(
        &mut self,
        asker: Address,
        view: ViewNumber,
        batch: Position,
        ids: &[IdRun],
        out: &mut Out,
    ) {
        if !self.accepts(asker, view, out) {
            return;
        }
        let mut question = Question { asker, view, batch, lacks: vec![], voids: vec![] };
        let mut held = vec![];
        for names in ids {
            let (voids, rest) = self.unordered.split_void(*names);
            question.voids.extend(voids);
            for names in rest {
                held.extend(self.unordered.held(names));
                question.lacks.extend(self.unordered.missing(names));
            }
        }
        if held.is_empty() {
            return answer(question, vec![], out);
        }
        self.unordered.last_find.0 += 1;
        let ticket = self.unordered.last_find;
        self.unordered.questions.insert(ticket, question);
        out.push(RoleEffect::Find { ticket, ids: held });
    }

    /// The store found records that another replica wants.
    pub(super) fn found(&mut self, ticket: Ticket, mut records: Vec<(RecordId, Record)>, out: &mut Out) {
        let Some(question) = self.unordered.questions.remove(&ticket) else { return };
        let (mut bytes, batch_bytes) = (0, self.options.limits.batch_bytes);
        let fits = records.iter().take_while(|(_, record)| {
            let is_first = bytes == 0;
            bytes += record.size();
            is_first || bytes <= batch_bytes
        });
        let count = fits.count();
        records.truncate(count);
        answer(question, records, out);
    }

    /// Another replica says what it has of what is missing here.
    pub(super) fn given(
        &mut self,
        now: Time,
        from: Address,
        name: (ViewNumber, Position),
        records: Vec<(RecordId, Record)>,
        (lacks, voids): (Vec<IdRun>, Vec<IdRun>),
        out: &mut Out,
    ) {
        let Address::Node(node, _) = from else { return };
        let Some(waiting) = self.unordered.waiting.get_mut(&name) else { return };
        waiting.lacks.insert(node, lacks.into_iter().collect());
        let is_primary = matches!(waiting.part, Part::Primary { .. });
        let waiting = &self.unordered.waiting[&name];
        let wanted: Names = self.unordered.resolve(self.shard, waiting).missing.into_iter().collect();
        if is_primary {
            self.unordered.make_void(voids);
        }
        let mut helps = false;
        for (id, record) in records.into_iter().filter(|(id, _)| wanted.contains(*id)) {
            self.store_records(from, vec![(id, record)], out);
            helps = true;
        }
        self.go_on(now, out);
        if let Some(waiting) = self.unordered.waiting.get_mut(&name) {
            waiting.was_answered(now, node, helps);
        }
    }

    /// A write of records failed: whoever put them is told, and puts them again.
    pub(super) fn put_failed(&mut self, now: Time, ticket: Ticket, out: &mut Out) {
        match self.unordered.failed(ticket) {
            Some((client @ Address::Client(..), ids)) => {
                send(client, Message::Busy { view: self.view_number(), ids, disk_full: true }, out);
            }
            // Another replica gave it: to ask for it again at once would be to be refused at once.
            Some(_) => self.unordered.waiting.values_mut().for_each(|waiting| waiting.had_no_room(now)),
            None => {}
        }
    }

    /// Messages about records that have no positions yet: others tell of them, or ask.
    pub(super) fn told(&mut self, now: Time, from: Address, message: Message, out: &mut Out) {
        match message {
            Message::Want { view, batch, ids } => self.wanted(from, view, batch, &ids, out),
            Message::Have { view, batch, records, lacks, voids } => {
                self.given(now, from, (view, batch), records, (lacks, voids), out);
            }
            Message::Undecided { view, session, first, end }
                if self.is_open() && view == self.view_number() =>
            {
                self.discard_decided(session, first, end, out);
            }
            _ => {}
        }
    }

    /// Asks the leader about records that have been lying here for long. It is asked again until there are none:
    /// question and answer may get lost.
    pub(super) fn report_unnamed(&mut self, now: Time, out: &mut Out) {
        let is_due = self.unordered.unnamed_at().is_some_and(|at| now >= at);
        if !self.is_open() || self.has_local_log() || !is_due {
            return;
        }
        let names = self.unordered.unnamed(now, self.options.limits);
        if self.options.deviates(Deviation::ScrubbedByTime) {
            for run in names {
                self.discard_decided(run.session, u64::MAX, u64::MAX, out);
            }
        } else if let Some(view) = self.memory.view.as_ref().filter(|_| !names.is_empty()) {
            let leader = Address::Node(view.leader, Endpoint::Sequencer);
            send(leader, Message::Unnamed { view: view.number, names }, out);
        }
    }

    /// The leader knows which numbers of a session may still get positions: what is held of the others is discarded.
    pub(super) fn discard_decided(&mut self, session: SessionId, first: u64, end: u64, out: &mut Out) {
        for names in self.unordered.decide(session, first, end) {
            self.gate.store(StorageCommand::Discard(names), out);
        }
    }

    /// The records that this replica holds are not counted on: it was away.
    pub(super) fn leave_unordered(&mut self, out: &mut Out) {
        for names in self.unordered.leave() {
            self.gate.store(StorageCommand::Discard(names), out);
        }
    }

    /// After how many positions nothing is admitted any more of a session that nothing came of. Twice: a sequencing
    /// replica may have ordered a little less than is final here. And a ring's, the largest that any node has: what it
    /// holds was admitted before, and is ordered within that. No number of this node alone is in it, since other nodes
    /// admit what is discarded here.
    fn over_after(&self) -> u64 {
        let idle = self.memory.config.session_idle_positions;
        idle.saturating_mul(2).saturating_add(self.options.limits.largest_ring_records as u64)
    }

    /// The replica forgets the names that became final, and the records that were put for nothing.
    pub(super) fn finish_placed(&mut self, out: &mut Out) {
        let max_sessions = self.options.limits.max_sessions;
        let history = &self.memory.history;
        let mut orphans = self.unordered.finish(self.shard, self.stable, history, max_sessions);
        let idle = match self.options.deviation {
            Some(Deviation::ScrubbedEarly) => 0,
            Some(Deviation::OwnIdlePositions) => 20,
            _ => self.over_after(),
        };
        orphans.extend(self.unordered.sweep(self.stable, idle));
        for names in orphans {
            self.gate.store(StorageCommand::Discard(names), out);
        }
    }
}

fn answer(question: Question, records: Vec<(RecordId, Record)>, out: &mut Out) {
    let Question { asker, view, batch, lacks, voids } = question;
    send(asker, Message::Have { view, batch, records, lacks, voids }, out);
}

/// The part of a batch that is not final yet.
pub(super) fn not_below(stable: Position, first: Position, runs: Vec<Ordered>) -> (Position, Vec<Ordered>) {
    let mut position = first;
    let mut rest = vec![];
    for run in runs {
        let end = position + run.ids.count;
        let skip = stable.since(position).min(run.ids.count);
        if skip < run.ids.count {
            rest.push(Ordered { ids: run.ids.tail(skip), ..run });
        }
        position = end;
    }
    (first.max(stable), rest)
}
