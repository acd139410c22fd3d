//! A spare copies the shard only after the allowed absence. Drained nodes are replaced at once.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    history.copied_early.first().map_or(Ok(()), |early| Err(early.clone()))
}
