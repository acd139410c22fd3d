//! The shard contract: what the sequencing layer, the controller and readers may ask of a shard.
//!
//! An ordering sees a shard only through [`Message`], and the messages of its own data path
//! (`ShardMessage` in its folder). Ours is a primary and any number of backups
//! ([`primary_backup::Replica`]); an adapter to something that exists (a Kafka partition, say)
//! answers the same messages and has to keep the same promises:
//!
//! * **bind**: hold records at given positions, tagged with the view that pushed them; answer
//!   `Bound` only when they are as durable as the log promises, on every replica. Batches may
//!   arrive more than once and in any order; binding again what is bound changes nothing.
//! * **put, order** (only where clients put records themselves): hold records that have no
//!   positions yet; answer `Stored` when they are as durable as the log promises, on this replica,
//!   and only in a view that it takes part in. An order is a `bind` of ids. An id whose record no
//!   replica has becomes a no-op on all of them, `Bound` lists it, and no replica acknowledges its
//!   record from then on.
//! * **write** (only where positions are given out before records are written): hold a record at
//!   its position, once; answer `Written` when it is as durable as the log promises, on this
//!   replica, or say which other record is there. The primary fills an overdue position, with the
//!   record that some replica holds or with a no-op. Until a view is registered no client writes in
//!   it; by then everything below its start is written on all replicas (`Flush`).
//! * **fence**: after `Fenced { claim }`, durably, nothing of a lower view is bound and no `Stable`
//!   of a lower view is believed. Nothing that was bound is dropped: an attempt that dies must
//!   leave everything as it found it.
//! * **install history**: per position there may be versions from several views. The valid one is
//!   that of the latest *registered* view whose `first` is at or below the position. The registered
//!   history comes with `Registered`. A store that can only append (Kafka) writes the versions one
//!   after another and keeps the history beside them.
//! * **stable**: positions below it are final. Only they are ever given to a reader.
//! * **read, subscribe**: valid records of this shard at positions below `stable`, in order. `upto`
//!   in an answer says: everything of this shard below it, from where the reader asked on, has been
//!   given.
//! * **trim**: positions below are gone for good, on every replica, durably.
//!
//! A replica is a [`Core`], which knows no ordering, and the [`DataPath`] of its log's ordering:
//! how records come to it, and when they are final. The core asks no more of a log than what is
//! true of its positions.
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
