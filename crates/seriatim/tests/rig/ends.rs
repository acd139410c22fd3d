//! Starts and stops of servers: they report the cause of a wait, and stops have a time limit.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use seriatim_client::{LogConfig, NodeId};
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};
use crate::events::told;
use crate::members::Members;
use crate::process::{BINARY, Process, TIMEOUT, own_host, said};
use crate::surroundings::Surroundings;

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);

/// A disk that tests can block.
pub(crate) struct Stall {
    directory: TempDir,
}

impl Stall {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("stall")
    }

    pub(crate) fn begins(&self) {
        fs::write(self.file(), "").expect("it is written");
    }

    pub(crate) fn is_over(&self) {
        fs::remove_file(self.file()).expect("it is removed");
    }

    pub(crate) fn surroundings(&self) -> Surroundings {
        Surroundings::stalled_sync(self.directory.path(), &self.file())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_the_port_and_the_directory_of_a_process_that_ends() {
    let mut cluster = Cluster::start(&[]).await;
    let (address, data) = (cluster.address().to_owned(), cluster.data());
    let cli = CommandLine::new(&address);
    cli.good(&["log", "create", "l"]).await;
    cli.good_on(&["append", "l"], b"before\n").await;
    let words = cluster.scratch().join("successor.log");
    let options = ["dev", "--listen", &address, "--data"].map(OsStr::new);
    let options = options.into_iter().chain([data.as_os_str()]);
    let mut successor = Process::spawn(options, &words, &Surroundings::default());
    told(|| said(&words), &["not ready yet: waiting for port ", "which another process holds"]).await;
    cluster.kill().await;
    assert_eq!(successor.ready().await, address);
    assert_eq!(cli.good(&["read", "l"]).await, b"before\n");
    successor.kill().await;
}

/// Time limit of an idle server's stop.
const IDLE_ENDS_WITHIN: Duration = Duration::from_millis(200);
/// Attempts, because other processes may delay a stop.
const TRIES: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_server_ends_at_once() {
    let mut cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "l"]).await;
    cli.good_on(&["append", "l", "--sync"], b"before\n").await;
    let mut took = vec![];
    while took.iter().all(|took| *took > IDLE_ENDS_WITHIN) {
        assert!(took.len() < TRIES, "an idle dev took {took:?} to end; {}", cluster.says());
        cli.good(&["status", "--wait", "60"]).await;
        let began = Instant::now();
        assert!(cluster.stop(Signal::TERM).await.success());
        took.push(began.elapsed());
        cluster.spawn();
        cluster.ready().await;
    }
    let mut members = Members::start(3).await;
    let client = members.client(TIMEOUT).await;
    let config = LogConfig { sequencers: 3, replicas: 3, ..LogConfig::default() };
    client.create("l", config).await.expect("the log is created");
    let cli = CommandLine::new(&members.addresses());
    let mut took = vec![];
    while took.iter().all(|took| *took > IDLE_ENDS_WITHIN) {
        assert!(took.len() < TRIES, "an idle node took {took:?} to end; {}", members.says());
        cli.good(&["status", "--wait", "60"]).await;
        let began = Instant::now();
        members.stop(TWO).await;
        took.push(began.elapsed());
        members.restart(TWO).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_the_disk_holds_up_says_what_it_waits_for_and_is_bounded() {
    let stall = Stall::new();
    let mut cluster = Cluster::start_in(stall.surroundings(), &["--stop-within", "3"]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "l"]).await;
    cli.good_on(&["append", "l"], b"before\n").await;
    stall.begins();
    let client = cluster.client(Duration::from_millis(200)).await;
    let log = client.log("l").await;
    // The append waits for the disk, unacknowledged.
    if let Ok(log) = log {
        assert!(log.append_sync("held up").await.is_err(), "the disk stands still");
    }
    let began = Instant::now();
    let status = cluster.stop(Signal::TERM).await;
    assert!(began.elapsed() < Duration::from_secs(8), "it took {:?}", began.elapsed());
    let says = cluster.says();
    assert_eq!(status.code(), Some(1), "{says}");
    for words in [
        "still shutting down: waiting for node ",
        "a write of its journal, for ",
        "not stopped within 3 s, and ended as if",
    ] {
        assert!(says.contains(words), "{words}: {says}");
    }
    // As after any kill, acknowledged records remain.
    stall.is_over();
    cluster.spawn();
    cluster.ready().await;
    let read = cli_of(&cluster).good(&["read", "l"]).await;
    assert!(text(&read).starts_with("before\n"), "{}", text(&read));
    assert!(cluster.stop(Signal::TERM).await.success());
}

fn cli_of(cluster: &Cluster) -> CommandLine {
    CommandLine::new(cluster.address())
}

fn start_stalled(stall: &Stall, words: &str, options: &[&str]) -> (Process, impl Fn() -> String) {
    let listen = format!("{}:0", own_host());
    let data = stall.directory.path().join("data");
    let words = stall.directory.path().join(words);
    let data = data.to_str().expect("a path of text");
    let arguments = ["dev", "--listen", &listen, "--data", data];
    let arguments = arguments.into_iter().chain(options.iter().copied());
    let process = Process::spawn(arguments, &words, &stall.surroundings());
    (process, move || said(&words))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_says_what_it_waits_for_while_it_starts() {
    let stall = Stall::new();
    stall.begins();
    let (mut process, says) = start_stalled(&stall, "first", &[]);
    let lines = told(&says, &[" WARN ", "not ready yet: waiting for "]).await;
    assert!(lines[0].contains("node 1"), "{lines:?}");
    stall.is_over();
    process.ready().await;
    assert_eq!(says().matches("not ready yet").count(), 1, "it is said once: {}", says());
    assert!(process.stop(Signal::TERM).await.success());

    // A stop during the wait also ends within the limit.
    stall.begins();
    let (process, says) = start_stalled(&stall, "second", &["--stop-within", "2"]);
    told(&says, &["not ready yet"]).await;
    let status = process.stop(Signal::TERM).await;
    assert_eq!(status.code(), Some(1), "{}", says());
    assert!(says().contains("asked to stop during the start"), "{}", says());
    assert!(says().contains("not stopped within 2 s"), "{}", says());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_ends_at_once_also_without_its_register_and_its_majority() {
    let mut members = Members::start(3).await;
    let client = members.client(TIMEOUT).await;
    let config = LogConfig { sequencers: 3, replicas: 3, ..LogConfig::default() };
    client.create("l", config).await.expect("it is created");
    client.log("l").await.expect("it is there").append_sync("a").await.expect("it is appended");
    members.kill(ONE).await;
    members.kill(NodeId(3)).await;
    told(|| members.says(), &[" WARN node 1 is ", "node=2"]).await;
    told(|| members.says(), &[" WARN node 3 is ", "node=2"]).await;
    let began = Instant::now();
    members.stop(TWO).await;
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    assert!(members.says().contains("shutting down: flushing writes"), "{}", members.says());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_takes_the_limits_that_serve_takes_and_no_nonsense() {
    let options = &["--limit", "heartbeats_missed=50", "--limit", "ring_records=1000"];
    let mut cluster = Cluster::start(options).await;
    cli_of(&cluster).good(&["log", "create", "l"]).await;
    assert!(cluster.stop(Signal::TERM).await.success());
    let cli = CommandLine::new("unused");
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let data = data.to_str().expect("a path of text");
    for (limit, words) in [
        ("heartbeats_missed", "say NAME=NUMBER"),
        ("heartbeats_missed=", "say NAME=NUMBER"),
        ("heartbeats_missed=-1", "say NAME=NUMBER"),
        ("a=1\nb=2", "say NAME=NUMBER"),
        ("nothing=1", "unknown field"),
        ("heartbeats_missed=1", "'limits.heartbeats_missed' is 1; it can be from 2 to 1000"),
        ("ring_bytes=99999999999999", "'limits.ring_bytes' is"),
    ] {
        let (_, said) = cli.bad(&["dev", "--data", data, "--limit", limit]).await;
        assert!(said.contains(words), "{limit}: {said}");
    }
    let twice = ["dev", "--data", data, "--limit", "ring_records=5", "--limit", "ring_records=6"];
    assert!(cli.bad(&twice).await.1.contains("--limit"), "which of the two?");
    for seconds in ["0", "3601", "soon"] {
        assert_eq!(cli.run(&["dev", "--data", data, "--stop-within", seconds]).await.status.code(), Some(2));
    }
    assert!(!directory.path().join("data").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_not_open_enough_files_says_so_and_does_not_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let start = format!("ulimit -n 64 && exec {BINARY} dev --listen 127.0.0.1:0 --data {}", data.display());
    let output =
        tokio::process::Command::new("bash").args(["-c", &start]).output().await.expect("bash starts");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("seriatim: this process may open 64 files and needs at least 384"), "{said}");
    assert!(said.contains("ulimit -n 65536") && said.lines().count() == 1, "{said}");
    assert!(output.stdout.is_empty() && !data.exists(), "nothing was begun");
}
