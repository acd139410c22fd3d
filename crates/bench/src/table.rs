//! The table of all benchmarks, on a terminal and on a page.

use comfy_table::CellAlignment;

use super::figure::{Figure, LATENCIES};
use super::figures::Spread;
use super::report::Row;
use crate::terminal::print_line;

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

    fn remark_notes(&mut self, rows: &[Row], columns: &[Figure]) {
        for row in rows {
            if let Some(note) = &row.note {
                self.remark(format_args!("{}: {note}", row.subject.label()));
            }
        }
        if columns.contains(&Figure::P50OfFloor) {
            self.remark("x floor: how many times as much as the floor of the same round");
            let has_latency = |row: &Row| row.subject.is_disk_floor() && row.spread(Figure::P50).is_some();
            if rows.iter().any(has_latency) {
                self.remark("x floor of what waits for disks: as much as floor and disk floor together");
            }
        }
    }

    pub(super) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|---|{}\n", "---:|".repeat(self.headings.len() - 1));
        let lines: String = self.lines.iter().map(|cells| line(cells)).collect();
        let remarks: String = self.remarks.iter().map(|remark| format!("* {remark}\n")).collect();
        let between = if remarks.is_empty() { "" } else { "\n" };
        format!("{}{rule}{lines}{between}{remarks}", line(&self.headings))
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

/// Several rounds show medians, and ranges below them.
pub(super) fn table_of(rows: &[Row], figures: &[Figure]) -> Table {
    let columns = columns_of(rows, figures);
    let mut table = Table::new(["", ""].into_iter().chain(columns.iter().map(|column| column.heading())));
    for row in rows {
        let line = |name: &str, which: &str, value: fn(Spread) -> f64| {
            let head = [name, which].map(str::to_owned);
            head.into_iter().chain(columns.iter().map(|figure| cell(row, *figure, value))).collect::<Vec<_>>()
        };
        let label = row.subject.label();
        if row.rounds() == 1 {
            table.line(line(&label, "", |spread| spread.p50));
            continue;
        }
        table.line(line(&label, "median", |spread| spread.p50));
        table.line(line("", "least", |spread| spread.min));
        table.line(line("", "most", |spread| spread.max));
    }
    table.remark_notes(rows, &columns);
    table
}

pub(super) fn medians_of(rows: &[Row], figures: &[Figure]) -> Table {
    let columns = columns_of(rows, figures);
    let mut table = Table::new([""].into_iter().chain(columns.iter().map(|column| column.heading())));
    for row in rows {
        let cells = columns.iter().map(|figure| cell(row, *figure, |spread| spread.p50));
        table.line([row.subject.label()].into_iter().chain(cells));
    }
    if let Some(most) = rows.iter().map(Row::rounds).max().filter(|most| *most > 1) {
        table.remark(format_args!("medians of {most} rounds"));
    }
    table.remark_notes(rows, &columns);
    table
}

fn columns_of(rows: &[Row], figures: &[Figure]) -> Vec<Figure> {
    let is_known = |figure: &Figure| rows.iter().any(|row| row.spread(*figure).is_some());
    let with_ratio = |figure: &Figure| {
        let ratio = LATENCIES.iter().find(|(latency, _)| latency == figure).map(|(_, ratio)| *ratio);
        [Some(*figure), ratio].into_iter().flatten().filter(is_known).collect::<Vec<_>>()
    };
    figures.iter().flat_map(with_ratio).collect()
}

fn cell(row: &Row, figure: Figure, value: fn(Spread) -> f64) -> String {
    row.spread(figure).map_or("-".to_owned(), |spread| figure.show(value(spread)))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::figures::Measured;
    use crate::latencies::Latencies;
    use crate::report::Subject;

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
        assert_eq!(table.headings, ["", "", "p50 us", "x floor"]);
        let firsts: Vec<_> = table.lines.iter().map(|line| line[..2].join(" ")).collect();
        assert_eq!(firsts, ["floor median", " least", " most"]);
        let p50s: Vec<f64> = table.lines.iter().map(|line| line[2].parse().unwrap()).collect();
        assert!(p50s[1] < 101.0 && (p50s[0] - 200.0).abs() < 1.0 && p50s[2] > 299.0, "{p50s:?}");
        assert_eq!(table.lines[0][3..], ["1.00"]);
        assert_eq!(table_of(&rows(&[100]), &[Figure::P50]).lines.len(), 1);
    }

    #[test]
    fn markdown_has_the_medians_and_the_remarks() {
        let mut table = medians_of(&rows(&[100, 100]), &[Figure::P50, Figure::Gap]);
        table.remark("a remark");
        let markdown = table.markdown();
        assert!(
            markdown.starts_with("|  | p50 us | x floor |\n|---|---:|---:|\n| floor | 100.0 | 1.00 |\n\n"),
            "{markdown}"
        );
        assert!(
            markdown.contains("* medians of 2 rounds\n") && markdown.ends_with("* a remark\n"),
            "{markdown}"
        );
    }
}
