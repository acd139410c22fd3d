//! Cuts of a log with quotas: by turns (`fixed.rs`), or, in a free window, of all available records
//! (`free.rs`).

use seriatim_model::{LogConfig, NodeId, Position, ShardId, Time, View};

use super::cut::{Course, Cut};
use super::ending::Closing;
use super::fixed::{Fix, FixedCuts, Progress};
use super::free::FreeCuts;
use super::planner::Planner;
use super::reports::Reports;
use super::telling::Telling;
use super::window::Windows;
use crate::mutation::{Mutation, Options};
use crate::parts::Sessions;
use crate::roles::RoleEffect;

/// Makes cuts, decides the next window, and sends it to replicas.
#[derive(Clone, Debug)]
pub(super) struct WindowedCuts {
    fixed: FixedCuts,
    free: FreeCuts,
    planner: Planner,
    windows: Windows,
    telling: Telling,
    options: Options,
}

impl WindowedCuts {
    pub(super) fn new(view: &View, config: &LogConfig, windows: Windows, options: Options) -> Self {
        let mut telling = Telling::new(view, options);
        telling.name(view.start, &windows.now);
        Self {
            fixed: FixedCuts::new(config, options),
            free: FreeCuts::new(config, view.open_shards()[0], options),
            planner: Planner::new(config.interval()),
            windows,
            telling,
            options,
        }
    }

    pub(super) fn windows(&self) -> &Windows {
        &self.windows
    }

    pub(super) fn due_at(&self, reports: &Reports, closings: &[Closing], under_way: usize) -> Option<Time> {
        match self.windows.now.is_free() {
            true => self.free.due_at(reports, closings, under_way),
            false => FixedCuts::is_due(&self.windows, reports, under_way).then_some(Time::ZERO),
        }
    }

    pub(super) fn make(
        &mut self,
        now: Time,
        from: Position,
        reports: &mut Reports,
        closings: &mut [Closing],
        sessions: &mut Sessions,
    ) -> Option<Cut> {
        let (windows, number, made) = (&self.windows, self.windows.now.number, self.windows.made + 1);
        let mut cut = match windows.now.is_free() {
            true => {
                let course = Course { window: number, made, next: None };
                self.free.make(now, from, reports, closings, sessions, Some(course))?
            }
            false => {
                let fixed = &self.fixed;
                self.planner.lateness.note_cut(now, |shard| fixed.was_asked(windows, reports, shard));
                self.fixed.make(now, from, windows, reports, closings, sessions)?
            }
        };
        self.planner.note_cut(now, &cut, windows, self.fixed.take_hurried());
        if let Some(course) = cut.course.as_mut()
            && windows.next.is_none()
            && course.made * 2 >= windows.now.cuts
        {
            course.next = Some(self.planner.decide(windows));
        }
        self.windows.take(&cut);
        if self.options.mutates(Mutation::QuotaAtOnce) {
            self.windows.use_next_quotas();
        }
        self.telling.name(cut.end(), &self.windows.now);
        if let Some(next) = self.windows.foreseen() {
            self.telling.name(cut.end(), &next);
        }
        Some(cut)
    }

    /// After new reports: notes which shards the next cut waits for.
    pub(super) fn reported(&mut self, now: Time, reports: &Reports) {
        for (shard, end) in reports.named() {
            self.planner.lateness.note_named(now, shard, end, self.fixed.asked_at(shard));
        }
        self.planner.lateness.note_awaited(now, FixedCuts::awaited_next(&self.windows, reports));
    }

    fn progress<'a>(&'a self, reports: &'a Reports, closings: &'a [Closing]) -> Progress<'a> {
        let ends_window = self.planner.lateness.ends_window();
        Progress { windows: &self.windows, reports, closings, ends_window }
    }

    pub(super) fn fix(&mut self, now: Time, reports: &Reports, closings: &[Closing]) -> Vec<Fix> {
        if self.windows.now.is_free() {
            return vec![];
        }
        let ends_window = self.planner.lateness.ends_window();
        self.fixed.fix(now, Progress { windows: &self.windows, reports, closings, ends_window })
    }

    pub(super) fn tell(
        &mut self,
        now: Time,
        committed: Option<Position>,
        view: &View,
        out: &mut Vec<RoleEffect>,
    ) {
        self.telling.tell(now, committed, view.number, out);
    }

    pub(super) fn note_known(&mut self, replica: (ShardId, NodeId), number: u32) {
        self.telling.note_known(replica, number);
    }

    pub(super) fn deadline(
        &self,
        committed: Option<Position>,
        reports: &Reports,
        closings: &[Closing],
    ) -> Option<Time> {
        let is_fixed = !self.windows.now.is_free();
        let fix = is_fixed.then(|| self.fixed.fix_at(self.progress(reports, closings))).flatten();
        [fix, self.telling.deadline(committed)].into_iter().flatten().min()
    }
}
