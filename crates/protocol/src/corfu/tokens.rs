//! Each session's granted positions, for equal answers to repeated requests.

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::{Position, SessionId, Span};

/// The sessions' granted positions. Forgetting a session costs only holes.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    sessions: BTreeMap<SessionId, Session>,
    asked: u64,
}

/// Invariant: `spans` are the positions of the last `known` numbers before `next`.
#[derive(Clone, Debug)]
struct Session {
    asked: u64,
    take: u64,
    next: u64,
    spans: VecDeque<Span>,
    known: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Positions from the first number on; the position after all ever granted.
    Given(Vec<Span>, Position),
    /// An earlier request is missing.
    OutOfOrder { expected: u64 },
    /// The request is older than the client's current take, or than its knowledge.
    Late,
}

impl Tokens {
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn know(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// Answers a request. New positions start at `next`.
    pub(super) fn give(
        &mut self,
        session: SessionId,
        (take, ungranted): (u64, u64),
        (first, count): (u64, u64),
        next: Position,
        most: usize,
    ) -> Answer {
        if self.sessions.len() >= most && !self.sessions.contains_key(&session) {
            self.forget_silent(most);
        }
        self.asked += 1;
        let asked = self.asked;
        let anew = || Session { asked, take, next: ungranted, spans: VecDeque::new(), known: 0 };
        let known = self.sessions.entry(session).or_insert_with(anew);
        known.asked = asked;
        if take < known.take {
            return Answer::Late;
        }
        if take > known.take {
            *known = anew();
        }
        known.forget_below(ungranted);
        if first < known.next - known.known {
            // A later request shows that the client knows these positions.
            return Answer::Late;
        }
        if first > known.next {
            return Answer::OutOfOrder { expected: known.next };
        }
        let new = (first + count).saturating_sub(known.next);
        if new > 0 {
            known.add(Span { first: next, count: new });
        }
        Answer::Given(known.from(first, count), next + new)
    }

    /// Forgets the least recent askers, at least a sixteenth of `most`.
    fn forget_silent(&mut self, most: usize) {
        let excess = self.sessions.len().saturating_sub(most - (most / 16).max(1).min(most));
        let mut asked: Vec<u64> = self.sessions.values().map(|session| session.asked).collect();
        asked.sort_unstable();
        if let Some(last) = excess.checked_sub(1).and_then(|last| asked.get(last).copied()) {
            self.sessions.retain(|_, session| session.asked > last);
        }
    }
}

impl Session {
    fn add(&mut self, span: Span) {
        let last = self.spans.back().map_or(span.first, |last| last.end());
        assert!(last <= span.first && self.known <= self.next, "positions rise: {span:?} after {last}");
        self.next += span.count;
        self.known += span.count;
        match self.spans.back_mut().filter(|last| last.end() == span.first) {
            Some(last) => last.count += span.count,
            None => self.spans.push_back(span),
        }
    }

    fn forget_below(&mut self, number: u64) {
        while let Some(span) = self.spans.front_mut() {
            let gone = number.saturating_sub(self.next - self.known).min(span.count);
            if gone == 0 {
                break;
            }
            self.known -= gone;
            span.first += gone;
            span.count -= gone;
            if span.count == 0 {
                self.spans.pop_front();
            }
        }
    }

    fn from(&self, first: u64, count: u64) -> Vec<Span> {
        let mut number = self.next - self.known;
        let mut found = vec![];
        for span in &self.spans {
            let (from, end) = (first.max(number), (first + count).min(number + span.count));
            if from < end {
                found.push(Span { first: span.first + (from - number), count: end - from });
            }
            number += span.count;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const MOST: usize = 3;

    fn span(first: u64, count: u64) -> Span {
        Span { first: Position(first), count }
    }

    fn given(spans: &[Span], next: u64) -> Answer {
        Answer::Given(spans.to_vec(), Position(next))
    }

    #[test]
    fn a_question_that_comes_again_is_answered_alike() {
        let mut tokens = Tokens::default();
        assert_eq!(tokens.give(A, (0, 0), (0, 3), Position(5), MOST), given(&[span(5, 3)], 8));
        assert_eq!(tokens.give(A, (0, 0), (3, 2), Position(20), MOST), given(&[span(20, 2)], 22));
        assert_eq!(tokens.give(A, (0, 0), (1, 3), Position(30), MOST), given(&[span(6, 2), span(20, 1)], 30));
        assert_eq!(
            tokens.give(A, (0, 2), (2, 4), Position(30), MOST),
            given(&[span(7, 1), span(20, 2), span(30, 1)], 31)
        );
    }

    #[test]
    fn a_question_that_was_overtaken_is_not_answered_for_other_numbers() {
        let mut tokens = Tokens::default();
        assert_eq!(tokens.give(A, (0, 0), (0, 2), Position(5), MOST), given(&[span(5, 2)], 7));
        // The client knows number 0 by now; an earlier repetition arrives late.
        assert_eq!(tokens.give(A, (0, 1), (2, 1), Position(9), MOST), given(&[span(9, 1)], 10));
        assert_eq!(tokens.give(A, (0, 0), (0, 4), Position(10), MOST), Answer::Late);
    }

    #[test]
    fn positions_are_given_in_the_order_of_numbers() {
        let mut tokens = Tokens::default();
        assert_eq!(tokens.give(A, (0, 0), (2, 3), Position(5), MOST), Answer::OutOfOrder { expected: 0 });
        // A new or forgotten session continues from its client's knowledge.
        let other = SessionId(2);
        assert_eq!(tokens.give(other, (0, 7), (7, 1), Position(5), MOST), given(&[span(5, 1)], 6));
    }

    #[test]
    fn what_a_client_gave_up_is_given_anew() {
        let mut tokens = Tokens::default();
        assert_eq!(tokens.give(A, (0, 0), (0, 3), Position(5), MOST), given(&[span(5, 3)], 8));
        assert_eq!(tokens.give(A, (1, 1), (1, 2), Position(8), MOST), given(&[span(8, 2)], 10));
        assert_eq!(tokens.give(A, (0, 0), (3, 2), Position(10), MOST), Answer::Late);
    }

    #[test]
    fn those_that_asked_least_recently_are_forgotten() {
        let mut tokens = Tokens::default();
        for (n, session) in [1, 2, 3, 1, 4].into_iter().enumerate() {
            tokens.give(SessionId(session), (0, 0), (0, 1), Position(n as u64), MOST);
        }
        let known: Vec<SessionId> = tokens.sessions.keys().copied().collect();
        assert_eq!(known, [SessionId(1), SessionId(3), SessionId(4)]);
    }
}
