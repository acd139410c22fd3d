//! What a benchmark reports.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::machine::machine;
use crate::output::{Failure, Outcome};

/// Latencies, and from when to when they were found.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    /// In nanoseconds.
    histogram: Histogram<u64>,
    span: Option<(Instant, Instant)>,
}

impl Latencies {
    pub(super) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are in order");
        Self { histogram, span: None }
    }

    /// Something that should have begun at `since` is done.
    pub(super) fn record(&mut self, since: Instant) {
        self.record_between(since, Instant::now());
    }

    pub(super) fn record_between(&mut self, since: Instant, done: Instant) {
        let nanos = u64::try_from(done.saturating_duration_since(since).as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos.max(1));
        self.extend_span((done, done));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
        if let Some(span) = other.span {
            self.extend_span(span);
        }
    }

    fn extend_span(&mut self, (from, to): (Instant, Instant)) {
        let (first, last) = self.span.unwrap_or((from, to));
        self.span = Some((first.min(from), last.max(to)));
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// How many were done per second, from the first to the last: how long each took is not in it.
    pub(super) fn rate(&self) -> f64 {
        let took = self.span.map_or(Duration::ZERO, |(first, last)| last - first);
        if took.is_zero() { 0.0 } else { (self.count() - 1) as f64 / took.as_secs_f64() }
    }

    /// In microseconds; `quantile` is from 0 to 1.
    pub(super) fn us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1000.0
    }

    fn us_of(&self, figure: Figure) -> f64 {
        match figure {
            Figure::P50 => self.us(0.5),
            Figure::P90 => self.us(0.9),
            Figure::P99 => self.us(0.99),
            Figure::P999 => self.us(0.999),
            Figure::Max => self.us(1.0),
            _ => self.histogram.mean() / 1000.0,
        }
    }
}

/// What can be found out about a subject. In this order they are printed; the names are those in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Figure {
    #[serde(rename = "p50_us")]
    P50,
    #[serde(rename = "p90_us")]
    P90,
    #[serde(rename = "p99_us")]
    P99,
    #[serde(rename = "p999_us")]
    P999,
    #[serde(rename = "max_us")]
    Max,
    #[serde(rename = "mean_us")]
    Mean,
    /// What was done per second.
    #[serde(rename = "rate_per_s")]
    Rate,
    #[serde(rename = "cpu_s_per_million")]
    Cpu,
    #[serde(rename = "floor_ratio_p50")]
    P50OfFloor,
    #[serde(rename = "floor_ratio_p90")]
    P90OfFloor,
    #[serde(rename = "floor_ratio_p99")]
    P99OfFloor,
    #[serde(rename = "floor_ratio_p999")]
    P999OfFloor,
    #[serde(rename = "floor_ratio_max")]
    MaxOfFloor,
    #[serde(rename = "floor_ratio_mean")]
    MeanOfFloor,
    /// How long everything acknowledged took to become stable.
    #[serde(rename = "stable_lag_ms")]
    StableLag,
    /// An append and the read of its record.
    #[serde(rename = "append_and_read_p50_us")]
    BothP50,
    #[serde(rename = "append_and_read_p99_us")]
    BothP99,
    /// How much of one processor was used, by all of the process; more than 100 on more than one.
    #[serde(rename = "cpu_percent")]
    Own,
    /// The same by the nodes' threads, by the clients', and by those that write journals and the rest.
    #[serde(rename = "nodes_percent")]
    Nodes,
    #[serde(rename = "clients_percent")]
    Clients,
    #[serde(rename = "others_percent")]
    Others,
    /// What nobody used; and what other processes did.
    #[serde(rename = "idle_percent")]
    Idle,
    #[serde(rename = "foreign_percent")]
    Foreign,
}

/// Latencies, each with its multiple of the floor's.
pub(super) const LATENCIES: [(Figure, Figure); 6] = [
    (Figure::P50, Figure::P50OfFloor),
    (Figure::P90, Figure::P90OfFloor),
    (Figure::P99, Figure::P99OfFloor),
    (Figure::P999, Figure::P999OfFloor),
    (Figure::Max, Figure::MaxOfFloor),
    (Figure::Mean, Figure::MeanOfFloor),
];

impl Figure {
    /// What stands over its column.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::P50 => "p50 us",
            Self::P90 => "p90 us",
            Self::P99 => "p99 us",
            Self::P999 => "p99.9 us",
            Self::Max => "max us",
            Self::Mean => "mean us",
            Self::Rate => "per s",
            Self::Cpu => "cpu s/M",
            Self::P50OfFloor
            | Self::P90OfFloor
            | Self::P99OfFloor
            | Self::P999OfFloor
            | Self::MaxOfFloor
            | Self::MeanOfFloor => "x floor",
            Self::StableLag => "lag ms",
            Self::BothP50 => "both p50 us",
            Self::BothP99 => "both p99 us",
            Self::Own => "cpu %",
            Self::Nodes => "nodes %",
            Self::Clients => "clients %",
            Self::Others => "others %",
            Self::Idle => "idle %",
            Self::Foreign => "foreign %",
        }
    }

    /// A value of it, as it is printed; nothing is known of one that is not finite.
    pub(super) fn show(self, value: f64) -> String {
        let decimals = match self {
            _ if !value.is_finite() => return "-".to_owned(),
            Self::Rate | Self::Own | Self::Nodes | Self::Clients => 0,
            Self::Others | Self::Idle | Self::Foreign => 0,
            Self::Cpu | Self::StableLag => 2,
            _ if self.heading() == "x floor" => 2,
            _ => 1,
        };
        format!("{value:.decimals$}")
    }
}

/// What one round found out about one subject. A latency is infinite if the rate was not reached, since then it
/// says nothing.
pub(super) type Figures = BTreeMap<Figure, f64>;

/// One subject in one round.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) figures: Figures,
    pub(super) latencies: Latencies,
    /// What was reached instead of the rate that was asked for.
    pub(super) shortfall: Option<String>,
}

/// Below this part of the rate that was asked for, a latency is not worth its name.
const REACHED: f64 = 0.98;

impl Measured {
    /// `rate` is how many were done per second, which took `cpu` for `count` of them.
    pub(super) fn new(latencies: Latencies, rate: f64, cpu: Duration, count: u64) -> Self {
        let mut figures: Figures =
            LATENCIES.into_iter().map(|(figure, _)| (figure, latencies.us_of(figure))).collect();
        figures.insert(Figure::Rate, rate);
        figures.insert(Figure::Cpu, cpu.as_secs_f64() * 1e6 / count.max(1) as f64);
        Self { figures, latencies, shortfall: None }
    }

    /// Of arrivals on a schedule: if fewer were done than came, there are no latencies.
    pub(super) fn scheduled(latencies: Latencies, rate: u64, cpu: Duration) -> Self {
        let (reached, count) = (latencies.rate(), latencies.count());
        let mut measured = Self::new(latencies, reached, cpu, count);
        if reached < rate as f64 * REACHED {
            measured.shortfall = Some(format!("reached only {reached:.0} of {rate} per s"));
            measured.figures.extend(LATENCIES.map(|(figure, _)| (figure, f64::INFINITY)));
        }
        measured
    }

    /// Of a closed loop: as many as there was time for.
    pub(super) fn closed(latencies: Latencies, cpu: Duration) -> Self {
        let (reached, count) = (latencies.rate(), latencies.count());
        Self::new(latencies, reached, cpu, count)
    }

    /// Adds how many times as much as the floor each latency is.
    pub(super) fn compare_with(&mut self, floor: &Figures) {
        for (figure, ratio) in LATENCIES {
            let (Some(own), Some(floor)) = (self.figures.get(&figure), floor.get(&figure)) else { continue };
            // Compared with a floor that is none, nothing is known.
            let multiple = if floor.is_finite() && *floor > 0.0 { own / floor } else { f64::NAN };
            self.figures.insert(ratio, multiple);
        }
    }
}

/// Median, least and most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) p50: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// None of no figures. What is infinite or not known counts as the most.
    pub(super) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let known = |figure: f64| if figure.is_nan() { f64::INFINITY } else { figure };
        let mut figures: Vec<f64> = figures.into_iter().map(known).collect();
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let (low, high) = (figures[(figures.len() - 1) / 2], figures[figures.len() / 2]);
        Some(Self { p50: f64::midpoint(low, high), min, max })
    }
}

/// What is measured beside others: the floor, or an ordering in some setting.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Subject {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shards: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lag_ms: Option<f64>,
}

impl Subject {
    pub(super) fn named(name: impl ToString) -> Self {
        Self { name: name.to_string(), ..Self::default() }
    }

    /// All of it, for people.
    pub(super) fn label(&self) -> String {
        let shards = self.shards.map(|shards| match shards {
            1 => ", 1 shard".to_owned(),
            shards => format!(", {shards} shards"),
        });
        let lag = self.lag_ms.map(|lag| format!(", lag {lag} ms"));
        [Some(self.name.clone()), shards, lag].into_iter().flatten().collect()
    }
}

/// What all rounds found out about one subject.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) subject: Subject,
    /// The medians.
    #[serde(flatten)]
    figures: Figures,
    rounds: Vec<Figures>,
    /// What is not to be believed, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    /// Those of all rounds together.
    #[serde(skip)]
    pub(super) latencies: Latencies,
}

impl Row {
    pub(super) fn new(subject: Subject, rounds: Vec<Measured>) -> Self {
        let mut latencies = Latencies::new();
        let mut shortfalls = vec![];
        for (round, number) in rounds.iter().zip(1..) {
            latencies.merge(&round.latencies);
            shortfalls.extend(round.shortfall.iter().map(|shortfall| format!("round {number} {shortfall}")));
        }
        let note = (!shortfalls.is_empty()).then(|| format!("{}: no latency", shortfalls.join(", ")));
        let rounds: Vec<Figures> = rounds.into_iter().map(|round| round.figures).collect();
        let mut row = Self { subject, figures: Figures::new(), rounds, note, latencies };
        let known = row.rounds.first().into_iter().flat_map(|figures| figures.keys().copied());
        row.figures = known.filter_map(|figure| Some((figure, row.spread(figure)?.p50))).collect();
        row
    }

    /// Over the rounds, if it was measured.
    pub(super) fn spread(&self, figure: Figure) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|figures| figures.get(&figure).copied()))
    }

    pub(super) fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// Whether most rounds have latencies.
    pub(super) fn has_latency(&self) -> bool {
        self.figures.get(&Figure::P50).is_some_and(|p50| p50.is_finite())
    }
}

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(super) struct Report<R> {
    pub(super) command: String,
    pub(super) machine: String,
    pub(super) commit: String,
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

    /// Writes it as JSON, if that is wanted.
    pub(super) fn write(&self, path: Option<&Path>) -> Outcome {
        let Some(path) = path else { return Ok(()) };
        write_file(path, &(serde_json::to_string_pretty(self)? + "\n"))
    }
}

pub(super) fn write_file(path: &Path, text: &str) -> Outcome {
    std::fs::write(path, text).map_err(|cause| Failure::new(format!("{}: {cause}", path.display())))
}

/// Fails if one of the files cannot be written: better now than after the measurement.
pub(super) fn check_files<'a>(paths: impl IntoIterator<Item = Option<&'a Path>>) -> Outcome {
    for path in paths.into_iter().flatten() {
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|cause| Failure::new(format!("{}: {cause}", path.display())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(us: &[u64]) -> Latencies {
        let (mut latencies, start) = (Latencies::new(), Instant::now());
        for us in us {
            latencies.record_between(start, start + Duration::from_micros(*us));
        }
        latencies
    }

    /// Something done every millisecond, each a while after it should have begun.
    fn on_schedule(count: u64, took: impl Fn(u64) -> u64) -> Latencies {
        let (mut latencies, start) = (Latencies::new(), Instant::now());
        for number in 0..count {
            let scheduled = start + Duration::from_millis(number);
            latencies.record_between(scheduled, scheduled + Duration::from_micros(took(number)));
        }
        latencies
    }

    fn round(us: u64) -> Measured {
        Measured::closed(latencies(&[us]), Duration::ZERO)
    }

    #[test]
    fn a_spread_has_the_median_and_the_extremes() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { p50: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { p50: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn what_is_not_known_counts_as_the_most() {
        let inf = f64::INFINITY;
        assert_eq!(Spread::of([inf, 1.0, 2.0]), Some(Spread { p50: 2.0, min: 1.0, max: inf }));
        assert_eq!(Spread::of([f64::NAN, 1.0, inf]), Some(Spread { p50: inf, min: 1.0, max: inf }));
    }

    #[test]
    fn the_rate_is_that_of_what_was_done_however_long_it_took() {
        let steady = on_schedule(1001, |_| 30_000);
        assert!((steady.rate() - 1000.0).abs() < 0.1, "{}", steady.rate());
        let falling_behind = on_schedule(1001, |number| 100 * number);
        assert!((falling_behind.rate() - 909.1).abs() < 0.1, "{}", falling_behind.rate());
        assert_eq!((latencies(&[]).rate(), latencies(&[5]).rate()), (0.0, 0.0));
    }

    #[test]
    fn who_does_not_reach_the_rate_has_no_latency() {
        let reached = Measured::scheduled(on_schedule(1001, |_| 500), 1000, Duration::from_secs(1));
        assert_eq!((reached.shortfall.as_deref(), reached.figures[&Figure::P50].round()), (None, 500.0));
        let behind = Measured::scheduled(on_schedule(1001, |number| 100 * number), 1000, Duration::ZERO);
        assert_eq!(behind.shortfall.as_deref(), Some("reached only 909 of 1000 per s"));
        let row = Row::new(Subject::named("a"), vec![behind.clone(), behind.clone(), reached.clone()]);
        assert_eq!(
            row.note.as_deref(),
            Some(
                "round 1 reached only 909 of 1000 per s, round 2 reached only 909 of 1000 per s: no latency"
            )
        );
        assert!(!row.has_latency());
        // One bad round is the worst one, and no more.
        let row = Row::new(Subject::named("a"), vec![behind, reached.clone(), reached]);
        assert!(row.has_latency() && row.note.is_some());
        assert_eq!(row.spread(Figure::P99).map(|spread| spread.max), Some(f64::INFINITY));
    }

    #[test]
    fn each_round_is_compared_with_its_own_floor() {
        let floors = [100, 200, 400].map(round);
        let rounds = [150, 400, 600].map(round).into_iter().zip(floors).map(|(mut own, floor)| {
            own.compare_with(&floor.figures);
            own
        });
        let row = Row::new(Subject::named("a"), rounds.collect());
        let ratio = row.spread(Figure::P50OfFloor).unwrap();
        for (ratio, wanted) in [(ratio.p50, 1.5), (ratio.min, 1.5), (ratio.max, 2.0)] {
            assert!((ratio - wanted).abs() < 0.01, "{ratio} is not {wanted}");
        }
        // The ratio of the medians is another: 400 to 200.
        assert_eq!(row.spread(Figure::P50).unwrap().p50.round(), 400.0);
    }

    #[test]
    fn nothing_is_compared_with_a_floor_that_is_none() {
        let mut own = round(150);
        let mut floor = round(100).figures;
        floor.insert(Figure::P50, f64::INFINITY);
        own.compare_with(&floor);
        assert!(own.figures[&Figure::P50OfFloor].is_nan());
        assert!((own.figures[&Figure::P90OfFloor] - 1.5).abs() < 0.01);
        assert_eq!(Figure::P50OfFloor.show(f64::NAN), "-");
    }

    #[test]
    fn the_json_has_the_agreed_names() {
        let mut first = Measured::scheduled(on_schedule(1001, |_| 500), 1000, Duration::from_secs(1));
        first.compare_with(&round(250).figures);
        let behind = Measured::scheduled(on_schedule(9, |number| 9000 * number), 1000, Duration::ZERO);
        let rows = vec![
            Row::new(Subject::named("erwin-bb"), vec![first]),
            Row::new(Subject { shards: Some(2), ..Subject::named("erwin-st") }, vec![behind]),
        ];
        let json = serde_json::to_value(Report::new(rows)).unwrap();
        for key in ["command", "machine", "commit"] {
            assert!(json[key].is_string(), "{key}: {json}");
        }
        let row = &json["rows"][0];
        assert_eq!(row["name"], "erwin-bb");
        for figures in [row, &row["rounds"][0]] {
            for key in ["p50_us", "p90_us", "p99_us", "p999_us", "max_us", "mean_us"] {
                assert!(figures[key].is_f64(), "{key}: {json}");
            }
            for key in ["rate_per_s", "cpu_s_per_million", "floor_ratio_p50"] {
                assert!(figures[key].is_f64(), "{key}: {json}");
            }
        }
        assert_eq!(row.get("note"), None);
        let behind = &json["rows"][1];
        assert!(behind["p50_us"].is_null() && behind["note"].is_string(), "{behind}");
        assert_eq!(behind["shards"], 2);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let (there, nowhere) = (directory.path().join("a.json"), directory.path().join("no/a.json"));
        assert!(check_files([Some(there.as_path()), None]).is_ok());
        assert!(check_files([Some(nowhere.as_path())]).is_err());
    }
}
