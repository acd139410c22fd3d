//! Shards join and leave while programs append and read, and while one of their nodes is killed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::{
    Event, Failure, Log, LogConfig, NodeId, Order, Position, ReadError, ShardId, SubscribeOptions,
};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};
use crate::events::told;
use crate::members::{Members, Register};
use crate::workload::{DEADLINE, Workload, all_styles};

/// Time limit of a change on a busy machine; an idle one needs a fraction of a second.
const CHANGED_WITHIN: Duration = Duration::from_secs(4);

/// Acknowledgements that prove progress: more than are in flight.
const MORE: u64 = 300;

async fn goes_on(log: &Workload, when: &str) {
    let target = log.history.acknowledged() + MORE;
    let waiting = tokio::time::timeout(DEADLINE, log.history.wait_for(target)).await;
    assert!(waiting.is_ok(), "'{}' acknowledges nothing {when}", log.name);
}

/// Shards join and leave under load, also with a node away.
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

    // The first shards leave with the next view after all their replicas know the trim; a returned
    // node may learn it late.
    let log = client.log(&name).await.expect("the log opens");
    let tail = log.check_tail().await.expect("it has a tail");
    log.trim(tail).await.expect("it is trimmed");
    let left = async {
        loop {
            let (_, entry) = client.add_shard(&name).await.expect("a shard joins");
            let view = entry.view.expect("it has a view");
            let numbers: Vec<u32> = view.shards.iter().map(|members| members.shard.0).collect();
            if numbers[0] > 1 {
                return numbers;
            }
        }
    };
    let numbers = tokio::time::timeout(DEADLINE, left).await.expect("the first shards leave");
    assert_eq!(numbers[..3], [2, 3, 4]);
}

/// Shard changes in a row do not delay each other: a doubling pause would exceed 10 s at the eighth
/// and fail the command.
pub(crate) async fn change_shards_in_a_row(order: Order) {
    let cluster = Cluster::start(&["--nodes", "4"]).await;
    let cli = CommandLine::new(cluster.address());
    let order = order.to_string();
    cli.good(&["log", "create", "x", "--order", &order, "--shards", "2"]).await;
    let removals: Vec<String> = (0..8).map(|shard| shard.to_string()).collect();
    let adds = (0..8).map(|_| vec!["log", "add-shard", "x"]);
    let removes = removals.iter().map(|shard| vec!["log", "remove-shard", "x", shard]);
    for change in adds.chain(removes) {
        let began = Instant::now();
        cli.good(&change).await;
        let took = began.elapsed();
        assert!(took < CHANGED_WITHIN, "{order}: {change:?} took {took:?}");
    }
    let view = cluster.client(DEADLINE).await.lookup("x").await.expect("the log is there").view;
    assert_eq!(view.expect("it has a view").open_shards(), [ShardId(8), ShardId(9)]);
}

/// All nodes of a shard are killed under load: the log continues without it, and has all its
/// records after their return.
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
    let end = view.retired[0].until;
    assert!(text(&shown).contains(&format!("retired; its records lie below {end}")), "{}", text(&shown));
    // Nodes report periodically, so the first answer may predate the view.
    let says_so =
        async || text(&cli.run(&["status"]).await.stdout).contains("shard 0 is retired, without node");
    until("the status names the retired shard", says_so).await;

    for node in &lost {
        members.restart(*node).await;
    }
    goes_on(&log, "with the nodes").await;
    // Reads everything acknowledged, including the lost shard's records.
    let outcome = log.finish().await;
    outcome.unwrap_or_else(|violations| panic!("{violations:?}; {}", members.says()));
}

/// A shard's node fails, and later its disk is lost. The operator sees a loss only then, and gives
/// the shard up. Readers see the loss, and have all other records.
pub(crate) async fn give_up_a_shard_of(order: Order) {
    let mut members = Members::start_on(Register::Etcd, 4).await;
    let client = members.client(DEADLINE).await;
    let name = order.to_string();
    let config = LogConfig { order, shards: 2, replicas: 1, min_replicas: 1, ..LogConfig::default() };
    client.create(&name, config).await.expect("the log is created");
    let view = client.lookup(&name).await.expect("the log is there").view.expect("it has a view");
    let lost = view.shards[0].primary().node;
    let there = members.numbers().find(|node| *node != lost).expect("others are there");
    let cli = CommandLine::new(&members.address(there));
    for line in 0..30 {
        let shard = (line / 3 % 2).to_string();
        cli.good_on(&["append", &name, "--shard", &shard], format!("{shard}\n").as_bytes()).await;
    }
    let log = client.log(&name).await.expect("the log opens");
    let records = records_of(&log).await;
    assert_eq!(records.len(), 30);

    members.kill(lost).await;
    let mut reader = cli.begin(&["tail", &name, "--from", "0", "--until", "30"]);
    let is_retired = async |log: &str| {
        let shown = cli.good(&["log", "show", log]).await;
        text(&shown).contains("retired; its records lie below")
    };
    until("the shard is retired", async || is_retired(&name).await).await;
    let asked = cli.good(&["admin", "recover", &name]).await;
    let (asked, away) = (text(&asked), format!("node {lost} is not responding and may still have them"));
    assert!(asked.starts_with("all positions are certain, except those of shard 0 from 0 to "), "{asked}");
    assert!(asked.contains(&away) && asked.contains("--accept-loss"), "{asked}");
    says_that_it_waits(&mut reader, lost).await;

    members.restart(lost).await;
    let has_all = async || {
        let told = cli.good(&["admin", "recover", &name]).await;
        text(&told).contains("nothing to recover")
    };
    until("the node has it", has_all).await;
    assert!(is_retired(&name).await, "nothing was given up");

    members.kill(lost).await;
    let waiting = cli.begin(&["tail", &name, "--from", "0"]);
    std::fs::remove_dir_all(members.data(lost)).expect("its data is lost");
    members.restart(lost).await;
    let told_lost = async || {
        let told = cli.good(&["admin", "recover", &name]).await;
        let told = text(&told);
        told.contains("except those of shard 0 from 0 to ") && !told.contains("is not responding")
    };
    until("the node has nothing", told_lost).await;
    // The view may change again after the node's return.
    let is_unreadable = async || {
        let status = cli.run(&["status"]).await;
        let status = text(&status.stdout);
        status.contains("shard 0 is retired, and node") && status.contains("admin recover")
    };
    until("its status says what cannot be read", is_unreadable).await;
    let accepted = cli.good(&["admin", "recover", &name, "--accept-loss"]).await;
    assert!(text(&accepted).contains("is registered; the log continues at position"), "{}", text(&accepted));
    assert!(!is_retired(&name).await, "nothing of it is left");
    told(|| members.says(), &[" WARN ", "an operator accepted a loss, and the log continues: "]).await;
    assert!(has_all().await);

    only_those_are_lost(&log, records).await;
    let ended = tokio::time::timeout(DEADLINE, waiting.wait_with_output()).await.expect("it ends");
    let ended = ended.expect("it can be waited for");
    let ended = text(&ended.stderr);
    assert!(ended.contains("records of shard 0 from") && ended.contains("with --skip-lost"), "{ended}");
    cli.good_on(&["append", &name], b"more\n").await;
    skip_what_is_lost(&cli, &name).await;
}

/// A reader at a record of shard 0 names the node that it waits for.
async fn says_that_it_waits(reader: &mut Child, node: NodeId) {
    let said = reader.stderr.take().expect("it is piped");
    let mut said = BufReader::new(said).lines();
    let said = tokio::time::timeout(DEADLINE, said.next_line()).await.expect("it says so");
    let said = said.expect("it can be read").expect("there is a line");
    let why = format!(" for shard 0: node {node} is not responding; see 'seriatim status'");
    assert!(said.starts_with("waiting at position ") && said.ends_with(&why), "{said}");
}

/// Only the records of shard 1 and one more remain. A reader that skips losses gets them, with
/// notices.
async fn skip_what_is_lost(cli: &CommandLine, name: &str) {
    let expected = format!("{}more\n", "1\n".repeat(15));
    let tail = cli.good(&["check-tail", name]).await;
    let tail = text(&tail).trim().to_owned();
    let read = ["read", name, "--skip-lost"];
    let tail_so_far = ["tail", name, "--from", "0", "--until", &tail, "--skip-lost"];
    for arguments in [&read[..], &tail_so_far] {
        let output = cli.run(arguments).await;
        let (records, told) = (String::from_utf8_lossy(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && records == expected, "{arguments:?}: {output:?}");
        // A reader that waits, as on a busy machine, prints its skips so far.
        let is_told = |line: &str| line.starts_with("skipped lost records: ");
        assert!(!told.is_empty() && told.lines().all(is_told), "{told}");
    }
    let json = [&tail_so_far[..], &["--speculative", "--json"]].concat();
    let told = cli.good(&json).await;
    let events: Vec<serde_json::Value> =
        text(&told).lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(events.iter().filter(|event| event["record"].is_string()).count(), 16);
    let lost: Vec<&serde_json::Value> = events.iter().filter(|event| event["lost"].is_u64()).collect();
    assert!(!lost.is_empty() && lost.iter().all(|event| event["shard"] == 0), "{events:?}");
    assert_eq!(events.last().map(|event| event["confirm"].to_string()), Some(tail));
}

async fn records_of(log: &Log) -> Vec<(Position, Bytes)> {
    let tail = log.check_tail().await.expect("it has a tail");
    let all = SubscribeOptions::default().until(tail);
    let mut events = log.subscribe(Position(0), all).await.expect("it can be read");
    let mut records = vec![];
    while let Some(event) = events.next().await {
        if let Event::Deliver { position, record, .. } = event.expect("all is there") {
            records.push((position, record.payload()));
        }
    }
    records
}

/// Shard 0's records, marked by their payload, are lost; all others remain.
async fn only_those_are_lost(log: &Log, records: Vec<(Position, Bytes)>) {
    for (at, payload) in records {
        let read = log.read(at, 1, DEADLINE).await;
        match &payload[..] {
            b"0" => {
                let is_lost = matches!(&read, Err(ReadError::Failed(Failure::Lost { position, shard, .. }))
                    if *position == at && *shard == ShardId(0));
                assert!(is_lost, "{at}: {read:?}");
            }
            _ => assert_eq!(read.expect("it is there")[0].position, at),
        }
    }
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let mut every = tokio::time::interval(Duration::from_millis(100));
    let look = async {
        while !is_so().await {
            every.tick().await;
        }
    };
    tokio::time::timeout(DEADLINE, look).await.unwrap_or_else(|_| panic!("in vain: {what}"));
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
    assert!(said.contains("open shards: 1"), "{said}");
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
        // The next view drops an empty shard.
        cli.good(&["log", "add-shard", "t"]).await;
        let ended = tokio::time::timeout(DEADLINE, tail.wait_with_output()).await.expect("it ends");
        let ended = ended.expect("it can be waited for");
        let said = text(&ended.stderr);
        assert!(!ended.status.success() && said.contains("shard 1: it has left the log"), "{said}");
        cli.good(&["log", "delete", "t"]).await;
    }
}
