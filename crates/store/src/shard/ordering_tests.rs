//! Records put by id and ordered later.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use seriatim_model::storage::{
    HardState, Ordered, Owned, ReadFailure, ReadRange, Run, StorageCommand, StorageFailure, Stored,
};
use seriatim_model::{
    Gap, IdRun, Incarnation, LogConfig, LogId, Member, NodeId, Order, Placement, Position, Record, RecordId,
    RetiredShard, SessionId, ShardId, ShardMembers, View, ViewHistory, ViewNumber, limits,
};

use super::tests::{harm, remove_all};
use super::{Kept, OpenMode, ShardOptions, ShardStore, StoreError};
use crate::disk::{Disk, MemoryDisk, sync_files};

pub(super) const SHARD: ShardId = ShardId(0);
pub(super) const OTHER: ShardId = ShardId(1);
const OPTIONS: ShardOptions = ShardOptions::new(2000);

fn open(disk: &MemoryDisk, mode: OpenMode) -> ShardStore {
    ShardStore::open(Arc::new(disk.clone()), LogId(1), SHARD, mode, OPTIONS).unwrap()
}

pub(super) fn write_behind(disk: &MemoryDisk) -> ShardStore {
    open(disk, OpenMode::WriteBehind)
}

pub(super) fn journaled(disk: &MemoryDisk, checkpoint: Option<&Bytes>) -> ShardStore {
    open(disk, OpenMode::Journaled { checkpoint: checkpoint.cloned() })
}

fn record(session: u128, number: u64) -> (RecordId, Record) {
    let payload = [session.to_le_bytes().as_slice(), &number.to_le_bytes(), &[7; 60]].concat();
    (RecordId { session: SessionId(session), number }, Record::new(&payload, number))
}

pub(super) fn put(session: u128, numbers: std::ops::Range<u64>) -> StorageCommand {
    StorageCommand::Put(numbers.map(|number| record(session, number)).collect())
}

pub(super) fn ids(session: u128, first: u64, count: u64) -> IdRun {
    IdRun { session: SessionId(session), first, count }
}

pub(super) fn data(session: u128, first: u64, count: u64) -> Ordered {
    Ordered { ids: ids(session, first, count), shard: SHARD, is_void: false }
}

pub(super) fn void(session: u128, first: u64, count: u64) -> Ordered {
    Ordered { is_void: true, ..data(session, first, count) }
}

pub(super) fn other(count: u64) -> Ordered {
    Ordered { shard: OTHER, ..data(99, 0, count) }
}

pub(super) fn order(view: u64, first: u64, runs: &[Ordered]) -> StorageCommand {
    StorageCommand::Order { view: ViewNumber(view), first: Position(first), runs: runs.to_vec() }
}

pub(super) fn stable(position: u64) -> StorageCommand {
    StorageCommand::Stable(Position(position))
}

pub(super) fn trim(position: u64) -> StorageCommand {
    StorageCommand::Trim(Position(position))
}

fn discard(session: u128, from: u64) -> StorageCommand {
    StorageCommand::Discard(IdRun { session: SessionId(session), first: from, count: 1 << 20 })
}

/// The hard state of a member of the latest view, which began at `start`.
pub(super) fn remember(steps: &[(u64, u64)], start: u64) -> StorageCommand {
    remember_joined(steps, start, None)
}

/// Like [`remember`]. The shard joined at `begins`; with `None` it is not in the view.
fn remember_joined(steps: &[(u64, u64)], start: u64, begins: Option<u64>) -> StorageCommand {
    let mut history = ViewHistory::default();
    for (view, first) in steps {
        history.push(ViewNumber(*view), Position(*first));
    }
    let number = history.latest();
    let replicas = vec![Member { node: NodeId(1), incarnation: Incarnation(1) }];
    let members = |begins| ShardMembers { shard: SHARD, begins: Position(begins), replicas };
    let view = View {
        number,
        sequencers: vec![],
        leader: NodeId(1),
        shards: begins.map(members).into_iter().collect(),
        retired: vec![],
        placement: Placement::new(vec![SHARD, OTHER], 1),
        first: Position(steps.last().map_or(0, |(_, first)| *first)),
        start: Position(start),
    };
    let config = LogConfig { order: Order::ErwinSt, ..LogConfig::default() };
    let incarnation = Incarnation(1);
    StorageCommand::Remember(HardState { incarnation, config, claim: number, view: Some(view), history })
}

fn filled(disk: &MemoryDisk, commands: &[StorageCommand]) -> ShardStore {
    let mut store = write_behind(disk);
    execute(&mut store, &[remember(&[(1, 0)], 0)]);
    execute(&mut store, commands);
    store
}

pub(super) fn execute(store: &mut ShardStore, commands: &[StorageCommand]) {
    for command in commands {
        store.execute(command).unwrap();
    }
}

fn read_all(store: &ShardStore) -> Vec<Stored> {
    let (from, end) = (Position(0), Position(u64::MAX));
    store.read(ReadRange { from, end, max_records: u32::MAX, max_bytes: u32::MAX }).unwrap().records
}

/// Position, session (`None` for no-ops) and number of each record.
fn content(store: &ShardStore) -> Vec<(u64, Option<u128>, u64)> {
    let mut content = vec![];
    for Stored { position, id, record: found } in read_all(store) {
        if !found.is_no_op() {
            assert_eq!((id, found.clone()), record(id.session.0, id.number));
        }
        content.push((position.0, (!found.is_no_op()).then_some(id.session.0), id.number));
    }
    content
}

fn found(store: &ShardStore, ids: IdRun) -> Vec<u64> {
    let found = store.find(&[ids]);
    for (id, content) in &found {
        assert_eq!((*id, content.clone()), record(id.session.0, id.number));
    }
    found.iter().map(|(id, _)| id.number).collect()
}

fn owners(store: &ShardStore, from: u64, end: u64) -> Vec<(u32, u64)> {
    store.map(Position(from), Position(end)).iter().map(|owned| (owned.shard.0, owned.count)).collect()
}

fn view_of(store: &ShardStore) -> impl PartialEq + std::fmt::Debug + use<> {
    let recovery = store.recovery();
    let held = store.find(&recovery.put);
    let trim = recovery.trim;
    (recovery, content(store), held, store.map(trim, Position(1000)))
}

/// A replica derives the positions that it lacks from the end of each view's versions, other
/// shards' included.
#[test]
fn versions_end_where_others_positions_end() {
    let disk = MemoryDisk::default();
    let ends = [(ViewNumber(3), Position(7)), (ViewNumber(4), Position(10))];
    let store = filled(&disk, &[put(1, 0..2), order(3, 5, &[data(1, 0, 2)]), order(4, 7, &[other(3)])]);
    assert_eq!(store.recovery().ends, ends);
    drop(store);
    assert_eq!(write_behind(&disk).recovery().ends, ends, "when it is opened again");
}

#[test]
fn a_record_is_found_by_name_until_its_position_is_final() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[put(5, 0..10), put(6, 3..5)]);
    assert_eq!(store.recovery().put, [ids(5, 0, 10), ids(6, 3, 2)]);
    assert_eq!(found(&store, ids(5, 8, 10)), [8, 9]);
    assert!(read_all(&store).is_empty());
    execute(&mut store, &[order(1, 0, &[data(5, 0, 4), other(3), data(6, 3, 2), data(5, 4, 2)])]);
    let expected = [(0, 5, 0), (1, 5, 1), (2, 5, 2), (3, 5, 3), (7, 6, 3), (8, 6, 4), (9, 5, 4), (10, 5, 5)];
    let expected = expected.map(|(position, session, number)| (position, Some(session), number));
    assert_eq!(content(&store), expected);
    assert_eq!(found(&store, ids(5, 0, 10)).len(), 10);
    execute(&mut store, &[stable(9)]);
    assert_eq!(store.recovery().put, [ids(5, 4, 6)]);
    assert_eq!(found(&store, ids(5, 0, 10)), [4, 5, 6, 7, 8, 9]);
    assert_eq!(owners(&store, 0, 100), [(0, 4), (1, 3), (0, 4)]);
    assert_eq!(owners(&store, 2, 6), [(0, 2), (1, 2)]);
    let before = view_of(&store);
    drop(store);
    assert_eq!(view_of(&write_behind(&disk)), before);
}

#[test]
fn what_is_done_again_is_harmless() {
    let disk = MemoryDisk::new();
    let commands = [put(5, 0..6), order(1, 0, &[data(5, 0, 3), void(6, 0, 2), other(2)]), stable(1)];
    let mut store = filled(&disk, &commands);
    let (before, used) = (view_of(&store), disk.used());
    store.execute(&put(5, 1..6)).unwrap();
    assert_eq!(disk.used(), used, "what is held is not written again");
    execute(&mut store, &commands[1..]);
    assert_eq!(view_of(&store), before);
    execute(&mut store, &[stable(7), commands[1].clone()]);
    assert_eq!(store.recovery().put, [ids(5, 3, 3)]);
    let before = view_of(&store);
    assert_eq!(view_of(&write_behind(&disk)), before);
}

#[test]
fn a_later_view_gives_a_name_another_fate() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[put(5, 0..4), order(1, 0, &[data(5, 0, 4), void(6, 0, 2)])]);
    assert_eq!(store.recovery().void, [ids(6, 0, 2)]);
    execute(&mut store, &[put(6, 0..2), order(2, 1, &[data(6, 0, 2), void(5, 2, 1), data(5, 1, 1)])]);
    execute(&mut store, &[order(3, 1, &[other(5)])]);
    assert_eq!(content(&store).len(), 6, "view 2 is not registered");
    execute(&mut store, &[remember(&[(1, 0), (2, 1)], 3)]);
    let expected = [(0, Some(5), 0), (1, Some(6), 0), (2, Some(6), 1), (3, None, 2), (4, Some(5), 1)];
    assert_eq!(content(&store), expected);
    let recovery = store.recovery();
    assert_eq!((recovery.stable, recovery.put), (Position(3), vec![ids(5, 1, 3)]));
    assert_eq!(recovery.void, [ids(5, 2, 1)]);
    execute(&mut store, &[stable(5)]);
    let recovery = store.recovery();
    assert_eq!((recovery.put, recovery.void), (vec![ids(5, 3, 1)], vec![]));
    assert_eq!(owners(&store, 0, 10), [(0, 5)]);
    let before = view_of(&store);
    assert_eq!(view_of(&write_behind(&disk)), before);
}

#[test]
fn an_order_of_what_is_not_held_changes_nothing() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[put(5, 0..4)]);
    let before = view_of(&store);
    let error = store.execute(&order(1, 0, &[void(6, 0, 1), data(5, 2, 3)])).unwrap_err();
    assert!(matches!(error, StoreError::Unheld(id) if id == record(5, 4).0), "{error}");
    assert_eq!(error.failure(), StorageFailure::Unheld);
    for nonsense in
        [order(1, 0, &[other(0)]), order(1, 5, &[other(u64::MAX)]), order(1, 0, &[void(6, 0, 1 << 40)])]
    {
        assert!(matches!(store.execute(&nonsense), Err(StoreError::Nonsense(_))));
    }
    assert_eq!(view_of(&store), before);
    execute(&mut store, &[order(1, 0, &[data(5, 0, 4)])]);
    assert_eq!(content(&store).len(), 4);
    assert_eq!(content(&write_behind(&disk)).len(), 4);
}

#[test]
fn what_is_discarded_goes_and_what_is_ordered_stays() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[put(5, 0..10), put(6, 0..2), order(1, 0, &[data(5, 4, 2)])]);
    execute(&mut store, &[discard(5, 2)]);
    assert_eq!(store.recovery().put, [ids(5, 0, 2), ids(5, 4, 2), ids(6, 0, 2)]);
    assert_eq!(store.recovery().put, write_behind(&disk).recovery().put);
    execute(&mut store, &[stable(2), discard(5, 0)]);
    assert_eq!(store.recovery().put, [ids(6, 0, 2)]);
}

#[test]
fn what_a_discard_spared_stays_when_the_log_is_gone_that_told_its_position() {
    let disk = MemoryDisk::new();
    // An id has its position as a no-op; its record arrives late, in a later segment.
    let mut store = journaled(&disk, None);
    execute(
        &mut store,
        &[remember(&[(1, 0)], 0), order(1, 0, &[void(5, 0, 1)]), put(6, 0..9), put(6, 9..18)],
    );
    execute(&mut store, &[put(5, 0..3), discard(5, 0)]);
    assert_eq!(store.recovery().put, [ids(5, 0, 1), ids(6, 0, 18)]);
    // The next view has another record there, so the id waits for a position again.
    execute(&mut store, &[remember(&[(2, 0)], 0), order(2, 0, &[data(6, 0, 18)]), stable(18), trim(18)]);
    remove_all(&disk, &mut store);
    assert!(store.trim.first_segment() > 1, "the log with the order is deleted");
    let checkpoint = store.checkpoint().0;
    for store in [store, write_behind(&disk.fork()), journaled(&disk.fork(), Some(&checkpoint))] {
        assert_eq!((store.recovery().put, found(&store, ids(5, 0, 3))), (vec![ids(5, 0, 1)], vec![0]));
    }
}

#[test]
fn a_discard_that_finds_nothing_without_a_position_is_not_kept() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[put(5, 0..4), order(1, 0, &[data(5, 0, 4)])]);
    let used = disk.used();
    assert_eq!(store.execute(&discard(5, 0)).unwrap(), Kept::Nothing);
    assert_eq!((disk.used(), store.recovery().put), (used, vec![ids(5, 0, 4)]));
}

#[test]
fn a_trim_may_take_a_record_whose_name_was_put_again_when_the_journal_lost_both() {
    let disk = MemoryDisk::new();
    let mut store = journaled(&disk, None);
    execute(&mut store, &[remember(&[(1, 0)], 0), put(5, 0..1), put(6, 0..9), put(6, 9..18)]);
    execute(&mut store, &[order(1, 0, &[data(5, 0, 1), data(6, 0, 9)])]);
    let (checkpoint, files) = store.checkpoint();
    sync_files(&disk, &files).unwrap();
    // The record is final, so a late put is a new record; then its first segment is deleted.
    execute(&mut store, &[stable(10), put(5, 0..1), trim(10)]);
    assert_eq!(store.recovery().put, [ids(5, 0, 1), ids(6, 9, 9)]);
    sync_files(&disk, &[store.trim.name().to_owned()]).unwrap();
    remove_all(&disk, &mut store);
    // The journal lost these commands, and the second put was never acknowledged.
    let mut store = journaled(&disk, Some(&checkpoint));
    let recovery = store.recovery();
    assert_eq!((recovery.trim, recovery.stable), (Position(10), Position(0)));
    assert_eq!(recovery.put, [ids(6, 9, 9)]);
    assert_eq!(store.execute(&put(5, 0..1)).unwrap(), Kept::Command);
    assert_eq!(found(&store, ids(5, 0, 1)), [0]);
}

#[test]
fn a_damaged_record_can_be_put_again() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[put(5, 0..10)]);
    let frame = 32 + record(5, 0).1.size() as u64;
    disk.flip_bit(store.active.records.name(), 64 + 4 * frame + 40, 3);
    assert_eq!(found(&store, ids(5, 0, 10)), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    execute(&mut store, &[order(1, 0, &[data(5, 0, 10)])]);
    let all = ReadRange { from: Position(0), end: Position(9), max_records: 99, max_bytes: 9999 };
    assert_eq!(store.read(ReadRange { from: Position(4), ..all }), Err(ReadFailure::Damaged(Position(4))));
    let used = disk.used();
    execute(&mut store, &[put(5, 0..10)]);
    assert!(disk.used() < used + 2 * frame);
    assert_eq!(found(&store, ids(5, 0, 10)).len(), 10);
    // The next ordering view has the damaged record intact; a repair gives it to the previous view.
    execute(&mut store, &[order(2, 0, &[data(5, 0, 10)])]);
    let run = Run { first: Position(4), records: vec![record(5, 4)] };
    execute(&mut store, &[StorageCommand::Bind { view: ViewNumber(1), runs: vec![run] }]);
    assert_eq!(content(&store).len(), 10);
    execute(&mut store, &[remember(&[(2, 0)], 0)]);
    assert_eq!(content(&store).len(), 10);
}

#[test]
fn an_order_of_what_was_damaged_since_is_executed_again() {
    let disk = MemoryDisk::new();
    let orders = order(1, 0, &[data(5, 0, 10)]);
    let mut store = filled(&disk, &[put(5, 0..12), orders.clone(), stable(10)]);
    let frame = 32 + record(5, 0).1.size() as u64;
    disk.flip_bit(store.active.records.name(), 64 + 4 * frame + 40, 3);
    let all = ReadRange { from: Position(0), end: Position(9), max_records: 99, max_bytes: 9999 };
    execute(&mut store, &[orders]);
    assert_eq!(store.read(ReadRange { from: Position(4), ..all }), Err(ReadFailure::Damaged(Position(4))));
    let wrong = order(1, 3, &[data(5, 5, 1)]);
    assert!(matches!(store.execute(&wrong), Err(StoreError::Unheld(_))));
    execute(&mut store, &[order(1, 10, &[data(5, 10, 2)])]);
}

fn segments(disk: &MemoryDisk) -> usize {
    disk.files().iter().filter(|name| name.ends_with(".records")).count()
}

#[test]
fn a_segment_stays_while_a_name_or_the_map_needs_it() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[put(5, 0..1)]);
    let (mut next, mut number) = (0, 0);
    for _ in 0..20 {
        let count = 5;
        let orders = order(1, next, &[data(6, number, count), other(7)]);
        execute(&mut store, &[put(6, number..number + count), orders]);
        (next, number) = (next + 12, number + count);
    }
    execute(&mut store, &[stable(next)]);
    let files = segments(&disk);
    execute(&mut store, &[trim(next - 1)]);
    remove_all(&disk, &mut store);
    assert_eq!(segments(&disk), files, "the first record has no position yet");
    execute(&mut store, &[order(1, next, &[data(5, 0, 1)]), stable(next + 1), trim(next)]);
    remove_all(&disk, &mut store);
    assert_eq!(segments(&disk), files, "its position is not trimmed");
    execute(&mut store, &[trim(next + 1)]);
    remove_all(&disk, &mut store);
    assert_eq!(segments(&disk), 1);
    // Orders other shards' positions only, more than one log holds.
    let before = segments(&disk);
    for first in (next + 1..next + 3001).step_by(3) {
        execute(&mut store, &[order(1, first, &[other(3)])]);
    }
    assert!(segments(&disk) > before);
    assert_eq!(owners(&store, next + 1, next + 10_000), [(1, 3000)]);
    execute(&mut store, &[stable(next + 3001), trim(next + 2000)]);
    assert_eq!(owners(&write_behind(&disk), next + 2000, next + 10_000), [(1, 1001)]);
    let full = segments(&disk);
    execute(&mut store, &[trim(next + 3000)]);
    remove_all(&disk, &mut store);
    assert!(segments(&disk) < full);
}

#[test]
fn commands_that_a_checkpoint_contains_or_a_trim_overtook_are_executed_again() {
    let disk = MemoryDisk::new();
    let mut store = journaled(&disk, None);
    let mut commands = vec![remember(&[(1, 0)], 0), put(5, 0..3)];
    let mut next = 0;
    for number in 0..12 {
        commands.push(put(6, number * 4..number * 4 + 4));
        commands.push(order(1, next, &[data(6, number * 4, 4), void(7, number, 1), other(1)]));
        next += 6;
    }
    commands.extend([order(1, next, &[data(5, 0, 2)]), stable(next + 1), trim(next - 3)]);
    let mut checkpoints = vec![];
    for command in &commands {
        let (checkpoint, files) = store.checkpoint();
        sync_files(&disk, &files).unwrap();
        checkpoints.push((checkpoint, disk.fork()));
        store.execute(command).unwrap();
    }
    let expected = view_of(&store);
    sync_files(&disk, &store.take_unsynced()).unwrap();
    for (covered, (checkpoint, _)) in checkpoints.iter().enumerate() {
        for from in [covered, 0] {
            let mut store = journaled(&disk.fork(), Some(checkpoint));
            execute(&mut store, &commands[from..]);
            assert_eq!(view_of(&store), expected, "from {from} after {covered}");
        }
    }
}

#[test]
fn records_and_their_map_are_taken_over_from_another_replica() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[put(5, 0..4)]);
    let records = vec![record(5, 0), record(5, 1), (record(6, 0).0, Record::no_op())];
    let bind = StorageCommand::Bind { view: ViewNumber(1), runs: vec![Run { first: Position(2), records }] };
    let owned = [(OTHER, 2), (SHARD, 3), (OTHER, 5)].map(|(shard, count)| Owned { shard, count });
    let map = StorageCommand::Map { view: ViewNumber(1), first: Position(0), owned: owned.to_vec() };
    execute(&mut store, &[bind, map, put(5, 0..4)]);
    assert_eq!((store.recovery().put, store.recovery().void), (vec![ids(5, 0, 4)], vec![ids(6, 0, 1)]));
    execute(&mut store, &[stable(10)]);
    assert_eq!((store.recovery().put, store.recovery().void), (vec![ids(5, 2, 2)], vec![]));
    assert_eq!(owners(&store, 0, 100), [(1, 2), (0, 3), (1, 5)]);
    let before = view_of(&store);
    assert_eq!(view_of(&write_behind(&disk)), before);
}

#[test]
fn an_order_is_there_whole_or_not_at_all() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[put(5, 0..4)]);
    let before = view_of(&store);
    let lengths = [store.active.records.len(), store.active.bindings.len()];
    execute(&mut store, &[order(1, 0, &[data(5, 0, 2), void(6, 0, 2), other(1), data(5, 2, 1)])]);
    let after = view_of(&store);
    for (name, from) in [store.active.records.name(), store.active.bindings.name()].into_iter().zip(lengths) {
        for len in from..disk.len(name).unwrap() {
            let torn = disk.fork();
            torn.truncate(name, len).unwrap();
            assert_eq!(view_of(&write_behind(&torn)), before, "{name} cut at {len}");
        }
    }
    assert_eq!(view_of(&write_behind(&disk)), after);
}

#[test]
fn without_the_map_nothing_is_believed_stable() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[put(5, 0..4), order(1, 0, &[data(5, 0, 2)])]);
    execute(&mut store, &[order(1, 4, &[data(5, 2, 2)]), stable(6)]);
    assert_eq!(store.recovery().put, []);
    // The ids of the unstable positions are held again after each opening.
    let mut cut_back = write_behind(&disk.fork());
    for _ in 0..2 {
        let recovery = cut_back.recovery();
        assert_eq!((recovery.stable, recovery.put), (Position(2), vec![ids(5, 2, 2)]));
        assert_eq!(found(&cut_back, ids(5, 0, 4)), [2, 3]);
        let checkpoint = cut_back.checkpoint().0;
        cut_back = journaled(&disk.fork(), Some(&checkpoint));
    }
    execute(&mut store, &[order(1, 2, &[other(2)])]);
    assert_eq!(write_behind(&disk).recovery().stable, Position(6));
    let owned = vec![Owned { shard: SHARD, count: 2 }];
    execute(&mut store, &[StorageCommand::Map { view: ViewNumber(1), first: Position(2), owned }]);
    assert_eq!(write_behind(&disk).recovery().stable, Position(2), "it is ours, and not there");
}

#[test]
fn a_full_disk_leaves_no_order_half_done() {
    let disk = MemoryDisk::new();
    let store = filled(&disk, &[put(5, 0..9)]);
    let (used, before) = (disk.used(), view_of(&store));
    drop(store);
    for command in [order(1, 0, &[void(6, 0, 20), data(5, 0, 9), other(1)]), put(6, 0..9)] {
        let mut failures = 0;
        for room in 0..5000 {
            let disk = disk.fork();
            disk.set_capacity(Some(used + room));
            let mut store = write_behind(&disk);
            let Err(error) = store.execute(&command) else { break };
            failures += 1;
            assert_eq!(error.failure(), StorageFailure::Full);
            assert_eq!(view_of(&store), before);
            assert_eq!(view_of(&write_behind(&disk.fork())), before, "{room} bytes of room");
            disk.set_capacity(None);
            store.execute(&command).unwrap();
            assert_eq!(view_of(&write_behind(&disk)), view_of(&store));
        }
        assert!((500..5000).contains(&failures), "{failures}");
    }
}

#[test]
fn records_that_were_ordered_among_others_are_read_at_once() {
    let disk = MemoryDisk::new();
    let options = ShardOptions::default();
    let mut store =
        ShardStore::open(Arc::new(disk.clone()), LogId(1), SHARD, OpenMode::WriteBehind, options).unwrap();
    execute(&mut store, &[remember(&[(1, 0)], 0)]);
    let mut next = 0;
    for batch in 0..10 {
        let numbers = batch * 50..batch * 50 + 50;
        execute(&mut store, &[put(5, numbers.clone()), put(6, numbers.clone())]);
        let runs: Vec<_> =
            numbers.flat_map(|number| [data(5, number, 1), other(1), data(6, number, 1)]).collect();
        execute(&mut store, &[order(1, next, &runs)]);
        next += 150;
    }
    execute(&mut store, &[stable(next)]);
    let before = disk.counters();
    assert_eq!(content(&store).len(), 1000);
    let after = disk.counters();
    assert!(after.reads <= before.reads + 2, "{} reads", after.reads - before.reads);
    assert!(after.bytes_read - before.bytes_read < 200_000, "what is read is read once");
}

#[test]
fn names_that_lie_are_refused() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[put(5, 0..4)]);
    assert!(store.find(&[ids(5, 3, u64::MAX), ids(7, 0, 1)]).len() == 1);
    assert!(store.execute(&put(5, limits::MAX_NUMBER..limits::MAX_NUMBER + 1)).is_ok());
    let last = record(5, limits::MAX_NUMBER + 1);
    assert!(matches!(store.execute(&StorageCommand::Put(vec![last])), Err(StoreError::Nonsense(_))));
    let beyond = order(1, 0, &[data(5, u64::MAX - 1, 3)]);
    assert!(matches!(store.execute(&beyond), Err(StoreError::Nonsense(_))));
    assert!(matches!(store.execute(&order(1, 0, &[data(5, 2, 1 << 62)])), Err(StoreError::Unheld(_))));
    assert_eq!(write_behind(&disk).recovery().put, [ids(5, 0, 4), ids(5, limits::MAX_NUMBER, 1)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_stores_never_panic_and_serve_no_wrong_record(harms in prop::collection::vec(harm(), 1..4)) {
        let disk = MemoryDisk::new();
        let mut commands = vec![];
        for n in 0..12 {
            commands.push(put(5, n * 6..n * 6 + 6));
            commands.push(order(1, n * 9, &[data(5, n * 6, 5), void(6, n * 2, 2), other(2)]));
        }
        commands.extend([stable(60), trim(5)]);
        let (checkpoint, _) = filled(&disk, &commands).checkpoint();
        let files = disk.files();
        for harm in harms {
            harm.perform(&disk, &files);
        }
        for mode in [OpenMode::Journaled { checkpoint: Some(checkpoint) }, OpenMode::WriteBehind] {
            let opened = ShardStore::open(Arc::new(disk.fork()), LogId(1), SHARD, mode, OPTIONS);
            let Ok(mut store) = opened else { continue };
            let (from, end) = (Position(0), Position(u64::MAX));
            let range = ReadRange { from, end, max_records: u32::MAX, max_bytes: u32::MAX };
            for stored in store.read(range).map_or(vec![], |found| found.records) {
                let (batch, place) = (stored.position.0 / 9, stored.position.0 % 9);
                match stored.record.is_no_op() {
                    true => prop_assert_eq!(stored.id, record(6, batch * 2 + place - 5).0),
                    false => prop_assert_eq!((stored.id, stored.record), record(5, batch * 6 + place)),
                }
            }
            for (id, found) in store.find(&[ids(5, 0, 1000), ids(6, 0, 1000)]) {
                prop_assert_eq!((id, found), record(5, id.number));
            }
            for command in &commands {
                let _ = store.execute(command);
            }
        }
    }
}

/// The stable bound after an unclean end.
fn believed(memory: &StorageCommand, commands: &[StorageCommand]) -> u64 {
    let disk = MemoryDisk::new();
    let mut store = write_behind(&disk);
    execute(&mut store, std::slice::from_ref(memory));
    execute(&mut store, commands);
    drop(store);
    write_behind(&disk).recovery().stable.0
}

/// A replica learns no owners below the position at which its shard joined.
#[test]
fn a_store_is_complete_although_its_shard_joined_late() {
    let steps = [(1, 0), (2, 4)];
    let whole = [put(5, 0..3), order(2, 4, &[data(5, 0, 3), other(2)]), stable(9)];
    assert_eq!(believed(&remember_joined(&steps, 4, Some(4)), &whole), 9);
    assert_eq!(believed(&remember_joined(&steps, 4, Some(0)), &whole), 0, "it had to know the owner of 0");
    assert_eq!(believed(&remember_joined(&steps, 4, Some(3)), &whole), 3, "it had to know the owner of 3");
    let hole = [put(5, 0..3), order(2, 5, &[data(5, 0, 3), other(2)]), stable(10)];
    assert_eq!(believed(&remember_joined(&steps, 4, Some(4)), &hole), 4, "it does not know the owner of 4");
    let trimmed = [hole.as_slice(), &[trim(5)]].concat();
    assert_eq!(believed(&remember_joined(&steps, 4, Some(4)), &trimmed), 10);
}

#[test]
fn a_store_is_complete_although_its_late_shard_is_retired() {
    let StorageCommand::Remember(mut memory) = remember_joined(&[(1, 0), (2, 4)], 4, Some(4)) else {
        unreachable!("it is one");
    };
    let last = memory.view.take().expect("it has one");
    let retired = RetiredShard::new(SHARD, last.clone(), Position(9));
    memory.view = Some(View { shards: vec![], retired: vec![retired], ..last });
    let whole = [put(5, 0..3), order(2, 4, &[data(5, 0, 3), other(2)]), stable(9)];
    assert_eq!(believed(&StorageCommand::Remember(memory), &whole), 9);
}

/// A power loss may keep the hard state and lose the trim that its history implies.
#[test]
fn a_store_is_complete_although_it_lost_a_trim_that_its_history_tells_of() {
    let whole = [put(5, 0..3), order(2, 4, &[data(5, 0, 3), other(2)]), stable(9)];
    assert_eq!(believed(&remember_joined(&[(2, 4)], 4, Some(0)), &whole), 9);
    assert_eq!(believed(&remember_joined(&[(2, 3)], 4, Some(0)), &whole), 3, "it had to know the owner of 3");
}

/// An operator accepted the loss of some positions: no replica gets records there.
#[test]
fn a_store_is_complete_although_its_shard_lost_positions() {
    let commands = [put(5, 0..5), order(1, 0, &[data(5, 0, 2)]), order(1, 6, &[data(5, 2, 3)]), stable(9)];
    let remember_lost = |shard, from, end| {
        let StorageCommand::Remember(mut memory) = remember(&[(1, 0)], 0) else { unreachable!("it is one") };
        memory.history.give_up(Gap { shard, from: Position(from), end: Position(end) });
        StorageCommand::Remember(memory)
    };
    assert_eq!(believed(&remember_lost(SHARD, 2, 6), &commands), 9);
    assert_eq!(believed(&remember_lost(SHARD, 2, 5), &commands), 5, "it had to know the owner of 5");
    assert_eq!(believed(&remember_lost(SHARD, 3, 6), &commands), 2, "it had to know the owner of 2");
    assert_eq!(believed(&remember_lost(OTHER, 2, 6), &commands), 2, "another shard lost them");
}
