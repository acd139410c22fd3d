//! An absence copies nothing: a replica that stands in for a node copies the shard only when the
//! node has been away for longer than a replica may be. Where nodes are drained, others take over
//! from them at once.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    history.copied_early.first().map_or(Ok(()), |early| Err(early.clone()))
}
