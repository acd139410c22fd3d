//! Delivers the entries of a log to targets, in order and once.

mod message;

pub use message::{ApplyError, AttachError, Batch, Message, Stream};
