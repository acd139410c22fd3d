//! Intrusion detection (SpecLog, OSDI '25, §5): each group of sensors appends readings to its own
//! shard, and one task per shard watches its group.
//!
//! ```sh
//! cargo run --release -p seriatim-client --example intrusion_detection # own cluster
//! cargo run --release -p seriatim-client --example intrusion_detection 127.0.0.1:7700
//! ```
//!
//! A task keeps the latest readings of each sensor, their mean and deviation, and their likeness to
//! the readings before them. It raises an alarm at an outlier, and when a sensor repeats its
//! earlier readings, as when an intruder plays a recording. It computes on each reading at once,
//! and raises the alarm when the reading is final.

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use seriatim_client::{StoredRecord, SubscribeOptions};
use support::{Application, Arrival, Failure, compare, tell};

/// A reading this many deviations from the mean is an alarm.
const FAR: f64 = 3.0;
/// Shortest detected recording, in readings.
const SHORTEST: usize = 60;
/// Likeness (1 for equal readings) above which repeated readings raise an alarm.
const ALIKE: f64 = 0.95;
/// Length of the recording that the example's intruder plays, in readings.
const RECORDING: usize = 80;

#[derive(Clone)]
struct Detection {
    groups: u32,
    sensors: u32,
    readings: usize,
    /// Number of latest readings in the statistics.
    window: usize,
}

/// A sensor's current readings, the oldest first.
#[derive(Clone, Debug, PartialEq)]
struct Sensor {
    readings: VecDeque<f64>,
    statistics: Statistics,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Statistics {
    mean: f64,
    deviation: f64,
    /// Highest likeness to earlier readings, over all lags.
    likeness: f64,
}

/// Effect of a reading: the replaced state, for undo, and the alarm.
#[derive(Clone, Debug)]
struct Noted {
    sensor: u32,
    oldest: f64,
    before: Statistics,
    alarm: Option<Alarm>,
}

#[derive(Clone, Debug, PartialEq)]
enum Alarm {
    Far { sensor: u32, reading: f64 },
    Recording { sensor: u32 },
}

impl Sensor {
    fn new(readings: VecDeque<f64>) -> Self {
        let statistics = Statistics::of(&readings);
        Self { readings, statistics }
    }
}

impl Statistics {
    fn of(readings: &VecDeque<f64>) -> Self {
        let count = readings.len() as f64;
        let mean = readings.iter().sum::<f64>() / count;
        let squares = readings.iter().map(|reading| (reading - mean).powi(2)).sum::<f64>();
        let rises: Vec<bool> =
            readings.iter().zip(readings.iter().skip(1)).map(|(one, next)| next > one).collect();
        let likeness = (SHORTEST..=rises.len() / 2).map(|lag| likeness(&rises, lag)).fold(0.0, f64::max);
        let deviation = (squares / count).sqrt();
        Self { mean, deviation, likeness }
    }
}

/// Fraction of the latest `lag` steps in the same direction as the `lag` steps before.
fn likeness(rises: &[bool], lag: usize) -> f64 {
    let (before, latest) = (&rises[rises.len() - 2 * lag..rises.len() - lag], &rises[rises.len() - lag..]);
    before.iter().zip(latest).filter(|(before, latest)| before == latest).count() as f64 / lag as f64
}

impl Detection {
    /// All readings of a sensor, first those from before the run: noise with outliers. The first
    /// sensor of each group plays a recording at the end.
    fn readings_of(&self, group: u32, sensor: u32) -> Vec<f64> {
        let mut random = StdRng::seed_from_u64(u64::from(group) << 32 | u64::from(sensor));
        let mut readings: Vec<f64> = vec![];
        for number in 0..self.window + self.readings {
            let is_played = sensor == 0 && number >= self.window + self.readings / 4;
            let reading = match is_played {
                true => readings[readings.len() - RECORDING],
                false if number >= self.window && random.random_ratio(1, 50) => 60.0,
                false => 20.0 + random.random_range(-1.0..1.0),
            };
            readings.push(reading);
        }
        readings
    }
}

impl Application for Detection {
    type State = BTreeMap<u32, Sensor>;
    type Effect = Noted;
    type Answer = Alarm;

    fn shards(&self) -> u32 {
        self.groups
    }

    fn sources(&self) -> Vec<Vec<Arrival>> {
        let group = |group: u32| {
            let sensors: Vec<Vec<f64>> =
                (0..self.sensors).map(|sensor| self.readings_of(group, sensor)).collect();
            let numbers = self.window..self.window + self.readings;
            let all =
                numbers.flat_map(|number| sensors.iter().enumerate().map(move |of| (of.0, of.1[number])));
            let arrival = |(sensor, reading)| Arrival {
                text: format!("{sensor} {reading}"),
                shard: Some(group),
                ..Arrival::default()
            };
            all.map(arrival).collect()
        };
        (0..self.groups).map(group).collect()
    }

    fn tasks(&self) -> Vec<(SubscribeOptions, usize)> {
        let records = self.readings * self.sensors as usize;
        (0..self.groups).map(|group| (SubscribeOptions::default().shards([group]), records)).collect()
    }

    fn start(&self) -> Self::State {
        // Each task knows the usual readings from a quiet time, the same for all groups.
        let quiet = |sensor| self.readings_of(0, sensor).into_iter().take(self.window).collect();
        (0..self.sensors).map(|sensor| (sensor, Sensor::new(quiet(sensor)))).collect()
    }

    fn compute(&self, sensors: &mut Self::State, record: &StoredRecord) -> Noted {
        let payload = record.payload();
        let text = std::str::from_utf8(&payload).expect("readings are text");
        let (sensor, reading) = text.split_once(' ').expect("a sensor and its reading");
        let sensor: u32 = sensor.parse().expect("the number of a sensor");
        let reading: f64 = reading.parse().expect("a reading");
        let known = sensors.get_mut(&sensor).expect("it is one of the group");
        let oldest = known.readings.pop_front().expect("each has a quiet time");
        known.readings.push_back(reading);
        let before = std::mem::replace(&mut known.statistics, Statistics::of(&known.readings));
        let is_far = (reading - before.mean).abs() > FAR * before.deviation;
        let alarm = match known.statistics.likeness > ALIKE {
            _ if is_far => Some(Alarm::Far { sensor, reading }),
            true => Some(Alarm::Recording { sensor }),
            false => None,
        };
        Noted { sensor, oldest, before, alarm }
    }

    fn undo(&self, sensors: &mut Self::State, noted: Noted) {
        let known = sensors.get_mut(&noted.sensor).expect("it was computed on");
        known.readings.pop_back();
        known.readings.push_front(noted.oldest);
        known.statistics = noted.before;
    }

    fn answer(&self, noted: &Noted) -> Option<Alarm> {
        noted.alarm.clone()
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let detection = Detection { groups: 2, sensors: 4, readings: 250, window: 4096 };
    let runs = compare(&detection, support::address(), Duration::from_millis(4)).await?;
    tell(&runs, "alarms");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Detection = Detection { groups: 2, sensors: 2, readings: 240, window: 256 };

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_log_raises_the_same_alarms_and_they_are_right() {
        for run in compare(&SMALL, None, Duration::from_millis(2)).await.unwrap() {
            for (group, outcome) in (0..).zip(&run.outcomes) {
                let found: Vec<&Alarm> = outcome.answers.iter().map(|(_, alarm)| alarm).collect();
                let far = |sensor| {
                    let readings = SMALL.readings_of(group, sensor).split_off(SMALL.window);
                    readings.iter().filter(|reading| **reading == 60.0).count()
                };
                let is_far = |alarm: &&&Alarm| matches!(alarm, Alarm::Far { .. });
                assert_eq!(found.iter().filter(is_far).count(), far(0) + far(1), "{found:?}");
                let played: Vec<_> = found.iter().filter(|alarm| !is_far(alarm)).collect();
                assert!(!played.is_empty(), "nobody notices the recording");
                assert!(played.iter().all(|alarm| ***alarm == Alarm::Recording { sensor: 0 }), "{found:?}");
            }
        }
    }

    #[test]
    fn what_is_undone_was_never_there() {
        support::undo_restores(&SMALL);
    }
}
