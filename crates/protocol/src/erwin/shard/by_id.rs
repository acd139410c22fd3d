//! Binding records that clients put themselves: how a replica obeys an order of ids, and gets
//! missing records (LazyLog §5.2, §5.4; docs/design/erwin.md, "Append").
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
//! A primary that misses a record waits, then asks its backups. A record that no replica has
//! becomes a no-op, once its client counts as silent. A backup gets missing records from any other
//! replica. A replica stores a record that a batch waits for even without room: later batches wait,
//! too.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::storage::{Ordered, StorageCommand};
use seriatim_model::{
    Address, Endpoint, IdRun, Member, NodeId, Peer, Position, Record, RecordId, SessionId, ShardId, Ticket,
    Time, ViewNumber, limits,
};

use super::held_records::{Duty, HeldRecords, Question, Waiting};
use super::message::Message;
use crate::mutation::Mutation;
use crate::parts::held_ids::not_below;
use crate::parts::timeouts::RESEND_MOST;
use crate::parts::{Backoff, HeldIds, IdSet};
use crate::roles::{self, RoleEffect};
use crate::shard::{self, Batch, Core, DataPath, Predicting, Write, send};

/// Wait of a backup for a record that its client may just have put everywhere.
const BACKUP_WAITS: Duration = Duration::from_millis(10);

type Out = Vec<RoleEffect>;

/// Data path for records that clients put.
#[derive(Clone, Debug)]
pub(crate) struct ById {
    held: HeldRecords,
    predicting: Predicting,
}

impl ById {
    pub(crate) fn recover(put: Vec<IdRun>, void: Vec<IdRun>) -> Self {
        Self { held: HeldRecords::recover(put, void), predicting: Predicting::default() }
    }
}

impl DataPath for ById {
    fn boxed(&self) -> Box<dyn DataPath> {
        Box::new(self.clone())
    }

    fn receive(&mut self, core: &mut Core, now: Time, from: Address, message: roles::Message, out: &mut Out) {
        let roles::Message::ErwinShard(message) = message else { return };
        match message {
            Message::Put { view, session, first, records } => {
                self.put(core, now, from, (view, session), (first, records), out);
            }
            Message::Order { view, batch, backups, stable, runs } if core.accepts(from, view, out) => {
                // Learns the stable bound first, so that the backups receive it with the ids.
                core.learn_stable(self, view, stable, out);
                self.order(core, now, (view, batch), Duty::Primary { leader: from, backups }, runs, out);
            }
            Message::ReplicateOrder { view, batch, incarnation, stable, runs, replicas }
                if incarnation == core.memory.incarnation && core.accepts(from, view, out) =>
            {
                let others = replicas.into_iter().filter(|node| *node != core.me().node).collect();
                self.order(core, now, (view, batch), Duty::Backup { primary: from, others }, runs, out);
                core.learn_stable(self, view, stable, out);
            }
            Message::FetchRecords { view, batch, ids } => self.wanted(core, from, (view, batch), &ids, out),
            Message::FetchedRecords { view, batch, records, missing, voids } => {
                self.given(core, now, from, (view, batch), (records, missing, voids), out);
            }
            Message::Undecided { view, session, first, end }
                if core.is_open() && view == core.view_number() =>
            {
                self.discard_decided(core, session, first, end, out);
            }
            _ => {}
        }
    }

    fn persisted(&mut self, _: &mut Core, ticket: Ticket, _: &mut Out) {
        self.held.stored(ticket);
    }

    /// After a failed write, asks the client to put the records again.
    fn failed(&mut self, core: &mut Core, now: Time, ticket: Ticket, out: &mut Out) {
        self.predicting.failed(core, ticket);
        match self.held.failed(ticket) {
            Some((client @ Address::Client(..), ids)) => {
                send(client, shard::Message::Busy { view: core.view_number(), ids, disk_full: true }, out);
            }
            // Another replica sent the records: an immediate request would fail again.
            Some(_) => self.held.waiting.values_mut().for_each(|waiting| waiting.had_no_room(now)),
            None => {}
        }
    }

    fn stopped(&mut self, _: &mut Core, _: &mut Out) {
        self.held.stop_waiting();
    }

    fn discard_unplaced(&mut self, core: &mut Core, out: &mut Out) {
        for ids in self.held.leave() {
            core.gate.store(StorageCommand::Discard(ids), out);
        }
    }

    fn entering(&mut self, first: Position) {
        self.held.enter_view(first);
    }

    fn predicting(&self) -> Option<&Predicting> {
        Some(&self.predicting)
    }

    fn predicting_mut(&mut self) -> Option<&mut Predicting> {
        Some(&mut self.predicting)
    }

    fn entered(&mut self, core: &mut Core, _: Time, out: &mut Out) {
        self.predicting.stable_raised(core);
        core.predict(self, out);
    }

    /// Forgets final ids; discards orphans.
    fn stable_raised(&mut self, core: &mut Core, out: &mut Out) {
        self.predicting.stable_raised(core);
        let max_sessions = core.options.limits.max_sessions;
        let history = &core.memory.history;
        let mut orphans = self.held.finish(core.shard, core.stable, history, max_sessions);
        let idle = match core.options.mutation {
            Some(Mutation::ScrubbedEarly) => 0,
            Some(Mutation::OwnIdlePositions) => 20,
            _ => HeldIds::over_after(&core.memory.config, core.options.limits),
        };
        orphans.extend(self.held.sweep(core.stable, idle));
        for ids in orphans {
            core.gate.store(StorageCommand::Discard(ids), out);
        }
    }

    fn unplaced(&self) -> u64 {
        self.held.unplaced_count()
    }

    fn deadline(&self, core: &Core) -> Option<Time> {
        let missing = self.held.waiting.values().map(|waiting| waiting.asks.at()).min();
        let suspected_orphans = self.held.orphan_check_at().filter(|_| core.is_open());
        [missing, suspected_orphans].into_iter().flatten().min()
    }

    fn timer(&mut self, core: &mut Core, now: Time, out: &mut Out) {
        self.ask_for_missing(core, now, out);
        self.ask_about_orphans(core, now, out);
    }

    fn disconnected(&mut self, now: Time, peer: Peer) {
        self.held.disconnected(now, peer);
    }

    fn found(
        &mut self,
        core: &mut Core,
        ticket: Ticket,
        mut records: Vec<(RecordId, Record)>,
        out: &mut Out,
    ) {
        let Some(question) = self.held.questions.remove(&ticket) else { return };
        let (mut bytes, batch_bytes) = (0, core.options.limits.batch_bytes);
        let fits = records.iter().take_while(|(_, record)| {
            let is_first = bytes == 0;
            bytes += record.size();
            is_first || bytes <= batch_bytes
        });
        let count = fits.count();
        records.truncate(count);
        answer(question, records, out);
    }

    fn discard_unknown(&mut self, core: &mut Core, ids: Vec<IdRun>, out: &mut Out) {
        for unknown in ids.into_iter().flat_map(|ids| self.held.missing(ids)).collect::<Vec<_>>() {
            core.gate.store(StorageCommand::Discard(unknown), out);
        }
    }
}

impl ById {
    /// Stores a client's records in any view, so that a view change costs no append; acknowledges
    /// them only in a view that it takes part in.
    fn put(
        &mut self,
        core: &mut Core,
        now: Time,
        client: Address,
        (view, session): (ViewNumber, SessionId),
        (first, records): (u64, Vec<Record>),
        out: &mut Out,
    ) {
        let ids = IdRun { session, first, count: records.len() as u64 };
        let config = &core.memory.config;
        if records.iter().any(|record| config.is_too_large(record)) {
            // Only foreign clients send this.
            return;
        }
        if !core.is_named() || core.is_closed() {
            return send(client, core.fenced(), out);
        }
        let over_after = HeldIds::over_after(&core.memory.config, core.options.limits);
        if self.held.expires(core.stable, session, over_after) {
            // Ignores the put: the sequencing replicas answer the client; this replica may have
            // forgotten void ids.
            return;
        }
        let from = (client.peer(), session);
        self.held.hear(now, core.stable, from, core.options.limits);
        let mut sorted = self.held.sort(ids, core.options.mutates(Mutation::RefusedEarly));
        let takes_voids = core.options.mutates(Mutation::VoidAcknowledged);
        for ids in self.turn_away(core, client.peer(), &mut sorted.fresh) {
            send(client, shard::Message::Busy { view, ids, disk_full: false }, out);
        }
        for ids in &sorted.fresh {
            let from = (ids.first - first) as usize;
            let named = ids.ids().zip(records[from..from + ids.count as usize].iter().cloned());
            self.store_records(core, client, named.collect(), out);
        }
        if !core.is_open() || view != core.view_number() {
            send(client, core.fenced(), out);
        } else {
            let stored = sorted.known.into_iter().chain(sorted.fresh);
            let voids = sorted.refused.iter().copied().filter(|_| takes_voids);
            for ids in stored.chain(voids) {
                core.gate.confirm(client, Message::Stored { view, ids }, out);
            }
            for ids in sorted.refused.into_iter().filter(|_| !takes_voids) {
                send(client, Message::NotAppended { view, ids }, out);
            }
        }
        self.go_on(core, now, out);
    }

    /// Removes and returns the ids that exceed the replica's room or the client's fair share.
    fn turn_away(&self, core: &Core, client: Peer, fresh: &mut Vec<IdRun>) -> Vec<IdRun> {
        let count: u64 = fresh.iter().map(|ids| ids.count).sum();
        let limits = core.options.limits;
        if count == 0 || !core.pressed && count <= self.held.room(client, limits) {
            return vec![];
        }
        let wanted = self.held.wanted(core.shard);
        let (mut away, mut before) = (vec![], 0);
        for ids in std::mem::take(fresh) {
            let room = self.held.room_for(client, ids, limits).saturating_sub(before);
            let taken = if core.pressed { 0 } else { ids.count.min(room) };
            before += taken;
            let (within, rest) = (ids.head(taken), ids.tail(taken));
            away.extend(wanted.missing(rest));
            fresh.extend(Some(within).filter(|within| within.count > 0));
            fresh.extend(wanted.within(rest));
        }
        away
    }

    /// `records`: one session, consecutive numbers.
    fn store_records(
        &mut self,
        core: &mut Core,
        from: Address,
        records: Vec<(RecordId, Record)>,
        out: &mut Out,
    ) {
        let Some((RecordId { session, number }, _)) = records.first() else { return };
        let ids = IdRun { session: *session, first: *number, count: records.len() as u64 };
        let ticket = core.gate.store(StorageCommand::Put(records), out);
        self.held.hold(ids, Some(from.peer()));
        self.held.puts.push_back((ticket, from, ids));
    }

    /// Assigns positions to ids, by order of the leader or the primary.
    fn order(
        &mut self,
        core: &mut Core,
        now: Time,
        (view, batch): (ViewNumber, Position),
        part: Duty,
        runs: Vec<Ordered>,
        out: &mut Out,
    ) {
        let (first, runs) = not_below(core.stable, batch, runs);
        if runs.is_empty() {
            return done(core, view, batch, &part, out);
        }
        let is_answered = match &part {
            Duty::Primary { leader, .. } => core.answers_again(*leader, (view, batch), out),
            Duty::Backup { primary, .. } => core.replicated_again(*primary, (view, batch), out),
        };
        if is_answered {
            return;
        }
        if let Some(waiting) = self.held.waiting.get_mut(&(view, batch)) {
            waiting.part = part;
            return;
        }
        // While a view forms, clients are refused, so missing records come almost only from other
        // replicas.
        let timeout = match part {
            _ if !core.is_open() => BACKUP_WAITS,
            Duty::Primary { .. } => self.held.timeout(limits::MISSING_FOR),
            Duty::Backup { .. } => self.held.timeout(BACKUP_WAITS),
        };
        let waiting = Waiting {
            part,
            first,
            runs,
            since: now,
            asks: Backoff::new(now + timeout, limits::RESEND_AFTER, RESEND_MOST),
            at_most: now + limits::MISSING_MOST,
            is_last_call: false,
            turn: 0,
            missing_at: BTreeMap::new(),
        };
        self.held.waiting.insert((view, batch), waiting);
        self.go_on(core, now, out);
    }

    /// Places batches that have all their records.
    fn go_on(&mut self, core: &mut Core, now: Time, out: &mut Out) {
        let batches: Vec<_> = self.held.waiting.keys().copied().collect();
        for batch in batches {
            self.give_up_missing(core.shard, batch);
            let waiting = &self.held.waiting[&batch];
            let resolved = self.held.resolve(core.shard, waiting);
            if resolved.missing.is_empty() {
                let waiting = self.held.waiting.remove(&batch).expect("just seen");
                if core.is_open() && !resolved.runs.iter().any(|run| run.is_void) {
                    self.held.completes(now, &waiting, core.options.limits);
                }
                self.place(core, batch, waiting, resolved.runs, out);
            }
        }
    }

    /// Primary, at the last call: ids that no replica has become no-ops.
    fn give_up_missing(&mut self, shard: ShardId, batch: (ViewNumber, Position)) {
        let waiting = &self.held.waiting[&batch];
        if !waiting.is_last_call || matches!(waiting.part, Duty::Backup { .. }) {
            return;
        }
        let lost = waiting.missing_everywhere(self.held.resolve(shard, waiting).missing);
        self.held.make_void(lost);
    }

    fn place(
        &mut self,
        core: &mut Core,
        (view, batch): (ViewNumber, Position),
        waiting: Waiting,
        runs: Vec<Ordered>,
        out: &mut Out,
    ) {
        let Waiting { part, first, .. } = waiting;
        self.held.place(view, first, core.shard, &runs);
        let end = first + runs.iter().map(|run| run.ids.count).sum::<u64>();
        let command = StorageCommand::Order { view, first, runs: runs.clone() };
        match part {
            Duty::Primary { leader, backups } => {
                let own = runs.iter().filter(|run| run.shard == core.shard && run.is_void);
                let voids: Vec<IdRun> = own.map(|run| run.ids).collect();
                let alone = !voids.is_empty() && core.options.mutates(Mutation::VoidNotReplicated);
                let backups = if alone { vec![] } else { backups };
                let held_here = core.begin_batch(leader, (view, batch), &backups, voids);
                pass_on(core, (view, batch), &backups, &runs, out);
                if !held_here {
                    let write = core.hold(self, Write::Primary(view, batch), end, command, out);
                    if write.is_some_and(|ticket| self.predicting.pushed(core, view, [(first, end)], ticket))
                    {
                        core.predict(self, out);
                    }
                }
            }
            Duty::Backup { primary, .. } => {
                core.hold(self, Write::Backup(primary, view, batch), end, command, out);
            }
        }
    }

    fn ask_for_missing(&mut self, core: &mut Core, now: Time, out: &mut Out) {
        let due = |(_, waiting): &(_, &Waiting)| waiting.asks.is_due(now);
        let due: Vec<_> = self.held.waiting.iter().filter(due).map(|(batch, _)| *batch).collect();
        for (view, batch) in &due {
            let waiting = &self.held.waiting[&(*view, *batch)];
            let ids = self.held.resolve(core.shard, waiting).missing;
            let until = self.held.sending_until(waiting, &ids, core.options.limits);
            let sending_until = until.min(waiting.at_most);
            let is_primary = matches!(waiting.part, Duty::Primary { .. });
            let waiting = self.held.waiting.get_mut(&(*view, *batch)).expect("just seen");
            waiting.is_last_call = is_primary && now >= sending_until;
            for node in waiting.next_asked() {
                let message = Message::FetchRecords { view: *view, batch: *batch, ids: ids.clone() };
                send(Address::Node(node, Endpoint::Shard(core.shard)), message, out);
            }
            waiting.asks.tried(now);
            if is_primary && !waiting.is_last_call {
                waiting.asks.due_by(sending_until);
            }
        }
        if !due.is_empty() {
            self.go_on(core, now, out);
        }
    }

    fn wanted(
        &mut self,
        core: &Core,
        asker: Address,
        (view, batch): (ViewNumber, Position),
        ids: &[IdRun],
        out: &mut Out,
    ) {
        if !core.accepts(asker, view, out) {
            return;
        }
        let mut question = Question { asker, view, batch, missing: vec![], voids: vec![] };
        let mut held = vec![];
        for run in ids {
            let (voids, rest) = self.held.split_void(*run);
            question.voids.extend(voids);
            for run in rest {
                held.extend(self.held.held(run));
                question.missing.extend(self.held.missing(run));
            }
        }
        if held.is_empty() {
            return answer(question, vec![], out);
        }
        self.held.last_find.0 += 1;
        let ticket = self.held.last_find;
        self.held.questions.insert(ticket, question);
        out.push(RoleEffect::Find { ticket, ids: held });
    }

    fn given(
        &mut self,
        core: &mut Core,
        now: Time,
        from: Address,
        batch: (ViewNumber, Position),
        (records, missing, voids): (Vec<(RecordId, Record)>, Vec<IdRun>, Vec<IdRun>),
        out: &mut Out,
    ) {
        let Address::Node(node, _) = from else { return };
        let Some(waiting) = self.held.waiting.get_mut(&batch) else { return };
        waiting.missing_at.insert(node, missing.into_iter().collect());
        let is_primary = matches!(waiting.part, Duty::Primary { .. });
        let waiting = &self.held.waiting[&batch];
        let wanted: IdSet = self.held.resolve(core.shard, waiting).missing.into_iter().collect();
        if is_primary {
            self.held.make_void(voids);
        }
        let mut helps = false;
        for (id, record) in records.into_iter().filter(|(id, _)| wanted.contains(*id)) {
            self.store_records(core, from, vec![(id, record)], out);
            helps = true;
        }
        self.go_on(core, now, out);
        if let Some(waiting) = self.held.waiting.get_mut(&batch) {
            waiting.was_answered(now, node, helps);
        }
    }

    /// Asks the leader about old records without positions.
    fn ask_about_orphans(&mut self, core: &mut Core, now: Time, out: &mut Out) {
        let is_due = self.held.orphan_check_at().is_some_and(|at| now >= at);
        if !core.is_open() || !is_due {
            return;
        }
        let ids = self.held.suspected_orphans(now, core.options.limits);
        if core.options.mutates(Mutation::ScrubbedByTime) {
            for run in ids {
                self.discard_decided(core, run.session, u64::MAX, u64::MAX, out);
            }
        } else if let Some(view) = core.memory.view.as_ref().filter(|_| !ids.is_empty()) {
            let leader = Address::Node(view.leader, Endpoint::Sequencer);
            send(leader, Message::Orphans { view: view.number, ids }, out);
        }
    }

    fn discard_decided(&mut self, core: &mut Core, session: SessionId, first: u64, end: u64, out: &mut Out) {
        for ids in self.held.decide(session, first, end) {
            core.gate.store(StorageCommand::Discard(ids), out);
        }
    }
}

/// The whole batch is final: repeats the lost answer.
fn done(core: &Core, view: ViewNumber, batch: Position, part: &Duty, out: &mut Out) {
    match part {
        Duty::Primary { leader, .. } => {
            let message = shard::Message::Bound { view, batch, stable: core.stable, voids: vec![] };
            send(*leader, message, out);
        }
        Duty::Backup { primary, .. } => send(*primary, shard::Message::Replicated { view, batch }, out),
    }
}

fn pass_on(
    core: &Core,
    (view, batch): (ViewNumber, Position),
    backups: &[Member],
    runs: &[Ordered],
    out: &mut Out,
) {
    let Some(Batch { backups: unanswered, .. }) = core.batches.get(&(view, batch)) else { return };
    let replicas: Vec<NodeId> = backups.iter().map(|member| member.node).chain([core.me().node]).collect();
    for backup in backups.iter().filter(|backup| unanswered.contains(&backup.node)) {
        let message = Message::ReplicateOrder {
            view,
            batch,
            incarnation: backup.incarnation,
            stable: core.stable,
            runs: runs.to_vec(),
            replicas: replicas.clone(),
        };
        send(Address::Node(backup.node, Endpoint::Shard(core.shard)), message, out);
    }
}

fn answer(question: Question, records: Vec<(RecordId, Record)>, out: &mut Out) {
    let Question { asker, view, batch, missing, voids } = question;
    send(asker, Message::FetchedRecords { view, batch, records, missing, voids }, out);
}
