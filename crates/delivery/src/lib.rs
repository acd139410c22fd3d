//! Delivery of a log's records to readers, and trims.
//!
//! Each shard serves its own part of a log. Two machines merge the parts by position: position `p`
//! comes from the shard that the placement (the view's rule from positions to shards) names, or
//! without a placement from any shard that has it, and only after every position below it.
//!
//! * [`Subscriber`]: all records from a position on. The shards push.
//! * [`Fetch`]: single reads, which may wait for the first record. Without a placement it remembers
//!   which shard owns each position.
//!
//! A third machine, [`Trim`], makes all shards delete the records below a position.
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
//! Shards serve only stable records, so buffered ones stay valid through lost connections and view
//! changes; only the subscriptions are renewed.
//!
//! # Parts
//!
//! A [`Subscriber`] has three independent parts: plain data with functions, without input, output
//! or clock.
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
//! * The **source** (`source/`) holds the shards' subscriptions and records, and the register's
//!   view. It returns its knowledge of a position and detects gaps.
//! * The **policy** (`policy/`) decides which records are delivered when: `InOrder` delivers only
//!   final records, `TwoBounds` also predicted ones, and later reports which predictions hold.
//! * The **sink** (`sink/`) is the reader's side: its room and its events.
//!
//! Each type documents and asserts its promises. [`Fetch`] shares the source's view and gap
//! detection.

mod failure;
pub mod fetch;
pub mod player;
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
