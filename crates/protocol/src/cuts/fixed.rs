//! Cuts of windows (SpecLog §3.2, §4.2): when all shards have met their turns, and what a lagging
//! one is asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::{LogConfig, Position, ShardId, Time, limits};

use super::cut::{Course, Cut};
use super::ending::Closing;
use super::free::Filter;
use super::reports::Reports;
use super::window::{Turn, Window, Windows};
use crate::mutation::{Mutation, Options};
use crate::parts::Sessions;
use crate::parts::junk::is_of_nobody;

/// Makes the cuts of windows.
#[derive(Clone, Debug)]
pub(super) struct FixedCuts {
    filter: Filter,
    options: Options,
    /// How long a record waits before other shards are asked for their turns.
    ask_after: Duration,
    /// The records that were named by then have waited for so long.
    waited: Time,
    /// How long one of a shard without turns waits for the end of the window, where no cut is made.
    end_after: Duration,
    /// For each shard that was asked for its turns, up to which length of its local log, and when.
    asked: BTreeMap<ShardId, (u64, Time)>,
    /// Whether one of them was asked since the last cut that had something to bring.
    hurried: bool,
    /// Since when some record waits for a cut, and none was made.
    waiting_since: Option<Time>,
}

/// A shard is asked to fill its local log up to a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fix {
    pub(super) shard: ShardId,
    pub(super) length: u64,
}

/// A reason to ask shards for their turns, from a time on.
#[derive(Clone, Copy, Debug)]
struct Reason {
    /// For those up to this cut of the window.
    upto: u32,
    from: Time,
}

/// That which waits for a cut, and for which.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// The last cut of the window that a record of a turn waits for, or a session that is to end.
    by_turns: Option<u32>,
    /// Whether a shard without turns has records.
    by_lenders: bool,
}

/// How far a log with windows is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress<'a> {
    pub(super) windows: &'a Windows,
    pub(super) reports: &'a Reports,
    pub(super) closings: &'a [Closing],
    /// Whether the window is to end as soon as something waits for a cut.
    pub(super) ends_window: bool,
}

impl FixedCuts {
    pub(super) fn new(config: &LogConfig, options: Options) -> Self {
        Self {
            filter: Filter::new(config, options),
            options,
            ask_after: limits::pad_after(config.interval()),
            waited: Time::ZERO,
            end_after: limits::end_after(config.interval()),
            asked: BTreeMap::new(),
            hurried: false,
            waiting_since: None,
        }
    }

    /// The number of cuts of the window for which every shard has met its turns.
    fn met(window: &Window, reports: &Reports) -> u32 {
        Self::awaited(window, reports).map(|(_, cut)| cut).min().unwrap_or(0).min(window.cuts)
    }

    /// The shards that have turns, each with the first cut for which it has not met its own.
    fn awaited(window: &Window, reports: &Reports) -> impl Iterator<Item = (ShardId, u32)> {
        window.shares.iter().map(|share| {
            let awaited = window.awaited(share.shard, reports.everywhere(share.shard));
            (share.shard, awaited.expect("it has a share"))
        })
    }

    /// The shards that the next cut waits for.
    pub(super) fn awaited_next(windows: &Windows, reports: &Reports) -> impl Iterator<Item = ShardId> {
        let next = windows.made;
        Self::awaited(&windows.now, reports).filter(move |(_, cut)| *cut <= next).map(|(shard, _)| shard)
    }

    /// Whether a shard was asked for its turn in the next cut, or has named all of it.
    pub(super) fn was_asked(&self, windows: &Windows, reports: &Reports, shard: ShardId) -> bool {
        let asked = self.asked.get(&shard).map_or(0, |(asked, _)| *asked).max(reports.named_end(shard));
        windows.now.length(shard, windows.made).is_some_and(|length| length <= asked)
    }

    /// When a shard was asked last, if ever.
    pub(super) fn asked_at(&self, shard: ShardId) -> Option<Time> {
        self.asked.get(&shard).map(|(_, at)| *at)
    }

    /// Whether a cut can be made.
    pub(super) fn is_due(windows: &Windows, reports: &Reports, under_way: usize) -> bool {
        under_way < limits::CUT_WINDOW && Self::met(&windows.now, reports) > windows.made
    }

    /// Makes one cut of as many cuts of the window as all shards have met, from a position on.
    /// `sessions` say what is ordered already.
    pub(super) fn make(
        &mut self,
        now: Time,
        from: Position,
        windows: &Windows,
        reports: &mut Reports,
        closings: &mut [Closing],
        sessions: &mut Sessions,
    ) -> Option<Cut> {
        let (window, mut made) = (&windows.now, windows.made);
        let met = Self::met(window, reports);
        if met <= made {
            return None;
        }
        let mut cut = Cut::empty(from);
        while made < met && cut.names.len() < self.options.limits.batch_records {
            window.turns_in(made).for_each(|turn| self.fill(turn, &mut cut, reports, sessions));
            made += 1;
        }
        if made == window.cuts {
            for lender in &window.lenders {
                self.fill_room((lender.shard, lender.room()), &mut cut, reports, sessions);
            }
        }
        cut.lengths = reports.decided().collect();
        cut.course = Some(Course { window: window.number, made, next: None });
        let shard = cut.lengths[0].0;
        self.filter.end_sessions(shard, &mut cut, closings, sessions);
        self.waiting_since = Some(now);
        Some(cut)
    }

    /// Whether a busy shard was asked for its turns since this was asked the last time: its quota
    /// is too large at the moment.
    pub(super) fn take_hurried(&mut self) -> bool {
        std::mem::take(&mut self.hurried)
    }

    /// Orders a shard's turn: what is new of it keeps its positions, and all else leaves them
    /// empty.
    fn fill(&self, turn: Turn, cut: &mut Cut, reports: &mut Reports, sessions: &mut Sessions) {
        let end = turn.index + u64::from(turn.quota);
        let decided = reports.names(turn.shard).decided();
        assert_eq!(decided, turn.index, "turns follow each other in the local log of {:?}", turn.shard);
        let first = cut.end();
        let mut decided = self.take_names((turn.shard, end), cut, reports, sessions);
        if self.options.mutates(Mutation::CutUnmet) {
            let missing = reports.names(turn.shard).give_up_below(end);
            cut.pad(missing);
            decided += missing;
        }
        if self.options.mutates(Mutation::PassedOverShifts) {
            cut.pad(u64::from(turn.quota) - cut.end().since(first));
        }
        assert_eq!(decided, end, "a turn that was met is named");
    }

    /// Orders what all replicas of a shard without turns have, as far as it has room.
    fn fill_room(
        &self,
        (shard, room): (ShardId, u32),
        cut: &mut Cut,
        reports: &mut Reports,
        sessions: &mut Sessions,
    ) {
        let (decided, everywhere) = (reports.names(shard).decided(), reports.everywhere(shard));
        let end = decided + u64::from(room);
        let decided = self.take_names((shard, everywhere.min(end)), cut, reports, sessions);
        cut.pad(end - decided);
    }

    /// Orders the names of a shard below an index. Says below which everything is decided then.
    fn take_names(
        &self,
        (shard, end): (ShardId, u64),
        cut: &mut Cut,
        reports: &mut Reports,
        sessions: &mut Sessions,
    ) -> u64 {
        let names = reports.names(shard);
        while let Some(next) = names.decide_next(end) {
            // A name that is passed over keeps its positions, so that nobody else's move.
            match is_of_nobody(next.ids.session) {
                true => cut.pad(next.ids.count),
                false => self.filter.order((shard, next), cut, sessions),
            }
        }
        names.decided()
    }

    /// The shards that are to fill their local logs now, and how far, so that what waits gets its
    /// cut (SpecLog §4.3). They count as asked.
    pub(super) fn fix(&mut self, now: Time, progress: Progress<'_>) -> Vec<Fix> {
        let Some(wanted) = progress.wanted() else {
            self.waiting_since = None;
            return vec![];
        };
        let since = *self.waiting_since.get_or_insert(now);
        self.waited = self.waited.max(now.before(self.ask_after));
        let ends = self.end(since, wanted, progress).filter(|end| end.from <= now);
        let waited = self.waited_for(self.waited, progress);
        let mut fixes = vec![];
        for (shard, awaited) in Self::awaited(&progress.windows.now, progress.reports) {
            let quiet = self.quiet(shard, wanted, progress).filter(|quiet| quiet.from <= now);
            let Some(upto) = ends.into_iter().chain(quiet).chain(waited).map(|reason| reason.upto).max()
            else {
                continue;
            };
            let reason = Reason { upto, from: Time::ZERO };
            if let Some((fix, _)) = self.due((shard, awaited), reason, progress).filter(|(_, at)| *at <= now)
            {
                self.hurried |= ends.is_none() && quiet.is_none();
                self.asked.insert(shard, (fix.length, now));
                fixes.push(fix);
            }
        }
        fixes
    }

    /// The window is to end: a shard without turns waits for that.
    fn end(&self, since: Time, wanted: Wanted, progress: Progress<'_>) -> Option<Reason> {
        let upto = progress.windows.now.cuts - 1;
        let from = if progress.ends_window { Time::ZERO } else { since + self.end_after };
        (progress.ends_window || wanted.by_lenders).then_some(Reason { upto, from })
    }

    /// A shard has nothing to bring and will not have anything soon, either: nothing came of it for
    /// a while.
    fn quiet(&self, shard: ShardId, wanted: Wanted, progress: Progress<'_>) -> Option<Reason> {
        let since = progress.reports.idle_since(shard)?;
        let from = since.map_or(Time::ZERO, |since| since + self.ask_after);
        wanted.by_turns.map(|upto| Reason { upto, from })
    }

    /// Records that were named by a time have waited for others.
    fn waited_for(&self, named_by: Time, progress: Progress<'_>) -> Option<Reason> {
        progress.wanted_by(named_by).map(|upto| Reason { upto, from: named_by + self.ask_after })
    }

    /// The part that a shard is to be asked for, and when: again if it does not answer. Nothing, if
    /// it has met its turns up to there, or has named them: its backups tell by themselves what
    /// they have.
    fn due(
        &self,
        (shard, awaited): (ShardId, u32),
        reason: Reason,
        progress: Progress<'_>,
    ) -> Option<(Fix, Time)> {
        let length = progress.windows.now.length(shard, reason.upto).filter(|_| awaited <= reason.upto)?;
        if progress.reports.named_end(shard) >= length {
            return None;
        }
        let asked = self.asked.get(&shard).filter(|(asked, _)| *asked >= length);
        let again = asked.map_or(Time::ZERO, |(_, at)| *at + limits::RESEND_AFTER);
        Some((Fix { shard, length }, reason.from.max(again)))
    }

    /// When a shard may have to be asked, though nothing comes: a record has waited, a shard has
    /// brought nothing for a while, the window is to end, or an answer is late.
    pub(super) fn fix_at(&self, progress: Progress<'_>) -> Option<Time> {
        let wanted = progress.wanted()?;
        let Some(since) = self.waiting_since else { return Some(Time::ZERO) };
        let next = progress.first_record_after(self.waited);
        let named_by = [Some(self.waited), next].into_iter().flatten();
        let common = named_by.filter_map(|named_by| self.waited_for(named_by, progress));
        let common: Vec<Reason> = common.chain(self.end(since, wanted, progress)).collect();
        let dues = Self::awaited(&progress.windows.now, progress.reports).flat_map(|behind| {
            let quiet = self.quiet(behind.0, wanted, progress);
            let reasons = common.iter().copied().chain(quiet);
            reasons.filter_map(move |reason| self.due(behind, reason, progress))
        });
        dues.map(|(_, at)| at).min()
    }
}

impl Progress<'_> {
    /// That which waits for a cut, if something does.
    fn wanted(self) -> Option<Wanted> {
        let Self { windows, reports, closings, .. } = self;
        let window = &windows.now;
        let of_records = self.last_cut(|shard| reports.records_end(shard));
        let of_ends = closings.iter().any(|closing| !closing.is_cut).then_some(windows.made);
        let by_turns = of_records.into_iter().chain(of_ends).max();
        let by_lenders = window.lenders.iter().any(|lender| reports.records_end(lender.shard).is_some());
        (by_turns.is_some() || by_lenders).then_some(Wanted { by_turns, by_lenders })
    }

    /// The last cut of the window that a record waits for which was named by a time.
    fn wanted_by(self, time: Time) -> Option<u32> {
        self.last_cut(|shard| self.reports.records_end_by(shard, time))
    }

    /// The last cut of the window in which a record lies, where those of a shard end at an index.
    fn last_cut(self, records_end: impl Fn(ShardId) -> Option<u64>) -> Option<u32> {
        let window = &self.windows.now;
        let cuts = window.shares.iter().filter_map(|share| {
            let last = records_end(share.shard)?.checked_sub(1)?;
            window.awaited(share.shard, last)
        });
        cuts.max().map(|cut| cut.min(window.cuts - 1))
    }

    /// When the first record was named after a time that waits for a turn.
    fn first_record_after(self, time: Time) -> Option<Time> {
        let shares = self.windows.now.shares.iter();
        shares.filter_map(|share| self.reports.first_record_after(share.shard, time)).min()
    }
}
