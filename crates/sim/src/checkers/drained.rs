//! When a log does without a node that is drained, as many others as it is to have hold everything:
//! stopping that node for good costs no redundancy.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    history.left_early.first().map_or(Ok(()), |early| Err(early.clone()))
}
