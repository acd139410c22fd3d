//! Tests of the player, in small steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::storage::Stored;
use seriatim_model::{Position, Record, RecordId, SessionId, Time};

use super::*;

const FIRST: TargetIndex = TargetIndex(0);

/// Gives each target every entry.
#[derive(Debug)]
struct ToAll(usize);

impl Mapper for ToAll {
    fn map(&self, stored: &Stored, out: &mut Messages) {
        (0..self.0).for_each(|target| out.put(target.to_string(), stored.record.payload()));
    }
}

/// A player whose streams and targets do only what the test says.
struct Bench {
    player: Player,
    now: Time,
    effects: Vec<Effect>,
}

impl Bench {
    /// A player of targets that are attached at these bounds, with its main stream open.
    fn attached(bounds: &[u64], limits: PlayerLimits) -> Self {
        Self::playing(bounds, None, 0, limits)
    }

    /// As [`attached`](Self::attached), up to an end, and with the first position of the targets.
    fn playing(bounds: &[u64], until: Option<u64>, first: u64, limits: PlayerLimits) -> Self {
        let ids: Vec<String> = (0..bounds.len()).map(|target| target.to_string()).collect();
        let rule = Rule { map: Map::Program(Arc::new(ToAll(ids.len()))), targets: ids.clone() };
        let rules: Rules = vec![(Position(first), Arc::new(rule))];
        let target = |id| (TargetConfig { id, unanswered: 1, dead_letters: false }, rules.clone());
        let config = PlayerConfig {
            targets: ids.into_iter().map(target).collect(),
            tail: Position(1000),
            until: until.map(Position),
            skipped: [].into(),
            limits,
            mutation: None,
        };
        let mut bench = Self { player: Player::new(Time::ZERO, config), now: Time::ZERO, effects: vec![] };
        bench.step(Input::Wake);
        for (target, bound) in bounds.iter().enumerate() {
            let outcome = Ok(Position(*bound));
            bench.step(Input::Attached { target: TargetIndex(target), term: Term(0), outcome });
        }
        bench
    }

    fn step(&mut self, input: Input) {
        self.now = self.now + Duration::from_micros(1);
        self.player.step(self.now, input, &mut self.effects);
    }

    /// The first target attaches again, in this session and at this bound.
    fn attaches(&mut self, term: u64, bound: u64) {
        self.now = self.player.deadline().unwrap_or(self.now).max(self.now);
        self.step(Input::Wake);
        self.step(Input::Attached { target: FIRST, term: Term(term), outcome: Ok(Position(bound)) });
    }

    /// The stream that was opened last.
    fn last_stream(&self) -> StreamNumber {
        let opened = self.effects.iter().filter_map(|effect| match effect {
            Effect::Open { stream, .. } => Some(*stream),
            _ => None,
        });
        opened.last().expect("a stream is open")
    }

    fn fetch(&mut self, stream: StreamNumber, position: u64) {
        let id = RecordId { session: SessionId(1), number: position };
        let record = Stored { position: Position(position), id, record: Record::new(&[0; 100], 0) };
        self.step(Input::Fetched { stream, record });
    }

    /// The batches sent to each target: after, upto, and the positions of the messages.
    fn sent(&self) -> BTreeMap<usize, Vec<(u64, u64, Vec<u64>)>> {
        let mut sent: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for effect in &self.effects {
            if let Effect::Send { target, batch, .. } = effect {
                let positions = batch.messages.iter().map(|message| message.position.0).collect();
                sent.entry(target.0).or_default().push((batch.after.0, batch.upto.0, positions));
            }
        }
        sent
    }
}

/// The search for quiet targets once ran before the entry that caused it was queued.
#[test]
fn a_quiet_target_is_not_moved_over_the_entry_that_arrives() {
    let mut bench = Bench::attached(&[0], PlayerLimits { quiet_positions: 1, ..PlayerLimits::default() });
    let main = bench.last_stream();
    bench.fetch(main, 0);
    assert_eq!(bench.sent()[&0], [(0, 1, vec![0])]);
}

/// A message that was dropped for another target's message once began a recovery, up to the end of
/// the entry that both targets were about to receive.
#[test]
fn an_entry_that_drops_another_targets_queue_reaches_that_target_once() {
    let one = Message {
        position: Position(0),
        appended_ms: 0,
        key: None,
        parts: vec![Bytes::from_static(&[0; 100])],
    };
    // Two batches in flight and one queued message.
    let limits = PlayerLimits { memory: 3 * one.memory(), ..PlayerLimits::default() };
    let mut bench = Bench::attached(&[0, 1], limits);
    let main = bench.last_stream();
    bench.fetch(main, 0);
    bench.fetch(main, 1);
    assert_eq!(bench.sent(), BTreeMap::from([(0, vec![(0, 1, vec![0])]), (1, vec![(1, 2, vec![1])])]));
    bench.step(Input::Applied { target: FIRST, term: Term(0), upto: Position(1) });
    bench.fetch(main, 2);
    bench.fetch(main, 3);
    for target in [0, 1] {
        bench.step(Input::Applied { target: TargetIndex(target), term: Term(0), upto: Position(2) });
    }
    let status = bench.player.status();
    assert!(status.memory <= limits.memory, "{status:?}");
}

/// The command of a skip whose batch failed was once forgotten, and waited without end.
#[test]
fn a_skip_whose_batch_fails_is_done_in_the_next_session() {
    for is_applied in [false, true] {
        let mut bench = Bench::attached(&[0], PlayerLimits::default());
        let main = bench.last_stream();
        bench.fetch(main, 0);
        let rejected = ApplyError::Rejected { position: Position(0), reason: "no".into() };
        bench.step(Input::NotApplied { target: FIRST, term: Term(0), error: rejected });
        let command = Command::Skip { position: Position(0) };
        bench.step(Input::Commanded { number: 7, target: Some(FIRST), command, again: false });
        bench.attaches(1, 0);
        let broken = ApplyError::Broken { reason: "it is down".into() };
        bench.step(Input::NotApplied { target: FIRST, term: Term(1), error: broken });
        bench.effects.clear();
        bench.attaches(2, u64::from(is_applied));
        if !is_applied {
            assert_eq!(bench.sent()[&0], [(0, 1, vec![])]);
            bench.step(Input::Applied { target: FIRST, term: Term(2), upto: Position(1) });
        }
        let is_done = |effect: &Effect| matches!(effect, Effect::Done { number: 7, outcome: Ok(()) });
        assert!(bench.effects.iter().any(is_done), "{:?}", bench.effects);
    }
}

/// The range of the recovery holds nothing for the target, so no batch moves its bound.
#[test]
fn a_recovery_without_messages_reaches_the_end() {
    let mut bench =
        Bench::playing(&[1000, 100], Some(1000), 0, PlayerLimits { join: 10, ..Default::default() });
    let recovery = bench.last_stream();
    bench.step(Input::Ended { stream: StreamNumber(1) });
    bench.step(Input::Ended { stream: recovery });
    bench.now = bench.player.deadline().expect("a search is due").max(bench.now);
    bench.step(Input::Wake);
    let batch = bench.effects.iter().rev().find_map(|effect| match effect {
        Effect::Send { target, batch, term } => Some((*target, batch.clone(), *term)),
        _ => None,
    });
    let (target, batch, term) = batch.expect("an empty batch moves the bound");
    assert_eq!((target, batch.after, batch.upto), (TargetIndex(1), Position(100), Position(1000)));
    bench.step(Input::Applied { target, term, upto: batch.upto });
    assert!(matches!(bench.effects.last(), Some(Effect::Stop(Stop::Finished))));
}

#[test]
fn a_target_that_begins_above_the_tail_is_not_of_another_log() {
    let mut bench = Bench::playing(&[5000], None, 5000, PlayerLimits::default());
    assert_eq!(bench.player.status().targets[0].stage, Stage::Normal);
    assert_eq!(bench.player.status().dispatched, Some(Position(1000)));
    let main = bench.last_stream();
    bench.fetch(main, 1000);
    assert!(!bench.effects.iter().any(|effect| matches!(effect, Effect::Send { .. })));
}

#[test]
fn a_target_whose_bound_is_lost_stops_until_an_operator_gives_one() {
    let mut bench = Bench::attached(&[7], PlayerLimits::default());
    let broken = ApplyError::Broken { reason: "the session has expired".into() };
    let main = bench.last_stream();
    bench.fetch(main, 7);
    bench.step(Input::NotApplied { target: FIRST, term: Term(0), error: broken });
    bench.now = bench.player.deadline().expect("it attaches again").max(bench.now);
    bench.step(Input::Wake);
    let outcome = Err(AttachError::Unusable { reason: "forgotten".into() });
    bench.step(Input::Attached { target: FIRST, term: Term(1), outcome });
    let why = bench.effects.iter().find_map(|effect| match effect {
        Effect::Note(Note::Stopped { why, .. }) => Some(why.to_string()),
        _ => None,
    });
    assert_eq!(why.as_deref(), Some("forgotten"));
    assert_eq!(bench.player.status().targets[0].stage, Stage::Stopped);
    let command = Command::Adopt { position: Position(3) };
    bench.step(Input::Commanded { number: 7, target: Some(FIRST), command, again: false });
    bench.effects.clear();
    bench.step(Input::Wake);
    let attach = bench.effects.iter().find_map(|effect| match effect {
        Effect::Attach { term, adopts, .. } => Some((*term, *adopts)),
        _ => None,
    });
    let (term, adopts) = attach.expect("it attaches again");
    assert_eq!(adopts, Some(Position(3)));
    bench.step(Input::Attached { target: FIRST, term, outcome: Ok(Position(3)) });
    let is_done = |effect: &Effect| matches!(effect, Effect::Done { number: 7, outcome: Ok(()) });
    assert!(bench.effects.iter().any(is_done), "{:?}", bench.effects);
}

/// A pause once ended at once beside a call of a session that had timed out. That call could change
/// the target during its maintenance.
#[test]
fn a_pause_waits_for_the_calls_of_earlier_sessions() {
    let mut bench = Bench::attached(&[0], PlayerLimits::default());
    let main = bench.last_stream();
    bench.fetch(main, 0);
    bench.now = bench.now + PlayerLimits::default().apply_within + Duration::from_secs(1);
    bench.step(Input::Wake);
    assert_eq!(bench.player.status().targets[0].stage, Stage::Down, "the batch has no answer");
    let pause =
        |number| Input::Commanded { number, target: Some(FIRST), command: Command::Pause, again: false };
    bench.step(pause(7));
    assert_eq!(bench.player.status().targets[0].stage, Stage::Paused);
    let is_done = |bench: &Bench, command: u64| {
        bench.effects.iter().any(|effect| matches!(effect, Effect::Done { number, .. } if *number == command))
    };
    assert!(!is_done(&bench, 7), "the call may still run");
    bench.step(Input::Detached { target: FIRST, term: Term(0) });
    assert!(is_done(&bench, 7));
    bench.step(pause(8));
    assert!(is_done(&bench, 8), "no call is left");
}
