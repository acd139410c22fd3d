//! When a controller may form a view that only grows: for a returning member, or a shard that could
//! not join before.
//!
//! An absent member returns at once. Its pause doubles when a view excludes it soon after its
//! return, or a new view excludes it although it could return. Failures of others do not lengthen
//! it.
//!
//! An operator's change of shards is tried once without a pause, and lengthens none. If nodes of a
//! shard do not answer, the change waits like a returning member.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::{Address, LogEntry, NodeId, ShardId, Time, View, ViewNumber, limits};

use super::members::{left_out, named};
use super::shard_set;

/// Time beyond its pause that a grown view must last, so that the next pause is the shortest.
const GROWN_WELL: Duration = Duration::from_secs(10);
/// Shortest and longest pause between views that only grow.
const GROW_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Pauses grow with short-lived views, not with failed tries, so this is no
/// [`Backoff`](crate::parts::Backoff).
#[derive(Clone, Debug)]
pub(super) struct RejoinBackoff {
    retry_at: Time,
    pause: Duration,
    last: Time,
    /// Open shards of the latest tried change.
    tried: Option<Vec<ShardId>>,
    /// Roles that a view excluded recently.
    returns: BTreeMap<Address, Return>,
}

#[derive(Clone, Copy, Debug)]
struct Return {
    /// The wait after an exclusion.
    pause: Duration,
    /// End of that wait.
    at: Time,
    /// When a view named the role again; `None` while it is excluded.
    back_at: Option<Time>,
}

impl Return {
    /// Whether its membership lasted long enough to reset the pause.
    fn lasts(&self, now: Time) -> bool {
        self.back_at.is_some_and(|at| now >= at + self.pause + GROWN_WELL)
    }
}

impl Default for RejoinBackoff {
    fn default() -> Self {
        Self {
            retry_at: Time::ZERO,
            pause: GROW_PAUSE.0,
            last: Time::ZERO,
            tried: None,
            returns: BTreeMap::new(),
        }
    }
}

impl RejoinBackoff {
    /// When a view may take back this role.
    pub(super) fn returns_at(&self, role: Address) -> Time {
        let pause_ends_at = if self.retry_at == Time::ZERO { Time::ZERO } else { self.last + GROW_PAUSE.0 };
        self.returns.get(&role).map_or(pause_ends_at, |known| known.at.max(pause_ends_at))
    }

    /// When a view may grow, unless for a returning member. A [new request](Self::is_new_request)
    /// need not wait.
    pub(super) fn retry_at(&self) -> Time {
        self.retry_at
    }

    /// Whether these open shards have not been tried.
    pub(super) fn is_new_request(&self, due: &[ShardId]) -> bool {
        self.tried.as_deref() != Some(due)
    }

    /// Notes that an attempt tries these open shards; `None` keeps the earlier ones.
    pub(super) fn tries(&mut self, due: Option<Vec<ShardId>>) {
        self.tried = due.or(self.tried.take());
    }

    /// Another controller formed the view of `entry` after `before`, and tried its shards: this one
    /// does not retry at once. `able` nodes answer.
    pub(super) fn told_of(&mut self, before: Option<ViewNumber>, entry: &LogEntry, able: usize) {
        if before.is_none_or(|before| entry.view_number() > before) {
            self.tries(shard_set::due(entry, able));
        }
    }

    /// Notes the entry that follows `before`. The `able` nodes can take records.
    pub(super) fn learned(
        &mut self,
        now: Time,
        before: Option<&LogEntry>,
        entry: &LogEntry,
        able: &BTreeSet<NodeId>,
    ) {
        let Some(before) = before else { return };
        if let (Some(known), Some(view)) = (before.view.as_ref(), &entry.view)
            && view.number > known.number
        {
            self.registered(now, known, view, shard_set::due(entry, able.len()));
            self.note_returns(now, before, entry, able);
        }
    }

    fn note_returns(&mut self, now: Time, before: &LogEntry, entry: &LogEntry, able: &BTreeSet<NodeId>) {
        let away: BTreeSet<Address> = left_out(entry).collect();
        for role in away.iter().copied() {
            let took_part = named(before).any(|named| named == role);
            let could_return = matches!(role, Address::Node(node, _) if able.contains(&node));
            let known = self.returns.get(&role).filter(|known| !known.lasts(now));
            let pause = match known {
                Some(known) if took_part || could_return => (known.pause * 2).min(GROW_PAUSE.1),
                Some(known) => known.pause,
                None => GROW_PAUSE.0,
            };
            let at = if took_part || could_return { now + pause } else { now };
            self.returns.insert(role, Return { pause, at, back_at: None });
        }
        for role in named(entry) {
            if let Some(known) = self.returns.get_mut(&role) {
                known.back_at.get_or_insert(now);
            }
        }
        self.returns
            .retain(|role, known| away.contains(role) || known.back_at.is_some() && !known.lasts(now));
    }

    /// Notes a new view; `due` are the next view's open shards, if they differ. A view that changes
    /// the shards for an operator does not count as growing, unless it retires one.
    fn registered(&mut self, now: Time, before: &View, view: &View, due: Option<Vec<ShardId>>) {
        let retires = view.retired.iter().any(|retired| before.retired(retired.shard).is_none());
        if retires {
            self.tries(due);
        }
        if retires || before.open_shards() == view.open_shards() {
            self.happened(now);
        }
    }

    /// Delays the next view that only grows, longer after a short-lived view. So a replica that was
    /// excluded for slowness gets ever more time to catch up.
    fn happened(&mut self, now: Time) {
        let lasted = now >= self.last + self.pause + GROWN_WELL;
        self.pause = if lasted { GROW_PAUSE.0 } else { (self.pause * 2).min(GROW_PAUSE.1) };
        self.last = now;
        self.retry_at = now + self.pause;
    }

    /// How long to gather answers beyond the necessary ones: longer after views in quick
    /// succession, which may exclude healthy but slow nodes. At most half of `attempt_for`, unless
    /// that is below the minimum.
    pub(super) fn gather_for(&self, attempt_for: Duration) -> Duration {
        let times = (self.pause.as_millis() / (4 * GROW_PAUSE.0.as_millis())).max(1) as u32;
        (limits::GATHER_FOR * times).min(attempt_for / 2).max(limits::GATHER_FOR)
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Endpoint, Member};

    use super::*;
    use crate::control::testing;

    const FIRST: Address = Address::Node(NodeId(1), Endpoint::Sequencer);
    const SECOND: Address = Address::Node(NodeId(2), Endpoint::Sequencer);

    struct Views {
        backoff: RejoinBackoff,
        entry: LogEntry,
        now: Time,
    }

    impl Views {
        fn new() -> Self {
            let entry = testing::entry(Some(testing::view()));
            Self { backoff: RejoinBackoff::default(), entry, now: Time::ZERO + Duration::from_secs(1) }
        }

        /// After `seconds`, a view of `nodes`; the `able` nodes answer.
        fn then(&mut self, seconds: u64, nodes: &[u32], able: &[u32]) {
            self.now = self.now + Duration::from_secs(seconds);
            let mut entry = self.entry.clone();
            let view = entry.view.as_mut().expect("it has a view");
            view.number = view.number.next();
            let members = testing::view().sequencers.into_iter();
            view.sequencers = members.filter(|member: &Member| nodes.contains(&member.node.0)).collect();
            let able = able.iter().copied().map(NodeId).collect();
            self.backoff.learned(self.now, Some(&self.entry), &entry, &able);
            self.entry = entry;
        }

        fn pause(&self, role: Address) -> u128 {
            (self.backoff.returns_at(role) - self.now).as_millis()
        }
    }

    #[test]
    fn a_member_waits_for_longer_each_time_that_it_fails_soon_after_its_return() {
        let mut views = Views::new();
        let pauses: Vec<u128> = (0..4)
            .map(|_| {
                views.then(1, &[1], &[1]);
                let pause = views.pause(SECOND);
                views.then(5, &[1, 2], &[1, 2]);
                pause
            })
            .collect();
        assert_eq!(pauses, [100, 200, 400, 800]);
        views.then(60, &[1], &[1]);
        assert_eq!(views.pause(SECOND), 100, "it took part for a minute");
    }

    #[test]
    fn a_member_does_not_wait_for_another_that_fails_again_and_again() {
        let mut views = Views::new();
        for _ in 0..9 {
            views.then(1, &[1], &[1]);
            views.then(1, &[1, 2], &[1, 2]);
        }
        views.then(1, &[2], &[2]);
        assert_eq!(views.pause(FIRST), 100);
    }

    #[test]
    fn a_member_that_views_leave_out_although_its_node_answers_waits_for_longer() {
        let mut views = Views::new();
        let pauses = [&[1, 2][..], &[1, 2], &[1]].map(|able| {
            views.then(1, &[1], able);
            views.pause(SECOND)
        });
        // An unreachable node waits only for the shortest pause.
        assert_eq!(pauses, [100, 200, 100]);
    }

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
        // Never below the minimum.
        assert_eq!(backoff.gather_for(Duration::from_millis(100)), limits::GATHER_FOR);
    }
}
