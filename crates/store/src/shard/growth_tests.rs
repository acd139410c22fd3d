//! Bounds on the cost of a command and on the stored bytes per record, for logs of any length.

use std::sync::Arc;

use seriatim_model::storage::{HardState, Ordered, Owned, ReadRange, Rebound, Run, StorageCommand};
use seriatim_model::wire::encode_one;
use seriatim_model::{
    Durability, IdRun, Incarnation, LogConfig, LogId, NodeId, Order, Placement, Position, Record, RecordId,
    SessionId, ShardId, View, ViewHistory, ViewNumber,
};

use super::index::{Index, IndexRun};
use super::removals::REMOVED_AT_ONCE;
use super::segment::{HEADER_BYTES, Written};
use super::tests::{remove_all, rewrite_all};
use super::{FORGOTTEN_AT_ONCE, Kept, OpenMode, ShardOptions, ShardStore};
use crate::disk::{Disk, MemoryDisk, sync_files};

const SHARD: ShardId = ShardId(0);
const SEGMENT_BYTES: u64 = 8000;

fn open(disk: &MemoryDisk, mode: OpenMode) -> ShardStore {
    let options = ShardOptions::new(SEGMENT_BYTES);
    ShardStore::open(Arc::new(disk.clone()), LogId(1), SHARD, mode, options).unwrap()
}

/// The hard state of a member of the latest view.
fn remember(order: Order, steps: &[(u64, u64)]) -> StorageCommand {
    let mut history = ViewHistory::default();
    for (view, first) in steps {
        history.push(ViewNumber(*view), Position(*first));
    }
    let number = history.latest();
    let view = View {
        number,
        sequencers: vec![],
        leader: NodeId(1),
        shards: vec![],
        retired: vec![],
        placement: Placement::new(vec![SHARD], 1),
        first: Position(0),
        start: Position(0),
    };
    let config = LogConfig { order, ..LogConfig::default() };
    let incarnation = Incarnation(1);
    StorageCommand::Remember(HardState { incarnation, config, claim: number, view: Some(view), history })
}

fn id(session: u128, number: u64) -> RecordId {
    RecordId { session: SessionId(session), number }
}

fn put(session: u128, number: u64) -> StorageCommand {
    StorageCommand::Put(vec![(id(session, number), Record::new(&number.to_le_bytes(), 0))])
}

fn order(view: u64, first: u64, ids: &[(u128, u64)]) -> StorageCommand {
    let ordered = |&(session, number)| {
        let ids = IdRun { session: SessionId(session), first: number, count: 1 };
        Ordered { ids, shard: SHARD, is_void: false }
    };
    let runs = ids.iter().map(ordered).collect();
    StorageCommand::Order { view: ViewNumber(view), first: Position(first), runs }
}

/// Entries visited, and bytes read and written.
fn cost(disk: &MemoryDisk, store: &mut ShardStore, command: &StorageCommand) -> (u64, u64) {
    let moved = || disk.counters().bytes_read + disk.counters().bytes_written;
    let before = (store.visited(), moved());
    store.execute(command).unwrap();
    (store.visited() - before.0, moved() - before.1)
}

fn most((entries, bytes): (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (entries.max(other.0), bytes.max(other.1))
}

/// The highest cost of a command while no position becomes final.
fn worst_of_ordering(options: ShardOptions) -> (u64, u64) {
    let disk = MemoryDisk::new();
    let arc = Arc::new(disk.clone());
    let mut store = ShardStore::open(arc, LogId(1), SHARD, OpenMode::WriteBehind, options).unwrap();
    store.execute(&remember(Order::ErwinSt, &[(1, 0)])).unwrap();
    let mut worst = (0, 0);
    for number in 0..2000 {
        for session in 0..2 {
            worst = most(worst, cost(&disk, &mut store, &put(session, number)));
        }
        let ordered = order(1, number * 2, &[(0, number), (1, number)]);
        worst = most(worst, cost(&disk, &mut store, &ordered));
    }
    assert!(disk.files().len() > 50, "the log is many segments long");
    worst
}

#[test]
fn an_order_costs_the_same_however_much_is_not_final() {
    let options = ShardOptions::new(SEGMENT_BYTES);
    let (entries, bytes) = worst_of_ordering(options);
    assert!(entries < 100 && bytes < 2000, "a step cost {entries} entries and {bytes} bytes");
    let (entries, _) = worst_of_ordering(ShardOptions { measures_by_encoding: true, ..options });
    assert!(entries > 4000, "who encodes all that it holds is seen to look at it: {entries} entries");
}

#[test]
fn discards_one_after_the_other_look_at_what_is_on_its_way_once() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::WriteBehind);
    store.execute(&remember(Order::ErwinSt, &[(1, 0)])).unwrap();
    // Each second number has a position; the others wait.
    for number in 0..400 {
        store.execute(&put(0, number)).unwrap();
    }
    let ids: Vec<_> = (0..200).map(|number| (0, 2 * number)).collect();
    store.execute(&order(1, 0, &ids)).unwrap();
    let before = store.visited();
    for number in 0..200 {
        let ids = IdRun { session: SessionId(0), first: 2 * number + 1, count: 1 };
        assert_eq!(store.execute(&StorageCommand::Discard(ids)).unwrap(), Kept::Command);
    }
    let each = (store.visited() - before) / 200;
    assert!(each < 20, "a discard looked at {each} entries");
}

/// Bytes written by repeated commands without effect.
fn again(disk: &MemoryDisk, store: &mut ShardStore, commands: &[StorageCommand]) -> u64 {
    let before = disk.counters().bytes_written;
    for command in commands {
        assert_eq!(store.execute(command).unwrap(), Kept::Nothing, "{command:?}");
    }
    disk.counters().bytes_written - before
}

fn bind(view: u64, first: u64, count: u64) -> StorageCommand {
    let record = |number: u64| (id(1, number), Record::new(&[number as u8; 500], 0));
    let run = Run { first: Position(first), records: (first..first + count).map(record).collect() };
    StorageCommand::Bind { view: ViewNumber(view), runs: vec![run] }
}

#[test]
fn what_is_executed_again_writes_nothing() {
    for order_of in [Order::ErwinBb, Order::ErwinSt] {
        let disk = MemoryDisk::new();
        let mut store = open(&disk, OpenMode::Journaled { checkpoint: None });
        store.execute(&remember(order_of, &[(1, 0)])).unwrap();
        let commands = [bind(1, 0, 40), bind(1, 50, 3)];
        for command in &commands {
            assert_eq!(store.execute(command).unwrap(), Kept::Command);
        }
        assert_eq!(again(&disk, &mut store, &commands), 0);
        store.execute(&StorageCommand::Stable(Position(45))).unwrap();
        rewrite_all(&mut store);
        assert_eq!(again(&disk, &mut store, &commands), 0);
        store.execute(&StorageCommand::Trim(Position(20))).unwrap();
        assert_eq!(again(&disk, &mut store, &commands), 0);
        assert_eq!(again(&disk, &mut store, &[StorageCommand::Stable(Position(45))]), 0);
    }
}

#[test]
fn an_order_that_is_executed_again_writes_nothing() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::Journaled { checkpoint: None });
    let puts: Vec<_> = (0..10).flat_map(|number| [put(0, number), put(1, number)]).collect();
    let void = IdRun { session: SessionId(2), first: 0, count: 3 };
    let elsewhere = IdRun { session: SessionId(3), first: 0, count: 4 };
    let mut ordered = order(1, 0, &[(0, 0), (1, 0), (1, 1)]);
    if let StorageCommand::Order { runs, .. } = &mut ordered {
        runs.push(Ordered { ids: void, shard: SHARD, is_void: true });
        runs.push(Ordered { ids: elsewhere, shard: ShardId(1), is_void: false });
    }
    store.execute(&remember(Order::ErwinSt, &[(1, 0)])).unwrap();
    let owned = vec![Owned { shard: ShardId(1), count: 7 }];
    let map = StorageCommand::Map { view: ViewNumber(1), first: Position(10), owned };
    let commands = [&puts[..], &[ordered.clone(), order(1, 17, &[(0, 1), (0, 2)]), map.clone()]].concat();
    for command in &commands {
        assert_eq!(store.execute(command).unwrap(), Kept::Command);
    }
    assert_eq!(again(&disk, &mut store, &commands), 0);
    store.execute(&StorageCommand::Stable(Position(12))).unwrap();
    let orders = &commands[puts.len()..];
    assert_eq!(again(&disk, &mut store, orders), 0);
    store.execute(&StorageCommand::Trim(Position(6))).unwrap();
    assert_eq!(again(&disk, &mut store, orders), 0);
    let nobody = StorageCommand::Discard(IdRun { session: SessionId(7), first: 0, count: 9 });
    assert_eq!(again(&disk, &mut store, &[nobody]), 0);
    // The journal keeps the new part of a batch.
    let record = |number: u64| (id(0, number), Record::new(&number.to_le_bytes(), 0));
    let kept = store.execute(&StorageCommand::Put((8..12).map(record).collect())).unwrap();
    assert_eq!(kept, Kept::Instead(StorageCommand::Put((10..12).map(record).collect())));
    // A repeated order forgets an id that was put again.
    assert_eq!(store.execute(&put(0, 0)).unwrap(), Kept::Command);
    assert_eq!(store.execute(&ordered).unwrap(), Kept::Command);
    assert_eq!(again(&disk, &mut store, &[ordered]), 0);
}

fn content(store: &ShardStore) -> Vec<(u64, RecordId, Record)> {
    let (from, end) = (Position(0), Position(1000));
    let found =
        store.read(ReadRange { from, end, max_records: u32::MAX, max_bytes: u32::MAX }).unwrap().records;
    found.into_iter().map(|stored| (stored.position.0, stored.id, stored.record)).collect()
}

fn damage(disk: &MemoryDisk, store: &ShardStore, position: u64) {
    let frame = 32 + Record::new(&[0; 500], 0).size() as u64;
    disk.flip_bit(store.active.records.name(), HEADER_BYTES + position * frame + 100, 1);
}

#[test]
fn attempts_at_a_view_cost_a_few_bytes_for_each_run() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::Journaled { checkpoint: None });
    let first = remember(Order::ErwinBb, &[(1, 0)]);
    let mut journal = vec![];
    let mut execute = |store: &mut ShardStore, command: StorageCommand| {
        let kept = store.execute(&command).unwrap().of(&command);
        let bytes = kept.as_ref().map_or(0, |kept| encode_one(kept).len());
        journal.extend(kept);
        bytes
    };
    execute(&mut store, first);
    assert!(execute(&mut store, bind(1, 0, 10)) > 5000);
    let before = disk.counters().bytes_written;
    for attempt in 2..20 {
        assert!(execute(&mut store, bind(attempt, 0, 10)) < 100, "attempt {attempt}");
    }
    let written = disk.counters().bytes_written - before;
    assert!(written < 18 * 100, "{written} bytes for 18 attempts at 10 records of 500 bytes");
    // Nor does an attempt write the previous attempt's additional records.
    assert!(execute(&mut store, bind(20, 5, 10)) < 3000);
    assert!(execute(&mut store, bind(21, 0, 15)) < 150);
    execute(&mut store, remember(Order::ErwinBb, &[(1, 0), (21, 0)]));
    let expected = content(&store);
    assert_eq!(expected.len(), 15);
    let mut again = open(&MemoryDisk::new(), OpenMode::Journaled { checkpoint: None });
    journal.iter().for_each(|command| _ = again.execute(command).unwrap());
    assert_eq!(content(&again), expected);
    assert_eq!(content(&open(&disk, OpenMode::WriteBehind)), expected);
}

#[test]
fn only_the_very_same_record_is_a_source() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::WriteBehind);
    store.execute(&remember(Order::ErwinBb, &[(1, 0)])).unwrap();
    store.execute(&bind(1, 0, 10)).unwrap();
    damage(&disk, &store, 4);
    let mut other = bind(2, 0, 10);
    if let StorageCommand::Bind { runs, .. } = &mut other {
        // One record keeps its id and length, another its content.
        runs[0].records[7].1 = Record::new(&[99; 500], 0);
        runs[0].records[8].0 = id(1, 88);
    }
    let Kept::Instead(StorageCommand::Rebind { view, same, runs }) = store.execute(&other).unwrap() else {
        panic!("most of it is the same")
    };
    let of = ViewNumber(1);
    let stretches = [(0, 4), (5, 2), (9, 1)];
    let stretches = stretches.map(|(first, count)| Rebound { of, first: Position(first), count });
    assert_eq!((view, same), (ViewNumber(2), stretches.to_vec()));
    assert_eq!(runs.iter().map(|run| (run.first.0, run.records.len())).collect::<Vec<_>>(), [(4, 1), (7, 2)]);
    store.execute(&remember(Order::ErwinBb, &[(1, 0), (2, 0)])).unwrap();
    let StorageCommand::Bind { runs, .. } = other else { unreachable!() };
    let expected = (0..).zip(runs[0].records.clone()).map(|(position, (id, record))| (position, id, record));
    assert_eq!(content(&store), expected.collect::<Vec<_>>());
}

#[test]
fn a_segment_stays_while_another_view_is_bound_to_it() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::WriteBehind);
    store.execute(&remember(Order::ErwinBb, &[(1, 0)])).unwrap();
    for first in (0..100).step_by(10) {
        store.execute(&bind(1, first, 10)).unwrap();
    }
    store.execute(&bind(2, 0, 100)).unwrap();
    store.execute(&remember(Order::ErwinBb, &[(1, 0), (2, 0)])).unwrap();
    store.execute(&StorageCommand::Stable(Position(100))).unwrap();
    store.execute(&StorageCommand::Trim(Position(55))).unwrap();
    remove_all(&disk, &mut store);
    assert!(!disk.files().contains(&store.place.records_file(1)));
    let expected: Vec<u64> = (55..100).collect();
    for store in [store, open(&disk, OpenMode::WriteBehind)] {
        assert_eq!(content(&store).iter().map(|(position, ..)| *position).collect::<Vec<_>>(), expected);
    }
}

fn bytes_of_bindings(disk: &MemoryDisk) -> u64 {
    let files = disk.files();
    let logs = files.iter().filter(|name| name.ends_with(".bindings") || name.ends_with(".packed"));
    logs.map(|name| disk.len(name).unwrap()).sum()
}

#[test]
fn what_newer_views_hide_goes_without_a_trim_and_no_step_grows() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::Journaled { checkpoint: None });
    store.execute(&remember(Order::ErwinBb, &[(1, 0)])).unwrap();
    let single = |view, first| match bind(view, first, 1) {
        StorageCommand::Bind { mut runs, .. } => runs.remove(0),
        _ => unreachable!(),
    };
    let attempt = |view| {
        let runs = (0..100).map(|n| single(view, n * 2)).collect();
        StorageCommand::Bind { view: ViewNumber(view), runs }
    };
    for view in 1..200 {
        store.execute(&attempt(view)).unwrap();
    }
    let history = [(1, 0), (199, 0)];
    store.execute(&remember(Order::ErwinBb, &history)).unwrap();
    store.execute(&StorageCommand::Stable(Position(200))).unwrap();
    let before = bytes_of_bindings(&disk);
    let (mut worst, mut checkpoint) = ((0, 0), None);
    for _ in 0..4 {
        for _ in 0..500 {
            worst = most(worst, cost(&disk, &mut store, &StorageCommand::Trim(Position(0))));
        }
        let (bytes, files) = store.checkpoint();
        sync_files(&disk, &files).unwrap();
        checkpoint = Some(bytes);
    }
    remove_all(&disk, &mut store);
    let after = bytes_of_bindings(&disk);
    assert!(before > 40_000 && after < before / 5, "{before} and {after} bytes");
    assert!(worst.0 < 100 && worst.1 < 2000, "a step cost {worst:?}");
    let expected = content(&store);
    assert_eq!(expected.len(), 100);
    assert_eq!(content(&open(&disk.fork(), OpenMode::Journaled { checkpoint })), expected);
    assert_eq!(content(&open(&disk, OpenMode::WriteBehind)), expected);
}

/// The highest cost of a command while some ids have positions and others wait; `together` records
/// per command.
fn worst_beside_waiting_names(together: u64) -> (u64, u64) {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::Journaled { checkpoint: None });
    store.execute(&remember(Order::ErwinSt, &[(1, 0)])).unwrap();
    let record = |session, number| (id(session, number), Record::new(&[number as u8; 20], 0));
    let mut worst = (0, 0);
    for first in (0..6000).step_by(together as usize) {
        let numbers = first..first + together;
        // Sessions alternate, so that each record is a run of its own.
        let put = numbers.clone().flat_map(|number| [record(0, number), record(1, number)]).collect();
        let ids: Vec<_> = numbers.clone().map(|number| (0, number)).collect();
        for command in
            [StorageCommand::Put(put), order(1, first, &ids), StorageCommand::Stable(Position(numbers.end))]
        {
            worst = most(worst, cost(&disk, &mut store, &command));
        }
    }
    assert!(disk.files().iter().any(|name| name.ends_with(".packed")), "logs were rewritten");
    worst
}

#[test]
fn names_that_wait_are_told_again_a_few_at_a_time() {
    let few = worst_beside_waiting_names(4);
    assert!(few.0 < 400 && few.1 < 3000, "a step cost {few:?}");
}

#[test]
fn a_store_without_a_journal_is_packed_after_an_orderly_end_too() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::WriteBehind);
    let StorageCommand::Remember(mut memory) = remember(Order::ErwinBb, &[(1, 0)]) else { unreachable!() };
    memory.config.durability = Durability::Memory;
    store.execute(&StorageCommand::Remember(memory)).unwrap();
    for first in (0..100).step_by(10) {
        store.execute(&bind(1, first, 10)).unwrap();
    }
    store.execute(&StorageCommand::Stable(Position(100))).unwrap();
    sync_files(&disk, &store.take_unsynced()).unwrap();
    let (checkpoint, expected) = (store.checkpoint().0, content(&store));
    let mut store = open(&disk, OpenMode::Journaled { checkpoint: Some(checkpoint) });
    for _ in 0..2 {
        rewrite_all(&mut store);
        remove_all(&disk, &mut store);
    }
    let old = disk.files().iter().filter(|name| name.ends_with(".bindings")).count();
    assert_eq!((old, content(&store)), (1, expected.clone()), "the active segment's");
    disk.crash(7);
    assert_eq!(content(&open(&disk, OpenMode::WriteBehind)), expected);
}

#[test]
fn a_long_trim_costs_no_more_than_a_short_one() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::Journaled { checkpoint: None });
    store.execute(&remember(Order::ErwinBb, &[(1, 0)])).unwrap();
    for first in (0..8000).step_by(8) {
        store.execute(&bind(1, first, 8)).unwrap();
    }
    let end = Position(8000);
    store.execute(&StorageCommand::Stable(end)).unwrap();
    let (before, files) = (disk.counters(), disk.files().len());
    store.execute(&StorageCommand::Trim(end)).unwrap();
    let after = disk.counters();
    assert_eq!(after.syncs, before.syncs, "no sync");
    assert!(after.writes <= before.writes + 2, "one write, and one of what is rewritten all the time");
    let (mut removals, mut left) = (0, files);
    while let Some(removal) = store.next_removal() {
        removal.perform(&disk).unwrap();
        store.removed();
        assert!(left - disk.files().len() <= 2 * REMOVED_AT_ONCE as usize);
        (removals, left) = (removals + 1, disk.files().len());
    }
    assert!(files > 1000 && left == 3 && removals > 50, "{files} {left} {removals}");
}

#[test]
fn what_a_trim_leaves_in_memory_is_forgotten_in_pieces() {
    let mut index = Index::default();
    for position in 0..10_000u64 {
        let written = Written { count: 1, offset: position as u32 * 200, bytes: 100 };
        index.insert(ViewNumber(1 + position % 2), Position(position), IndexRun::new(1, written));
    }
    let (mut pieces, mut left) = (0, index.len());
    while !index.trim_some(Position(9_000), &mut { FORGOTTEN_AT_ONCE }) {
        assert!(left - index.len() <= FORGOTTEN_AT_ONCE);
        (pieces, left) = (pieces + 1, index.len());
    }
    assert_eq!((pieces, index.len()), (8, 1000));
}
