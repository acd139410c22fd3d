//! The server: gives a [host](seriatim_host), the deciding part of a node, its sockets, clock and
//! disk threads.
//!
//! A [`node::Node`] is one task: it drains its inbox, passes each event to the host, lets the host
//! finish its turn, and performs all effects together, with one send per connection and one journal
//! write.
//!
//! - [`dev`]: a whole cluster in one process.
//! - [`identity`]: the identity of a data directory.
//! - [`node`]: a running node.
//! - [`register`]: a view register outside of all nodes.
//! - [`serve`](mod@serve): one node of a cluster of several processes.
//! - [`start`]: options and start of a node.
//!
//! ```text
//! connections ─▶ readers ─┐                        ┌─▶ senders, one for each connection
//! own links ──────────────┼─▶ inbox ─▶ driver ─────┤
//! heartbeats, own thread ─┤
//! syncer ─────────────────┤            host        ├─▶ syncer: writes and syncs, one at a time
//! etcd, if there is one ──┘                        └─▶ questions to etcd, each answered by itself
//! ```
//!
//! Readers wait while the inbox is full: an overloaded node slows its senders down. The driver
//! never waits for a socket or a sync.

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
