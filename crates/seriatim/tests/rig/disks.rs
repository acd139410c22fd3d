//! Disks of single nodes that become full or return wrong bytes.
//!
//! `SERIATIM_RIG_DISK_LOOPS` sets how often a disk fills up and is trimmed.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use seriatim_client::{Client, Log, LogConfig, NodeId, Order, Position};
use tokio::io::AsyncWriteExt;

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};
use crate::events::told;
use crate::members::{Members, configure};
use crate::process::{NO_DISK_WARNING, TIMEOUT};
use crate::status::until_status;
use crate::workload::{DEADLINE, Style, Workload};

/// Working space of a node, in MiB.
const ROOM_MIB: u32 = 256;
pub(crate) const FULL: NodeId = NodeId(3);
/// Node whose disk is set back, and its message.
const RESTORED: NodeId = NodeId(3);
const SET_BACK: &str = "it was set back to an older state";

/// An in-memory file system at a directory.
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// Mounts it. None: this process may not mount.
    pub(crate) fn at(directory: &Path) -> Option<Self> {
        Self::sized(directory, ROOM_MIB)
    }

    fn sized(directory: &Path, mib: u32) -> Option<Self> {
        let size = format!("size={mib}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory).output();
        mounted.is_ok_and(|done| done.status.success()).then(|| Self(directory.to_owned()))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    fn fill(&self) {
        let mut filler = OpenOptions::new().create(true).append(true).open(self.filler()).expect("a file");
        let mut writes = |size: usize, most: usize| {
            let fits = (0..most).take_while(|_| match filler.write_all(&vec![0; size]) {
                Ok(()) => true,
                Err(cause) if cause.kind() == ErrorKind::StorageFull => false,
                Err(cause) => panic!("it cannot be filled: {cause}"),
            });
            fits.count() < most
        };
        // The node may free space meanwhile: then start again, with large writes.
        while !(writes(1 << 20, usize::MAX) && writes(4096, 256) && writes(1, 4096)) {}
    }

    /// Fills the disk until this percentage is left.
    fn fill_to(&self, percent: u64) {
        let system = rustix::fs::statvfs(&self.0).expect("it is mounted");
        let wanted = system.f_blocks * percent / 100;
        let bytes = system.f_bavail.saturating_sub(wanted) * system.f_frsize;
        let mut filler = OpenOptions::new().create(true).append(true).open(self.filler()).expect("a file");
        (0..bytes >> 20).for_each(|_| filler.write_all(&vec![0; 1 << 20]).expect("there is room"));
    }

    pub(crate) fn detach(&self) {
        let done = Command::new("umount").arg("--lazy").arg(&self.0).status().expect("it can be unmounted");
        assert!(done.success(), "{done}");
    }

    pub(crate) fn becomes_read_only(&self) {
        let done = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status();
        assert!(done.expect("it can be mounted again").success());
    }

    fn make_room(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: the node may still be stopping.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

/// Three nodes, one with a small disk. None: this process may not mount.
pub(crate) async fn with_a_small_disk() -> Option<(Members, Mount)> {
    with_a_disk_of(ROOM_MIB).await
}

async fn with_a_disk_of(mib: u32) -> Option<(Members, Mount)> {
    let mount = std::cell::Cell::new(None);
    let prepare = |node: NodeId, data: &Path| {
        if node == FULL {
            mount.set(Mount::sized(data, mib));
            configure(node, data, |text| text.replace(NO_DISK_WARNING, ""));
        }
    };
    let members = Members::start_with(3, prepare).await;
    let mount = mount.take();
    Some((members, or_skipped(mount)?))
}

/// Prints if the mount is not allowed; in CI this fails the test.
#[expect(clippy::print_stderr, reason = "a test that is skipped must not look like one that passed")]
pub(crate) fn or_skipped(mount: Option<Mount>) -> Option<Mount> {
    if mount.is_none() {
        assert!(std::env::var("CI").is_err(), "this process may not mount a file system");
        eprintln!("skipped: this process may not mount a file system");
    }
    mount
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_up_loses_nothing_and_is_used_again_when_there_is_room() {
    let Some((members, disk)) = with_a_small_disk().await else { return };
    let client = members.client(DEADLINE).await;
    let config = LogConfig { sequencers: 3, replicas: 3, ..LogConfig::default() };
    let mut logs = vec![];
    for order in Order::ALL {
        let (name, config) = (order.to_string(), LogConfig { order, ..config.clone() });
        client.create(&name, config).await.expect("the log is created");
        let styles = [Style::Pipelined(64), Style::Synchronous];
        logs.push(Workload::start(&members.addresses(), &name, order, rand::random(), &styles));
    }
    more(&logs, 500).await;
    disk.fill();
    // The logs stop or continue without the node; only acknowledged records count.
    let target = logs[0].history.acknowledged() + 5000;
    let _ = tokio::time::timeout(Duration::from_secs(5), logs[0].history.wait_for(target)).await;
    for log in &logs {
        log.read_stable().await;
    }
    disk.make_room();
    more(&logs, 500).await;
    for log in logs {
        log.finish().await.unwrap_or_else(|violations| panic!("{violations:?}; {}", members.says()));
    }
    drop(members);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_up_is_reported_before_it_is_full() {
    let Some((members, disk)) = with_a_disk_of(2 * ROOM_MIB).await else { return };
    let cli = CommandLine::new(&members.addresses());
    let create = |name| ["log", "create", name, "--sequencers", "3", "--replicas", "3"];
    cli.good(&create("early")).await;
    disk.fill_to(17);
    told(|| members.says(), &[" WARN ", "% of the disk is free, ", " MiB: make room"]).await;
    let is_low = |printed: &serde_json::Value| printed["nodes"][2]["disk_free_percent"].as_u64() <= Some(19);
    let (_, printed) = until_status(&cli, |printed| printed["nodes"][2]["disk_free_percent"].is_u64()).await;
    assert!(is_low(&printed) && printed["nodes"][2]["state"] == "up", "{printed}");
    let status = cli.run(&["status"]).await;
    assert!(text(&status.stdout).contains("node 3: 1"), "{}", text(&status.stdout));
    assert!(text(&status.stdout).contains(" % of its disk is free, "), "{}", text(&status.stdout));
    disk.fill();
    until_status(&cli, |printed| printed["nodes"][2]["state"] == "full").await;
    let created = cli.run(&create("late")).await;
    let warning = "warning: 'late' is created, but the disk of node 3 is full: appends may be blocked";
    assert!(text(&created.stderr).starts_with(warning), "{}", text(&created.stderr));
    assert!(created.status.success(), "{created:?}");
    disk.make_room();
    told(|| members.says(), &[" INFO ", "% of the disk is free, ", " MiB: the warning is over"]).await;
}

/// Maximum views until the node is back: one without it, one with it, and some for a busy node.
const MOST_VIEWS: u64 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_disk_is_full_says_so_is_done_without_and_comes_back_once() {
    let test = async {
        let Some((members, disk)) = with_a_small_disk().await else { return };
        let client = members.client(DEADLINE).await;
        let config = LogConfig { sequencers: 3, replicas: 3, shards: 1, ..LogConfig::default() };
        let before = client.create("orders", config).await.expect("the log is created");
        let before = before.view.expect("it has a view").number.0;
        let log = client.log("orders").await.expect("it is there");
        for number in 0..500 {
            log.append_sync(payload(number)).await.expect("it is appended");
        }
        disk.fill();
        until_says(&members, "disk full: ").await;
        until_takes_part(&client, 2).await;
        for number in 500..2500 {
            log.append_sync(payload(number)).await.expect("the others suffice");
        }
        let condition = client.condition(FULL).await.expect("it answers");
        assert!(condition.has_full_disk && condition.free_bytes.is_some(), "{condition:?}");
        log.trim(Position(1000)).await.expect("what makes room needs none");
        disk.make_room();
        until_takes_part(&client, 3).await;
        let after = client.lookup("orders").await.expect("it is there").view.expect("a view").number.0;
        until_says(&members, "node 3 left out (its disk is full)").await;
        assert!(after - before <= MOST_VIEWS, "{} views: {}", after - before, members.says());
        let says = members.says();
        for (level, told) in [(" WARN ", "disk full: "), (" INFO ", "the disk has room again")] {
            let lines: Vec<&str> = says.lines().filter(|line| line.contains(told)).collect();
            let [line] = lines[..] else { panic!("once: {says}") };
            assert!(line.contains(level) && line.contains("node=3"), "{line}");
        }
        assert!(!client.condition(FULL).await.expect("it answers").has_full_disk);
        for number in [1000, 2499] {
            let read = log.read(Position(number), 1, DEADLINE).await.expect("it is there");
            assert_eq!(read[0].record.payload(), payload(number).as_bytes());
        }
    };
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("it comes to an end");
}

const DISK_LOOPS: u64 = 10;

/// Records appended before a disk fills up, while it is full, and after.
const A_FEW: u64 = 20;

fn disk_loops() -> u64 {
    let Ok(text) = std::env::var("SERIATIM_RIG_DISK_LOOPS") else { return DISK_LOOPS };
    text.parse().unwrap_or_else(|_| panic!("SERIATIM_RIG_DISK_LOOPS needs a number, not '{text}'"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_up_and_is_trimmed_again_and_again_loses_nothing() {
    let Some((members, disk)) = with_a_small_disk().await else { return };
    let client = members.client(DEADLINE).await;
    let config = LogConfig { sequencers: 3, replicas: 3, shards: 1, ..LogConfig::default() };
    client.create("orders", config).await.expect("the log is created");
    let log = client.log("orders").await.expect("it is there");
    let mut appended = 0;
    for number in 0..disk_loops() {
        let one = async {
            more_records(&log, &mut appended).await;
            disk.fill();
            until_full(&client, true).await;
            more_records(&log, &mut appended).await;
            let kept = appended - A_FEW;
            log.trim(Position(kept)).await.expect("what makes room needs none");
            disk.make_room();
            // A node with repeated full disks rejoins after growing delays.
            until_full(&client, false).await;
            more_records(&log, &mut appended).await;
            for position in kept..appended {
                let read = log.read(Position(position), 1, DEADLINE).await.expect("it is there");
                assert_eq!(read[0].record.payload(), payload(position).as_bytes());
            }
        };
        let done = tokio::time::timeout(Duration::from_secs(60), one).await;
        assert!(done.is_ok(), "loop {number} does not end: {}", members.says());
    }
}

async fn until_full(client: &Client, is_full: bool) {
    let mut again = tokio::time::interval(Duration::from_millis(50));
    while client.condition(FULL).await.is_none_or(|condition| condition.has_full_disk != is_full) {
        again.tick().await;
    }
}

async fn more_records(log: &Log, appended: &mut u64) {
    for _ in 0..A_FEW {
        let position = log.append_sync(payload(*appended)).await.expect("those that have room suffice");
        assert_eq!(position, Position(*appended));
        *appended += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_disk_is_full_ends_when_it_is_told_to() {
    let Some((mut members, disk)) = with_a_small_disk().await else { return };
    let client = members.client(DEADLINE).await;
    client
        .create("orders", LogConfig { sequencers: 3, replicas: 3, ..LogConfig::default() })
        .await
        .expect("it is created");
    let log = client.log("orders").await.expect("it is there");
    log.append_sync("before").await.expect("it is appended");
    disk.fill();
    until_says(&members, "disk full: ").await;
    let cli = CommandLine::new(&members.addresses());
    let is_told = |printed: &serde_json::Value| {
        let why = printed["logs"][0]["reasons"].to_string();
        printed["nodes"][2]["state"] == "full" && why.contains("without node 3 (full)")
    };
    let (code, printed) = until_status(&cli, is_told).await;
    assert_eq!((code, &printed["logs"][0]["state"]), (Some(1), &"reduced".into()), "{printed}");
    let began = std::time::Instant::now();
    let status = members.end_of(FULL, Signal::TERM).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}; {}", began.elapsed(), members.says());
    let says = members.says();
    assert!(status.success() || says.contains("the disk is full: make room and start again"), "{says}");
    disk.make_room();
    members.restart(FULL).await;
    log.append_sync("after").await.expect("it is appended");
}

async fn until_says(members: &Members, text: &str) {
    let mut again = tokio::time::interval(Duration::from_millis(50));
    while !members.says().contains(text) {
        again.tick().await;
    }
}

/// Waits until the view has `wanted` sequencing replicas, and as many replicas of the shard.
async fn until_takes_part(client: &Client, wanted: usize) {
    let mut again = tokio::time::interval(Duration::from_millis(50));
    loop {
        again.tick().await;
        let Ok(entry) = client.lookup("orders").await else { continue };
        let Some(view) = entry.view else { continue };
        if (view.sequencers.len(), view.shards[0].replicas.len()) == (wanted, wanted) {
            return;
        }
    }
}

pub(crate) async fn more(logs: &[Workload], count: u64) {
    for log in logs {
        let target = log.history.acknowledged() + count;
        let waiting = tokio::time::timeout(Duration::from_secs(30), log.history.wait_for(target)).await;
        assert!(waiting.is_ok(), "log '{}' acknowledges nothing any more", log.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_set_back_is_noticed_and_loses_nothing() {
    let mut members = Members::start(3).await;
    let client = members.client(DEADLINE).await;
    let mut logs = vec![];
    for order in Order::ALL {
        let (name, config) =
            (order.to_string(), LogConfig { order, sequencers: 3, replicas: 3, ..LogConfig::default() });
        client.create(&name, config).await.expect("the log is created");
        let styles = [Style::Pipelined(64), Style::Synchronous];
        logs.push(Workload::start(&members.addresses(), &name, order, rand::random(), &styles));
    }
    more(&logs, 300).await;
    members.kill(RESTORED).await;
    let (data, backup) = (members.data(RESTORED), tempfile::tempdir().expect("a directory"));
    copy(&data, backup.path());
    members.restart(RESTORED).await;
    assert!(!members.says().contains(SET_BACK), "nothing was set back yet: {}", members.says());
    more(&logs, 1000).await;
    members.kill(RESTORED).await;
    fs::remove_dir_all(&data).expect("its data");
    copy(backup.path(), &data);
    members.restart(RESTORED).await;
    more(&logs, 1000).await;
    assert!(members.says().contains(SET_BACK), "it is told of: {}", members.says());
    // The restored node copied its records, and continues as one of two.
    members.kill(NodeId(2)).await;
    more(&logs, 300).await;
    for log in logs {
        log.finish().await.unwrap_or_else(|violations| panic!("{violations:?}; {}", members.says()));
    }
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("it can be listed");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("it has a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("there is room");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_change_on_one_disk_are_read_from_another_and_repaired() {
    let test = async {
        let members = Members::start(3).await;
        let client = members.client(DEADLINE).await;
        let config = LogConfig { sequencers: 3, replicas: 3, shards: 1, ..LogConfig::default() };
        let entry = client.create("orders", config).await.expect("the log is created");
        let log = client.log("orders").await.expect("it is there");
        const RECORDS: u64 = 2000;
        for number in 0..RECORDS {
            drop(log.submit(payload(number)).await.expect("there is room"));
        }
        log.append_sync("the last one").await.expect("all are final");
        let primary = entry.view.expect("it has a view").shards[0].primary().node;
        let bytes = (0..RECORDS).map(|number| payload(number).len() as u64).sum();
        until_written(&members.data(primary), bytes).await;
        flip(&members.data(primary));
        until_readable(&log, RECORDS).await;
        // Read only from the damaged disk, which is repaired after the read, without a notice.
        let hasty = members.client(Duration::from_secs(2)).await.log("orders").await.expect("it is there");
        let others = || members.numbers().filter(|node| *node != primary);
        loop {
            others().for_each(|node| members.signal(node, Signal::STOP));
            if is_readable(&hasty, RECORDS).await {
                break;
            }
            others().for_each(|node| members.signal(node, Signal::CONT));
            until_readable(&log, RECORDS).await;
        }
        let words = [
            " WARN ",
            "log=\"orders\"",
            "shard 0: the record at position ",
            "is damaged on this node's disk",
        ];
        let lines = told(|| members.says(), &words).await;
        assert!(lines.len() <= 3, "it is told once: {lines:?}");
    };
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("it comes to an end");
}

fn payload(number: u64) -> String {
    format!("record {number} {}", "x".repeat(number as usize % 90))
}

async fn until_readable(log: &Log, records: u64) {
    let mut again = tokio::time::interval(Duration::from_millis(100));
    while !is_readable(log, records).await {
        again.tick().await;
    }
}

async fn is_readable(log: &Log, records: u64) -> bool {
    let mut next = 0;
    while next < records {
        let found = log.read(Position(next), 500, Duration::ZERO).await.unwrap_or_default();
        if found.is_empty() {
            return false;
        }
        for stored in found.iter().take_while(|stored| stored.position.0 < records) {
            assert_eq!((stored.position.0, stored.record.payload()), (next, payload(next).into()));
            next += 1;
        }
    }
    true
}

/// Changes a byte in the middle of every record file.
fn flip(directory: &Path) {
    let mut flipped = 0;
    for path in files_of_records(directory) {
        let file = File::options().read(true).write(true).open(path).expect("a file of records");
        let middle = file.metadata().expect("it has a length").len() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, middle).expect("it can be read");
        file.write_all_at(&[byte[0] ^ 0x20], middle).expect("it can be written");
        flipped += 1;
    }
    assert!(flipped > 0, "there are files of records");
}

/// Waits until record files have this many bytes; writes are delayed.
async fn until_written(directory: &Path, bytes: u64) {
    let mut again = tokio::time::interval(Duration::from_millis(10));
    let written = || -> u64 {
        let lengths = files_of_records(directory)
            .into_iter()
            .map(|path| fs::metadata(path).map_or(0, |file| file.len()));
        lengths.sum()
    };
    while written() < bytes {
        again.tick().await;
    }
}

fn files_of_records(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (vec![], vec![directory.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "records") {
                found.push(path);
            }
        }
    }
    found
}

/// The operating system's signal would end the process by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_beyond_the_limit_of_file_sizes_fails_with_a_sentence() {
    let mut cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "l"]).await;
    cli.good_on(&["append", "l"], b"before\n").await;
    let mut appending = cli.begin_on(&["append", "l"]);
    let mut stdin = appending.stdin.take().expect("it is piped");
    stdin.write_all(b"connected\n").await.expect("it reads");
    while cli.tail_of("l").await < 2 {} // a node at its limit accepts no first connection
    cluster.limit_file_sizes(64 << 10);
    let lines = "x".repeat(999) + "\n";
    stdin.write_all(lines.repeat(500).as_bytes()).await.expect("it reads");
    let status = cluster.end("a write beyond the limit", TIMEOUT).await;
    let says = cluster.says();
    assert_eq!(status.code(), Some(1), "{status}: {says}");
    let says_why = |line: &str| line.contains("File too large") && line.contains("'ulimit -f unlimited'");
    assert!(says.lines().any(says_why), "{says}");
    appending.kill().await.expect("it can be killed");
    cluster.spawn();
    cluster.ready().await;
    assert!(cli.good(&["read", "l"]).await.starts_with(b"before\n"), "what was acknowledged is there");
}
