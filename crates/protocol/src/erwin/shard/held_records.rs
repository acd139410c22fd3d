//! A replica's bookkeeping of records that were put before they got positions (LazyLog §5;
//! docs/design/erwin.md, "Erwin-st").
//!
//! The store has the records, this module their ids. A *held* id becomes *placed* when it gets a
//! position, and is forgotten when the position is final. An id whose record no replica has becomes
//! *void*: its position is a no-op, and the replica refuses its record for the rest of the view. In
//! later views the sequencing replicas refuse it: shards report void ids to the sender of a push,
//! and a new view takes over the reported ids with the state of the sessions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use seriatim_model::limits::Limits;
use seriatim_model::storage::Ordered;
use seriatim_model::{
    Address, IdRun, NodeId, Peer, Position, SessionId, ShardId, Ticket, Time, ViewHistory, ViewNumber, limits,
};

use crate::parts::junk;
use crate::parts::timeouts::RESEND_MOST;
use crate::parts::{Backoff, HeldIds, IdSet};

/// Number of orphan searches within the time that records may stay without positions.
const LOOKS: u32 = 4;
/// Size above which long-silent entries of `heard` are pruned.
const MOST_HEARD: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(super) struct HeldRecords {
    /// Ids with stored records and without final positions.
    ids: HeldIds,
    /// No-ops whose positions are not final.
    voids: IdSet,
    /// Permanent no-ops of this view.
    refused: IdSet,
    /// In this view: a session's ids below this number have final positions.
    decided: BTreeMap<SessionId, u64>,
    /// Each session's last message.
    heard: BTreeMap<SessionId, Heard>,
    /// Size of `heard` at the next pruning.
    prune_at: usize,
    /// Twice the recent maximum delay of missing records.
    lateness: Duration,
    /// Stable bound since which this replica tracks session activity.
    since: Option<Position>,
    /// Silent sessions whose records have no positions.
    silent: BTreeMap<SessionId, Silence>,
    /// Next search for silent sessions.
    orphan_check_at: Time,
    /// Known session ends, in this view.
    ended: BTreeMap<SessionId, u64>,
    pub(super) waiting: BTreeMap<(ViewNumber, Position), Waiting>,
    /// Other replicas' requests while the store searches the records.
    pub(super) questions: BTreeMap<Ticket, Question>,
    pub(super) last_find: Ticket,
    /// Records being written, oldest first.
    pub(super) puts: VecDeque<(Ticket, Address, IdRun)>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Time,
    from: Peer,
    is_connected: bool,
}

/// A batch with records missing here.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) part: Duty,
    pub(super) first: Position,
    pub(super) runs: Vec<Ordered>,
    pub(super) since: Time,
    /// When to ask the other replicas for the records.
    pub(super) asks: Backoff,
    /// Latest end of the wait for an active client.
    pub(super) at_most: Time,
    /// Whether a record missing everywhere becomes a no-op: its client is disconnected or silent.
    pub(super) is_last_call: bool,
    /// Next replica to ask.
    pub(super) turn: usize,
    /// Ids that each other replica reported missing.
    pub(super) missing_at: BTreeMap<NodeId, IdSet>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    Primary { leader: Address, backups: Vec<seriatim_model::Member> },
    Backup { primary: Address, others: Vec<NodeId> },
}

#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) asker: Address,
    pub(super) view: ViewNumber,
    pub(super) batch: Position,
    pub(super) missing: Vec<IdRun>,
    pub(super) voids: Vec<IdRun>,
}

/// A put's ids by state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sorted {
    /// Ids that must be stored.
    pub(super) fresh: Vec<IdRun>,
    /// Ids that are stored, or were.
    pub(super) known: Vec<IdRun>,
    /// Permanent no-ops.
    pub(super) refused: Vec<IdRun>,
}

/// A batch's runs, split at void ids.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) runs: Vec<Ordered>,
    /// Ids of this shard without records here.
    pub(super) missing: Vec<IdRun>,
}

#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Time,
    /// When to ask the leader again.
    asks: Backoff,
}

impl Silence {
    fn since(now: Time) -> Self {
        Self { since: now, asks: Backoff::new(now, limits::RESEND_AFTER, RESEND_MOST) }
    }
}

impl HeldRecords {
    /// State after a restart, from the ids in the store.
    pub(super) fn recover(put: Vec<IdRun>, void: Vec<IdRun>) -> Self {
        Self { ids: HeldIds::recover(put), voids: void.into_iter().collect(), ..Self::default() }
    }

    /// Adds ids whose records are stored, or being written.
    pub(super) fn hold(&mut self, ids: IdRun, from: Option<Peer>) {
        self.ids.records_mut().add(ids, from);
    }

    /// Removes ids whose records are deleted, or were never stored.
    pub(super) fn release(&mut self, ids: IdRun) {
        self.ids.release(ids);
    }

    /// Whether the session has expired: enough positions became final without it that no sequencing
    /// replica admits it. This replica may have forgotten which of its ids are void.
    pub(super) fn expires(&mut self, stable: Position, session: SessionId, idle_positions: u64) -> bool {
        let since = *self.since.get_or_insert(stable);
        let last = session.opened_at().max(since);
        !self.ids.is_active(session) && stable.since(last) > idle_positions
    }

    pub(super) fn hear(
        &mut self,
        now: Time,
        stable: Position,
        (from, session): (Peer, SessionId),
        limits: Limits,
    ) {
        self.note_active(stable, session, limits.max_sessions);
        self.silent.remove(&session);
        self.ids.records_mut().hear(session, from);
        if self.ids.records().count() == 0 {
            self.orphan_check_at = now + limits.orphan_check_after / LOOKS;
        } else if self.is_scarce(limits) {
            self.orphan_check_at = self.orphan_check_at.min(now + limits.missing_connected / LOOKS);
        }
        if self.heard.len() >= self.prune_at.max(MOST_HEARD) {
            self.heard.retain(|_, heard| now < heard.at + limits.missing_connected);
            // With this many active sessions, do not scan at every message.
            self.prune_at = 2 * self.heard.len();
        }
        self.heard.insert(session, Heard { at: now, from, is_connected: true });
    }

    /// Notes that a peer's clients send nothing more, unless they return.
    pub(super) fn disconnected(&mut self, now: Time, peer: Peer) {
        for heard in self.heard.values_mut().filter(|heard| heard.from == peer && heard.is_connected) {
            (heard.at, heard.is_connected) = (now, false);
        }
        self.ids.records_mut().disconnected(peer);
        let soon = now + limits::MISSING_FOR;
        for waiting in self.waiting.values_mut().filter(|waiting| !waiting.is_last_call) {
            waiting.asks.due_by(soon);
        }
    }

    /// Delay before asking other replicas for missing records.
    pub(super) fn timeout(&self, least: Duration) -> Duration {
        self.lateness.max(least)
    }

    /// Updates the lateness, which fades by an eighth per complete batch.
    pub(super) fn completes(&mut self, now: Time, waiting: &Waiting, limits: Limits) {
        let took = now - waiting.since;
        self.lateness = (self.lateness - self.lateness / 8).max(took * 2).min(limits.missing_connected);
    }

    /// Ids that batches wait for.
    pub(super) fn wanted(&self, shard: ShardId) -> IdSet {
        self.waiting.values().flat_map(|waiting| self.resolve(shard, waiting).missing).collect()
    }

    pub(super) fn orphan_check_at(&self) -> Option<Time> {
        (self.ids.records().count() > 0).then_some(self.orphan_check_at)
    }

    /// Overdue sessions, the longest silent first, each with the span of its numbers without
    /// positions. While room is scarce, a disconnected client's session is overdue sooner.
    /// Questions about one session follow a backoff.
    pub(super) fn suspected_orphans(&mut self, now: Time, limits: Limits) -> Vec<IdRun> {
        let is_scarce = self.is_scarce(limits);
        let timeout = |is_left| if is_left { limits.missing_connected } else { Duration::MAX };
        let timeout = |is_left: bool| timeout(is_left && is_scarce).min(limits.orphan_check_after);
        self.orphan_check_at = now + timeout(true) / LOOKS;
        let mut spans: BTreeMap<SessionId, IdRun> = BTreeMap::new();
        for ids in self.ids.unplaced() {
            let span = spans.entry(ids.session).or_insert(ids);
            let end = span.end().max(ids.end());
            span.first = span.first.min(ids.first);
            span.count = end - span.first;
        }
        self.silent.retain(|session, _| spans.contains_key(session));
        let mut overdue = vec![];
        for (session, span) in spans {
            let silence = self.silent.entry(session).or_insert(Silence::since(now));
            if now >= silence.since + timeout(self.ids.records().is_left(session)) && silence.asks.is_due(now)
            {
                overdue.push((silence.since, span));
            }
        }
        overdue.sort_unstable();
        overdue.truncate(limits::MAX_ORPHAN_SESSIONS);
        for (_, span) in &overdue {
            self.silent.get_mut(&span.session).expect("it was just seen").asks.tried(now);
        }
        overdue.into_iter().map(|(_, span)| span).collect()
    }

    /// Only numbers in `first..end` of a session may still get positions: releases and returns the
    /// others. Later puts at or above `end` are ignored.
    pub(super) fn decide(&mut self, session: SessionId, first: u64, end: u64) -> Vec<IdRun> {
        if end < u64::MAX && self.ended.len() < MOST_HEARD {
            self.ended.insert(session, end);
        }
        let below = IdRun { session, first: 0, count: first };
        let above = IdRun { session, first: end, count: u64::MAX - end };
        let mut orphans = self.ids.unplaced();
        orphans.retain(|ids| ids.session == session);
        let decided: IdSet = [below, above].into_iter().collect();
        let orphans: Vec<IdRun> = orphans.into_iter().flat_map(|ids| decided.within(ids)).collect();
        orphans.iter().for_each(|ids| self.release(*ids));
        orphans
    }

    /// Notes a session as active. If the table forgets idle sessions, tracking restarts at
    /// `stable`, so that none of them seems expired.
    fn note_active(&mut self, stable: Position, session: SessionId, max_sessions: usize) {
        self.ids.note_active(stable, session);
        let refused = || self.refused.iter().map(|ids| ids.session).collect();
        for session in self.ids.forget_idle(max_sessions, refused) {
            self.decided.remove(&session);
            self.since = self.since.max(Some(stable));
        }
    }

    /// Whether this replica refuses the whole session as expired.
    fn is_refused_whole(&self, stable: Position, session: SessionId, idle_positions: u64) -> bool {
        self.since.is_some_and(|since| stable.since(session.opened_at().max(since)) > idle_positions)
    }

    /// Time until which clients of missing ids count as sending. An unheard-of client may be new:
    /// its first records wait behind those of others.
    pub(super) fn sending_until(&self, waiting: &Waiting, ids: &[IdRun], limits: Limits) -> Time {
        let connected = limits.missing_connected;
        let until = ids.iter().map(|ids| match self.heard.get(&ids.session) {
            Some(Heard { at, is_connected: false, .. }) => *at + limits::MISSING_FOR,
            Some(Heard { at, .. }) => *at + connected,
            None => waiting.since + connected,
        });
        until.max().unwrap_or(Time::ZERO)
    }

    /// Number of records that a client may still put.
    pub(super) fn room(&self, client: Peer, limits: Limits) -> u64 {
        self.ids.records().room(client, limits.held_records)
    }

    /// Like `room`, plus the reserve for ids that fill gaps.
    pub(super) fn room_for(&self, client: Peer, ids: IdRun, limits: Limits) -> u64 {
        match self.ids.records().fill_a_gap(ids) {
            true => self.ids.records().reserve(client, limits.held_records),
            false => self.room(client, limits),
        }
    }

    /// Whether connected clients may soon lack room.
    fn is_scarce(&self, limits: Limits) -> bool {
        self.ids.records().count() > limits.held_records / 2
    }

    pub(super) fn held(&self, ids: IdRun) -> Vec<IdRun> {
        self.ids.within(ids)
    }

    pub(super) fn missing(&self, ids: IdRun) -> Vec<IdRun> {
        self.ids.missing(ids)
    }

    pub(super) fn split_void(&self, ids: IdRun) -> (Vec<IdRun>, Vec<IdRun>) {
        (self.voids.within(ids), self.voids.missing(ids))
    }

    pub(super) fn make_void(&mut self, ids: Vec<IdRun>) {
        self.voids.extend(ids);
    }

    pub(super) fn sort(&self, ids: IdRun, refuses_early: bool) -> Sorted {
        let mut sorted = Sorted { refused: self.refused.within(ids), ..Sorted::default() };
        if refuses_early {
            sorted.refused.extend(self.voids.within(ids));
        }
        // Records after their session's end are neither stored nor answered.
        let end = self.ended.get(&ids.session).copied().unwrap_or(u64::MAX);
        let ids = ids.head(end.saturating_sub(ids.first).min(ids.count));
        for ids in self.refused.missing(ids) {
            // No-ops that are not permanent yet are not answered, either.
            for ids in self.voids.missing(ids) {
                sorted.known.extend(self.held(ids));
                for ids in self.missing(ids) {
                    let decided = self.decided.get(&ids.session).copied().unwrap_or(0);
                    let below = decided.saturating_sub(ids.first).min(ids.count);
                    sorted.known.extend((below > 0).then(|| ids.head(below)));
                    sorted.fresh.extend((below < ids.count).then(|| ids.tail(below)));
                }
            }
        }
        sorted
    }

    /// Splits a batch into placeable and missing ids. A primary decides by its own void ids; a
    /// backup obeys.
    pub(super) fn resolve(&self, shard: ShardId, waiting: &Waiting) -> Resolved {
        let mut resolved = Resolved::default();
        let decides = matches!(waiting.part, Duty::Primary { .. });
        for run in &waiting.runs {
            if run.shard != shard || run.is_void {
                resolved.runs.push(*run);
                continue;
            }
            let parts = if decides { self.voids.split(run.ids) } else { vec![(run.ids, false)] };
            for (ids, is_void) in parts {
                resolved.runs.push(Ordered { ids, is_void, ..*run });
                if !is_void {
                    resolved.missing.extend(self.missing(ids));
                }
            }
        }
        resolved
    }

    /// Notes the ids' positions, from `first` on.
    pub(super) fn place(&mut self, view: ViewNumber, first: Position, shard: ShardId, runs: &[Ordered]) {
        for run in runs {
            if junk::is_of_nobody(run.ids.session) {
                // Junk: no client's record.
            } else if run.shard == shard && run.is_void {
                self.voids.add(run.ids);
            } else if run.shard == shard {
                // A failed attempt may have made these ids void.
                self.voids.remove(run.ids);
            }
        }
        self.ids.place(view, first, runs);
    }

    /// Forgets ids with positions below `stable`. Returns orphans: earlier ids of these sessions,
    /// held here although their final positions are on another shard.
    pub(super) fn finish(
        &mut self,
        shard: ShardId,
        stable: Position,
        history: &ViewHistory,
        max_sessions: usize,
    ) -> Vec<IdRun> {
        let mut orphans = vec![];
        while let Some(run) = self.ids.next_final(stable, history) {
            self.note_active(stable, run.ids.session, max_sessions);
            orphans.extend(self.finish_run(shard, run));
        }
        orphans
    }

    /// Forgets sessions inactive for `idle_positions`, which no sequencing replica admits any more.
    /// Returns their orphans, which never get positions. Searches at most once in a sixteenth of
    /// these positions.
    pub(super) fn sweep(&mut self, stable: Position, idle_positions: u64) -> Vec<IdRun> {
        let Some(orphans) = self.ids.sweep(stable, idle_positions) else { return vec![] };
        self.decided.retain(|session, _| self.ids.is_active(*session));
        self.ended.retain(|session, _| self.ids.is_active(*session));
        // Keep single refused ids until their whole session is refused.
        let is_whole = |session| self.is_refused_whole(stable, session, idle_positions);
        let is_over = |session| !self.ids.is_active(session) && is_whole(session);
        self.refused = self.refused.iter().filter(|ids| !is_over(ids.session)).collect();
        orphans
    }

    fn finish_run(&mut self, shard: ShardId, run: Ordered) -> Vec<IdRun> {
        let ids = run.ids;
        let decided = self.decided.entry(ids.session).or_default();
        *decided = (*decided).max(ids.end());
        if run.shard == shard && run.is_void {
            self.refused.add(ids);
        }
        self.voids.remove(IdRun { first: 0, count: ids.end(), ..ids });
        self.ids.finish(shard, run)
    }

    /// This replica receives all ids only from position `first` on. A session without ids here may
    /// have been active below, so its inactivity counts from `first`.
    pub(super) fn enter_view(&mut self, first: Position) {
        self.since = self.since.map(|since| since.max(first));
        self.refused.clear();
        self.decided.clear();
        self.ended.clear();
    }

    /// Forgets everything: the replica is no member of the registered view, and its knowledge may
    /// be outdated. Returns the held ids without positions.
    pub(super) fn leave(&mut self) -> Vec<IdRun> {
        let unplaced = self.ids.unplaced();
        *self = Self { last_find: self.last_find, ..Self::default() };
        unplaced
    }

    pub(super) fn unplaced_count(&self) -> u64 {
        self.ids.unplaced_count()
    }

    /// Forgets batches and questions of a view that is over.
    pub(super) fn stop_waiting(&mut self) {
        self.waiting.clear();
        self.questions.clear();
    }

    /// Returns the sender and ids, if the failed write was a put.
    pub(super) fn failed(&mut self, ticket: Ticket) -> Option<(Address, IdRun)> {
        let index = self.puts.iter().position(|(written, _, _)| *written == ticket)?;
        let (_, client, ids) = self.puts.remove(index)?;
        self.release(ids);
        Some((client, ids))
    }

    pub(super) fn stored(&mut self, ticket: Ticket) {
        while self.puts.front().is_some_and(|(written, _, _)| *written <= ticket) {
            self.puts.pop_front();
        }
    }
}

impl Waiting {
    /// Replicas that may have the missing records.
    pub(super) fn others(&self) -> Vec<NodeId> {
        match &self.part {
            Duty::Primary { backups, .. } => backups.iter().map(|backup| backup.node).collect(),
            Duty::Backup { others, .. } => others.clone(),
        }
    }

    /// Replicas to ask now: one at a time, since answers carry records; all at the last call.
    pub(super) fn next_asked(&mut self) -> Vec<NodeId> {
        let others = self.others();
        if self.is_last_call || self.missing_at.len() >= others.len() {
            // The replicas may have received records since.
            self.missing_at.clear();
        }
        if self.is_last_call || others.is_empty() {
            return others;
        }
        self.turn += 1;
        vec![others[(self.turn - 1) % others.len()]]
    }

    /// Records are still missing. If this replica sent some, it probably has the rest: ask it
    /// again. Otherwise ask the next.
    pub(super) fn was_answered(&mut self, now: Time, node: NodeId, helped: bool) {
        let others = self.others();
        if helped {
            self.asks.restart(now);
            self.turn = others.iter().position(|other| *other == node).unwrap_or(0);
        } else if !self.is_last_call && self.missing_at.len() < others.len() {
            self.asks.due_by(now);
        }
    }

    /// Postpones the next request: there was no room for the received records.
    pub(super) fn had_no_room(&mut self, now: Time) {
        self.asks.postpone(now);
    }

    pub(super) fn missing_everywhere(&self, ids: Vec<IdRun>) -> Vec<IdRun> {
        self.others().into_iter().fold(ids, |ids, node| {
            let missing = self.missing_at.get(&node);
            ids.into_iter().flat_map(|run| missing.map_or(vec![], |missing| missing.within(run))).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::ConnectionId;

    use super::*;

    const IDLE: u64 = 100;

    #[test]
    fn the_leader_is_asked_about_a_session_less_and_less_often() {
        let (mut held, ids) = put_at_10(Position(0));
        let limits = Limits { orphan_check_after: Duration::from_millis(50), ..Limits::default() };
        held.orphan_check_at = Time::ZERO;
        let mut asked = vec![];
        for ms in (0..8000).step_by(10) {
            let now = Time::ZERO + Duration::from_millis(ms);
            if held.orphan_check_at().is_some_and(|at| now >= at)
                && !held.suspected_orphans(now, limits).is_empty()
            {
                asked.push(ms);
            }
        }
        assert!(asked.len() < 10 && asked.len() > 5, "{asked:?}");
        assert!(asked.windows(2).all(|pair| pair[1] - pair[0] >= 100), "{asked:?}");
        let heard = Time::ZERO + Duration::from_secs(9);
        held.hear(heard, Position(10), (Peer::Client(ConnectionId(1)), ids.session), limits);
        assert_eq!(held.suspected_orphans(heard, limits), []);
        let asked = held.suspected_orphans(heard + Duration::from_millis(60), limits);
        assert_eq!(asked, [ids], "a session that was heard again is silent again");
    }

    /// Number 0 of a session was put when the stable bound was 10.
    fn put_at_10(opened_at: Position) -> (HeldRecords, IdRun) {
        let mut held = HeldRecords::default();
        let ids = IdRun { session: SessionId::new(opened_at, 7), first: 0, count: 1 };
        let client = Peer::Client(ConnectionId(1));
        held.hear(Time::ZERO, Position(10), (client, ids.session), Limits::default());
        held.hold(ids, Some(client));
        (held, ids)
    }

    #[test]
    fn what_is_held_of_a_session_goes_when_nobody_can_admit_it_any_more() {
        let (mut held, ids) = put_at_10(Position(3));
        assert_eq!(held.sweep(Position(10 + IDLE), IDLE), []);
        assert_eq!(held.sweep(Position(10 + 2 * IDLE), IDLE), [ids]);
    }

    #[test]
    fn nothing_is_taken_of_a_session_that_may_be_forgotten() {
        let (mut held, ids) = put_at_10(Position(3));
        let session = ids.session;
        assert!(!held.expires(Position(10), session, IDLE));
        held.sweep(Position(10 + 2 * IDLE), IDLE);
        assert!(held.expires(Position(10 + 2 * IDLE), session, IDLE));
        let later = SessionId::new(Position(10 + IDLE), 8);
        assert!(!held.expires(Position(10 + 2 * IDLE), later, IDLE));
        // A new replica does not know the session's past.
        assert!(!HeldRecords::default().expires(Position(10 + 2 * IDLE), session, IDLE));
    }

    #[test]
    fn who_was_away_does_not_take_for_over_what_it_missed() {
        let (mut held, session) = (HeldRecords::default(), SessionId::new(Position(3), 7));
        assert!(!held.expires(Position(10), session, IDLE));
        // A view begins far above this replica's stable bound.
        let (first, start) = (Position(10 + 3 * IDLE), Position(12 + 3 * IDLE));
        held.enter_view(first);
        assert!(!held.expires(start, session, IDLE));
        assert!(held.expires(first + IDLE + 1, session, IDLE));
    }

    #[test]
    fn a_session_that_was_opened_far_above_what_was_final_is_kept_for_as_long() {
        let (mut held, ids) = put_at_10(Position(90));
        assert_eq!(held.sweep(Position(90 + IDLE), IDLE), []);
        assert_eq!(held.sweep(Position(90 + 2 * IDLE), IDLE), [ids]);
    }
}
