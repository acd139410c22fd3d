//! A register that was set back to an older state.
//!
//! A sound register never grants a claim above view V beside a view older than V: that claim would
//! have prevented V's registration. So a controller that knows V detects the fault. A view formed
//! nevertheless would replace acknowledged records.

use seriatim_model::{NodeId, Time, ViewNumber, limits};

use super::data_loss::Blocked;

/// The latest view known to be registered.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    view: ViewNumber,
    /// The node that reported it.
    node: NodeId,
    /// Since when the register has known less.
    behind_since: Option<Time>,
}

#[derive(Debug)]
pub(super) enum Verdict {
    /// It names the latest known view.
    Sound,
    /// It is older; it may only be late.
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

    /// Notes proof of a register that is behind.
    pub(super) fn prove(&mut self, now: Time, registered: ViewNumber) -> Blocked {
        self.behind_since.get_or_insert(now);
        self.blocked(registered)
    }

    fn blocked(&self, registered: ViewNumber) -> Blocked {
        Blocked::Behind { node: self.node, known: self.view, registered }
    }
}
