//! While only nodes fail and clients stay connected, every append is in the log at the first
//! attempt, under any load.

use super::Finding;
use crate::history::{Append, History, Load, Outcome};

pub(super) fn check(history: &History) -> Finding {
    let is_calm = |load: &&Load| load.is_over && load.are_deaths && !load.has_resets;
    if history.load.as_ref().filter(is_calm).is_none() {
        return Ok(());
    }
    let failed =
        |append: &&Append| append.again > 0 || matches!(append.outcome, Outcome::Refused | Outcome::Unknown);
    let failed: Vec<&Append> = history.appends.iter().filter(failed).collect();
    let Some(first) = failed.first() else { return Ok(()) };
    Err(format!(
        "nothing but nodes failed, and {} of {} appends were refused, or made again; the first: {:?}, {} times again",
        failed.len(),
        history.appends.len(),
        first.outcome,
        first.again
    ))
}
