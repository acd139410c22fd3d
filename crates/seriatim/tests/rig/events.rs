//! Operator messages of servers on standard error, such as the course of a failover.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use seriatim_client::{LogConfig, NodeId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::Cluster;
use crate::command::CommandLine;
use crate::ends::Stall;
use crate::members::Members;
use crate::process::TIMEOUT;

const THREE: NodeId = NodeId(3);

/// Waits for a line with these words; returns all such lines.
pub(crate) async fn told(says: impl Fn() -> String, words: &[&str]) -> Vec<String> {
    told_times(1, says, words).await
}

async fn told_times(times: usize, says: impl Fn() -> String, words: &[&str]) -> Vec<String> {
    let mut every = tokio::time::interval(Duration::from_millis(20));
    let look = async {
        loop {
            every.tick().await;
            let said = says();
            let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
            let lines: Vec<String> = said.lines().filter(has_all).map(str::to_owned).collect();
            if lines.len() >= times {
                return lines;
            }
        }
    };
    let found = tokio::time::timeout(TIMEOUT, look).await;
    found.unwrap_or_else(|_| panic!("nobody tells of {words:?}; {}", says()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_story_of_a_failover_is_told() {
    let mut members = Members::start(3).await;
    let client = members.client(TIMEOUT).await;
    let config = LogConfig { sequencers: 3, replicas: 3, ..LogConfig::default() };
    client.create("orders", config).await.expect("the log is created");
    let log = client.log("orders").await.expect("it is there");
    log.append_sync("before").await.expect("it is appended");
    told(|| members.says(), &[" INFO ", "log=\"orders\"", "3 of 3 sequencing replicas", "3 of 3 replicas"])
        .await;

    // Wait until node 3 is back before the second kill: until its first heartbeat, only silence
    // would show its end.
    let gone = [" WARN node 3 is "];
    members.kill(THREE).await;
    let losses = told(|| members.says(), &gone).await.len();
    members.restart(THREE).await;
    let back = [" INFO ", "node 3 is back after"];
    let whole = [" INFO ", "log=\"orders\"", "3 of 3 sequencing replicas"];
    let before = told(|| members.says(), &back).await.len();
    told_times(2, || members.says(), &whole).await;

    members.kill(THREE).await;
    log.append_sync("after").await.expect("the others go on");
    let lost = told_times(losses + 1, || members.says(), &gone).await;
    let time =
        lost[0].split_once('Z').map(|(time, _)| time.trim_start_matches("node 1: ")).unwrap_or_default();
    assert!(
        time.starts_with("20") && time.contains('T'),
        "each line begins with its time in UTC: {}",
        lost[0]
    );
    let without = [" INFO ", "log=\"orders\"", "2 of 3 sequencing replicas", "without node 3", "; took "];
    let why = "node 3 left out (";
    told(|| members.says(), &[&without[..], &[why]].concat()).await;

    members.restart(THREE).await;
    told_times(before + 1, || members.says(), &back).await;
    told_times(3, || members.says(), &whole).await;
    told(|| members.says(), &["log=\"orders\"", ": node 3 joined; "]).await;
    told(|| members.says(), &["log=\"orders\"", "shard 0: catching up, copies positions "]).await;
    told(|| members.says(), &["log=\"orders\"", "shard 0: caught up in "]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_connections_are_told_of_and_counted() {
    let cluster = Cluster::start(&[]).await;
    for _ in 0..50 {
        let mut stranger = TcpStream::connect(cluster.address()).await.expect("it listens");
        stranger.write_all(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").await.expect("it is sent");
        let mut answer = vec![];
        // The server answers with a message that only nodes understand, and closes the connection.
        let _ = stranger.read_to_end(&mut answer).await;
    }
    let lines = told(|| cluster.says(), &[" WARN ", "a connection from ", " was refused: "]).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    // A silent disconnect causes no message.
    drop(TcpStream::connect(cluster.address()).await.expect("it listens"));
    CommandLine::new(cluster.address()).good(&["log", "create", "l"]).await;
    assert_eq!(cluster.says().matches("was refused").count(), 1, "{}", cluster.says());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_disk_is_told_of_by_its_node_and_what_comes_of_it() {
    let stall = Stall::new();
    let cluster = Cluster::start_in(stall.surroundings(), &[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "l"]).await;
    let client = cluster.client(TIMEOUT).await;
    let log = client.log("l").await.expect("it is there");
    log.append_sync("before").await.expect("it is appended");
    stall.begins();
    let appended = log.submit("held up").await.expect("there is room");
    told(|| cluster.says(), &[" WARN ", "slow disk: a journal write has taken 1."]).await;
    told(|| cluster.says(), &[" WARN ", "is blocked: it reports a disk write that does not end"]).await;
    stall.is_over();
    told(|| cluster.says(), &[" INFO ", "the slow journal write has ended after "]).await;
    appended.await.expect("it is acknowledged");
    for node in 1..=3 {
        let words = |line: &&str| line.contains("slow disk: ") && line.contains(&format!("node={node}"));
        assert!(cluster.says().lines().filter(words).count() <= 5, "{}", cluster.says());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_json_if_that_is_wanted_and_none_if_not() {
    let cluster = Cluster::start(&["--log-format", "json"]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "l"]).await;
    let lines = told(|| cluster.says(), &["starts at position 0"]).await;
    let event: Value = serde_json::from_str(&lines[0]).expect("a line of JSON");
    assert_eq!((&event["level"], &event["log"]), (&"INFO".into(), &"l".into()), "{event}");
    assert!(event["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{event}");

    let mut quiet = Cluster::start(&["--log-level", "warn"]).await;
    CommandLine::new(quiet.address()).good(&["log", "create", "l"]).await;
    assert!(quiet.stop(Signal::TERM).await.success());
    assert!(quiet.complaints().is_empty() && !quiet.says().contains(" INFO "), "{}", quiet.says());
    assert_eq!(cli.run(&["dev", "--log-level", "loud"]).await.status.code(), Some(2));
}
