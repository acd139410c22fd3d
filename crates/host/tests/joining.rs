//! A node keeps its registered address current.

use std::sync::Arc;
use std::time::Duration;

use seriatim_host::{Event, Host, HostConfig, RegisterPlace};
use seriatim_model::{Endpoint, LogId, NodeId, Peer, Time};
use seriatim_protocol::Message;
use seriatim_protocol::Options;
use seriatim_protocol::control::{self, NodeAddress};
use seriatim_store::{JournalOptions, MemoryDisk, Secret, ShardOptions};

const REGISTER: NodeId = NodeId(1);
const ME: NodeId = NodeId(2);

fn open() -> Host {
    let config = HostConfig {
        cluster: 7,
        node: ME,
        address: "node-2:7700".into(),
        register: RegisterPlace::Node { node: REGISTER, address: "node-1:7700".into() },
        seed: 1,
        secret: Secret::new(1),
        options: Options::default(),
        journal: JournalOptions::default(),
        shard_options: ShardOptions::default(),
    };
    Host::open(config, Arc::new(MemoryDisk::default())).unwrap()
}

fn tell(host: &mut Host, now: Time, message: control::Message) {
    let (peer, from, to) = (Peer::Node(REGISTER), Endpoint::Register, Endpoint::Node);
    host.handle(now, Event::Message { peer, log: LogId(0), from, to, message: message.into() });
    host.finish_turn(now);
}

fn place(address: &str) -> NodeAddress {
    NodeAddress { node: ME, address: address.into() }
}

fn said(host: &mut Host) -> Vec<control::Message> {
    let to_register = |to| to == Endpoint::Register;
    let sends = host.take_sends().into_iter().filter(|sent| to_register(sent.to));
    let said = sends.filter_map(|sent| match sent.message {
        Message::Control(message) => Some(message),
        _ => None,
    });
    said.collect()
}

#[test]
fn an_address_of_an_older_life_is_replaced() {
    let mut host = open();
    host.finish_turn(Time::ZERO);
    assert_eq!(said(&mut host), [control::Message::Join { node: place("node-2:7700") }]);
    tell(&mut host, Time::ZERO, control::Message::Elsewhere { version: 7 });
    assert_eq!(said(&mut host), [control::Message::Move { node: place("node-2:7700"), version: 7 }]);
    tell(&mut host, Time::ZERO, control::Message::Cluster { nodes: vec![place("node-2:7700")] });
    assert!(host.has_joined());
}

#[test]
fn a_node_that_is_said_to_be_elsewhere_says_again_where_it_is() {
    let mut host = open();
    host.finish_turn(Time::ZERO);
    tell(&mut host, Time::ZERO, control::Message::Cluster { nodes: vec![place("node-2:7700")] });
    assert!(host.has_joined());
    said(&mut host);
    tell(&mut host, Time::ZERO, control::Message::Cluster { nodes: vec![place("there:1")] });
    assert!(!host.has_joined() && said(&mut host).is_empty());
    assert_eq!(host.address_of(ME), Some("node-2:7700"), "it knows better");
    let later = Time::ZERO + Duration::from_secs(1);
    host.finish_turn(later);
    assert_eq!(said(&mut host), [control::Message::Join { node: place("node-2:7700") }]);
}
