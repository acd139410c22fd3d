//! A fully trimmed store frees its disk space without new appends.

use std::sync::Arc;

use bytes::Bytes;
use seriatim_model::storage::{HardState, Ordered, Run, ShardRecovery, StorageCommand};
use seriatim_model::{
    Durability, IdRun, Incarnation, LogConfig, LogId, Order, Position, Record, RecordId, SessionId, ShardId,
    ViewHistory, ViewNumber,
};

use super::tests::remove_all;
use super::{OpenMode, ShardOptions, ShardStore};
use crate::disk::{MemoryDisk, sync_files};

const LOG: LogId = LogId(1);
const SHARD: ShardId = ShardId(0);
const SEGMENT_BYTES: u64 = 1 << 20;
/// Number of records. Together they are shorter than a segment.
const COUNT: u64 = 50;
const RECORD_BYTES: usize = 4000;
/// Most bytes of a store without records.
const EMPTY_BYTES: u64 = 1000;

fn open(disk: &MemoryDisk, mode: OpenMode) -> ShardStore {
    ShardStore::open(Arc::new(disk.clone()), LOG, SHARD, mode, ShardOptions::new(SEGMENT_BYTES)).unwrap()
}

fn id(number: u64) -> RecordId {
    RecordId { session: SessionId(7), number }
}

fn records() -> Vec<(RecordId, Record)> {
    (0..COUNT).map(|number| (id(number), Record::new(&[number as u8; RECORD_BYTES], number))).collect()
}

fn remember(order: Order, durability: Durability) -> StorageCommand {
    let mut history = ViewHistory::default();
    history.push(ViewNumber(1), Position(0));
    let config = LogConfig { order, durability, ..LogConfig::default() };
    let claim = history.latest();
    StorageCommand::Remember(HardState { incarnation: Incarnation(1), config, claim, view: None, history })
}

fn appended(order: Order, durability: Durability) -> Vec<StorageCommand> {
    let ids = IdRun { session: SessionId(7), first: 0, count: COUNT };
    let (view, first) = (ViewNumber(1), Position(0));
    let mut commands = vec![remember(order, durability)];
    if order == Order::ErwinSt {
        commands.push(StorageCommand::Put(records()));
        let runs = vec![Ordered { ids, shard: SHARD, is_void: false }];
        commands.push(StorageCommand::Order { view, first, runs });
    } else {
        commands.push(StorageCommand::Bind { view, runs: vec![Run { first, records: records() }] });
    }
    commands.push(StorageCommand::Stable(Position(COUNT)));
    commands
}

/// State except the ends of versions: later commands drop trimmed ones.
fn known(store: &ShardStore) -> ShardRecovery {
    ShardRecovery { ends: vec![], ..store.recovery() }
}

const ORDERS: [Order; 2] = [Order::ErwinBb, Order::ErwinSt];

fn trim() -> StorageCommand {
    StorageCommand::Trim(Position(COUNT))
}

#[test]
fn a_trim_to_the_end_frees_everything_although_nothing_follows() {
    for (order, durability) in
        ORDERS.into_iter().flat_map(|order| [(order, Durability::Disk), (order, Durability::Memory)])
    {
        let disk = MemoryDisk::new();
        let is_journaled = durability == Durability::Disk;
        let mode = || match is_journaled {
            true => OpenMode::Journaled { checkpoint: None },
            false => OpenMode::WriteBehind,
        };
        let mut store = open(&disk, mode());
        for command in appended(order, durability) {
            store.execute(&command).unwrap();
        }
        remove_all(&disk, &mut store);
        assert!(disk.used() > COUNT * RECORD_BYTES as u64, "nothing is trimmed");
        store.execute(&trim()).unwrap();
        assert!(store.has_removal());
        remove_all(&disk, &mut store);
        assert!(!store.has_removal());
        assert!(disk.used() < EMPTY_BYTES, "{order}, {durability:?}: {:?}", disk.files());
        assert_eq!(store.measure().bytes, disk.used() - 64, "the trim file is not counted");
        let recovery = known(&store);
        if !is_journaled {
            // The reasons for the removal are durable, so a crash changes nothing.
            disk.crash(3);
            assert_eq!(known(&open(&disk, mode())), recovery);
        }
    }
}

#[test]
fn what_waits_for_its_position_keeps_the_segment_until_it_has_it() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::WriteBehind);
    for command in appended(Order::ErwinSt, Durability::Disk) {
        store.execute(&command).unwrap();
    }
    let late = (id(COUNT), Record::new(b"late", 1));
    store.execute(&StorageCommand::Put(vec![late.clone()])).unwrap();
    store.execute(&trim()).unwrap();
    remove_all(&disk, &mut store);
    assert!(disk.used() > COUNT * RECORD_BYTES as u64, "the record has no position");
    let ids = IdRun { session: SessionId(7), first: COUNT, count: 1 };
    assert_eq!(store.find(&[ids]).len(), 1);
    store.execute(&StorageCommand::Discard(ids)).unwrap();
    assert!(store.has_removal(), "nothing keeps the segment any more");
    remove_all(&disk, &mut store);
    assert!(disk.used() < EMPTY_BYTES, "{:?}", disk.files());
}

#[test]
fn sealed_segments_go_when_the_last_record_in_them_that_waited_is_discarded() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::WriteBehind);
    store.execute(&StorageCommand::Put(vec![(id(COUNT), Record::new(b"late", 1))])).unwrap();
    for command in appended(Order::ErwinSt, Durability::Disk) {
        store.execute(&command).unwrap();
    }
    store.start_next_segment().unwrap();
    store.execute(&trim()).unwrap();
    remove_all(&disk, &mut store);
    assert!(disk.used() > COUNT * RECORD_BYTES as u64, "the first record has no position");
    store.execute(&StorageCommand::Discard(IdRun { session: SessionId(7), first: COUNT, count: 1 })).unwrap();
    assert!(store.has_removal(), "nothing keeps the segment any more");
    remove_all(&disk, &mut store);
    assert!(disk.used() < EMPTY_BYTES, "{:?}", disk.files());
    assert!(!store.has_removal());
}

#[test]
fn a_store_that_was_trimmed_by_a_killed_process_frees_everything_when_it_is_opened() {
    for order in ORDERS {
        let disk = MemoryDisk::new();
        let mut store = open(&disk, OpenMode::Journaled { checkpoint: None });
        for command in appended(order, Durability::Disk) {
            store.execute(&command).unwrap();
        }
        store.execute(&trim()).unwrap();
        let (checkpoint, files) = store.checkpoint();
        sync_files(&disk, &files).unwrap();
        disk.crash(1);
        let mut store = reopened(&disk, &checkpoint);
        assert!(store.has_removal());
        remove_all(&disk, &mut store);
        assert!(disk.used() < EMPTY_BYTES, "{order}: {:?}", disk.files());
        // The checkpoint names a deleted segment.
        let recovery = known(&store);
        disk.crash(2);
        assert_eq!(known(&reopened(&disk, &checkpoint)), recovery);
    }
}

fn reopened(disk: &MemoryDisk, checkpoint: &Bytes) -> ShardStore {
    open(disk, OpenMode::Journaled { checkpoint: Some(checkpoint.clone()) })
}

#[test]
fn a_disk_without_room_for_the_next_segment_keeps_the_trimmed_one_until_there_is_some() {
    for order in ORDERS {
        let disk = MemoryDisk::new();
        let mut store = open(&disk, OpenMode::WriteBehind);
        for command in appended(order, Durability::Disk) {
            store.execute(&command).unwrap();
        }
        let used = disk.used();
        disk.set_capacity(Some(used));
        store.execute(&trim()).unwrap();
        let recovery = known(&store);
        while let Some(removal) = store.next_removal() {
            removal.perform(&disk).unwrap();
            store.removed();
        }
        assert!(store.has_removal(), "it waits for room");
        assert_eq!(disk.used(), used, "nothing half done is left");
        assert_eq!(known(&open(&disk.fork(), OpenMode::WriteBehind)), recovery);
        disk.set_capacity(Some(used + EMPTY_BYTES));
        remove_all(&disk, &mut store);
        assert!(disk.used() < EMPTY_BYTES, "{order}: {:?}", disk.files());
        assert_eq!(known(&store), recovery);
        assert_eq!(known(&open(&disk, OpenMode::WriteBehind)), recovery);
    }
}

#[test]
fn small_trims_make_no_new_files_each_time() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::WriteBehind);
    store.execute(&remember(Order::ErwinBb, Durability::Disk)).unwrap();
    let (rounds, mut segments) = (400, vec![]);
    for number in 0..rounds {
        let records = vec![(id(number), Record::new(&[1; 100], number))];
        let run = Run { first: Position(number), records };
        store.execute(&StorageCommand::Bind { view: ViewNumber(1), runs: vec![run] }).unwrap();
        store.execute(&StorageCommand::Stable(Position(number + 1))).unwrap();
        store.execute(&StorageCommand::Trim(Position(number + 1))).unwrap();
        remove_all(&disk, &mut store);
        segments.push(store.active.number);
    }
    segments.dedup();
    assert!((5..30).contains(&segments.len()), "{segments:?}");
    assert!(disk.used() < 3 * SEGMENT_BYTES / 256, "{:?}", disk.files());
}
