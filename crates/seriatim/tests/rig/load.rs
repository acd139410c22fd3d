//! More load than the machine can carry: the log slows down, and nothing else happens. No append fails, no view changes,
//! memory and disk stay within their bounds, and everything is there afterwards.
//!
//! The corners run with all tests, for a second each. `SERIATIM_RIG_LOAD_SECONDS` runs the whole matrix, so long for each
//! cell, and prints it as a table (`cargo xtask soak` does).

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use seriatim_client::{Append, Client, Durability, Event, Log, LogConfig, Order, Position, SubscribeOptions};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cluster::Cluster;

/// What a cluster of three nodes in one process may hold in memory, whatever it is given to do.
const MEMORY_BYTES: u64 = 768 << 20;
/// What three nodes may have on their disks beside the copies of records: journals, and what is preallocated.
const DISK_BYTES: u64 = 3 << 30;
/// How long an append may take before that counts as a failure.
const DEADLINE: Duration = Duration::from_secs(60);
/// How many receipts one client waits for at the same time at most.
const WAITING: usize = 64 << 10;

/// One kind of load.
#[derive(Clone, Copy, Debug)]
struct Cell {
    order: Order,
    durability: Durability,
    record_bytes: usize,
    clients: usize,
}

/// What came of it.
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
        let Self { order, durability, record_bytes, clients } = self;
        write!(f, "| {order} | {durability} | {record_bytes} | {clients} |")
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

const ORDERS: [Order; 4] = [Order::ErwinBb, Order::ErwinSt, Order::Corfu, Order::Scalog];

const HEADING: &str = "\
| order | durability | record bytes | clients | appended | per second | longest stall, ms | view | memory, MiB | disk, MiB |
|---|---|---|---|---|---|---|---|---|---|";

/// Appends at full speed until `until`. Returns how many appends were acknowledged, and the longest that none was.
async fn append(log: Log, record_bytes: usize, until: Instant) -> (u64, Duration) {
    let payload = bytes::Bytes::from(vec![b'x'; record_bytes]);
    let order = log.entry().config.order;
    let (acknowledge, mut waiting) = tokio::sync::mpsc::channel::<Append>(WAITING);
    let acknowledged = tokio::spawn(async move {
        let (mut count, mut last, mut stall) = (0, Instant::now(), Duration::ZERO);
        while let Some(append) = waiting.recv().await {
            append
                .await
                .unwrap_or_else(|cause| panic!("an append failed under load alone, {order}: {cause}"));
            (count, stall) = (count + 1, stall.max(last.elapsed()));
            last = Instant::now();
        }
        (count, stall)
    });
    while Instant::now() < until {
        let append = log.submit(payload.clone()).await.expect("nothing fails under load alone");
        acknowledge.send(append).await.expect("acknowledgements are waited for");
    }
    drop(acknowledge);
    acknowledged.await.expect("the task of acknowledgements ends")
}

async fn run(cell: Cell, lasts: Duration) -> Outcome {
    let cluster = Cluster::start(&[]).await;
    let client = cluster.client(DEADLINE).await;
    let Cell { order, durability, record_bytes, clients } = cell;
    let config = LogConfig { order, durability, ..LogConfig::default() };
    client.create("load", config).await.expect("the log is created");
    let began = Instant::now();
    let mut appenders = JoinSet::new();
    for _ in 0..clients {
        let log = cluster.client(DEADLINE).await.log("load").await.expect("the log is there");
        appenders.spawn(append(log, record_bytes, began + lasts));
    }
    let (mut appended, mut stall) = (0, Duration::ZERO);
    while let Some(one) = appenders.join_next().await {
        let (count, longest) = one.expect("an appender ends");
        (appended, stall) = (appended + count, stall.max(longest));
    }
    let took = began.elapsed();
    let found = count_records(&client, appended).await;
    assert_eq!(found, appended, "everything is there, once: {cell:?}");
    let view = view_of(&client).await;
    let (memory, disk) = (cluster.peak_memory(), bytes_below(&cluster.data()));
    Outcome { appended, took, stall, view, memory, disk }
}

/// Reads until as many records came as there should be, or none comes any more, and counts them.
async fn count_records(client: &Client, expected: u64) -> u64 {
    let log = client.log("load").await.expect("the log is there");
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

async fn view_of(client: &Client) -> u64 {
    client.lookup("load").await.expect("the log is there").view_number().0
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

/// The rule that the outcome of a load breaks, if it breaks one.
fn objection(cell: Cell, outcome: &Outcome) -> Option<&'static str> {
    // Two copies, and what surrounds short records.
    let records = 2 * outcome.appended * (cell.record_bytes as u64 + 200);
    match outcome {
        Outcome { view, .. } if *view != 1 => Some("nothing failed, and a view changed"),
        Outcome { memory, .. } if *memory >= MEMORY_BYTES => Some("too much memory"),
        Outcome { disk, .. } if *disk >= records + DISK_BYTES => Some("too much of the disk"),
        _ => None,
    }
}

/// Nothing is waited for here but the end of each load.
#[expect(clippy::print_stdout, reason = "the table is what a long run is for")]
async fn matrix(cells: impl Iterator<Item = Cell>, lasts: Duration) {
    println!("\n{HEADING}");
    let mut objections = vec![];
    for cell in cells {
        let outcome = run(cell, lasts).await;
        println!("{cell}{outcome}");
        objections.extend(objection(cell, &outcome).map(|why| format!("{why}: {cell:?}, {outcome:?}")));
    }
    assert!(objections.is_empty(), "{}", objections.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_load_than_the_machine_can_carry_slows_a_log_down_and_that_is_all() {
    let whole = std::env::var("SERIATIM_RIG_LOAD_SECONDS").ok();
    let seconds = whole.as_ref().map(|text| text.parse().expect("a number of seconds"));
    let lasts = Duration::from_secs(seconds.unwrap_or(1));
    let disk = Durability::Disk;
    if seconds.is_none() {
        let cell = |order, record_bytes, clients| Cell { order, durability: disk, record_bytes, clients };
        let short = ORDERS.map(|order| cell(order, 4 << 10, 8));
        let large = [cell(Order::ErwinSt, 1 << 20, 4), cell(Order::ErwinBb, 1 << 20, 4)];
        return matrix(short.into_iter().chain(large), lasts).await;
    }
    let mut cells = vec![];
    for (order, durability) in ORDERS.iter().flat_map(|order| [(*order, disk), (*order, Durability::Memory)])
    {
        for record_bytes in [100, 4 << 10, 64 << 10, 1 << 20] {
            cells.extend([1, 8, 64].map(|clients| Cell { order, durability, record_bytes, clients }));
        }
    }
    matrix(cells.into_iter(), lasts).await;
}
