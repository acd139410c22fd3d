//! Sessions with gRPC targets.
#![cfg(feature = "grpc")]

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use seriatim_model::{LogId, Position, limits};
use seriatim_player::targets::grpc::{Grpc, MOST_UNANSWERED, Session, UrlError};
use seriatim_player::{ApplyError, AttachError, Batch, Message, Stream};
use seriatim_target::proto::from_target::Answer;
use seriatim_target::proto::target_server::{Target as Service, TargetServer};
use seriatim_target::proto::{self, FromPlayer, FromTarget};
use seriatim_target::serve;
use seriatim_target::testing::Memory;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Server as Tonic, TcpIncoming};
use tonic::{Request, Response, Status, Streaming};

/// A server with a runtime of its own, so that it ends with all its connections.
struct Server {
    address: SocketAddr,
    kill: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Server {
    fn start(target: &Memory) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), target)
    }

    fn start_at(address: SocketAddr, target: &Memory) -> Self {
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (address, target) = (listener.local_addr().unwrap(), target.clone());
        let (kill, killed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    served = serve(listener, target, std::future::pending()) => served.unwrap(),
                    killed = killed => killed.unwrap(),
                }
            });
        });
        Self { address, kill, thread }
    }

    fn kill(self) -> SocketAddr {
        self.kill.send(()).unwrap();
        self.thread.join().unwrap();
        self.address
    }

    async fn attach(&self, epoch: u64) -> Result<Session, AttachError> {
        attach(self.address, stream(1), epoch, None).await
    }
}

async fn attach(
    address: SocketAddr,
    stream: Stream,
    epoch: u64,
    adopts: Option<u64>,
) -> Result<Session, AttachError> {
    let grpc = Grpc::new(&format!("http://{address}"), "ledger").unwrap();
    in_time(grpc.attach(&stream, epoch, adopts.map(Position))).await
}

async fn in_time<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), answer).await.expect("an answer in time")
}

fn stream(log: u64) -> Stream {
    Stream { log: LogId(log), player: "billing".into() }
}

fn batch(after: u64, upto: u64) -> Batch {
    let message = |position| Message {
        position: Position(position),
        appended_ms: position * 10,
        key: (position % 2 == 0).then(|| position.to_string().into()),
        parts: vec!["a".into(), position.to_string().into()],
    };
    Batch { after: Position(after), upto: Position(upto), messages: (after..upto).map(message).collect() }
}

/// Asserts that the target has applied exactly the messages below `bound`, in order.
fn assert_applied(target: &Memory, bound: u64) {
    let messages = target.messages();
    let copies = messages.into_iter().map(|message| Message {
        position: Position(message.position),
        appended_ms: message.appended_ms,
        key: message.key,
        parts: message.parts,
    });
    assert_eq!(copies.collect::<Vec<_>>(), batch(0, bound).messages);
    assert_eq!(target.bound(), bound);
}

fn broken(outcome: Result<Position, ApplyError>) -> String {
    match outcome {
        Err(ApplyError::Broken { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn eight_batches_wait_for_answers_together() {
    let target = Memory::default();
    let server = Server::start(&target);
    let mut session = server.attach(7).await.unwrap();
    assert_eq!(session.bound(), Position(0));
    target.hold(true);
    for first in 0..MOST_UNANSWERED as u64 {
        assert!(session.outlet.has_room());
        session.outlet.send(&batch(first * 3, first * 3 + 3));
    }
    assert!(!session.outlet.has_room());
    in_time(target.begun(1)).await;
    assert_eq!(target.bound(), 0);
    target.hold(false);
    for answered in 1..=MOST_UNANSWERED as u64 {
        assert_eq!(in_time(session.answers.next()).await, Ok(Position(answered * 3)));
        assert!(session.outlet.has_room());
    }
    session.outlet.send(&Batch { messages: vec![], ..batch(24, 30) });
    assert_eq!(in_time(session.answers.next()).await, Ok(Position(30)));
    assert_eq!((session.bound(), target.bound(), target.messages().len()), (Position(30), 30, 24));
    server.kill();
}

#[tokio::test]
async fn the_largest_record_fits_into_a_batch() {
    let target = Memory::default();
    let server = Server::start(&target);
    let mut session = server.attach(7).await.unwrap();
    let mut largest = batch(0, 1);
    let overhead = vec![1; limits::MAX_RECORD_OVERHEAD_BYTES as usize];
    largest.messages[0].key = Some(overhead.into());
    largest.messages[0].parts = vec![vec![2; limits::MAX_RECORD_BYTES as usize].into()];
    session.outlet.send(&largest);
    assert_eq!(in_time(session.answers.next()).await, Ok(Position(1)));
    assert_eq!(target.messages()[0].parts, largest.messages[0].parts);
    server.kill();
}

#[tokio::test]
async fn a_server_that_is_killed_continues_from_its_bound() {
    let target = Memory::default();
    let mut server = Server::start(&target);
    for round in 1..=5 {
        let mut session = server.attach(7).await.unwrap();
        let bound = session.bound().0;
        assert_applied(&target, bound);
        for first in 0..MOST_UNANSWERED as u64 {
            session.outlet.send(&batch(bound + first * 2, bound + first * 2 + 2));
        }
        for _ in 0..round {
            in_time(session.answers.next()).await.unwrap();
        }
        let address = server.kill();
        let end = loop {
            if let Err(end) = in_time(session.answers.next()).await {
                break end;
            }
        };
        assert!(matches!(end, ApplyError::Broken { .. }), "{end:?}");
        assert!(target.bound() >= bound + 2 * round, "an answer was false");
        let Err(AttachError::Broken { reason }) = attach(address, stream(1), 7, None).await else {
            panic!("no server is there");
        };
        assert!(reason.contains("does not answer (Connection refused"), "{reason}");
        server = Server::start_at(address, &target);
    }
    let session = server.attach(7).await.unwrap();
    assert_applied(&target, session.bound().0);
    server.kill();
}

#[tokio::test]
async fn a_lower_epoch_is_fenced() {
    let target = Memory::default();
    let (one, other) = (Server::start(&target), Server::start(&target));
    let mut earlier = one.attach(7).await.unwrap();
    let mut later = other.attach(8).await.unwrap();
    earlier.outlet.send(&batch(0, 3));
    assert_eq!(in_time(earlier.answers.next()).await, Err(ApplyError::Fenced { epoch: 8 }));
    for server in [&one, &other] {
        let refused = server.attach(7).await.map(|session| session.bound());
        assert_eq!(refused, Err(AttachError::Fenced { epoch: 8 }));
    }
    later.outlet.send(&batch(0, 3));
    assert_eq!(in_time(later.answers.next()).await, Ok(Position(3)));
    assert_applied(&target, 3);
    one.kill();
    other.kill();
}

#[tokio::test]
async fn a_rejection_ends_the_session_behind_the_messages_before_it() {
    let target = Memory::default();
    target.reject(Some(4));
    let server = Server::start(&target);
    let mut session = server.attach(7).await.unwrap();
    for (after, upto) in [(0, 3), (3, 6), (6, 9)] {
        session.outlet.send(&batch(after, upto));
    }
    assert_eq!(in_time(session.answers.next()).await, Ok(Position(3)));
    let reason = "the test rejects it".into();
    let rejected = ApplyError::Rejected { position: Position(4), reason };
    assert_eq!(in_time(session.answers.next()).await, Err(rejected));
    assert!(broken(in_time(session.answers.next()).await).contains("ended the session"));
    assert_applied(&target, 4);
    target.reject(None);
    let mut again = server.attach(7).await.unwrap();
    again.outlet.send(&batch(4, 9));
    assert_eq!(in_time(again.answers.next()).await, Ok(Position(9)));
    assert_applied(&target, 9);
    server.kill();
}

#[tokio::test]
async fn an_older_session_ends_and_a_moved_bound_is_reported() {
    let target = Memory::default();
    let (server, beside) = (Server::start(&target), Server::start(&target));
    let mut older = server.attach(7).await.unwrap();
    let mut aside = beside.attach(7).await.unwrap();
    let mut newer = server.attach(7).await.unwrap();
    assert!(broken(in_time(older.answers.next()).await).contains("a newer session"));
    newer.outlet.send(&batch(0, 3));
    assert_eq!(in_time(newer.answers.next()).await, Ok(Position(3)));
    aside.outlet.send(&batch(0, 5));
    assert_eq!(in_time(aside.answers.next()).await, Err(ApplyError::Moved { applied: Position(3) }));
    assert_applied(&target, 3);
    server.kill();
    beside.kill();
}

#[tokio::test]
async fn another_log_is_adopted_on_request() {
    let target = Memory::default();
    let server = Server::start(&target);
    let mut session = server.attach(7).await.unwrap();
    session.outlet.send(&batch(0, 3));
    in_time(session.answers.next()).await.unwrap();
    let bound = |session: Result<Session, _>| session.map(|session| session.bound());
    let refused = bound(attach(server.address, stream(2), 8, None).await);
    assert_eq!(refused, Err(AttachError::OtherStream { stream: stream(1) }));
    assert_eq!(bound(attach(server.address, stream(2), 8, Some(1)).await), Ok(Position(1)));
    server.kill();
}

/// A service that gives a prepared answer to each request.
struct Prepared(Vec<Answer>);

#[tonic::async_trait]
impl Service for Prepared {
    type PlayStream = ReceiverStream<Result<FromTarget, Status>>;

    async fn play(
        &self,
        request: Request<Streaming<FromPlayer>>,
    ) -> Result<Response<Self::PlayStream>, Status> {
        let (answers, mut requests) = (self.0.clone(), request.into_inner());
        let (sender, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            for answer in answers {
                requests.message().await.unwrap();
                sender.send(Ok(FromTarget { answer: Some(answer) })).await.unwrap();
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

async fn prepared(answers: Vec<Answer>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = TargetServer::new(Prepared(answers));
    tokio::spawn(Tonic::builder().serve_with_incoming(service, TcpIncoming::from(listener)));
    address
}

#[tokio::test]
async fn a_false_answer_to_hello_breaks_the_session() {
    let other = proto::Stream { log: "orders".into(), player: "billing".into() };
    for (answer, expected) in [
        (Answer::Attached(proto::Attached { applied: limits::MAX_NUMBER + 1 }), "is no position"),
        (Answer::Fenced(proto::Fenced { epoch: 7 }), "it fences epoch 7 by epoch 7"),
        (Answer::OtherStream(proto::OtherStream { stream: Some(other) }), "'orders', which is no log id"),
        (Answer::Applied(proto::Applied { upto: 3 }), "it answers a batch before Hello"),
    ] {
        let address = prepared(vec![answer]).await;
        let Err(AttachError::Broken { reason }) = attach(address, stream(1), 7, None).await else {
            panic!("{expected}");
        };
        assert!(reason.contains(expected) && reason.contains(&address.to_string()), "{reason}");
    }
}

#[tokio::test]
async fn a_false_answer_to_a_batch_breaks_the_session() {
    for (answer, expected) in [
        (Answer::Attached(proto::Attached { applied: 0 }), "it answers Hello twice"),
        (Answer::Applied(proto::Applied { upto: 2 }), "it applied up to 2, no batch's end"),
        (Answer::Moved(proto::Moved { applied: u64::MAX }), "is no position"),
        (Answer::Fenced(proto::Fenced { epoch: 6 }), "it fences epoch 7 by epoch 6"),
        (Answer::Rejected(proto::Rejected { position: 3, reason: String::new() }), "it rejects position 3"),
    ] {
        let attached = Answer::Attached(proto::Attached { applied: 0 });
        let address = prepared(vec![attached, answer]).await;
        let mut session = attach(address, stream(1), 7, None).await.unwrap();
        session.outlet.send(&batch(0, 3));
        let reason = broken(in_time(session.answers.next()).await);
        assert!(reason.contains(expected) && reason.contains("correct the service"), "{reason}");
    }
}

#[test]
fn a_url_names_host_and_port_without_tls() {
    assert!(Grpc::new("http://127.0.0.1:7800", "ledger").is_ok());
    let url = "https://127.0.0.1:7800".to_owned();
    assert_eq!(Grpc::new(&url, "ledger").unwrap_err(), UrlError::Encrypted { url });
    for url in ["", "127.0.0.1:7800", "http://ledger", "ftp://a:1", "http://a b:1"] {
        let malformed = UrlError::Malformed { url: url.to_owned() };
        assert_eq!(Grpc::new(url, "ledger").unwrap_err(), malformed);
    }
}
