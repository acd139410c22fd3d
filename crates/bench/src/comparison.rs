//! Measures several subjects (orderings and floors) in alternating rounds, so that disturbances of
//! the machine affect all of them. Each round measures its floor, the machine's own limit, first.

use std::time::Duration;

use seriatim_client::{DelayLine, Durability, Order};
use seriatim_model::limits;

use super::cluster::{Shape, delay_line};
use super::figure::Setting;
use super::figures::Measured;
use super::presentation::{Presentation, check};
use super::report::{DISK_FLOOR, FLOOR, Row, Settings, Subject};
use crate::arguments::ComparisonArguments;
use crate::terminal::{Failure, Outcome, steps};

pub(super) struct Comparison<'a> {
    pub(super) arguments: &'a ComparisonArguments,
    pub(super) duration: Duration,
    pub(super) delay: Option<DelayLine>,
}

/// Measured subjects. Each has the settings of its floor and, unless it is a floor, an ordering
/// with other settings.
pub(super) type Subjects<F, O> = Vec<(Subject, (F, Option<(Order, O)>))>;

impl<'a> Comparison<'a> {
    pub(super) fn new(arguments: &'a ComparisonArguments) -> Result<Self, Failure> {
        check(&arguments.repeat)?;
        let duration = Duration::from_secs(arguments.duration);
        Ok(Self { arguments, duration, delay: delay_line(arguments.rtt)? })
    }

    pub(super) fn shape(&self, order: Order, shards: u32) -> Shape {
        let copies = self.arguments.copies;
        let (durability, replicas) = (copies.durable.durability, copies.replicas);
        let (window, delay) = (limits::DEFAULT_WINDOW, self.delay.clone());
        Shape { order, durability, shards, replicas, window, delay, apart: None }
    }

    /// For each setting of the floor, the floor and then every ordering with every other setting.
    pub(super) fn subjects<F: Clone, O: Clone>(
        &self,
        of_floor: &[(Settings, F)],
        of_others: &[(Settings, O)],
    ) -> Subjects<F, O> {
        let mut subjects = vec![];
        for (settings, floor) in of_floor {
            let subject = Subject { name: FLOOR.to_owned(), settings: settings.clone() };
            subjects.push((subject, (floor.clone(), None)));
            for order in &self.arguments.order {
                for (more, other) in of_others {
                    let settings = settings.iter().chain(more).map(|(setting, value)| (*setting, *value));
                    let subject = Subject { name: order.to_string(), settings: settings.collect() };
                    subjects.push((subject, (floor.clone(), Some((*order, other.clone())))));
                }
            }
        }
        subjects
    }

    /// Adds a disk floor after each floor, if the log waits for disks.
    pub(super) fn with_disk_floors<F: Clone, O: Clone>(&self, subjects: Subjects<F, O>) -> Subjects<F, O> {
        let waits = self.arguments.copies.durable.durability == Durability::Disk;
        let with = |(subject, setting): (Subject, (F, Option<(Order, O)>))| {
            let is_floor = waits && subject.is_floor();
            let of_disk = Subject { name: DISK_FLOOR.to_owned(), ..subject.clone() };
            let disk = is_floor.then(|| (of_disk, setting.clone()));
            [(subject, setting)].into_iter().chain(disk)
        };
        subjects.into_iter().flat_map(with).collect()
    }

    /// Compares each subject with the preceding floor, plus the disk floor if there is one.
    pub(super) async fn run<S>(
        &self,
        subjects: &[(Subject, S)],
        measure: impl AsyncFn(&Subject, &S) -> Result<Measured, Failure>,
    ) -> Result<Vec<Row>, Failure> {
        let rounds = self.arguments.repeat.rounds;
        let bar = steps(subjects.len() as u64 * u64::from(rounds));
        let mut found: Vec<Vec<Measured>> = subjects.iter().map(|_| vec![]).collect();
        for round in 1..=rounds {
            let mut floor = None;
            for ((subject, setting), found) in subjects.iter().zip(&mut found) {
                bar.set_message(format!("round {round} of {rounds}: {}", subject.label()));
                let mut measured = measure(subject, setting).await?;
                match &mut floor {
                    Some(floor) if subject.is_disk_floor() => measured.add_to(floor),
                    _ if subject.is_floor() => floor = Some(measured.figures.clone()),
                    _ => {}
                }
                if let Some(floor) = floor.as_ref().filter(|_| !subject.is_disk_floor()) {
                    measured.compare_with(floor);
                }
                found.push(measured);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let subjects = subjects.iter().map(|(subject, _)| subject.clone());
        Ok(subjects.zip(found).map(|(subject, rounds)| Row::new(subject, rounds)).collect())
    }

    pub(super) fn tell(&self, rows: Vec<Row>, presentation: &Presentation) -> Outcome {
        let far = format!("with {:?} between a message and its answer", self.arguments.rtt);
        let circumstances = if self.delay.is_some() { vec![far] } else { vec![] };
        presentation.tell(rows, &self.arguments.repeat, &circumstances)
    }
}

/// Values of a setting, named only if there are several.
pub(super) fn values<T: Clone>(
    setting: Setting,
    values: &[T],
    number: impl Fn(&T) -> f64,
) -> Vec<(Settings, T)> {
    let told = |value: &T| [(setting, number(value))].into_iter().filter(|_| values.len() > 1).collect();
    values.iter().map(|value| (told(value), value.clone())).collect()
}

pub(super) fn each_with_each<A: Clone, B: Clone>(
    these: &[(Settings, A)],
    those: &[(Settings, B)],
) -> Vec<(Settings, (A, B))> {
    let with = |(settings, a): &(Settings, A)| {
        let (settings, a) = (settings.clone(), a.clone());
        those.iter().map(move |(more, b)| {
            let both = settings.iter().chain(more).map(|(setting, value)| (*setting, *value));
            (both.collect(), (a.clone(), b.clone()))
        })
    };
    these.iter().flat_map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_meets_each_other_and_what_does_not_vary_is_not_told() {
        let rates = values(Setting::Asked, &[10_u64, 20], |rate| *rate as f64);
        let sizes = values(Setting::Size, &[100_usize], |size| *size as f64);
        let both = each_with_each(&sizes, &rates);
        assert_eq!(both.iter().map(|(_, both)| *both).collect::<Vec<_>>(), [(100, 10), (100, 20)]);
        assert_eq!(both[1].0, [(Setting::Asked, 20.0)].into());
    }
}
