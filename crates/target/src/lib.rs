//! The server side of a gRPC target: a service that applies entries of a log, in order and once.
//!
//! The player delivers entries to this service; `proto/seriatim/target/v1/target.proto` describes
//! the protocol for all languages. A service in Rust implements [`Target`] and calls [`serve`]. For
//! each pair of player and target id it stores a [`Stored`] in the transaction of the effects:
//! [`Stored::attach`] and [`Stored::apply`] decide all cases.
//! The example `key_value` is complete.

mod contract;
/// The generated messages, client and server of the protocol.
// `tests/generated.rs` writes this file from the description and compares it. A build script would
// make each first build compile the generator.
#[allow(clippy::all, missing_docs, unreachable_pub, reason = "generated from the description")]
pub mod proto {
    include!("../proto/generated/seriatim.target.v1.in");
}
mod server;
mod stored;
#[cfg(feature = "testing")]
pub mod testing;

pub use contract::{ApplyError, AttachError, Session, Target};
pub use proto::{Batch, Message, Stream};
pub use server::{MOST_REQUEST_BYTES, MOST_SESSIONS, serve};
pub use stored::Stored;
pub use tonic::transport::Error as ServeError;
