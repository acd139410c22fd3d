//! When a log excludes a drained node, its full number of replicas hold everything: stopping the
//! node costs no redundancy.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    history.left_early.first().map_or(Ok(()), |early| Err(early.clone()))
}
