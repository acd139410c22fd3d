//! Background ordering: the leader binds its entries to positions (LazyLog §4.3).

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::{
    Address, BoundIds, Endpoint, IdRun, NodeId, Peer, Position, RecordId, SessionId, ShardId, Ticket, Time,
    View, limits,
};

use super::ending_sessions::Endings;
use super::message::Message;
use super::push::{BoundBatch, Pusher, takes};
use super::rules;
use crate::mutation::{Mutation, Options};
use crate::parts::{Gate, Retransmit, Ring, Sessions, Shares};
use crate::roles::RoleEffect;
use crate::shard;

/// Maximum number of batches awaiting followers.
const DROP_WINDOW: usize = 64;

/// Progress of batches through shards and followers.
///
/// Invariant: `stable <= own <= ordered of the replica <= pusher.end()`.
#[derive(Clone, Debug)]
pub(super) struct Orderer {
    view: View,
    options: Options,
    pusher: Pusher,
    /// The first unpushed ring slot.
    next_slot: u64,
    /// Earliest start of the next batch, unless it is full or a client waits for a position in it.
    /// Without this pause each append of a hot log would be its own batch, and binding takes twice
    /// the messages of appending.
    gathers_until: Time,
    /// Batches on the shards that a follower has not confirmed.
    drops: VecDeque<DropBatch>,
    /// Retransmission of the oldest of `drops`.
    retransmit: Retransmit,
    followers: BTreeMap<NodeId, Position>,
    /// The leader's own drops below this position are durable. `own_pending`: drops being written.
    own: Position,
    own_pending: VecDeque<(Ticket, Position)>,
    stable: Position,
    shards: BTreeMap<ShardId, ShardProgress>,
    pub(super) endings: Endings,
    /// Clients' questions for positions of unbound records.
    waiting: BTreeMap<RecordId, Vec<Address>>,
    /// Clients' questions for positions that are not stable.
    located: BTreeMap<Position, Vec<(Address, RecordId)>>,
    /// Number of questions per client.
    asked: Shares<Peer>,
}

#[derive(Clone, Debug)]
struct DropBatch {
    from: Position,
    to: Position,
    runs: Vec<BoundIds>,
}

#[derive(Clone, Debug)]
struct ShardProgress {
    primary: Address,
    sent: Position,
    known: Position,
    sent_at: Time,
}

impl Orderer {
    /// `slot`: ring slot of the view's first entry.
    pub(super) fn new(view: &View, me: NodeId, slot: u64, options: Options) -> Self {
        let pusher = Pusher::new(view.number, view, view.start, options);
        let progress =
            |primary| ShardProgress { primary, sent: view.start, known: view.start, sent_at: Time::ZERO };
        let others = view.sequencers.iter().map(|member| member.node).filter(|node| *node != me);
        Self {
            options,
            next_slot: slot,
            gathers_until: Time::ZERO,
            drops: VecDeque::new(),
            retransmit: Retransmit::default(),
            followers: others.map(|node| (node, view.start)).collect(),
            own: view.start,
            own_pending: VecDeque::new(),
            stable: view.start,
            shards: pusher.shards().map(|(shard, primary)| (shard, progress(primary))).collect(),
            endings: Endings::default(),
            waiting: BTreeMap::new(),
            located: BTreeMap::new(),
            asked: Shares::default(),
            pusher,
            view: view.clone(),
        }
    }

    pub(super) fn followers(&self) -> impl Iterator<Item = NodeId> {
        self.followers.keys().copied()
    }

    pub(super) fn step_name(&self) -> Option<&'static str> {
        if !self.pusher.is_empty() {
            Some("bind")
        } else if !self.drops.is_empty() {
            Some("truncate")
        } else {
            None
        }
    }

    /// When durable entries can be bound; `None`: there are none, or the window is full.
    fn pushes_at(&self, ring: &Ring, gate: &Gate) -> Option<Time> {
        if !self.has_room() || !self.next_entry_is_durable(ring, gate) {
            return None;
        }
        let fills_batch = ring.end() - self.next_slot >= self.options.limits.batch_records as u64;
        Some(if fills_batch || !self.waiting.is_empty() { Time::ZERO } else { self.gathers_until })
    }

    fn has_room(&self) -> bool {
        self.pusher.has_room() && self.drops.len() < DROP_WINDOW
    }

    fn next_entry_is_durable(&self, ring: &Ring, gate: &Gate) -> bool {
        ring.iter_from(self.next_slot).next().is_some_and(|(_, entry)| gate.is_durable(entry.ticket))
    }

    /// Binds durable entries in arrival order, and sends shards the stable bound.
    pub(super) fn pump(&mut self, now: Time, ring: &Ring, gate: &Gate, out: &mut Vec<RoleEffect>) {
        if self.pushes_at(ring, gate).is_some_and(|at| at <= now) {
            self.push_all(now, ring, gate, out);
            self.gathers_until = now + self.options.limits.order_every;
        }
        self.tell_stable(now, out);
    }

    fn push_all(&mut self, now: Time, ring: &Ring, gate: &Gate, out: &mut Vec<RoleEffect>) {
        while self.has_room() {
            let ready = ring.iter_from(self.next_slot).take_while(|(_, entry)| gate.is_durable(entry.ticket));
            let count = takes(ready.map(|(_, entry)| entry), &self.options.limits);
            let batch = ring.iter_from(self.next_slot).take(count);
            let Some((last, _)) = batch.clone().last() else { return };
            let shards = self.pusher.push(now, batch.map(|(_, entry)| entry), self.stable, out);
            self.next_slot = last + 1;
            for shard in shards {
                let progress = self.shards.get_mut(&shard).expect("pushes go to shards of the view");
                progress.sent = self.stable;
                progress.sent_at = now;
            }
        }
    }

    fn tell_stable(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let (view, stable) = (self.view.number, self.stable);
        for progress in self.shards.values_mut() {
            let overdue = progress.known < stable && now >= progress.sent_at + limits::RESEND_AFTER;
            if progress.sent < stable || overdue {
                progress.sent = stable;
                progress.sent_at = now;
                let message = shard::Message::Stable { view, stable };
                out.push(RoleEffect::Send { to: progress.primary, message: message.into() });
            }
        }
    }

    pub(super) fn stable(&self) -> Position {
        self.stable
    }

    pub(super) fn stable_known(&mut self, shard: ShardId, stable: Position) {
        if let Some(progress) = self.shards.get_mut(&shard) {
            progress.known = progress.known.max(stable);
        }
    }

    pub(super) fn bound(&mut self, shard: ShardId, batch: Position, voids: &[IdRun]) {
        self.pusher.bound(shard, batch, voids);
    }

    pub(super) fn take_bound(&mut self, now: Time) -> Option<BoundBatch> {
        self.pusher.take_bound(now)
    }

    /// The leader truncated the batch with the write of `ticket`: sends `Truncate` to the
    /// followers.
    pub(super) fn dropped(
        &mut self,
        now: Time,
        batch: BoundBatch,
        ticket: Ticket,
        out: &mut Vec<RoleEffect>,
    ) {
        self.locate(&batch);
        self.own_pending.push_back((ticket, batch.to));
        let drop = DropBatch { from: batch.from, to: batch.to, runs: batch.ids };
        for follower in self.followers.keys() {
            drop.send(self.view.number, *follower, out);
        }
        if self.drops.is_empty() {
            self.retransmit.start(now);
        }
        self.drops.push_back(drop);
    }

    /// Moves questions from ids to positions.
    fn locate(&mut self, batch: &BoundBatch) {
        if self.waiting.is_empty() {
            return;
        }
        let mut position = batch.from;
        for bound in &batch.ids {
            let run = bound.ids;
            let id = |number| RecordId { session: run.session, number };
            let range = id(run.first)..id(run.first + run.count);
            let asked: Vec<_> = self.waiting.range(range).map(|(id, _)| *id).collect();
            for id in asked {
                let place = position + (id.number - run.first);
                let askers = self.waiting.remove(&id).unwrap_or_default();
                if bound.is_void {
                    // The id is void: the client retries, and is then answered.
                    askers.iter().for_each(|asker| self.asked.give_back(asker.peer(), 1));
                    continue;
                }
                self.located.entry(place).or_default().extend(askers.into_iter().map(|asker| (asker, id)));
            }
            position += run.count;
        }
    }

    pub(super) fn follower_dropped(&mut self, follower: NodeId, ordered: Position) {
        if let Some(confirmed) = self.followers.get_mut(&follower) {
            *confirmed = (*confirmed).max(ordered);
        }
    }

    /// Raises `stable` to the bound that followers and the own journal confirm; answers waiting
    /// clients.
    pub(super) fn advance(&mut self, now: Time, gate: &Gate, sessions: &Sessions, out: &mut Vec<RoleEffect>) {
        while self.own_pending.front().is_some_and(|(ticket, _)| gate.is_durable(*ticket)) {
            let (_, to) = self.own_pending.pop_front().expect("the front was just seen");
            self.own = to;
        }
        let confirmed = rules::stable_bound(self.followers.values().copied().chain([self.own]));
        let early = self.options.mutates(Mutation::StableEarly);
        let stable = if early { self.drops.back().map_or(self.own, |drop| drop.to) } else { confirmed };
        self.stable = self.stable.max(stable);
        assert!(
            early || self.stable <= self.own && self.own <= self.pusher.end(),
            "stable {} <= own {} <= pushed {}",
            self.stable,
            self.own,
            self.pusher.end()
        );
        let everyone = rules::stable_bound(self.followers.values().copied());
        let done = self.drops.partition_point(|drop| drop.to <= everyone || self.followers.is_empty());
        if done > 0 {
            self.drops.drain(..done);
            self.retransmit.answered(now);
            self.retransmit.start(now);
        }
        self.answer_located(sessions, out);
    }

    fn answer_located(&mut self, sessions: &Sessions, out: &mut Vec<RoleEffect>) {
        while self.located.first_key_value().is_some_and(|(position, _)| *position < self.stable) {
            let (position, askers) = self.located.pop_first().expect("the first was just seen");
            for (asker, id) in askers {
                self.asked.give_back(asker.peer(), 1);
                debug_assert!(sessions.position(id.session, id.number).is_none_or(|known| known == position));
                out.push(located(asker, id, position));
            }
        }
    }

    /// Answers a client once the position is final. Ignores a client beyond its share: it retries.
    pub(super) fn ask(
        &mut self,
        asker: Address,
        session: SessionId,
        number: u64,
        sessions: &Sessions,
        out: &mut Vec<RoleEffect>,
    ) {
        let id = RecordId { session, number };
        let position = sessions.position(session, number);
        if let Some(position) = position.filter(|position| *position < self.stable) {
            return out.push(located(asker, id, position));
        }
        if !self.asked.has_room(asker.peer(), self.options.limits.waiting_locates as u64) {
            return;
        }
        let is_new = match position {
            Some(position) => add_once(self.located.entry(position).or_default(), (asker, id)),
            None => add_once(self.waiting.entry(id).or_default(), asker),
        };
        self.asked.take(asker.peer(), u64::from(is_new));
    }

    pub(super) fn forget(&mut self, peer: Peer) {
        let is_gone = |address: Address| address.peer() == peer;
        self.asked.give_back(peer, self.asked.of(peer));
        self.waiting.retain(|_, askers| {
            askers.retain(|asker| !is_gone(*asker));
            !askers.is_empty()
        });
        self.located.retain(|_, askers| {
            askers.retain(|(asker, _)| !is_gone(*asker));
            !askers.is_empty()
        });
    }

    pub(super) fn resend(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        self.pusher.resend(now, self.stable, out);
        self.endings.resend(now, self.view.number, out);
        if !self.drops.is_empty() && self.retransmit.expires(now) {
            // Resends all batches: a follower ignores each one behind a missed batch.
            for (follower, confirmed) in &self.followers {
                for drop in self.drops.iter().filter(|drop| *confirmed < drop.to) {
                    drop.send(self.view.number, *follower, out);
                }
            }
        }
    }

    pub(super) fn deadline(&self, ring: &Ring, gate: &Gate) -> Option<Time> {
        let drops = (!self.drops.is_empty()).then(|| self.retransmit.deadline());
        let lagging = self.shards.values().filter(|progress| progress.known < self.stable);
        let stable = lagging.map(|progress| progress.sent_at + limits::RESEND_AFTER).min();
        [self.pushes_at(ring, gate), self.pusher.deadline(), drops, stable, self.endings.deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}

impl DropBatch {
    fn send(&self, view: seriatim_model::ViewNumber, follower: NodeId, out: &mut Vec<RoleEffect>) {
        let message = Message::Truncate { view, from: self.from, runs: self.runs.clone() };
        out.push(RoleEffect::Send {
            to: Address::Node(follower, Endpoint::Sequencer),
            message: message.into(),
        });
    }
}

fn add_once<T: PartialEq>(list: &mut Vec<T>, item: T) -> bool {
    let is_new = !list.contains(&item);
    if is_new {
        list.push(item);
    }
    is_new
}

fn located(asker: Address, id: RecordId, position: Position) -> RoleEffect {
    let message = Message::Located { session: id.session, number: id.number, position };
    RoleEffect::Send { to: asker, message: message.into() }
}
