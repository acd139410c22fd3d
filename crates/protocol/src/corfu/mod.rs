//! Corfu: order first (NSDI '12; LazyLog §2, §6.1).
//!
//! **Promise.** An append returns with its position, which never changes. If append B starts after
//! append A returned, B's position is greater than A's, across all shards. Readers see every
//! position below what was written without a gap: as a record or as junk, which they skip. A
//! session's appends are in the log in the order in which they were submitted, each at most once.
//!
//! ```text
//! client      sequencer      head        backup      primary
//!   |-- Next ---->|            |            |           |
//!   |<- Given ----|            |            |           |
//!   |-- Write -----------------|            |           |
//!   |<- Written ---------------|            |           |
//!   |-- Write ------------------------------|           |
//!   |<- Written ----------------------------|           |
//!   |-- Write ------------------------------------------|
//!   |<- Written ----------------------------------------|    durable, and readable if all below is: 4 round trips
//! ```
//!
//! The sequencer ([`Sequencer`]) only counts, and keeps nothing. The head of a position's chain
//! decides what is written there: it takes the first write (`shard.rs`). The shard's primary is the
//! chain's other end, which readers ask.
//!
//! **Holes.** A client that dies after it got a position leaves a hole. If a position is not
//! written 10 ms after the sequencer granted it, or as much later as its client asked for, the
//! sequencer asks the client whether it still writes it. A position is overdue if its client does
//! not write it, or is gone: the sequencer tells the primaries, and they have the head fill it,
//! with what it holds or with junk. A client whose position was filled takes another.
//!
//! **Order within a session.** Positions are given in the order of numbers. If one was filled with
//! junk, its client waits for what it has on the way. If a later number is in the log by then, the
//! append fails with `NotAppended`; otherwise it takes new positions, in order.
//!
//! **Views.** The controller fences all shards, and each flushes itself: everything from the first
//! hole on is written again on all replicas of the new view, with junk where nothing was. The
//! sequencer of the new view counts from there. A client that had writes on their way asks again
//! what is at their positions, and needs no role that remembers its session.
//!
//! **Where we deviate from the paper**: holes are filled by shards and not by readers, who need not
//! be trusted with that, and the tail is confirmed by all replicas of some shard, because a
//! sequencer does not know that its view is over. See docs/design/corfu.md.

mod adaptive_timeout;
pub mod client;
mod completions;
mod fences;
mod grants;
pub(crate) mod handover;
mod inquiries;
pub mod message;
mod resuming;
mod search;
pub mod sequencer;
pub(crate) mod shard;
mod tail;
mod tokens;
mod writes;

pub use client::LogClient;
pub use message::Message;
pub use sequencer::Sequencer;
pub use shard::Message as ShardMessage;
