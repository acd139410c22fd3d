//! `seriatim serve`: one process per node, and clients that outlive their node.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use seriatim_client::{AppendOptions, ControlError, Log, LogConfig, NodeId, Order, Position};

use crate::command::{CommandLine, text as text_of};
use crate::events::told;
use crate::members::{Members, Register, has_etcd};
use crate::workload::{DEADLINE, Workload, all_styles};

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);

fn config(sequencers: u32, replicas: u32) -> LogConfig {
    LogConfig { sequencers, replicas, ..LogConfig::default() }
}

async fn within(seconds: u64, test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(seconds), test).await.expect("it comes to an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_killed_and_started_again_lose_nothing() {
    within(150, async {
        let mut members = Members::start(3).await;
        let client = members.client(DEADLINE).await;
        let mut logs = vec![];
        for order in Order::ALL {
            let name = order.to_string();
            client.create(&name, LogConfig { order, ..config(3, 2) }).await.expect("the log is created");
            let (seed, styles) = (rand::random(), all_styles(order));
            logs.push(Workload::start(&members.addresses(), &name, order, seed, &styles));
        }
        for node in [TWO, ONE, THREE] {
            acknowledged_more(&logs).await;
            members.kill(node).await;
            members.restart(node).await;
        }
        acknowledged_more(&logs).await;
        members.stop(TWO).await;
        members.restart(TWO).await;
        acknowledged_more(&logs).await;
        for log in logs {
            let outcome = log.finish().await;
            outcome.unwrap_or_else(|violations| panic!("{violations:?}; {}", members.says()));
        }
    })
    .await;
}

/// Size of records that fill segments soon.
const LARGE_BYTES: usize = 900 << 10;

fn large(number: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(LARGE_BYTES / 8)
}

async fn append_large(log: &Log, told: &mut Vec<Position>) {
    let first = told.len();
    let mut appends = vec![];
    for number in first..first + 40 {
        appends.push(log.submit(large(number)).await.expect("there is room"));
    }
    for append in appends {
        let receipt = append.await.expect("it is acknowledged");
        told.push(receipt.position.expect("with its position"));
    }
}

fn segments(members: &Members, node: NodeId) -> usize {
    let mut directories = vec![members.data(node)];
    let mut found = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            found += usize::from(path.to_string_lossy().contains("/seg-"));
            directories.extend(path.is_dir().then_some(path));
        }
    }
    found
}

/// Large records fill segments while nodes are killed; every reported position stays.
pub(crate) async fn keeps_positions_through_segments(order: Order) {
    let mut members = Members::start(3).await;
    let client = members.client(DEADLINE).await;
    let config = LogConfig { order, shards: 1, ..config(3, 2) }.fitted();
    client.create("rolls", config).await.expect("the log is created");
    let log = client.log("rolls").await.expect("it is there");
    let mut told = vec![];
    append_large(&log, &mut told).await;
    for node in [TWO, ONE, THREE] {
        members.kill(node).await;
        members.restart(node).await;
        append_large(&log, &mut told).await;
    }
    let most = members.numbers().map(|node| segments(&members, node)).max();
    assert!(most >= Some(2), "no segment was full: {most:?}");
    for node in members.numbers() {
        members.kill(node).await;
    }
    for node in members.numbers() {
        members.spawn(node);
    }
    for node in members.numbers() {
        members.ready(node).await;
    }
    let log = members.client(DEADLINE).await.log("rolls").await.expect("it is there");
    for (number, position) in told.iter().enumerate() {
        let read = log.read(*position, 1, DEADLINE).await.expect("it is read");
        assert_eq!(read.first().map(|stored| stored.position), Some(*position));
        assert!(read[0].record.payload() == large(number), "another record is at {position}");
    }
    append_large(&log, &mut told).await;
    assert!(told.is_sorted_by(|one, next| one < next), "positions rise: {told:?}");
}

async fn acknowledged_more(logs: &[Workload]) {
    for log in logs {
        let target = log.history.acknowledged() + 50;
        let waiting = tokio::time::timeout(DEADLINE, log.history.wait_for(target));
        assert!(waiting.await.is_ok(), "log '{}' acknowledges nothing any more", log.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_goes_on_through_another_node_when_its_own_is_gone_or_hangs() {
    within(100, async {
        let mut members = Members::start(3).await;
        for (name, hangs) in [("killed", false), ("paused", true)] {
            let client = members.client_of(THREE, Duration::from_secs(20)).await;
            client.create(name, config(3, 2)).await.expect("a log");
            let log = client.log(name).await.expect("it is there");
            assert_eq!(log.append_sync("before").await, Ok(Position(0)));
            if hangs {
                members.signal(THREE, Signal::STOP);
            } else {
                members.kill(THREE).await;
            }
            assert_eq!(log.append_sync("after").await, Ok(Position(1)));
            let records = log.read(Position(1), 10, DEADLINE).await.expect("it is readable");
            assert_eq!(records[0].record.payload(), "after");
            assert_eq!(client.lookup(log.name()).await.expect("another node is asked").name, log.name());
            client.delete(log.name()).await.expect("also to delete it");
            let error = client.lookup(log.name()).await.expect_err("it is gone");
            assert!(matches!(error, ControlError::NoSuchLog { .. }), "{error:?}");
            // A command with all addresses finds a node that answers.
            let cli = CommandLine::new(&format!("{},{}", members.address(THREE), members.address(TWO)));
            cli.good(&["log", "list"]).await;
            if hangs {
                members.signal(THREE, Signal::CONT);
            } else {
                members.restart(THREE).await;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_says_what_is_in_its_way() {
    within(60, async {
        let mut members = Members::start(2).await;
        let cli = CommandLine::new(&members.addresses());
        let config = members.config(TWO);
        let serve = ["serve", "--config", config.to_str().expect("a path in plain letters")];
        let said = cli.held_up(&serve).await;
        assert!(
            said.contains("node2.toml") && said.contains("in use") && said.contains("'listen'"),
            "{said}"
        );
        members.stop(TWO).await;

        let good = fs::read_to_string(&config).expect("it is there");
        let own = members.address(TWO);
        for (from, to, words) in [
            ("id = 2", "id = 3", &["node 2", "node 3", "'data'"][..]),
            ("node = 1", "node = 4", &["register on node 1", "not on node 4"]),
            ("data = \"node2\"", "data = \"node1\"", &["node 1", "'data'"]),
            ("listen", "lisen", &["line 2", "`lisen`", "`listen`"]),
            (own.as_str(), "0.0.0.0:0", &["0.0.0.0", "'advertise'"]),
            ("id = 2", "id = 2\nadvertise = \"0.0.0.0:7702\"", &["cannot reach 0.0.0.0:7702", "'advertise'"]),
            ("id = 2", "id = 2\nadvertise = \"[::]:7702\"", &["cannot reach [::]:7702", "'advertise'"]),
        ] {
            assert!(good.contains(from), "{from} in {good}");
            fs::write(&config, good.replacen(from, to, 1)).expect("it is written");
            let (_, said) = cli.bad(&serve).await;
            for word in words {
                assert!(said.contains(word), "{to}: '{said}' does not say {word}");
            }
        }
        fs::write(&config, good).expect("it is written");
        members.restart(TWO).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_looks_for_itself_at_the_address_that_it_gives_to_others() {
    within(90, looks_for_itself_on(Register::First)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_looks_for_itself_at_the_address_that_it_gives_to_others_with_etcd() {
    if has_etcd("a_node_looks_for_itself_at_the_address_that_it_gives_to_others_with_etcd") {
        within(90, looks_for_itself_on(Register::Etcd)).await;
    }
}

async fn looks_for_itself_on(register: Register) {
    let mut members = Members::start_on(register, 2).await;
    let other = Members::start(1).await;
    let config = members.config(TWO);
    let good = fs::read_to_string(&config).expect("it is there");
    let (own, elsewhere) = (members.address(TWO), members.address(NodeId(52)));
    let listens_elsewhere = good.replace(&own, &elsewhere);
    let serve = async |advertise: &str, text: &str| {
        fs::write(&config, format!("advertise = \"{advertise}\"\n{text}")).expect("it is written");
        let arguments = ["serve", "--config", config.to_str().expect("a path in plain letters")];
        let output = CommandLine::new("unused").run(&arguments).await;
        let said = text_of(&output.stderr).to_owned();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{said}");
        said.lines().last().expect("it says why").to_owned()
    };
    let with_its_own_data = listens_elsewhere.replace("data = \"node2\"", "data = \"second\"");
    let said = serve(&own, &with_its_own_data).await;
    assert!(said.contains(&format!("{own}, where another process as node 2 answers")), "{said}");
    members.stop(TWO).await;

    for (address, found) in
        [(members.address(ONE), "node 1 answers"), (other.address(ONE), "a node of another cluster answers")]
    {
        let said = serve(&address, &listens_elsewhere).await;
        assert!(said.contains(&format!("node 2 advertises the address {address}, where {found}")), "{said}");
        assert!(said.contains("node2.toml") && said.contains("'advertise'"), "{said}");
    }

    let nowhere = format!("advertise = \"{own}\"\n{listens_elsewhere}");
    fs::write(&config, nowhere).expect("it is written");
    members.spawn(TWO);
    let warning = format!("does not reach itself at {own}, its advertised address: Connection refused");
    told(|| members.says(), &[&warning, "correct 'advertise'"]).await;
    members.kill(TWO).await;
    let port = own.rsplit_once(':').expect("it has a port").1;
    let on_all_addresses = good.replace(&own, &format!("0.0.0.0:{port}"));
    fs::write(&config, format!("advertise = \"{own}\"\n{on_all_addresses}")).expect("it is written");
    members.restart(TWO).await;
    assert_eq!(members.says().matches("does not reach itself").count(), 1, "{}", members.says());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_another_cluster_is_refused() {
    within(60, async {
        let mut members = Members::start(2).await;
        let other = Members::start(2).await;
        members.stop(TWO).await;
        let config = members.config(TWO);
        let good = fs::read_to_string(&config).expect("it is there");
        let moved = good.replace(&members.address(ONE), &other.address(ONE));
        fs::write(&config, moved).expect("it is written");
        let cli = CommandLine::new(&members.addresses());
        let (_, said) = cli.bad(&["serve", "--config", config.to_str().expect("plain letters")]).await;
        assert!(said.contains("cluster") && said.contains(&other.address(ONE)), "{said}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_waits_for_its_register_and_learns_its_cluster_from_it() {
    within(60, async {
        let mut members = Members::start(2).await;
        members.stop(TWO).await;
        members.stop(ONE).await;
        fs::remove_dir_all(members.data(TWO)).expect("it is removed");
        members.spawn(TWO);
        members.restart(ONE).await;
        members.ready(TWO).await;
        let client = members.client(DEADLINE).await;
        client.create("orders", config(2, 2)).await.expect("the log is created");
        let log = client.log("orders").await.expect("it is there");
        log.append("a record", AppendOptions::default()).await.expect("it is appended");
    })
    .await;
}
