//! Records and names from users.

use bytes::Bytes;
use seriatim_client::{
    AppendError, AppendOptions, ControlError, Event, Header, LogConfig, Position, ReadError, Record,
    SubscribeOptions,
};
use seriatim_model::limits::{MAX_NUMBER, MAX_RECORD_BYTES, MAX_RECORD_OVERHEAD_BYTES};
use seriatim_model::{Order, SessionId};
use seriatim_protocol::{Message, erwin};

use crate::support::{Cluster, Raw, TIMEOUT, read_range, says, within};

fn limited(max_record_bytes: u32) -> LogConfig {
    LogConfig { max_record_bytes, ..LogConfig::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_at_the_limit_is_kept_and_one_byte_more_is_refused() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let log = cluster.log("limited", LogConfig::default()).await;
    let exact = Bytes::from(vec![7; 1 << 20]);
    let position = log.append_sync(exact.clone()).await.unwrap();
    let over = log.append(vec![7; (1 << 20) + 1], AppendOptions::default()).await.unwrap_err();
    assert_eq!(over, AppendError::TooLarge { size: (1 << 20) + 1, limit: 1 << 20 });
    says(&over, &["1048577", "1048576", "split it", "--max-record-bytes"]);
    assert_eq!(log.append_sync("next").await.unwrap(), position.next());
    assert_eq!(log.read(position, 1, TIMEOUT).await.unwrap()[0].record.payload(), exact);
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_record_of_all_goes_all_the_way() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let log = cluster.log("large", limited(MAX_RECORD_BYTES)).await;
    let payloads: Vec<Bytes> =
        (0..4u8).map(|fill| Bytes::from(vec![fill; MAX_RECORD_BYTES as usize])).collect();
    let mut in_flight = vec![];
    for payload in &payloads {
        in_flight.push(log.submit(payload.clone()).await.unwrap());
        in_flight.push(log.submit("small").await.unwrap());
    }
    for append in in_flight {
        append.await.unwrap();
    }
    let mut events =
        log.subscribe(Position(0), SubscribeOptions::default().until(Position(8))).await.unwrap();
    for number in 0..8 {
        let Some(Ok(Event::Deliver { position, record, .. })) = within("a record", events.next()).await
        else {
            panic!("record {number} is missing");
        };
        assert_eq!(position, Position(number));
        let expected = if number % 2 == 0 { payloads[number as usize / 2].clone() } else { "small".into() };
        assert!(record.payload() == expected, "record {number} differs");
        let read = log.read(position, 1, TIMEOUT).await.unwrap();
        assert!(read[0].record.payload() == expected, "record {number} is read differently");
    }
    let over = log.append(vec![0; MAX_RECORD_BYTES as usize + 1], AppendOptions::default()).await;
    assert!(matches!(over, Err(AppendError::TooLarge { .. })));
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_or_headers_beyond_their_bound_are_refused_at_once() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let log = cluster.log("headers", limited(100)).await;
    let header = |bytes: usize| vec![Header { kind: 40_000, value: vec![1; bytes].into() }];
    let most = MAX_RECORD_OVERHEAD_BYTES as usize;
    let fits = Record::from("x").with_headers(header(most - 100)).with_key("key");
    let waiting = log.submit("before").await.unwrap();
    log.append(fits, AppendOptions::default()).await.unwrap();
    for record in [
        Record::from("x").with_headers(header(most + 1)),
        Record::from("x").with_headers(header(20 << 20)),
        Record::from("x").with_key(vec![1; most + 1]),
    ] {
        let over = log.append(record, AppendOptions::default()).await.unwrap_err();
        says(&over, &["key", "headers", "65536"]);
    }
    waiting.await.unwrap();
    log.append("after", AppendOptions::default()).await.unwrap();
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_checks_the_limit_itself() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let config = LogConfig { order: Order::ErwinBb, ..limited(100) };
    let log = cluster.log("checked", config).await;
    let entry = log.entry().clone();
    let session = SessionId::new(Position(0), 77);
    let mut raw = Raw::connect(&cluster.address()).await;
    let append =
        |entries| erwin::Message::Append { view: entry.view_number(), session, first: 0, lowest: 0, entries };
    let record = |bytes| seriatim_model::Record::new(&vec![1; bytes], 0);
    let no_payload = seriatim_model::Record::build(b"", 0, Some(&[1; 70_000]), &[]);
    for too_large in [record(101), no_payload, record(MAX_RECORD_BYTES as usize + (1 << 20))] {
        raw.send(entry.id, seriatim_model::Endpoint::Sequencer, append(vec![too_large.into()]));
        let refusal = raw
            .answer_where(|message| match message {
                Message::Erwin(erwin::Message::TooLarge { session, number, limit }) => {
                    Some((session, number, limit))
                }
                _ => None,
            })
            .await;
        assert_eq!(refusal, (session, 0, 100));
    }
    assert_eq!(log.check_tail().await.unwrap(), Position(0), "nothing was stored");
    log.append_sync(vec![1; 100]).await.unwrap();
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_come_back_byte_for_byte() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let log = cluster.log("bytes", LogConfig::default()).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let payloads: [&[u8]; 7] = [
        b"",
        b"\0",
        b"\n",
        b"\r\n\0\r\n",
        b"SRTM\x01\0\0\0\x04",
        &every_byte,
        "\u{feff}\u{1f980}".as_bytes(),
    ];
    for payload in payloads {
        let position = log.append_sync(payload.to_vec()).await.unwrap();
        let read = log.read(position, 1, TIMEOUT).await.unwrap();
        assert_eq!(read[0].record.payload(), payload);
    }
    let end = Position(payloads.len() as u64);
    assert_eq!(read_range(&log, Position(0), end).await.len(), payloads.len());
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_that_are_not_or_already_are_there() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let client = cluster.client().await;
    let unknown = client.log("nowhere").await.unwrap_err();
    assert_eq!(unknown, ControlError::NoSuchLog { name: "nowhere".into() });
    says(&unknown, &["no log 'nowhere'", "seriatim log create nowhere"]);
    says(&client.delete("nowhere").await.unwrap_err(), &["no log 'nowhere'"]);
    let exists = client.create("witness", LogConfig::default()).await.unwrap_err();
    assert_eq!(exists, ControlError::Exists { name: "witness".into() });
    says(&exists, &["'witness' exists already", "seriatim log delete witness"]);
    let four = LogConfig { sequencers: 4, ..LogConfig::default() };
    says(&client.create("four", four).await.unwrap_err(), &["4 sequencing replicas", "3"]);
    for bad in [String::new(), "-x".into(), "a b".into(), "a/../b".into(), "é".into(), "n".repeat(129)] {
        let refused = client.create(&bad, LogConfig::default()).await.unwrap_err();
        assert!(matches!(refused, ControlError::Impossible { .. }), "{bad}: {refused}");
        says(&refused, &["cannot name a log"]);
    }
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_as_long_as_a_frame_is_refused() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let client = cluster.client().await;
    let monster = "n".repeat((16 << 20) - 23);
    for error in [
        client.log(&monster).await.unwrap_err(),
        client.delete(&monster).await.unwrap_err(),
        client.create(&monster, LogConfig::default()).await.unwrap_err(),
        client.log(&"m".repeat(17 << 20)).await.unwrap_err(),
    ] {
        says(&error, &["cannot name a log", "128"]);
    }
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stripes_and_positions_of_any_size() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let wide = LogConfig { stripe: u64::MAX, ..LogConfig::default() };
    let log = cluster.log("wide", wide).await;
    for number in 0..3 {
        assert_eq!(log.append_sync("x").await.unwrap(), Position(number));
    }
    assert_eq!(read_range(&log, Position(0), Position(3)).await.len(), 3);
    let none = std::time::Duration::ZERO;
    for far in [Position(3), Position(1 << 40), Position(u64::MAX - 1), Position(u64::MAX)] {
        assert_eq!(log.read(far, u32::MAX, none).await.unwrap(), [], "{far}");
    }
    let client = cluster.client().await;
    let usual = client.log("witness").await.unwrap();
    assert_eq!(usual.read(Position(u64::MAX - 1), u32::MAX, none).await.unwrap(), []);
    let mut beyond = usual.subscribe(Position(MAX_NUMBER - 1), SubscribeOptions::default()).await.unwrap();
    let event = tokio::time::timeout(std::time::Duration::from_millis(50), beyond.next()).await;
    assert!(event.is_err(), "there is nothing to deliver: {event:?}");
    // No position can follow: the subscription ends.
    let mut end = usual.subscribe(Position(u64::MAX), SubscribeOptions::default()).await.unwrap();
    assert_eq!(within("the end", end.next()).await, None);
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_below_the_trim_point_or_past_the_tail() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let log = cluster.log("trimmed", LogConfig::default()).await;
    for number in 0..10 {
        assert_eq!(log.append_sync("x").await.unwrap(), Position(number));
    }
    log.trim(Position(4)).await.unwrap();
    let below = log.read(Position(3), 1, TIMEOUT).await.unwrap_err();
    assert_eq!(below, ReadError::Trimmed { first: Position(4) });
    says(&below, &["below 4 are trimmed", "first one is 4"]);
    let past = log.trim(Position(11)).await.unwrap_err();
    assert_eq!(past, ReadError::PastTail { position: Position(11), tail: Position(10) });
    says(&past, &["position 11 is past the tail", "10"]);
    says(&log.trim(Position(u64::MAX)).await.unwrap_err(), &["past the tail"]);
    let mut events = log.subscribe(Position(0), SubscribeOptions::default()).await.unwrap();
    let trimmed = within("what was trimmed", events.next()).await;
    assert!(matches!(trimmed, Some(Ok(Event::Trimmed { first: Position(4) }))), "{trimmed:?}");
    let next = within("the first that is left", events.next()).await;
    assert!(matches!(next, Some(Ok(Event::Deliver { position: Position(4), .. }))), "{next:?}");
    assert_eq!(read_range(&log, Position(4), Position(10)).await.len(), 6);
    assert_eq!(log.read(Position(10), 1, std::time::Duration::ZERO).await.unwrap(), []);
    witness.finish().await;
}
