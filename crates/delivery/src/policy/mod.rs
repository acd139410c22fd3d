//! The decision what is handed over, and when, between a [source](crate::source) and a
//! [sink](crate::sink).
//!
//! A policy knows neither of them. It names the position that it wants next, is told the
//! [`Answer`](crate::source::Answer) of the source, and says what is to be done ([`Step`]). It
//! holds no records and has no deadline: what does not come is the source's to ask for again, and
//! how much the reader can take is the sink's to know.
//!
//! There are two: [`InOrder`] hands over what is final, [`TwoBounds`] also what is predicted, and
//! says later what of that holds.

use std::ops::Range;

use seriatim_model::{Position, ShardId};

use crate::failure::Failure;

mod in_order;
mod two_bounds;

pub(crate) use in_order::InOrder;
pub(crate) use two_bounds::{Next, TwoBounds};

/// The consequence of an answer, or of news.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The record that the source found goes to the sink.
    Give,
    /// There is nothing for the sink at the position that was wanted. On with the next one.
    Pass,
    /// The sink is told that the records that should have come next were trimmed.
    Skip {
        /// The first position that is left.
        first: Position,
    },
    /// The sink is told that what a shard had is lost.
    Lose {
        /// The shard.
        shard: ShardId,
        /// The positions of the records.
        range: Range<Position>,
    },
    /// Nothing, until the source has news.
    Wait,
    /// The sink is told why nothing follows.
    Fail(Failure),
}
