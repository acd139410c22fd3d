//! All ordering decisions, as deterministic state machines without clock, sockets or files: see
//! [`seriatim_model::machine`].
//!
//! Each ordering has its folder: [`erwin`], [`cuts`] (Scalog and Belfast) and [`corfu`]. These
//! modules serve all orderings:
//!
//! - [`control`]: the view register and the controller of view changes.
//! - [`shard`]: shard replicas, and their contract with the orderings.
//! - [`parts`]: parts that several roles share.
//! - [`roles`]: all messages, and the sequencing role.
//! - [`client`]: the client machine.
//! - [`mutation`]: deliberate defects for tests of the checkers.

pub mod client;
mod constructors;
pub mod control;
pub mod corfu;
pub mod cuts;
pub mod erwin;
pub mod mutation;
pub mod parts;
pub mod roles;
pub mod shard;

pub use client::LogClient;
pub use mutation::{Mutation, Options};
pub use roles::Message;
