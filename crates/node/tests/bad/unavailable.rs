//! Deadline errors name the missing part.

use std::time::Duration;

use seriatim_client::{AppendOptions, Client, LogConfig, Position};
use seriatim_model::Durability;
use seriatim_node::{Dev, DevOptions};

use crate::support::{Cluster, client_with, eventually, read_range, says, small_journal};

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_there() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    says(&Client::connect(&free).await.unwrap_err(), &["cannot reach", &free, "node is running"]);
    let no_address = Client::connect("nonsense").await.unwrap_err();
    says(&no_address, &["cannot reach nonsense", "check the address"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_else_is_there() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ =
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    says(&Client::connect(&address).await.unwrap_err(), &[&address, "does not speak the Seriatim protocol"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_cluster_is_gone() {
    let cluster = Cluster::start().await;
    let address = cluster.address();
    let client = client_with(&address, Duration::from_secs(3)).await;
    client.create("log", LogConfig::default()).await.unwrap();
    let log = client.log("log").await.unwrap();
    log.append_sync("x").await.unwrap();
    cluster.dev.stop().await.unwrap();
    let gone = [&address, "node 1", "cannot be reached"];
    says(&log.append("y", AppendOptions::default()).await.unwrap_err(), &gone);
    says(&log.check_tail().await.unwrap_err(), &gone);
    says(&log.trim(Position(0)).await.unwrap_err(), &gone);
    says(&client.list().await.unwrap_err(), &gone);
    says(&client.create("other", LogConfig::default()).await.unwrap_err(), &gone);
    let none = Duration::ZERO;
    says(&log.read(Position(0), 1, none).await.unwrap_err(), &["shard", "node", "is not responding"]);
}

/// A memory log that every replica forgot, beside an intact log on disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_no_replica_remembers() {
    let data = tempfile::tempdir().unwrap();
    let options = || {
        let mut options = DevOptions::new(data.path(), "127.0.0.1:0");
        options.run.journal = small_journal();
        options
    };
    let memory = LogConfig { durability: Durability::Memory, ..LogConfig::default() };
    let dev = Dev::start(options()).await.unwrap();
    let client = client_with(&dev.address().to_string(), Duration::from_secs(5)).await;
    client.create("memory", memory).await.unwrap();
    client.create("disk", LogConfig::default()).await.unwrap();
    client.log("memory").await.unwrap().append_sync("x").await.unwrap();
    client.log("disk").await.unwrap().append_sync("x").await.unwrap();
    drop(dev);
    let restarted = tokio::sync::Mutex::new(None);
    eventually("the directory is free again", || async {
        *restarted.lock().await = Dev::start(options()).await.ok();
        restarted.lock().await.is_some()
    })
    .await;
    let dev = restarted.into_inner().unwrap();
    let client = client_with(&dev.address().to_string(), Duration::from_secs(2)).await;
    let on_disk = client.log("disk").await.unwrap();
    assert_eq!(on_disk.append_sync("y").await.unwrap(), Position(1));
    let lost = client.log("memory").await.unwrap();
    let error = lost.append("y", AppendOptions::default()).await.unwrap_err();
    says(&error, &["not acknowledged within 2 s", "memory"]);
    says(&lost.check_tail().await.unwrap_err(), &["timed out after 2 s", "memory"]);
    assert_eq!(on_disk.append_sync("z").await.unwrap(), Position(2));
    assert_eq!(read_range(&on_disk, Position(0), Position(3)).await.len(), 3);
}
