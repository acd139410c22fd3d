//! What a client writes where: one conversation with each replica.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::storage::Run;
use seriatim_model::{Address, Endpoint, NodeId, Position, RecordId, ShardId, Time, View};

use super::client::{LogClient, Out, Place};
use crate::parts::appending::ClientEffect;
use crate::parts::junk;
use crate::parts::pauses::{BUSY_FIRST, BUSY_MOST, RESEND_FIRST, RESEND_MOST, patience_after};
use crate::shard::{self, Span};

/// A conversation: when the other was heard last, and how often nothing came.
#[derive(Clone, Debug)]
pub(super) struct Talk {
    /// How many things wait for an answer.
    waiting: u64,
    heard_at: Time,
    patience: Duration,
    not_before: Time,
    pause: Duration,
    /// Whether it had no room when it was last heard of, and if so, whether because of its disk.
    busy: Option<bool>,
}

impl Default for Talk {
    fn default() -> Self {
        Self {
            waiting: 0,
            heard_at: Time::ZERO,
            patience: RESEND_FIRST,
            not_before: Time::ZERO,
            pause: Duration::ZERO,
            busy: None,
        }
    }
}

impl Talk {
    /// When something is to be said, if there `is_more` to say, or again.
    pub(super) fn deadline(&self, is_more: bool) -> Option<Time> {
        if is_more {
            return Some(self.not_before);
        }
        (self.waiting > 0).then(|| self.asked_again_at(self.heard_at))
    }

    /// When what was said at this time is said again.
    fn asked_again_at(&self, said_at: Time) -> Time {
        (said_at + self.patience).max(self.not_before)
    }

    pub(super) fn is_paused(&self, now: Time) -> bool {
        now < self.not_before
    }

    pub(super) fn pause_until(&mut self, not_before: Time) {
        self.waiting = 0;
        self.not_before = not_before;
    }

    /// Whether too long nothing was heard: what was said, or the answer, may be lost.
    pub(super) fn is_silent(&mut self, now: Time) -> bool {
        let silent = self.waiting > 0 && now >= self.heard_at + self.patience;
        if silent {
            self.waiting = 0;
            self.lose_patience();
        }
        silent
    }

    fn lose_patience(&mut self) {
        self.patience = (self.patience * 2).min(RESEND_MOST);
    }

    /// So many things were said that wait for an answer.
    pub(super) fn said(&mut self, now: Time, count: u64) {
        if self.waiting == 0 {
            self.heard_at = now;
        }
        self.waiting += count;
    }

    /// Something was answered: so many things still wait for an answer.
    pub(super) fn answered(&mut self, now: Time, waiting: u64) {
        let patience = match self.waiting {
            0 => RESEND_FIRST,
            _ => patience_after(self.patience, now - self.heard_at),
        };
        *self = Self { heard_at: now, patience, waiting, not_before: self.not_before, ..Self::default() };
    }

    fn refused(&mut self, now: Time, disk_full: bool, jitter: f64) {
        self.busy = Some(disk_full || self.busy == Some(true));
        self.pause = (self.pause * 2).clamp(BUSY_FIRST, BUSY_MOST);
        self.not_before = now + self.pause.mul_f64(jitter);
    }
}

/// The conversations with the replicas of the view.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    replicas: BTreeMap<(ShardId, NodeId), Replica>,
}

/// What goes to one replica.
#[derive(Clone, Debug, Default)]
struct Replica {
    talk: Talk,
    /// What is to be sent.
    due: Vec<Position>,
    /// What was sent and not answered, and when.
    sent: BTreeMap<Position, Time>,
}

impl Replica {
    fn deadline(&self) -> Option<Time> {
        if !self.due.is_empty() {
            return Some(self.talk.not_before);
        }
        // Of those that go to one replica, the lowest was sent first, as good as always.
        self.sent.first_key_value().map(|(_, sent_at)| self.talk.asked_again_at(*sent_at))
    }

    /// Makes due again what was not answered in time. Says whether there was anything.
    fn repeat(&mut self, now: Time) -> bool {
        let patience = self.talk.patience;
        let is_late = self.sent.first_key_value().is_some_and(|(_, at)| now >= *at + patience);
        if is_late {
            self.sent.retain(|position, at| {
                let late = now >= *at + patience;
                self.due.extend(late.then_some(*position));
                !late
            });
            self.talk.lose_patience();
        }
        is_late
    }

    /// Makes everything due again that was not answered.
    fn repeat_all(&mut self, not_before: Time) {
        self.due.extend(std::mem::take(&mut self.sent).into_keys());
        self.talk.pause_until(not_before);
    }
}

impl Writes {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.replicas.values().filter_map(Replica::deadline).min()
    }

    pub(super) fn waits_for(&self) -> impl Iterator<Item = (NodeId, Option<bool>)> {
        let waiting =
            self.replicas.iter().filter(|(_, replica)| !replica.due.is_empty() || !replica.sent.is_empty());
        waiting.map(|((_, node), replica)| (*node, replica.talk.busy))
    }

    /// What is at this place goes to its next replica. Says whether there is one.
    pub(super) fn is_due(&mut self, view: &View, position: Position, place: &Place) -> bool {
        let target = target(view, place);
        if let Some(target) = target {
            self.replicas.entry(target).or_default().due.push(position);
        }
        target.is_some()
    }

    /// Whoever is on this node gets what it did not answer again, but not before.
    pub(super) fn disconnected(&mut self, node: NodeId, not_before: Time) {
        for ((_, other), replica) in &mut self.replicas {
            if *other == node {
                replica.repeat_all(not_before);
            }
        }
    }
}

/// The replica that is next: of a chain the last one first, of those that are asked the first.
fn target(view: &View, place: &Place) -> Option<(ShardId, NodeId)> {
    let of = |position: Position| view.shard(view.placement.shard_of(position));
    let (members, index) = match *place {
        Place::At { position, hops, .. } => {
            let members = of(position)?;
            (members, members.replicas.len().checked_sub(hops + 1)?)
        }
        Place::Asked { position, tries } => (of(position)?, tries),
        Place::Nowhere | Place::Overtaken => return None,
    };
    Some((members.shard, members.replicas.get(index)?.node))
}

impl LogClient {
    /// Sends whatever is due to each replica, as few messages as it fits into.
    pub(super) fn send_writes(&mut self, now: Time, out: &mut Out) {
        let mut is_silent = false;
        let (Some(view), Some(session)) = (self.log.view(), self.session) else { return };
        let limits = self.config.options.limits;
        for (target, replica) in &mut self.writes.replicas {
            if replica.talk.is_paused(now) {
                continue;
            }
            is_silent |= replica.repeat(now);
            let Replica { due, sent, .. } = replica;
            due.sort_unstable();
            due.dedup();
            let to = Address::Node(target.1, Endpoint::Shard(target.0));
            let mut send = |runs: &mut Vec<Run>| {
                let message = shard::Message::Write { view: view.number, runs: std::mem::take(runs) };
                out.push(ClientEffect::Send { to, message: message.into() });
            };
            let (mut runs, mut count, mut bytes) = (vec![], 0, 0);
            for position in due.drain(..) {
                let Some(number) = self.placed.get(&position).copied() else { continue };
                let pending = &mut self.pending[(number - self.base) as usize];
                if self::target(view, &pending.place) != Some(*target) {
                    continue;
                }
                if let Place::At { sent, .. } = &mut pending.place {
                    *sent = true;
                }
                sent.insert(position, now);
                let size = pending.record.size();
                if count > 0 && (count == limits.batch_records || bytes + size > limits.batch_bytes) {
                    send(&mut runs);
                    (count, bytes) = (0, 0);
                }
                (count, bytes) = (count + 1, bytes + size);
                junk::push(&mut runs, position, (RecordId { session, number }, pending.record.clone()));
            }
            if count > 0 {
                send(&mut runs);
            }
        }
        if is_silent {
            self.log.wonder(out);
        }
    }

    /// A replica has what is at these positions, but for `others`, where something else is.
    pub(super) fn written(
        &mut self,
        now: Time,
        node: NodeId,
        spans: &[Span],
        others: &[(Position, RecordId)],
        out: &mut Out,
    ) {
        for span in spans {
            for position in span.positions() {
                let Some((number, place)) = self.answered(now, node, position) else { continue };
                // Only what is called otherwise is not ours.
                let id = self.id(number);
                let is_other = others.iter().any(|(at, other)| *at == position && Some(*other) != id);
                match place {
                    _ if is_other => self.overtaken(now, number, position),
                    Place::At { hops, .. } => {
                        if hops == 0 {
                            self.head_has(now, number);
                            self.work_is_due = true;
                        }
                        self.passes(number, position, hops + 1, out);
                    }
                    _ => self.is_done(number, position, out),
                }
            }
        }
        self.settle_if_known(now, out);
    }

    /// One more replica of the chain has it: the next one is to get it, or it is done.
    fn passes(&mut self, number: u64, position: Position, hops: usize, out: &mut Out) {
        let Some(view) = self.log.view() else { return };
        let place = Place::At { position, hops, sent: true };
        if target(view, &place).is_none() {
            return self.is_done(number, position, out);
        }
        self.pending[(number - self.base) as usize].place = place;
        self.writes.is_due(view, position, &place);
        self.work_is_due = true;
    }

    /// A replica cannot say what is at these positions: the next one may.
    pub(super) fn unreadable(&mut self, now: Time, node: NodeId, spans: &[Span], out: &mut Out) {
        let mut is_lost = false;
        for span in spans {
            for position in span.positions() {
                let Some((number, place)) = self.answered(now, node, position) else { continue };
                let Some(view) = self.log.view() else { return };
                let tries = if let Place::Asked { tries, .. } = place { tries + 1 } else { 0 };
                let place = Place::Asked { position, tries };
                self.pending[(number - self.base) as usize].place = place;
                // If nobody knows: it is trimmed, or lost.
                is_lost |= target(view, &place).is_none();
                self.writes.is_due(view, position, &place);
                self.work_is_due = true;
            }
        }
        if is_lost {
            self.session_lost(out);
        }
    }

    /// A replica cannot take these now.
    pub(super) fn later(&mut self, now: Time, node: NodeId, spans: &[Span], disk_full: bool) {
        let jitter = self.jitter.draw();
        let Some(view) = self.log.view() else { return };
        for position in spans.iter().flat_map(|span| span.positions()) {
            let shard = view.placement.shard_of(position);
            if let Some(replica) = self.writes.replicas.get_mut(&(shard, node))
                && replica.sent.remove(&position).is_some()
            {
                replica.due.push(position);
                if !replica.talk.is_paused(now) {
                    replica.talk.refused(now, disk_full, jitter);
                }
            }
        }
        self.work_is_due = true;
    }

    /// A replica answered for a position. Returns which number is there, unless it was another's turn.
    fn answered(&mut self, now: Time, node: NodeId, position: Position) -> Option<(u64, Place)> {
        let view = self.log.view()?;
        let replica = self.writes.replicas.get_mut(&(view.placement.shard_of(position), node))?;
        replica.sent.remove(&position)?;
        replica.talk.answered(now, 0);
        let number = *self.placed.get(&position)?;
        let place = self.pending[(number - self.base) as usize].place;
        (target(view, &place)?.1 == node).then_some((number, place))
    }

    /// The head of a chain has a record: how long that took, the sequencer should wait at least.
    fn head_has(&mut self, now: Time, number: u64) {
        let Some(pending) = self.pending.get((number - self.base) as usize) else { return };
        let asked_at = pending.asked_at;
        self.heading.remove(&pending.record);
        self.patience.took(now, now - asked_at);
    }
}
