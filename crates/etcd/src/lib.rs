//! A small client of etcd: reads, transactions, and following a range of keys.
//!
//! The generated code for etcd's service is private. A [`Client`] knows all endpoints of a cluster
//! and tries the next when one fails.

mod client;
mod error;
mod follow;
#[allow(clippy::all, unreachable_pub, reason = "generated from etcd's descriptions")]
mod generated {
    pub mod mvccpb {
        include!(concat!(env!("OUT_DIR"), "/mvccpb.rs"));
    }
    pub mod etcdserverpb {
        include!(concat!(env!("OUT_DIR"), "/etcdserverpb.rs"));
    }
}
mod range;
#[cfg(feature = "testing")]
pub mod testing;
mod transaction;

pub use client::{Client, REQUEST_DEADLINE, Snapshot};
pub use error::{EndpointError, RequestError};
pub use follow::{Change, Follower, Update, pause};
pub use range::{KeyValue, Range};
pub use transaction::{Outcome, Transaction};
