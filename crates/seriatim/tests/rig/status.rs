//! `seriatim status` reports state and reasons correctly: as text, JSON and exit status.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use seriatim_client::{LogConfig, NodeId, Order};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};
use crate::ends::Stall;
use crate::members::Members;
use crate::process::TIMEOUT;

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);

pub(crate) async fn status(cli: &CommandLine) -> (Option<i32>, Value) {
    let output = cli.run(&["status", "--json"]).await;
    assert_eq!(text(&output.stderr), "");
    let printed = serde_json::from_slice(&output.stdout).expect("JSON");
    (output.status.code(), printed)
}

pub(crate) async fn until_status(cli: &CommandLine, wanted: impl Fn(&Value) -> bool) -> (Option<i32>, Value) {
    let mut last = Value::Null;
    let look = async {
        let mut again = tokio::time::interval(Duration::from_millis(50));
        loop {
            again.tick().await;
            let (code, printed) = status(cli).await;
            last.clone_from(&printed);
            if wanted(&printed) {
                return (code, printed);
            }
        }
    };
    let found = tokio::time::timeout(2 * TIMEOUT, look).await;
    found.unwrap_or_else(|_| panic!("it goes on to print {last}"))
}

fn is_well(printed: &Value) -> bool {
    printed["healthy"] == true
}

fn reasons(of: &Value) -> String {
    let reasons = of["reasons"].as_array().expect("a list");
    reasons.iter().map(|reason| reason.as_str().expect("words")).collect::<Vec<_>>().join("; ")
}

async fn three_with_a_log() -> (Members, CommandLine) {
    let members = Members::start(3).await;
    let client = members.client(TIMEOUT).await;
    let config = LogConfig { sequencers: 3, replicas: 3, ..LogConfig::default() };
    client.create("l", config).await.expect("it is created");
    let log = client.log("l").await.expect("it is there");
    log.append_sync(vec![7; 100_000]).await.expect("it is appended");
    let cli = CommandLine::new(&members.addresses());
    (members, cli)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_well_is_told_with_what_it_has_and_for_how_long() {
    let (members, cli) = three_with_a_log().await;
    // Records move from journals to replica files with a delay.
    let is_in_files = |printed: &Value| printed["logs"][0]["bytes"].as_u64() >= Some(3 * 100_000);
    let (code, printed) = until_status(&cli, |printed| is_well(printed) && is_in_files(printed)).await;
    assert_eq!(code, Some(0), "{printed}");
    for (number, node) in (1..).zip(printed["nodes"].as_array().expect("a list")) {
        assert_eq!((&node["state"], &node["node"]), (&"up".into(), &Value::from(number)), "{node}");
        assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(node["register"], number == 1);
        assert_eq!(node["sequencing_replicas"], 1);
        assert!(node["shard_replicas"].as_u64() >= Some(1), "{node}");
        for field in ["up_ms", "disk_used_bytes", "disk_free_bytes"] {
            assert!(node[field].as_u64() > Some(0), "{field}: {node}");
        }
        assert_eq!(node["address"], members.address(NodeId(number)));
    }
    let log = &printed["logs"][0];
    assert_eq!(
        (&log["state"], &log["lag"], &log["lag_ms"]),
        (&"ok".into(), &0.into(), &Value::Null),
        "{log}"
    );
    assert!(is_in_files(&printed), "three replicas have it: {log}");
    let table = cli.good(&["status"]).await;
    for words in ["register, 1 sequencing", "MiB", " up ", "ok"] {
        assert!(text(&table).contains(words), "{words}: {}", text(&table));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_well_is_told_with_the_reason() {
    let (mut members, cli) = three_with_a_log().await;
    until_status(&cli, is_well).await;
    members.kill(THREE).await;
    let (code, printed) = until_status(&cli, |printed| printed["logs"][0]["state"] == "reduced").await;
    assert_eq!(code, Some(1), "{printed}");
    assert_eq!(printed["nodes"][2]["state"], "down", "{printed}");
    let why = reasons(&printed["logs"][0]);
    assert!(why.contains("2 of 3 sequencing replicas, without node 3 (down)"), "{why}");
    assert!(why.contains("shard 0: 2 of 3 replicas, without node 3 (down)"), "{why}");
    let (left_out, until) = ("node 3 was left out ", "; it is taken back when it answers");
    assert!(why.contains(left_out) && why.ends_with(until), "the reason and the expected end: {why}");
    let causes = [" s ago (its connection closed", " s ago (no heartbeat for "];
    assert!(causes.iter().any(|cause| why.contains(cause)), "{why}");
    let table = cli.run(&["status"]).await;
    assert!(text(&table.stdout).contains("node 3: not responding"), "{}", text(&table.stdout));
    assert_eq!((table.status.code(), text(&table.stderr)), (Some(1), ""));
    // With two of three stopped, the log is unavailable since a reported time.
    members.restart(THREE).await;
    until_status(&cli, is_well).await;
    members.signal(THREE, Signal::STOP);
    let (code, printed) = until_status(&cli, |printed| printed["nodes"][2]["state"] == "down").await;
    assert_eq!(code, Some(1), "{printed}");
    members.signal(THREE, Signal::CONT);
    assert_eq!(until_status(&cli, is_well).await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_register_the_nodes_tell_what_they_know() {
    let (mut members, cli) = three_with_a_log().await;
    until_status(&cli, is_well).await;
    members.kill(ONE).await;
    let cli = CommandLine::new(&members.address(TWO));
    let (code, printed) = until_status(&cli, |printed| printed["register_answers"] == false).await;
    assert_eq!(code, Some(1), "{printed}");
    let states: Vec<&Value> =
        printed["nodes"].as_array().expect("a list").iter().map(|node| &node["state"]).collect();
    assert_eq!(states, ["down", "up", "up"], "{printed}");
    assert_eq!(
        (&printed["logs"][0]["name"], printed["logs"].as_array().map(Vec::len)),
        (&"l".into(), Some(1))
    );
    let table = cli.run(&["status"]).await;
    assert!(text(&table.stdout).starts_with("the register does not answer"), "{}", text(&table.stdout));
    members.restart(ONE).await;
    assert_eq!(until_status(&cli, is_well).await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_stands_still_is_told_of_and_so_is_the_log_that_does_not_get_on() {
    let stall = Stall::new();
    let cluster = Cluster::start_in(stall.surroundings(), &[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "l"]).await;
    cli.good_on(&["append", "l"], b"before\n").await;
    until_status(&cli, is_well).await;
    stall.begins();
    let client = cluster.client(TIMEOUT).await;
    let log = client.log("l").await.expect("it is there");
    let appended = log.submit("held up").await.expect("there is room");
    let is_stalled = |printed: &Value| {
        let nodes = printed["nodes"].as_array().expect("a list");
        nodes.iter().any(|node| node["state"] == "stalled") && printed["logs"][0]["state"] != "ok"
    };
    let (code, printed) = until_status(&cli, is_stalled).await;
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.to_string().contains("a disk write does not end"), "{printed}");
    assert!(!reasons(&printed["logs"][0]).is_empty(), "{printed}");
    stall.is_over();
    appended.await.expect("it is acknowledged");
    assert_eq!(until_status(&cli, is_well).await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_is_watched_and_takes_no_nonsense() {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    let mut watched = cli.begin(&["status", "--json", "--watch", "1"]);
    let mut lines = BufReader::new(watched.stdout.take().expect("it is piped")).lines();
    for _ in 0..2 {
        let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await.expect("in time");
        let line = line.expect("it can be read").expect("a line");
        assert!(is_well(&serde_json::from_str(&line).expect("JSON")), "{line}");
    }
    watched.kill().await.expect("it can be stopped");
    for nonsense in ["0", "-1", "soon", "3601"] {
        assert_eq!(cli.run(&["status", "--watch", nonsense]).await.status.code(), Some(2), "{nonsense}");
    }
    let nobody = CommandLine::new("127.0.0.1:1");
    assert!(nobody.bad(&["status"]).await.1.contains("127.0.0.1:1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_are_told_of_a_log_that_has_some_and_of_no_other() {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    let client = cluster.client(TIMEOUT).await;
    for order in Order::ALL {
        client
            .create(&order.to_string(), LogConfig { order, shards: 2, ..LogConfig::default() })
            .await
            .expect("it is created");
        let log = client.log(&order.to_string()).await.expect("it is there");
        log.append_sync("one").await.expect("it is appended");
    }
    let (_, printed) = until_status(&cli, is_well).await;
    let words = text(&cli.good(&["status"]).await).to_owned();
    for order in Order::ALL {
        let name = order.to_string();
        let mut logs = printed["logs"].as_array().expect("a list").iter();
        let of_status = &logs.find(|log| log["name"] == name.as_str()).expect("it is listed")["window"];
        let shown: Value =
            serde_json::from_slice(&cli.good(&["log", "show", &name, "--json"]).await).expect("JSON");
        let in_words = text(&cli.good(&["log", "show", &name]).await).to_owned();
        let told = [in_words.contains("\nquotas "), words.contains(&format!("{name}: window "))];
        assert_eq!(told, [order.has_quotas(); 2], "{in_words}{words}");
        assert_eq!(
            [&shown["window"], of_status].map(Value::is_object),
            [order.has_quotas(); 2],
            "{shown}{printed}"
        );
        if order.has_quotas() {
            let quotas = of_status["quotas"].as_array().expect("a list");
            assert_eq!(
                quotas.iter().map(|share| share["shard"].as_u64()).collect::<Vec<_>>(),
                [Some(0), Some(1)]
            );
            assert!(quotas.iter().all(|share| share["quota"].as_u64() > Some(0)), "{of_status}");
            // After a single record, the rest of the shard's turn is padded, and the other shard
            // gets a lag fix.
            let number = |field: &str| of_status[field].as_u64().expect("a number");
            assert!(number("lag_fixes") > 0 && number("made") > 0 && number("cuts") == 100, "{of_status}");
            assert_eq!(number("positions") - number("empty_positions"), 1, "{of_status}");
        }
    }
}
