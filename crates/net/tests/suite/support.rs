//! A node, its clients and raw sockets, on loopback.

use std::time::Duration;

use bytes::Bytes;
use seriatim_model::limits::Limits;
use seriatim_model::{Endpoint, LogId, NodeId};
use seriatim_net::{
    ClusterId, Connection, ConnectionOptions, Frame, FrameDecoder, Hello, Identity, Incoming, ListenOptions,
    Listener, Receiver, connect, message_frame, open_message,
};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

pub(crate) const CLUSTER: ClusterId = ClusterId(0xc1);

pub(crate) fn identity() -> Identity {
    Identity::new(CLUSTER, NodeId(1), 11, &Limits::default())
}

pub(crate) async fn node(options: ListenOptions) -> (String, Incoming) {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    (listener.address().to_string(), listener.serve(identity(), options))
}

pub(crate) async fn pair(client: ConnectionOptions, node_end: ConnectionOptions) -> (Connection, Connection) {
    let (address, mut incoming) = node(ListenOptions { connection: node_end, ..Default::default() }).await;
    let connected = connect(&address, &Hello::client("test"), &client).await.unwrap();
    (connected.connection, incoming.next().await.connection.attach().unwrap())
}

pub(crate) fn message(number: u64, payload: &Bytes) -> Vec<Bytes> {
    let to = Endpoint::Sequencer;
    message_frame(LogId(7), Endpoint::Client(1), to, &(number, payload.clone())).unwrap()
}

pub(crate) fn opened(frame: Frame) -> (u64, Bytes) {
    let (log, _, _, contents) = open_message(frame).unwrap();
    assert_eq!(log, LogId(7));
    contents
}

/// Counts messages, numbered from 0, until the peer closes.
pub(crate) async fn count_in_order(receiver: &mut Receiver) -> u64 {
    let mut next = 0;
    while let Some(frames) = receiver.receive().await.unwrap() {
        for frame in frames {
            assert_eq!(opened(frame).0, next);
            next += 1;
        }
    }
    next
}

pub(crate) async fn frames_until_end(stream: &mut TcpStream) -> Vec<Frame> {
    let mut bytes = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut bytes));
    end.await.expect("the node closes the stream").unwrap();
    let mut decoder = FrameDecoder::new();
    decoder.feed(&bytes);
    std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
}
