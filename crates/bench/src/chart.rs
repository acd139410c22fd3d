//! Charts of figures, for a page or a file.

use std::cmp::Reverse;

use super::drawing::{
    Axis, BAR, BOTTOM, Drawing, HEIGHT, LEFT, Point, RIGHT, Scale, Series, TOP, WIDTH, count, time,
};
use super::figure::{Figure, Setting};
use super::report::Row;

/// If a range's largest value is this many times its smallest, the scale is logarithmic.
const WIDE: f64 = 20.0;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chart {
    pub(super) caption: String,
    pub(super) legend: Vec<(usize, String)>,
    pub(super) svg: String,
    pub(super) height: f64,
}

impl Chart {
    /// Latency by percentile. Percentiles near 100, which users notice, get as much space as
    /// others.
    pub(super) fn distributions(caption: &str, rows: &[Row]) -> Self {
        let curves: Vec<Series> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.has_latency() && !row.distribution.is_empty())
            .map(|(look, row)| Series::new(look, row.subject.label(), distribution(row)))
            .collect();
        if curves.is_empty() {
            return Self::empty(caption);
        }
        let (_, nines) = ends(&curves, |point| (point.x, point.x));
        let nines = nines.max(1.0);
        let (least, most) = ends(&curves, |point| (point.y, point.y));
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

    /// Omits floors, which would dwarf the others.
    pub(super) fn bars(caption: &str, rows: &[Row], figure: Figure) -> Self {
        let series = |(look, row): (usize, &Row)| {
            Some(Series::new(look + 1, row.subject.label(), vec![Point::of(0.0, row.spread(figure)?)?]))
        };
        let others = rows.iter().filter(|row| !row.subject.is_floor());
        let bars: Vec<Series> = others.enumerate().filter_map(series).collect();
        let (_, most) = ends(&bars, |point| (point.least, point.most));
        let x = Axis {
            from: 0.0,
            to: if most > 0.0 { most * 1.15 } else { 1.0 },
            pixels: (LEFT * 2.0, WIDTH - RIGHT),
            scale: Scale::Linear,
        };
        let mut drawing = Drawing::new(caption, TOP + BAR * bars.len() as f64 + BOTTOM);
        for tick in x.ticks() {
            drawing.vertical(x.at(tick), &shown(figure, tick));
        }
        for (bar, number) in bars.iter().zip(0..) {
            let value = bar.points.first().map_or(String::new(), |point| shown(figure, point.y));
            drawing.bar(bar, &value, TOP + BAR * f64::from(number), &x);
        }
        Self::of(caption, &bars, drawing)
    }

    /// A chart per figure, by the setting that varies most. Empty if no setting varies.
    pub(super) fn by_setting(rows: &[Row], figures: &[(&str, Figure)]) -> Vec<Self> {
        let Some(setting) = varied(rows) else { return vec![] };
        let chart = |(caption, figure): &(&str, Figure)| Self::lines(caption, rows, setting, *figure);
        figures.iter().map(chart).collect()
    }

    /// A figure by a setting, a line per ordering and other settings.
    pub(super) fn lines(caption: &str, rows: &[Row], setting: Setting, figure: Figure) -> Self {
        let lines = series_of(rows, setting, |row| {
            let x = *row.subject.settings.get(&setting)?;
            Point::of(x, row.spread(figure)?)
        });
        let count: fn(Figure, f64) -> String = |_, value| count(value);
        Self::graph(caption, &lines, (setting.heading(), figure, count), figure)
    }

    /// One figure by another, a line per ordering, along a setting.
    pub(super) fn against(caption: &str, rows: &[Row], setting: Setting, x: Figure, y: Figure) -> Self {
        let lines = series_of(rows, setting, |row| Point::of(row.median(x)?, row.spread(y)?));
        Self::graph(caption, &lines, (x.heading(), x, shown), y)
    }

    fn graph(
        caption: &str,
        lines: &[Series],
        (x_name, x_figure, show_x): (&str, Figure, fn(Figure, f64) -> String),
        figure: Figure,
    ) -> Self {
        if lines.is_empty() {
            return Self::empty(caption);
        }
        let x = Axis::around(ends(lines, |point| (point.x, point.x)), WIDE, (LEFT, WIDTH - RIGHT));
        let y = Axis::around(ends(lines, |point| (point.least, point.most)), WIDE, (HEIGHT - BOTTOM, TOP));
        let mut drawing = Drawing::new(caption, HEIGHT);
        for tick in x.ticks() {
            drawing.vertical(x.at(tick), &show_x(x_figure, tick));
        }
        drawing.below(x_name);
        for tick in y.ticks() {
            drawing.horizontal(y.at(tick), &shown(figure, tick));
        }
        for line in lines {
            drawing.curve(line, &x, &y);
            line.points.iter().for_each(|point| drawing.point(line, point, &shown(figure, point.y), &x, &y));
        }
        Self::of(caption, lines, drawing)
    }

    pub(super) fn timelines(caption: &str, rows: &[Row]) -> Self {
        let with_timeline = rows.iter().filter(|row| !row.timeline.is_empty());
        let line = |(look, row): (usize, &Row)| {
            let point = |(x, y): &(f64, f64)| Point { x: *x, y: *y, least: *y, most: *y };
            Series::new(look + 1, row.subject.label(), row.timeline.iter().map(point).collect())
        };
        let lines: Vec<Series> = with_timeline.enumerate().map(line).collect();
        if lines.is_empty() {
            return Self::empty(caption);
        }
        let (from, to) = ends(&lines, |point| (point.x, point.x));
        let (_, most) = ends(&lines, |point| (point.y, point.y));
        let x = Axis { from, to, pixels: (LEFT, WIDTH - RIGHT), scale: Scale::Linear };
        let (pixels, scale) = ((HEIGHT - BOTTOM, TOP), Scale::Linear);
        let y = Axis { from: 0.0, to: most.max(1.0) * 1.1, pixels, scale };
        let mut drawing = Drawing::new(caption, HEIGHT);
        x.ticks().into_iter().for_each(|tick| drawing.vertical(x.at(tick), &format!("{tick} ms")));
        y.ticks().into_iter().for_each(|tick| drawing.horizontal(y.at(tick), &count(tick)));
        lines.iter().for_each(|line| drawing.curve(line, &x, &y));
        Self::of(caption, &lines, drawing)
    }

    /// Stacked medians of several figures, a bar per row.
    pub(super) fn stacked(caption: &str, rows: &[Row], parts: &[Figure]) -> Self {
        let sum = |row: &Row| parts.iter().filter_map(|part| row.median(*part)).sum::<f64>();
        let most = rows.iter().map(sum).fold(0.0, f64::max);
        if most <= 0.0 {
            return Self::empty(caption);
        }
        let pixels = (LEFT * 2.0, WIDTH - RIGHT);
        let x = Axis { from: 0.0, to: most * 1.05, pixels, scale: Scale::Linear };
        let mut drawing = Drawing::new(caption, TOP + BAR * rows.len() as f64 + BOTTOM);
        x.ticks().into_iter().for_each(|tick| drawing.vertical(x.at(tick), &format!("{tick} ms")));
        for (row, number) in rows.iter().zip(0..) {
            let top = TOP + BAR * f64::from(number);
            drawing.left_of(&x, top, &row.subject.label());
            let mut from = 0.0;
            for (part, look) in parts.iter().zip(1..) {
                let Some(took) = row.median(*part) else { continue };
                drawing.piece(look, (from, from + took), top, &x);
                from += took;
            }
        }
        let legend = parts.iter().zip(1..).map(|(part, look)| (look, part.heading().to_owned())).collect();
        let height = drawing.height;
        Self { caption: caption.to_owned(), legend, svg: drawing.end(), height }
    }

    fn of(caption: &str, series: &[Series], drawing: Drawing) -> Self {
        let legend = series.iter().map(|series| (series.look, series.name.clone())).collect();
        let height = drawing.height;
        Self { caption: caption.to_owned(), legend, svg: drawing.end(), height }
    }

    fn empty(caption: &str) -> Self {
        Self { caption: format!("{caption}: there is none"), legend: vec![], svg: String::new(), height: 0.0 }
    }
}

fn shown(figure: Figure, value: f64) -> String {
    let us_of_a_ms = 1e3;
    match figure.heading() {
        heading if heading.ends_with(" us") => time(value),
        heading if heading.ends_with(" ms") => time(value * us_of_a_ms),
        _ => count(value),
    }
}

/// The setting with the most different values; of several such settings, the first.
pub(super) fn varied(rows: &[Row]) -> Option<Setting> {
    let settings = || rows.iter().flat_map(|row| &row.subject.settings);
    let values = |of: Setting| {
        let mut values: Vec<f64> = settings().filter(|(it, _)| **it == of).map(|(_, value)| *value).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values.len()
    };
    let most = |setting: &Setting| (values(*setting), Reverse(*setting));
    let setting = settings().map(|(setting, _)| *setting).max_by_key(most)?;
    (values(setting) > 1).then_some(setting)
}

/// Omits floors, which would dwarf the others; the distributions show them.
fn series_of(rows: &[Row], setting: Setting, point: impl Fn(&Row) -> Option<Point>) -> Vec<Series> {
    let mut lines: Vec<Series> = vec![];
    for row in rows.iter().filter(|row| !row.subject.is_floor()) {
        let Some(point) = point(row) else { continue };
        let name = row.subject.label_without(Some(setting));
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Series::new(lines.len() + 1, name, vec![point])),
        }
    }
    lines
}

fn ends(series: &[Series], pick: fn(&Point) -> (f64, f64)) -> (f64, f64) {
    let picked = series.iter().flat_map(|series| &series.points).map(pick);
    picked.fold((f64::INFINITY, 0.0), |(least, most), (low, high)| (low.min(least), high.max(most)))
}

fn distribution(row: &Row) -> Vec<Point> {
    let point = |(percentile, us): &(f64, f64)| {
        let x = -(1.0 - percentile / 100.0).log10();
        Point { x, y: *us, least: *us, most: *us }
    };
    row.distribution.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::figures::Measured;
    use crate::latencies::Latencies;
    use crate::report::Subject;

    fn row(subject: Subject, us: impl IntoIterator<Item = u64>, rate: f64) -> Row {
        let (mut latencies, start) = (Latencies::new(), Instant::now());
        us.into_iter().for_each(|us| latencies.record_between(start, start + Duration::from_micros(us)));
        let measured = |rate| Measured::new(latencies.clone(), rate, Duration::ZERO, 1);
        Row::new(subject, vec![measured(rate), measured(rate * 2.0)])
    }

    fn with_shards(name: &str, shards: u32) -> Subject {
        Subject { settings: [(Setting::Shards, f64::from(shards))].into(), ..Subject::named(name) }
    }

    #[test]
    fn a_curve_reaches_as_far_as_there_are_latencies() {
        let chart = Chart::distributions("curves", &[row(Subject::named("floor"), 1..=1000, 1.0)]);
        assert!(chart.svg.contains(">p99.9<") && !chart.svg.contains(">p99.99<"), "{}", chart.svg);
        assert!(chart.svg.contains(">500 us<") && chart.svg.contains("class=\"line s0\""));
        let points = distribution(&row(Subject::named("floor"), 1..=1000, 1.0));
        assert!(points.iter().any(|point| (point.x - 1.0).abs() < 0.01 && (point.y - 900.0).abs() < 5.0));
        assert!(points.windows(2).all(|pair| pair[0].y <= pair[1].y));
    }

    #[test]
    fn what_has_no_latency_has_no_curve() {
        let slow = Latencies::new();
        let behind =
            Row::new(Subject::named("erwin-bb"), vec![Measured::scheduled(slow, 1000, Duration::ZERO)]);
        let chart = Chart::distributions("curves", std::slice::from_ref(&behind));
        assert_eq!((chart.legend, chart.svg), (vec![], String::new()));
        let with_floor = [row(Subject::named("floor"), [5, 6], 1.0), behind];
        assert_eq!(Chart::distributions("curves", &with_floor).legend, [(0, "floor".to_owned())]);
    }

    #[test]
    fn bars_and_lines_have_their_medians_and_names() {
        let rows = [row(Subject::named("floor"), [5], 2e6), row(Subject::named("erwin-bb"), [5], 4e5)];
        let bars = Chart::bars("rates", &rows, Figure::Rate);
        assert!(bars.svg.contains(">600k<") && !bars.svg.contains("floor"), "{}", bars.svg);
        let rows = [
            row(Subject::named("floor"), [5], 2e6),
            row(with_shards("erwin-bb", 1), [5], 4e5),
            row(with_shards("erwin-st", 1), [5], 5e5),
            row(with_shards("erwin-bb", 8), [5], 4e5),
        ];
        let [lines] = &Chart::by_setting(&rows, &[("rates", Figure::Rate)])[..] else { panic!() };
        assert_eq!(lines.legend, [(1, "erwin-bb".to_owned()), (2, "erwin-st".to_owned())]);
        assert_eq!(lines.svg.matches("<circle").count(), 3);
        assert!(lines.svg.contains(">shards<"), "{}", lines.svg);
        let by_rate = Chart::against("curve", &rows, Setting::Shards, Figure::Rate, Figure::P50);
        assert!(by_rate.svg.contains(">per s<") && by_rate.svg.matches("<circle").count() == 3);
    }

    #[test]
    fn rows_that_do_not_differ_have_no_lines() {
        let same = [row(with_shards("erwin-bb", 1), [5], 1.0), row(with_shards("corfu", 1), [5], 1.0)];
        assert_eq!(Chart::by_setting(&same, &[("rates", Figure::Rate)]), []);
    }

    #[test]
    fn parts_are_stacked_and_timelines_drawn() {
        let parts = [(Figure::Seal, 1.0), (Figure::Fence, 3.0)];
        let mut measured = Measured::of(parts);
        measured.timeline = vec![(-1.0, 5.0), (0.0, 0.0), (1.0, 7.0)];
        let rows = [Row::new(Subject::named("leader killed"), vec![measured])];
        let stacked = Chart::stacked("parts", &rows, &parts.map(|(part, _)| part));
        assert_eq!(stacked.legend, [(1, "seal".to_owned()), (2, "fence".to_owned())]);
        assert!(stacked.svg.contains("leader killed") && stacked.svg.matches("<rect").count() == 2);
        let timeline = Chart::timelines("acknowledged", &rows);
        assert!(timeline.svg.contains(">-1 ms<") && timeline.legend.len() == 1, "{}", timeline.svg);
    }
}
