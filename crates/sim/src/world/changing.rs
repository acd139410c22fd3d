//! The cost of view changes: all that nodes send, write and journal while a view is claimed and not
//! registered.

use super::scene::Scene;
use super::truth::{Nodes, Truth};
use crate::history::Changes;

fn changes(scene: &mut Scene) -> Option<&mut Changes> {
    let load = scene.history.load.as_mut().filter(|load| !load.is_over)?;
    Some(&mut load.costs.changes)
}

/// Looks at the register after it did something: a view was claimed, or registered, or neither.
pub(super) fn note_claims(scene: &mut Scene, nodes: &Nodes) {
    let truth = Truth { nodes, scene };
    let Some(claimed) = truth.entry().map(|entry| entry.claimed) else { return };
    let is_changing = truth.is_changing();
    let Some(changes) = changes(scene) else { return };
    if is_changing && changes.claim < Some(claimed) {
        changes.attempts += 1;
        changes.claim = Some(claimed);
    }
    changes.count += u64::from(is_changing && !changes.is_under_way);
    changes.is_under_way = is_changing;
}

/// Charges a view change with a node's work in a step, for another node or its disk.
pub(super) fn charge(scene: &mut Scene, nodes: &Nodes, sent: u64, kept: u64) {
    if !(Truth { nodes, scene }).is_changing() {
        return;
    }
    if let Some(changes) = changes(scene) {
        changes.sent_bytes += sent;
        changes.kept_bytes += kept;
    }
}
