//! The appends of each client over time, as bars of text.

use std::fmt::Write as _;
use std::time::Duration;

/// The bars of a chart, from no append to the most in one step of time.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// At most this many bars fit into a line.
const MOST_BARS: u128 = 60;
/// Milliseconds that a bar may stand for.
const STEPS: [u128; 9] = [5, 10, 20, 25, 50, 100, 250, 500, 1000];
/// Columns to the left of the bars.
const LEFT: usize = 10;

/// The acknowledged appends of all clients, and the kill between them.
pub(super) struct Timeline {
    /// For each client: when its appends were acknowledged, counted from the first append.
    pub(super) acknowledged: Vec<Vec<Duration>>,
    /// When all nodes were killed.
    pub(super) killed: Duration,
}

impl Timeline {
    /// The end of the longest pause without an acknowledgement after the kill. Acknowledgements
    /// that the killed nodes had sent arrive a little after the kill.
    fn recovered(&self) -> Duration {
        let mut later: Vec<Duration> =
            self.acknowledged.iter().flatten().copied().filter(|at| *at > self.killed).collect();
        later.push(self.killed);
        later.sort_unstable();
        let longest = later.windows(2).max_by_key(|pause| pause[1] - pause[0]);
        longest.map_or(self.killed, |pause| pause[1])
    }

    /// The lines of the chart. `is_coloured` makes the two remarks red and green.
    pub(super) fn chart(&self, is_coloured: bool) -> Vec<String> {
        let last = self.acknowledged.iter().flatten().max().copied().unwrap_or_default();
        let last = last.max(self.killed).as_millis();
        let whole = last.div_ceil(MOST_BARS * 1000).max(1) * 1000;
        let step = STEPS.into_iter().find(|step| last / step < MOST_BARS).unwrap_or(whole);
        let column = |at: Duration| usize::try_from(at.as_millis() / step).expect("at most MOST_BARS");
        let counts: Vec<Vec<u64>> = self
            .acknowledged
            .iter()
            .map(|appends| {
                let mut counts = vec![0; column(Duration::from_millis(last as u64)) + 1];
                appends.iter().for_each(|at| counts[column(*at)] += 1);
                counts
            })
            .collect();
        let most = counts.iter().flatten().max().copied().unwrap_or_default();
        let mut lines = vec![format!("appends acknowledged in each {step} ms, at most {most}:")];
        for (number, counts) in (1..).zip(&counts) {
            let bars: String = counts.iter().map(|count| bar(*count, most)).collect();
            lines.push(format!("{:LEFT$}{}", format!("client {number}"), bars.trim_end()));
        }
        let recovered = self.recovered();
        let remarks = [
            (self.killed, "31", format!("all nodes killed with -9 at {} ms", self.killed.as_millis())),
            (recovered, "32", format!("appends continue at {} ms", recovered.as_millis())),
        ];
        for (at, colour, text) in remarks {
            lines.push(remark(LEFT + column(at), &text, is_coloured.then_some(colour)));
        }
        lines
    }
}

/// The bar of a count. A count above 0 has a bar.
fn bar(count: u64, most: u64) -> char {
    let top = BARS.len() as u64 - 1;
    let height = if most == 0 { 0 } else { (count * top).div_ceil(most) };
    BARS[usize::try_from(height).expect("a bar")]
}

/// A line with an arrow below a column, and its text beside it.
fn remark(column: usize, text: &str, colour: Option<&str>) -> String {
    let (begin, end) = colour.map_or((String::new(), ""), |colour| (format!("\x1b[{colour}m"), "\x1b[0m"));
    let mut line = String::new();
    let is_right = column + text.len() + 2 <= LEFT + MOST_BARS as usize + 10;
    let outcome = if is_right {
        write!(line, "{:column$}{begin}^ {text}{end}", "")
    } else {
        let before = column.saturating_sub(text.len() + 1);
        write!(line, "{:before$}{begin}{text} ^{end}", "")
    };
    outcome.expect("a string takes everything");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: &[u64]) -> Vec<Duration> {
        ms.iter().copied().map(Duration::from_millis).collect()
    }

    #[test]
    fn bars_show_the_kill_and_the_recovery() {
        let acknowledged = vec![ms(&[0, 1, 2, 3, 6, 40]), ms(&[0, 1, 14, 41, 42])];
        let timeline = Timeline { acknowledged, killed: Duration::from_millis(13) };
        let lines = [
            "appends acknowledged in each 5 ms, at most 4:",
            "client 1  █▂      ▂",
            "client 2  ▄ ▂     ▄",
            "            ^ all nodes killed with -9 at 13 ms",
            "                  ^ appends continue at 40 ms",
        ];
        assert_eq!(timeline.chart(false), lines);
        let coloured = timeline.chart(true);
        assert_eq!(coloured[3], "            \x1b[31m^ all nodes killed with -9 at 13 ms\x1b[0m");
        assert_eq!(coloured[..3], lines[..3]);
    }

    #[test]
    fn a_long_run_has_lines_of_80_columns() {
        for last in [1, 299, 300, 59_999, 60_000, 3_600_000] {
            let timeline =
                Timeline { acknowledged: vec![ms(&[0, last])], killed: Duration::from_millis(last - 1) };
            for line in timeline.chart(false) {
                assert!(line.chars().count() <= 80, "{last}: {line}");
            }
        }
    }
}
