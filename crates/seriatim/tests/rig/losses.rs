//! Losses of a killed log at durability `memory`, and their reports. Also proves that the lossy
//! disk loses unsynced writes.

use std::time::Duration;

use bytes::Bytes;
use rustix::process::Signal;
use seriatim_client::{AppendError, AppendOptions, Client, Durability, Log, LogConfig, Order, Position};
use seriatim_node::RealDisk;
use seriatim_store::{Disk, VolatileDisk};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};
use crate::events::told;
use crate::workload::DEADLINE;

const FINAL: u64 = 1000;

/// Time limit of an operation that must fail.
const BRIEF: Duration = Duration::from_secs(2);

fn config(order: Order, durability: Durability) -> LogConfig {
    LogConfig { order, durability, stripe: 7, ..LogConfig::default() }
}

fn payload(position: u64) -> Bytes {
    format!("record {position} {}", "x".repeat(position as usize % 90)).into()
}

/// Creates a log with `FINAL` records that all shards know to be stable.
async fn filled(client: &Client, name: &str, order: Order, durability: Durability) -> Log {
    client.create(name, config(order, durability)).await.expect("the log is created");
    let log = client.log(name).await.expect("it is there");
    for position in 0..FINAL - 1 {
        let append = log.submit(payload(position)).await.expect("there is room");
        tokio::spawn(append);
    }
    let last = log.append_sync(payload(FINAL - 1)).await.expect("the last record is final");
    assert!(last == Position(FINAL - 1) || order.has_quotas(), "{name}: the last is at {last}");
    // Shards learn the stable bound after the client.
    assert_eq!(read_prefix(&log, FINAL).await, (FINAL, None), "{name}: it is there");
    log
}

/// Reads and compares the prefix. Returns its length, and the error that ended it. Waits for
/// records below `expected`.
async fn read_prefix(log: &Log, expected: u64) -> (u64, Option<String>) {
    read_run(log, Position(0), 0..expected).await
}

/// As `read_prefix`, from the position of the first expected record.
async fn read_run(log: &Log, from: Position, expected: std::ops::Range<u64>) -> (u64, Option<String>) {
    let may_skip = log.entry().config.order.has_quotas();
    let (mut next, mut count) = (from, expected.start);
    loop {
        let wait = if count < expected.end { BRIEF } else { Duration::ZERO };
        match log.read(next, 300, wait).await {
            Ok(records) if records.is_empty() => return (count, None),
            Ok(records) => {
                for stored in records {
                    assert!(stored.position == next || may_skip, "{} came for {next}", stored.position);
                    assert_eq!(stored.record.payload(), payload(count));
                    (next, count) = (stored.position + 1, count + 1);
                }
            }
            Err(cause) => return (count, Some(cause.to_string())),
        }
    }
}

async fn positions(log: &Log) -> Vec<Position> {
    let mut positions: Vec<Position> = vec![];
    while positions.len() < FINAL as usize {
        let next = positions.last().map_or(Position(0), |last| *last + 1);
        let records = log.read(next, 300, BRIEF).await.expect("it is there");
        positions.extend(records.into_iter().map(|stored| stored.position));
    }
    positions
}

/// After a kill the in-memory log is unavailable, says so, and keeps final records.
pub(crate) async fn lose_memory(order: Order) {
    let mut cluster = Cluster::start(&[]).await;
    let client = cluster.client(BRIEF).await;
    let log = filled(&client, "m", order, Durability::Memory).await;
    // Shards write final records in the background, within 10 ms on an idle machine.
    tokio::time::sleep(Duration::from_millis(200)).await;
    for round in 0..2 {
        if round == 0 {
            // More appends are in flight at the kill.
            for number in 0..200 {
                drop(log.submit(payload(FINAL + number)).await.expect("there is room"));
            }
        }
        cluster.kill_and_restart().await;
        unavailable(&cluster, &log).await;
    }
    // An orderly stop does not hide the lost memory.
    assert!(cluster.stop(Signal::TERM).await.success());
    cluster.spawn();
    cluster.ready().await;
    unavailable(&cluster, &log).await;
    let cli = CommandLine::new(cluster.address());
    let (printed, said) = cli.bad(&["read", "m"]).await;
    let lines = printed.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert!(lines >= FINAL && said.contains("memory"), "{lines} lines, then: {said}");
    cli.good(&["log", "delete", "m"]).await;
    let order = order.to_string();
    cli.good(&["log", "create", "m", "--durability", "memory", "--order", &order]).await;
    assert_eq!(cli.good_on(&["append", "m", "--sync"], b"new\n").await, b"");
    assert_eq!(cli.good(&["read", "m"]).await, b"new\n");
}

async fn create(cli: &CommandLine, order: Order, shards: &str) {
    let name = order.to_string();
    let create = ["log", "create", "x", "--order", &name, "--durability", "memory"];
    cli.good(&[&create[..], &["--shards", shards, "--replicas", "2"]].concat()).await;
}

/// Appends to a shard, if clients may choose it.
async fn append_to(cli: &CommandLine, order: Order, shard: &str, numbers: std::ops::Range<u64>) {
    let lines: Vec<Bytes> = numbers.flat_map(|number| [payload(number), "\n".into()]).collect();
    let chosen = if order.places_by_position() { &[][..] } else { &["--shard", shard] };
    cli.good_on(&[&["append", "x", "--sync"], chosen].concat(), &lines.concat()).await;
    // Shards write final records in the background.
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// The final records of a late shard survive a kill of all processes and an accepted loss.
pub(crate) async fn keep_an_added_shard(order: Order) {
    let mut cluster = Cluster::start(&["--nodes", "4"]).await;
    let cli = CommandLine::new(cluster.address());
    create(&cli, order, "1").await;
    append_to(&cli, order, "0", 0..400).await;
    cli.good(&["log", "add-shard", "x"]).await;
    append_to(&cli, order, "1", 400..1000).await;
    append_to(&cli, order, "0", 1000..1400).await;
    for _ in 0..2 {
        cluster.kill_and_restart().await;
        let log = cluster.client(BRIEF).await.log("x").await.expect("it is listed");
        let (end, error) = read_prefix(&log, 1400).await;
        assert_eq!(end, 1400, "{order}: {error:?}");
    }
    let told = cli.good(&["admin", "recover", "x"]).await;
    assert!(!text(&told).contains("except"), "{order}: {}", text(&told));
    cli.good(&["admin", "recover", "x", "--accept-loss"]).await;
    let log = cluster.client(BRIEF).await.log("x").await.expect("it is listed");
    assert_eq!(read_prefix(&log, 1400).await, (1400, None), "{order}");
}

/// After a shard lost everything and an operator accepted it, a kill of all processes keeps its
/// newer records.
pub(crate) async fn keep_what_follows_a_loss(order: Order) {
    let mut cluster = Cluster::start(&["--nodes", "4"]).await;
    let cli = CommandLine::new(cluster.address());
    create(&cli, order, "2").await;
    append_to(&cli, order, "0", 0..200).await;
    append_to(&cli, order, "1", 200..400).await;
    lose_shard_0(&mut cluster).await;
    let told = cli.good(&["admin", "recover", "x", "--accept-loss"]).await;
    assert!(text(&told).contains("except those of shard 0 from 0 to"), "{order}: {}", text(&told));
    let from = Position(cli.tail_of("x").await);
    append_to(&cli, order, "0", 400..1000).await;
    cluster.kill_and_restart().await;
    let log = cluster.client(BRIEF).await.log("x").await.expect("it is listed");
    let (end, error) = read_run(&log, from, 400..1000).await;
    assert_eq!(end, 1000, "{order}: {error:?}");
}

/// Kills every process, deletes shard 0 of `x` on all nodes, and restarts.
async fn lose_shard_0(cluster: &mut Cluster) {
    let id = cluster.client(BRIEF).await.lookup("x").await.expect("it is listed").id;
    cluster.kill().await;
    for node in 1..=4 {
        let shard = format!("node-{node}/logs/{:016x}/shard-0", id.0);
        // Only two nodes have a replica, so some removals fail.
        let _ = std::fs::remove_dir_all(cluster.data().join(shard));
    }
    cluster.spawn();
    cluster.ready().await;
}

/// After a log lost everything and continued at position 0, readers beyond end and report the
/// resume position; a reader that resumes gets the new records.
pub(crate) async fn end_readers_beyond_a_loss(order: Order) {
    let mut cluster = Cluster::start(&["--nodes", "4"]).await;
    let cli = CommandLine::new(cluster.address());
    create(&cli, order, "1").await;
    append_to(&cli, order, "0", 0..400).await;
    let end = cli.tail_of("x").await.to_string();
    let mut readers = vec![];
    for more in [&[][..], &["--speculative", "--json"]] {
        let mut reader = cli.begin(&[&["tail", "x", "--from", "0"], more].concat());
        let mut printed = BufReader::new(reader.stdout.take().expect("it is piped")).lines();
        let is_last =
            |line: &str| line.starts_with("record 399 ") || line == format!("{{\"confirm\":{end}}}");
        while !is_last(&printed.next_line().await.expect("it can be read").expect("there is a line")) {}
        readers.push((reader, printed));
    }
    lose_shard_0(&mut cluster).await;
    let told = cli.good(&["admin", "recover", "x", "--accept-loss"]).await;
    assert!(text(&told).contains("the log continues at position 0"), "{order}: {}", text(&told));
    let again = cli.good(&["admin", "recover", "x", "--accept-loss"]).await;
    let accepted = "after an accepted loss, view ";
    assert!(text(&again).contains(accepted), "{order}: {}", text(&again));
    append_to(&cli, order, "0", 400..600).await;
    for (reader, _printed) in readers {
        let ended = tokio::time::timeout(DEADLINE, reader.wait_with_output()).await.expect("it ends");
        let ended = ended.expect("it can be waited for");
        let said = text(&ended.stderr);
        let begins = "the log continues at position 0 after a loss that an operator accepted";
        assert!(!ended.status.success() && said.contains(begins), "{order}: {said}");
        assert!(said.contains("read again from 0, with --from 0"), "{order}: {said}");
    }
    let log = cluster.client(BRIEF).await.log("x").await.expect("it is listed");
    assert_eq!(read_run(&log, Position(0), 400..600).await, (600, None), "{order}");
}

/// Records that an accepted loss keeps stay readable during the recovery, although replicas copy
/// them first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_certain_can_be_read_while_a_loss_is_accepted() {
    let test = async {
        let mut cluster = Cluster::start(&[]).await;
        let client = cluster.client(Duration::from_secs(20)).await;
        let mut positions_of = vec![];
        for order in Order::ALL {
            let log = filled(&client, &order.to_string(), order, Durability::Memory).await;
            positions_of.push(positions(&log).await);
            drop(log.submit(payload(FINAL)).await.expect("there is room"));
        }
        // Shards write final records in the background.
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.kill_and_restart().await;
        let client = cluster.client(Duration::from_secs(20)).await;
        for (order, positions) in Order::ALL.into_iter().zip(positions_of) {
            let name = order.to_string();
            let log = client.log(&name).await.expect("it is listed");
            let recover = tokio::spawn({
                let client = client.clone();
                async move { client.recover(&name, true).await }
            });
            let mut rounds_after = 0;
            while rounds_after < 3 {
                for from in [0, FINAL / 2, FINAL - 1] {
                    let read = log.read(positions[from as usize], 1, Duration::from_secs(5)).await;
                    let read = read.unwrap_or_else(|cause| panic!("{order}, position {from}: {cause}"));
                    assert_eq!(read.first().map(|stored| stored.record.payload()), Some(payload(from)));
                }
                rounds_after += u32::from(recover.is_finished());
            }
            let recovered = recover.await.expect("it does not panic").expect("it answers");
            assert!(recovered.done, "{order}: {}", recovered.text);
            if recovered.lost {
                assert!(recovered.text.contains("are certain"), "{}", recovered.text);
                told(|| cluster.says(), &[" WARN ", "an operator accepted a loss, and the log continues: "])
                    .await;
            }
        }
        // Restarted nodes do not report earlier views as new: each log has one first view.
        let first_views = cluster.says().matches(": first view; ").count();
        assert_eq!(first_views, Order::ALL.len(), "{}", cluster.says());
    };
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("it comes to an end");
}

/// The log rejects appends, explains, and serves its final records unchanged.
async fn unavailable(cluster: &Cluster, old: &Log) {
    let client = cluster.client(BRIEF).await;
    let new = client.log("m").await.expect("it is listed");
    for log in [old, &new] {
        let mut options = AppendOptions::default();
        options.deadline = Some(BRIEF);
        let failed = tokio::time::timeout(4 * BRIEF, log.append("more", options)).await;
        let failed = failed.expect("it fails within its deadline").expect_err("it cannot be held");
        let AppendError::DeadlineExceeded { waiting_for, .. } = &failed else { panic!("{failed:?}") };
        assert!(waiting_for.contains("memory"), "it says why: {failed}");
        let (end, error) = read_prefix(log, 0).await;
        assert!(
            end >= FINAL && error.is_none(),
            "read up to {end} of {FINAL}, then {error:?}; the cluster says: {}",
            cluster.says()
        );
    }
    let cli = CommandLine::new(cluster.address());
    let status = cli.run(&["status", "--json"]).await;
    assert_eq!(status.status.code(), Some(1), "it is not well");
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!(status["logs"][0]["state"], "unavailable", "{status}");
    let why = status["logs"][0]["unavailable"].as_str().expect("it says why");
    assert!(text(&cli.run(&["status"]).await.stdout).contains(why), "so does the table");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lossy_disk_loses_what_is_only_in_memory_and_keeps_what_is_on_disk() {
    let test = async {
        let mut cluster = Cluster::start(&["--volatile-disk"]).await;
        let client = cluster.client(Duration::from_secs(20)).await;
        for order in Order::ALL {
            filled(&client, &format!("on-disk-{order}"), order, Durability::Disk).await;
            filled(&client, &format!("in-memory-{order}"), order, Durability::Memory).await;
        }
        cluster.kill_and_restart().await;
        let client = cluster.client(BRIEF).await;
        for order in Order::ALL {
            let on_disk = client.log(&format!("on-disk-{order}")).await.expect("it is listed");
            let tail = on_disk.check_tail().await.expect("it has a tail");
            assert!(
                tail == Position(FINAL) || tail > Position(FINAL) && order.has_quotas(),
                "{order}: {tail}"
            );
            let last = on_disk.append_sync(payload(FINAL)).await.expect("it is appended");
            assert!(last == tail || last > tail && order.has_quotas(), "{order}: {last} of {tail}");
            assert_eq!(read_prefix(&on_disk, FINAL + 1).await, (FINAL + 1, None));
            // Proves the loss that the other tests rely on: the page cache would have kept these
            // records.
            let in_memory = client.log(&format!("in-memory-{order}")).await.expect("it is listed");
            let (end, _) = read_prefix(&in_memory, 0).await;
            assert!(end < FINAL, "nothing was lost");
            assert!(in_memory.append("more", AppendOptions::default()).await.is_err());
        }
    };
    tokio::time::timeout(Duration::from_secs(60), test).await.expect("it comes to an end");
}

#[test]
fn the_lossy_disk_forgets_exactly_what_was_not_synced() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || VolatileDisk::new(RealDisk::open(directory.path()).expect("it opens"));
    let disk = open();
    for name in ["synced", "unsynced"] {
        disk.create(name).expect("it is created");
        disk.write_at(name, 0, &[Bytes::from_static(b"first")]).expect("it is written");
    }
    disk.sync("synced").expect("it is synced");
    disk.write_at("synced", 5, &[Bytes::from_static(b" second")]).expect("it is written");
    assert_eq!(disk.read_at("synced", 0, 100).expect("it is read"), "first second");
    // As after a kill, nothing is flushed.
    drop(disk);
    let disk = open();
    assert_eq!(disk.read_at("synced", 0, 100).expect("it is read"), "first");
    assert!(disk.read_at("unsynced", 0, 100).is_err(), "not even its name is left");
}
