//! A node away for less than `replace_after_ms`: a stand-in takes new records, and copies nothing.

use std::time::Duration;

use seriatim_client::{Client, LogConfig, NodeId, Order};

use crate::command::{CommandLine, text};
use crate::members::Members;
use crate::workload::DEADLINE;

const RECORDS: usize = 2000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_soon_back_has_only_the_difference_copied() {
    let mut members = Members::start(4).await;
    let client = members.client(DEADLINE).await;
    let cli = CommandLine::new(&members.addresses());
    for order in Order::ALL {
        let name = order.to_string();
        let config = LogConfig { order, shards: 1, replicas: 2, ..LogConfig::default() };
        client.create(&name, config).await.expect("the log is created");
        let lines: String = (0..RECORDS).map(|number| format!("{number:01000}\n")).collect();
        cli.good_on(&["append", &name], lines.as_bytes()).await;
    }
    let away = NodeId(3);
    let before = assigned(&client).await;
    assert!(before.iter().any(|nodes| nodes.contains(&away)), "{before:?}");
    members.kill(away).await;
    for order in Order::ALL {
        cli.good_on(&["append", &order.to_string()], b"while node 3 is away\n").await;
    }
    // Longer than a new replica's delay before it copies.
    tokio::time::sleep(Duration::from_secs(2)).await;
    members.restart(away).await;
    let status = cli.run(&["status", "--wait", "50"]).await;
    assert!(status.status.success(), "{}", text(&status.stdout));
    assert_eq!(assigned(&client).await, before, "{}", members.says());
    let says = members.says();
    assert!(says.contains("stands in for a node that is away"), "{says}");
    assert!(!says.contains("catching up, copies positions 0 to"), "{says}");
    for order in Order::ALL {
        let read = cli.good(&["read", &order.to_string()]).await;
        assert_eq!(text(&read).lines().count(), RECORDS + 1, "{order}");
    }
}

async fn assigned(client: &Client) -> Vec<Vec<NodeId>> {
    let mut all = vec![];
    for order in Order::ALL {
        let entry = client.lookup(&order.to_string()).await.expect("the log is there");
        let mut nodes = entry.shards[0].clone();
        nodes.sort_unstable();
        all.push(nodes);
    }
    all
}
