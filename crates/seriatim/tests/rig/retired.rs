//! Copies of a retired shard: their `status`, and the loss of a second disk without losing records.

use std::time::Duration;

use seriatim_client::{Client, LogConfig, LogEntry, NodeId, Order, ShardId};

use crate::command::{CommandLine, text};
use crate::members::{Members, configure};
use crate::workload::DEADLINE;

/// Five nodes and log `x` with two shards of two replicas: shard 0 has records 1 to 400, shard 1
/// has 401 to 1,000.
struct Cluster {
    members: Members,
    client: Client,
    cli: CommandLine,
    /// Nodes of shard 0.
    of_shard: [NodeId; 2],
}

impl Cluster {
    /// A node away for longer than `replace_after_ms` is replaced.
    async fn start(replace_after_ms: u32) -> Self {
        let prepare = |node: NodeId, data: &std::path::Path| {
            configure(node, data, |text| format!("{text}replace_after_ms = {replace_after_ms}\n"));
        };
        let members = Members::start_with(5, prepare).await;
        let client = members.client(DEADLINE).await;
        let config = LogConfig { order: Order::Belfast, shards: 2, replicas: 2, ..LogConfig::default() };
        client.create("x", config).await.expect("the log is created");
        let cli = CommandLine::new(&members.addresses());
        let view = client.lookup("x").await.expect("the log is there").view.expect("it has a view");
        let nodes: Vec<NodeId> = view.shards[0].replicas.iter().map(|member| member.node).collect();
        assert!(!nodes.contains(&NodeId(1)), "node 1 has the register");
        let of_shard = nodes.try_into().expect("two replicas");
        let cluster = Self { members, client, cli, of_shard };
        cluster.append(1, 400, "0").await;
        cluster.append(401, 1000, "1").await;
        cluster
    }

    async fn append(&self, first: u32, last: u32, shard: &str) {
        let lines: String = (first..=last).map(|number| format!("{number}\n")).collect();
        self.cli.good_on(&["append", "x", "--shard", shard, "--sync"], lines.as_bytes()).await;
    }

    async fn is_well(&self, when: &str) {
        let status = self.cli.run(&["status", "--wait", "50"]).await;
        assert_eq!(
            status.status.code(),
            Some(0),
            "{when}: {}; {}",
            text(&status.stdout),
            self.members.says()
        );
    }

    async fn until_view(&self, what: &str, is_so: impl Fn(&LogEntry) -> bool) {
        let mut again = tokio::time::interval(Duration::from_millis(50));
        let looking = async {
            while !self.client.lookup("x").await.is_ok_and(|entry| is_so(&entry)) {
                again.tick().await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, looking).await;
        assert!(found.is_ok(), "never: {what}; {}", self.members.says());
    }

    async fn until_status(&self, what: &str, is_so: impl Fn(&str) -> bool) -> Option<i32> {
        let mut again = tokio::time::interval(Duration::from_millis(100));
        let looking = async {
            loop {
                let status = self.cli.run(&["status"]).await;
                if is_so(text(&status.stdout)) {
                    return status.status.code();
                }
                again.tick().await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, looking).await;
        found.unwrap_or_else(|_| panic!("never: {what}; {}", self.members.says()))
    }

    async fn lose_disk(&mut self, node: NodeId) {
        self.members.kill(node).await;
        std::fs::remove_dir_all(self.members.data(node)).expect("its data is lost");
        self.members.restart(node).await;
    }

    async fn has_all(&self, when: &str) {
        let printed = self.cli.good(&["read", "x"]).await;
        let mut numbers: Vec<u32> =
            text(&printed).lines().map(|line| line.parse().expect("a number")).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=1000).collect::<Vec<_>>(), "{when}");
    }
}

fn is_retired(entry: &LogEntry) -> bool {
    entry.view.as_ref().is_some_and(|view| !view.retired.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_left_behind_has_what_its_stand_in_had_still_to_copy() {
    let mut cluster = Cluster::start(60_000).await;
    let [first, second] = cluster.of_shard;
    cluster.members.kill(first).await;
    let is_left = |entry: &LogEntry| {
        let shard = entry.view.as_ref().and_then(|view| view.shard(ShardId(0)));
        shard.is_some_and(|members| members.replicas.iter().all(|member| member.node != first))
    };
    cluster.until_view("the log goes on without the first node", is_left).await;
    cluster.members.kill(second).await;
    cluster.until_view("the shard is retired", is_retired).await;
    cluster.members.restart(first).await;
    cluster.members.restart(second).await;
    cluster.is_well("both are back").await;
    cluster.lose_disk(second).await;
    cluster.is_well("the second has copied what it lost").await;
    cluster.has_all("the second lost its disk").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_disk_of_a_retired_shard_may_be_lost_in_turn_and_a_node_that_stays_away_is_replaced() {
    let mut cluster = Cluster::start(8000).await;
    let [first, second] = cluster.of_shard;
    cluster.members.kill(first).await;
    cluster.members.kill(second).await;
    cluster.until_view("the shard is retired", is_retired).await;
    cluster.members.restart(first).await;
    cluster.members.restart(second).await;
    cluster.is_well("both are back").await;
    for node in [second, first] {
        cluster.lose_disk(node).await;
        cluster.is_well("it has copied what it lost").await;
        cluster.has_all("a disk was lost").await;
    }
    // A subscription to the shard stops at its end, or reports that no more records follow.
    let until = cluster.cli.tail_of("x").await.to_string();
    let told = cluster.cli.good(&["tail", "x", "--shards", "0", "--from", "0", "--until", &until]).await;
    assert_eq!(text(&told).lines().count(), 400);
    let (told, why) = cluster.cli.bad(&["tail", "x", "--shards", "0", "--from", "0"]).await;
    assert_eq!(text(&told).lines().count(), 400);
    assert!(why.contains("no more records from shard 0: it is retired"), "{why}");

    cluster.members.kill(first).await;
    let one =
        format!("shard 0 is retired: 1 of 2 whole copies, on node {second}, node {first} is not responding");
    let status = cluster.until_status("one copy is left", |said| said.contains(&one)).await;
    assert_eq!(status, Some(1), "a log with one copy is not well");
    let has_another = |entry: &LogEntry| {
        entry
            .view
            .as_ref()
            .is_some_and(|view| view.retired.iter().any(|retired| retired.nodes().count() == 3))
    };
    cluster.until_view("another node keeps a copy", has_another).await;
    let has_copied = |said: &str| !said.contains("whole copies") && !said.contains("changing view");
    cluster.until_status("it has copied", has_copied).await;
    cluster.lose_disk(second).await;
    cluster.has_all("only the other node had it").await;
}
