//! The server: gives a [host](seriatim_host) sockets, a clock and a thread that syncs.
//!
//! Nothing here decides anything about a log. A [`node::Node`] is one task that drains its inbox, hands
//! each event to the host, lets the host settle, and then performs all effects together: one send a
//! connection, one write to the journal. [`dev::Dev`] is a whole cluster in one process.
//!
//! ```text
//! connections ─▶ readers ─┐                        ┌─▶ senders, one for each connection
//! own links ──────────────┼─▶ inbox ─▶ driver ─────┤
//! syncer ─────────────────┘            host        └─▶ syncer: writes and syncs, one at a time
//! ```
//!
//! Readers wait when the inbox is full, so a node that cannot keep up slows its senders down; the driver
//! itself never waits for a socket or the disk's sync.

pub mod dev;
mod driver;
pub mod identity;
pub mod node;
mod readers;
mod syncer;

pub use dev::{Dev, DevError, DevOptions, DiskKind};
pub use node::{Node, NodeError};
