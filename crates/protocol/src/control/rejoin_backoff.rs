//! When a controller may change a view only to take a member back, or to let a shard join.

use std::time::Duration;

use seriatim_model::{Time, limits};

/// How long a view that grew has to last before the next one may grow at once.
const GROWN_WELL: Duration = Duration::from_secs(10);
/// The shortest and the longest pause between two views that only grow.
const GROW_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// When a controller may change a view only to take a member back.
///
/// The pause grows with views that did not last, before it is waited for, and not with tries that came to nothing: so it is no
/// [`Backoff`](crate::parts::Backoff).
#[derive(Clone, Debug)]
pub(super) struct RejoinBackoff {
    retry_at: Time,
    pause: Duration,
    last: Time,
}

impl Default for RejoinBackoff {
    fn default() -> Self {
        Self { retry_at: Time::ZERO, pause: GROW_PAUSE.0, last: Time::ZERO }
    }
}

impl RejoinBackoff {
    /// No view is formed before, if that is all that it is for.
    pub(super) fn retry_at(&self) -> Time {
        self.retry_at
    }

    /// A view was registered, by this controller or another. The next one that only grows waits: longer, if the last
    /// did not last much longer than it had to. So a replica that is slow to answer, and left out for that, gets ever
    /// more time for the work that keeps it.
    pub(super) fn happened(&mut self, now: Time) {
        let lasted = now >= self.last + self.pause + GROWN_WELL;
        self.pause = if lasted { GROW_PAUSE.0 } else { (self.pause * 2).min(GROW_PAUSE.1) };
        self.last = now;
        self.retry_at = now + self.pause;
    }

    /// How long an attempt gathers answers beyond the ones that it needs: longer, the more views followed each other.
    /// A node that is well and took longer was left out of them, and asked to be taken back. An attempt goes on for at
    /// most
    /// `attempt_for` without news, and is not given up for this.
    pub(super) fn gather_for(&self, attempt_for: Duration) -> Duration {
        let times = (self.pause.as_millis() / (4 * GROW_PAUSE.0.as_millis())).max(1) as u32;
        (limits::GATHER_FOR * times).min(attempt_for / 2).max(limits::GATHER_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_views_follow_each_other_the_longer_answers_are_gathered() {
        let mut backoff = RejoinBackoff::default();
        let gathered = |backoff: &RejoinBackoff| backoff.gather_for(limits::ATTEMPT_FOR).as_millis();
        assert_eq!(gathered(&backoff), 200);
        let waits: Vec<u128> = (1..=6)
            .map(|view| {
                backoff.happened(Time::ZERO + Duration::from_millis(view));
                gathered(&backoff)
            })
            .collect();
        assert_eq!(waits, [200, 200, 400, 800, 1000, 1000]);
        backoff.happened(Time::ZERO + Duration::from_secs(60));
        assert_eq!(gathered(&backoff), 200);
        // An attempt that is given up sooner gathers no longer than it always did.
        assert_eq!(backoff.gather_for(Duration::from_millis(100)), limits::GATHER_FOR);
    }
}
