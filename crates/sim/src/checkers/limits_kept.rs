//! A log that nothing disturbs keeps to its limits in the end; and marks of time reach all that is
//! final.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    match &history.exceeds {
        Some(what) => Err(format!("the log does not keep to its limits: {what}")),
        None => Ok(()),
    }
}
