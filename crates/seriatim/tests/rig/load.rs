//! More load than the machine can carry: the log slows down, and nothing else happens. No append
//! fails, no view changes, memory and disk stay within their bounds, and everything is there
//! afterwards. So it is on a machine with nothing else to do, on one core beside a busy loop, and
//! when one node's disk is slow; and when the leader is killed in the middle, one second is all
//! that is lost.
//!
//! The corners run with all tests, for a second each. `SERIATIM_RIG_LOAD_SECONDS` runs the whole
//! matrix, so long for each cell, and prints it as a table (`cargo xtask soak` does).
//! `SERIATIM_RIG_LOAD_ONLY` picks the rows that begin with it.

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

/// The memory that a cluster of three nodes may use, whatever it is given to do.
const MEMORY_BYTES: u64 = 768 << 20;
/// The disk space of three nodes beside the copies of records, at most: journals, and what is
/// preallocated.
const DISK_BYTES: u64 = 3 << 30;
/// How long an append may take before that counts as a failure.
const DEADLINE: Duration = Duration::from_secs(60);
/// How many receipts one client waits for at the same time at most.
const WAITING: usize = 64 << 10;
/// How long nothing may be acknowledged when the leader is killed.
const MOST_STALL: Duration = Duration::from_secs(1);

/// The conditions that the cluster has to put up with beside the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// Nothing.
    Alone,
    /// All of it has one core, and a busy loop has the same.
    OneCore,
    /// Each sync of one node's disk takes 50 ms longer.
    SlowSync,
    /// The leader is killed in the middle.
    LeaderKilled,
}

/// The node that has the register.
const REGISTER: NodeId = NodeId(1);
/// The node whose disk is slow.
const SLOW: NodeId = NodeId(2);

/// One kind of load.
#[derive(Clone, Copy, Debug)]
struct Cell {
    setting: Setting,
    order: Order,
    durability: Durability,
    record_bytes: usize,
    clients: usize,
}

/// The outcome of a cell.
#[derive(Debug)]
struct Outcome {
    appended: u64,
    took: Duration,
    /// The longest that nothing was acknowledged.
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

/// The servers of a load: `dev`, or one process for each node.
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

/// When all clients together had something acknowledged.
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

    /// The longest that nothing was acknowledged.
    fn stall(&self) -> Duration {
        self.0.lock().expect("nobody panics with it").1
    }
}

/// Appends at full speed until `until`. Returns how many appends were acknowledged.
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

/// Creates a log that is led by another node than the one that has the register, and that is
/// spared.
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

/// Reads until as many records came as there should be, or none comes any more, and counts them.
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

/// The rule that the outcome of a load breaks, if it breaks one. How long it stalled counts only
/// where there is time to make good what the start took.
fn objection(cell: Cell, outcome: &Outcome, is_long: bool) -> Option<&'static str> {
    // Two copies, and what surrounds short records.
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

/// Nothing is waited for here but the end of each load.
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

/// The corners of the matrix, which run with all tests.
fn corners() -> Vec<Cell> {
    let durability = Durability::Disk;
    let cell =
        |setting, order, record_bytes, clients| Cell { setting, order, durability, record_bytes, clients };
    let short = Order::ALL.map(|order| cell(Setting::Alone, order, 4 << 10, 8));
    // Where appends are acknowledged before they are ordered, what is to be ordered piles up.
    let lazy = || Order::ALL.into_iter().filter(|order| order.is_lazy());
    let large = lazy().map(|order| cell(Setting::Alone, order, 1 << 20, 4));
    // A record that passes through the sequencing replicas is written most often.
    let passing = Order::ALL.into_iter().filter(|order| order.announces() == Announced::Record);
    let on_one_core = passing.map(|order| cell(Setting::OneCore, order, 4 << 10, 8));
    let slow_sync = [cell(Setting::SlowSync, Order::default(), 4 << 10, 8)];
    let killed = Order::ALL.map(|order| cell(Setting::LeaderKilled, order, 4 << 10, 8));
    short.into_iter().chain(large).chain(on_one_core).chain(slow_sync).chain(killed).collect()
}

/// All sizes, numbers of clients, orders and durabilities, in each setting; of these the rows that
/// begin so.
fn all_cells(only: Option<&str>) -> Vec<Cell> {
    let mut cells = vec![];
    let settings = [Setting::Alone, Setting::OneCore, Setting::SlowSync, Setting::LeaderKilled];
    for setting in settings {
        // A disk that is slow matters where it is waited for.
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
