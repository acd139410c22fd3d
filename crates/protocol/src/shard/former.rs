//! Replicas outside the present view that may hold a record whole which its members do not: one that stood in for another
//! that was back soon, or one that was replaced.
//!
//! A member asks them for missing or damaged records after the other members, and tells them that they may be needed
//! as long as it misses something: so no controller dismisses them.

use std::collections::VecDeque;
use std::time::Duration;

use seriatim_model::{Address, Endpoint, Member, NodeId, Position, ShardId, ShardMembers, Time, ViewNumber};

use super::core::send;
use super::message::Message;
use crate::roles::RoleEffect;

/// How many are remembered, and how many questions in a row one may leave unanswered.
const MOST: usize = 8;
const MOST_UNANSWERED: u32 = 4;
/// How often a member tells them that they may be needed.
const KEEP_EVERY: Duration = Duration::from_millis(500);
/// For how long after a word of a replica one counts as needed. Longer than a replica waits before it begins to copy.
pub(super) const NEEDED_FOR: Duration = Duration::from_secs(3);
const _: () = assert!(NEEDED_FOR.as_millis() > 4 * KEEP_EVERY.as_millis());

/// The replicas that views left behind, those first that were left first.
#[derive(Clone, Debug, Default)]
pub(super) struct Former {
    left: VecDeque<Left>,
    kept_at: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    member: Member,
    /// The last view that named it. It knows what that view or an earlier one decides: no view gives a position two records.
    view: ViewNumber,
    /// How many questions in a row it left unanswered.
    unanswered: u32,
}

impl Former {
    /// After the view that named the replicas `before`, this one names those of `now`.
    pub(super) fn succeed(&mut self, view: ViewNumber, before: &ShardMembers, now: &ShardMembers) {
        let is_in = |members: &ShardMembers, member: &Member| members.replicas.contains(member);
        self.left.retain(|left| !is_in(before, &left.member) && !is_in(now, &left.member));
        let gone = before.replicas.iter().filter(|member| !is_in(now, member));
        self.left.extend(gone.map(|member| Left { member: *member, view, unanswered: 0 }));
        let too_many = self.left.len().saturating_sub(MOST);
        self.left.drain(..too_many);
    }

    /// The replicas that know what this view decides.
    pub(super) fn that_know(&self, view: ViewNumber) -> impl Iterator<Item = Member> {
        let knows = move |left: &&Left| left.view >= view && left.unanswered < MOST_UNANSWERED;
        self.left.iter().filter(knows).map(|left| left.member)
    }

    /// One of the shard's replicas is catching up: this one tells the replicas outside the view, now and then.
    pub(super) fn keep(&mut self, now: Time, shard: ShardId, trim: Position, out: &mut Vec<RoleEffect>) {
        if self.kept_at.is_some_and(|at| now < at + KEEP_EVERY) {
            return;
        }
        self.kept_at = Some(now);
        for member in self.that_know(ViewNumber::NONE) {
            // It asks for no records, and as no question has the number 0, the answer is an answer to nothing.
            let message = Message::Read { request: 0, from: trim, end: trim, max_records: 0, wait_ms: 0 };
            send(Address::Node(member.node, Endpoint::Shard(shard)), message, out);
        }
    }

    /// The replica that was asked last there did not answer in time; or one there did.
    pub(super) fn note(&mut self, node: NodeId, answers: bool) {
        for left in self.left.iter_mut().filter(|left| left.member.node == node) {
            left.unanswered = if answers { 0 } else { left.unanswered + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::Incarnation;

    use super::*;

    fn members(nodes: &[u32]) -> ShardMembers {
        let member = |node: &u32| Member { node: NodeId(*node), incarnation: Incarnation(1) };
        let replicas = nodes.iter().map(member).collect();
        ShardMembers { shard: ShardId(0), begins: Position::ZERO, replicas }
    }

    fn that_know(former: &Former, view: u64) -> Vec<u32> {
        former.that_know(ViewNumber(view)).map(|member| member.node.0).collect()
    }

    #[test]
    fn who_was_left_behind_knows_what_its_views_decide() {
        let mut former = Former::default();
        former.succeed(ViewNumber(1), &members(&[1, 2]), &members(&[1, 3]));
        former.succeed(ViewNumber(4), &members(&[1, 3]), &members(&[1, 4]));
        assert_eq!((that_know(&former, 1), that_know(&former, 2)), (vec![2, 3], vec![3]));
        assert_eq!(that_know(&former, 5), []);
        // It is a member again.
        former.succeed(ViewNumber(5), &members(&[1, 4]), &members(&[1, 2]));
        assert_eq!((that_know(&former, 1), that_know(&former, 5)), (vec![3, 4], vec![4]));
    }

    #[test]
    fn who_does_not_answer_is_not_asked_for_ever() {
        let mut former = Former::default();
        former.succeed(ViewNumber(1), &members(&[1, 2]), &members(&[1]));
        (1..MOST_UNANSWERED).for_each(|_| former.note(NodeId(2), false));
        former.note(NodeId(2), true);
        (1..MOST_UNANSWERED).for_each(|_| former.note(NodeId(2), false));
        assert_eq!(that_know(&former, 1), [2]);
        former.note(NodeId(2), false);
        assert_eq!(that_know(&former, 1), []);
    }
}
