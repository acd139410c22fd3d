//! A register that was set back to an older state.
//!
//! Suppose that a controller knows registered view V, and the register grants a claim above V while
//! it names an older view. In a sound register this claim would have prevented V's registration. So
//! the register was set back, and a further view would replace acknowledged records.

use seriatim_model::{NodeId, Time, ViewNumber, limits};

use super::data_loss::Blocked;

/// The latest view known to be registered.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    view: ViewNumber,
    /// The node that reported it.
    node: NodeId,
    /// Since when the register has named an older view.
    behind_since: Option<Time>,
}

#[derive(Debug)]
pub(super) enum Verdict {
    /// The register names the latest known view.
    Sound,
    /// The register names an older view; the answer may only be late.
    Doubtful,
    Behind(Blocked),
}

impl Known {
    pub(super) fn note(&mut self, node: NodeId, view: ViewNumber) {
        if view > self.view {
            (self.view, self.node) = (view, node);
        }
    }

    pub(super) fn judge(&mut self, now: Time, registered: ViewNumber) -> Verdict {
        if registered >= self.view {
            self.behind_since = None;
            return Verdict::Sound;
        }
        match self.behind_since {
            Some(since) if now >= since + limits::ATTEMPT_FOR => Verdict::Behind(self.blocked(registered)),
            _ => {
                self.behind_since.get_or_insert(now);
                Verdict::Doubtful
            }
        }
    }

    /// Notes that a role proved the register to be behind.
    pub(super) fn prove(&mut self, now: Time, registered: ViewNumber) -> Blocked {
        self.behind_since.get_or_insert(now);
        self.blocked(registered)
    }

    fn blocked(&self, registered: ViewNumber) -> Blocked {
        Blocked::Behind { node: self.node, known: self.view, registered }
    }
}
