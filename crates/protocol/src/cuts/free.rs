//! Cuts without quotas: each takes the records that all replicas of their shards have (Scalog
//! §3.3).

use std::time::Duration;

use seriatim_model::{IdRun, LogConfig, Position, ShardId, Time, limits};

use super::cut::{Course, Cut, End};
use super::ending::{self, Closing};
use super::reports::Reports;
use super::shard::Submitted;
use crate::mutation::{Mutation, Options};
use crate::parts::junk::is_of_nobody;
use crate::parts::{Admission, Sessions};

#[derive(Clone, Debug)]
pub(super) struct FreeCuts {
    interval: Duration,
    filter: Filter,
    ends_on: ShardId,
    /// When the last cut was made. `is_behind`: whether some names had no room in it.
    cut_at: Option<Time>,
    is_behind: bool,
}

/// Decides which names a cut orders: only names that continue their sessions. Others never get a
/// position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filter {
    idle_positions: u64,
    /// Whether a skipped name leaves its position empty, so that no other name moves.
    keeps_positions: bool,
    options: Options,
}

impl FreeCuts {
    pub(super) fn new(config: &LogConfig, ends_on: ShardId, options: Options) -> Self {
        let filter = Filter::new(config, options);
        Self { interval: config.interval(), filter, ends_on, cut_at: None, is_behind: false }
    }

    /// When the next cut is due. `None`: there is nothing to order, or too many cuts are under way.
    pub(super) fn due_at(&self, reports: &Reports, closings: &[Closing], under_way: usize) -> Option<Time> {
        let has_room = under_way < limits::CUT_WINDOW;
        let pause = if self.is_behind { Duration::ZERO } else { self.interval };
        let ends = closings.iter().any(|closing| !closing.is_cut);
        (has_room && (ends || reports.is_any_new())).then(|| self.cut_at.map_or(Time::ZERO, |at| at + pause))
    }

    pub(super) fn make(
        &mut self,
        now: Time,
        from: Position,
        reports: &mut Reports,
        closings: &mut [Closing],
        sessions: &mut Sessions,
        course: Option<Course>,
    ) -> Option<Cut> {
        self.cut_at = Some(now);
        self.is_behind = false;
        let mut cut = Cut { course, ..Cut::empty(from) };
        // Each shard has an equal part of a cut's names, so that a busy shard does not displace
        // others.
        let most = (self.filter.most_names() / reports.shards().max(1)).max(1);
        for (shard, length, names) in reports.by_shard() {
            let mut taken = 0;
            while names.decided() < length {
                if taken == most {
                    self.is_behind = true;
                    break;
                }
                let Some(next) = names.decide_next(length) else { break };
                taken += 1;
                // Padding that remains from an earlier window with quotas gets no position.
                if is_of_nobody(next.ids.session) {
                    continue;
                }
                self.filter.order((shard, next), &mut cut, sessions);
            }
            cut.lengths.push((shard, names.decided()));
        }
        if cut.course.is_some() && cut.end() == from && closings.iter().any(|closing| !closing.is_cut) {
            // In a window a session's end takes no position of its own. This cut has no position
            // yet, so it gets an empty one.
            cut.pad(1);
        }
        self.filter.end_sessions(self.ends_on, &mut cut, closings, sessions);
        // A cut without positions and ends is dropped: the replicas learn the decided length when
        // they report again.
        (cut.end() > cut.from || !cut.ends.is_empty()).then_some(cut)
    }
}

impl Filter {
    pub(super) fn new(config: &LogConfig, options: Options) -> Self {
        Self { idle_positions: config.idle_positions(), keeps_positions: config.order.has_quotas(), options }
    }

    pub(super) fn mutates(self, mutation: Mutation) -> bool {
        self.options.mutates(mutation)
    }

    pub(super) fn most_names(self) -> usize {
        self.options.limits.batch_records.max(1)
    }

    pub(super) fn order(self, (shard, names): (ShardId, Submitted), cut: &mut Cut, sessions: &mut Sessions) {
        let Some(new) = self.new_of(names, cut, sessions) else { return self.pass_over(names, cut) };
        self.pass_over(names.head(new.ids.first - names.ids.first), cut);
        take((shard, new), cut, sessions);
        self.pass_over(names.tail(new.ids.end() - names.ids.first), cut);
    }

    /// Leaves the positions of skipped names empty, where they are fixed in advance.
    pub(super) fn pass_over(self, names: Submitted, cut: &mut Cut) {
        let keeps = self.keeps_positions && !self.options.mutates(Mutation::PassedOverShifts);
        if keeps && names.ids.count > 0 {
            cut.names.push((ShardId::NOBODY, names));
        }
    }

    pub(super) fn new_of(self, names: Submitted, cut: &Cut, sessions: &Sessions) -> Option<Submitted> {
        let twice = self.options.mutates(Mutation::SubmittedTwice);
        let new = if twice { Some(names.ids) } else { self.admitted(names.ids, sessions, cut.end()) };
        new.map(|ids| Submitted { ids, ..names })
    }

    /// The part of `ids` that continues its session.
    fn admitted(self, ids: IdRun, sessions: &Sessions, ordered: Position) -> Option<IdRun> {
        if sessions.is_too_many_ahead(ids.session, ordered, self.options.limits.max_sessions) {
            return None;
        }
        match sessions.admission(ids, ordered, self.idle_positions) {
            Admission::Admit { skip } => {
                let new = ids.tail(skip);
                // The session may have ended within these numbers.
                Some(new.head(sessions.room(new.session, new.first).min(new.count)))
            }
            _ => None,
        }
        .filter(|new| new.count > 0)
    }

    /// Ends sessions behind the cut's names. No-ops, if any, are on `shard`.
    pub(super) fn end_sessions(
        self,
        shard: ShardId,
        cut: &mut Cut,
        closings: &mut [Closing],
        sessions: &mut Sessions,
    ) {
        for closing in closings.iter_mut().filter(|closing| !closing.is_cut) {
            closing.is_cut = true;
            let Closing { session, successor, .. } = *closing;
            let has_expired = sessions.has_expired(session, cut.end(), self.idle_positions);
            if let Some(at) = ending::end_of(closing, sessions).filter(|_| !has_expired) {
                sessions.end_in_log(session, at, successor, cut.next_end());
                cut.ends.push(End { session, at, successor, shard });
            }
        }
        if self.options.mutates(Mutation::EndedOrdered) {
            sessions.forget_ends();
        }
    }
}

/// Gives new names the next positions of a cut.
pub(super) fn take((shard, names): (ShardId, Submitted), cut: &mut Cut, sessions: &mut Sessions) {
    let Submitted { ids, lowest } = names;
    let position = cut.end();
    cut.names.push((shard, names));
    sessions.bind(ids, position);
    sessions.admit(ids.session, ids.end(), lowest, position);
}
