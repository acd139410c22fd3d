//! The next window: the quotas of the shards, the lending ones, and whether it is free (SpecLog
//! §4.4, §4.5).

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_model::{ShardId, Time, limits};

use super::cut::Cut;
use super::lateness::Lateness;
use super::rates::Rates;
use super::window::{Lender, NextWindow, Windows};

#[derive(Clone, Debug)]
pub(super) struct Planner {
    rates: Rates,
    pub(super) lateness: Lateness,
    span: Span,
    /// Consecutive windows that were mostly empty, though shards were busy.
    wasteful: u32,
    free: Free,
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    cuts: u64,
    /// Cuts for which a busy shard was asked for its turns: its quota was too large.
    hurried: u64,
    positions: u64,
    records: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Free {
    /// Length of the last series of free windows.
    windows: u32,
    /// Free windows of this series that remain.
    left: u32,
    /// Windows with quotas decided since this series.
    others: u32,
}

impl Planner {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            rates: Rates::new(interval),
            lateness: Lateness::new(interval),
            span: Span::default(),
            wasteful: 0,
            free: Free::default(),
        }
    }

    /// `windows`: their progress before this cut. `hurried`: a busy shard was asked for its turns.
    pub(super) fn note_cut(&mut self, now: Time, cut: &Cut, windows: &Windows, hurried: bool) {
        let made = cut.course.as_ref().map_or(windows.made, |course| course.made);
        let cuts = u64::from(made - windows.made);
        self.rates.cut(now);
        let records = cut.names.iter().filter(|(shard, _)| *shard != ShardId::NOBODY);
        for (shard, names) in records {
            self.rates.count(*shard, names.ids.count);
            self.span.records += names.ids.count;
        }
        self.span.cuts += cuts;
        self.span.hurried += if hurried { cuts } else { 0 };
        self.span.positions += cut.end().since(cut.from);
    }

    pub(super) fn decide(&mut self, windows: &Windows) -> NextWindow {
        let (now, span) = (&windows.now, std::mem::take(&mut self.span));
        let mut before: Vec<(ShardId, u32)> = now.quotas().collect();
        before.sort_unstable();
        let quotas = self.rates.quotas(&before);
        let lenders: BTreeSet<ShardId> = match self.takes_free_next(now.is_free(), span) {
            true => quotas.iter().map(|(shard, _)| *shard).collect(),
            false => self.lateness.decide(quotas.iter().map(|(shard, _)| *shard)),
        };
        let (lenders, keepers) = quotas.into_iter().partition(|(shard, _)| lenders.contains(shard));
        let lenders: Vec<(ShardId, u32)> = lenders;
        let lenders = lenders.into_iter().map(|(shard, quota)| Lender { shard, quota }).collect();
        NextWindow { cuts: now.cuts, keepers, lenders }
    }

    /// Whether the next window has no quotas: with a load in bursts, most positions would stay
    /// empty.
    fn takes_free_next(&mut self, is_free: bool, span: Span) -> bool {
        if !is_free {
            let is_wasteful = span.hurried * 4 > span.cuts && span.records * 2 < span.positions;
            self.wasteful = if is_wasteful { self.wasteful + 1 } else { 0 };
        }
        if self.wasteful >= limits::BURSTY_WINDOWS {
            let soon = self.free.windows > 0 && self.free.others < limits::STEADY_WINDOWS;
            let windows = if soon { self.free.windows * 2 } else { limits::FREE_WINDOWS };
            let windows = windows.min(limits::MOST_FREE_WINDOWS);
            (self.free, self.wasteful) = (Free { windows, left: windows, others: 0 }, 0);
        }
        match self.free.left.checked_sub(1) {
            Some(left) => self.free.left = left,
            None => self.free.others = self.free.others.saturating_add(1),
        }
        self.free.others == 0 && self.free.windows > 0
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{IdRun, Position, SessionId};

    use super::*;
    use crate::cuts::cut::Course;
    use crate::cuts::shard::Submitted;
    use crate::cuts::window::Window;

    const INTERVAL: Duration = Duration::from_millis(1);

    fn windows() -> Windows {
        let keepers = [(ShardId(0), 10), (ShardId(1), 10)];
        Windows::begin(Window::first(Position::ZERO, 4, &keepers))
    }

    /// Makes the cuts of half a window, with `records` of each shard, and decides the next.
    fn decided(
        planner: &mut Planner,
        windows: &mut Windows,
        now: &mut Time,
        records: u64,
        hurried: bool,
    ) -> NextWindow {
        windows.made = 0;
        for made in 1..=2 {
            *now = *now + INTERVAL;
            let mut cut = Cut::empty(Position::ZERO);
            cut.course = Some(Course { window: windows.now.number, made, next: None });
            for shard in [0, 1] {
                let ids = IdRun { session: SessionId(shard.into()), first: 0, count: records };
                cut.names.push((ShardId(shard), Submitted { ids, lowest: 0 }));
            }
            cut.pad(20_u64.saturating_sub(2 * records));
            planner.note_cut(*now, &cut, windows, hurried);
            windows.made = made;
        }
        planner.decide(windows)
    }

    #[test]
    fn quotas_follow_the_load() {
        let (mut planner, mut windows, mut now) = (Planner::new(INTERVAL), windows(), Time::ZERO);
        decided(&mut planner, &mut windows, &mut now, 10, false);
        let next = decided(&mut planner, &mut windows, &mut now, 30, false);
        assert_eq!(next.keepers, [(ShardId(0), 30), (ShardId(1), 30)]);
        assert_eq!((next.cuts, next.lenders), (4, vec![]));
    }

    #[test]
    fn a_load_in_bursts_has_free_windows_for_a_while_and_the_next_time_for_longer() {
        let (mut planner, mut windows, mut now) = (Planner::new(INTERVAL), windows(), Time::ZERO);
        let full = windows.now.clone();
        for free in [10, 20, 40, 80, 160, 160] {
            for _ in 1..limits::BURSTY_WINDOWS {
                let next = decided(&mut planner, &mut windows, &mut now, 2, true);
                assert_eq!(next.lenders, []);
            }
            let mut count = 0;
            loop {
                let next = {
                    let hurried = !windows.now.is_free();
                    decided(&mut planner, &mut windows, &mut now, 2, hurried)
                };
                if !next.keepers.is_empty() {
                    break;
                }
                count += 1;
                assert_eq!(next.lenders.len(), 2);
                let lenders = next.lenders;
                windows.now = Window { shares: vec![], lenders, groups: 1, ..full.clone() };
            }
            assert_eq!(count, free);
            windows.now = full.clone();
        }
    }

    #[test]
    fn a_window_that_is_mostly_empty_since_nobody_appends_is_followed_by_another() {
        let (mut planner, mut windows, mut now) = (Planner::new(INTERVAL), windows(), Time::ZERO);
        for _ in 0..9 {
            assert_eq!(decided(&mut planner, &mut windows, &mut now, 1, false).lenders, []);
        }
    }
}
