//! The client against fake nodes over loopback TCP that are busy, change views, disconnect or stay
//! silent.

mod fake;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fake::{Cluster, Fault};
use seriatim_client::{
    AppendError, AppendOptions, Client, ClientOptions, ControlError, Event, Log, LogConfig, LogOptions,
    NodeId, Order, Position, ReadError, SessionId, SubscribeOptions,
};

async fn open(cluster: &Cluster) -> Log {
    open_within(cluster, Duration::from_secs(10)).await
}

async fn open_within(cluster: &Cluster, deadline: Duration) -> Log {
    let options = ClientOptions::default().with_deadline(deadline);
    let client = Client::connect_with(cluster.address(1), options).await.expect("node 1 is there");
    client.log("orders").await.expect("the log exists")
}

#[tokio::test]
async fn appends_are_acknowledged_by_all_and_can_be_read() {
    let cluster = Cluster::start(3).await;
    let log = open(&cluster).await;
    let opened = log.session().await.expect("a session can be had before the first append");
    assert_eq!(opened.1, 0);
    let receipt = log.append("a", AppendOptions::default()).await.unwrap();
    assert_eq!((receipt.id.number, receipt.position), (0, None));
    assert_eq!(log.append_sync("b").await.unwrap(), Position(1));
    assert_eq!(log.session().await, Some((receipt.id.session, 2)));
    assert_eq!(opened.0, receipt.id.session);
    for node in 1..=3 {
        assert_eq!(cluster.held(node), [0, 1]);
    }
    assert_eq!(log.check_tail().await.unwrap(), Position(2));
    let records = log.read(Position(0), 10, Duration::ZERO).await.unwrap();
    let payloads: Vec<_> = records.iter().map(|stored| stored.record.payload()).collect();
    assert_eq!(payloads, ["a", "b"]);
    assert!(records[0].record.appended_ms() > 0);
}

#[tokio::test]
async fn empty_positions_are_no_end_of_a_log() {
    const MILLION: u64 = 1_000_000;
    let cluster = Cluster::start(1).await;
    let log = open(&cluster).await;
    for record in ["a", "b"] {
        log.append(record, AppendOptions::default()).await.unwrap();
    }
    cluster.state().empty = (MILLION, MILLION);
    let read = async |from: u64, max: u32| {
        let records = log.read(Position(from), max, Duration::ZERO).await.unwrap();
        records.iter().map(|stored| stored.position.0 - MILLION).collect::<Vec<_>>()
    };
    for from in [0, 5, MILLION - 1, MILLION] {
        assert_eq!(read(from, 1).await, [0], "from {from}");
        assert_eq!(read(from, 8192).await, [0, 1], "from {from}");
    }
    for from in [MILLION + 2, 2 * MILLION, 2 * MILLION + 2] {
        assert_eq!(read(from, 3).await, [], "from {from}");
    }
    let end = Position(2 * MILLION + 2);
    let mut events = log.subscribe(Position(0), SubscribeOptions::default().until(end)).await.unwrap();
    for expected in [MILLION, MILLION + 1] {
        let Some(Ok(Event::Deliver { position, .. })) = events.next().await else { panic!("a record") };
        assert_eq!(position, Position(expected));
    }
    assert!(events.next().await.is_none(), "the end is reached");
}

#[tokio::test]
async fn many_in_flight_keep_their_order_through_busy_lost_connections_and_silence() {
    let cluster = Cluster::start(3).await;
    cluster.faults(2, [Fault::Busy, Fault::Disconnect, Fault::Busy]);
    cluster.faults(1, [Fault::HoldAndDisconnect]);
    cluster.faults(3, [Fault::Silence, Fault::HoldAndDisconnect]);
    let log = open(&cluster).await;
    let mut appends = vec![];
    for number in 0..1000 {
        appends.push(log.submit(number.to_string()).await.unwrap());
    }
    for (number, append) in (0..).zip(appends) {
        assert_eq!(append.await.unwrap().id.number, number);
    }
    for node in 1..=3 {
        assert_eq!(cluster.held(node), (0..1000).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_replica_that_rejects_makes_the_client_learn_the_new_view() {
    let cluster = Cluster::start(3).await;
    let log = open(&cluster).await;
    log.append("a", AppendOptions::default()).await.unwrap();
    cluster.register(2, &[1, 2]);
    log.append("b", AppendOptions::default()).await.unwrap();
    assert_eq!((cluster.held(1), cluster.held(2), cluster.held(3)), (vec![0, 1], vec![0, 1], vec![0]));
    assert_eq!(log.check_tail().await.unwrap(), Position(2));
}

#[tokio::test]
async fn a_client_whose_first_node_died_learns_the_new_view_from_another() {
    let mut cluster = Cluster::start(3).await;
    let log = open(&cluster).await;
    log.append("a", AppendOptions::default()).await.unwrap();
    cluster.stop(1).await;
    cluster.register(2, &[2, 3]);
    log.append("b", AppendOptions::default()).await.unwrap();
    assert_eq!(cluster.held(2), [0, 1]);
    let records = log.read(Position(0), 10, Duration::ZERO).await.unwrap();
    assert_eq!(records.len(), 2);
    assert!(!cluster.state().reads.contains(&NodeId(1)), "reads go to the view that appends have learned");
}

#[tokio::test]
async fn a_deadline_says_what_was_waited_for_and_that_the_outcome_is_unknown() {
    let mut cluster = Cluster::start(2).await;
    let log = open_within(&cluster, Duration::from_millis(300)).await;
    log.append("a", AppendOptions::default()).await.unwrap();
    let address = cluster.address(2).to_owned();
    cluster.stop(2).await;
    let error = log.append("b", AppendOptions::default()).await.unwrap_err();
    assert!(matches!(error, AppendError::DeadlineExceeded { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("may or may not be in the log"), "{text}");
    assert!(text.contains(&format!("node 2 at {address}")), "{text}");
    let error = log.check_tail().await.unwrap_err();
    assert!(matches!(error, ReadError::DeadlineExceeded { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("node 2 at {address}")), "{error}");
}

#[tokio::test]
async fn the_time_of_an_append_does_not_run_while_those_before_it_get_on() {
    const DEADLINE: Duration = Duration::from_millis(500);
    let cluster = Cluster::start(1).await;
    let log = open_within(&cluster, DEADLINE).await;
    cluster.state().replicas.get_mut(&NodeId(1)).unwrap().is_slow = true;
    let begin = Instant::now();
    let mut appends = vec![];
    for number in 0..1500 {
        appends.push(log.submit(number.to_string()).await.unwrap());
    }
    // The last append waited longer than its deadline, but earlier appends made progress.
    appends.pop().unwrap().await.unwrap();
    assert!(begin.elapsed() > DEADLINE, "it took {:?} only", begin.elapsed());
    for append in appends {
        append.await.unwrap();
    }
    // No node answers any more: the deadline is not extended.
    cluster.faults(1, [Fault::Silence; 100]);
    let begin = Instant::now();
    let (first, second) = (log.submit("a").await.unwrap(), log.submit("b").await.unwrap());
    for append in [second, first] {
        let error = append.await.unwrap_err();
        assert!(matches!(error, AppendError::DeadlineExceeded { .. }), "{error:?}");
        assert!(error.to_string().contains("node 1 did not answer"), "{error}");
    }
    assert!(begin.elapsed() >= DEADLINE && begin.elapsed() < 4 * DEADLINE, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_deadline_names_only_nodes_that_were_asked_and_says_what_is_waited_behind() {
    const DEADLINE: Duration = Duration::from_millis(400);
    let mut cluster = Cluster::start(2).await;
    let log = open_within(&cluster, DEADLINE).await;
    log.append("a", AppendOptions::default()).await.unwrap();
    // Node 1 still answers, so only node 2 is an obstacle.
    cluster.stop(2).await;
    let appends = [log.submit("b").await, log.submit("c").await, log.submit("d").await];
    let mut errors = vec![];
    for append in appends {
        errors.push(append.unwrap().await.unwrap_err().to_string());
    }
    for error in &errors {
        assert!(error.contains("node 2 at") && !error.contains("did not answer"), "{error}");
    }
    assert!(!errors[0].contains("before it"), "{}", errors[0]);
    assert!(errors[1].ends_with("; the append before it is not acknowledged either"), "{}", errors[1]);
    assert!(errors[2].ends_with("; 2 appends before it are not acknowledged either"), "{}", errors[2]);
    // A node asked shortly before the deadline is not named.
    let cluster = Cluster::start(1).await;
    let log = open_within(&cluster, DEADLINE).await;
    log.append("a", AppendOptions::default()).await.unwrap();
    cluster.faults(1, [Fault::Silence; 100]);
    let hasty = AppendOptions::default().within(Duration::ZERO);
    let first = log.submit("b").await.unwrap();
    let error = log.append("c", hasty).await.unwrap_err().to_string();
    assert!(error.contains("before it"), "{error}");
    let error = first.await.unwrap_err().to_string();
    assert!(error.ends_with("node 1 did not answer"), "{error}");
}

#[tokio::test]
async fn an_unavailable_log_says_why() {
    let cluster = Cluster::start(1).await;
    {
        let mut state = cluster.state();
        let entry = state.entry.as_mut().unwrap();
        (entry.view, entry.unavailable) = (None, Some("no sequencing replica has its memory".into()));
    }
    let log = open_within(&cluster, Duration::from_millis(100)).await;
    let error = log.append("a", AppendOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("no sequencing replica has its memory"), "{error}");
}

#[tokio::test]
async fn dropping_an_append_withdraws_nothing() {
    let cluster = Cluster::start(1).await;
    let log = open(&cluster).await;
    drop(log.submit("a").await.unwrap());
    log.append("b", AppendOptions::default()).await.unwrap();
    assert_eq!(cluster.held(1), [0, 1]);
}

#[tokio::test]
async fn a_session_that_is_resumed_stores_nothing_twice() {
    let cluster = Cluster::start(2).await;
    let first = open(&cluster).await;
    let id = first.append("a", AppendOptions::default()).await.unwrap().id;
    first.append("b", AppendOptions::default()).await.unwrap();
    drop(first);
    let client = Client::connect(cluster.address(1)).await.unwrap();
    let resumed = client.log_with("orders", LogOptions::resume(id.session, 1)).await.unwrap();
    assert_eq!(resumed.session().await, Some((id.session, 1)));
    assert_eq!(resumed.append("b", AppendOptions::default()).await.unwrap().id.number, 1);
    assert_eq!(resumed.append("c", AppendOptions::default()).await.unwrap().id.number, 2);
    assert_eq!(cluster.held(1), [0, 1, 2]);
}

#[tokio::test]
async fn nothing_overtakes_what_failed_with_its_session_until_the_program_knows() {
    let cluster = Cluster::start(1).await;
    let log = open(&cluster).await;
    let (session, _) = log.session().await.unwrap();
    cluster.faults(1, [Fault::Forget]);
    let first = log.submit("a").await.unwrap();
    let second = log.submit("b").await.unwrap();
    let expired = Err(AppendError::SessionExpired(session));
    assert_eq!(second.await, expired);
    // The failure of the first append was not received yet, so later appends fail, too.
    assert_eq!(log.append("c", AppendOptions::default()).await, expired);
    assert_eq!(first.await, expired);
    assert_eq!(log.append("a", AppendOptions::default()).await.unwrap().id.number, 0);
    assert_eq!(log.append("b", AppendOptions::default()).await.unwrap().id.number, 1);
    assert_eq!(cluster.held(1), [0, 1]);
}

#[tokio::test]
async fn unordered_appends_are_spread_over_sessions() {
    let cluster = Cluster::start(2).await;
    let client = Client::connect(cluster.address(1)).await.unwrap();
    let log = client.log_with("orders", LogOptions::unordered(3)).await.unwrap();
    let mut sessions = BTreeSet::new();
    for payload in ["a", "b", "c", "d", "e", "f"] {
        let receipt = log.append(payload, AppendOptions::default()).await.unwrap();
        assert_eq!(receipt.appended_again, 0);
        sessions.insert(receipt.id.session);
    }
    assert_eq!(sessions.len(), 3);
    assert_eq!(cluster.held(1), [0, 0, 0, 1, 1, 1]);
    assert_eq!(log.session().await, None, "there is not one to go on with");
    let mut both = LogOptions::unordered(1);
    both.resume = sessions.first().map(|session| (*session, 2));
    let beyond = LogOptions::resume(SessionId::new(Position(u64::MAX), 1), 0);
    let refused =
        [(LogOptions::unordered(0), "1 to 256"), (both, "appends in order"), (beyond, "session is unknown")];
    for (options, why) in refused {
        let error = client.log_with("orders", options).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let error = log.append("g", AppendOptions::default().to_shard(0)).await.unwrap_err();
    assert_eq!(error, AppendError::NoChoice(Order::ErwinBb));
}

#[tokio::test]
async fn bad_input_gets_a_clear_error() {
    let cluster = Cluster::start(1).await;
    let log = open(&cluster).await;
    let large = vec![0; LogConfig::default().max_record_bytes as usize + 1];
    let error = log.append(large, AppendOptions::default()).await.unwrap_err();
    assert!(matches!(error, AppendError::TooLarge { .. }));
    log.append("a small one still works", AppendOptions::default()).await.unwrap();
    let client = Client::connect(cluster.address(1)).await.unwrap();
    let error = client.log("none").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no log 'none'; create it with: seriatim log create none");
    let error = client.create("orders", LogConfig::default()).await.unwrap_err();
    assert!(matches!(error, ControlError::Exists { .. }));
    let error = log.trim(Position(5)).await.unwrap_err();
    assert!(matches!(error, ReadError::PastTail { tail: Position(1), .. }), "{error:?}");
    client.delete("orders").await.unwrap();
    let error = log.append("b", AppendOptions::default()).await.unwrap_err();
    assert!(matches!(error, AppendError::Deleted(_)), "{error:?}");
}

#[tokio::test]
async fn nobody_at_the_address_is_one_clear_line() {
    let mut cluster = Cluster::start(1).await;
    cluster.stop(1).await;
    let error = Client::connect(cluster.address(1)).await.unwrap_err().to_string();
    assert!(error.contains(cluster.address(1)) && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn a_subscription_delivers_everything_in_order_and_ends_where_it_should() {
    let cluster = Cluster::start(2).await;
    let log = open(&cluster).await;
    for number in 0..100u32 {
        log.append(number.to_string(), AppendOptions::default()).await.unwrap();
    }
    let mut events =
        log.subscribe(Position(10), SubscribeOptions::default().until(Position(90))).await.unwrap();
    let mut positions = vec![];
    while let Some(event) = events.next().await {
        let Event::Deliver { position, record, speculative: false, .. } = event.unwrap() else { panic!() };
        assert_eq!(record.payload(), position.to_string());
        positions.push(position.0);
    }
    assert_eq!(positions, (10..90).collect::<Vec<_>>());
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn trimmed_positions_cannot_be_read() {
    let cluster = Cluster::start(1).await;
    let log = open(&cluster).await;
    log.append("a", AppendOptions::default()).await.unwrap();
    log.append("b", AppendOptions::default()).await.unwrap();
    log.trim(Position(1)).await.unwrap();
    let error = log.read(Position(0), 10, Duration::ZERO).await.unwrap_err();
    assert_eq!(error, ReadError::Trimmed { first: Position(1) });
    assert_eq!(log.read(Position(1), 10, Duration::ZERO).await.unwrap().len(), 1);
}

#[tokio::test]
async fn status_and_list_describe_the_cluster() {
    let cluster = Cluster::start(2).await;
    let log = open(&cluster).await;
    log.append("a", AppendOptions::default()).await.unwrap();
    let client = Client::connect(cluster.address(2)).await.unwrap();
    let (entries, nodes) = client.list().await.unwrap();
    assert_eq!((entries.len(), nodes.len()), (1, 2));
    let status = client.status(entries[0].clone()).await;
    assert_eq!((status.tail, status.stable, status.open), (Some(Position(1)), Some(Position(1)), 2));
}

#[tokio::test]
async fn the_last_handle_takes_the_connections_with_it() {
    let mut cluster = Cluster::start(2).await;
    let client = Client::connect(cluster.address(1)).await.unwrap();
    let log = client.log("orders").await.unwrap();
    drop(client);
    log.append("a", AppendOptions::default()).await.unwrap();
    drop(log);
    cluster.all_gone().await;
}

#[tokio::test]
async fn a_subscription_goes_on_with_the_next_view_where_it_stopped() {
    let mut cluster = Cluster::start(2).await;
    let log = open(&cluster).await;
    for number in 0..50u32 {
        log.append(number.to_string(), AppendOptions::default()).await.unwrap();
    }
    let mut events =
        log.subscribe(Position(0), SubscribeOptions::default().until(Position(60))).await.unwrap();
    let mut position = 0;
    while position < 60 {
        let event = events.next().await.expect("60 is not reached").unwrap();
        let Event::Deliver { position: delivered, .. } = event else { panic!("{event:?}") };
        assert_eq!(delivered, Position(position));
        position += 1;
        if position == 50 {
            cluster.register(2, &[2]);
            for number in 50..60u32 {
                log.append(number.to_string(), AppendOptions::default()).await.unwrap();
            }
            cluster.stop(1).await;
        }
    }
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn of_several_addresses_the_first_that_answers_is_taken() {
    let mut cluster = Cluster::start(2).await;
    cluster.stop(1).await;
    let both = format!("{}, {}", cluster.address(1), cluster.address(2));
    let client = Client::connect(&both).await.unwrap();
    client.log("orders").await.unwrap();
    assert_eq!(cluster.state().lookups, [NodeId(2)]);
    cluster.stop(2).await;
    let error = Client::connect(&both).await.unwrap_err().to_string();
    assert!(error.contains(cluster.address(1)) && error.contains(cluster.address(2)), "{error}");
    assert!(!error.contains('\n'), "{error}");
    for nothing in ["", " , "] {
        let error = Client::connect(nothing).await.unwrap_err().to_string();
        assert!(error.contains("HOST:PORT"), "{error}");
    }
}

#[tokio::test]
async fn a_node_that_does_not_answer_for_the_register_is_left_for_another() {
    let cluster = Cluster::start(3).await;
    let client = Client::connect(cluster.address(1)).await.unwrap();
    client.list().await.unwrap();
    cluster.state().deaf.extend([NodeId(1), NodeId(2)]);
    assert_eq!(client.lookup("orders").await.unwrap().name, "orders");
    assert_eq!(cluster.state().lookups.last(), Some(&NodeId(3)));
    cluster.state().lookups.clear();
    client.list().await.unwrap();
    assert_eq!(cluster.state().lookups, [NodeId(3)], "it stays with the one that answers");
}

#[tokio::test]
async fn a_log_is_created_and_deleted_once_though_answers_are_lost() {
    let mut cluster = Cluster::start(2).await;
    let client = Client::connect(cluster.address(1)).await.unwrap();
    cluster.state().lost_answers = 1;
    client.delete("orders").await.unwrap();
    assert!(cluster.state().entry.is_none());
    let created = {
        cluster.state().lost_answers = 2;
        client.create("payments", LogConfig::default()).await.unwrap()
    };
    assert_eq!(created.name, "payments");
    let error = client.create("payments", LogConfig::default()).await.unwrap_err();
    assert!(matches!(error, ControlError::Exists { .. }), "somebody else's request: {error:?}");
    let log = created.id;
    {
        let mut state = cluster.state();
        state.lost_answers = 0;
        state.deaf.insert(NodeId(1));
    }
    cluster.stop(1).await;
    client.delete("payments").await.unwrap();
    assert!(cluster.state().entry.is_none(), "log {log} is gone, through the other node");
    let error = client.delete("payments").await.unwrap_err();
    assert!(matches!(error, ControlError::NoSuchLog { .. }), "{error:?}");
}
