//! `seriatim bench throughput`: rate of appends that become stable, with a fixed number in flight.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::{Append, AppendOptions, Client, Log, Order};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::chart::{Chart, varied};
use super::cluster::{Cluster, stable, wrong_suspicions};
use super::comparison::{Comparison, each_with_each, values};
use super::disk_floor;
use super::figure::{Figure, Setting};
use super::figures::Measured;
use super::floor::{Exchange, Floor};
use super::latencies::Latencies;
use super::latency::distributions;
use super::machine::{cpu_time, written_bytes};
use super::presentation::Presentation;
use super::report::{Row, Settings, Subject};
use super::table::Table;
use crate::arguments::{LoadArguments, ThroughputArguments};
use crate::terminal::{Failure, Outcome};

/// Time of appends before the measurement.
const WARM_UP: Duration = Duration::from_millis(500);

/// Interval between samples of the shards' lag.
const SAMPLE_EVERY: Duration = Duration::from_millis(5);

const FIGURES: [Figure; 11] = [
    Figure::Rate,
    Figure::Cpu,
    Figure::Written,
    Figure::StableLagP50,
    Figure::StableLagP99,
    Figure::StableLag,
    Figure::P50,
    Figure::P99,
    Figure::Max,
    Figure::Gap,
    Figure::WrongSuspicions,
];

pub(super) const PRESENTATION: Presentation = Presentation {
    figures: &FIGURES,
    remark: |rows, table| {
        table.remark("per s: exchanges of the floor, stable records of the others");
        table.remark("gap: the longest time in which nobody's append was acknowledged");
        table.remark("lag: from an acknowledgement until the record is stable, under the load and after it");
        remark_written(rows, table);
    },
    charts,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) size: usize,
    pub(super) clients: u32,
    pub(super) in_flight: u32,
}

impl Load {
    pub(super) fn all(arguments: &LoadArguments) -> Vec<(Settings, Self)> {
        let sizes = values(Setting::Size, &arguments.size, |size| *size as f64);
        let clients = values(Setting::Clients, &arguments.clients, |clients| f64::from(*clients));
        let in_flight = values(Setting::InFlight, &arguments.in_flight, |count| f64::from(*count));
        let all = each_with_each(&each_with_each(&sizes, &clients), &in_flight).into_iter();
        let load = |(settings, ((size, clients), in_flight))| (settings, Self { size, clients, in_flight });
        all.map(load).collect()
    }
}

pub(super) async fn run(arguments: &ThroughputArguments) -> Outcome {
    let comparison = Comparison::new(&arguments.comparison)?;
    let subjects = comparison.subjects(&Load::all(&arguments.load), &[(Settings::new(), ())]);
    let subjects = comparison.with_disk_floors(subjects);
    let measure = async |subject: &Subject, (how, order): &(Load, Option<(Order, ())>)| {
        if subject.is_disk_floor() {
            return disk_floor::sequential(comparison.duration).await;
        }
        let nodes = Handle::current();
        let Some((order, ())) = order else { return floor(&comparison, *how, &nodes).await };
        let cluster = Cluster::start(comparison.shape(*order, arguments.shards), &nodes).await?;
        let measured = load(&cluster, *how, comparison.duration).await?;
        cluster.stop().await?;
        Ok(measured)
    };
    let rows = comparison.run(&subjects, measure).await?;
    comparison.tell(rows, &PRESENTATION)
}

/// Adds remarks: the rate written as a share of the disk's sequential rate.
fn remark_written(rows: &[Row], table: &mut Table) {
    for floor in rows.iter().filter(|row| row.subject.is_disk_floor()) {
        let same = |row: &&Row| !row.subject.is_floor() && row.subject.settings == floor.subject.settings;
        for row in rows.iter().filter(same) {
            let both = row.median(Figure::Written).zip(floor.median(Figure::Written));
            let Some((written, taken)) = both.filter(|(_, taken)| *taken > 0.0) else { continue };
            let (label, percent) = (row.subject.label(), written / taken * 100.0);
            table.remark(format_args!("{label}: {percent:.0} % of what the disk takes in sequential writes"));
        }
    }
}

fn charts(rows: &[Row]) -> Vec<Chart> {
    let rates = "Stable records per second";
    match varied(rows) {
        // More appends in flight cost latency: draw latency by rate.
        Some(setting @ (Setting::InFlight | Setting::Clients)) => vec![
            Chart::against("Latency by the rate reached, median", rows, setting, Figure::Rate, Figure::P50),
            Chart::against(
                "Latency by the rate reached, 99th percentile",
                rows,
                setting,
                Figure::Rate,
                Figure::P99,
            ),
            Chart::lines("Stable lag under load, median", rows, setting, Figure::StableLagP50),
        ],
        Some(setting) => vec![Chart::lines(rates, rows, setting, Figure::Rate)],
        None => vec![Chart::bars(rates, rows, Figure::Rate), distributions(rows)],
    }
}

pub(super) async fn floor(
    comparison: &Comparison<'_>,
    load: Load,
    nodes: &Handle,
) -> Result<Measured, Failure> {
    let floor = Floor::start(Exchange::append(load.size), comparison.delay.clone(), nodes).await?;
    floor.closed(load.clients as usize, load.in_flight as usize, comparison.duration).await
}

/// Closed loop with many appends in flight per client; counts stable appends.
pub(super) async fn load(cluster: &Cluster, load: Load, duration: Duration) -> Result<Measured, Failure> {
    let (watcher, payload) = (cluster.client().await?, Bytes::from(vec![7; load.size]));
    let (mut logs, mut tasks) = (vec![], JoinSet::new());
    for _ in 0..load.clients {
        logs.push(cluster.log().await?);
    }
    let sampler = cluster.log().await?;
    let began = Instant::now();
    let (from, stop) = (began + WARM_UP, began + WARM_UP + duration);
    for log in logs {
        tasks.spawn(append_until(log, load.in_flight as usize, payload.clone(), stop));
    }
    let lags = tokio::spawn(sample(sampler, payload, from, stop));
    tokio::time::sleep_until(from.into()).await;
    let (before, cpu, began) = (stable(&watcher).await?, cpu_time(), Instant::now());
    let written = written_bytes();
    tokio::time::sleep_until(stop.into()).await;
    let (after, cpu, took) = (stable(&watcher).await?, cpu_time() - cpu, began.elapsed());
    let written = written_bytes() - written;
    let (latencies, acknowledged) = together(tasks).await?;
    let (lags, sampled) = lags.await??;
    let lag = stable_lag(&watcher, latencies.count() + sampled).await?;
    let count = after - before;
    let mut measured = Measured::new(latencies, count as f64 / took.as_secs_f64(), cpu, count);
    measured.figures.insert(Figure::StableLag, lag.as_secs_f64() * 1e3);
    measured.figures.insert(Figure::Gap, acknowledged.longest_gap());
    measured.figures.insert(Figure::WrongSuspicions, wrong_suspicions(&watcher).await?);
    measured.figures.insert(Figure::Written, written as f64 / took.as_secs_f64() / 1e6);
    let lags = [(Figure::StableLagP50, lags.us(0.5) / 1e3), (Figure::StableLagP99, lags.us(0.99) / 1e3)];
    measured.figures.extend(lags);
    Ok(measured)
}

/// Samples the time from acknowledgement until stable; also counts its records. Of two simultaneous
/// appends the first is acknowledged when durable, the second when both are stable.
async fn sample(log: Log, payload: Bytes, from: Instant, stop: Instant) -> Result<(Latencies, u64), Failure> {
    let (mut lags, mut appended) = (Latencies::new(), 0);
    while Instant::now() < stop {
        let begun = Instant::now();
        let durable = log.submit(payload.clone()).await?;
        let stable = log.submit_with(payload.clone(), AppendOptions::sync()).await?;
        durable.await?;
        let acknowledged = Instant::now();
        stable.await?;
        appended += 2;
        if begun >= from {
            lags.record(acknowledged);
        }
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
    Ok((lags, appended))
}

async fn append_until(
    log: Log,
    in_flight: usize,
    payload: Bytes,
    stop: Instant,
) -> Result<(Latencies, Acknowledged), Failure> {
    let (mut latencies, mut acknowledged) = (Latencies::new(), Acknowledged::since(Instant::now()));
    let mut window: VecDeque<(Instant, Append)> = VecDeque::new();
    while Instant::now() < stop {
        while window.len() < in_flight {
            window.push_back((Instant::now(), log.submit(payload.clone()).await?));
        }
        if let Some((began, append)) = window.pop_front() {
            append.await?;
            latencies.record(began);
            acknowledged.note(Instant::now());
        }
    }
    for (began, append) in window {
        append.await?;
        latencies.record(began);
    }
    Ok((latencies, acknowledged))
}

async fn together(
    mut tasks: JoinSet<Result<(Latencies, Acknowledged), Failure>>,
) -> Result<(Latencies, Acknowledged), Failure> {
    let (mut latencies, mut acknowledged) = (Latencies::new(), Acknowledged::default());
    while let Some(task) = tasks.join_next().await {
        let (its, seen) = task??;
        latencies.merge(&its);
        acknowledged.0.extend(seen.0);
    }
    Ok((latencies, acknowledged))
}

/// Times of acknowledgements, at most one per millisecond.
#[derive(Debug, Default)]
struct Acknowledged(BTreeSet<Instant>);

impl Acknowledged {
    fn since(begin: Instant) -> Self {
        Self(BTreeSet::from([begin]))
    }

    fn note(&mut self, now: Instant) {
        if self.0.last().is_none_or(|last| now - *last >= Duration::from_millis(1)) {
            self.0.insert(now);
        }
    }

    /// Longest time between acknowledgements, in milliseconds.
    fn longest_gap(&self) -> f64 {
        let gaps = self.0.iter().zip(self.0.iter().skip(1)).map(|(one, next)| *next - *one);
        gaps.max().unwrap_or_default().as_secs_f64() * 1e3
    }
}

/// Time from now until all acknowledged appends are stable.
async fn stable_lag(watcher: &Client, appended: u64) -> Result<Duration, Failure> {
    let began = Instant::now();
    while stable(watcher).await? < appended {
        if began.elapsed() > Duration::from_secs(30) {
            return Err(Failure::new("what was acknowledged did not become stable within 30 s"));
        }
    }
    Ok(began.elapsed())
}
