//! Many logs with one client: creates the missing logs, opens all, and appends to each ten times a
//! second.
//!
//! ```sh
//! cargo run --release -p seriatim --example many_logs -- 127.0.0.1:7070 1000 60
//! ```
//!
//! Every half second it prints the number of logs that took an append since, the longest time that
//! a log has waited, and the number of failed appends. At the end it prints append latencies; every
//! second append waits for its position, too. Kill a node meanwhile to see when all logs have
//! appends again, or append to another log at full speed to see whether a quiet log slows down.
#![expect(clippy::print_stdout, reason = "this is what it is for")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use seriatim_client::{AppendOptions, Client, ClientOptions, ControlError, Log, LogConfig};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many logs are created, or opened, at the same time.
const AT_ONCE: usize = 64;
/// How often each log is appended to.
const EVERY: Duration = Duration::from_millis(100);
/// For so long appends do not count: where another log had its nodes to itself, its clients first
/// have to learn that it does not.
const WARM_UP: Duration = Duration::from_secs(2);
const TELL_EVERY: Duration = Duration::from_millis(500);

/// One log's appends.
#[derive(Default)]
struct Progress {
    /// When the last one was acknowledged, in milliseconds since the start.
    at_ms: AtomicU64,
    failed: AtomicU64,
    took: Mutex<Took>,
}

/// How long appends took.
#[derive(Default)]
struct Took {
    durable: Vec<Duration>,
    positioned: Vec<Duration>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("which address?")?;
    let count: usize = arguments.next().ok_or("how many logs?")?.parse()?;
    let seconds: u64 = arguments.next().map_or(Ok(30), |text| text.parse())?;
    let mut options = ClientOptions::default();
    options.deadline = Duration::from_secs(60);
    let client = Client::connect_with(&address, options).await?;
    let started = Instant::now();
    let logs = open_all(&client, count).await?;
    println!("{count} logs are open after {:.1} s", started.elapsed().as_secs_f64());
    let started = Instant::now();
    let mut all = vec![];
    for log in logs {
        let progress = Arc::new(Progress::default());
        all.push(Arc::clone(&progress));
        tokio::spawn(append(log, progress, started));
    }
    let mut tell = tokio::time::interval(TELL_EVERY);
    tell.tick().await;
    while started.elapsed() < Duration::from_secs(seconds) {
        tell.tick().await;
        let now = millis(started);
        let waits = |progress: &Arc<Progress>| now - progress.at_ms.load(Ordering::Relaxed).min(now);
        let fresh = all.iter().filter(|progress| waits(progress) < 500).count();
        let longest = all.iter().map(waits).max().unwrap_or(0);
        let failed: u64 = all.iter().map(|progress| progress.failed.load(Ordering::Relaxed)).sum();
        println!(
            "{:5.1} s: {fresh} of {count} logs go on, the longest wait is {longest} ms, {failed} failed",
            now as f64 / 1e3
        );
    }
    tell_how_long(&all, "", |took| &took.durable);
    tell_how_long(&all, ", until they had a position,", |took| &took.positioned);
    Ok(())
}

/// Says how long the appends of all logs took.
fn tell_how_long(all: &[Arc<Progress>], until: &str, of: impl Fn(&Took) -> &Vec<Duration>) {
    let mut took: Vec<Duration> = all.iter().flat_map(|progress| of(&progress.took()).clone()).collect();
    took.sort_unstable();
    let ms = |permille: usize| took[(took.len() - 1) * permille / 1000].as_secs_f64() * 1e3;
    if !took.is_empty() {
        let count = took.len();
        println!(
            "{count} appends{until} took {:.1} ms, p99 {:.1}, at most {:.1}",
            ms(500),
            ms(990),
            ms(1000)
        );
    }
}

impl Progress {
    fn took(&self) -> MutexGuard<'_, Took> {
        self.took.lock().expect("nobody panics")
    }
}

async fn open_all(client: &Client, count: usize) -> Result<Vec<Log>, ControlError> {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut opening = JoinSet::new();
    for number in 0..count {
        let (client, room) = (client.clone(), Arc::clone(&room));
        opening.spawn(async move {
            let _permit = room.acquire().await.expect("it is never closed");
            let name = format!("many-{number}");
            let config = LogConfig { shards: 1, ..LogConfig::default() };
            match client.create(&name, config).await {
                Ok(_) | Err(ControlError::Exists { .. }) => client.log(&name).await,
                Err(error) => Err(error),
            }
        });
    }
    let mut logs = vec![];
    while let Some(opened) = opening.join_next().await {
        logs.push(opened.expect("nobody panics")?);
    }
    Ok(logs)
}

async fn append(log: Log, progress: Arc<Progress>, started: Instant) {
    let mut every = tokio::time::interval(EVERY);
    for waits_for_position in [false, true].into_iter().cycle() {
        every.tick().await;
        let began = Instant::now();
        let usual = if waits_for_position { AppendOptions::sync() } else { AppendOptions::default() };
        match log.append("one of many", usual.within(Duration::from_secs(10))).await {
            Ok(_) => {
                progress.at_ms.store(millis(started), Ordering::Relaxed);
                if started.elapsed() < WARM_UP {
                    continue;
                }
                let mut took = progress.took();
                let of = if waits_for_position { &mut took.positioned } else { &mut took.durable };
                of.push(began.elapsed());
            }
            Err(_) => {
                progress.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
