//! The records that a reader may see, and when; and the end of those that nobody is to see any
//! more.
//!
//! The shards of a log each give out their own part of it; a reader wants the whole, in order. Two
//! machines here merge those parts by position: position `p` comes from the shard that the
//! placement names, and only after every position below it was given out. Where no placement names
//! it, it comes from whichever shard has it.
//!
//! * [`Subscriber`]: from a position on, for as long as the reader likes. The shards push.
//! * [`Fetch`]: single reads, each answered with what is there, or waiting until there is
//!   something. It remembers which shards hold what, where the positions do not tell.
//!
//! A third machine, [`Trim`], tells all shards to forget what is below a position.
//!
//! ```text
//! reader        Subscriber          primary of shard 0   primary of shard 1
//!   |--- Want ------>|--- Subscribe ------->|                    |
//!   |                |--- Subscribe --------|------------------->|
//!   |                |<-- Deliver ..64 -----|                    |
//!   |<-- Deliver ----|                      |                    |
//!   |                |<-- Deliver 64..70 ---|--------------------|
//!   |<-- Deliver ----|--- Credit ---------->|                    |
//! ```
//!
//! Records that a shard gives out are stable, so buffered ones stay good through lost connections
//! and view changes; only the subscriptions have to be made anew.
//!
//! # Three pieces
//!
//! A [`Subscriber`] is put together from three pieces, of which none holds another. Each is plain
//! data with functions: no input or output, no clock.
//!
//! ```text
//!  shards, register                                  application
//!       |      ^                                      |      ^
//!       v      |                                 Want v      | Event
//!     +----------+   Answer   +----------+   Step   +----------+
//!     |  source  |----------->|  policy  |--------->|   sink   |
//!     +----------+  position  +----------+          +----------+
//!          |    <-----------------                       ^
//!          +------------------- record ------------------+
//! ```
//!
//! * The **source** (`source/`) knows what the shards have given out: their subscriptions and
//!   credit, the register's view, and which position that did not come is a gap. Asked for a
//!   position, it says what is known of it.
//! * The **policy** (`policy/`) decides what is handed over and when: `InOrder`, one position after
//!   the other as it becomes final, or `TwoBounds`, before that, with what holds and what failed
//!   later.
//! * The **sink** (`sink/`) is the reader's side: how much it can take, and what it is told.
//!
//! The promises of each stand at its type, and are asserted there. [`Fetch`] uses the parts of a
//! source that serve single reads as well: the register's view, and the doubt about what did not
//! come.

mod failure;
pub mod fetch;
mod policy;
mod sink;
mod source;
pub mod subscriber;
#[cfg(test)]
mod testing;
pub mod trim;

pub use failure::Failure;
pub use fetch::Fetch;
pub use subscriber::{Awaited, Selection, Subscriber, Unanswered};
pub use trim::Trim;
