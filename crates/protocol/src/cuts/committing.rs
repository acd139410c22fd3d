//! The leader commits a cut when all members hold it, and then sends it to the shards.

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::{Address, Endpoint, NodeId, Position, ShardId, Ticket, Time, View, ViewNumber, limits};

use super::cut::Cut;
use super::message::Message;
use super::pushing::Pusher;
use crate::mutation::{Mutation, Options};
use crate::parts::Gate;
use crate::roles::RoleEffect;

/// Cuts of a view on their way to its members and to the shards.
///
/// Invariant: `committed <= own <= end`; committed cuts are pushed in order.
#[derive(Clone, Debug)]
pub(super) struct Commits {
    view: ViewNumber,
    options: Options,
    /// End of the last cut made.
    end: Position,
    followers: BTreeMap<NodeId, Follower>,
    /// End of the cuts that are durable on this member. `own_pending`: write and end of each later
    /// cut.
    own: Position,
    own_pending: VecDeque<(Ticket, Position)>,
    uncommitted: VecDeque<Cut>,
    committed: Position,
    pusher: Pusher,
}

#[derive(Clone, Copy, Debug)]
struct Follower {
    held: Position,
    /// Time of the next retransmission to this follower.
    again_at: Time,
    /// Whether the follower is known to have entered the view. Before, it accepts no cut.
    is_there: bool,
}

impl Commits {
    pub(super) fn new(view: &View, me: NodeId, options: Options) -> Self {
        let follower = Follower { held: view.start, again_at: Time::ZERO, is_there: false };
        let others = view.sequencers.iter().map(|member| member.node).filter(|node| *node != me);
        Self {
            view: view.number,
            options,
            end: view.start,
            followers: others.map(|node| (node, follower)).collect(),
            own: view.start,
            own_pending: VecDeque::new(),
            uncommitted: VecDeque::new(),
            committed: view.start,
            pusher: Pusher::within(view.number, &view.shards, view.start),
        }
    }

    pub(super) fn end(&self) -> Position {
        self.end
    }

    pub(super) fn committed(&self) -> Position {
        self.committed
    }

    /// End of the committed cuts. `None` until all members are known to have entered the view.
    pub(super) fn known_committed(&self) -> Option<Position> {
        self.followers.values().all(|follower| follower.is_there).then_some(self.committed)
    }

    /// Position below which all replicas of the shards have the cuts.
    pub(super) fn bound(&self) -> Position {
        self.pusher.bound()
    }

    pub(super) fn under_way(&self) -> usize {
        self.uncommitted.len() + self.pusher.len()
    }

    /// Name of the step under way: members store a cut (`bind`), or shards do (`truncate`).
    pub(super) fn step_name(&self) -> Option<&'static str> {
        if !self.uncommitted.is_empty() {
            Some("bind")
        } else if self.pusher.len() > 0 {
            Some("truncate")
        } else {
            None
        }
    }

    /// Sends the cut to the followers. `ticket`: its write to this member's journal.
    pub(super) fn hold(&mut self, now: Time, cut: Cut, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        self.end = cut.end();
        self.own_pending.push_back((ticket, self.end));
        let bound = self.pusher.bound();
        for (node, follower) in &mut self.followers {
            if follower.held == cut.from {
                follower.again_at = now + limits::RESEND_AFTER;
            }
            send_cut(*node, self.view, bound, &cut, out);
        }
        self.uncommitted.push_back(cut);
    }

    /// Notes that a follower holds all cuts up to `end`. With its first such message, missing cuts
    /// are due at once: it may have missed some.
    pub(super) fn note_held(&mut self, now: Time, node: NodeId, end: Position) {
        let Some(follower) = self.followers.get_mut(&node) else { return };
        if !follower.is_there {
            (follower.is_there, follower.again_at) = (true, now);
        }
        if end > follower.held {
            (follower.held, follower.again_at) = (end, now + limits::RESEND_AFTER);
        }
    }

    pub(super) fn note_bound(&mut self, shard: ShardId, batch: Position) {
        self.pusher.note_bound(shard, batch);
    }

    pub(super) fn send_again(&self, shard: ShardId, out: &mut Vec<RoleEffect>) {
        self.pusher.send_again(shard, out);
    }

    fn persisted(&mut self, gate: &Gate) {
        while let Some((ticket, end)) =
            self.own_pending.front().copied().filter(|(ticket, _)| gate.is_durable(*ticket))
        {
            debug_assert!(ticket <= gate.issued(), "only what left is durable");
            self.own_pending.pop_front();
            self.own = end;
        }
    }

    pub(super) fn commit(&mut self, now: Time, gate: &Gate, out: &mut Vec<RoleEffect>) {
        self.persisted(gate);
        let followers = self.followers.values().map(|follower| follower.held);
        let uncommitted = self.options.mutates(Mutation::CutUncommitted);
        let held = if uncommitted { self.end } else { followers.fold(self.own, Position::min) };
        self.committed = self.committed.max(held);
        let in_order = self.own <= self.end && (uncommitted || self.committed <= self.own);
        assert!(in_order, "committed {}, durable {}, cut {}", self.committed, self.own, self.end);
        while self.uncommitted.front().is_some_and(|cut| cut.end() <= self.committed) {
            let cut = self.uncommitted.pop_front().expect("the front was just seen");
            self.pusher.push(now, cut, out);
        }
    }

    /// Retransmits cuts that are due. `cuts`: all cuts that this member holds.
    pub(super) fn resend(&mut self, now: Time, cuts: &VecDeque<Cut>, out: &mut Vec<RoleEffect>) {
        self.pusher.resend(now, out);
        let (view, bound, end) = (self.view, self.pusher.bound(), self.end);
        for (node, follower) in &mut self.followers {
            if follower.held < end && now >= follower.again_at {
                follower.again_at = now + limits::RESEND_AFTER;
                for cut in cuts.iter().filter(|cut| cut.from >= follower.held) {
                    send_cut(*node, view, bound, cut, out);
                }
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let behind = self.followers.values().filter(|follower| follower.held < self.end);
        let again = behind.map(|follower| follower.again_at).min();
        [again, self.pusher.deadline()].into_iter().flatten().min()
    }
}

fn send_cut(node: NodeId, view: ViewNumber, bound: Position, cut: &Cut, out: &mut Vec<RoleEffect>) {
    let to = Address::Node(node, Endpoint::Sequencer);
    let message = Message::Cut { view, bound, cut: cut.clone() };
    out.push(RoleEffect::Send { to, message: message.into() });
}
