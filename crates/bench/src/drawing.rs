//! SVG parts of charts (axes, curves, bars), with the colours of [`super::style`].

use std::fmt::Write as _;

use super::figures::Spread;
use super::style::{LOOKS, escape};

pub(super) const WIDTH: f64 = 860.0;
pub(super) const LEFT: f64 = 90.0;
pub(super) const RIGHT: f64 = 20.0;
pub(super) const TOP: f64 = 12.0;
pub(super) const BOTTOM: f64 = 46.0;
pub(super) const HEIGHT: f64 = 420.0;
/// Height of a bar with its margins.
pub(super) const BAR: f64 = 36.0;

pub(super) struct Series {
    pub(super) look: usize,
    pub(super) name: String,
    pub(super) points: Vec<Point>,
}

pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Series {
    pub(super) fn new(look: usize, name: String, points: Vec<Point>) -> Self {
        Self { look: look_of(look), name, points }
    }
}

/// Style number of a series: 0 for the floor; the others repeat after [`LOOKS`].
fn look_of(look: usize) -> usize {
    if look == 0 { 0 } else { (look - 1) % LOOKS + 1 }
}

impl Point {
    /// `None` if the median is unknown.
    pub(super) fn of(x: f64, Spread { p50, min, max }: Spread) -> Option<Self> {
        let most = if max.is_finite() { max } else { p50 };
        p50.is_finite().then_some(Self { x, y: p50, least: min, most })
    }
}

#[derive(Clone, Copy)]
pub(super) enum Scale {
    Linear,
    Log,
}

pub(super) struct Axis {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) pixels: (f64, f64),
    pub(super) scale: Scale,
}

impl Axis {
    /// Logarithmic if `most` is at least `wide` times `least`, otherwise from zero.
    pub(super) fn around((least, most): (f64, f64), wide: f64, pixels: (f64, f64)) -> Self {
        if least > 0.0 && most >= least * wide {
            return Self { from: least * 0.85, to: most * 1.2, pixels, scale: Scale::Log };
        }
        let to = if most > 0.0 { most * 1.1 } else { 1.0 };
        Self { from: 0.0, to, pixels, scale: Scale::Linear }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let place = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
        };
        let part = (place(value) - place(self.from)) / (place(self.to) - place(self.from));
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }

    pub(super) fn ticks(&self) -> Vec<f64> {
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

pub(super) struct Drawing {
    svg: String,
    pub(super) height: f64,
}

impl Drawing {
    pub(super) fn new(title: &str, height: f64) -> Self {
        let title = escape(title);
        Self {
            svg: format!(
                "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\" \
                 xmlns=\"http://www.w3.org/2000/svg\">\n"
            ),
            height,
        }
    }

    pub(super) fn add(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.svg, "{element}").expect("a string takes everything");
    }

    pub(super) fn vertical(&mut self, x: f64, label: &str) {
        let bottom = self.height - BOTTOM;
        self.add(format_args!("<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom:.1}\"/>"));
        let below = bottom + 18.0;
        self.add(format_args!("<text x=\"{x:.1}\" y=\"{below:.1}\" class=\"middle\">{label}</text>"));
    }

    pub(super) fn horizontal(&mut self, y: f64, label: &str) {
        self.add(format_args!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/>", WIDTH - RIGHT));
        let (x, y) = (LEFT - 8.0, y + 4.0);
        self.add(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"end\">{label}</text>"));
    }

    pub(super) fn below(&mut self, name: &str) {
        let (x, y) = (f64::midpoint(LEFT, WIDTH - RIGHT), self.height - 8.0);
        self.add(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"middle\">{}</text>", escape(name)));
    }

    pub(super) fn left_of(&mut self, x: &Axis, top: f64, name: &str) {
        let (left, baseline) = (x.pixels.0 - 8.0, top + (BAR - 14.0) / 2.0 + 4.0);
        let name = escape(name);
        self.add(format_args!("<text x=\"{left:.1}\" y=\"{baseline:.1}\" class=\"end\">{name}</text>"));
    }

    pub(super) fn piece(&mut self, look: usize, (from, to): (f64, f64), top: f64, x: &Axis) {
        let (left, width, thick) = (x.at(from), x.at(to) - x.at(from), BAR - 14.0);
        self.add(format_args!(
            "<rect class=\"fill s{}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{thick:.1}\"/>",
            look_of(look)
        ));
    }

    pub(super) fn curve(&mut self, series: &Series, x: &Axis, y: &Axis) {
        let mut path = String::new();
        for (point, number) in series.points.iter().zip(0..) {
            let letter = if number == 0 { 'M' } else { 'L' };
            write!(path, "{letter}{:.1} {:.1}", x.at(point.x), y.at(point.y))
                .expect("a string takes everything");
        }
        let (look, name) = (series.look, escape(&series.name));
        self.add(format_args!("<path class=\"line s{look}\" d=\"{path}\"><title>{name}</title></path>"));
    }

    pub(super) fn point(&mut self, series: &Series, point: &Point, value: &str, x: &Axis, y: &Axis) {
        let (look, name) = (series.look, escape(&series.name));
        let (x, least, most) = (x.at(point.x), y.at(point.least), y.at(point.most));
        // Whiskers of several series at the same `x` are drawn side by side.
        let aside = x + 4.0 * look as f64;
        self.add(format_args!("<path class=\"whisker s{look}\" d=\"M{aside:.1} {least:.1}V{most:.1}\"/>"));
        let y = y.at(point.y);
        self.add(format_args!(
            "<circle class=\"fill s{look}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{name}: {value}</title></circle>"
        ));
    }

    pub(super) fn bar(&mut self, series: &Series, value: &str, top: f64, x: &Axis) {
        let Some(point) = series.points.first() else { return };
        self.left_of(x, top, &series.name);
        self.piece(series.look, (0.0, point.y), top, x);
        let (end, middle) = (x.at(point.most) + 8.0, top + (BAR - 14.0) / 2.0);
        let (least, most, baseline) = (x.at(point.least), x.at(point.most), middle + 4.0);
        self.add(format_args!("<path class=\"whisker\" d=\"M{least:.1} {middle:.1}H{most:.1}\"/>"));
        self.add(format_args!("<text x=\"{end:.1}\" y=\"{baseline:.1}\">{value}</text>"));
    }

    pub(super) fn end(mut self) -> String {
        self.svg.push_str("</svg>");
        self.svg
    }
}

/// Readable time from microseconds.
pub(super) fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} us", rounded(us)),
        us if us < 1e6 => format!("{} ms", rounded(us / 1e3)),
        us => format!("{} s", rounded(us / 1e6)),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

pub(super) fn count(value: f64) -> String {
    match value {
        value if value < 10.0 => rounded(value).to_string(),
        value if value < 1e4 => format!("{value:.0}"),
        value if value < 1e6 => format!("{:.0}k", value / 1e3),
        value => format!("{:.1}M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_wide_range_has_a_logarithmic_axis() {
        let axis = |least, most| Axis::around((least, most), 20.0, (0.0, 1.0));
        assert!(axis(10.0, 1000.0).from > 0.0 && axis(10.0, 1000.0).ticks().contains(&100.0));
        assert_eq!((axis(10.0, 100.0).from, axis(0.0, 1000.0).from), (0.0, 0.0));
    }

    #[test]
    fn numbers_and_times_are_short() {
        assert_eq!([0.5, 70.4, 12_345.0, 2e6].map(count), ["0.5", "70", "12k", "2.0M"]);
        assert_eq!([200.0, 2500.0, 3e6].map(time), ["200 us", "2.5 ms", "3 s"]);
    }

    #[test]
    fn what_is_not_finite_is_not_drawn() {
        let spread = |p50, max| Spread { p50, min: 1.0, max };
        assert!(Point::of(0.0, spread(f64::INFINITY, f64::INFINITY)).is_none());
        assert_eq!(Point::of(0.0, spread(2.0, f64::INFINITY)).map(|point| point.most), Some(2.0));
    }
}
