//! Readers of idle logs: silent while all replicas answer; otherwise they name the silent nodes.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use seriatim_client::{LogConfig, NodeId, Order};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::command::CommandLine;
use crate::members::Members;
use crate::workload::DEADLINE;

/// Longer than the 4 to 6 s after which a reader names silent nodes.
const QUIET_FOR: Duration = Duration::from_secs(12);

struct Tail {
    _process: Child,
    printed: Lines<BufReader<ChildStdout>>,
    said: Lines<BufReader<ChildStderr>>,
}

impl Tail {
    fn begin(cli: &CommandLine, arguments: &[&str]) -> Self {
        let mut process = cli.begin(&[&["tail"], arguments].concat());
        let printed = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let said = BufReader::new(process.stderr.take().expect("it is piped")).lines();
        Self { _process: process, printed, said }
    }

    async fn prints(&mut self, wanted: &str) {
        let look = async {
            while !self.printed.next_line().await.expect("it can be read").expect("a line").contains(wanted) {
            }
        };
        timeout(DEADLINE, look).await.unwrap_or_else(|_| panic!("it prints {wanted}"));
    }

    async fn says(&mut self, within: Duration) -> Option<String> {
        timeout(within, self.said.next_line()).await.ok()?.expect("it can be read")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_of_a_quiet_log_says_nothing_in_each_ordering() {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    let mut tails = vec![];
    for order in Order::ALL {
        let name = order.to_string();
        cli.good(&["log", "create", &name, "--order", &name]).await;
        cli.good_on(&["append", &name, "--sync"], b"1\n2\n3\n").await;
        let from_start = Tail::begin(&cli, &[&name, "--from", "0"]);
        let speculative = Tail::begin(&cli, &[&name, "--from", "0", "--speculative", "--json"]);
        tails.extend([from_start, speculative]);
    }
    for tail in &mut tails {
        tail.prints("3").await;
    }
    let until = Instant::now() + QUIET_FOR;
    for tail in &mut tails {
        // Reads lines that are already in the pipe.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
        assert_eq!(tail.says(left).await, None);
    }
    for order in Order::ALL {
        cli.good_on(&["append", &order.to_string(), "--sync"], b"last\n").await;
    }
    for tail in &mut tails {
        tail.prints("last").await;
    }
}

/// The client names the missing register, not the healthy nodes that wait for it.
const NO_VIEW: &str = "no active view: the register (node 1) is ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_node_of_the_register_a_client_names_it_and_no_healthy_node() {
    let mut members = Members::start(3).await;
    let client = members.client_of(NodeId(2), Duration::from_secs(4)).await;
    let config = LogConfig { sequencers: 3, replicas: 3, ..LogConfig::default() };
    client.create("x", config).await.expect("the log is created");
    let log = client.log("x").await.expect("it is there");
    log.append_sync("before").await.expect("it is appended");
    let cli = CommandLine::new(&members.address(NodeId(3)));
    let mut tail = Tail::begin(&cli, &["x", "--from", "0"]);
    tail.prints("before").await;
    members.kill(NodeId(1)).await;
    let failed = log.append_sync("during").await.expect_err("there is no view").to_string();
    assert!(failed.contains(NO_VIEW), "{failed}");
    assert!(!failed.contains("node 2") && !failed.contains("node 3"), "{failed}");
    let (_, said) = CommandLine::new(&members.address(NodeId(2))).bad(&["log", "create", "y"]).await;
    assert!(said.contains(": the register (node 1) is "), "{said}");
    members.restart(NodeId(1)).await;
    tail.prints("during").await;
    assert_eq!(tail.says(Duration::from_millis(100)).await, None, "no healthy node was silent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_tail_names_the_nodes_of_a_shard_that_do_not_answer() {
    let members = Members::start(4).await;
    let client = members.client(DEADLINE).await;
    let config = LogConfig { order: Order::ErwinSt, shards: 2, replicas: 2, ..LogConfig::default() };
    client.create("x", config).await.expect("the log is created");
    let cli = CommandLine::new(&members.addresses());
    for shard in ["0", "1"] {
        cli.good_on(&["append", "x", "--shard", shard, "--sync"], b"a record\n").await;
    }
    let view = client.lookup("x").await.expect("the log is there").view.expect("it has a view");
    let nodes = |shard: usize| view.shards[shard].replicas.iter().map(|member| member.node);
    // Choose a shard without node 1, which has the register.
    let shard =
        (0..2).find(|shard| nodes(*shard).all(|node| node != NodeId(1))).expect("a shard without node 1");
    let mut stopped: Vec<NodeId> = nodes(shard).collect();
    stopped.sort();
    let mut tail = Tail::begin(&cli, &["x", "--from", "0"]);
    tail.prints("a record").await;
    tail.prints("a record").await;
    stopped.iter().for_each(|node| members.signal(*node, Signal::STOP));
    let mut named = vec![];
    let look = async {
        while named != stopped {
            let said = tail.says(DEADLINE).await.expect("it says so");
            let of_shards = said.split(" for shard ").skip(1).filter_map(|told| told.split_once(": node"));
            for (of, told) in of_shards {
                let words = told.split(|character: char| !character.is_ascii_digit());
                let mut nodes: Vec<NodeId> = words.filter_map(|word| word.parse().ok().map(NodeId)).collect();
                nodes.sort();
                assert!(nodes.iter().all(|node| stopped.contains(node)), "{nodes:?} in {said}");
                if of == shard.to_string() {
                    named = nodes;
                }
            }
        }
    };
    timeout(Duration::from_secs(15), look).await.expect("within 15 s");
    stopped.drain(..).for_each(|node| members.signal(node, Signal::CONT));
}
