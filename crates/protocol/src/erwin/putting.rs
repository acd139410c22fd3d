//! A client's side of putting records on shards itself, beside the names that it sends to the sequencing
//! replicas: both in the same round trip (LazyLog §5.1).
//!
//! A record is stored when every replica of its shard, as the client's view names them, said so in that view.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use seriatim_model::limits::Limits;
use seriatim_model::{Address, Endpoint, IdRun, NodeId, Record, RecordId, SessionId, ShardId, Time, View};

use super::client::{Failure, LogClient, Out, Pending, Reply, Session};
use crate::deviation::Deviation;
use crate::parts::appending::{ClientEffect, reply};
use crate::parts::{Content, Conversation, Names, ShardChoice};
use crate::shard::Message;

/// Where an append's record goes, and how far it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    /// Nothing until the append is first sent, or if records travel with their names.
    pub(super) shard: Option<ShardId>,
    /// A bit for each of the shard's replicas that hold it in the present view.
    stored: u16,
}

/// How far the replicas of the shards are.
#[derive(Clone, Debug, Default)]
pub(super) struct Putting {
    /// Below this number every sequencing replica of the present view has the names. What was so in an earlier
    /// view does not count here: a name may have become void in between.
    pub(super) named: u64,
    /// Below this number names were sent to somebody in the present view, and somebody may wait for their records.
    pub(super) told_below: u64,
    /// Below this number every record is stored in the present view, or its append is settled.
    stored_below: u64,
    replicas: BTreeMap<(ShardId, NodeId), Progress>,
}

/// How far one replica is.
///
/// Invariant: what goes to it of the numbers below `sent` is stored there, or on its way, or in `refused`; `unanswered`
/// counts what is on its way, and `in_flight` its bytes.
#[derive(Clone, Debug)]
struct Progress {
    /// Its bit in [`Target::stored`].
    bit: u16,
    sent: u64,
    /// The names that it refused, whose records go to it again.
    refused: Names,
    /// Which of these is next; then what was not sent, and then those before it. While it is fenced all have their turn so,
    /// however few fit into the window: it keeps what it cannot acknowledge.
    again_from: u64,
    /// Whether it is between views, or not in this one yet: it keeps records, and acknowledges none. Until it does, it gets
    /// those that were named, which a view change may wait for, and no others.
    is_fenced: bool,
    unanswered: u64,
    in_flight: usize,
    /// The lowest number that may be on its way.
    lowest: u64,
    pace: Conversation,
}

impl Progress {
    fn new(now: Time, bit: u16, base: u64, limits: Limits) -> Self {
        let pace = Conversation::new(now, limits.batch_bytes);
        Self {
            bit,
            sent: base,
            refused: Names::default(),
            again_from: base,
            is_fenced: false,
            unanswered: 0,
            in_flight: 0,
            lowest: base,
            pace,
        }
    }

    /// Nothing that was sent from this number on counts.
    fn restart(&mut self, base: u64) {
        (self.sent, self.unanswered, self.in_flight) = (base, 0, 0);
        self.is_fenced = false;
        self.refused.clear();
    }

    /// Whether something may have to be sent to it that is not on its way.
    fn has_more(&self, end: u64) -> bool {
        self.sent < end || !self.refused.is_empty()
    }

    /// Whether this append's record is on its way to it.
    fn awaits(&self, id: RecordId, target: &Target) -> bool {
        id.number < self.sent && target.stored & self.bit == 0 && !self.refused.contains(id)
    }

    /// A record is not on its way any more.
    fn lands(&mut self, bytes: usize) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// The next records that are to be sent, if there is room for them. Those below `told` were named.
    fn next(&mut self, unstored: &Unstored, told: u64, end: u64) -> Option<Batch> {
        let most = self.pace.room(self.in_flight)?;
        let end = match self.is_fenced {
            false => end,
            // One at least: the answer tells when it takes part again.
            true if self.in_flight == 0 => {
                let first = self.refused.first_from(0).map_or(self.sent, |names| names.first);
                told.max(first + 1).min(end)
            }
            true => told,
        };
        self.next_again(unstored, self.again_from..end, most)
            .or_else(|| self.next_unsent(unstored, end, most))
            .or_else(|| self.next_again(unstored, 0..end, most))
    }

    fn next_unsent(&mut self, unstored: &Unstored, end: u64, most: usize) -> Option<Batch> {
        let batch = unstored.batch(self.sent..end, most);
        self.sent = batch.as_ref().map_or(end, Batch::next).max(self.sent);
        self.again_from = self.sent;
        batch
    }

    /// The next of the records that it refused, with one of these numbers.
    fn next_again(&mut self, unstored: &Unstored, numbers: Range<u64>, most: usize) -> Option<Batch> {
        self.again_from = numbers.start;
        while let Some(names) = self.refused.first_from(self.again_from)
            && names.first < numbers.end
        {
            let end = names.end().min(self.sent).min(numbers.end);
            let batch = unstored.batch(names.first..end, most);
            let next = batch.as_ref().map_or(end, Batch::next);
            self.refused.remove(names.head(next - names.first));
            self.again_from = next;
            if batch.is_some() {
                return batch;
            }
        }
        None
    }
}

/// Records with consecutive numbers that fit into one message.
struct Batch {
    first: u64,
    records: Vec<Record>,
    bytes: usize,
}

impl Batch {
    fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }
}

/// The records that one replica of a shard has not stored.
struct Unstored<'a> {
    pending: &'a VecDeque<Pending>,
    /// The number of the first of them.
    base: u64,
    /// The shard, and the replica's bit in [`Target::stored`].
    at: (ShardId, u16),
    /// How many one message may have.
    batch_records: usize,
}

impl Unstored<'_> {
    /// The first of those with one of these numbers that follow each other, at most so many bytes of them.
    fn batch(&self, numbers: Range<u64>, most: usize) -> Option<Batch> {
        let (shard, bit) = self.at;
        let end = numbers.end;
        let from = numbers.start.clamp(self.base, end.max(self.base));
        let unsent = (from..end).zip(self.pending.range((from - self.base) as usize..));
        let is_wanted = |pending: &Pending| {
            pending.target.shard == Some(shard) && pending.target.stored & bit == 0 && !pending.settled
        };
        let mut unsent = unsent.skip_while(|(_, pending)| !is_wanted(pending)).peekable();
        let (first, _) = unsent.peek().copied()?;
        let (mut records, mut bytes) = (vec![], 0);
        for (_, pending) in unsent.take_while(|(_, pending)| is_wanted(pending)).take(self.batch_records) {
            let size = pending.record.size();
            if !records.is_empty() && bytes + size > most {
                break;
            }
            bytes += size;
            records.push(pending.record.clone());
        }
        Some(Batch { first, records, bytes })
    }
}

impl Putting {
    /// Starts over with the replicas of a new view.
    pub(super) fn enter_view(&mut self, now: Time, view: &View, base: u64, limits: Limits) {
        (self.named, self.told_below, self.stored_below) = (base, base, base);
        self.replicas.clear();
        for members in &view.shards {
            for (index, member) in members.replicas.iter().enumerate() {
                let progress = Progress::new(now, 1 << index, base, limits);
                self.replicas.insert((members.shard, member.node), progress);
            }
        }
    }

    /// Whether every replica of the target's shard holds it.
    pub(super) fn is_stored(&self, target: &Target) -> bool {
        // Where records travel with their names, nobody is waited for here.
        let Some(shard) = target.shard else { return self.replicas.is_empty() };
        let mut replicas = self.of(shard).peekable();
        replicas.peek().is_some() && replicas.all(|(_, progress)| target.stored & progress.bit != 0)
    }

    fn of(&self, shard: ShardId) -> impl Iterator<Item = (NodeId, &Progress)> {
        let range = (shard, NodeId(0))..=(shard, NodeId(u32::MAX));
        self.replicas.range(range).map(|((_, node), progress)| (*node, progress))
    }

    /// The answers that its replicas still owe are not waited for any more.
    pub(super) fn forget(&mut self, id: RecordId, Pending { target, record, .. }: &Pending) {
        let Some(shard) = target.shard else { return };
        let range = (shard, NodeId(0))..=(shard, NodeId(u32::MAX));
        for (_, progress) in self.replicas.range_mut(range) {
            if progress.awaits(id, target) {
                progress.lands(record.size());
            }
        }
    }

    /// Below which number everything was sent to every replica that it goes to, if records are put on shards.
    pub(super) fn sent_below(&self) -> Option<u64> {
        self.replicas.values().map(|progress| progress.sent).min()
    }

    /// When something is to be sent, or sent again.
    pub(super) fn deadline(&self, end: u64) -> Option<Time> {
        let due = |progress: &Progress| {
            let resumes_at = progress.pace.resumes_at().filter(|_| progress.has_more(end));
            resumes_at.or_else(|| (progress.unanswered > 0).then(|| progress.pace.resend_at()))
        };
        self.replicas.values().filter_map(due).min()
    }

    /// Nothing of the session counts any more.
    pub(super) fn restart(&mut self) {
        (self.named, self.told_below, self.stored_below) = (0, 0, 0);
        for progress in self.replicas.values_mut() {
            progress.restart(0);
            progress.lowest = 0;
        }
    }

    /// The connection is gone: what was not answered is sent again, after a while.
    pub(super) fn disconnected(&mut self, now: Time, gone: NodeId, base: u64) {
        for ((_, node), progress) in &mut self.replicas {
            if *node == gone {
                progress.restart(base);
                progress.pace.disconnected(now);
            }
        }
    }

    /// The replicas that have not stored all that was sent, and whether they said that they have no room.
    pub(super) fn waits_for(&self, end: u64) -> impl Iterator<Item = (NodeId, Option<bool>)> {
        let is_behind = move |progress: &Progress| {
            progress.unanswered > 0 || progress.pace.busy().is_some() && progress.has_more(end)
        };
        let behind = self.replicas.iter().filter(move |(_, progress)| is_behind(progress));
        behind.map(|((_, node), progress)| (*node, progress.pace.busy()))
    }
}

impl LogClient {
    /// Why a record cannot be put on a shard. Only shards see it, so nobody who gives out numbers could object.
    pub(super) fn objection(&self, record: &Record, choice: ShardChoice) -> Option<Failure> {
        let config = self.log.config();
        if config.order.places_by_position() {
            return matches!(choice, ShardChoice::Fixed(_)).then_some(Failure::NoChoice(config.order));
        }
        let open = self.log.view().map(View::open_shards);
        match (choice, open) {
            (ShardChoice::Fixed(shard), Some(open)) if !open.contains(&shard) => {
                Some(Failure::NoSuchShard { shard, open: open.to_vec() })
            }
            _ if config.is_too_large(record) => Some(Failure::TooLarge { limit: config.max_record_bytes }),
            _ => None,
        }
    }

    /// The content of an append as the sequencing replicas get it.
    pub(super) fn content(record: &Record, target: &Target) -> Content {
        let bytes = record.size() as u32;
        target.shard.map_or_else(|| record.clone().into(), |shard| Content::Put { shard, bytes })
    }

    /// Chooses shards for the appends that have none. The choice follows from the name, or the record's key.
    pub(super) fn choose_shards(&mut self, session: SessionId) {
        let config = self.log.config();
        let Some(view) = self.log.view().filter(|_| !config.order.places_by_position()) else {
            return;
        };
        let (open, stripe) = (view.open_shards(), config.stripe);
        let chosen = self.pending.iter().rposition(|pending| pending.target.shard.is_some());
        let first = chosen.map_or(0, |index| index + 1);
        for (number, pending) in (self.base + first as u64..).zip(self.pending.range_mut(first..)) {
            let id = RecordId { session, number };
            pending.target.shard = Some(pending.terms.shard.of(id, &pending.record, stripe, open));
        }
    }

    /// In a new view, what the replicas of another one hold does not count, and a shard that takes no new records is
    /// not waited for. Its records go to another one: if they were bound where they were first put, they still are.
    pub(super) fn restart_targets(&mut self) {
        let Some(view) = self.log.view() else { return };
        let (open, stripe) = (view.open_shards(), self.log.config().stripe);
        self.pending.iter_mut().for_each(|pending| pending.target.stored = 0);
        let Session::Open(session) = self.session else { return };
        for (number, pending) in (self.base..).zip(&mut self.pending) {
            if pending.target.shard.is_some_and(|shard| !open.contains(&shard)) {
                let id = RecordId { session, number };
                pending.target.shard = Some(pending.terms.shard.of(id, &pending.record, stripe, open));
            }
        }
    }

    /// Below which number names may leave. No name leaves before its record, and none while more than a full batch of records
    /// before its own is not stored: its append takes no longer for it, since something else is in its way, and a view change
    /// waits for every record that was named and is nowhere yet.
    pub(super) fn names_below(&mut self, end: u64) -> u64 {
        let Some(sent) = self.putting.sent_below() else { return end };
        let index = |number: u64| (number - self.base) as usize;
        let mut stored = self.putting.stored_below.max(self.base);
        while stored < sent
            && let Some(pending) = self.pending.get(index(stored))
            && (pending.settled || self.putting.is_stored(&pending.target))
        {
            stored += 1;
        }
        self.putting.stored_below = stored;
        let Some(next) = self.pending.get(index(stored)) else { return sent.min(end) };
        let ahead = self.config.options.limits.batch_bytes as u64;
        let most = next.upto - next.record.size() as u64 + ahead;
        let within = self.pending.partition_point(|pending| pending.upto <= most) as u64;
        (self.base + within).max(stored + 1).min(sent).min(end)
    }

    /// Puts records on their shards: those that were not sent, and those that were not answered for too long.
    /// Says whether somebody was silent.
    pub(super) fn send_puts(&mut self, now: Time, session: SessionId, out: &mut Out) -> bool {
        let (base, end, view) = (self.base, self.end(), self.log.view_number());
        let limits = self.config.options.limits;
        let (told_below, mut is_silent) = (self.putting.told_below, false);
        for ((shard, node), progress) in &mut self.putting.replicas {
            if progress.pace.pauses(now) {
                continue;
            }
            let unstored = Unstored {
                pending: &self.pending,
                base,
                at: (*shard, progress.bit),
                batch_records: limits.batch_records,
            };
            let mut batches = vec![];
            progress.sent = progress.sent.max(base);
            if progress.unanswered == 0 {
                progress.pace.begins(now);
            } else if progress.pace.falls_silent(now) {
                // The first batch asks what became of those that were sent; the others come again only if that is missing.
                is_silent = true;
                batches.extend(unstored.batch(base..progress.sent.min(end), limits.batch_bytes));
            }
            while let Some(batch) = progress.next(&unstored, told_below, end) {
                progress.unanswered += batch.records.len() as u64;
                progress.in_flight += batch.bytes;
                batches.push(batch);
            }
            for Batch { first, records, .. } in batches {
                let message = Message::Put { view, session, first, records };
                let to = Address::Node(*node, Endpoint::Shard(*shard));
                out.push(ClientEffect::Send { to, message: message.into() });
            }
        }
        is_silent
    }

    /// A shard replica answered.
    pub(super) fn shard_answered(
        &mut self,
        now: Time,
        from: (ShardId, NodeId),
        message: Message,
        out: &mut Out,
    ) {
        let current = self.log.view_number();
        let Session::Open(session) = self.session else { return };
        match message {
            Message::Stored { view, ids } if view == current && ids.session == session => {
                self.stored(now, from, ids, out);
            }
            Message::NotAppended { view, ids } if view == current && ids.session == session => {
                self.not_appended(now, ids, out);
            }
            Message::Busy { view, ids, disk_full } if view == current && ids.session == session => {
                self.had_no_room(now, from, ids, disk_full);
            }
            Message::Fenced { .. } => {
                // It is not in that view yet, or not any more.
                let all = IdRun { session, first: self.base, count: self.end() - self.base };
                self.send_again(from, all);
                if let Some(progress) = self.putting.replicas.get_mut(&from) {
                    progress.is_fenced = !self.config.options.deviates(Deviation::UnnamedToFenced);
                    progress.pace.fenced(now);
                }
                self.log.ask_register(now);
                if self.config.options.deviates(Deviation::AgainInDoubt) {
                    self.not_appended(now, IdRun { session, first: self.base, count: 1 }, out);
                }
            }
            _ => {}
        }
    }

    /// A replica had no room for these: they go to it again, after a pause.
    fn had_no_room(&mut self, now: Time, from: (ShardId, NodeId), ids: IdRun, disk_full: bool) {
        let jitter = self.jitter.draw();
        self.send_again(from, ids);
        if let Some(progress) = self.putting.replicas.get_mut(&from) {
            progress.again_from = progress.again_from.min(ids.first);
            progress.pace.refused(now, disk_full, jitter);
        }
    }

    /// Of these records, the ones that were sent to a replica and not answered go to it again.
    fn send_again(&mut self, from: (ShardId, NodeId), ids: IdRun) {
        let (base, end) = (self.base, self.end());
        let Some(progress) = self.putting.replicas.get_mut(&from) else { return };
        let mut refused: Option<IdRun> = None;
        for number in ids.first.max(base)..ids.end().min(end).min(progress.sent) {
            let pending = &self.pending[(number - base) as usize];
            let goes_there = pending.target.shard == Some(from.0) && !pending.settled;
            if goes_there && progress.awaits(RecordId { session: ids.session, number }, &pending.target) {
                progress.lands(pending.record.size());
                match &mut refused {
                    Some(run) if run.end() == number => run.count += 1,
                    _ => {
                        let next = IdRun { first: number, count: 1, ..ids };
                        progress.refused.extend(refused.replace(next));
                    }
                }
            }
        }
        progress.refused.extend(refused);
    }

    fn stored(&mut self, now: Time, from: (ShardId, NodeId), ids: IdRun, out: &mut Out) {
        let Some(progress) = self.putting.replicas.get_mut(&from) else { return };
        let (base, bit) = (self.base, progress.bit);
        let mut taken = 0;
        for number in ids.first.max(base)..ids.end() {
            let Some(pending) = self.pending.get_mut((number - base) as usize) else { break };
            if pending.target.shard != Some(from.0) || pending.target.stored & bit != 0 {
                continue;
            }
            let id = RecordId { session: ids.session, number };
            if progress.awaits(id, &pending.target) && !pending.settled {
                progress.lands(pending.record.size());
            }
            pending.target.stored |= bit;
            taken += pending.record.size();
        }
        progress.is_fenced = false;
        progress.pace.takes(now, taken);
        progress.refused.remove(ids);
        // More names may leave now, too.
        self.work_is_due = true;
        let before = progress.lowest;
        progress.lowest = before.max(base);
        while let Some(pending) = self.pending.get((progress.lowest - base) as usize)
            && progress.lowest < progress.sent
            && (pending.target.shard != Some(from.0) || pending.target.stored & bit != 0 || pending.settled)
        {
            progress.lowest += 1;
        }
        if progress.lowest > before {
            progress.pace.advances(now);
        }
        for number in ids.first.max(base)..ids.end().min(self.end()) {
            self.settle_if_done(number, out);
        }
        self.release();
    }

    /// The names of these are in the log, as no-ops: their records did not reach their shard in time, or were
    /// lost with its replicas before they were acknowledged. That is definite: a record whose application does
    /// not mind its order is appended again, and is in the log at most once even so.
    pub(super) fn not_appended(&mut self, now: Time, ids: IdRun, out: &mut Out) {
        let Session::Open(session) = self.session else { return };
        for number in ids.first.max(self.base)..ids.end().min(self.end()) {
            let pending = &mut self.pending[(number - self.base) as usize];
            if pending.settled {
                continue;
            }
            pending.settled = true;
            self.putting.forget(RecordId { session, number }, pending);
            if now < pending.terms.again_until {
                let record = pending.record.clone();
                let Pending { token, terms, again, .. } = *pending;
                self.push(token, record, terms, again + 1);
                self.work_is_due = true;
            } else {
                let failure = Failure::NotAppended(RecordId { session, number });
                out.push(reply(pending.token, Reply::Failed(failure)));
            }
        }
        self.work_is_due = true;
        self.release();
    }
}
