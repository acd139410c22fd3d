//! Orderings by cuts. Scalog: durability first, then one order over all shards (NSDI '20; LazyLog
//! §2, §6.1; SpecLog §2).
//!
//! **Promise.** An append returns with its position, which never changes, when its record is
//! durable on all replicas of its shard and a committed cut covers it. If append B starts after
//! append A returned, B's position is greater than A's, across all shards. A session's appends are
//! in the log in the order in which they were submitted, each at most once.
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
//! Each replica of a shard reports how much of the shard's local log is durable on it, at most once
//! in each ordering interval. The leader of the ordering layer ([`Sequencer`]) takes the least of
//! these for each shard, and at most once in each interval it makes the next *cut* of that:
//! everything that all replicas have and no earlier cut covered, the shards in the order of their
//! numbers, and a shard's records in the order of its local log. A cut is committed when all
//! members of the layer hold it. A log that nobody appends to has no reports and no cuts.
//!
//! **Names.** A primary reports whose records are in its local log, and a cut says so too, so that
//! a position can be found from the cut alone, and sessions are filtered where the order is
//! decided.
//!
//! **Views.** A member of the layer that was sealed has all committed cuts. The chosen one
//! completes all that it holds on the shards, as versions of the view that they were made in: a cut
//! can have only one content. Behind them it makes a *closing cut* of what the surviving replicas
//! hold that no cut covers (`closing.rs`): versions of the new view, which starts after the last.
//! What that does not cover either is discarded, and submitted again by its client, which asks the
//! new leader what became of its records.
//!
//! **Quotas** (SpecLog's Belfast, OSDI '25). Of a log whose shards have quotas the next cuts are
//! fixed in advance: a *window* says how many indexes of its local log each shard brings to each of
//! them ([`window`]). What a shard does not bring is *padding*, and its positions are empty. So the
//! primary reckons the position of a record as soon as all replicas have it, and tells readers that
//! take predictions:
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
//! register instead of Paxos; intervals begin when there is something to do. See
//! docs/design/scalog.md.

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
