//! `seriatim bench read`: how long a read takes of a record that was acknowledged so long ago (LazyLog §6.3).
//!
//! One client appends on a schedule; another one reads each record by its position, as many a second. Without lag
//! a read comes before its record is final, and waits for that; with some, it does not.

use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::{Append, Log, Order, Position};
use seriatim_net::Timer;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::comparison::{Comparison, with_floor};
use super::figures::{Figure, Latencies, Measured, Subject};
use super::floor::{Exchange, Floor};
use super::latency::{BACKLOG, curves};
use super::machine::cpu_time;
use super::pace::Pace;
use crate::arguments::{PacedArguments, ReadBenchArguments};
use crate::output::{Failure, Outcome};

/// How long a read may take.
const READ_WITHIN: Duration = Duration::from_secs(10);

const FIGURES: [Figure; 8] = [
    Figure::P50,
    Figure::P90,
    Figure::P99,
    Figure::Max,
    Figure::BothP50,
    Figure::BothP99,
    Figure::Rate,
    Figure::Cpu,
];

pub(super) async fn run(arguments: &ReadBenchArguments) -> Outcome {
    let comparison = Comparison::new(&arguments.comparison)?;
    let subject = |order: Order, lag: Duration| {
        (Subject { lag_ms: Some(lag.as_secs_f64() * 1e3), ..Subject::named(order) }, (order, lag))
    };
    let orders = arguments.comparison.order.iter();
    let others = orders.flat_map(|order| arguments.lag.iter().map(|lag| subject(*order, *lag)));
    let measure = async |setting: &Option<(Order, Duration)>| {
        let Some((order, lag)) = setting else { return floor(&comparison, arguments.paced).await };
        let shape = comparison.shape(*order, arguments.shards);
        let cluster = Cluster::start(shape, &Handle::current()).await?;
        let measured = reads(&cluster, arguments.paced, comparison.duration, *lag).await?;
        cluster.stop().await?;
        Ok(measured)
    };
    let rows = comparison.run(&with_floor(others), measure).await?;
    let remark = "both: an append and the read of its record, without the lag between them";
    comparison.tell(rows, &FIGURES, |_, table| table.remark(remark), curves)
}

/// A record for a short question.
async fn floor(comparison: &Comparison<'_>, paced: PacedArguments) -> Result<Measured, Failure> {
    let exchange = Exchange::read(paced.size);
    let floor = Floor::start(exchange, comparison.delay.clone(), &Handle::current()).await?;
    floor.on_schedule(1, paced.rate, comparison.duration).await
}

/// An append that was acknowledged.
struct Appended {
    position: Position,
    scheduled: Instant,
    acknowledged: Instant,
}

async fn reads(
    cluster: &Cluster,
    paced: PacedArguments,
    duration: Duration,
    lag: Duration,
) -> Result<Measured, Failure> {
    let (appender, reader) = (cluster.log().await?, cluster.log().await?);
    let payload = Bytes::from(vec![7; paced.size]);
    // Both have made their connections before anything counts.
    let first = appender.append_sync(payload.clone()).await?;
    reader.read(first, 1, READ_WITHIN).await?;
    let (appended, reads) = mpsc::channel(BACKLOG);
    let (cpu, pace) = (cpu_time(), Pace::new(paced.rate, duration)?);
    let reading = tokio::spawn(read_after(reader, reads, lag));
    append(appender, payload, pace, first, appended).await?;
    let (latencies, both) = reading.await??;
    let mut measured = Measured::scheduled(latencies, paced.rate, cpu_time() - cpu);
    let both = [(Figure::BothP50, both.us(0.5)), (Figure::BothP99, both.us(0.99))];
    measured.figures.extend(both);
    Ok(measured)
}

/// Appends on a schedule, and tells when each append was acknowledged. Where no position comes with an
/// acknowledgement, the records lie one behind the other.
async fn append(
    log: Log,
    payload: Bytes,
    mut pace: Pace,
    first: Position,
    appended: mpsc::Sender<Appended>,
) -> Outcome {
    let (appends, mut in_flight) = mpsc::channel::<(Instant, Append)>(BACKLOG);
    let settle = tokio::spawn(async move {
        let mut next = first + 1;
        while let Some((scheduled, append)) = in_flight.recv().await {
            let position = append.await?.position.unwrap_or(next);
            let acknowledged = Instant::now();
            next += 1;
            if appended.send(Appended { position, scheduled, acknowledged }).await.is_err() {
                break;
            }
        }
        Ok::<_, Failure>(())
    });
    while let Some(scheduled) = pace.next().await {
        if appends.send((scheduled, log.submit(payload.clone()).await?)).await.is_err() {
            break;
        }
    }
    drop(appends);
    settle.await?
}

/// Reads each record as long after its acknowledgement as is wanted: the latencies from then on, and those of
/// append and read together.
async fn read_after(
    log: Log,
    mut appended: mpsc::Receiver<Appended>,
    lag: Duration,
) -> Result<(Latencies, Latencies), Failure> {
    let timer = Timer::start()?;
    let (mut latencies, mut both) = (Latencies::new(), Latencies::new());
    let mut record = |appended: &Appended, done: Instant| {
        latencies.record_between(appended.acknowledged + lag, done);
        both.record_between(appended.scheduled + lag, done);
    };
    let mut reads: JoinSet<Result<(Appended, Instant), Failure>> = JoinSet::new();
    while let Some(appended) = appended.recv().await {
        let (log, timer) = (log.clone(), timer.clone());
        reads.spawn(async move {
            timer.until(appended.acknowledged + lag).await;
            let records = log.read(appended.position, 1, READ_WITHIN).await?;
            if records.first().is_none_or(|stored| stored.position != appended.position) {
                return Err(Failure::new(format!("position {} was not read", appended.position)));
            }
            Ok((appended, Instant::now()))
        });
        while let Some(done) = reads.try_join_next() {
            let (appended, done) = done??;
            record(&appended, done);
        }
    }
    while let Some(done) = reads.join_next().await {
        let (appended, done) = done??;
        record(&appended, done);
    }
    Ok((latencies, both))
}
