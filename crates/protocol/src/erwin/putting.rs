//! A client's side of putting records on shards itself, beside the names that it sends to the sequencing
//! replicas: both in the same round trip (LazyLog §5.1).
//!
//! A record is stored when every replica of its shard, as the client's view names them, said so in that view.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use seriatim_model::limits::Limits;
use seriatim_model::{Address, Endpoint, IdRun, NodeId, Record, RecordId, SessionId, ShardId, Time, View};

use super::client::{Failure, LogClient, Out, Pending, Reply, Session};
use crate::deviation::Deviation;
use crate::parts::appending::{ClientEffect, reply};
use crate::parts::lookup::{LOOKUP_FIRST, LOOKUP_MOST};
use crate::parts::pauses::{BUSY_FIRST, BUSY_MOST, RESEND_FIRST, RESEND_MOST, patience_after};
use crate::parts::{Content, ShardChoice};
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
    replicas: BTreeMap<(ShardId, NodeId), Progress>,
}

#[derive(Clone, Debug)]
struct Progress {
    /// Its bit in [`Target::stored`].
    bit: u16,
    /// What goes to it of the numbers below was sent.
    sent: u64,
    /// How many of those it has not stored yet, and the lowest number that may be one of them.
    unanswered: u64,
    lowest: u64,
    /// When the lowest of them was answered last, or sent.
    heard_at: Time,
    patience: Duration,
    not_before: Time,
    pause: Duration,
    busy: Option<bool>,
}

/// The records that one replica of a shard has not stored.
struct Unstored<'a> {
    pending: &'a VecDeque<Pending>,
    /// The number of the first of them.
    base: u64,
    /// The shard, and the replica's bit in [`Target::stored`].
    at: (ShardId, u16),
    limits: Limits,
}

impl Unstored<'_> {
    /// The first of those in `from..end` that follow each other and fit into one message, with the number of the first,
    /// and where to look for more.
    fn batch(&self, from: u64, end: u64) -> Option<((u64, Vec<Record>), u64)> {
        let (shard, bit) = self.at;
        let unsent = (from..end).zip(self.pending.range((from.min(end) - self.base) as usize..));
        let is_wanted = |pending: &Pending| {
            pending.target.shard == Some(shard) && pending.target.stored & bit == 0 && !pending.settled
        };
        let mut unsent = unsent.skip_while(|(_, pending)| !is_wanted(pending)).peekable();
        let (first, _) = unsent.peek().copied()?;
        let (mut records, mut bytes) = (vec![], 0);
        for (_, pending) in
            unsent.take_while(|(_, pending)| is_wanted(pending)).take(self.limits.batch_records)
        {
            bytes += pending.record.size();
            if !records.is_empty() && bytes > self.limits.batch_bytes {
                break;
            }
            records.push(pending.record.clone());
        }
        let next = first + records.len() as u64;
        Some(((first, records), next))
    }
}

impl Putting {
    /// Starts over with the replicas of a new view.
    pub(super) fn enter_view(&mut self, now: Time, view: &View, base: u64) {
        self.named = base;
        self.replicas.clear();
        for members in &view.shards {
            for (index, member) in members.replicas.iter().enumerate() {
                let progress = Progress {
                    bit: 1 << index,
                    sent: base,
                    unanswered: 0,
                    lowest: base,
                    heard_at: now,
                    patience: RESEND_FIRST,
                    not_before: Time::ZERO,
                    pause: Duration::ZERO,
                    busy: None,
                };
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

    /// What its replicas still owe is not waited for any more.
    pub(super) fn forget(&mut self, number: u64, target: &Target) {
        let Some(shard) = target.shard else { return };
        let range = (shard, NodeId(0))..=(shard, NodeId(u32::MAX));
        for (_, progress) in self.replicas.range_mut(range) {
            if number < progress.sent && target.stored & progress.bit == 0 {
                progress.unanswered = progress.unanswered.saturating_sub(1);
            }
        }
    }

    /// When something is to be sent, or sent again.
    pub(super) fn deadline(&self, end: u64) -> Option<Time> {
        let due = |progress: &Progress| {
            if progress.sent < end && progress.not_before > Time::ZERO {
                return Some(progress.not_before);
            }
            (progress.unanswered > 0)
                .then(|| (progress.heard_at + progress.patience).max(progress.not_before))
        };
        self.replicas.values().filter_map(due).min()
    }

    /// Nothing of the session counts any more.
    pub(super) fn restart(&mut self) {
        self.named = 0;
        for progress in self.replicas.values_mut() {
            (progress.sent, progress.unanswered, progress.lowest) = (0, 0, 0);
        }
    }

    /// The connection is gone: what was not answered is sent again, after a while.
    pub(super) fn disconnected(&mut self, now: Time, gone: NodeId, base: u64) {
        for ((_, node), progress) in &mut self.replicas {
            if *node == gone {
                (progress.sent, progress.unanswered) = (base, 0);
                progress.not_before = now + LOOKUP_MOST;
            }
        }
    }

    /// The replicas that have not stored all that was sent, and whether they said that they have no room.
    pub(super) fn waits_for(&self, end: u64) -> impl Iterator<Item = (NodeId, Option<bool>)> {
        let is_behind = move |progress: &Progress| {
            progress.unanswered > 0 || progress.busy.is_some() && progress.sent < end
        };
        let behind = self.replicas.iter().filter(move |(_, progress)| is_behind(progress));
        behind.map(|((_, node), progress)| (*node, progress.busy))
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

    /// What is sent to the sequencing replicas of an append.
    pub(super) fn content(record: &Record, target: &Target) -> Content {
        target.shard.map_or_else(|| record.clone().into(), Content::Shard)
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

    /// Puts records on their shards: those that were not sent, and those that were not answered for too long.
    /// Says whether somebody was silent.
    pub(super) fn send_puts(&mut self, now: Time, session: SessionId, out: &mut Out) -> bool {
        let (base, end, view) = (self.base, self.end(), self.log.view_number());
        let limits = self.config.options.limits;
        let mut is_silent = false;
        for ((shard, node), progress) in &mut self.putting.replicas {
            if now < progress.not_before {
                continue;
            }
            progress.not_before = Time::ZERO;
            let unstored = Unstored { pending: &self.pending, base, at: (*shard, progress.bit), limits };
            let mut batches = vec![];
            if progress.unanswered > 0 && now >= progress.heard_at + progress.patience {
                // The first batch asks what became of those that were sent; the others come again only if that is missing.
                is_silent = true;
                batches.extend(unstored.batch(base, progress.sent.min(end)).map(|(batch, _)| batch));
                progress.heard_at = now;
                progress.patience = (progress.patience * 2).min(RESEND_MOST);
            } else if progress.sent < end && progress.unanswered == 0 {
                progress.heard_at = now;
            }
            progress.sent = progress.sent.max(base);
            while let Some((batch, next)) = unstored.batch(progress.sent, end) {
                progress.unanswered += batch.1.len() as u64;
                progress.sent = next;
                batches.push(batch);
            }
            progress.sent = progress.sent.max(end);
            for (first, records) in batches {
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
                let jitter = self.jitter.draw();
                let Some(progress) = self.putting.replicas.get_mut(&from) else { return };
                (progress.sent, progress.unanswered) = (self.base, 0);
                progress.heard_at = now;
                progress.busy = Some(disk_full || progress.busy == Some(true));
                progress.pause = (progress.pause * 2).clamp(BUSY_FIRST, BUSY_MOST);
                progress.not_before = now + progress.pause.mul_f64(jitter);
            }
            Message::Fenced { .. } => {
                // It is not in that view yet, or not any more.
                if let Some(progress) = self.putting.replicas.get_mut(&from) {
                    (progress.sent, progress.unanswered) = (self.base, 0);
                    progress.pause = (progress.pause * 2).clamp(LOOKUP_FIRST, BUSY_MOST);
                    progress.not_before = now + progress.pause;
                }
                self.log.ask_register(now);
                if self.config.options.deviates(Deviation::AgainInDoubt) {
                    self.not_appended(now, IdRun { session, first: self.base, count: 1 }, out);
                }
            }
            _ => {}
        }
    }

    fn stored(&mut self, now: Time, from: (ShardId, NodeId), ids: IdRun, out: &mut Out) {
        let Some(progress) = self.putting.replicas.get_mut(&from) else { return };
        progress.patience = patience_after(progress.patience, now - progress.heard_at);
        (progress.pause, progress.busy) = (Duration::ZERO, None);
        let (base, bit) = (self.base, progress.bit);
        for number in ids.first.max(base)..ids.end() {
            let Some(pending) = self.pending.get_mut((number - base) as usize) else { break };
            if pending.target.shard != Some(from.0) || pending.target.stored & bit != 0 {
                continue;
            }
            pending.target.stored |= bit;
            if number < progress.sent && !pending.settled {
                progress.unanswered = progress.unanswered.saturating_sub(1);
            }
        }
        let before = progress.lowest;
        progress.lowest = before.max(base);
        while let Some(pending) = self.pending.get((progress.lowest - base) as usize)
            && progress.lowest < progress.sent
            && (pending.target.shard != Some(from.0) || pending.target.stored & bit != 0 || pending.settled)
        {
            progress.lowest += 1;
        }
        if progress.lowest > before {
            // One that is lost is not made up for by those that come after it.
            progress.heard_at = now;
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
            self.putting.forget(number, &pending.target);
            if now < pending.terms.again_until {
                let record = pending.record.clone();
                let (again, target) = (pending.again + 1, Target::default());
                let Pending { token, terms, .. } = *pending;
                self.pending.push_back(Pending { token, record, terms, again, settled: false, target });
                self.work_is_due = true;
            } else {
                let failure = Failure::NotAppended(RecordId { session, number });
                out.push(reply(pending.token, Reply::Failed(failure)));
            }
        }
        self.release();
    }
}
