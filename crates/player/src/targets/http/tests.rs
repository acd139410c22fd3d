use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::cluster::{Cluster, wait};
use super::super::suite::{
    Fixture, Restored, attach, batch, entries, message, passes, passes_without_copies, stream,
};
use super::*;
use crate::config::Secret;
use crate::testing::{Receiver as Server, Request, Stored};

const WITHIN: Duration = Duration::from_secs(20);

fn target_at(url: &str) -> HttpTarget {
    HttpTarget::new("ledger", Place::new(url, None, None, WITHIN).unwrap())
}

/// A receiver that answers as the contract demands.
struct Good {
    server: Server,
    stored: Stored,
    saved: Stored,
}

impl Good {
    fn start() -> Self {
        let stored = Stored::default();
        let served = stored.clone();
        Self {
            server: Server::start(move |request| served.answer(request)),
            stored,
            saved: Stored::default(),
        }
    }

    fn texts(&self) -> Vec<String> {
        let text = |(_, part): (u64, Vec<u8>)| String::from_utf8(part).unwrap();
        self.stored.effects().into_iter().map(text).collect()
    }
}

impl Fixture for Good {
    type Target = HttpTarget;

    fn target(&self) -> HttpTarget {
        target_at(&format!("http://{}/orders", self.server.address()))
    }

    async fn effects(&self) -> Vec<String> {
        self.texts()
    }
}

impl Restored for Good {
    async fn save(&mut self) {
        self.saved = self.stored.copy();
    }

    async fn restore(&mut self) {
        self.stored.restore(&self.saved);
    }
}

/// A receiver with these answers in turn, and its requests.
fn scripted(answers: &[(u16, &str)]) -> (HttpTarget, Server, Arc<Mutex<Vec<Request>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let answers: Vec<(u16, String)> =
        answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
    let server = Server::start(move |request| {
        let mut seen = seen.lock().unwrap();
        seen.push(request.clone());
        answers[seen.len() - 1].clone()
    });
    (target_at(&format!("http://{}", server.address())), server, requests)
}

#[tokio::test]
async fn a_receiver_passes_the_tests_of_targets() {
    passes(Good::start()).await;
}

#[tokio::test]
async fn a_request_has_the_bounds_and_each_message_as_a_line() {
    let (mut target, _server, requests) = scripted(&[(200, r#"{"applied": 3}"#), (200, ""), (204, "")]);
    assert_eq!(attach(&mut target, 5).await, Ok(Position(3)));
    let mut binary = message(7, &["a", "b"]);
    (binary.key, binary.parts[1]) = (Some("k".into()), Bytes::from_static(&[0xff]));
    let messages = vec![message(4, &["\"ü\"\n"]), binary];
    let batch = Batch { after: Position(3), upto: Position(9), messages };
    assert_eq!(target.apply(&batch).await, Ok(()));
    let empty = Batch { after: Position(9), upto: Position(10), messages: vec![] };
    assert_eq!(target.apply(&empty).await, Ok(()));
    let requests = requests.lock().unwrap();
    let header = |at: usize, name: &str| requests[at].headers.get(name).map(String::as_str);
    assert_eq!((requests[0].method.as_str(), header(0, STREAM)), ("GET", Some("7/billing")));
    assert_eq!((header(0, TARGET), header(0, EPOCH), header(0, ADOPTS)), (Some("ledger"), Some("5"), None));
    assert_eq!((requests[1].method.as_str(), header(1, STREAM)), ("POST", Some("7/billing")));
    assert_eq!((header(1, AFTER), header(1, UPTO), header(1, EPOCH)), (Some("3"), Some("9"), Some("5")));
    let lines = "{\"position\":4,\"time_ms\":1700000000004,\"parts\":[\"\\\"ü\\\"\\n\"]}\n\
        {\"position\":7,\"time_ms\":1700000000007,\"key\":\"k\",\"parts\":[\"a\",{\"base64\":\"/w==\"}]}\n";
    assert_eq!(String::from_utf8(requests[1].body.clone()).unwrap(), lines);
    assert_eq!((header(2, AFTER), header(2, UPTO), requests[2].body.len()), (Some("9"), Some("10"), 0));
}

#[tokio::test]
async fn a_check_changes_nothing() {
    let good = Good::start();
    let target = good.target();
    assert_eq!(target.check(&stream(7)).await, Ok(Checked::Answers { bound: Position(0) }));
    let mut attached = good.target();
    assert_eq!(attach(&mut attached, 9).await, Ok(Position(0)));
    assert_eq!(attached.apply(&batch(0, 4, [2])).await, Ok(()));
    assert_eq!(target.check(&stream(7)).await, Ok(Checked::Answers { bound: Position(4) }));
    let error = target.check(&stream(8)).await.unwrap_err();
    assert!(error.starts_with("it stores a bound of another log, with the id 7; to replace"), "{error}");
    assert_eq!(attached.apply(&batch(4, 5, [4])).await, Ok(()), "the session continues");
    assert_eq!(good.texts(), entries([2, 4]));
}

#[tokio::test]
async fn a_rejected_message_is_found_and_those_before_it_are_applied() {
    let good = Good::start();
    good.stored.refuse(Some("entry 6"));
    let mut target = good.target();
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    let reason = "the receiver answers 422 Unprocessable Entity: 'entry 6' is refused".to_owned();
    let rejected = Err(ApplyError::Rejected { position: Position(6), reason });
    assert_eq!(target.apply(&batch(0, 9, [3, 5, 6, 8])).await, rejected);
    assert_eq!(attach(&mut target, 1).await, Ok(Position(6)), "the bound is the message's position");
    assert_eq!(good.texts(), entries([3, 5]));
    // A single message that follows the bound at a distance.
    assert_eq!(target.apply(&batch(6, 7, [])).await, Ok(()));
    good.stored.refuse(Some("entry 8"));
    assert!(matches!(target.apply(&batch(7, 9, [8])).await, Err(ApplyError::Rejected { .. })));
    assert_eq!(attach(&mut target, 1).await, Ok(Position(8)));
    good.stored.refuse(None);
    assert_eq!(target.apply(&batch(8, 9, [8])).await, Ok(()));
    assert_eq!(good.texts(), entries([3, 5, 8]));
}

#[tokio::test]
async fn each_status_has_its_outcome() {
    for status in [400, 410, 413, 415, 422, 451] {
        let (mut target, ..) = scripted(&[(200, r#"{"applied":0}"#), (status, "no\nmore"), (status, "no")]);
        attach(&mut target, 1).await.unwrap();
        let Err(ApplyError::Rejected { position, reason }) = target.apply(&batch(0, 1, [0])).await else {
            panic!("{status}");
        };
        assert_eq!(position, Position(0));
        assert!(reason.starts_with(&format!("the receiver answers {status}")) && reason.ends_with(": no"));
    }
    for status in [301, 401, 403, 404, 405, 407, 408, 425, 429, 500, 503] {
        let (mut target, ..) = scripted(&[(200, r#"{"applied":0}"#), (status, "")]);
        attach(&mut target, 1).await.unwrap();
        let applied = target.apply(&batch(0, 1, [0])).await;
        let Err(ApplyError::Broken { reason }) = applied else { panic!("{status}: {applied:?}") };
        assert!(reason.contains(&format!("answers {status}")), "{reason}");
        let again = target.apply(&batch(0, 1, [0])).await;
        assert_eq!(again, Err(not_attached()), "the session is over");
    }
    let outcome = async |status, body| {
        let (mut target, ..) = scripted(&[(200, r#"{"applied":0}"#), (status, body)]);
        attach(&mut target, 4).await.unwrap();
        target.apply(&batch(0, 1, [0])).await
    };
    let moved = Err(ApplyError::Moved { applied: Position(12) });
    assert_eq!(outcome(409, r#"{"applied":12,"more":1}"#).await, moved);
    assert_eq!(outcome(412, r#"{"epoch":5}"#).await, Err(ApplyError::Fenced { epoch: 5 }));
    for (status, body) in [(409, "moved"), (409, r#"{"applied":-1}"#), (412, ""), (412, r#"{"epoch":4}"#)] {
        let Err(ApplyError::Broken { reason }) = outcome(status, body).await else {
            panic!("{status} {body}")
        };
        assert!(reason.contains("breaks the contract of HTTP targets: "), "{reason}");
    }
}

#[tokio::test]
async fn an_answer_to_attach_that_has_no_bound_is_reported() {
    let cases = [
        (200, "", "its answer is not the JSON {\"applied\": POSITION}; correct the receiver, or the url"),
        (200, "<html>", "its answer is not the JSON"),
        (200, r#"{"applied": 2000000000000000000}"#, "its bound 2000000000000000000 is no position"),
        (200, r#"{"applied": 1, "stream": "x"}"#, "its answer names a stream that no player has"),
        (412, r#"{"epoch": 3}"#, "it fences epoch 3 by epoch 3"),
        (401, "who?", "answers 401 Unauthorized: who?; correct the token"),
        (404, "", "answers 404 Not Found; correct the url, or the receiver"),
        (302, "", "answers 302 Found; give the url to which it leads"),
        (500, "down\n", "answers 500 Internal Server Error: down"),
    ];
    for (status, body, expected) in cases {
        let (mut target, server, _) = scripted(&[(status, body)]);
        let attached = attach(&mut target, 3).await;
        let Err(AttachError::Broken { reason }) = attached else { panic!("{body}: {attached:?}") };
        assert!(reason.starts_with(&format!("http://{}", server.address())), "{reason}");
        assert!(reason.contains(expected) && !reason.contains('\n'), "{reason}");
    }
    let nothing = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let Err(reason) = target_at(&format!("http://{nothing}/")).check(&stream(7)).await else { panic!() };
    assert!(reason.contains("does not answer (Connection refused"), "{reason}");
}

#[tokio::test]
async fn an_answer_that_ends_early_leaves_the_outcome_open() {
    let (mut target, ..) = scripted(&[(200, r#"{"applied":0}"#)]);
    attach(&mut target, 1).await.unwrap();
    // The server has no second answer: its thread ends, and closes the connection.
    let Err(ApplyError::Broken { reason }) = target.apply(&batch(0, 1, [0])).await else { panic!() };
    assert!(reason.contains("does not answer ("), "{reason}");
}

#[test]
fn only_the_url_of_a_receiver_is_accepted() {
    let place = |url: &str| Place::new(url, None, None, WITHIN).map(|_| ());
    assert_eq!(place("http://127.0.0.1:8080/orders?x=1"), Ok(()));
    assert_eq!(place("https://example.org"), Ok(()));
    for url in ["", "orders", "/orders", "127.0.0.1:80", "ftp://h/", "http://"] {
        let expected = format!("'{url}' is not the url of a receiver; give http://host or https://host");
        assert_eq!(place(url), Err(expected));
    }
    let error = place("https://me:hidden@h/").unwrap_err();
    assert!(error.contains("`token_file`") && !error.contains("hidden"), "{error}");
}

#[tokio::test]
async fn the_token_is_read_at_each_attach() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let (_, server, requests) = scripted(&[(200, r#"{"applied":0}"#), (200, r#"{"applied":0}"#), (200, "")]);
    let url = format!("http://{}", server.address());
    let place = Place::new(&url, Some(Secret::File(path.clone())), None, WITHIN).unwrap();
    let mut target = HttpTarget::new("ledger", place);
    let Err(AttachError::Broken { reason }) = attach(&mut target, 1).await else { panic!() };
    assert!(reason.starts_with("cannot read `token_file`"), "{reason}");
    std::fs::write(&path, "first\n").unwrap();
    attach(&mut target, 1).await.unwrap();
    std::fs::write(&path, "second").unwrap();
    attach(&mut target, 1).await.unwrap();
    target.apply(&batch(0, 1, [0])).await.unwrap();
    std::fs::write(&path, "no\0header").unwrap();
    let Err(AttachError::Broken { reason }) = attach(&mut target, 1).await else { panic!() };
    assert_eq!(reason, "the token has characters that no header may have");
    let requests = requests.lock().unwrap();
    let tokens: Vec<&str> =
        requests.iter().map(|request| request.headers["authorization"].as_str()).collect();
    assert_eq!(tokens, ["Bearer first", "Bearer second", "Bearer second"]);
}

#[tokio::test]
async fn https_needs_the_certificate_of_a_trusted_authority() {
    let directory = tempfile::tempdir().unwrap();
    let stored = Stored::default();
    let served = stored.clone();
    let server = Server::start_encrypted(directory.path(), move |request| served.answer(request));
    let target = |host: &str, ca_file: Option<&str>| {
        let url = format!("https://{}/", server.address().replace("127.0.0.1", host));
        let ca_file = ca_file.map(|name| directory.path().join(name));
        HttpTarget::new("ledger", Place::new(&url, None, ca_file, WITHIN).unwrap())
    };
    let reason = async |mut target: HttpTarget| match attach(&mut target, 1).await {
        Err(AttachError::Broken { reason }) => reason,
        other => panic!("{other:?}"),
    };
    let mut trusting = target("127.0.0.1", Some("authority.crt"));
    assert_eq!(attach(&mut trusting, 1).await, Ok(Position(0)));
    assert_eq!(trusting.apply(&batch(0, 2, [0, 1])).await, Ok(()));
    assert_eq!(stored.effects().len(), 2);
    let distrusting = reason(target("127.0.0.1", None)).await;
    assert!(distrusting.contains("certificate"), "{distrusting}");
    let other_name = reason(target("localhost", Some("authority.crt"))).await;
    assert!(other_name.contains("not valid for name"), "{other_name}");
    let no_file = reason(target("127.0.0.1", Some("missing.crt"))).await;
    assert!(no_file.starts_with("cannot use `ca_file`"), "{no_file}");
}

/// Requests to a receiver without a bound: key and body.
type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// A receiver without a bound, and the cluster with the control log.
struct WithoutBound {
    cluster: Cluster,
    server: Server,
    requests: Requests,
    refused: Arc<Mutex<&'static str>>,
}

impl WithoutBound {
    async fn start() -> Self {
        let requests = Requests::default();
        let refused = Arc::new(Mutex::new("none"));
        let (seen, refuses) = (Arc::clone(&requests), Arc::clone(&refused));
        let server = Server::start(move |request| {
            let body = String::from_utf8(request.body.clone()).unwrap();
            if body == *refuses.lock().unwrap() {
                return (422, "no".into());
            }
            assert_eq!(request.headers["content-type"], "text/plain");
            seen.lock().unwrap().push((request.headers["idempotency-key"].clone(), body));
            (202, String::new())
        });
        Self { cluster: Cluster::start().await, server, requests, refused }
    }

    fn keyed(&self) -> Keyed {
        let url = format!("http://{}/", self.server.address());
        Keyed::new(Place::new(&url, None, None, WITHIN).unwrap(), "text/plain".into())
    }

    /// The target of a player that starts now.
    async fn starts(&self) -> keyed::KeyedTarget {
        self.keyed().target(self.cluster.keeper("hook").await)
    }

    fn sent(&self) -> Vec<(String, String)> {
        self.requests.lock().unwrap().clone()
    }
}

impl Fixture for WithoutBound {
    type Target = keyed::KeyedTarget;

    fn target(&self) -> keyed::KeyedTarget {
        wait(self.starts())
    }

    async fn effects(&self) -> Vec<String> {
        self.sent().into_iter().map(|(_, body)| body).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_without_a_bound_passes_the_tests_of_targets() {
    passes_without_copies(&WithoutBound::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_part_is_a_request_with_a_key_of_its_own() {
    let receiver = WithoutBound::start().await;
    let mut target = receiver.starts().await;
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    let messages = vec![message(3, &["a"]), message(5, &["b", "c"])];
    assert_eq!(target.apply(&Batch { after: Position(0), upto: Position(9), messages }).await, Ok(()));
    assert_eq!(target.apply(&batch(9, 12, [])).await, Ok(()));
    let expected = [("7/billing/3", "a"), ("7/billing/5", "b"), ("7/billing/5/1", "c")];
    assert_eq!(receiver.sent(), expected.map(|(key, body)| (key.to_owned(), body.to_owned())));
    let mut later = receiver.starts().await;
    assert_eq!(attach(&mut later, 2).await, Ok(Position(12)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_a_receiver_without_a_bound_rejects_keeps_the_bound_at_its_position() {
    let receiver = WithoutBound::start().await;
    *receiver.refused.lock().unwrap() = "entry 6";
    let mut target = receiver.starts().await;
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    let rejected = target.apply(&batch(0, 9, [2, 6, 7])).await;
    assert!(matches!(rejected, Err(ApplyError::Rejected { position: Position(6), .. })), "{rejected:?}");
    // Also for a player that starts now.
    assert_eq!(attach(&mut target, 1).await, Ok(Position(6)));
    let mut later = receiver.starts().await;
    assert_eq!(attach(&mut later, 2).await, Ok(Position(6)));
    assert_eq!(later.apply(&batch(6, 7, [])).await, Ok(()));
    assert_eq!(later.apply(&batch(7, 8, [7])).await, Ok(()));
    assert_eq!(receiver.effects().await, entries([2, 7]));
}

#[tokio::test]
async fn a_check_of_a_receiver_without_a_bound_asks_for_headers_alone() {
    for (status, expected) in
        [(200, None), (405, None), (401, Some("correct the token")), (403, Some("token"))]
    {
        let methods = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&methods);
        let server = Server::start(move |request| {
            seen.lock().unwrap().push(request.method.clone());
            (status, String::new())
        });
        let place = Place::new(&format!("http://{}/", server.address()), None, None, WITHIN).unwrap();
        let checked = Keyed::new(place, "text/plain".into()).check().await;
        match expected {
            None => assert_eq!(checked, Ok(Checked::AtLeastOnce)),
            Some(expected) => assert!(checked.unwrap_err().contains(expected)),
        }
        assert_eq!(*methods.lock().unwrap(), ["HEAD"]);
    }
}
