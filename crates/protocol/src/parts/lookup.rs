//! When a client asks the register for a newer view.

use std::time::Duration;

use seriatim_model::{Time, ViewNumber};

/// How long to wait before the register is asked again at first; doubled up to [`LOOKUP_MOST`]. A view change takes a
/// few milliseconds.
pub const LOOKUP_FIRST: Duration = Duration::from_millis(2);
/// The longest wait before the register is asked again.
pub const LOOKUP_MOST: Duration = Duration::from_millis(20);

/// Whether the register is being asked, and when it is asked again.
#[derive(Clone, Debug)]
pub struct Lookup {
    at: Option<Time>,
    pause: Duration,
    /// The newest view that anybody spoke of.
    heard_of: ViewNumber,
}

impl Default for Lookup {
    fn default() -> Self {
        Self { at: None, pause: LOOKUP_FIRST, heard_of: ViewNumber::NONE }
    }
}

impl Lookup {
    /// Whether nobody is asked.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.at.is_none()
    }

    /// When to call [`is_due`](Self::is_due) at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.at
    }

    /// Asks at once, unless it does already.
    pub fn ask(&mut self, now: Time) {
        if self.at.is_none() {
            self.at = Some(now);
            self.pause = LOOKUP_FIRST;
        }
    }

    /// Somebody who knows `view` does not serve those who know `known`. `is_waiting` says that there is no view at
    /// present.
    pub fn was_rejected(&mut self, now: Time, view: ViewNumber, known: ViewNumber, is_waiting: bool) {
        if view > known.max(self.heard_of) {
            // There is a new view: if the register is asked already, that was too early.
            self.heard_of = view;
            self.at = None;
        }
        // Whether the other is ahead of us or waits for a view itself: the register knows.
        if view >= known || is_waiting {
            self.ask(now);
        } else if self.at.is_none() {
            self.at = Some(now + LOOKUP_MOST);
        }
    }

    /// A newer view is known.
    pub fn found(&mut self) {
        self.at = None;
    }

    /// Whether the register is to be asked now. It is asked again as long as somebody `waits`.
    pub fn is_due(&mut self, now: Time, waits: bool) -> bool {
        if self.at.is_none_or(|at| now < at) {
            return false;
        }
        self.at = waits.then(|| now + self.pause);
        self.pause = (self.pause * 2).min(LOOKUP_MOST);
        true
    }
}
