//! Links over a network that silently drops connections.

use std::time::{Duration, Instant};

use seriatim_model::NodeId;
use seriatim_net::{Connection, Hello, LinkEvent, Links, ListenOptions};
use tokio::sync::mpsc;

use crate::relay::Relay;
use crate::support::{message, node};

const NODE: NodeId = NodeId(1);

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

struct Client {
    links: Links,
    events: mpsc::Receiver<LinkEvent>,
    relay: Relay,
    replaced: u32,
}

impl Client {
    async fn start() -> Self {
        let relay = Relay::start("127.0.0.1:0", echo().await);
        let (events, arrivals) = mpsc::channel(16);
        let links = Links::new(Hello::client("test"), Default::default(), events);
        Self { links, events: arrivals, relay, replaced: 0 }
    }

    fn send(&mut self) {
        self.links.send(NODE, Some(&self.relay.address), message(0, &"question".into()));
    }

    /// Waits for an answer. Retransmits messages that were lost with a connection.
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
    client.relay.forget_after(0);
    let began = Instant::now();
    client.send();
    client.answer().await;
    // Half of an append's default deadline of 10 s.
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
