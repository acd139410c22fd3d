//! Shared test fixtures: a small log, its records, and filters for effects.

use std::collections::BTreeMap;

use seriatim_model::storage::Stored;
use seriatim_model::{
    Address, Effect, Endpoint, Gap, Incarnation, Input, LogConfig, LogId, Member, NodeId, Order, Placement,
    Position, Record, RecordId, RetiredShard, SessionId, ShardId, ShardMembers, View, ViewHistory,
    ViewNumber,
};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::{Message, shard};

pub(crate) const CONTROL: NodeId = NodeId(1);
/// The latest view that decides a position in the tests' deliveries.
pub(crate) const VIEW: ViewNumber = ViewNumber(1);

fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(7) }
}

/// A log of `shards` shards: in view `number`, shard `s` has its primary on node `10 * number + s`
/// and a backup on node `100 + s`.
pub(crate) fn entry(number: u64, shards: u32, stripe: u64) -> LogEntry {
    let ids: Vec<ShardId> = (0..shards).map(ShardId).collect();
    let members = ids.iter().map(|shard| ShardMembers {
        shard: *shard,
        begins: Position::ZERO,
        replicas: vec![member(primary(number, shard.0)), member(100 + shard.0)],
    });
    let view = View {
        number: ViewNumber(number),
        sequencers: vec![member(1)],
        leader: NodeId(1),
        shards: members.collect(),
        retired: vec![],
        placement: Placement::new(ids.clone(), stripe),
        first: Position::ZERO,
        start: Position::ZERO,
    };
    LogEntry {
        id: LogId(9),
        name: "orders".into(),
        config: LogConfig { order: Order::ErwinBb, ..LogConfig::default() },
        sequencers: vec![],
        shards: vec![],
        leaving: vec![],
        version: number,
        claimed: view.number,
        claimant: 0,
        view: (number > 0).then_some(view),
        history: ViewHistory::default(),
        unavailable: None,
        ended: control::EndedSessions::default(),
        pins: vec![],
    }
}

pub(crate) fn with_third_replica(entry: LogEntry) -> LogEntry {
    let mut entry = entry;
    entry.view.as_mut().unwrap().shards[0].replicas.push(member(200));
    entry
}

pub(crate) fn that_lost(entry: LogEntry, shard: u32, from: u64, end: u64) -> LogEntry {
    let mut entry = entry;
    entry.history.give_up(Gap { shard: ShardId(shard), from: Position(from), end: Position(end) });
    entry
}

/// A log of two shards; the first is retired and ends at position 3.
pub(crate) fn without_a_shard() -> LogEntry {
    let last = entry(1, 2, 1).view.unwrap();
    let mut entry = entry(2, 2, 1);
    entry.config.order = Order::Belfast;
    let view = entry.view.as_mut().unwrap();
    view.shards.remove(0);
    view.retired = vec![RetiredShard::new(ShardId(0), last, Position(3))];
    entry
}

/// The log of `without_a_shard`, with the first shard's positions from `from` on given up. If
/// `from` is 0, the view no longer names the shard.
pub(crate) fn with_given_up(from: u64) -> LogEntry {
    let mut entry = LogEntry { version: 3, ..without_a_shard() };
    entry.history.give_up(Gap { shard: ShardId(0), from: Position(from), end: Position(3) });
    let view = entry.view.as_mut().unwrap();
    view.number = ViewNumber(3);
    view.retired.retain(|_| from > 0);
    entry
}

pub(crate) fn primary(view: u64, shard: u32) -> u32 {
    10 * view as u32 + shard
}

pub(crate) fn stored(position: u64) -> Stored {
    let id = RecordId { session: SessionId(1), number: position };
    Stored { position: Position(position), id, record: Record::new(position.to_string().as_bytes(), 0) }
}

pub(crate) fn no_op(position: u64) -> Stored {
    let mut encoded = stored(position).record.encoded().to_vec();
    encoded[0] = 4;
    Stored { record: Record::from_encoded(encoded.into()).unwrap(), ..stored(position) }
}

pub(crate) fn from_shard<Q>(node: u32, shard: u32, message: shard::Message) -> Input<Message, Q> {
    let from = Address::Node(NodeId(node), Endpoint::Shard(ShardId(shard)));
    Input::Message { from, message: message.into() }
}

pub(crate) fn from_register<Q>(message: control::Message) -> Input<Message, Q> {
    Input::Message { from: Address::Node(CONTROL, Endpoint::Register), message: message.into() }
}

pub(crate) fn to_shards<R>(effects: &[Effect<Message, R>]) -> Vec<(u32, u32, shard::Message)> {
    let to_shard = |effect: &Effect<Message, R>| match effect {
        Effect::Send {
            to: Address::Node(node, Endpoint::Shard(shard)),
            message: Message::Shard(message),
        } => Some((node.0, shard.0, message.clone())),
        _ => None,
    };
    effects.iter().filter_map(to_shard).collect()
}

pub(crate) fn lookups<R>(effects: &[Effect<Message, R>]) -> Vec<u64> {
    let lookup = |effect: &Effect<Message, R>| match effect {
        Effect::Send {
            to: Address::Node(CONTROL, Endpoint::Register),
            message: Message::Control(control::Message::Lookup { request, .. }),
        } => Some(*request),
        _ => None,
    };
    effects.iter().filter_map(lookup).collect()
}

pub(crate) fn replies<R: Clone>(effects: &[Effect<Message, R>]) -> Vec<R> {
    let reply = |effect: &Effect<Message, R>| match effect {
        Effect::Reply { reply, .. } => Some(reply.clone()),
        _ => None,
    };
    effects.iter().filter_map(reply).collect()
}

/// For each shard the current request: node, number, first position, credit.
pub(crate) type Asked = BTreeMap<u32, (u32, u64, Position, u64)>;

pub(crate) fn note_asked<R>(asked: &mut Asked, effects: &[Effect<Message, R>]) {
    for (node, shard, message) in to_shards(effects) {
        match message {
            shard::Message::Subscribe { request, from, credit }
            | shard::Message::SubscribeWith { request, from, credit, .. } => {
                asked.insert(shard, (node, request, from, credit));
            }
            shard::Message::Cancel { request } => {
                asked.retain(|other, asked| *other != shard || asked.1 != request);
            }
            shard::Message::Credit { request, bytes } => {
                let asked = asked.get_mut(&shard).expect("credit is for a subscription");
                assert_eq!(asked.1, request);
                asked.3 += bytes;
            }
            other => panic!("a subscription does not send {other:?}"),
        }
    }
}

pub(crate) fn run(positions: impl IntoIterator<Item = u64>) -> Vec<Stored> {
    positions.into_iter().map(stored).collect()
}
