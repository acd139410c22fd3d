//! A register that is behind: it was set back to an older state, and does not know the views since.
//!
//! A sound register never gives a claim above a view's number beside an older view: while that view
//! was being formed, any claim would have kept it from being registered. So a controller that knows
//! the view can tell, and a view formed in spite of that would replace acknowledged records.

use seriatim_model::{NodeId, Time, ViewNumber, limits};

use super::data_loss::Blocked;

/// The latest view that is known to have been registered.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    view: ViewNumber,
    /// The node that knows it.
    node: NodeId,
    /// Since when the register has known less.
    behind_since: Option<Time>,
}

/// The judgement of an answer of the register.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It names the latest view.
    Sound,
    /// It is older than what is known: perhaps it was only long on its way.
    Doubtful,
    /// The register is behind.
    Behind(Blocked),
}

impl Known {
    /// `node` knows of a registered view.
    pub(super) fn note(&mut self, node: NodeId, view: ViewNumber) {
        if view > self.view {
            (self.view, self.node) = (view, node);
        }
    }

    /// Judges an answer of the register by the view that it names.
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

    /// A claim proved that the register, where only the view `registered` is known, is behind.
    pub(super) fn prove(&mut self, now: Time, registered: ViewNumber) -> Blocked {
        self.behind_since.get_or_insert(now);
        self.blocked(registered)
    }

    fn blocked(&self, registered: ViewNumber) -> Blocked {
        Blocked::Behind { node: self.node, known: self.view, registered }
    }
}
