//! Charts as SVG, without colours of their own: the page gives them, for light and dark.

use std::fmt::Write as _;

use super::figures::{Figure, Row, Spread};
use super::page::escape;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;
const HEIGHT: f64 = 420.0;
/// The height of one bar with the room around it.
const BAR: f64 = 36.0;
/// How far apart the points of a curve are, in powers of ten of 1/(1-q).
const STEP: f64 = 0.02;
/// How many series look different; beyond, they repeat.
const LOOKS: usize = 6;

/// A figure of the page: its caption, who is who in it, and its drawing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chart {
    pub(super) caption: String,
    /// The look and the name of each series.
    pub(super) legend: Vec<(usize, String)>,
    pub(super) svg: String,
}

impl Chart {
    /// The latency at each percentile: those near 100 have as much room as the others, since users see them.
    pub(super) fn latencies(caption: &str, rows: &[Row]) -> Self {
        let curves: Vec<Series> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.has_latency())
            .map(|(look, row)| Series::new(look, row.subject.label(), distribution(row)))
            .collect();
        let ends = |pick: fn(&Point) -> f64| curves.iter().flat_map(|curve| &curve.points).map(pick);
        let nines = ends(|point| point.x).fold(1.0, f64::max);
        let (least, most) =
            (ends(|point| point.y).fold(f64::INFINITY, f64::min), ends(|point| point.y).fold(0.0, f64::max));
        if curves.is_empty() {
            return Self::empty(caption);
        }
        let x = Axis { from: 0.0, to: nines, pixels: (LEFT, WIDTH - RIGHT), scale: Scale::Linear };
        let y = Axis { from: least * 0.9, to: most * 1.1, pixels: (HEIGHT - BOTTOM, TOP), scale: Scale::Log };
        let mut drawing = Drawing::new(caption, HEIGHT);
        for nine in 0..=nines as u32 {
            let percentile = if nine == 0 { 0.0 } else { 100.0 - 100.0 / 10f64.powi(nine as i32) };
            drawing.vertical(x.at(f64::from(nine)), &format!("p{percentile}"));
        }
        for tick in y.ticks() {
            drawing.horizontal(y.at(tick), &time(tick));
        }
        for curve in &curves {
            drawing.curve(curve, &x, &y);
        }
        Self::of(caption, &curves, drawing)
    }

    /// The median of a figure for each row, with the least and the most. Not for the floor: beside what raw TCP can
    /// do nothing else could be told apart.
    pub(super) fn bars(caption: &str, rows: &[Row], figure: Figure) -> Self {
        let series = |(look, row): (usize, &Row)| {
            Some(Series::new(look, row.subject.label(), vec![Point::of(0.0, row.spread(figure)?)]))
        };
        let bars: Vec<Series> = rows.iter().enumerate().skip(1).filter_map(series).collect();
        let most = bars.iter().flat_map(|bar| &bar.points).map(|point| point.most).fold(0.0, f64::max);
        let x = Axis {
            from: 0.0,
            to: (most * 1.15).max(1.0),
            pixels: (LEFT, WIDTH - RIGHT),
            scale: Scale::Linear,
        };
        let height = TOP + BAR * bars.len() as f64 + BOTTOM;
        let mut drawing = Drawing::new(caption, height);
        for tick in x.ticks() {
            drawing.vertical(x.at(tick), &count(tick));
        }
        for (bar, number) in bars.iter().zip(0..) {
            drawing.bar(bar, TOP + BAR * f64::from(number), &x);
        }
        Self::of(caption, &bars, drawing)
    }

    /// A figure by the number of shards, a line for each ordering.
    pub(super) fn lines(caption: &str, rows: &[Row], figure: Figure) -> Self {
        let mut lines: Vec<Series> = vec![];
        for row in rows {
            let (Some(shards), Some(spread)) = (row.subject.shards, row.spread(figure)) else { continue };
            let point = Point::of(f64::from(shards), spread);
            match lines.iter_mut().find(|line| line.name == row.subject.name) {
                Some(line) => line.points.push(point),
                // The first look is the floor's.
                None => lines.push(Series::new(lines.len() + 1, row.subject.name.clone(), vec![point])),
            }
        }
        if lines.is_empty() {
            return Self::empty(caption);
        }
        let ends = |pick: fn(&Point) -> f64| lines.iter().flat_map(|line| &line.points).map(pick);
        let (widest, most) =
            (ends(|point| point.x).fold(2.0, f64::max), ends(|point| point.most).fold(1.0, f64::max));
        let x = Axis { from: 0.0, to: widest * 1.05, pixels: (LEFT, WIDTH - RIGHT), scale: Scale::Linear };
        let y = Axis { from: 0.0, to: most * 1.1, pixels: (HEIGHT - BOTTOM, TOP), scale: Scale::Linear };
        let mut drawing = Drawing::new(caption, HEIGHT);
        for tick in x.ticks().into_iter().filter(|tick| tick.fract() == 0.0) {
            drawing.vertical(x.at(tick), &count(tick));
        }
        for tick in y.ticks() {
            drawing.horizontal(y.at(tick), &count(tick));
        }
        for line in &lines {
            drawing.curve(line, &x, &y);
            line.points.iter().for_each(|point| drawing.point(line, point, &x, &y));
        }
        Self::of(caption, &lines, drawing)
    }

    fn of(caption: &str, series: &[Series], drawing: Drawing) -> Self {
        let legend = series.iter().map(|series| (series.look, series.name.clone())).collect();
        Self { caption: caption.to_owned(), legend, svg: drawing.end() }
    }

    fn empty(caption: &str) -> Self {
        Self { caption: format!("{caption}: there is none"), legend: vec![], svg: String::new() }
    }
}

/// One curve, or one bar.
struct Series {
    look: usize,
    name: String,
    points: Vec<Point>,
}

struct Point {
    x: f64,
    y: f64,
    least: f64,
    most: f64,
}

impl Series {
    fn new(look: usize, name: String, points: Vec<Point>) -> Self {
        // The first look is that of the floor alone.
        let look = if look == 0 { 0 } else { (look - 1) % LOOKS + 1 };
        Self { look, name, points }
    }
}

impl Point {
    fn of(x: f64, Spread { p50, min, max }: Spread) -> Self {
        Self { x, y: p50, least: min, most: max }
    }
}

/// As far as there are enough latencies for the percentile to mean something.
fn distribution(row: &Row) -> Vec<Point> {
    let nines = (row.latencies.count() as f64).log10().max(STEP);
    let steps = (nines / STEP) as u32;
    let point = |step: u32| {
        let x = f64::from(step) * STEP;
        let us = row.latencies.us(1.0 - 10f64.powf(-x));
        Point { x, y: us, least: us, most: us }
    };
    (0..=steps).map(point).collect()
}

#[derive(Clone, Copy)]
enum Scale {
    Linear,
    Log,
}

struct Axis {
    from: f64,
    to: f64,
    pixels: (f64, f64),
    scale: Scale,
}

impl Axis {
    /// Where a value is, in pixels.
    fn at(&self, value: f64) -> f64 {
        let place = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
        };
        let part = (place(value) - place(self.from)) / (place(self.to) - place(self.from));
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }

    /// Round values, a handful of them.
    fn ticks(&self) -> Vec<f64> {
        let within = |value: &f64| (self.from..=self.to).contains(value);
        match self.scale {
            Scale::Log => {
                let decades = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
                let ticks =
                    decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(decade)));
                ticks.filter(within).collect()
            }
            Scale::Linear => {
                let decade = 10f64.powf((self.to - self.from).log10().floor());
                let steps = [0.1, 0.2, 0.5, 1.0].map(|part| part * decade);
                let fits = |step: &f64| (self.to - self.from) / *step <= 8.0;
                let step = steps.into_iter().find(fits).unwrap_or(2.0 * decade);
                let first = (self.from / step).ceil() as i64;
                (first..).map(|number| number as f64 * step).take_while(within).collect()
            }
        }
    }
}

struct Drawing {
    svg: String,
    height: f64,
}

impl Drawing {
    fn new(title: &str, height: f64) -> Self {
        let title = escape(title);
        Self {
            svg: format!(
                "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\" \
                 xmlns=\"http://www.w3.org/2000/svg\">\n"
            ),
            height,
        }
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.svg, "{element}").expect("a string takes everything");
    }

    fn vertical(&mut self, x: f64, label: &str) {
        let bottom = self.height - BOTTOM;
        self.add(format_args!("<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom:.1}\"/>"));
        let below = bottom + 18.0;
        self.add(format_args!("<text x=\"{x:.1}\" y=\"{below:.1}\" class=\"middle\">{label}</text>"));
    }

    fn horizontal(&mut self, y: f64, label: &str) {
        self.add(format_args!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/>", WIDTH - RIGHT));
        let (x, y) = (LEFT - 8.0, y + 4.0);
        self.add(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"end\">{label}</text>"));
    }

    fn curve(&mut self, series: &Series, x: &Axis, y: &Axis) {
        let mut path = String::new();
        for (point, number) in series.points.iter().zip(0..) {
            let letter = if number == 0 { 'M' } else { 'L' };
            write!(path, "{letter}{:.1} {:.1}", x.at(point.x), y.at(point.y))
                .expect("a string takes everything");
        }
        let (look, name) = (series.look, escape(&series.name));
        self.add(format_args!("<path class=\"line s{look}\" d=\"{path}\"><title>{name}</title></path>"));
    }

    /// A point with the least and the most.
    fn point(&mut self, series: &Series, point: &Point, x: &Axis, y: &Axis) {
        let (look, name) = (series.look, escape(&series.name));
        let (x, least, most) = (x.at(point.x), y.at(point.least), y.at(point.most));
        // Those of several lines stand beside each other.
        let aside = x + 4.0 * look as f64;
        self.add(format_args!("<path class=\"whisker s{look}\" d=\"M{aside:.1} {least:.1}V{most:.1}\"/>"));
        let (y, value) = (y.at(point.y), count(point.y));
        self.add(format_args!(
            "<circle class=\"fill s{look}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{name}: {value}</title></circle>"
        ));
    }

    /// A bar with the least and the most.
    fn bar(&mut self, series: &Series, top: f64, x: &Axis) {
        let Some(point) = series.points.first() else { return };
        let (look, value) = (series.look, count(point.y));
        let (width, end, thick) = (x.at(point.y) - LEFT, x.at(point.most) + 8.0, BAR - 14.0);
        self.add(format_args!(
            "<rect class=\"fill s{look}\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{thick:.1}\"/>"
        ));
        let (middle, least, most) = (top + thick / 2.0, x.at(point.least), x.at(point.most));
        self.add(format_args!("<path class=\"whisker\" d=\"M{least:.1} {middle:.1}H{most:.1}\"/>"));
        let (left, baseline) = (LEFT - 8.0, middle + 4.0);
        let name = escape(&series.name);
        self.add(format_args!("<text x=\"{left:.1}\" y=\"{baseline:.1}\" class=\"end\">{name}</text>"));
        self.add(format_args!("<text x=\"{end:.1}\" y=\"{baseline:.1}\">{value}</text>"));
    }

    fn end(mut self) -> String {
        self.svg.push_str("</svg>");
        self.svg
    }
}

/// A time in microseconds, for people.
fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us} us"),
        us if us < 1e6 => format!("{} ms", us / 1e3),
        us => format!("{} s", us / 1e6),
    }
}

/// A number, for people.
fn count(value: f64) -> String {
    match value {
        value if value < 1e4 => format!("{value:.0}"),
        value if value < 1e6 => format!("{:.0}k", value / 1e3),
        value => format!("{:.1}M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::commands::bench::figures::{Latencies, Measured, Subject};

    fn row(subject: Subject, us: impl IntoIterator<Item = u64>, rate: f64) -> Row {
        let (mut latencies, start) = (Latencies::new(), Instant::now());
        us.into_iter().for_each(|us| latencies.record_between(start, start + Duration::from_micros(us)));
        let measured = |rate| Measured::new(latencies.clone(), rate, Duration::ZERO, 1);
        Row::new(subject, vec![measured(rate), measured(rate * 2.0)])
    }

    #[test]
    fn an_axis_has_round_ticks_in_their_places() {
        let linear = Axis { from: 0.0, to: 700_000.0, pixels: (0.0, 700.0), scale: Scale::Linear };
        assert_eq!((linear.at(0.0), linear.at(350_000.0)), (0.0, 350.0));
        let ticks = linear.ticks();
        assert_eq!(ticks.first().zip(ticks.last()), Some((&0.0, &700_000.0)));
        assert!((4..=9).contains(&ticks.len()), "{ticks:?}");
        let log = Axis { from: 90.0, to: 1100.0, pixels: (300.0, 0.0), scale: Scale::Log };
        assert_eq!(log.ticks(), [100.0, 200.0, 500.0, 1000.0]);
        assert!(log.at(100.0) > log.at(1000.0));
    }

    #[test]
    fn a_curve_reaches_as_far_as_there_are_latencies() {
        let chart = Chart::latencies("curves", &[row(Subject::named("floor"), 1..=1000, 1.0)]);
        assert!(chart.svg.contains(">p99.9<") && !chart.svg.contains(">p99.99<"), "{}", chart.svg);
        assert!(chart.svg.contains(">500 us<") && chart.svg.contains("class=\"line s0\""));
        let points = distribution(&row(Subject::named("floor"), 1..=1000, 1.0));
        assert!((points[(1.0 / STEP) as usize].y - 900.0).abs() < 5.0, "the p90");
        assert!(points.windows(2).all(|pair| pair[0].y <= pair[1].y));
    }

    #[test]
    fn what_has_no_latency_has_no_curve() {
        let slow = Latencies::new();
        let behind =
            Row::new(Subject::named("erwin-bb"), vec![Measured::scheduled(slow, 1000, Duration::ZERO)]);
        let chart = Chart::latencies("curves", std::slice::from_ref(&behind));
        assert_eq!((chart.legend, chart.svg), (vec![], String::new()));
        let with_floor = [row(Subject::named("floor"), [5, 6], 1.0), behind];
        assert_eq!(Chart::latencies("curves", &with_floor).legend, [(0, "floor".to_owned())]);
    }

    #[test]
    fn bars_and_lines_have_their_medians_and_names() {
        let rows = [row(Subject::named("floor"), [5], 2e6), row(Subject::named("erwin-bb"), [5], 4e5)];
        let bars = Chart::bars("rates", &rows, Figure::Rate);
        assert!(bars.svg.contains(">600k<") && !bars.svg.contains("floor"), "{}", bars.svg);
        let shards = |name: &str, shards| Subject { shards: Some(shards), ..Subject::named(name) };
        let rows = [
            row(Subject::named("floor"), [5], 2e6),
            row(shards("erwin-bb", 1), [5], 4e5),
            row(shards("erwin-st", 1), [5], 5e5),
            row(shards("erwin-bb", 8), [5], 4e5),
        ];
        let lines = Chart::lines("rates", &rows, Figure::Rate);
        assert_eq!(lines.legend, [(1, "erwin-bb".to_owned()), (2, "erwin-st".to_owned())]);
        assert_eq!(lines.svg.matches("<circle").count(), 3);
    }
}
