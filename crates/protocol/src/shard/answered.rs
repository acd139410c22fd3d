//! Batches that were answered, until their positions are final: an answer may be asked for again,
//! and costs no second copy.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{Address, IdRun, Position, ViewNumber};

use super::core::{Core, send};
use super::message::Message;
use crate::roles::RoleEffect;

/// A replica's answers in the present view: at most as many as its leader keeps in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Answered {
    /// Batches that are held everywhere, with the ids that became no-ops.
    pub(super) bound: BTreeMap<(ViewNumber, Position), Vec<IdRun>>,
    /// Batches that are held here, for a primary.
    pub(super) replicated: BTreeSet<(ViewNumber, Position)>,
}

impl Answered {
    /// Positions below `stable` are final: no leader asks for them any more.
    pub(super) fn forget_below(&mut self, stable: Position) {
        self.bound.retain(|(_, batch), _| *batch >= stable);
        self.replicated.retain(|(_, batch)| *batch >= stable);
    }
}

impl Core {
    /// Primary: the answer to a batch that is held everywhere is given again. Says whether it is.
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

    /// Backup: the same for its primary.
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
