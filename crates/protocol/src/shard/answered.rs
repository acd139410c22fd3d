//! Answers to batches whose positions are not final, repeated for retransmitted batches.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{Address, IdRun, Position, ViewNumber};

use super::core::{Core, send};
use super::message::Message;
use crate::roles::RoleEffect;

/// Recent answers: at most as many as the leader has batches in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Answered {
    /// Primary: batches that every replica holds, with the ids that became no-ops.
    pub(super) bound: BTreeMap<(ViewNumber, Position), Vec<IdRun>>,
    /// Backup: batches that this replica holds.
    pub(super) replicated: BTreeSet<(ViewNumber, Position)>,
}

impl Answered {
    /// Forgets answers to final batches, which no leader retransmits.
    pub(super) fn forget_below(&mut self, stable: Position) {
        self.bound.retain(|(_, batch), _| *batch >= stable);
        self.replicated.retain(|(_, batch)| *batch >= stable);
    }
}

impl Core {
    /// Primary: repeats the answer to a batch, if it was answered.
    pub(crate) fn answers_again(
        &self,
        leader: Address,
        (view, batch): (ViewNumber, Position),
        out: &mut Vec<RoleEffect>,
    ) -> bool {
        let known = self.answered.bound.get(&(view, batch));
        if let Some(voids) = known {
            let (stable, voids) = (self.stable, voids.clone());
            send(leader, Message::Bound { view, batch, stable, voids }, out);
        }
        known.is_some()
    }

    pub(crate) fn replicated_again(
        &self,
        primary: Address,
        (view, batch): (ViewNumber, Position),
        out: &mut Vec<RoleEffect>,
    ) -> bool {
        let is_held = self.answered.replicated.contains(&(view, batch));
        if is_held {
            send(primary, Message::Replicated { view, batch }, out);
        }
        is_held
    }
}
