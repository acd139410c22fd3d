//! Where records go: a reader, and how much more it can take.
//!
//! A sink knows nothing of shards, and asks for nothing. It is given what a [policy](crate::policy)
//! decides, as long as it wants more.
//!
//! There is one: [`Application`].

mod application;

pub(crate) use application::Application;
pub use application::Event;
