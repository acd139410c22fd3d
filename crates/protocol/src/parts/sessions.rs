//! The duplicate filter: the held and bound numbers of each session (docs/design/erwin.md,
//! "Sessions").

mod bounds;

pub(crate) use bounds::most_closed;

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, at_most, decode_number, wire_struct};
use seriatim_model::{BoundIds, IdRun, Position, SessionId, limits};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BoundRun {
    number: u64,
    position: Position,
    count: u64,
}

wire_struct! { BoundRun { number as number, position, count as number } }

/// A replica's knowledge of one session: numbers below `next` are held or bound, and the client
/// waits for no number below `lowest`.
///
/// Invariant: `lowest <= next`; `bound` is in increasing order of numbers, all in `lowest..next`,
/// except the start of its first run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Session {
    id: SessionId,
    next: u64,
    lowest: u64,
    last_bound: Position,
    bound: Vec<BoundRun>,
    /// The first refused number of an ended session.
    end: Option<u64>,
    successor: Option<SessionId>,
    /// Runs of numbers that became no-ops, in order: first number and count. Runs below `lowest`
    /// stay: a client that lost its progress must not count them as appended. Beyond
    /// [`MOST_VOIDS`], the oldest runs whose outcomes the client knows are dropped.
    voids: Vec<(u64, u64)>,
}

/// Flag in the encoded `lowest`, in a bit above any number: an end follows. The first format had no
/// flags.
const HAS_END: u64 = 1 << 63;
/// Limit of a session's no-op runs. Beyond it, only runs whose outcomes the client does not know
/// stay.
const MOST_VOIDS: usize = 64;
/// Like [`HAS_END`]: no-op runs follow.
const HAS_VOIDS: u64 = 1 << 62;
/// Like [`HAS_END`]: a successor follows.
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

/// The verdict on an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The first `skip` records are held or bound already; the rest is new.
    Admit {
        /// Number of records to skip: all, if the batch is a duplicate.
        skip: u64,
    },
    /// An earlier record has not arrived: the session's next number is `expected`.
    OutOfOrder {
        /// The number from which the client must send.
        expected: u64,
    },
    /// The client has reported that it no longer waits for these numbers.
    Stale,
    /// The session was forgotten or never opened.
    Expired,
    /// Too many sessions have records in flight.
    Full,
}

/// The sessions of one log at one sequencing replica.
///
/// Invariant: a session with bound records is in `sessions`, was opened below `floor`, or was
/// opened long enough ago to have expired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    sweep_at: Position,
    /// Sessions that were opened below this position and are not in `sessions` have expired
    /// permanently.
    floor: Position,
    void_runs: usize,
}

/// Flag in the encoded `sweep_at`, in a bit above any position: a floor follows. The first format
/// had none.
const HAS_FLOOR: u64 = 1 << 63;
const _: () = assert!(limits::MAX_NUMBER < HAS_FLOOR);

impl Wire for Sessions {
    fn encode(&self, out: &mut Encoder) {
        (self.sessions.len() as u32).encode(out);
        for session in self.sessions.values() {
            session.encode(out);
        }
        match self.floor {
            Position::ZERO => self.sweep_at.encode(out),
            floor => {
                (self.sweep_at.0 | HAS_FLOOR).encode(out);
                floor.encode(out);
            }
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let sessions = Vec::<Session>::decode(input)?;
        let sessions = sessions.into_iter().map(|session| (session.id, session)).collect();
        let marked = u64::decode(input)?;
        let sweep_at = at_most(limits::MAX_NUMBER, "Sessions.sweep_at", marked & !HAS_FLOOR)?;
        let floor = if marked & HAS_FLOOR == 0 { Position::ZERO } else { Position::decode(input)? };
        let mut read = Self { sessions, sweep_at: Position(sweep_at), floor, void_runs: 0 };
        read.count_voids();
        Ok(read)
    }
}

impl Sessions {
    /// Number of remembered sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether no session is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The session's next number, if known.
    #[must_use]
    pub fn next(&self, session: SessionId) -> Option<u64> {
        self.sessions.get(&session).map(|session| session.next)
    }

    /// The lowest number that the session's client waits for, if known.
    #[must_use]
    pub fn lowest(&self, session: SessionId) -> Option<u64> {
        self.sessions.get(&session).map(|session| session.lowest)
    }

    /// Decides about an append of `run`; this replica's order ends at `ordered`. Changes nothing.
    #[must_use]
    pub fn admission(&self, run: IdRun, ordered: Position, idle_positions: u64) -> Admission {
        let Some(session) = self.sessions.get(&run.session) else {
            return if self.has_expired(run.session, ordered, idle_positions)
                || self.is_ahead(run.session, ordered)
            {
                Admission::Expired
            } else if run.first > 0 {
                // The session is too young to have been forgotten, so its first numbers have not
                // arrived.
                Admission::OutOfOrder { expected: 0 }
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

    /// Whether the session can never be admitted: it is unknown here, and was opened too long ago
    /// or below the floor.
    #[must_use]
    pub fn has_expired(&self, session: SessionId, ordered: Position, idle_positions: u64) -> bool {
        let is_too_old = ordered.since(session.opened_at()) > idle_positions;
        !self.sessions.contains_key(&session) && (is_too_old || session.opened_at() < self.floor)
    }

    /// Whether the session claims an opening position that no client can have seen; forgetting it
    /// would raise the floor that high. One position above the highest listed session is allowed:
    /// another member's floor is there after it forgot that session.
    #[must_use]
    pub fn is_ahead(&self, session: SessionId, ordered: Position) -> bool {
        let highest = self.sessions.last_key_value().map_or(Position::ZERO, |(id, _)| id.opened_at() + 1);
        session.opened_at() > highest.max(ordered.max(self.floor) + limits::MOST_SESSION_AHEAD)
    }

    /// Unknown sessions that were opened below this position have expired.
    #[must_use]
    pub fn floor(&self) -> Position {
        self.floor
    }

    /// Whether the session was forgotten permanently, to make room.
    fn is_forgotten(&self, session: SessionId) -> bool {
        session.opened_at() < self.floor && !self.sessions.contains_key(&session)
    }

    /// How many numbers from `first` on are below the session's end.
    #[must_use]
    pub fn room(&self, session: SessionId, first: u64) -> u64 {
        let end = self.sessions.get(&session).and_then(|session| session.end);
        end.map_or(u64::MAX, |end| end.saturating_sub(first))
    }

    /// The first refused number, if the session has ended.
    #[must_use]
    pub fn end_of(&self, session: SessionId) -> Option<u64> {
        self.sessions.get(&session)?.end
    }

    /// Ends a session at number `at`, or after its highest seen number if that is higher, without
    /// extending its life. A forgotten session is refused anyway.
    pub fn end(&mut self, id: SessionId, at: u64) {
        if self.is_forgotten(id) {
            return;
        }
        let session = self.entry(id, Position::ZERO);
        session.end = Some(at.max(session.next));
    }

    /// Whether all bound positions of a session are below `stable`.
    #[must_use]
    pub fn is_bound_below(&self, session: SessionId, stable: Position) -> bool {
        self.sessions.get(&session).is_none_or(|session| session.last_bound <= stable)
    }

    /// The successor of an ended session.
    #[must_use]
    pub fn successor_of(&self, session: SessionId) -> Option<SessionId> {
        self.sessions.get(&session)?.successor
    }

    /// Sets the successor of an ended session, unless it has one. Returns the successor.
    pub fn succeed(&mut self, id: SessionId, successor: SessionId) -> SessionId {
        if self.is_forgotten(id) {
            return successor;
        }
        *self.entry(id, Position::ZERO).successor.get_or_insert(successor)
    }

    /// Ends a session by a decision with its own position, and sets its successor.
    pub fn end_in_log(&mut self, id: SessionId, at: u64, successor: SessionId, position: Position) {
        self.end(id, at);
        self.succeed(id, successor);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.last_bound = session.last_bound.max(position.next());
        }
    }

    /// Adds a session without records. `ordered` counts as its last activity.
    pub fn open(&mut self, id: SessionId, ordered: Position) {
        self.entry(id, ordered);
    }

    /// A mutation: forgets all successors.
    pub(crate) fn forget_successors(&mut self) {
        self.sessions.values_mut().for_each(|session| session.successor = None);
    }

    /// Starts a view with these sessions. No replica of the view holds numbers from `next` to an
    /// end, so the end falls to `next`. Drops a session known only by its end and too old for its
    /// first append.
    pub fn close_ended(&mut self, ordered: Position, idle_positions: u64) {
        let floor = self.floor;
        self.sessions.retain(|id, session| {
            let may_begin = ordered.since(id.opened_at()) <= idle_positions && id.opened_at() >= floor;
            session.end.is_none() || session.next > 0 || may_begin
        });
        self.count_voids();
        for session in self.sessions.values_mut() {
            session.end = session.end.map(|_| session.next);
        }
    }

    pub(crate) fn forget_ends(&mut self) {
        self.sessions.values_mut().for_each(|session| session.end = None);
    }

    /// Notes that numbers below `next` are held, and that the client waits for none below `lowest`.
    /// For a new session, `ordered` counts as its last activity.
    ///
    /// # Panics
    /// If the session was forgotten below the floor: its numbers are refused.
    pub fn admit(&mut self, id: SessionId, next: u64, lowest: u64, ordered: Position) {
        assert!(!self.is_forgotten(id), "session {id} was forgotten, and takes nothing");
        let session = self.entry(id, ordered);
        session.next = session.next.max(next);
        self.raise_lowest(id, lowest);
    }

    /// Notes that `run` was bound from `position`. Its numbers then count as seen.
    pub fn bind(&mut self, run: IdRun, position: Position) {
        let number = run.first;
        if let Some(session) = self.seen_bound(run, position) {
            session.remember(BoundRun { number, position, count: run.count });
        }
    }

    /// The session of a bound run. `None` for a forgotten session: other members may still bind its
    /// entries, but its earlier outcomes are unknown here.
    fn seen_bound(&mut self, run: IdRun, position: Position) -> Option<&mut Session> {
        if self.is_forgotten(run.session) {
            return None;
        }
        let session = self.entry(run.session, position);
        session.next = session.next.max(run.end());
        session.last_bound = session.last_bound.max(position + run.count);
        Some(session)
    }

    /// Notes that ids, or no-ops in their place, were bound from `position`.
    pub fn apply(&mut self, bound: BoundIds, position: Position) {
        if !bound.is_void {
            self.bind(bound.ids, position);
        } else if let Some(session) = self.seen_bound(bound.ids, position) {
            let before = session.voids.len();
            session.make_void(bound.ids);
            let after = session.voids.len();
            self.void_runs = self.void_runs + after - before;
        }
    }

    /// The remembered no-ops among these numbers.
    #[must_use]
    pub fn voids(&self, run: IdRun) -> Vec<IdRun> {
        let voids = self.sessions.get(&run.session).map_or(&[][..], |session| &session.voids);
        let within = voids.iter().map(|(first, count)| {
            let (from, end) = ((*first).max(run.first), (first + count).min(run.end()));
            IdRun { first: from, count: end.saturating_sub(from), ..run }
        });
        within.filter(|part| part.count > 0).collect()
    }

    /// The position of a bound number, unless the client waits for it no longer.
    #[must_use]
    pub fn position(&self, session: SessionId, number: u64) -> Option<Position> {
        let runs = &self.sessions.get(&session)?.bound;
        let index = runs.partition_point(|run| run.number <= number);
        let run = runs.get(index.checked_sub(1)?)?;
        (number < run.number + run.count).then(|| run.position + (number - run.number))
    }

    /// Forgets sessions that bound nothing in the last `idle_positions` before `ordered`, unless
    /// `is_held` is true for them. Runs at most once per sixteenth of `idle_positions`.
    ///
    /// A replica that `follows` keeps an ended session until all numbers below the end arrive from
    /// the leader, or else these would open the session again, without an end. The leader forgets
    /// such a session in time: shards rely on that.
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
        // The opening position may lie above the records' positions. The session must be known
        // while its number 0 would be admitted.
        self.sessions.retain(|id, session| {
            let last = session.last_bound.max(id.opened_at());
            let waits = follows && session.end.is_some_and(|end| session.next < end);
            ordered.since(last) <= idle_positions || waits || is_held(*id)
        });
        self.count_voids();
    }

    /// Forgets sessions permanently: the floor rises above their opening positions.
    pub fn expire(&mut self, sessions: &[SessionId]) {
        for id in sessions {
            self.sessions.remove(id);
            self.floor = self.floor.max(id.opened_at() + 1);
        }
        self.count_voids();
    }

    /// A mutation: accepts forgotten sessions as new.
    pub(crate) fn lower_floor(&mut self) {
        self.floor = Position::ZERO;
    }

    /// A mutation: counts no-ops as bound.
    pub(crate) fn forget_voids(&mut self) {
        self.sessions.values_mut().for_each(|session| session.voids.clear());
        self.count_voids();
    }

    /// A mutation: joins held with staged sessions, a mistake that the simulator shows; see
    /// [`crate::Mutation::FilterUnion`].
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
            let completed = self.bound.partition_point(|run| run.number + run.count <= self.lowest);
            self.bound.drain(..completed);
            // Keeps a few runs with known outcomes: a client that lost its progress may ask for
            // them.
            let many = self.voids.len().saturating_sub(MOST_VOIDS);
            let completed = self.voids.len() - self.voids_in_doubt();
            self.voids.drain(..many.min(completed));
        }
    }

    fn voids_in_doubt(&self) -> usize {
        self.voids.len() - self.voids.partition_point(|(first, count)| first + count <= self.lowest)
    }

    fn make_void(&mut self, run: IdRun) {
        let index = self.voids.partition_point(|(first, _)| *first <= run.first);
        if let Some((first, count)) = index.checked_sub(1).map(|last| &mut self.voids[last])
            && *first + *count >= run.first
        {
            *count = (*count).max(run.end() - *first);
            return;
        }
        self.voids.insert(index, (run.first, run.count));
        let is_completed = |(first, count): &(u64, u64)| first + count <= self.lowest;
        if self.voids.len() > MOST_VOIDS && self.voids.first().is_some_and(is_completed) {
            self.voids.remove(0);
        }
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
        let bound = self.bound.last().map_or(0, |last| last.number + last.count);
        assert!(bound <= run.number, "numbers below {bound} are bound, and now those from {}", run.number);
        self.bound.push(run);
    }
}

/// Joins consecutive ids into runs.
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

    /// Consecutive sessions with one append each.
    fn short_lived(sessions: &mut Sessions, numbers: std::ops::Range<u64>, most: usize) {
        for n in numbers {
            let once = IdRun { session: SessionId::new(Position(n), n), first: 0, count: 1 };
            assert_eq!(
                sessions.admission(once, Position(n), 10_000_000),
                Admission::Admit { skip: 0 },
                "at {n}"
            );
            sessions.bind(once, Position(n));
            if sessions.len() >= most {
                let oldest = sessions.least_recent((Position(n + 1), Position(n + 1)), most, |_| false);
                sessions.expire(&oldest);
            }
            assert!(sessions.len() < most);
        }
    }

    #[test]
    fn sessions_come_and_go_for_ever() {
        let mut sessions = Sessions::default();
        short_lived(&mut sessions, 0..1000, 32);
        for n in 0..1000 {
            let again = IdRun { session: SessionId::new(Position(n), n), first: 0, count: 1 };
            let decision = sessions.admission(again, Position(1000), 10_000_000);
            match sessions.next(again.session) {
                Some(1) => assert_eq!(decision, Admission::Admit { skip: 1 }),
                _ => assert_eq!(decision, Admission::Expired, "it was bound, and must not be again"),
            }
        }
        assert!(sessions.has_expired(SessionId::new(Position(900), 1), Position(1000), 10_000_000));
        let bytes = seriatim_model::wire::encode_one(&sessions);
        assert_eq!(seriatim_model::wire::decode_one::<Sessions>(bytes).unwrap(), sessions);
    }

    #[test]
    fn ended_sessions_go_first_and_those_with_something_on_its_way_stay() {
        let mut sessions = Sessions::default();
        let id = |n| SessionId::new(Position(n), n);
        for n in 0..5 {
            sessions.bind(IdRun { session: id(n), first: 0, count: 1 }, Position(n));
        }
        sessions.end(id(3), 1);
        let at = |stable, ordered| (Position(stable), Position(ordered));
        assert_eq!(sessions.least_recent(at(5, 5), 5, |_| false), [id(3)]);
        assert_eq!(sessions.least_recent(at(5, 5), 4, |session| session == id(0)), [id(3), id(1)]);
        assert_eq!(sessions.least_recent(at(3, 3), 5, |_| false), [id(0)], "the fourth is not final");
        assert_eq!(sessions.least_recent(at(5, 0), 5, |_| false), [], "none was opened below 0");
        assert_eq!(sessions.least_recent(at(5, 5), 6, |_| false), [], "there is room for one more");
    }

    #[test]
    fn where_none_was_opened_below_the_tail_those_that_were_opened_lowest_go() {
        let mut sessions = Sessions::default();
        let id = |n| SessionId::new(Position(n), n);
        (5..9).for_each(|n| sessions.end(id(n), 0));
        sessions.bind(IdRun { session: id(9), first: 0, count: 1 }, Position(4));
        assert_eq!(sessions.least_recent((Position(5), Position(5)), 5, |_| false), []);
        let lowest = sessions.opened_lowest(Position(5), 4, |session| session == id(5));
        assert_eq!(lowest, [id(6), id(7)]);
        assert_eq!(
            sessions.opened_lowest(Position(4), 1, |_| false).len(),
            4,
            "outcomes that are not final stay"
        );
        sessions.expire(&lowest);
        assert_eq!(sessions.floor(), Position(8));
        let ask = |session| sessions.admission(IdRun { session, first: 0, count: 1 }, Position(5), IDLE);
        assert_eq!((ask(id(5)), ask(id(6))), (Admission::Expired, Admission::Expired));
        assert_eq!(ask(SessionId::new(Position(8), 1)), Admission::Admit { skip: 0 });
    }

    #[test]
    fn what_was_forgotten_does_not_come_back() {
        let mut sessions = Sessions::default();
        let (a, b) = (SessionId::new(Position(1), 1), SessionId::new(Position(2), 2));
        let bound =
            |number, is_void| BoundIds { ids: IdRun { session: b, first: number, count: 1 }, is_void };
        sessions.bind(IdRun { session: a, first: 0, count: 1 }, Position(2));
        sessions.apply(bound(0, true), Position(3));
        sessions.expire(&[b]);
        assert_eq!(sessions.next(a), Some(1), "it was opened below the floor, but is known");
        sessions.apply(bound(1, false), Position(4));
        sessions.apply(bound(2, true), Position(5));
        sessions.end(b, 9);
        sessions.succeed(a, b);
        assert_eq!((sessions.next(b), sessions.successor_of(a)), (None, Some(b)));
        let young = SessionId::new(Position(3), 3);
        assert!(
            sessions.has_expired(b, Position(6), IDLE) && !sessions.has_expired(young, Position(6), IDLE)
        );
    }

    #[test]
    fn no_session_is_opened_far_ahead_of_the_log() {
        let sessions = Sessions::default();
        let opened = |at| IdRun { session: SessionId::new(Position(at), 1), first: 0, count: 1 };
        let ask = |at| sessions.admission(opened(5 + at), Position(5), IDLE);
        assert_eq!(ask(limits::MOST_SESSION_AHEAD), Admission::Admit { skip: 0 });
        assert_eq!(ask(limits::MOST_SESSION_AHEAD + 1), Admission::Expired);
        // Another member may have forgotten the highest session.
        let mut sessions = sessions;
        sessions.open(opened(8 + limits::MOST_SESSION_AHEAD).session, Position(5));
        let is_ahead = |at| sessions.is_ahead(opened(at + limits::MOST_SESSION_AHEAD).session, Position(5));
        assert!(!is_ahead(9) && is_ahead(10));
    }

    #[test]
    fn an_ended_session_takes_nothing_from_its_end_on() {
        let mut sessions = Sessions::default();
        sessions.admit(session(1), 3, 0, Position(0));
        assert_eq!(sessions.end_of(session(1)), None);
        // Other replicas may hold numbers below the end.
        sessions.end(session(1), 5);
        assert_eq!(sessions.admission(run(3, 4), Position(0), IDLE), Admission::Admit { skip: 0 });
        assert_eq!(sessions.room(session(1), 3), 2);
        assert_eq!(sessions.admission(run(5, 1), Position(0), IDLE), Admission::Expired);
        // In the next view no replica holds numbers 3 and 4.
        sessions.close_ended(Position(0), IDLE);
        assert_eq!(sessions.end_of(session(1)), Some(3));
        assert_eq!(sessions.admission(run(3, 1), Position(0), IDLE), Admission::Expired);
        assert_eq!(sessions.admission(run(1, 2), Position(0), IDLE), Admission::Admit { skip: 2 });
        // A follower keeps an end until it has the numbers below it.
        sessions.end(session(3), 2);
        sessions.sweep(Position(IDLE + 1), IDLE, true, |_| false);
        assert_eq!((sessions.end_of(session(3)), sessions.end_of(session(1))), (Some(2), None));
        sessions.sweep(Position(3 * IDLE), IDLE, false, |_| false);
        assert!(sessions.is_empty());
        // Session 2 was unknown when it was ended.
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
        assert_eq!(sessions.succeed(id, session(2)), session(2));
        assert_eq!(sessions.succeed(id, session(3)), session(2), "the first that is named stays");
        assert_eq!((sessions.successor_of(id), sessions.next(session(2))), (Some(session(2)), None));
        sessions.open(session(2), Position(42));
        assert_eq!(sessions.next(session(2)), Some(0));
    }

    #[test]
    fn no_ops_are_remembered_up_to_a_number() {
        let mut sessions = Sessions::default();
        for (first, is_void) in [(0, false), (2, true), (4, false), (6, true)] {
            sessions.apply(BoundIds { ids: run(first, 2), is_void }, Position(first));
        }
        assert_eq!(sessions.voids(run(0, 9)), [run(2, 2), run(6, 2)]);
        assert_eq!(sessions.voids(run(3, 4)), [run(3, 1), run(6, 1)]);
        assert_eq!((sessions.position(session(1), 3), sessions.next(session(1))), (None, Some(8)));
        sessions.admit(session(1), 8, 4, Position(9));
        assert_eq!(sessions.voids(run(0, 9)), [run(2, 2), run(6, 2)], "its client may wait for anything");
        let later = |n| BoundIds { ids: run(9 + 2 * n, 1), is_void: true };
        (0..2 * MOST_VOIDS as u64).for_each(|n| sessions.apply(later(n), Position(9 + n)));
        assert_eq!(sessions.voids(run(0, 9)), [run(6, 2)], "its client knows the outcomes below 4");
        assert_eq!(sessions.voids(run(9, 999)).len(), 2 * MOST_VOIDS);
    }

    #[test]
    fn a_snapshot_comes_back() {
        let mut sessions = Sessions::default();
        sessions.apply(BoundIds { ids: run(8, 1), is_void: true }, Position(9));
        sessions.bind(run(9, 2), Position(10));
        sessions.admit(session(2), 7, 3, Position(11));
        sessions.end(session(2), 9);
        sessions.succeed(session(2), session(3));
        sessions.open(session(3), Position(12));
        let bytes = seriatim_model::wire::encode_one(&sessions);
        assert_eq!(seriatim_model::wire::decode_one::<Sessions>(bytes).unwrap(), sessions);
    }
}
