//! Shards join and leave while programs append and read, and while a node that has some of them is killed.

use seriatim_client::{LogConfig, NodeId, Order, ShardId};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::command::{CommandLine, text};
use crate::members::{Members, Register};
use crate::workload::{DEADLINE, Workload, all_styles};

/// How many appends more show that a log goes on: more than are in flight.
const MORE: u64 = 300;

async fn goes_on(log: &Workload, when: &str) {
    let target = log.history.acknowledged() + MORE;
    let waiting = tokio::time::timeout(DEADLINE, log.history.wait_for(target)).await;
    assert!(waiting.is_ok(), "'{}' acknowledges nothing {when}", log.name);
}

/// Shards join and leave while programs append, and while one of their nodes is away.
pub(crate) async fn change_shards_of(order: Order) {
    let mut members = Members::start(4).await;
    let client = members.client(DEADLINE).await;
    let (name, config) = (order.to_string(), LogConfig { order, ..LogConfig::default() });
    client.create(&name, config).await.expect("the log is created");
    let log = Workload::start(&members.addresses(), &name, order, rand::random(), &all_styles(order));
    goes_on(&log, "at first").await;

    let (joined, entry) = client.add_shard(&name).await.expect("a shard joins");
    assert_eq!((joined, entry.shards.len()), (ShardId(2), 3));
    goes_on(&log, "with another shard").await;

    client.remove_shard(&name, ShardId(0)).await.expect("a shard is closed");
    let entry = client.lookup(&name).await.expect("the log is there");
    let view = entry.view.expect("it has a view");
    assert_eq!(view.open_shards(), [ShardId(1), ShardId(2)]);
    goes_on(&log, "without the first shard").await;

    let of_joined = &view.shard(joined).expect("it is there").replicas;
    let lost = of_joined.iter().map(|member| member.node).find(|node| *node != NodeId(1));
    let lost = lost.expect("the register's node has one replica of it at most");
    members.kill(lost).await;
    client.add_shard(&name).await.expect("a shard joins while a node is away");
    goes_on(&log, "without a node").await;
    members.restart(lost).await;
    client.remove_shard(&name, ShardId(1)).await.expect("a shard is closed");
    goes_on(&log, "with the node").await;
    let outcome = log.finish().await;
    outcome.unwrap_or_else(|violations| panic!("{violations:?}; {}", members.says()));

    // When nothing is left of what the first shards held, they go with the next view.
    let log = client.log(&name).await.expect("the log opens");
    let tail = log.check_tail().await.expect("it has a tail");
    log.trim(tail).await.expect("it is trimmed");
    let (_, entry) = client.add_shard(&name).await.expect("a shard joins");
    let view = entry.view.expect("it has a view");
    let numbers: Vec<u32> = view.shards.iter().map(|members| members.shard.0).collect();
    assert_eq!(numbers, [2, 3, 4]);
}

/// All nodes of a shard are killed while programs append and speculate: the log goes on without the shard, and has all that it
/// held when they are back.
pub(crate) async fn lose_a_shard_of(order: Order) {
    let mut members = Members::start_on(Register::Etcd, 6).await;
    let client = members.client(DEADLINE).await;
    let name = order.to_string();
    let config = LogConfig { order, shards: 3, replicas: 2, min_replicas: 1, ..LogConfig::default() };
    client.create(&name, config).await.expect("the log is created");
    let log = Workload::start(&members.addresses(), &name, order, rand::random(), &all_styles(order));
    goes_on(&log, "at first").await;

    let view = client.lookup(&name).await.expect("the log is there").view.expect("it has a view");
    let lost: Vec<NodeId> = view.shards[0].replicas.iter().map(|member| member.node).collect();
    for node in &lost {
        members.kill(*node).await;
    }
    goes_on(&log, "without all nodes of a shard").await;
    let view = client.lookup(&name).await.expect("the log is there").view.expect("it has a view");
    let retired: Vec<u32> = view.retired.iter().map(|retired| retired.shard.0).collect();
    assert_eq!(retired, [0], "{view:?}");
    assert!(view.shard(ShardId(0)).is_none() && !view.open_shards().contains(&ShardId(0)), "{view:?}");
    let there = members.numbers().find(|node| !lost.contains(node)).expect("others are there");
    let cli = CommandLine::new(&members.address(there));
    let shown = cli.good(&["log", "show", &name]).await;
    let until = view.retired[0].until;
    assert!(text(&shown).contains(&format!("retired; its records lie below {until}")), "{}", text(&shown));
    let status = cli.run(&["status"]).await.stdout;
    assert!(text(&status).contains("shard 0 is retired, without node"), "{}", text(&status));

    for node in &lost {
        members.restart(*node).await;
    }
    goes_on(&log, "with the nodes").await;
    // It reads everything that was acknowledged, the lost shard's records too.
    let outcome = log.finish().await;
    outcome.unwrap_or_else(|violations| panic!("{violations:?}; {}", members.says()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_changes_shards_and_says_what_cannot_be() {
    let members = Members::start(1).await;
    let cli = CommandLine::new(&members.address(NodeId(1)));
    cli.good(&["log", "create", "t", "--order", "erwin-st", "--shards", "1"]).await;
    let (_, said) = cli.bad(&["log", "remove-shard", "t", "0"]).await;
    assert!(said.contains("add one before you remove shard 0"), "{said}");
    let (_, said) = cli.bad(&["log", "remove-shard", "t", "7"]).await;
    assert!(said.contains("'t' has no shard 7"), "{said}");
    let added = cli.good(&["log", "add-shard", "t"]).await;
    assert_eq!(text(&added), "shard 1 of 't' takes records, on nodes 1\n");
    for _ in 0..2 {
        cli.good(&["log", "remove-shard", "t", "0"]).await;
    }
    let shown = cli.good(&["log", "show", "t"]).await;
    assert!(text(&shown).contains("shard 0           nodes 1, takes no new records"), "{shown:?}");
    let (_, said) = cli.bad(&["append", "t", "--shard", "0"]).await;
    assert!(said.contains("those that do: 1"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_of_shards_that_left_ends_and_says_so() {
    let members = Members::start(1).await;
    let cli = CommandLine::new(&members.address(NodeId(1)));
    for options in [&["--speculative", "--json"][..], &[]] {
        cli.good(&["log", "create", "t", "--order", "belfast", "--shards", "2"]).await;
        cli.good_on(&["append", "t", "--shard", "1"], b"one\n").await;
        let tail = [&["tail", "t", "--from", "0", "--shards", "1"], options].concat();
        let mut tail = cli.begin(&tail);
        let mut lines = BufReader::new(tail.stdout.take().expect("it is piped")).lines();
        let first = tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("it is there");
        assert!(first.expect("it can be read").expect("a line").contains("one"));
        cli.good(&["log", "remove-shard", "t", "1"]).await;
        let tail_now = cli.tail_of("t").await.to_string();
        cli.good(&["trim", "t", &tail_now]).await;
        // A shard of which nothing is left goes with the next view.
        cli.good(&["log", "add-shard", "t"]).await;
        let ended = tokio::time::timeout(DEADLINE, tail.wait_with_output()).await.expect("it ends");
        let ended = ended.expect("it can be waited for");
        let said = text(&ended.stderr);
        assert!(!ended.status.success() && said.contains("shard 1: it has left the log"), "{said}");
        cli.good(&["log", "delete", "t"]).await;
    }
}
