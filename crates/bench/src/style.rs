//! Styles of charts, alone and on a page, for light and dark backgrounds.

use std::fmt::Write as _;

use super::chart::Chart;
use super::drawing::{LEFT, WIDTH};

/// Number of distinct styles for series other than the floor.
pub(super) const LOOKS: usize = 8;

const LIGHT: [&str; LOOKS + 1] =
    ["#77777c", "#1f6fd0", "#d9591c", "#11834f", "#7d4cc2", "#a8780a", "#c2357f", "#0b8a96", "#8c564b"];
const DARK: [&str; LOOKS + 1] =
    ["#a3a3a9", "#6cabff", "#ff9660", "#4cc98d", "#b996f5", "#e2b548", "#ff86c0", "#4fd1dc", "#c99a8a"];

/// Colours of paper, ink, faint ink and grid.
const LIGHT_PAGE: [&str; 4] = ["#fdfdfc", "#1d1d1f", "#6b6b70", "#e3e3e0"];
const DARK_PAGE: [&str; 4] = ["#161618", "#ececee", "#a0a0a6", "#35353a"];

const CAPTION: f64 = 30.0;
/// Height of a legend's line.
const LEGEND: f64 = 18.0;
/// Approximate width of a letter.
const LETTER: f64 = 7.0;

/// CSS for [`super::drawing`]. No variables, because some viewers do not support them.
pub(super) fn rules() -> String {
    let dark = format!("@media (prefers-color-scheme: dark) {{\n{}}}\n", colours(DARK, DARK_PAGE));
    let shapes = "svg text { font: 12px system-ui, sans-serif; }\n\
        svg .middle { text-anchor: middle; }\nsvg .end { text-anchor: end; }\n\
        .grid, .line, .whisker { fill: none; }\n\
        .line { stroke-width: 2; stroke-linejoin: round; }\n.line.s0 { stroke-dasharray: 5 4; }\n\
        .whisker { stroke-width: 1.5; }\n";
    format!("{shapes}{}{dark}", colours(LIGHT, LIGHT_PAGE))
}

fn colours(looks: [&str; LOOKS + 1], [paper, ink, faint, grid]: [&str; 4]) -> String {
    let mut rules = format!(
        "svg text {{ fill: {ink}; }}\n.paper {{ fill: {paper}; }}\nsvg .faint {{ fill: {faint}; }}\n\
         .grid {{ stroke: {grid}; }}\n.whisker {{ stroke: {ink}; }}\n\
         body {{ background: {paper}; color: {ink}; }}\ndt, th, figcaption, p {{ color: {faint}; }}\n\
         th {{ border-color: {grid}; }}\n"
    );
    for (colour, look) in looks.iter().zip(0..) {
        writeln!(
            rules,
            ".s{look}.line, .s{look}.whisker {{ stroke: {colour}; }}\n\
             .s{look}.fill {{ fill: {colour}; }}\n.s{look}.key {{ background: {colour}; }}"
        )
        .expect("a string takes everything");
    }
    rules
}

/// One self-contained SVG with all charts, one below the other.
pub(super) fn document(charts: &[Chart]) -> String {
    let mut body = String::new();
    let mut top = 0.0;
    for chart in charts.iter().filter(|chart| !chart.svg.is_empty()) {
        let below = head(chart, top, &mut body);
        // The chart becomes a nested drawing.
        let place = format!("<svg y=\"{below}\" width=\"{WIDTH}\" height=\"{}\" ", chart.height);
        writeln!(body, "{}", chart.svg.replacen("<svg ", &place, 1)).expect("a string takes everything");
        top = below + chart.height;
    }
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {top}\" width=\"{WIDTH}\" height=\"{top}\" xmlns=\"http://www.w3.org/2000/svg\">\n\
         <style>\n{}</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{top}\"/>\n{body}</svg>\n",
        rules()
    )
}

/// Draws caption and legend, and returns their lower end.
fn head(chart: &Chart, top: f64, out: &mut String) -> f64 {
    let (caption, baseline) = (escape(&chart.caption), top + 20.0);
    let mut draw = |element: String| {
        writeln!(out, "{element}").expect("a string takes everything");
    };
    draw(format!("<text x=\"{LEFT}\" y=\"{baseline}\" class=\"faint\">{caption}</text>"));
    let (mut x, mut y) = (LEFT, top + CAPTION);
    for (look, name) in &chart.legend {
        let width = 36.0 + LETTER * name.chars().count() as f64;
        if x > LEFT && x + width > WIDTH {
            (x, y) = (LEFT, y + LEGEND);
        }
        let (text, baseline) = (x + 16.0, y + 10.0);
        draw(format!(
            "<rect class=\"fill s{look}\" x=\"{x}\" y=\"{y}\" width=\"10\" height=\"10\"/>\
             <text x=\"{text}\" y=\"{baseline}\">{}</text>",
            escape(name)
        ));
        x += width;
    }
    y + LEGEND
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_charts_has_everything_and_needs_nothing() {
        let chart = |caption: &str| Chart {
            caption: caption.into(),
            legend: vec![(0, "floor".into()), (1, "a & b".into())],
            svg: "<svg viewBox=\"0 0 860 100\"></svg>".into(),
            height: 100.0,
        };
        let empty = Chart { svg: String::new(), ..chart("there is none") };
        let file = document(&[chart("first"), empty, chart("second")]);
        for part in [
            "first",
            "second",
            "a &amp; b",
            "prefers-color-scheme: dark",
            "class=\"paper\"",
            "<svg y=\"196\"",
        ] {
            assert!(file.contains(part), "{part}: {file}");
        }
        for other in ["there is none", "src=", "href=", "url(", "@import", "<script", "var("] {
            assert!(!file.contains(other), "{other}: {file}");
        }
        assert_eq!(file.matches("<svg ").count(), file.matches("</svg>").count());
    }

    #[test]
    fn a_long_legend_has_several_lines() {
        let legend = (1..=8).map(|look| (look, format!("an ordering in setting {look}"))).collect();
        let chart = Chart { caption: "a".into(), legend, svg: "<svg></svg>".into(), height: 1.0 };
        let mut out = String::new();
        assert_eq!(head(&chart, 0.0, &mut out), CAPTION + 3.0 * LEGEND);
    }
}
