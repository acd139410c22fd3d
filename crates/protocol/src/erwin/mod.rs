//! Erwin: lazy ordering (LazyLog, SOSP '24, §3–§5).
//!
//! **Promise.** An append returns after one round trip, durable, without a position. If append B
//! starts after append A returned, B's position is greater than A's, across all shards. Positions
//! below `stable` never change; readers see no others. A session's appends are bound in submission
//! order.
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
//! This is `erwin-bb`. In `erwin-st` the client sends the record to a shard's replicas and, at the
//! same time, its id to the sequencing replicas; `Order` replaces `Bind` and sends ids to every
//! shard (`shard/by_id.rs`). The variants differ in an entry's [`Content`](crate::parts::Content),
//! in the pushed message (`push.rs`), and in the replicas that a client waits for (`putting.rs`).
//!
//! **Deviations from the paper** (docs/design/erwin.md):
//! - The orderer is event-driven and pipelined.
//! - Record ids are (session, number) without gaps: one number per session filters duplicates.
//! - `check_tail` asks all replicas, since a deposed leader does not know that it is deposed, and
//!   adds entries that followers hold in other orders.
//! - A view change stages the new view beside the old one's sealed state: a failed attempt harms
//!   nothing.

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
