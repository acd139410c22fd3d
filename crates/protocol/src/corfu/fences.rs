//! Sessions that get no more positions, because other runs continue them.

use std::collections::BTreeMap;

use seriatim_model::{Position, SessionId};

use crate::control::EndedSessions;

/// Sessions that the register ended before the view, and sessions that clients closed in it. A
/// closed session stays closed in this view; it ends only in the register.
#[derive(Clone, Debug, Default)]
pub(super) struct Fences {
    /// Bound above every position ever granted to the session.
    closed: BTreeMap<SessionId, Position>,
    /// An unknown session whose last append is below this may be a forgotten one.
    floor: Position,
}

impl Fences {
    /// Nothing was granted beyond `start`, despite clients' claims about ended sessions.
    pub(super) fn new(ended: &EndedSessions, start: Position) -> Self {
        let closed = ended.sessions.iter().map(|ended| (ended.session, ended.below.min(start))).collect();
        Self { closed, floor: ended.floor.min(start.next()) }
    }

    /// Sessions opened at or above this tail were not forgotten.
    pub(super) fn floor(&self) -> Position {
        self.floor
    }

    /// Whether to refuse a session without grants in this view, whose last append was at `since`.
    pub(super) fn refuse(&self, session: SessionId, since: Position) -> bool {
        self.is_closed(session) || since < self.floor
    }

    pub(super) fn is_closed(&self, session: SessionId) -> bool {
        self.closed.contains_key(&session)
    }

    /// Closes a session: it gets no position at `next` or above. Beyond `most` closed sessions,
    /// forgets the other one with the lowest bound, and raises the floor above that bound, so that
    /// the forgotten session stays refused. Returns the bound of the session's grants.
    pub(super) fn close(&mut self, session: SessionId, next: Position, most: usize) -> Position {
        let below = *self.closed.entry(session).or_insert(next);
        while self.closed.len() > most.max(1) {
            let others = self.closed.iter().filter(|(other, _)| **other != session);
            let Some((lowest, below)) = others.min_by_key(|(_, below)| **below) else { break };
            let (lowest, below) = (*lowest, *below);
            self.closed.remove(&lowest);
            self.floor = self.floor.max(below.next());
        }
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::EndedSession;

    #[test]
    fn a_session_stays_closed_where_it_was_closed_first() {
        let mut ended = EndedSessions::default();
        let (session, successor) = (SessionId(1), SessionId(9));
        ended.add(EndedSession { session, end: 3, below: Position(7), successor }, Position(6), 3);
        let mut fences = Fences::new(&ended, Position(9));
        assert!(fences.refuse(session, Position(50)) && !fences.refuse(successor, Position(0)));
        assert_eq!(fences.close(session, Position(20), 3), Position(7));
        assert_eq!(fences.close(SessionId(2), Position(20), 3), Position(20));
        assert_eq!(fences.close(SessionId(2), Position(30), 3), Position(20));
        // No client can raise the floor beyond the log's end.
        let far = EndedSessions { floor: Position(1 << 50), ..EndedSessions::default() };
        assert_eq!(Fences::new(&far, Position(9)).floor(), Position(10));
    }

    #[test]
    fn one_that_was_forgotten_is_refused_by_where_it_appended_last() {
        let mut fences = Fences::default();
        for (session, next) in [(1, 5), (2, 8), (3, 9)] {
            fences.close(SessionId(session), Position(next), 2);
        }
        assert!(!fences.is_closed(SessionId(1)) && fences.refuse(SessionId(1), Position(4)));
        assert!(
            fences.refuse(SessionId(1), Position(5)),
            "it may have been opened there, and appended nothing"
        );
        assert!(!fences.refuse(SessionId(4), Position(6)));
    }
}
