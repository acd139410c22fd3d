//! Measures how long a store with many records takes to open, its memory, and the size of its
//! binding logs.
//!
//! ```text
//! cargo run --release -p seriatim-node --example opening -- make DIR SHAPE RECORDS BATCH
//! cargo run --release -p seriatim-node --example opening -- open DIR SHAPE
//! ```
//!
//! `make` fills a shard's store with small records, `BATCH` per command. `open` opens it in a
//! separate process, whose peak of memory is that of the opening. Shapes:
//!
//! - `plain`: one shard; positions come with the records;
//! - `stripes`: the same with two shards, in stripes of the default length;
//! - `names`: records of four alternating clients are put, then ordered as they came;
//! - `shuffled`: the same, but each batch is ordered client by client, so that no neighbours are
//!   joined;
//! - `shared`: as `names`, but every other position belongs to another shard.
//!
//! 100 million records take about 6 GB of disk.
#![allow(clippy::print_stdout, reason = "this program measures real files, and says what it found")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use std::{env, fs};

use bytes::Bytes;
use seriatim_model::storage::{HardState, Ordered, ReadRange, Run, StorageCommand};
use seriatim_model::{
    IdRun, Incarnation, LogConfig, LogId, NodeId, Order, Placement, Position, Record, RecordId, SessionId,
    ShardId, View, ViewHistory, ViewNumber, limits,
};
use seriatim_node::RealDisk;
use seriatim_store::{OpenMode, ShardOptions, ShardStore, sync_files};

const LOG: LogId = LogId(1);
const SHARD: ShardId = ShardId(0);
const OTHER: ShardId = ShardId(1);
const VIEW: ViewNumber = ViewNumber(1);
const CLIENTS: u64 = 4;

/// Commands between two checkpoints.
const COMMANDS_PER_CHECKPOINT: u64 = 10_000;

/// Commands without records that follow the last batch.
const IDLE_COMMANDS: u64 = 50_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Plain,
    Stripes,
    Names,
    Shuffled,
    Shared,
}

impl Shape {
    fn parse(name: &str) -> Self {
        match name {
            "plain" => Self::Plain,
            "stripes" => Self::Stripes,
            "names" => Self::Names,
            "shuffled" => Self::Shuffled,
            "shared" => Self::Shared,
            _ => panic!("no such shape: {name}"),
        }
    }

    fn order(self) -> Order {
        match self {
            Self::Plain | Self::Stripes => Order::ErwinBb,
            Self::Names | Self::Shuffled | Self::Shared => Order::ErwinSt,
        }
    }

    fn shards(self) -> Vec<ShardId> {
        match self {
            Self::Plain | Self::Names | Self::Shuffled => vec![SHARD],
            Self::Stripes | Self::Shared => vec![SHARD, OTHER],
        }
    }

    fn position(self, number: u64) -> u64 {
        let stripe = limits::DEFAULT_STRIPE;
        match self {
            Self::Plain | Self::Names | Self::Shuffled => number,
            Self::Stripes => number / stripe * 2 * stripe + number % stripe,
            Self::Shared => number * 2,
        }
    }

    /// Commands of a batch of records, and their number of runs.
    fn batch(self, from: u64, end: u64) -> (Vec<StorageCommand>, u64) {
        match self {
            Self::Plain | Self::Stripes => {
                let mut runs: Vec<Run> = vec![];
                for number in from..end {
                    let position = Position(self.position(number));
                    match runs.last_mut().filter(|run| run.end() == position) {
                        Some(run) => run.records.push(record(number)),
                        None => runs.push(Run { first: position, records: vec![record(number)] }),
                    }
                }
                let count = runs.len() as u64;
                (vec![StorageCommand::Bind { view: VIEW, runs }], count)
            }
            Self::Names | Self::Shuffled | Self::Shared => {
                let mut numbers: Vec<u64> = (from..end).collect();
                let put = StorageCommand::Put(numbers.iter().map(|number| record(*number)).collect());
                if self == Self::Shuffled {
                    numbers.sort_by_key(|number| (number % CLIENTS, *number));
                }
                let mut runs = vec![];
                for number in numbers {
                    let RecordId { session, number } = id(number);
                    let ids = IdRun { session, first: number, count: 1 };
                    runs.push(Ordered { ids, shard: SHARD, is_void: false });
                    if self == Self::Shared {
                        let ids = IdRun { session: SessionId(99), ..ids };
                        runs.push(Ordered { ids, shard: OTHER, is_void: false });
                    }
                }
                let first = Position(self.position(from));
                (vec![put, StorageCommand::Order { view: VIEW, first, runs }], end - from)
            }
        }
    }
}

fn id(number: u64) -> RecordId {
    RecordId { session: SessionId(7 + u128::from(number % CLIENTS)), number: number / CLIENTS }
}

fn record(number: u64) -> (RecordId, Record) {
    (id(number), Record::new(&number.to_le_bytes(), 0))
}

fn memory(shape: Shape) -> StorageCommand {
    let mut history = ViewHistory::default();
    history.push(VIEW, Position(0));
    let view = View {
        number: VIEW,
        sequencers: vec![],
        leader: NodeId(1),
        shards: vec![],
        retired: vec![],
        placement: Placement::new(shape.shards(), limits::DEFAULT_STRIPE),
        first: Position(0),
        start: Position(0),
    };
    let config = LogConfig { order: shape.order(), ..LogConfig::default() };
    let (incarnation, claim) = (Incarnation(1), VIEW);
    StorageCommand::Remember(HardState { incarnation, config, claim, view: Some(view), history })
}

fn open(dir: &Path, mode: OpenMode) -> ShardStore {
    let disk = Arc::new(RealDisk::open(dir).expect("the directory is there and nobody uses it"));
    ShardStore::open(disk, LOG, SHARD, mode, ShardOptions::default()).expect("the store opens")
}

fn make(dir: &Path, shape: Shape, records: u64, batch: u64) {
    let started = Instant::now();
    fs::create_dir_all(dir).expect("the directory can be made");
    let disk = Arc::new(RealDisk::open(dir).expect("the directory is there and nobody uses it"));
    let mode = OpenMode::Journaled { checkpoint: None };
    let mut store =
        ShardStore::open(disk.clone(), LOG, SHARD, mode, ShardOptions::default()).expect("the store is made");
    store.execute(&memory(shape)).expect("there is room");
    let mut runs = 0;
    for (command, from) in (1..).zip((0..records).step_by(batch as usize)) {
        let end = records.min(from + batch);
        let (commands, count) = shape.batch(from, end);
        runs += count;
        let stable = StorageCommand::Stable(Position(shape.position(end)));
        for command in commands.iter().chain([&stable]) {
            store.execute(command).expect("there is room");
        }
        if command % COMMANDS_PER_CHECKPOINT == 0 {
            sync_files(&*disk, &store.checkpoint().1).expect("the disk syncs");
        }
    }
    let mut checkpoint = Bytes::new();
    for _ in 0..3 {
        // Idle commands let the store rewrite the remaining binding logs.
        for _ in 0..IDLE_COMMANDS {
            store.execute(&StorageCommand::Trim(Position(0))).expect("nothing is written");
        }
        let files;
        (checkpoint, files) = store.checkpoint();
        sync_files(&*disk, &files).expect("the disk syncs");
        while let Some(removal) = store.next_removal() {
            removal.perform(&*disk).expect("files can be deleted");
            store.removed();
        }
    }
    fs::write(dir.join("checkpoint"), &checkpoint).expect("there is room");
    let (logs, bindings, bytes) = weight(dir);
    println!(
        "{shape:?}: {records} records in {runs} runs, {batch} records a command, made in {:.1} s",
        started.elapsed().as_secs_f64()
    );
    println!(
        "{bytes} bytes of records; {bindings} bytes of bindings in {logs} logs: {:.3} a record, {:.3} a run",
        bindings as f64 / records as f64,
        bindings as f64 / runs as f64
    );
}

/// Number of binding logs, their bytes, and bytes of records.
fn weight(dir: &Path) -> (u64, u64, u64) {
    let (mut logs, mut bindings, mut records) = (0, 0, 0);
    for entry in fs::read_dir(dir.join(ShardStore::directory(LOG, SHARD))).expect("the store is there") {
        let entry = entry.expect("the store can be listed");
        let bytes = entry.metadata().expect("a file has a length").len();
        match entry.path().extension().and_then(|extension| extension.to_str()) {
            Some("records") => records += bytes,
            Some("bindings" | "packed") => (logs, bindings) = (logs + 1, bindings + bytes),
            _ => {}
        }
    }
    (logs, bindings, records)
}

fn memory_mib(what: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux says what a process takes");
    let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("it has such a line");
    let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    kib.parse::<u64>().expect("it is a number of KiB") / 1024
}

fn measure(dir: &Path, shape: Shape) {
    let checkpoint = Bytes::from(fs::read(dir.join("checkpoint")).expect("`make` left a checkpoint"));
    let started = Instant::now();
    let store = open(dir, OpenMode::Journaled { checkpoint: Some(checkpoint) });
    let took = started.elapsed();
    println!(
        "{shape:?}: opened in {:.2} s; memory {} MiB, at most {} MiB",
        took.as_secs_f64(),
        memory_mib("VmRSS"),
        memory_mib("VmHWM")
    );
    let stable = store.recovery().stable;
    let from = Position(stable.0 - 1000);
    let range = ReadRange { from, end: stable, max_records: 1000, max_bytes: 1 << 20 };
    let found = store.read(range).expect("the last records are whole");
    println!("{stable:?} is stable; of the last 1000 positions {} are here", found.records.len());
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().expect("a number");
    match arguments[..] {
        ["make", dir, shape, records, batch] => {
            make(Path::new(dir), Shape::parse(shape), number(records), number(batch));
        }
        ["open", dir, shape] => measure(Path::new(dir), Shape::parse(shape)),
        _ => println!("make DIR SHAPE RECORDS BATCH, or open DIR SHAPE"),
    }
}
