//! `seriatim bench scale`: what more shards bring, and where the ceiling is.
//!
//! The nodes and the clients have runtimes of their own in this process, so that their processor time can be
//! told apart by the names of their threads. Orderings and numbers of shards are measured in turn, each time on
//! a fresh cluster; figures are medians.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::figures::{Report, cores, cpu_time_of_threads, idle_time, median};
use super::throughput::{Load, throughput};
use super::{Cluster, Shape};
use crate::arguments::ScaleArguments;
use crate::output::{Failure, Outcome, print_line, progress};

/// The name of the nodes' threads.
const NODES: &str = "nodes";
/// The name of the clients' threads, which are those of the command itself.
const CLIENTS: &str = "seriatim";
/// Below this part of idle time the processors are the ceiling.
const IDLE: f64 = 0.1;

/// One ordering with one number of shards.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    shards: u32,
    /// Records that became stable; the median, and those of all rounds.
    rate_per_s: f64,
    rates_per_s: Vec<f64>,
    cpu_s_per_million: f64,
    stable_lag_ms: f64,
    /// How much of one processor was used, by all of the process; more than 100 on more than one.
    cpu_percent: f64,
    /// The same, by the nodes' threads, by the clients', and by those that write journals and the rest.
    nodes_percent: f64,
    clients_percent: f64,
    others_percent: f64,
    /// What other processes left unused; and what they used.
    idle_percent: f64,
    foreign_percent: f64,
}

/// What one round found.
struct Round {
    rate: f64,
    cpu_s_per_million: f64,
    stable_lag_ms: f64,
    /// Percent of one processor, by the names of threads.
    percents: BTreeMap<String, f64>,
    idle_percent: f64,
}

pub(super) async fn run(arguments: &ScaleArguments) -> Outcome {
    let cells: Vec<Shape> = arguments
        .order
        .iter()
        .flat_map(|order| arguments.shards.iter().map(move |shards| (*order, *shards)))
        .map(|(order, shards)| {
            let ScaleArguments { durability, replicas, .. } = *arguments;
            Shape { order, durability, shards, replicas }
        })
        .collect();
    let bar = progress(Some(cells.len() as u64 * u64::from(arguments.rounds)), "rounds");
    let mut rounds: Vec<Vec<Round>> = cells.iter().map(|_| vec![]).collect();
    for _ in 0..arguments.rounds {
        for (shape, rounds) in cells.iter().zip(&mut rounds) {
            rounds.push(round(*shape, arguments).await?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let rows = cells.iter().zip(rounds).map(|(shape, rounds)| row(*shape, rounds)).collect();
    let report = Report::new(rows);
    print(&report);
    arguments.json.as_deref().map_or(Ok(()), |path| report.write(path))
}

async fn round(shape: Shape, arguments: &ScaleArguments) -> Result<Round, Failure> {
    let nodes = tokio::runtime::Builder::new_multi_thread().thread_name(NODES).enable_all().build()?;
    let cluster = Cluster::start(shape, nodes.handle()).await?;
    let ScaleArguments { clients, in_flight, size, .. } = *arguments;
    let load = Load { clients, in_flight, size, duration: Duration::from_secs(arguments.duration) };
    let (before, idle, began) = (cpu_time_of_threads(), idle_time(), Instant::now());
    let row = throughput(&cluster, "", load).await?;
    let (after, idle, elapsed) = (cpu_time_of_threads(), idle_time() - idle, began.elapsed());
    let percent = |time: Duration| time.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    let used = |(name, time): (String, Duration)| {
        let used = time.saturating_sub(before.get(&name).copied().unwrap_or_default());
        (name, percent(used))
    };
    let percents = after.into_iter().map(used).collect();
    cluster.dev.stop().await?;
    nodes.shutdown_background();
    Ok(Round {
        rate: row.rate_per_s,
        cpu_s_per_million: row.cpu_s_per_million,
        stable_lag_ms: row.stable_lag_ms.unwrap_or_default(),
        percents,
        idle_percent: percent(idle),
    })
}

fn row(shape: Shape, rounds: Vec<Round>) -> Row {
    let of = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let named = |name: &'static str| of(&move |round| round.percents.get(name).copied().unwrap_or_default());
    let others = |round: &Round| {
        let rest = round.percents.iter().filter(|(name, _)| *name != NODES && *name != CLIENTS);
        rest.map(|(_, percent)| percent).sum()
    };
    Row {
        name: shape.order.to_string(),
        shards: shape.shards,
        rate_per_s: of(&|round| round.rate),
        rates_per_s: rounds.iter().map(|round| round.rate).collect(),
        cpu_s_per_million: of(&|round| round.cpu_s_per_million),
        stable_lag_ms: of(&|round| round.stable_lag_ms),
        cpu_percent: of(&|round| round.percents.values().sum()),
        nodes_percent: named(NODES),
        clients_percent: named(CLIENTS),
        others_percent: of(&others),
        idle_percent: of(&|round| round.idle_percent),
        foreign_percent: of(&|round| {
            let own: f64 = round.percents.values().sum();
            (all_percent() - own - round.idle_percent).max(0.0)
        }),
    }
}

/// What all processors together can do.
fn all_percent() -> f64 {
    cores() as f64 * 100.0
}

fn print(report: &Report<Row>) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    let names = [
        "",
        "shards",
        "stable/s",
        "least",
        "most",
        "cpu s/M",
        "lag ms",
        "cpu %",
        "nodes %",
        "clients %",
        "others %",
        "idle %",
        "foreign %",
    ];
    table.set_header(names);
    for row in &report.rows {
        let extreme = |pick: fn(f64, f64) -> f64| row.rates_per_s.iter().copied().reduce(pick);
        table.add_row([
            row.name.clone(),
            row.shards.to_string(),
            format!("{:.0}", row.rate_per_s),
            format!("{:.0}", extreme(f64::min).unwrap_or_default()),
            format!("{:.0}", extreme(f64::max).unwrap_or_default()),
            format!("{:.2}", row.cpu_s_per_million),
            format!("{:.1}", row.stable_lag_ms),
            format!("{:.0}", row.cpu_percent),
            format!("{:.0}", row.nodes_percent),
            format!("{:.0}", row.clients_percent),
            format!("{:.0}", row.others_percent),
            format!("{:.0}", row.idle_percent),
            format!("{:.0}", row.foreign_percent),
        ]);
    }
    print_line(&table);
    let all = all_percent();
    let busy = report.rows.iter().filter(|row| row.idle_percent < all * IDLE).count();
    print_line(format_args!(
        "the processors ({all:.0} %) are the ceiling of {busy} of {} rows; nodes and clients share them",
        report.rows.len()
    ));
    if report.rows.iter().any(|row| row.foreign_percent > all * IDLE) {
        print_line("other processes used them meanwhile (foreign %): only a calm machine shows a ceiling");
    }
    print_line(&report.machine);
}
