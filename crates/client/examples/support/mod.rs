//! Test bed of the example applications: a cluster, a log per order, clients that append on a
//! schedule, and a check of all answers.
#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::error::Error;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use rand::random;
use seriatim_client::{
    AppendOptions, Client, Durability, Event, Header, Log, LogConfig, Order, Position, Record, StoredRecord,
    SubscribeOptions,
};
use seriatim_node::{Dev, DevOptions};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The compared orders: without and with predictions.
const ORDERS: [Order; 2] = [Order::Scalog, Order::Belfast];
/// Header type for the append time, in nanoseconds since the run began.
const APPENDED: u16 = 40_000;
/// Time limit, from the last append, for all answers of a run.
const OUT_WITHIN: Duration = Duration::from_secs(60);

/// A text record that a client appends, with an optional key or shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrival {
    pub(crate) text: String,
    pub(crate) key: Option<String>,
    pub(crate) shard: Option<u32>,
}

impl Arrival {
    fn record(self, headers: Vec<Header>) -> Record {
        let record = Record::from(self.text).with_headers(headers);
        match self.key {
            Some(key) => record.with_key(key),
            None => record,
        }
    }

    fn options(&self) -> AppendOptions {
        self.shard.map_or_else(AppendOptions::default, |shard| AppendOptions::default().to_shard(shard))
    }
}

/// An application that computes on records before they are final.
pub(crate) trait Application: Clone + Send + Sync + 'static {
    type State: Clone + Debug + PartialEq + Send;
    /// Data for undoing a record and for its answer.
    type Effect: Clone + Send;
    type Answer: Clone + Debug + PartialEq + Send;

    fn shards(&self) -> u32;
    /// The records of each client, in order, equal in each run.
    fn sources(&self) -> Vec<Vec<Arrival>>;
    /// Each task's part of the log, and its number of records.
    fn tasks(&self) -> Vec<(SubscribeOptions, usize)>;
    fn start(&self) -> Self::State;
    fn compute(&self, state: &mut Self::State, record: &StoredRecord) -> Self::Effect;
    fn undo(&self, state: &mut Self::State, effect: Self::Effect);
    /// The answer to publish when the record is final, if there is one.
    fn answer(&self, effect: &Self::Effect) -> Option<Self::Answer>;
}

/// A task's answers and last state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome<S, A> {
    pub(crate) state: S,
    pub(crate) answers: Vec<(Position, A)>,
}

/// The tasks' outcomes, and the latency from each append to its published result.
pub(crate) struct Run<A: Application> {
    pub(crate) order: Order,
    pub(crate) outcomes: Vec<Outcome<A::State, A::Answer>>,
    pub(crate) latencies: Vec<Duration>,
}

impl<A: Application> Run<A> {
    pub(crate) fn answers(&self) -> impl Iterator<Item = &A::Answer> {
        self.outcomes.iter().flat_map(|outcome| &outcome.answers).map(|(_, answer)| answer)
    }

    fn mean(&self) -> Duration {
        self.latencies.iter().sum::<Duration>() / self.latencies.len().max(1) as u32
    }
}

/// Runs an application on a log of each order. Each client appends one record per interval `every`.
/// Without `address`, starts a cluster.
///
/// # Errors
/// If the cluster fails, or an answer differs from the computation over final records.
pub(crate) async fn compare<A: Application>(
    application: &A,
    address: Option<String>,
    every: Duration,
) -> Result<Vec<Run<A>>, Failure> {
    let own = match &address {
        Some(_) => None,
        None => Some(start().await?),
    };
    let address = address.unwrap_or_else(|| own.iter().map(|(dev, _)| dev.address().to_string()).collect());
    let mut runs = vec![];
    for order in ORDERS {
        let (client, name) =
            (Client::connect(&address).await?, format!("example-{order}-{:08x}", random::<u32>()));
        let (shards, durability) = (application.shards(), Durability::Memory);
        client.create(&name, LogConfig { order, shards, durability, ..LogConfig::default() }).await?;
        let run = run(application, &address, &name, order, every).await;
        client.delete(&name).await?;
        runs.push(run?);
    }
    if let Some((dev, _data)) = own {
        dev.stop().await?;
    }
    Ok(runs)
}

/// Prints each run's latencies, and the gain over the first run.
pub(crate) fn tell<A: Application>(runs: &[Run<A>], what: &str) {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    for run in runs {
        let (records, answers) = (run.latencies.len(), run.answers().count());
        let (mean, p99) = (ms(run.mean()), ms(run.latencies[records * 99 / 100]));
        println!(
            "{}: {records} records, {answers} {what}; {mean:.2} ms after an append its result was out (mean; p99 {p99:.2} ms)",
            run.order
        );
    }
    for run in &runs[1..] {
        let (earlier, times) = (ms(runs[0].mean()) - ms(run.mean()), ms(runs[0].mean()) / ms(run.mean()));
        println!(
            "{}: {earlier:.2} ms earlier than with {}, {times:.2} times as soon",
            run.order, runs[0].order
        );
    }
    println!("All {what} are as the same computation over final records has them.");
}

pub(crate) fn address() -> Option<String> {
    std::env::args().nth(1)
}

async fn start() -> Result<(Dev, TempDir), Failure> {
    let data = tempfile::tempdir()?;
    let dev = Dev::start(DevOptions::new(data.path(), "127.0.0.1:0")).await?;
    Ok((dev, data))
}

async fn run<A: Application>(
    application: &A,
    address: &str,
    name: &str,
    order: Order,
    every: Duration,
) -> Result<Run<A>, Failure> {
    let began = Instant::now();
    let mut tasks = vec![];
    for (options, records) in application.tasks() {
        let log = open(address, name).await?;
        tasks.push(tokio::spawn(speculate(log, application.clone(), options, records, began)));
    }
    let mut appending = JoinSet::new();
    for source in application.sources() {
        appending.spawn(append(open(address, name).await?, source, every, began));
    }
    while let Some(appended) = appending.join_next().await {
        appended??;
    }
    let log = open(address, name).await?;
    let mut run = Run { order, outcomes: vec![], latencies: vec![] };
    for (task, (options, _)) in tasks.into_iter().zip(application.tasks()) {
        let (outcome, latencies) = tokio::time::timeout(OUT_WITHIN, task).await???;
        let right = over_final_records(&log, application, options).await?;
        if outcome != right {
            return Err(format!("{order}: {outcome:?} was found, and {right:?} is right").into());
        }
        run.outcomes.push(outcome);
        run.latencies.extend(latencies);
    }
    run.latencies.sort_unstable();
    Ok(run)
}

async fn open(address: &str, name: &str) -> Result<Log, Failure> {
    Ok(Client::connect(address).await?.log(name).await?)
}

/// Appends each record on schedule, without waiting for acknowledgements.
async fn append(log: Log, arrivals: Vec<Arrival>, every: Duration, began: Instant) -> Result<(), Failure> {
    let (mut clock, mut appends) = (tokio::time::interval(every), vec![]);
    for arrival in arrivals {
        clock.tick().await;
        let nanos = u64::try_from(began.elapsed().as_nanos())?;
        let value = nanos.to_le_bytes().to_vec().into();
        let (options, headers) = (arrival.options(), vec![Header { kind: APPENDED, value }]);
        appends.push(log.submit_with(arrival.record(headers), options).await?);
    }
    for append in appends {
        append.await?;
    }
    Ok(())
}

fn appended(record: &StoredRecord, began: Instant) -> Instant {
    let headers = record.headers();
    let header = headers.iter().find(|header| header.kind == APPENDED).expect("each was appended here");
    let nanos = header.value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    began + Duration::from_nanos(nanos.expect("it has eight bytes"))
}

/// Computes on records at once, and publishes answers when they are final.
async fn speculate<A: Application>(
    log: Log,
    application: A,
    options: SubscribeOptions,
    records: usize,
    began: Instant,
) -> Result<(Outcome<A::State, A::Answer>, Vec<Duration>), Failure> {
    let (out, mut answers) = mpsc::channel(records);
    let (ends, end) = oneshot::channel();
    let (mut left, mut ends) = (records, Some(ends));
    let (computing, undoing) = (application.clone(), application.clone());
    let run = log
        .speculate(Position(0), application.start())
        .with(options)
        .compute(move |state: &mut A::State, _, record| {
            (appended(record, began), computing.compute(state, record))
        })
        .undo(move |state: &mut A::State, (_, effect)| undoing.undo(state, effect))
        .externalize(move |state: &A::State, position, (appended, effect): (Instant, _)| {
            let answer = application.answer(&effect).map(|answer| (position, answer));
            let _ = out.try_send((answer, appended.elapsed()));
            left -= 1;
            // All records are final, so this state is the task's last.
            if let Some(ends) = ends.take_if(|_| left == 0) {
                let _ = ends.send(state.clone());
            }
        })
        .run();
    let state = tokio::select! {
        ran = run => return Err(format!("the subscription ended early: {:?}", ran.err()).into()),
        state = end => state?,
    };
    let (mut found, mut latencies) = (vec![], vec![]);
    while let Ok((answer, took)) = answers.try_recv() {
        found.extend(answer);
        latencies.push(took);
    }
    Ok((Outcome { state, answers: found }, latencies))
}

/// Checks that undoing all effects, the latest first, restores each earlier state.
#[cfg(test)]
pub(crate) fn undo_restores<A: Application>(application: &A) {
    let (mut state, mut before) = (application.start(), vec![]);
    for Arrival { text, key, .. } in application.sources().swap_remove(0) {
        let record = StoredRecord::build(text.as_bytes(), 0, key.as_deref().map(str::as_bytes), &[]);
        before.push((state.clone(), application.compute(&mut state, &record)));
    }
    assert!(before.iter().any(|(earlier, _)| *earlier != state), "the records change nothing");
    while let Some((earlier, effect)) = before.pop() {
        application.undo(&mut state, effect);
        assert_eq!(state, earlier);
    }
}

/// Computes a task's outcome from final records only, for comparison.
async fn over_final_records<A: Application>(
    log: &Log,
    application: &A,
    options: SubscribeOptions,
) -> Result<Outcome<A::State, A::Answer>, Failure> {
    let tail = log.check_tail().await?;
    let mut events = log.subscribe(Position(0), options.until(tail)).await?;
    let mut outcome = Outcome { state: application.start(), answers: vec![] };
    while let Some(event) = events.next().await {
        if let Event::Deliver { position, record, .. } = event? {
            let effect = application.compute(&mut outcome.state, &record);
            outcome.answers.extend(application.answer(&effect).map(|answer| (position, answer)));
        }
    }
    Ok(outcome)
}
