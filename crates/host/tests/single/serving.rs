//! Clients' reads wait for all other work of the node.

use seriatim_host::{Event, Host};
use seriatim_model::{ConnectionId, Durability, Endpoint, Peer, Position, Time};
use seriatim_protocol::{Message, shard};

use crate::common::{LOG, SHARD, with_replica};

/// A client asks for the trim point: a read without records.
fn ask(host: &mut Host, request: u64) {
    let (from, end) = (Position::ZERO, Position::ZERO);
    let message = shard::Message::Read { request, from, end, max_records: 1, wait_ms: 0 };
    let peer = Peer::Client(ConnectionId(1));
    let (from, to) = (Endpoint::Client(1), Endpoint::Shard(SHARD));
    host.handle(Time::ZERO, Event::Message { peer, log: LOG, from, to, message: message.into() });
}

fn answered(host: &mut Host) -> Vec<u64> {
    let of_client = host.take_sends().into_iter().filter(|send| matches!(send.peer, Peer::Client(_)));
    of_client
        .map(|send| match send.message {
            Message::Shard(shard::Message::Records { request, .. }) => request,
            message => panic!("{message:?}"),
        })
        .collect()
}

#[test]
fn a_read_for_a_client_is_done_after_everything_else_and_one_at_a_time() {
    let (mut host, _) = with_replica(Durability::Disk);
    assert_eq!(host.serve_reader(Time::ZERO), None, "no reader waits");
    host.take_sends();
    ask(&mut host, 1);
    ask(&mut host, 2);
    host.finish_turn(Time::ZERO);
    assert_eq!(answered(&mut host), [], "neither an arrival nor a timer does a read");
    assert_eq!(host.deadline(), Some(Time::ZERO));
    for request in [1, 2] {
        assert_eq!(host.serve_reader(Time::ZERO), Some(0));
        assert_eq!(answered(&mut host), [request], "the oldest comes first");
    }
    ask(&mut host, 3);
    host.handle(Time::ZERO, Event::Disconnected(Peer::Client(ConnectionId(1))));
    assert_eq!(host.serve_reader(Time::ZERO), None, "a read whose reader is gone is not done");
    assert_ne!(host.deadline(), Some(Time::ZERO));
}
