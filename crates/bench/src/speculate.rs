//! `seriatim bench speculate`: how much sooner a program has its results that computes on records before they are final
//! (SpecLog, OSDI '25, §6).
//!
//! Clients append on a schedule. A program takes whatever has come as one batch, computes on it for a while, and lets the result of
//! each record out when it is final. Where nothing is predicted it computes on final records, and lets the results out at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::{Event, Order, Position, StoredRecord, SubscribeOptions, Subscription};
use seriatim_net::Timer;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::chart::Chart;
use super::cluster::{Cluster, stable, wrong_suspicions};
use super::comparison::{Comparison, each_with_each, values};
use super::figure::{Figure, Setting};
use super::figures::Measured;
use super::floor::all;
use super::latencies::Latencies;
use super::latency::{BACKLOG, Paced, append_on_schedule};
use super::machine::cpu_time;
use super::pace::Pace;
use super::presentation::{Presentation, remark_ratios};
use super::report::{Settings, Subject};
use crate::arguments::{SpeculateArguments, Subscribers};
use crate::terminal::{Failure, Outcome};

/// How long after the last acknowledgement all results must be out.
const OUT_WITHIN: Duration = Duration::from_secs(30);
/// The bytes at the beginning of a record that say when it should have been appended.
const STAMP_BYTES: usize = size_of::<u64>();
/// The stamp of a record that does not count.
const WARM_UP: u64 = u64::MAX;

const FIGURES: [Figure; 16] = [
    Figure::AppendP50,
    Figure::AppendP99,
    Figure::DeliveryP50,
    Figure::DeliveryP99,
    Figure::DeliveryMean,
    Figure::ConfirmP50,
    Figure::ConfirmP99,
    Figure::ResultP50,
    Figure::ResultP99,
    Figure::ResultMean,
    Figure::QueueMean,
    Figure::WaitMean,
    Figure::Predicted,
    Figure::Failed,
    Figure::Empty,
    Figure::WrongSuspicions,
];

pub(super) const PRESENTATION: Presentation = Presentation {
    figures: &FIGURES,
    remark: |rows, table| {
        table.remark("from when an append should have begun until the record came (delivery), was final (confirm), and its result was out (result)");
        table.remark("queue: from delivery until the program was free for it; wait: from when it was computed until it was final");
        let figures = [Figure::DeliveryMean, Figure::ResultMean, Figure::ResultP99, Figure::AppendP50];
        remark_ratios(rows, &figures, table);
    },
    charts: |rows| {
        let figures =
            [("Delivery, mean", Figure::DeliveryMean), ("Until the result is out, mean", Figure::ResultMean)];
        let by_setting = Chart::by_setting(rows, &figures);
        if !by_setting.is_empty() {
            return by_setting;
        }
        figures.map(|(caption, figure)| Chart::bars(caption, rows, figure)).to_vec()
    },
};

/// The settings beside size and rate.
#[derive(Clone, Copy, Debug)]
struct Consumption {
    shards: u32,
    compute: Duration,
}

pub(super) async fn run(arguments: &SpeculateArguments) -> Outcome {
    if arguments.paced.size.iter().any(|size| *size < STAMP_BYTES) {
        return Err(Failure::new(format!(
            "a record has at least {STAMP_BYTES} bytes here, which say when it should have been appended"
        )));
    }
    let comparison = Comparison::new(&arguments.comparison)?;
    let shards = values(Setting::Shards, &arguments.shards, |shards| f64::from(*shards));
    let compute = values(Setting::Compute, &arguments.compute, |compute| compute.as_secs_f64() * 1e3);
    let consumptions: Vec<(Settings, Consumption)> = each_with_each(&shards, &compute)
        .into_iter()
        .map(|(settings, (shards, compute))| (settings, Consumption { shards, compute }))
        .collect();
    let settings = each_with_each(&Paced::all(&arguments.paced), &consumptions);
    let subjects: Vec<_> = settings
        .iter()
        .flat_map(|(settings, setting)| {
            let of = move |order: &Order| Subject { name: order.to_string(), settings: settings.clone() };
            arguments.comparison.order.iter().map(move |order| (of(order), (*order, *setting)))
        })
        .collect();
    let measure = async |_: &Subject, (order, (paced, consumption)): &(Order, (Paced, Consumption))| {
        let cluster =
            Cluster::start(comparison.shape(*order, consumption.shards), &Handle::current()).await?;
        let measured = speculate(&cluster, arguments, *paced, *consumption, comparison.duration).await?;
        cluster.stop().await?;
        Ok(measured)
    };
    let rows = comparison.run(&subjects, measure).await?;
    comparison.tell(rows, &PRESENTATION)
}

async fn speculate(
    cluster: &Cluster,
    arguments: &SpeculateArguments,
    paced: Paced,
    consumption: Consumption,
    duration: Duration,
) -> Result<Measured, Failure> {
    let clients = arguments.clients as usize;
    let mut logs = vec![];
    for _ in 0..clients {
        let log = cluster.log().await?;
        // The session is opened, and the connections made, before anything counts.
        log.append(stamped(paced.size, WARM_UP), Default::default()).await?;
        logs.push(log);
    }
    let (began, out) = (Instant::now(), Arc::new(Out::default()));
    let mut programs = JoinSet::new();
    for options in subscriptions(arguments.subscribe, consumption.shards) {
        let events = cluster.log().await?.subscribe(Position(0), options.speculative()).await?;
        let (told, batches) = mpsc::channel(BACKLOG);
        tokio::spawn(receive(events, told));
        let work = Work { timer: Timer::start()?, compute: consumption.compute, spins: arguments.spin };
        programs.spawn(Program::new(began, out.clone()).run(batches, work));
    }
    let (cpu, mut appending) = (cpu_time(), JoinSet::new());
    for (log, pace) in logs.into_iter().zip(Pace::split(paced.rate, clients, duration)?) {
        let payload = move |scheduled: Instant| stamped(paced.size, nanos_since(began, scheduled));
        appending.spawn(append_on_schedule(log, pace, payload));
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
    measured.figures.extend(found.figures(&appends));
    let empty = 1.0 - (count + clients as u64) as f64 / positions.max(1) as f64;
    measured.figures.insert(Figure::Empty, empty.max(0.0) * 100.0);
    measured.figures.insert(Figure::WrongSuspicions, wrong_suspicions(&client).await?);
    Ok(measured.or_shortfall(paced.rate))
}

/// The parts of the log that programs read: all of it one, or each shard another.
fn subscriptions(subscribers: Subscribers, shards: u32) -> Vec<SubscribeOptions> {
    match subscribers {
        Subscribers::All => vec![SubscribeOptions::default()],
        Subscribers::Shard => (0..shards).map(|shard| SubscribeOptions::default().shards([shard])).collect(),
    }
}

/// A payload that says when it should have been appended, in nanoseconds since the beginning.
fn stamped(size: usize, nanos: u64) -> Bytes {
    let mut payload = vec![7; size];
    payload[..STAMP_BYTES].copy_from_slice(&nanos.to_le_bytes());
    payload.into()
}

fn nanos_since(began: Instant, scheduled: Instant) -> u64 {
    u64::try_from((scheduled - began).as_nanos()).unwrap_or(WARM_UP - 1)
}

/// When a record should have been appended; nothing for one that does not count.
fn stamp_of(record: &StoredRecord, began: Instant) -> Option<Instant> {
    let stamp = record.payload().first_chunk::<STAMP_BYTES>().map(|bytes| u64::from_le_bytes(*bytes))?;
    (stamp != WARM_UP).then(|| began + Duration::from_nanos(stamp))
}

/// Notes when each event came, whatever the program is at.
async fn receive(mut events: Subscription, told: mpsc::Sender<(Instant, Event)>) -> Outcome {
    while let Some(event) = events.next().await {
        if told.send((Instant::now(), event?)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// How many results are out, over all programs.
#[derive(Debug, Default)]
struct Out {
    count: AtomicU64,
    changed: Notify,
    end: Notify,
}

impl Out {
    fn add(&self, count: u64) {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Waits until so many are out.
    async fn reaches(&self, wanted: u64) -> Outcome {
        let waits = async {
            while self.count.load(Ordering::Relaxed) < wanted {
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(OUT_WITHIN, waits).await.map_err(|_| {
            let count = self.count.load(Ordering::Relaxed);
            Failure::new(format!("{count} results of {wanted} records are out after {OUT_WITHIN:?}"))
        })
    }
}

/// The cost of computing on a batch.
struct Work {
    timer: Timer,
    compute: Duration,
    spins: bool,
}

impl Work {
    async fn perform(&self) {
        let until = Instant::now() + self.compute;
        if self.spins {
            tokio::task::block_in_place(|| {
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            });
        } else if !self.compute.is_zero() {
            self.timer.until(until).await;
        }
    }
}

/// The figures of a program.
#[derive(Clone, Debug, Default)]
struct Found {
    deliveries: Latencies,
    confirms: Latencies,
    results: Latencies,
    queued: Latencies,
    waited: Latencies,
    predicted: u64,
    failed: u64,
}

impl Found {
    fn merge(&mut self, other: &Self) {
        let Self { deliveries, confirms, results, queued, waited, predicted, failed } = other;
        self.deliveries.merge(deliveries);
        self.confirms.merge(confirms);
        self.results.merge(results);
        self.queued.merge(queued);
        self.waited.merge(waited);
        self.predicted += predicted;
        self.failed += failed;
    }

    fn figures(&self, appends: &Latencies) -> [(Figure, f64); 14] {
        let mean = |latencies: &Latencies| latencies.us_of(Figure::Mean);
        let share = self.predicted as f64 / self.deliveries.count().max(1) as f64;
        [
            (Figure::AppendP50, appends.us(0.5)),
            (Figure::AppendP99, appends.us(0.99)),
            (Figure::DeliveryP50, self.deliveries.us(0.5)),
            (Figure::DeliveryP99, self.deliveries.us(0.99)),
            (Figure::DeliveryMean, mean(&self.deliveries)),
            (Figure::ConfirmP50, self.confirms.us(0.5)),
            (Figure::ConfirmP99, self.confirms.us(0.99)),
            (Figure::ResultP50, self.results.us(0.5)),
            (Figure::ResultP99, self.results.us(0.99)),
            (Figure::ResultMean, mean(&self.results)),
            (Figure::QueueMean, mean(&self.queued)),
            (Figure::WaitMean, mean(&self.waited)),
            (Figure::Predicted, share * 100.0),
            (Figure::Failed, self.failed as f64),
        ]
    }
}

/// A record that was delivered, and is not confirmed.
#[derive(Clone, Copy, Debug)]
struct Delivered {
    position: Position,
    /// Nothing if it does not count.
    scheduled: Option<Instant>,
    at: Instant,
    confirmed: Option<Instant>,
    /// Once it was computed on.
    computed: Option<Instant>,
}

/// A program that computes ahead.
struct Program {
    began: Instant,
    out: Arc<Out>,
    /// In the order of positions; those that were computed on come first.
    delivered: VecDeque<Delivered>,
    found: Found,
}

impl Program {
    fn new(began: Instant, out: Arc<Out>) -> Self {
        Self { began, out, delivered: VecDeque::new(), found: Found::default() }
    }

    async fn run(mut self, mut told: mpsc::Receiver<(Instant, Event)>, work: Work) -> Result<Found, Failure> {
        let (out, mut batch) = (self.out.clone(), vec![]);
        let ends = out.end.notified();
        tokio::pin!(ends);
        loop {
            let came = tokio::select! {
                came = told.recv_many(&mut batch, BACKLOG) => came,
                () = &mut ends => return Ok(self.found),
            };
            if came == 0 {
                return Err(Failure::new("a subscription ended"));
            }
            batch.drain(..).for_each(|(at, event)| self.take(at, event));
            // Results of earlier records do not wait for the new ones.
            self.let_out();
            if self.delivered.iter().any(|delivered| delivered.computed.is_none()) {
                let begins = Instant::now();
                work.perform().await;
                self.computed(begins, Instant::now());
                self.let_out();
            }
        }
    }

    fn take(&mut self, at: Instant, event: Event) {
        match event {
            Event::Deliver { position, record, speculative, .. } => {
                let scheduled = stamp_of(&record, self.began);
                if let Some(scheduled) = scheduled {
                    self.found.deliveries.record_between(scheduled, at);
                    self.found.predicted += u64::from(speculative);
                }
                let delivered = Delivered { position, scheduled, at, confirmed: None, computed: None };
                self.delivered.push_back(delivered);
            }
            Event::Confirm { upto } => {
                for delivered in self.delivered.iter_mut().take_while(|delivered| delivered.position < upto) {
                    if delivered.confirmed.is_none()
                        && let Some(scheduled) = delivered.scheduled
                    {
                        self.found.confirms.record_between(scheduled, at);
                    }
                    delivered.confirmed.get_or_insert(at);
                }
            }
            Event::Fail { after } => {
                let standing = self.delivered.partition_point(|delivered| delivered.position < after);
                self.found.failed += (self.delivered.len() - standing) as u64;
                self.delivered.truncate(standing);
            }
            // Nothing is trimmed here.
            _ => {}
        }
    }

    /// All that had come was computed on, from `begins` to `ends`.
    fn computed(&mut self, begins: Instant, ends: Instant) {
        for delivered in self.delivered.iter_mut().filter(|delivered| delivered.computed.is_none()) {
            delivered.computed = Some(ends);
            if delivered.scheduled.is_some() {
                self.found.queued.record_between(delivered.at, begins);
            }
        }
    }

    /// Lets the results of what is computed and confirmed out.
    fn let_out(&mut self) {
        let (now, mut count) = (Instant::now(), 0);
        while let Some(Delivered { scheduled, confirmed: Some(_), computed: Some(computed), .. }) =
            self.delivered.front().copied()
        {
            self.delivered.pop_front();
            if let Some(scheduled) = scheduled {
                self.found.results.record_between(scheduled, now);
                self.found.waited.record_between(computed, now);
                count += 1;
            }
        }
        if count > 0 {
            self.out.add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_client::{RecordId, SessionId};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn deliver(began: Instant, position: u64, scheduled: Option<Instant>) -> Event {
        let stamp = scheduled.map_or(WARM_UP, |at| u64::try_from((at - began).as_nanos()).unwrap());
        let id = RecordId { session: SessionId(1), number: position };
        let record = StoredRecord::new(&stamped(16, stamp), 0);
        Event::Deliver { position: Position(position), id, record, speculative: true }
    }

    fn ms(latencies: &Latencies) -> (u64, f64) {
        (latencies.count(), (latencies.us(1.0) / 1e3).round())
    }

    #[test]
    fn a_result_is_out_when_it_is_computed_and_final_whichever_is_later() {
        let began = Instant::now() - 100 * MS;
        let mut program = Program::new(began, Arc::default());
        program.take(began, deliver(began, 0, None));
        program.take(began + 3 * MS, deliver(began, 1, Some(began + MS)));
        program.computed(began + 4 * MS, began + 5 * MS);
        program.let_out();
        assert_eq!(program.found.results.count(), 0, "nothing is final");
        program.take(began + 6 * MS, deliver(began, 2, Some(began + MS)));
        program.take(began + 9 * MS, Event::Confirm { upto: Position(3) });
        program.let_out();
        assert_eq!(program.found.results.count(), 1, "the last was not computed on");
        program.computed(began + 9 * MS, began + 10 * MS);
        program.let_out();
        let Found { deliveries, confirms, results, queued, predicted, .. } = &program.found;
        assert_eq!((ms(deliveries), ms(confirms)), ((2, 5.0), (2, 8.0)));
        assert_eq!((ms(queued), results.count(), *predicted), ((2, 3.0), 2, 2));
        assert_eq!(program.out.count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_fails_has_no_result() {
        let began = Instant::now() - 100 * MS;
        let mut program = Program::new(began, Arc::default());
        for position in 0..3 {
            program.take(began, deliver(began, position, Some(began)));
        }
        program.computed(began, began + MS);
        program.take(began + MS, Event::Fail { after: Position(1) });
        program.take(began + MS, Event::Confirm { upto: Position(9) });
        program.let_out();
        assert_eq!((program.found.failed, program.found.results.count()), (2, 1));
    }
}
