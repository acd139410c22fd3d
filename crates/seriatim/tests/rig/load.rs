//! Overload slows a log down, without failed appends, view changes or lost records, within bounds
//! of memory and disk. Settings: idle machine, one core with a busy loop, slow disk, killed leader
//! (a pause of at most one second).
//!
//! All tests run the corners, one second each. `SERIATIM_RIG_LOAD_SECONDS` runs the whole matrix,
//! that long per cell, and prints a table (as `cargo xtask soak`); `SERIATIM_RIG_LOAD_ONLY` selects
//! rows by prefix.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use seriatim_client::{
    Append, Client, Durability, Event, Log, LogConfig, LogEntry, LogOptions, NodeId, Order, Position,
    SubscribeOptions,
};
use seriatim_model::Announced;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::members::Members;
use crate::surroundings::{BusyLoop, Surroundings};

const MEMORY_BYTES: u64 = 768 << 20;
/// Disk limit of three nodes besides records: journals and preallocated space.
const DISK_BYTES: u64 = 3 << 30;
const DEADLINE: Duration = Duration::from_secs(60);
/// Maximum receipts awaited by one client.
const WAITING: usize = 64 << 10;
/// Maximum pause of acknowledgements after a leader's kill.
const MOST_STALL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Alone,
    /// One core for everything, shared with a busy loop.
    OneCore,
    /// Each sync of one node takes 50 ms longer.
    SlowSync,
    LeaderKilled,
}

const REGISTER: NodeId = NodeId(1);
const SLOW: NodeId = NodeId(2);

#[derive(Clone, Copy, Debug)]
struct Cell {
    setting: Setting,
    order: Order,
    durability: Durability,
    record_bytes: usize,
    clients: usize,
}

#[derive(Debug)]
struct Outcome {
    appended: u64,
    took: Duration,
    stall: Duration,
    view: u64,
    memory: u64,
    disk: u64,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, order, durability, record_bytes, clients } = self;
        write!(f, "| {setting:?} | {order} | {durability} | {record_bytes} | {clients} |")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { appended, took, stall, view, memory, disk } = self;
        let rate = *appended as f64 / took.as_secs_f64();
        let (memory, disk, stall) = (memory >> 20, disk >> 20, stall.as_millis());
        write!(f, " {appended} | {rate:.0} | {stall} | {view} | {memory} | {disk} |")
    }
}

const HEADING: &str = "\
| setting | order | durability | record bytes | clients | appended | per second | longest stall, ms | view | memory, MiB | disk, MiB |
|---|---|---|---|---|---|---|---|---|---|---|";

enum Servers {
    Dev { cluster: Cluster, _beside: Option<BusyLoop> },
    Nodes(Members),
}

impl Servers {
    async fn start(setting: Setting) -> Self {
        match setting {
            Setting::Alone => Self::Dev { cluster: Cluster::start(&[]).await, _beside: None },
            Setting::OneCore => {
                let here = Surroundings { has_one_core: true, ..Surroundings::default() };
                let cluster = Cluster::start_in(here, &[]).await;
                Self::Dev { cluster, _beside: Some(BusyLoop::start()) }
            }
            Setting::SlowSync => {
                let built = tempfile::tempdir().expect("a directory for the library");
                let slow = BTreeMap::from([(SLOW, Surroundings::slow_sync(built.path()))]);
                Self::Nodes(Members::start_in(3, slow).await)
            }
            Setting::LeaderKilled => Self::Nodes(Members::start(3).await),
        }
    }

    async fn client(&self) -> Client {
        match self {
            Self::Dev { cluster, .. } => cluster.client(DEADLINE).await,
            Self::Nodes(members) => members.client(DEADLINE).await,
        }
    }

    fn peak_memory(&self) -> u64 {
        match self {
            Self::Dev { cluster, .. } => cluster.peak_memory(),
            Self::Nodes(members) => members.peak_memory(),
        }
    }

    fn data(&self) -> Vec<PathBuf> {
        match self {
            Self::Dev { cluster, .. } => vec![cluster.data()],
            Self::Nodes(members) => members.numbers().map(|node| members.data(node)).collect(),
        }
    }

    async fn kill(&mut self, node: NodeId) {
        match self {
            Self::Dev { .. } => panic!("all nodes of `dev` are one process"),
            Self::Nodes(members) => members.kill(node).await,
        }
    }
}

/// Time of the last acknowledgement of any client, and the longest pause.
#[derive(Clone)]
struct Course(Arc<Mutex<(Instant, Duration)>>);

impl Course {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((Instant::now(), Duration::ZERO))))
    }

    fn acknowledged(&self) {
        let mut seen = self.0.lock().expect("nobody panics with it");
        let (last, longest) = *seen;
        *seen = (Instant::now(), longest.max(last.elapsed()));
    }

    fn stall(&self) -> Duration {
        self.0.lock().expect("nobody panics with it").1
    }
}

async fn append(log: Log, record_bytes: usize, until: Instant, course: Course) -> u64 {
    let payload = bytes::Bytes::from(vec![b'x'; record_bytes]);
    let order = log.entry().config.order;
    let (acknowledge, mut waiting) = tokio::sync::mpsc::channel::<Append>(WAITING);
    let acknowledged = tokio::spawn(async move {
        let mut count = 0;
        while let Some(append) = waiting.recv().await {
            append
                .await
                .unwrap_or_else(|cause| panic!("an append failed under load alone, {order}: {cause}"));
            count += 1;
            course.acknowledged();
        }
        count
    });
    while Instant::now() < until {
        let append = log.submit(payload.clone()).await.expect("nothing fails under load alone");
        acknowledge.send(append).await.expect("acknowledgements are waited for");
    }
    drop(acknowledge);
    acknowledged.await.expect("the task of acknowledgements ends")
}

/// Creates a log whose leader is not the register's node, which is spared.
async fn create(client: &Client, config: LogConfig) -> LogEntry {
    for number in 0..8 {
        let name = format!("load-{number}");
        let entry = client.create(&name, config.clone()).await.expect("the log is created");
        if entry.view.as_ref().is_some_and(|view| view.leader != REGISTER) {
            return entry;
        }
        client.delete(&name).await.expect("it is deleted");
    }
    panic!("all logs are led by {REGISTER}");
}

async fn run(cell: Cell, lasts: Duration) -> Outcome {
    let mut servers = Servers::start(cell.setting).await;
    let client = servers.client().await;
    let Cell { setting, order, durability, record_bytes, clients } = cell;
    let config = LogConfig { order, durability, ..LogConfig::default() };
    let entry = create(&client, config).await;
    let (name, leader) = (&entry.name, entry.view.as_ref().expect("it has a view").leader);
    let mut logs = vec![];
    for _ in 0..clients {
        logs.push(
            servers.client().await.log_with(name, LogOptions::default()).await.expect("the log is there"),
        );
    }
    let (began, course) = (Instant::now(), Course::new());
    let mut appenders = JoinSet::new();
    for log in logs {
        appenders.spawn(append(log, record_bytes, began + lasts, course.clone()));
    }
    let mut memory = 0;
    if setting == Setting::LeaderKilled {
        tokio::time::sleep_until((began + lasts / 2).into()).await;
        memory = servers.peak_memory();
        servers.kill(leader).await;
    }
    let mut appended = 0;
    while let Some(one) = appenders.join_next().await {
        appended += one.expect("an appender ends");
    }
    let (took, stall) = (began.elapsed(), course.stall());
    let found = count_records(&client, name, appended).await;
    assert_eq!(found, appended, "everything is there, once: {cell:?}");
    let view = client.lookup(name).await.expect("the log is there").view_number().0;
    let disk = servers.data().iter().map(|directory| bytes_below(directory)).sum();
    Outcome { appended, took, stall, view, memory: memory.max(servers.peak_memory()), disk }
}

async fn count_records(client: &Client, name: &str, expected: u64) -> u64 {
    let log = client.log(name).await.expect("the log is there");
    let events = log.subscribe(Position(0), SubscribeOptions::default()).await;
    let mut events = events.expect("it can be read");
    let mut found = 0;
    while found < expected
        && let Ok(Some(event)) = timeout(DEADLINE, events.next()).await
    {
        match event.expect("everything can be read") {
            Event::Deliver { .. } => found += 1,
            other => panic!("only records are delivered: {other:?}"),
        }
    }
    found
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("the directory can be read");
    entries
        .map(|entry| {
            let entry = entry.expect("the directory can be read");
            let about = entry.metadata().expect("files do not vanish while nobody writes");
            if about.is_dir() { bytes_below(&entry.path()) } else { about.len() }
        })
        .sum()
}

/// The violated rule, if any. Pauses count only in long runs: in short ones the start distorts
/// them.
fn objection(cell: Cell, outcome: &Outcome, is_long: bool) -> Option<&'static str> {
    // Two copies, and the overhead of short records.
    let records = 2 * outcome.appended * (cell.record_bytes as u64 + 200);
    let is_killed = cell.setting == Setting::LeaderKilled;
    match outcome {
        Outcome { view, .. } if !is_killed && *view != 1 => Some("nothing failed, and a view changed"),
        Outcome { stall, .. } if is_killed && is_long && *stall >= MOST_STALL => Some("a long gap"),
        Outcome { memory, .. } if *memory >= MEMORY_BYTES => Some("too much memory"),
        Outcome { disk, .. } if *disk >= records + DISK_BYTES => Some("too much of the disk"),
        _ => None,
    }
}

/// Runs the cells in sequence, and checks each outcome. Sleeps only during a load.
#[expect(clippy::print_stdout, reason = "the table is what a long run is for")]
async fn matrix(cells: impl IntoIterator<Item = Cell>, lasts: Duration, is_long: bool) {
    println!("\n{HEADING}");
    let mut objections = vec![];
    for cell in cells {
        let outcome = run(cell, lasts).await;
        println!("{cell}{outcome}");
        let objection = objection(cell, &outcome, is_long);
        objections.extend(objection.map(|why| format!("{why}: {cell:?}, {outcome:?}")));
    }
    assert!(objections.is_empty(), "{}", objections.join("\n"));
}

fn corners() -> Vec<Cell> {
    let durability = Durability::Disk;
    let cell =
        |setting, order, record_bytes, clients| Cell { setting, order, durability, record_bytes, clients };
    let short = Order::ALL.map(|order| cell(Setting::Alone, order, 4 << 10, 8));
    // Lazy orders acknowledge before ordering, so unordered records pile up.
    let lazy = || Order::ALL.into_iter().filter(|order| order.is_lazy());
    let large = lazy().map(|order| cell(Setting::Alone, order, 1 << 20, 4));
    // Records through sequencing replicas are written most often.
    let passing = Order::ALL.into_iter().filter(|order| order.announces() == Announced::Record);
    let on_one_core = passing.map(|order| cell(Setting::OneCore, order, 4 << 10, 8));
    let slow_sync = [cell(Setting::SlowSync, Order::default(), 4 << 10, 8)];
    let killed = Order::ALL.map(|order| cell(Setting::LeaderKilled, order, 4 << 10, 8));
    short.into_iter().chain(large).chain(on_one_core).chain(slow_sync).chain(killed).collect()
}

/// All combinations of sizes, clients, orders, durabilities and settings whose row begins with
/// `only`.
fn all_cells(only: Option<&str>) -> Vec<Cell> {
    let mut cells = vec![];
    let settings = [Setting::Alone, Setting::OneCore, Setting::SlowSync, Setting::LeaderKilled];
    for setting in settings {
        // A slow disk matters only where appends wait for it.
        let in_memory = (setting != Setting::SlowSync).then_some(Durability::Memory);
        for (order, durability) in Order::ALL.into_iter().flat_map(|order| {
            [Some(Durability::Disk), in_memory]
                .into_iter()
                .flatten()
                .map(move |durability| (order, durability))
        }) {
            for record_bytes in [100, 4 << 10, 64 << 10, 1 << 20] {
                let cell = |clients| Cell { setting, order, durability, record_bytes, clients };
                cells.extend([1, 8, 64].map(cell));
            }
        }
    }
    cells.retain(|cell| only.is_none_or(|only| cell.to_string().starts_with(only)));
    assert!(!cells.is_empty(), "no row begins with {only:?}");
    cells
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_load_than_the_machine_can_carry_slows_a_log_down_and_that_is_all() {
    let Ok(whole) = std::env::var("SERIATIM_RIG_LOAD_SECONDS") else {
        return matrix(corners(), Duration::from_secs(1), false).await;
    };
    let seconds = whole.parse().expect("a number of seconds");
    let only = std::env::var("SERIATIM_RIG_LOAD_ONLY").ok();
    matrix(all_cells(only.as_deref()), Duration::from_secs(seconds), true).await;
}
