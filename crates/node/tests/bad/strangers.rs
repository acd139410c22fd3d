//! Peers that do not speak the protocol, or not for long.

use std::time::Duration;

use seriatim_model::limits::MAX_FRAME_BYTES;
use seriatim_model::{Endpoint, LogId, NodeId};
use seriatim_net::frame::{FrameDecoder, frame_chunks};
use seriatim_net::{
    ClusterId, ConnectError, ConnectionOptions, FrameKind, HandshakeError, Hello, RefusalCode, VersionRange,
    connect, message_frame,
};
use seriatim_protocol::control;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Cluster, Raw, says, within};

/// Returns the node's refusal, if any, once it closes the connection.
async fn answer_to(address: &str, bytes: &[u8], close: bool) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The node may close before it reads all bytes.
    let _ = stream.write_all(bytes).await;
    if close {
        let _ = stream.shutdown().await;
    }
    let mut answer = vec![];
    let _ = within("the node to close", stream.read_to_end(&mut answer)).await;
    let mut decoder = FrameDecoder::new();
    decoder.feed(&answer);
    let mut refusal = None;
    while let Ok(Some(frame)) = decoder.next_frame() {
        if frame.kind == FrameKind::Refusal {
            let text = frame.body.slice(6..);
            refusal = Some(String::from_utf8(text.to_vec()).unwrap());
        }
    }
    refusal
}

fn hello_bytes() -> Vec<u8> {
    let chunks = frame_chunks(FrameKind::Hello, LogId(0), |out| {
        seriatim_model::wire::Wire::encode(&Hello::client("raw"), out);
    });
    chunks.unwrap().concat()
}

fn header(kind: FrameKind, body_bytes: u32) -> Vec<u8> {
    let mut header = frame_chunks(kind, LogId(0), |_| {}).unwrap().concat();
    header[17..21].copy_from_slice(&body_bytes.to_le_bytes());
    header
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_before_a_greeting() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let address = cluster.address();
    for garbage in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0; 4096], &[0xff; 100_000], b"\x16\x03\x01\x02"]
    {
        assert_eq!(answer_to(&address, garbage, false).await, None, "it would not be understood");
    }
    assert_eq!(answer_to(&address, b"", true).await, None);
    let truncated = answer_to(&address, &hello_bytes()[..10], true).await.unwrap();
    says(&truncated, &["ended within a frame, after 10 bytes"]);
    let truncated = answer_to(&address, &hello_bytes()[..30], true).await.unwrap();
    says(&truncated, &["ended within a frame, after 30 bytes"]);
    let long = answer_to(&address, &header(FrameKind::Hello, 1 << 20), false).await.unwrap();
    says(&long, &["announces 1048576 bytes", "limit is 65536"]);
    let mut damaged = hello_bytes();
    *damaged.last_mut().unwrap() ^= 1;
    says(&answer_to(&address, &damaged, false).await.unwrap(), &["checksum"]);
    let mut newer = hello_bytes();
    newer[4] = 9;
    says(&answer_to(&address, &newer, false).await.unwrap(), &["version 9", "upgrade the older side"]);
    let early = message_frame(LogId(1), Endpoint::Client(1), Endpoint::Register, &7u64).unwrap().concat();
    says(&answer_to(&address, &early, false).await.unwrap(), &["Message frame during the handshake"]);
    let nonsense = frame_chunks(FrameKind::Hello, LogId(0), |out| out.put(&[0xff; 9])).unwrap().concat();
    says(&answer_to(&address, &nonsense, false).await.unwrap(), &["greeting could not be read"]);
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_after_a_greeting() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let address = cluster.address();
    let hello = hello_bytes();
    let after = |bytes: &[u8]| [&hello[..], bytes].concat();
    let garbage = answer_to(&address, &after(b"garbage, and much of it"), false).await.unwrap();
    says(&garbage, &["does not speak the Seriatim protocol"]);
    let large = header(FrameKind::Message, u32::try_from(MAX_FRAME_BYTES).unwrap() + 1);
    let large = answer_to(&address, &after(&large), false).await.unwrap();
    says(&large, &["announces 16777217 bytes", "limit is 16777216"]);
    let whole = message_frame(LogId(1), Endpoint::Client(1), Endpoint::Register, &7u64).unwrap().concat();
    let mut truncated = after(&whole);
    truncated.pop();
    says(&answer_to(&address, &truncated, true).await.unwrap(), &["ended within a frame"]);
    says(&answer_to(&address, &after(&hello), false).await.unwrap(), &["Hello frame after the handshake"]);
    let mut flagged = after(&whole);
    flagged[hello.len() + 6] = 1;
    says(&answer_to(&address, &flagged, false).await.unwrap(), &["critical flags", "upgrade"]);
    for body in [&b""[..], &[5], &[99; 40], &[0xff; 70_000]] {
        let malformed = frame_chunks(FrameKind::Message, LogId(1), |out| out.put(body)).unwrap().concat();
        let answer = answer_to(&address, &after(&malformed), false).await.unwrap();
        says(&answer, &["message could not be understood", "version"]);
    }
    // A vector longer than its message.
    let announced = frame_chunks(FrameKind::Message, LogId(1), |out| {
        out.put(&[5, 1, 0, 0, 0, 0, 0, 0, 0, 3, 3, 1]);
        out.put(&[0; 40]);
        out.put(&[0xff; 4]);
    });
    let answer = answer_to(&address, &after(&announced.unwrap().concat()), false).await.unwrap();
    says(&answer, &["message could not be understood"]);
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_before_a_malformed_message_is_answered() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let mut raw = Raw::connect(&cluster.address()).await;
    raw.send(LogId(0), Endpoint::Register, control::Message::List { request: 5 });
    raw.answer_where(|message| {
        matches!(message, seriatim_protocol::Message::Control(control::Message::Listing { request: 5, .. }))
            .then_some(())
    })
    .await;
    let malformed = frame_chunks(FrameKind::Message, LogId(1), |out| out.put(&[77])).unwrap();
    raw.sender.send(malformed).unwrap();
    says(&raw.end().await, &["the peer refused", "message could not be understood"]);
    witness.finish().await;
}

async fn refused(address: &str, hello: &Hello) -> seriatim_net::Refusal {
    match connect(address, hello, &ConnectionOptions::default()).await {
        Err(error @ ConnectError::Handshake { source: HandshakeError::Refused(_), .. }) => {
            says(&error, &["no connection to", address]);
            let ConnectError::Handshake { source: HandshakeError::Refused(refusal), .. } = error else {
                unreachable!("just matched");
            };
            refusal
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_greeting_for_another_cluster_or_from_another_time() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let address = cluster.address();
    let stray = refused(&address, &Hello::client("stray").to(ClusterId(1))).await;
    assert_eq!(stray.code, RefusalCode::WrongCluster);
    says(&stray, &["this node is of cluster", "00000000000000000000000000000001", "check the address"]);
    let node = refused(&address, &Hello::node(ClusterId(1), NodeId(2), 7, "x:1")).await;
    assert_eq!(node.code, RefusalCode::WrongCluster);
    let mut homeless = Hello::node(ClusterId(1), NodeId(2), 7, "x:1");
    homeless.cluster = None;
    says(&refused(&address, &homeless).await, &["a node must say which cluster"]);
    let mut newer = Hello::client("from the future");
    newer.versions = VersionRange { min: 11, max: 12 };
    let newer = refused(&address, &newer).await;
    assert_eq!(newer.code, RefusalCode::VersionUnsupported);
    says(&newer, &["speaks version 10, not 11 to 12", "upgrade the older side"]);
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_says_nothing_keeps_nobody_out() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let address = cluster.address();
    let began = std::time::Instant::now();
    let mut crowd = vec![];
    for number in 0..500 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        if number % 2 == 0 {
            stream.write_all(&hello_bytes()[..number % 25]).await.unwrap();
        }
        crowd.push(stream);
    }
    // A client with ordinary timeouts connects meanwhile.
    let client = cluster.client().await;
    client.lookup("witness").await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "it took {:?}", began.elapsed());
    witness.goes_on().await;
    for mut stream in crowd {
        let mut said = vec![];
        let _ = within("the node to close", stream.read_to_end(&mut said)).await;
    }
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_says_nothing_is_told_so_and_sent_away() {
    let cluster = Cluster::start_with(|options| {
        options.run.listening.connection.handshake_for = Duration::from_millis(200);
    })
    .await;
    let witness = cluster.witness().await;
    let refusal = answer_to(&cluster.address(), b"", false).await.unwrap();
    says(&refusal, &["nothing was said for 200ms", "Hello"]);
    let refusal = answer_to(&cluster.address(), &hello_bytes()[..12], false).await.unwrap();
    says(&refusal, &["nothing was said for 200ms"]);
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanished_is_noticed() {
    let cluster = Cluster::start_with(|options| {
        options.run.listening.connection.ping_after = Duration::from_millis(100);
        options.run.listening.connection.answer_within = Duration::from_millis(100);
        options.run.listening.max_clients = 8;
    })
    .await;
    let witness = cluster.witness().await;
    let mut vanished = vec![];
    // Each client sends a hello and then nothing, not even pongs. Together they need more places
    // than exist.
    for _ in 0..40 {
        let mut stream = TcpStream::connect(cluster.address()).await.unwrap();
        stream.write_all(&hello_bytes()).await.unwrap();
        let mut welcome = [0; 4];
        stream.read_exact(&mut welcome).await.unwrap();
        vanished.push(stream);
    }
    for mut stream in vanished {
        let _ = within("the node to give up", stream.read_to_end(&mut vec![])).await;
    }
    let came_in = || async {
        let hello = Hello::client("late");
        connect(&cluster.address(), &hello, &ConnectionOptions::default()).await.is_ok()
    };
    crate::support::eventually("their places are free again", came_in).await;
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_clients_than_there_is_room_for() {
    let cluster = Cluster::start_with(|options| options.run.listening.max_clients = 3).await;
    let witness = cluster.witness().await;
    let mut clients = vec![];
    let refusal = loop {
        match connect(&cluster.address(), &Hello::client("many"), &ConnectionOptions::default()).await {
            Ok(connected) => clients.push(connected),
            Err(refusal) => break refusal,
        }
        assert!(clients.len() < 4);
    };
    says(&refusal, &["all 3 places for clients are taken", "try later"]);
    witness.finish().await;
}
