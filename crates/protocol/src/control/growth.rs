//! When a view may be changed only to take somebody back, or to let a shard join.

use std::time::Duration;

use seriatim_model::Time;

/// How long a view that grew has to last before the next one may grow at once.
const GROWN_WELL: Duration = Duration::from_secs(10);
/// The shortest and the longest pause between two views that only grow.
const GROW_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// When a view may be changed only to take somebody back.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    not_before: Time,
    pause: Duration,
    last: Time,
}

impl Default for Growth {
    fn default() -> Self {
        Self { not_before: Time::ZERO, pause: GROW_PAUSE.0, last: Time::ZERO }
    }
}

impl Growth {
    /// No view is formed before, if that is all that it is for.
    pub(super) fn not_before(&self) -> Time {
        self.not_before
    }

    /// A view was registered, whoever formed it. The next one that only grows waits: longer, if the last did not last
    /// much longer than it had to. So a replica that is slow to answer, and left out for that, gets ever more time for
    /// what keeps it.
    pub(super) fn happened(&mut self, now: Time) {
        let lasted = now >= self.last + self.pause + GROWN_WELL;
        self.pause = if lasted { GROW_PAUSE.0 } else { (self.pause * 2).min(GROW_PAUSE.1) };
        self.last = now;
        self.not_before = now + self.pause;
    }
}
