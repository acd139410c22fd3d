//! The shard contract: requests of the sequencing layer, the controller and readers to a shard.
//!
//! An ordering reaches a shard only through [`Message`] and the messages of its own data path
//! (`ShardMessage` in its folder). Our shard is a primary with any number of backups
//! ([`primary_backup::Replica`]). An adapter to an existing system (a Kafka partition, say) answers
//! the same messages and keeps the same promises:
//!
//! * **bind**: hold records at given positions, tagged with the view that pushed them. Answer
//!   `Bound` only when every replica holds them at the log's durability level. Batches may arrive
//!   repeatedly and in any order; binding is idempotent.
//! * **put, order** (only where clients put records themselves): hold records that have no
//!   positions yet. Answer `Stored` when this replica holds them at the log's durability level, and
//!   only in a view that it takes part in. An order is a `bind` of ids. An id whose record no
//!   replica has becomes a no-op on all of them; `Bound` lists it, and no replica acknowledges its
//!   record afterwards.
//! * **write** (only where positions are given out before records are written): hold a record at
//!   its position, once. Answer `Written` when this replica holds it at the log's durability level,
//!   or name the other record at that position. The primary fills an overdue position with a record
//!   that some replica holds, or with a no-op. Clients write in a view only after its registration;
//!   by then all replicas have everything below its start (`Flush`).
//! * **fence**: after `Fenced { claim }`, durably, bind nothing of a lower view and ignore its
//!   `Stable`. Drop nothing that was bound: a failed view change leaves the state unchanged.
//! * **install history**: a position may have versions from several views. The valid version is
//!   that of the latest *registered* view whose `first` is at or below the position. The history
//!   comes with `Registered`. A store that can only append (Kafka) writes the versions one after
//!   another and keeps the history beside them.
//! * **stable**: positions below it are final. Readers receive only these.
//! * **read, subscribe**: valid records of this shard at positions below `stable`, in order. An
//!   answer contains every record of this shard from the requested position to `upto`.
//! * **trim**: positions below are deleted permanently and durably on every replica.
//!
//! A replica consists of a [`Core`], which knows no ordering, and the [`DataPath`] of its log's
//! ordering, which decides how records arrive and when they are final.
//!
//! ```text
//! leader          primary          backup          reader
//!   |--- Bind ------->|-- Replicate -->|              |
//!   |                 |<- Replicated --|              |
//!   |<-- Bound -------|                |              |
//!   |   (followers drop and confirm)   |              |
//!   |--- Stable ----->|--- Deliver ------------------>|
//! ```

mod answered;
mod applied;
mod catch_up;
pub mod core;
mod damage;
mod former;
mod leftovers;
pub mod message;
pub mod path;
mod predicting;
pub mod primary_backup;
mod read_error;
mod readers;
mod repair;
mod subscription;
mod survey;
mod trimming;
mod unstored;
mod views;

pub use applied::Applied;
pub use core::Core;
pub(crate) use core::{Batch, Write, send};
pub use message::{Held, Message, Placed, Turns, Unplaced};
pub use path::{DataPath, Foretold, Retired};
pub use predicting::Predicting;
pub use primary_backup::Replica;
pub use read_error::ReadError;
pub(crate) use readers::OwnOutcome;
pub use survey::{Retain, Survey, Surveyed};
