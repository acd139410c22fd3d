//! A small client of etcd: reads, transactions, and following a range of keys.
//!
//! The generated code for etcd's service is private. A [`Client`] knows all endpoints of a cluster
//! and tries the next when one fails.

mod client;
mod error;
mod follow;
// `tests/generated.rs` writes these files from etcd's descriptions and compares them. A build
// script would make each first build compile the generator.
#[allow(clippy::all, unreachable_pub, reason = "generated from etcd's descriptions")]
mod generated {
    pub mod mvccpb {
        include!("../proto/generated/mvccpb.in");
    }
    pub mod etcdserverpb {
        include!("../proto/generated/etcdserverpb.in");
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
