//! Records by id that a store holds and its replica does not know of: they had positions that no
//! later view counts. They would keep the segments that they are in, and all later ones, for ever.
//!
//! A member of a view drops them whenever it is asked what its store takes, and with the first trim
//! after a restart or in another view. A replica that a view does without, and whose node has no
//! room, drops them when that view's replicas have trimmed: its store is asked for them then.

use seriatim_model::{IdRun, Ticket, ViewNumber};

use super::core::Core;
use super::path::DataPath;
use crate::roles::RoleEffect;

/// The knowledge that a replica outside of all views has of them.
#[derive(Clone, Debug)]
pub(super) struct Leftovers {
    /// Whether there may be some although no more was trimmed: after a restart, in another view, or
    /// since there was no room to drop them.
    may_be: bool,
    /// The question to the store, and the view that does without the replica.
    asked: Option<(Ticket, ViewNumber)>,
    /// The writes that drop them: those after one ticket and up to another.
    dropped: (Ticket, Ticket),
}

impl Default for Leftovers {
    fn default() -> Self {
        Self { may_be: true, asked: None, dropped: (Ticket(0), Ticket(0)) }
    }
}

impl Leftovers {
    /// The replica takes part in another view, or knows of one that it does not take part in.
    pub(super) fn in_another_view(&mut self) {
        self.may_be = true;
    }

    /// A write was refused.
    pub(super) fn failed(&mut self, ticket: Ticket) {
        let (after, last) = self.dropped;
        self.may_be |= after < ticket && ticket <= last;
    }
}

/// The log is trimmed, and this replica is a member of its view: asks the store what it holds,
/// unless it did since its restart and in this view.
pub(super) fn ask_as_member(core: &mut Core, out: &mut Vec<RoleEffect>) {
    if std::mem::take(&mut core.leftovers.may_be) {
        core.measure(out);
    }
}

/// The replicas of this view, which does without this one, have trimmed: asks the store what it
/// holds, if that `is_news`.
pub(super) fn ask(core: &mut Core, view: ViewNumber, is_news: bool, out: &mut Vec<RoleEffect>) {
    if is_news || core.leftovers.may_be {
        core.leftovers.may_be = false;
        core.leftovers.asked = Some((core.measure(out), view));
    }
}

/// The store has said which ids it holds. It keeps what has a position still.
pub(super) fn measured(
    core: &mut Core,
    path: &mut dyn DataPath,
    ticket: Ticket,
    ids: Vec<IdRun>,
    out: &mut Vec<RoleEffect>,
) {
    let asked = core.leftovers.asked.take_if(|(asked, _)| *asked == ticket);
    // Another view that is being formed since may count on them.
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
