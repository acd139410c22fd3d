//! A report as one HTML file that needs nothing else.

use std::fmt::Write as _;

use super::chart::Chart;
use super::figures::{Report, Row};
use super::table::Table;

const STYLE: &str = "
:root { color-scheme: light dark; --paper: #fdfdfc; --ink: #1d1d1f; --faint: #6b6b70; --grid: #e3e3e0;
  --s0: #77777c; --s1: #1f6fd0; --s2: #d9591c; --s3: #11834f; --s4: #7d4cc2; --s5: #a8780a; --s6: #c2357f; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #161618; --ink: #ececee; --faint: #a0a0a6; --grid: #35353a;
    --s0: #a3a3a9; --s1: #6cabff; --s2: #ff9660; --s3: #4cc98d; --s4: #b996f5; --s5: #e2b548; --s6: #ff86c0; }
}
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt, figcaption, p { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 2rem 0; }
svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
.grid { stroke: var(--grid); fill: none; }
.line { stroke: var(--look); fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.s0 { stroke-dasharray: 5 4; }
.fill { fill: var(--look); }
.whisker { stroke: var(--look, var(--ink)); stroke-width: 1.5; fill: none; }
.s0 { --look: var(--s0); } .s1 { --look: var(--s1); } .s2 { --look: var(--s2); } .s3 { --look: var(--s3); }
.s4 { --look: var(--s4); } .s5 { --look: var(--s5); } .s6 { --look: var(--s6); }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .4em 0 1.2em; background: var(--look); }
.key:first-child { margin-left: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .2rem .6rem; text-align: right; font-weight: normal; }
th { color: var(--faint); border-bottom: 1px solid var(--grid); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
";

/// The whole page.
pub(super) fn render(report: &Report<Row>, table: &Table, charts: &[Chart]) -> String {
    // What was called, without its options.
    let title = report.command.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    let facts: String =
        [("command", &report.command), ("machine", &report.machine), ("commit", &report.commit)]
            .into_iter()
            .map(|(name, fact)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(fact)))
            .collect();
    let (title, charts) = (escape(&title), charts.iter().map(figure).collect::<String>());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>\n{facts}</dl>\n\
         {charts}{}</body>\n</html>\n",
        table_of(table)
    )
}

fn figure(chart: &Chart) -> String {
    let key = |(look, name): &(usize, String)| format!("<span class=\"key s{look}\"></span>{}", escape(name));
    let legend: String = chart.legend.iter().map(key).collect();
    let caption = escape(&chart.caption);
    format!("<figure>\n<figcaption>{caption}</figcaption>\n<div>{legend}</div>\n{}\n</figure>\n", chart.svg)
}

fn table_of(table: &Table) -> String {
    let mut html = String::from("<div class=\"wide\"><table>\n");
    let row = |cell: &str, cells: &[String]| -> String {
        let cells: String = cells.iter().map(|text| format!("<{cell}>{}</{cell}>", escape(text))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    html.push_str(&row("th", &table.headings));
    html.extend(table.lines.iter().map(|line| row("td", line)));
    html.push_str("</table></div>\n");
    for remark in &table.remarks {
        writeln!(html, "<p>{}</p>", escape(remark)).expect("a string takes everything");
    }
    html
}

/// A text that is no markup.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> String {
        let mut table = Table::new(["", "p50 us"]);
        table.line(["floor".to_owned(), "100.0".to_owned()]);
        table.remark("one & another");
        let mut report = Report::new(vec![]);
        report.command = "seriatim bench latency --json <a>.json".to_owned();
        let svg = "<svg></svg>".to_owned();
        let chart = Chart { caption: "curves".into(), legend: vec![(0, "floor".into())], svg };
        render(&report, &table, &[chart])
    }

    #[test]
    fn the_page_has_everything_and_needs_nothing() {
        let page = page();
        for part in [
            "<title>seriatim bench latency</title>",
            "seriatim bench latency --json &lt;a&gt;.json",
            "<dt>machine</dt>",
            "<dt>commit</dt>",
            "<td>floor</td><td>100.0</td>",
            "one &amp; another",
            "<svg></svg>",
            "<span class=\"key s0\"></span>floor",
            "prefers-color-scheme: dark",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        for resource in ["src=", "href=", "url(", "@import", "<script"] {
            assert!(!page.contains(resource), "{resource}: {page}");
        }
    }

    #[test]
    fn what_is_opened_is_closed() {
        let page = page();
        for element in ["html", "head", "body", "dl", "figure", "table", "style"] {
            let count = |tag: String| page.matches(&tag).count();
            let opened = count(format!("<{element}>")) + count(format!("<{element} "));
            assert_eq!((opened, count(format!("</{element}>"))), (1, 1), "{element}");
        }
    }
}
