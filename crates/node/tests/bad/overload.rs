//! Load beyond the limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seriatim_client::{
    AppendError, AppendOptions, Event, Log, LogConfig, LogOptions, Position, RecordId, SubscribeOptions,
};
use seriatim_model::{Endpoint, Order, Record, SessionId, ShardId};
use seriatim_net::{Connected, ConnectionOptions, connect, message_frame};
use seriatim_protocol::parts::sequencing;
use seriatim_protocol::{Message, erwin, shard};

use crate::support::{Cluster, Raw, eventually, says, within};

const CLIENTS: usize = 4;
const EACH: usize = 2500;
const RING_RECORDS: usize = 64;

async fn small_ring() -> Cluster {
    Cluster::start_with(|options| {
        options.run.limits.ring_records = RING_RECORDS;
        options.run.limits.batch_records = 16;
    })
    .await
}

async fn burst(log: Log, client: usize) -> Vec<RecordId> {
    let mut in_flight = vec![];
    for number in 0..EACH {
        in_flight.push(log.submit(format!("{client} {number}")).await.unwrap());
    }
    let mut ids = vec![];
    for append in in_flight {
        ids.push(append.await.unwrap().id);
    }
    ids
}

async fn read_all(log: &Log, end: Position) -> Vec<(Position, RecordId, String)> {
    let mut events = log.subscribe(Position(0), SubscribeOptions::default().until(end)).await.unwrap();
    let mut all = vec![];
    while let Some(event) = within("the next record", events.next()).await {
        let Event::Deliver { position, id, record, .. } = event.unwrap() else {
            panic!("nothing else comes")
        };
        all.push((position, id, String::from_utf8(record.payload().to_vec()).unwrap()));
    }
    all
}

/// The most held entries that a replica reports until `is_over`.
async fn most_held(address: String, log: seriatim_model::LogId, is_over: Arc<AtomicBool>) -> u64 {
    let mut raw = Raw::connect(&address).await;
    let mut most = 0;
    while !is_over.load(Ordering::Relaxed) {
        raw.send(log, Endpoint::Sequencer, sequencing::Message::Status { request: 1 });
        let held = raw.answer_where(|message| match message {
            Message::Sequencing(sequencing::Message::StatusIs { held, .. }) => Some(held),
            _ => None,
        });
        most = most.max(held.await);
    }
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_appends_against_a_full_ring() {
    let cluster = small_ring().await;
    let witness = cluster.witness().await;
    let log = cluster.log("full", LogConfig::default()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let held = tokio::spawn(most_held(cluster.address(), log.entry().id, Arc::clone(&is_over)));
    let mut bursts = vec![];
    for client in 0..CLIENTS {
        let log = cluster.client().await.log("full").await.unwrap();
        bursts.push(tokio::spawn(burst(log, client)));
    }
    witness.goes_on().await;
    let mut acknowledged = BTreeMap::new();
    for (client, burst) in bursts.into_iter().enumerate() {
        let ids = within("ten thousand appends", burst).await.unwrap();
        for (number, id) in ids.iter().enumerate() {
            assert_eq!(
                (id.session, id.number),
                (ids[0].session, number as u64),
                "in the order of submission"
            );
            acknowledged.insert(*id, format!("{client} {number}"));
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let most = held.await.unwrap();
    assert!(most > 0 && most <= RING_RECORDS as u64, "{most} were held");

    let all = read_all(&log, Position((CLIENTS * EACH) as u64)).await;
    let mut next: BTreeMap<SessionId, u64> = BTreeMap::new();
    for (index, (position, id, payload)) in all.iter().enumerate() {
        assert_eq!(*position, Position(index as u64));
        assert_eq!(acknowledged.get(id), Some(payload), "what was acknowledged is there");
        let next = next.entry(id.session).or_default();
        assert_eq!(id.number, *next, "in session order");
        *next += 1;
    }
    assert_eq!(all.iter().map(|(_, id, _)| id).collect::<BTreeSet<_>>().len(), CLIENTS * EACH);
    assert_eq!(log.check_tail().await.unwrap(), Position((CLIENTS * EACH) as u64));
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_ring_answers_busy_and_says_from_where() {
    let cluster = small_ring().await;
    let witness = cluster.witness().await;
    let log = cluster.log("full", LogConfig { order: Order::ErwinBb, ..LogConfig::default() }).await;
    let entry = log.entry().clone();
    let mut raw = Raw::connect(&cluster.address()).await;
    let session = SessionId::new(Position(0), 9);
    let append = |first: u64| erwin::Message::Append {
        view: entry.view_number(),
        session,
        first,
        lowest: first,
        entries: vec![Record::new(b"x", 0).into(); 1000],
    };
    raw.send(entry.id, Endpoint::Sequencer, append(0));
    // One replica alone cannot bind: it keeps its entries until the others have them, or forwards
    // are done.
    let (next, disk_full) = raw
        .answer_where(|message| match message {
            Message::Erwin(erwin::Message::Busy { next, disk_full, .. }) => Some((next, disk_full)),
            _ => None,
        })
        .await;
    assert!(next > 0 && next <= RING_RECORDS as u64, "it took {next}");
    assert!(!disk_full);
    let acknowledged = raw.answer_where(|message| match message {
        Message::Erwin(erwin::Message::Acknowledged { next, .. }) => Some(next),
        _ => None,
    });
    assert_eq!(acknowledged.await, next, "what it took is acknowledged");
    // Other clients are served as the replica's ring of entries empties.
    let others = cluster.client().await.log("full").await.unwrap();
    others.append_sync("another").await.unwrap();
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_never_asks_for_more() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let log = cluster.log("slow", LogConfig::default()).await;
    let reader = cluster.client().await.log("slow").await.unwrap();
    let mut lazy = reader.subscribe(Position(0), SubscribeOptions::default()).await.unwrap();
    let count = 20_000;
    for _ in 0..10 {
        let mut in_flight = vec![];
        for _ in 0..count / 10 {
            in_flight.push(log.submit(vec![b'x'; 512]).await.unwrap());
        }
        for append in in_flight {
            append.await.unwrap();
        }
        witness.goes_on().await;
    }
    // Meanwhile the same client and others can append and read.
    assert_eq!(reader.append_sync("by the lazy one").await.unwrap(), Position(count));
    assert_eq!(read_all(&log, Position(count + 1)).await.len() as u64, count + 1);
    for expected in 0..=count {
        let event = within("the next record", lazy.next()).await.unwrap().unwrap();
        assert!(matches!(event, Event::Deliver { position, .. } if position == Position(expected)));
    }
    witness.finish().await;
}

/// Sends many requests and reads no answer.
async fn hog(cluster: &Cluster, log: &Log, question: impl Fn(u64) -> shard::Message) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let entry = log.entry();
    let view = entry.view.as_ref().unwrap();
    let (_, nodes) = cluster.client().await.list().await.unwrap();
    let primary = view.shard(ShardId(0)).unwrap().primary().node;
    let node = nodes.iter().find(|node| node.node == primary).unwrap();
    let mut stream = tokio::net::TcpStream::connect(&node.address).await.unwrap();
    let hello = seriatim_net::frame::frame_chunks(seriatim_net::FrameKind::Hello, entry.id, |out| {
        seriatim_model::wire::Wire::encode(&seriatim_net::Hello::client("hog"), out);
    });
    stream.write_all(&hello.unwrap().concat()).await.unwrap();
    // The welcome shows that the client has a place, which no other client gets before the node
    // abandons it.
    assert_eq!(within("the welcome", stream.peek(&mut [0])).await.unwrap(), 1);
    let waiting_room = crowd_in(&node.address).await;
    for request in 0..400 {
        let message: Message = question(request).into();
        let to = Endpoint::Shard(ShardId(0));
        let frame = message_frame(entry.id, Endpoint::Client(request), to, &message).unwrap();
        stream.write_all(&frame.concat()).await.unwrap();
    }
    let hello = seriatim_net::Hello::client("next");
    let next = || async { connect(&node.address, &hello, &ConnectionOptions::default()).await.is_ok() };
    eventually("the node gives up a client that does not read", next).await;
    drop(waiting_room);
    let mut taken = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = within("the end", stream.read(&mut buffer)).await {
        taken += count;
    }
    assert!(taken < 64 << 20, "it was cut off after {taken} bytes");
}

async fn crowd_in(address: &str) -> Vec<Connected> {
    let hello = seriatim_net::Hello::client("crowd");
    let mut all = vec![];
    while let Ok(connected) = connect(address, &hello, &ConnectionOptions::default()).await {
        all.push(connected);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_what_it_asked_for() {
    let cluster = Cluster::start_with(|options| {
        options.run.listening.max_clients = 16;
        options.run.listening.connection.queue_bytes = 4 << 20;
        options.run.listening.connection.flush_for = Duration::from_millis(300);
    })
    .await;
    let witness = cluster.witness().await;
    let config = LogConfig { shards: 1, ..LogConfig::default() };
    let log = cluster.log("hoarded", config).await;
    for _ in 0..32 {
        log.append_sync(vec![7; 1 << 20]).await.unwrap();
    }
    hog(&cluster, &log, |request| shard::Message::Read {
        request,
        from: Position(0),
        end: Position(32),
        max_records: 32,
        wait_ms: 0,
    })
    .await;
    witness.goes_on().await;
    hog(&cluster, &log, |request| shard::Message::Subscribe { request, from: Position(0), credit: u64::MAX })
        .await;
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_waiting_reads_than_there_is_room_for() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let log = cluster.log("popular", LogConfig { shards: 1, ..LogConfig::default() }).await;
    let view = log.entry().view.clone().unwrap();
    let (_, nodes) = cluster.client().await.list().await.unwrap();
    let primary = view.shard(ShardId(0)).unwrap().primary().node;
    let node = nodes.iter().find(|node| node.node == primary).unwrap();
    let mut raw = Raw::connect(&node.address).await;
    for request in 0..=seriatim_model::limits::MAX_WAITING_READS as u64 {
        let (from, end) = (Position(0), Position(1));
        let read = shard::Message::Read { request, from, end, max_records: 1, wait_ms: 60_000 };
        raw.send(log.entry().id, Endpoint::Shard(ShardId(0)), read);
    }
    let error = raw.answer_where(|message| match message {
        Message::Shard(shard::Message::ReadFailed { error, .. }) => Some(error),
        _ => None,
    });
    let error = error.await;
    assert_eq!(error, shard::ReadError::Busy);
    says(&error, &["too many readers", "later"]);
    drop(raw);
    // Readers that have left make room for others.
    log.append_sync("x").await.unwrap();
    assert_eq!(log.read(Position(0), 1, crate::support::TIMEOUT).await.unwrap().len(), 1);
    witness.finish().await;
}

async fn ends(cluster: &Cluster, session: SessionId) {
    let client = cluster.client().await;
    let again = async {
        for number in 1.. {
            let log = client.log_with("left", LogOptions::resume(session, number)).await.unwrap();
            match log.append("again", AppendOptions::default()).await {
                Ok(_) => {}
                Err(AppendError::SessionExpired { .. }) => return,
                Err(other) => panic!("{other}"),
            }
        }
    };
    within("the end of the session", again).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_nobody_holds_any_more() {
    let cluster = Cluster::start().await;
    let client = cluster.client().await;
    cluster.log("left", LogConfig { order: Order::ErwinBb, ..LogConfig::default() }).await;
    let mut sessions = vec![];
    for options in [LogOptions::unordered(1), LogOptions::ending_when_dropped(), LogOptions::default()] {
        let log = client.log_with("left", options).await.unwrap();
        sessions.push(log.append("once", AppendOptions::default()).await.unwrap().id.session);
    }
    ends(&cluster, sessions[0]).await;
    ends(&cluster, sessions[1]).await;
    // The third session can still resume.
    let log = client.log_with("left", LogOptions::resume(sessions[2], 1)).await.unwrap();
    assert_eq!(log.append("twice", AppendOptions::default()).await.unwrap().id.session, sessions[2]);
}
