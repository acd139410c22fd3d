//! `seriatim bench stall`: how long other clients wait when a client of an `erwin-st` log dies
//! between sending its names (record ids, to the sequencing replicas) and its records (to the
//! shards).
//!
//! The dying client is a raw connection. In turn it sends names without records, which block all
//! later positions until they become no-ops, or records without names, which block nothing. The
//! other clients append on schedule and wait for final positions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use seriatim_client::{AppendOptions, Client, Log, LogEntry, Order, SessionId};
use seriatim_model::{Endpoint, Record, ShardId, limits};
use seriatim_net::{ConnectionOptions, Hello, connect, message_frame};
use seriatim_protocol::parts::Content;
use seriatim_protocol::{Message, erwin};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::chart::Chart;
use super::cluster::{Cluster, LOG, Shape, delay_line};
use super::figure::Figure;
use super::figures::Measured;
use super::pace::Pace;
use super::presentation::{Presentation, check};
use super::report::{Row, Subject};
use crate::arguments::StallArguments;
use crate::terminal::{Failure, Outcome, steps};

/// Number of names or records that a dying client sends.
const COUNT: u64 = 8;
/// Observed time after a death: several times the longest expected wait.
const WATCHED_FOR: Duration = Duration::from_millis(600);
/// Time of appends before the first client dies.
const WARM_UP: Duration = Duration::from_millis(500);

const FIGURES: [Figure; 1] = [Figure::Gap];

pub(super) const PRESENTATION: Presentation = Presentation {
    figures: &FIGURES,
    remark: |_, table| {
        table.remark(
            "a client dies and leaves: the longest time in which no append of the others became final",
        );
        let bound = limits::MISSING_FOR.as_millis();
        table.remark(format_args!(
            "a shard waits {bound} ms for records once their client's connection closed"
        ));
    },
    charts: |rows| vec![Chart::bars("The longest time in which nothing became final", rows, Figure::Gap)],
};

/// What a client sent before it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// No client died.
    Nothing,
    Names,
    Records,
}

pub(super) async fn run(arguments: &StallArguments) -> Outcome {
    let (repeat, copies) = (&arguments.repeat, arguments.copies);
    check(repeat)?;
    let shape = Shape {
        order: Order::ErwinSt,
        durability: copies.durable.durability,
        shards: arguments.shards,
        replicas: copies.replicas,
        window: limits::DEFAULT_WINDOW,
        delay: delay_line(arguments.rtt)?,
        apart: None,
    };
    let cluster = Cluster::start(shape, &Handle::current()).await?;
    let finals = Finals::default();
    let rounds_take = WATCHED_FOR * repeat.rounds * 3 + WARM_UP * 4;
    let appending = tokio::spawn(append(cluster.log().await?, finals.clone(), arguments.rate, rounds_take));
    tokio::time::sleep(WARM_UP).await;
    let bar = steps(repeat.rounds.into());
    let all = [Left::Nothing, Left::Names, Left::Records];
    let mut found: [Vec<Measured>; 3] = Default::default();
    for round in 0..repeat.rounds {
        bar.set_message(format!("round {} of {}", round + 1, repeat.rounds));
        for (left, found) in all.iter().zip(&mut found) {
            finals.take();
            let began = Instant::now();
            if *left != Left::Nothing {
                die(cluster.address(), *left, u64::from(round)).await?;
            }
            tokio::time::sleep(WATCHED_FOR).await;
            let gap = longest_gap(began, &finals.take()).as_secs_f64() * 1e3;
            found.push(Measured::of([(Figure::Gap, gap)]));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    appending.abort();
    cluster.stop().await?;
    let rows = all.into_iter().zip(found);
    let rows = rows.map(|(left, found)| Row::new(Subject::named(left.name()), found)).collect();
    let far = format!("with {:?} between a message and its answer", arguments.rtt);
    let circumstances = if arguments.rtt.is_zero() { vec![] } else { vec![far] };
    PRESENTATION.tell(rows, repeat, &circumstances)
}

impl Left {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nobody dies",
            Self::Names => "names without records",
            Self::Records => "records without names",
        }
    }
}

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

/// Open loop: appends begin on schedule.
async fn append(log: Log, finals: Finals, rate: u64, duration: Duration) -> Outcome {
    let (appends, mut in_flight) = mpsc::channel(1 << 16);
    let completions = tokio::spawn(async move {
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
    completions.await?
}

/// A client that sends its names or its records to all receivers, and dies.
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
        // The node's answer shows that it has received the frame.
        let mut receiver = connected.connection.receiver;
        let answered = tokio::time::timeout(Duration::from_millis(50), receiver.receive()).await;
        drop(answered);
    }
    Ok(())
}

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
            let entries = vec![Content::Put { shard: ShardId(0), bytes: 0 }; COUNT as usize];
            let append = erwin::Message::Append { view: number, session, first, lowest: 0, entries };
            // The shard must know the client's session: first send an empty batch of records.
            let heard = erwin::ShardMessage::Put { view: number, session, first, records: vec![] };
            let names = (Endpoint::Sequencer, Message::from(append));
            let puts = (Endpoint::Shard(ShardId(0)), Message::from(heard));
            let shard = view.shards[0].replicas.iter().map(|member| (member, &puts));
            let to_all = shard.chain(view.sequencers.iter().map(|member| (member, &names)));
            to_all.map(|(member, (endpoint, message))| (member.node, *endpoint, message.clone())).collect()
        }
        Left::Records => {
            let records = vec![Record::new(b"never named", 0); COUNT as usize];
            let message = Message::from(erwin::ShardMessage::Put { view: number, session, first, records });
            let endpoint = Endpoint::Shard(ShardId(0));
            let to = |member: &seriatim_model::Member| (member.node, endpoint, message.clone());
            view.shards[0].replicas.iter().map(to).collect()
        }
    }
}
