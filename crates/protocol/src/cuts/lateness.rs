//! Late shards lend their turns: they have none in some windows (SpecLog §4.5).
//!
//! A shard is late when several cuts in a row waited for it alone, each for long, although it was
//! asked for its turns or had named them. Long means much longer than another shard usually takes
//! to bring records: where all disks are slow, no shard is late. A loan is twice as long if the
//! shard is late again soon.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::{ShardId, Time, limits};

use super::paces::Paces;

#[derive(Clone, Debug)]
pub(super) struct Lateness {
    late_after: Duration,
    paces: Paces,
    /// The only shard that the next cut waits for, and since when.
    awaited: Option<(ShardId, Time)>,
    /// The shard that each of the last cuts waited for too long, and the number of these cuts.
    in_row: Option<(ShardId, u32)>,
    /// Shards that lend from the next decided window on.
    found: BTreeSet<ShardId>,
    loans: BTreeMap<ShardId, Loan>,
}

#[derive(Clone, Copy, Debug)]
struct Loan {
    /// Length of the loan, in windows.
    windows: u32,
    /// Windows of the loan that remain.
    left: u32,
    /// Windows decided since the loan, in which the shard keeps a quota.
    kept: u32,
}

impl Lateness {
    pub(super) fn new(interval: Duration) -> Self {
        let late_after = limits::late_after(interval);
        Self {
            late_after,
            paces: Paces::default(),
            awaited: None,
            in_row: None,
            found: BTreeSet::new(),
            loans: BTreeMap::new(),
        }
    }

    /// `end`: length of the named local log. `asked_at`: when the shard was asked for more.
    pub(super) fn note_named(&mut self, now: Time, shard: ShardId, end: u64, asked_at: Option<Time>) {
        self.paces.note(now, shard, end, asked_at);
    }

    /// Whether a wait is too long compared with other shards. Never true without another shard.
    fn is_too_long(&self, shard: ShardId, waited: Duration) -> bool {
        self.paces.of_others(shard).is_some_and(|usual| waited > self.late_after.max(usual * 2))
    }

    /// `shards`: the shards that the next cut waits for. Empty: the cut is about to be made.
    pub(super) fn note_awaited(&mut self, now: Time, mut shards: impl Iterator<Item = ShardId>) {
        let Some(first) = shards.next() else { return };
        let only = shards.next().is_none().then_some(first);
        if self.awaited.map(|(shard, _)| shard) != only {
            self.awaited = only.map(|shard| (shard, now));
        }
    }

    /// `was_asked`: whether a shard was asked for its turn, or has named it.
    pub(super) fn note_cut(&mut self, now: Time, was_asked: impl Fn(ShardId) -> bool) {
        let awaited = self.awaited.take();
        let waited = awaited.filter(|(shard, since)| self.is_too_long(*shard, now.since(*since)));
        let late = waited.map(|(shard, _)| shard).filter(|shard| was_asked(*shard));
        let before = |shard| self.in_row.filter(|(row, _)| *row == shard).map_or(0, |(_, times)| times);
        self.in_row = late.map(|shard| (shard, before(shard) + 1));
        if let Some((shard, _)) = self.in_row.take_if(|(_, times)| *times >= limits::LATE_TIMES) {
            self.found.insert(shard);
        }
    }

    /// Whether the window must end early, so that a shard can lend.
    pub(super) fn ends_window(&self) -> bool {
        !self.found.is_empty()
    }

    /// Decides which shards lend their turns in the next window, and so have none in it. At least
    /// one shard keeps its turns.
    pub(super) fn decide(&mut self, shards: impl Iterator<Item = ShardId>) -> BTreeSet<ShardId> {
        let shards: BTreeSet<ShardId> = shards.collect();
        let mut lenders = BTreeSet::new();
        for shard in &shards {
            let is_found = self.found.contains(shard);
            if is_found {
                let last = self.loans.get(shard).filter(|last| last.kept < limits::STEADY_WINDOWS);
                let windows = last.map_or(limits::LENT_WINDOWS, |last| last.windows.saturating_mul(2));
                let windows = windows.min(limits::MOST_LENT_WINDOWS);
                self.loans.insert(*shard, Loan { windows, left: windows, kept: 0 });
            }
            let Some(loan) = self.loans.get_mut(shard) else { continue };
            match loan.left.checked_sub(1) {
                Some(left) if lenders.len() + 1 < shards.len() => {
                    loan.left = left;
                    lenders.insert(*shard);
                }
                _ => (loan.left, loan.kept) = (0, loan.kept.saturating_add(1)),
            }
        }
        self.found.clear();
        lenders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(1);
    const LATE: ShardId = ShardId(1);

    fn shards() -> impl Iterator<Item = ShardId> {
        (0..3).map(ShardId)
    }

    /// The state where another shard brings records at interval `apart`.
    fn beside(apart: Duration) -> Lateness {
        let mut lateness = Lateness::new(INTERVAL);
        for end in 1..=9 {
            lateness.note_named(Time::ZERO + apart * end, ShardId(2), end.into(), None);
        }
        lateness
    }

    fn lateness() -> Lateness {
        beside(INTERVAL)
    }

    /// A cut that waits for `awaited` and is made `intervals` later.
    fn cut(lateness: &mut Lateness, awaited: &[ShardId], intervals: u32, was_asked: bool) {
        lateness.note_awaited(Time::ZERO, awaited.iter().copied());
        lateness.note_awaited(Time::ZERO + INTERVAL * intervals, std::iter::empty());
        lateness.note_cut(Time::ZERO + INTERVAL * intervals, |_| was_asked);
    }

    fn is_late(lateness: &mut Lateness) {
        (0..limits::LATE_TIMES).for_each(|_| cut(lateness, &[LATE], 5, true));
    }

    fn lends(lateness: &mut Lateness) -> bool {
        lateness.decide(shards()).contains(&LATE)
    }

    #[test]
    fn a_shard_is_late_that_was_waited_for_alone_in_vain_and_again_and_again() {
        let tries: [(&[ShardId], u32, bool); 4] =
            [(&[LATE], 4, true), (&[LATE], 5, false), (&[LATE, ShardId(2)], 5, true), (&[], 5, true)];
        for (awaited, intervals, was_asked) in tries {
            let mut lateness = lateness();
            (0..2).for_each(|_| cut(&mut lateness, &[LATE], 5, true));
            cut(&mut lateness, awaited, intervals, was_asked);
            (0..2).for_each(|_| cut(&mut lateness, &[LATE], 5, true));
            assert!(!lateness.ends_window(), "{awaited:?} {intervals} {was_asked}");
            cut(&mut lateness, &[LATE], 5, true);
            assert!(lateness.ends_window());
        }
    }

    #[test]
    fn a_shard_is_late_beside_faster_ones_only() {
        for (mut lateness, is_found) in [
            (beside(INTERVAL), true),
            (beside(INTERVAL * 2), true),
            (beside(INTERVAL * 3), false),
            (Lateness::new(INTERVAL), false),
        ] {
            is_late(&mut lateness);
            assert_eq!(lateness.ends_window(), is_found, "{lateness:?}");
        }
    }

    #[test]
    fn waiting_begins_when_no_other_shard_is_waited_for() {
        let mut lateness = lateness();
        for _ in 0..9 {
            lateness.note_awaited(Time::ZERO, [LATE, ShardId(2)].into_iter());
            lateness.note_awaited(Time::ZERO + INTERVAL * 2, [LATE].into_iter());
            lateness.note_awaited(Time::ZERO + INTERVAL * 3, [LATE].into_iter());
            lateness.note_awaited(Time::ZERO + INTERVAL * 6, std::iter::empty());
            lateness.note_cut(Time::ZERO + INTERVAL * 6, |_| true);
        }
        assert!(!lateness.ends_window());
    }

    #[test]
    fn a_loan_is_twice_as_long_if_the_shard_is_late_again_soon() {
        let mut lateness = lateness();
        for windows in [5, 10, 20, 40, 80, 80] {
            is_late(&mut lateness);
            let lent = (0..100).take_while(|_| lends(&mut lateness)).count();
            assert_eq!(lent, windows);
        }
        (0..limits::STEADY_WINDOWS).for_each(|_| assert!(!lends(&mut lateness)));
        is_late(&mut lateness);
        assert_eq!((0..100).take_while(|_| lends(&mut lateness)).count(), 5);
    }

    #[test]
    fn some_shard_keeps_its_quota() {
        let mut lateness = lateness();
        is_late(&mut lateness);
        assert_eq!(lateness.decide([LATE].into_iter()), BTreeSet::new());
        assert!(!lateness.ends_window());
    }
}
