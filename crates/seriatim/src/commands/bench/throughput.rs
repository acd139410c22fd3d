//! `seriatim bench throughput`: as many appends as the clients keep in flight, counted when they are stable.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::{Append, Client, Log};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::chart::Chart;
use super::cluster::{Cluster, stable};
use super::comparison::{Comparison, with_floor};
use super::figures::{Figure, Latencies, Measured, Subject};
use super::floor::{Exchange, Floor, all};
use super::machine::cpu_time;
use crate::arguments::{LoadArguments, ThroughputArguments};
use crate::output::{Failure, Outcome};

/// How long appends run before they are counted.
const WARM_UP: Duration = Duration::from_millis(500);

const FIGURES: [Figure; 6] =
    [Figure::Rate, Figure::Cpu, Figure::StableLag, Figure::P50, Figure::P99, Figure::Max];

pub(super) async fn run(arguments: &ThroughputArguments) -> Outcome {
    let comparison = Comparison::new(&arguments.comparison)?;
    let orders = &arguments.comparison.order;
    let subjects = with_floor(orders.iter().map(|order| (Subject::named(order), *order)));
    let measure = async |order: &Option<_>| {
        let nodes = Handle::current();
        let Some(order) = order else { return floor(&comparison, arguments.load, &nodes).await };
        let cluster = Cluster::start(comparison.shape(*order, arguments.shards), &nodes).await?;
        let measured = load(&cluster, arguments.load, comparison.duration).await?;
        cluster.stop().await?;
        Ok(measured)
    };
    let rows = comparison.run(&subjects, measure).await?;
    let remark = "per s: exchanges of the floor, stable records of the others";
    comparison.tell(
        rows,
        &FIGURES,
        |_, table| table.remark(remark),
        |rows| {
            let rates = Chart::bars("Stable records per second", rows, Figure::Rate);
            vec![rates, Chart::latencies("Latency under this load by percentile, all rounds together", rows)]
        },
    )
}

/// The same load on raw TCP.
pub(super) async fn floor(
    comparison: &Comparison<'_>,
    load: LoadArguments,
    nodes: &Handle,
) -> Result<Measured, Failure> {
    let floor = Floor::start(Exchange::append(load.size), comparison.delay.clone(), nodes).await?;
    floor.closed(load.clients as usize, load.in_flight as usize, comparison.duration).await
}

/// Closed loop with many in flight; counts what became stable.
pub(super) async fn load(
    cluster: &Cluster,
    load: LoadArguments,
    duration: Duration,
) -> Result<Measured, Failure> {
    let (watcher, payload) = (cluster.client().await?, Bytes::from(vec![7; load.size]));
    let (mut logs, mut tasks) = (vec![], JoinSet::new());
    for _ in 0..load.clients {
        logs.push(cluster.log().await?);
    }
    let stop = Instant::now() + WARM_UP + duration;
    for log in logs {
        tasks.spawn(append_until(log, load.in_flight as usize, payload.clone(), stop));
    }
    tokio::time::sleep(WARM_UP).await;
    let (before, cpu, began) = (stable(&watcher).await?, cpu_time(), Instant::now());
    tokio::time::sleep_until(stop.into()).await;
    let (after, cpu, took) = (stable(&watcher).await?, cpu_time() - cpu, began.elapsed());
    let latencies = all(tasks).await?;
    let lag = stable_lag(&watcher, latencies.count()).await?;
    let count = after - before;
    let mut measured = Measured::new(latencies, count as f64 / took.as_secs_f64(), cpu, count);
    measured.figures.insert(Figure::StableLag, lag.as_secs_f64() * 1e3);
    Ok(measured)
}

async fn append_until(
    log: Log,
    in_flight: usize,
    payload: Bytes,
    stop: Instant,
) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::new();
    let mut window: VecDeque<(Instant, Append)> = VecDeque::new();
    while Instant::now() < stop {
        while window.len() < in_flight {
            window.push_back((Instant::now(), log.submit(payload.clone()).await?));
        }
        if let Some((began, append)) = window.pop_front() {
            append.await?;
            latencies.record(began);
        }
    }
    for (began, append) in window {
        append.await?;
        latencies.record(began);
    }
    Ok(latencies)
}

/// How long the shards need, after the last acknowledgement, until everything is stable.
async fn stable_lag(watcher: &Client, appended: u64) -> Result<Duration, Failure> {
    let began = Instant::now();
    while stable(watcher).await? < appended {
        if began.elapsed() > Duration::from_secs(30) {
            return Err(Failure::new("what was acknowledged did not become stable within 30 s"));
        }
    }
    Ok(began.elapsed())
}
