//! Corfu: order first (NSDI '12; LazyLog §2, §6.1).
//!
//! **Promise.** An append returns with its position, which never changes. If append B starts after
//! append A returned, B's position is greater than A's, across all shards. Readers see every
//! position below the first unwritten one: as a record, or as junk, which they skip. A session's
//! appends are in the log in submission order, each at most once.
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
//!   |<- Written ----------------------------------------| durable after 4 round trips
//! ```
//!
//! The sequencer ([`Sequencer`]) only counts. The head of a position's chain accepts the first
//! write there (`shard.rs`). The chain's other end is the shard's primary, which serves readers.
//!
//! **Holes.** A client that dies with a position leaves a hole. If a position stays unwritten for
//! 10 ms, or for its client's longer timeout, it is late, and soon the sequencer asks the client.
//! If the client abandons it, or is gone, the primaries have the heads fill it, with their record
//! or with junk. A client whose position was filled takes another.
//!
//! **Order within a session.** Positions follow numbers. After one was filled with junk, its client
//! waits for its writes in flight. If a later number is in the log by then, the append fails with
//! `NotAppended`; otherwise it takes a new position.
//!
//! **Views.** The controller fences all shards. Each flushes itself: it rewrites everything from
//! the first hole on, on all replicas of the new view, with junk in the holes. The new sequencer
//! counts from there. Clients look up their writes in flight; no role remembers sessions.
//!
//! **Deviations from the paper** (docs/design/corfu.md): shards fill holes, since readers are not
//! trusted with that; all replicas of some shard confirm the tail, since a sequencer does not know
//! that its view is over.

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
