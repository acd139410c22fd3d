//! How long the steps of the last view change took, for measurements of failover.

use std::time::Duration;

use seriatim_model::{Time, ViewNumber};

use super::attempt::Step;
use super::message::StepTime;

/// When each step of a view change was done.
#[derive(Clone, Debug, Default)]
pub(super) struct Timings {
    view: ViewNumber,
    noticed: Time,
    steps: Vec<(&'static str, Time)>,
    last: Vec<(&'static str, Time)>,
}

impl Timings {
    /// A view is needed.
    pub(super) fn noticed(&mut self, now: Time) {
        self.noticed = now;
        self.steps.clear();
    }

    pub(super) fn reached(&mut self, now: Time, step: &'static str) {
        // A second attempt starts from the beginning.
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

    /// How long it took, from the first of its steps to the last.
    pub(super) fn took(&self) -> Option<Duration> {
        let ((_, first), (_, last)) = (self.last.first()?, self.last.last()?);
        Some(last.since(*first))
    }

    /// The view that was registered here last, and how many microseconds ago each step was done.
    pub(super) fn last(&self, now: Time) -> (ViewNumber, Vec<StepTime>) {
        let ago = |at: Time| now.since(at).as_micros() as u64;
        let steps = self.last.iter();
        let steps = steps.map(|(step, at)| StepTime { step: (*step).to_owned(), micros_ago: ago(*at) });
        (self.view, steps.collect())
    }
}
