//! Limits of the table of remembered sessions, and how it shrinks: a view change carries it in one
//! message.

use seriatim_model::{Position, SessionId};

use super::{Session, Sessions};

/// Number of successors followed, one after the other, to find a session's last activity.
const MOST_FOLLOWED: usize = 16;

/// Limit of known sessions that were opened above the end of the order, if the table may have
/// `most` sessions.
fn most_ahead(most: usize) -> usize {
    (most / 64).max(16)
}

/// Limit of sessions that clients may end although the leader does not know them: it remembers each
/// end in its table of `most` sessions.
#[must_use]
pub(crate) fn most_closed(most: usize) -> u64 {
    (most as u64 / 8).max(16)
}

impl Sessions {
    /// Whether one more session opened above `ordered` exceeds the limit of such sessions in a
    /// table of `most`, which can forget them only later. Few are necessary: only a view change
    /// lowers the tail below a position that a client has seen.
    #[must_use]
    pub fn is_too_many_ahead(&self, session: SessionId, ordered: Position, most: usize) -> bool {
        let is_above = session.opened_at() > ordered && !self.sessions.contains_key(&session);
        let known = self.sessions.range(SessionId::new(ordered.next(), 0)..);
        is_above && known.take(most_ahead(most)).count() == most_ahead(most)
    }

    /// The sessions to [forget](Self::expire), so that at most fifteen sixteenths of `most` remain:
    /// ended sessions first, then the longest idle ones. Keeps `is_kept` sessions and sessions
    /// bound at or above `stable`.
    ///
    /// Also keeps sessions opened at or above `ordered`: forgetting them would refuse new sessions.
    ///
    /// A session is as recent as its successors: a run that resumes it finds them only through it.
    #[must_use]
    pub fn least_recent(
        &self,
        (stable, ordered): (Position, Position),
        most: usize,
        is_kept: impl Fn(SessionId) -> bool,
    ) -> Vec<SessionId> {
        let may_go = |session: &&Session| {
            session.last_bound <= stable && session.id.opened_at() < ordered && !is_kept(session.id)
        };
        let going = self.sessions.values().filter(may_go);
        let mut oldest: Vec<(bool, Position, SessionId)> = going
            .map(|session| {
                let (is_over, last_bound) = self.succeeded(session);
                (!is_over, last_bound, session.id)
            })
            .collect();
        oldest.sort_unstable();
        oldest.into_iter().take(self.excess(most)).map(|(_, _, id)| id).collect()
    }

    /// Whether the last successor of a session has ended, and the highest bound position of the
    /// session and its successors.
    fn succeeded(&self, session: &Session) -> (bool, Position) {
        let (mut last, mut last_bound) = (session, session.last_bound);
        for _ in 0..MOST_FOLLOWED {
            let Some(successor) = last.successor else { break };
            let Some(next) = self.sessions.get(&successor) else {
                // No record of the successor has arrived, or the successor was forgotten.
                return (self.is_forgotten(successor), last_bound);
            };
            (last, last_bound) = (next, last_bound.max(next.last_bound));
        }
        (last.end.is_some(), last_bound)
    }

    /// Like `least_recent`, if all sessions were opened at or above the end of the order: chooses
    /// the lowest opened ones, so that the floor rises least.
    #[must_use]
    pub fn opened_lowest(
        &self,
        stable: Position,
        most: usize,
        is_kept: impl Fn(SessionId) -> bool,
    ) -> Vec<SessionId> {
        let may_go = |session: &&Session| session.last_bound <= stable && !is_kept(session.id);
        let sessions = self.sessions.values().filter(may_go).take(self.excess(most));
        sessions.map(|session| session.id).collect()
    }

    fn excess(&self, most: usize) -> usize {
        self.sessions.len().saturating_sub(most - (most / 16).max(1).min(most))
    }

    /// Number of remembered no-op runs of all sessions.
    #[must_use]
    pub fn void_runs(&self) -> usize {
        self.void_runs
    }

    /// Number of the session's no-op runs with a number that its client may wait for.
    #[must_use]
    pub fn voids_in_doubt(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, Session::voids_in_doubt)
    }

    /// Notes that a known session's client waits for no number below `lowest`.
    pub fn raise_lowest(&mut self, session: SessionId, lowest: u64) {
        if let Some(session) = self.sessions.get_mut(&session) {
            let before = session.voids.len();
            session.raise_lowest(lowest);
            self.void_runs -= before - session.voids.len();
        }
    }

    /// The sessions to forget so that at most `most` no-op runs remain: those with the most runs.
    /// Keeps `is_kept` sessions and sessions bound at or above `stable`.
    ///
    /// A session's no-ops cannot be forgotten alone: they would count as appended.
    #[must_use]
    pub fn most_voids(
        &self,
        stable: Position,
        most: usize,
        is_kept: impl Fn(SessionId) -> bool,
    ) -> Vec<SessionId> {
        let may_go = |session: &&Session| {
            !session.voids.is_empty() && session.last_bound <= stable && !is_kept(session.id)
        };
        let having = self.sessions.values().filter(may_go);
        let mut having: Vec<(usize, SessionId)> =
            having.map(|session| (session.voids.len(), session.id)).collect();
        having.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = self.void_runs;
        let take = |(runs, _): &(usize, SessionId)| {
            let goes = left > most;
            left -= if goes { *runs } else { 0 };
            goes
        };
        having.into_iter().take_while(take).map(|(_, id)| id).collect()
    }

    /// Shrinks the table to one message: keeps the highest `runs` runs of positions and at most
    /// `voids` no-op runs. The client of a dropped position learns only that its append is in the
    /// log; the client of a forgotten session learns that it has expired.
    pub fn prune(&mut self, runs: usize, voids: usize) {
        if self.void_runs > voids {
            let over = self.most_voids(Position(u64::MAX), voids, |_| false);
            self.expire(&over);
        }
        let total: usize = self.sessions.values().map(|session| session.bound.len()).sum();
        if total <= runs {
            return;
        }
        let mut ends: Vec<Position> =
            self.sessions.values().flat_map(|s| s.bound.iter().map(|run| run.position + run.count)).collect();
        let (_, kept_above, _) = ends.select_nth_unstable(total - runs - 1);
        let kept_above = *kept_above;
        for session in self.sessions.values_mut() {
            session.bound.retain(|run| run.position + run.count > kept_above);
        }
    }

    pub(super) fn count_voids(&mut self) {
        self.void_runs = self.sessions.values().map(|session| session.voids.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::wire::encode_one;
    use seriatim_model::{BoundIds, IdRun, limits};

    use super::*;
    use crate::parts::Admission;

    fn id(n: u64) -> SessionId {
        SessionId::new(Position(n), n)
    }

    #[test]
    fn a_session_goes_no_sooner_than_those_in_which_its_client_went_on() {
        let mut sessions = Sessions::default();
        let id = |n| SessionId::new(Position(n), n);
        for n in 0..6 {
            sessions.bind(IdRun { session: id(n), first: 0, count: 1 }, Position(n));
        }
        let oldest =
            |sessions: &Sessions, most| sessions.least_recent((Position(6), Position(6)), most, |_| false);
        for (session, successor) in [(0, 1), (1, 5)] {
            sessions.end(id(session), 1);
            sessions.succeed(id(session), id(successor));
        }
        sessions.end(id(4), 1);
        assert_eq!(oldest(&sessions, 4), [id(4), id(2), id(3)]);
        // The successor has no records yet.
        sessions.succeed(id(4), SessionId::new(Position(5), 9));
        assert_eq!(oldest(&sessions, 4), [id(2), id(3), id(4)]);
        // The successor was forgotten.
        sessions.expire(&[SessionId::new(Position(5), 8)]);
        assert_eq!(oldest(&sessions, 6), [id(4)]);
        // A cycle of successors, which our clients never form.
        sessions.end(id(5), 1);
        sessions.succeed(id(5), id(0));
        assert_eq!(oldest(&sessions, 3).len(), 4);
    }

    #[test]
    fn few_are_opened_where_the_log_has_not_been() {
        let (mut sessions, ordered) = (Sessions::default(), Position(5));
        let is_too_many = |sessions: &Sessions, n| sessions.is_too_many_ahead(id(n), ordered, 100);
        (6..21).for_each(|n| sessions.bind(IdRun { session: id(n), first: 0, count: 1 }, Position(n)));
        assert!(!is_too_many(&sessions, 99), "there is room for one more");
        sessions.open(id(30), ordered);
        assert!(is_too_many(&sessions, 99) && is_too_many(&sessions, 6 + limits::MOST_SESSION_AHEAD));
        assert!(!is_too_many(&sessions, 20), "it is known");
        assert!(!is_too_many(&sessions, 5), "the next position may be its first");
        assert!(!sessions.is_too_many_ahead(id(99), Position(6), 100), "the log continues");
    }

    /// No-ops at every second number.
    fn make_voids(sessions: &mut Sessions, n: u64, count: u64) {
        for number in 0..count {
            let ids = IdRun { session: id(n), first: 2 * number, count: 1 };
            sessions.apply(BoundIds { ids, is_void: true }, Position(n));
        }
    }

    #[test]
    fn no_ops_are_counted_wherever_they_go() {
        let mut sessions = Sessions::default();
        for n in 0..4 {
            make_voids(&mut sessions, n, 100);
        }
        assert_eq!((sessions.void_runs(), sessions.voids_in_doubt(id(1))), (400, 100));
        sessions.raise_lowest(id(1), 190);
        assert_eq!((sessions.voids_in_doubt(id(1)), sessions.void_runs()), (5, 364));
        sessions.expire(&[id(2)]);
        sessions.sweep(Position(102), 100, false, |_| false);
        assert_eq!(sessions.void_runs(), 164, "nothing came of the first session for long");
        make_voids(&mut sessions, 2, 5);
        assert_eq!(sessions.void_runs(), 164, "forgotten sessions stay forgotten");
        let read = seriatim_model::wire::decode_one::<Sessions>(encode_one(&sessions)).unwrap();
        assert_eq!(read, sessions);
    }

    #[test]
    fn runs_that_touch_are_one() {
        let mut sessions = Sessions::default();
        for first in [0, 1, 2, 5] {
            let ids = IdRun { session: id(1), first, count: 1 };
            sessions.apply(BoundIds { ids, is_void: true }, Position(first));
        }
        assert_eq!(sessions.void_runs(), 2);
        let all = IdRun { session: id(1), first: 0, count: 9 };
        assert_eq!(
            sessions.voids(all).iter().map(|run| (run.first, run.count)).collect::<Vec<_>>(),
            [(0, 3), (5, 1)]
        );
    }

    #[test]
    fn sessions_with_most_no_ops_are_forgotten_and_others_stay() {
        let mut sessions = Sessions::default();
        for (n, voids) in [(1, 3), (2, 50), (3, 0), (4, 20)] {
            make_voids(&mut sessions, n, voids);
            sessions.bind(IdRun { session: id(n), first: 2 * voids, count: 1 }, Position(n));
        }
        let over = |most, kept| sessions.most_voids(Position(9), most, |session| session == id(kept));
        assert_eq!((over(73, 9), over(72, 9), over(22, 9)), (vec![], vec![id(2)], vec![id(2), id(4)]));
        assert_eq!((over(0, 2), over(0, 9).len()), (vec![id(4), id(1)], 3));
        assert_eq!(sessions.most_voids(Position(4), 0, |_| false), [id(2), id(1)], "the last is not stable");
        sessions.prune(9, 10);
        assert_eq!((sessions.len(), sessions.void_runs()), (2, 3));
        let again = IdRun { session: id(2), first: 0, count: 1 };
        assert_eq!(sessions.admission(again, Position(9), 100), Admission::Expired);
    }

    #[test]
    fn pruning_forgets_the_lowest_positions() {
        let mut sessions = Sessions::default();
        for n in 0..10 {
            sessions.bind(IdRun { session: id(n % 2), first: n / 2, count: 1 }, Position(n));
        }
        sessions.prune(4, 0);
        assert_eq!(sessions.position(id(1), 2), None);
        assert_eq!(sessions.position(id(0), 3), Some(Position(6)));
        assert_eq!(sessions.next(id(1)), Some(5));
    }

    /// A table with every limit exhausted.
    #[test]
    fn the_largest_table_fits_into_one_frame() {
        let mut sessions = Sessions::default();
        for n in 0..limits::MAX_SESSIONS as u64 {
            sessions.open(id(n), Position(n));
        }
        for number in 0..limits::MAX_BOUND_RUNS as u64 {
            let run = IdRun { session: id(number % 2), first: number, count: 1 };
            sessions.bind(run, Position(2 * number));
        }
        make_voids(&mut sessions, 3, limits::MAX_VOID_RUNS as u64);
        for n in 0..limits::MAX_SESSIONS as u64 {
            sessions.end(id(n), limits::MAX_NUMBER);
            sessions.succeed(id(n), id(n + 1));
            make_voids(&mut sessions, n, 1);
        }
        sessions.prune(limits::MAX_BOUND_RUNS, limits::MAX_VOID_RUNS);
        let bytes = encode_one(&sessions).len();
        assert!(bytes <= limits::MAX_SESSIONS_BYTES, "{bytes}");
        assert!(bytes * 10 > limits::MAX_SESSIONS_BYTES * 6, "{bytes} bytes are a small part of the bound");
    }
}
