//! The player: delivers the entries of a log to databases and services, in order and once.

mod contract;
pub mod targets;

pub use contract::{ApplyError, AttachError, Batch, Message, Stream, Target};
