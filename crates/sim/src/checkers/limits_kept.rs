//! At the end of a run, an undisturbed log is within its retention limits, and its time marks cover
//! all final records.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    match &history.exceeds {
        Some(what) => Err(format!("the log does not keep to its limits: {what}")),
        None => Ok(()),
    }
}
