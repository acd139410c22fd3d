//! The Rust client of Seriatim, a fault-tolerant shared log.
//!
//! ```no_run
//! use seriatim_client::{AppendOptions, Client, Event, Position, Record, SubscribeOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("127.0.0.1:7700").await?;
//! let log = client.log("orders").await?;
//!
//! // Durable in one round trip; the position is bound in the background.
//! let receipt = log.append(Record::from("two coffees"), AppendOptions::default()).await?;
//! println!("{} is on {}", receipt.id, receipt.durability);
//!
//! // Many in flight, bound in the order of submission.
//! let first = log.submit(Record::from("a tea")).await?;
//! let second = log.submit(Record::from("a cake")).await?;
//! first.await?;
//! second.await?;
//!
//! // All records from position 0, in the order that all readers see.
//! let mut events = log.subscribe(Position(0), SubscribeOptions::default()).await?;
//! while let Some(event) = events.next().await {
//!     if let Event::Deliver { position, record, .. } = event? {
//!         println!("{position}: {:?}", record.payload());
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//!
//! * A [`Client`] is one task with one connection per node. Clone it and its [`Log`]s freely.
//! * A [`Log`] is one session: its appends are bound in the order of submission, across retries,
//!   reconnects and view changes. For appends without order, [`LogOptions::unordered`] gives one
//!   handle several sessions. An order `scalog` or `belfast` log needs this for many records with
//!   keys: a session waits for all its acknowledgements before it appends to another shard.
//! * Every operation has a deadline ([`ClientOptions::deadline`]); the error names the missing
//!   answer. An append that missed its deadline may or may not be in the log, at most once. Each
//!   acknowledgement of a session's oldest append restarts the deadlines of its other appends, so a
//!   slow log fails no append.
//! * Dropping a future withdraws nothing: the client appends all submitted records while a handle
//!   (a [`Client`], a [`Log`], an [`Append`] or a [`Subscription`]) exists. Dropping
//!   the last handle closes the connections.
//! * A restarted program resumes its session ([`LogOptions::resume`]): the log stores repeated
//!   appends once.
//! * Memory is bounded: [`Log::submit`] waits for room. An unread [`Subscription`] holds a few
//!   megabytes and delays no other.
//!
//! # Calls
//!
//! | to | call | waits for |
//! |---|---|---|
//! | append one record | [`Log::append`] | durable |
//! | append many, fast | [`Log::submit`], then await the [`Append`]s | room; then durable |
//! | append, and know the position | [`Log::append_sync`] | final position |
//! | append one record for several targets of a player | [`wal::Transaction`], then as above | |
//! | read a range | [`Log::read`] | the first record, up to the given time |
//! | follow a log | [`Log::subscribe`] | each record to become final |
//! | follow it before that | [`SubscribeOptions::speculative`] | each record's place to be known |
//! | learn the length of the log | [`Log::check_tail`] | all sequencing replicas |
//! | find the position of a time | [`Log::position_at`] | one replica |

mod appender;
mod client;
mod engine;
mod error;
mod log;
mod nodes;
mod operation;
mod pins;
mod progress;
mod record;
mod retention;
mod sessions;
mod shards;
mod speculation;
mod subscription;
pub mod wal;

pub use client::{Client, ClientOptions, LogOptions, LogStatus, NodeStatus, Recovery, ViewChange};
pub use error::{AppendError, ConnectError, ControlError, ReadError};
pub use log::{Append, AppendOptions, Log, Receipt};
pub use record::Record;
pub use retention::LogUse;
pub use seriatim_delivery::{Awaited, Failure, Unanswered};
pub use seriatim_model::{
    Durability, Filter, LogConfig, Order, Pin, Position, Record as StoredRecord, RecordId, Retention,
    RetentionChange, SessionId, ShardId, record::Header, retention::LimitChange, storage::Stored,
    view::NodeId,
};
pub use seriatim_net::DelayLine;
pub use seriatim_protocol::control::parting::{self, Parting, PartingChange, Partings};
pub use seriatim_protocol::control::{Ailment, Condition, LeftOut, LogCondition, LogEntry, ReplicaOf};
pub use seriatim_protocol::parts::ShardChoice;
pub use seriatim_protocol::parts::sequencing::WindowStatus;
pub use speculation::Speculation;
pub use subscription::{Event, SubscribeOptions, Subscription};
