//! A spare node copies a shard only after its replica was absent for the allowed time. Drained
//! nodes are replaced at once.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    history.copied_early.first().map_or(Ok(()), |early| Err(early.clone()))
}
