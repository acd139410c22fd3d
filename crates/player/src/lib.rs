//! The player: delivers the entries of a log to databases and services, in order and once.

mod bounds;
pub mod config;
mod contract;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql;
pub mod statement;
pub mod targets;
#[cfg(feature = "testing")]
pub mod testing;

pub use bounds::Checked;
pub use contract::{ApplyError, AttachError, Batch, Message, Stream, Target};
