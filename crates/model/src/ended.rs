//! The sessions of a log that other runs of their programs went on with, where nobody but the
//! register's entry can remember them from view to view (`corfu`).
//!
//! A session that is forgotten must not come back: the first position that it could speak of is
//! below the floor then. A client that goes on with one in a new view says where it appended last,
//! and is refused if that is below the floor.

use crate::wire::wire_struct;
use crate::{Position, SessionId};

/// A session that has ended: another run of its program goes on in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedSession {
    /// Its name.
    pub session: SessionId,
    /// The number after the last that is in the log.
    pub end: u64,
    /// All its records are below this position, for good.
    pub below: Position,
    /// The session that the other run appends to.
    pub successor: SessionId,
}

wire_struct! { EndedSession { session, end as number, below, successor } }

/// The sessions of a log that have ended, as far as they are remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedSessions {
    /// A session that is not remembered, and whose last record is below, may have ended.
    pub floor: Position,
    /// The sessions that are remembered, in the order in which they ended.
    pub sessions: Vec<EndedSession>,
}

wire_struct! { EndedSessions { floor, sessions } }

impl EndedSessions {
    /// Whether no session has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// A view starts there: whatever clients said, no session that has ended has anything beyond.
    pub fn cut(&mut self, start: Position) {
        self.sessions.iter_mut().for_each(|ended| ended.below = ended.below.min(start));
    }

    /// Where a session ended, if it is known to have.
    #[must_use]
    pub fn of(&self, session: SessionId) -> Option<EndedSession> {
        self.sessions.iter().find(|ended| ended.session == session).copied()
    }

    /// Takes note of the end of a session whose last record is at `since`, or that was opened there
    /// if it has none, unless that is known, or may have been forgotten. Of more than `most` those
    /// are forgotten whose records are lowest. Says whether it was news.
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
        // One that was opened where it ended has no record, and is below the floor all the same.
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
        // With the end that the lost position gave it, nobody could go on with a session below 51
        // any more.
        let mut uncut = EndedSessions::default();
        uncut.add(ended(1, 50), Position(2), 1);
        uncut.add(ended(2, 60), Position(11), 1);
        assert!(!uncut.add(ended(3, 60), Position(12), 1));
    }
}
