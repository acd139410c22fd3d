//! A client's search for the records of a session: backwards from where it was closed, one piece of
//! the log after the other, each on all shards at once, up to the first record that the application
//! has seen acknowledged.
//!
//! Numbers rise with positions. So no append that is looked for is below a record with a lower
//! number.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{NodeId, Position, RecordId, SessionId, ShardId, View, limits};

/// How many full batches a piece is long.
const BATCHES: u64 = 8;

/// How many rounds the search asks replicas of a shard that all cannot tell: an incomplete one may
/// be catching up, and one with a damaged record may be repairing it.
const ROUNDS: u32 = 5;

/// The records that are looked for, and those found so far.
#[derive(Clone, Debug)]
pub(super) struct Search {
    session: SessionId,
    /// Numbers from this one on are looked for.
    wanted: u64,
    /// No record of the session is below, ...
    lowest: Position,
    /// ... or at or above this.
    below: Position,
    /// The piece that is looked at.
    piece: (Position, Position),
    most: u64,
    /// The shards that have not said everything of the piece.
    shards: BTreeMap<ShardId, Asked>,
    found: BTreeMap<u64, Position>,
    /// The session's last record.
    last: Option<(u64, Position)>,
    /// The last record whose number is lower than what is looked for.
    passed: Option<Position>,
    /// Positions below were trimmed on some shard. Another one may still have them: that tells
    /// nothing of what the first one had.
    trim: Position,
}

/// How far a shard is.
#[derive(Clone, Debug)]
struct Asked {
    next: Position,
    /// Which of its replicas to ask.
    turn: usize,
    /// Which of them could not tell in this round, and how many rounds there were before.
    refused: BTreeSet<NodeId>,
    rounds: u32,
}

/// A question for a replica: where in a range are records of the session?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) shard: ShardId,
    pub(super) node: NodeId,
    pub(super) from: Position,
    pub(super) end: Position,
}

/// The outcome of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It answers nothing that was asked.
    None,
    /// These are to be asked next.
    Ask(Vec<Question>),
    /// Everything that can be found is.
    Done,
    /// No replica of a shard can tell.
    Lost,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Findings {
    /// The number after the session's last record.
    pub(super) end: u64,
    /// Where that record is, or no record can be below.
    pub(super) since: Position,
    /// The records that were looked for.
    pub(super) places: BTreeMap<u64, Position>,
}

impl Search {
    /// Looks for the records of a session from number `wanted` on, in `lowest..below`, in pieces of
    /// some batches of so many records.
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

    /// Everything of the session is below.
    pub(super) fn below(&self) -> Position {
        self.below
    }

    /// Whether anything was asked.
    pub(super) fn has_begun(&self) -> bool {
        !self.shards.is_empty()
    }

    /// Whether a record was seen that no append which is looked for is below, or was trimmed with.
    fn is_passed(&self) -> bool {
        self.passed.is_some_and(|position| position >= self.trim)
    }

    /// Goes on with the next piece, if there is one.
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

    /// The unanswered questions, for the next replica of each shard.
    pub(super) fn again(&mut self, view: &View) -> Vec<Question> {
        self.shards.values_mut().for_each(|asked| asked.turn += 1);
        self.questions(view)
    }

    /// A replica of a shard says that it has these in `from..upto`, and nothing below `trim`.
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
            // They are asked again when that is due.
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

    /// The findings, if they are complete: an append that was looked for may have been trimmed.
    /// Without a record that tells, the session ended at `end`, if that is known. Shards are
    /// trimmed one after the other, so what one of them has below a trim point does not tell.
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

    /// Both shards say all of a piece: the first one has these.
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
        // The record that was looked for may have been on the other one.
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
            // However often the first one says so, the other one is waited for.
            for _ in 0..3 {
                assert!(matches!(answer(&mut search, 3, cannot), Progress::Ask(_)));
            }
            let expected = if round < ROUNDS { Progress::Ask(vec![]) } else { Progress::Lost };
            assert_eq!(answer(&mut search, 4, cannot), expected, "{round}");
        }
    }
}
