//! Delivers every final record once, in the order of positions.

use seriatim_model::Position;
use seriatim_protocol::{Mutation, Options};

use super::Step;
use crate::failure::Failure;
use crate::source::Answer;

/// Requests each position in turn.
///
/// Promises: positions of given records strictly increase. It omits only empty positions and those
/// announced as trimmed or lost. An unknown position blocks all above it.
///
/// Invariant: everything below `next` was given, is empty, or was announced as trimmed or lost.
/// `next` only grows.
#[derive(Debug)]
pub(crate) struct InOrder {
    next: Position,
    end: Position,
    skips_lost: bool,
    options: Options,
}

impl InOrder {
    pub(crate) fn new(from: Position, end: Position, skips_lost: bool, options: Options) -> Self {
        Self { next: from, end, skips_lost, options }
    }

    /// Next position. Everything below it was delivered, or has no record.
    pub(crate) fn next(&self) -> Position {
        self.next
    }

    /// Next position to ask the source for; None at the end.
    pub(crate) fn wanted(&self) -> Option<Position> {
        (self.next < self.end).then_some(self.next)
    }

    /// Handles the source's answer for the wanted `position`.
    ///
    /// # Panics
    /// If another position was wanted.
    pub(crate) fn answered(&mut self, position: Position, answer: Answer) -> Step {
        assert!(
            self.wanted() == Some(position),
            "positions are handed over one after the other: {position} came where {} was wanted, below {}",
            self.next,
            self.end
        );
        match answer {
            Answer::Record => {
                self.next = self.next.next();
                Step::Give
            }
            Answer::Empty { end } => {
                assert!(end > position, "the empty span at {position} ends after it, not at {end}");
                // The empty span may end beyond the wanted range.
                self.next = end.min(self.end);
                Step::Pass
            }
            Answer::NotYet { frontier }
                if self.next < frontier && self.options.mutates(Mutation::HandedOverEarly) =>
            {
                self.next = self.next.next();
                Step::Pass
            }
            Answer::NotYet { .. } => Step::Wait,
            Answer::Lost { shard, end } if self.skips_lost => {
                assert!(end > position, "the lost span at {position} ends after it, not at {end}");
                self.next = end.min(self.end);
                Step::Lose { shard, range: position..self.next }
            }
            Answer::Lost { shard, end } => Step::Fail(Failure::Lost { position, shard, end }),
        }
    }

    /// Skips to `first`, below which everything was trimmed.
    ///
    /// # Panics
    /// If `first` was already reached.
    pub(crate) fn trimmed(&mut self, first: Position) -> Step {
        assert!(first > self.next, "positions trimmed below {first} were handed over below {}", self.next);
        self.next = first;
        Step::Skip { first }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::ShardId;

    use super::*;

    const NOT_YET: Answer = Answer::NotYet { frontier: Position(u64::MAX) };

    fn policy(from: u64, end: u64) -> InOrder {
        InOrder::new(Position(from), Position(end), false, Options::default())
    }

    #[test]
    fn each_record_is_given_once_in_order_and_empty_positions_are_left_out() {
        let mut policy = policy(3, 6);
        assert_eq!(policy.wanted(), Some(Position(3)));
        assert_eq!(policy.answered(Position(3), Answer::Record), Step::Give);
        assert_eq!(policy.answered(Position(4), Answer::Empty { end: Position(5) }), Step::Pass);
        assert_eq!(policy.answered(Position(5), Answer::Record), Step::Give);
        assert_eq!((policy.wanted(), policy.next()), (None, Position(6)));
    }

    #[test]
    fn a_position_that_is_not_known_holds_up_all_above_it() {
        let mut policy = policy(3, 6);
        for _ in 0..2 {
            assert_eq!(policy.answered(Position(3), NOT_YET), Step::Wait);
            assert_eq!(policy.wanted(), Some(Position(3)));
        }
        assert_eq!(policy.answered(Position(3), Answer::Record), Step::Give);
    }

    #[test]
    fn trimmed_positions_are_passed_over_also_beyond_the_end() {
        let mut policy = policy(0, 6);
        assert_eq!(policy.trimmed(Position(4)), Step::Skip { first: Position(4) });
        assert_eq!(policy.wanted(), Some(Position(4)));
        assert_eq!(policy.trimmed(Position(9)), Step::Skip { first: Position(9) });
        assert_eq!(policy.wanted(), None);
    }

    #[test]
    fn a_record_that_is_lost_is_named_by_its_position() {
        let (shard, end) = (ShardId(2), Position(7));
        let failure = Failure::Lost { position: Position(3), shard, end };
        assert_eq!(policy(3, 6).answered(Position(3), Answer::Lost { shard, end }), Step::Fail(failure));
    }

    #[test]
    fn one_that_skips_what_is_lost_says_so_and_goes_on_behind_it() {
        let mut policy = InOrder::new(Position(3), Position(9), true, Options::default());
        let shard = ShardId(2);
        let lost = |end| Answer::Lost { shard, end: Position(end) };
        let range = Position(3)..Position(7);
        assert_eq!(policy.answered(Position(3), lost(7)), Step::Lose { shard, range });
        assert_eq!(policy.answered(Position(7), Answer::Record), Step::Give);
        // The loss extends beyond the end of the wanted range.
        let range = Position(8)..Position(9);
        assert_eq!(policy.answered(Position(8), lost(20)), Step::Lose { shard, range });
        assert_eq!(policy.wanted(), None);
    }

    #[test]
    #[should_panic(expected = "4 came where 3 was wanted")]
    fn no_position_is_left_out() {
        policy(3, 6).answered(Position(4), Answer::Record);
    }

    #[test]
    #[should_panic(expected = "3 came where 4 was wanted")]
    fn no_record_is_given_twice() {
        let mut policy = policy(3, 6);
        policy.answered(Position(3), Answer::Record);
        policy.answered(Position(3), Answer::Record);
    }

    #[test]
    #[should_panic(expected = "below 6")]
    fn nothing_is_given_at_the_end() {
        policy(6, 6).answered(Position(6), Answer::Record);
    }

    #[test]
    #[should_panic(expected = "were handed over")]
    fn no_trim_goes_back() {
        policy(3, 6).trimmed(Position(3));
    }

    #[test]
    fn the_defect_hands_over_early() {
        let options = Options { mutation: Some(Mutation::HandedOverEarly), ..Options::default() };
        let mut policy = InOrder::new(Position(3), Position(9), false, options);
        let not_yet = Answer::NotYet { frontier: Position(4) };
        assert_eq!(policy.answered(Position(3), not_yet), Step::Pass);
        assert_eq!(policy.answered(Position(4), not_yet), Step::Wait);
    }
}
