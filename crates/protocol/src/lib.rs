//! Every ordering decision, as deterministic state machines.
//!
//! Each ordering is one folder; [`control`] (the view register and the controller of views) and
//! [`shard`] (the shard contract) serve all of them, and [`parts`] holds what several roles share.
//! Nothing here knows the clock, a socket or a file: see [`seriatim_model::machine`].

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
