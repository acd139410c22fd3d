//! A report as a self-contained HTML file.

use std::fmt::Write as _;

use super::chart::Chart;
use super::report::Report;
use super::style::{escape, rules};
use super::table::Table;

const STYLE: &str = "
:root { color-scheme: light dark; }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 2rem 0; }
svg { width: 100%; height: auto; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .4em 0 1.2em; }
.key:first-child { margin-left: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .2rem .6rem; text-align: right; font-weight: normal; }
th { border-bottom: 1px solid; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
";

pub(super) fn render(report: &Report, table: &Table, charts: &[Chart]) -> String {
    // The title is the command without its options.
    let title = report.command.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    let facts: String =
        [("command", &report.command), ("machine", &report.machine), ("commit", &report.commit)]
            .into_iter()
            .map(|(name, fact)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(fact)))
            .collect();
    let rules = rules();
    let (title, charts) = (escape(&title), charts.iter().map(figure).collect::<String>());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}{rules}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>\n{facts}</dl>\n\
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
        let chart = Chart { caption: "curves".into(), legend: vec![(0, "floor".into())], svg, height: 1.0 };
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
