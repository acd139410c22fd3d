//! The arithmetic of Erwin's promises, apart from the roles that count by it.

use seriatim_model::Position;

use crate::parts::IdSetDigest;

/// Positions below this are final: every replica dropped them, so every replica that a view change
/// may choose starts above them (LazyLog §4.3).
#[must_use]
pub(super) fn stable_bound(confirmed: impl Iterator<Item = Position>) -> Position {
    confirmed.min().unwrap_or(Position::ZERO)
}

/// How long the log is, as one sequencing replica knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    /// Its `ordered` and what it holds.
    pub(super) end: Position,
    /// How many entries it holds.
    pub(super) held: u64,
    /// Which records it knows of in this view.
    pub(super) seen: IdSetDigest,
}

/// The tail: a bound above the position of every acknowledged append.
///
/// An acknowledged record is held or ordered on every replica. If the order of a follower wins, the
/// record comes after all that the leader ordered before it, and after all that this follower held
/// before it. Where both know of the same records that is no more than the leader's count.
/// Otherwise what the follower holds may come on top of it, because drops of records that it never
/// held move up those that it holds: the largest count alone would be too low.
#[must_use]
pub(super) fn tail(leader: Count, followers: impl Iterator<Item = Count>) -> Position {
    let bound = |follower: Count| {
        if follower.seen == leader.seen {
            return follower.end;
        }
        follower.end.max(leader.end + follower.held.saturating_sub(1))
    };
    followers.map(bound).fold(leader.end, Position::max)
}

/// How far a session is committed: every member of one view acknowledged it.
#[must_use]
pub(super) fn committed(acknowledged: impl Iterator<Item = u64>) -> u64 {
    acknowledged.min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_of_records_that_a_follower_never_held_cannot_lift_one_over_the_tail() {
        // The leader holds [z, r], the follower [w, r]. The leader orders z, and dies; the
        // follower, which took z as seen, orders w at 1 and r at 2.
        let leader = Count { end: Position(2), held: 2, seen: IdSetDigest(1) };
        let follower = Count { end: Position(2), held: 2, seen: IdSetDigest(2) };
        assert_eq!(tail(leader, [follower].into_iter()), Position(3));
        // Both hold the same: whoever orders them, there are two.
        let follower = Count { seen: IdSetDigest(1), ..follower };
        assert_eq!(tail(leader, [follower].into_iter()), Position(2));
        // A follower that holds more than the leader.
        let leader = Count { end: Position(1), held: 1, seen: IdSetDigest(3) };
        assert_eq!(tail(leader, [Count { seen: IdSetDigest(2), ..follower }].into_iter()), Position(2));
    }
}
