//! Files of every released format version open forever, with their contents.
//!
//! - `golden/vN`: a node's journal, and the shard store that its checkpoint covers
//! - `golden/vN-names`: the same for records that are put and then ordered
//! - `golden/v2-packed`: `v2` with rewritten binding logs, which version 1 lacks
//! - `golden/v6-times`: `v6` with time marks, which earlier versions lack
//!
//! To add a format version: raise the version in `format.rs`, add it to [`VERSIONS`], and run
//! `SERIATIM_GOLDEN=write cargo test -p seriatim-store --test golden` once. It never overwrites
//! files: to rewrite an unreleased version, remove its directory.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "golden files are real files")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use seriatim_model::record::Header;
use seriatim_model::storage::{HardState, Ordered, Owned, ReadRange, Run, StorageCommand};
use seriatim_model::wire::{decode_one, encode_one};
use seriatim_model::{
    Endpoint, IdRun, Incarnation, LogConfig, LogId, NodeId, Order, Placement, Position, Record, RecordId,
    SessionId, ShardId, TimeIndex, TimeMark, View, ViewHistory, ViewNumber,
};
use seriatim_store::{
    Disk, Journal, JournalIdentity, JournalOptions, MemoryDisk, OpenMode, RoleKey, Secret, ShardOptions,
    ShardStore, sync_files,
};

const VERSIONS: [u32; 6] = [1, 2, 3, 4, 5, NEWEST];
const NEWEST: u32 = 6;

const LOG: LogId = LogId(0x5e71a71);
const SHARD: ShardId = ShardId(1);
const SHARD_ROLE: RoleKey = RoleKey { log: LOG, endpoint: Endpoint::Shard(SHARD) };
const SEQUENCER: RoleKey = RoleKey { log: LOG, endpoint: Endpoint::Sequencer };
const IDENTITY: JournalIdentity = JournalIdentity { cluster: 0x601d, node: NodeId(2) };
const OPTIONS: ShardOptions = ShardOptions::new(2048);

fn journal_options() -> JournalOptions {
    JournalOptions { file_bytes: 32 << 10, ..JournalOptions::default() }
}

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

fn record(number: u64) -> (RecordId, Record) {
    let id = RecordId { session: SessionId::new(Position(3), 0xabcd), number };
    let payload = format!("record {number}");
    let headers = [Header { kind: 40_000, value: Bytes::from_static(b"header") }];
    let record = match number % 3 {
        0 => Record::new(payload.as_bytes(), 1000 + number),
        1 => Record::build(payload.as_bytes(), 1000 + number, Some(b"key"), &[]),
        _ => Record::build(payload.as_bytes(), 1000 + number, None, &headers),
    };
    (id, record)
}

fn bind(view: u64, first: u64, numbers: std::ops::Range<u64>) -> StorageCommand {
    let run = Run { first: Position(first), records: numbers.map(record).collect() };
    StorageCommand::Bind { view: ViewNumber(view), runs: vec![run] }
}

fn memory() -> HardState {
    let mut history = ViewHistory::default();
    history.push(ViewNumber(1), Position(0));
    history.push(ViewNumber(4), Position(60));
    let claim = ViewNumber(5);
    let config = LogConfig { order: Order::ErwinBb, replicas: 2, ..LogConfig::default() };
    HardState { incarnation: Incarnation(77), config, claim, view: None, history }
}

/// Commands before and after the checkpoint.
type Commands = (Vec<StorageCommand>, Vec<StorageCommand>);

fn commands() -> Commands {
    let mut before = vec![StorageCommand::Remember(memory())];
    before.extend((0..7).map(|n| bind(1, n * 10, n * 10..n * 10 + 10)));
    before.extend([
        bind(4, 60, 100..105),
        StorageCommand::Stable(Position(60)),
        StorageCommand::Trim(Position(7)),
    ]);
    (before, vec![bind(4, 65, 105..110), StorageCommand::Stable(Position(65))])
}

/// Position and number of each remaining record.
fn expected() -> Vec<(u64, u64)> {
    (7..60).map(|n| (n, n)).chain((60..70).map(|n| (n, n + 40))).collect()
}

fn write(directory: &Path, (before, after): Commands, checkpoints_before: usize) {
    let disk = MemoryDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (mut journal, _) = Journal::open(&shared, IDENTITY, Secret::new(1), journal_options()).unwrap();
    let mode = OpenMode::Journaled { checkpoint: None };
    let mut store = ShardStore::open(Arc::clone(&shared), LOG, SHARD, mode, OPTIONS).unwrap();
    for command in &before {
        store.execute(command).unwrap();
    }
    for _ in 0..checkpoints_before {
        // Commands rewrite logs, which become valid when a later checkpoint is durable.
        for _ in 0..100 {
            store.execute(&StorageCommand::Trim(Position(0))).unwrap();
        }
        sync_files(&disk, &store.checkpoint().1).unwrap();
        while let Some(removal) = store.next_removal() {
            removal.perform(&disk).unwrap();
            store.removed();
        }
    }
    journal.append(SEQUENCER, &[Bytes::from_static(b"before")]);
    let id = journal.begin_checkpoint();
    // The snapshot covers this entry: it is not executed again.
    journal.append(SHARD_ROLE, &[encode_one(&before[0])]);
    let (checkpoint, files) = store.checkpoint();
    sync_files(&disk, &files).unwrap();
    journal.add_snapshot(id, SHARD_ROLE, &[checkpoint.slice(..10)]);
    journal.append(SEQUENCER, &[Bytes::from_static(b"after")]);
    journal.add_snapshot(id, SHARD_ROLE, &[checkpoint.slice(10..)]);
    journal.finish_checkpoint(id);
    for command in &after {
        store.execute(command).unwrap();
        journal.append(SHARD_ROLE, &[encode_one(command)]);
    }
    while let Some(write) = journal.next_write() {
        journal.written(write.perform(&disk)).unwrap();
    }
    for name in disk.files() {
        let path = directory.join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, disk.content(&name).unwrap()).unwrap();
    }
}

fn load(disk: &MemoryDisk, root: &Path, dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            load(disk, root, &path);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            disk.put(name, fs::read(&path).unwrap());
        }
    }
}

fn check_content(store: &ShardStore) {
    let recovery = store.recovery();
    assert_eq!(recovery.memory, Some(memory()));
    assert_eq!((recovery.stable, recovery.trim), (Position(65), Position(7)));
    let all = ReadRange { from: Position(0), end: Position(1000), max_records: 1000, max_bytes: 1 << 20 };
    let found = store.read(all).unwrap().records;
    let places: Vec<_> = found.iter().map(|stored| (stored.position.0, stored.id.number)).collect();
    assert_eq!(places, expected());
    for stored in found {
        assert_eq!((stored.id, stored.record), record(stored.id.number));
    }
}

/// The commands of [`commands`], with time marks.
fn timed_commands() -> Commands {
    let (mut before, mut after) = commands();
    let mark = |marks: &[u64], whole| {
        let mut times = TimeIndex::default();
        marks.iter().for_each(|n| _ = times.add(time_mark(*n)));
        StorageCommand::Mark { times, whole, segment_bytes: Some(2048) }
    };
    before.insert(4, mark(&[3, 5, 30], true));
    before.push(mark(&[55], false));
    after.push(mark(&[62], false));
    (before, after)
}

fn time_mark(position: u64) -> TimeMark {
    let time_ms = 1_700_000_000_000 + position * 1000;
    TimeMark { position: Position(position), time_ms, wall_ms: time_ms + 5 - position }
}

fn check_times(store: &ShardStore) {
    check_content(store);
    // Marks of trimmed positions are dropped.
    assert_eq!(store.recovery().times.marks(), [5, 30, 55, 62].map(time_mark));
}

const NAMES: u64 = 0xa;
const VOID: u64 = 0xb;

fn ids(session: u64, first: u64, count: u64) -> IdRun {
    IdRun { session: SessionId(session.into()), first, count }
}

fn put(session: u64, numbers: std::ops::Range<u64>) -> StorageCommand {
    let name = |number| RecordId { session: SessionId(session.into()), number };
    StorageCommand::Put(numbers.map(|number| (name(number), record(number).1)).collect())
}

fn order(view: u64, first: u64, runs: &[(IdRun, u32, bool)]) -> StorageCommand {
    let ordered = |&(ids, shard, is_void): &_| Ordered { ids, shard: ShardId(shard), is_void };
    let (view, first) = (ViewNumber(view), Position(first));
    StorageCommand::Order { view, first, runs: runs.iter().map(ordered).collect() }
}

fn named_memory(steps: &[(u64, u64)]) -> StorageCommand {
    let mut history = ViewHistory::default();
    steps.iter().for_each(|(view, first)| history.push(ViewNumber(*view), Position(*first)));
    let view = View {
        number: history.latest(),
        sequencers: vec![],
        leader: NodeId(1),
        shards: vec![],
        retired: vec![],
        placement: Placement::new(vec![SHARD], 1),
        first: Position(0),
        start: Position(0),
    };
    let config = LogConfig { order: Order::ErwinSt, replicas: 2, ..LogConfig::default() };
    StorageCommand::Remember(HardState { config, view: Some(view), history, ..memory() })
}

fn named_commands() -> Commands {
    let mut before = vec![named_memory(&[(1, 0)]), put(NAMES, 0..20)];
    before.extend([
        order(
            1,
            0,
            &[
                (ids(NAMES, 0, 12), 1, false),
                (ids(0xc, 5, 3), 0, false),
                (ids(VOID, 0, 2), 1, true),
                (ids(NAMES, 12, 2), 1, false),
            ],
        ),
        StorageCommand::Stable(Position(14)),
        bind(1, 19, 100..103),
        StorageCommand::Map {
            view: ViewNumber(1),
            first: Position(19),
            owned: vec![Owned { shard: SHARD, count: 3 }, Owned { shard: ShardId(2), count: 8 }],
        },
    ]);
    before.extend((0..8).map(|n| put(NAMES, 20 + n * 5..25 + n * 5)));
    before.extend([
        StorageCommand::Discard(IdRun { session: SessionId(NAMES.into()), first: 30, count: 100 }),
        StorageCommand::Trim(Position(3)),
    ]);
    let after = vec![
        named_memory(&[(1, 0), (4, 16)]),
        order(
            4,
            16,
            &[(ids(NAMES, 13, 3), 1, false), (ids(VOID, 2, 2), 1, true), (ids(VOID, 1, 1), 2, false)],
        ),
        put(NAMES, 40..42),
        StorageCommand::Stable(Position(17)),
    ];
    (before, after)
}

fn check_names(store: &ShardStore) {
    let recovery = store.recovery();
    assert_eq!((recovery.stable, recovery.trim), (Position(17), Position(3)));
    assert_eq!(recovery.put, [ids(NAMES, 12, 1), ids(NAMES, 14, 16), ids(NAMES, 40, 2)]);
    assert_eq!(recovery.void, [ids(VOID, 2, 2)]);
    let found = store.find(&recovery.put);
    assert_eq!(found.len(), 19);
    assert!(found.iter().all(|(id, content)| *content == record(id.number).1));
    let all = ReadRange { from: Position(0), end: Position(1000), max_records: 1000, max_bytes: 1 << 20 };
    let found = store.read(all).unwrap().records;
    let places = found.iter().map(|stored| (stored.position.0, stored.id.number, stored.record.is_no_op()));
    let data = |positions: std::ops::Range<u64>, from| positions.map(move |n| (n, n - 3 + from, false));
    let expected = data(3..12, 3).chain([(15, 0, true), (16, 13, false), (17, 14, false), (18, 15, false)]);
    assert_eq!(
        places.collect::<Vec<_>>(),
        expected.chain([(19, 2, true), (20, 3, true)]).collect::<Vec<_>>()
    );
    let owners = store.map(Position(3), Position(1000));
    let owners: Vec<_> = owners.iter().map(|owned| (owned.shard.0, owned.count)).collect();
    assert_eq!(owners, [(1, 9), (0, 3), (1, 6), (2, 1)]);
}

#[test]
fn files_of_all_versions_open() {
    for version in VERSIONS {
        check_files(&format!("v{version}"), commands, 0, check_content);
    }
    check_files("v2-packed", commands, 3, check_content);
    check_files("v6-times", timed_commands, 0, check_times);
}

#[test]
fn files_with_names_of_all_versions_open() {
    for version in VERSIONS {
        check_files(&format!("v{version}-names"), named_commands, 0, check_names);
    }
}

fn version_of(disk: &MemoryDisk, name: &str) -> u8 {
    disk.content(name).unwrap()[8]
}

#[test]
fn a_journal_of_an_older_version_goes_on_in_new_files() {
    for version in VERSIONS {
        let (disk, root) = (MemoryDisk::new(), directory(&format!("v{version}")));
        load(&disk, &root, &root);
        let old = disk.content("journal/0001").unwrap();
        assert_eq!(u32::from(version_of(&disk, "journal/0001")), version);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let open = |secret| Journal::open(&shared, IDENTITY, Secret::new(secret), journal_options()).unwrap();
        let (mut journal, before) = open(1);
        journal.append(SEQUENCER, &[Bytes::from_static(b"new")]);
        while let Some(write) = journal.next_write() {
            journal.written(write.perform(&disk)).unwrap();
        }
        disk.crash(version.into());
        let (_, after) = open(2);
        assert_eq!(after.snapshots, before.snapshots);
        let new = (SEQUENCER, Bytes::from_static(b"new"));
        assert_eq!(after.entries, [before.entries, vec![new]].concat());
        if version < NEWEST {
            assert!(disk.content("journal/0001").unwrap() == old, "it gets no more entries");
            assert_eq!(u32::from(version_of(&disk, "journal/0002")), NEWEST);
        }
    }
}

fn check_files(
    name: &str,
    commands: impl Fn() -> Commands,
    checkpoints_before: usize,
    check: impl Fn(&ShardStore),
) {
    let root = directory(name);
    if !root.exists() && std::env::var_os("SERIATIM_GOLDEN").is_some_and(|value| value == "write") {
        write(&root, commands(), checkpoints_before);
    }
    let disk = MemoryDisk::new();
    load(&disk, &root, &root);
    let shared: Arc<dyn Disk> = Arc::new(disk.fork());
    let (_, recovered) = Journal::open(&shared, IDENTITY, Secret::new(2), journal_options()).unwrap();
    let [(SHARD_ROLE, checkpoint)] = &recovered.snapshots[..] else { panic!("{:?}", recovered.snapshots) };
    let mode = OpenMode::Journaled { checkpoint: Some(checkpoint.concat().into()) };
    let mut store = ShardStore::open(shared, LOG, SHARD, mode, OPTIONS).unwrap();
    let mut sequencer = Vec::new();
    for (role, entry) in recovered.entries {
        match role {
            SHARD_ROLE => _ = store.execute(&decode_one(entry).unwrap()).unwrap(),
            _ => sequencer.push((role, entry)),
        }
    }
    assert_eq!(sequencer, [(SEQUENCER, Bytes::from_static(b"after"))]);
    check(&store);
    let shared: Arc<dyn Disk> = Arc::new(disk.fork());
    check(&ShardStore::open(shared, LOG, SHARD, OpenMode::WriteBehind, OPTIONS).unwrap());
    check_after_power_cuts(&disk, check);
}

/// A power cut may lose the changes made by an opening, such as a new file.
fn check_after_power_cuts(disk: &MemoryDisk, check: impl Fn(&ShardStore)) {
    sync_files(disk, &disk.files()).unwrap();
    for seed in 0..100 {
        let disk = disk.fork();
        for restart in 0..3 {
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            check(&ShardStore::open(shared, LOG, SHARD, OpenMode::WriteBehind, OPTIONS).unwrap());
            disk.crash(seed * 3 + restart);
        }
    }
}
