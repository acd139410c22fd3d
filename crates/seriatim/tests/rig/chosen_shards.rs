//! Subscriptions to chosen shards while shards join.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim_client::{
    Client, Event, Log, LogConfig, NodeId, Order, Position, ShardId, SubscribeOptions, Subscription,
};
use tokio::task::JoinHandle;

use crate::command::{CommandLine, text};
use crate::members::Members;
use crate::workload::DEADLINE;

const JOIN: u32 = 4;

type Payloads = BTreeMap<Position, Vec<u8>>;

struct Reader {
    options: SubscribeOptions,
    has: Arc<Mutex<Payloads>>,
    task: JoinHandle<()>,
}

impl Reader {
    async fn start(log: &Log, options: SubscribeOptions) -> Self {
        let has = Arc::default();
        let events = log.subscribe(Position(0), options.clone()).await.expect("the shards are there");
        let task = tokio::spawn(collect(events, Arc::clone(&has)));
        Self { options, has, task }
    }

    /// Compares its records with those of a new subscription up to the tail.
    async fn has_all(self, log: &Log, tail: Position) {
        let Self { options, has, task } = self;
        let after = Arc::default();
        let mut until = options.clone().until(tail);
        until.speculative = false;
        let events = log.subscribe(Position(0), until).await.expect("the shards are there");
        tokio::time::timeout(DEADLINE, collect(events, Arc::clone(&after))).await.expect("it ends");
        let after = std::mem::take(&mut *after.lock().expect("nobody panicked"));
        let mut every = tokio::time::interval(Duration::from_millis(20));
        let is_there = async {
            while has.lock().expect("nobody panicked").range(..tail).count() < after.len() {
                every.tick().await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), is_there).await.is_ok();
        task.abort();
        let mut has = has.lock().expect("nobody panicked");
        // A concurrent append may have added records above the tail.
        has.split_off(&tail);
        let missed: Vec<u64> = after.keys().filter(|at| !has.contains_key(at)).map(|at| at.0).collect();
        assert!(
            in_time && *has == after,
            "{options:?}: missed {} of {}: {missed:?}",
            missed.len(),
            after.len()
        );
    }
}

/// Collects delivered records, without void ones.
async fn collect(mut events: Subscription, has: Arc<Mutex<Payloads>>) {
    while let Some(event) = events.next().await {
        let mut has = has.lock().expect("nobody panicked");
        match event.expect("nothing is lost") {
            Event::Deliver { position, record, .. } => {
                has.insert(position, record.payload().to_vec());
            }
            Event::Fail { after } => {
                has.split_off(&after);
            }
            _ => {}
        }
    }
}

async fn append_on(cli: CommandLine, name: String) {
    let lines: Vec<u8> = (0..40).flat_map(|line| format!("{line}\n").into_bytes()).collect();
    loop {
        cli.good_on(&["append", &name, "--unordered", "--sync"], &lines).await;
    }
}

/// A shard joins. Returns a log handle opened before the join, unless the join was too fast.
async fn joins(client: &Client, name: &str) -> (ShardId, Option<Log>) {
    let before = client.lookup(name).await.expect("the log is there").shards.len();
    let adding = tokio::spawn({
        let (client, name) = (client.clone(), name.to_owned());
        async move { client.add_shard(&name).await.expect("a shard joins").0 }
    });
    let mut found = None;
    while !adding.is_finished() && found.is_none() {
        let entry = client.lookup(name).await.expect("the log is there");
        let has_joined = entry.view.is_some_and(|view| view.shards.len() > before);
        if entry.shards.len() > before && !has_joined {
            found = Some(client.log(name).await.expect("the log opens"));
        }
    }
    (adding.await.expect("it is added"), found)
}

/// Programs subscribe to present and joining shards; each receives every record of its shards.
pub(crate) async fn read_while_others_join(order: Order) {
    let members = Members::start(3).await;
    let client = members.client(DEADLINE).await;
    let name = order.to_string();
    let config = LogConfig { order, shards: 2, stripe: 8, ..LogConfig::default() };
    client.create(&name, config).await.expect("the log is created");
    let log = client.log(&name).await.expect("the log opens");
    let cli = || CommandLine::new(&members.address(NodeId(2)));
    let appending: Vec<_> = (0..2).map(|_| tokio::spawn(append_on(cli(), name.clone()))).collect();

    let shards = |numbers: &[u32]| SubscribeOptions::default().shards(numbers.iter().copied());
    let mut readers = vec![];
    for options in [shards(&[0]), shards(&[1]).speculative(), shards(&[0, 1])] {
        readers.push(Reader::start(&log, options).await);
    }
    for _ in 0..JOIN {
        let (shard, early) = joins(&client, &name).await;
        // A handle opened later knows the shard from the start, which is also tested.
        let log = match early {
            Some(early) => early,
            None => client.log(&name).await.expect("the log opens"),
        };
        for options in [shards(&[shard.0]), shards(&[0, shard.0]), shards(&[1, shard.0]).speculative()] {
            readers.push(Reader::start(&log, options).await);
        }
    }
    let goal = log.check_tail().await.expect("it has a tail") + 400;
    let mut tail = goal;
    while tail <= goal {
        tail = log.check_tail().await.expect("it has a tail");
    }
    appending.iter().for_each(JoinHandle::abort);
    let log = client.log(&name).await.expect("the log opens");
    let tail = log.check_tail().await.expect("it has a tail");
    for reader in readers {
        reader.has_all(&log, tail).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_says_which_shards_cannot_be_chosen() {
    let members = Members::start(1).await;
    let cli = CommandLine::new(&members.address(NodeId(1)));
    cli.good(&["log", "create", "t", "--order", "scalog", "--shards", "2"]).await;
    cli.good_on(&["append", "t", "--shard", "1", "--sync"], b"one\ntwo\n").await;
    let tail = cli.tail_of("t").await.to_string();
    let read = async |shards: &str| {
        let printed = cli.good(&["tail", "t", "--from", "0", "--until", &tail, "--shards", shards]).await;
        text(&printed).to_owned()
    };
    assert_eq!(read("1,1").await, "one\ntwo\n", "a shard that is named twice is chosen once");
    assert_eq!(read("0").await, "");
    let (_, said) = cli.bad(&["tail", "t", "--from", "0", "--shards", "1,7"]).await;
    assert!(said.contains("the log has no shard 7; it has 0, 1") && said.lines().count() == 1, "{said}");

    cli.good(&["log", "remove-shard", "t", "1"]).await;
    assert_eq!(read("1").await, "one\ntwo\n", "it takes no new records, and has these");
    cli.good(&["trim", "t", &tail]).await;
    // The next view drops an empty closed shard.
    cli.good(&["log", "add-shard", "t"]).await;
    let (_, said) = cli.bad(&["tail", "t", "--from", "0", "--shards", "1"]).await;
    assert!(said.contains("the log has no shard 1; it has 0, 2") && said.lines().count() == 1, "{said}");
}
