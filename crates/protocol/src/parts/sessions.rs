//! The duplicate filter: which numbers of which sessions are held or bound (erwin.md, "Sessions").

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, at_most, decode_number, wire_struct};
use seriatim_model::{IdRun, Position, SessionId, Settled, limits};

/// Numbers of a session that were bound to consecutive positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BoundRun {
    number: u64,
    position: Position,
    count: u64,
}

wire_struct! { BoundRun { number as number, position, count as number } }

/// What a replica knows about one session.
///
/// Invariant: `lowest <= next`; `bound` is in increasing order of numbers, all of them in
/// `lowest..next`, apart from the part of its first run that lies below `lowest`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Session {
    id: SessionId,
    next: u64,
    lowest: u64,
    last_bound: Position,
    bound: Vec<BoundRun>,
    /// If the session has ended: the first number that is refused.
    end: Option<u64>,
    /// If it has ended: the session in which its client went on.
    successor: Option<SessionId>,
    /// Numbers that became no-ops, in order: first, and how many. Also below `lowest`: a client that forgot how
    /// far it was must not take them for appended. When there are many, the oldest go that are settled.
    voids: Vec<(u64, u64)>,
}

/// In the first format a session had no end. Numbers are far below this bit, which says that there is one.
const HAS_END: u64 = 1 << 63;
/// How many runs of numbers that became no-ops are remembered of a session whose client settled them.
const MOST_VOIDS: usize = 64;
/// So does this one say that some numbers became no-ops.
const HAS_VOIDS: u64 = 1 << 62;
/// And this one that the session has a successor.
const HAS_SUCCESSOR: u64 = 1 << 61;
const _: () = assert!(limits::MAX_NUMBER < HAS_SUCCESSOR);

impl Wire for Session {
    fn encode(&self, out: &mut Encoder) {
        self.id.encode(out);
        self.next.encode(out);
        let has_voids = if self.voids.is_empty() { 0 } else { HAS_VOIDS };
        let has_successor = self.successor.map_or(0, |_| HAS_SUCCESSOR);
        (self.lowest | self.end.map_or(0, |_| HAS_END) | has_voids | has_successor).encode(out);
        self.last_bound.encode(out);
        self.bound.encode(out);
        if let Some(end) = self.end {
            end.encode(out);
        }
        if !self.voids.is_empty() {
            self.voids.encode(out);
        }
        if let Some(successor) = self.successor {
            successor.encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (id, next, marked) =
            (Wire::decode(input)?, decode_number("Session.next", input)?, u64::decode(input)?);
        let (last_bound, bound) = (Wire::decode(input)?, Wire::decode(input)?);
        let end = if marked & HAS_END == 0 { None } else { Some(decode_number("Session.end", input)?) };
        let voids: Vec<(u64, u64)> = if marked & HAS_VOIDS == 0 { vec![] } else { Wire::decode(input)? };
        let successor = if marked & HAS_SUCCESSOR == 0 { None } else { Some(Wire::decode(input)?) };
        for (first, count) in &voids {
            at_most(limits::MAX_NUMBER, "Session.voids", *first.max(count))?;
        }
        let lowest = marked & !(HAS_END | HAS_VOIDS | HAS_SUCCESSOR);
        let lowest = at_most(limits::MAX_NUMBER, "Session.lowest", lowest)?;
        Ok(Self { id, next, lowest, last_bound, bound, end, successor, voids })
    }
}

/// What is to happen to an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The first `skip` records are held or bound already; the rest is new.
    Admit {
        /// How many to skip; all of them for a duplicate.
        skip: u64,
    },
    /// The session's numbers go on at `expected`.
    OutOfOrder {
        /// The number to send from.
        expected: u64,
    },
    /// The client said itself that it does not wait for these numbers any more.
    Stale,
    /// The session is not known any more, or was never opened.
    Expired,
    /// There are too many sessions for one more.
    Full,
}

/// The sessions of one log, as one sequencing replica knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    /// Where the next search for forgotten sessions is due.
    sweep_at: Position,
}

impl Wire for Sessions {
    fn encode(&self, out: &mut Encoder) {
        (self.sessions.len() as u32).encode(out);
        for session in self.sessions.values() {
            session.encode(out);
        }
        self.sweep_at.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let sessions = Vec::<Session>::decode(input)?;
        let sessions = sessions.into_iter().map(|session| (session.id, session)).collect();
        Ok(Self { sessions, sweep_at: Position::decode(input)? })
    }
}

impl Sessions {
    /// How many sessions are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether no session is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The number that the session goes on with, if it is known.
    #[must_use]
    pub fn next(&self, session: SessionId) -> Option<u64> {
        self.sessions.get(&session).map(|session| session.next)
    }

    /// The lowest number that the session's client still waits for, if the session is known.
    #[must_use]
    pub fn lowest(&self, session: SessionId) -> Option<u64> {
        self.sessions.get(&session).map(|session| session.lowest)
    }

    /// Decides about an append of `run`, on a replica whose `ordered` is given. Changes nothing.
    #[must_use]
    pub fn admission(&self, run: IdRun, ordered: Position, idle_positions: u64) -> Admission {
        let Some(session) = self.sessions.get(&run.session) else {
            return if ordered.since(run.session.opened_at()) > idle_positions {
                Admission::Expired
            } else if run.first > 0 {
                // Too young to have been forgotten: its first numbers did not get here.
                Admission::OutOfOrder { expected: 0 }
            } else if self.sessions.len() >= limits::MAX_SESSIONS {
                Admission::Full
            } else {
                Admission::Admit { skip: 0 }
            };
        };
        if run.first.saturating_add(run.count) <= session.lowest && run.count > 0 {
            Admission::Stale
        } else if session.end.is_some_and(|end| run.first >= end) {
            Admission::Expired
        } else if run.first > session.next {
            Admission::OutOfOrder { expected: session.next }
        } else {
            Admission::Admit { skip: (session.next - run.first).min(run.count) }
        }
    }

    /// How many numbers from `first` on may still be admitted.
    #[must_use]
    pub fn room(&self, session: SessionId, first: u64) -> u64 {
        let end = self.sessions.get(&session).and_then(|session| session.end);
        end.map_or(u64::MAX, |end| end.saturating_sub(first))
    }

    /// Where the session ended, if it did: the first number that is refused.
    #[must_use]
    pub fn end_of(&self, session: SessionId) -> Option<u64> {
        self.sessions.get(&session)?.end
    }

    /// Ends a session at `at`, which does not make it live longer. What was seen is never at or above its end.
    pub fn end(&mut self, id: SessionId, at: u64) {
        let session = self.entry(id, Position::ZERO);
        session.end = Some(at.max(session.next));
    }

    /// Whether all that was bound of a session has positions below `stable`.
    #[must_use]
    pub fn is_bound_below(&self, session: SessionId, stable: Position) -> bool {
        self.sessions.get(&session).is_none_or(|session| session.last_bound <= stable)
    }

    /// The session in which the client of an ended one went on.
    #[must_use]
    pub fn successor_of(&self, session: SessionId) -> Option<SessionId> {
        self.sessions.get(&session)?.successor
    }

    /// The client of an ended session goes on in another one. The first one that is named stays, and is remembered for
    /// as long as the ended one, also if nothing is appended in it.
    pub fn succeed(&mut self, id: SessionId, successor: SessionId, ordered: Position) {
        let successor = *self.entry(id, Position::ZERO).successor.get_or_insert(successor);
        self.entry(successor, ordered);
    }

    /// A defect: nobody knows any more in which sessions the clients of ended ones went on.
    pub(crate) fn forget_successors(&mut self) {
        self.sessions.values_mut().for_each(|session| session.successor = None);
    }

    /// A view begins with these sessions. What ended sessions still wait for was held by nobody that counts:
    /// they end where they are. Those of which nothing is known but that they ended, and that are too old to begin,
    /// are forgotten.
    pub fn close_ended(&mut self, ordered: Position, idle_positions: u64) {
        self.sessions.retain(|id, session| {
            session.end.is_none() || session.next > 0 || ordered.since(id.opened_at()) <= idle_positions
        });
        for session in self.sessions.values_mut() {
            session.end = session.end.map(|_| session.next);
        }
    }

    /// A defect: ended sessions are as good as new.
    pub(crate) fn forget_ends(&mut self) {
        self.sessions.values_mut().for_each(|session| session.end = None);
    }

    /// Takes note that the session's numbers below `next` are held, and that its client does not wait
    /// for those below `lowest` any more. `ordered` dates a session that is new.
    pub fn admit(&mut self, id: SessionId, next: u64, lowest: u64, ordered: Position) {
        let session = self.entry(id, ordered);
        session.next = session.next.max(next);
        session.raise_lowest(lowest);
    }

    /// Takes note that `run` was bound to the positions from `position` on. Numbers that were not seen
    /// yet count as seen.
    pub fn bind(&mut self, run: IdRun, position: Position) {
        let number = run.first;
        self.seen_bound(run, position).remember(BoundRun { number, position, count: run.count });
    }

    fn seen_bound(&mut self, run: IdRun, position: Position) -> &mut Session {
        let session = self.entry(run.session, position);
        session.next = session.next.max(run.end());
        session.last_bound = session.last_bound.max(position + run.count);
        session
    }

    /// Takes note that names were bound to the positions from `position` on, or that these are no-ops.
    pub fn settle(&mut self, names: Settled, position: Position) {
        match names.is_void {
            true => self.seen_bound(names.ids, position).make_void(names.ids),
            false => self.bind(names.ids, position),
        }
    }

    /// Which of these numbers became no-ops, as far as that is remembered.
    #[must_use]
    pub fn voids(&self, run: IdRun) -> Vec<IdRun> {
        let voids = self.sessions.get(&run.session).map_or(&[][..], |session| &session.voids);
        let within = voids.iter().map(|(first, count)| {
            let (from, end) = ((*first).max(run.first), (first + count).min(run.end()));
            IdRun { first: from, count: end.saturating_sub(from), ..run }
        });
        within.filter(|part| part.count > 0).collect()
    }

    /// The position that a number was bound to, if it was and the client may still ask.
    #[must_use]
    pub fn position(&self, session: SessionId, number: u64) -> Option<Position> {
        let runs = &self.sessions.get(&session)?.bound;
        let index = runs.partition_point(|run| run.number <= number);
        let run = runs.get(index.checked_sub(1)?)?;
        (number < run.number + run.count).then(|| run.position + (number - run.number))
    }

    /// Forgets sessions that bound nothing for more than `idle_positions` before `ordered`, unless
    /// `is_held` says that the replica holds records of theirs. Looks at most every sixteenth of that.
    ///
    /// Who `follows` is behind: where a session ended is not forgotten before what it waits for has come from the
    /// leader, or it would come back without an end. The leader forgets it in time: shards rely on that.
    pub fn sweep(
        &mut self,
        ordered: Position,
        idle_positions: u64,
        follows: bool,
        is_held: impl Fn(SessionId) -> bool,
    ) {
        if ordered < self.sweep_at {
            return;
        }
        self.sweep_at = ordered + (idle_positions / 16).max(1);
        // The tail at which a session was opened may lie above the positions that its records got. While
        // number 0 of the session would be admitted, what is known of it must not be forgotten.
        self.sessions.retain(|id, session| {
            let last = session.last_bound.max(id.opened_at());
            let waits = follows && session.end.is_some_and(|end| session.next < end);
            ordered.since(last) <= idle_positions || waits || is_held(*id)
        });
    }

    /// Forgets the lowest positions, so that at most `most` runs are left. Whoever asks for one of them is
    /// told that its append is in the log, but not where.
    pub fn prune(&mut self, most: usize) {
        let total: usize = self.sessions.values().map(|session| session.bound.len()).sum();
        if total <= most {
            return;
        }
        let mut ends: Vec<Position> =
            self.sessions.values().flat_map(|s| s.bound.iter().map(|run| run.position + run.count)).collect();
        let (_, kept_above, _) = ends.select_nth_unstable(total - most - 1);
        let kept_above = *kept_above;
        for session in self.sessions.values_mut() {
            session.bound.retain(|run| run.position + run.count > kept_above);
        }
    }

    /// Forgets a session: its numbers above 0 are refused from now on.
    pub fn forget(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// A defect: what became a no-op counts as bound.
    pub(crate) fn forget_voids(&mut self) {
        self.sessions.values_mut().for_each(|session| session.voids.clear());
    }

    /// Adds what `others` knows. Joining what a replica holds with what it was staged with is a mistake
    /// that the simulator shows to be one; see [`crate::Deviation::FilterUnion`].
    pub(crate) fn join(&mut self, others: Self) {
        for (id, other) in others.sessions {
            let session = self.entry(id, other.last_bound);
            session.next = session.next.max(other.next);
        }
    }

    fn entry(&mut self, id: SessionId, now: Position) -> &mut Session {
        self.sessions.entry(id).or_insert_with(|| Session {
            id,
            next: 0,
            lowest: 0,
            last_bound: now,
            bound: vec![],
            end: None,
            successor: None,
            voids: vec![],
        })
    }
}

impl Session {
    fn raise_lowest(&mut self, lowest: u64) {
        if lowest > self.lowest {
            self.lowest = lowest.min(self.next);
            let settled = self.bound.partition_point(|run| run.number + run.count <= self.lowest);
            self.bound.drain(..settled);
        }
    }

    fn make_void(&mut self, run: IdRun) {
        if self.voids.iter().any(|(first, _)| *first == run.first) {
            return;
        }
        let is_settled = |(first, count): &(u64, u64)| first + count <= self.lowest;
        if self.voids.len() >= MOST_VOIDS && self.voids.first().is_some_and(is_settled) {
            self.voids.remove(0);
        }
        let index = self.voids.partition_point(|(first, _)| *first < run.first);
        self.voids.insert(index, (run.first, run.count));
    }

    fn remember(&mut self, run: BoundRun) {
        if run.number + run.count <= self.lowest {
            return;
        }
        if let Some(last) = self.bound.last_mut()
            && last.number + last.count == run.number
            && last.position + last.count == run.position
        {
            last.count += run.count;
            return;
        }
        self.bound.push(run);
    }
}

/// Joins ids that follow each other into runs.
#[must_use]
pub fn runs_of(ids: impl Iterator<Item = seriatim_model::RecordId>) -> Vec<IdRun> {
    let mut runs: VecDeque<IdRun> = VecDeque::new();
    for id in ids {
        match runs.back_mut() {
            Some(run) if run.session == id.session && run.first + run.count == id.number => run.count += 1,
            _ => runs.push_back(IdRun { session: id.session, first: id.number, count: 1 }),
        }
    }
    runs.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: u64 = 100;

    fn session(n: u64) -> SessionId {
        SessionId::new(Position(0), n)
    }

    fn run(first: u64, count: u64) -> IdRun {
        IdRun { session: session(1), first, count }
    }

    #[test]
    fn numbers_are_admitted_without_gaps() {
        let mut sessions = Sessions::default();
        let ask = |s: &Sessions, first, count| s.admission(run(first, count), Position(0), IDLE);
        assert_eq!(ask(&sessions, 1, 1), Admission::OutOfOrder { expected: 0 });
        let late = sessions.admission(run(1, 1), Position(IDLE + 1), IDLE);
        assert_eq!(late, Admission::Expired, "it may have been known, and forgotten");
        assert_eq!(ask(&sessions, 0, 3), Admission::Admit { skip: 0 });
        sessions.admit(session(1), 3, 0, Position(0));
        assert_eq!(ask(&sessions, 0, 3), Admission::Admit { skip: 3 });
        assert_eq!(ask(&sessions, 2, 3), Admission::Admit { skip: 1 });
        assert_eq!(ask(&sessions, 4, 1), Admission::OutOfOrder { expected: 3 });
        sessions.admit(session(1), 5, 2, Position(0));
        assert_eq!(ask(&sessions, 0, 2), Admission::Stale);
        assert_eq!(ask(&sessions, 1, 2), Admission::Admit { skip: 2 });
    }

    #[test]
    fn positions_are_kept_down_to_the_lowest_number_waited_for() {
        let mut sessions = Sessions::default();
        sessions.bind(run(0, 2), Position(10));
        sessions.bind(run(2, 2), Position(12));
        sessions.bind(run(4, 1), Position(20));
        assert_eq!(sessions.position(session(1), 3), Some(Position(13)));
        assert_eq!(sessions.position(session(1), 4), Some(Position(20)));
        assert_eq!(sessions.position(session(1), 5), None);
        sessions.admit(session(1), 5, 4, Position(30));
        assert_eq!(sessions.position(session(1), 3), None);
        assert_eq!(sessions.position(session(1), 4), Some(Position(20)));
    }

    #[test]
    fn an_idle_session_is_forgotten_and_its_number_0_is_refused() {
        let mut sessions = Sessions::default();
        sessions.bind(run(0, 1), Position(0));
        sessions.sweep(Position(101), IDLE, false, |_| false);
        assert_eq!(sessions.len(), 1);
        sessions.sweep(Position(202), IDLE, false, |_| true);
        assert_eq!(sessions.len(), 1);
        sessions.sweep(Position(300), IDLE, false, |_| false);
        assert!(sessions.is_empty());
        assert_eq!(sessions.admission(run(0, 1), Position(300), IDLE), Admission::Expired);
        let fresh = IdRun { session: SessionId::new(Position(250), 1), first: 0, count: 1 };
        assert_eq!(sessions.admission(fresh, Position(300), IDLE), Admission::Admit { skip: 0 });
    }

    #[test]
    fn a_session_is_remembered_as_long_as_its_number_0_is_admitted() {
        let mut sessions = Sessions::default();
        let ahead = IdRun { session: SessionId::new(Position(50), 1), first: 0, count: 1 };
        sessions.bind(ahead, Position(10));
        for ordered in 0..400 {
            sessions.sweep(Position(ordered), IDLE, false, |_| false);
            let admitted = sessions.admission(ahead, Position(ordered), IDLE);
            assert_ne!(admitted, Admission::Admit { skip: 0 }, "at {ordered}");
        }
        assert!(sessions.is_empty());
    }

    #[test]
    fn pruning_forgets_the_lowest_positions() {
        let mut sessions = Sessions::default();
        for n in 0..10 {
            sessions.bind(IdRun { session: session(n % 2), first: n / 2, count: 1 }, Position(n));
        }
        sessions.prune(4);
        assert_eq!(sessions.position(session(1), 2), None);
        assert_eq!(sessions.position(session(0), 3), Some(Position(6)));
        assert_eq!(sessions.next(session(1)), Some(5));
    }

    #[test]
    fn an_ended_session_takes_nothing_from_its_end_on() {
        let mut sessions = Sessions::default();
        sessions.admit(session(1), 3, 0, Position(0));
        assert_eq!(sessions.end_of(session(1)), None);
        // Below its end it goes on: others may hold what this replica does not.
        sessions.end(session(1), 5);
        assert_eq!(sessions.admission(run(3, 4), Position(0), IDLE), Admission::Admit { skip: 0 });
        assert_eq!(sessions.room(session(1), 3), 2);
        assert_eq!(sessions.admission(run(5, 1), Position(0), IDLE), Admission::Expired);
        // In the next view there are no such others.
        sessions.close_ended(Position(0), IDLE);
        assert_eq!(sessions.end_of(session(1)), Some(3));
        assert_eq!(sessions.admission(run(3, 1), Position(0), IDLE), Admission::Expired);
        assert_eq!(sessions.admission(run(1, 2), Position(0), IDLE), Admission::Admit { skip: 2 });
        // A follower keeps an end that it has not reached.
        sessions.end(session(3), 2);
        sessions.sweep(Position(IDLE + 1), IDLE, true, |_| false);
        assert_eq!((sessions.end_of(session(3)), sessions.end_of(session(1))), (Some(2), None));
        sessions.sweep(Position(3 * IDLE), IDLE, false, |_| false);
        assert!(sessions.is_empty());
        // One that had been forgotten when it was ended is forgotten again.
        sessions.end(session(2), 5);
        sessions.close_ended(Position(IDLE), IDLE);
        assert_eq!(sessions.end_of(session(2)), Some(0));
        sessions.close_ended(Position(IDLE + 1), IDLE);
        assert_eq!(sessions.end_of(session(2)), None);
    }

    #[test]
    fn a_session_is_final_when_its_last_position_is_wherever_it_was_opened() {
        let mut sessions = Sessions::default();
        let id = SessionId::new(Position(50), 1);
        sessions.end(id, 2);
        sessions.bind(IdRun { session: id, first: 0, count: 2 }, Position(40));
        assert!(!sessions.is_bound_below(id, Position(41)) && sessions.is_bound_below(id, Position(42)));
        sessions.succeed(id, session(2), Position(42));
        sessions.succeed(id, session(3), Position(43));
        assert_eq!((sessions.successor_of(id), sessions.next(session(2))), (Some(session(2)), Some(0)));
        assert_eq!(sessions.next(session(3)), None);
    }

    #[test]
    fn no_ops_are_remembered_up_to_a_number() {
        let mut sessions = Sessions::default();
        for (first, is_void) in [(0, false), (2, true), (4, false), (6, true)] {
            sessions.settle(Settled { ids: run(first, 2), is_void }, Position(first));
        }
        assert_eq!(sessions.voids(run(0, 9)), [run(2, 2), run(6, 2)]);
        assert_eq!(sessions.voids(run(3, 4)), [run(3, 1), run(6, 1)]);
        assert_eq!((sessions.position(session(1), 3), sessions.next(session(1))), (None, Some(8)));
        sessions.admit(session(1), 8, 4, Position(9));
        assert_eq!(sessions.voids(run(0, 9)), [run(2, 2), run(6, 2)], "whatever its client waits for");
        let later = |n| Settled { ids: run(9 + 2 * n, 1), is_void: true };
        (0..2 * MOST_VOIDS as u64).for_each(|n| sessions.settle(later(n), Position(9 + n)));
        assert_eq!(sessions.voids(run(0, 9)), [run(6, 2)], "its client had settled what is below 4");
        assert_eq!(sessions.voids(run(9, 999)).len(), 2 * MOST_VOIDS);
    }

    #[test]
    fn a_snapshot_comes_back() {
        let mut sessions = Sessions::default();
        sessions.settle(Settled { ids: run(8, 1), is_void: true }, Position(9));
        sessions.bind(run(9, 2), Position(10));
        sessions.admit(session(2), 7, 3, Position(11));
        sessions.end(session(2), 9);
        sessions.succeed(session(2), session(3), Position(12));
        let bytes = seriatim_model::wire::encode_one(&sessions);
        assert_eq!(seriatim_model::wire::decode_one::<Sessions>(bytes).unwrap(), sessions);
    }
}
