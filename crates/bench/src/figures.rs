//! Figures of one round, and of several.

use std::collections::BTreeMap;
use std::time::Duration;

use super::figure::{Figure, LATENCIES};
use super::latencies::Latencies;

/// Figures of one subject in one round. Latencies are infinite if the rate was not reached.
pub(super) type Figures = BTreeMap<Figure, f64>;

/// Points: milliseconds since an event, and the amount in the interval that begins there.
pub(super) type Timeline = Vec<(f64, f64)>;

#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) figures: Figures,
    pub(super) latencies: Latencies,
    pub(super) shortfall: Option<String>,
    pub(super) timeline: Timeline,
}

/// Fraction of the requested rate below which the round has no meaningful latencies.
const REACHED: f64 = 0.98;

impl Measured {
    pub(super) fn of(figures: impl IntoIterator<Item = (Figure, f64)>) -> Self {
        let figures = figures.into_iter().collect();
        Self { figures, latencies: Latencies::new(), shortfall: None, timeline: vec![] }
    }

    /// `rate` is per second; `cpu` covers `count` operations.
    pub(super) fn new(latencies: Latencies, rate: f64, cpu: Duration, count: u64) -> Self {
        let mut figures: Figures =
            LATENCIES.into_iter().map(|(figure, _)| (figure, latencies.us_of(figure))).collect();
        figures.insert(Figure::Rate, rate);
        figures.insert(Figure::Cpu, cpu.as_secs_f64() * 1e6 / count.max(1) as f64);
        Self { latencies, ..Self::of(figures) }
    }

    pub(super) fn scheduled(latencies: Latencies, rate: u64, cpu: Duration) -> Self {
        let (reached, count) = (latencies.rate(), latencies.count());
        Self::new(latencies, reached, cpu, count).or_shortfall(rate)
    }

    /// Makes latencies infinite if the measured rate is too far below the requested `rate`.
    pub(super) fn or_shortfall(mut self, rate: u64) -> Self {
        let reached = self.figures.get(&Figure::Rate).copied().unwrap_or_default();
        if reached < rate as f64 * REACHED {
            self.shortfall = Some(format!("reached only {reached:.0} of {rate} per s"));
            self.figures.extend(LATENCIES.map(|(figure, _)| (figure, f64::INFINITY)));
        }
        self
    }

    pub(super) fn closed(latencies: Latencies, cpu: Duration) -> Self {
        let (reached, count) = (latencies.rate(), latencies.count());
        Self::new(latencies, reached, cpu, count)
    }

    /// A protocol that needs both floors cannot be faster than their sum.
    pub(super) fn add_to(&self, floor: &mut Figures) {
        for (figure, _) in LATENCIES {
            if let (Some(own), Some(sum)) = (self.figures.get(&figure), floor.get_mut(&figure)) {
                *sum += own;
            }
        }
    }

    pub(super) fn compare_with(&mut self, floor: &Figures) {
        for (figure, ratio) in LATENCIES {
            let (Some(own), Some(floor)) = (self.figures.get(&figure), floor.get(&figure)) else { continue };
            // The ratio is unknown without a usable floor.
            let multiple = if floor.is_finite() && *floor > 0.0 { own / floor } else { f64::NAN };
            self.figures.insert(ratio, multiple);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) p50: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// `None` without figures. Infinite and unknown values count as the maximum.
    pub(super) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let known = |figure: f64| if figure.is_nan() { f64::INFINITY } else { figure };
        let mut figures: Vec<f64> = figures.into_iter().map(known).collect();
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let (low, high) = (figures[(figures.len() - 1) / 2], figures[figures.len() / 2]);
        Some(Self { p50: f64::midpoint(low, high), min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latencies::samples::{latencies, on_schedule, round};
    use crate::report::{Row, Subject};

    #[test]
    fn a_spread_has_the_median_and_the_extremes() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { p50: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { p50: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn what_is_not_known_counts_as_the_most() {
        let inf = f64::INFINITY;
        assert_eq!(Spread::of([inf, 1.0, 2.0]), Some(Spread { p50: 2.0, min: 1.0, max: inf }));
        assert_eq!(Spread::of([f64::NAN, 1.0, inf]), Some(Spread { p50: inf, min: 1.0, max: inf }));
    }

    #[test]
    fn the_rate_is_that_of_what_was_done_however_long_it_took() {
        let steady = on_schedule(1001, |_| 30_000);
        assert!((steady.rate() - 1000.0).abs() < 0.1, "{}", steady.rate());
        let falling_behind = on_schedule(1001, |number| 100 * number);
        assert!((falling_behind.rate() - 909.1).abs() < 0.1, "{}", falling_behind.rate());
        assert_eq!((latencies(&[]).rate(), latencies(&[5]).rate()), (0.0, 0.0));
    }

    #[test]
    fn who_does_not_reach_the_rate_has_no_latency() {
        let reached = Measured::scheduled(on_schedule(1001, |_| 500), 1000, Duration::from_secs(1));
        assert_eq!((reached.shortfall.as_deref(), reached.figures[&Figure::P50].round()), (None, 500.0));
        let behind = Measured::scheduled(on_schedule(1001, |number| 100 * number), 1000, Duration::ZERO);
        assert_eq!(behind.shortfall.as_deref(), Some("reached only 909 of 1000 per s"));
        let row = Row::new(Subject::named("a"), vec![behind.clone(), behind.clone(), reached.clone()]);
        assert_eq!(
            row.note.as_deref(),
            Some(
                "round 1 reached only 909 of 1000 per s, round 2 reached only 909 of 1000 per s: no latency"
            )
        );
        assert!(!row.has_latency());
        // One bad round only determines the maximum.
        let row = Row::new(Subject::named("a"), vec![behind, reached.clone(), reached]);
        assert!(row.has_latency() && row.note.is_some());
        assert_eq!(row.spread(Figure::P99).map(|spread| spread.max), Some(f64::INFINITY));
    }

    #[test]
    fn each_round_is_compared_with_its_own_floor() {
        let floors = [100, 200, 400].map(round);
        let rounds = [150, 400, 600].map(round).into_iter().zip(floors).map(|(mut own, floor)| {
            own.compare_with(&floor.figures);
            own
        });
        let row = Row::new(Subject::named("a"), rounds.collect());
        let ratio = row.spread(Figure::P50OfFloor).unwrap();
        for (ratio, wanted) in [(ratio.p50, 1.5), (ratio.min, 1.5), (ratio.max, 2.0)] {
            assert!((ratio - wanted).abs() < 0.01, "{ratio} is not {wanted}");
        }
        // The medians of subject and floor would have the ratio 400 to 200.
        assert_eq!(row.spread(Figure::P50).unwrap().p50.round(), 400.0);
    }

    #[test]
    fn nothing_is_compared_with_a_floor_that_is_none() {
        let mut own = round(150);
        let mut floor = round(100).figures;
        floor.insert(Figure::P50, f64::INFINITY);
        own.compare_with(&floor);
        assert!(own.figures[&Figure::P50OfFloor].is_nan());
        assert!((own.figures[&Figure::P90OfFloor] - 1.5).abs() < 0.01);
    }
}
