//! How a benchmark's rows are told: as a table, in files, and again from what was recorded.

use std::path::Path;

use super::chart::Chart;
use super::figure::Figure;
use super::report::{Report, Row, check_files, write_file};
use super::table::{Table, medians_of, table_of};
use super::{failover, grow, latency, metadata, page, read, scale, stall, throughput};
use crate::arguments::RepeatArguments;
use crate::output::{Failure, Outcome, print_line};

/// What is told of a benchmark's rows, whenever it was run.
pub(super) struct Presentation {
    pub(super) figures: &'static [Figure],
    /// What is to be said about the figures.
    pub(super) remark: fn(&[Row], &mut Table),
    pub(super) charts: fn(&[Row]) -> Vec<Chart>,
}

impl Presentation {
    /// That of what a recorded command ran.
    pub(super) fn of(command: &str) -> Option<&'static Self> {
        Some(match command.strip_prefix("seriatim bench ")?.split_whitespace().next()? {
            "latency" => &latency::PRESENTATION,
            "throughput" => &throughput::PRESENTATION,
            "read" => &read::PRESENTATION,
            "scale" => &scale::PRESENTATION,
            "grow" => &grow::PRESENTATION,
            "failover" => &failover::PRESENTATION,
            "metadata" => &metadata::PRESENTATION,
            "stall" => &stall::PRESENTATION,
            _ => return None,
        })
    }

    /// The medians, for a page of text.
    pub(super) fn medians(&self, rows: &[Row]) -> Table {
        let mut table = medians_of(rows, self.figures);
        (self.remark)(rows, &mut table);
        table
    }

    /// Prints the rows, and writes what is wanted to files. `circumstances` are what the rows do not say.
    pub(super) fn tell(&self, rows: Vec<Row>, files: &RepeatArguments, circumstances: &[String]) -> Outcome {
        let report = Report::new(rows);
        let mut table = table_of(&report.rows, self.figures);
        circumstances.iter().for_each(|remark| table.remark(remark));
        (self.remark)(&report.rows, &mut table);
        table.print();
        print_line(&report.machine);
        if let Some(path) = &files.json {
            write_file(path, &report.json()?)?;
        }
        let Some(path) = &files.report else { return Ok(()) };
        write_file(path, &page::render(&report, &table, &(self.charts)(&report.rows)))
    }
}

/// Fails if what is to be written cannot be: better now than after the measurement.
pub(super) fn check(files: &RepeatArguments) -> Outcome {
    let paths: [Option<&Path>; 2] = [files.json.as_deref(), files.report.as_deref()];
    check_files(paths)
}

/// Says how many times as much as the first ordering the others take, in the same settings.
pub(super) fn remark_ratios(rows: &[Row], figures: &[Figure], table: &mut Table) {
    let others = rows.iter().filter(|row| !row.subject.is_floor());
    for row in others.clone() {
        let is_first = |other: &&Row| other.subject.settings == row.subject.settings;
        let Some(first) = others.clone().find(is_first).filter(|first| first.subject != row.subject) else {
            continue;
        };
        let ratio = |figure: &Figure| {
            let ratio = row.median(*figure)? / first.median(*figure)?;
            let name = figure.heading().trim_end_matches(" us");
            Some(format!("{ratio:.2} ({name})"))
        };
        let ratios: Vec<String> = figures.iter().filter_map(ratio).collect();
        if !ratios.is_empty() {
            let (label, name) = (row.subject.label(), &first.subject.name);
            table.remark(format_args!("{label}: {} times as much as {name}", ratios.join(", ")));
        }
    }
}

/// Everything that a command said that is not in its rows.
pub(super) fn failure(path: &Path, command: &str) -> Failure {
    Failure::new(format!("{}: nothing is known of what '{command}' measured", path.display()))
}
