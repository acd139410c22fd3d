//! Erwin's promises as arithmetic: stable bound, tail, and acknowledged appends.

use seriatim_model::Position;

use crate::parts::IdSetDigest;

/// Bound of the final positions: every replica that a view change may choose dropped their entries
/// (LazyLog §4.3).
#[must_use]
pub(super) fn stable_bound(confirmed: impl Iterator<Item = Position>) -> Position {
    confirmed.min().unwrap_or(Position::ZERO)
}

/// Length of the log, as one replica knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    /// `ordered` plus `held`.
    pub(super) end: Position,
    pub(super) held: u64,
    /// Digest of the records known in this view.
    pub(super) seen: IdSetDigest,
}

/// The tail: a bound above the position of every acknowledged append.
///
/// Every replica holds or ordered an acknowledged record. If a follower's order wins, the record
/// comes after everything that the leader ordered, and that this follower held, before it. If both
/// know the same records, that is at most the leader's count. Otherwise the follower's entries may
/// add to it: dropping records that it never held moves its entries up.
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

/// Number below which every member of one view acknowledged the appends.
#[must_use]
pub(super) fn committed(acknowledged: impl Iterator<Item = u64>) -> u64 {
    acknowledged.min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_of_records_that_a_follower_never_held_cannot_lift_one_over_the_tail() {
        // The leader holds [z, r], the follower [w, r]. The leader orders z, and dies; the follower
        // counts z as seen, and orders w at 1 and r at 2.
        let leader = Count { end: Position(2), held: 2, seen: IdSetDigest(1) };
        let follower = Count { end: Position(2), held: 2, seen: IdSetDigest(2) };
        assert_eq!(tail(leader, [follower].into_iter()), Position(3));
        // Both hold the same two records.
        let follower = Count { seen: IdSetDigest(1), ..follower };
        assert_eq!(tail(leader, [follower].into_iter()), Position(2));
        let leader = Count { end: Position(1), held: 1, seen: IdSetDigest(3) };
        assert_eq!(tail(leader, [Count { seen: IdSetDigest(2), ..follower }].into_iter()), Position(2));
    }
}
