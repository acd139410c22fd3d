//! The client against a real etcd that is killed, paused and compacted.

use std::time::Duration;

use bytes::Bytes;
use seriatim_etcd::testing::EtcdServer;
use seriatim_etcd::{
    Change, Client, EndpointError, Follower, KeyValue, Range, RequestError, Transaction, Update,
};

const WAIT: Duration = Duration::from_secs(30);

fn client(etcd: &EtcdServer) -> Client {
    Client::new(&[etcd.endpoint()]).unwrap()
}

fn keys(found: &[KeyValue]) -> Vec<&str> {
    found.iter().map(|found| found.key.as_str()).collect()
}

/// The next update, after any failures.
async fn next(follower: &mut Follower) -> Update {
    let next = async {
        loop {
            if let Ok(update) = follower.next().await {
                return update;
            }
        }
    };
    tokio::time::timeout(WAIT, next).await.expect("an update within the deadline")
}

#[tokio::test]
async fn transactions_compare() {
    let Some(etcd) = EtcdServer::start() else { return };
    let client = client(&etcd);
    let create = Transaction::new().if_version("t/a", 0).put("t/a", Bytes::from_static(b"1"));
    let create = create.get(&Range::prefix("t/")).or_get(&Range::key("t/a"));
    let mut first = client.commit(create.clone()).await.unwrap();
    assert!(first.succeeded);
    assert_eq!(keys(&first.take(0)), ["t/a"]);
    let mut second = client.commit(create).await.unwrap();
    assert!(!second.succeeded);
    let found = second.take(0);
    let replace = |revision| {
        let put = Transaction::new().if_modified_at("t/a", revision).put("t/a", Bytes::from_static(b"2"));
        client.commit(put)
    };
    assert!(!replace(found[0].modified_at + 1).await.unwrap().succeeded);
    assert!(replace(found[0].modified_at).await.unwrap().succeeded);
    let third = Transaction::new().if_version("t/a", 2).if_value("t/a", Bytes::from_static(b"2"));
    assert!(client.commit(third.delete("t/a")).await.unwrap().succeeded);
    assert!(client.get(&Range::key("t/a")).await.unwrap().found.is_empty());
}

#[tokio::test]
async fn ranges_hold_what_they_say() {
    let Some(etcd) = EtcdServer::start() else { return };
    let client = client(&etcd);
    for key in ["t/a", "t/a/1", "t/b/1", "t/c", "u"] {
        client.put(key, Bytes::new()).await.unwrap();
    }
    for (range, expected) in [
        (Range::key("t/a"), &["t/a"][..]),
        (Range::prefix("t/a"), &["t/a", "t/a/1"]),
        (Range::prefix("t/"), &["t/a", "t/a/1", "t/b/1", "t/c"]),
        (Range::between("t/a/", "t/b/"), &["t/a/1", "t/b/1"]),
        (Range::key("v"), &[]),
    ] {
        assert_eq!(keys(&client.get(&range).await.unwrap().found), expected, "{range:?}");
    }
}

#[tokio::test]
async fn a_follower_sees_every_change_across_a_kill() {
    let Some(mut etcd) = EtcdServer::start() else { return };
    let client = client(&etcd);
    client.put("t/a", Bytes::from_static(b"1")).await.unwrap();
    let mut follower = client.follow(Range::prefix("t/"));
    let Update::Whole(found) = next(&mut follower).await else { panic!("the whole comes first") };
    assert_eq!(keys(&found), ["t/a"]);
    client.put("t/b", Bytes::from_static(b"2")).await.unwrap();
    client.put("other", Bytes::new()).await.unwrap();
    let Update::Changed(changes) = next(&mut follower).await else { panic!("then the changes") };
    assert!(matches!(&changes[..], [Change::Put(put)] if put.key == "t/b"), "{changes:?}");
    etcd.kill();
    assert!(matches!(client.get(&Range::key("t/a")).await, Err(RequestError::Unreachable { .. })));
    etcd.restart();
    client.commit(Transaction::new().delete("t/b").put("t/c", Bytes::new())).await.unwrap();
    let Update::Changed(changes) = next(&mut follower).await else { panic!("nothing was forgotten") };
    let deleted = Change::Deleted { key: "t/b".into() };
    assert!(matches!(&changes[..], [one, Change::Put(put)] if *one == deleted && put.key == "t/c"));
}

#[tokio::test]
async fn what_etcd_forgot_is_read_anew() {
    let Some(mut etcd) = EtcdServer::start() else { return };
    let client = client(&etcd);
    let mut follower = client.follow(Range::prefix("t/"));
    assert_eq!(next(&mut follower).await, Update::Whole(vec![]));
    etcd.kill();
    // The client notices its closed connection.
    assert!(client.get(&Range::key("t/a")).await.is_err());
    etcd.restart();
    for key in ["t/a", "t/b"] {
        client.put(key, Bytes::new()).await.unwrap();
    }
    let revision = client.get(&Range::key("t/a")).await.unwrap().revision;
    client.compact(revision).await.unwrap();
    let Update::Whole(found) = next(&mut follower).await else { panic!("the change to t/a is forgotten") };
    assert_eq!(keys(&found), ["t/a", "t/b"]);
}

#[tokio::test]
async fn an_etcd_without_space_refuses_with_the_remedy() {
    let Some(mut etcd) = EtcdServer::start() else { return };
    etcd.restart_with(&["--quota-backend-bytes", "100000"]);
    let client = client(&etcd);
    let value = Bytes::from(vec![b'x'; 10_000]);
    let refusal = async {
        loop {
            if let Err(error) = client.commit(Transaction::new().put("t/a", value.clone())).await {
                return error;
            }
        }
    };
    let refusal = tokio::time::timeout(WAIT, refusal).await.expect("its space is used up");
    assert!(matches!(refusal, RequestError::Refused { .. }), "{refusal}");
    assert!(refusal.to_string().contains("--auto-compaction-retention"), "{refusal}");
}

#[tokio::test]
async fn the_next_endpoint_is_asked_when_one_is_silent() {
    let (Some(silent), Some(etcd)) = (EtcdServer::start(), EtcdServer::start()) else { return };
    silent.pause();
    let dead = "127.0.0.1:1".to_owned();
    let client = Client::new(&[dead, silent.endpoint(), etcd.endpoint()]).unwrap();
    client.put("t/a", Bytes::new()).await.unwrap();
    assert_eq!(client.get(&Range::key("t/a")).await.unwrap().found.len(), 1);
    silent.resume();
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    assert_eq!(Client::new(&[]).unwrap_err(), EndpointError::None);
    for (endpoint, says) in [
        ("https://h:1", "wants TLS"),
        ("h", "no port"),
        ("ftp://h:1", "another protocol"),
        ("a b:1", "not an address"),
    ] {
        let error = Client::new(&[endpoint.to_owned()]).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(endpoint), "{error}");
    }
    let nobody = Client::new(&["127.0.0.1:1".to_owned()]).unwrap();
    let error = nobody.get(&Range::key("a")).await.unwrap_err().to_string();
    let expected = "etcd does not answer (127.0.0.1:1: Connection refused (os error 111)); start it, or correct its endpoints";
    assert_eq!(error, expected);
}
