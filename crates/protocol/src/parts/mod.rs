//! What several roles share.

pub mod appending;
pub mod askers;
pub mod content;
pub mod conversation;
pub mod gate;
pub mod jitter;
pub mod junk;
pub mod known_log;
pub mod lookup;
pub mod membership;
pub mod names;
pub mod pauses;
pub mod retransmit;
mod ring;
pub mod seen;
pub mod sessions;
pub mod tails;
pub mod vigil;
pub mod window;

pub use appending::ShardChoice;
pub use askers::Askers;
pub use content::Content;
pub use conversation::Conversation;
pub use gate::Gate;
pub use jitter::Jitter;
pub use known_log::KnownLog;
pub use lookup::Lookup;
pub use membership::Membership;
pub use names::Names;
pub use retransmit::Retransmit;
pub use ring::{Entry, Ring};
pub use seen::Seen;
pub use sessions::{Admission, Sessions};
pub use tails::Tails;
pub use vigil::Vigil;
pub use window::Window;
