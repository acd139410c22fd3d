//! The player: delivers the entries of a log to targets, in order and once (LogPlayer, section 2).
//!
//! ```text
//!           log                         player                          targets
//!  main stream  ──Fetched──▶  mapping ─▶ normal queue  ┐
//!                                                      ├─Send─▶ target: bound and effects
//!  recovery     ──Fetched──▶  mapping ─▶ catchup queue ┘              in one transaction
//!  stream       ◀──Pull────                               ◀─Applied─
//! ```
//!
//! Each target stores its *bound*: every message below it is applied. The player trusts only this
//! bound. The *main stream* reads the log for all targets. A target that is down, slow or stopped
//! misses messages of the main stream, and delays no other target. It returns through a *recovery
//! stream*, which reads the missed range again for this target alone:
//!
//! | state | main message | recovery message | sends from |
//! |---|---|---|---|
//! | normal | queued; without room: full | – | `normal` |
//! | recovering | queued if the target joins, else missed | queued | `catchup` |
//! | full | missed | – | `normal` |
//! | down, stopped, paused | missed | – | nothing |
//!
//! Where it deviates from the paper: the start does not read from the lowest bound of all targets,
//! memory has limits, and a few recovery streams serve all targets in turns
//! (`docs/decisions/2026-11-28-player.md`).

mod commands;
mod limits;
mod machine;
mod mapping;
mod message;
mod queue;
mod sessions;
mod starting;
mod status;
mod streams;
mod target;
mod targets;

#[cfg(test)]
mod player_tests;

pub use commands::Command;
pub use limits::PlayerLimits;
pub use machine::{Effect, Input, Note, Player, PlayerConfig, Stop, StreamNumber, TargetIndex};
pub use mapping::{Map, Mapper, Messages, Route, Rule, Rules};
pub use message::{ApplyError, AttachError, Batch, Message, Stream};
pub use starting::{Begin, rules_at};
pub use status::{PlayerStatus, Stage, TargetStatus};
pub use target::{TargetConfig, Term, Why};
