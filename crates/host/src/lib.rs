//! One node without input and output.
//!
//! A [`Host`] holds a node's roles (register, controllers, sequencing and shard replicas), journal
//! and record stores. Its driver passes in events (messages, finished writes, the time) and
//! performs the results (messages, writes): a server with sockets, a clock and a sync thread, the
//! simulator with a seed. The host dispatches messages to roles, orders writes, rebuilds roles
//! after a restart and takes checkpoints.
//!
//! **Invariant:** nothing in this crate waits, reads a clock, or draws a random number. It writes
//! through [`seriatim_store::Disk`], buffered. A write that must be *durable*, and a deletion of
//! files, leaves as a [`JournalWrite`](seriatim_store::JournalWrite) or as [`FileWork`], and the
//! driver reports its completion.
//!
//! ```text
//!       handle(event) …          finish_turn(now)
//!  inbox ──▶ step role ─▶ effects ─▶ … ─▶ due timers ─▶ take_sends, next_journal_write, next_sync
//!         ▲      │
//!         └── local ◀──┘ messages between roles of this node, reads, finished stores
//! ```
//!
//! The only batching: work for many inputs (binding a batch, sending appends) is a timer due at
//! once, which fires after the inbox is drained.
//!
//! - Core: `host`, `role`, `known`, `visitors`, `serving`, `turns`.
//! - Journal and files: `journal`, `recovery`, `checkpoint`, `files`, `aside`, `removal`,
//!   `forgetting`, `usage`.
//! - Disk room: `room`, `filling`, `backlog`, `retaining`.
//! - Failure detection: `detector`, `rhythm`, `lane`, `liveness`, `mark`, `returning`, `watched`.
//! - Register: `register`, `register_proxy`.
//! - Reports to operators: `notices`, `repeats`, `reasons`, `wording`, `condition`, `progress`.

mod aside;
mod backlog;
mod checkpoint;
mod condition;
mod detector;
#[cfg(test)]
mod executed_again_tests;
mod files;
mod filling;
mod forgetting;
mod host;
mod journal;
mod known;
mod lane;
mod liveness;
mod mark;
mod notices;
mod progress;
mod reasons;
mod recovery;
mod register;
mod register_proxy;
mod removal;
mod repeats;
mod retaining;
mod returning;
mod rhythm;
mod role;
mod room;
mod serving;
mod turns;
mod usage;
mod visitors;
mod watched;
mod wording;

pub use condition::Measured;
pub use detector::{Cause, Detector, Liveness, Taken, Via};
pub use files::FileWork;
pub use host::{Event, Host, HostConfig, Outgoing};
pub use liveness::Unmet;
pub use mark::DiskMark;
pub use notices::Notice;
pub use recovery::{HostError, Problem};
pub use register::{RegisterPlace, RegisterQuestion};
pub use usage::Usage;
pub use watched::Watched;
pub use wording::role_in_words;
