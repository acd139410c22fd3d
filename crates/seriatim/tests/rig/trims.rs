//! Space that a trim frees on real disks: of idle logs, on full disks, and in journals.

use std::fs;
use std::path::Path;
use std::time::Duration;

use seriatim_client::{Client, LogUse, Order};

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};
use crate::workload::DEADLINE;

const LOOK_EVERY: Duration = Duration::from_millis(50);
const FREED_WITHIN: Duration = Duration::from_secs(5);
/// Time limit until nodes apply a new limit.
const LIMITED_WITHIN: Duration = Duration::from_secs(70);
const EMPTY_BYTES: u64 = 1 << 20;
/// Records per log, and their bytes: together more than `EMPTY_BYTES`.
const LINES: u32 = 4000;
const LINE_BYTES: usize = 1000;

fn lines() -> Vec<u8> {
    (0..LINES).flat_map(|number| format!("{number:0width$}\n", width = LINE_BYTES).into_bytes()).collect()
}

async fn within_for<T>(most: Duration, mut look: impl AsyncFnMut() -> Result<(), T>) -> Result<(), T> {
    let began = tokio::time::Instant::now();
    let mut again = tokio::time::interval(LOOK_EVERY);
    loop {
        again.tick().await;
        match look().await {
            Err(_) if began.elapsed() < most => {}
            outcome => return outcome,
        }
    }
}

async fn use_of(client: &Client, name: &str) -> LogUse {
    client.log_use(&client.lookup(name).await.expect("it is there")).await
}

async fn is_freed(client: &Client, name: &str) {
    let looking = within_for(FREED_WITHIN, async || {
        let usage = use_of(client, name).await;
        let is_freed = usage.silent.is_empty() && usage.nodes.values().all(|bytes| *bytes < EMPTY_BYTES);
        if is_freed { Ok(()) } else { Err(usage) }
    });
    looking.await.unwrap_or_else(|usage| panic!("{name} keeps its room: {usage:?}"));
}

async fn filled(cli: &CommandLine) -> Vec<String> {
    let names: Vec<String> = Order::ALL.iter().map(|order| format!("log-{order}")).collect();
    for (name, order) in names.iter().zip(Order::ALL) {
        cli.good(&["log", "create", name, "--order", &order.to_string()]).await;
        cli.good_on(&["append", name], &lines()).await;
    }
    names
}

async fn trim_to_tail(cli: &CommandLine, name: &str) {
    let tail = cli.good(&["check-tail", name]).await;
    let said = cli.good(&["trim", name, text(&tail).trim()]).await;
    assert!(text(&said).starts_with("trimmed to ") && text(&said).contains(": freed "), "{}", text(&said));
}

/// Default idle time before a trim, in milliseconds: nodes have noted the stable bound by then.
const PAUSE_MS: u64 = 2000;

fn pause() -> Duration {
    let Ok(text) = std::env::var("SERIATIM_RIG_TRIM_PAUSE_MS") else {
        return Duration::from_millis(PAUSE_MS);
    };
    let millis =
        text.parse().unwrap_or_else(|_| panic!("SERIATIM_RIG_TRIM_PAUSE_MS needs a number, not '{text}'"));
    Duration::from_millis(millis)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trim_frees_the_room_of_a_log_that_was_just_appended_to() {
    a_trim_frees_room_after(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trim_frees_the_room_of_a_quiet_log() {
    a_trim_frees_room_after(pause()).await;
}

async fn a_trim_frees_room_after(pause: Duration) {
    let cluster = Cluster::start(&[]).await;
    let (cli, client) = (CommandLine::new(cluster.address()), cluster.client(DEADLINE).await);
    let names = filled(&cli).await;
    tokio::time::sleep(pause).await;
    // Trim the log with the last append first.
    for name in names.iter().rev() {
        let before = use_of(&client, name).await;
        assert!(before.bytes > u64::from(LINES) * LINE_BYTES as u64, "{name}: {before:?}");
        trim_to_tail(&cli, name).await;
        is_freed(&client, name).await;
    }
    // After the trim, new records do not keep trimmed segments on disk.
    for name in &names {
        cli.good_on(&["append", name], b"one more\n").await;
        assert_eq!(text(&cli.good(&["read", name]).await), "one more\n");
        is_freed(&client, name).await;
    }
    assert_eq!(cluster.complaints(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trim_after_a_restart_and_a_limit_free_the_room_of_a_log() {
    let mut cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    let names = filled(&cli).await;
    cluster.kill_and_restart().await;
    let [limited, rest @ ..] = &names[..] else { panic!("there are several orderings") };
    cli.good(&["log", "set", limited, "--retain-age", "1s"]).await;
    for name in rest {
        trim_to_tail(&cli, name).await;
    }
    // Only the disks hold the trim point now.
    cluster.kill_and_restart().await;
    let client = cluster.client(DEADLINE).await;
    for name in rest {
        is_freed(&client, name).await;
    }
    let limited = within_for(LIMITED_WITHIN, async || {
        let usage = use_of(&client, limited).await;
        if usage.once < EMPTY_BYTES { Ok(()) } else { Err(usage) }
    });
    limited.await.unwrap_or_else(|usage| panic!("the limit frees nothing: {usage:?}"));
}

/// Content that must disappear from all files after a trim.
const SECRET: &str = "SECRETxyz";
/// Time limit: the nodes' pause, and a checkpoint on a busy machine.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(15);

fn files_with(directory: &Path, bytes: &[u8]) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let found = entries.flat_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files_with(&entry.path(), bytes),
        // A node may delete a file meanwhile.
        _ => {
            let content = fs::read(entry.path()).unwrap_or_default();
            let has_it = content.windows(bytes.len()).any(|window| window == bytes);
            has_it.then(|| entry.path().display().to_string()).into_iter().collect()
        }
    });
    found.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trimmed_and_deleted_records_leave_the_journals_of_idle_nodes() {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    let names: Vec<String> = Order::ALL.iter().map(|order| format!("log-{order}")).collect();
    for (name, order) in names.iter().zip(Order::ALL) {
        cli.good(&["log", "create", name, "--order", &order.to_string()]).await;
        cli.good_on(&["append", name], format!("{SECRET}\n").as_bytes()).await;
    }
    let data = cluster.data();
    let found = files_with(&data, SECRET.as_bytes());
    assert!(found.iter().any(|file| file.contains("/journal/")), "{found:?}");
    // Concurrently: a trim after the nodes' cleanup would wait minutes for the next one.
    let mut tasks = tokio::task::JoinSet::new();
    for (place, name) in names.into_iter().enumerate() {
        let cli = cli.clone();
        tasks.spawn(async move {
            match place % 2 {
                0 => drop(cli.good(&["log", "delete", &name]).await),
                _ => trim_to_tail(&cli, &name).await,
            }
        });
    }
    tasks.join_all().await;
    let forgotten = within_for(FORGOTTEN_WITHIN, async || {
        let found = files_with(&data, SECRET.as_bytes());
        if found.is_empty() { Ok(()) } else { Err(found) }
    });
    forgotten.await.unwrap_or_else(|found| panic!("it is still in {found:?}"));
    assert_eq!(cluster.complaints(), "");
}
