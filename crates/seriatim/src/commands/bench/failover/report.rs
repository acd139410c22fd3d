//! What the losses of a run took.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::commands::bench::figures::{Report, Spread};
use crate::commands::bench::table::Table;
use crate::output::print_line;

/// The parts of a gap, in their order: each ends with the step that it is named after. The first begins
/// with the loss, and the last ends with the first acknowledgement.
pub(super) const PARTS: [&str; 8] =
    ["detect", "claim", "seal", "fence", "flush", "stage", "register", "resume"];

/// The parts that are the protocol's own, without detection, register and clients.
const CORE: [&str; 3] = ["seal", "fence", "flush"];

/// One loss.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Round {
    /// The longest time without an acknowledgement.
    pub(super) gap_ms: f64,
    /// The parts, as far as the node that changed the view could be asked.
    pub(super) parts_ms: BTreeMap<&'static str, f64>,
}

impl Round {
    fn core_ms(&self) -> Option<f64> {
        CORE.iter().map(|part| self.parts_ms.get(part)).sum()
    }
}

/// All losses of one kind.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    name: String,
    gap_ms: Spread,
    #[serde(skip_serializing_if = "Option::is_none")]
    core_ms: Option<Spread>,
    parts_ms: BTreeMap<&'static str, Spread>,
    rounds: Vec<Round>,
}

impl Row {
    /// # Panics
    /// If there was no round.
    pub(super) fn new(name: String, rounds: Vec<Round>) -> Self {
        let gap_ms = Spread::of(rounds.iter().map(|round| round.gap_ms)).expect("there are rounds");
        let parts = PARTS.into_iter().filter_map(|part| {
            let figures = rounds.iter().filter_map(|round| round.parts_ms.get(part).copied());
            Spread::of(figures).map(|spread| (part, spread))
        });
        let core_ms = Spread::of(rounds.iter().filter_map(Round::core_ms));
        Self { name, gap_ms, core_ms, parts_ms: parts.collect(), rounds }
    }
}

pub(super) fn print(report: &Report<Row>) {
    let mut table = Table::new(["", "rounds", "ms", "gap"].into_iter().chain(PARTS).chain(["seal to flush"]));
    for row in &report.rows {
        let spreads = |figure: fn(Spread) -> f64| {
            let shown = move |spread: Option<Spread>| {
                spread.map_or("-".to_owned(), |spread| format!("{:.2}", figure(spread)))
            };
            let parts = PARTS.map(|part| shown(row.parts_ms.get(part).copied()));
            [shown(Some(row.gap_ms))].into_iter().chain(parts).chain([shown(row.core_ms)])
        };
        let rounds = row.rounds.len().to_string();
        let head = |name: &str, rounds: &str, which: &str| [name, rounds, which].map(str::to_owned);
        table.line(head(&row.name, &rounds, "median").into_iter().chain(spreads(|spread| spread.p50)));
        table.line(head("", "", "least").into_iter().chain(spreads(|spread| spread.min)));
        table.line(head("", "", "most").into_iter().chain(spreads(|spread| spread.max)));
    }
    table.print();
    print_line(&report.machine);
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_and_the_extremes() {
        let round = |gap_ms, parts: &[(&'static str, f64)]| Round {
            gap_ms,
            parts_ms: parts.iter().copied().collect(),
        };
        let whole = round(9.0, &[("seal", 1.0), ("fence", 2.0), ("flush", 3.0)]);
        let row = Row::new("a".into(), vec![whole, round(5.0, &[("seal", 7.0)])]);
        assert_eq!(row.gap_ms, Spread { p50: 7.0, min: 5.0, max: 9.0 });
        assert_eq!(row.core_ms, Some(Spread { p50: 6.0, min: 6.0, max: 6.0 }));
        assert_eq!(row.parts_ms["seal"], Spread { p50: 4.0, min: 1.0, max: 7.0 });
    }
}
