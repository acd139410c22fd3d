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
//! // Everything, from the beginning, in the one order that all readers see.
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
//! # What to know
//!
//! * A [`Client`] is one task with one connection to each node. Clone it and its [`Log`]s freely.
//! * A [`Log`] is one session: its appends are bound in the order in which they were submitted,
//!   across retries, reconnects and view changes. A program whose appends need not wait for each
//!   other opens it with [`LogOptions::unordered`]: several sessions behind one handle. In a log of
//!   order `scalog` or `belfast` that is the way to append many records with keys: a session waits
//!   for all its acknowledgements before it goes on at another shard.
//! * Every operation has a deadline ([`ClientOptions::deadline`]). When it passes, the error says
//!   which answer was missing. An append that the client gave up may or may not be in the log, at
//!   most once. The time of an append that waits behind others of its session begins anew whenever
//!   the first of these is acknowledged: a log that is slow makes no append fail.
//! * Dropping a future withdraws nothing: the client appends all that was submitted, as long as a
//!   handle of the client (a [`Client`], a [`Log`], an [`Append`] or a [`Subscription`]) is left.
//!   The last one to go stops the task and closes the connections.
//! * A program that is restarted goes on with its session ([`LogOptions::resume`]): the log stores
//!   nothing twice that the program appends again because it never saw the acknowledgement.
//! * What is in flight is bounded: [`Log::submit`] waits for room, and a [`Subscription`] that its
//!   program does not read holds a few megabytes and slows no other down.
//!
//! # Which call
//!
//! | to | call | waits for |
//! |---|---|---|
//! | append one record | [`Log::append`] | durable |
//! | append many, fast | [`Log::submit`], then await the [`Append`]s | room; then durable |
//! | append, and know the position | [`Log::append_sync`] | final position |
//! | read a range | [`Log::read`] | the first record, as long as you say |
//! | follow a log | [`Log::subscribe`] | each record to become final |
//! | follow it before that | [`Log::subscribe`], [speculative](SubscribeOptions::speculative) | each record's place to be known |
//! | learn how long the log is | [`Log::check_tail`] | all sequencing replicas |
//! | find where a time begins | [`Log::position_at`] | one replica |

mod appender;
mod client;
mod engine;
mod error;
mod log;
mod nodes;
mod operation;
mod progress;
mod record;
mod retention;
mod sessions;
mod shards;
mod speculation;
mod subscription;

pub use client::{Client, ClientOptions, LogOptions, LogStatus, NodeStatus, Recovery, ViewChange};
pub use error::{AppendError, ConnectError, ControlError, ReadError};
pub use log::{Append, AppendOptions, Log, Receipt};
pub use record::Record;
pub use retention::LogUse;
pub use seriatim_delivery::{Awaited, Failure, Unanswered};
pub use seriatim_model::{
    Durability, Filter, LogConfig, Order, Position, Record as StoredRecord, RecordId, Retention,
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
