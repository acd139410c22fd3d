//! Kills during creation and deletion of logs: each is atomic, and deleted logs stay deleted.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use seriatim_client::{AppendOptions, Client, ControlError, LogConfig, LogEntry};

use crate::cluster::Cluster;
use crate::workload::DEADLINE;

/// Time limit of a request to a possibly dead server.
const BRIEF: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_created_and_deleted_wholly_or_not_at_all() {
    created_and_deleted(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_created_and_deleted_wholly_also_when_unsynced_writes_are_lost() {
    created_and_deleted(&["--volatile-disk"]).await;
}

async fn created_and_deleted(options: &'static [&'static str]) {
    let seed = rand::random();
    let rounds = rounds(options, seed);
    let outcome = tokio::time::timeout(Duration::from_secs(120), rounds).await;
    outcome.unwrap_or_else(|_| panic!("seed {seed} did not come to an end"));
}

async fn rounds(options: &'static [&'static str], seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::start(options).await;
    let mut ids = BTreeSet::new();
    let client = cluster.client(DEADLINE).await;
    let kept = client.create("kept", LogConfig::default()).await.expect("a log that stays");
    ids.insert(kept.id);
    let log = client.log("kept").await.expect("it is there");
    let mut records = 0;
    for _ in 0..4 {
        let mut after = || Duration::from_micros(random.random_range(0..20_000));
        kill_while_creating(&mut cluster, after()).await;
        let entry = made_sure("made", &cluster, &mut ids).await;
        assert!(!options.is_empty() || !directories(&cluster, &entry).is_empty(), "it has files");
        kill_while_deleting(&mut cluster, after()).await;
        gone_for_good("made", &entry, &mut cluster).await;
        log.append_sync(format!("{records}")).await.expect("it goes on");
        records += 1;
        assert_eq!(log.check_tail().await.expect("the tail").0, records);
    }
    assert_eq!(cluster.complaints(), "", "seed {seed}: nothing is worth a warning");
}

/// A client that ends with its cluster.
async fn doomed(cluster: &Cluster) -> Client {
    cluster.client(BRIEF).await
}

/// Kills the cluster during a request, then restarts it. Returns the answer, if it came in time;
/// both outcomes are valid.
async fn cut_short<T: Send + 'static>(
    cluster: &mut Cluster,
    after: Duration,
    asking: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let mut task = tokio::spawn(asking);
    let outcome = tokio::time::timeout(after, &mut task).await;
    cluster.kill().await;
    if outcome.is_err() {
        // A surviving client would repeat the request, and create a log that is deleted by then.
        task.abort();
        let _ = task.await;
    }
    cluster.spawn();
    cluster.ready().await;
    outcome.ok().map(|ended| ended.expect("it does not panic"))
}

async fn kill_while_creating(cluster: &mut Cluster, after: Duration) {
    let client = doomed(cluster).await;
    let creating = async move { client.create("made", LogConfig::default()).await };
    if let Some(created) = cut_short(cluster, after, creating).await {
        let created = created.expect("nothing is in its way");
        let client = cluster.client(DEADLINE).await;
        assert_eq!(client.lookup("made").await.expect("what was confirmed is there").id, created.id);
    }
}

/// Finds or creates the log: it is new, empty and works.
async fn made_sure(name: &str, cluster: &Cluster, ids: &mut BTreeSet<seriatim_model::LogId>) -> LogEntry {
    let client = cluster.client(DEADLINE).await;
    let entry = match client.lookup(name).await {
        Ok(entry) => entry,
        Err(ControlError::NoSuchLog { .. }) => {
            client.create(name, LogConfig::default()).await.expect("the name is free")
        }
        Err(cause) => panic!("{cause}"),
    };
    assert!(ids.insert(entry.id), "{:?} was used before: {ids:?}", entry.id);
    let log = client.log(name).await.expect("it is there");
    assert_eq!(log.check_tail().await.expect("the tail").0, 0, "it is empty");
    for expected in 0..100 {
        assert_eq!(log.append_sync("a record").await.expect("it works").0, expected);
    }
    entry
}

async fn kill_while_deleting(cluster: &mut Cluster, after: Duration) {
    let client = doomed(cluster).await;
    let deleting = async move { client.delete("made").await };
    let deleted = cut_short(cluster, after, deleting).await;
    let client = cluster.client(DEADLINE).await;
    match (deleted, client.lookup("made").await) {
        (_, Err(ControlError::NoSuchLog { .. })) => {}
        (Some(deleted), found) => {
            deleted.expect("nothing is in its way");
            panic!("what was confirmed to be deleted is there: {found:?}");
        }
        (None, found) => {
            let log = client.log("made").await.expect("it is there");
            assert_eq!(log.check_tail().await.expect("wholly").0, 100, "{found:?}");
            client.delete("made").await.expect("it can be deleted now");
        }
    }
}

/// The log is deleted, also after a kill. Its files go, and a new log with its name is distinct.
async fn gone_for_good(name: &str, entry: &LogEntry, cluster: &mut Cluster) {
    let client = cluster.client(DEADLINE).await;
    let old = client.log(name).await.expect_err("it is deleted");
    assert!(matches!(old, ControlError::NoSuchLog { .. }), "{old}");
    let all_gone = async {
        let mut look = tokio::time::interval(Duration::from_millis(20));
        while !directories(cluster, entry).is_empty() {
            look.tick().await;
        }
    };
    let outcome = tokio::time::timeout(Duration::from_secs(20), all_gone).await;
    assert!(outcome.is_ok(), "files of a deleted log are left: {:?}", directories(cluster, entry));
    cluster.kill_and_restart().await;
    let client = cluster.client(DEADLINE).await;
    let entries = client.list().await.expect("the list").0;
    let others: Vec<_> = entries.into_iter().filter(|log| log.name != "kept").collect();
    assert!(others.is_empty(), "{:?} was deleted, and there is {others:?}", entry.id);
    assert!(directories(cluster, entry).is_empty(), "nor do its files come back");
}

fn directories(cluster: &Cluster, entry: &LogEntry) -> Vec<PathBuf> {
    let nodes = fs::read_dir(cluster.data()).expect("the data of the cluster");
    let own = |node: PathBuf| node.join("logs").join(format!("{:016x}", entry.id.0));
    nodes.map(|node| own(node.expect("an entry").path())).filter(|path| path.exists()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_a_deleted_log_open_is_told() {
    let cluster = Cluster::start(&[]).await;
    let client = cluster.client(Duration::from_secs(20)).await;
    client.create("l", LogConfig::default()).await.expect("it is created");
    let log = client.log("l").await.expect("it is there");
    log.append_sync("a record").await.expect("it works");
    client.delete("l").await.expect("it is deleted");
    client.create("l", LogConfig::default()).await.expect("its name is free");
    let failed = log.append("another", AppendOptions::default()).await.expect_err("its log is gone");
    assert!(matches!(failed, seriatim_client::AppendError::Deleted(_)), "{failed:?}");
    let new = client.log("l").await.expect("it is there");
    assert_eq!(new.check_tail().await.expect("the tail").0, 0, "a new log of an old name is empty");
}
