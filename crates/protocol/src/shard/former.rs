//! Former replicas, outside the present view, that may hold a record that its members lack.
//!
//! A member asks them for missing or damaged records after the other members. While they may have
//! such a record, it sends them notices, so that no controller dismisses them.

use std::collections::VecDeque;
use std::time::Duration;

use seriatim_model::{
    Address, Endpoint, Incarnation, Member, NodeId, Position, ShardId, ShardMembers, Time, ViewNumber,
};

use super::core::send;
use super::message::Message;
use crate::roles::RoleEffect;

/// At most this many replicas are remembered.
const MOST: usize = 8;
/// A replica that leaves this many consecutive questions unanswered counts as silent.
const MOST_UNANSWERED: u32 = 4;
/// Request number of a notice, an empty read. No question uses it.
const KEEPS: u64 = 0;
const KEEP_EVERY: Duration = Duration::from_millis(500);
/// How long a notice protects a replica. Longer than a new replica waits before catch-up.
pub(super) const NEEDED_FOR: Duration = Duration::from_secs(3);
const _: () = assert!(NEEDED_FOR.as_millis() > 4 * KEEP_EVERY.as_millis());

/// Former replicas, in the order in which views excluded them.
#[derive(Clone, Debug, Default)]
pub(super) struct Former {
    left: VecDeque<Left>,
    kept_at: Option<Time>,
    /// When notices were last sent for another replica.
    kept_for_another_at: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    member: Member,
    /// The last view that named the replica. It knows the decisions of that view and earlier ones:
    /// no view gives a position two records.
    view: ViewNumber,
    unanswered: u32,
}

impl Left {
    fn keep(&self, shard: ShardId, trim: Position, out: &mut Vec<RoleEffect>) {
        let message = Message::Read { request: KEEPS, from: trim, end: trim, max_records: 0, wait_ms: 0 };
        send(Address::Node(self.member.node, Endpoint::Shard(shard)), message, out);
    }
}

impl Former {
    /// View `view` named `before`; its successor names `now`. Remembers the replicas that left.
    pub(super) fn succeed(&mut self, view: ViewNumber, before: &ShardMembers, now: &ShardMembers) {
        let is_in = |members: &ShardMembers, member: &Member| members.replicas.contains(member);
        self.left.retain(|left| !is_in(before, &left.member) && !is_in(now, &left.member));
        let gone = before.replicas.iter().filter(|member| !is_in(now, member));
        self.left.extend(gone.map(|member| Left { member: *member, view, unanswered: 0 }));
        let too_many = self.left.len().saturating_sub(MOST);
        self.left.drain(..too_many);
    }

    pub(super) fn that_know(&self, view: Option<ViewNumber>) -> impl Iterator<Item = NodeId> {
        self.knowing(view).map(|left| left.member.node)
    }

    /// The replicas to ask for records that `view` decides. Excludes silent replicas until they are
    /// heard from again.
    pub(super) fn that_answer(&self, view: Option<ViewNumber>) -> impl Iterator<Item = NodeId> {
        let answering = self.knowing(view).filter(|left| left.unanswered < MOST_UNANSWERED);
        answering.map(|left| left.member.node)
    }

    fn knowing(&self, view: Option<ViewNumber>) -> impl Iterator<Item = &Left> {
        self.left.iter().filter(move |left| view.is_some_and(|view| left.view >= view))
    }

    pub(super) fn keeps_at(&self) -> Option<Time> {
        (!self.left.is_empty()).then_some(keeps_at(self.kept_at))
    }

    /// Sends notices to replicas that `may_have` this member's missing records. Silent replicas may
    /// return.
    pub(super) fn keep(
        &mut self,
        now: Time,
        (shard, trim): (ShardId, Position),
        may_have: impl Fn(NodeId, ViewNumber) -> bool,
        out: &mut Vec<RoleEffect>,
    ) {
        if self.keeps_at().is_some_and(|at| now >= at) {
            self.kept_at = Some(now);
            let may_have = self.left.iter().filter(|left| may_have(left.member.node, left.view));
            may_have.for_each(|left| left.keep(shard, trim, out));
        }
    }

    pub(super) fn keep_for_another(
        &mut self,
        now: Time,
        (shard, trim): (ShardId, Position),
        out: &mut Vec<RoleEffect>,
    ) {
        if now >= keeps_at(self.kept_for_another_at) {
            self.kept_for_another_at = Some(now);
            self.left.iter().for_each(|left| left.keep(shard, trim, out));
        }
    }

    /// Drops a dismissed replica: the node hosts another incarnation, or none (0).
    pub(super) fn hosts(&mut self, from: Address, incarnation: Incarnation) {
        let is_gone = |left: &Left| {
            matches!(from, Address::Node(node, _) if node == left.member.node)
                && left.member.incarnation != incarnation
        };
        self.left.retain(|left| !is_gone(left));
    }

    pub(super) fn heard(&mut self, from: Address, request: u64) {
        if let (Address::Node(node, _), KEEPS) = (from, request) {
            self.note(node, true);
        }
    }

    pub(super) fn note(&mut self, node: NodeId, answers: bool) {
        for left in self.left.iter_mut().filter(|left| left.member.node == node) {
            left.unanswered = if answers { 0 } else { left.unanswered + 1 };
        }
    }
}

fn keeps_at(kept_at: Option<Time>) -> Time {
    kept_at.map_or(Time::ZERO, |at| at + KEEP_EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(nodes: &[u32]) -> ShardMembers {
        let member = |node: &u32| Member { node: NodeId(*node), incarnation: Incarnation(1) };
        let replicas = nodes.iter().map(member).collect();
        ShardMembers { shard: ShardId(0), begins: Position::ZERO, replicas }
    }

    fn that_answer(former: &Former, view: u64) -> Vec<u32> {
        former.that_answer(Some(ViewNumber(view))).map(|node| node.0).collect()
    }

    #[test]
    fn who_was_left_behind_knows_what_its_views_decide() {
        let mut former = Former::default();
        former.succeed(ViewNumber(1), &members(&[1, 2]), &members(&[1, 3]));
        former.succeed(ViewNumber(4), &members(&[1, 3]), &members(&[1, 4]));
        assert_eq!((that_answer(&former, 1), that_answer(&former, 2)), (vec![2, 3], vec![3]));
        assert_eq!(that_answer(&former, 5), []);
        former.succeed(ViewNumber(5), &members(&[1, 4]), &members(&[1, 2]));
        assert_eq!((that_answer(&former, 1), that_answer(&former, 5)), (vec![3, 4], vec![4]));
    }

    #[test]
    fn who_does_not_answer_is_not_asked_for_ever() {
        let mut former = Former::default();
        former.succeed(ViewNumber(1), &members(&[1, 2]), &members(&[1]));
        (1..MOST_UNANSWERED).for_each(|_| former.note(NodeId(2), false));
        former.note(NodeId(2), true);
        (1..MOST_UNANSWERED).for_each(|_| former.note(NodeId(2), false));
        assert_eq!(that_answer(&former, 1), [2]);
        former.note(NodeId(2), false);
        assert_eq!(that_answer(&former, 1), []);
    }

    #[test]
    fn one_that_was_dismissed_is_needed_no_more() {
        let mut former = Former::default();
        former.succeed(ViewNumber(1), &members(&[1, 2, 3]), &members(&[1]));
        let of = |node| Address::Node(NodeId(node), Endpoint::Shard(ShardId(0)));
        former.hosts(of(2), Incarnation(1));
        assert_eq!(that_answer(&former, 1), [2, 3]);
        former.hosts(of(2), Incarnation(0));
        assert_eq!(that_answer(&former, 1), [3]);
    }

    #[test]
    fn others_that_need_them_do_not_wait_for_what_this_member_needs() {
        let (mut former, mut out) = (Former::default(), vec![]);
        former.succeed(ViewNumber(1), &members(&[1, 2, 3]), &members(&[1]));
        let of = (ShardId(0), Position(0));
        former.keep(Time(1), of, |node, last| (node, last) == (NodeId(2), ViewNumber(1)), &mut out);
        assert_eq!(out.len(), 1);
        former.keep_for_another(Time(1), of, &mut out);
        former.keep_for_another(Time(2), of, &mut out);
        assert_eq!(out.len(), 3);
    }
}
