//! Durations of the last view change's steps, for measurements of failover.

use std::time::Duration;

use seriatim_model::{Time, ViewNumber};

use super::attempt::Step;
use super::message::StepTime;

#[derive(Clone, Debug, Default)]
pub(super) struct Timings {
    view: ViewNumber,
    noticed: Time,
    steps: Vec<(&'static str, Time)>,
    last: Vec<(&'static str, Time)>,
}

impl Timings {
    pub(super) fn noticed(&mut self, now: Time) {
        self.noticed = now;
        self.steps.clear();
    }

    pub(super) fn reached(&mut self, now: Time, step: &'static str) {
        // A second attempt repeats the steps.
        if let Some(index) = self.steps.iter().position(|(known, _)| *known == step) {
            self.steps.truncate(index);
        }
        self.steps.push((step, now));
    }

    pub(super) fn registered(&mut self, now: Time, view: ViewNumber) {
        self.reached(now, Step::Register.name());
        self.view = view;
        self.last = std::mem::take(&mut self.steps);
        self.last.insert(0, ("notice", self.noticed));
    }

    pub(super) fn took(&self) -> Option<Duration> {
        let ((_, first), (_, last)) = (self.last.first()?, self.last.last()?);
        Some(last.since(*first))
    }

    /// The last view registered here, with the time since each step.
    pub(super) fn last(&self, now: Time) -> (ViewNumber, Vec<StepTime>) {
        let ago = |at: Time| now.since(at).as_micros() as u64;
        let steps = self.last.iter();
        let steps = steps.map(|(step, at)| StepTime { step: (*step).to_owned(), micros_ago: ago(*at) });
        (self.view, steps.collect())
    }
}
