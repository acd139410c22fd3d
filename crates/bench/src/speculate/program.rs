//! A program that computes on records before they are final, and its timings.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use seriatim_client::{Event, Position, Subscription};
use seriatim_net::Timer;
use tokio::sync::{Notify, mpsc};

use super::BACKLOG;
use crate::figure::Figure;
use crate::figures::Timeline;
use crate::latencies::Latencies;
use crate::stamp::stamp_of;
use crate::terminal::{Failure, Outcome};
use crate::thirds::{Part, Thirds};

/// Time limit for all results after the last acknowledgement.
const OUT_WITHIN: Duration = Duration::from_secs(30);
/// Length of a point in the timeline, in milliseconds.
const WHILE_MS: u64 = 50;

/// Receives events with their times of arrival, even while the program computes.
pub(super) async fn receive(mut events: Subscription, told: mpsc::Sender<(Instant, Event)>) -> Outcome {
    while let Some(event) = events.next().await {
        if told.send((Instant::now(), event?)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The figure for the mean time until results, of records in this part.
fn result_in(part: Part) -> Figure {
    match part {
        Part::Before => Figure::ResultBefore,
        Part::During => Figure::ResultDuring,
        Part::After => Figure::ResultAfter,
    }
}

/// Number of released results, over all programs.
#[derive(Debug, Default)]
pub(super) struct Out {
    count: AtomicU64,
    changed: Notify,
    pub(super) end: Notify,
}

impl Out {
    fn add(&self, count: u64) {
        self.count.fetch_add(count, Ordering::Relaxed);
        self.changed.notify_one();
    }

    pub(super) async fn reaches(&self, wanted: u64) -> Outcome {
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

pub(super) struct Work {
    pub(super) timer: Timer,
    pub(super) compute: Duration,
    pub(super) spins: bool,
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

#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) deliveries: Latencies,
    confirms: Latencies,
    pub(super) results: Latencies,
    /// Times until results, by the part in which their appends were scheduled.
    parts: BTreeMap<Part, Latencies>,
    /// Number of results, and sum of their times in milliseconds, by interval.
    whiles: BTreeMap<i64, (u64, f64)>,
    queued: Latencies,
    computing: Latencies,
    waited: Latencies,
    predicted: u64,
    failed: u64,
}

impl Found {
    pub(super) fn merge(&mut self, other: &Self) {
        let Self { deliveries, confirms, results, parts, whiles, .. } = other;
        let Self { queued, computing, waited, predicted, failed, .. } = other;
        self.deliveries.merge(deliveries);
        self.confirms.merge(confirms);
        self.results.merge(results);
        self.queued.merge(queued);
        self.computing.merge(computing);
        self.waited.merge(waited);
        self.predicted += predicted;
        self.failed += failed;
        for (part, results) in parts {
            self.parts.entry(*part).or_default().merge(results);
        }
        for (number, (count, sum)) in whiles {
            let (more, added) = self.whiles.entry(*number).or_default();
            (*more, *added) = (*more + count, *added + sum);
        }
    }

    pub(super) fn figures(&self, appends: &Latencies) -> Vec<(Figure, f64)> {
        let mean = |latencies: &Latencies| latencies.us_of(Figure::Mean);
        let share = self.predicted as f64 / self.deliveries.count().max(1) as f64;
        let mut figures = vec![
            (Figure::AppendP50, appends.us(0.5)),
            (Figure::AppendP99, appends.us(0.99)),
            (Figure::AppendMean, mean(appends)),
            (Figure::DeliveryP50, self.deliveries.us(0.5)),
            (Figure::DeliveryP99, self.deliveries.us(0.99)),
            (Figure::DeliveryMean, mean(&self.deliveries)),
            (Figure::ConfirmP50, self.confirms.us(0.5)),
            (Figure::ConfirmP99, self.confirms.us(0.99)),
            (Figure::ConfirmMean, mean(&self.confirms)),
            (Figure::ResultP50, self.results.us(0.5)),
            (Figure::ResultP99, self.results.us(0.99)),
            (Figure::ResultMean, mean(&self.results)),
            (Figure::QueueMean, mean(&self.queued)),
            (Figure::ComputeMean, mean(&self.computing)),
            (Figure::WaitMean, mean(&self.waited)),
            (Figure::Predicted, share * 100.0),
            (Figure::Failed, self.failed as f64),
        ];
        figures.extend(self.parts.iter().map(|(part, results)| (result_in(*part), mean(results))));
        figures
    }

    /// Mean time until a result in each interval, in milliseconds.
    pub(super) fn timeline(&self) -> Timeline {
        let of = |(number, (count, sum)): (&i64, &(u64, f64))| {
            ((*number * WHILE_MS as i64) as f64, sum / (*count).max(1) as f64)
        };
        self.whiles.iter().map(of).collect()
    }

    fn note_result(&mut self, scheduled: Instant, now: Instant, thirds: Option<Thirds>) {
        self.results.record_between(scheduled, now);
        let Some(thirds) = thirds else { return };
        self.parts.entry(thirds.part(scheduled)).or_default().record_between(scheduled, now);
        let (count, sum) =
            self.whiles.entry(thirds.ms_since(scheduled).div_euclid(WHILE_MS as i64)).or_default();
        *count += 1;
        *sum += now.saturating_duration_since(scheduled).as_secs_f64() * 1e3;
    }
}

#[derive(Clone, Copy, Debug)]
struct Delivered {
    position: Position,
    /// `None`: a warm-up record.
    scheduled: Option<Instant>,
    at: Instant,
    confirmed: Option<Instant>,
    /// When its computation ended.
    computed: Option<Instant>,
}

/// A program that computes on records before they are final.
pub(super) struct Program {
    began: Instant,
    /// Thirds of the measurement, if there is a disturbance.
    thirds: Option<Thirds>,
    out: Arc<Out>,
    /// Records by position whose results are not released; computed ones come first.
    delivered: VecDeque<Delivered>,
    found: Found,
}

impl Program {
    pub(super) fn new(began: Instant, thirds: Option<Thirds>, out: Arc<Out>) -> Self {
        Self { began, thirds, out, delivered: VecDeque::new(), found: Found::default() }
    }

    pub(super) async fn run(
        mut self,
        mut told: mpsc::Receiver<(Instant, Event)>,
        work: Work,
    ) -> Result<Found, Failure> {
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
            // Release earlier results before computing: they do not wait for new records.
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
                let scheduled = stamp_of(&record.payload(), self.began);
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

    fn computed(&mut self, begins: Instant, ends: Instant) {
        for delivered in self.delivered.iter_mut().filter(|delivered| delivered.computed.is_none()) {
            delivered.computed = Some(ends);
            if delivered.scheduled.is_some() {
                self.found.queued.record_between(delivered.at, begins);
                self.found.computing.record_between(begins, ends);
            }
        }
    }

    /// Releases computed and confirmed results.
    fn let_out(&mut self) {
        let (now, mut count) = (Instant::now(), 0);
        while let Some(Delivered { scheduled, confirmed: Some(_), computed: Some(computed), .. }) =
            self.delivered.front().copied()
        {
            self.delivered.pop_front();
            if let Some(scheduled) = scheduled {
                self.found.note_result(scheduled, now, self.thirds);
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
    use seriatim_client::{RecordId, SessionId, StoredRecord};

    use super::*;
    use crate::stamp::{WARM_UP, stamped};

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
        let mut program = Program::new(began, None, Arc::default());
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
    fn each_result_counts_in_the_part_in_which_its_append_should_have_begun() {
        let (began, third) = (Instant::now() - 1000 * MS, 300 * MS);
        let mut program = Program::new(began, Some(Thirds::new(began, 3 * third)), Arc::default());
        for (position, at) in (0..).zip([0, 299, 300, 599, 600]) {
            program.take(began + at * MS, deliver(began, position, Some(began + at * MS)));
        }
        program.computed(began, began);
        program.take(began + 900 * MS, Event::Confirm { upto: Position(5) });
        program.let_out();
        let counts: Vec<u64> = program.found.parts.values().map(Latencies::count).collect();
        assert_eq!(counts, [2, 2, 1]);
        let timeline = program.found.timeline();
        let whiles: Vec<f64> = timeline.iter().map(|(at, _)| *at).collect();
        assert_eq!(whiles, [-300.0, -50.0, 0.0, 250.0, 300.0]);
        assert!(timeline[0].1 >= 1000.0 && timeline[4].1 < timeline[0].1, "{timeline:?}");
    }

    #[test]
    fn what_fails_has_no_result() {
        let began = Instant::now() - 100 * MS;
        let mut program = Program::new(began, None, Arc::default());
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
