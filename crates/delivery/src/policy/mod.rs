//! Decides which records go from a [source](crate::source) to a [sink](crate::sink), and when.
//!
//! A policy depends on neither. It names the next wanted position, receives the source's
//! [`Answer`](crate::source::Answer) and returns a [`Step`]. It has no records and no deadline: the
//! source retransmits, and the sink knows the reader's room.
//!
//! [`InOrder`] delivers final records. [`TwoBounds`] also delivers predictions, and later reports
//! which hold.

use std::ops::Range;

use seriatim_model::{Position, ShardId};

use crate::failure::Failure;

mod in_order;
mod two_bounds;

pub(crate) use in_order::InOrder;
pub(crate) use two_bounds::{Next, TwoBounds};

/// What the subscriber does after an answer of the source, or after a trim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Give the found record to the sink.
    Give,
    /// Nothing to deliver at this position; continue with the next.
    Pass,
    Skip {
        first: Position,
    },
    Lose {
        shard: ShardId,
        range: Range<Position>,
    },
    Wait,
    Fail(Failure),
}
