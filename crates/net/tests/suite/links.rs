//! Links to a node, over a network that forgets connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use seriatim_model::NodeId;
use seriatim_net::{Connection, Hello, LinkEvent, Links, ListenOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::support::{message, node};

const NODE: NodeId = NodeId(1);

/// Passes connections on to a node. While `forgets`, no byte of the connections that stand arrives; these stay open, and new ones work.
struct Relay {
    address: String,
    /// The switch of each connection, in the order in which they were made.
    forgets: Arc<std::sync::Mutex<Vec<Arc<AtomicBool>>>>,
}

impl Relay {
    async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Self { address: listener.local_addr().unwrap().to_string(), forgets: Arc::default() };
        let all = Arc::clone(&relay.forgets);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let forgets = Arc::new(AtomicBool::new(false));
                all.lock().unwrap().push(Arc::clone(&forgets));
                let (from_client, to_client) = client.into_split();
                let (from_node, to_node) = TcpStream::connect(&to).await.unwrap().into_split();
                tokio::spawn(pass(from_client, to_node, Arc::clone(&forgets)));
                tokio::spawn(pass(from_node, to_client, forgets));
            }
        });
        relay
    }

    fn forget_all(&self) {
        self.forgets.lock().unwrap().iter().for_each(|forgets| forgets.store(true, Ordering::SeqCst));
    }

    fn connections(&self) -> usize {
        self.forgets.lock().unwrap().len()
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, forgets: Arc<AtomicBool>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read) = from.read(&mut bytes).await {
        if read == 0 {
            break;
        }
        if !forgets.load(Ordering::SeqCst) && to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
}

/// A node that answers each message with the same message.
async fn echo() -> String {
    let (address, mut incoming) = node(ListenOptions::default()).await;
    tokio::spawn(async move {
        loop {
            let Connection { sender, mut receiver } = incoming.next().await.connection.attach().unwrap();
            tokio::spawn(async move {
                while let Ok(Some(frames)) = receiver.receive().await {
                    for _ in frames {
                        let _ = sender.send(message(0, &"answer".into()));
                    }
                }
            });
        }
    });
    address
}

/// A client of one node.
struct Client {
    links: Links,
    events: mpsc::Receiver<LinkEvent>,
    relay: Relay,
    /// How often another connection took the place of one that carried nothing.
    replaced: u32,
}

impl Client {
    async fn start() -> Self {
        let relay = Relay::start(echo().await).await;
        let (events, arrivals) = mpsc::channel(16);
        let links = Links::new(Hello::client("test"), Default::default(), events);
        Self { links, events: arrivals, relay, replaced: 0 }
    }

    fn send(&mut self) {
        self.links.send(NODE, Some(&self.relay.address), message(0, &"question".into()));
    }

    /// Waits for an answer. Sends again what was lost with a connection.
    async fn answer(&mut self) {
        loop {
            let look_at = self.links.deadline().map(tokio::time::Instant::from_std);
            let event = match look_at {
                Some(at) => tokio::time::timeout_at(at, self.events.recv()).await.ok().flatten(),
                None => self.events.recv().await,
            };
            match event {
                Some(LinkEvent::Dialled(node, outcome)) => {
                    let is_replaced = self.links.dialled(node, outcome);
                    self.replaced += u32::from(is_replaced);
                    is_replaced.then(|| self.send());
                }
                Some(LinkEvent::Frames(..)) => return,
                Some(LinkEvent::Down(node)) => self.links.down(node),
                None => {}
            }
            let address = self.relay.address.clone();
            self.links.look(|_| Some(&address));
        }
    }
}

#[tokio::test]
async fn a_connection_that_the_network_forgot_is_replaced_while_an_append_has_half_of_its_time() {
    let mut client = Client::start().await;
    client.send();
    client.answer().await;
    client.relay.forget_all();
    let began = Instant::now();
    client.send();
    client.answer().await;
    // Half of the ten seconds that an append has by default.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((client.replaced, client.relay.connections()), (1, 2));
}

#[tokio::test]
async fn a_connection_that_carries_something_is_not_replaced() {
    let mut client = Client::start().await;
    for _ in 0..10 {
        client.send();
        client.answer().await;
    }
    assert_eq!((client.replaced, client.relay.connections()), (0, 1));
}
