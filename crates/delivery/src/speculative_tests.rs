//! Scripted speculative subscriptions: messages from shards, and the reader's events.

use std::time::Duration;

use seriatim_model::storage::Stored;
use seriatim_model::{Filter, Input, Placement, ShardId, Span, ViewHistory, ViewNumber, limits};
use seriatim_protocol::control;
use seriatim_protocol::shard::{self, ReadError};

use super::*;
use crate::testing::{
    Asked, CONTROL, VIEW, entry, from_register, from_shard, lookups, no_op, note_asked, replies, run, stored,
    that_lost, to_shards, without_a_shard,
};

struct Script {
    subscriber: Subscriber,
    now: Time,
    asked: Asked,
    lookups: usize,
}

/// The reader's events in words; `?` marks speculative records.
fn told(events: &[Event]) -> Vec<String> {
    let word = |event: &Event| match event {
        Event::Deliver { records, speculative } => {
            let mark = if *speculative { "?" } else { "" };
            let word =
                |stored: &Stored| format!("{}{mark}", String::from_utf8_lossy(&stored.record.payload()));
            records.iter().map(word).collect::<Vec<_>>().join(" ")
        }
        Event::Confirm { upto } => format!("confirm {upto}"),
        Event::Passed { upto } => format!("passed {upto}"),
        Event::Fail { after } => format!("fail {after}"),
        Event::Trimmed { first } => format!("trimmed {first}"),
        Event::Lost { shard, from, end } => format!("shard {shard} lost {from}..{end}"),
        Event::Finished => "finished".into(),
        Event::Failed(failure) => format!("{failure:?}"),
    };
    events.iter().map(word).collect()
}

/// A record with this text.
fn says(position: u64, text: &str) -> Stored {
    let id = seriatim_model::RecordId { number: position + 1000, ..stored(position).id };
    Stored { id, record: seriatim_model::Record::new(text.as_bytes(), 0), ..stored(position) }
}

fn speculative() -> Selection {
    Selection { speculative: true, ..Selection::default() }
}

/// Log entry with view `number`, which decides positions from `first` on and begins at `start`.
fn view(number: u64, shards: u32, first: u64, start: u64) -> LogEntry {
    let mut newer = entry(number, shards, 4);
    if let Some(view) = &mut newer.view {
        (view.first, view.start) = (Position(first), Position(start));
    }
    newer.history = ViewHistory::default();
    newer.history.push(ViewNumber(1), Position(0));
    newer.history.push(ViewNumber(number), Position(first));
    newer
}

impl Script {
    fn new(shards: u32, end: Option<u64>, selection: Selection) -> Self {
        let subscriber = Subscriber::with(
            CONTROL,
            view(1, shards, 0, 0),
            (Position(0), end.map(Position)),
            limits::SUBSCRIPTION_BYTES,
            selection,
            Options::default(),
        );
        let mut script = Self { subscriber, now: Time(1), asked: Asked::new(), lookups: 0 };
        script.step(Input::Wake);
        script.want(1000);
        script
    }

    fn step(&mut self, input: Input<Message, Request>) -> Vec<String> {
        let mut out = vec![];
        self.subscriber.step(self.now, input, &mut out);
        note_asked(&mut self.asked, &out);
        self.lookups += lookups(&out).len();
        told(&replies(&out))
    }

    fn want(&mut self, records: u64) -> Vec<String> {
        self.step(Input::Request { token: 5, request: Request::Want { records, bytes: 1 << 30 } })
    }

    fn says(&mut self, shard: u32, message: impl FnOnce(u64) -> shard::Message) -> Vec<String> {
        let (node, request, ..) = self.asked[&shard];
        self.step(from_shard(node, shard, message(request)))
    }

    fn deliver(&mut self, shard: u32, from: u64, records: Vec<Stored>, upto: u64) -> Vec<String> {
        self.deliver_of(VIEW, shard, from, records, upto)
    }

    /// A delivery; `view` is the latest view that decides one of its positions.
    fn deliver_of(
        &mut self,
        view: ViewNumber,
        shard: u32,
        from: u64,
        records: Vec<Stored>,
        upto: u64,
    ) -> Vec<String> {
        let (from, upto) = (Position(from), Position(upto));
        self.says(shard, |request| shard::Message::Deliver { request, view, from, records, upto })
    }

    fn wait(&mut self) -> Vec<String> {
        self.now = self.subscriber.deadline().expect("something is due").max(self.now);
        self.step(Input::Wake)
    }

    fn predict(&mut self, view: u64, shard: u32, from: u64, records: Vec<Stored>, upto: u64) -> Vec<String> {
        self.predict_with(view, shard, from, (records, vec![]), upto)
    }

    fn predict_with(
        &mut self,
        view: u64,
        shard: u32,
        from: u64,
        (records, empty): (Vec<Stored>, Vec<Span>),
        upto: u64,
    ) -> Vec<String> {
        let (view, from, upto) = (ViewNumber(view), Position(from), Position(upto));
        self.says(shard, |request| shard::Message::Predict { request, view, from, records, empty, upto })
    }

    fn holds(&mut self, view: u64, shard: u32, upto: u64) -> Vec<String> {
        let (view, upto) = (ViewNumber(view), Position(upto));
        let (from, void) = (Position::ZERO, vec![]);
        self.says(shard, |request| shard::Message::Holds { request, view, from, upto, void })
    }

    fn enters(&mut self, entry: LogEntry) -> Vec<String> {
        let told = self.step(from_register(control::Message::Registered { entry }));
        self.step(Input::Wake);
        told
    }
}

#[test]
fn what_is_predicted_is_confirmed_when_it_holds() {
    let mut script = Script::new(1, None, speculative());
    assert_eq!(script.deliver(0, 0, run([0, 1]), 2), ["0 1", "confirm 2"]);
    assert_eq!(script.predict(1, 0, 2, run([2, 3]), 4), ["2? 3?"]);
    assert_eq!(script.holds(1, 0, 3), ["confirm 3"]);
    assert_eq!(script.predict(1, 0, 4, run([4]), 5), ["4?"]);
    assert_eq!(script.holds(1, 0, 9), ["confirm 5"]);
    assert_eq!(script.deliver(0, 5, run([5]), 6), ["5", "confirm 6"]);
}

#[test]
fn one_shard_says_for_all_that_what_was_predicted_holds() {
    let mut script = Script::new(2, None, speculative());
    assert!(script.predict(1, 1, 0, run([4, 5]), 12).is_empty(), "positions before them are with shard 0");
    assert_eq!(script.predict(1, 0, 0, run(0..4), 8), ["0? 1? 2? 3? 4? 5?"]);
    assert_eq!(script.holds(1, 1, 5), ["confirm 5"]);
    assert_eq!(script.holds(1, 0, 6), ["confirm 6"]);
}

#[test]
fn what_a_shard_predicted_and_does_not_give_out_as_final_is_not_confirmed() {
    let mut script = Script::new(2, None, speculative());
    script.predict(1, 0, 0, run(0..4), 8);
    assert_eq!(script.predict(1, 1, 0, run(4..8), 12), ["4? 5? 6? 7?"]);
    // Both shards follow a view that the reader does not know, in which a third shard owns
    // positions from 4 on.
    assert_eq!(script.deliver(0, 0, run(0..4), 8), ["confirm 4"]);
    assert!(script.deliver(1, 0, vec![], 8).is_empty());
    assert!(script.subscriber.deadline().is_some_and(|at| at <= script.now), "the register is asked");
    let told = script.enters(view(2, 3, 4, 8));
    assert!(told.is_empty());
    assert_eq!(script.asked[&2].2, Position(4), "from there on it is asked for again");
    let others = (4..8).map(|position| says(position, &format!("other {position}"))).collect();
    let told = script.deliver(1, 4, others, 8);
    assert_eq!(told, ["fail 4", "other 4 other 5 other 6 other 7", "confirm 8"]);
}

#[test]
fn another_view_takes_back_what_it_does_not_have() {
    let mut script = Script::new(1, None, speculative());
    assert_eq!(script.predict(1, 0, 0, run(0..6), 6), ["0? 1? 2? 3? 4? 5?"]);
    // View 2 decides from 2 on, and begins at 4.
    assert_eq!(script.enters(view(2, 1, 2, 4)), ["fail 4", "confirm 2"]);
    let (node, _, from, _) = script.asked[&0];
    assert_eq!((node, from), (20, Position(2)), "what is final is known");
    assert_eq!(script.deliver(0, 2, vec![stored(2), says(3, "x")], 4), ["fail 3", "x", "confirm 4"]);
    assert_eq!(script.predict(2, 0, 4, vec![says(4, "y")], 5), ["y?"]);
    assert_eq!(script.holds(2, 0, 5), ["confirm 5"]);
}

#[test]
fn a_view_that_has_it_all_fails_nothing() {
    let mut script = Script::new(1, None, speculative());
    script.predict(1, 0, 0, run(0..6), 6);
    assert_eq!(script.enters(view(2, 1, 2, 6)), ["confirm 2"]);
    assert_eq!(script.deliver(0, 2, run(2..6), 6), ["confirm 6"], "none of it is told again");
}

#[test]
fn a_replica_may_know_of_a_view_before_the_reader_does() {
    let mut script = Script::new(1, None, speculative());
    script.predict(1, 0, 0, run(0..6), 6);
    assert_eq!(script.deliver(0, 0, vec![stored(0), says(1, "x")], 2), ["fail 1", "x", "confirm 2"]);
    assert!(script.predict(2, 0, 2, run([2]), 3).is_empty(), "a view that is not known yet");
    assert!(script.holds(2, 0, 3).is_empty());
    assert!(script.subscriber.deadline() <= Some(script.now), "the register is asked at once");
    assert!(script.enters(view(2, 1, 1, 2)).is_empty());
    assert_eq!(script.predict(2, 0, 2, run([2]), 3), ["2?"]);
}

#[test]
fn a_no_op_that_became_a_record_takes_back_what_followed_it() {
    let mut script = Script::new(1, None, speculative());
    assert_eq!(script.predict(1, 0, 0, vec![no_op(0), stored(1)], 2), ["1?"]);
    assert!(script.enters(view(2, 1, 0, 2)).is_empty(), "nothing is decided by that");
    assert_eq!(script.deliver(0, 0, vec![says(0, "x"), stored(1)], 2), ["fail 0", "x 1", "confirm 2"]);
}

#[test]
fn what_fails_may_begin_again_lower_when_another_shard_says_more() {
    let mut script = Script::new(2, None, speculative());
    let nothing = |position| vec![Span { first: Position(position), count: 1 }];
    script.predict_with(1, 0, 0, (vec![], vec![Span { first: Position(0), count: 4 }]), 8);
    assert_eq!(script.predict_with(1, 1, 0, (vec![stored(5)], nothing(4)), 12), ["5?"]);
    script.enters(view(2, 2, 0, 8));
    // Positions 4 and 0 have wrong predictions; the wrong position found first is the higher one.
    assert_eq!(script.deliver(1, 0, vec![says(4, "x"), no_op(5), no_op(6), no_op(7)], 12), ["fail 5"]);
    let told = script.deliver(0, 0, vec![says(0, "a"), no_op(1), no_op(2), no_op(3)], 8);
    assert_eq!(told, ["a x", "confirm 8"]);
}

#[test]
fn a_late_word_about_an_earlier_view_counts_for_nothing() {
    let mut script = Script::new(1, None, speculative());
    script.predict(1, 0, 0, run(0..3), 3);
    let (node, request, ..) = script.asked[&0];
    script.enters(view(2, 1, 0, 3));
    let (from, upto, void) = (Position::ZERO, Position(3), vec![]);
    let late = shard::Message::Holds { request, view: ViewNumber(1), from, upto, void };
    assert!(script.step(from_shard(node, 0, late)).is_empty());
    assert!(script.holds(1, 0, 3).is_empty(), "nor does one under the present number");
    assert_eq!(script.deliver(0, 0, run(0..3), 3), ["confirm 3"]);
}

#[test]
fn a_connection_that_is_lost_brings_predictions_again_and_tells_none_twice() {
    let mut script = Script::new(1, None, speculative());
    script.predict(1, 0, 0, run(0..3), 3);
    script.step(Input::Disconnected(Peer::Node(NodeId(10))));
    script.now = script.now + Duration::from_millis(50);
    script.step(Input::Wake);
    assert_eq!(script.asked[&0].2, Position(0));
    assert!(script.predict(1, 0, 0, run(0..3), 3).is_empty());
    assert_eq!(script.predict(1, 0, 3, run([3]), 4), ["3?"]);
    assert_eq!(script.holds(1, 0, 4), ["confirm 4"]);
}

#[test]
fn what_was_trimmed_before_it_was_known_to_hold_is_taken_back() {
    let mut script = Script::new(1, None, speculative());
    script.predict(1, 0, 0, run(0..3), 3);
    let error = ReadError::Trimmed { first: Position(2) };
    let told = script.says(0, |request| shard::Message::ReadFailed { request, error });
    assert_eq!(told, ["fail 0", "trimmed 2", "2?"]);
    script.now = script.now + Duration::from_millis(50);
    script.step(Input::Wake);
    assert_eq!(script.deliver(0, 2, run([2]), 3), ["confirm 3"]);
}

#[test]
fn it_finishes_when_all_below_its_end_is_final() {
    let mut script = Script::new(1, Some(2), speculative());
    assert_eq!(script.predict(1, 0, 0, run(0..4), 4), ["0? 1?"]);
    assert_eq!(script.holds(1, 0, 2), ["confirm 2", "finished"]);
    assert!(script.asked.is_empty());
}

#[test]
fn credit_comes_back_when_predictions_are_confirmed() {
    let mut script = Script::new(1, None, speculative());
    let half = limits::SUBSCRIPTION_BYTES as usize / 2 + 9;
    let large =
        |position| Stored { record: seriatim_model::Record::new(&vec![b'x'; half], 0), ..stored(position) };
    script.predict(1, 0, 0, vec![large(0), large(1)], 2);
    let granted = script.asked[&0].3;
    assert_eq!(granted, limits::SUBSCRIPTION_BYTES, "they were handed over, and are kept");
    assert!(script.subscriber.deadline().is_some(), "that they hold is to come");
    script.holds(1, 0, 1);
    assert!(script.asked[&0].3 > granted);
}

#[test]
fn a_filter_and_shards_go_without_speculation() {
    let filter = Some(Filter::key_prefix("eu/"));
    let selection = Selection { filter: filter.clone(), ..Selection::default() };
    let mut subscriber = Subscriber::with(
        CONTROL,
        view(1, 1, 0, 0),
        (Position(0), None),
        1 << 20,
        selection,
        Options::default(),
    );
    let mut out = vec![];
    subscriber.step(Time(1), Input::Wake, &mut out);
    let asked = to_shards(&out);
    assert!(
        matches!(&asked[0].2, shard::Message::SubscribeWith { speculative: false, filter: asked, .. } if *asked == filter)
    );

    let chosen = Selection { shards: Some([ShardId(1)].into()), ..Selection::default() };
    let mut script = Script::new(2, None, chosen);
    assert_eq!(script.asked.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(
        script.deliver(1, 0, run(4..8), 8),
        ["4 5 6 7"],
        "positions of shard 0 are none of its business"
    );
    assert_eq!(script.deliver(1, 8, run([12]), 13), ["12"]);
}

#[test]
fn positions_of_shards_that_are_not_chosen_are_no_gaps_wherever_they_lie() {
    for speculative in [false, true] {
        // The same in a log without placement.
        let mut log = view(1, 2, 0, 0);
        log.config.order = seriatim_model::Order::Scalog;
        let selection = Selection { shards: Some([ShardId(1)].into()), speculative, ..Selection::default() };
        let (range, most) = ((Position(0), None), limits::SUBSCRIPTION_BYTES);
        let subscriber = Subscriber::with(CONTROL, log, range, most, selection, Options::default());
        let mut script = Script { subscriber, now: Time(1), asked: Asked::new(), lookups: 0 };
        script.step(Input::Wake);
        script.want(1000);
        let confirms = |told: &str, upto: &str| match speculative {
            true => vec![told.to_owned(), upto.to_owned()],
            false => vec![told.to_owned()],
        };
        assert_eq!(script.deliver(1, 0, run([2, 5]), 9), confirms("2 5", "confirm 9"));
        let passed: &[&str] = if speculative { &["passed 20"] } else { &[] };
        assert_eq!(script.deliver(1, 9, vec![], 20), passed, "nothing is there for it");
        assert_eq!(script.deliver(1, 20, run([20, 22]), 23), confirms("20 22", "confirm 23"));
    }
}

#[test]
fn what_a_filter_leaves_out_is_confirmed_with_the_rest() {
    let selection = Selection { filter: Some(Filter::key_prefix("eu/")), ..speculative() };
    let mut script = Script::new(1, None, selection);
    let empty = vec![Span { first: Position(0), count: 2 }, Span { first: Position(3), count: 1 }];
    assert_eq!(script.predict_with(1, 0, 0, (run([2]), empty), 4), ["2?"]);
    assert_eq!(script.holds(1, 0, 4), ["confirm 4"]);
}

#[test]
fn a_reader_that_wants_nothing_is_told_nothing_and_kept_within_its_window() {
    let mut script = Script::new(1, None, speculative());
    script.predict(1, 0, 0, run(0..1000), 1000);
    let record = seriatim_model::Record::new(&vec![b'x'; 1 << 16], 0);
    let most = (4 * (limits::SUBSCRIPTION_BYTES + u64::from(limits::MAX_RECORD_BYTES))) >> 16;
    let mut next = 1000;
    while script.asked.contains_key(&0) && next < 1000 + most {
        let large = Stored { record: record.clone(), ..stored(next) };
        assert!(script.predict(1, 0, next, vec![large], next + 1).is_empty());
        next += 1;
    }
    assert!(script.asked.is_empty(), "a shard that sends more than it may is not listened to");
}

fn unplaced(shards: u32) -> Script {
    unplaced_of(shards, speculative())
}

fn unplaced_of(shards: u32, selection: Selection) -> Script {
    of_log(unplaced_log(shards), selection)
}

fn unplaced_log(shards: u32) -> LogEntry {
    let mut log = view(1, shards, 0, 0);
    log.config.order = seriatim_model::Order::Belfast;
    log
}

fn of_log(log: LogEntry, selection: Selection) -> Script {
    of_log_until(log, selection, None)
}

fn of_log_until(log: LogEntry, selection: Selection, end: Option<u64>) -> Script {
    let range = (Position(0), end.map(Position));
    let subscriber =
        Subscriber::with(CONTROL, log, range, limits::SUBSCRIPTION_BYTES, selection, Options::default());
    let mut script = Script { subscriber, now: Time(1), asked: Asked::new(), lookups: 0 };
    script.step(Input::Wake);
    script.want(1000);
    script
}

fn span(first: u64, count: u64) -> Span {
    Span { first: Position(first), count }
}

impl Script {
    fn holds_but(&mut self, shard: u32, from: u64, upto: u64, void: Vec<Span>) -> Vec<String> {
        let (view, from, upto) = (ViewNumber(1), Position(from), Position(upto));
        self.says(shard, |request| shard::Message::Holds { request, view, from, upto, void })
    }
}

#[test]
fn what_was_passed_over_fails_and_what_follows_comes_again() {
    let mut script = unplaced(1);
    assert_eq!(script.predict(1, 0, 0, run(0..4), 4), ["0? 1? 2? 3?"]);
    assert_eq!(script.holds_but(0, 0, 3, vec![span(1, 1)]), ["fail 1", "2", "3?", "confirm 3"]);
    assert_eq!(script.holds_but(0, 3, 4, vec![]), ["confirm 4"]);
}

#[test]
fn a_bound_whose_beginning_was_missed_confirms_nothing() {
    let mut script = unplaced(1);
    script.predict(1, 0, 0, run(0..4), 4);
    assert!(script.holds_but(0, 2, 4, vec![]).is_empty(), "what was passed over before was lost");
    script.step(Input::Wake);
    assert_eq!(script.asked[&0].2, Position(0), "it is asked for again");
    assert_eq!(script.deliver(0, 0, vec![stored(0), no_op(1), stored(2)], 3), ["fail 1", "2", "confirm 3"]);
}

#[test]
fn a_shard_tells_what_another_one_predicted_and_was_passed_over() {
    let mut script = unplaced(2);
    let told = script.predict_with(1, 0, 0, (vec![stored(0), stored(1)], vec![]), 4);
    assert_eq!(told, ["0? 1?"]);
    assert_eq!(script.predict_with(1, 1, 0, (vec![stored(2)], vec![span(3, 1)]), 6), ["2?"]);
    let told = script.holds_but(1, 0, 4, vec![span(1, 1)]);
    assert_eq!(told, ["fail 1", "2", "confirm 4"], "although shard 0 has not said so");
    assert!(script.holds_but(0, 0, 4, vec![span(1, 1)]).is_empty(), "it is known");
    assert_eq!(script.predict_with(1, 0, 4, (vec![stored(4)], vec![span(5, 1)]), 8), ["4?"]);
}

#[test]
fn a_prediction_that_comes_after_it_was_passed_over_is_not_given() {
    let mut script = unplaced(2);
    script.predict_with(1, 1, 0, (vec![stored(2)], vec![span(3, 1)]), 6);
    assert!(script.holds_but(1, 0, 4, vec![span(1, 1)]).is_empty());
    let told = script.predict_with(1, 0, 0, (vec![stored(0), stored(1)], vec![]), 4);
    assert_eq!(told, ["0? 2?", "confirm 4"]);
}

/// A subscription to shard 0 of two, with speculative records 0, 2 and 5.
fn of_one_shard() -> Script {
    let mut script = unplaced_of(2, Selection { shards: Some([ShardId(0)].into()), ..speculative() });
    let told = script.predict_with(1, 0, 0, (vec![stored(0), stored(2), stored(5)], vec![]), 6);
    assert_eq!(told, ["0? 2? 5?"]);
    script
}

#[test]
fn what_a_retired_shard_predicted_beyond_its_end_fails_from_the_first_record_on() {
    let mut script = of_one_shard();
    let mut newer = LogEntry { shards: vec![vec![NodeId(20)], vec![NodeId(21)]], ..without_a_shard() };
    newer.view.as_mut().expect("it has one").start = Position(3);
    assert_eq!(script.enters(newer), ["fail 5"]);
    assert_eq!(script.deliver(0, 0, run([0]), 1), ["confirm 1"]);
    assert_eq!(script.deliver(0, 1, run([2]), 3), ["confirm 3", "ShardsRetired([ShardId(0)])"]);
}

/// Events after the last record of a retired shard with records 0 and 2, for a subscription to
/// `shards`.
fn of_a_retired_shard(shards: &[u32], end: Option<u64>) -> Vec<String> {
    let shards = Some(shards.iter().map(|shard| ShardId(*shard)).collect());
    let mut script = of_log_until(unplaced_log(2), Selection { shards, ..Selection::default() }, end);
    let mut newer = LogEntry { shards: vec![vec![NodeId(20)]; 6], ..without_a_shard() };
    newer.view.as_mut().expect("it has one").start = Position(3);
    assert!(script.enters(newer).is_empty());
    assert_eq!(script.deliver(0, 0, run([0]), 1), ["0"]);
    script.deliver(0, 1, run([2]), 3)
}

#[test]
fn a_subscription_to_a_retired_shard_ends_where_it_was_to() {
    for end in [3, 4, 1000] {
        assert_eq!(of_a_retired_shard(&[0], Some(end)), ["2", "finished"], "up to {end}");
    }
}

#[test]
fn a_subscription_to_a_retired_shard_says_that_nothing_more_comes() {
    assert_eq!(of_a_retired_shard(&[0], None), ["2", "ShardsRetired([ShardId(0)])"]);
}

#[test]
fn a_subscription_waits_for_a_chosen_shard_that_joins_when_the_other_is_retired() {
    assert_eq!(of_a_retired_shard(&[0, 5], None), ["2"]);
}

#[test]
fn nothing_is_left_undecided_when_all_chosen_shards_have_left() {
    let mut script = of_one_shard();
    let mut newer = without_a_shard();
    newer.view.as_mut().expect("it has one").retired.clear();
    newer.shards = vec![vec![], vec![NodeId(21)]];
    assert_eq!(script.enters(newer), ["fail 0", "ShardsLeft([ShardId(0)])"]);
}

#[test]
fn predictions_below_all_that_the_history_tells_of_are_trimmed_or_come_again() {
    let mut script = Script::new(1, None, speculative());
    script.predict(1, 0, 0, run(0..4), 4);
    assert_eq!(script.holds(1, 0, 2), ["confirm 2"]);
    let mut newer = view(2, 1, 4, 4);
    newer.history = ViewHistory::default();
    newer.history.push(ViewNumber(2), Position(4));
    assert!(script.enters(newer).is_empty(), "nobody says which view decided there");
    assert_eq!(script.asked[&0].2, Position(2));
    let error = ReadError::Trimmed { first: Position(4) };
    let told = script.says(0, |request| shard::Message::ReadFailed { request, error });
    assert_eq!(told, ["fail 2", "trimmed 4"]);
}

#[test]
fn what_was_predicted_and_is_lost_fails_when_the_view_is_known_that_gave_it_up() {
    let mut script = Script::new(1, None, speculative());
    script.predict(1, 0, 0, run(0..4), 4);
    assert_eq!(script.holds(1, 0, 2), ["confirm 2"]);
    let mut newer = view(2, 1, 2, 4);
    let gap = seriatim_model::Gap { shard: ShardId(0), from: Position(2), end: Position(4) };
    newer.history.give_up(gap);
    assert_eq!(script.enters(newer), ["fail 2"]);
    let error = ReadError::Lost { position: Position(2), end: Position(4) };
    let told = script.says(0, |request| shard::Message::ReadFailed { request, error });
    assert_eq!(told, ["Lost { position: Position(2), shard: ShardId(0), end: Position(4) }"]);
}

#[test]
fn what_is_lost_is_skipped_when_all_before_it_is_decided() {
    let mut script = Script::new(1, None, Selection { skips_lost: true, ..speculative() });
    script.predict(1, 0, 0, run(0..3), 3);
    let mut newer = view(2, 1, 3, 6);
    let gap = seriatim_model::Gap { shard: ShardId(0), from: Position(3), end: Position(6) };
    newer.history.give_up(gap);
    assert_eq!(script.enters(newer), ["confirm 3"]);
    let lost = |script: &mut Script| {
        let error = ReadError::Lost { position: Position(3), end: Position(6) };
        script.says(0, |request| shard::Message::ReadFailed { request, error })
    };
    assert_eq!(script.asked[&0].2, Position(3));
    assert_eq!(lost(&mut script), ["shard 0 lost 3..6", "passed 6"]);
    assert_eq!(script.subscriber.deadline(), Some(script.now), "it asks for what comes after it");
    script.step(Input::Wake);
    assert_eq!(script.asked[&0].2, Position(6));
    assert_eq!(script.predict(2, 0, 6, run(6..7), 7), ["6?"]);
}

#[test]
fn a_reader_that_wants_nothing_is_not_told_of_a_loss() {
    let log = that_lost(unplaced_log(2), 1, 1000, 1050);
    let mut script = of_log(log, Selection { skips_lost: true, ..speculative() });
    script.deliver(1, 0, vec![], 1000);
    assert_eq!(script.deliver(0, 0, run(0..1000), 1100).len(), 2, "records, and a confirmation");
    let error = ReadError::Lost { position: Position(1000), end: Position(1050) };
    let told = script.says(1, |request| shard::Message::ReadFailed { request, error });
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(script.want(1), ["shard 1 lost 1000..1050"]);
    assert_eq!(script.want(1), ["passed 1050"]);
}

#[test]
fn a_loss_that_is_told_late_where_others_had_everything_holds_up_nothing() {
    let mut script = unplaced(2);
    let deliver = |request| shard::Message::DeliverWith {
        request,
        view: VIEW,
        from: Position(0),
        records: run(0..2),
        empty: vec![span(2, 4)],
        upto: Position(6),
    };
    assert_eq!(script.says(1, deliver), ["0 1", "confirm 6"]);
    let error = ReadError::Lost { position: Position(2), end: Position(6) };
    script.says(0, |request| shard::Message::ReadFailed { request, error });
    script.step(Input::Wake);
    assert_eq!(script.asked[&0].2, Position(6));
    script.deliver(1, 6, vec![], 8);
    assert_eq!(script.deliver(0, 6, run(6..8), 8), ["6 7", "confirm 8"]);
}

fn of_shards(shards: &[u32], speculative: bool) -> Selection {
    let shards = Some(shards.iter().copied().map(ShardId).collect());
    Selection { speculative, shards, ..Selection::default() }
}

/// A log of two shards with stripe 4; a third joins with view 2 at position 4.
fn with_a_third() -> LogEntry {
    let mut newer = view(2, 3, 4, 4);
    let before = Placement::new(vec![ShardId(0), ShardId(1)], 4);
    let all = (0..3).map(ShardId).collect();
    newer.view.as_mut().expect("it has one").placement = before.then(Position(4), all);
    newer
}

#[test]
fn a_reader_of_chosen_shards_skips_nothing_that_a_view_decides_which_it_does_not_know() {
    let newer = ViewNumber(2);
    for is_speculative in [false, true] {
        let mut script = Script::new(2, None, of_shards(&[0], is_speculative));
        let confirmed = |said: &str, upto: u64| match is_speculative {
            true => vec![said.to_owned(), format!("confirm {upto}")],
            false => vec![said.to_owned()],
        };
        assert_eq!(script.deliver(0, 0, run(0..4), 4), confirmed("0 1 2 3", 4));
        assert_eq!(script.lookups, 0);
        // In view 1, which the reader knows, shard 1 owns these positions.
        assert!(script.deliver_of(newer, 0, 4, run(4..8), 8).is_empty());
        script.wait();
        assert_eq!((script.lookups, script.subscriber.confirmed()), (1, Position(4)));
        assert!(script.enters(with_a_third()).is_empty());
        assert_eq!(script.asked[&0].2, Position(4), "it is asked for them again");
        assert_eq!(script.deliver_of(newer, 0, 4, run(4..8), 16), confirmed("4 5 6 7", 16));
        assert_eq!(script.subscriber.confirmed(), Position(16), "the rest is with others");
    }
}

/// A log without placement, with one shard; a second shard will join.
fn with_one_joining() -> LogEntry {
    LogEntry { shards: vec![vec![NodeId(10)], vec![NodeId(11)]], ..unplaced_log(1) }
}

/// The same log after the shard joined, with view 2 at position `at`.
fn with_both(at: u64) -> LogEntry {
    let mut both = LogEntry { shards: with_one_joining().shards, ..view(2, 2, at, at) };
    both.config.order = unplaced_log(1).config.order;
    both
}

#[test]
fn a_reader_of_a_shard_that_joins_and_of_another_gets_the_records_of_both() {
    let mut script = of_log(with_one_joining(), of_shards(&[0, 1], false));
    assert_eq!(script.lookups, 1, "it is asked at once whether the shard has joined");
    assert_eq!(script.deliver(0, 0, run([0, 1]), 2), ["0 1"]);
    assert!(script.deliver_of(ViewNumber(2), 0, 2, run([3]), 4).is_empty(), "shard 1 may have position 2");
    assert!(script.enters(with_both(2)).is_empty());
    assert_eq!(script.asked[&1].2, Position(2));
    assert!(script.deliver_of(ViewNumber(2), 0, 2, run([3]), 4).is_empty());
    assert_eq!(script.deliver_of(ViewNumber(2), 1, 2, run([2]), 4), ["2 3"]);
}

#[test]
fn a_reader_of_nothing_but_a_shard_that_joins_asks_until_it_has_joined() {
    let mut script = of_log(with_one_joining(), of_shards(&[1], false));
    let awaited = script.subscriber.awaited(script.now).to_string();
    assert_eq!(awaited, "waiting at position 0 for shard 1: it has not joined the log yet");
    for _ in 0..3 {
        let (before, began) = (script.lookups, script.now);
        let found = control::Message::Found { request: 0, entry: with_one_joining(), nodes: vec![] };
        assert!(script.step(from_register(found)).is_empty());
        script.wait();
        assert_eq!(script.lookups, before + 1);
        assert!(script.now >= began + Duration::from_secs(1), "it is not asked more often than need be");
    }
    script.enters(with_both(5));
    assert_eq!(script.deliver_of(ViewNumber(2), 1, 0, run([6]), 7), ["6"]);
}

#[test]
fn a_reader_of_a_shard_that_leaves_before_it_joins_is_told_so() {
    let gone = LogEntry { shards: vec![vec![NodeId(10)], vec![]], version: 9, ..unplaced_log(1) };
    let never_joins = LogEntry { leaving: vec![ShardId(1)], version: 9, ..with_one_joining() };
    for entry in [gone, never_joins] {
        let mut script = of_log(with_one_joining(), of_shards(&[1], false));
        let told = script.step(from_register(control::Message::Registered { entry }));
        assert_eq!(told, ["ShardsLeft([ShardId(1)])"]);
    }
}

#[test]
fn where_positions_tell_the_shard_no_record_waits_for_positions_of_others() {
    let mut script = Script::new(3, None, of_shards(&[0, 2], true));
    // Shard 1, which is not chosen, owns 4 to 7. Shard 2 has sent nothing.
    assert_eq!(script.deliver(0, 0, [run(0..4), run(12..16)].concat(), 16), ["0 1 2 3", "confirm 8"]);
    assert_eq!(script.deliver(2, 0, run(8..12), 12), ["8 9 10 11 12 13 14 15", "confirm 16"]);
}

/// Log entry with a later view, after a loss accepted in view 2: the log continued at `continued`.
fn reassigned(number: u64, start: u64, continued: u64) -> LogEntry {
    let mut later = view(number, 1, start, start);
    later.history.reassign(ViewNumber(2), Position(continued));
    later
}

#[test]
fn a_reader_beyond_the_point_where_the_log_continues_after_an_accepted_loss_is_told_so() {
    let told = "Reassigned { position: Position(4), start: Position(2) }";
    // The same happens to a reader that learns only a later view.
    for later in [reassigned(2, 2, 2), reassigned(3, 9, 2)] {
        for selection in [Selection::default(), of_shards(&[0], false), speculative()] {
            let mut script = Script::new(1, None, selection.clone());
            script.deliver(0, 0, run(0..4), 4);
            assert_eq!(script.enters(later.clone()), [told], "{selection:?}");
            assert!(script.subscriber.is_over());
        }
        let mut script = Script::new(1, None, speculative());
        script.deliver(0, 0, run(0..4), 4);
        assert_eq!(script.predict(1, 0, 4, run([4, 5]), 6), ["4? 5?"]);
        assert_eq!(script.enters(later), ["fail 4", told], "what is not confirmed fails first");
    }
}

#[test]
fn a_reader_that_has_nothing_yet_is_told_that_the_log_continues_below_its_first_position() {
    let range = (Position(9), None);
    for selection in [Selection::default(), speculative()] {
        let options = Options::default();
        let bytes = limits::SUBSCRIPTION_BYTES;
        let subscriber = Subscriber::with(CONTROL, view(1, 1, 0, 0), range, bytes, selection, options);
        let mut script = Script { subscriber, now: Time(1), asked: Asked::new(), lookups: 0 };
        script.want(1000);
        assert!(script.enters(view(2, 1, 2, 2)).is_empty(), "no loss was accepted");
        let mut later = view(4, 1, 2, 2);
        later.history.reassign(ViewNumber(3), Position(2));
        assert_eq!(script.enters(later), ["Reassigned { position: Position(9), start: Position(2) }"]);
    }
}

#[test]
fn a_reader_below_the_point_where_the_log_continues_takes_back_what_is_above_and_reads_on() {
    let mut script = Script::new(1, None, Selection::default());
    script.deliver(0, 0, run(0..2), 2);
    assert!(script.enters(reassigned(2, 2, 2)).is_empty());
    assert_eq!(script.deliver_of(ViewNumber(2), 0, 2, run([2, 3]), 4), ["2 3"]);
    let mut script = Script::new(1, None, speculative());
    script.deliver(0, 0, run(0..2), 2);
    assert_eq!(script.predict(1, 0, 2, run([2, 3]), 4), ["2? 3?"]);
    assert_eq!(script.enters(reassigned(2, 3, 3)), ["fail 3", "confirm 3"]);
    assert!(!script.subscriber.is_over());
}
