//! Limits of logs, and positions by time, on real disks and clocks.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use seriatim_client::{
    AppendOptions, Client, ControlError, LimitChange, Log, LogConfig, LogEntry, LogUse, NodeId, Position,
    Retention, RetentionChange,
};

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};
use crate::members::Members;
use crate::workload::DEADLINE;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time limit for applying limits: on an idle log, a failed round is repeated after a minute.
const APPLIED_WITHIN: Duration = Duration::from_secs(150);

const MIB: u64 = 1 << 20;

pub(crate) async fn until<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    found(look).await.unwrap_or_else(|| panic!("never: {what}"))
}

async fn found<T>(mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let looking = async {
        let mut again = tokio::time::interval(LOOK_EVERY);
        loop {
            again.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    tokio::time::timeout(APPLIED_WITHIN, looking).await.ok()
}

async fn use_when(client: &Client, name: &str, what: &str, is_so: impl Fn(&LogUse) -> bool) -> LogUse {
    let mut latest = LogUse::default();
    let looking = found(async || {
        let entry = client.lookup(name).await.expect("it is there");
        latest = client.log_use(&entry).await;
        (latest.silent.is_empty() && is_so(&latest)).then(|| latest.clone())
    });
    looking.await.unwrap_or_else(|| panic!("never: {what}; at last {latest:?}"))
}

fn bytes_in(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        Ok(found) => found.len(),
        // A node deleted the file meanwhile.
        Err(_) => 0,
    });
    sizes.sum()
}

fn limited(retention: Retention) -> LogConfig {
    LogConfig { shards: 1, retention, ..LogConfig::default() }
}

pub(crate) fn lines(numbers: std::ops::Range<u32>, length: usize) -> Vec<u8> {
    numbers.flat_map(|number| format!("{number:0length$}\n").into_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_bytes_bounds_what_a_long_append_takes() {
    let mut cluster = Cluster::start(&[]).await;
    let client = cluster.client(DEADLINE).await;
    let retention = Retention { bytes: Some(MIB), ..Retention::default() };
    let entry = client.create("small", limited(retention)).await.expect("it is created");
    let cli = CommandLine::new(cluster.address());
    // Bytes beyond the limit: a partial segment, an open one, and their indexes.
    let slack = MIB / 2;
    for round in 0..6 {
        cli.good_on(&["append", "small"], &lines(round * 2000..(round + 1) * 2000, 1000)).await;
        let usage = use_when(&client, "small", "the limit is kept", |usage| usage.once <= MIB + slack).await;
        assert!(usage.once >= MIB / 2, "no more is trimmed than has to be: {usage:?}");
        let directory = format!("logs/{:016x}", entry.id.0);
        // Files are deleted after the trim is durable. After a restart a replica may have records
        // twice.
        until("two replicas have deleted what was trimmed", async || {
            let nodes = fs::read_dir(cluster.data()).expect("the nodes' data").flatten();
            let on_disk: u64 = nodes.map(|node| bytes_in(&node.path().join(&directory))).sum();
            (on_disk <= 2 * (MIB + 2 * slack) + MIB).then_some(())
        })
        .await;
        if round == 2 {
            cluster.kill_and_restart().await;
        }
    }
    let printed = cli.good(&["read", "small"]).await;
    let last = text(&printed).lines().last().expect("something is kept").to_owned();
    assert_eq!(last.trim_start_matches('0'), "11999");
    let shown = cli.good(&["log", "show", "small"]).await;
    let shown = text(&shown);
    assert!(shown.contains("keeps             at most 1.00 MiB"), "{shown}");
    assert!(shown.contains("disk of node ") && shown.contains("disks in all "), "{shown}");
    assert_eq!(cluster.complaints(), "");
}

async fn count(cli: &CommandLine, name: &str) -> usize {
    text(&cli.good(&["read", name]).await).lines().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_changed_while_a_log_is_used() {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "a", "--retain-records", "100"]).await;
    cli.good_on(&["append", "a"], &lines(0..1000, 4)).await;
    until("100 are left", async || (count(&cli, "a").await == 100).then_some(())).await;
    let said = cli.good(&["log", "set", "a", "--retain-records", "none"]).await;
    assert_eq!(text(&said), "'a' keeps everything until it is trimmed\n");
    cli.good_on(&["append", "a"], &lines(1000..1500, 4)).await;
    let said = cli.good(&["log", "set", "a", "--retain-records", "7", "--retain-age", "1d"]).await;
    assert_eq!(text(&said), "'a' keeps records for 1day, the last 7 positions\n");
    until("7 are left", async || (count(&cli, "a").await == 7).then_some(())).await;
    let printed = cli.good(&["read", "a"]).await;
    assert_eq!(text(&printed).lines().next(), Some("1493"));
    let shown = cli.good(&["log", "show", "a"]).await;
    assert!(text(&shown).contains("\npositions         7, from 1493 on"), "{}", text(&shown));
    let shown = cli.good(&["log", "show", "a", "--json"]).await;
    let shown: serde_json::Value = serde_json::from_slice(&shown).expect("it is JSON");
    assert_eq!((&shown["retain_records"], &shown["use"]["first"]), (&7.into(), &1493.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_records_go_and_new_ones_stay() {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "a", "--retain-age", "3s"]).await;
    let began = SystemTime::now();
    cli.good_on(&["append", "a"], &lines(0..500, 4)).await;
    until("they are too old", async || (count(&cli, "a").await == 0).then_some(())).await;
    let took = began.elapsed().expect("this machine's clock is right");
    assert!(took >= Duration::from_secs(3) * 10 / 11, "they were younger than {took:?}");
    cli.good_on(&["append", "a"], &lines(500..600, 4)).await;
    assert_eq!(count(&cli, "a").await, 100);
}

/// Appends records until a time mark covers them. Returns the position, and a later time.
async fn noted(log: &Log, numbers: std::ops::Range<u32>) -> (Position, SystemTime) {
    for number in numbers {
        log.append(number.to_string(), AppendOptions::default()).await.expect("it is appended");
    }
    let tail = log.check_tail().await.expect("it has a tail");
    let look = async || {
        let now = SystemTime::now();
        let position = log.position_at(now).await.expect("it is told");
        (position == tail).then_some(now)
    };
    (tail, until("it is noted how far the log is", look).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_is_found_after_a_restart() {
    let mut cluster = Cluster::start(&[]).await;
    let client = cluster.client(DEADLINE).await;
    client.create("a", LogConfig::default()).await.expect("it is created");
    let log = client.log("a").await.expect("it is there");
    let before = SystemTime::now();
    let (first, then) = noted(&log, 0..50).await;
    let (second, later) = noted(&log, 50..80).await;
    noted(&log, 80..90).await;
    for round in 0..2 {
        let mut found = vec![];
        for time in [before, then, later] {
            found.push(log.position_at(time).await.expect("it is told"));
        }
        assert_eq!(found, [Position::ZERO, first, second], "round {round}");
        cluster.kill_and_restart().await;
    }
    let cli = CommandLine::new(cluster.address());
    let text_of = |time: SystemTime| humantime::format_rfc3339_millis(time).to_string();
    let said = cli.good(&["seek", "a", "--time", &text_of(then)]).await;
    assert_eq!(text(&said), format!("{first}\n"));
    let said = cli.good(&["read", "a", "--from", text(&said).trim_end(), "--count", "1"]).await;
    assert_eq!(text(&said), "50\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_is_found_and_limits_are_kept_when_all_replicas_were_replaced() {
    let mut members = Members::start(5).await;
    let client = members.client(DEADLINE).await;
    let (name, replicas) = elsewhere_than_on_the_first_node(&client).await;
    let log = client.log(&name).await.expect("it is there");
    let (first, then) = noted(&log, 0..50).await;
    let (second, later) = noted(&log, 50..60).await;
    for lost in replicas {
        members.kill(lost).await;
        until("another node stands in", async || {
            let entry = client.lookup(&name).await.ok()?;
            let members = &entry.view.as_ref()?.shards[0].replicas;
            let is_replaced = members.len() == 2 && members.iter().all(|member| member.node != lost);
            is_replaced.then_some(())
        })
        .await;
        noted(&log, 0..1).await;
    }
    assert_eq!(log.position_at(then).await, Ok(first));
    assert_eq!(log.position_at(later).await, Ok(second));
    let change =
        RetentionChange { age_ms: LimitChange::Keep, bytes: LimitChange::Keep, records: LimitChange::Set(5) };
    client.set_retention(&name, change).await.expect("it is changed");
    let usage = use_when(&client, &name, "5 are left", |usage| usage.stable.since(usage.first) == 5).await;
    assert_eq!(usage.stable, log.check_tail().await.expect("it has a tail"));
}

/// A log without replicas on the register's node, and its nodes.
async fn elsewhere_than_on_the_first_node(client: &Client) -> (String, Vec<NodeId>) {
    let nodes = |entry: &LogEntry| -> Vec<NodeId> {
        let view = entry.view.as_ref().expect("it has a view");
        view.shards[0].replicas.iter().map(|member| member.node).collect()
    };
    for number in 0..5 {
        let name = format!("log-{number}");
        let config = LogConfig { shards: 1, replicas: 2, min_replicas: 1, ..LogConfig::default() };
        let entry = client.create(&name, config).await.expect("it is created");
        if !nodes(&entry).contains(&NodeId(1)) {
            return (name, nodes(&entry));
        }
    }
    panic!("all logs have a replica on node 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_times_that_nobody_can_mean_are_refused_in_words() {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "a"]).await;
    for (option, value, words) in [
        ("--retain-age", "soon", "'soon' is not a duration; use a unit, for example 7d, 12h or 90s"),
        ("--retain-age", "1ms", "records are kept for 1 s to 36500 days, not for 0.001 s"),
        ("--retain-age", "-1d", "'-1d' is not a duration"),
        ("--retain-bytes", "10", "a log keeps 64 KiB to 256 PiB, not 10 bytes"),
        ("--retain-bytes", "much", "'much' is not a number of bytes; give one such as 10GiB"),
        ("--retain-bytes", "99999999999TiB", "is not a number of bytes"),
        ("--retain-records", "0", "not 0"),
        ("--retain-records", "-5", "'-5' is not a number of positions"),
    ] {
        let value = format!("{option}={value}");
        for arguments in [["log", "set", "a", &value], ["log", "create", "b", &value]] {
            let output = cli.run(&arguments).await;
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
            assert!(said.contains(words), "{arguments:?}: {said}");
        }
    }
    let (_, said) = cli.bad(&["log", "set", "a"]).await;
    assert!(said.contains("nothing to change: give --retain-age"), "{said}");
    let (_, said) = cli.bad(&["log", "set", "nobody", "--retain-records", "1"]).await;
    assert!(said.contains("there is no log 'nobody'"), "{said}");
    let output = cli.run(&["seek", "a", "--time", "yesterday"]).await;
    assert!(text(&output.stderr).contains("'yesterday' is not a time; give a date, such as"));
    for before in ["1h ago", "100000000", "1973-03-03T12:00+02:00"] {
        assert_eq!(cli.good(&["seek", "a", "--time", before]).await, b"0\n", "{before}");
    }
    // The register checks independently of the command line.
    let client = cluster.client(DEADLINE).await;
    let config = limited(Retention { bytes: Some(1), ..Retention::default() });
    let refusal = client.create("b", config).await.expect_err("no log keeps so little");
    assert!(
        matches!(&refusal, ControlError::Impossible { reason } if reason.contains("not 1 bytes")),
        "{refusal}"
    );
    assert_eq!(text(&cli.good(&["log", "list"]).await), "a\n");
}
