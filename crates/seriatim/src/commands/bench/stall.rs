//! `seriatim bench stall`: how long the others wait when a client of an `erwin-st` log dies between its names and
//! its records.
//!
//! Who dies is a connection that says what it is told, past the client library. In turn it sends names whose
//! records it never puts, so that everything behind them waits until they are no-ops; and puts records that it
//! never names, which nobody waits for. The others append on a schedule and wait for final positions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use seriatim_client::{AppendOptions, Client, Log, LogEntry, Order, SessionId};
use seriatim_model::{Endpoint, Record, ShardId, limits};
use seriatim_net::{ConnectionOptions, Hello, connect, message_frame};
use seriatim_protocol::parts::Content;
use seriatim_protocol::{Message, erwin, shard};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::cluster::{Cluster, LOG, Shape};
use super::figures::{Report, Spread, check_files};
use super::pace::Pace;
use super::table::Table;
use crate::arguments::StallArguments;
use crate::output::{Failure, Outcome, print_line, steps};

/// How many names a client sends, or records it puts, before it dies.
const COUNT: u64 = 8;
/// How long each round is watched: several times the bound.
const WATCHED_FOR: Duration = Duration::from_millis(600);
/// How long the others append before the first client dies.
const WARM_UP: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    /// The longest time in which nothing became final, in each round.
    gaps_ms: Vec<f64>,
    median_ms: f64,
    largest_ms: f64,
    bound_ms: f64,
}

/// What a client sent when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Nothing: nobody died.
    Nothing,
    Names,
    Records,
}

pub(super) async fn run(arguments: &StallArguments) -> Outcome {
    let (repeat, copies) = (&arguments.repeat, arguments.copies);
    check_files([repeat.json.as_deref()])?;
    let shape = Shape {
        order: Order::ErwinSt,
        durability: copies.durable.durability,
        shards: arguments.shards,
        replicas: copies.replicas,
        delay: None,
    };
    let cluster = Cluster::start(shape, &Handle::current()).await?;
    let finals = Finals::default();
    let rounds_take = WATCHED_FOR * repeat.rounds * 3 + WARM_UP * 4;
    let appending = tokio::spawn(append(cluster.log().await?, finals.clone(), arguments.rate, rounds_take));
    tokio::time::sleep(WARM_UP).await;
    let bar = steps(repeat.rounds.into());
    let all = [Left::Nothing, Left::Names, Left::Records];
    let mut gaps: [Vec<f64>; 3] = Default::default();
    for round in 0..repeat.rounds {
        bar.set_message(format!("round {} of {}", round + 1, repeat.rounds));
        for (left, gaps) in all.iter().zip(&mut gaps) {
            finals.take();
            let began = Instant::now();
            if *left != Left::Nothing {
                die(cluster.address(), *left, u64::from(round)).await?;
            }
            tokio::time::sleep(WATCHED_FOR).await;
            gaps.push(longest_gap(began, &finals.take()).as_secs_f64() * 1e3);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    appending.abort();
    cluster.stop().await?;
    let rows = all.into_iter().zip(gaps).map(|(left, gaps)| row(left, gaps)).collect();
    let report = Report::new(rows);
    print(&report);
    report.write(repeat.json.as_deref())
}

fn row(left: Left, gaps_ms: Vec<f64>) -> Row {
    let name = match left {
        Left::Nothing => "nobody dies",
        Left::Names => "names without records",
        Left::Records => "records without names",
    };
    let spread = Spread::of(gaps_ms.iter().copied()).expect("there are rounds");
    Row {
        name: name.to_owned(),
        median_ms: spread.p50,
        largest_ms: spread.max,
        gaps_ms,
        bound_ms: limits::MISSING_FOR.as_secs_f64() * 1e3,
    }
}

fn print(report: &Report<Row>) {
    let mut table = Table::new(["a client dies and leaves", "rounds", "median ms", "largest ms", "bound ms"]);
    for row in &report.rows {
        table.line([
            row.name.clone(),
            row.gaps_ms.len().to_string(),
            format!("{:.1}", row.median_ms),
            format!("{:.1}", row.largest_ms),
            format!("{:.0}", row.bound_ms),
        ]);
    }
    table.remark("the longest time in which no append of the others became final");
    table.print();
    print_line(&report.machine);
}

/// When appends became final.
#[derive(Clone, Default)]
struct Finals {
    instants: Arc<Mutex<Vec<Instant>>>,
}

impl Finals {
    fn now(&self) {
        self.instants.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    }

    fn take(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.instants.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn longest_gap(began: Instant, finals: &[Instant]) -> Duration {
    let starts = [began].into_iter().chain(finals.iter().copied());
    let ends = finals.iter().copied().chain([Instant::now()]);
    starts.zip(ends).map(|(start, end)| end.saturating_duration_since(start)).max().unwrap_or_default()
}

/// Open loop: appends begin on a schedule, whatever happens to those before.
async fn append(log: Log, finals: Finals, rate: u64, duration: Duration) -> Outcome {
    let (appends, mut in_flight) = mpsc::channel(1 << 16);
    let settle = tokio::spawn(async move {
        while let Some(append) = in_flight.recv().await {
            let append: seriatim_client::Append = append;
            append.await?;
            finals.now();
        }
        Ok::<_, Failure>(())
    });
    let mut pace = Pace::new(rate, duration)?;
    while pace.next().await.is_some() {
        let append = log.submit_with("a record", AppendOptions::sync()).await?;
        if appends.send(append).await.is_err() {
            break;
        }
    }
    drop(appends);
    settle.await?
}

/// A client that sends one half of its appends, to everyone that it should, and dies.
async fn die(address: &str, left: Left, round: u64) -> Outcome {
    let client = Client::connect(address).await?;
    let (entry, nodes) = (client.lookup(LOG).await?, client.list().await?.1);
    let address_of = |node| nodes.iter().find(|known| known.node == node).map(|known| known.address.clone());
    let tail = client.log(LOG).await?.check_tail().await?;
    let session = SessionId::new(tail, 0x5EED << 32 | round);
    for (node, endpoint, message) in messages(&entry, left, session) {
        let address = address_of(node).ok_or_else(|| Failure::new("a node without an address"))?;
        let connected = connect(&address, &Hello::client("dies"), &ConnectionOptions::default()).await?;
        let frame = message_frame(entry.id, Endpoint::Client(1), endpoint, &message)?;
        connected.connection.sender.send(frame)?;
        // What was sent is not lost with the connection: the node has it when it answers.
        let mut receiver = connected.connection.receiver;
        let answered = tokio::time::timeout(Duration::from_millis(50), receiver.receive()).await;
        drop(answered);
    }
    Ok(())
}

/// What it says to whom.
fn messages(
    entry: &LogEntry,
    left: Left,
    session: SessionId,
) -> Vec<(seriatim_client::NodeId, Endpoint, Message)> {
    let Some(view) = &entry.view else { return vec![] };
    let (number, first) = (view.number, 0);
    match left {
        Left::Nothing => vec![],
        Left::Names => {
            let entries = vec![Content::Shard(ShardId(0)); COUNT as usize];
            let append = erwin::Message::Append { view: number, session, first, lowest: 0, entries };
            let message = Message::from(append);
            let to = |member: &seriatim_model::Member| (member.node, Endpoint::Sequencer, message.clone());
            view.sequencers.iter().map(to).collect()
        }
        Left::Records => {
            let records = vec![Record::new(b"never named", 0); COUNT as usize];
            let message = Message::from(shard::Message::Put { view: number, session, first, records });
            let endpoint = Endpoint::Shard(ShardId(0));
            let to = |member: &seriatim_model::Member| (member.node, endpoint, message.clone());
            view.shards[0].replicas.iter().map(to).collect()
        }
    }
}
