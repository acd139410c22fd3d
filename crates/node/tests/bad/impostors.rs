//! Well-formed messages that a client must not send, or that have extreme numbers.

use seriatim_client::LogConfig;
use seriatim_model::limits::{MAX_FIRST, MAX_NUMBER};
use seriatim_model::storage::Run;
use seriatim_model::{
    BoundIds, Endpoint, IdRun, Incarnation, LogId, NodeId, Position, Record, SessionId, ShardId, ViewNumber,
};
use seriatim_protocol::control::NodeAddress;
use seriatim_protocol::parts::sequencing;
use seriatim_protocol::{Message, control, erwin, shard};

use crate::support::{Cluster, Raw, client, read_range};

const ROLES: [Endpoint; 8] = [
    Endpoint::Register,
    Endpoint::Controller,
    Endpoint::Sequencer,
    Endpoint::Shard(ShardId(0)),
    Endpoint::Shard(ShardId(1)),
    Endpoint::Shard(ShardId(999)),
    Endpoint::Node,
    Endpoint::Client(1),
];

async fn everywhere(cluster: &Cluster) -> Vec<Raw> {
    let (_, nodes) = cluster.client().await.list().await.unwrap();
    let mut all = vec![];
    for node in nodes {
        all.push(Raw::connect(&node.address).await);
    }
    all
}

async fn all_is_handled(raws: &mut [Raw], log: LogId) {
    for raw in raws {
        raw.send(log, Endpoint::Sequencer, sequencing::Message::Status { request: 4711 });
        raw.answer_where(|message| {
            matches!(message, Message::Sequencing(sequencing::Message::StatusIs { request: 4711, .. }))
                .then_some(())
        })
        .await;
    }
}

/// Messages between roles that would do harm from a client.
fn harmful(entry: &control::LogEntry) -> Vec<Message> {
    let log = entry.id;
    let view = entry.view_number();
    let far = ViewNumber(MAX_NUMBER);
    let run = IdRun { session: SessionId::new(Position(0), 1), first: 0, count: 5 };
    let record = Record::new(b"forged", 0);
    let runs = vec![Run { first: Position(0), records: vec![] }];
    let config = entry.config.clone();
    let mut forged = entry.clone();
    forged.view = None;
    forged.name = "forged".into();
    let mut renumbered = entry.clone();
    if let Some(view) = &mut renumbered.view {
        view.number = far;
    }
    let address = NodeAddress { node: NodeId(2), address: "127.0.0.1:1".into() };
    let ours = control::SealedState { ordered: Position(0), held: 0 };
    vec![
        control::Message::RemoveLog { log }.into(),
        control::Message::Retired { log, node: NodeId(2) }.into(),
        control::Message::Gone { log }.into(),
        control::Message::Join { node: address.clone() }.into(),
        control::Message::Join { node: NodeAddress { node: NodeId(9), ..address.clone() } }.into(),
        control::Message::Move { node: address.clone(), version: 1 }.into(),
        control::Message::Elsewhere { version: 1 }.into(),
        control::Message::Cluster { nodes: vec![address] }.into(),
        control::Message::CompareAndSet { entry: forged.clone() }.into(),
        control::Message::Current { entry: forged.clone() }.into(),
        control::Message::Registered { entry: renumbered }.into(),
        control::Message::Seal { claim: far, old: view, config }.into(),
        control::Message::Sealed { claim: far, incarnation: Incarnation(1), state: Some(ours) }.into(),
        control::Message::Report { view: far, cannot_start: far, incarnation: Incarnation(1) }.into(),
        control::Message::Unavailable { why: "forged".into() }.into(),
        erwin::Message::Forward { view, session: run.session, first: 0, entries: vec![record.into()] }.into(),
        erwin::Message::Truncate {
            view,
            from: Position(0),
            runs: vec![BoundIds { ids: run, is_void: false }],
        }
        .into(),
        erwin::Message::TruncateAck { view, ordered: Position(MAX_NUMBER) }.into(),
        shard::Message::Fence { claim: far, entry: forged.clone() }.into(),
        shard::Message::Stable { view, stable: Position(MAX_NUMBER) }.into(),
        shard::Message::Bind { view, batch: Position(0), backups: vec![], stable: Position(99), runs }.into(),
        shard::Message::Bound { view, batch: Position(0), stable: Position(MAX_NUMBER), voids: vec![] }
            .into(),
        shard::Message::Replicated { view, batch: Position(0) }.into(),
    ]
}

async fn pose_as(from: Endpoint) {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let log = cluster.log("target", LogConfig::default()).await;
    for number in 0..5 {
        assert_eq!(log.append_sync(format!("{number}")).await.unwrap(), Position(number));
    }
    let before = cluster.client().await.lookup("target").await.unwrap();
    let mut raws = everywhere(&cluster).await;
    for message in harmful(&before) {
        for raw in &raws {
            for role in ROLES {
                raw.send_as(before.id, from, role, message.clone());
                // An unknown log must get no roles.
                raw.send_as(LogId(before.id.0 + 1000), from, role, message.clone());
            }
        }
    }
    all_is_handled(&mut raws, before.id).await;
    let observer = client(&cluster.address()).await;
    let (entries, nodes) = observer.list().await.unwrap();
    assert_eq!((entries.len(), nodes.len()), (2, 3));
    assert_eq!(observer.lookup("target").await.unwrap(), before, "not even a view was changed");
    assert_eq!(log.append_sync("after").await.unwrap(), Position(5));
    let read = read_range(&observer.log("target").await.unwrap(), Position(0), Position(6)).await;
    let payloads: Vec<_> = read.iter().map(|stored| stored.record.payload()).collect();
    assert_eq!(payloads, ["0", "1", "2", "3", "4", "after"]);
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_poses_as_a_sequencing_replica() {
    pose_as(Endpoint::Sequencer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_poses_as_a_node() {
    pose_as(Endpoint::Node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_says_what_only_nodes_say() {
    pose_as(Endpoint::Client(1)).await;
}

/// Messages that a client may send, with extreme numbers.
fn absurd(view: ViewNumber, session: SessionId) -> Vec<Message> {
    let far = Position(MAX_NUMBER);
    let record = || vec![Record::new(b"x", u64::MAX)];
    let append =
        |first, entries| erwin::Message::Append { view, session, first, lowest: MAX_NUMBER, entries };
    let read =
        |from, end, max_records| shard::Message::Read { request: 1, from, end, max_records, wait_ms: 0 };
    let subscribe = |from, credit| shard::Message::Subscribe { request: 2, from, credit };
    vec![
        append(0, record().into_iter().map(Into::into).collect()).into(),
        append(MAX_FIRST, record().into_iter().map(Into::into).collect()).into(),
        append(MAX_FIRST, vec![]).into(),
        append(MAX_FIRST - 1, vec![Record::new(b"", 0).into(); 3]).into(),
        append(0, vec![]).into(),
        erwin::Message::Append {
            view: ViewNumber(MAX_NUMBER),
            session: SessionId(u128::MAX),
            first: 0,
            lowest: 0,
            entries: vec![],
        }
        .into(),
        erwin::Message::Locate { view, session, number: MAX_NUMBER }.into(),
        erwin::Message::Locate { view, session: SessionId(u128::MAX), number: 0 }.into(),
        sequencing::Message::CheckTail { request: u64::MAX, view: ViewNumber(MAX_NUMBER) }.into(),
        read(far, far, u32::MAX).into(),
        read(far, Position(0), 0).into(),
        read(Position(3), Position(1), 1).into(),
        read(Position(0), far, u32::MAX).into(),
        shard::Message::Read { request: 3, from: far, end: far, max_records: 1, wait_ms: u32::MAX }.into(),
        shard::Message::Read { request: 4, from: Position(7), end: far, max_records: 1, wait_ms: u32::MAX }
            .into(),
        subscribe(far, u64::MAX).into(),
        subscribe(Position(0), 0).into(),
        subscribe(Position(0), u64::MAX).into(),
        shard::Message::Credit { request: 2, bytes: u64::MAX }.into(),
        shard::Message::Credit { request: 77, bytes: u64::MAX }.into(),
        shard::Message::Trim { request: 5, view: ViewNumber(1), position: far }.into(),
        shard::Message::Cancel { request: u64::MAX }.into(),
        control::Message::Lookup { request: u64::MAX, name: "\0".into() }.into(),
        control::Message::Delete { request: 6, name: String::new(), log: LogId(1) }.into(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_at_the_end_of_their_range() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let log = cluster.log("target", LogConfig::default()).await;
    log.append_sync("first").await.unwrap();
    let entry = log.entry().clone();
    let mut raws = everywhere(&cluster).await;
    let session = SessionId::new(Position(0), 7);
    for message in absurd(entry.view_number(), session) {
        for raw in &raws {
            for role in ROLES {
                raw.send(entry.id, role, message.clone());
                raw.send(LogId(u64::MAX), role, message.clone());
            }
        }
    }
    all_is_handled(&mut raws, entry.id).await;
    let position = log.append_sync("last").await.unwrap();
    let read = read_range(&log, position, position.next()).await;
    assert_eq!(read.last().map(|stored| stored.position), Some(position));
    witness.finish().await;
}
