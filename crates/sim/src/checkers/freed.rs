//! A log trimmed to its tail frees the disk space of its records.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    match &history.unfreed {
        Some(what) => Err(what.clone()),
        None => Ok(()),
    }
}
