//! A connection in use, at its limits and at its end.

use std::time::{Duration, Instant};

use crate::support::{count_in_order, frames_until_end, message, node, opened, pair};
use bytes::Bytes;
use seriatim_model::LogId;
use seriatim_net::frame::{HEADER_BYTES, frame_chunks};
use seriatim_net::{
    CloseReason, Connection, ConnectionOptions, DelayLine, FrameError, FrameKind, Hello, ListenOptions,
    Refusal, RefusalCode, SendError, connect,
};
use tokio::net::TcpStream;
use tokio::time::timeout;

fn options() -> ConnectionOptions {
    ConnectionOptions::default()
}

async fn whole_pair() -> (Connection, Connection) {
    pair(options(), options()).await
}

/// A raw socket after its handshake, and the node's end.
async fn raw_pair(node_end: ConnectionOptions) -> (TcpStream, Connection) {
    let (address, mut incoming) = node(ListenOptions { connection: node_end, ..Default::default() }).await;
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let hello = frame_chunks(FrameKind::Hello, LogId(0), |out| {
        seriatim_model::wire::Wire::encode(&Hello::client("raw"), out);
    });
    write(&mut stream, &hello.unwrap().concat()).await;
    (stream, incoming.next().await.connection.attach().unwrap())
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) {
    tokio::io::AsyncWriteExt::write_all(stream, bytes).await.unwrap();
}

fn payload(bytes: usize) -> Bytes {
    Bytes::from(vec![0xab; bytes])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_frames_both_ways_arrive_in_order() {
    const MESSAGES: u64 = 50_000;
    let (client, server) = whole_pair().await;
    let run = |connection: Connection| async move {
        let Connection { sender, mut receiver } = connection;
        let sending = tokio::spawn(async move {
            let (short, long) = (payload(40), payload(30_000));
            for number in 0..MESSAGES {
                let chunks = message(number, if number % 100 == 0 { &long } else { &short });
                while let Err(SendError::Overloaded { .. }) = sender.send(chunks.clone()) {
                    tokio::task::yield_now().await;
                }
            }
        });
        let count = count_in_order(&mut receiver).await;
        sending.await.unwrap();
        count
    };
    assert_eq!(tokio::join!(run(client), run(server)), (MESSAGES, MESSAGES));
}

/// Far longer than a message usually takes.
const ONE_WAY: Duration = Duration::from_millis(50);

fn far() -> ConnectionOptions {
    ConnectionOptions { delay: Some(DelayLine::start(ONE_WAY).unwrap()), ..options() }
}

#[tokio::test]
async fn a_delay_line_holds_frames_back_and_keeps_their_order() {
    let (client, mut server) = pair(far(), options()).await;
    let sent = Instant::now();
    for number in 0..1000 {
        client.sender.send(message(number, &payload(10))).unwrap();
    }
    assert!(client.sender.queued_bytes() > 10_000, "what is on its way counts as queued");
    // Closing loses no frame in flight.
    client.sender.close();
    assert_eq!(count_in_order(&mut server.receiver).await, 1000);
    assert!(sent.elapsed() >= ONE_WAY);
    client.sender.finish().await.unwrap();
    assert_eq!(client.sender.queued_bytes(), 0);
}

#[tokio::test]
async fn each_end_of_a_connection_delays_what_it_sends() {
    let (mut client, mut server) = pair(far(), far()).await;
    for number in 0..3 {
        let sent = Instant::now();
        client.sender.send(message(number, &payload(10))).unwrap();
        server.receiver.receive().await.unwrap().unwrap();
        assert!(sent.elapsed() >= ONE_WAY);
        server.sender.send(message(number, &payload(10))).unwrap();
        client.receiver.receive().await.unwrap().unwrap();
        assert!(sent.elapsed() >= 2 * ONE_WAY);
    }
}

#[tokio::test]
async fn what_is_on_its_way_is_lost_with_the_connection() {
    let (client, server) = pair(far(), options()).await;
    client.sender.send(message(0, &payload(10))).unwrap();
    drop(server);
    let Connection { sender, mut receiver } = client;
    assert_eq!(receiver.receive().await.unwrap().map(|frames| frames.len()), None);
    drop(receiver);
    // The peer's end may be noticed before the frame arrives, or not.
    let _ = sender.finish().await;
    assert_eq!(sender.queued_bytes(), 0);
}

#[tokio::test]
async fn long_frames_between_short_ones_arrive_whole() {
    let (client, mut server) = whole_pair().await;
    let lengths = [0, 1, 16_000, 16_384, 20_000, 300_000, 10, 8 << 20, 5, 262_144, 1];
    for (number, length) in lengths.iter().enumerate() {
        let contents: Bytes = (0..*length).map(|index| (index % 251) as u8).collect();
        client.sender.send(message(number as u64, &contents)).unwrap();
    }
    drop(client.sender);
    let mut next = 0;
    while let Some(frames) = server.receiver.receive().await.unwrap() {
        for (number, contents) in frames.into_iter().map(opened) {
            assert_eq!((number as usize, contents.len()), (next, lengths[next]));
            assert!(contents.iter().enumerate().all(|(index, byte)| usize::from(*byte) == index % 251));
            next += 1;
        }
    }
    assert_eq!(next, lengths.len());
}

#[tokio::test]
async fn what_is_sent_at_once_arrives_as_a_batch() {
    let (client, mut server) = whole_pair().await;
    client.sender.send((0..100).flat_map(|number| message(number, &payload(10))).collect()).unwrap();
    let frames = server.receiver.receive().await.unwrap().unwrap();
    assert_eq!(frames.len(), 100, "one send, one write, one read");
}

#[tokio::test]
async fn the_queue_is_bounded_and_recovers() {
    let bound = 1 << 20;
    let (client, mut server) = pair(ConnectionOptions { queue_bytes: bound, ..options() }, options()).await;
    let mut sent = 0;
    let overloaded = loop {
        match client.sender.send(message(sent, &payload(10_000))) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(client.sender.queued_bytes() <= bound);
        // The peer does not read: the kernel's buffers fill, then the queue.
        tokio::task::yield_now().await;
    };
    assert!(matches!(overloaded, SendError::Overloaded { bound_bytes, .. } if bound_bytes == bound));
    assert!(client.sender.queued_bytes() > bound - 20_000);

    let mut received = 0;
    while received < sent {
        received += server.receiver.receive().await.unwrap().unwrap().len() as u64;
    }
    assert_eq!(client.sender.queued_bytes(), 0);
    client.sender.send(message(sent, &payload(10_000))).unwrap();
    drop(client);
    let frames = server.receiver.receive().await.unwrap().unwrap();
    assert_eq!(opened(frames[0].clone()).0, sent);
}

#[tokio::test]
async fn a_frame_over_the_bound_passes_alone() {
    let (client, mut server) = pair(ConnectionOptions { queue_bytes: 1000, ..options() }, options()).await;
    client.sender.send(message(0, &payload(100_000))).unwrap();
    assert!(matches!(client.sender.send(message(1, &payload(1))), Err(SendError::Overloaded { .. })));
    assert_eq!(server.receiver.receive().await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn closing_delivers_what_is_queued() {
    let (client, mut server) = whole_pair().await;
    for number in 0..3000 {
        client.sender.send(message(number, &payload(5000))).unwrap();
    }
    assert!(client.sender.queued_bytes() > 10 << 20);
    drop(client);
    assert_eq!(count_in_order(&mut server.receiver).await, 3000);
    assert!(matches!(server.receiver.close_reason(), Some(CloseReason::Remote)));
}

#[tokio::test]
async fn finishing_waits_until_all_is_written() {
    let (client, mut server) = whole_pair().await;
    for number in 0..3000 {
        client.sender.send(message(number, &payload(5000))).unwrap();
    }
    let (finished, count) = tokio::join!(client.sender.finish(), count_in_order(&mut server.receiver));
    assert!(finished.is_ok());
    assert_eq!((count, client.sender.queued_bytes()), (3000, 0));
}

#[tokio::test]
async fn closing_delivers_even_while_the_peer_sends() {
    let (client, server) = whole_pair().await;
    let Connection { sender, mut receiver } = server;
    let flood = tokio::spawn(async move {
        let mut number = 0;
        while sender.close_reason().is_none() {
            if sender.send(message(number, &payload(50_000))).is_ok() {
                number += 1;
            }
            tokio::task::yield_now().await;
        }
    });
    for number in 0..3000 {
        client.sender.send(message(number, &payload(5000))).unwrap();
    }
    drop(client);
    assert_eq!(count_in_order(&mut receiver).await, 3000);
    flood.await.unwrap();
}

#[tokio::test]
async fn closing_ends_even_if_the_peer_never_reads() {
    let hasty = ConnectionOptions { flush_for: Duration::from_millis(50), ..options() };
    let (_stream, node) = raw_pair(hasty).await;
    for number in 0..3000 {
        node.sender.send(message(number, &payload(5000))).unwrap();
    }
    assert!(timeout(Duration::from_secs(5), node.sender.finish()).await.unwrap().is_err());
    let Connection { sender, mut receiver } = node;
    let end = timeout(Duration::from_secs(5), receiver.receive()).await.unwrap();
    assert!(end.is_err());
    assert!(matches!(sender.send(message(0, &payload(1))), Err(SendError::Closed(_))));
}

#[tokio::test]
async fn closing_ends_even_if_the_peer_goes_on_and_everything_is_in_its_buffers() {
    let hasty = ConnectionOptions { flush_for: Duration::from_millis(50), ..options() };
    let (mut stream, node) = raw_pair(hasty).await;
    node.sender.send(message(0, &payload(1))).unwrap();
    node.sender.finish().await.unwrap();
    let Connection { sender: _, mut receiver } = node;
    let chatter = tokio::spawn(async move {
        let mut again = tokio::time::interval(Duration::from_millis(10));
        while tokio::io::AsyncWriteExt::write_all(&mut stream, &message(1, &payload(1)).concat())
            .await
            .is_ok()
        {
            again.tick().await;
        }
    });
    let end = async move { while receiver.receive().await.is_ok() {} };
    timeout(Duration::from_secs(5), end).await.unwrap();
    timeout(Duration::from_secs(5), chatter).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_closed_connection_takes_nothing_and_still_hears() {
    let (client, mut server) = whole_pair().await;
    let Connection { sender, mut receiver } = client;
    let clone = sender.clone();
    drop(sender);
    clone.send(message(0, &payload(1))).unwrap();
    clone.close();
    assert!(matches!(clone.send(message(1, &payload(1))), Err(SendError::Closed(CloseReason::Local))));
    assert!(matches!(clone.closed().await, CloseReason::Local));

    assert_eq!(count_in_order(&mut server.receiver).await, 1);
    server.sender.send(message(0, &payload(1))).unwrap();
    assert_eq!(receiver.receive().await.unwrap().unwrap().len(), 1);
    drop(server);
    assert!(receiver.receive().await.unwrap().is_none());
    assert!(receiver.receive().await.unwrap().is_none(), "the end is the end");
}

#[tokio::test]
async fn dropping_the_receiver_closes_the_connection() {
    let (client, mut server) = whole_pair().await;
    drop(client.receiver);
    assert!(matches!(
        client.sender.send(message(0, &payload(1))),
        Err(SendError::Closed(CloseReason::Local))
    ));
    assert!(server.receiver.receive().await.unwrap().is_none());
}

#[tokio::test]
async fn a_refusal_says_why_the_connection_ends() {
    let (mut client, server) = whole_pair().await;
    server.sender.send(message(0, &payload(1))).unwrap();
    server.sender.refuse(&Refusal::new(RefusalCode::Full, "the node is being replaced"));
    assert_eq!(client.receiver.receive().await.unwrap().unwrap().len(), 1);
    let reason = client.receiver.receive().await.unwrap_err();
    assert_eq!(reason.to_string(), "the peer refused: the node is being replaced");
    assert!(matches!(client.sender.close_reason(), Some(CloseReason::Refused(_))));
}

#[tokio::test]
async fn bad_bytes_end_the_connection_after_the_good_ones() {
    let (mut stream, mut node) = raw_pair(options()).await;
    let mut bytes = message(0, &payload(10)).concat();
    bytes.extend(b"and now for something completely different");
    write(&mut stream, &bytes).await;
    assert_eq!(node.receiver.receive().await.unwrap().unwrap().len(), 1);
    for _ in 0..2 {
        let reason = node.receiver.receive().await.unwrap_err();
        assert!(matches!(reason, CloseReason::Frame(FrameError::BadMagic)));
    }
    drop(node);
    let frames = frames_until_end(&mut stream).await;
    assert_eq!(
        frames.iter().map(|frame| frame.kind).collect::<Vec<_>>(),
        [FrameKind::Welcome, FrameKind::Refusal]
    );
}

#[tokio::test]
async fn a_connection_that_breaks_within_a_frame_says_so() {
    let (mut stream, mut node) = raw_pair(options()).await;
    write(&mut stream, &message(0, &payload(100)).concat()[..50]).await;
    tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
    let reason = node.receiver.receive().await.unwrap_err();
    assert!(matches!(reason, CloseReason::Frame(FrameError::Truncated { bytes: 50 })), "{reason}");
}

#[tokio::test]
async fn a_second_hello_is_refused() {
    let (mut stream, mut node) = raw_pair(options()).await;
    let hello = frame_chunks(FrameKind::Hello, LogId(0), |_| {}).unwrap().concat();
    write(&mut stream, &hello).await;
    let reason = node.receiver.receive().await.unwrap_err();
    assert!(matches!(reason, CloseReason::Unexpected(FrameKind::Hello)));
}

const SOON: Duration = Duration::from_millis(20);

/// Skips the Welcome, whose length is fixed.
async fn skip_welcome(stream: &mut TcpStream) {
    let mut welcome = [0; HEADER_BYTES + 30];
    tokio::io::AsyncReadExt::read_exact(stream, &mut welcome).await.unwrap();
}

async fn expect(stream: &mut TcpStream, kind: FrameKind) {
    let expected = frame_chunks(kind, LogId(0), |_| {}).unwrap().concat();
    let mut arrived = vec![0; expected.len()];
    let reading = tokio::io::AsyncReadExt::read_exact(stream, &mut arrived);
    timeout(Duration::from_secs(5), reading).await.unwrap().unwrap();
    assert_eq!(arrived, expected);
}

#[tokio::test]
async fn a_silent_peer_is_pinged_and_its_answer_keeps_the_connection() {
    let (mut stream, mut node) = raw_pair(ConnectionOptions { ping_after: SOON, ..options() }).await;
    skip_welcome(&mut stream).await;
    let receiving = tokio::spawn(async move { node.receiver.receive().await });
    for _ in 0..3 {
        // A further ping shows that the last pong counted.
        expect(&mut stream, FrameKind::Ping).await;
        write(&mut stream, &frame_chunks(FrameKind::Pong, LogId(0), |_| {}).unwrap().concat()).await;
    }
    write(&mut stream, &message(0, &payload(1)).concat()).await;
    assert_eq!(receiving.await.unwrap().unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn a_ping_is_answered_without_the_owner() {
    let (mut stream, mut node) = raw_pair(options()).await;
    skip_welcome(&mut stream).await;
    let receiving = tokio::spawn(async move { node.receiver.receive().await });
    write(&mut stream, &frame_chunks(FrameKind::Ping, LogId(0), |_| {}).unwrap().concat()).await;
    expect(&mut stream, FrameKind::Pong).await;
    drop(stream);
    assert!(receiving.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn a_peer_that_does_not_answer_is_given_up() {
    let (_stream, mut node) =
        raw_pair(ConnectionOptions { ping_after: SOON, answer_within: SOON, ..options() }).await;
    let reason = timeout(Duration::from_secs(5), node.receiver.receive()).await.unwrap().unwrap_err();
    assert!(matches!(reason, CloseReason::Silent(_)), "{reason}");
    assert!(matches!(
        node.sender.send(message(0, &payload(1))),
        Err(SendError::Closed(CloseReason::Silent(_)))
    ));
}

#[tokio::test]
async fn a_flood_of_pings_costs_one_pong() {
    let (mut stream, mut node) = raw_pair(options()).await;
    let ping = frame_chunks(FrameKind::Ping, LogId(0), |_| {}).unwrap().concat();
    write(&mut stream, &ping.repeat(100_000)).await;
    write(&mut stream, &message(0, &payload(1)).concat()).await;
    assert_eq!(node.receiver.receive().await.unwrap().unwrap().len(), 1);
    assert!(node.sender.queued_bytes() <= 100);
}

#[tokio::test]
async fn receiving_can_be_cancelled_at_any_point() {
    let (client, mut server) = whole_pair().await;
    let sending = tokio::spawn(async move {
        for number in 0..2000 {
            client.sender.send(message(number, &payload(700))).unwrap();
            tokio::task::yield_now().await;
        }
    });
    let mut next = 0;
    while next < 2000 {
        let frames = tokio::select! {
            biased;
            () = tokio::task::yield_now() => continue,
            frames = server.receiver.receive() => frames.unwrap().unwrap(),
        };
        for frame in frames {
            assert_eq!(opened(frame).0, next);
            next += 1;
        }
    }
    sending.await.unwrap();
}

#[tokio::test]
async fn a_late_caller_meets_a_reason() {
    let (address, incoming) = node(ListenOptions::default()).await;
    let mut connected = connect(&address, &Hello::client("late"), &options()).await.unwrap();
    drop(incoming);
    assert!(connected.connection.receiver.receive().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_clients_is_counted_together_and_is_gone_with_them() {
    let listening = ListenOptions::default();
    let together = listening.clients_together.clone();
    let (address, mut incoming) = node(listening).await;
    let mut ends = vec![];
    for _ in 0..2 {
        let client = connect(&address, &Hello::client("test"), &options()).await.unwrap().connection;
        ends.push((client, incoming.next().await.connection.attach().unwrap()));
    }
    // No end reads; the sockets take some bytes.
    for (_, node_end) in &ends {
        for number in 0..32 {
            node_end.sender.send(message(number, &payload(1 << 20))).unwrap();
        }
    }
    let comes_to = async |expected: &dyn Fn() -> usize| {
        let equals = async {
            while together.queued_bytes() != expected() {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(5), equals).await.expect("what waits is counted");
    };
    comes_to(&|| ends.iter().map(|(_, end)| end.sender.queued_bytes()).sum()).await;
    assert!(together.queued_bytes() > 16 << 20);
    ends[0].1.sender.abandon();
    assert_eq!(ends[0].1.sender.queued_bytes(), 0);
    comes_to(&|| ends[1].1.sender.queued_bytes()).await;
    assert!(together.queued_bytes() > 8 << 20);
    ends[1].1.sender.abandon();
    drop(ends);
    comes_to(&|| 0).await;
}
