//! The events that servers tell an operator on standard error: the story of a failover can be read from them.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use seriatim_client::{LogConfig, NodeId};

use crate::cluster::Cluster;
use crate::command::CommandLine;
use crate::members::Members;
use crate::process::PATIENCE;

const THREE: NodeId = NodeId(3);

/// Waits until something is told, by looking again and again; gives all lines that have the words.
pub(crate) async fn told(says: impl Fn() -> String, words: &[&str]) -> Vec<String> {
    let mut every = tokio::time::interval(Duration::from_millis(20));
    let look = async {
        loop {
            every.tick().await;
            let said = says();
            let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
            let lines: Vec<String> = said.lines().filter(has_all).map(str::to_owned).collect();
            if !lines.is_empty() {
                return lines;
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, look).await;
    found.unwrap_or_else(|_| panic!("nobody tells of {words:?}; {}", says()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_story_of_a_failover_is_told() {
    let mut members = Members::start(3).await;
    let client = members.client(PATIENCE).await;
    let config = LogConfig { sequencers: 3, replicas: 3, ..LogConfig::default() };
    client.create("orders", config).await.expect("the log is created");
    let log = client.log("orders").await.expect("it is there");
    log.append_sync("before").await.expect("it is appended");
    told(|| members.says(), &[" INFO ", "log=\"orders\"", "3 of 3 sequencing replicas", "3 of 3 replicas"])
        .await;

    members.kill(THREE).await;
    log.append_sync("after").await.expect("the others go on");
    let lost = told(|| members.says(), &[" WARN ", "node 3 is taken for gone: "]).await;
    let time =
        lost[0].split_once('Z').map(|(time, _)| time.trim_start_matches("node 1: ")).unwrap_or_default();
    assert!(
        time.starts_with("20") && time.contains('T'),
        "each line begins with its time in UTC: {}",
        lost[0]
    );
    let without = [" INFO ", "log=\"orders\"", "2 of 3 sequencing replicas", "without node 3", "ms after"];
    told(|| members.says(), &without).await;

    members.restart(THREE).await;
    told(|| members.says(), &[" INFO ", "node 3 is back, after"]).await;
    let whole = || members.says().matches("3 of 3 sequencing replicas").count() > 1;
    told(|| if whole() { "whole".into() } else { String::new() }, &["whole"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_json_if_that_is_wanted_and_none_if_not() {
    let cluster = Cluster::start(&["--log-format", "json"]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "l"]).await;
    let lines = told(|| cluster.says(), &["begins at position 0"]).await;
    let event: Value = serde_json::from_str(&lines[0]).expect("a line of JSON");
    assert_eq!((&event["level"], &event["log"]), (&"INFO".into(), &"l".into()), "{event}");
    assert!(event["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{event}");

    let mut quiet = Cluster::start(&["--log-level", "warn"]).await;
    CommandLine::new(quiet.address()).good(&["log", "create", "l"]).await;
    assert!(quiet.stop(Signal::TERM).await.success());
    assert_eq!(quiet.says(), "");
    assert_eq!(cli.run(&["dev", "--log-level", "loud"]).await.status.code(), Some(2));
}
