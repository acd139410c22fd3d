//! Records that had no position at the end of a view and stay on their shard in the next.

use seriatim_model::{IdRun, Position, ViewNumber};

use crate::history::{History, Outcome};

/// Records durable on a shard's replicas both before and after a view's registration.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Their ids.
    pub ids: IdRun,
    /// The new view.
    pub view: ViewNumber,
    /// Start of the new view.
    pub start: Position,
}

impl History {
    /// Number of acknowledged appends.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.appends.iter().filter(|append| append.outcome == Outcome::Acknowledged).count()
    }
}
