//! The sessions that the sequencer gives no positions any more, because other runs of their
//! programs went on with them.

use std::collections::BTreeMap;

use seriatim_model::{Position, SessionId};

use crate::control::EndedSessions;

/// The sessions that ended before the view began, as the register has it, and those that clients
/// closed in it. Closed is a session for as long as the view lasts, whatever becomes of its closer;
/// ended it is when the register says so.
#[derive(Clone, Debug, Default)]
pub(super) struct Fences {
    /// All positions that a session was ever given are below.
    closed: BTreeMap<SessionId, Position>,
    /// A session that is not known, and appended last below, may be one that was forgotten.
    floor: Position,
}

impl Fences {
    /// The fences of a view that starts there. Whatever clients said of sessions that had ended by
    /// then, nothing was given out beyond.
    pub(super) fn new(ended: &EndedSessions, start: Position) -> Self {
        let closed = ended.sessions.iter().map(|ended| (ended.session, ended.below.min(start))).collect();
        Self { closed, floor: ended.floor.min(start.next()) }
    }

    /// A session that was opened when so much had been given out is none that was forgotten.
    pub(super) fn floor(&self) -> Position {
        self.floor
    }

    /// Whether a session that appended last at `since`, and was given nothing in this view, is
    /// given nothing any more.
    pub(super) fn refuse(&self, session: SessionId, since: Position) -> bool {
        self.is_closed(session) || since < self.floor
    }

    /// Whether a session is known to be closed.
    pub(super) fn is_closed(&self, session: SessionId) -> bool {
        self.closed.contains_key(&session)
    }

    /// A session is given nothing at `next` or beyond. Of more than `most`, the one is forgotten
    /// that ended lowest. Returns below which position all is that it was given.
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
