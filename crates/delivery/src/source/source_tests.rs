//! Scripted messages from shards and the register to a source, and the resulting answers.

use std::time::Duration;

use seriatim_model::limits;

use super::*;
use crate::testing::{
    Asked, CONTROL, VIEW, entry, lookups, no_op, note_asked, primary, run, stored, that_lost, with_given_up,
    with_third_replica, without_a_shard,
};

const MS: Duration = Duration::from_millis(1);

type Out = Vec<Effect<Message, ()>>;

/// A source, whose available records the test takes in order.
struct Script {
    source: Source,
    now: Time,
    asked: Asked,
    looked_up: u64,
    lookups: usize,
    next: Position,
}

impl Script {
    fn new(entry: LogEntry, from: u64) -> Self {
        Self::with_window(entry, from, limits::SUBSCRIPTIONS_BYTES)
    }

    fn with_window(entry: LogEntry, from: u64, window: u64) -> Self {
        Self::with(entry, from, window, Selection::default())
    }

    fn with(entry: LogEntry, from: u64, window: u64, selection: Selection) -> Self {
        let next = Position(from);
        let source = Source::new(CONTROL, entry, next, window, selection, Options::default());
        let mut script = Self { source, now: Time(1), asked: Asked::new(), looked_up: 0, lookups: 0, next };
        script.wait(Duration::ZERO);
        script
    }

    fn note(&mut self, out: &Out) {
        note_asked(&mut self.asked, out);
        let asked = lookups(out);
        self.lookups += asked.len();
        self.looked_up = asked.last().copied().unwrap_or(self.looked_up);
    }

    fn hear(&mut self, node: u32, shard: u32, message: shard::Message) -> News {
        let mut out: Out = vec![];
        let news = self.source.receive(self.now, (NodeId(node), ShardId(shard)), message, &mut out);
        if let News::Trimmed { first } = news {
            self.next = first;
        }
        self.note(&out);
        news
    }

    fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
        if self.source.deadline().is_some_and(|at| at <= self.now) {
            let mut out: Out = vec![];
            self.source.timer(self.now, &mut out);
            self.note(&out);
        }
    }

    fn disconnect(&mut self, node: u32) {
        self.source.disconnected(self.now, NodeId(node));
    }

    fn taken(&mut self) -> Vec<u64> {
        let mut positions = vec![];
        loop {
            match self.source.ask(self.now, self.next) {
                Answer::Record => {
                    positions.push(self.source.take().position.0);
                    self.next = self.next.next();
                }
                Answer::Empty { end } => self.next = end,
                _ => break,
            }
        }
        let mut out: Out = vec![];
        self.source.return_credit(&mut out);
        self.note(&out);
        positions
    }

    /// A shard delivers; returns the positions taken.
    fn deliver(&mut self, shard: u32, from: u64, records: Vec<Stored>, upto: u64) -> Vec<u64> {
        let (node, request, ..) = self.asked[&shard];
        let (from, upto) = (Position(from), Position(upto));
        let news =
            self.hear(node, shard, shard::Message::Deliver { request, view: VIEW, from, records, upto });
        assert!(matches!(news, News::Final { .. } | News::Nothing), "{news:?}");
        self.taken()
    }

    fn deliver_with(
        &mut self,
        shard: u32,
        from: u64,
        (records, empty): (Vec<Stored>, &[(u64, u64)]),
        upto: u64,
    ) -> Vec<u64> {
        let (node, request, ..) = self.asked[&shard];
        let empty = spans(empty);
        let (from, upto) = (Position(from), Position(upto));
        let news = self.hear(
            node,
            shard,
            shard::Message::DeliverWith { request, view: VIEW, from, records, empty, upto },
        );
        assert!(matches!(news, News::Final { .. } | News::Nothing), "{news:?}");
        self.taken()
    }

    fn fail(&mut self, shard: u32, error: ReadError) -> News {
        let (node, request, ..) = self.asked[&shard];
        self.hear(node, shard, shard::Message::ReadFailed { request, error })
    }

    fn found(&mut self, entry: LogEntry) -> News {
        let mut out: Out = vec![];
        let message = control::Message::Found { request: self.looked_up, entry, nodes: vec![] };
        let news = self.source.controlled(self.now, message, &mut out);
        self.note(&out);
        if matches!(news, News::Final { .. } | News::Entered { .. }) {
            assert_eq!(self.taken(), [], "a view brings no records");
        }
        news
    }
}

fn spans(ranges: &[(u64, u64)]) -> Vec<Span> {
    ranges.iter().map(|(first, end)| Span { first: Position(*first), count: end - first }).collect()
}

fn mapped(view: u64, shards: u32) -> LogEntry {
    let mut entry = entry(view, shards, 1);
    entry.config.order = seriatim_model::Order::Scalog;
    entry
}

#[test]
fn a_position_is_empty_if_any_shard_says_so() {
    let mut script = Script::new(mapped(1, 3), 0);
    assert_eq!(script.deliver_with(1, 0, (run([4]), &[(0, 3), (5, 1_000_000)]), 1_000_000), []);
    assert_eq!(script.next, Position(3), "somebody may have it");
    assert_eq!(script.deliver(0, 0, run([3]), 5), [3, 4]);
    assert_eq!(script.next, Position(1_000_000));
    // Shard 2 reports positions that were passed already.
    assert_eq!(script.deliver_with(2, 0, (vec![], &[(0, 3), (5, 1_000_000)]), 1_000_001), []);
    assert_eq!(script.deliver_with(0, 5, (run([1_000_000]), &[(5, 1_000_000)]), 1_000_001), [1_000_000]);
}

#[test]
fn a_position_that_all_passed_and_nobody_calls_empty_is_a_gap() {
    let mut script = Script::new(mapped(1, 2), 0);
    for _ in 0..2 {
        assert_eq!(script.deliver_with(0, 0, (vec![], &[(1, 5)]), 9), []);
        assert_eq!(script.deliver_with(1, 0, (vec![], &[(1, 5)]), 9), []);
        script.wait(Duration::ZERO);
        let news = script.found(mapped(1, 2));
        script.wait(Duration::ZERO);
        if let News::Failed(failure) = news {
            assert!(matches!(failure, Failure::Gap { position: Position(0), .. }), "{failure:?}");
            return;
        }
    }
    panic!("a gap is told");
}

#[test]
fn spans_take_credit_until_they_are_passed() {
    let window = 4 * limits::SPAN_BYTES;
    let mut script = Script::with_window(mapped(1, 2), 0, window);
    // The reader cannot pass position 0, so all spans hold their credit.
    assert_eq!(script.deliver_with(1, 0, (vec![], &[(1, 2), (3, 4), (5, 6), (7, 9)]), 9), []);
    assert_eq!(script.asked[&1].3, window, "it is given nothing back");
    let own = [0, 2, 4].map(stored);
    script = Script::with_window(mapped(1, 2), 0, window + 2 * limits::SPAN_BYTES);
    assert_eq!(script.deliver_with(1, 0, (vec![], &[(1, 2), (3, 4), (5, 6), (7, 9)]), 9), []);
    let before = script.asked[&1].3;
    assert_eq!(script.deliver(0, 0, own.to_vec(), 6), [0, 2, 4]);
    assert_eq!(script.next, Position(6));
    assert_eq!(script.asked[&1].3, before + 3 * limits::SPAN_BYTES, "for those that were passed");
}

#[test]
fn an_accepted_loss_makes_nothing_empty_that_was_given_anew() {
    let mut script = Script::new(mapped(1, 2), 0);
    assert_eq!(script.deliver_with(1, 0, (vec![], &[(1, 20)]), 20), []);
    let mut entry = mapped(4, 2);
    entry.history = seriatim_model::ViewHistory::default();
    entry.history.push(seriatim_model::ViewNumber(4), Position(5));
    script.found(entry);
    script.wait(Duration::ZERO);
    assert_eq!(script.asked[&1].2, Position(5), "what came from there on does not count");
    assert_eq!(script.deliver(0, 0, run([0, 6]), 7), [0]);
    assert_eq!(script.next, Position(5));
    assert_eq!(script.deliver(1, 5, run([5]), 7), [5, 6]);
}

#[test]
fn spans_out_of_order_are_an_error() {
    for (records, empty, at) in [
        (vec![], [(3, 5), (4, 6)], 4),
        (vec![], [(5, 6), (3, 4)], 3),
        (run([4]), [(3, 5), (6, 7)], 4),
        (run([6]), [(3, 5), (6, 7)], 6),
        (vec![], [(3, 5), (6, 10)], 6),
    ] {
        let mut script = Script::new(mapped(1, 2), 3);
        let (node, request, ..) = script.asked[&0];
        let (from, upto, empty) = (Position(3), Position(9), spans(&empty));
        let news = script.hear(
            node,
            0,
            shard::Message::DeliverWith { request, view: VIEW, from, records, empty, upto },
        );
        let failure = Failure::Disordered { position: Position(at), shard: ShardId(0) };
        assert_eq!(news, News::Failed(failure));
    }
}

#[test]
fn a_late_delivery_brings_the_part_that_did_not_come_before() {
    let mut script = Script::new(mapped(1, 2), 0);
    assert_eq!(script.deliver_with(1, 0, (vec![], &[(1, 4)]), 4), []);
    assert_eq!(script.deliver_with(1, 0, (run([7]), &[(1, 7)]), 8), []);
    assert_eq!(script.deliver(0, 0, run([0]), 8), [0, 7]);
}

#[test]
fn a_position_is_known_by_the_shard_that_has_it() {
    let mut script = Script::new(entry(1, 2, 2), 0);
    let at = |script: &mut Script, position| script.source.ask(script.now, Position(position));
    assert_eq!(at(&mut script, 0), Answer::NotYet { frontier: Position(0) });
    // Shard 1 owns positions 2 and 3.
    assert_eq!(script.deliver(1, 0, run([2, 3]), 6), []);
    assert_eq!(at(&mut script, 0), Answer::NotYet { frontier: Position(6) });
    assert_eq!(script.deliver(0, 0, run([0]), 1), [0]);
    assert_eq!(script.deliver(0, 1, vec![no_op(1), stored(4)], 6), [2, 3, 4], "no record is at 1");
    assert_eq!(at(&mut script, 5), Answer::NotYet { frontier: Position(6) }, "and no gap as yet");
}

#[test]
fn a_record_that_was_found_stays_until_it_is_taken() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    let (node, request, ..) = script.asked[&0];
    let (from, upto) = (Position(0), Position(1));
    script.hear(node, 0, shard::Message::Deliver { request, view: VIEW, from, records: run([0]), upto });
    for _ in 0..2 {
        assert_eq!(script.source.ask(script.now, Position(0)), Answer::Record);
    }
    assert_eq!(script.source.take(), stored(0));
}

#[test]
#[should_panic(expected = "a record is taken once")]
fn nothing_is_taken_twice() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    assert_eq!(script.deliver(0, 0, run([0]), 1), [0]);
    script.source.take();
}

#[test]
#[should_panic(expected = "0 is wanted again")]
fn nothing_is_asked_for_that_was_taken() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    assert_eq!(script.deliver(0, 0, run([0]), 1), [0]);
    script.source.ask(script.now, Position(0));
}

#[test]
fn a_shard_has_no_more_credit_than_there_is_room() {
    let large = |position| Stored { record: seriatim_model::Record::new(&[0; 4000], 0), ..stored(position) };
    let size = large(0).record.memory() as u64;
    let mut script = Script::with_window(entry(1, 2, 2), 0, 4 * size);
    // Positions 0 and 1 of shard 0 block shard 1's records.
    assert_eq!(script.deliver(1, 0, vec![large(2), large(3), large(6)], 7), []);
    assert_eq!(script.asked[&1].3, 4 * size, "it is given nothing back");
    script.disconnect(11);
    script.wait(20 * MS);
    assert_eq!(script.asked[&1].3, size, "nor by a new subscription");
    assert_eq!(script.deliver(0, 0, vec![large(0), large(1)], 2), [0, 1, 2, 3]);
    assert_eq!(script.asked[&1].3, 3 * size);
}

#[test]
fn all_shards_share_one_window() {
    let granted = |shards| {
        let script = Script::new(entry(1, shards, 2), 0);
        let each: Vec<u64> = script.asked.values().map(|asked| asked.3).collect();
        assert_eq!(each.len(), shards as usize);
        assert!(each.iter().all(|credit| *credit == each[0]));
        each[0]
    };
    assert_eq!(granted(1), limits::SUBSCRIPTION_BYTES);
    assert_eq!(granted(64), limits::SUBSCRIPTIONS_BYTES / 64);
    assert_eq!(granted(256), limits::SUBSCRIPTION_BYTES_LEAST);
    // More shards in the new view reduce each one's share.
    let mut script = Script::new(entry(1, 2, 2), 0);
    assert_eq!(script.deliver(1, 0, run([2, 3]), 4), []);
    script.found(entry(2, 64, 2));
    script.wait(Duration::ZERO);
    let share = limits::SUBSCRIPTIONS_BYTES / 64;
    assert_eq!(script.asked[&0].3, share);
    assert_eq!(script.asked[&1].3, share - 2 * stored(2).record.memory() as u64, "what is kept counts");
}

#[test]
fn a_shard_that_sends_more_than_it_may_is_not_listened_to() {
    let large = |position| Stored {
        record: seriatim_model::Record::new(&vec![0; limits::MAX_RECORD_BYTES as usize], 0),
        ..stored(position)
    };
    let mut script = Script::new(entry(1, 2, 1), 0);
    // The last record may exceed the credit, but nothing may follow.
    assert_eq!(script.deliver(1, 0, vec![large(1)], 3), []);
    let (_, first, ..) = script.asked[&1];
    assert_eq!(script.deliver(1, 3, vec![large(3)], 5), []);
    assert!(!script.asked.contains_key(&1), "the subscription is over");
    script.wait(Duration::ZERO);
    let (_, second, from, credit) = script.asked[&1];
    assert!(second > first && (from, credit) == (Position(3), 0));
    assert_eq!(script.deliver(0, 0, run([0, 2]), 5), [0, 1, 2]);
    assert_eq!(script.asked[&1].3, limits::SUBSCRIPTION_BYTES);
}

#[test]
fn a_view_change_loses_and_repeats_nothing() {
    let mut script = Script::new(entry(1, 2, 2), 0);
    let (_, old, ..) = script.asked[&0];
    assert_eq!(script.deliver(0, 0, run([0, 1]), 4), [0, 1]);
    assert_eq!(script.deliver(0, 4, run([4]), 5), []);
    script.disconnect(10);
    script.wait(Duration::ZERO);
    assert_eq!(script.lookups, 1);
    script.found(entry(2, 2, 2));
    script.wait(Duration::ZERO);
    let of = |shard: u32| (script.asked[&shard].0, script.asked[&shard].2);
    assert_eq!(of(0), (primary(2, 0), Position(5)));
    assert_eq!(of(1), (primary(2, 1), Position(2)));
    let late = shard::Message::Deliver {
        request: old,
        view: VIEW,
        from: Position(5),
        records: run([5]),
        upto: Position(8),
    };
    assert_eq!(script.hear(10, 0, late), News::Nothing);
    assert_eq!(script.deliver(1, 2, run([2, 3]), 8), [2, 3, 4]);
    assert_eq!(script.deliver(0, 5, run([5]), 8), [5]);
}

#[test]
fn lost_deliveries_are_asked_for_again_and_repeated_ones_ignored() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    assert_eq!(script.deliver(0, 0, run([0, 1]), 2), [0, 1]);
    assert_eq!(script.deliver(0, 0, run([0, 1]), 2), []);
    assert_eq!(script.deliver(0, 3, run([3]), 4), [], "2 is missing");
    script.wait(Duration::ZERO);
    assert_eq!(script.asked[&0].2, Position(2));
}

#[test]
fn a_shard_that_is_behind_the_others_is_asked_again_with_growing_timeouts() {
    let mut script = Script::new(entry(1, 2, 2), 0);
    script.deliver(0, 0, run([0, 1]), 4);
    let first = script.asked[&1].1;
    script.wait(199 * MS);
    assert_eq!(script.asked[&1].1, first);
    script.wait(MS);
    let second = script.asked[&1].1;
    assert!(second > first && script.lookups == 1);
    script.wait(399 * MS);
    assert_eq!(script.asked[&1].1, second);
    script.wait(MS);
    assert!(script.asked[&1].1 > second);
}

#[test]
fn deliveries_that_take_longer_than_the_timeout_are_taken_all_the_same() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    let (mut on_the_way, mut last, mut asked, mut delivered) = (vec![], 0, 0, vec![]);
    for _ in 0..3000 {
        if let Some((node, request, from, _)) = script.asked.get(&0).copied()
            && request != last
        {
            (last, asked) = (request, asked + 1);
            on_the_way.push((script.now + 1200 * MS, node, request, from));
        }
        let arrived: Vec<_> = on_the_way.extract_if(.., |(at, ..)| *at <= script.now).collect();
        for (_, node, request, from) in arrived {
            let records = run([from.0, from.0 + 1]);
            let message = shard::Message::Deliver { request, view: VIEW, from, records, upto: from + 2 };
            script.hear(node, 0, message);
            delivered.extend(script.taken());
        }
        script.wait(10 * MS);
    }
    assert_eq!(delivered, (0..delivered.len() as u64).collect::<Vec<_>>());
    assert!(delivered.len() >= 20 && asked <= 30, "{} records of {asked} subscriptions", delivered.len());
}

#[test]
fn a_quiet_subscription_is_made_anew_only_rarely() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    script.deliver(0, 0, run([0]), 1);
    let first = script.asked[&0].1;
    script.wait(999 * MS);
    assert_eq!(script.asked[&0].1, first);
    script.wait(MS);
    let second = script.asked[&0].1;
    assert!(second > first);
    script.wait(999 * MS);
    assert_eq!(script.asked[&0].1, second);
}

#[test]
fn a_gap_is_an_error_once_the_register_knows_of_no_newer_view() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    assert_eq!(script.deliver(0, 0, run([0, 2]), 3), [0]);
    script.wait(Duration::ZERO);
    // The shard is asked again: it may have answered in another view.
    assert_eq!(script.found(entry(1, 1, 64)), News::Nothing);
    script.wait(Duration::ZERO);
    assert_eq!(script.deliver(0, 1, run([2]), 3), []);
    script.wait(Duration::ZERO);
    let gap = Failure::Gap { position: Position(1), shard: ShardId(0) };
    assert_eq!(script.found(entry(1, 1, 64)), News::Failed(gap));
}

#[test]
fn a_newer_placement_explains_a_gap() {
    let mut script = Script::new(entry(1, 1, 2), 0);
    assert_eq!(script.deliver(0, 0, run([0, 1, 4]), 5), [0, 1]);
    script.wait(Duration::ZERO);
    script.found(entry(2, 2, 2));
    script.wait(Duration::ZERO);
    assert_eq!(script.deliver(1, 2, run([2, 3]), 5), [2, 3, 4]);
}

#[test]
fn a_shard_that_left_is_let_go() {
    let mut script = Script::new(entry(1, 2, 2), 4);
    assert_eq!(script.asked.len(), 2);
    let mut newer = entry(2, 2, 2);
    let view = newer.view.as_mut().unwrap();
    view.shards.remove(0);
    view.placement = view.placement.then(Position(4), vec![ShardId(1)]).forget_below(Position(4));
    script.found(newer);
    script.wait(Duration::ZERO);
    assert_eq!(script.asked.keys().collect::<Vec<_>>(), [&1]);
    assert_eq!(script.deliver(1, 4, run([4, 5, 6]), 7), [4, 5, 6]);
}

#[test]
fn a_retired_shard_is_waited_for_below_its_end_and_not_beyond() {
    let mut script = Script::new(without_a_shard(), 0);
    // Its replicas are those of its last view.
    assert_eq!((script.asked[&0].0, script.asked[&1].0), (primary(1, 0), primary(2, 1)));
    assert_eq!(script.deliver(1, 0, run([1, 3, 4]), 5), []);
    assert_eq!(script.deliver(0, 0, run([0, 2]), 3), [0, 1, 2, 3, 4]);
    assert_eq!(script.deliver(1, 5, run([5]), 6), [5]);
    let beyond = Script::new(without_a_shard(), 3);
    assert_eq!(beyond.asked.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn all_replicas_of_a_retired_shard_are_asked_in_turn_since_no_view_replaces_one_that_is_gone() {
    let mut script = Script::new(without_a_shard(), 0);
    script.wait(200 * MS);
    assert_eq!(script.asked[&0].0, 100, "the primary is silent");
    script.disconnect(100);
    script.wait(20 * MS);
    assert_eq!(script.asked[&0].0, primary(1, 0), "the backup is gone");
    script.wait(400 * MS);
    assert_eq!(script.asked[&0].0, 100);
    script.deliver(1, 0, run([1]), 2);
    assert_eq!(script.deliver(0, 0, run([0, 2]), 3), [0, 1]);
}

#[test]
fn a_shard_of_which_no_replica_gives_out_what_comes_next_is_named() {
    let mut script = Script::new(without_a_shard(), 0);
    let unanswered = |script: &Script, at: u64| script.source.unanswered(script.now, Position(at));
    let (shard, primary, backup) = (ShardId(0), NodeId(primary(1, 0)), NodeId(100));
    script.deliver(1, 0, run([1, 3]), 4);
    assert_eq!(unanswered(&script, 0), [], "it may still answer");
    script.wait(2000 * MS);
    let silent = Unanswered { shard, silent: vec![primary, backup], lacking: vec![], is_joining: false };
    assert_eq!(unanswered(&script, 0), [silent]);
    assert_eq!(unanswered(&script, 3).iter().filter(|told| told.shard == shard).count(), 0, "it ends before");
    let (node, request, ..) = script.asked[&0];
    let error = ReadError::Missing { position: Position(0), lacking: 1 };
    script.hear(node, 0, shard::Message::ReadFailed { request, error });
    let asked = NodeId(node);
    let other = if asked == primary { backup } else { primary };
    let lacks = Unanswered { shard, silent: vec![other], lacking: vec![asked], is_joining: false };
    assert_eq!(unanswered(&script, 0), [lacks]);
    script.wait(Duration::ZERO);
    script.deliver(0, 0, run([0]), 1);
    assert_eq!(unanswered(&script, 1), []);
}

#[test]
fn a_quiet_shard_that_answers_is_not_called_silent_and_of_a_silent_one_every_replica_is_asked() {
    let mut script = Script::new(entry(1, 2, 1), 0);
    let unanswered = |script: &Script| script.source.unanswered(script.now, Position(0));
    let answer = |script: &mut Script, shard: u32| {
        let (node, request, from, _) = script.asked[&shard];
        let message = shard::Message::Deliver { request, view: VIEW, from, records: vec![], upto: from };
        script.hear(node, shard, message);
    };
    // While idle, both shards answer each request with an empty delivery.
    for _ in 0..600 {
        (0..2).for_each(|shard| answer(&mut script, shard));
        script.wait(100 * MS);
        assert_eq!(unanswered(&script), []);
    }
    assert!(script.lookups <= 120, "{} questions to the register in a minute", script.lookups);
    // Shard 0 is silent from here.
    let mut asked = BTreeSet::new();
    let mut silent = vec![];
    for _ in 0..100 {
        answer(&mut script, 1);
        script.wait(100 * MS);
        asked.insert(script.asked[&0].0);
        silent = unanswered(&script);
    }
    let (primary, backup) = (primary(1, 0), 100);
    assert_eq!(asked, BTreeSet::from([primary, backup]));
    let nodes = vec![NodeId(primary), NodeId(backup)];
    let told = Unanswered { shard: ShardId(0), silent: nodes, lacking: vec![], is_joining: false };
    assert_eq!(silent, [told]);
}

fn next(script: &mut Script) -> Answer {
    script.source.ask(script.now, script.next)
}

#[test]
fn what_is_given_up_of_a_retired_shard_is_lost_without_asking() {
    let lost = Answer::Lost { shard: ShardId(0), end: Position(3) };
    let mut script = Script::new(with_given_up(1), 0);
    assert_eq!(script.deliver(1, 0, run([1, 3]), 4), []);
    // A replica that does not know of the loss serves given-up records.
    assert_eq!(script.deliver(0, 0, run([0, 2]), 3), [0, 1]);
    assert_eq!(next(&mut script), lost);
    let mut behind = Script::new(with_given_up(1), 2);
    assert_eq!(behind.asked.keys().collect::<Vec<_>>(), [&1]);
    assert_eq!(next(&mut behind), Answer::NotYet { frontier: Position(2) }, "it may be trimmed");
    assert_eq!(behind.deliver(1, 2, run([3]), 4), []);
    assert_eq!(next(&mut behind), lost);
    behind.next = Position(3);
    assert_eq!(behind.taken(), [3]);
}

#[test]
fn of_a_shard_that_has_ended_everything_is_lost_that_no_other_has() {
    let mut script = Script::new(with_given_up(0), 0);
    assert_eq!(script.asked.keys().collect::<Vec<_>>(), [&1], "nobody is asked for it");
    assert_eq!(script.deliver(1, 0, run([1, 3]), 4), []);
    for (end, taken) in [(1, vec![1]), (3, vec![3])] {
        assert_eq!(next(&mut script), Answer::Lost { shard: ShardId(0), end: Position(end) });
        script.next = Position(end);
        assert_eq!(script.taken(), taken);
    }
    script.wait(5000 * MS);
    assert_eq!(script.asked.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn a_subscription_that_waits_for_a_retired_shard_learns_that_it_is_given_up() {
    let mut script = Script::new(without_a_shard(), 0);
    assert_eq!(script.deliver(1, 0, run([1, 3]), 4), []);
    assert_eq!(next(&mut script), Answer::NotYet { frontier: Position(4) });
    assert_eq!(script.found(with_given_up(0)), News::Entered { reassigned_from: None });
    script.wait(Duration::ZERO);
    assert_eq!(script.deliver(1, 0, run([1, 3]), 4), []);
    assert_eq!(next(&mut script), Answer::Lost { shard: ShardId(0), end: Position(1) });
}

#[test]
fn a_node_that_is_away_is_asked_less_and_less_until_it_is_back() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    let pauses = |script: &mut Script| -> Vec<u64> {
        let away = |_| {
            script.disconnect(10);
            let begin = script.now;
            script.asked.remove(&0);
            while !script.asked.contains_key(&0) {
                script.wait(10 * MS);
            }
            script.now.since(begin).as_millis() as u64
        };
        (0..8).map(away).collect()
    };
    assert_eq!(pauses(&mut script), [20, 40, 80, 160, 320, 640, 1000, 1000]);
    assert_eq!(script.deliver(0, 0, run([0]), 1), [0]);
    assert_eq!(pauses(&mut script)[0], 20);
}

#[test]
fn a_loss_of_which_nobody_told_has_the_register_asked() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    let error = ReadError::Lost { position: Position(0), end: Position(4) };
    assert_eq!(script.fail(0, error.clone()), News::Nothing);
    assert_eq!(script.source.deadline(), Some(script.now));
    script.wait(Duration::ZERO);
    assert_eq!(script.found(that_lost(entry(2, 1, 64), 0, 0, 4)), News::Entered { reassigned_from: None });
    script.wait(Duration::ZERO);
    assert_eq!(script.fail(0, error), News::Changed);
    assert_eq!(script.source.deadline(), None, "it is known, and there is nothing to ask for");
}

#[test]
fn a_retired_shard_that_does_not_know_of_a_trim_is_not_believed() {
    let mut script = Script::new(without_a_shard(), 0);
    assert_eq!(script.deliver(0, 0, run([0, 2]), 3), []);
    let first = Position(2);
    assert_eq!(script.fail(1, ReadError::Trimmed { first }), News::Trimmed { first });
    script.wait(10 * MS);
    script.wait(50 * MS);
    assert_eq!(script.deliver(1, 2, run([3]), 4), [2, 3]);
}

#[test]
fn a_subscription_ends_when_the_last_shard_that_it_chose_has_left() {
    let mut older = entry(1, 3, 2);
    older.config.order = seriatim_model::Order::Scalog;
    older.shards = vec![vec![NodeId(10)], vec![NodeId(11)], vec![NodeId(12)]];
    let chosen = [ShardId(0), ShardId(2)];
    let selection = Selection { shards: Some(chosen.into()), ..Selection::default() };
    let mut script = Script::with(older.clone(), 0, limits::SUBSCRIPTION_BYTES, selection);
    let without = |number: u64, shard: u32, before: &LogEntry| {
        let mut newer = LogEntry { view: entry(number, 3, 2).view, version: number, ..before.clone() };
        newer.shards[shard as usize].clear();
        let shards = newer.shards.clone();
        newer.view.as_mut().unwrap().shards.retain(|members| !shards[members.shard.0 as usize].is_empty());
        newer
    };
    let one_left = without(2, 0, &older);
    // Shard 1 was not chosen.
    let two_left = without(3, 1, &one_left);
    let mut none_left = without(4, 2, &two_left);
    none_left.shards.push(vec![NodeId(13)]);
    for (newer, left) in [(one_left, None), (two_left, None), (none_left, Some(chosen.to_vec()))] {
        assert_eq!(script.found(newer), News::Entered { reassigned_from: None });
        assert_eq!(script.source.left(), left);
    }
}

#[test]
fn a_place_that_moved_because_it_was_trimmed_is_no_gap() {
    let mut script = Script::new(entry(1, 2, 1), 0);
    assert_eq!(script.deliver(1, 0, run([1, 3]), 4), []);
    // The log is trimmed; shard 0 will leave, and the placement no longer names it.
    let mut newer = entry(2, 2, 1);
    newer.view.as_mut().unwrap().placement = seriatim_model::Placement::new(vec![ShardId(1)], 1);
    assert_eq!(script.found(newer.clone()), News::Entered { reassigned_from: None });
    script.wait(Duration::ZERO);
    assert_eq!(script.found(newer), News::Nothing);
    script.wait(Duration::ZERO);
    let first = Position(4);
    assert_eq!(script.fail(1, ReadError::Trimmed { first }), News::Trimmed { first });
}

#[test]
fn records_out_of_order_are_an_error() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    let disordered = Failure::Disordered { position: Position(1), shard: ShardId(0) };
    let (node, request, ..) = script.asked[&0];
    let (from, upto) = (Position(0), Position(2));
    let message = shard::Message::Deliver { request, view: VIEW, from, records: run([1, 1]), upto };
    assert_eq!(script.hear(node, 0, message), News::Failed(disordered));
}

#[test]
fn what_was_sent_before_a_trim_and_comes_after_it_is_passed_over() {
    let mut script = Script::new(entry(1, 2, 2), 0);
    script.fail(0, ReadError::Trimmed { first: Position(6) });
    assert_eq!(script.deliver(1, 0, run([2, 3, 6]), 8), [6]);
}

#[test]
fn a_damaged_replica_is_replaced_by_the_next_one() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    let error = || ReadError::Damaged { position: Position(3) };
    assert_eq!(script.fail(0, error()), News::Nothing);
    script.wait(Duration::ZERO);
    assert_eq!(script.asked[&0].0, 100);
    // A repair is possible, but not awaited forever.
    let damaged = Failure::Damaged { position: Position(3), shard: ShardId(0) };
    let mut news = script.fail(0, error());
    for _ in 2..2 * feed::MISSING_ROUNDS {
        assert_eq!(news, News::Nothing);
        script.wait(feed::IDLE);
        news = script.fail(0, error());
    }
    assert_eq!(news, News::Failed(damaged));
}

#[test]
fn replicas_that_lack_something_each_are_asked_in_turn() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    let missing = |script: &mut Script, position: u64| {
        let news = script.fail(0, ReadError::Missing { position: Position(position), lacking: 9 });
        // After all replicas were asked, a pause follows.
        script.wait(feed::IDLE);
        news
    };
    assert_eq!(missing(&mut script, 0), News::Nothing);
    assert_eq!(script.asked[&0].0, 100);
    assert_eq!(script.deliver(0, 0, run([0, 1]), 2), [0, 1]);
    assert_eq!(missing(&mut script, 2), News::Nothing);
    assert_eq!(script.asked[&0].0, 10, "the first one may have it by now");
    // A copy is possible, but not awaited forever.
    let failure = Failure::Missing { position: Position(2), shard: ShardId(0) };
    let rest = 2 * feed::MISSING_ROUNDS - 1;
    for _ in 1..rest {
        assert_eq!(missing(&mut script, 2), News::Nothing);
    }
    assert_eq!(missing(&mut script, 2), News::Failed(failure));
}

#[test]
fn a_record_is_waited_for_as_long_as_a_replica_gets_on_with_what_it_lacks() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    // Only one replica progresses, and not in each round.
    let mut missing = |round: u64| {
        let news = [1000, 1000 - round / 10].map(|lacking| {
            let news = script.fail(0, ReadError::Missing { position: Position(900), lacking });
            script.wait(feed::IDLE);
            news
        });
        if news.iter().all(|news| *news == News::Nothing) { None } else { Some(news) }
    };
    assert_eq!((0..500).find_map(&mut missing), None);
    // From here on no replica copies records.
    let rounds = (0..100).position(|_| missing(500).is_some()).expect("it is told that nothing comes");
    assert!((feed::MISSING_ROUNDS - 1..feed::MISSING_ROUNDS + 10).contains(&rounds), "{rounds}");
}

/// Waits until a matching replica of shard 0 is asked; false if none is.
fn asks(script: &mut Script, is_meant: impl Fn(u32) -> bool) -> bool {
    (0..20).any(|_| {
        script.wait(feed::IDLE);
        is_meant(script.asked[&0].0)
    })
}

#[test]
fn a_silent_replica_may_have_what_the_other_lacks() {
    let mut script = Script::new(entry(1, 1, 64), 0);
    let missing = || ReadError::Missing { position: Position(0), lacking: 9 };
    let first = script.asked[&0].0;
    for _ in 0..4 * feed::MISSING_ROUNDS {
        assert_eq!(script.fail(0, missing()), News::Nothing);
        // The other replica is silent, so the first is asked again.
        assert!(asks(&mut script, |node| node == first));
    }
    assert_eq!(script.fail(0, missing()), News::Nothing);
    assert!(asks(&mut script, |node| node != first));
    assert_eq!(script.deliver(0, 0, run([0, 1]), 2), [0, 1]);
}

#[test]
fn a_silent_replica_hides_nothing_of_those_after_it() {
    let mut script = Script::new(with_third_replica(entry(1, 1, 64)), 0);
    assert_eq!(script.fail(0, ReadError::Missing { position: Position(0), lacking: 9 }), News::Nothing);
    assert!(asks(&mut script, |node| node == 100));
    assert!(asks(&mut script, |node| node == 200), "the second one is silent");
    assert_eq!(script.deliver(0, 0, run([0, 1]), 2), [0, 1]);
}

#[test]
fn a_log_without_a_view_is_waited_for() {
    let mut script = Script::new(entry(0, 1, 64), 0);
    assert!(script.asked.is_empty() && script.lookups == 1);
    script.found(entry(0, 1, 64));
    script.wait(20 * MS);
    assert_eq!(script.lookups, 2);
    script.found(entry(1, 1, 64));
    script.wait(Duration::ZERO);
    assert_eq!(script.asked.len(), 1);
}
