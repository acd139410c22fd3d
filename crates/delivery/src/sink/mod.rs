//! The reader's side: its room and its events.
//!
//! A sink knows no shards and requests nothing. It receives what a [policy](crate::policy) decides,
//! as long as it has room. The only sink is [`Application`].

mod application;

pub(crate) use application::Application;
pub use application::Event;
