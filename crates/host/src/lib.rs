//! One node without its input and output.
//!
//! A [`Host`] holds the roles of a node, its journal and its record stores. Its driver tells it
//! what happened (messages, finished writes, the time), and the host returns what is to be done
//! (messages, writes). A server gives it sockets, a clock and a thread that syncs; the simulator
//! gives it a seed. It decides everything that a node decides outside its protocols: which role a
//! message is for, what is written when, how roles come back after a restart, when the journal is
//! cut short.
//!
//! **Invariant:** nothing in this crate waits, asks the clock, or draws a random number. It writes
//! to the disk through [`seriatim_store::Disk`], buffered; every write that has to be *durable*
//! leaves as a [`JournalWrite`](seriatim_store::JournalWrite) or as [`FileWork`], and the driver
//! reports it back; so does a deletion of files.
//!
//! ```text
//!             handle(event) …                    finish_turn(now)
//!  inbox ──▶ step role ─▶ effects ─▶ … ─▶ timers that are due ─▶ take_sends, next_journal_write, next_sync
//!               ▲            │
//!               └── local ◀──┘ messages between roles of this node, reads, finished stores
//! ```
//!
//! Work that is better done once for many inputs (binding a batch, sending appends) is a timer that
//! is due at once: it fires after the inbox was drained. That is all the batching there is.

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
