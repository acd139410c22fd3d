//! A replica's bookkeeping of records that were put before they got positions (LazyLog §5;
//! docs/design/erwin.md, "Erwin-st").
//!
//! The store has the records; here are only their ids. An id goes from *held* to *placed*, when the
//! sequencing layer gives it a position, and is forgotten when that position is final. An id whose
//! record no replica has becomes *void*: its position is a no-op, and from then on the replica
//! refuses its record. It is void for the rest of the view; in the next one the sequencing replicas
//! know, because the shards tell the sender of a push which of its ids are void, and that travels
//! with the sessions.

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

/// How often a replica looks for possible orphans within the time that records may lie here without
/// positions.
const LOOKS: u32 = 4;
/// From how many sessions on a replica forgets when it last heard of the ones that were silent for
/// long.
const MOST_HEARD: usize = 4096;

/// Ids of records, what happened to them, and batches that wait for some.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldRecords {
    /// Ids whose records are in the store, and that have no final position.
    ids: HeldIds,
    /// Ids that became no-ops at positions that are not final yet.
    voids: IdSet,
    /// Ids that became no-ops for good, in this view.
    refused: IdSet,
    /// In this view: below which number the ids of a session have final positions.
    decided: BTreeMap<SessionId, u64>,
    /// When something last came of a session, as long as that may matter.
    heard: BTreeMap<SessionId, Heard>,
    /// At how many entries of `heard` the next search is due for those that do not matter any more.
    prune_at: usize,
    /// How late records have lately come at most, twice.
    lateness: Duration,
    /// The stable bound from which on it follows what sessions do.
    since: Option<Position>,
    /// Since when records of a session have been lying here without positions, and nothing came.
    silent: BTreeMap<SessionId, Silence>,
    /// When to look next for such sessions.
    orphan_check_at: Time,
    /// In this view: the number that a session ended at, as far as that is worth remembering.
    ended: BTreeMap<SessionId, u64>,
    /// Batches that wait for records.
    pub(super) waiting: BTreeMap<(ViewNumber, Position), Waiting>,
    /// Records that are being looked for, to be given to another replica.
    pub(super) questions: BTreeMap<Ticket, Question>,
    pub(super) last_find: Ticket,
    /// Records on their way to the store, oldest first.
    pub(super) puts: VecDeque<(Ticket, Address, IdRun)>,
}

/// The last word of a session's client.
#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Time,
    from: Peer,
    /// Whether the connection that it came over still stands.
    is_connected: bool,
}

/// A batch of which some records are missing here.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) part: Duty,
    /// The first position.
    pub(super) first: Position,
    pub(super) runs: Vec<Ordered>,
    pub(super) since: Time,
    /// When to ask the other replicas, for the first time or again.
    pub(super) asks: Backoff,
    /// Until when a client that is still sending is waited for at most.
    pub(super) at_most: Time,
    /// Whether a record that all of them miss becomes a no-op: its client is gone, or was silent
    /// for too long.
    pub(super) is_last_call: bool,
    /// Which of the others is asked next, unless all are.
    pub(super) turn: usize,
    /// The ids whose records each of the others said that it does not have.
    pub(super) missing_at: BTreeMap<NodeId, IdSet>,
}

/// This replica's part in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    Primary { leader: Address, backups: Vec<seriatim_model::Member> },
    Backup { primary: Address, others: Vec<NodeId> },
}

/// Another replica asked for records.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) asker: Address,
    pub(super) view: ViewNumber,
    pub(super) batch: Position,
    pub(super) missing: Vec<IdRun>,
    pub(super) voids: Vec<IdRun>,
}

/// The ids of a put, sorted by what is known of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sorted {
    /// Nothing: these are to be stored.
    pub(super) fresh: Vec<IdRun>,
    /// They are stored already, or were.
    pub(super) known: Vec<IdRun>,
    /// They are no-ops for good.
    pub(super) refused: Vec<IdRun>,
}

/// The parts of a batch's runs that lie on one shard.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// The runs, with those that are void marked.
    pub(super) runs: Vec<Ordered>,
    /// Ids whose records are not here.
    pub(super) missing: Vec<IdRun>,
}

/// A session of which nothing came, although records of it have no positions.
#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Time,
    /// When the leader may be asked about it again.
    asks: Backoff,
}

impl Silence {
    fn since(now: Time) -> Self {
        Self { since: now, asks: Backoff::new(now, limits::RESEND_AFTER, RESEND_MOST) }
    }
}

impl HeldRecords {
    /// The ids that a store holds when it is opened again.
    pub(super) fn recover(put: Vec<IdRun>, void: Vec<IdRun>) -> Self {
        Self { ids: HeldIds::recover(put), voids: void.into_iter().collect(), ..Self::default() }
    }

    /// Their records are in the store, or on their way there.
    pub(super) fn hold(&mut self, ids: IdRun, from: Option<Peer>) {
        self.ids.records_mut().add(ids, from);
    }

    /// Their records are not in the store any more, or never came to be.
    pub(super) fn release(&mut self, ids: IdRun) {
        self.ids.release(ids);
    }

    /// Whether no sequencing replica admits anything of a session any more, because so many
    /// positions have become final without it: this replica may have forgotten which of its ids are
    /// void.
    pub(super) fn expires(&mut self, stable: Position, session: SessionId, idle_positions: u64) -> bool {
        let since = *self.since.get_or_insert(stable);
        let last = session.opened_at().max(since);
        !self.ids.is_active(session) && stable.since(last) > idle_positions
    }

    /// Something came of a session.
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
            // Where so many are active, not every word is worth a look at all of them.
            self.prune_at = 2 * self.heard.len();
        }
        self.heard.insert(session, Heard { at: now, from, is_connected: true });
    }

    /// A connection closed: unless its clients come back, nothing more comes from them.
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

    /// How long records may be missing before the replica asks the others for them: at least
    /// `least`, and twice as long as records were missing lately.
    pub(super) fn timeout(&self, least: Duration) -> Duration {
        self.lateness.max(least)
    }

    /// Nothing is missing of a batch any more. How late its records came is remembered, and fades
    /// by an eighth with each batch.
    pub(super) fn completes(&mut self, now: Time, waiting: &Waiting, limits: Limits) {
        let took = now - waiting.since;
        self.lateness = (self.lateness - self.lateness / 8).max(took * 2).min(limits.missing_connected);
    }

    /// The ids that batches wait for.
    pub(super) fn wanted(&self, shard: ShardId) -> IdSet {
        self.waiting.values().flat_map(|waiting| self.resolve(shard, waiting).missing).collect()
    }

    /// When to look for possible orphans.
    pub(super) fn orphan_check_at(&self) -> Option<Time> {
        (self.ids.records().count() > 0).then_some(self.orphan_check_at)
    }

    /// The sessions of which nothing came for so long although records of theirs have no positions,
    /// and of each the numbers from the lowest of these to the highest; the session that has been
    /// silent longest comes first. While room is scarce, a session whose client is gone becomes
    /// suspect sooner.
    ///
    /// The replica asks about the same session again after a backoff: the leader may have much to
    /// answer.
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

    /// Only the numbers in `first..end` of a session may still get positions. Returns the others
    /// that are held and have none, and refuses those that come later.
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

    /// Something of a session came, or became final. Where it is forgotten of others that they are
    /// active, this replica is then as one that has followed what sessions do since now, and takes
    /// none of them to be over.
    fn note_active(&mut self, stable: Position, session: SessionId, max_sessions: usize) {
        self.ids.note_active(stable, session);
        let refused = || self.refused.iter().map(|ids| ids.session).collect();
        for session in self.ids.forget_idle(max_sessions, refused) {
            self.decided.remove(&session);
            self.since = self.since.max(Some(stable));
        }
    }

    /// Whether nothing that comes of a session is taken any more, as far as that is for this
    /// replica to know.
    fn is_refused_whole(&self, stable: Position, session: SessionId, idle_positions: u64) -> bool {
        self.since.is_some_and(|since| stable.since(session.opened_at().max(since)) > idle_positions)
    }

    /// Until when the clients of these ids, which a batch waits for, count as still sending. A
    /// client that this replica never heard of may be new: its first records wait behind all that
    /// other clients sent.
    pub(super) fn sending_until(&self, waiting: &Waiting, ids: &[IdRun], limits: Limits) -> Time {
        let connected = limits.missing_connected;
        let until = ids.iter().map(|ids| match self.heard.get(&ids.session) {
            Some(Heard { at, is_connected: false, .. }) => *at + limits::MISSING_FOR,
            Some(Heard { at, .. }) => *at + connected,
            None => waiting.since + connected,
        });
        until.max().unwrap_or(Time::ZERO)
    }

    /// How many more records a client may put here.
    pub(super) fn room(&self, client: Peer, limits: Limits) -> u64 {
        self.ids.records().room(client, limits.held_records)
    }

    /// The same for such ids, which may fill gaps.
    pub(super) fn room_for(&self, client: Peer, ids: IdRun, limits: Limits) -> u64 {
        match self.ids.records().fill_a_gap(ids) {
            true => self.ids.records().reserve(client, limits.held_records),
            false => self.room(client, limits),
        }
    }

    /// Whether so much is held that clients which are still there may run out of room.
    fn is_scarce(&self, limits: Limits) -> bool {
        self.ids.records().count() > limits.held_records / 2
    }

    /// The given ids whose records are here.
    pub(super) fn held(&self, ids: IdRun) -> Vec<IdRun> {
        self.ids.within(ids)
    }

    /// The given ids whose records are not here.
    pub(super) fn missing(&self, ids: IdRun) -> Vec<IdRun> {
        self.ids.missing(ids)
    }

    /// The given ids that became no-ops, and the others.
    pub(super) fn split_void(&self, ids: IdRun) -> (Vec<IdRun>, Vec<IdRun>) {
        (self.voids.within(ids), self.voids.missing(ids))
    }

    pub(super) fn make_void(&mut self, ids: Vec<IdRun>) {
        self.voids.extend(ids);
    }

    /// Sorts the ids of a put by what is to happen to them.
    pub(super) fn sort(&self, ids: IdRun, refuses_early: bool) -> Sorted {
        let mut sorted = Sorted { refused: self.refused.within(ids), ..Sorted::default() };
        if refuses_early {
            sorted.refused.extend(self.voids.within(ids));
        }
        // Records after the end of their session are neither stored nor answered.
        let end = self.ended.get(&ids.session).copied().unwrap_or(u64::MAX);
        let ids = ids.head(end.saturating_sub(ids.first).min(ids.count));
        for ids in self.refused.missing(ids) {
            // Records of ids that are no-ops, but not for good yet, are neither stored nor
            // answered.
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

    /// Finds which of the shard's ids in a batch can be placed. A primary decides by its own void
    /// ids; a backup obeys the primary.
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

    /// Takes note that ids got the positions from `first` on.
    pub(super) fn place(&mut self, view: ViewNumber, first: Position, shard: ShardId, runs: &[Ordered]) {
        for run in runs {
            if junk::is_of_nobody(run.ids.session) {
                // No client submits that.
            } else if run.shard == shard && run.is_void {
                self.voids.add(run.ids);
            } else if run.shard == shard {
                // An attempt that died may have held it to be void.
                self.voids.remove(run.ids);
            }
        }
        self.ids.place(view, first, runs);
    }

    /// Positions below `stable` are final: forgets their ids, and returns the orphans: ids before
    /// them in their sessions, whose positions are final as well, on another shard.
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

    /// Forgets sessions of which nothing came, and nothing became final, for so many positions that
    /// no sequencing replica admits anything of theirs any more, whatever comes. Returns the
    /// orphans: ids that were put and now never get a position. Looks at most every sixteenth of
    /// that.
    pub(super) fn sweep(&mut self, stable: Position, idle_positions: u64) -> Vec<IdRun> {
        let Some(orphans) = self.ids.sweep(stable, idle_positions) else { return vec![] };
        self.decided.retain(|session, _| self.ids.is_active(*session));
        self.ended.retain(|session, _| self.ids.is_active(*session));
        // The replica refuses an id by itself until it refuses all of its session.
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

    /// Forgets what belongs to one view: a new one begins, and from `first` on this replica hears
    /// of all ids. It may have missed ids that were bound below, so it does not count the positions
    /// there as passed without a session.
    pub(super) fn enter_view(&mut self, first: Position) {
        self.since = self.since.map(|since| since.max(first));
        self.refused.clear();
        self.decided.clear();
        self.ended.clear();
    }

    /// This replica is no member of the registered view: all that it knows may be out of date.
    /// Returns the ids whose records it held and that got no position.
    pub(super) fn leave(&mut self) -> Vec<IdRun> {
        let unplaced = self.ids.unplaced();
        *self = Self { last_find: self.last_find, ..Self::default() };
        unplaced
    }

    pub(super) fn unplaced_count(&self) -> u64 {
        self.ids.unplaced_count()
    }

    /// Forgets the batches that wait for other replicas, and the questions of others: the view that
    /// asked is over.
    pub(super) fn stop_waiting(&mut self) {
        self.waiting.clear();
        self.questions.clear();
    }

    /// The write with this ticket failed. If it was a put, returns its sender, and the ids.
    pub(super) fn failed(&mut self, ticket: Ticket) -> Option<(Address, IdRun)> {
        let index = self.puts.iter().position(|(written, _, _)| *written == ticket)?;
        let (_, client, ids) = self.puts.remove(index)?;
        self.release(ids);
        Some((client, ids))
    }

    /// All writes up to this ticket are done.
    pub(super) fn stored(&mut self, ticket: Ticket) {
        while self.puts.front().is_some_and(|(written, _, _)| *written <= ticket) {
            self.puts.pop_front();
        }
    }
}

impl Waiting {
    /// The replicas that may have what is missing.
    pub(super) fn others(&self) -> Vec<NodeId> {
        match &self.part {
            Duty::Primary { backups, .. } => backups.iter().map(|backup| backup.node).collect(),
            Duty::Backup { others, .. } => others.clone(),
        }
    }

    /// The replicas to ask now: one after the other, since each answers with records; all of them
    /// for a last call.
    pub(super) fn next_asked(&mut self) -> Vec<NodeId> {
        let others = self.others();
        if self.is_last_call || self.missing_at.len() >= others.len() {
            // A replica that is asked again may have got a record meanwhile.
            self.missing_at.clear();
        }
        if self.is_last_call || others.is_empty() {
            return others;
        }
        self.turn += 1;
        vec![others[(self.turn - 1) % others.len()]]
    }

    /// One of the others answered, but something is missing still. If it had something, it nearly
    /// always has the rest: one message did not take all. If it had nothing, the replica asks the
    /// next one.
    pub(super) fn was_answered(&mut self, now: Time, node: NodeId, helped: bool) {
        let others = self.others();
        if helped {
            self.asks.restart(now);
            self.turn = others.iter().position(|other| *other == node).unwrap_or(0);
        } else if !self.is_last_call && self.missing_at.len() < others.len() {
            self.asks.due_by(now);
        }
    }

    /// There was no room for what another replica gave.
    pub(super) fn had_no_room(&mut self, now: Time) {
        self.asks.postpone(now);
    }

    /// The given ids whose records all others said that they do not have.
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

    /// A session whose number 0 was put when a replica here had heard of 10 final positions.
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
        // A new replica does not know what it missed.
        assert!(!HeldRecords::default().expires(Position(10 + 2 * IDLE), session, IDLE));
    }

    #[test]
    fn who_was_away_does_not_take_for_over_what_it_missed() {
        let (mut held, session) = (HeldRecords::default(), SessionId::new(Position(3), 7));
        assert!(!held.expires(Position(10), session, IDLE));
        // A view begins, and far more is final than this replica knew.
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
