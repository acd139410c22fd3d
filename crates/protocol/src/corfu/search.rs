//! A client's search for a session's records: backwards from its closing position, in pieces, on
//! all shards at once, to the first record that the application has seen acknowledged.
//!
//! Numbers rise with positions, so no wanted append lies below a record with a lower number.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{NodeId, Position, RecordId, SessionId, ShardId, View, limits};

/// Length of a piece of the search, in full batches.
const BATCHES: u64 = 8;

/// Rounds in which no replica of a shard can tell, before the search fails: a replica may be
/// catching up, or repairing a damaged record.
const ROUNDS: u32 = 5;

#[derive(Clone, Debug)]
pub(super) struct Search {
    session: SessionId,
    /// Lowest wanted number.
    wanted: u64,
    /// No record of the session is below this.
    lowest: Position,
    /// All records of the session are below this.
    below: Position,
    piece: (Position, Position),
    most: u64,
    /// Shards with unanswered parts of the piece.
    shards: BTreeMap<ShardId, Asked>,
    found: BTreeMap<u64, Position>,
    /// Number and position of the session's last record.
    last: Option<(u64, Position)>,
    /// Position of the last record with a number below `wanted`.
    passed: Option<Position>,
    /// Highest trim point of any shard. Below it, other shards' records prove nothing about that
    /// shard.
    trim: Position,
}

#[derive(Clone, Debug)]
struct Asked {
    next: Position,
    /// Index of the replica to ask.
    turn: usize,
    /// Replicas that could not tell in this round, and the number of earlier rounds.
    refused: BTreeSet<NodeId>,
    rounds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) shard: ShardId,
    pub(super) node: NodeId,
    pub(super) from: Position,
    pub(super) end: Position,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Not an answer to a current question.
    None,
    Ask(Vec<Question>),
    Done,
    /// No replica of a shard can tell.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) end: u64,
    /// Position of the last record, or a bound below which there is none.
    pub(super) since: Position,
    pub(super) places: BTreeMap<u64, Position>,
}

impl Search {
    /// Searches `lowest..below` for numbers from `wanted` on.
    pub(super) fn new(
        session: SessionId,
        wanted: u64,
        (lowest, below): (Position, Position),
        batch_records: usize,
    ) -> Self {
        let (found, shards) = (BTreeMap::new(), BTreeMap::new());
        Self {
            session,
            wanted,
            lowest: lowest.min(below),
            below,
            piece: (below, below),
            most: BATCHES * batch_records as u64,
            shards,
            found,
            last: None,
            passed: None,
            trim: Position::ZERO,
        }
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    pub(super) fn below(&self) -> Position {
        self.below
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.shards.is_empty()
    }

    /// Whether a found record proves that no wanted append is below it or trimmed.
    fn is_passed(&self) -> bool {
        self.passed.is_some_and(|position| position >= self.trim)
    }

    pub(super) fn go_on(&mut self, view: &View) -> Progress {
        let (end, lowest) = (self.piece.0, self.lowest.max(self.trim));
        if self.is_passed() || end <= lowest {
            return Progress::Done;
        }
        let first = Position(end.0.saturating_sub(self.most)).max(lowest);
        self.piece = (first, end);
        let asked = || Asked { next: first, turn: 0, refused: BTreeSet::new(), rounds: 0 };
        self.shards = view.shards.iter().map(|members| (members.shard, asked())).collect();
        Progress::Ask(self.questions(view))
    }

    fn questions(&self, view: &View) -> Vec<Question> {
        self.shards.keys().filter_map(|shard| self.question(view, *shard)).collect()
    }

    fn question(&self, view: &View, shard: ShardId) -> Option<Question> {
        let (asked, members) = (self.shards.get(&shard)?, view.shard(shard)?);
        let node = members.replicas[asked.turn % members.replicas.len()].node;
        Some(Question { shard, node, from: asked.next, end: self.piece.1 })
    }

    /// Repeats open questions to the next replicas.
    pub(super) fn again(&mut self, view: &View) -> Vec<Question> {
        self.shards.values_mut().for_each(|asked| asked.turn += 1);
        self.questions(view)
    }

    /// A replica answered for `from..upto`; it has nothing below `trim`.
    pub(super) fn answered(
        &mut self,
        view: &View,
        (node, shard): (NodeId, ShardId),
        (from, upto): (Position, Position),
        trim: Position,
        found: &[(Position, RecordId)],
    ) -> Progress {
        let Some(asked) = self.shards.get_mut(&shard).filter(|asked| asked.next == from) else {
            return Progress::None;
        };
        self.trim = self.trim.max(trim);
        if upto <= from {
            asked.turn += 1;
            asked.refused.insert(node);
            let replicas = view.shard(shard).map_or(&[][..], |members| &members.replicas);
            if !replicas.iter().all(|member| asked.refused.contains(&member.node)) {
                return Progress::Ask(self.question(view, shard).into_iter().collect());
            }
            asked.refused.clear();
            asked.rounds += 1;
            return if asked.rounds < ROUNDS { Progress::Ask(vec![]) } else { Progress::Lost };
        }
        asked.next = upto;
        asked.refused.clear();
        asked.rounds = 0;
        for (position, id) in found.iter().filter(|(_, id)| id.session == self.session) {
            self.last = self.last.max(Some((id.number, *position)));
            if id.number >= self.wanted {
                self.found.insert(id.number, *position);
            } else {
                self.passed = self.passed.max(Some(*position));
            }
        }
        if self.found.len() > limits::MAX_FOUND_AGAIN {
            return Progress::Lost;
        }
        if upto < self.piece.1 {
            return Progress::Ask(self.question(view, shard).into_iter().collect());
        }
        self.shards.remove(&shard);
        if self.shards.is_empty() { self.go_on(view) } else { Progress::Ask(vec![]) }
    }

    /// The result. `None` if a wanted append may have been trimmed. `end`: the session's end, if
    /// known otherwise. Shards trim one after the other, so records below another's trim point
    /// prove nothing.
    pub(super) fn findings(mut self, end: Option<u64>) -> Option<Findings> {
        let is_whole = self.is_passed() || self.trim <= self.lowest;
        self.found.retain(|_, position| *position >= self.trim);
        let last = self.last.filter(|(_, position)| *position >= self.trim);
        let end = end.or(last.map(|(number, _)| number + 1)).or(is_whole.then_some(0))?;
        let first = self.found.keys().next().copied().unwrap_or(end);
        let since = last.map_or(self.lowest, |(_, position)| position);
        (is_whole || first <= self.wanted).then_some(Findings { end, since, places: self.found })
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Incarnation, Member, Placement, ShardMembers, ViewNumber};

    use super::*;

    const SESSION: SessionId = SessionId(7);

    fn view() -> View {
        let replicas = |nodes: [u32; 2]| {
            nodes.map(|node| Member { node: NodeId(node), incarnation: Incarnation(1) }).to_vec()
        };
        let shard = |shard: u32, nodes| ShardMembers {
            shard: ShardId(shard),
            replicas: replicas(nodes),
            begins: Position::ZERO,
        };
        View {
            number: ViewNumber(1),
            sequencers: vec![],
            leader: NodeId(1),
            shards: vec![shard(0, [1, 2]), shard(1, [3, 4])],
            retired: vec![],
            placement: Placement::new(vec![ShardId(0), ShardId(1)], 1),
            first: Position::ZERO,
            start: Position::ZERO,
        }
    }

    fn at(records: &[(u64, u64)]) -> Vec<(Position, RecordId)> {
        let named = |(position, number): &(u64, u64)| {
            (Position(*position), RecordId { session: SESSION, number: *number })
        };
        records.iter().map(named).collect()
    }

    fn question(shard: u32, node: u32, from: u64, end: u64) -> Question {
        Question { shard: ShardId(shard), node: NodeId(node), from: Position(from), end: Position(end) }
    }

    /// Both shards answer a piece; the first has these records.
    fn piece(search: &mut Search, (from, end): (u64, u64), trim: u64, records: &[(u64, u64)]) -> Progress {
        let (view, span, trim) = (view(), (Position(from), Position(end)), Position(trim));
        let first = search.answered(&view, (NodeId(1), ShardId(0)), span, trim, &at(records));
        assert_eq!(first, Progress::Ask(vec![]));
        search.answered(&view, (NodeId(3), ShardId(1)), span, trim, &[])
    }

    #[test]
    fn it_goes_back_to_the_first_number_that_is_not_looked_for() {
        let mut search = Search::new(SESSION, 5, (Position(3), Position(20)), 1);
        let first = vec![question(0, 1, 12, 20), question(1, 3, 12, 20)];
        assert_eq!(search.go_on(&view()), Progress::Ask(first));
        let second = vec![question(0, 1, 4, 12), question(1, 3, 4, 12)];
        assert_eq!(piece(&mut search, (12, 20), 0, &[(13, 5), (15, 7)]), Progress::Ask(second));
        assert_eq!(piece(&mut search, (4, 12), 0, &[(9, 4)]), Progress::Done);
        let places = [(5, Position(13)), (7, Position(15))].into();
        assert_eq!(search.findings(None), Some(Findings { end: 8, since: Position(15), places }));
    }

    #[test]
    fn where_nothing_is_the_session_has_nothing() {
        let mut search = Search::new(SESSION, 0, (Position(3), Position(8)), 1);
        search.go_on(&view());
        assert_eq!(piece(&mut search, (3, 8), 0, &[]), Progress::Done);
        let nothing = Findings { end: 0, since: Position(3), places: BTreeMap::new() };
        assert_eq!(search.findings(None), Some(nothing));
    }

    #[test]
    fn what_may_be_trimmed_is_not_taken_for_missing() {
        let trimmed = |records: &[(u64, u64)], end| {
            let mut search = Search::new(SESSION, 5, (Position(3), Position(8)), 1);
            search.go_on(&view());
            assert_eq!(piece(&mut search, (3, 8), 6, records), Progress::Done);
            search.findings(end)
        };
        assert_eq!(trimmed(&[], None), None);
        assert_eq!(trimmed(&[(7, 6)], None), None, "number 5 may have been there");
        assert!(trimmed(&[(6, 5), (7, 6)], None).is_some());
        assert!(trimmed(&[], Some(5)).is_some() && trimmed(&[], Some(6)).is_none());
    }

    #[test]
    fn what_only_one_shard_has_trimmed_is_not_taken_for_missing() {
        // The wanted record may have been on the other shard.
        let trimmed = |records: &[(u64, u64)], end| {
            let mut search = Search::new(SESSION, 5, (Position(3), Position(20)), 4);
            search.go_on(&view());
            let (span, view) = ((Position(3), Position(20)), view());
            search.answered(&view, (NodeId(1), ShardId(0)), span, Position(0), &at(records));
            let done = search.answered(&view, (NodeId(3), ShardId(1)), span, Position(12), &[]);
            assert_eq!(done, Progress::Done);
            search.findings(end)
        };
        assert_eq!(trimmed(&[(4, 4)], None), None, "number 5 may have been at 7");
        assert_eq!(trimmed(&[(4, 5)], None), None, "number 6 may have been at 7");
        assert_eq!(trimmed(&[(4, 5)], Some(7)), None);
        let found = trimmed(&[(10, 4), (14, 5)], None).map(|found| (found.end, found.places.len()));
        assert_eq!(found, Some((6, 1)));
        assert_eq!(trimmed(&[(13, 4)], None).map(|found| found.end), Some(5));
    }

    #[test]
    fn a_replica_that_cannot_tell_is_not_asked_twice_in_a_round() {
        let mut search = Search::new(SESSION, 0, (Position(3), Position(8)), 1);
        search.go_on(&view());
        let cannot = (Position(3), Position(3));
        let answer = |search: &mut Search, node, span| {
            search.answered(&view(), (NodeId(node), ShardId(1)), span, Position::ZERO, &[])
        };
        assert_eq!(answer(&mut search, 3, cannot), Progress::Ask(vec![question(1, 4, 3, 8)]));
        let part = (Position(3), Position(5));
        assert_eq!(answer(&mut search, 4, part), Progress::Ask(vec![question(1, 4, 5, 8)]));
        assert_eq!(answer(&mut search, 4, part), Progress::None, "it came twice");
        let cannot = (Position(5), Position(5));
        for round in 1..=ROUNDS {
            // Repeated refusals of the first replica do not replace the other's answer.
            for _ in 0..3 {
                assert!(matches!(answer(&mut search, 3, cannot), Progress::Ask(_)));
            }
            let expected = if round < ROUNDS { Progress::Ask(vec![]) } else { Progress::Lost };
            assert_eq!(answer(&mut search, 4, cannot), expected, "{round}");
        }
    }
}
