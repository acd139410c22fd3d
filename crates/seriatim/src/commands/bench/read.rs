//! `seriatim bench read`: how long a read takes of a record that was acknowledged so long ago (LazyLog §6.3).
//!
//! One client appends on a schedule; another one reads each record by its position, as many a second. Without lag
//! a read comes before its record is final, and waits for that; with some, it does not.

use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::{Append, Log, Position};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::figures::{Latencies, Report, Row, cpu_time};
use super::pace::Pace;
use super::{Cluster, Shape};
use crate::arguments::ReadBenchArguments;
use crate::output::{Failure, Outcome, progress};

/// How long a read may take.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// One ordering with one lag, over all rounds.
struct Cell {
    shape: Shape,
    lag: Duration,
    latencies: Latencies,
    cpu: Duration,
    took: Duration,
}

pub(super) async fn run(arguments: &ReadBenchArguments) -> Outcome {
    let ReadBenchArguments { durability, shards, replicas, .. } = *arguments;
    let mut cells = vec![];
    for order in &arguments.order {
        for lag in &arguments.lag {
            let shape = Shape { order: *order, durability, shards, replicas };
            let (latencies, lag) = (Latencies::new(), Duration::from_millis(*lag));
            cells.push(Cell { shape, lag, latencies, cpu: Duration::ZERO, took: Duration::ZERO });
        }
    }
    let bar = progress(Some(cells.len() as u64 * u64::from(arguments.rounds)), "rounds");
    for _ in 0..arguments.rounds {
        for cell in &mut cells {
            round(cell, arguments).await?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let report = Report::new(cells.iter().map(row).collect());
    report.print();
    arguments.json.as_deref().map_or(Ok(()), |path| report.write(path))
}

fn row(cell: &Cell) -> Row {
    let name = format!("{}, lag {} ms", cell.shape.order, cell.lag.as_millis());
    let count = cell.latencies.count();
    Row::new(&name, &cell.latencies, count as f64 / cell.took.as_secs_f64(), cell.cpu, count)
}

async fn round(cell: &mut Cell, arguments: &ReadBenchArguments) -> Outcome {
    let cluster = Cluster::start(cell.shape, &Handle::current()).await?;
    let (appender, reader) = (cluster.log().await?, cluster.log().await?);
    let payload = Bytes::from(vec![7; arguments.size]);
    // Both have made their connections before anything counts.
    appender.append_sync(payload.clone()).await?;
    reader.read(Position(0), 1, READ_WITHIN).await?;
    let (acknowledged, reads) = mpsc::channel(1 << 16);
    let (cpu, began) = (cpu_time(), Instant::now());
    let reading = tokio::spawn(read_after(reader, reads, cell.lag));
    let mut paces = Pace::split(arguments.rate, 1, Duration::from_secs(arguments.duration));
    append(appender, payload, &mut paces[0], acknowledged).await?;
    cell.latencies.merge(&reading.await??);
    cell.cpu += cpu_time() - cpu;
    cell.took += began.elapsed();
    Ok(cluster.dev.stop().await?)
}

/// Appends on a schedule, and tells when each append was acknowledged.
async fn append(log: Log, payload: Bytes, pace: &mut Pace, acknowledged: mpsc::Sender<Instant>) -> Outcome {
    let (appends, mut in_flight) = mpsc::channel::<Append>(1 << 16);
    let settle = tokio::spawn(async move {
        while let Some(append) = in_flight.recv().await {
            append.await?;
            if acknowledged.send(Instant::now()).await.is_err() {
                break;
            }
        }
        Ok::<_, Failure>(())
    });
    while pace.next().await.is_some() {
        if appends.send(log.submit(payload.clone()).await?).await.is_err() {
            break;
        }
    }
    drop(appends);
    settle.await?
}

/// Reads each record, which lie one behind the other, as long after its acknowledgement as is wanted. How long
/// that took counts from then on.
async fn read_after(
    log: Log,
    mut acknowledged: mpsc::Receiver<Instant>,
    lag: Duration,
) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::new();
    let mut reads: JoinSet<Result<Duration, Failure>> = JoinSet::new();
    // The one that made the connections is at position 0.
    let mut next = Position(1);
    while let Some(at) = acknowledged.recv().await {
        let (log, position) = (log.clone(), next);
        next += 1;
        reads.spawn(async move {
            tokio::time::sleep_until((at + lag).into()).await;
            let due = Instant::now();
            let records = log.read(position, 1, READ_WITHIN).await?;
            if records.first().is_none_or(|stored| stored.position != position) {
                return Err(Failure::new(format!("position {position} was not read")));
            }
            Ok(due.elapsed())
        });
        while let Some(done) = reads.try_join_next() {
            latencies.record(done??);
        }
    }
    while let Some(done) = reads.join_next().await {
        latencies.record(done??);
    }
    Ok(latencies)
}
