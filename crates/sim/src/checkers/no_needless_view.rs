//! A busy node is not a dead one: as long as nothing fails, no load and no slow disk changes a view.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    let Some(load) = history.load.as_ref().filter(|load| load.is_over && load.faults == 0) else {
        return Ok(());
    };
    if load.last_view == load.view {
        return Ok(());
    }
    Err(format!("nothing failed, and view {} is by now view {}", load.view, load.last_view))
}
