//! `seriatim bench grow`: appends per second while a shard is added to the log, after a third of
//! the time (LazyLog §6.9).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::{Append, Log, Order};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::chart::Chart;
use super::cluster::{Cluster, LOG};
use super::comparison::Comparison;
use super::figure::Figure;
use super::figures::{Measured, Timeline};
use super::presentation::Presentation;
use super::report::Subject;
use super::throughput::Load;
use crate::arguments::GrowArguments;
use crate::terminal::{Failure, Outcome};

/// Time of appends before the measurement.
const WARM_UP: Duration = Duration::from_millis(500);
/// Length of a point in the timeline.
const WHILE: Duration = Duration::from_millis(20);

const FIGURES: [Figure; 2] = [Figure::Rate, Figure::Gap];

pub(super) const PRESENTATION: Presentation = Presentation {
    figures: &FIGURES,
    remark: |_, table| table.remark("gap: the longest time without an acknowledgement"),
    charts: |rows| {
        let caption = "Appends acknowledged in each 20 ms; the log gets a second shard at 0";
        vec![Chart::timelines(caption, rows)]
    },
};

pub(super) async fn run(arguments: &GrowArguments) -> Outcome {
    let comparison = Comparison::new(&arguments.comparison)?;
    let loads = Load::all(&arguments.load);
    let orders = arguments.comparison.order.iter();
    let subjects: Vec<_> = orders
        .flat_map(|order| {
            let subject = |settings| Subject { name: order.to_string(), settings };
            loads.iter().map(move |(settings, load)| (subject(settings.clone()), (*order, *load)))
        })
        .collect();
    let measure = async |_: &Subject, (order, load): &(Order, Load)| {
        let cluster = Cluster::start(comparison.shape(*order, 1), &Handle::current()).await?;
        let measured = grow(&cluster, *load, comparison.duration).await?;
        cluster.stop().await?;
        Ok(measured)
    };
    let rows = comparison.run(&subjects, measure).await?;
    comparison.tell(rows, &PRESENTATION)
}

async fn grow(cluster: &Cluster, load: Load, duration: Duration) -> Result<Measured, Failure> {
    let client = cluster.client().await?;
    let (payload, from) = (Bytes::from(vec![7; load.size]), Instant::now() + WARM_UP);
    let mut tasks = JoinSet::new();
    for _ in 0..load.clients {
        let log = cluster.log().await?;
        tasks.spawn(append_until(log, load.in_flight as usize, payload.clone(), from + duration));
    }
    let added_at = from + duration / 3;
    tokio::time::sleep_until(added_at.into()).await;
    client.add_shard(LOG).await?;
    let mut acknowledged = vec![];
    while let Some(instants) = tasks.join_next().await {
        acknowledged.extend(instants??);
    }
    acknowledged.retain(|at| *at >= from);
    acknowledged.sort_unstable();
    let rate = acknowledged.len() as f64 / duration.as_secs_f64();
    let gap = acknowledged.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(duration);
    let mut measured = Measured::of([(Figure::Rate, rate), (Figure::Gap, gap.as_secs_f64() * 1e3)]);
    measured.timeline = timeline(&acknowledged, added_at, (from, from + duration), WHILE);
    Ok(measured)
}

/// Counts instants per interval `each` in `from..to`; times are relative to `zero`.
pub(super) fn timeline(
    instants: &[Instant],
    zero: Instant,
    (from, to): (Instant, Instant),
    each: Duration,
) -> Timeline {
    let ms = |at: Instant| (at - from).as_secs_f64() * 1e3 - (zero - from).as_secs_f64() * 1e3;
    let starts = (0..).map(|number| from + each * number).take_while(|start| *start + each <= to);
    let count = |start: Instant| instants.iter().filter(|at| (start..start + each).contains(at)).count();
    starts.map(|start| (ms(start), count(start) as f64)).collect()
}

async fn append_until(
    log: Log,
    in_flight: usize,
    payload: Bytes,
    stop: Instant,
) -> Result<Vec<Instant>, Failure> {
    let (mut acknowledged, mut window) = (vec![], VecDeque::<Append>::new());
    while Instant::now() < stop {
        while window.len() < in_flight {
            window.push_back(log.submit(payload.clone()).await?);
        }
        if let Some(append) = window.pop_front() {
            append.await?;
            acknowledged.push(Instant::now());
        }
    }
    for append in window {
        append.await?;
    }
    Ok(acknowledged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_counts_in_whiles_from_an_instant() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let counts =
            timeline(&[at(0), at(9), at(10), at(35)], at(20), (start, at(30)), Duration::from_millis(10));
        assert_eq!(counts, [(-20.0, 2.0), (-10.0, 1.0), (0.0, 0.0)]);
    }
}
