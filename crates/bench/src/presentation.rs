//! Presentation of a benchmark's rows: as a table, in files, or later from a recording.

use std::path::Path;

use super::chart::Chart;
use super::figure::Figure;
use super::report::{Report, Row, check_files, write_file};
use super::table::{Table, medians_of, table_of};
use super::{failover, grow, latency, metadata, page, player, read, scale, speculate, stall, throughput};
use crate::arguments::RepeatArguments;
use crate::terminal::{Outcome, print_line};

/// Figures shown only in charts, for lack of space in a page.
const DRAWN: [Figure; 3] = [Figure::P90, Figure::P999, Figure::Max];

pub(super) struct Presentation {
    pub(super) figures: &'static [Figure],
    pub(super) remark: fn(&[Row], &mut Table),
    pub(super) charts: fn(&[Row]) -> Vec<Chart>,
}

impl Presentation {
    /// The presentation for a recorded command.
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
            "speculate" => &speculate::PRESENTATION,
            "player" => &player::PRESENTATION,
            _ => return None,
        })
    }

    pub(super) fn medians(&self, rows: &[Row]) -> Table {
        let figures: Vec<Figure> =
            self.figures.iter().copied().filter(|figure| !DRAWN.contains(figure)).collect();
        let mut table = medians_of(rows, &figures);
        (self.remark)(rows, &mut table);
        table
    }

    /// Prints and writes the rows. `circumstances`: facts that the rows lack.
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

/// Fails early, before the measurement, if a file cannot be written.
pub(super) fn check(files: &RepeatArguments) -> Outcome {
    let paths: [Option<&Path>; 2] = [files.json.as_deref(), files.report.as_deref()];
    check_files(paths)
}

/// Adds a remark with each ordering's ratio to the first ordering with the same settings.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Setting;
    use crate::latencies::samples::round;
    use crate::report::Subject;

    #[test]
    fn a_recorded_command_says_how_its_rows_are_told() {
        let known = |command: &str| Presentation::of(command).map(|it| it.figures[0]);
        assert_eq!(known("seriatim bench failover --rounds 2"), Some(Figure::Gap));
        assert_eq!(known("seriatim bench metadata"), Some(Figure::Names));
        assert_eq!(
            [known("seriatim bench"), known("seriatim read x"), known("seriatim bench plot")],
            [None; 3]
        );
    }

    #[test]
    fn orderings_are_compared_in_the_same_settings() {
        let row = |name: &str, rate: f64, us| {
            let settings = [(Setting::Asked, rate)].into();
            Row::new(Subject { settings, ..Subject::named(name) }, vec![round(us)])
        };
        let rows = [
            row("floor", 1.0, 100),
            row("erwin-bb", 1.0, 200),
            row("corfu", 1.0, 600),
            row("erwin-bb", 2.0, 300),
            row("corfu", 2.0, 300),
        ];
        let mut table = Table::default();
        remark_ratios(&rows, &[Figure::P50, Figure::Gap], &mut table);
        let wanted = [
            "corfu, 1/s: 3.00 (p50) times as much as erwin-bb",
            "corfu, 2/s: 1.00 (p50) times as much as erwin-bb",
        ];
        assert_eq!(table.remarks, wanted);
    }
}
