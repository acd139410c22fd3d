//! Network delays, counted exactly.

use seriatim_model::{Endpoint, Input, LogConfig, Order, Position, Record, ShardId, Time};
use seriatim_protocol::parts::appending::{Reply, Request, Terms};
use seriatim_protocol::{Message, shard};

use crate::lab::{DELAY, Lab, READER};

/// How many delays after `from` something was.
fn delays(from: Time, at: Time) -> f64 {
    (at.0 - from.0) as f64 / DELAY as f64
}

#[test]
fn an_append_takes_one_round_trip_and_is_stable_and_delivered_soon() {
    append_alone(Order::ErwinBb);
}

#[test]
fn so_does_one_whose_record_goes_straight_to_its_shard() {
    append_alone(Order::ErwinSt);
}

fn append_alone(order: Order) {
    let mut lab = Lab::new();
    lab.wait(1000);
    let entry = lab.open_log(order);
    let view = entry.view.expect("it has a view");
    let primary = view.shards[0].primary().node;
    let subscribe = shard::Message::Subscribe { request: 9, from: Position(0), credit: 1 << 20 };
    lab.say(READER, primary, Endpoint::Shard(ShardId(0)), entry.id, subscribe.into());
    lab.wait(10);

    let began = lab.now;
    let record = Record::new(b"alone", 0);
    lab.step(Input::Request { token: 2, request: Request::Append { record, terms: Terms::default() } });
    lab.wait(100);

    let [(acknowledged, Reply::Appended { .. })] = lab.replies[..] else { panic!("{:?}", lab.replies) };
    assert_eq!(delays(began, acknowledged), 2.0, "an append is one round trip");

    let stable =
        lab.stable_sent.iter().find(|(_, stable)| *stable == Position(1)).expect("it became stable").0;
    let leader_received = Time(began.0 + DELAY);
    assert!(delays(leader_received, stable) <= 6.0, "stable after {}", delays(leader_received, stable));

    let is_delivery = |message: &Message| matches!(message, Message::Shard(shard::Message::Deliver { records, .. }) if !records.is_empty());
    let delivery =
        lab.received.iter().find(|(_, number, _, message)| *number == READER && is_delivery(message));
    let delivered = delivery.expect("it was delivered").0;
    let shard_knew = Time(stable.0 + DELAY);
    assert_eq!(delays(shard_knew, delivered), 1.0, "delivery follows the stable bound at once");
}

#[test]
fn with_the_position_first_an_append_takes_a_round_trip_more_than_its_chain_is_long() {
    for replicas in 1..=4 {
        let mut lab = Lab::new();
        lab.wait(1000);
        let config = LogConfig { order: Order::Corfu, replicas, ..LogConfig::default() };
        let entry = lab.open_log_with(config);
        let primary = entry.view.expect("it has a view").shards[0].primary().node;
        let subscribe = shard::Message::Subscribe { request: 9, from: Position(0), credit: 1 << 20 };
        lab.say(READER, primary, Endpoint::Shard(ShardId(0)), entry.id, subscribe.into());
        lab.wait(10);

        let began = lab.now;
        let record = Record::new(b"alone", 0);
        lab.step(Input::Request { token: 2, request: Request::Append { record, terms: Terms::default() } });
        lab.wait(100);

        let [(acknowledged, Reply::Appended { position, .. })] = lab.replies[..] else {
            panic!("{:?}", lab.replies)
        };
        assert_eq!(position, Some(Position(0)));
        assert_eq!(delays(began, acknowledged), f64::from(2 + 2 * replicas), "{replicas} replicas");
        // A subscriber has it when its client does: the primary tells both.
        let is_delivery = |message: &Message| matches!(message, Message::Shard(shard::Message::Deliver { records, .. }) if !records.is_empty());
        let delivery =
            lab.received.iter().find(|(_, number, _, message)| *number == READER && is_delivery(message));
        assert_eq!(delivery.expect("it was delivered").0, acknowledged);
    }
}

#[test]
fn the_tail_takes_one_round_trip() {
    tail(Order::ErwinBb);
}

#[test]
fn so_does_that_of_a_log_with_a_sequencer() {
    tail(Order::Corfu);
}

fn tail(order: Order) {
    let mut lab = Lab::new();
    lab.wait(1000);
    lab.open_log(order);
    let began = lab.now;
    lab.step(Input::Request { token: 3, request: Request::CheckTail });
    lab.wait(10);
    let [(told, Reply::Tail(tail))] = lab.replies[..] else { panic!("{:?}", lab.replies) };
    assert_eq!((delays(began, told), tail), (2.0, Position(0)));
}
