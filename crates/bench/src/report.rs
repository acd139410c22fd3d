//! A benchmark's report, and its file format.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::figure::{Figure, Setting, named};
use super::figures::{Figures, Measured, Spread, Timeline};
use super::latencies::Latencies;
use super::machine::machine;
use crate::terminal::{Failure, Outcome};

pub(super) type Settings = BTreeMap<Setting, f64>;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Subject {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) settings: Settings,
}

pub(super) const FLOOR: &str = "floor";
pub(super) const DISK_FLOOR: &str = "disk floor";

impl Subject {
    pub(super) fn named(name: impl ToString) -> Self {
        Self { name: name.to_string(), ..Self::default() }
    }

    pub(super) fn is_floor(&self) -> bool {
        self.name == FLOOR || self.is_disk_floor()
    }

    pub(super) fn is_disk_floor(&self) -> bool {
        self.name == DISK_FLOOR
    }

    pub(super) fn label(&self) -> String {
        self.label_without(None)
    }

    /// Readable name with all settings except `left_out`.
    pub(super) fn label_without(&self, left_out: Option<Setting>) -> String {
        let told = self.settings.iter().filter(|(setting, _)| left_out != Some(**setting));
        let settings = told.map(|(setting, value)| format!(", {}", setting.show(*value)));
        [self.name.clone()].into_iter().chain(settings).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) subject: Subject,
    /// Medians over the rounds.
    #[serde(flatten)]
    figures: Figures,
    rounds: Vec<Figures>,
    /// Why the figures are unreliable, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    /// Percentiles and latencies in microseconds, over all rounds.
    #[serde(rename = "distribution_us", skip_serializing_if = "Vec::is_empty")]
    pub(super) distribution: Vec<(f64, f64)>,
    /// Timeline of the last round.
    #[serde(rename = "timeline_ms", skip_serializing_if = "Vec::is_empty")]
    pub(super) timeline: Timeline,
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
        let timeline = rounds.last().map_or(vec![], |round| round.timeline.clone());
        let rounds = rounds.into_iter().map(|round| round.figures).collect();
        Self { note, distribution: latencies.distribution(), timeline, ..Self::of(subject, rounds) }
    }

    fn of(subject: Subject, rounds: Vec<Figures>) -> Self {
        let figures = Figures::new();
        let mut row = Self { subject, figures, rounds, note: None, distribution: vec![], timeline: vec![] };
        let known = row.rounds.iter().flat_map(|figures| figures.keys().copied());
        row.figures = known.filter_map(|figure| Some((figure, row.spread(figure)?.p50))).collect();
        row
    }

    fn read(json: &Value) -> Option<Self> {
        // JSON has no infinite numbers: null stands for infinity.
        let number = |value: &Value| value.as_f64().unwrap_or(f64::INFINITY);
        let figures = |round: &Value| -> Option<Figures> {
            let named = |(name, value): (&String, &Value)| Some((named::<Figure>(name)?, number(value)));
            Some(round.as_object()?.iter().filter_map(named).collect())
        };
        let pairs = |name: &str| -> Timeline {
            let pairs = json[name].as_array().into_iter().flatten();
            pairs.map(|pair| (number(&pair[0]), number(&pair[1]))).collect()
        };
        let settings = json.as_object()?.iter();
        let settings =
            settings.filter_map(|(name, value)| Some((named::<Setting>(name)?, value.as_f64()?))).collect();
        let subject = Subject { name: json["name"].as_str()?.to_owned(), settings };
        let rounds = json["rounds"].as_array()?.iter().map(figures).collect::<Option<_>>()?;
        let note = json["note"].as_str().map(str::to_owned);
        let (distribution, timeline) = (pairs("distribution_us"), pairs("timeline_ms"));
        Some(Self { note, distribution, timeline, ..Self::of(subject, rounds) })
    }

    /// Spread over the rounds, if measured.
    pub(super) fn spread(&self, figure: Figure) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|figures| figures.get(&figure).copied()))
    }

    /// Median over the rounds, if measured and finite.
    pub(super) fn median(&self, figure: Figure) -> Option<f64> {
        self.figures.get(&figure).copied().filter(|median| median.is_finite())
    }

    pub(super) fn rounds(&self) -> usize {
        self.rounds.len()
    }

    pub(super) fn has_latency(&self) -> bool {
        self.median(Figure::P50).is_some()
    }
}

#[derive(Debug, PartialEq)]
pub(super) struct Report {
    pub(super) command: String,
    pub(super) machine: String,
    pub(super) commit: String,
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(rows: Vec<Row>) -> Self {
        let command: Vec<String> = std::env::args().skip(1).collect();
        Self {
            command: format!("seriatim {}", command.join(" ")),
            machine: machine(),
            commit: env!("SERIATIM_COMMIT").to_owned(),
            rows,
        }
    }

    /// JSON with a line per row.
    pub(super) fn json(&self) -> Result<String, Failure> {
        let fact = |name: &str, fact: &str| format!("  \"{name}\": {},\n", Value::from(fact));
        let facts = [("command", &self.command), ("machine", &self.machine), ("commit", &self.commit)];
        let facts: String = facts.into_iter().map(|(name, value)| fact(name, value)).collect();
        let rows = self.rows.iter().map(|row| Ok(format!("    {}", serde_json::to_string(row)?)));
        let rows = rows.collect::<Result<Vec<_>, serde_json::Error>>()?.join(",\n");
        Ok(format!("{{\n{facts}  \"rows\": [\n{rows}\n  ]\n}}\n"))
    }

    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let failure = |cause: &dyn std::fmt::Display| Failure::new(format!("{}: {cause}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|cause| failure(&cause))?;
        let json: Value = serde_json::from_str(&text).map_err(|cause| failure(&cause))?;
        let fact = |name: &str| json[name].as_str().map(str::to_owned);
        let rows = || json["rows"].as_array()?.iter().map(Row::read).collect::<Option<Vec<_>>>();
        let report = || {
            let (command, machine, commit) = (fact("command")?, fact("machine")?, fact("commit")?);
            Some(Self { command, machine, commit, rows: rows()? })
        };
        report().ok_or_else(|| failure(&"this is not what a bench writes with --json"))
    }
}

pub(super) fn write_file(path: &Path, text: &str) -> Outcome {
    std::fs::write(path, text).map_err(|cause| Failure::new(format!("{}: {cause}", path.display())))
}

pub(super) fn check_files<'a>(paths: impl IntoIterator<Item = Option<&'a Path>>) -> Outcome {
    for path in paths.into_iter().flatten() {
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|cause| Failure::new(format!("{}: {cause}", path.display())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::latencies::samples::{on_schedule, round};

    #[test]
    fn the_json_has_the_agreed_names() {
        let mut first = Measured::scheduled(on_schedule(1001, |_| 500), 1000, Duration::from_secs(1));
        first.compare_with(&round(250).figures);
        let behind = Measured::scheduled(on_schedule(9, |number| 9000 * number), 1000, Duration::ZERO);
        let settings = [(Setting::Shards, 2.0)].into();
        let with_shards = Subject { settings, ..Subject::named("erwin-st") };
        let rows =
            vec![Row::new(Subject::named("erwin-bb"), vec![first]), Row::new(with_shards, vec![behind])];
        let report = Report::new(rows);
        let json: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
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
        assert_eq!(behind["shards"], 2.0);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        write_file(&path, &report.json().unwrap()).unwrap();
        assert_eq!(Report::read(&path).unwrap(), report);
    }

    #[test]
    fn what_no_bench_wrote_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        for text in ["{", "{}", "{\"command\": \"a\", \"machine\": \"b\", \"commit\": \"c\", \"rows\": [1]}"]
        {
            write_file(&path, text).unwrap();
            let Err(failure) = Report::read(&path) else { panic!("{text} was read") };
            let said = failure.to_string();
            assert!(said.contains("a.json: "), "{said}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let (there, nowhere) = (directory.path().join("a.json"), directory.path().join("no/a.json"));
        assert!(check_files([Some(there.as_path()), None]).is_ok());
        assert!(check_files([Some(nowhere.as_path())]).is_err());
    }
}
