//! Reads of a log without placement: the tests answer for all shards, and count all messages.

use super::*;
use crate::testing::{
    CONTROL, entry, from_register, from_shard, primary, replies, stored, that_lost, to_shards,
};
use seriatim_model::{Order, Position, ViewHistory};

const NOBODY: u32 = ShardId::NOBODY.0;

const SECOND: Duration = Duration::from_secs(1);

/// A reader, and the replies of a log with final records on `shards` shards.
struct Log {
    fetch: Fetch,
    shards: u32,
    view: u64,
    stable: u64,
    trim: u64,
    owner: fn(u64, u32) -> u32,
    ignorant: Vec<u32>,
    /// Shards asked for records since the last call of `questions`.
    asked: Vec<u32>,
    /// Shards asked for the map since then.
    mapped: Vec<u32>,
    /// A shard that lost its records, and the exclusive end of the loss.
    lost: Option<(u32, u64)>,
    last_token: u64,
}

/// Owner of a position: shards own one to three positions in a row.
fn in_runs(position: u64, shards: u32) -> u32 {
    (position / 3 * 7 + position % 3 / 2) as u32 % shards
}

fn mapped_entry(view: u64, shards: u32) -> LogEntry {
    let mut entry = entry(view, shards, 1);
    entry.config.order = Order::ErwinSt;
    entry
}

impl Log {
    fn new(shards: u32, stable: u64) -> Self {
        let fetch = Fetch::new(CONTROL, mapped_entry(1, shards), Options::default());
        let (ignorant, asked, mapped) = (vec![], vec![], vec![]);
        Self {
            fetch,
            shards,
            view: 1,
            stable,
            trim: 0,
            owner: in_runs,
            ignorant,
            asked,
            mapped,
            lost: None,
            last_token: 0,
        }
    }

    fn read(&mut self, from: u64, max: u32) -> Reply {
        self.last_token += 1;
        let request =
            Request::Read { from: Position(from), max, wait: Duration::ZERO, answer_within: SECOND };
        let mut ended = self.step(Input::Request { token: self.last_token, request });
        assert_eq!(ended.len(), 1);
        ended.remove(0)
    }

    /// Handles an input, then the shards' answers to all resulting questions.
    fn step(&mut self, input: Input<Message, Request>) -> Vec<Reply> {
        let mut inputs = std::collections::VecDeque::from([input]);
        let mut ended = vec![];
        while let Some(input) = inputs.pop_front() {
            let mut out = vec![];
            self.fetch.step(Time(1), input, &mut out);
            ended.extend(replies(&out));
            for (node, shard, message) in to_shards(&out) {
                let answer = self.answer(shard, message);
                inputs.extend(answer.map(|answer| from_shard(node, shard, answer)));
            }
        }
        ended
    }

    fn answer(&mut self, shard: u32, message: shard::Message) -> Option<shard::Message> {
        let trimmed = |request, from: Position| {
            let error = ReadError::Trimmed { first: Position(self.trim) };
            (from.0 < self.trim).then_some(shard::Message::ReadFailed { request, error })
        };
        match message {
            shard::Message::Read { request, from, end, max_records, .. } => {
                self.asked.push(shard);
                if let Some((_, end)) = self.lost.filter(|(lost, end)| *lost == shard && from.0 < *end) {
                    let error = ReadError::Lost { position: from, end: Position(end) };
                    return Some(shard::Message::ReadFailed { request, error });
                }
                let upto = end.0.min(self.stable).max(from.0);
                let own = (from.0..upto).filter(|position| (self.owner)(*position, self.shards) == shard);
                let records = own.take(max_records as usize).map(stored).collect();
                let is_empty = |position: &u64| (self.owner)(*position, self.shards) == NOBODY;
                let mut empty = Span::of((from.0..upto).filter(is_empty).map(Position));
                let mut upto = Position(upto);
                if let Some(last) = empty.last_mut().filter(|last| last.end() == upto) {
                    last.count += (upto.0..self.stable).take_while(is_empty).count() as u64;
                    upto = last.end();
                }
                let answer = match empty.is_empty() {
                    true => shard::Message::Records { request, records, upto },
                    false => shard::Message::RecordsWith { request, records, empty, upto },
                };
                trimmed(request, from).or(Some(answer))
            }
            shard::Message::Map { request, from, end } => {
                self.mapped.push(shard);
                let end = end.0.min(self.stable).max(from.0);
                assert!(end - from.0 <= limits::MAP_POSITIONS);
                let owned =
                    |position| Owned { shard: ShardId((self.owner)(position, self.shards)), count: 1 };
                let knows = !self.ignorant.contains(&shard);
                let owned = (from.0..end).filter(|_| knows).map(owned).collect();
                let (view, stable) = (ViewNumber(self.view), Position(self.stable));
                let answer = shard::Message::Mapped { request, view, stable, owned };
                trimmed(request, from).or(Some(answer))
            }
            shard::Message::Cancel { .. } => None,
            other => panic!("a fetch does not send {other:?}"),
        }
    }

    fn questions(&mut self) -> (usize, usize) {
        (std::mem::take(&mut self.asked).len(), std::mem::take(&mut self.mapped).len())
    }

    fn enter_view(&mut self, view: u64, first: u64) {
        let mut entry = mapped_entry(view, self.shards);
        entry.history = ViewHistory::default();
        entry.history.push(ViewNumber(view), Position(first));
        assert_eq!(self.step(from_register(control::Message::Registered { entry })), []);
        self.view = view;
    }
}

#[test]
fn what_one_shard_lost_hides_nothing_of_the_others() {
    let mut log = Log::new(2, 20);
    (log.lost, log.ignorant) = (Some((0, 12)), vec![0, 1]);
    log.fetch = Fetch::new(CONTROL, that_lost(mapped_entry(1, 2), 0, 0, 12), Options::default());
    for position in 0..12 {
        let reply = log.read(position, 20 - position as u32);
        let mut others = (position..20).filter(|other| in_runs(*other, 2) != 0);
        match others.next().expect("the last one is") {
            own if own == position => assert!(matches!(reply, Reply::Records { .. }), "{reply:?}"),
            other => {
                let (position, end) = (Position(position), Position(other.min(12)));
                assert_eq!(reply, Reply::Failed(Failure::Lost { position, shard: ShardId(0), end }));
            }
        }
    }
}

fn records(positions: std::ops::Range<u64>) -> Reply {
    let next = Position(positions.end);
    Reply::Records { records: positions.map(stored).collect(), next }
}

#[test]
fn one_record_costs_one_question_once_its_surroundings_are_known() {
    let mut log = Log::new(8, 5000);
    assert_eq!(log.read(3000, 1), records(3000..3001));
    assert_eq!(log.questions(), (8, 1), "as before, and at the same time one for the map");
    for position in [3000, 0, 4999, 1234, 3001] {
        assert_eq!(log.read(position, 1), records(position..position + 1));
        let owner = in_runs(position, 8);
        assert_eq!((log.asked.clone(), log.questions()), (vec![owner], (1, 0)));
    }
    // A range costs one question per shard in it.
    assert_eq!(log.read(10, 3), records(10..13));
    assert_eq!(log.questions(), (3, 0));
}

#[test]
fn a_scan_asks_each_shard_once_for_a_range_and_one_for_the_map_of_it() {
    let mut log = Log::new(8, 10_000);
    let mut from = 0;
    while from < 10_000 {
        let Reply::Records { records, next } = log.read(from, 4096) else { panic!("it can be read") };
        assert!(records.iter().map(|stored| stored.position.0).eq(from..next.0));
        from = next.0;
    }
    let (asked, mapped) = log.questions();
    assert!(asked <= 3 * 8 && mapped <= 2, "{asked} questions for records and {mapped} for the map");
}

#[test]
fn short_reads_in_a_row_ask_few_shards() {
    let mut log = Log::new(8, 10_000);
    for from in (0..10_000).step_by(4) {
        assert_eq!(log.read(from, 4), records(from..from + 4));
    }
    let (asked, mapped) = log.questions();
    // Each read of four positions asks at most three shards.
    assert!(asked <= 2500 * 3 + 2 * 8 && mapped <= 3, "{asked} and {mapped}");
}

#[test]
fn who_follows_the_end_of_a_log_does_not_ask_for_the_map_of_what_is_not_final() {
    let mut log = Log::new(4, 100);
    assert_eq!(log.read(90, 20), records(90..100));
    assert_eq!(log.questions(), (4, 1));
    for stable in 101..120 {
        log.stable = stable;
        assert_eq!(log.read(stable - 1, 20), records(stable - 1..stable));
        assert_eq!(log.questions(), (4, 0));
    }
}

#[test]
fn who_knows_no_map_is_not_asked_in_vain() {
    let mut log = Log::new(4, 1000);
    log.ignorant = vec![0, 1, 2];
    assert_eq!(log.read(500, 1), records(500..501));
    let (asked, mapped) = log.questions();
    assert!(asked == 4 && mapped <= 4, "{asked} and {mapped}");
    assert_eq!(log.read(501, 1), records(501..502));
    assert_eq!(log.questions(), (1, 0));
    // If no shard has a map, all are asked for the records.
    let mut log = Log::new(2, 1000);
    log.ignorant = vec![0, 1];
    for _ in 0..3 {
        assert_eq!(log.read(500, 1), records(500..501));
        assert_eq!(log.questions(), (2, 2));
    }
}

#[test]
fn what_is_trimmed_is_not_asked_for_again() {
    let mut log = Log::new(2, 1000);
    log.trim = 400;
    assert_eq!(log.read(500, 1), records(500..501));
    assert_eq!(log.questions(), (2, 2), "the map is there from the trim point on");
    assert_eq!(log.read(400, 1), records(400..401));
    assert_eq!(log.questions(), (1, 0));
    log.trim = 600;
    assert_eq!(log.read(500, 1), Reply::Failed(Failure::Trimmed { first: Position(600) }));
    assert_eq!(log.read(600, 1), records(600..601));
}

#[test]
fn the_map_stays_when_the_view_changes_and_goes_where_a_loss_was_accepted() {
    let mut log = Log::new(4, 1000);
    assert_eq!(log.read(500, 1), records(500..501));
    log.enter_view(2, 1000);
    let _ = log.questions();
    assert_eq!(log.read(501, 1), records(501..502));
    assert_eq!((log.asked.clone(), log.questions()), (vec![in_runs(501, 4)], (1, 0)));
    // After an accepted loss, new records with other owners replaced those from 400 on.
    log.enter_view(4, 400);
    log.owner = |position, shards| (in_runs(position, shards) + u32::from(position >= 400)) % shards;
    assert_eq!(log.read(399, 1), records(399..400));
    assert_eq!(log.questions().0, 1);
    assert_eq!(log.read(501, 1), records(501..502));
    assert_eq!(log.questions(), (4, 0), "it may not be final");
    assert_eq!(log.read(500, 1), records(500..501));
    assert_eq!(log.questions(), (4, 1));
    assert_eq!(log.read(501, 1), records(501..502));
    assert_eq!(log.questions(), (1, 0));
    // A shard that does not know the loss is ignored.
    let mut log = Log::new(4, 1000);
    log.enter_view(3, 0);
    log.view = 2;
    assert_eq!(log.read(501, 1), records(501..502));
    log.view = 3;
    let _ = log.questions();
    assert_eq!(log.read(501, 1), records(501..502));
    assert_eq!(log.questions(), (4, 1));
}

#[test]
fn what_a_shard_had_that_has_left_meanwhile_is_trimmed_whatever_the_others_said_before() {
    for leaves in [0, 1] {
        let mut fetch = Fetch::new(CONTROL, mapped_entry(1, 2), Options::default());
        let mut step = |input| {
            let mut out = vec![];
            fetch.step(Time(1), input, &mut out);
            (to_shards(&out), replies(&out))
        };
        let read = Request::Read { from: Position(7), max: 2, wait: SECOND, answer_within: SECOND };
        let (asked, _) = step(Input::Request { token: 1, request: read });
        // Another shard owns the second position and answers. The owner of the first is silent.
        for (node, shard, message) in asked {
            let shard::Message::Read { request, .. } = message else { continue };
            if shard != leaves {
                let message =
                    shard::Message::Records { request, records: vec![stored(8)], upto: Position(9) };
                assert_eq!(step(from_shard(node, shard, message)).1, []);
            }
        }
        // The log is trimmed, the owner leaves, and a shard joins.
        let mut entry = mapped_entry(2, 3);
        entry.history.push(ViewNumber(2), Position(20));
        let shards = &mut entry.view.as_mut().unwrap().shards;
        shards.retain(|members| members.shard != ShardId(leaves));
        let (asked, _) = step(from_register(control::Message::Registered { entry }));
        let mut answers = vec![];
        for (node, shard, message) in asked.into_iter().rev() {
            let shard::Message::Read { request, .. } = message else { continue };
            let answer = match shard {
                2 => shard::Message::Records { request, records: vec![], upto: Position(9) },
                _ => {
                    let error = ReadError::Trimmed { first: Position(20) };
                    shard::Message::ReadFailed { request, error }
                }
            };
            answers.extend(step(from_shard(node, shard, answer)).1);
        }
        assert_eq!(answers, [Reply::Failed(Failure::Trimmed { first: Position(20) })]);
    }
}

#[test]
fn reads_run_beside_each_other_and_can_be_dropped() {
    let mut fetch = Fetch::new(CONTROL, mapped_entry(1, 2), Options::default());
    let mut step = |input| {
        let mut out = vec![];
        fetch.step(Time(1), input, &mut out);
        (to_shards(&out), replies(&out), fetch.is_idle())
    };
    let read = |from| Request::Read { from: Position(from), max: 1, wait: SECOND, answer_within: SECOND };
    let (asked, _, _) = step(Input::Request { token: 1, request: read(7) });
    assert_eq!(asked.len(), 3);
    let (asked, _, _) = step(Input::Request { token: 2, request: read(8) });
    let of_second: Vec<(u32, u64)> = asked
        .iter()
        .map(|(_, shard, message)| match message {
            shard::Message::Read { request, from: Position(8), .. } => (*shard, *request),
            other => panic!("the map is asked for once: {other:?}"),
        })
        .collect();
    let (cancelled, answers, _) = step(Input::Request { token: 1, request: Request::Cancel });
    assert_eq!((cancelled.len(), answers), (2, vec![]));
    for (shard, request) in of_second {
        let records = if shard == 0 { vec![stored(8)] } else { vec![] };
        let message = shard::Message::Records { request, records, upto: Position(9) };
        let (_, answers, is_idle) = step(from_shard(primary(1, shard), shard, message));
        assert_eq!((answers.is_empty(), is_idle), (shard == 1, true));
        if shard == 0 {
            assert_eq!(answers, [records_of(8)]);
        }
    }
}

fn records_of(position: u64) -> Reply {
    records(position..position + 1)
}

/// Two positions of no shard, then a record, repeated; from 1000 to 3000 no shard has any.
fn in_gaps(position: u64, shards: u32) -> u32 {
    match position {
        1000..3000 => NOBODY,
        _ if position % 3 < 2 => NOBODY,
        _ => (position / 3) as u32 % shards,
    }
}

fn records_between(from: u64, next: u64) -> Reply {
    let positions = (from..next).filter(|position| in_gaps(*position, 4) != NOBODY);
    Reply::Records { records: positions.map(stored).collect(), next: Position(next) }
}

#[test]
fn positions_of_nobody_are_passed_over_whether_their_map_is_known_or_not() {
    let mut log = Log::new(4, 5000);
    log.owner = in_gaps;
    assert_eq!(log.read(3, 10), records_between(3, 14), "the last one is empty, and so is the next");
    assert_eq!(log.questions(), (4, 1));
    assert_eq!(log.read(4, 1), records_between(4, 6), "it reads on behind them");
    assert_eq!(log.questions(), (2, 0), "somebody says whether they are trimmed");
    assert_eq!(log.read(5, 3), records_between(5, 8));
    assert_eq!((log.asked.clone(), log.questions()), (vec![1], (1, 0)), "nobody has no node to ask");
    assert_eq!(log.read(4, 6), records_between(4, 11));
    assert_eq!(log.questions(), (2, 0));
}

#[test]
fn however_long_they_are_what_is_empty_is_passed_at_once() {
    let mut log = Log::new(4, 5000);
    log.owner = in_gaps;
    assert_eq!(log.read(999, 1), records_between(999, 3003));
    assert_eq!(log.read(1000, 1), records_between(1000, 3003));
    let _ = log.questions();
    log.trim = 2000;
    assert_eq!(log.read(1500, 1), Reply::Failed(Failure::Trimmed { first: Position(2000) }));
    assert_eq!(log.read(2500, 1), records_between(2500, 3003));
}

#[test]
fn a_log_that_ends_with_empty_positions_is_read_to_its_end() {
    let mut log = Log::new(4, 3000);
    log.owner = in_gaps;
    log.ignorant = vec![0, 1, 2, 3];
    assert_eq!(log.read(998, 8192), records_between(998, 3000));
    assert_eq!(log.read(3000, 10), records_between(3000, 3000));
}

#[test]
fn a_position_that_all_passed_and_nobody_calls_empty_is_a_gap() {
    let mut fetch = Fetch::new(CONTROL, mapped_entry(1, 2), Options::default());
    let mut step = |input| {
        let mut out = vec![];
        fetch.step(Time(1), input, &mut out);
        (to_shards(&out), replies(&out), crate::testing::lookups(&out))
    };
    let read = Request::Read { from: Position(0), max: 9, wait: Duration::ZERO, answer_within: SECOND };
    let (mut asked, _, _) = step(Input::Request { token: 1, request: read });
    let mut told = vec![];
    for _ in 0..2 {
        for (node, shard, message) in std::mem::take(&mut asked) {
            let shard::Message::Read { request, .. } = message else { continue };
            let (records, empty) = (vec![], vec![Span { first: Position(1), count: 8 }]);
            let answer = shard::Message::RecordsWith { request, records, empty, upto: Position(9) };
            told.extend(step(from_shard(node, shard, answer)).1);
        }
        let (_, _, lookups) = step(Input::Wake);
        for request in lookups {
            let (entry, nodes) = (mapped_entry(1, 2), vec![]);
            let found = step(from_register(control::Message::Found { request, entry, nodes }));
            asked.extend(found.0);
            told.extend(found.1);
        }
    }
    let [Reply::Failed(Failure::Gap { position: Position(0), .. })] = told[..] else { panic!("{told:?}") };
}

#[test]
fn spans_that_overlap_a_record_are_an_error() {
    let mut fetch = Fetch::new(CONTROL, mapped_entry(1, 1), Options::default());
    let mut out = vec![];
    let read = Request::Read { from: Position(0), max: 9, wait: Duration::ZERO, answer_within: SECOND };
    fetch.step(Time(1), Input::Request { token: 1, request: read }, &mut out);
    let [(node, shard, shard::Message::Read { request, .. })] = to_shards(&out)[..] else {
        panic!("{out:?}")
    };
    let empty = vec![Span { first: Position(1), count: 3 }];
    let message = shard::Message::RecordsWith { request, records: vec![stored(3)], empty, upto: Position(9) };
    let mut out = vec![];
    fetch.step(Time(1), from_shard(node, shard, message), &mut out);
    let failure = Failure::Disordered { position: Position(3), shard: ShardId(0) };
    assert_eq!(replies(&out), [Reply::Failed(failure)]);
}
