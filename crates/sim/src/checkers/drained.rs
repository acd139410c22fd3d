//! A log excludes a drained node only when its full number of other replicas hold all records:
//! stopping the node costs no redundancy.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    history.left_early.first().map_or(Ok(()), |early| Err(early.clone()))
}
