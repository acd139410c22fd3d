//! Cuts of windows (SpecLog §3.2, §4.2): when all shards have met their turns (their parts of a
//! cut), and when the leader asks a late shard.

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

#[derive(Clone, Debug)]
pub(super) struct FixedCuts {
    filter: Filter,
    options: Options,
    /// How long a record waits before other shards are asked for their turns.
    ask_after: Duration,
    /// Records named by this time have waited at least `ask_after`.
    waited: Time,
    /// How long a lending shard's record waits without a cut, before the leader asks for all turns
    /// up to the window's end.
    end_after: Duration,
    /// Requested length of each asked shard's local log, and the time of the request.
    asked: BTreeMap<ShardId, (u64, Time)>,
    /// Whether the leader asked a busy shard for its turns since the last cut.
    hurried: bool,
    /// Time of the last cut, or since when something waits for a cut. `None`: nothing waits.
    waiting_since: Option<Time>,
}

/// A request to a shard: fill the local log up to `length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fix {
    pub(super) shard: ShardId,
    pub(super) length: u64,
}

/// A reason to ask shards for their turns up to cut `upto`, valid from a time on.
#[derive(Clone, Copy, Debug)]
struct Reason {
    upto: u32,
    from: Time,
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Last cut for which a record in a turn, or the end of a session, waits. `by_lenders`: whether
    /// a lending shard has waiting records.
    by_turns: Option<u32>,
    by_lenders: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Progress<'a> {
    pub(super) windows: &'a Windows,
    pub(super) reports: &'a Reports,
    pub(super) closings: &'a [Closing],
    /// Whether the window must end as soon as anything waits for a cut.
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

    /// Number of the window's cuts whose turns all shards have met.
    fn met(window: &Window, reports: &Reports) -> u32 {
        Self::awaited(window, reports).map(|(_, cut)| cut).min().unwrap_or(0).min(window.cuts)
    }

    /// Shards with turns, each with its first cut whose turn is not met.
    fn awaited(window: &Window, reports: &Reports) -> impl Iterator<Item = (ShardId, u32)> {
        window.shares.iter().map(|share| {
            let awaited = window.awaited(share.shard, reports.everywhere(share.shard));
            (share.shard, awaited.expect("it has a share"))
        })
    }

    pub(super) fn awaited_next(windows: &Windows, reports: &Reports) -> impl Iterator<Item = ShardId> {
        let next = windows.made;
        Self::awaited(&windows.now, reports).filter(move |(_, cut)| *cut <= next).map(|(shard, _)| shard)
    }

    /// Whether the leader asked a shard for its turn in the next cut, or the shard has named that
    /// turn.
    pub(super) fn was_asked(&self, windows: &Windows, reports: &Reports, shard: ShardId) -> bool {
        let asked = self.asked.get(&shard).map_or(0, |(asked, _)| *asked).max(reports.named_end(shard));
        windows.now.length(shard, windows.made).is_some_and(|length| length <= asked)
    }

    pub(super) fn asked_at(&self, shard: ShardId) -> Option<Time> {
        self.asked.get(&shard).map(|(_, at)| *at)
    }

    pub(super) fn is_due(windows: &Windows, reports: &Reports, under_way: usize) -> bool {
        under_way < limits::CUT_WINDOW && Self::met(&windows.now, reports) > windows.made
    }

    /// Makes one cut that stands for all further cuts of the window whose turns are met.
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

    /// Whether a busy shard was asked since the last call: its quota is too large.
    pub(super) fn take_hurried(&mut self) -> bool {
        std::mem::take(&mut self.hurried)
    }

    /// Orders a shard's turn. Skipped names leave their positions empty.
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

    /// Orders a shard's names below an index. Returns the decided length.
    fn take_names(
        &self,
        (shard, end): (ShardId, u64),
        cut: &mut Cut,
        reports: &mut Reports,
        sessions: &mut Sessions,
    ) -> u64 {
        let names = reports.names(shard);
        while let Some(next) = names.decide_next(end) {
            // A skipped name keeps its positions, so that no other name moves.
            match is_of_nobody(next.ids.session) {
                true => cut.pad(next.ids.count),
                false => self.filter.order((shard, next), cut, sessions),
            }
        }
        names.decided()
    }

    /// Returns the due requests, so that waiting records get their cut (SpecLog §4.3), and notes
    /// their shards as asked.
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

    /// Reason to ask for all turns of the window: a lending shard's record waits, or the window
    /// must end early.
    fn end(&self, since: Time, wanted: Wanted, progress: Progress<'_>) -> Option<Reason> {
        let upto = progress.windows.now.cuts - 1;
        let from = if progress.ends_window { Time::ZERO } else { since + self.end_after };
        (progress.ends_window || wanted.by_lenders).then_some(Reason { upto, from })
    }

    /// Reason to ask a shard that has no records, and named none for `ask_after`.
    fn quiet(&self, shard: ShardId, wanted: Wanted, progress: Progress<'_>) -> Option<Reason> {
        let since = progress.reports.idle_since(shard)?;
        let from = since.map_or(Time::ZERO, |since| since + self.ask_after);
        wanted.by_turns.map(|upto| Reason { upto, from })
    }

    fn waited_for(&self, named_by: Time, progress: Progress<'_>) -> Option<Reason> {
        progress.wanted_by(named_by).map(|upto| Reason { upto, from: named_by + self.ask_after })
    }

    /// The request to a shard, and when to send it. `None`: the shard has met these turns, or has
    /// named them, and its backups report without a request.
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

    /// Earliest time at which a request may be due without a new report.
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
    fn wanted(self) -> Option<Wanted> {
        let Self { windows, reports, closings, .. } = self;
        let window = &windows.now;
        let of_records = self.last_cut(|shard| reports.records_end(shard));
        let of_ends = closings.iter().any(|closing| !closing.is_cut).then_some(windows.made);
        let by_turns = of_records.into_iter().chain(of_ends).max();
        let by_lenders = window.lenders.iter().any(|lender| reports.records_end(lender.shard).is_some());
        (by_turns.is_some() || by_lenders).then_some(Wanted { by_turns, by_lenders })
    }

    /// Last cut for which a record waits that was named at `time` or before.
    fn wanted_by(self, time: Time) -> Option<u32> {
        self.last_cut(|shard| self.reports.records_end_by(shard, time))
    }

    /// Last cut with a record. `records_end`: index behind a shard's last record.
    fn last_cut(self, records_end: impl Fn(ShardId) -> Option<u64>) -> Option<u32> {
        let window = &self.windows.now;
        let cuts = window.shares.iter().filter_map(|share| {
            let last = records_end(share.shard)?.checked_sub(1)?;
            window.awaited(share.shard, last)
        });
        cuts.max().map(|cut| cut.min(window.cuts - 1))
    }

    /// Time at which the first record that waits for a turn was named after `time`.
    fn first_record_after(self, time: Time) -> Option<Time> {
        let shares = self.windows.now.shares.iter();
        shares.filter_map(|share| self.reports.first_record_after(share.shard, time)).min()
    }
}
