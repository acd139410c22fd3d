//! Nodes drained, replaced, removed and restarted in sequence under load, as in
//! `docs/operations.md`.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use seriatim_client::{AppendOptions, Client, ClientOptions, LogConfig, NodeId, Order, Position};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::command::{CommandLine, text};
use crate::guide::{commands, run, section};
use crate::members::{Members, Register, has_etcd};
use crate::process::own_host;
use crate::workload::{DEADLINE, Workload, all_styles};

const GUIDE: &str = include_str!("../../../../docs/cluster.md");
const OPERATIONS: &str = include_str!("../../../../docs/operations.md");

const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);

async fn within(seconds: u64, test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(seconds), test).await.expect("it comes to an end");
}

fn config(order: Order) -> LogConfig {
    LogConfig { order, sequencers: 3, replicas: 2, ..LogConfig::default() }
}

async fn load(members: &Members, client: &Client) -> Vec<Workload> {
    let mut logs = vec![];
    for order in Order::ALL {
        let name = order.to_string();
        client.create(&name, config(order)).await.expect("the log is created");
        let (seed, styles) = (rand::random(), all_styles(order));
        logs.push(Workload::start(&members.addresses(), &name, order, seed, &styles));
    }
    acknowledged_more(&logs).await;
    logs
}

async fn acknowledged_more(logs: &[Workload]) {
    for log in logs {
        let target = log.history.acknowledged() + 50;
        let waiting = tokio::time::timeout(DEADLINE, log.history.wait_for(target));
        assert!(waiting.await.is_ok(), "log '{}' acknowledges nothing any more", log.name);
    }
}

/// A node is drained under load, lost with its data, and removed: no record is missing.
async fn leaves_for_good(register: Register) {
    let mut members = Members::start_on(register, 5).await;
    let client = members.client(DEADLINE).await;
    let seriatim = CommandLine::new(&members.addresses());
    client.create("short", config(Order::default())).await.expect("a log");
    let logs = load(&members, &client).await;
    let (_, said) = seriatim.bad(&["admin", "remove", "3"]).await;
    assert!(said.contains("node 3 is up: drain it first"), "{said}");
    let drained = seriatim.good(&["admin", "drain", "3"]).await;
    let drained = text(&drained);
    let done = "node 3 is fully drained. Stop node 3, then run: seriatim admin remove 3\n";
    assert!(drained.ends_with(done), "{drained}");
    assert!(drained.contains(" logs moved\n"), "{drained}");
    let status = seriatim.run(&["status"]).await;
    let status = text(&status.stdout);
    assert!(status.contains("draining") && status.contains("node 3: fully drained"), "{status}");
    // New logs do not use the drained node.
    for order in Order::ALL {
        client.create(&format!("late-{order}"), config(order)).await.expect("a log");
    }
    client.delete("short").await.expect("it is deleted");
    acknowledged_more(&logs).await;
    members.kill(THREE).await;
    std::fs::remove_dir_all(members.data(THREE)).expect("its data is lost");
    acknowledged_more(&logs).await;
    let removed = seriatim.good(&["admin", "remove", "3"]).await;
    assert_eq!(text(&removed), "node 3 is removed; its number is not used again\n");
    seriatim.good(&["admin", "remove", "3"]).await;
    let status = seriatim.good(&["status", "--wait", "60"]).await;
    assert!(!text(&status).contains(&members.address(THREE)), "{}", text(&status));
    let (_, said) = seriatim.bad(&["admin", "drain", "3"]).await;
    assert!(said.contains("node 3 was removed, and its number is not used again"), "{said}");
    std::fs::create_dir(members.data(THREE)).expect("a directory");
    members.spawn(THREE);
    let status = members.end_of(THREE, Signal::CONT).await;
    assert!(!status.success());
    assert!(members.says().contains("node 3 was removed from its cluster"), "{}", members.says());
    for log in logs {
        let outcome = log.finish().await;
        outcome.unwrap_or_else(|violations| panic!("{violations:?}; {}", members.says()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_drained_under_load_and_lost_and_removed() {
    within(200, leaves_for_good(Register::First)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_with_the_register_in_etcd() {
    if has_etcd("a node that leaves") {
        within(200, leaves_for_good(Register::Etcd)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_takes_over_from_another_that_is_dead() {
    within(150, async {
        let mut members = Members::start(4).await;
        let client = members.client(DEADLINE).await;
        let seriatim = CommandLine::new(&members.addresses());
        // Nodes 1 to 3 order the first log; nodes 2 and 3 have its shard.
        client.create("a", LogConfig { shards: 1, ..config(Order::default()) }).await.expect("a log");
        let log = client.log("a").await.expect("the log");
        for number in 0..200_u32 {
            let record = number.to_le_bytes().to_vec();
            log.append(record, AppendOptions::default()).await.expect("it is appended");
        }
        let (_, said) = seriatim.bad(&["admin", "replace", "2", "--by", "3"]).await;
        assert!(said.contains("node 3 already has a replica of the order of 'a'"), "{said}");
        members.kill(TWO).await;
        let replaced = seriatim.good(&["admin", "replace", "2", "--by", "4"]).await;
        assert!(text(&replaced).contains("node 4 has replaced node 2. Stop node 2"), "{}", text(&replaced));
        let (entries, _) = client.list().await.expect("the logs");
        let view = entries[0].view.as_ref().expect("a view");
        let nodes = |members: &[seriatim_model::Member]| {
            let mut nodes: Vec<u32> = members.iter().map(|member| member.node.0).collect();
            nodes.sort_unstable();
            nodes
        };
        assert_eq!(nodes(&view.sequencers), [1, 3, 4]);
        assert_eq!(nodes(&view.shards[0].replicas), [3, 4]);
        seriatim.good(&["admin", "remove", "2"]).await;
        // Node 4 has all records that it took over, without the other replica.
        members.kill(THREE).await;
        let read = log.read(Position(0), 200, Duration::from_secs(20)).await;
        assert!(!read.expect("it can be read").is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_said_in_words() {
    within(100, async {
        let mut members = Members::start(3).await;
        let client = members.client(DEADLINE).await;
        let seriatim = CommandLine::new(&members.addresses());
        client.create("x", config(Order::default())).await.expect("a log");
        for (arguments, words) in [
            (&["admin", "drain", "9"][..], "there is no node 9; the cluster has nodes 1, 2, 3"),
            (&["admin", "drain", "1"], "node 1 holds the register of this cluster and cannot leave"),
            (&["admin", "remove", "9"], "there is no node 9"),
            (&["admin", "replace", "2", "--by", "2"], "node 2 cannot take over from itself"),
            (&["admin", "replace", "2", "--by", "7"], "there is no node 7 to take over"),
            (&["admin", "drain", "9", "--cancel"], "there is no node 9"),
            (&["admin", "drain", "2"], "log 'x' needs 3 nodes, and only 2 others are available"),
            // The same drain again, and the drain of another node.
            (&["admin", "drain", "2"], "log 'x' needs 3 nodes, and only 2 others are available"),
            (&["admin", "drain", "3"], "log 'x' needs 3 nodes, and only 1 other is available"),
        ] {
            let (_, said) = seriatim.bad(arguments).await;
            assert!(said.contains(words), "{arguments:?}: {said}");
        }
        // `status` continues to show the reason.
        let status = seriatim.run(&["status"]).await;
        let told = "it cannot be drained yet: log 'x' needs 3 nodes, and only 1 other is available";
        assert!(text(&status.stdout).contains(&format!("node 2: 1 log left to move; {told}")));
        assert_eq!(status.status.code(), Some(1), "{}", text(&status.stdout));
        let (entries, _) = client.list().await.expect("the logs");
        assert_eq!(entries[0].view.as_ref().expect("a view").sequencers.len(), 3);
        let refused = client.create("y", config(Order::default())).await.expect_err("one node stays");
        assert!(refused.to_string().contains("draining nodes take no new roles: nodes 2, 3"), "{refused}");
        seriatim.good(&["admin", "drain", "3", "--cancel"]).await;
        seriatim.good(&["admin", "drain", "2", "--cancel"]).await;
        seriatim.good(&["status", "--wait", "30"]).await;
        // The log loses its view, and reports it.
        members.kill(TWO).await;
        members.kill(THREE).await;
        let is_unavailable = async {
            let mut look = tokio::time::interval(Duration::from_millis(50));
            while client.list().await.expect("the logs").0[0].unavailable.is_none() {
                look.tick().await;
            }
        };
        is_unavailable.await;
        let (_, said) = seriatim.bad(&["admin", "drain", "2"]).await;
        assert!(said.contains("log 'x' has no active view: "), "{said}");
        let (_, said) = seriatim.bad(&["admin", "remove", "2"]).await;
        assert!(said.contains("node 2 still has roles in log 'x'"), "{said}");
        let waited = seriatim.run(&["status", "--wait", "1"]).await;
        assert_eq!(waited.status.code(), Some(1), "not all is well");
        members.restart(TWO).await;
        members.restart(THREE).await;
        seriatim.good(&["admin", "drain", "2", "--cancel"]).await;
        seriatim.good(&["status", "--wait", "30"]).await;
    })
    .await;
}

/// Appends to a log, several at a time, until the stop. Returns their number and the longest time.
async fn append(servers: String, order: Order, stop: watch::Receiver<bool>) -> (Order, u64, Duration) {
    let client = Client::connect_with(&servers, ClientOptions::default()).await.expect("the cluster serves");
    let log = client.log(&order.to_string()).await.expect("the log");
    let (mut count, mut longest) = (0_u64, Duration::ZERO);
    while !*stop.borrow() {
        let began = Instant::now();
        let mut appends = vec![];
        for number in count..count + 8 {
            appends.push(log.submit(number.to_le_bytes().to_vec()).await.expect("it is taken"));
        }
        for append in appends {
            append.await.unwrap_or_else(|cause| panic!("{order}: append {count} failed: {cause}"));
            count += 1;
        }
        longest = longest.max(began.elapsed());
    }
    (order, count, longest)
}

/// Writes a line into a pipe, which holds it while the file is open.
fn tell(pipe: &Path) -> File {
    // Opening a pipe for both directions does not block.
    let mut pipe = File::options().read(true).write(true).open(pipe).expect("the shell made it");
    pipe.write_all(b"\n").expect("there is room");
    pipe
}

async fn is_there(path: &Path) {
    let mut look = tokio::time::interval(Duration::from_millis(20));
    while !path.exists() {
        look.tick().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_are_restarted_one_after_the_other_and_no_append_fails() {
    if !has_etcd("a rolling restart") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let host = own_host();
    let start = commands(section(GUIDE, "## Start"));
    let servers = format!("{host}:7701,{host}:7702,{host}:7703");
    let restart = commands(section(OPERATIONS, "## All nodes are restarted"));
    assert!(restart.contains("status --wait"), "{restart}");
    // The shell waits until a line is in the pipe.
    let script = format!(
        "{start}export SERIATIM_SERVER={servers}\nmkfifo loaded over\ntouch started\nread -r < loaded\n\
         {restart}touch restarted\nread -r < over\n"
    );
    let script = script.replace("127.0.0.1", &host);
    let (here, files) = (directory.path().to_owned(), directory.path().join("seriatim-cluster"));
    let mut shell = tokio::spawn(async move { run(&script, &here).await });
    let test = async {
        is_there(&files.join("started")).await;
        let client = Client::connect(&servers).await.expect("the cluster serves");
        let stop = watch::Sender::new(false);
        let mut appending = JoinSet::new();
        for order in Order::ALL {
            let config = LogConfig { replicas: 3, ..config(order) };
            client.create(&order.to_string(), config).await.expect("a log");
            appending.spawn(append(servers.clone(), order, stop.subscribe()));
        }
        let _loaded = tell(&files.join("loaded"));
        is_there(&files.join("restarted")).await;
        stop.send_replace(true);
        while let Some(appended) = appending.join_next().await {
            let (order, count, longest) = appended.expect("no append failed");
            let log = client.log(&order.to_string()).await.expect("the log");
            let tail = log.check_tail().await.expect("the tail");
            assert!(tail.0 >= count, "{order}: {tail} of {count}");
            assert!(longest < Duration::from_secs(10), "{order}: one of {count} took {longest:?}");
        }
        tell(&files.join("over"))
    };
    let _over = tokio::select! {
        over = test => over,
        shell = &mut shell => {
            let (_, printed) = shell.expect("the shell");
            panic!("it ended early: {printed}");
        }
    };
    let (is_good, printed) = shell.await.expect("the shell");
    assert!(is_good, "{printed}");
}
