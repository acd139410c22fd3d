//! A log that is trimmed to its tail gives back the room that its records took.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    match &history.unfreed {
        Some(what) => Err(what.clone()),
        None => Ok(()),
    }
}
