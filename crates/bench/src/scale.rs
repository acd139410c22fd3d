//! `seriatim bench scale`: the gain of more shards, and the ceiling. Nodes and clients have
//! separate runtimes, so that thread names separate their processor time.

use std::time::{Duration, Instant};

use seriatim_client::Order;
use tokio::runtime::Builder;

use super::chart::Chart;
use super::cluster::Cluster;
use super::comparison::Comparison;
use super::figure::{Figure, Setting};
use super::figures::{Figures, Measured};
use super::machine::{cores, cpu_time_of_threads, idle_time};
use super::presentation::Presentation;
use super::report::{Row, Subject};
use super::table::Table;
use super::throughput::{Load, floor, load};
use crate::arguments::ScaleArguments;
use crate::terminal::{Failure, Outcome};

const NODES: &str = "nodes";
/// Name of the clients' threads, which are the command's own threads.
const CLIENTS: &str = "seriatim";
/// If less than this fraction of the processors is idle, they are the limit.
const IDLE: f64 = 0.1;

const FIGURES: [Figure; 10] = [
    Figure::Rate,
    Figure::Cpu,
    Figure::StableLagP50,
    Figure::StableLag,
    Figure::Own,
    Figure::Nodes,
    Figure::Clients,
    Figure::Others,
    Figure::Idle,
    Figure::Foreign,
];

pub(super) const PRESENTATION: Presentation = Presentation {
    figures: &FIGURES,
    remark,
    charts: |rows| {
        let caption = "Stable records per second by the number of shards";
        vec![Chart::lines(caption, rows, Setting::Shards, Figure::Rate)]
    },
};

pub(super) async fn run(arguments: &ScaleArguments) -> Outcome {
    let comparison = Comparison::new(&arguments.comparison)?;
    let told = |shards: &u32| ([(Setting::Shards, f64::from(*shards))].into(), *shards);
    let shards: Vec<_> = arguments.shards.0.iter().map(told).collect();
    let subjects = comparison.subjects(&Load::all(&arguments.load), &shards);
    let measure = async |_: &Subject, (how, setting): &(Load, Option<(Order, u32)>)| {
        let nodes = Builder::new_multi_thread().thread_name(NODES).enable_all().build()?;
        let used = Used::now();
        let measured = match setting {
            None => floor(&comparison, *how, nodes.handle()).await.map(|floor| (floor, used.since())),
            Some((order, shards)) => {
                let cluster = Cluster::start(comparison.shape(*order, *shards), nodes.handle()).await?;
                let used = Used::now();
                let measured = load(&cluster, *how, comparison.duration).await?;
                let used = used.since();
                cluster.stop().await?;
                Ok((measured, used))
            }
        };
        nodes.shutdown_background();
        let (mut measured, used): (Measured, Figures) = measured?;
        measured.figures.extend(used);
        Ok::<_, Failure>(measured)
    };
    let rows = comparison.run(&subjects, measure).await?;
    comparison.tell(rows, &PRESENTATION)
}

struct Used {
    at: Instant,
    threads: std::collections::BTreeMap<String, Duration>,
    idle: Duration,
}

impl Used {
    fn now() -> Self {
        Self { threads: cpu_time_of_threads(), idle: idle_time(), at: Instant::now() }
    }

    /// Processor use since `self` was taken, in percent of one processor.
    fn since(&self) -> Figures {
        let now = Self::now();
        let elapsed = (now.at - self.at).as_secs_f64();
        let percent = |time: Duration| time.as_secs_f64() / elapsed * 100.0;
        let (mut nodes, mut clients, mut others) = (0.0, 0.0, 0.0);
        for (name, time) in &now.threads {
            let used = percent(time.saturating_sub(self.threads.get(name).copied().unwrap_or_default()));
            match name.as_str() {
                NODES => nodes += used,
                CLIENTS => clients += used,
                _ => others += used,
            }
        }
        let (own, idle) = (nodes + clients + others, percent(now.idle.saturating_sub(self.idle)));
        let foreign = (all_percent() - own - idle).max(0.0);
        Figures::from([
            (Figure::Own, own),
            (Figure::Nodes, nodes),
            (Figure::Clients, clients),
            (Figure::Others, others),
            (Figure::Idle, idle),
            (Figure::Foreign, foreign),
        ])
    }
}

/// Processor capacity of the machine that measured the row, in percent of one processor.
fn total_percent(row: &Row) -> Option<f64> {
    let parts = [Figure::Own, Figure::Idle, Figure::Foreign].map(|part| row.median(part));
    let total = parts.into_iter().sum::<Option<f64>>()?;
    Some((total / 100.0).round() * 100.0)
}

/// Processor capacity of this machine.
fn all_percent() -> f64 {
    cores() as f64 * 100.0
}

fn remark(rows: &[Row], table: &mut Table) {
    // Take the capacity from the rows, which may come from another machine.
    let all = rows.iter().filter_map(total_percent).fold(f64::NAN, f64::max);
    let median = |row: &Row, figure| row.spread(figure).map_or(0.0, |spread| spread.p50);
    let busy = rows.iter().filter(|row| median(row, Figure::Idle) < all * IDLE).count();
    table.remark("per s: exchanges of the floor, stable records of the others");
    table.remark(format_args!(
        "the processors ({all:.0} %) are the ceiling of {busy} of {} rows; nodes and clients share them",
        rows.len()
    ));
    if rows.iter().any(|row| median(row, Figure::Foreign) > all * IDLE) {
        table.remark("other processes used them meanwhile (foreign %): only a calm machine shows a ceiling");
    }
}
