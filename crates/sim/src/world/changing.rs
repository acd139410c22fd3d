//! The cost of view changes: all that nodes send, write and journal while a view is claimed and not registered.

use super::World;
use crate::history::Changes;

impl World {
    /// Whether somebody is at work on a new view of the log, as the register knows.
    pub(super) fn is_changing(&self) -> bool {
        self.entry().is_some_and(|entry| entry.claimed > entry.view_number())
    }

    fn changes(&mut self) -> Option<&mut Changes> {
        let load = self.scene.history.load.as_mut().filter(|load| !load.is_over)?;
        Some(&mut load.costs.changes)
    }

    /// Looks at the register after it did something: a view was claimed, or registered, or neither.
    pub(super) fn observe_claims(&mut self) {
        let Some(claimed) = self.entry().map(|entry| entry.claimed) else { return };
        let is_changing = self.is_changing();
        let Some(changes) = self.changes() else { return };
        if is_changing && changes.claim < Some(claimed) {
            changes.attempts += 1;
            changes.claim = Some(claimed);
        }
        changes.count += u64::from(is_changing && !changes.is_under_way);
        changes.is_under_way = is_changing;
    }

    /// Charges a view change with a node's work in a step, for another node or its disk.
    pub(super) fn charge_change(&mut self, sent: u64, kept: u64) {
        if !self.is_changing() {
            return;
        }
        if let Some(changes) = self.changes() {
            changes.sent_bytes += sent;
            changes.kept_bytes += kept;
        }
    }
}
