//! When a controller may form a view that only grows: it takes a member back, or lets a shard join that could not before.
//!
//! A change of shards that an operator requests neither waits for the pause between such views nor lengthens it. A controller
//! tries each change at once, one time. If the view that comes of it does not bring the change about, because the nodes of a shard do not
//! answer, the change waits as a member does that returns.

use std::time::Duration;

use seriatim_model::{LogEntry, ShardId, Time, View, ViewNumber, limits};

use super::shard_set;

/// How long a view that grew has to last before the next one may grow at once.
const GROWN_WELL: Duration = Duration::from_secs(10);
/// The shortest and the longest pause between two views that only grow.
const GROW_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// The pause between views that only grow, and the changes of shards that were tried.
///
/// The pause grows with views that did not last, before it is waited for, and not with tries that came to nothing: so it is no
/// [`Backoff`](crate::parts::Backoff).
#[derive(Clone, Debug)]
pub(super) struct RejoinBackoff {
    retry_at: Time,
    pause: Duration,
    last: Time,
    /// The shards that were to take new records when this controller last tried to change them. A change to others is new.
    tried: Option<Vec<ShardId>>,
}

impl Default for RejoinBackoff {
    fn default() -> Self {
        Self { retry_at: Time::ZERO, pause: GROW_PAUSE.0, last: Time::ZERO, tried: None }
    }
}

impl RejoinBackoff {
    /// No view that only grows is formed before this time, unless it is for a [new request](Self::is_new_request).
    pub(super) fn retry_at(&self) -> Time {
        self.retry_at
    }

    /// Whether an operator requested that these shards take new records, and this controller did not try that yet.
    pub(super) fn is_new_request(&self, due: &[ShardId]) -> bool {
        self.tried.as_deref() != Some(due)
    }

    /// The controller begins a view change, and these shards are to take new records in the view. None: the same shards
    /// as before.
    pub(super) fn tries(&mut self, due: Option<Vec<ShardId>>) {
        self.tried = due.or(self.tried.take());
    }

    /// Another controller tells of the view of `entry`, which it formed; this one knew of view `before`. The other one tried to
    /// bring about the shards that the entry asks for: this one does not try the same at once. `able` nodes answer.
    pub(super) fn told_of(&mut self, before: Option<ViewNumber>, entry: &LogEntry, able: usize) {
        if before.is_none_or(|before| entry.view_number() > before) {
            self.tries(shard_set::due(entry, able));
        }
    }

    /// This controller learned of `entry`, and knew `before`. `able` nodes answer.
    pub(super) fn learned(&mut self, now: Time, before: Option<&LogEntry>, entry: &LogEntry, able: usize) {
        if let (Some(before), Some(view)) = (before.and_then(|before| before.view.as_ref()), &entry.view)
            && view.number > before.number
        {
            self.registered(now, before, view, shard_set::due(entry, able));
        }
    }

    /// A view was registered after `before`, by this controller or another. `due` has the shards that take new records in the
    /// next view, if these are others than in this view.
    ///
    /// A view that changes the shards does so because an operator requested it, and does not count as one that grows. If it
    /// retires a shard, no operator requested that, nor that another shard takes the place of the retired one.
    fn registered(&mut self, now: Time, before: &View, view: &View, due: Option<Vec<ShardId>>) {
        let retires = view.retired.iter().any(|retired| before.retired(retired.shard).is_none());
        if retires {
            self.tries(due);
        }
        if retires || before.open_shards() == view.open_shards() {
            self.happened(now);
        }
    }

    /// A view was registered that no operator requested. The next one that only grows waits: longer, if the last
    /// did not last much longer than it had to. So a replica that is slow to answer, and left out for that, gets ever
    /// more time for the work that keeps it.
    fn happened(&mut self, now: Time) {
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
