//! The server: gives a [host](seriatim_host) sockets, a clock and a thread that syncs.
//!
//! Nothing here decides anything about a log. A [`node::Node`] is one task that drains its inbox,
//! hands each event to the host, lets the host finish its turn, and then performs all effects
//! together: one send a connection, one write to the journal. [`register`] is the view register of
//! a cluster whose nodes do not keep it themselves. [`dev::Dev`] is a whole cluster in one process,
//! [`serve::serve`] starts one node of a cluster of several.
//!
//! ```text
//! connections ─▶ readers ─┐                        ┌─▶ senders, one for each connection
//! own links ──────────────┼─▶ inbox ─▶ driver ─────┤
//! heartbeats, own thread ─┤
//! syncer ─────────────────┤            host        ├─▶ syncer: writes and syncs, one at a time
//! etcd, if there is one ──┘                        └─▶ questions to etcd, each answered by itself
//! ```
//!
//! Readers wait when the inbox is full, so a node that cannot keep up slows its senders down; the
//! driver itself never waits for a socket or the disk's sync.

mod alarm;
mod crowd;
pub mod dev;
mod disk;
mod driver;
pub mod identity;
pub mod node;
mod occupied;
mod own_address;
mod progress;
mod pulse;
mod readers;
pub mod register;
mod rival;
pub mod serve;
pub mod start;
mod stopping;
mod syncer;
mod usage;
mod vitals;

pub use dev::{Dev, DevOptions};
pub use disk::{DataDirectoryError, RealDisk};
pub use node::{Node, NodeError};
pub use own_address::Misdirected;
pub use register::{EtcdOptions, EtcdRegister};
pub use rival::Rival;
pub use serve::{RegisterOptions, ServeOptions, serve};
pub use start::{Awaits, DiskKind, NodeOptions, StartError};
pub use stopping::Stopping;
