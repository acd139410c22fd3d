//! How much a table of sessions holds at most, and how it comes below that: a view change carries
//! it in one message.

use seriatim_model::{Position, SessionId};

use super::{Session, Sessions};

/// How many sessions that came after one, each after the other, are looked at for how recent it is.
const MOST_FOLLOWED: usize = 16;

/// How many sessions of a table for `most` may be opened above what is ordered, where each is to
/// have a position there.
fn most_ahead(most: usize) -> usize {
    (most / 64).max(16)
}

/// How many sessions that no member knows clients of a leader may close, all together: the leader
/// remembers that they have ended, in a table for `most`.
#[must_use]
pub(crate) fn most_closed(most: usize) -> u64 {
    (most as u64 / 8).max(16)
}

impl Sessions {
    /// Whether a session is one too many of those that were opened above `ordered`, where a table
    /// has room for `most`. The table does not forget them before the log has passed them, so a few
    /// are enough: a client that got so high a tail got it before a view change.
    #[must_use]
    pub fn is_too_many_ahead(&self, session: SessionId, ordered: Position, most: usize) -> bool {
        let is_above = session.opened_at() > ordered && !self.sessions.contains_key(&session);
        let known = self.sessions.range(SessionId::new(ordered.next(), 0)..);
        is_above && known.take(most_ahead(most)).count() == most_ahead(most)
    }

    /// Which sessions to [forget](Self::expire), a sixteenth at least, so that there is room among
    /// `most`: those that were bound least recently, and ended ones first. None of which `is_kept`
    /// says that the replica has something on its way, nor one of which something was bound at or
    /// above `stable`.
    ///
    /// Nor one that was opened at or above `ordered`: its forgetting would refuse sessions that are
    /// opened now.
    ///
    /// A session whose client goes on in another one is as recent as that: a run that resumes it
    /// finds its way, and what became of its numbers, by what is known of it.
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

    /// Whether a session is over and has no successor that goes on, and when something was bound
    /// last of it or of the ones that came after it.
    fn succeeded(&self, session: &Session) -> (bool, Position) {
        let (mut last, mut last_bound) = (session, session.last_bound);
        for _ in 0..MOST_FOLLOWED {
            let Some(successor) = last.successor else { break };
            let Some(next) = self.sessions.get(&successor) else {
                // Nothing has come of it yet, unless it was forgotten.
                return (self.is_forgotten(successor), last_bound);
            };
            (last, last_bound) = (next, last_bound.max(next.last_bound));
        }
        (last.end.is_some(), last_bound)
    }

    /// The same, where all of them were opened at what is ordered or above: those that were opened
    /// lowest, so that the floor rises as little as can be.
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

    /// How many runs of numbers are remembered as no-ops, of all sessions together.
    #[must_use]
    pub fn void_runs(&self) -> usize {
        self.void_runs
    }

    /// How many of a session's runs of no-ops have a number that its client may still wait for.
    #[must_use]
    pub fn voids_in_doubt(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, Session::voids_in_doubt)
    }

    /// The client of a session does not wait for the numbers below `lowest` any more, if the
    /// session is known.
    pub fn raise_lowest(&mut self, session: SessionId, lowest: u64) {
        if let Some(session) = self.sessions.get_mut(&session) {
            let before = session.voids.len();
            session.raise_lowest(lowest);
            self.void_runs -= before - session.voids.len();
        }
    }

    /// Which sessions to forget, so that at most `most` runs of no-ops are left: those that have
    /// most of them. A session of which `is_kept` says that the replica has something on its way
    /// stays, and one of which something was bound at or above `stable`.
    ///
    /// The no-ops of a session cannot be forgotten alone: they would be taken for appended.
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

    /// Comes below what one message carries: at most `runs` runs of positions, those that are
    /// highest, and at most `voids` runs of no-ops. A client that asks for a forgotten position
    /// learns that its append is in the log, but not where; one whose session was forgotten learns
    /// that it has expired.
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
        // Nothing has come of the session yet in which this one's client goes on.
        sessions.succeed(id(4), SessionId::new(Position(5), 9));
        assert_eq!(oldest(&sessions, 4), [id(2), id(3), id(4)]);
        // It was forgotten.
        sessions.expire(&[SessionId::new(Position(5), 8)]);
        assert_eq!(oldest(&sessions, 6), [id(4)]);
        // They go on in each other, as no client of ours does.
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

    /// Names without records, every second number.
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

    /// All that a table can have of everything.
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
