//! A client's writes: one conversation with each replica.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::limits::{Limits, MISSING_MOST};
use seriatim_model::{
    Address, Endpoint, NodeId, Position, RecordId, ShardId, ShardMembers, Span, Time, View,
};

use super::ShardMessage;
use super::client::{LogClient, Out, Place};
use crate::parts::appending::ClientEffect;
use crate::parts::{Conversation, junk};

#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    replicas: BTreeMap<(ShardId, NodeId), Replica>,
}

/// Invariant: `in_flight` is the number of bytes of the records in `sent`.
#[derive(Clone, Debug)]
struct Replica {
    pace: Conversation,
    due: BTreeSet<Position>,
    /// Sizes of unanswered records.
    sent: BTreeMap<Position, usize>,
    in_flight: usize,
    /// When it last answered, or a record began to wait for it.
    heard_at: Time,
    /// When its connection broke, unless it answered since.
    broken_at: Option<Time>,
}

impl Replica {
    fn new(batch_bytes: usize) -> Self {
        let pace = Conversation::new(Time::ZERO, batch_bytes);
        Self {
            pace,
            due: BTreeSet::new(),
            sent: BTreeMap::new(),
            in_flight: 0,
            heard_at: Time::ZERO,
            broken_at: None,
        }
    }

    fn hear(&mut self, now: Time) {
        (self.heard_at, self.broken_at) = (now, None);
    }

    /// Whether messages presumably do not reach the replica.
    fn is_cut_off(&self, now: Time, limits: Limits) -> bool {
        let is_broken = self.broken_at.is_some_and(|at| now >= at + limits.missing_connected);
        is_broken || !self.sent.is_empty() && now >= self.heard_at + MISSING_MOST
    }

    fn deadline(&self) -> Option<Time> {
        let may_send = !self.due.is_empty() && self.pace.room(self.in_flight).is_some();
        let at_once = may_send.then(|| self.pace.resumes_at().unwrap_or(Time::ZERO));
        at_once.or_else(|| (!self.sent.is_empty()).then(|| self.pace.resend_at()))
    }

    /// After a timeout, resends the lowest positions, one message's worth, to probe for the others:
    /// the lowest were almost always sent first. Returns whether a resend was due.
    fn repeat(&mut self, now: Time, limits: Limits) -> bool {
        let is_late = !self.sent.is_empty() && self.pace.times_out(now);
        if is_late {
            let mut bytes = 0;
            let first = self.sent.iter().take(limits.batch_records).take_while(|(_, size)| {
                let is_first = bytes == 0;
                bytes += **size;
                is_first || bytes <= limits.batch_bytes
            });
            let first: Vec<Position> = first.map(|(position, _)| *position).collect();
            for position in first {
                self.again(position);
            }
        }
        is_late
    }

    /// A record is no longer in flight. Returns its size, if it was.
    fn lands(&mut self, position: Position) -> Option<usize> {
        let bytes = self.sent.remove(&position)?;
        assert!(bytes <= self.in_flight, "{bytes} of {} bytes on their way land", self.in_flight);
        self.in_flight -= bytes;
        assert!(!self.sent.is_empty() || self.in_flight == 0, "nothing is on its way, and bytes of it");
        Some(bytes)
    }

    /// Resends a record in flight; returns whether it was.
    fn again(&mut self, position: Position) -> bool {
        self.lands(position).is_some() && self.due.insert(position)
    }

    /// Resends unanswered records after a pause.
    fn disconnected(&mut self, now: Time) {
        self.due.extend(std::mem::take(&mut self.sent).into_keys());
        self.in_flight = 0;
        self.broken_at.get_or_insert(now);
        self.pace.disconnected(now);
    }
}

impl Writes {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.replicas.values().filter_map(Replica::deadline).min()
    }

    pub(super) fn waits_for(&self) -> impl Iterator<Item = (NodeId, Option<bool>)> {
        let waiting =
            self.replicas.iter().filter(|(_, replica)| !replica.due.is_empty() || !replica.sent.is_empty());
        waiting.map(|((_, node), replica)| (*node, replica.pace.busy()))
    }

    pub(super) fn new(view: &View, batch_bytes: usize) -> Self {
        let of = |members: &ShardMembers| {
            let shard = members.shard;
            let nodes: Vec<NodeId> = members.replicas.iter().map(|member| member.node).collect();
            nodes.into_iter().map(move |node| ((shard, node), Replica::new(batch_bytes)))
        };
        Self { replicas: view.shards.iter().flat_map(of).collect() }
    }

    pub(super) fn window(&self) -> usize {
        self.replicas.values().map(|replica| replica.pace.window()).min().unwrap_or(usize::MAX)
    }

    /// Schedules the record for its next replica. Returns whether there is one.
    pub(super) fn make_due(&mut self, view: &View, position: Position, place: &Place) -> bool {
        let target = target(view, place);
        let replica = target.and_then(|target| self.replicas.get_mut(&target));
        replica.map(|replica| replica.due.insert(position)).is_some()
    }

    pub(super) fn hear(&mut self, now: Time, replica: (ShardId, NodeId)) {
        if let Some(replica) = self.replicas.get_mut(&replica) {
            replica.hear(now);
        }
    }

    /// Whether the next replica is cut off.
    pub(super) fn are_cut_off(&self, now: Time, view: &View, place: &Place, limits: Limits) -> bool {
        let replica = target(view, place).and_then(|target| self.replicas.get(&target));
        replica.is_some_and(|replica| replica.is_cut_off(now, limits))
    }

    pub(super) fn disconnected(&mut self, now: Time, gone: NodeId) {
        let of_it = self.replicas.iter_mut().filter(|((_, node), _)| *node == gone);
        of_it.for_each(|(_, replica)| replica.disconnected(now));
    }
}

/// The next replica: a write goes from the chain's head (the last) to the primary; a question
/// starts at the primary.
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
    /// Sends due records in as few messages as possible.
    pub(super) fn send_writes(&mut self, now: Time, out: &mut Out) {
        let mut has_timed_out = false;
        let (Some(view), Some(session)) = (self.log.view(), self.session) else { return };
        let limits = self.config.options.limits;
        for (target, replica) in &mut self.writes.replicas {
            if replica.pace.pauses(now) {
                continue;
            }
            has_timed_out |= replica.repeat(now, limits);
            if replica.sent.is_empty() {
                replica.heard_at = now;
                replica.pace.begins(now);
            }
            let to = Address::Node(target.1, Endpoint::Shard(target.0));
            while let Some(most) = replica.pace.room(replica.in_flight) {
                let (mut runs, mut count, mut bytes) = (vec![], 0, 0);
                while let Some(position) = replica.due.first().copied() {
                    let number = self.placed.get(&position).copied();
                    let pending = number.map(|number| &mut self.pending[(number - self.base) as usize]);
                    let wanted =
                        pending.filter(|pending| self::target(view, &pending.place) == Some(*target));
                    let (Some(number), Some(pending)) = (number, wanted) else {
                        replica.due.pop_first();
                        continue;
                    };
                    let size = pending.record.size();
                    if count > 0 && (count == limits.batch_records || bytes + size > most) {
                        break;
                    }
                    replica.due.pop_first();
                    if let Place::At { sent, .. } = &mut pending.place {
                        *sent = true;
                    }
                    replica.sent.insert(position, size);
                    (count, bytes) = (count + 1, bytes + size);
                    junk::push(&mut runs, position, (RecordId { session, number }, pending.record.clone()));
                }
                if count == 0 {
                    break;
                }
                replica.in_flight += bytes;
                let message = ShardMessage::Write { view: view.number, runs };
                out.push(ClientEffect::Send { to, message: message.into() });
            }
        }
        if has_timed_out {
            self.log.wonder(out);
        }
    }

    /// A replica has the records at these positions; `others` hold other records.
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
                // Compare ids: our own record may be listed.
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
                    _ => self.complete(number, position, out),
                }
            }
        }
        self.end_recovery_if_known(now, out);
    }

    /// One more replica has the record: schedules the next replica, or completes the append.
    fn passes(&mut self, number: u64, position: Position, hops: usize, out: &mut Out) {
        let Some(view) = self.log.view() else { return };
        let place = Place::At { position, hops, sent: true };
        if target(view, &place).is_none() {
            return self.complete(number, position, out);
        }
        self.pending[(number - self.base) as usize].place = place;
        self.writes.make_due(view, position, &place);
        self.work_is_due = true;
    }

    /// A replica cannot read these positions: asks the next one.
    pub(super) fn unreadable(&mut self, now: Time, node: NodeId, spans: &[Span], out: &mut Out) {
        let mut is_lost = false;
        for span in spans {
            for position in span.positions() {
                let Some((number, place)) = self.answered(now, node, position) else { continue };
                let Some(view) = self.log.view() else { return };
                let tries = if let Place::Asked { tries, .. } = place { tries + 1 } else { 0 };
                let place = Place::Asked { position, tries };
                self.pending[(number - self.base) as usize].place = place;
                // No replica knows the record: it is trimmed or lost.
                is_lost |= target(view, &place).is_none();
                self.writes.make_due(view, position, &place);
                self.work_is_due = true;
            }
        }
        if is_lost {
            self.session_lost(out);
        }
    }

    /// A replica cannot take these records now.
    pub(super) fn later(&mut self, now: Time, node: NodeId, spans: &[Span], disk_full: bool) {
        let jitter = self.jitter.draw();
        let Some(view) = self.log.view() else { return };
        for span in spans {
            let shard = view.placement.shard_of(span.first);
            let Some(replica) = self.writes.replicas.get_mut(&(shard, node)) else { continue };
            replica.hear(now);
            let refused = span.positions().filter(|position| replica.again(*position)).count();
            if refused > 0 {
                replica.pace.refused(now, disk_full, jitter);
            }
        }
        self.work_is_due = true;
    }

    /// Handles an answer for a position. Returns its number, if this replica's answer was awaited.
    fn answered(&mut self, now: Time, node: NodeId, position: Position) -> Option<(u64, Place)> {
        let view = self.log.view()?;
        let replica = self.writes.replicas.get_mut(&(view.placement.shard_of(position), node))?;
        let is_oldest = replica.sent.first_key_value().is_some_and(|(oldest, _)| *oldest == position);
        replica.hear(now);
        let bytes = replica.lands(position)?;
        replica.pace.takes(now, bytes);
        if is_oldest {
            replica.pace.advances(now);
        }
        self.work_is_due |= !replica.due.is_empty();
        let number = *self.placed.get(&position)?;
        let place = self.pending[(number - self.base) as usize].place;
        (target(view, &place)?.1 == node).then_some((number, place))
    }

    /// The head has the record. The sequencer must wait at least as long as that took.
    fn head_has(&mut self, now: Time, number: u64) {
        let Some(pending) = self.pending.get((number - self.base) as usize) else { return };
        let asked_at = pending.asked_at;
        self.in_flight_to_head.remove(&pending.record);
        self.sequencer.takes(now, pending.record.size());
        self.fill_timeout.took(now, now - asked_at);
    }
}
