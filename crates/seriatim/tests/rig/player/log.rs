//! Kills of a player that copies to another log, and of that log's leader.

use std::time::Duration;

use rand::RngExt;
use seriatim_client::{Client, LogConfig, NodeId, Order};

use super::{Stage, WITHIN, log_of, records_of};
use crate::command::{CommandLine, text};
use crate::members::Members;

/// The target, a log `copy` at a server.
fn target(server: &str) -> String {
    format!("[[target]]\nid = \"mirror\"\nkind = \"log\"\nlog = \"copy\"\nserver = \"{server}\"\n")
}

/// Appends lines in the background.
fn append(stage: &Stage, lines: std::ops::Range<u64>) -> tokio::task::JoinHandle<Vec<u8>> {
    let command = stage.command.clone();
    let lines: String = lines.map(|line| format!("line {line}\n")).collect();
    tokio::spawn(async move { command.good_on(&["append", "orders"], lines.as_bytes()).await })
}

/// Waits until the copy has this number of records.
async fn grows(client: &Client, least: u64) {
    let grows = async {
        let log = client.log("copy").await.expect("it exists");
        let mut again = tokio::time::interval(super::LOOK_EVERY);
        // While the log is unavailable, it does not answer.
        while log.check_tail().await.is_ok_and(|tail| tail.0 < least) {
            again.tick().await;
        }
    };
    tokio::time::timeout(WITHIN, grows)
        .await
        .unwrap_or_else(|_| panic!("the copy never has {least} records"));
}

/// The payloads of the log and of the copy are equal.
async fn check(stage: &Stage, copy: &CommandLine) {
    let texts = |records: Vec<(u64, String)>| records.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    let (log, copy) = (texts(log_of(stage, "orders").await), texts(records_of(copy, "copy").await));
    assert_eq!(copy.len(), log.len(), "each entry is copied once");
    assert!(copy == log, "the copy is the log, in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_player_copies_each_entry_once() {
    let mut stage = Stage::new().await;
    stage.command.good(&["log", "create", "copy", "--order", "erwin-bb"]).await;
    let config = stage.configure("player.toml", "map = \"key\"", &target(stage.cluster.address()));
    let checked = stage.command.good(&["player", "check", "--config", &config]).await;
    assert_eq!(text(&checked), "mirror: reachable; the control log keeps the bound\n");
    let client = stage.cluster.client(Duration::from_secs(10)).await;
    let appends = append(&stage, 0..20_000);
    for kill in 0..5 {
        let player = stage.play(&config, &["--take-over"]).await;
        grows(&client, kill * 3000 + rand::rng().random_range(1..3000)).await;
        player.kill().await;
    }
    appends.await.expect("the appends succeed");
    stage.play_all(&config).await;
    check(&stage, &stage.command).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_has_each_entry_once_although_its_leader_is_killed() {
    let mut stage = Stage::new().await;
    let mut members = Members::start(3).await;
    let client = members.client(Duration::from_secs(30)).await;
    let leader = create_copy(&client).await;
    let config = stage.configure("player.toml", "map = \"key\"", &target(&members.addresses()));
    let appends = append(&stage, 0..20_000);
    let player = stage.play(&config, &[]).await;
    grows(&client, 2000).await;
    members.kill(leader).await;
    grows(&client, 8000).await;
    player.kill().await;
    appends.await.expect("the appends succeed");
    stage.play_all(&config).await;
    check(&stage, &CommandLine::new(&members.addresses())).await;
}

/// Creates the log `copy` with its leader on another node than the register, and returns that node.
async fn create_copy(client: &Client) -> NodeId {
    let config = LogConfig { order: Order::ErwinBb, sequencers: 3, replicas: 3, ..LogConfig::default() };
    for _ in 0..20 {
        let entry = client.create("copy", config.clone()).await.expect("the log is created");
        let leader = entry.view.expect("it has a view").leader;
        if leader != NodeId(1) {
            return leader;
        }
        client.delete("copy").await.expect("it is deleted");
    }
    panic!("the leader is always beside the register");
}
