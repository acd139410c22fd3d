//! Records without positions that outlive a view.

use seriatim_model::{IdRun, Position, ViewNumber};

use crate::history::{History, Outcome};

/// Records that the replicas of a shard have durably when a view is registered, and had in the one
/// before.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Which.
    pub ids: IdRun,
    /// The view.
    pub view: ViewNumber,
    /// Where it starts.
    pub start: Position,
}

impl History {
    /// How many appends were acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.appends.iter().filter(|append| append.outcome == Outcome::Acknowledged).count()
    }
}
