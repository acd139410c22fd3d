//! Orderings by cuts. Scalog: durability first, then one order over all shards (NSDI '20; LazyLog
//! §2, §6.1; SpecLog §2).
//!
//! **Promise.** An append returns its final position once the record is durable on all replicas of
//! its shard and a committed cut covers it. If append B starts after append A returned, B's
//! position is greater than A's, across all shards. A session's appends are in the log in the order
//! of their submission, each at most once.
//!
//! ```text
//! client        primary      backup        leader      followers
//!   |-- Submit -->|            |             |             |
//!   |             |LocalAppend>|             |             |
//!   |             |-- Report --|------------>|             |
//!   |             |            |-- Report -->|             |
//!   |             |            |             |-- Cut ----->|
//!   |             |            |             |<- Held -----|    committed
//!   |             |<- Cover ---|-------------|             |
//!   |<- Appended -|            |             |             |    readable at the primary: 7 delays
//! ```
//!
//! Each replica reports the durable length of its shard's local log, at most once per ordering
//! interval. At most once per interval, the leader of the ordering layer ([`Sequencer`]) takes the
//! minimum for each shard and makes the next *cut*. It orders all records below these lengths that
//! no earlier cut covers: shards by number, a shard's records as in its local log. A cut is
//! committed when all members of the layer hold it. An idle log has no reports and no cuts.
//!
//! **Names.** Primaries report record ids, and cuts carry them. So a cut alone gives the position
//! of a record, and the leader filters sessions.
//!
//! **Views.** A sealed member of the layer has all committed cuts. The chosen member completes its
//! cuts on the shards, as versions of the view that made them: a cut has only one content. Then a
//! *closing cut* (`closing.rs`) orders the surviving replicas' other records, as versions of the
//! new view, which starts after them. Replicas discard all remaining records; their clients ask the
//! new leader and submit them again.
//!
//! **Quotas** (SpecLog's Belfast, OSDI '25). With quotas, the next cuts are fixed in advance: a
//! *window* ([`window`]) defines how many indexes of its local log each shard brings to each cut.
//! Missing records become *padding*, whose positions are empty. So the primary computes a record's
//! position once all replicas have it, and sends it to readers that take predictions:
//!
//! ```text
//! client        primary      backup        leader      followers      reader
//!   |-- Submit -->|            |             |             |             |
//!   |             |LocalAppend>|             |             |             |
//!   |             |<LocalStored|             |             |             |
//!   |             |------------|-------------|- Predict ---|------------>|    4 delays
//!   |             |-- Report --|------------>|             |             |
//!   |             |            |             |-- Cut ----->|             |
//!   |             |            |             |<- Held -----|             |
//!   |             |<- Cover ---|-------------|             |             |
//!   |             |------------|-------------|-- Holds ----|------------>|    7 delays
//! ```
//!
//! See docs/design/belfast.md.
//!
//! **Where we deviate from the paper**: cuts carry names; the layer is a group under the view
//! register instead of Paxos; intervals begin when there is work. See docs/design/scalog.md.

pub mod client;
mod closing;
mod committing;
mod cut;
mod ending;
mod fixed;
mod free;
pub(crate) mod handover;
mod lateness;
mod leader;
mod memory;
pub mod message;
mod owed;
mod paces;
mod planner;
mod pushing;
mod quotas;
mod rates;
mod reports;
mod resuming;
pub mod sequencer;
pub(crate) mod shard;
mod tail;
mod telling;
mod view_change;
pub mod window;
mod windowed;

pub use client::LogClient;
pub use message::Message;
pub use sequencer::Sequencer;
pub use shard::{Message as ShardMessage, Rest, Submitted};
