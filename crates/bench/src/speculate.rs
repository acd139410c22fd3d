//! `seriatim bench speculate`: how much sooner a program has results if it computes on records
//! before they are final (SpecLog, OSDI '25, §6).
//!
//! Clients append on schedule. A program computes on the delivered records as a batch, and releases
//! each result when its record is final. Without predictions it computes on final records.
//! Optionally the log is [disturbed](disturbance) meanwhile.

mod disturbance;
mod program;

use std::sync::Arc;
use std::time::{Duration, Instant};

use seriatim_client::{AppendOptions, Log, Order, Position, SubscribeOptions};
use seriatim_model::limits;
use seriatim_net::Timer;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::chart::Chart;
use super::cluster::{Apart, Cluster, Shape, stable, wrong_suspicions};
use super::comparison::{Comparison, each_with_each, values};
use super::figure::{Figure, Setting};
use super::figures::Measured;
use super::floor::all;
use super::latency::{BACKLOG, Paced, append_on_schedule};
use super::machine::cpu_time;
use super::pace::Pace;
use super::presentation::{Presentation, remark_ratios};
use super::report::{Row, Settings, Subject};
use super::stamp::{STAMP_BYTES, WARM_UP, nanos_since, stamped};
use super::thirds::Thirds;
use crate::arguments::{SpeculateArguments, Subscribers};
use crate::terminal::{Failure, Outcome};
use disturbance::Disturbance;
use program::{Found, Out, Program, Work, receive};

const FIGURES: [Figure; 24] = [
    Figure::Rate,
    Figure::AppendP50,
    Figure::AppendP99,
    Figure::AppendMean,
    Figure::DeliveryP50,
    Figure::DeliveryP99,
    Figure::DeliveryMean,
    Figure::ConfirmP50,
    Figure::ConfirmP99,
    Figure::ConfirmMean,
    Figure::ResultP50,
    Figure::ResultP99,
    Figure::ResultMean,
    Figure::QueueMean,
    Figure::ComputeMean,
    Figure::WaitMean,
    Figure::ResultBefore,
    Figure::ResultDuring,
    Figure::ResultAfter,
    Figure::Predicted,
    Figure::Failed,
    Figure::Empty,
    Figure::EmptyRate,
    Figure::WrongSuspicions,
];

pub(super) const PRESENTATION: Presentation = Presentation {
    figures: &FIGURES,
    remark: |rows, table| {
        table.remark("from when an append should have begun until the record came (delivery), was final (confirm), and its result was out (result)");
        table.remark("queue: from delivery until the program was free for it; wait: from when it was computed until it was final");
        if is_disturbed(rows) {
            table.remark("before, during, after: results of records that should have been appended in the first, second and last third");
        }
        let figures = [Figure::DeliveryMean, Figure::ResultMean, Figure::ResultP99, Figure::AppendP50];
        remark_ratios(rows, &figures, table);
    },
    charts: |rows| {
        let figures =
            [("Delivery, mean", Figure::DeliveryMean), ("Until the result is out, mean", Figure::ResultMean)];
        let mut charts = Chart::by_setting(rows, &figures);
        if charts.is_empty() {
            charts = figures.map(|(caption, figure)| Chart::bars(caption, rows, figure)).to_vec();
        }
        if is_disturbed(rows) {
            let caption = "Until the result is out, in ms, for appends of each 50 ms; the last round";
            charts.push(Chart::timelines(caption, rows));
        }
        charts
    },
};

fn is_disturbed(rows: &[Row]) -> bool {
    rows.iter().any(|row| !row.timeline.is_empty())
}

#[derive(Clone, Copy, Debug)]
struct Consumption {
    shards: u32,
    compute: Duration,
    window: u32,
}

pub(super) async fn run(arguments: &SpeculateArguments) -> Outcome {
    if arguments.paced.size.iter().any(|size| *size < STAMP_BYTES) {
        return Err(Failure::new(format!(
            "a record has at least {STAMP_BYTES} bytes here, which say when it should have been appended"
        )));
    }
    let comparison = Comparison::new(&arguments.comparison)?;
    let disturbance = Disturbance::of(arguments)?;
    let mut subjects = vec![];
    let settings = each_with_each(&Paced::all(&arguments.paced), &consumptions(arguments));
    for (settings, (paced, (shards, compute))) in settings {
        for order in &arguments.comparison.order {
            for (window, settings) in windows(arguments, *order, &settings) {
                let subject = Subject { name: order.to_string(), settings };
                subjects.push((subject, (*order, paced, Consumption { shards, compute, window })));
            }
        }
    }
    let measure = async |_: &Subject, (order, paced, consumption): &(Order, Paced, Consumption)| {
        let (shards, window) = (consumption.shards, consumption.window);
        let apart = disturbance.map(|disturbance| disturbance.apart()).transpose()?.flatten();
        let shape = Shape { window, apart: apart.clone(), ..comparison.shape(*order, shards) };
        let mut cluster = Cluster::start(shape, &Handle::current()).await?;
        let disturbing = disturbance.map(|disturbance| (disturbance, apart));
        let duration = comparison.duration;
        let measured = speculate(&mut cluster, arguments, *paced, *consumption, disturbing, duration).await?;
        cluster.stop().await?;
        Ok(measured)
    };
    let rows = comparison.run(&subjects, measure).await?;
    comparison.tell(rows, &PRESENTATION)
}

fn consumptions(arguments: &SpeculateArguments) -> Vec<(Settings, (u32, Duration))> {
    let shards = values(Setting::Shards, &arguments.shards, |shards| f64::from(*shards));
    let compute = values(Setting::Compute, &arguments.compute, |compute| compute.as_secs_f64() * 1e3);
    each_with_each(&shards, &compute)
}

/// Quota windows for an ordering, each with all settings. An ordering without quotas gets the
/// default, unnamed.
fn windows(arguments: &SpeculateArguments, order: Order, settings: &Settings) -> Vec<(u32, Settings)> {
    if !order.has_quotas() {
        return vec![(limits::DEFAULT_WINDOW, settings.clone())];
    }
    let windows = values(Setting::Window, &arguments.window, |window| f64::from(*window));
    let all = |(more, window): (Settings, u32)| (window, settings.clone().into_iter().chain(more).collect());
    windows.into_iter().map(all).collect()
}

async fn speculate(
    cluster: &mut Cluster,
    arguments: &SpeculateArguments,
    paced: Paced,
    consumption: Consumption,
    disturbing: Option<(Disturbance, Option<Apart>)>,
    duration: Duration,
) -> Result<Measured, Failure> {
    let logs = opened(cluster, arguments.clients, paced).await?;
    let clients = logs.len();
    let (began, out) = (Instant::now(), Arc::new(Out::default()));
    let starts = Pace::soon();
    let thirds = Thirds::new(starts, duration);
    let (mut programs, mut appending) = (JoinSet::new(), JoinSet::new());
    for options in subscriptions(arguments.subscribe, consumption.shards) {
        let events = cluster.log().await?.subscribe(Position(0), options.speculative()).await?;
        let (told, batches) = mpsc::channel(BACKLOG);
        tokio::spawn(receive(events, told));
        let work = Work { timer: Timer::start()?, compute: consumption.compute, spins: arguments.spin };
        let program = Program::new(began, disturbing.is_some().then_some(thirds), out.clone());
        programs.spawn(program.run(batches, work));
    }
    let cpu = cpu_time();
    let payload = move |scheduled: Instant| stamped(paced.size, nanos_since(began, scheduled));
    for (log, pace) in logs.into_iter().zip(Pace::split_from(starts, paced.rate, clients, duration)?) {
        appending.spawn(append_on_schedule(log, pace, AppendOptions::default(), payload));
    }
    if let Some((disturbance, apart)) = &disturbing {
        if let Some((rate, from, lasts)) = disturbance.more(paced.rate, consumption.shards, thirds) {
            let (log, first) = (cluster.log().await?, AppendOptions::default().to_shard(0));
            let pace = Pace::split_from(from, rate, 1, lasts)?.swap_remove(0);
            appending.spawn(append_on_schedule(log, pace, first, payload));
        }
        disturbance.happens(cluster, apart.as_ref(), thirds).await?;
    }
    let appends = all(appending).await?;
    out.reaches(appends.count()).await?;
    let cpu = cpu_time() - cpu;
    let client = cluster.client().await?;
    let positions = stable(&client).await?;
    out.end.notify_waiters();
    let mut found = Found::default();
    while let Some(program) = programs.join_next().await {
        found.merge(&program??);
    }
    let count = appends.count();
    let mut measured = Measured::new(found.results.clone(), appends.rate(), cpu, count);
    measured.timeline = found.timeline();
    measured.figures.extend(found.figures(&appends));
    let empty = positions.saturating_sub(count + clients as u64) as f64;
    measured.figures.insert(Figure::Empty, empty / positions.max(1) as f64 * 100.0);
    measured.figures.insert(Figure::EmptyRate, empty * appends.rate() / count.max(1) as f64);
    measured.figures.insert(Figure::WrongSuspicions, wrong_suspicions(&client).await?);
    Ok(measured.or_shortfall(paced.rate))
}

/// A handle of the log per client, with open sessions and connections.
async fn opened(cluster: &Cluster, clients: u32, paced: Paced) -> Result<Vec<Log>, Failure> {
    let mut logs = vec![];
    for _ in 0..clients {
        let log = cluster.log().await?;
        log.append(stamped(paced.size, WARM_UP), Default::default()).await?;
        logs.push(log);
    }
    Ok(logs)
}

fn subscriptions(subscribers: Subscribers, shards: u32) -> Vec<SubscribeOptions> {
    match subscribers {
        Subscribers::All => vec![SubscribeOptions::default()],
        Subscribers::Shard => (0..shards).map(|shard| SubscribeOptions::default().shards([shard])).collect(),
    }
}
