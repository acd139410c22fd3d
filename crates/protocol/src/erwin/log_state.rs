//! The log of one sequencing replica: entries, bound positions and sessions.

use std::collections::BTreeMap;

use seriatim_model::{BoundIds, IdRun, LogConfig, Position, RecordId, SessionId, Ticket, Time, limits};

use crate::control::SealedState;
use crate::mutation::{Mutation, Options};
use crate::parts::{Admission, Content, Entry, IdSetDigest, Ring, Sessions};

/// One replica's records and knowledge of the log. It decides admission, and changes only in ways
/// that the journal can repeat; it sends and writes nothing.
///
/// Invariant: entries in `ring` and positions below `ordered` are disjoint and together hold every
/// record that the replica acknowledged; `sessions` covers both.
#[derive(Clone, Debug)]
pub(super) struct LogState {
    config: LogConfig,
    options: Options,
    ring: Ring,
    sessions: Sessions,
    ordered: Position,
    /// Frozen sessions of this view, each with its next number, until the leader decides their
    /// ends.
    frozen: BTreeMap<SessionId, u64>,
    /// Digest of the ids held or dropped in this view.
    seen: IdSetDigest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    NoRoom,
    TooLarge,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Disk {
    pub is_full: bool,
    /// Whether too much data waits for the disk.
    pub is_pressed: bool,
}

/// The table that exceeds its limit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Excess {
    Sessions,
    NoOps,
}

impl LogState {
    pub(super) fn new(config: LogConfig, options: Options) -> Self {
        Self {
            config,
            options,
            ring: Ring::default(),
            sessions: Sessions::default(),
            ordered: Position::ZERO,
            frozen: BTreeMap::new(),
            seen: IdSetDigest::default(),
        }
    }

    pub(super) fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Entries without positions.
    pub(super) fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(super) fn ordered(&self) -> Position {
        self.ordered
    }

    pub(super) fn seen(&self) -> IdSetDigest {
        self.seen
    }

    pub(super) fn held(&self) -> u64 {
        self.ring.len() as u64
    }

    pub(super) fn tail(&self) -> Position {
        self.ordered + self.held()
    }

    pub(super) fn sealed(&self) -> SealedState {
        SealedState { ordered: self.ordered, held: self.held() }
    }

    /// Whether the session is forgotten and too old to return.
    pub(super) fn is_too_old(&self, session: SessionId) -> bool {
        self.sessions.has_expired(session, self.ordered, self.config.session_idle_positions)
    }

    /// Whether an unknown session may still begin.
    pub(super) fn may_begin(&self, session: SessionId) -> bool {
        !self.is_too_old(session) && !self.is_ahead(session)
    }

    /// Whether the session's id claims an opening above any plausible tail.
    pub(super) fn is_ahead(&self, session: SessionId) -> bool {
        self.sessions.is_ahead(session, self.ordered)
    }

    /// Whether the table is full for an unknown session.
    pub(super) fn has_no_room_for(&self, session: SessionId) -> bool {
        self.sessions.next(session).is_none() && self.sessions.len() >= self.options.limits.max_sessions
    }

    pub(super) fn exceeds(&self, excess: Excess) -> bool {
        match excess {
            Excess::Sessions => self.sessions.len() > self.options.limits.max_sessions,
            Excess::NoOps => self.sessions.void_runs() > self.options.limits.void_runs,
        }
    }

    pub(super) fn admission(&self, run: IdRun) -> Admission {
        let idle = self.config.session_idle_positions;
        match self.sessions.admission(run, self.ordered, idle) {
            Admission::OutOfOrder { .. } if self.options.mutates(Mutation::GapsAdmitted) => {
                Admission::Admit { skip: 0 }
            }
            Admission::Admit { .. } if self.has_no_room_for(run.session) => Admission::Full,
            decision => decision,
        }
    }

    /// Whether the session must wait until its client has learned of its no-ops, because their
    /// number reaches the room left for no-ops.
    pub(super) fn refuses_for_voids(&mut self, session: SessionId, lowest: u64) -> bool {
        let most = self.options.limits.void_runs;
        let has_too_many = |sessions: &Sessions| {
            let own = sessions.voids_in_doubt(session);
            own > 0 && own >= most.saturating_sub(sessions.void_runs())
        };
        if !has_too_many(&self.sessions) {
            return false;
        }
        self.sessions.raise_lowest(session, lowest);
        has_too_many(&self.sessions)
    }

    /// Truncates `entries`, numbered from `first` on, to the number that fits. Returns why.
    pub(super) fn cut(
        &self,
        session: SessionId,
        first: u64,
        disk: Disk,
        entries: &mut Vec<Content>,
    ) -> Option<Cut> {
        entries.truncate(usize::try_from(self.sessions.room(session, first)).unwrap_or(usize::MAX));
        let (fits, cut) = match self.frozen.contains_key(&session) && !entries.is_empty() {
            // The session's end, in progress, decides these numbers.
            true => (0, Some(Cut::NoRoom)),
            false => self.room_for(session, disk, entries),
        };
        entries.truncate(fits);
        cut
    }

    fn room_for(&self, session: SessionId, disk: Disk, entries: &[Content]) -> (usize, Option<Cut>) {
        let limits = self.options.limits;
        let no_bytes = self.options.mutates(Mutation::NeverBusy);
        let ring_bytes = if no_bytes { usize::MAX } else { limits.ring_bytes };
        let (mut bytes, mut more) = (self.ring.bytes(), 0);
        for (index, entry) in entries.iter().enumerate() {
            if matches!(entry, Content::Record(record) if self.config.is_too_large(record)) {
                return (index, Some(Cut::TooLarge));
            }
            bytes += entry.size();
            more += entry.size();
            let full = self.ring.len() + index >= limits.ring_records || bytes > ring_bytes;
            let full = full || disk.is_pressed || !self.ring.leaves_room(session, more, ring_bytes);
            if full && !(index == 0 && self.ring.is_empty()) || disk.is_full {
                return (index, Some(Cut::NoRoom));
            }
        }
        (entries.len(), None)
    }

    /// Whether to remember a session refused for lack of room.
    pub(super) fn notes_refused(&self, session: SessionId) -> bool {
        // A session opened far above `ordered` may be unknown to other members: it must not raise
        // the floor here.
        session.opened_at() <= self.ordered + limits::MOST_SESSION_AHEAD / 2
    }

    /// Holds a session's entries, numbered from `first` on, written with `ticket`.
    pub(super) fn hold(
        &mut self,
        since: Time,
        session: SessionId,
        (first, lowest): (u64, u64),
        entries: Vec<Content>,
        ticket: Ticket,
    ) {
        let known = self.sessions.next(session).unwrap_or(0);
        assert!(
            entries.is_empty() || first >= known || self.options.mutates(Mutation::JournaledAgain),
            "session {session} continues with {known}: {first} is held or ordered already"
        );
        let next = first + entries.len() as u64;
        self.sessions.admit(session, next, lowest, self.ordered);
        self.seen.add(session, first..next);
        for (number, content) in (first..).zip(entries) {
            self.ring.push(Entry { id: RecordId { session, number }, content, ticket, since });
        }
    }

    /// Drops the entries of `runs`, whose positions begin at `first`. `follows`: this replica's
    /// leader may have ordered more.
    pub(super) fn order(&mut self, first: Position, runs: &[BoundIds], follows: bool) {
        assert!(
            first == self.ordered || self.options.mutates(Mutation::TruncatesUnordered),
            "positions from {first} on are ordered, but those below end at {}",
            self.ordered
        );
        let mut position = first;
        for bound in runs {
            let run = bound.ids;
            self.ring.drop_run(run);
            let next = self.sessions.next(run.session).unwrap_or(0);
            self.seen.add(run.session, next.max(run.first)..run.end());
            self.sessions.apply(*bound, position);
            position += run.count;
        }
        self.ordered = position;
        let idle = self.config.session_idle_positions;
        self.sessions.sweep(self.ordered, idle, follows, |session| self.ring.holds(session));
    }

    /// Stops admission to a session. Returns its next number, or its end if it has ended.
    pub(super) fn freeze(&mut self, session: SessionId) -> u64 {
        // An ended session stays frozen: the question is late, or the leader has forgotten the end.
        if let Some(end) = self.sessions.end_of(session) {
            return end;
        }
        // Repeats the first answer, even if this replica forgot the session since: the leader may
        // have used or missed that answer. Numbers that the leader has bound since count, too.
        let next = self.sessions.next(session).unwrap_or(0);
        next.max(*self.frozen.entry(session).or_insert(next))
    }

    /// Ends the freeze: the session has ended or is forgotten.
    pub(super) fn thaw(&mut self, session: SessionId) {
        self.frozen.remove(&session);
    }

    pub(super) fn end(&mut self, session: SessionId, at: u64) {
        // `at` is not compared with the present next number: a leader that had forgotten the
        // session may have bound more of it.
        let is_too_low = self.frozen.get(&session).is_some_and(|frozen| at < *frozen);
        let may_be = self.options.mutates(Mutation::EndedAtLeadersNumber);
        assert!(!is_too_low || may_be, "session {session} ends at {at}, below its frozen end here");
        self.sessions.end(session, at);
    }

    /// Notes the successor, which becomes known before its first append.
    pub(super) fn succeed(&mut self, session: SessionId, successor: SessionId) {
        let successor = self.sessions.succeed(session, successor);
        if self.may_begin(successor) {
            self.open(successor);
        }
    }

    pub(super) fn open(&mut self, session: SessionId) {
        self.sessions.open(session, self.ordered);
    }

    /// Idle sessions to forget so that the limit is met, the least recently bound first. None was
    /// bound at or above `stable`.
    pub(super) fn superfluous(
        &self,
        excess: Excess,
        stable: Position,
        is_ending: impl Fn(SessionId) -> bool,
    ) -> Vec<SessionId> {
        let limits = &self.options.limits;
        let is_kept =
            |session| self.ring.holds(session) || self.frozen.contains_key(&session) || is_ending(session);
        match excess {
            Excess::Sessions => {
                let (most, stable_and_ordered) = (limits.max_sessions, (stable, self.ordered));
                let oldest = self.sessions.least_recent(stable_and_ordered, most, is_kept);
                if oldest.is_empty() { self.sessions.opened_lowest(stable, most, is_kept) } else { oldest }
            }
            Excess::NoOps => self.sessions.most_voids(stable, limits.void_runs, is_kept),
        }
    }

    /// Forgets sessions permanently; none may have entries here.
    pub(super) fn expire(&mut self, sessions: &[SessionId]) {
        let is_held = |id: &SessionId| self.ring.holds(*id);
        assert!(!sessions.iter().any(is_held), "no session with held records is forgotten");
        self.sessions.expire(sessions);
        if self.options.mutates(Mutation::ForgottenWithoutFloor) {
            self.sessions.lower_floor();
        }
    }

    /// Forgets a session with its entries. No entry was acknowledged by all members.
    pub(super) fn forget(&mut self, session: SessionId) {
        let next = self.sessions.next(session).unwrap_or(0);
        self.ring.drop_run(IdRun { session, first: 0, count: next });
        self.sessions.expire(&[session]);
    }

    /// Replaces the previous view's state by a new view's initial state.
    pub(super) fn adopt(&mut self, ordered: Position, sessions: Sessions) {
        self.ring.clear();
        self.frozen.clear();
        self.seen = IdSetDigest::default();
        self.ordered = ordered;
        let own = std::mem::replace(&mut self.sessions, sessions);
        self.sessions.close_ended(self.ordered, self.config.session_idle_positions);
        if self.options.mutates(Mutation::FilterUnion) {
            self.sessions.join(own);
        }
        if self.options.mutates(Mutation::SessionEndLost) {
            self.sessions.forget_ends();
        }
        if self.options.mutates(Mutation::SuccessorForgotten) {
            self.sessions.forget_successors();
        }
        if self.options.mutates(Mutation::VoidsForgotten) {
            self.sessions.forget_voids();
        }
        if self.options.mutates(Mutation::FilterForgotten) {
            self.sessions = Sessions::default();
        }
    }

    pub(super) fn restore(
        &mut self,
        ordered: Position,
        sessions: Sessions,
        entries: Vec<(RecordId, Content)>,
    ) {
        (self.ordered, self.sessions) = (ordered, sessions);
        self.ring.clear();
        for (id, content) in entries {
            self.ring.push(Entry { id, content, ticket: Ticket(0), since: Time::ZERO });
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::ShardId;
    use seriatim_model::limits::Limits;

    use super::*;

    fn session(n: u64) -> SessionId {
        SessionId::new(Position(0), n)
    }

    fn run(session: SessionId, first: u64, count: u64) -> IdRun {
        IdRun { session, first, count }
    }

    fn ids(count: u64) -> Vec<Content> {
        (0..count).map(|_| Content::Put { shard: ShardId(0), bytes: 1 }).collect()
    }

    fn log(limits: Limits) -> LogState {
        LogState::new(LogConfig::default(), Options { limits, ..Options::default() })
    }

    #[test]
    fn a_record_is_held_or_ordered_and_taken_for_new_in_neither_case() {
        let (mut log, a) = (log(Limits::default()), session(1));
        log.hold(Time::ZERO, a, (0, 0), ids(3), Ticket(1));
        log.order(Position(0), &[BoundIds { ids: run(a, 0, 2), is_void: false }], false);
        assert_eq!((log.ordered(), log.held(), log.tail()), (Position(2), 1, Position(3)));
        assert_eq!(log.admission(run(a, 0, 4)), Admission::Admit { skip: 3 });
        // Records that the leader ordered are known even if never held here.
        log.order(Position(2), &[BoundIds { ids: run(a, 2, 3), is_void: false }], true);
        assert_eq!((log.held(), log.admission(run(a, 3, 2))), (0, Admission::Admit { skip: 2 }));
    }

    #[test]
    #[should_panic(expected = "is held or ordered already")]
    fn what_is_held_is_not_held_again() {
        let mut log = log(Limits::default());
        log.hold(Time::ZERO, session(1), (0, 0), ids(3), Ticket(1));
        log.hold(Time::ZERO, session(1), (2, 0), ids(1), Ticket(2));
    }

    #[test]
    #[should_panic(expected = "those below end at 0")]
    fn positions_are_ordered_without_gaps() {
        log(Limits::default()).order(Position(1), &[], false);
    }

    #[test]
    fn nothing_is_added_to_a_session_that_is_frozen_until_it_ends() {
        let (mut log, a) = (log(Limits::default()), session(1));
        log.hold(Time::ZERO, a, (0, 0), ids(3), Ticket(1));
        assert_eq!(log.freeze(a), 3);
        let mut more = ids(1);
        assert_eq!((log.cut(a, 3, Disk::default(), &mut more), more.len()), (Some(Cut::NoRoom), 0));
        log.end(a, 5);
        log.thaw(a);
        assert_eq!(log.freeze(a), 5, "where it ended");
        let mut more = ids(4);
        log.cut(a, 3, Disk::default(), &mut more);
        assert_eq!(more.len(), 2, "a member may forward missing appends below the end");
    }

    #[test]
    fn a_member_that_is_asked_again_says_the_same_although_it_has_forgotten_the_session() {
        let (mut log, a) = (log(Limits::default()), session(1));
        log.hold(Time::ZERO, a, (0, 0), ids(3), Ticket(1));
        log.order(Position(0), &[BoundIds { ids: run(a, 0, 3), is_void: false }], false);
        assert_eq!(log.freeze(a), 3);
        log.expire(&[a]);
        assert_eq!(log.sessions().next(a), None);
        assert_eq!(log.freeze(a), 3, "the leader missed the first answer");
    }

    #[test]
    #[should_panic(expected = "below its frozen end here")]
    fn a_session_does_not_end_below_what_is_held() {
        let mut log = log(Limits::default());
        log.hold(Time::ZERO, session(1), (0, 0), ids(3), Ticket(1));
        log.freeze(session(1));
        log.end(session(1), 2);
    }

    #[test]
    fn sessions_are_forgotten_of_which_nothing_is_at_work() {
        let mut log = log(Limits { max_sessions: 1, ..Limits::default() });
        for n in 1..5 {
            log.hold(Time::ZERO, session(n), (0, 0), ids(1), Ticket(n));
        }
        for n in 2..5 {
            let runs = [BoundIds { ids: run(session(n), 0, 1), is_void: false }];
            log.order(Position(n - 2), &runs, false);
        }
        log.freeze(session(2));
        let superfluous = log.superfluous(Excess::Sessions, Position(3), |id| id == session(3));
        assert_eq!(superfluous, [session(4)], "1 is held, 2 is frozen, 3 is ending");
        log.expire(&superfluous);
        assert!(log.is_too_old(session(4)) && log.exceeds(Excess::Sessions));
    }
}
