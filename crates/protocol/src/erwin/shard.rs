//! The shards of a log whose positions come after its records are durable: in erwin-bb the leader pushes records with
//! their positions; in erwin-st clients put the records, and the leader orders them by id.

mod by_id;
mod held_records;
mod message;

pub use message::Message;

pub(crate) use by_id::ById;

use crate::shard::DataPath;

/// The data path of a log whose records are pushed to the shards with their positions. It keeps nothing.
#[derive(Clone, Debug)]
pub(crate) struct Pushed;

impl DataPath for Pushed {
    fn boxed(&self) -> Box<dyn DataPath> {
        Box::new(Self)
    }
}
