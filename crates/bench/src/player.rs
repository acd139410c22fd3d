//! `seriatim bench player`: how long a player takes to bring transactions to their targets
//! (LogPlayer, §6, figures 9 and 10).
//!
//! A sample is a transaction at a target. The player's delay runs from the dispatch, before the
//! machine receives the record, until the target's handler begins. The delivery, which the paper
//! calls apply delay, runs from the scheduled start of the append until then. With `--sink sqlite`,
//! a player empties a full log into databases.

mod fan_out;
mod samples;
mod services;
mod sqlite;
mod transactions;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use seriatim_client::{AppendOptions, Log, Order};
use seriatim_net::Timer;
use seriatim_player::{
    Begin, Ending, Map, Mapper, PlayerError, PlayerLimits, Settings, Start, TargetSettings,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::chart::Chart;
use super::cluster::{Cluster, LOG};
use super::comparison::{Comparison, each_with_each, values};
use super::figure::{Figure, Setting};
use super::figures::Measured;
use super::latencies::Latencies;
use super::latency::{append_on_schedule, append_until, distributions};
use super::machine::cpu_time;
use super::pace::Pace;
use super::presentation::{Presentation, remark_ratios};
use super::report::{Row, Settings as RowSettings, Subject};
use super::stamp::{WARM_UP, nanos_since};
use super::thirds::{Part, Thirds};
use crate::arguments::{PlayerArguments, Sink};
use crate::terminal::{Failure, Outcome};
use samples::{Sample, Samples};
use services::Service;
use transactions::{Timed, Transactions, name_of};

/// Time limit for a step of a player: its start, or its delivery after the last append.
const WITHIN: Duration = Duration::from_secs(60);

const FIGURES: [Figure; 13] = [
    Figure::Mean,
    Figure::P50,
    Figure::P99,
    Figure::DeliveryMean,
    Figure::DeliveryP50,
    Figure::DeliveryP99,
    Figure::StoppedP50,
    Figure::StoppedP99,
    Figure::CaughtUp,
    Figure::Rate,
    Figure::RateOfDirect,
    Figure::RowsPerCommit,
    Figure::Cpu,
];

pub(super) const PRESENTATION: Presentation = Presentation {
    figures: &FIGURES,
    remark: |rows, table| {
        if rows.iter().any(|row| row.median(Figure::RateOfDirect).is_some()) {
            table.remark("per s: rows that a database has; of direct: as a part of the rate of the same transactions without a log");
            return;
        }
        table.remark(
            "mean, p50, p99: from the player's dispatch of an entry until the target's handler begins",
        );
        table.remark("delivery: from when an append should have begun until then");
        if rows.iter().any(|row| row.median(Figure::CaughtUp).is_some()) {
            table.remark("stopped: the other targets' delay while some are stopped and catch up, as a multiple of the delay before");
        }
        remark_ratios(rows, &[Figure::Mean, Figure::P99, Figure::DeliveryMean], table);
    },
    charts: |rows| {
        let figures = [
            ("From dispatch to target, mean", Figure::Mean),
            ("From dispatch to target, 99th percentile", Figure::P99),
            ("From append to target, mean", Figure::DeliveryMean),
        ];
        if rows.iter().any(|row| row.median(Figure::RateOfDirect).is_some()) {
            return vec![Chart::bars("Rows per second", rows, Figure::Rate)];
        }
        let charts = Chart::by_setting(rows, &figures);
        if charts.is_empty() { vec![distributions(rows)] } else { charts }
    },
};

pub(super) async fn run(arguments: &PlayerArguments) -> Outcome {
    if let Some(stop) = arguments.stop {
        if arguments.sink != Sink::Grpc {
            return Err(Failure::new("--stop needs --sink grpc"));
        }
        if arguments.targets.iter().any(|targets| *targets <= stop) {
            return Err(Failure::new("--stop leaves no target at work: give more --targets"));
        }
    }
    let comparison = Comparison::new(&arguments.comparison)?;
    let targets = values(Setting::Targets, &arguments.targets, |targets| f64::from(*targets));
    let keys = values(Setting::Keys, &arguments.keys, |keys| f64::from(*keys));
    let each = each_with_each(&targets, &keys).into_iter();
    let transactions: Vec<_> =
        each.map(|(settings, (targets, keys))| (settings, Transactions { targets, keys })).collect();
    let subjects = comparison.subjects(&transactions, &[(RowSettings::new(), ())]);
    let (duration, rate) = (comparison.duration, (!arguments.closed).then_some(arguments.rate));
    let direct = Cell::new(f64::NAN);
    let measure = async |_: &Subject, (transactions, order): &(Transactions, Option<(Order, ())>)| {
        let Some((order, ())) = order else {
            if arguments.sink == Sink::Grpc {
                return fan_out::fan_out(*transactions, rate, duration).await;
            }
            let measured = sqlite::direct(*transactions, duration).await?;
            direct.set(measured.figures[&Figure::Rate]);
            return Ok(measured);
        };
        let cluster = Cluster::start(comparison.shape(*order, 1), &Handle::current()).await?;
        let measured = match arguments.sink {
            Sink::Grpc => deliver(&cluster, *transactions, arguments, duration).await?,
            Sink::Sqlite => {
                let mut measured = sqlite::through_player(&cluster, *transactions, duration).await?;
                let of_direct = measured.figures[&Figure::Rate] / direct.get();
                measured.figures.insert(Figure::RateOfDirect, of_direct);
                measured
            }
        };
        cluster.stop().await?;
        Ok(measured)
    };
    let rows: Vec<Row> = comparison.run(&subjects, measure).await?;
    comparison.tell(rows, &PRESENTATION)
}

/// A running player.
struct Playing {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<Ending, PlayerError>>,
}

impl Playing {
    async fn start(
        cluster: &Cluster,
        targets: Vec<TargetSettings>,
        mapper: Option<Arc<dyn Mapper>>,
        until_tail: bool,
    ) -> Result<Self, Failure> {
        let settings = Settings {
            log: LOG.to_owned(),
            name: LOG.to_owned(),
            map: mapper.clone().map_or(Map::Wal, Map::Program),
            begin: Begin::Start,
            targets,
            start: Start::Refuse,
            above: None,
            until_tail,
            pin: false,
            dead_letter: None,
            limits: PlayerLimits::default(),
        };
        let client = cluster.client().await?;
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            // Problems that matter end the player, or the measurement takes too long.
            let mut observer = |_: &str, _| {};
            seriatim_player::run(&client, settings, mapper, |_| {}, &mut observer, stopped).await
        });
        Ok(Self { stop, ended })
    }

    /// Waits while the player runs.
    async fn until(&mut self, step: &str, waits: impl Future<Output = ()>) -> Outcome {
        let ended = async {
            Err(Failure::new(format!("the player ended before {step}: {:?}", (&mut self.ended).await??)))
        };
        let step_or_end = async {
            tokio::select! {
                () = waits => Ok(()),
                ended = ended => ended,
            }
        };
        let late = || Failure::new(format!("the player did not reach this within {WITHIN:?}: {step}"));
        tokio::time::timeout(WITHIN, step_or_end).await.map_err(|_| late())?
    }

    async fn stop(self) -> Outcome {
        drop(self.stop);
        self.ended.await??;
        Ok(())
    }
}

fn settings_of(target: usize, service: &Service) -> Result<TargetSettings, Failure> {
    Ok(TargetSettings { id: name_of(target), target: service.target()?, dead_letters: false })
}

async fn deliver(
    cluster: &Cluster,
    transactions: Transactions,
    arguments: &PlayerArguments,
    duration: Duration,
) -> Result<Measured, Failure> {
    let began = Instant::now();
    let samples = Arc::new(Samples::new(transactions.targets, began));
    let mut services = vec![];
    for number in 0..transactions.targets as usize {
        services.push(Service::start(number, &samples).await?);
    }
    let targets = services.iter().enumerate().map(|(number, service)| settings_of(number, service));
    let mapper: Arc<dyn Mapper> = Arc::new(Timed(samples.clone()));
    let mut playing =
        Playing::start(cluster, targets.collect::<Result<_, _>>()?, Some(mapper), false).await?;
    let log = cluster.log().await?;
    log.append(transactions.warm_up(WARM_UP)?, AppendOptions::default()).await?;
    let mut wanted = vec![1; transactions.targets as usize];
    playing.until("all targets have a first transaction", samples.reach(&wanted)).await?;

    let (cpu, starts, next) = (cpu_time(), Pace::soon(), Arc::new(AtomicU64::new(0)));
    let thirds = Thirds::new(starts, duration);
    let appending = Appending { log, transactions, began, next: next.clone() };
    let appending = tokio::spawn(appending.run(arguments.rate, arguments.closed, (starts, duration)));
    let stopped = arguments.stop.unwrap_or_default() as usize;
    let caught_up = async {
        if stopped == 0 {
            return Ok(None);
        }
        let timer = Timer::start()?;
        timer.until(thirds.begins()).await;
        for service in &mut services[..stopped] {
            service.stop().await?;
        }
        timer.until(thirds.ends()).await;
        for service in &mut services[..stopped] {
            service.resume().await?;
        }
        let returned = Instant::now();
        samples.reach(&transactions.messages(next.load(Ordering::Relaxed), &wanted)).await;
        Ok::<_, Failure>(Some(returned.elapsed()))
    };
    let caught_up = tokio::time::timeout(duration + WITHIN, caught_up).await??;
    let rate = appending.await??;
    wanted = transactions.messages(next.load(Ordering::Relaxed), &wanted);
    playing.until("all targets have all transactions", samples.reach(&wanted)).await?;
    let cpu = cpu_time() - cpu;
    playing.stop().await?;
    let mut measured = measured_of(&samples.take(), stopped, thirds, (rate, cpu));
    if let Some(caught_up) = caught_up {
        measured.figures.insert(Figure::CaughtUp, caught_up.as_secs_f64() * 1e3);
    }
    Ok(if arguments.closed { measured } else { measured.or_shortfall(arguments.rate) })
}

/// Appends transactions. `next` is the number of the next one.
struct Appending {
    log: Log,
    transactions: Transactions,
    /// Stamps count from this time.
    began: Instant,
    next: Arc<AtomicU64>,
}

impl Appending {
    /// Returns the number of transactions per second.
    async fn run(
        self,
        rate: u64,
        is_closed: bool,
        (starts, duration): (Instant, Duration),
    ) -> Result<f64, Failure> {
        let Self { log, transactions, began, next } = self;
        let record = move |scheduled| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let record = transactions.record(number, nanos_since(began, scheduled));
            record.expect("the arguments allow only valid transactions")
        };
        let latencies = if is_closed {
            append_until(log, starts + duration, record).await?
        } else {
            let pace = Pace::split_from(starts, rate, 1, duration)?.swap_remove(0);
            append_on_schedule(log, pace, AppendOptions::default(), record).await?
        };
        Ok(latencies.rate())
    }
}

/// Figures of the targets that were not stopped: the first `stopped` ones were.
fn measured_of(samples: &[Sample], stopped: usize, thirds: Thirds, (rate, cpu): (f64, Duration)) -> Measured {
    let (mut player, mut apply) = (Latencies::new(), Latencies::new());
    let (mut before, mut since) = (Latencies::new(), Latencies::new());
    for sample in samples.iter().filter(|sample| sample.target >= stopped) {
        player.record_between(sample.dispatched, sample.applied);
        apply.record_between(sample.scheduled, sample.applied);
        let part = if thirds.part(sample.scheduled) == Part::Before { &mut before } else { &mut since };
        part.record_between(sample.dispatched, sample.applied);
    }
    let count = player.count();
    let mut measured = Measured::new(player, rate, cpu, count);
    let of_apply = [(Figure::DeliveryP50, 0.5), (Figure::DeliveryP99, 0.99)];
    measured.figures.extend(of_apply.map(|(figure, quantile)| (figure, apply.us(quantile))));
    measured.figures.insert(Figure::DeliveryMean, apply.us_of(Figure::Mean));
    if stopped > 0 {
        let ratios = [(Figure::StoppedP50, 0.5), (Figure::StoppedP99, 0.99)];
        let ratio = |(figure, quantile)| (figure, since.us(quantile) / before.us(quantile));
        measured.figures.extend(ratios.map(ratio));
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_targets_do_not_count_and_the_parts_are_compared() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let sample = |target, scheduled, took| Sample {
            target,
            scheduled: at(scheduled),
            dispatched: at(scheduled + 10),
            applied: at(scheduled + 10 + took),
        };
        let samples = [sample(0, 0, 900), sample(1, 0, 2), sample(1, 1000, 3), sample(1, 2000, 4)];
        let thirds = Thirds::new(start, Duration::from_secs(3));
        let measured = measured_of(&samples, 1, thirds, (100.0, Duration::ZERO));
        let about = |figure| (measured.figures[&figure] * 10.0).round() / 10.0;
        assert_eq!([Figure::StoppedP50, Figure::StoppedP99].map(about), [1.5, 2.0]);
        let delays = [Figure::Mean, Figure::DeliveryMean].map(|figure| measured.figures[&figure].round());
        assert!((delays[0] - 3000.0).abs() < 5.0 && (delays[1] - 13_000.0).abs() < 20.0, "{delays:?}");
    }
}
