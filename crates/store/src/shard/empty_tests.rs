//! Empty positions.

use std::collections::BTreeMap;

use proptest::prelude::*;
use seriatim_model::storage::{Found, Ordered, Owned, ReadRange, StorageCommand};
use seriatim_model::{IdRun, Position, RecordId, SessionId, ShardId, Span, ViewNumber, limits};

use super::ordering_tests::{
    OTHER, SHARD, data, execute, ids, journaled, order, other, put, remember, stable, trim, write_behind,
};
use super::{Kept, ShardStore};
use crate::disk::MemoryDisk;

/// Empty positions, with arbitrary ids.
fn nobody(count: u64) -> Ordered {
    Ordered { ids: ids(5, 0, count), shard: ShardId::NOBODY, is_void: true }
}

fn read(store: &ShardStore, from: u64, end: u64, max_records: u32) -> Found {
    let (from, end) = (Position(from), Position(end));
    store.read(ReadRange { from, end, max_records, max_bytes: u32::MAX }).unwrap()
}

fn span(first: u64, end: u64) -> Span {
    Span { first: Position(first), count: end - first }
}

fn positions(found: &Found) -> Vec<u64> {
    found.records.iter().map(|stored| stored.position.0).collect()
}

#[test]
fn a_long_run_is_one_entry_and_found_at_once() {
    const MILLION: u64 = 1_000_000;
    let disk = MemoryDisk::new();
    let mut store = write_behind(&disk);
    let runs = [nobody(MILLION), data(5, 0, 1), nobody(1), nobody(MILLION), data(5, 1, 1), nobody(MILLION)];
    execute(&mut store, &[remember(&[(1, 0)], 0), put(5, 0..2)]);
    let before = disk.counters().bytes_written;
    let ordered = order(1, 0, &runs);
    execute(&mut store, &[ordered.clone(), stable(4 * MILLION)]);
    assert!(disk.counters().bytes_written - before < 1000);
    assert_eq!(store.execute(&ordered).unwrap(), Kept::Nothing, "it is known");
    for mut store in [store, write_behind(&disk)] {
        let found = read(&store, 0, 3 * MILLION + 3, 9);
        assert_eq!(positions(&found), [MILLION, 2 * MILLION + 2]);
        let empty =
            [span(0, MILLION), span(MILLION + 1, 2 * MILLION + 2), span(2 * MILLION + 3, 3 * MILLION + 3)];
        assert_eq!((&found.empty[..], found.upto), (&empty[..], Position(3 * MILLION + 3)));
        let found = read(&store, 5, 3 * MILLION, 1);
        assert_eq!((&found.empty[..], found.upto), (&[span(5, MILLION)][..], Position(MILLION + 1)));
        // The last span extends beyond the range.
        let found = read(&store, 7, 9, 9);
        assert_eq!((&found.empty[..], found.upto), (&[span(7, MILLION)][..], Position(MILLION)));
        let before = store.visited();
        let _ = read(&store, 7, 9, 9);
        assert!(store.visited() - before < 20);
        execute(&mut store, &[trim(MILLION + 9)]);
        let found = read(&store, MILLION + 9, MILLION + 10, 9);
        assert_eq!(found.empty, [span(MILLION + 9, 2 * MILLION + 2)]);
        execute(&mut store, &[trim(3 * MILLION)]);
        assert_eq!(read(&store, 3 * MILLION, 4 * MILLION, 9).empty, [span(3 * MILLION, 3 * MILLION + 3)]);
    }
}

#[test]
fn a_read_tells_no_more_spans_than_fit_into_a_message() {
    let disk = MemoryDisk::new();
    let mut store = write_behind(&disk);
    let count = limits::READ_SPANS as u64 + 100;
    let runs: Vec<_> = (0..count).flat_map(|_| [nobody(1), other(1)]).collect();
    execute(&mut store, &[remember(&[(1, 0)], 0), put(5, 0..1), order(1, 0, &runs)]);
    execute(&mut store, &[order(1, 2 * count, &[data(5, 0, 1)]), stable(2 * count + 1)]);
    let found = read(&store, 0, 2 * count + 1, 9);
    assert_eq!((found.records.len(), found.empty.len()), (0, limits::READ_SPANS));
    assert_eq!(found.upto, Position(2 * limits::READ_SPANS as u64), "the next one begins there");
    let rest = read(&store, found.upto.0, 2 * count + 1, 9);
    assert_eq!((rest.records.len(), rest.empty.len(), rest.upto), (1, 100, Position(2 * count + 1)));
}

#[test]
fn a_name_that_was_passed_over_stays_held_until_it_is_discarded() {
    let disk = MemoryDisk::new();
    let mut store = write_behind(&disk);
    let passed_over = Ordered { ids: ids(5, 1, 1), ..nobody(1) };
    let commands =
        [remember(&[(1, 0)], 0), put(5, 0..2), order(1, 0, &[data(5, 0, 1), passed_over]), stable(2)];
    execute(&mut store, &commands);
    assert_eq!(store.recovery().put, [ids(5, 1, 1)]);
    execute(&mut store, &[StorageCommand::Discard(ids(5, 1, 1))]);
    assert_eq!((store.recovery().put, read(&store, 0, 2, 9).empty), (vec![], vec![span(1, 2)]));
}

/// The owner of a position, and the id of its record if stored here.
type Entry = (ShardId, Option<RecordId>);

/// The expected state. Versions are by view and position.
#[derive(Debug, Default)]
struct Model {
    versions: BTreeMap<(u64, u64), Entry>,
    steps: Vec<(u64, u64)>,
    trim: u64,
    stable: u64,
    end: u64,
}

impl Model {
    fn at(&self, position: u64) -> Option<Entry> {
        let (view, _) = self.steps.iter().rev().find(|(_, first)| *first <= position)?;
        self.versions.get(&(*view, position)).copied()
    }

    fn order(&mut self, view: u64, first: u64, runs: &[Ordered]) {
        let mut position = first;
        for run in runs {
            for id in run.ids.ids() {
                self.versions.insert((view, position), (run.shard, (run.shard == SHARD).then_some(id)));
                position += 1;
            }
        }
        self.end = self.end.max(position);
    }

    fn check(&self, store: &ShardStore, seed: u64) {
        let mut from = self.trim + seed % 7;
        for step in 0.. {
            let end = (from + 1 + (seed >> (step % 50)) % 40).min(self.end.max(from + 1));
            let found = read(store, from, end, 1 + (seed >> (step % 40)) as u32 % 5);
            assert!(found.upto.0 > from, "{found:?}");
            let mut told: BTreeMap<u64, Entry> = BTreeMap::new();
            for stored in &found.records {
                told.insert(stored.position.0, (SHARD, Some(stored.id)));
            }
            for position in found.empty.iter().flat_map(|span| span.positions()) {
                assert!(told.insert(position.0, (ShardId::NOBODY, None)).is_none(), "{found:?}");
            }
            let is_told = |entry: &Entry| entry.0 != OTHER;
            let expected = (from..found.upto.0).filter_map(|position| Some((position, self.at(position)?)));
            let expected: BTreeMap<u64, Entry> = expected.filter(|(_, entry)| is_told(entry)).collect();
            assert_eq!(told, expected, "{from}..{end}");
            assert!(found.empty.windows(2).all(|pair| pair[0].end() < pair[1].first), "{found:?}");
            from = found.upto.0;
            if from >= self.end {
                break;
            }
        }
        let map = store.map(Position(self.trim), Position(self.end));
        let owners =
            map.iter().flat_map(|Owned { shard, count }| std::iter::repeat_n(*shard, *count as usize));
        let told: Vec<ShardId> = owners.collect();
        let known = (self.trim..self.end).map_while(|position| self.at(position).map(|(shard, _)| shard));
        assert_eq!(told, known.collect::<Vec<_>>());
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Owner and length of each part of a cut.
    Order(Vec<(u8, u64)>),
    /// Begins a view this far below the end, and orders those positions again.
    View(u64),
    Stable(u64),
    Trim(u64),
    /// Reopens the store from its files, or from a checkpoint and later commands.
    Reopen {
        journaled: bool,
    },
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    let part = (0..3u8, prop_oneof![4 => 1..4u64, 1 => 50..400u64]);
    prop_oneof![
        8 => prop::collection::vec(part, 1..6).prop_map(Step::Order),
        1 => (0..30u64).prop_map(Step::View),
        3 => (0..60u64).prop_map(Step::Stable),
        1 => (0..100u64).prop_map(Step::Trim),
        1 => any::<bool>().prop_map(|journaled| Step::Reopen { journaled }),
        1 => Just(Step::Checkpoint),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Compares the store with a map that has an entry per position.
    #[test]
    fn it_knows_what_a_map_of_positions_knows(steps in prop::collection::vec(step(), 1..60), seed in any::<u64>()) {
        let disk = MemoryDisk::new();
        let mut model = Model { steps: vec![(1, 0)], ..Model::default() };
        let mut store = journaled(&disk, None);
        let (mut checkpoint, mut since) = (None, vec![]);
        let (mut next, mut view) = (0, 1);
        let mut todo = vec![remember(&model.steps, 0)];
        for step in steps {
            match step {
                Step::Order(parts) => {
                    let mut runs = vec![];
                    for (who, count) in parts {
                        // Few records, since each is written.
                        let count = if who == 0 { count.min(3) } else { count };
                        runs.push(match who {
                            0 => data(5, next, count),
                            1 => other(count),
                            _ => Ordered { ids: ids(8, model.end, count), ..nobody(count) },
                        });
                        if who == 0 {
                            todo.push(put(5, next..next + count));
                            next += count;
                        }
                    }
                    todo.push(order(view, model.end, &runs));
                    model.order(view, model.end, &runs);
                }
                Step::View(back) => {
                    // A flush completes the order, with other owners.
                    view += 1;
                    let first = model.end.saturating_sub(back).max(model.stable);
                    if let Some(count) = model.end.checked_sub(first).filter(|count| *count > 0) {
                        let head = count / 2;
                        let runs = [nobody(head), other(count - head)];
                        let runs: Vec<Ordered> = runs.into_iter().filter(|run| run.ids.count > 0).collect();
                        todo.push(order(view, first, &runs));
                        model.order(view, first, &runs);
                    }
                    model.steps.retain(|(_, start)| *start < first);
                    model.steps.push((view, first));
                    model.stable = model.end;
                    todo.push(remember(&model.steps, model.end));
                }
                Step::Stable(more) => {
                    model.stable = (model.stable + more).min(model.end);
                    todo.push(stable(model.stable));
                }
                Step::Trim(more) => {
                    model.trim = (model.trim + more).min(model.stable);
                    todo.push(trim(model.trim));
                }
                Step::Checkpoint => {
                    checkpoint = Some(store.checkpoint().0);
                    since.clear();
                }
                Step::Reopen { journaled: true } => {
                    store = journaled(&disk, checkpoint.as_ref());
                    execute(&mut store, &since);
                }
                Step::Reopen { journaled: false } => {
                    let found = write_behind(&disk.fork());
                    model.check(&found, seed);
                }
            }
            for command in todo.drain(..) {
                since.extend(store.execute(&command).unwrap().of(&command));
            }
            model.check(&store, seed);
        }
    }
}

/// Ids of empty positions are meaningless.
#[test]
fn what_is_empty_has_no_name() {
    let disk = MemoryDisk::new();
    let mut store = write_behind(&disk);
    execute(&mut store, &[remember(&[(1, 0)], 0), order(1, 0, &[nobody(9)])]);
    let recovery = store.recovery();
    assert_eq!((recovery.put, recovery.void), (vec![], vec![]));
    assert_eq!(store.find(&[IdRun { session: SessionId(5), first: 0, count: 9 }]), []);
    assert_eq!(store.map(Position(0), Position(9)), [Owned { shard: ShardId::NOBODY, count: 9 }]);
    let bind = StorageCommand::Map {
        view: ViewNumber(1),
        first: Position(9),
        owned: vec![Owned { shard: ShardId::NOBODY, count: 3 }],
    };
    execute(&mut store, &[bind, stable(12)]);
    assert_eq!(read(&store, 2, 12, 9).empty, [span(2, 12)]);
}
