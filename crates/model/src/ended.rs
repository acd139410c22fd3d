//! Ended sessions of a log, where only the register's entry remembers them across views (`corfu`).
//!
//! A forgotten session must not come back: a client that resumes a session reports its last
//! append's position, and is rejected if that is below the floor.

use crate::wire::wire_struct;
use crate::{Position, SessionId};

/// A session that another run of its program continues in a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedSession {
    /// The session.
    pub session: SessionId,
    /// Number after the session's last record in the log.
    pub end: u64,
    /// All records of the session are below this position, permanently.
    pub below: Position,
    /// The session that continues this session.
    pub successor: SessionId,
}

wire_struct! { EndedSession { session, end as number, below, successor } }

/// The remembered ended sessions of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedSessions {
    /// A session not listed here may have ended if its last record is below this position.
    pub floor: Position,
    /// Remembered sessions, in the order of their ends.
    pub sessions: Vec<EndedSession>,
}

wire_struct! { EndedSessions { floor, sessions } }

impl EndedSessions {
    /// Whether no session has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Lowers every `below` to a new view's start: ended sessions have no records at later
    /// positions, even if clients reported such positions.
    pub fn cut(&mut self, start: Position) {
        self.sessions.iter_mut().for_each(|ended| ended.below = ended.below.min(start));
    }

    /// The entry of the session, if remembered.
    #[must_use]
    pub fn of(&self, session: SessionId) -> Option<EndedSession> {
        self.sessions.iter().find(|ended| ended.session == session).copied()
    }

    /// Adds an ended session. `since` is the position of its last record, or, without a record, the
    /// tail when it was opened. Returns false if the session is known or `since` is below the
    /// floor. Above `most` entries, forgets the session with the lowest `below`.
    pub fn add(&mut self, ended: EndedSession, since: Position, most: usize) -> bool {
        if since < self.floor || self.of(ended.session).is_some() {
            return false;
        }
        self.sessions.push(ended);
        while self.sessions.len() > most.max(1) {
            let lowest = (0..self.sessions.len()).min_by_key(|index| self.sessions[*index].below);
            let lowest = self.sessions.remove(lowest.expect("there are more than one"));
            self.floor = self.floor.max(lowest.below.next());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(session: u128, below: u64) -> EndedSession {
        let successor = SessionId(session + 100);
        EndedSession { session: SessionId(session), end: 3, below: Position(below), successor }
    }

    #[test]
    fn the_first_end_stays() {
        let mut known = EndedSessions::default();
        assert!(known.is_empty() && known.add(ended(1, 5), Position(2), 3));
        let other = EndedSession { successor: SessionId(7), ..ended(1, 9) };
        assert!(!known.add(other, Position(2), 3));
        assert_eq!(known.of(SessionId(1)), Some(ended(1, 5)));
    }

    #[test]
    fn what_is_forgotten_does_not_come_back() {
        let mut known = EndedSessions::default();
        for (session, below) in [(1, 9), (2, 5), (3, 12)] {
            known.add(ended(session, below), Position(below - 1), 2);
        }
        assert_eq!((known.of(SessionId(2)), known.floor), (None, Position(6)));
        assert!(!known.add(ended(2, 20), Position(4), 2), "its last record is below the floor");
        // Session 4 was opened at the position where it ended: it has no record, and is below the
        // floor.
        assert!(!known.add(ended(4, 20), Position(5), 2));
        assert!(known.add(ended(5, 20), Position(6), 2));
    }

    #[test]
    fn what_a_lost_end_was_given_raises_no_floor_above_the_start_of_the_next_view() {
        let ends_two = |mut known: EndedSessions| {
            (2..4).for_each(|session| assert!(known.add(ended(session, 12), Position(11), 2)));
            known
        };
        let mut known = EndedSessions::default();
        known.add(ended(1, 50), Position(2), 2);
        known.cut(Position(10));
        assert_eq!(known.of(SessionId(1)).map(|ended| ended.below), Some(Position(10)));
        let known = ends_two(known);
        assert_eq!((known.floor, known.of(SessionId(1))), (Position(11), None));
        // Without the cut, the lost position's bound would reject every session below 51.
        let mut uncut = EndedSessions::default();
        uncut.add(ended(1, 50), Position(2), 1);
        uncut.add(ended(2, 60), Position(11), 1);
        assert!(!uncut.add(ended(3, 60), Position(12), 1));
    }
}
