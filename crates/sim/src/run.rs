//! One run: plan, world, verdict.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::checkers::{self, Objection};
use crate::coverage::Coverage;
use crate::plan::Plan;
use crate::world::World;

/// Outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The checkers' objections.
    pub objections: Vec<Objection>,
    /// Coverage of the run.
    pub coverage: Coverage,
    /// Hash of the run's events.
    pub hash: u64,
    /// Events as text, if requested.
    pub trace: Vec<String>,
}

/// Checker name for failed assertions in the code.
pub const ASSERTION: &str = "assertion";

/// Runs and judges a plan. With `readable`, the outcome has a trace.
#[must_use]
pub fn run(plan: Plan, readable: bool) -> Outcome {
    let seed = plan.seed;
    let mut world = World::new(plan, readable);
    let lived = catch_unwind(AssertUnwindSafe(|| world.run()));
    let scene = world.into_scene();
    let objections = match lived {
        Ok(()) => checkers::judge(&scene.history),
        Err(cause) => vec![Objection { checker: ASSERTION, what: text_of(&*cause) }],
    };
    let coverage = Coverage { excuses: scene.history.excuses, ..scene.coverage };
    Outcome { seed, objections, coverage, hash: scene.trace.hash(), trace: scene.trace.lines().to_vec() }
}

fn text_of(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().cloned();
    text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}
