//! A small client of etcd: reads, transactions, and a way to follow a range of keys for ever.
//!
//! The generated code for etcd's service stays in here. A [`Client`] knows all endpoints of an etcd
//! cluster and asks the next when one does not answer. It dials only when it is asked something.

mod client;
mod error;
mod follow;
// `tests/generated.rs` writes these files from etcd's descriptions and compares them. A build script
// would make each first build compile the generator.
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
