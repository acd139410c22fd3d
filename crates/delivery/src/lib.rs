//! The records that a reader may see, and when; and the end of those that nobody is to see any more.
//!
//! The shards of a log each give out their own part of it; a reader wants the whole, in order. Two
//! machines here merge those parts by position: position `p` comes from the shard that the placement
//! names, and only after every position below it was given out. Where no placement names it, it comes from whichever
//! shard has it.
//!
//! * [`Subscriber`]: from a position on, for as long as the reader likes. The shards push.
//! * [`Fetch`]: single reads, each answered with what is there, or waiting until there is something. It remembers which
//!   shards hold what, where the positions do not tell.
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
//! Records that a shard gives out are stable, so buffered ones stay good through lost connections and view
//! changes; only the subscriptions have to be made anew.

mod directory;
mod failure;
mod feed;
pub mod fetch;
pub mod subscriber;
#[cfg(test)]
mod testing;
pub mod trim;

pub use failure::Failure;
pub use fetch::Fetch;
pub use subscriber::Subscriber;
pub use trim::Trim;
