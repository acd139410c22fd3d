//! What a benchmark reports.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::output::{Failure, Outcome};

/// Latencies of one row, in nanoseconds.
pub(super) struct Latencies {
    histogram: Histogram<u64>,
}

impl Latencies {
    pub(super) fn new() -> Self {
        Self {
            histogram: Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are in order"),
        }
    }

    pub(super) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos.max(1));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    fn us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1000.0
    }
}

/// One row of figures: the floor, or an ordering.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) max_us: f64,
    pub(super) mean_us: f64,
    pub(super) rate_per_s: f64,
    pub(super) cpu_s_per_million: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) floor_ratio_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stable_lag_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

impl Row {
    pub(super) fn new(
        name: &str,
        latencies: &Latencies,
        rate_per_s: f64,
        cpu: Duration,
        appends: u64,
    ) -> Self {
        Self {
            name: name.to_owned(),
            p50_us: latencies.us(0.5),
            p90_us: latencies.us(0.9),
            p99_us: latencies.us(0.99),
            p999_us: latencies.us(0.999),
            max_us: latencies.histogram.max() as f64 / 1000.0,
            mean_us: latencies.histogram.mean() / 1000.0,
            rate_per_s,
            cpu_s_per_million: cpu.as_secs_f64() * 1e6 / appends.max(1) as f64,
            ..Self::default()
        }
    }
}

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(super) struct Report<R> {
    command: String,
    pub(super) machine: String,
    commit: String,
    pub(super) rows: Vec<R>,
}

impl<R: Serialize> Report<R> {
    pub(super) fn new(rows: Vec<R>) -> Self {
        let command: Vec<String> = std::env::args().skip(1).collect();
        Self {
            command: format!("seriatim {}", command.join(" ")),
            machine: machine(),
            commit: env!("SERIATIM_COMMIT").to_owned(),
            rows,
        }
    }

    pub(super) fn write(&self, path: &Path) -> Outcome {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text + "\n")
            .map_err(|cause| Failure::new(format!("{}: {cause}", path.display())))
    }
}

impl Report<Row> {
    /// Compares every row with the first, the floor.
    pub(super) fn compared_with_the_first(mut rows: Vec<Row>) -> Self {
        let floor = rows.first().map_or(0.0, |row| row.p50_us);
        for row in rows.iter_mut().skip(1).filter(|row| row.p50_us > 0.0 && floor > 0.0) {
            row.floor_ratio_p50 = Some(row.p50_us / floor);
        }
        Self::new(rows)
    }

    pub(super) fn print(&self) {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        let names = [
            "", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us", "rate/s", "cpu s/M", "x floor", "lag ms",
        ];
        table.set_header(names);
        for row in &self.rows {
            let optional =
                |figure: Option<f64>| figure.map_or(String::from("-"), |figure| format!("{figure:.2}"));
            table.add_row([
                row.name.clone(),
                format!("{:.1}", row.p50_us),
                format!("{:.1}", row.p90_us),
                format!("{:.1}", row.p99_us),
                format!("{:.1}", row.p999_us),
                format!("{:.1}", row.max_us),
                format!("{:.0}", row.rate_per_s),
                format!("{:.2}", row.cpu_s_per_million),
                optional(row.floor_ratio_p50),
                optional(row.stable_lag_ms),
            ]);
        }
        crate::output::print_line(&table);
        for row in &self.rows {
            if let Some(note) = &row.note {
                crate::output::print_line(format_args!("{}: {note}", row.name));
            }
        }
        crate::output::print_line(format_args!("{}", self.machine));
    }
}

/// The processor and how much of it there is.
fn machine() -> String {
    let cores = cores();
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    format!("{cores} cores, {}", model.map_or("unknown processor", |(_, model)| model.trim()))
}

/// How many processors there are for this process.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The middle one of some figures.
pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

/// The processor time that this process has used.
pub(super) fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks_of(&stat).1
}

/// The processor time of each kind of thread, by its name. Threads that have ended are not in it.
pub(super) fn cpu_time_of_threads() -> BTreeMap<String, Duration> {
    let mut times = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let (name, time) = ticks_of(&stat);
        *times.entry(name.to_owned()).or_default() += time;
    }
    times
}

/// The time that the processors had nothing to do, of all of them together.
pub(super) fn idle_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // Of the first line: after user, nice and system time, that without work and that in which a disk had some.
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(4).take(2);
    Duration::from_millis(fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * 10)
}

/// The name and the processor time in a line of `stat`.
fn ticks_of(stat: &str) -> (&str, Duration) {
    // Fields 14 and 15, counted after the name in parentheses; in ticks of 10 ms.
    let (name, fields) = stat.rsplit_once(')').unwrap_or_default();
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    (name.split_once('(').map_or(name, |(_, name)| name), Duration::from_millis(ticks * 10))
}
