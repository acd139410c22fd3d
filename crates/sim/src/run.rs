//! One run: a plan, its world, its verdict.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::checkers::{self, Objection};
use crate::coverage::Coverage;
use crate::plan::Plan;
use crate::world::World;

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The checkers' objections.
    pub objections: Vec<Objection>,
    /// The situations that the run went through.
    pub coverage: Coverage,
    /// The number that tells this run from any other.
    pub hash: u64,
    /// The events of the run, if they were wanted.
    pub trace: Vec<String>,
}

/// The name under which an assertion of the code itself objects.
pub const ASSERTION: &str = "assertion";

/// Lives through a plan, and judges it. With `readable`, the outcome has a trace.
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
