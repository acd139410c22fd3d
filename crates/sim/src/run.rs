//! One run: a plan, its world, its verdict.

use crate::checkers::{self, Objection};
use crate::coverage::Coverage;
use crate::plan::Plan;
use crate::world::World;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What the checkers object to.
    pub objections: Vec<Objection>,
    /// What was gone through.
    pub coverage: Coverage,
    /// What tells this run from any other.
    pub hash: u64,
    /// What happened, if that was wanted.
    pub trace: Vec<String>,
}

/// Lives through a plan, and judges it. With `readable`, the outcome has a trace.
#[must_use]
pub fn run(plan: Plan, readable: bool) -> Outcome {
    let seed = plan.seed;
    let mut world = World::new(plan, readable);
    world.run();
    Outcome {
        seed,
        objections: checkers::judge(&world.history),
        hash: world.trace.hash(),
        trace: world.trace.lines().to_vec(),
        coverage: world.coverage,
    }
}
