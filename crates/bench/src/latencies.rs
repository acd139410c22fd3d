//! Latency histograms.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::figure::Figure;

/// Distance between percentiles of a distribution, in powers of ten of the remainder above them:
/// percentiles near 100 get as much space as others.
const STEP: f64 = 0.05;

#[derive(Clone, Debug)]
pub(super) struct Latencies {
    /// Latencies in nanoseconds.
    histogram: Histogram<u64>,
    span: Option<(Instant, Instant)>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    pub(super) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are in order");
        Self { histogram, span: None }
    }

    /// Records a completion now, scheduled at `since`.
    pub(super) fn record(&mut self, since: Instant) {
        self.record_between(since, Instant::now());
    }

    pub(super) fn record_between(&mut self, since: Instant, done: Instant) {
        let nanos = u64::try_from(done.saturating_duration_since(since).as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos.max(1));
        self.extend_span((done, done));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
        if let Some(span) = other.span {
            self.extend_span(span);
        }
    }

    fn extend_span(&mut self, (from, to): (Instant, Instant)) {
        let (first, last) = self.span.unwrap_or((from, to));
        self.span = Some((first.min(from), last.max(to)));
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Completions per second, from the first to the last.
    pub(super) fn rate(&self) -> f64 {
        let took = self.span.map_or(Duration::ZERO, |(first, last)| last - first);
        if took.is_zero() { 0.0 } else { (self.count() - 1) as f64 / took.as_secs_f64() }
    }

    /// Latency at a quantile from 0 to 1, in microseconds.
    pub(super) fn us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// Percentiles, and latencies in microseconds, up to the last percentile with enough samples.
    pub(super) fn distribution(&self) -> Vec<(f64, f64)> {
        if self.count() == 0 {
            return vec![];
        }
        let steps = ((self.count() as f64).log10() / STEP) as u32;
        let point = |step: u32| {
            let below = 1.0 - 10f64.powf(-f64::from(step) * STEP);
            // Round to as many digits as distinguish the percentiles.
            let percentile = (below * 1e8).round() / 1e6;
            (percentile, self.us(below))
        };
        (0..=steps).map(point).collect()
    }

    pub(super) fn us_of(&self, figure: Figure) -> f64 {
        match figure {
            Figure::P50 => self.us(0.5),
            Figure::P90 => self.us(0.9),
            Figure::P99 => self.us(0.99),
            Figure::P999 => self.us(0.999),
            Figure::Max => self.us(1.0),
            _ => self.histogram.mean() / 1000.0,
        }
    }
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;
    use crate::figures::Measured;

    pub(crate) fn latencies(us: &[u64]) -> Latencies {
        let (mut latencies, start) = (Latencies::new(), Instant::now());
        for us in us {
            latencies.record_between(start, start + Duration::from_micros(*us));
        }
        latencies
    }

    /// A completion per millisecond, each `took` µs after its scheduled start.
    pub(crate) fn on_schedule(count: u64, took: impl Fn(u64) -> u64) -> Latencies {
        let (mut latencies, start) = (Latencies::new(), Instant::now());
        for number in 0..count {
            let scheduled = start + Duration::from_millis(number);
            latencies.record_between(scheduled, scheduled + Duration::from_micros(took(number)));
        }
        latencies
    }

    pub(crate) fn round(us: u64) -> Measured {
        Measured::closed(latencies(&[us]), Duration::ZERO)
    }
}
