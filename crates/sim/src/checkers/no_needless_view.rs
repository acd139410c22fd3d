//! Busy nodes are not suspected: while nothing fails, no load and no slow disk changes a view or
//! makes a node claim one.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    let Some(load) = history.load.as_ref().filter(|load| load.is_over && load.faults == 0) else {
        return Ok(());
    };
    let (view, claim) = (load.view, load.last_claim);
    if claim == view {
        return Ok(());
    }
    Err(format!(
        "nothing failed, and view {view} is by now view {}, and view {claim} was claimed",
        load.last_view
    ))
}
