//! What several roles share.

pub mod gate;
pub mod ring;
pub mod sessions;

pub use gate::Gate;
pub use ring::{Entry, Ring};
pub use sessions::{Admission, IdRun, Sessions};
