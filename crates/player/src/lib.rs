//! The player: delivers the entries of a log to databases and services, in order and once.
//!
//! [`run`] joins the machine of `seriatim-delivery`, which decides, with subscriptions, [`targets`]
//! and the [control log](control), which perform.
//!
//! The example `sharded_store` is a key-value store over several databases. It appends transactions
//! and runs a player in its own process.

mod bounds;
pub mod config;
mod configured;
mod contract;
pub mod control;
mod kept;
mod parts;
mod pinning;
#[cfg(any(feature = "http", feature = "postgres", feature = "sqlite"))]
mod rejecting;
mod reporting;
mod runner;
mod sessions;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql;
mod starting;
pub mod statement;
mod streams;
pub mod targets;
#[cfg(feature = "testing")]
pub mod testing;

pub use bounds::Checked;
pub use config::Config;
pub use contract::{ApplyError, AttachError, Batch, Message, Stream, Target};
pub use runner::{Ending, PlayerError, Settings, Start, Started, TargetSettings, run};
pub use seriatim_delivery::player::{Begin, Map, Mapper, Messages, PlayerLimits, Route, Stage};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use sql::DDL as BOUNDS_TABLE;
