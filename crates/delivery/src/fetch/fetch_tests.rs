//! Scripted inputs and expected effects.

use super::read::MISSING_PAUSE;
use super::*;
use crate::testing::{
    CONTROL, entry, from_register, from_shard, lookups, no_op, primary, replies, run, stored, that_lost,
    to_shards, with_given_up, with_third_replica, without_a_shard,
};

const MS: Duration = Duration::from_millis(1);

struct Script {
    fetch: Fetch,
    now: Time,
    /// For each shard with an unanswered question: node, request number, wait in milliseconds.
    asked: BTreeMap<u32, (u32, u64, u32)>,
    looked_up: u64,
    lookups: usize,
}

impl Script {
    fn new(entry: LogEntry) -> Self {
        let fetch = Fetch::new(CONTROL, entry, Options::default());
        Self { fetch, now: Time(1), asked: BTreeMap::new(), looked_up: 0, lookups: 0 }
    }

    fn step(&mut self, input: Input<Message, Request>) -> Vec<Reply> {
        let mut out = vec![];
        self.fetch.step(self.now, input, &mut out);
        for (node, shard, message) in to_shards(&out) {
            match message {
                shard::Message::Read { request, wait_ms, .. } => {
                    self.asked.insert(shard, (node, request, wait_ms));
                }
                shard::Message::Cancel { request } => {
                    self.asked.retain(|other, asked| *other != shard || asked.1 != request);
                }
                // Without a map, the fetch asks all shards for records.
                shard::Message::Map { .. } => {}
                other => panic!("a fetch does not send {other:?}"),
            }
        }
        let asked = lookups(&out);
        self.lookups += asked.len();
        self.looked_up = asked.last().copied().unwrap_or(self.looked_up);
        replies(&out)
    }

    fn read(&mut self, from: u64, max: u32, wait: Duration) -> Vec<Reply> {
        let answer_within = 1000 * MS;
        self.step(Input::Request {
            token: 3,
            request: Request::Read { from: Position(from), max, wait, answer_within },
        })
    }

    fn wait(&mut self, duration: Duration) -> Vec<Reply> {
        self.now = self.now + duration;
        if self.fetch.deadline().is_some_and(|at| at <= self.now) { self.step(Input::Wake) } else { vec![] }
    }

    fn answer(&mut self, shard: u32, records: Vec<Stored>, upto: u64) -> Vec<Reply> {
        let (node, request, _) = self.asked[&shard];
        self.step(from_shard(node, shard, shard::Message::Records { request, records, upto: Position(upto) }))
    }

    /// A shard answers with one empty span, given as first position and count.
    fn answer_empty(&mut self, shard: u32, (first, count): (u64, u64), upto: u64) -> Vec<Reply> {
        let (node, request, _) = self.asked[&shard];
        let (records, empty) = (vec![], vec![Span { first: Position(first), count }]);
        let message = shard::Message::RecordsWith { request, records, empty, upto: Position(upto) };
        self.step(from_shard(node, shard, message))
    }

    fn fail(&mut self, shard: u32, error: ReadError) -> Vec<Reply> {
        let (node, request, _) = self.asked[&shard];
        self.step(from_shard(node, shard, shard::Message::ReadFailed { request, error }))
    }

    fn found(&mut self, entry: LogEntry) -> Vec<Reply> {
        let request = self.looked_up;
        self.step(from_register(control::Message::Found { request, entry, nodes: vec![] }))
    }
}

fn records(positions: impl IntoIterator<Item = u64>, next: u64) -> Vec<Reply> {
    vec![Reply::Records { records: run(positions), next: Position(next) }]
}

#[test]
fn shards_are_asked_at_once_and_merged() {
    let mut script = Script::new(entry(1, 3, 2));
    assert_eq!(script.read(1, 3, Duration::ZERO), []);
    assert_eq!(script.asked.keys().copied().collect::<Vec<_>>(), [0, 1], "shard 2 holds nothing in 1..4");
    assert_eq!(script.answer(1, vec![stored(2), no_op(3)], 4), []);
    assert_eq!(script.answer(0, run([1]), 4), records([1, 2], 4));
    assert!(script.fetch.is_idle() && script.fetch.deadline().is_none());
}

#[test]
fn a_position_that_no_log_reaches_has_no_record() {
    for from in [u64::MAX, limits::MAX_NUMBER + 1, limits::MAX_NUMBER] {
        assert_eq!(
            Script::new(entry(1, 2, 2)).read(from, 8, Duration::ZERO),
            records([], limits::MAX_NUMBER)
        );
    }
}

#[test]
fn a_shard_that_is_behind_shortens_the_answer() {
    let mut script = Script::new(entry(1, 2, 2));
    script.read(0, 8, Duration::ZERO);
    assert_eq!(script.answer(1, run([2]), 3), []);
    assert_eq!(script.answer(0, run([0, 1, 4, 5]), 8), records([0, 1, 2], 3));
}

#[test]
fn a_shard_that_is_silent_does_not_hold_back_what_is_there() {
    let mut script = Script::new(entry(1, 2, 2));
    script.read(0, 8, 5000 * MS);
    assert_eq!(script.answer(0, run([0, 1]), 8), []);
    assert_eq!(script.wait(200 * MS), records([0, 1], 2));
}

#[test]
fn all_replicas_of_a_retired_shard_are_asked_in_turn_since_no_view_replaces_one_that_is_gone() {
    let mut log = without_a_shard();
    // With a placement only the owner is asked.
    log.config.order = seriatim_model::Order::ErwinBb;
    let mut script = Script::new(log);
    script.read(0, 3, 5000 * MS);
    assert_eq!(script.asked[&0].0, primary(1, 0));
    script.answer(1, run([1]), 3);
    script.wait(200 * MS);
    script.wait(2000 * MS);
    assert_eq!(script.asked[&0].0, 100, "the primary is silent");
    script.step(Input::Disconnected(Peer::Node(NodeId(100))));
    script.wait(20 * MS);
    assert_eq!(script.asked[&0].0, primary(1, 0), "the backup is gone");
}

#[test]
fn a_replica_of_a_retired_shard_that_has_nothing_hides_nothing_of_another() {
    let mut script = Script::new(without_a_shard());
    script.read(0, 3, Duration::ZERO);
    assert_eq!(script.answer(1, run([1]), 3), []);
    assert_eq!(script.asked[&0].0, primary(1, 0));
    assert_eq!(script.answer(0, vec![], 0), [], "it may have lost its disk");
    assert_eq!(script.asked[&0].0, 100);
    assert_eq!(script.answer(0, run([0, 2]), 3), records([0, 1, 2], 3));
}

#[test]
fn a_silent_replica_may_have_what_another_has_damaged() {
    let mut script = Script::new(without_a_shard());
    script.read(0, 3, 5000 * MS);
    assert_eq!(script.answer(1, run([1]), 3), []);
    let damaged = ReadError::Damaged { position: Position(0) };
    // Both replicas are silent.
    while script.asked[&0].0 == primary(1, 0) {
        assert_eq!(script.wait(200 * MS), []);
    }
    assert_eq!(script.fail(0, damaged.clone()), []);
    assert_eq!(script.asked[&0].0, primary(1, 0), "it has not answered");
    while script.asked[&0].0 == primary(1, 0) {
        assert_eq!(script.wait(200 * MS), []);
    }
    assert_eq!(script.fail(0, damaged.clone()), []);
    while script.asked.get(&0).is_none_or(|(node, ..)| *node == 100) {
        assert_eq!(script.wait(MISSING_PAUSE), []);
    }
    assert_eq!(script.answer(0, run([0, 2]), 3), records([0, 1, 2], 3));

    script.read(0, 3, Duration::ZERO);
    script.answer(1, run([1]), 3);
    assert_eq!(script.fail(0, damaged.clone()), []);
    let failure = Failure::Damaged { position: Position(0), shard: ShardId(0) };
    assert_eq!(script.fail(0, damaged), [Reply::Failed(failure)], "all replicas said so: it is told at once");
}

#[test]
fn a_silent_replica_hides_nothing_of_those_after_it() {
    for error in [
        ReadError::Damaged { position: Position(3) },
        ReadError::Missing { position: Position(3), lacking: 7 },
    ] {
        let mut script = Script::new(with_third_replica(entry(1, 1, 64)));
        script.read(3, 1, Duration::ZERO);
        assert_eq!(script.fail(0, error), []);
        assert_eq!(script.asked[&0].0, 100);
        assert_eq!(script.wait(RESEND_FIRST), []);
        assert_eq!(script.asked[&0].0, 200, "the second one is silent");
        assert_eq!(script.answer(0, run([3]), 4), records([3], 4));
    }
}

#[test]
fn the_replica_that_does_not_answer_is_named_and_not_one_that_does() {
    let mut script = Script::new(entry(1, 1, 64));
    let missing = || ReadError::Missing { position: Position(3), lacking: 7 };
    script.read(3, 1, Duration::ZERO);
    let end = loop {
        if script.asked.get(&0).is_some_and(|(node, ..)| *node == primary(1, 0)) {
            assert_eq!(script.fail(0, missing()), []);
            script.asked.retain(|_, (node, ..)| *node != primary(1, 0));
        }
        let replies = script.wait(MISSING_PAUSE);
        if !replies.is_empty() {
            break replies;
        }
    };
    let failed = Failure::Unanswered { shard: ShardId(0), node: NodeId(100), why: None };
    assert_eq!(end, [Reply::Failed(failed)]);
}

#[test]
fn what_is_given_up_is_lost_where_no_other_shard_has_the_position() {
    for (given_up_from, asks_first) in [(1, true), (0, false)] {
        let mut script = Script::new(with_given_up(given_up_from));
        let lost = |position| Failure::Lost {
            position: Position(position),
            shard: ShardId(0),
            end: Position(position + 1),
        };
        script.read(2, 1, 5000 * MS);
        assert!(!script.asked.contains_key(&0), "nobody is asked for what is given up");
        assert_eq!(script.answer(1, run([3]), 4), [Reply::Failed(lost(2))]);
        script.read(1, 1, 5000 * MS);
        assert_eq!(script.answer(1, run([1]), 4), records([1], 2));
        script.read(0, 3, 5000 * MS);
        assert_eq!(script.asked.contains_key(&0), asks_first);
        let answer = script.answer(1, run([1]), 4);
        match asks_first {
            true => assert_eq!(script.answer(0, run([0]), 1), records([0, 1], 2)),
            false => assert_eq!(answer, [Reply::Failed(lost(0))]),
        }
    }
}

#[test]
fn reads_that_find_nothing_where_another_shard_is_ahead_ask_for_a_newer_view_now_and_then() {
    let mut script = Script::new(entry(1, 2, 1));
    for (pause, lookups) in [(0, 1), (10, 1), (989, 1), (1, 2)] {
        script.now = script.now + pause * MS;
        script.read(0, 2, Duration::ZERO);
        assert_eq!(script.answer(1, run([1]), 2), []);
        // The replica may be in an ended view without knowing: the fetch asks the register.
        assert_eq!(script.answer(0, vec![], 0), records([], 0));
        assert_eq!(script.lookups, lookups, "after {pause} ms more");
    }
    script.read(2, 2, Duration::ZERO);
    assert_eq!(script.answer(1, vec![], 2), []);
    assert_eq!(script.answer(0, vec![], 2), records([], 2));
    assert_eq!(script.lookups, 2, "no shard is ahead");
}

#[test]
fn a_read_past_the_end_polls_until_there_is_something() {
    let mut script = Script::new(entry(1, 1, 64));
    script.read(5, 8, 3000 * MS);
    assert_eq!(script.asked[&0].2, 2000);
    script.wait(1900 * MS);
    assert_eq!(script.answer(0, vec![], 5), []);
    assert_eq!(script.asked[&0].2, 1100, "it is asked again, for the rest of the time");
    assert_eq!(script.answer(0, run([5]), 6), records([5], 6));
}

#[test]
fn a_read_that_finds_no_record_reads_on_and_waits_no_longer_for_that() {
    let mut script = Script::new(entry(1, 1, 64));
    script.read(0, 2, 500 * MS);
    assert_eq!(script.answer_empty(0, (0, 70), 70), []);
    assert_eq!(script.asked[&0].2, 500, "it asks for what is behind");
    script.now = script.now + 300 * MS;
    assert_eq!(script.answer(0, vec![no_op(70), no_op(71)], 72), []);
    assert_eq!(script.asked[&0].2, 200, "which is final within the time that it had");
    assert_eq!(script.answer(0, run([72, 73]), 74), records([72, 73], 74));

    script.read(74, 2, 500 * MS);
    assert_eq!(script.answer_empty(0, (74, 2), 76), []);
    script.now = script.now + 600 * MS;
    assert_eq!(script.answer_empty(0, (76, 4), 80), []);
    assert_eq!(script.asked[&0].2, 0, "what is there already needs no time");
    assert_eq!(script.answer(0, vec![], 80), records([], 80));
    assert!(script.fetch.is_idle());
}

#[test]
fn a_read_past_the_end_returns_nothing_in_the_end() {
    let mut script = Script::new(entry(1, 1, 64));
    script.read(5, 8, Duration::ZERO);
    assert_eq!(script.answer(0, vec![], 5), records([], 5));
    assert_eq!(script.read(5, 0, Duration::ZERO), records([], 5));
}

#[test]
fn an_unanswered_read_is_sent_again_and_fails_in_the_end() {
    let mut script = Script::new(entry(1, 1, 64));
    script.read(0, 8, Duration::ZERO);
    let first = script.asked[&0].1;
    script.wait(200 * MS);
    assert!(script.asked[&0].1 > first);
    assert_eq!(script.lookups, 1, "the register may know of a newer view");
    let failed = Failure::Unanswered { shard: ShardId(0), node: NodeId(10), why: None };
    assert_eq!(script.wait(800 * MS), [Reply::Failed(failed)]);
}

#[test]
fn a_lost_connection_and_a_new_view_move_the_read() {
    let mut script = Script::new(entry(1, 2, 2));
    script.read(0, 4, 1000 * MS);
    assert_eq!(script.answer(0, run([0, 1]), 4), []);
    script.step(Input::Disconnected(Peer::Node(NodeId(11))));
    script.wait(Duration::ZERO);
    assert_eq!(script.found(entry(2, 2, 2)), []);
    assert_eq!(script.asked[&1].0, 21);
    assert_eq!(script.answer(1, run([2, 3]), 4), records([0, 1, 2, 3], 4));
}

#[test]
fn trimmed_is_told_and_damage_tried_elsewhere() {
    let mut script = Script::new(entry(1, 1, 64));
    script.read(0, 8, Duration::ZERO);
    let first = Position(3);
    assert_eq!(script.fail(0, ReadError::Trimmed { first }), [Reply::Failed(Failure::Trimmed { first })]);
    script.read(3, 8, Duration::ZERO);
    assert_eq!(script.fail(0, ReadError::Damaged { position: first }), []);
    assert_eq!(script.asked[&0].0, 100);
    assert_eq!(script.answer(0, run([3]), 4), records([3], 4));
}

#[test]
fn what_a_replica_does_not_hold_yet_is_asked_of_the_next() {
    let mut script = Script::new(entry(1, 1, 64));
    let missing = || ReadError::Missing { position: Position(3), lacking: 7 };
    script.read(3, 8, Duration::ZERO);
    assert_eq!(script.fail(0, missing()), []);
    assert_eq!(script.asked[&0].0, 100);
    assert_eq!(script.answer(0, run([3]), 4), records([3], 4));
    script.read(3, 8, Duration::ZERO);
    // A copy is possible while the reader waits.
    let failure = Failure::Missing { position: Position(3), shard: ShardId(0) };
    assert!(failure.to_string().contains("position 3"));
    let begin = script.now;
    let end = loop {
        if script.asked.contains_key(&0) {
            script.fail(0, missing());
            script.asked.clear();
        }
        let replies = script.wait(MISSING_PAUSE);
        if !replies.is_empty() {
            break replies;
        }
    };
    assert_eq!(script.now.since(begin), 1000 * MS, "only the deadline ends it");
    assert_eq!(end, [Reply::Failed(failure)]);
}

#[test]
fn what_is_lost_is_named_at_once() {
    let mut script = Script::new(that_lost(entry(1, 2, 1), 1, 1, 6));
    script.read(0, 8, Duration::ZERO);
    assert_eq!(script.answer(1, vec![], 1), []);
    assert_eq!(script.answer(0, run([0, 2]), 4), records([0], 1));
    script.read(1, 8, Duration::ZERO);
    let error = ReadError::Lost { position: Position(1), end: Position(6) };
    // Only position 1 is lost: position 2 belongs to the other shard.
    let failure = Failure::Lost { position: Position(1), shard: ShardId(1), end: Position(2) };
    assert_eq!(script.fail(1, error), [Reply::Failed(failure)]);
}

#[test]
fn a_gap_is_an_error_once_the_register_knows_of_no_newer_view() {
    let mut script = Script::new(entry(1, 1, 64));
    script.read(0, 8, Duration::ZERO);
    assert_eq!(script.answer(0, run([1]), 2), []);
    script.wait(Duration::ZERO);
    // The shard may have answered in another view, so it is asked again.
    assert_eq!(script.found(entry(1, 1, 64)), []);
    assert_eq!(script.answer(0, run([1]), 2), []);
    script.wait(Duration::ZERO);
    let gap = Failure::Gap { position: Position(0), shard: ShardId(0) };
    assert_eq!(script.found(entry(1, 1, 64)), [Reply::Failed(gap)]);
}

#[test]
fn a_place_that_moved_because_it_was_trimmed_is_no_gap() {
    let mut script = Script::new(entry(1, 2, 1));
    script.read(0, 2, Duration::ZERO);
    assert_eq!(script.answer(1, run([1]), 2), []);
    // The log is trimmed, shard 0 will leave, and the placement below no longer names it.
    let mut newer = entry(2, 2, 1);
    let view = newer.view.as_mut().unwrap();
    view.placement = seriatim_model::Placement::new(vec![ShardId(1)], 1);
    assert_eq!(script.found(newer.clone()), []);
    assert_eq!(script.answer(0, vec![], 0), []);
    script.wait(Duration::ZERO);
    assert_eq!(script.found(newer), []);
    let first = Position(2);
    assert_eq!(script.fail(1, ReadError::Trimmed { first }), [Reply::Failed(Failure::Trimmed { first })]);
}

#[test]
fn a_log_without_a_view_is_waited_for() {
    let mut script = Script::new(entry(0, 1, 64));
    script.read(0, 8, Duration::ZERO);
    script.wait(Duration::ZERO);
    assert_eq!(script.found(entry(1, 1, 64)), []);
    assert_eq!(script.answer(0, run([0]), 1), records([0], 1));
    let mut script = Script::new(entry(0, 1, 64));
    script.read(0, 8, Duration::ZERO);
    assert_eq!(script.wait(1000 * MS), [Reply::Failed(Failure::NoView { why: None })]);
}
