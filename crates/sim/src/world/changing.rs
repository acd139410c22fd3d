//! Costs of view changes: bytes that nodes send, write and journal between a view's claim and its
//! registration.

use super::scene::Scene;
use super::truth::{Nodes, Truth};
use crate::history::Changes;

fn changes(scene: &mut Scene) -> Option<&mut Changes> {
    let load = scene.history.load.as_mut().filter(|load| !load.is_over)?;
    Some(&mut load.costs.changes)
}

/// Counts claims and view changes.
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

/// Adds a node's work to the costs of the view change, if one is running.
pub(super) fn charge(scene: &mut Scene, nodes: &Nodes, sent: u64, kept: u64) {
    if !(Truth { nodes, scene }).is_changing() {
        return;
    }
    if let Some(changes) = changes(scene) {
        changes.sent_bytes += sent;
        changes.kept_bytes += kept;
    }
}
