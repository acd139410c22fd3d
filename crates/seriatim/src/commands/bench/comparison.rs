//! Several subjects side by side: rounds in turn, so that whatever happens on the machine meanwhile happens to
//! all of them, and the floor of each round right before what is compared with it.

use std::time::Duration;

use seriatim_client::{DelayLine, Order};

use super::chart::Chart;
use super::cluster::{Shape, delay_line};
use super::figures::{Figure, Measured, Report, Row, Subject, check_files, write_file};
use super::page;
use super::table::{Table, table_of};
use crate::arguments::ComparisonArguments;
use crate::output::{Failure, Outcome, print_line, steps};

/// What all subjects of a comparison have in common.
pub(super) struct Comparison<'a> {
    pub(super) arguments: &'a ComparisonArguments,
    pub(super) duration: Duration,
    pub(super) delay: Option<DelayLine>,
}

impl<'a> Comparison<'a> {
    /// Fails if the figures could not be written.
    pub(super) fn new(arguments: &'a ComparisonArguments) -> Result<Self, Failure> {
        check_files([arguments.repeat.json.as_deref(), arguments.report.as_deref()])?;
        let duration = Duration::from_secs(arguments.duration);
        Ok(Self { arguments, duration, delay: delay_line(arguments.rtt)? })
    }

    /// The cluster for an ordering.
    pub(super) fn shape(&self, order: Order, shards: u32) -> Shape {
        let copies = self.arguments.copies;
        let (durability, replicas) = (copies.durable.durability, copies.replicas);
        Shape { order, durability, shards, replicas, delay: self.delay.clone() }
    }

    /// Measures all subjects in each round, in their order. The first is the floor.
    pub(super) async fn run<S>(
        &self,
        subjects: &[(Subject, S)],
        measure: impl AsyncFn(&S) -> Result<Measured, Failure>,
    ) -> Result<Vec<Row>, Failure> {
        let rounds = self.arguments.repeat.rounds;
        let bar = steps(subjects.len() as u64 * u64::from(rounds));
        let mut found: Vec<Vec<Measured>> = subjects.iter().map(|_| vec![]).collect();
        for round in 1..=rounds {
            let mut floor = None;
            for ((subject, setting), found) in subjects.iter().zip(&mut found) {
                bar.set_message(format!("round {round} of {rounds}: {}", subject.label()));
                let mut measured = measure(setting).await?;
                measured.compare_with(floor.get_or_insert_with(|| measured.figures.clone()));
                found.push(measured);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let subjects = subjects.iter().map(|(subject, _)| subject.clone());
        Ok(subjects.zip(found).map(|(subject, rounds)| Row::new(subject, rounds)).collect())
    }

    /// Prints the rows with these figures, and writes what is wanted to files.
    pub(super) fn tell(
        &self,
        rows: Vec<Row>,
        figures: &[Figure],
        remark: impl FnOnce(&[Row], &mut Table),
        charts: impl FnOnce(&[Row]) -> Vec<Chart>,
    ) -> Outcome {
        let report = Report::new(rows);
        let mut table = table_of(&report.rows, figures);
        if self.delay.is_some() {
            table.remark(format_args!("with {:?} between a message and its answer", self.arguments.rtt));
        }
        remark(&report.rows, &mut table);
        table.print();
        print_line(&report.machine);
        report.write(self.arguments.repeat.json.as_deref())?;
        let Some(path) = self.arguments.report.as_deref() else { return Ok(()) };
        write_file(path, &page::render(&report, &table, &charts(&report.rows)))
    }
}

/// The floor, and then all the others.
pub(super) fn with_floor<S>(others: impl IntoIterator<Item = (Subject, S)>) -> Vec<(Subject, Option<S>)> {
    let others = others.into_iter().map(|(subject, setting)| (subject, Some(setting)));
    [(Subject::named("floor"), None)].into_iter().chain(others).collect()
}
