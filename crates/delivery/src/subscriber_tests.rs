//! Scripts: inputs in, effects out.

use std::time::Duration;

use proptest::prelude::*;
use seriatim_model::limits;

use super::*;
use crate::testing::{entry, from_register, from_shard, lookups, no_op, primary, replies, stored, to_shards};

const MS: Duration = Duration::from_millis(1);

/// A subscriber at a time, with what it asked of each shard.
struct Script {
    subscriber: Subscriber,
    now: Time,
    /// Per shard: the node asked, the request, from where, and with which credit.
    asked: BTreeMap<u32, (u32, u64, Position, u64)>,
    looked_up: u64,
    /// How often the register was asked.
    lookups: usize,
}

impl Script {
    fn new(entry: LogEntry, from: u64, end: Option<u64>) -> Self {
        let subscriber = Subscriber::new(
            crate::testing::CONTROL,
            entry,
            (Position(from), end.map(Position)),
            limits::SUBSCRIPTION_BYTES,
        );
        let mut script = Self { subscriber, now: Time(1), asked: BTreeMap::new(), looked_up: 0, lookups: 0 };
        script.wait(Duration::ZERO);
        script
    }

    fn step(&mut self, input: Input<Message, Request>) -> Vec<Event> {
        let mut out = vec![];
        self.subscriber.step(self.now, input, &mut out);
        for (node, shard, message) in to_shards(&out) {
            match message {
                shard::Message::Subscribe { request, from, credit } => {
                    self.asked.insert(shard, (node, request, from, credit));
                }
                shard::Message::Cancel { request } => {
                    self.asked.retain(|other, asked| *other != shard || asked.1 != request);
                }
                shard::Message::Credit { request, bytes } => {
                    let asked = self.asked.get_mut(&shard).expect("credit is for a subscription");
                    assert_eq!(asked.1, request);
                    asked.3 += bytes;
                }
                other => panic!("a subscriber does not send {other:?}"),
            }
        }
        let asked = lookups(&out);
        self.lookups += asked.len();
        self.looked_up = asked.last().copied().unwrap_or(self.looked_up);
        replies(&out)
    }

    fn want(&mut self, count: u64) -> Vec<Event> {
        self.want_bytes(count, u64::MAX >> 8)
    }

    fn want_bytes(&mut self, records: u64, bytes: u64) -> Vec<Event> {
        self.step(Input::Request { token: 5, request: Request::Want { records, bytes } })
    }

    fn wait(&mut self, duration: Duration) -> Vec<Event> {
        self.now = self.now + duration;
        if self.subscriber.deadline().is_some_and(|at| at <= self.now) {
            self.step(Input::Timer)
        } else {
            vec![]
        }
    }

    fn deliver(&mut self, shard: u32, from: u64, records: Vec<Stored>, upto: u64) -> Vec<Event> {
        let (node, request, ..) = self.asked[&shard];
        let message =
            shard::Message::Deliver { request, from: Position(from), records, upto: Position(upto) };
        self.step(from_shard(node, shard, message))
    }

    fn found(&mut self, entry: LogEntry) -> Vec<Event> {
        let request = self.looked_up;
        self.step(from_register(control::Message::Found { request, entry, nodes: vec![] }))
    }
}

/// The positions delivered, in order.
fn positions(events: &[Event]) -> Vec<u64> {
    let of = |event: &Event| -> Vec<u64> {
        let Event::Deliver { records, speculative: false } = event else {
            panic!("not a delivery: {event:?}")
        };
        records.iter().map(|stored| stored.position.0).collect()
    };
    events.iter().flat_map(of).collect()
}

fn run(positions: impl IntoIterator<Item = u64>) -> Vec<Stored> {
    positions.into_iter().map(stored).collect()
}

#[test]
fn shards_are_merged_by_position_and_no_ops_left_out() {
    let mut script = Script::new(entry(1, 2, 2), 0, None);
    assert_eq!(script.asked[&0], (10, 1, Position(0), limits::SUBSCRIPTION_BYTES));
    assert_eq!(script.asked[&1].0, 11);
    script.want(100);
    // Positions 2 and 3 are with shard 1; nothing of them may pass 0 and 1.
    assert_eq!(script.deliver(1, 0, run([2, 3]), 6), []);
    assert_eq!(positions(&script.deliver(0, 0, run([0]), 1)), [0]);
    assert_eq!(positions(&script.deliver(0, 1, vec![no_op(1), stored(4)], 6)), [2, 3, 4]);
}

#[test]
fn nothing_follows_a_position_that_no_log_reaches() {
    for from in [u64::MAX, limits::MAX_NUMBER + 1] {
        let mut script = Script::new(entry(1, 2, 2), from, None);
        assert_eq!(script.want(1), [Event::Finished]);
    }
}

#[test]
fn the_reader_gets_no_more_than_it_wants_and_the_shards_no_more_credit_than_fits() {
    let mut script = Script::new(entry(1, 1, 64), 0, Some(4));
    let large = |position| Stored {
        record: seriatim_model::Record::new(&vec![0; limits::SUBSCRIPTION_BYTES as usize / 2 - 9], 0),
        ..stored(position)
    };
    assert_eq!(script.deliver(0, 0, vec![large(0), large(1)], 2), []);
    assert_eq!(script.asked[&0].3, limits::SUBSCRIPTION_BYTES, "nothing was handed over: no credit");
    assert_eq!(script.subscriber.deadline(), None, "no shard owes anything");
    assert_eq!(positions(&script.want(1)), [0]);
    assert_eq!(script.asked[&0].3, limits::SUBSCRIPTION_BYTES * 3 / 2);
    assert_eq!(positions(&script.want(9)), [1]);
    let events = script.deliver(0, 2, run([2, 3, 4]), 5);
    assert_eq!(positions(&events[..1]), [2, 3]);
    assert_eq!(events[1], Event::Finished);
    assert!(script.subscriber.is_over() && script.asked.is_empty());
}

#[test]
fn the_reader_gets_no_more_bytes_than_it_wants_but_for_one_record() {
    let mut script = Script::new(entry(1, 1, 64), 0, None);
    let size = stored(0).record.size() as u64;
    script.deliver(0, 0, run(0..9), 9);
    assert_eq!(positions(&script.want_bytes(9, size + 1)), [0, 1]);
    assert_eq!(script.want_bytes(9, size - 1), [], "that much it had already");
    assert_eq!(positions(&script.want_bytes(0, 1)), [2]);
}

#[test]
fn a_view_change_loses_and_repeats_nothing() {
    let mut script = Script::new(entry(1, 2, 2), 0, None);
    script.want(100);
    let (_, old, ..) = script.asked[&0];
    assert_eq!(positions(&script.deliver(0, 0, run([0, 1]), 4)), [0, 1]);
    assert_eq!(script.deliver(0, 4, run([4]), 5), []);
    script.step(Input::Disconnected(Peer::Node(NodeId(10))));
    script.wait(Duration::ZERO);
    assert_eq!(script.lookups, 1);
    script.found(entry(2, 2, 2));
    script.wait(Duration::ZERO);
    let of = |shard: u32| (script.asked[&shard].0, script.asked[&shard].2);
    assert_eq!(of(0), (primary(2, 0), Position(5)));
    assert_eq!(of(1), (primary(2, 1), Position(2)));
    // A late delivery of the old subscription changes nothing.
    let late =
        shard::Message::Deliver { request: old, from: Position(5), records: run([5]), upto: Position(8) };
    assert_eq!(script.step(from_shard(10, 0, late)), []);
    assert_eq!(positions(&script.deliver(1, 2, run([2, 3]), 8)), [2, 3, 4]);
    assert_eq!(positions(&script.deliver(0, 5, run([5]), 8)), [5]);
}

#[test]
fn lost_deliveries_are_asked_for_again_and_repeated_ones_ignored() {
    let mut script = Script::new(entry(1, 1, 64), 0, None);
    script.want(100);
    assert_eq!(positions(&script.deliver(0, 0, run([0, 1]), 2)), [0, 1]);
    assert_eq!(script.deliver(0, 0, run([0, 1]), 2), []);
    assert_eq!(script.deliver(0, 3, run([3]), 4), [], "2 is missing");
    script.wait(Duration::ZERO);
    assert_eq!(script.asked[&0].2, Position(2));
}

#[test]
fn a_shard_that_is_behind_the_others_is_asked_again_with_growing_patience() {
    let mut script = Script::new(entry(1, 2, 2), 0, None);
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
fn deliveries_that_take_longer_than_the_patience_are_taken_all_the_same() {
    let mut script = Script::new(entry(1, 1, 64), 0, None);
    script.want(1000);
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
            let message = shard::Message::Deliver { request, from, records, upto: from + 2 };
            delivered.extend(positions(&script.step(from_shard(node, 0, message))));
        }
        script.wait(10 * MS);
    }
    assert_eq!(delivered, (0..delivered.len() as u64).collect::<Vec<_>>());
    assert!(delivered.len() >= 20 && asked <= 30, "{} records of {asked} subscriptions", delivered.len());
}

#[test]
fn a_quiet_subscription_is_made_anew_only_rarely() {
    let mut script = Script::new(entry(1, 1, 64), 0, None);
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
    let mut script = Script::new(entry(1, 1, 64), 0, None);
    script.want(100);
    assert_eq!(positions(&script.deliver(0, 0, run([0, 2]), 3)), [0]);
    script.wait(Duration::ZERO);
    // The shard may have answered in another view: it is asked again.
    assert_eq!(script.found(entry(1, 1, 64)), []);
    script.wait(Duration::ZERO);
    assert_eq!(script.deliver(0, 1, run([2]), 3), []);
    script.wait(Duration::ZERO);
    let gap = Failure::Gap { position: Position(1), shard: ShardId(0) };
    assert_eq!(script.found(entry(1, 1, 64)), [Event::Failed(gap)]);
    assert!(script.subscriber.is_over() && script.asked.is_empty());
}

#[test]
fn a_newer_placement_explains_a_gap() {
    let mut script = Script::new(entry(1, 1, 2), 0, None);
    script.want(100);
    assert_eq!(positions(&script.deliver(0, 0, run([0, 1, 4]), 5)), [0, 1]);
    script.wait(Duration::ZERO);
    script.found(entry(2, 2, 2));
    script.wait(Duration::ZERO);
    assert_eq!(positions(&script.deliver(1, 2, run([2, 3]), 5)), [2, 3, 4]);
}

#[test]
fn a_shard_that_left_is_let_go() {
    let mut script = Script::new(entry(1, 2, 2), 4, None);
    script.want(100);
    assert_eq!(script.asked.len(), 2);
    let mut newer = entry(2, 2, 2);
    let view = newer.view.as_mut().unwrap();
    view.shards.remove(0);
    view.placement = view.placement.then(Position(4), vec![ShardId(1)]).forget_below(Position(4));
    script.found(newer);
    script.wait(Duration::ZERO);
    assert_eq!(script.asked.keys().collect::<Vec<_>>(), [&1]);
    assert_eq!(positions(&script.deliver(1, 4, run([4, 5, 6]), 7)), [4, 5, 6]);
}

#[test]
fn a_place_that_moved_because_it_was_trimmed_is_no_gap() {
    let mut script = Script::new(entry(1, 2, 1), 0, None);
    script.want(100);
    assert_eq!(script.deliver(1, 0, run([1, 3]), 4), []);
    // The log is trimmed. Shard 0 is about to leave, and the places below are not its own any more.
    let mut newer = entry(2, 2, 1);
    newer.view.as_mut().unwrap().placement = seriatim_model::Placement::new(vec![ShardId(1)], 1);
    assert_eq!(script.found(newer.clone()), []);
    script.wait(Duration::ZERO);
    assert_eq!(script.found(newer), []);
    script.wait(Duration::ZERO);
    let (node, request, ..) = script.asked[&1];
    let error = ReadError::Trimmed { first: Position(4) };
    let events = script.step(from_shard(node, 1, shard::Message::ReadFailed { request, error }));
    assert_eq!(events, [Event::Trimmed { first: Position(4) }]);
    assert!(!script.subscriber.is_over());
}

#[test]
fn records_out_of_order_are_an_error() {
    let mut script = Script::new(entry(1, 1, 64), 0, None);
    let disordered = Failure::Disordered { position: Position(1), shard: ShardId(0) };
    assert_eq!(script.deliver(0, 0, run([1, 1]), 2), [Event::Failed(disordered)]);
}

#[test]
fn what_is_trimmed_is_announced_and_passed_over() {
    let mut script = Script::new(entry(1, 2, 2), 0, None);
    script.want(100);
    script.deliver(1, 0, run([2, 3, 6]), 8);
    let (node, request, ..) = script.asked[&0];
    let error = ReadError::Trimmed { first: Position(6) };
    let events = script.step(from_shard(node, 0, shard::Message::ReadFailed { request, error }));
    assert_eq!(events[0], Event::Trimmed { first: Position(6) });
    assert_eq!(positions(&events[1..]), [6]);
    script.wait(20 * MS);
    assert_eq!(script.asked[&0].2, Position(7));
}

#[test]
fn what_was_sent_before_a_trim_and_comes_after_it_is_passed_over() {
    let mut script = Script::new(entry(1, 2, 2), 0, None);
    script.want(100);
    let (node, request, ..) = script.asked[&0];
    let error = ReadError::Trimmed { first: Position(6) };
    script.step(from_shard(node, 0, shard::Message::ReadFailed { request, error }));
    assert_eq!(positions(&script.deliver(1, 0, run([2, 3, 6]), 8)), [6]);
}

#[test]
fn a_damaged_replica_is_replaced_by_the_next_one() {
    let mut script = Script::new(entry(1, 1, 64), 0, None);
    let error = || ReadError::Damaged { position: Position(3) };
    let (node, request, ..) = script.asked[&0];
    assert_eq!(script.step(from_shard(node, 0, shard::Message::ReadFailed { request, error: error() })), []);
    script.wait(Duration::ZERO);
    let (node, request, ..) = script.asked[&0];
    assert_eq!(node, 100);
    // It may be repaired soon, but not for ever.
    let damaged = Failure::Damaged { position: Position(3), shard: ShardId(0) };
    let mut events = script.step(from_shard(node, 0, shard::Message::ReadFailed { request, error: error() }));
    for _ in 2..2 * MISSING_ROUNDS {
        assert_eq!(events, []);
        script.wait(crate::feed::IDLE);
        let (node, request, ..) = script.asked[&0];
        events = script.step(from_shard(node, 0, shard::Message::ReadFailed { request, error: error() }));
    }
    assert_eq!(events, [Event::Failed(damaged)]);
}

#[test]
fn replicas_that_lack_something_each_are_asked_in_turn() {
    let mut script = Script::new(entry(1, 1, 64), 0, None);
    script.want(100);
    let missing = |script: &mut Script, position: u64| {
        let (node, request, ..) = script.asked[&0];
        let error = ReadError::Missing { position: Position(position) };
        let events = script.step(from_shard(node, 0, shard::Message::ReadFailed { request, error }));
        // A reader that asked every replica in vain waits a little.
        script.wait(crate::feed::IDLE);
        events
    };
    assert_eq!(missing(&mut script, 0), []);
    assert_eq!(script.asked[&0].0, 100);
    assert_eq!(positions(&script.deliver(0, 0, run([0, 1]), 2)), [0, 1]);
    assert_eq!(missing(&mut script, 2), []);
    assert_eq!(script.asked[&0].0, 10, "the first one may have it by now");
    // It may be on its way to somebody, but not for ever.
    let failure = Failure::Missing { position: Position(2), shard: ShardId(0) };
    let rest = 2 * crate::feed::MISSING_ROUNDS - 1;
    for _ in 1..rest {
        assert_eq!(missing(&mut script, 2), []);
    }
    assert_eq!(missing(&mut script, 2), [Event::Failed(failure)]);
}

#[test]
fn what_is_lost_is_named_when_everything_before_it_was_handed_over() {
    let mut script = Script::new(entry(1, 2, 1), 0, None);
    script.want(100);
    script.deliver(1, 0, vec![], 1);
    let lost = |script: &mut Script, position| {
        let (node, request, ..) = script.asked[&1];
        let error = ReadError::Lost { position: Position(position), end: Position(6) };
        script.step(from_shard(node, 1, shard::Message::ReadFailed { request, error }))
    };
    assert_eq!(lost(&mut script, 1), []);
    script.asked.remove(&1);
    script.wait(20 * crate::feed::IDLE);
    assert!(!script.asked.contains_key(&1), "there is nothing to ask for again");
    // A trimmed record is no loss any more.
    let (node, request, ..) = script.asked[&0];
    let first = Position(2);
    let error = ReadError::Trimmed { first };
    let events = script.step(from_shard(node, 0, shard::Message::ReadFailed { request, error }));
    assert_eq!(events, [Event::Trimmed { first }]);
    script.wait(20 * MS);
    assert_eq!(script.asked[&1].2, first);
    assert_eq!(lost(&mut script, 3), []);
    let events = script.deliver(0, 2, run([2, 4]), 6);
    assert_eq!(positions(&events[..1]), [2]);
    let failure = Failure::Lost { position: Position(3), shard: ShardId(1), end: Position(6) };
    assert!(failure.to_string().contains("read on from 4"), "{failure}");
    assert_eq!(events[1..], [Event::Failed(failure)]);
}

#[test]
fn a_log_without_a_view_is_waited_for() {
    let mut script = Script::new(entry(0, 1, 64), 0, None);
    assert!(script.asked.is_empty() && script.lookups == 1);
    script.found(entry(0, 1, 64));
    script.wait(20 * MS);
    assert_eq!(script.lookups, 2);
    script.found(entry(1, 1, 64));
    script.wait(Duration::ZERO);
    assert_eq!(script.asked.len(), 1);
}

#[test]
fn a_deleted_log_ends_it() {
    let mut script = Script::new(entry(1, 1, 64), 0, None);
    let refusal = control::Refusal::NoSuchLog { name: "orders".into() };
    let events = script.step(from_register(control::Message::Refused { request: 1, refusal }));
    assert_eq!(events, [Event::Failed(Failure::Deleted("orders".into()))]);
}

/// The fate of one delivery of a shard in the network.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives { size: u64 },
    IsLost { size: u64 },
    IsRepeated,
    NodeFails,
    ViewChanges,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => (0..9u64).prop_map(|size| Fate::Arrives { size }),
        2 => (0..9u64).prop_map(|size| Fate::IsLost { size }),
        2 => Just(Fate::IsRepeated),
        1 => Just(Fate::NodeFails),
        1 => Just(Fate::ViewChanges),
    ]
}

/// A shard that has everything below `stable`, and sends it in the pieces that the test chooses.
#[derive(Default)]
struct FakeShard {
    request: u64,
    sent: Position,
    last: Option<shard::Message>,
}

impl FakeShard {
    fn next(&mut self, shard: u32, view: &seriatim_model::View, size: u64, end: u64) -> shard::Message {
        let upto = (self.sent + size).min(Position(end));
        let mine = |position: &u64| view.placement.shard_of(Position(*position)) == ShardId(shard);
        let records = run((self.sent.0..upto.0).filter(mine));
        let from = std::mem::replace(&mut self.sent, upto);
        let message = shard::Message::Deliver { request: self.request, from, records, upto };
        self.last = Some(message.clone());
        message
    }
}

proptest! {
    #[test]
    fn any_chunks_lost_repeated_or_reordered_across_shards_give_exactly_the_positions_in_order(
        shards in 1..4u32,
        stripe in 1..5u64,
        first in 0..20u64,
        wants in 1..50u64,
        fates in proptest::collection::vec((0..4u32, fate()), 0..200),
    ) {
        let end = first + 60;
        let mut view = 1;
        let mut script = Script::new(entry(view, shards, stripe), first, Some(end));
        let mut fakes: BTreeMap<u32, FakeShard> = (0..shards).map(|s| (s, FakeShard::default())).collect();
        let mut events = script.want(wants);
        // After the chosen fates the network works, and everything must come.
        let calm = (0..4000u32).map(|i| (i, Fate::Arrives { size: 7 }));
        for (index, (shard, fate)) in fates.into_iter().chain(calm).enumerate() {
            let shard = shard % shards;
            let current = entry(view, shards, stripe);
            if script.subscriber.is_over() {
                break;
            }
            events.extend(script.wait(Duration::from_millis(index as u64 % 300)));
            events.extend(script.want(1));
            let fake = fakes.get_mut(&shard).expect("one for each shard");
            let Some((node, request, from, _)) = script.asked.get(&shard).copied() else { continue };
            if fake.request != request {
                (fake.request, fake.sent) = (request, from);
            }
            let placed = current.view.as_ref().expect("it has a view");
            match fate {
                Fate::Arrives { size } => {
                    let message = fake.next(shard, placed, size, end);
                    events.extend(script.step(from_shard(node, shard, message)));
                }
                Fate::IsLost { size } => drop(fake.next(shard, placed, size, end)),
                Fate::IsRepeated => {
                    if let Some(message) = fake.last.clone() {
                        events.extend(script.step(from_shard(node, shard, message)));
                    }
                }
                Fate::NodeFails => {
                    script.asked.remove(&shard);
                    events.extend(script.step(Input::Disconnected(Peer::Node(NodeId(node)))));
                }
                Fate::ViewChanges => {
                    view += 1;
                    events.extend(script.found(entry(view, shards, stripe)));
                }
            }
        }
        prop_assert_eq!(events.pop(), Some(Event::Finished));
        prop_assert_eq!(positions(&events), (first..end).collect::<Vec<_>>());
    }
}
