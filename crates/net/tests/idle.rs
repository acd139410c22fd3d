//! Memory of an idle connection, measured as the size of its own process.

#![cfg(target_os = "linux")]

use bytes::Bytes;
use seriatim_model::limits::Limits;
use seriatim_model::{Endpoint, LogId, NodeId};
use seriatim_net::{
    ClusterId, Connection, ConnectionOptions, Hello, Identity, ListenOptions, Listener, connect,
    message_frame,
};

const PAIRS: usize = 100;
const ROUNDS: usize = 3;

/// Limit per end of a connection: writer task, registration with the runtime, allocator slack.
/// Measured: 2 to 3 KiB. A read buffer is far larger.
const MAX_BYTES_PER_END: usize = 10 << 10;

fn resident_bytes() -> usize {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    sizes.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

async fn exchange(ends: &mut [(Connection, Connection)], payload: &Bytes) {
    for (client, node) in ends {
        let chunks = message_frame(LogId(1), Endpoint::Client(1), Endpoint::Sequencer, payload).unwrap();
        client.sender.send(chunks.clone()).unwrap();
        assert_eq!(node.receiver.receive().await.unwrap().unwrap().len(), 1);
        node.sender.send(chunks).unwrap();
        assert_eq!(client.receiver.receive().await.unwrap().unwrap().len(), 1);
    }
}

/// Lets every end notice that nothing more arrives.
async fn quiesce(ends: &mut [(Connection, Connection)]) {
    for (client, node) in ends {
        for receiver in [&mut client.receiver, &mut node.receiver] {
            tokio::select! {
                biased;
                frames = receiver.receive() => panic!("nothing was sent, but {frames:?} arrived"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
}

async fn open(pairs: usize) -> Vec<(Connection, Connection)> {
    let identity = Identity::new(ClusterId(1), NodeId(1), 1, &Limits::default());
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.address().to_string();
    let mut incoming = listener.serve(identity, ListenOptions::default());
    let mut ends = Vec::new();
    for _ in 0..pairs {
        let client = connect(&address, &Hello::client("idle"), &ConnectionOptions::default()).await.unwrap();
        ends.push((client.connection, incoming.next().await.connection.attach().unwrap()));
    }
    ends
}

#[tokio::test]
async fn an_idle_connection_is_small_even_after_a_burst() {
    let (short, long) = (Bytes::from(vec![1; 100]), Bytes::from(vec![1; 1 << 20]));
    // Cause the allocations that the process makes once.
    let mut first = open(2).await;
    exchange(&mut first, &long).await;
    quiesce(&mut first).await;

    // The allocator may keep freed memory for later connections. Earlier ones stay open, so each
    // round needs its own memory.
    let mut earlier = Vec::new();
    let mut least = usize::MAX;
    while least >= MAX_BYTES_PER_END && earlier.len() < ROUNDS {
        let before = resident_bytes();
        let mut ends = open(PAIRS).await;
        exchange(&mut ends, &short).await;
        quiesce(&mut ends).await;
        exchange(&mut ends, &long).await;
        quiesce(&mut ends).await;
        let per_end = resident_bytes().saturating_sub(before) / (2 * PAIRS);
        println!("after a short and a long message each way: {per_end} bytes per end");
        least = least.min(per_end);
        earlier.push(ends);
    }
    assert!(least < MAX_BYTES_PER_END, "{least} bytes per end at least");
}
