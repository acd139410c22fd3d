//! Unordered appends with keys in a log ordered by cuts, on a cluster in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_client::{
    Client, ClientOptions, Log, LogConfig, LogOptions, Order, Position, Record, SessionId,
};
use seriatim_node::{Dev, DevOptions};

const RECORDS: u64 = 600;
const KEYS: usize = 100;

/// Appends `RECORDS` records with `KEYS` keys; returns each session's keys.
async fn append(log: &Log, round: &str) -> BTreeMap<SessionId, BTreeSet<String>> {
    let mut appends = vec![];
    for number in 0..RECORDS {
        let key = format!("key {}", number % KEYS as u64);
        let record = Record::from(format!("{round} {number}")).with_key(key.clone());
        appends.push((log.submit(record).await.unwrap(), key));
    }
    let mut sessions = BTreeMap::<_, BTreeSet<_>>::new();
    for (append, key) in appends {
        let receipt = append.await.unwrap();
        assert_eq!(receipt.appended_again, 0);
        sessions.entry(receipt.id.session).or_default().insert(key);
    }
    sessions
}

#[tokio::test(flavor = "multi_thread")]
async fn each_shard_of_a_log_with_cuts_has_a_session_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let dev = Dev::start(DevOptions::new(directory.path(), "127.0.0.1:0")).await.unwrap();
    let options = ClientOptions::default().with_deadline(Duration::from_secs(60));
    let client = Client::connect_with(&dev.address().to_string(), options).await.unwrap();
    let config = LogConfig { order: Order::Scalog, ..LogConfig::default() };
    client.create("keyed", config).await.unwrap();
    let log = client.log_with("keyed", LogOptions::unordered(1)).await.unwrap();

    let is_apart = |sessions: &BTreeMap<SessionId, BTreeSet<String>>| {
        sessions.values().map(BTreeSet::len).sum::<usize>() == KEYS
    };
    let sessions = append(&log, "first").await;
    assert_eq!(sessions.len(), 2);
    assert!(is_apart(&sessions), "all records with one key are of one session");
    assert_eq!(log.session().await, None, "there is not one to go on with");

    // The handle opens a session for the new shard after it learns of it.
    client.add_shard("keyed").await.unwrap();
    append(&log, "second").await;
    let sessions = append(&log, "third").await;
    assert_eq!(sessions.len(), 3);
    assert!(is_apart(&sessions), "all records with one key are of one session");

    log.end_session().await.unwrap();
    let mut found = BTreeSet::new();
    let mut from = Position::ZERO;
    while found.len() < 3 * RECORDS as usize {
        let records = log.read(from, 1000, Duration::from_secs(10)).await.unwrap();
        from = records.last().expect("there are more").position.next();
        for stored in records {
            assert!(found.insert(stored.record.payload()), "each record is there once");
        }
    }
    assert!(log.read(from, 1, Duration::ZERO).await.unwrap().is_empty());
    drop((log, client));
    dev.stop().await.unwrap();
}
