//! Scripted inputs and expected effects.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use seriatim_model::storage::Stored;
use seriatim_model::{ShardId, limits};
use seriatim_protocol::control;
use seriatim_protocol::shard::{self, ReadError};

use super::*;
use crate::testing::{
    Asked, VIEW, entry, from_register, from_shard, lookups, no_op, note_asked, replies, run, stored,
    that_lost,
};

const MS: Duration = Duration::from_millis(1);

struct Script {
    subscriber: Subscriber,
    now: Time,
    asked: Asked,
    looked_up: u64,
    lookups: usize,
}

impl Script {
    fn new(entry: LogEntry, from: u64, end: Option<u64>) -> Self {
        Self::with(entry, (from, end), Selection::default())
    }

    fn with(entry: LogEntry, (from, end): (u64, Option<u64>), selection: Selection) -> Self {
        let subscriber = Subscriber::with(
            crate::testing::CONTROL,
            entry,
            (Position(from), end.map(Position)),
            limits::SUBSCRIPTIONS_BYTES,
            selection,
            Options::default(),
        );
        let mut script = Self { subscriber, now: Time(1), asked: Asked::new(), looked_up: 0, lookups: 0 };
        script.wait(Duration::ZERO);
        script
    }

    fn step(&mut self, input: Input<Message, Request>) -> Vec<Event> {
        let mut out = vec![];
        self.subscriber.step(self.now, input, &mut out);
        note_asked(&mut self.asked, &out);
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
            self.step(Input::Wake)
        } else {
            vec![]
        }
    }

    fn deliver(&mut self, shard: u32, from: u64, records: Vec<Stored>, upto: u64) -> Vec<Event> {
        let (node, request, ..) = self.asked[&shard];
        let message = shard::Message::Deliver {
            request,
            view: VIEW,
            from: Position(from),
            records,
            upto: Position(upto),
        };
        self.step(from_shard(node, shard, message))
    }

    fn found(&mut self, entry: LogEntry) -> Vec<Event> {
        let request = self.looked_up;
        self.step(from_register(control::Message::Found { request, entry, nodes: vec![] }))
    }
}

fn positions(events: &[Event]) -> Vec<u64> {
    let of = |event: &Event| -> Vec<u64> {
        let Event::Deliver { records, speculative: false } = event else {
            panic!("not a delivery: {event:?}")
        };
        records.iter().map(|stored| stored.position.0).collect()
    };
    events.iter().flat_map(of).collect()
}

#[test]
fn shards_are_merged_by_position_and_no_ops_left_out() {
    let mut script = Script::new(entry(1, 2, 2), 0, None);
    assert_eq!(script.asked[&0], (10, 1, Position(0), limits::SUBSCRIPTION_BYTES));
    assert_eq!(script.asked[&1].0, 11);
    script.want(100);
    // Shard 1 owns 2 and 3, which must not overtake 0 and 1.
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
        record: seriatim_model::Record::new(
            &vec![0; limits::SUBSCRIPTION_BYTES as usize / 2 - 9 - limits::RECORD_STRUCTURE_BYTES],
            0,
        ),
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
    let size = stored(0).record.memory() as u64;
    script.deliver(0, 0, run(0..9), 9);
    assert_eq!(positions(&script.want_bytes(9, size + 1)), [0, 1]);
    assert_eq!(script.want_bytes(9, size - 1), [], "that much it had already");
    assert_eq!(positions(&script.want_bytes(0, 1)), [2]);
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
fn what_is_lost_is_named_when_everything_before_it_was_handed_over() {
    let mut script = Script::new(that_lost(entry(1, 2, 1), 1, 1, 6), 0, None);
    script.want(100);
    script.deliver(1, 0, vec![], 1);
    let lost = |script: &mut Script, position| {
        let (node, request, ..) = script.asked[&1];
        let error = ReadError::Lost { position: Position(position), end: Position(6) };
        script.step(from_shard(node, 1, shard::Message::ReadFailed { request, error }))
    };
    assert_eq!(lost(&mut script, 1), []);
    script.asked.remove(&1);
    script.wait(20 * crate::source::feed::IDLE);
    assert!(!script.asked.contains_key(&1), "there is nothing to ask for again");
    // Trimmed records are reported as trimmed, not as lost.
    let (node, request, ..) = script.asked[&0];
    let first = Position(2);
    let error = ReadError::Trimmed { first };
    let events = script.step(from_shard(node, 0, shard::Message::ReadFailed { request, error }));
    assert_eq!(events, [Event::Trimmed { first }]);
    script.wait(20 * MS);
    let events = script.deliver(0, 2, run([2, 4]), 6);
    assert_eq!(positions(&events[..1]), [2]);
    // Only position 3 is lost: position 4 belongs to the other shard.
    let failure = Failure::Lost { position: Position(3), shard: ShardId(1), end: Position(4) };
    assert!(failure.to_string().contains("continue reading from 4"), "{failure}");
    assert_eq!(events[1..], [Event::Failed(failure)]);
}

#[test]
fn a_reader_that_skips_what_is_lost_is_told_each_run_of_it_and_all_the_rest() {
    let mut unplaced = entry(1, 2, 1);
    unplaced.config.order = seriatim_model::Order::Scalog;
    let selection = Selection { skips_lost: true, ..Selection::default() };
    let mut script = Script::with(that_lost(unplaced, 1, 2, 9), (0, Some(12)), selection);
    script.want(100);
    script.deliver(1, 0, run([1]), 2);
    let (node, request, ..) = script.asked[&1];
    let error = ReadError::Lost { position: Position(2), end: Position(9) };
    script.step(from_shard(node, 1, shard::Message::ReadFailed { request, error }));
    script.asked.remove(&1);
    let lost =
        |from: u64, end: u64| Event::Lost { shard: ShardId(1), from: Position(from), end: Position(end) };
    let events = script.deliver(0, 0, run([0, 5, 6]), 7);
    assert_eq!(positions(&events[..1]), [0, 1]);
    assert_eq!(events[1], lost(2, 5));
    assert_eq!(positions(&events[2..3]), [5, 6]);
    assert_eq!(events[3..], [], "shard 0 may have the next one");
    assert!(!script.asked.contains_key(&1), "it is asked for nothing before the end of what is lost");
    let events = script.deliver(0, 7, run([9]), 10);
    assert_eq!(events[0], lost(7, 9));
    assert_eq!(positions(&events[1..]), [9]);
    script.wait(Duration::ZERO);
    assert_eq!(script.asked[&1].2, Position(10));
    let events = script.deliver(1, 10, run([10, 11]), 12);
    assert_eq!(positions(&events[..1]), [10, 11]);
    assert_eq!(events[1..], [Event::Finished]);
}

#[test]
fn a_reader_that_does_not_know_the_view_that_lost_something_passes_over_nothing() {
    let log = |view: u64, shards: u32| {
        let mut log = entry(view, shards, 1);
        log.config.order = seriatim_model::Order::Scalog;
        log
    };
    // The second run starts with an earlier loss. In both, a shard joins and another loss follows.
    for known in [log(1, 2), that_lost(log(1, 2), 0, 0, 2)] {
        let selection = Selection { skips_lost: true, ..Selection::default() };
        let mut script = Script::with(known, (0, None), selection);
        script.want(100);
        assert_eq!(script.deliver(1, 0, run([3]), 6), []);
        let lost = |script: &mut Script| {
            let (node, request, ..) = script.asked[&0];
            let error = ReadError::Lost { position: Position(0), end: Position(6) };
            script.step(from_shard(node, 0, shard::Message::ReadFailed { request, error }))
        };
        assert_eq!(lost(&mut script), [], "shard 2 may be there, and have records");
        script.wait(Duration::ZERO);
        assert_eq!(script.lookups, 1);
        assert_eq!(script.found(that_lost(log(3, 3), 0, 0, 6)), []);
        script.wait(Duration::ZERO);
        assert_eq!(lost(&mut script), []);
        assert_eq!(script.deliver(1, 6, vec![], 7), []);
        let events = script.deliver(2, 0, run([2]), 7);
        let from_to =
            |from: u64, end: u64| Event::Lost { shard: ShardId(0), from: Position(from), end: Position(end) };
        assert_eq!((&events[0], positions(&events[1..2])), (&from_to(0, 2), vec![2, 3]));
        assert_eq!(events[2], from_to(4, 6));
    }
}

#[test]
fn a_deleted_log_ends_it() {
    let mut script = Script::new(entry(1, 1, 64), 0, None);
    let refusal = control::Refusal::NoSuchLog { name: "orders".into() };
    let events = script.step(from_register(control::Message::Refused { request: 1, refusal }));
    assert_eq!(events, [Event::Failed(Failure::Deleted("orders".into()))]);
}

/// What the network does to one delivery.
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

/// A fake shard with all its positions below `stable`.
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
        let message = shard::Message::Deliver { request: self.request, view: VIEW, from, records, upto };
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
        // After the random fates the network works, and everything must arrive.
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

#[test]
fn what_is_waited_for_is_said_in_words() {
    let said = |shards: &[(u32, &[u32], &[u32])], unavailable: Option<&str>| {
        let nodes = |numbers: &[u32]| numbers.iter().copied().map(NodeId).collect();
        let shards = shards.iter().map(|(shard, silent, lacking)| Unanswered {
            shard: ShardId(*shard),
            silent: nodes(silent),
            lacking: nodes(lacking),
            is_joining: false,
        });
        let (shards, unavailable) = (shards.collect(), unavailable.map(str::to_owned));
        Awaited { position: Position(58), shards, unavailable }.to_string()
    };
    assert_eq!(said(&[], None), "waiting at position 58: no data yet");
    assert_eq!(said(&[], Some("a reason")), "waiting at position 58: a reason");
    let away = "waiting at position 58 for shard 1: nodes 4 and 5 are not responding";
    assert_eq!(said(&[(1, &[4, 5], &[])], Some("a reason")), away);
    let some = "waiting at position 58 for shard 1: node 5 is not responding, node 4 does not hold it yet";
    assert_eq!(said(&[(1, &[5], &[4])], None), some);
    let both = "waiting at position 58 for shard 0: node 3 is not responding; and for shard 1: nodes 4, 5 and 6 do not hold it yet";
    assert_eq!(said(&[(0, &[3], &[]), (1, &[], &[4, 5, 6])], None), both);
}
