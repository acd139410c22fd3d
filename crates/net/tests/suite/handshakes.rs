//! Handshakes and their failures, over real sockets.

use std::time::Duration;

use crate::support::{CLUSTER, frames_until_end, message, node, opened};
use bytes::Bytes;
use seriatim_model::wire::{Wire, decode_one};
use seriatim_model::{LogId, NodeId};
use seriatim_net::frame::frame_chunks;
use seriatim_net::{
    Beats, Caller, ClusterId, ConnectError, ConnectionOptions, Credential, FrameError, FrameKind,
    HandshakeError, Hello, Incoming, Lane, ListenOptions, Refusal, RefusalCode, VersionRange, Welcome,
    connect,
};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

const SOON: Duration = Duration::from_millis(100);

fn options() -> ConnectionOptions {
    ConnectionOptions::default()
}

fn hasty() -> ListenOptions {
    ListenOptions { connection: ConnectionOptions { handshake_for: SOON, ..options() }, ..Default::default() }
}

async fn fail(address: &str, hello: &Hello) -> HandshakeError {
    match connect(address, hello, &options()).await.unwrap_err() {
        ConnectError::Handshake { source, .. } => source,
        unreachable @ ConnectError::Unreachable { .. } => panic!("{unreachable}"),
    }
}

async fn refusal(address: &str, hello: &Hello) -> Refusal {
    match fail(address, hello).await {
        HandshakeError::Refused(refusal) => refusal,
        other => panic!("not refused: {other}"),
    }
}

fn greeting(kind: FrameKind, value: &impl Wire) -> Vec<u8> {
    frame_chunks(kind, LogId(0), |out| value.encode(out)).unwrap().concat()
}

/// The node's refusal of these bytes. `None` if it does not answer.
async fn answer_to(address: &str, bytes: &[u8]) -> Option<Refusal> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let frames = frames_until_end(&mut stream).await;
    assert!(frames.len() <= 1);
    frames.into_iter().next().map(|frame| {
        assert_eq!(frame.kind, FrameKind::Refusal);
        decode_one(frame.body).unwrap()
    })
}

async fn check_alive(address: &str, incoming: &mut Incoming) {
    let connected = connect(address, &Hello::client("another"), &options()).await.unwrap();
    let mut accepted = incoming.next().await.connection.attach().unwrap();
    connected.connection.sender.send(message(5, &Bytes::from_static(b"alive"))).unwrap();
    let frames = accepted.receiver.receive().await.unwrap().unwrap();
    assert_eq!(opened(frames[0].clone()), (5, Bytes::from_static(b"alive")));
}

#[tokio::test]
async fn both_sides_learn_who_the_other_is() {
    let (address, mut incoming) = node(ListenOptions::default()).await;
    let hello = Hello::node(CLUSTER, NodeId(2), 22, "10.0.0.2:7700");
    let hello = Hello { credential: Some(Credential(Bytes::from_static(b"ignored"))), ..hello };
    let connected = connect(&address, &hello, &options()).await.unwrap();
    let welcome =
        Welcome { version: VersionRange::OURS.max, cluster: CLUSTER, node: NodeId(1), node_incarnation: 11 };
    assert_eq!(connected.welcome, welcome);
    let accepted = incoming.next().await;
    assert_eq!((accepted.hello, accepted.welcome), (hello, welcome));
}

#[tokio::test]
async fn the_wrong_cluster_is_refused() {
    let (address, mut incoming) = node(ListenOptions::default()).await;
    for hello in [Hello::client("lost").to(ClusterId(9)), Hello::node(ClusterId(9), NodeId(2), 1, "x:1")] {
        let refusal = refusal(&address, &hello).await;
        assert_eq!(refusal.code, RefusalCode::WrongCluster);
        assert!(
            refusal.text.contains(&ClusterId(9).to_string()) && refusal.text.contains("check"),
            "{refusal}"
        );
    }
    let anonymous = Hello { cluster: None, ..Hello::node(CLUSTER, NodeId(2), 1, "x:1") };
    assert_eq!(refusal(&address, &anonymous).await.code, RefusalCode::WrongCluster);
    check_alive(&address, &mut incoming).await;
}

#[tokio::test]
async fn the_wrong_version_is_refused() {
    let (address, mut incoming) = node(ListenOptions::default()).await;
    let (min, max) = (VersionRange::OURS.max + 1, VersionRange::OURS.max + 3);
    let hello = Hello { versions: VersionRange { min, max }, ..Hello::client("new") };
    let refusal = refusal(&address, &hello).await;
    assert_eq!(refusal.code, RefusalCode::VersionUnsupported);
    assert!(refusal.text.contains(&format!("{min} to {max}")), "{refusal}");

    let mut frame = greeting(FrameKind::Hello, &Hello::client("newer still"));
    frame[4] = 2;
    assert_eq!(answer_to(&address, &frame).await.unwrap().code, RefusalCode::VersionUnsupported);
    check_alive(&address, &mut incoming).await;
}

#[tokio::test]
async fn a_node_whose_heartbeats_differ_too_much_is_refused_if_it_is_the_younger() {
    let (address, mut incoming) = node(ListenOptions::default()).await;
    let beating = |every_us| {
        let hello = Hello::node(CLUSTER, NodeId(2), 22, "x:1").over(Lane::Heartbeats);
        hello.beating(Beats { every_us, missed: 5 })
    };
    let refusal = refusal(&address, &beating(200_000)).await;
    assert_eq!(refusal.code, RefusalCode::BeatsDiffer);
    let both = ["node 1 has heartbeat_every_ms = 20,", "node 2 has heartbeat_every_ms = 200,"];
    assert!(both.iter().all(|words| refusal.text.contains(words)), "{refusal}");
    let elder = beating(200_000).after(Duration::from_secs(3600));
    let records = beating(200_000).over(Lane::Bulk);
    let earlier_build = Hello { beats: None, ..beating(200_000) };
    for hello in [beating(50_000), elder, records, earlier_build] {
        connect(&address, &hello, &options()).await.unwrap();
        assert_eq!(incoming.next().await.hello, hello);
    }
}

#[tokio::test]
async fn silence_ends_at_the_deadline() {
    let (address, mut incoming) = node(hasty()).await;
    assert_eq!(answer_to(&address, b"").await.unwrap().code, RefusalCode::TimedOut);
    let half = greeting(FrameKind::Hello, &Hello::client("slow"));
    assert_eq!(answer_to(&address, &half[..20]).await.unwrap().code, RefusalCode::TimedOut);
    check_alive(&address, &mut incoming).await;
}

#[tokio::test]
async fn what_is_not_a_hello_is_refused() {
    let (address, mut incoming) = node(ListenOptions::default()).await;
    assert_eq!(
        answer_to(&address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await,
        None,
        "a stranger gets nothing"
    );

    let mut oversized = greeting(FrameKind::Hello, &Hello::client("x"));
    oversized[17..21].copy_from_slice(&(1u32 << 20).to_le_bytes());
    let refusal = answer_to(&address, &oversized).await.unwrap();
    assert_eq!(refusal.code, RefusalCode::Malformed);
    assert!(refusal.text.contains("1048576") && refusal.text.contains("65536"), "{refusal}");

    let mut damaged = greeting(FrameKind::Hello, &Hello::client("x"));
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(answer_to(&address, &damaged).await.unwrap().code, RefusalCode::Malformed);

    let early = message(0, &Bytes::new()).concat();
    assert_eq!(answer_to(&address, &early).await.unwrap().code, RefusalCode::Malformed);
    let nonsense = greeting(FrameKind::Hello, &77u64);
    assert_eq!(answer_to(&address, &nonsense).await.unwrap().code, RefusalCode::Malformed);
    check_alive(&address, &mut incoming).await;
}

#[tokio::test]
async fn a_refusal_survives_a_flood() {
    let (address, _incoming) = node(ListenOptions::default()).await;
    let mut flood = message(0, &Bytes::new()).concat();
    flood.resize(300_000, 0xee);
    assert_eq!(answer_to(&address, &flood).await.unwrap().code, RefusalCode::Malformed);
}

#[tokio::test]
async fn a_caller_that_leaves_early_disturbs_nobody() {
    let (address, mut incoming) = node(ListenOptions::default()).await;
    drop(TcpStream::connect(&address).await.unwrap());
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(&greeting(FrameKind::Hello, &Hello::client("gone"))[..30]).await.unwrap();
    stream.shutdown().await.unwrap();
    let frames = frames_until_end(&mut stream).await;
    let refusal: Refusal = decode_one(frames[0].body.clone()).unwrap();
    assert!(refusal.text.contains("within a frame"), "{refusal}");
    check_alive(&address, &mut incoming).await;
}

#[tokio::test]
async fn a_client_that_half_closes_is_answered() {
    let (address, mut incoming) = node(ListenOptions::default()).await;
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let mut bytes = greeting(FrameKind::Hello, &Hello::client("half"));
    bytes.extend(message(1, &Bytes::from_static(b"request")).concat());
    stream.write_all(&bytes).await.unwrap();
    stream.shutdown().await.unwrap();

    let accepted = incoming.next().await;
    assert!(matches!(&accepted.hello.caller, Caller::Client { name } if name == "half"));
    let mut connection = accepted.connection.attach().unwrap();
    let frames = connection.receiver.receive().await.unwrap().unwrap();
    assert_eq!(opened(frames[0].clone()).0, 1);
    assert!(connection.receiver.receive().await.unwrap().is_none());
    connection.sender.send(message(2, &Bytes::from_static(b"reply"))).unwrap();
    drop(connection);

    let frames = frames_until_end(&mut stream).await;
    assert_eq!(
        frames.iter().map(|frame| frame.kind).collect::<Vec<_>>(),
        [FrameKind::Welcome, FrameKind::Message]
    );
    assert_eq!(opened(frames[1].clone()), (2, Bytes::from_static(b"reply")));
}

async fn impostor(bytes: Vec<u8>) -> String {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = socket.accept().await.unwrap();
        stream.readable().await.unwrap();
        stream.try_read(&mut [0; 4096]).unwrap();
        stream.write_all(&bytes).await.unwrap();
    });
    address
}

#[tokio::test]
async fn a_caller_checks_whom_it_reached() {
    let welcome =
        Welcome { version: VersionRange::OURS.max, cluster: CLUSTER, node: NodeId(1), node_incarnation: 1 };
    let hello = Hello::client("careful").to(ClusterId(2));
    let address = impostor(greeting(FrameKind::Welcome, &welcome)).await;
    assert!(matches!(fail(&address, &hello).await, HandshakeError::WrongCluster { .. }));

    let newer = Welcome { version: VersionRange::OURS.max + 1, ..welcome };
    let address = impostor(greeting(FrameKind::Welcome, &newer)).await;
    assert!(matches!(fail(&address, &Hello::client("x")).await, HandshakeError::VersionUnsupported { .. }));

    let address = impostor(b"+PONG\r\n".to_vec()).await;
    let error = fail(&address, &Hello::client("x")).await;
    assert!(matches!(error, HandshakeError::Frame(FrameError::BadMagic)));
    assert!(error.to_string().contains("check the address"));

    let address = impostor(Vec::new()).await;
    assert!(matches!(fail(&address, &Hello::client("x")).await, HandshakeError::Closed));
}

#[tokio::test]
async fn messages_right_behind_the_welcome_are_not_lost() {
    let welcome =
        Welcome { version: VersionRange::OURS.max, cluster: CLUSTER, node: NodeId(1), node_incarnation: 1 };
    let mut bytes = greeting(FrameKind::Welcome, &welcome);
    bytes.extend(message(3, &Bytes::from(vec![1; 100_000])).concat());
    let address = impostor(bytes).await;
    let mut connected = connect(&address, &Hello::client("x"), &options()).await.unwrap();
    let frames = connected.connection.receiver.receive().await.unwrap().unwrap();
    assert_eq!(opened(frames[0].clone()).0, 3);
}

#[tokio::test]
async fn a_node_that_never_answers_is_given_up() {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let hasty = ConnectionOptions { handshake_for: SOON, ..options() };
    let error = connect(&address, &Hello::client("x"), &hasty).await.unwrap_err();
    assert!(matches!(error, ConnectError::Handshake { source: HandshakeError::TimedOut(_), .. }));
    drop(socket);
    let error = connect(&address, &Hello::client("x"), &hasty).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }));
    assert!(error.to_string().contains(&address));
}
