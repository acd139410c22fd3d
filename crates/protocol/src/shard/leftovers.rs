//! Records by id that a store holds and its replica does not know: no later view counts their
//! positions. Left alone, they would keep their segments and all later ones permanently.
//!
//! A member drops them at each measurement of its store, and with the first trim after a restart or
//! in a new view. A replica outside of the view, on a node without room, drops them after that
//! view's replicas have trimmed.

use seriatim_model::{IdRun, Ticket, ViewNumber};

use super::core::Core;
use super::path::DataPath;
use crate::roles::RoleEffect;

#[derive(Clone, Debug)]
pub(super) struct Leftovers {
    /// Whether leftovers may exist without a new trim: after a restart, in another view, or after a
    /// refused drop.
    may_be: bool,
    /// The pending question to the store, and the view that excludes the replica.
    asked: Option<(Ticket, ViewNumber)>,
    dropped: (Ticket, Ticket),
}

impl Default for Leftovers {
    fn default() -> Self {
        Self { may_be: true, asked: None, dropped: (Ticket(0), Ticket(0)) }
    }
}

impl Leftovers {
    pub(super) fn in_another_view(&mut self) {
        self.may_be = true;
    }

    pub(super) fn failed(&mut self, ticket: Ticket) {
        let (after, last) = self.dropped;
        self.may_be |= after < ticket && ticket <= last;
    }
}

/// A member's log is trimmed: asks the store for its ids, once per restart and view.
pub(super) fn ask_as_member(core: &mut Core, out: &mut Vec<RoleEffect>) {
    if std::mem::take(&mut core.leftovers.may_be) {
        core.measure(out);
    }
}

/// The replicas of `view`, which excludes this one, have trimmed: asks the store for its ids.
pub(super) fn ask(core: &mut Core, view: ViewNumber, is_news: bool, out: &mut Vec<RoleEffect>) {
    if is_news || core.leftovers.may_be {
        core.leftovers.may_be = false;
        core.leftovers.asked = Some((core.measure(out), view));
    }
}

pub(super) fn measured(
    core: &mut Core,
    path: &mut dyn DataPath,
    ticket: Ticket,
    ids: Vec<IdRun>,
    out: &mut Vec<RoleEffect>,
) {
    let asked = core.leftovers.asked.take_if(|(asked, _)| *asked == ticket);
    // A later view change may rely on these ids.
    let is_wanted = asked.is_some_and(|(_, view)| core.memory.claim <= view);
    if ids.is_empty() || !(core.is_open() || is_wanted) {
        return;
    }
    let after = core.gate.issued();
    path.discard_unknown(core, ids, out);
    core.leftovers.dropped = (after, core.gate.issued());
    if !core.is_open() && core.gate.issued() > after {
        core.write_trim(out);
    }
}
