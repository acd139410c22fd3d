//! `seriatim bench latency`: latency of appends, on schedule or one after the other.

use std::time::Instant;

use bytes::Bytes;
use seriatim_client::{Append, AppendOptions, Log, Order, Record};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::chart::Chart;
use super::cluster::{Cluster, wrong_suspicions};
use super::comparison::{Comparison, each_with_each, values};
use super::disk_floor::DiskFloor;
use super::figure::{Figure, Setting};
use super::figures::Measured;
use super::floor::{Exchange, Floor, all};
use super::latencies::Latencies;
use super::machine::cpu_time;
use super::pace::Pace;
use super::presentation::{Presentation, remark_ratios};
use super::report::{Row, Settings, Subject};
use crate::arguments::{LatencyArguments, PacedArguments};
use crate::terminal::{Failure, Outcome};

/// Limit of unacknowledged appends: so large that a long stall delays no append's start.
pub(super) const BACKLOG: usize = 1 << 16;

const FIGURES: [Figure; 9] = [
    Figure::P50,
    Figure::P90,
    Figure::P99,
    Figure::P999,
    Figure::Max,
    Figure::Mean,
    Figure::Rate,
    Figure::Cpu,
    Figure::WrongSuspicions,
];

pub(super) const PRESENTATION: Presentation = Presentation {
    figures: &FIGURES,
    remark: |rows, table| remark_ratios(rows, &[Figure::P50, Figure::Mean, Figure::P99], table),
    charts: curves,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Paced {
    pub(super) size: usize,
    pub(super) rate: u64,
}

impl Paced {
    pub(super) fn all(arguments: &PacedArguments) -> Vec<(Settings, Self)> {
        let sizes = values(Setting::Size, &arguments.size, |size| *size as f64);
        let rates = values(Setting::Asked, &arguments.rate, |rate| *rate as f64);
        let both = each_with_each(&sizes, &rates).into_iter();
        both.map(|(settings, (size, rate))| (settings, Self { size, rate })).collect()
    }
}

pub(super) async fn run(arguments: &LatencyArguments) -> Outcome {
    let comparison = Comparison::new(&arguments.comparison)?;
    let shards = values(Setting::Shards, &arguments.shards, |shards| f64::from(*shards));
    let subjects = comparison.subjects(&Paced::all(&arguments.paced), &shards);
    let subjects = comparison.with_disk_floors(subjects);
    let measure = async |subject: &Subject, (paced, order): &(Paced, Option<(Order, u32)>)| match order {
        None if subject.is_disk_floor() => disk_floor(&comparison, arguments, *paced).await,
        None => floor(&comparison, arguments, *paced).await,
        Some((order, shards)) => {
            let shape = comparison.shape(*order, *shards);
            let cluster = Cluster::start(shape, &Handle::current()).await?;
            let mut measured = appends(&cluster, &comparison, arguments, *paced).await?;
            let wrong = wrong_suspicions(&cluster.client().await?).await?;
            measured.figures.insert(Figure::WrongSuspicions, wrong);
            cluster.stop().await?;
            Ok(measured)
        }
    };
    let rows = comparison.run(&subjects, measure).await?;
    comparison.tell(rows, &PRESENTATION)
}

pub(super) fn curves(rows: &[Row]) -> Vec<Chart> {
    let figures = [
        ("Latency, median", Figure::P50),
        ("Latency, mean", Figure::Mean),
        ("Latency, 99th percentile", Figure::P99),
    ];
    let charts = Chart::by_setting(rows, &figures);
    if charts.is_empty() { vec![distributions(rows)] } else { charts }
}

pub(super) fn distributions(rows: &[Row]) -> Chart {
    Chart::distributions("Latency by percentile, all rounds together", rows)
}

async fn floor(
    comparison: &Comparison<'_>,
    arguments: &LatencyArguments,
    paced: Paced,
) -> Result<Measured, Failure> {
    let exchange = Exchange::append(paced.size);
    let floor = Floor::start(exchange, comparison.delay.clone(), &Handle::current()).await?;
    let (clients, duration) = (arguments.clients as usize, comparison.duration);
    if arguments.closed {
        return floor.closed(clients, 1, duration).await;
    }
    floor.on_schedule(clients, paced.rate, duration).await
}

async fn disk_floor(
    comparison: &Comparison<'_>,
    arguments: &LatencyArguments,
    paced: Paced,
) -> Result<Measured, Failure> {
    let floor = DiskFloor::start(paced.size)?;
    let (clients, duration) = (arguments.clients as usize, comparison.duration);
    if arguments.closed {
        return floor.closed(clients, duration).await;
    }
    floor.on_schedule(clients, paced.rate, duration).await
}

async fn appends(
    cluster: &Cluster,
    comparison: &Comparison<'_>,
    arguments: &LatencyArguments,
    paced: Paced,
) -> Result<Measured, Failure> {
    let clients = arguments.clients as usize;
    let payload = Bytes::from(vec![7; paced.size]);
    let mut logs = vec![];
    for _ in 0..clients {
        let log = cluster.log().await?;
        // Opens sessions and connections before the measurement.
        log.append(payload.clone(), Default::default()).await?;
        logs.push(log);
    }
    let (cpu, stop) = (cpu_time(), Instant::now() + comparison.duration);
    let mut tasks = JoinSet::new();
    if arguments.closed {
        for log in logs {
            let payload = payload.clone();
            tasks.spawn(append_until(log, stop, move |_| payload.clone()));
        }
        return Ok(Measured::closed(all(tasks).await?, cpu_time() - cpu));
    }
    let rate = paced.rate;
    for (log, pace) in logs.into_iter().zip(Pace::split(rate, clients, comparison.duration)?) {
        let payload = payload.clone();
        tasks.spawn(append_on_schedule(log, pace, AppendOptions::default(), move |_| payload.clone()));
    }
    Ok(Measured::scheduled(all(tasks).await?, rate, cpu_time() - cpu))
}

/// Closed loop: one append after the other. `record` gets its start.
pub(super) async fn append_until<R: Into<Record>>(
    log: Log,
    stop: Instant,
    record: impl Fn(Instant) -> R,
) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::new();
    while Instant::now() < stop {
        let began = Instant::now();
        log.append(record(began), Default::default()).await?;
        latencies.record(began);
    }
    Ok(latencies)
}

/// Open loop: appends begin on schedule. `record` gets the scheduled time.
pub(super) async fn append_on_schedule<R: Into<Record>>(
    log: Log,
    mut pace: Pace,
    options: AppendOptions,
    record: impl Fn(Instant) -> R,
) -> Result<Latencies, Failure> {
    let (appends, mut in_flight) = mpsc::channel::<(Instant, Append)>(BACKLOG);
    let completions = tokio::spawn(async move {
        let mut latencies = Latencies::new();
        // Acknowledgements of a session come in order, so waiting in order delays none.
        while let Some((scheduled, append)) = in_flight.recv().await {
            append.await?;
            latencies.record(scheduled);
        }
        Ok::<_, Failure>(latencies)
    });
    while let Some(scheduled) = pace.next().await {
        let append = log.submit_with(record(scheduled), options).await?;
        if appends.send((scheduled, append)).await.is_err() {
            break;
        }
    }
    drop(appends);
    completions.await?
}
