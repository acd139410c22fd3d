//! The one table of all benchmarks, on a terminal and on a page.

use comfy_table::CellAlignment;

use super::figures::{Figure, LATENCIES, Row, Spread};
use crate::output::print_line;

/// Names at the left, figures at the right, and what is to be said about them below.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) headings: Vec<String>,
    pub(super) lines: Vec<Vec<String>>,
    pub(super) remarks: Vec<String>,
}

impl Table {
    pub(super) fn new<H: ToString>(headings: impl IntoIterator<Item = H>) -> Self {
        let headings = headings.into_iter().map(|heading| heading.to_string()).collect();
        Self { headings, ..Self::default() }
    }

    pub(super) fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.push(cells.into_iter().collect());
    }

    pub(super) fn remark(&mut self, remark: impl ToString) {
        self.remarks.push(remark.to_string());
    }

    pub(super) fn print(&self) {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(&self.headings).add_rows(&self.lines);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        print_line(table);
        self.remarks.iter().for_each(print_line);
    }
}

/// The rows with these figures; each latency with its multiple of the floor's. If there are several rounds, their
/// medians, and below them the least and the most.
pub(super) fn table_of(rows: &[Row], figures: &[Figure]) -> Table {
    let is_known = |figure: &Figure| rows.iter().any(|row| row.spread(*figure).is_some());
    let with_ratio = |figure: &Figure| {
        let ratio = LATENCIES.iter().find(|(latency, _)| latency == figure).map(|(_, ratio)| *ratio);
        [Some(*figure), ratio.filter(is_known)]
    };
    let columns: Vec<Figure> = figures.iter().flat_map(with_ratio).flatten().collect();
    let mut table = Table::new(["", ""].into_iter().chain(columns.iter().map(|column| column.heading())));
    for row in rows {
        let label = row.subject.label();
        let line = |name: &str, which: &str, value: fn(Spread) -> f64| {
            let show = |figure: &Figure| {
                row.spread(*figure).map_or("-".to_owned(), |spread| figure.show(value(spread)))
            };
            let head = [name, which].map(str::to_owned);
            head.into_iter().chain(columns.iter().map(show)).collect::<Vec<_>>()
        };
        if row.rounds() == 1 {
            table.line(line(&label, "", |spread| spread.p50));
            continue;
        }
        table.line(line(&label, "median", |spread| spread.p50));
        table.line(line("", "least", |spread| spread.min));
        table.line(line("", "most", |spread| spread.max));
    }
    for row in rows {
        if let Some(note) = &row.note {
            table.remark(format_args!("{}: {note}", row.subject.label()));
        }
    }
    if columns.contains(&Figure::P50OfFloor) {
        table.remark("x floor: how many times as much as the floor of the same round");
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::commands::bench::figures::{Latencies, Measured, Subject};

    fn rows(rounds: &[u64]) -> Vec<Row> {
        let measured = |us: &u64| {
            let (mut latencies, start) = (Latencies::new(), Instant::now());
            latencies.record_between(start, start + Duration::from_micros(*us));
            let mut measured = Measured::closed(latencies, Duration::ZERO);
            let floor = measured.figures.clone();
            measured.compare_with(&floor);
            measured
        };
        vec![Row::new(Subject::named("floor"), rounds.iter().map(measured).collect())]
    }

    #[test]
    fn several_rounds_have_their_extremes_and_one_has_none() {
        let table = table_of(&rows(&[100, 300, 200]), &[Figure::P50, Figure::StableLag]);
        assert_eq!(table.headings, ["", "", "p50 us", "x floor", "lag ms"]);
        let firsts: Vec<_> = table.lines.iter().map(|line| line[..2].join(" ")).collect();
        assert_eq!(firsts, ["floor median", " least", " most"]);
        let p50s: Vec<f64> = table.lines.iter().map(|line| line[2].parse().unwrap()).collect();
        assert!(p50s[1] < 101.0 && (p50s[0] - 200.0).abs() < 1.0 && p50s[2] > 299.0, "{p50s:?}");
        assert_eq!(table.lines[0][3..], ["1.00", "-"]);
        assert_eq!(table_of(&rows(&[100]), &[Figure::P50]).lines.len(), 1);
    }
}
