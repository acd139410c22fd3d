//! Single rules, and random sequences that compare the policy with a simpler one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use seriatim_model::{SessionId, ShardId};

use super::*;

const FINAL: Basis = Basis::Final;

fn predicted(view: u64) -> Basis {
    Basis::Predicted(ViewNumber(view))
}

fn id(number: u64) -> RecordId {
    RecordId { session: SessionId(1), number }
}

fn record(number: u64, basis: Basis) -> Known {
    Known::Record { id: id(number), shard: ShardId(0), basis }
}

fn empty(end: u64, basis: Basis) -> Known {
    Known::Empty { end: Position(end), basis }
}

fn policy() -> TwoBounds {
    TwoBounds::new(Position(0), Position(100), false, Options::default())
}

fn mutated(mutation: Mutation) -> TwoBounds {
    let options = Options { mutation: Some(mutation), ..Options::default() };
    TwoBounds::new(Position(0), Position(100), false, options)
}

/// Answers the policy with `known`, from its next position on. Returns the `speculative` flag of
/// each given record.
fn give(policy: &mut TwoBounds, known: impl IntoIterator<Item = Known>) -> Vec<bool> {
    let mut flags = vec![];
    for known in known {
        if let Next::Give { speculative } = policy.answered(policy.next(), known) {
            flags.push(speculative);
        }
    }
    flags
}

fn history(steps: &[(u64, u64)]) -> ViewHistory {
    let mut history = ViewHistory::default();
    steps.iter().for_each(|(view, first)| history.push(ViewNumber(*view), Position(*first)));
    history
}

#[test]
fn final_records_are_confirmed_at_once() {
    let mut policy = policy();
    assert_eq!(give(&mut policy, [record(0, FINAL), empty(4, FINAL), record(4, FINAL)]), [false, false]);
    assert_eq!(policy.confirm(), Some(Position(5)));
    assert_eq!(policy.confirm(), None, "nothing new");
}

#[test]
fn a_prediction_is_confirmed_when_its_view_holds_it() {
    let mut policy = policy();
    let known = [record(0, FINAL), record(1, predicted(3)), record(2, FINAL), record(3, predicted(3))];
    assert_eq!(
        give(&mut policy, known),
        [false, true, true, true],
        "what follows a prediction fails with it"
    );
    assert_eq!(policy.confirm(), Some(Position(1)));
    policy.holds(ViewNumber(2), Position(9));
    assert_eq!(policy.confirm(), None, "another view says nothing of it");
    policy.holds(ViewNumber(3), Position(2));
    assert_eq!(policy.confirm(), Some(Position(3)));
    policy.holds(ViewNumber(3), Position(4));
    assert_eq!(policy.confirm(), Some(Position(4)));
}

#[test]
fn a_long_empty_span_is_confirmed_in_parts() {
    let mut policy = policy();
    give(&mut policy, [empty(40, predicted(1)), empty(200, predicted(1))]);
    assert_eq!((policy.next(), policy.wanted()), (Position(100), None), "no further than the end");
    policy.holds(ViewNumber(1), Position(60));
    assert_eq!(policy.confirm(), Some(Position(60)));
    assert!(!policy.is_done());
    assert_eq!(policy.compare(Position(60)..Position(100), |_| empty(100, FINAL)), None);
    assert_eq!(policy.confirm(), Some(Position(100)));
    assert!(policy.is_done());
}

const ALL: Range<Position> = Position(0)..Position(u64::MAX);

#[test]
fn the_end_of_an_empty_span_may_be_known_to_be_final_before_its_beginning() {
    let mut policy = policy();
    give(&mut policy, [empty(10, predicted(1))]);
    let ends = |at: Position| if at < Position(3) { Known::NotYet } else { empty(10, FINAL) };
    assert_eq!(policy.compare(Position(3)..Position(10), ends), None);
    assert_eq!(policy.confirm(), None);
    let all = |at: Position| if at < Position(3) { empty(3, FINAL) } else { empty(10, FINAL) };
    assert_eq!(policy.compare(Position(0)..Position(3), all), None);
    assert_eq!(policy.confirm(), Some(Position(10)));
}

#[test]
fn what_turned_out_different_fails_with_all_after_it_and_nothing_before() {
    let mut policy = policy();
    give(&mut policy, (0..5).map(|number| record(number, predicted(1))));
    let truth = |position: Position| match position.0 {
        0 | 1 => record(position.0, FINAL),
        2 => record(7, FINAL),
        _ => Known::NotYet,
    };
    assert_eq!(policy.compare(ALL, truth), Some(Position(2)));
    assert_eq!(policy.fail(Position(2)), Some(Position(2)));
    assert_eq!(policy.next(), Position(2));
    assert_eq!(policy.confirm(), Some(Position(2)));
    assert_eq!(give(&mut policy, [record(7, FINAL)]), [false]);
}

#[test]
fn a_record_where_none_was_predicted_takes_back_what_came_after_it() {
    let known = [empty(1, predicted(1)), record(1, predicted(1))];
    let mut policy = policy();
    give(&mut policy, known);
    assert_eq!(policy.compare(ALL, |_| record(9, FINAL)), Some(Position(0)));
    assert_eq!(policy.fail(Position(0)), Some(Position(0)));
    give(&mut policy, [empty(3, predicted(1))]);
    assert_eq!(
        policy.compare(ALL, |position| if position.0 < 2 { empty(2, FINAL) } else { record(9, FINAL) }),
        Some(Position(2))
    );
    assert_eq!((policy.fail(Position(2)), policy.next()), (None, Position(2)));
    // With this defect, the policy does not remember the empty position.
    let mut policy = mutated(Mutation::EmptyNotGiven);
    give(&mut policy, known);
    assert_eq!(policy.confirm(), Some(Position(1)));
}

#[test]
fn what_comes_final_is_compared_with_what_was_given_there_and_nothing_else() {
    let mut policy = TwoBounds::new(Position(0), Position(2000), false, Options::default());
    give(&mut policy, (0..1000).map(|number| record(number, predicted(1))));
    give(&mut policy, [empty(1010, predicted(1)), record(1010, predicted(1))]);
    let mut asked = vec![];
    let mut compare = |policy: &mut TwoBounds, from, upto, known: fn(u64) -> Known| {
        asked.clear();
        let differs = policy.compare(Position(from)..Position(upto), |at| {
            asked.push(at.0);
            known(at.0)
        });
        (differs, asked.clone())
    };
    assert_eq!(compare(&mut policy, 0, 0, |at| record(at, FINAL)), (None, vec![]));
    assert_eq!(compare(&mut policy, 998, 1000, |at| record(at, FINAL)), (None, vec![998, 999]));
    assert_eq!(compare(&mut policy, 998, 1000, |_| record(5, FINAL)), (None, vec![]), "both are final");
    // The given empty span becomes final in parts.
    let begins = |at: u64| if at < 1006 { empty(1006, FINAL) } else { Known::NotYet };
    assert_eq!(compare(&mut policy, 1004, 1006, begins).0, None);
    assert_eq!(compare(&mut policy, 1007, 1008, |_| Known::NotYet), (None, vec![1006]));
    assert_eq!(compare(&mut policy, 1007, 1011, |_| record(7, FINAL)), (Some(Position(1006)), vec![1006]));
    assert_eq!(policy.confirm(), None);
    policy.holds(ViewNumber(1), Position(998));
    assert_eq!(policy.confirm(), Some(Position(1006)));
    assert_eq!(policy.fail(Position(1006)), Some(Position(1006)));
    assert_eq!(policy.predicted, 0);
}

#[test]
fn a_view_keeps_what_it_does_not_decide_and_voids_what_lies_beyond_its_start() {
    let mut policy = policy();
    give(&mut policy, (0..9).map(|number| record(number, predicted(1))));
    // View 3 begins at 6 and decides positions from 2 on.
    let history = history(&[(1, 0), (3, 2)]);
    assert_eq!(policy.entered(ViewNumber(3), Position(6), &history), Some(Position(6)));
    assert_eq!(policy.fail(Position(6)), Some(Position(6)));
    assert_eq!(policy.confirm(), Some(Position(2)));
    policy.holds(ViewNumber(3), Position(9));
    assert_eq!(policy.confirm(), None, "view 3 says nothing of predictions of view 1");
    assert_eq!(policy.compare(ALL, |position| record(position.0, FINAL)), None);
    assert_eq!(policy.confirm(), Some(Position(6)));
}

#[test]
fn what_was_held_stays_so_behind_what_nobody_tells_of_yet() {
    let mut policy = policy();
    give(&mut policy, [record(0, predicted(1))]);
    let nothing = ViewHistory::default();
    assert_eq!(policy.entered(ViewNumber(2), Position(1), &nothing), None);
    give(&mut policy, (1..4).map(|number| record(number, predicted(2))));
    policy.holds(ViewNumber(2), Position(3));
    assert_eq!(policy.confirm(), None, "it is not known whether the first one stands");
    assert_eq!(policy.entered(ViewNumber(3), Position(4), &nothing), None);
    policy.holds(ViewNumber(3), Position(9));
    let first = Position(0)..Position(1);
    assert_eq!(policy.compare(first, |position| record(position.0, FINAL)), None);
    assert_eq!(policy.confirm(), Some(Position(3)), "the last one is not decided by view 2");
}

#[test]
fn an_empty_span_is_kept_as_far_as_its_view_decides() {
    let mut policy = policy();
    give(&mut policy, [empty(9, predicted(1))]);
    assert_eq!(policy.entered(ViewNumber(2), Position(6), &history(&[(1, 0), (2, 4)])), Some(Position(6)));
    assert_eq!((policy.fail(Position(6)), policy.next()), (None, Position(6)));
    assert_eq!(policy.confirm(), Some(Position(4)));
    let given_out = |at: Position| if at < Position(5) { empty(5, FINAL) } else { Known::NotYet };
    assert_eq!(policy.compare(Position(4)..Position(5), given_out), None);
    assert_eq!(policy.confirm(), Some(Position(5)), "a shard gave that out as final");
    assert_eq!(policy.compare(ALL, |_| Known::NotYet), None);
    assert_eq!(policy.confirm(), None, "nobody has said that it holds");
}

#[test]
fn what_was_trimmed_undecided_is_void() {
    let mut policy = policy();
    give(&mut policy, [record(0, FINAL), record(1, predicted(1)), record(2, predicted(1))]);
    assert_eq!(policy.trimmed(Position(1)), Trimmed { failed: None, next: Position(3), skips: false });
    assert_eq!(
        policy.trimmed(Position(2)),
        Trimmed { failed: Some(Position(1)), next: Position(1), skips: true }
    );
    assert_eq!((policy.next(), policy.confirmed()), (Position(2), Position(2)));
    assert_eq!(policy.trimmed(Position(7)), Trimmed { failed: None, next: Position(2), skips: true });
    assert_eq!(policy.confirm(), None, "the trim tells as much");
}

#[test]
#[should_panic(expected = "was confirmed")]
fn nothing_fails_that_was_confirmed() {
    let mut policy = policy();
    give(&mut policy, [record(0, FINAL)]);
    policy.confirm();
    policy.fail(Position(0));
}

#[test]
fn a_gap_of_one_shard_says_nothing_of_records_of_another() {
    let mut policy = policy();
    let of_another = Known::Record { id: id(1), shard: ShardId(1), basis: predicted(1) };
    give(&mut policy, [record(0, predicted(1)), of_another, record(2, FINAL), record(3, predicted(1))]);
    give(&mut policy, [empty(6, predicted(1))]);
    let undecided = |shard: u32, from: u64, end: u64| {
        policy.undecided_in(&Gap { shard: ShardId(shard), from: Position(from), end: Position(end) })
    };
    assert_eq!(undecided(0, 1, 4), Some(Position(3)));
    assert_eq!(undecided(1, 1, 4), Some(Position(1)));
    assert_eq!((undecided(1, 2, 4), undecided(1, 2, 7)), (None, Some(Position(4))));
}

#[test]
#[should_panic(expected = "4 came where 0 was wanted")]
fn no_position_is_left_out() {
    policy().answered(Position(4), record(4, FINAL));
}

#[test]
fn the_defects_confirm_and_fail_too_much() {
    let mut policy = mutated(Mutation::HoldsAnyView);
    give(&mut policy, [record(0, predicted(1))]);
    policy.holds(ViewNumber(2), Position(1));
    assert_eq!(policy.confirm(), Some(Position(1)));
    let mut policy = mutated(Mutation::OldPredictionsKept);
    give(&mut policy, [record(0, predicted(1))]);
    assert_eq!(policy.entered(ViewNumber(2), Position(0), &history(&[(2, 0)])), None);
    let mut policy = mutated(Mutation::FailTooFar);
    give(&mut policy, [record(0, predicted(1)), record(1, predicted(1))]);
    assert_eq!(policy.fail(Position(1)), Some(Position(0)));
    assert_eq!(
        mutated(Mutation::FailTooFar)
            .answered(Position(0), Known::Lost { shard: ShardId(1), end: Position(3) }),
        Next::Fail(Failure::Lost { position: Position(0), shard: ShardId(1), end: Position(3) })
    );
}

/// A simpler policy, for comparison: one entry per position, and no incremental state.
#[derive(Debug, Default)]
struct Plain {
    given: BTreeMap<u64, (Option<RecordId>, Basis)>,
    next: u64,
    confirmed: u64,
    holds: BTreeMap<u64, u64>,
}

impl Plain {
    fn fail(&mut self, first: u64) -> Option<u64> {
        let void = self.given.split_off(&first);
        self.next = self.next.min(first);
        void.values().any(|(id, _)| id.is_some()).then_some(first)
    }

    fn differs(&mut self, world: &World) -> Option<u64> {
        for (position, (id, basis)) in &mut self.given {
            match world.known.get(position) {
                _ if *basis == FINAL => {}
                Some((known, _)) if known != id => return Some(*position),
                Some((_, known)) if *known == FINAL => *basis = FINAL,
                _ => {}
            }
        }
        None
    }

    fn entered(&mut self, view: u64, start: u64, history: &ViewHistory) -> Option<u64> {
        let mut void = None;
        for (position, (_, basis)) in &mut self.given {
            let Basis::Predicted(before) = *basis else { continue };
            if history.cover(Position(*position)) == Some(before) {
                *basis = FINAL;
            } else if *position >= start && before < ViewNumber(view) {
                void = void.or(Some(*position));
            }
        }
        void
    }

    fn confirm(&mut self) -> Option<u64> {
        let before = self.confirmed;
        while let Some((_, basis)) = self.given.get(&self.confirmed) {
            let is_right = match basis {
                Basis::Final => true,
                Basis::Predicted(view) => self.holds.get(&view.0).is_some_and(|held| self.confirmed < *held),
            };
            if !is_right {
                break;
            }
            self.given.remove(&self.confirmed);
            self.confirmed += 1;
        }
        (self.confirmed > before).then_some(self.confirmed)
    }
}

/// A source's knowledge: for each position its record (None: empty) and basis.
#[derive(Debug, Default)]
struct World {
    known: BTreeMap<u64, (Option<RecordId>, Basis)>,
    view: u64,
    /// Bound below which everything is final in the present view.
    stable: u64,
    /// Bound below which everything is at least predicted in the present view.
    end: u64,
    history: ViewHistory,
    fresh: u64,
}

impl World {
    fn content(&mut self, is_empty: bool) -> Option<RecordId> {
        self.fresh += 1;
        (!is_empty).then(|| id(self.fresh))
    }

    fn know(&self, position: Position) -> Known {
        match self.known.get(&position.0) {
            Some((Some(id), basis)) => Known::Record { id: *id, shard: ShardId(0), basis: *basis },
            Some((None, basis)) => {
                let same = |end: &u64| self.known.get(end) == Some(&(None, *basis));
                let end = (position.0 + 1..).find(|end| !same(end)).expect("the map ends");
                Known::Empty { end: Position(end), basis: *basis }
            }
            None => Known::NotYet,
        }
    }

    fn raise(&mut self, upto: u64) {
        self.stable = self.stable.max(upto.min(self.end));
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// The source receives a number of predictions; a set bit marks an empty position.
    Predict(u8, u8),
    Take(u8),
    /// A number of predictions become final, by a bound (true) or by records.
    Stable(u8, bool),
    /// A new view decides a number of the undecided positions; the first of them keep their
    /// predicted content.
    View(u8, u8, u8),
    Records,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1..6u8, any::<u8>()).prop_map(|(count, empty)| Event::Predict(count, empty)),
        3 => (1..9u8).prop_map(Event::Take),
        2 => (1..6u8, any::<bool>()).prop_map(|(count, told)| Event::Stable(count, told)),
        1 => (0..6u8, 0..6u8, any::<u8>()).prop_map(|(kept, same, empty)| Event::View(kept, same, empty)),
        1 => Just(Event::Records),
    ]
}

/// Both policies, and the delivered records that are not void.
#[derive(Debug)]
struct Both {
    policy: TwoBounds,
    plain: Plain,
    world: World,
    /// The final log, below `world.stable` or the view's start.
    truth: BTreeMap<u64, Option<RecordId>>,
    handed_over: BTreeMap<u64, RecordId>,
}

impl Both {
    fn failed(&mut self, first: Option<Position>) {
        let Some(first) = first else { return };
        let told = self.policy.fail(first);
        assert_eq!(told.map(|told| told.0), self.plain.fail(first.0));
        assert!(first.0 >= self.plain.confirmed);
        self.handed_over.retain(|position, _| *position < first.0);
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::Predict(count, empty) => {
                for bit in 0..count {
                    let content = self.world.content(empty >> bit & 1 == 1);
                    self.world.known.insert(self.world.end, (content, predicted(self.world.view)));
                    self.truth.insert(self.world.end, content);
                    self.world.end += 1;
                }
            }
            Event::Take(count) => {
                for _ in 0..count {
                    let at = self.policy.next();
                    assert_eq!(at.0, self.plain.next);
                    let known = self.world.know(at);
                    match (self.policy.answered(at, known), known) {
                        (Next::Give { speculative }, Known::Record { id, basis, .. }) => {
                            let below = self.plain.given.values().any(|(_, basis)| *basis != FINAL);
                            assert_eq!(speculative, basis != FINAL || below);
                            self.handed_over.insert(at.0, id);
                        }
                        (Next::Pass, Known::Empty { .. }) | (Next::Wait, Known::NotYet) => {}
                        other => panic!("not an answer: {other:?}"),
                    }
                    for position in at.0..self.policy.next().0 {
                        self.plain.given.insert(position, self.world.known[&position]);
                    }
                    self.plain.next = self.policy.next().0;
                }
            }
            Event::Stable(count, told) => {
                self.world.raise(self.world.stable + u64::from(count));
                let (view, stable) = (self.world.view, self.world.stable);
                for (_, known) in self.world.known.range_mut(..stable) {
                    known.1 = FINAL;
                }
                if told {
                    self.policy.holds(ViewNumber(view), Position(stable));
                    self.plain.holds = BTreeMap::from([(view, stable)]);
                } else {
                    let world = &self.world;
                    assert_eq!(self.policy.compare(ALL, |at| world.know(at)), None);
                    assert_eq!(self.plain.differs(&self.world), None);
                }
            }
            Event::View(kept, same, empty) => self.change_view(kept.into(), same.into(), empty),
            Event::Records => {
                for position in self.world.stable..self.world.end {
                    if !self.world.known.contains_key(&position) {
                        self.world.known.insert(position, (self.truth[&position], FINAL));
                    }
                }
                let world = &self.world;
                let differs = self.policy.compare(ALL, |at| world.know(at));
                assert_eq!(differs.map(|at| at.0), self.plain.differs(&self.world));
                self.failed(differs);
            }
        }
        let confirmed = self.policy.confirm();
        assert_eq!(confirmed.map(|at| at.0), self.plain.confirm());
        assert_eq!(self.policy.confirmed().0, self.plain.confirmed);
        for position in 0..self.plain.confirmed {
            let expected = self.truth[&position];
            assert_eq!(self.handed_over.get(&position).copied(), expected, "{position} was confirmed");
        }
    }

    /// Enters a view that decides `kept` positions after the stable bound; the first `same` keep
    /// their content.
    fn change_view(&mut self, kept: u64, same: u64, empty: u8) {
        // The policies receive the previous view's final records before the next view.
        self.step(&Event::Records);
        let (first, view) = (self.world.stable, self.world.view + 1);
        let start = (first + kept).min(self.world.end);
        self.world.known.retain(|position, _| *position < first);
        self.truth.retain(|position, _| *position < start);
        for position in (first + same).min(start)..start {
            let content = self.world.content(empty >> (position % 8) & 1 == 1);
            self.truth.insert(position, content);
        }
        self.world.history.push(ViewNumber(view), Position(first));
        (self.world.view, self.world.end, self.world.stable) = (view, start, first);
        let void = self.policy.entered(ViewNumber(view), Position(start), &self.world.history);
        assert_eq!(void.map(|at| at.0), self.plain.entered(view, start, &self.world.history));
        self.failed(void);
        self.plain.holds.clear();
        // The new view's final records arrive before its predictions.
        if kept > 0 {
            self.step(&Event::Records);
        }
        self.world.stable = start;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn it_does_what_a_plain_policy_does(events in prop::collection::vec(event(), 1..60)) {
        let mut world = World { view: 1, ..World::default() };
        world.history.push(ViewNumber(1), Position(0));
        let mut both = Both {
            policy: TwoBounds::new(Position(0), Position(u64::MAX), false, Options::default()),
            plain: Plain::default(),
            world,
            truth: BTreeMap::new(),
            handed_over: BTreeMap::new(),
        };
        for event in &events {
            both.step(event);
        }
    }
}
