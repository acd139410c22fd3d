//! The shard store against crashes, full disks, damage, and a simple model.

use proptest::prelude::*;
use seriatim_model::storage::{ReadFailure, ReadRange, Run, Stored};
use seriatim_model::{Incarnation, LogConfig, Order, SessionId, ViewHistory, ViewNumber};

use super::index::{Index, IndexRun};
use super::packed::Expected;
use super::segment::{Trusted, encode_records};
use super::*;
use crate::disk::{MemoryDisk, sync_files};

const LOG: LogId = LogId(0xabc);
const SHARD: ShardId = ShardId(2);
const OPTIONS: ShardOptions = ShardOptions::new(4096);

fn try_open(disk: &MemoryDisk, mode: OpenMode) -> Result<ShardStore, OpenError> {
    ShardStore::open(Arc::new(disk.clone()), LOG, SHARD, mode, OPTIONS)
}

fn write_behind(disk: &MemoryDisk) -> ShardStore {
    try_open(disk, OpenMode::WriteBehind).unwrap()
}

fn journaled(disk: &MemoryDisk, checkpoint: Option<&Bytes>) -> ShardStore {
    try_open(disk, OpenMode::Journaled { checkpoint: checkpoint.cloned() }).unwrap()
}

fn id(number: u64) -> RecordId {
    RecordId { session: SessionId(5), number }
}

fn record(number: u64, len: usize) -> (RecordId, Record) {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(8 + len, number as u8);
    (id(number), Record::new(&payload, number))
}

fn bind(view: u64, first: u64, number: u64, count: u64, len: usize) -> StorageCommand {
    let records = (number..number + count).map(|number| record(number, len)).collect();
    StorageCommand::Bind { view: ViewNumber(view), runs: vec![Run { first: Position(first), records }] }
}

fn remember(steps: &[(u64, u64)]) -> StorageCommand {
    let mut history = ViewHistory::default();
    for (view, first) in steps {
        history.push(ViewNumber(*view), Position(*first));
    }
    StorageCommand::Remember(HardState {
        incarnation: Incarnation(1),
        config: LogConfig { order: Order::ErwinBb, ..LogConfig::default() },
        claim: history.latest(),
        view: None,
        history,
    })
}

fn range(from: u64, end: u64, max_records: u32, max_bytes: u32) -> ReadRange {
    ReadRange { from: Position(from), end: Position(end), max_records, max_bytes }
}

fn read_all(store: &ShardStore) -> Vec<Stored> {
    store.read(range(0, u64::MAX, u32::MAX, u32::MAX)).unwrap().records
}

fn numbers(store: &ShardStore) -> Vec<(u64, u64)> {
    read_all(store).iter().map(|stored| (stored.position.0, stored.id.number)).collect()
}

pub(super) fn remove_all(disk: &MemoryDisk, store: &mut ShardStore) {
    while let Some(removal) = store.next_removal() {
        removal.perform(disk).unwrap();
        store.removed();
    }
}

/// Executes empty commands until the logs are rewritten.
pub(super) fn rewrite_all(store: &mut ShardStore) {
    for _ in 0..500 {
        store.execute(&StorageCommand::Trim(Position(0))).unwrap();
    }
}

fn filled(disk: &MemoryDisk, commands: &[StorageCommand]) -> ShardStore {
    let mut store = write_behind(disk);
    store.execute(&remember(&[(1, 0)])).unwrap();
    for command in commands {
        store.execute(command).unwrap();
    }
    store
}

#[test]
fn records_come_back_at_their_positions() {
    let disk = MemoryDisk::new();
    let mut store = write_behind(&disk);
    store.execute(&bind(1, 10, 0, 3, 5000)).unwrap();
    assert!(read_all(&store).is_empty(), "no view is registered yet");
    store.execute(&remember(&[(1, 0)])).unwrap();
    store.execute(&StorageCommand::Stable(Position(12))).unwrap();
    assert_eq!(numbers(&store), [(10, 0), (11, 1), (12, 2)]);
    assert_eq!(read_all(&store)[2].record, record(2, 5000).1);
    let recovery = store.recovery();
    drop(store);
    let store = write_behind(&disk);
    assert_eq!(numbers(&store), [(10, 0), (11, 1), (12, 2)]);
    assert_eq!(store.recovery(), recovery);
    assert_eq!((recovery.stable, recovery.trim), (Position(12), Position(0)));
}

#[test]
fn reads_stop_at_their_limits_and_not_before() {
    let disk = MemoryDisk::new();
    let store = filled(&disk, &[bind(1, 0, 0, 50, 91), bind(1, 100, 50, 50, 91)]);
    let len = |from, end, records, bytes| store.read(range(from, end, records, bytes)).unwrap().records.len();
    assert_eq!(len(0, 1000, u32::MAX, u32::MAX), 100);
    assert_eq!(len(7, 8, u32::MAX, u32::MAX), 1);
    assert_eq!(len(50, 100, u32::MAX, u32::MAX), 0);
    assert_eq!(len(45, 105, u32::MAX, u32::MAX), 10);
    assert_eq!(len(45, 1000, 7, u32::MAX), 7);
    assert_eq!(len(0, 1000, 0, 0), 1, "at least one, if there is one");
    let size = record(0, 91).1.memory() as u32;
    assert_eq!(len(0, 1000, u32::MAX, 60 * size), 60);
    assert_eq!(len(0, 1000, u32::MAX, 60 * size + 1), 61);
}

#[test]
fn records_that_follow_one_another_are_read_at_once() {
    let disk = MemoryDisk::new();
    let options = ShardOptions::default();
    let mut store =
        ShardStore::open(Arc::new(disk.clone()), LOG, SHARD, OpenMode::WriteBehind, options).unwrap();
    store.execute(&remember(&[(1, 0)])).unwrap();
    for stripe in 0..40 {
        store.execute(&bind(1, stripe * 128, stripe * 64, 64, 100)).unwrap();
    }
    let before = disk.counters();
    assert_eq!(store.read(range(0, 10_000, u32::MAX, 1 << 20)).unwrap().records.len(), 40 * 64);
    assert_eq!(disk.counters().reads, before.reads + 1);
    let writes = disk.counters().writes;
    store.execute(&bind(1, 6000, 9000, 64, 100)).unwrap();
    assert_eq!(disk.counters().writes, writes + 2, "one write for each file");
}

#[test]
fn the_version_of_the_covering_view_is_valid() {
    let disk = MemoryDisk::new();
    let commands = [bind(1, 0, 0, 10, 10), bind(2, 5, 100, 3, 10), bind(3, 6, 200, 2, 10)];
    let mut store = filled(&disk, &commands);
    assert_eq!(numbers(&store).len(), 10, "views 2 and 3 are not registered");
    store.execute(&remember(&[(1, 0), (3, 6)])).unwrap();
    let expected = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 200), (7, 201)];
    store.execute(&bind(1, 50, 50, 3, 10)).unwrap();
    store.execute(&remember(&[(1, 0), (3, 6), (4, 40)])).unwrap();
    assert_eq!(store.contents.index.len(), 3, "versions that are hidden for good are dropped");
    assert_eq!(numbers(&store), expected);
    drop(store);
    assert_eq!(numbers(&write_behind(&disk)), expected);
}

#[test]
fn binding_again_is_harmless_and_the_latest_wins() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[bind(1, 0, 0, 20, 10)]);
    let used = disk.used();
    store.execute(&bind(1, 0, 0, 20, 10)).unwrap();
    store.execute(&bind(1, 5, 5, 3, 10)).unwrap();
    assert_eq!(disk.used(), used, "what is held is not written again");
    store.execute(&bind(1, 18, 18, 4, 10)).unwrap();
    store.execute(&bind(1, 7, 700, 2, 10)).unwrap();
    let expected: Vec<(u64, u64)> =
        (0..22).map(|n| (n, if n == 7 || n == 8 { n + 693 } else { n })).collect();
    assert_eq!(numbers(&store), expected);
    drop(store);
    assert_eq!(numbers(&write_behind(&disk)), expected);
}

#[test]
fn trim_deletes_whole_segments_even_on_a_full_disk() {
    let disk = MemoryDisk::new();
    let commands: Vec<_> = (0..30).map(|n| bind(1, n * 10, n * 10, 10, 50)).collect();
    let mut store = filled(&disk, &commands);
    let files = disk.files().len();
    assert!(files > 12);
    disk.set_capacity(Some(disk.used()));
    store.execute(&StorageCommand::Trim(Position(205))).unwrap();
    store.execute(&StorageCommand::Trim(Position(100))).unwrap();
    assert_eq!(disk.files().len(), files, "what goes goes later");
    remove_all(&disk, &mut store);
    assert!(disk.files().len() <= files - 8, "{:?}", disk.files());
    assert_eq!(numbers(&store).first(), Some(&(205, 205)));
    // Pushes below the trim point store nothing.
    let used = disk.used();
    store.execute(&bind(1, 100, 100, 10, 50)).unwrap();
    assert_eq!(disk.used(), used);
    drop(store);
    let store = write_behind(&disk);
    assert_eq!(store.recovery().trim, Position(205));
    assert_eq!(numbers(&store).len(), 95);
    let index_runs = store.contents.index.len();
    assert!(index_runs <= 10, "{index_runs}");
}

#[test]
fn a_trim_survives_a_crash_although_its_journal_entry_does_not() {
    let disk = MemoryDisk::new();
    let mut store = journaled(&disk, None);
    store.execute(&remember(&[(1, 0)])).unwrap();
    let (checkpoint, files) = store.checkpoint();
    sync_files(&disk, &files).unwrap();
    let commands: Vec<_> = (0..30).map(|n| bind(1, n * 10, n * 10, 10, 50)).collect();
    for command in &commands {
        store.execute(command).unwrap();
    }
    store.execute(&StorageCommand::Trim(Position(205))).unwrap();
    assert!(store.next_removal().unwrap().perform(&disk).is_ok());
    for seed in 0..50 {
        let disk = disk.fork();
        disk.crash(seed);
        let mut store = journaled(&disk, Some(&checkpoint));
        for command in &commands {
            store.execute(command).unwrap();
        }
        assert_eq!(store.recovery().trim, Position(205));
        assert_eq!(numbers(&store), (205..300).map(|n| (n, n)).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_disk_leaves_nothing_half_done() {
    let disk = MemoryDisk::new();
    let store = filled(&disk, &[bind(1, 0, 0, 30, 50)]);
    let (used, before) = (disk.used(), numbers(&store));
    drop(store);
    // A bind that seals the segment, and another without that effect.
    for (command, after) in [(bind(1, 30, 30, 20, 100), 50), (bind(1, 30, 30, 2, 50), 32)] {
        let mut failures = 0;
        for room in 0..5000 {
            let disk = disk.fork();
            disk.set_capacity(Some(used + room));
            let mut store = write_behind(&disk);
            let Err(error) = store.execute(&command) else { break };
            failures += 1;
            assert_eq!(error.failure(), StorageFailure::Full);
            assert_eq!(numbers(&store), before);
            assert_eq!(numbers(&write_behind(&disk.fork())), before, "{room} bytes of room");
            disk.set_capacity(None);
            store.execute(&command).unwrap();
            assert_eq!(numbers(&store).len(), after);
            assert_eq!(numbers(&write_behind(&disk)).len(), after);
        }
        assert!((150..5000).contains(&failures), "{failures}");
    }
}

#[test]
fn other_failures_are_final() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[bind(1, 0, 0, 3, 50)]);
    disk.fail_writes(1);
    let error = store.execute(&bind(1, 3, 3, 1, 50)).unwrap_err();
    assert_eq!(error.failure(), StorageFailure::Failed);
    assert!(matches!(store.execute(&StorageCommand::Stable(Position(1))), Err(StoreError::FailedEarlier(_))));
    assert_eq!(numbers(&store).len(), 3);
}

#[test]
fn what_the_disk_cannot_read_is_damage_and_healed_by_binding_again() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[bind(1, 0, 0, 6, 40_000)]);
    let segment = store.active.records.name().to_owned();
    disk.spoil_sector(&segment, 60_000);
    let all = range(0, 6, u32::MAX, u32::MAX);
    let bad: Vec<_> = std::iter::from_fn(|| match store.read(all).map(|found| found.upto) {
        Ok(Position(6)) => None,
        Ok(position) | Err(ReadFailure::Damaged(position)) => {
            store.execute(&bind(1, position.0, position.0, 1, 40_000)).unwrap();
            Some(position.0)
        }
        Err(failure) => panic!("{failure:?}"),
    })
    .take(7)
    .collect();
    assert!(!bad.is_empty() && bad.len() < 6, "what shares no read with the bad sector is read: {bad:?}");
    assert_eq!(store.read(all).unwrap().records.len(), 6);
}

#[test]
fn damage_is_found_by_the_read_that_meets_it_and_healed_by_binding_again() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[bind(1, 0, 0, 10, 100)]);
    let frame = 32 + record(0, 100).1.size() as u64;
    disk.flip_bit(store.active.records.name(), 64 + 4 * frame + 40, 3);
    let before = store.read(range(0, 10, u32::MAX, u32::MAX)).unwrap();
    assert_eq!((before.records.len(), before.upto), (4, Position(4)), "what lies before it is given out");
    let failure = store.read(range(4, 10, u32::MAX, u32::MAX)).unwrap_err();
    assert_eq!(failure, ReadFailure::Damaged(Position(4)));
    assert_eq!(store.read(range(0, 4, u32::MAX, u32::MAX)).unwrap().records.len(), 4);
    assert_eq!(store.read(range(5, 10, u32::MAX, u32::MAX)).unwrap().records.len(), 5);
    disk.set_unreadable(store.active.records.name(), Some(io::ErrorKind::Other));
    assert!(matches!(store.read(range(0, 4, 1, 1)), Err(ReadFailure::Disk(_))));
    disk.set_unreadable(store.active.records.name(), None);
    store.execute(&bind(1, 0, 0, 10, 100)).unwrap();
    assert_eq!(numbers(&store).len(), 10);
}

#[test]
fn a_record_is_not_taken_for_another_behind_a_length_that_is_damaged() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[bind(1, 0, 0, 10, 15)]);
    let frame = 32 + record(0, 15).1.size() as u64;
    assert_eq!(frame, 64, "one bit makes a frame as long as two");
    disk.flip_bit(store.active.records.name(), 64 + 3 * frame + 4, 6);
    for position in 0..10 {
        let found = store.read(range(position, position + 1, u32::MAX, u32::MAX));
        let expected =
            if position < 3 { Ok(position) } else { Err(ReadFailure::Damaged(Position(position))) };
        assert_eq!(found.map(|found| found.records[0].id.number), expected);
    }
    // Repairs bind the damaged records one by one.
    for position in 3..10 {
        store.execute(&bind(1, position, position, 1, 15)).unwrap();
    }
    assert_eq!(numbers(&store).len(), 10);
}

#[test]
fn every_flipped_bit_below_the_trusted_lengths_is_found() {
    let disk = MemoryDisk::new();
    let mut store = journaled(&disk, None);
    store.execute(&remember(&[(1, 0)])).unwrap();
    for n in 0..12 {
        store.execute(&bind(1, n * 10, n * 10, 10, 20)).unwrap();
    }
    store.execute(&StorageCommand::Stable(Position(100))).unwrap();
    store.execute(&StorageCommand::Trim(Position(3))).unwrap();
    let mut checkpoint = Bytes::new();
    for _ in 0..3 {
        rewrite_all(&mut store);
        let files;
        (checkpoint, files) = store.checkpoint();
        sync_files(&disk, &files).unwrap();
    }
    remove_all(&disk, &mut store);
    let expected = numbers(&store);
    let files = disk.files();
    let count = |suffix| files.iter().filter(|name| name.ends_with(suffix)).count();
    assert_eq!((count(".packed"), count(".bindings"), count(".records")), (2, 1, 3));
    for name in disk.files() {
        for offset in 0..disk.len(&name).unwrap() {
            let damaged = disk.fork();
            damaged.flip_bit(&name, offset, (offset % 8) as u8);
            let mode = OpenMode::Journaled { checkpoint: Some(checkpoint.clone()) };
            match try_open(&damaged, mode) {
                Err(OpenError::Damaged { file, .. }) => assert_eq!(file, name),
                Err(_) if offset < 16 => {}
                Err(other) => panic!("{name} at {offset}: {other}"),
                Ok(store) => {
                    assert!(name.ends_with(".records"), "{name} at {offset} was not noticed");
                    let found = store.read(range(0, 1000, u32::MAX, u32::MAX));
                    let is_whole = found.is_ok_and(|found| found.upto == Position(1000));
                    // Trimmed records may be damaged unnoticed.
                    let is_trimmed = offset < 64 + 3 * (32 + 37) && name.ends_with("1.records");
                    assert!(!is_whole || is_trimmed, "{name} at {offset} was not noticed");
                    assert!(!is_whole || numbers(&store) == expected);
                }
            }
        }
    }
}

#[test]
fn a_file_that_is_missing_short_or_foreign_is_named() {
    let disk = MemoryDisk::new();
    let mut store = journaled(&disk, None);
    store.execute(&remember(&[(1, 0)])).unwrap();
    for n in 0..12 {
        store.execute(&bind(1, n * 10, n * 10, 10, 20)).unwrap();
    }
    let (checkpoint, files) = store.checkpoint();
    sync_files(&disk, &files).unwrap();
    let attempt =
        |disk: &MemoryDisk| try_open(disk, OpenMode::Journaled { checkpoint: Some(checkpoint.clone()) });
    for name in disk.files().into_iter().filter(|name| !name.ends_with("trim")) {
        let damaged = disk.fork();
        damaged.truncate(&name, disk.len(&name).unwrap() - 1).unwrap();
        assert!(matches!(attempt(&damaged), Err(OpenError::Damaged { file, .. }) if file == name));
        damaged.delete(&name).unwrap();
        assert!(matches!(attempt(&damaged), Err(OpenError::Damaged { file, .. }) if file == name));
    }
    let foreign = MemoryDisk::new();
    for name in disk.files() {
        foreign.put(&name.replace("shard-2", "shard-3"), disk.content(&name).unwrap());
    }
    let opened = ShardStore::open(Arc::new(foreign), LOG, ShardId(3), OpenMode::WriteBehind, OPTIONS);
    assert!(matches!(opened, Err(OpenError::Foreign { .. })));
}

#[test]
fn a_checkpoint_brings_back_its_instant() {
    let disk = MemoryDisk::new();
    let mut store = journaled(&disk, None);
    store.execute(&remember(&[(1, 0)])).unwrap();
    store.execute(&StorageCommand::Stable(Position(7))).unwrap();
    let (checkpoint, files) = store.checkpoint();
    sync_files(&disk, &files).unwrap();
    let before = disk.files();
    for n in 0..12 {
        store.execute(&bind(1, n * 10, n * 10, 10, 20)).unwrap();
    }
    assert!(disk.files().len() > before.len());
    let store = journaled(&disk, Some(&checkpoint));
    assert_eq!((numbers(&store).len(), disk.files()), (0, before));
    // An intact entry that differs from the original.
    let name = store.active.bindings.name();
    let [mut one, mut other] = [Expected::default(), Expected::default()];
    one.batch(&store.contents.initial_bindings());
    other.batch(&store.contents.initial_bindings());
    let other = [one.batch(&[Binding::Stable(Position(7))]), other.batch(&[Binding::Stable(Position(6))])];
    disk.write_at(name, store.active.bindings.len() - other[0].len() as u64, &other[1..]).unwrap();
    let mode = OpenMode::Journaled { checkpoint: Some(checkpoint) };
    assert!(matches!(try_open(&disk, mode), Err(OpenError::Damaged { file, .. }) if file == name));
}

#[test]
fn a_torn_tail_is_cut_off_at_every_byte() {
    let disk = MemoryDisk::new();
    let mut store = filled(&disk, &[bind(1, 0, 0, 5, 50)]);
    let before = disk.fork();
    store.execute(&bind(1, 5, 5, 4, 50)).unwrap();
    let [records, bindings] = [store.active.records.name(), store.active.bindings.name()];
    for name in [records, bindings] {
        for len in before.len(name).unwrap()..disk.len(name).unwrap() {
            let torn = disk.fork();
            torn.truncate(name, len).unwrap();
            let mut store = write_behind(&torn);
            assert_eq!(numbers(&store).len(), 5, "{name} cut at {len}");
            store.execute(&bind(1, 5, 50, 4, 60)).unwrap();
            assert_eq!(numbers(&write_behind(&torn)), numbers(&store));
            assert_eq!(numbers(&store).len(), 9);
        }
    }
}

#[test]
fn a_destroyed_store_leaves_nothing() {
    let disk = MemoryDisk::new();
    drop(filled(&disk, &[bind(1, 0, 0, 5, 50)]));
    ShardStore::destroy_all(&disk, LOG).unwrap();
    assert!(disk.files().is_empty());
}

#[test]
fn ten_million_records_in_stripes_take_few_runs() {
    let mut index = Index::default();
    for stripe in 0..10_000u64 {
        for n in 0..4u64 {
            let offset = (stripe * 64 + n * 16) as u32 * 132;
            let written = Written { count: 16, offset, bytes: 16 * 132 };
            index.insert(ViewNumber(1), Position(stripe * 128 + n * 16), IndexRun::new(1, written));
        }
    }
    assert_eq!(index.len(), 10_000, "the runs of a stripe are joined");
}

/// Damage to a store's files.
#[derive(Clone, Copy, Debug)]
pub(super) enum Harm {
    Flip(usize, u64, u8),
    Cut(usize, u64),
    Swap(usize, usize),
}

impl Harm {
    pub(super) fn perform(self, disk: &MemoryDisk, names: &[String]) {
        match self {
            Self::Flip(file, offset, bit) => disk.flip_bit(&names[file % names.len()], offset, bit),
            Self::Cut(file, len) => disk.truncate(&names[file % names.len()], len).unwrap(),
            Self::Swap(first, second) => {
                let [first, second] = [&names[first % names.len()], &names[second % names.len()]];
                let contents = [disk.content(first).unwrap(), disk.content(second).unwrap()];
                let [one, other] = contents;
                disk.put(first, other);
                disk.put(second, one);
            }
        }
    }
}

pub(super) fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        (0usize..9, 0u64..4500, 0u8..8).prop_map(|(file, offset, bit)| Harm::Flip(file, offset, bit)),
        (0usize..9, 0u64..4500).prop_map(|(file, len)| Harm::Cut(file, len)),
        (0usize..9, 0usize..9).prop_map(|(first, second)| Harm::Swap(first, second)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_stores_never_panic_and_invent_nothing(harms in prop::collection::vec(harm(), 1..4)) {
        let disk = MemoryDisk::new();
        let commands: Vec<_> = (0..12).map(|n| bind(1, n * 10, n * 10, 10, 50)).collect();
        let (checkpoint, _) = filled(&disk, &commands).checkpoint();
        let names = disk.files();
        for harm in harms {
            harm.perform(&disk, &names);
        }
        for mode in [OpenMode::Journaled { checkpoint: Some(checkpoint) }, OpenMode::WriteBehind] {
            let Ok(mut store) = try_open(&disk.fork(), mode) else { continue };
            for stored in store.read(range(0, u64::MAX, u32::MAX, u32::MAX)).map_or(vec![], |found| found.records) {
                prop_assert_eq!((stored.id, stored.record), record(stored.position.0, 50));
            }
            let _ = store.execute(&bind(1, 115, 115, 20, 50));
        }
    }

    #[test]
    fn garbage_files_never_panic(files in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4)) {
        let disk = MemoryDisk::new();
        let dir = ShardStore::directory(LOG, SHARD);
        for (n, bytes) in files.into_iter().enumerate() {
            disk.put(&format!("{dir}/seg-{:08}.{}", n / 2 + 1, ["records", "bindings"][n % 2]), bytes);
        }
        let _ = try_open(&disk, OpenMode::WriteBehind);
    }
}

/// A store whose power failed after the first segment was sealed: the records' footer is lost.
/// Returns its offset.
fn half_sealed(payload: &[u8]) -> (MemoryDisk, u64) {
    let disk = MemoryDisk::new();
    let run = Run { first: Position(0), records: vec![(id(0), Record::new(payload, 0))] };
    let first = StorageCommand::Bind { view: ViewNumber(1), runs: vec![run] };
    let mut store = filled(&disk, &[first]);
    let end = store.active.records.len();
    store.execute(&bind(1, 1, 1, 1, 4000)).unwrap();
    let ([records, bindings], next) = (store.place.segment_files(1), store.place.segment_files(2));
    assert_eq!(disk.len(&records).unwrap(), end + segment::FOOTER_BYTES);
    assert!(disk.len(&bindings).unwrap() > segment::FOOTER_BYTES);
    next.iter().for_each(|name| disk.delete(name).unwrap());
    disk.truncate(&records, end).unwrap();
    (disk, end)
}

#[test]
fn a_footer_in_a_payload_is_not_taken_for_the_file_s() {
    let (disk, end) = half_sealed(&[0; 2000]);
    assert_eq!(numbers(&write_behind(&disk)), [(0, 0)]);
    // A client may know the end of its payload.
    let footer = Trusted { len: end - segment::FOOTER_BYTES, entries: 1, crc: 0 }.footer();
    let payload = [&[0; 2000 - segment::FOOTER_BYTES as usize][..], &footer].concat();
    let (disk, _) = half_sealed(&payload);
    let store = write_behind(&disk);
    assert_eq!(numbers(&store), [(0, 0)]);
    assert_eq!(read_all(&store)[0].record, Record::new(&payload, 0));
}

#[test]
fn a_record_in_a_payload_is_not_read_in_place_of_its_neighbour() {
    // The damage adds this to the first frame's length, which then ends at the forged frame.
    const STEP: usize = 1024;
    let (_, forged) = encode_records([&[(id(99), Record::new(b"forged", 0))][..]].into_iter(), 0, u32::MAX);
    let payload = [vec![0; STEP - 41], forged.concat()].concat();
    let run = Run { first: Position(0), records: vec![record(0, 8), (id(1), Record::new(&payload, 0))] };
    let bind = StorageCommand::Bind { view: ViewNumber(1), runs: vec![run] };
    let disk = MemoryDisk::new();
    let store = filled(&disk, &[bind]);
    // Sets bit 10 of the first frame's length.
    disk.flip_bit(&store.place.records_file(1), segment::HEADER_BYTES + 5, 2);
    assert_eq!(store.read(range(1, 2, 10, 10_000)), Err(ReadFailure::Damaged(Position(1))));
}
