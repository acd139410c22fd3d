//! `seriatim bench read`: latency of reads at a given lag behind the acknowledgement (LazyLog
//! §6.2), or of everything new at intervals (§6.3).
//!
//! One client appends on schedule; another reads each record by position. Without lag a read waits
//! until its record is final.

use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::{Append, Log, Order, Position};
use seriatim_net::Timer;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::chart::Chart;
use super::cluster::Cluster;
use super::comparison::Comparison;
use super::figure::{Figure, Setting};
use super::figures::Measured;
use super::floor::{Exchange, Floor};
use super::latencies::Latencies;
use super::latency::{BACKLOG, Paced, distributions};
use super::machine::cpu_time;
use super::pace::Pace;
use super::presentation::{Presentation, remark_ratios};
use super::report::{Row, Settings, Subject};
use crate::arguments::ReadBenchArguments;
use crate::terminal::{Failure, Outcome};

const READ_WITHIN: Duration = Duration::from_secs(10);

const FIGURES: [Figure; 10] = [
    Figure::P50,
    Figure::P90,
    Figure::P99,
    Figure::Max,
    Figure::AppendP50,
    Figure::AppendP99,
    Figure::BothP50,
    Figure::BothP99,
    Figure::Rate,
    Figure::Cpu,
];

pub(super) const PRESENTATION: Presentation = Presentation {
    figures: &FIGURES,
    remark: |rows, table| {
        let figures = [Figure::P50, Figure::P99, Figure::AppendP50, Figure::AppendP99, Figure::BothP50];
        remark_ratios(rows, &figures, table);
        if rows.iter().any(|row| row.median(Figure::BothP50).is_some()) {
            table.remark("both: an append and the read of its record, without the lag between them");
        }
    },
    charts,
};

#[derive(Clone, Copy, Debug)]
enum When {
    /// Reads begin this long after the acknowledgement; the number is records per read.
    Lagging(Duration, u32),
    /// Everything new is read at this interval; the number is records per read.
    Every(Duration, u32),
}

pub(super) async fn run(arguments: &ReadBenchArguments) -> Outcome {
    let comparison = Comparison::new(&arguments.comparison)?;
    let subjects = comparison.subjects(&Paced::all(&arguments.paced), &all_times(arguments));
    let measure = async |_: &Subject, (paced, setting): &(Paced, Option<(Order, When)>)| {
        let Some((order, when)) = setting else {
            return floor(&comparison, *paced, arguments.together).await;
        };
        let shape = comparison.shape(*order, arguments.shards);
        let cluster = Cluster::start(shape, &Handle::current()).await?;
        let measured = reads(&cluster, *paced, comparison.duration, *when).await?;
        cluster.stop().await?;
        Ok(measured)
    };
    let rows = comparison.run(&subjects, measure).await?;
    comparison.tell(rows, &PRESENTATION)
}

fn all_times(arguments: &ReadBenchArguments) -> Vec<(Settings, When)> {
    let ms = |duration: &Duration| duration.as_secs_f64() * 1e3;
    let lagging =
        |lag: &Duration| ([(Setting::Lag, ms(lag))].into(), When::Lagging(*lag, arguments.together));
    let every = |period: &Duration| {
        ([(Setting::Period, ms(period))].into(), When::Every(*period, arguments.together))
    };
    if arguments.period.is_empty() {
        arguments.lag.iter().map(lagging).collect()
    } else {
        arguments.period.iter().map(every).collect()
    }
}

fn charts(rows: &[Row]) -> Vec<Chart> {
    let figures = [
        ("Read latency, median", Figure::P50),
        ("Read latency, 99th percentile", Figure::P99),
        ("Append latency, median", Figure::AppendP50),
    ];
    let varies = |row: &Row| row.subject.settings.keys().any(|setting| *setting != Setting::Lag);
    if rows.iter().any(varies) { Chart::by_setting(rows, &figures) } else { vec![distributions(rows)] }
}

/// Floor of a read: a short question, answered with the records' bytes.
async fn floor(comparison: &Comparison<'_>, paced: Paced, together: u32) -> Result<Measured, Failure> {
    let exchange = Exchange::read(paced.size * together as usize);
    let floor = Floor::start(exchange, comparison.delay.clone(), &Handle::current()).await?;
    floor.on_schedule(1, (paced.rate / u64::from(together)).max(1), comparison.duration).await
}

#[derive(Clone, Copy)]
struct Appended {
    position: Position,
    scheduled: Instant,
    acknowledged: Instant,
}

async fn reads(cluster: &Cluster, paced: Paced, duration: Duration, when: When) -> Result<Measured, Failure> {
    let (appender, reader) = (cluster.log().await?, cluster.log().await?);
    let payload = Bytes::from(vec![7; paced.size]);
    // Opens both clients' connections before the measurement.
    let first = appender.append_sync(payload.clone()).await?;
    reader.read(first, 1, READ_WITHIN).await?;
    let (appended, reads) = mpsc::channel(BACKLOG);
    let (cpu, pace) = (cpu_time(), Pace::new(paced.rate, duration)?);
    let reading = tokio::spawn(async move {
        match when {
            When::Lagging(lag, together) => read_after(reader, reads, lag, together).await,
            When::Every(period, together) => read_every(reader, reads, period, together, first + 1).await,
        }
    });
    let appends = append(appender, payload, pace, first, appended).await?;
    let Reads { latencies, both } = reading.await??;
    let (rate, count) = (appends.rate(), appends.count());
    let mut measured = Measured::new(latencies, rate, cpu_time() - cpu, count).or_shortfall(paced.rate);
    let us = [(Figure::AppendP50, appends.us(0.5)), (Figure::AppendP99, appends.us(0.99))];
    measured.figures.extend(us);
    if let Some(both) = both {
        measured.figures.extend([(Figure::BothP50, both.us(0.5)), (Figure::BothP99, both.us(0.99))]);
    }
    Ok(measured)
}

/// Appends on schedule. Where acknowledgements have no positions, assumes that positions are
/// consecutive.
async fn append(
    log: Log,
    payload: Bytes,
    mut pace: Pace,
    first: Position,
    appended: mpsc::Sender<Appended>,
) -> Result<Latencies, Failure> {
    let (appends, mut in_flight) = mpsc::channel::<(Instant, Append)>(BACKLOG);
    let completions = tokio::spawn(async move {
        let (mut next, mut latencies) = (first + 1, Latencies::new());
        while let Some((scheduled, append)) = in_flight.recv().await {
            let position = append.await?.position.unwrap_or(next);
            let acknowledged = Instant::now();
            latencies.record_between(scheduled, acknowledged);
            next += 1;
            if appended.send(Appended { position, scheduled, acknowledged }).await.is_err() {
                break;
            }
        }
        Ok::<_, Failure>(latencies)
    });
    while let Some(scheduled) = pace.next().await {
        if appends.send((scheduled, log.submit(payload.clone()).await?)).await.is_err() {
            break;
        }
    }
    drop(appends);
    completions.await?
}

struct Reads {
    latencies: Latencies,
    /// Latencies of append plus read.
    both: Option<Latencies>,
}

/// Reads records after `lag`. Latency counts from `lag` after the acknowledgement of a read's last
/// record.
async fn read_after(
    log: Log,
    mut appended: mpsc::Receiver<Appended>,
    lag: Duration,
    together: u32,
) -> Result<Reads, Failure> {
    let timer = Timer::start()?;
    let (mut latencies, mut both) = (Latencies::new(), Latencies::new());
    let mut record = |appended: &Appended, done: Instant| {
        latencies.record_between(appended.acknowledged + lag, done);
        both.record_between(appended.scheduled + lag, done);
    };
    let mut reads: JoinSet<Result<(Appended, Instant), Failure>> = JoinSet::new();
    let (mut first, mut count) = (None, 0);
    while let Some(last) = appended.recv().await {
        let from: Position = *first.get_or_insert(last.position);
        count += 1;
        if count < together {
            continue;
        }
        (first, count) = (None, 0);
        let (log, timer) = (log.clone(), timer.clone());
        reads.spawn(async move {
            timer.until(last.acknowledged + lag).await;
            read_to(&log, from, last.position + 1).await?;
            Ok((last, Instant::now()))
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
    Ok(Reads { latencies, both: Some(both) })
}

/// Finds the tail at each interval and reads everything new, while appends continue. Latency counts
/// reads only.
async fn read_every(
    log: Log,
    mut appended: mpsc::Receiver<Appended>,
    period: Duration,
    together: u32,
    mut next: Position,
) -> Result<Reads, Failure> {
    let timer = Timer::start()?;
    let (mut latencies, mut at) = (Latencies::new(), Instant::now() + period);
    loop {
        timer.until(at).await;
        at = (at + period).max(Instant::now());
        let tail = log.check_tail().await?;
        while next < tail {
            let (began, end) = (Instant::now(), tail.min(next + u64::from(together)));
            read_to(&log, next, end).await?;
            latencies.record(began);
            next = end;
        }
        while appended.try_recv().is_ok() {}
        if appended.is_closed() {
            return Ok(Reads { latencies, both: None });
        }
    }
}

async fn read_to(log: &Log, from: Position, end: Position) -> Outcome {
    let mut next = from;
    while next < end {
        let most = u32::try_from(end.0 - next.0).unwrap_or(u32::MAX);
        let records = log.read(next, most, READ_WITHIN).await?;
        let Some(last) = records.last() else {
            return Err(Failure::new(format!("position {next} was not read")));
        };
        next = last.position + 1;
    }
    Ok(())
}
