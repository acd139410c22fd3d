//! Erwin: lazy ordering (LazyLog, SOSP '24, §3–§5).
//!
//! **Promise.** An append returns after one round trip, durable, without a position. If append B
//! starts after append A returned, B's position is greater than A's, across all shards. Below
//! `stable` nothing ever changes, and nothing at or above it is read. A session's appends are bound
//! in the order in which they were submitted.
//!
//! ```text
//! client        leader     followers      primary     backup
//!   |--- Append -->|            |             |           |
//!   |--- Append ---|----------->|             |           |
//!   |<- Acknowl. --|            |             |           |
//!   |<- Acknowl. --|------------|             |           |     durable: 1 round trip
//!   |              |--- Bind ---|------------>|- Replic.->|
//!   |              |            |             |<----------|
//!   |              |<-- Bound --|-------------|           |     on the shards
//!   |              |- Truncate ->|             |           |
//!   |              |<TruncateAck|             |           |     stable
//!   |              |--- Stable -|------------>|           |     readable
//! ```
//!
//! That is `erwin-bb`. In `erwin-st` the record goes to the replicas of a shard at the same time as
//! its id to the sequencing replicas, and `Bind` becomes `Order`: ids instead of records, to every
//! shard (`shard/by_id.rs`). The two differ in what an entry carries
//! ([`Content`](crate::parts::Content)), in what is pushed (`push.rs`), and in which replicas a
//! client waits for (`putting.rs`). An append ends in `completions.rs`.
//!
//! **Where we deviate from the paper**, and why: see docs/design/erwin.md. In short: the orderer is
//! driven by events and pipelined, so that a lone record is stable eight network delays after its
//! append began; record ids are (session, number) without gaps, so that the duplicate filter is one
//! number a session and sessions keep their order; `check_tail` asks all replicas, because a
//! deposed leader does not know that it is, and adds what followers hold in other orders to the
//! leader's count; a view change stages the new view beside the old one's sealed state, so that an
//! attempt that dies harms nothing.

mod appends;
pub mod client;
mod completions;
mod ending;
mod ending_sessions;
mod expiring;
mod forwarding;
pub(crate) mod handover;
mod log_state;
mod memory;
pub mod message;
mod orderer;
mod push;
mod putting;
mod resuming;
mod rules;
pub mod sequencer;
pub(crate) mod shard;
mod view_change;

pub use crate::parts::ShardChoice;
pub use client::LogClient;
pub use message::Message;
pub use sequencer::Sequencer;
pub use shard::Message as ShardMessage;
